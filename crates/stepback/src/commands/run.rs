//! The command `stepback run`: runs an agent once with our hooks, and with its model calls through our proxy.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use stepback_agents::install::{
    self, InstallDirection, InstallPlan, InstallScope, Route, RunPlan, SettingsPaths,
};
use stepback_agents::model_call_inbox::{self, ModelCallWriter};
use stepback_agents::model_call_sink::ModelCallSink;
use stepback_agents::{Agent, record};
use stepback_engine::Workspace;
use stepback_model::record::LaunchCommand;
use stepback_proxy::{Listen, Proxy, ProxyAccess, ProxyConfig, ProxyLimits, Upstreams};

use super::CommandResult;
use super::agents::{current_exe_path, find_settings_paths, install_failure};
use crate::args::Arguments;
use crate::args::live::RunArgs;
use crate::context::{self, Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// How long model calls may continue after the agent has ended.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs `stepback run`.
pub fn run(arguments: &Arguments, wanted: &RunArgs) -> CommandResult {
    let directory = &arguments.working_directory()?;
    let agent = install::detect_agent(&wanted.command).ok_or_else(|| {
        let command =
            wanted.command.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        CommandFailure::new(FailureKind::Usage, format!("\"{command}\" is not an agent stepback knows"))
            .with_hint("stepback run -- claude … (or codex, gemini, opencode)")
    })?;
    let place = find_settings_paths(&context::natural_root(directory))?;
    let temp = stepback_rerun::scratch::private_directory("stepback-run-")?;
    let environment: Vec<(OsString, OsString)> = std::env::vars_os().collect();
    let binary = current_exe_path()?;
    let run = install::HookedCommand {
        argv: &wanted.command,
        cwd: directory,
        environment: &environment,
        paths: &place,
        binary: &binary,
        strict: wanted.strict,
        temp_dir: temp.path(),
    };
    let mut plan = install::plan_run(agent, &run).map_err(install_failure)?;
    let hindrance = install::find_blocking_variable(&run);
    let routes = match wanted.no_proxy || hindrance.is_some() {
        true => Vec::new(),
        false => install::find_routes(agent, &run),
    };
    let status = if routes.is_empty() {
        if !wanted.no_proxy {
            let why = match hindrance {
                Some(name) => format!("{name} is set, and a proxy in between could break them"),
                None => "their address cannot be proxied".to_owned(),
            };
            plan.notes.push(format!("Its model calls are not recorded: {why}."));
        }
        run_with_hooks(&plan, &place, &binary, directory)?
    } else {
        run_with_proxy(arguments, wanted, agent, &run, routes, plan, directory)?
    };
    // A signal that ended the agent is reported as shells do.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

/// Runs the agent with its model calls through a proxy. If the proxy cannot start, the agent runs without it: recording
/// must never prevent the work.
fn run_with_proxy(
    arguments: &Arguments,
    wanted: &RunArgs,
    agent: Agent,
    run: &install::HookedCommand<'_>,
    routes: Vec<Route>,
    mut plan: RunPlan,
    directory: &Path,
) -> Result<ExitStatus, CommandFailure> {
    let without = |why: String| {
        output::print_status(format!("Warning: model calls are not recorded in this run: {why}"));
    };
    let context = match Context::open(arguments, CreateStore::Yes, "") {
        Ok(context) => context,
        Err(failure) => {
            without(failure.message().to_owned());
            return run_with_hooks(&plan, run.paths, run.binary, directory);
        }
    };
    let prepared = context.open_or_create_workspace().and_then(|workspace| {
        let recorder = create_recorder(&context, &workspace, agent, wanted, directory)?;
        Ok((workspace, recorder))
    });
    let (workspace, (recorder, taken)) = match prepared {
        Ok(prepared) => prepared,
        Err(failure) => {
            without(failure.message().to_owned());
            return run_with_hooks(&plan, run.paths, run.binary, directory);
        }
    };
    let recorder = Arc::new(recorder);
    let mut proxies = Vec::new();
    let mut told = Vec::new();
    for route in routes {
        match start_proxy(&route, &recorder) {
            Ok(proxy) => {
                told.push((route, proxy.url()));
                proxies.push(proxy);
            }
            Err(error) => without(format!("{}: {error}", stepback_redact::redact(&route.upstream))),
        }
    }
    install::route_through_proxy(agent, run, &told, &mut plan).map_err(install_failure)?;
    plan.env.push((model_call_inbox::VARIABLE.to_owned(), "1".to_owned()));
    let status = std::thread::scope(|scope| {
        scope.spawn(|| record_until_closed(&workspace, taken));
        let status = run_with_hooks(&plan, run.paths, run.binary, directory);
        for proxy in proxies {
            proxy.shutdown(SHUTDOWN_TIMEOUT);
        }
        if let Some(why) = recorder.first_error() {
            without(why);
        }
        // The recording thread ends when all senders are dropped.
        drop(recorder);
        status
    });
    // The last events are recorded now, or by the next command.
    let _ = record::record_inbox(&workspace);
    status
}

fn create_recorder(
    context: &Context,
    workspace: &Workspace,
    agent: Agent,
    wanted: &RunArgs,
    directory: &Path,
) -> Result<(ModelCallSink, Receiver<()>), CommandFailure> {
    let text = |word: &OsString| stepback_redact::redact(&word.to_string_lossy()).into_owned();
    let mut argv: Vec<String> = wanted.command.iter().map(text).collect();
    // Another executable may be first on the PATH when the session is continued.
    if let (Some(word), Some(found)) =
        (argv.first_mut(), wanted.command.first().and_then(context::find_on_path))
    {
        *word = found.display().to_string();
    }
    let started = LaunchCommand {
        argv,
        directory: directory.display().to_string(),
        home: context::home_dir().map(|home| home.display().to_string()).unwrap_or_default(),
        temp: std::env::temp_dir().display().to_string(),
    };
    let writer = ModelCallWriter {
        dir: workspace.cache_dir()?.unwrap_or_default(),
        agent: Some(agent.name().to_owned()),
        session: None,
        started: Some(started),
        since: context.now(),
        prices: context.load_prices()?,
        recorder: workspace.engine.recorder.clone(),
    };
    Ok(ModelCallSink::new(writer))
}

fn start_proxy(route: &Route, recorder: &Arc<ModelCallSink>) -> std::io::Result<Proxy> {
    stepback_proxy::start(ProxyConfig {
        listen: Listen::Addr(([127, 0, 0, 1], 0).into()),
        upstreams: Upstreams { default: Some(route.upstream.clone()), ..Upstreams::default() },
        sink: recorder.clone(),
        responder: None,
        limits: ProxyLimits::default(),
        certificates: context::path_variable("NODE_EXTRA_CA_CERTS"),
        access: ProxyAccess::default(),
    })
}

/// Records what the proxy notes, until the proxy has ended.
pub fn record_until_closed(workspace: &Workspace, notifications: Receiver<()>) {
    while notifications.recv().is_ok() {
        while notifications.try_recv().is_ok() {}
        // On failure, the next event or command tries again.
        let _ = record::record_inbox(workspace);
    }
}

/// Runs a planned command with the settings it needs, for the duration of the run.
fn run_with_hooks(
    plan: &RunPlan,
    place: &SettingsPaths,
    binary: &Path,
    directory: &Path,
) -> Result<ExitStatus, CommandFailure> {
    for (path, bytes) in &plan.files {
        std::fs::write(path, bytes)?;
    }
    for note in &plan.notes {
        output::print_status(Paint::stderr().dim(note));
    }
    let guard = TemporarySettings::apply(&plan.edits, place, binary)?;
    let (program, rest) =
        plan.argv.split_first().ok_or_else(|| CommandFailure::new(FailureKind::Usage, "no command"))?;
    // Interrupt keys are meant for the agent, as in a shell; this process ends when the agent ends.
    for signal in [SIGINT, SIGQUIT] {
        signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)))?;
    }
    let status = Command::new(program)
        .args(rest)
        .envs(plan.env.iter().map(|(name, value)| (name, value)))
        .current_dir(directory)
        .spawn()
        .and_then(|mut child| {
            let over = Arc::new(AtomicBool::new(false));
            for (number, signal) in [(SIGTERM, Signal::TERM), (SIGHUP, Signal::HUP)] {
                forward_signal(&child, number, signal, over.clone())?;
            }
            let status = child.wait();
            over.store(true, Ordering::SeqCst);
            status
        });
    drop(guard);
    status.map_err(|error| {
        CommandFailure::new(FailureKind::System, format!("cannot run {}: {error}", program.to_string_lossy()))
            .with_hint("check that the agent is installed and on the PATH")
    })
}

