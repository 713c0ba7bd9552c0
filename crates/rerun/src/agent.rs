//! Reruns a recorded agent: its own program, in a separate directory and home, with model calls answered from the recording.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stepback_agents::install::{self, HookedCommand, Route, SettingsPaths};
use stepback_agents::rerun_command::RerunCommand;
use stepback_agents::{Agent, model_call_inbox, policy, sandbox_home};
use stepback_engine::Workspace;
use stepback_model::path::RelPath;
use stepback_model::record::LaunchCommand;
use stepback_model::record::StepRow;
use stepback_worktree::anchored_path::AnchoredDir;
use stepback_worktree::anchored_write::make_dirs;

use crate::RerunError;
use crate::change::RerunChange;
use crate::history;
use crate::replay_responder::{Directories, OnDifference};
use crate::run::{self, PreparedAgent, RerunRequest, RunEnv, io_error};
use crate::sandbox::{Isolation, SandboxedCommand};

/// Variables that point an agent outside of the home it is given, or that are stepback's own.
const REMOVED_VARIABLES: [&str; 12] = [
    "HOME",
    "PWD",
    "OLDPWD",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_CACHE_HOME",
    "XDG_STATE_HOME",
    "CLAUDE_CONFIG_DIR",
    "CODEX_HOME",
    "GEMINI_CLI_HOME",
    "OPENCODE_CONFIG",
];

/// Keys that agents need before they start; with a recording, any value works.
const API_KEY_VARIABLES: [&str; 3] = ["ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY"];

/// Creates the directory that the agent worked in, below the files of the rerun. What was recorded may come from another user,
/// so neither `..` nor a link among the files may lead out.
fn directory_below(work: &Path, relative: &Path) -> std::io::Result<PathBuf> {
    let path = RelPath::parse(relative.as_os_str().as_bytes()).map_err(std::io::Error::other)?;
    make_dirs(&mut AnchoredDir::open(work)?, &path, 0o777)?;
    // Joining an empty path would leave a slash at the end, and agents name folders after this path.
    Ok(if path.is_root() { work.to_path_buf() } else { work.join(relative) })
}

/// Prepares a recorded agent: settings, command, environment.
pub(crate) fn prepare_agent<'a>(
    agent: Agent,
    request: &RerunRequest<'_>,
    from: &StepRow,
    original: &Workspace,
    run_env: &'a RunEnv<'a>,
    resume_session: Option<String>,
) -> Result<PreparedAgent<'a>, RerunError> {
    let (work, own_home, temp) =
        (run_env.scratch.root.clone(), run_env.host.dir.join("home"), run_env.host.dir.join("tmp"));
    let aside = run::run_dir(run_env);
    for dir in [&own_home, &temp, &aside] {
        fs::create_dir_all(dir).map_err(io_error("make a directory for the rerun"))?;
    }
    if resume_session.is_none() {
        sandbox_home::populate_home(agent, run_env.host.home, &own_home)
            .map_err(io_error("copy the agent's settings"))?;
    }

    let started = request.recorded.session.info.started.clone().unwrap_or_default();
    let directories = map_directories(run_env, &started, &work, &own_home, &temp);
    let relative = Path::new(&started.directory).strip_prefix(run_env.original_root).unwrap_or(Path::new(""));
    let directory = directory_below(&work, relative).map_err(io_error("make a directory for the rerun"))?;
    let goes_on = match resume_session {
        None if request.prompt > 0 || history::has_history(agent, request, from, original)? => {
            Some(history::write_history(agent, request, from, original, run_env, &own_home, &directory)?)
        }
        resumed => resumed,
    };
    let argv: Vec<OsString> =
        build_command(agent, request, &started, goes_on.as_deref()).into_iter().map(OsString::from).collect();
    if find_program(&argv, run_env.host.environment).is_none() {
        let program = argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        return Err(RerunError::AgentNotInstalled { agent, program });
    }
    let environment = build_environment(agent, run_env, request, &own_home, &temp, &aside);
    let paths = SettingsPaths::from_home(&own_home, &work);
    let routes = install::find_routes(
        agent,
        &hooked_command(&argv, &directory, &environment, &paths, run_env, &aside),
    );
    if routes.is_empty() {
        return Err(RerunError::NoRoute(agent));
    }
    let build_command = move |proxy_addresses: &[(Route, String)],
                              _: &Isolation|
          -> Result<SandboxedCommand, RerunError> {
        let run = hooked_command(&argv, &directory, &environment, &paths, run_env, &aside);
        let mut plan = install::plan_run(agent, &run)?;
        install::route_through_proxy(agent, &run, proxy_addresses, &mut plan)?;
        for (path, bytes) in &plan.files {
            fs::write(path, bytes).map_err(io_error("write the agent's settings"))?;
        }
        for edit in &plan.edits {
            install::apply_plan(edit)?;
        }
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let mut env: Vec<(String, String)> =
            environment.iter().map(|(name, value)| (text(name), text(value))).collect();
        env.retain(|(name, _)| !plan.env.iter().any(|(set, _)| set == name));
        env.extend(plan.env.iter().cloned());
        Ok(SandboxedCommand { argv: plan.argv.iter().map(text).collect(), env, directory: directory.clone() })
    };
    Ok(PreparedAgent {
        agent: agent.name(),
        routes,
        build_command: Box::new(build_command),
        directories,
        proxy_records: true,
    })
}

