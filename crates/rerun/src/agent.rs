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
use stepback_worktree::anchored_path::Beneath;
use stepback_worktree::anchored_write::make_dirs;

use crate::RerunError;
use crate::change::RerunChange;
use crate::history;
use crate::replay_responder::{Directories, OnDifference};
use crate::run::{self, Ready, RerunRequest, RunEnv, io};
use crate::sandbox::{Inside, Strength};

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
fn directory_below(work: &Path, below: &Path) -> std::io::Result<PathBuf> {
    let path = RelPath::parse(below.as_os_str().as_bytes()).map_err(std::io::Error::other)?;
    make_dirs(&mut Beneath::open(work)?, &path, 0o777)?;
    // Joining an empty path would leave a slash at the end, and agents name folders after this path.
    Ok(if path.is_root() { work.to_path_buf() } else { work.join(below) })
}

/// Prepares a recorded agent: settings, command, environment.
pub(crate) fn ready<'a>(
    agent: Agent,
    wish: &RerunRequest<'_>,
    from: &StepRow,
    original: &Workspace,
    stage: &'a RunEnv<'a>,
    goes_on: Option<String>,
) -> Result<Ready<'a>, RerunError> {
    let (work, own_home, temp) =
        (stage.scratch.root.clone(), stage.around.dir.join("home"), stage.around.dir.join("tmp"));
    let aside = run::aside(stage);
    for dir in [&own_home, &temp, &aside] {
        fs::create_dir_all(dir).map_err(io("make a directory for the rerun"))?;
    }
    if goes_on.is_none() {
        sandbox_home::furnish(agent, stage.around.home, &own_home)
            .map_err(io("copy the agent's settings"))?;
    }

    let started = wish.tape.session.info.started.clone().unwrap_or_default();
    let directories = directories(stage, &started, &work, &own_home, &temp);
    let below = Path::new(&started.directory).strip_prefix(stage.original_root).unwrap_or(Path::new(""));
    let directory = directory_below(&work, below).map_err(io("make a directory for the rerun"))?;
    let goes_on = match goes_on {
        None if wish.prompt > 0 || history::is_there(agent, wish, from, original)? => {
            Some(history::put(agent, wish, from, original, stage, &own_home, &directory)?)
        }
        other => other,
    };
    let argv: Vec<OsString> =
        command(agent, wish, &started, goes_on.as_deref()).into_iter().map(OsString::from).collect();
    if which(&argv, stage.around.environment).is_none() {
        let program = argv.first().map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        return Err(RerunError::NoAgent { agent, program });
    }
    let environment = environment(agent, stage, wish, &own_home, &temp, &aside);
    let place = SettingsPaths::usual(&own_home, &work);
    let routes = install::routes(agent, &asked(&argv, &directory, &environment, &place, stage, &aside));
    if routes.is_empty() {
        return Err(RerunError::NoRoute(agent));
    }
    let inside = move |told: &[(Route, String)], _: &Strength| -> Result<Inside, RerunError> {
        let run = asked(&argv, &directory, &environment, &place, stage, &aside);
        let mut plan = install::run_command(agent, &run)?;
        install::through(agent, &run, told, &mut plan)?;
        for (path, bytes) in &plan.files {
            fs::write(path, bytes).map_err(io("write the agent's settings"))?;
        }
        for edit in &plan.edits {
            install::carry_out(edit)?;
        }
        let text = |word: &OsString| word.to_string_lossy().into_owned();
        let mut env: Vec<(String, String)> =
            environment.iter().map(|(name, value)| (text(name), text(value))).collect();
        env.retain(|(name, _)| !plan.env.iter().any(|(set, _)| set == name));
        env.extend(plan.env.iter().cloned());
        Ok(Inside { argv: plan.argv.iter().map(text).collect(), env, directory: directory.clone() })
    };
    Ok(Ready { agent: agent.name(), routes, inside: Box::new(inside), directories, records: true })
}

fn asked<'r>(
    argv: &'r [OsString],
    cwd: &'r Path,
    environment: &'r [(OsString, OsString)],
    place: &'r SettingsPaths,
    stage: &'r RunEnv<'_>,
    temp_dir: &'r Path,
) -> HookedCommand<'r> {
    HookedCommand { argv, cwd, environment, place, binary: stage.around.program, strict: false, temp_dir }
}

/// Returns the directories of the recording and those that replace them in the rerun.
fn directories(
    stage: &RunEnv<'_>,
    started: &LaunchCommand,
    work: &Path,
    home: &Path,
    temp: &Path,
) -> Directories {
    let mut all = vec![("{workspace}", stage.original_root.to_path_buf(), work.to_path_buf())];
    let then = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
    let own = then(&started.home).unwrap_or_else(|| stage.around.home.to_path_buf());
    all.push(("{home}", own, home.to_path_buf()));
    if let Some(then) = then(&started.temp) {
        all.push(("{temp}", then, temp.to_path_buf()));
    }
    Directories { all }
}

fn command(
    agent: Agent,
    wish: &RerunRequest<'_>,
    started: &LaunchCommand,
    resume: Option<&str>,
) -> Vec<String> {
    let said = wish.tape.prompts.get(wish.prompt).map(|prompt| prompt.text.as_str()).unwrap_or_default();
    let changed = wish.changes.iter().find_map(|change| match change {
        RerunChange::Prompt { nth, new, .. } if *nth == wish.prompt => Some(new.as_str()),
        _ => None,
    });
    let mut tools: Vec<String> = wish.tape.calls.iter().map(|call| call.tool.clone()).collect();
    tools.sort();
    tools.dedup();
    let mut words = started.argv.iter();
    let model = words.find(|word| *word == "-m" || *word == "--model").and(words.next()).map(String::as_str);
    RerunCommand {
        agent,
        argv: &started.argv,
        said,
        prompt: changed.unwrap_or(said),
        resume,
        tools: &tools,
        model,
    }
    .command()
}

fn environment(
    agent: Agent,
    stage: &RunEnv<'_>,
    wish: &RerunRequest<'_>,
    home: &Path,
    temp: &Path,
    aside: &Path,
) -> Vec<(OsString, OsString)> {
    let mut all: Vec<(OsString, OsString)> = stage.around.environment.to_vec();
    // Its model server is on the sandbox's own loopback, which no network proxy can reach.
    let left_out = || REMOVED_VARIABLES.iter().chain(&install::IN_THE_WAY);
    all.retain(|(name, _)| !left_out().any(|left| name == left));
    let mut set = |name: &str, value: OsString| {
        all.retain(|(known, _)| known != name);
        all.push((name.into(), value));
    };
    set("HOME", home.into());
    set("TMPDIR", temp.into());
    set("STEPBACK_HOME", stage.around.store.into());
    set(policy::VARIABLE, aside.join("policy.json").into());
    set(model_call_inbox::VARIABLE, "1".into());
    if wish.on_difference != OnDifference::Live {
        let missing = |key: &&&str| !stage.around.environment.iter().any(|(name, _)| name == **key);
        let keys: Vec<&str> = API_KEY_VARIABLES.iter().filter(missing).copied().collect();
        for key in keys.into_iter().filter(|_| matches!(agent, Agent::Claude | Agent::Gemini)) {
            set(key, "a-recording-needs-no-key".into());
        }
    }
    all
}

/// Returns the path of a command's program.
fn which(argv: &[OsString], environment: &[(OsString, OsString)]) -> Option<PathBuf> {
    let program = Path::new(argv.first()?);
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_path_buf());
    }
    let (_, path) = environment.iter().find(|(name, _)| name == "PATH")?;
    std::env::split_paths(path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