/// Forwards a terminating signal to the agent: a signal to a wrapper is meant for the program in it, and settings still
/// have to be restored.
fn forward_signal(child: &Child, number: i32, signal: Signal, over: Arc<AtomicBool>) -> std::io::Result<()> {
    let Some(agent) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return Ok(()) };
    let (mut heard, told) = UnixStream::pair()?;
    signal_hook::low_level::pipe::register(number, told)?;
    std::thread::spawn(move || {
        while heard.read_exact(&mut [0]).is_ok() && !over.load(Ordering::SeqCst) {
            // The agent may just have ended by itself.
            let _ = kill_process(agent, signal);
        }
    });
    Ok(())
}

/// Changes of settings for the duration of a run.
struct TemporarySettings<'a> {
    applied: Vec<&'a InstallPlan>,
    place: &'a SettingsPaths,
    binary: &'a Path,
}

impl<'a> TemporarySettings<'a> {
    fn apply(
        plans: &'a [InstallPlan],
        place: &'a SettingsPaths,
        binary: &'a Path,
    ) -> Result<Self, CommandFailure> {
        let mut edits = Self { applied: Vec::new(), place, binary };
        for plan in plans {
            install::apply_plan(plan).map_err(install_failure)?;
            edits.applied.push(plan);
        }
        Ok(edits)
    }

    fn uninstall(&self, agent: Agent) -> Result<install::WriteResult, install::InstallError> {
        let plan = install::plan(
            agent,
            InstallScope::User,
            self.place,
            self.binary,
            false,
            InstallDirection::Uninstall,
        )?;
        install::apply_plan(&plan)
    }
}

impl Drop for TemporarySettings<'_> {
    fn drop(&mut self) {
        for plan in std::mem::take(&mut self.applied).into_iter().rev() {
            let back = match install::plan_undo(plan) {
                Ok(Some(back)) => install::apply_plan(&back),
                // The file was edited by the user or another process meanwhile: only our part is removed.
                Ok(None) => self.uninstall(plan.agent),
                Err(error) => Err(error),
            };
            if let Err(error) = back {
                output::print_status(format!(
                    "Warning: {error}; \"stepback init --user --uninstall\" removes the hooks."
                ));
            }
        }
    }
}