fn hooked_command<'r>(
    argv: &'r [OsString],
    cwd: &'r Path,
    environment: &'r [(OsString, OsString)],
    paths: &'r SettingsPaths,
    run_env: &'r RunEnv<'_>,
    temp_dir: &'r Path,
) -> HookedCommand<'r> {
    HookedCommand { argv, cwd, environment, paths, binary: run_env.host.program, strict: false, temp_dir }
}

/// Returns the directories of the recording and those that replace them in the rerun.
fn map_directories(
    run_env: &RunEnv<'_>,
    started: &LaunchCommand,
    work: &Path,
    home: &Path,
    temp: &Path,
) -> Directories {
    let mut directories = vec![("{workspace}", run_env.original_root.to_path_buf(), work.to_path_buf())];
    let recorded_dir = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    let recorded_home = recorded_dir(&started.home).unwrap_or_else(|| run_env.host.home.to_path_buf());
    directories.push(("{home}", recorded_home, home.to_path_buf()));
    if let Some(recorded_dir) = recorded_dir(&started.temp) {
        directories.push(("{temp}", recorded_dir, temp.to_path_buf()));
    }
    Directories { all: directories }
}

fn build_command(
    agent: Agent,
    request: &RerunRequest<'_>,
    started: &LaunchCommand,
    resume: Option<&str>,
) -> Vec<String> {
    let prompt_text =
        request.recorded.prompts.get(request.prompt).map(|prompt| prompt.text.as_str()).unwrap_or_default();
    let changed = request.changes.iter().find_map(|change| match change {
        RerunChange::Prompt { index, new, .. } if *index == request.prompt => Some(new.as_str()),
        _ => None,
    });
    let mut tools: Vec<String> = request.recorded.calls.iter().map(|call| call.tool.clone()).collect();
    tools.sort();
    tools.dedup();
    let mut words = started.argv.iter();
    let model = words.find(|word| *word == "-m" || *word == "--model").and(words.next()).map(String::as_str);
    RerunCommand {
        agent,
        argv: &started.argv,
        recorded_prompt: prompt_text,
        prompt: changed.unwrap_or(prompt_text),
        resume,
        tools: &tools,
        model,
    }
    .build_command()
}

fn build_environment(
    agent: Agent,
    run_env: &RunEnv<'_>,
    request: &RerunRequest<'_>,
    home: &Path,
    temp: &Path,
    aside: &Path,
) -> Vec<(OsString, OsString)> {
    let mut variables: Vec<(OsString, OsString)> = run_env.host.environment.to_vec();
    // Its model server is on the sandbox's own loopback, which no network proxy can reach.
    let left_out = || REMOVED_VARIABLES.iter().chain(&install::PROXY_BLOCKING_VARIABLES);
    variables.retain(|(name, _)| !left_out().any(|name_left_out| name == name_left_out));
    run_env.store.set_variables(&mut variables);
    let mut set = |name: &str, value: OsString| {
        variables.retain(|(name_set, _)| name_set != name);
        variables.push((name.into(), value));
    };
    set("HOME", home.into());
    set("TMPDIR", temp.into());
    set(policy::VARIABLE, aside.join("policy.json").into());
    set(model_call_inbox::VARIABLE, "1".into());
    if request.on_difference != OnDifference::Live {
        let missing = |key: &&&str| !run_env.host.environment.iter().any(|(name, _)| name == **key);
        let keys: Vec<&str> = API_KEY_VARIABLES.iter().filter(missing).copied().collect();
        for key in keys.into_iter().filter(|_| matches!(agent, Agent::Claude | Agent::Gemini)) {
            set(key, "a-recording-needs-no-key".into());
        }
    }
    variables
}

/// Returns the path of a command's program.
fn find_program(argv: &[OsString], environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    let program = Path::new(argv.first()?);
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_path_buf());
    }
    let (_, path) = environment.iter().find(|(name, _)| name == "PATH")?;
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
