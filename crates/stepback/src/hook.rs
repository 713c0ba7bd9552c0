//! `stepback hook AGENT`, as agents call it: many times a minute, with the agent waiting.
//!
//! This path is taken before the command line is parsed, because building the parser for all commands costs more than
//! recording that a file was read.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use stepback_agents::hook::{Hook, MAX_PAYLOAD_BYTES, UndoHints};
use stepback_agents::policy::{self, Policy};
use stepback_agents::{Agent, install};
use stepback_engine::recorder::settings::RecorderSettings;
use stepback_engine::{Engine, EngineError};
use stepback_model::anomaly::AnomalyLimits;
use stepback_model::env::Env;
use stepback_model::record::LaunchCommand;
use stepback_watcher::client::WatcherClient;
use stepback_worktree::scan::hints::ScanHints;

use crate::context;
use crate::settings::Settings;
use crate::store_location::StoreLocation;
use crate::system;
use crate::watcher;

/// How long to wait for another process that uses the store. The agent waits for us meanwhile.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Runs the hook if the arguments ask for it; returns `None` for everything else, including a request for help.
pub fn run_if_requested(arguments: &[OsString]) -> Option<ExitCode> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let [_, "hook", rest @ ..] = words.as_slice() else { return None };
    if rest.iter().any(|word| matches!(*word, "--help" | "-h")) {
        return None;
    }
    // Invalid arguments must not be a usage error: the agent would treat that as a refusal.
    let nothing = |what: &str| {
        log_warning(what);
        Some(ExitCode::SUCCESS)
    };
    let mut strict = false;
    let mut store = None;
    let mut agent = None;
    let mut rest = rest.iter();
    while let Some(word) = rest.next() {
        match *word {
            "--strict" => strict = true,
            "--store" => store = rest.next().map(PathBuf::from),
            word if word.starts_with('-') || agent.is_some() => {
                log_warning(&format!("\"{word}\" is unknown to this version of the hook; ignored"));
            }
            word => agent = Some(word),
        }
    }
    let Some(agent) = agent else {
        return nothing("the name of the agent is missing; nothing is recorded");
    };
    let Some(agent) = Agent::parse(agent) else {
        return nothing(&format!("\"{agent}\" is not an agent that this version knows; nothing is recorded"));
    };
    let place = match StoreLocation::find(store.as_deref()) {
        Ok(place) => place,
        Err(failure) => {
            let what = failure.hint_text().map_or_else(String::new, |hint| format!(" ({hint})"));
            return nothing(&format!("{}{what}; nothing is recorded", failure.message()));
        }
    };
    Some(run_hook(agent, strict, &place))
}

fn run_hook(agent: Agent, strict: bool, place: &StoreLocation) -> ExitCode {
    let store = place.local_dir();
    let mut payload = Vec::new();
    // One byte more than allowed, so that an oversized payload is detected.
    let read = std::io::stdin().lock().take(MAX_PAYLOAD_BYTES as u64 + 1).read_to_end(&mut payload);
    if let Err(error) = read {
        log_warning(&format!("cannot read the event: {error}"));
    }
    let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let env = system::environment();
    let (settings, unreadable) = match Settings::load(store) {
        Ok(settings) => (settings, None),
        Err(failure) => (Settings::default(), Some(failure.message().to_owned())),
    };
    let (recorder, mut problems) = settings.recorder();
    problems.extend(unreadable);
    let problem = (!problems.is_empty())
        .then(|| format!("defaults are used: {}; \"stepback doctor\" has more", problems.join("; ")));
    let recorder = Arc::new(recorder);
    let transcript =
        (agent == Agent::Opencode).then(|| context::agents_home().map(|home| home.opencode_db())).flatten();
    let watcher = watcher::create_client(place, &settings, true).map(Arc::new);
    let limits = settings.anomaly_limits();
    let policy = context::path_variable(policy::VARIABLE).and_then(|file| Policy::load(&file));
    let hook = Hook {
        agent,
        store,
        directory: &directory,
        env: &*env,
        with_engine: &|work| with_engine(place, &env, (watcher.as_ref(), &recorder, &limits), work),
        new_root: &|directory| context::new_root(directory),
        transcript: transcript.as_deref(),
        answer_timeout: settings.breakpoint_timeout(),
        strict,
        schedule: settings.checkpoint_schedule(),
        scan_around_calls: settings.get("checkpoint.calls") != 0,
        undo_hints: match settings.get("notes") {
            0 => UndoHints::Off,
            2 => UndoHints::PerChange,
            _ => UndoHints::PerPrompt,
        },
        clear_changes_on_commit: settings.get("changes.clear-on-commit") != 0,
        recorder: &recorder,
        settings_problem: problem.as_deref(),
        policy: policy.as_ref(),
        find_launch_command: &|| find_launch_command(agent),
        variable_names: &system::variable_names,
        has_proxy: std::env::var_os(stepback_agents::model_call_inbox::VARIABLE).is_some(),
    };
    let outcome = hook.handle(&payload);
    if let Some(error) = outcome.error {
        log_warning(&error);
    }
    if let Some(answer) = outcome.answer {
        // The agent may have ended; then the answer is not needed.
        let _ = writeln!(std::io::stdout(), "{answer}");
    }
    if let Some(watcher) = &watcher {
        watcher.start_if_wanted();
    }
    ExitCode::SUCCESS
}

/// How many parent processes are searched for the agent: a shell, and what started it.
const MAX_PARENT_PROCESSES: usize = 4;

/// Returns how the calling agent was started: its executable, without its arguments. It is one of the parent processes.
fn find_launch_command(agent: Agent) -> Option<LaunchCommand> {
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..MAX_PARENT_PROCESSES {
        let line = std::fs::read(format!("/proc/{process}/cmdline")).ok()?;
        let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
        let mut argv: Vec<OsString> = words.map(|word| OsString::from_vec(word.to_vec())).collect();
        // A script appears with the shell that runs it.
        let name = argv.first().and_then(|word| Path::new(word).file_name()?.to_str());
        let is_script = argv.get(1).is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-"));
        if is_script && matches!(name, Some("sh" | "bash" | "dash" | "zsh")) {
            argv.remove(0);
        }
        if install::detect_agent(&argv) == Some(agent) {
            let text = |word: &OsString| word.to_string_lossy().into_owned();
            let mut argv: Vec<String> = install::launcher_words(&argv).iter().map(text).collect();
            if let Some(found) = argv.first().and_then(context::find_on_path) {
                argv[0] = found.display().to_string();
            }
            let directory = std::fs::read_link(format!("/proc/{process}/cwd")).ok()?.display().to_string();
            let home = context::home_dir().map(|home| home.display().to_string()).unwrap_or_default();
            let temp = std::env::temp_dir().display().to_string();
            return Some(LaunchCommand { argv, directory, home, temp });
        }
        // The fourth field is the parent; the second, in parentheses, may contain anything.
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
        process = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
    }
    None
}

fn with_engine(
    place: &StoreLocation,
    env: &Arc<dyn Env>,
    (watcher, recorder, limits): (Option<&Arc<WatcherClient>>, &Arc<RecorderSettings>, &AnomalyLimits),
    work: &mut dyn FnMut(&Engine) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let store = place.open_with_timeout(STORE_TIMEOUT)?;
    let watcher = watcher.map(|watcher| watcher.clone() as Arc<dyn ScanHints>);
    work(&Engine {
        watcher,
        recorder: recorder.clone(),
        anomaly_limits: limits.clone(),
        ..Engine::new(store, env.clone())
    })
}

/// Prints to the agent's log, which agents show when a hook misbehaves and ignore otherwise.
fn log_warning(what: &str) {
    let _ = writeln!(std::io::stderr(), "stepback: {what}");
}
