//! `stepback hook AGENT`, the way agents call it: many times a minute, with the agent waiting.
//!
//! This path is taken before the command line is parsed: building the parser for all commands costs more than recording that a
//! file was read.

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use stepback_agents::Agent;
use stepback_agents::hook::{Hook, LARGEST};
use stepback_agents::policy::{self, Policy};
use stepback_engine::{Engine, EngineError};
use stepback_worktree::rules::Budget;
use stepback_worktree::scan::hints::Hints;

use crate::context;
use crate::place::Place;
use crate::settings::Settings;
use crate::system;

/// How long to wait for another process that uses the store: the agent waits for us meanwhile.
const PATIENCE: Duration = Duration::from_secs(2);

/// Runs the hook if that is what the arguments say; `None` for everything else, including a request for help.
pub fn run_if_asked(arguments: &[OsString]) -> Option<ExitCode> {
    let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
    let words: Vec<&str> = words.iter().map(|word| &**word).collect();
    let [_, "hook", rest @ ..] = words.as_slice() else { return None };
    if rest.iter().any(|word| matches!(*word, "--help" | "-h")) {
        return None;
    }
    // Whatever is wrong with the arguments: to an agent, a usage error would be a refusal.
    let nothing = |what: &str| {
        complain(what);
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
                complain(&format!(
                    "\"{word}\" means nothing to this version of the hook; going on without it"
                ));
            }
            word => agent = Some(word),
        }
    }
    let Some(agent) = agent else {
        return nothing("a hook needs the name of its agent; nothing is recorded");
    };
    let Some(agent) = Agent::parse(agent) else {
        return nothing(&format!("\"{agent}\" is not an agent this version knows; nothing is recorded"));
    };
    let Ok(place) = Place::find(store.as_deref()) else {
        return nothing("there is no place for a store: set HOME or STEPBACK_HOME");
    };
    Some(run(agent, strict, &place))
}

fn run(agent: Agent, strict: bool, place: &Place) -> ExitCode {
    let store = place.local();
    let mut payload = Vec::new();
    // One byte more than is allowed, so that too much can be told from just enough.
    let read = std::io::stdin().lock().take(LARGEST as u64 + 1).read_to_end(&mut payload);
    if let Err(error) = read {
        complain(&format!("cannot read the event: {error}"));
    }
    let directory = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let env = system::environment();
    let settings = Settings::load_or_default(store);
    let transcript =
        (agent == Agent::Opencode).then(|| context::agents_home().map(|home| home.opencode_db())).flatten();
    let policy = context::variable(policy::VARIABLE).and_then(|file| Policy::load(&file));
    let hook = Hook {
        agent,
        store,
        directory: &directory,
        env: &*env,
        with_engine: &|work| with_engine(place, &*env, work),
        new_root: &|directory| context::new_root(directory),
        transcript: transcript.as_deref(),
        patience: settings.patience(),
        strict,
        at_least_every: settings.positive("checkpoint.minutes"),
        at_least_each: settings.positive("checkpoint.iterations"),
        looks: settings.get("checkpoint.calls") != 0,
        notes: settings.get("notes") != 0,
        policy: policy.as_ref(),
        carried: std::env::var_os(stepback_agents::carried::VARIABLE).is_some(),
    };
    let outcome = hook.handle(&payload);
    if let Some(trouble) = outcome.trouble {
        complain(&trouble);
    }
    if let Some(answer) = outcome.answer {
        // The agent may have gone away; then nobody needs the answer.
        let _ = writeln!(std::io::stdout(), "{answer}");
    }
    ExitCode::SUCCESS
}

fn with_engine(
    place: &Place,
    env: &dyn stepback_model::env::Env,
    work: &mut dyn FnMut(&Engine<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    // Never closed, like everywhere: the process is about to end.
    let store = place.open_impatiently(PATIENCE)?;
    let threads = context::threads();
    let watcher = context::watcher(place);
    let watcher = watcher.as_ref().map(|watcher| watcher as &dyn Hints);
    let engine = Engine { store, env, budget: Budget::default(), threads, progress: None, watcher };
    work(&engine)
}

/// For the agent's log: agents show it when a hook misbehaves, and ignore it otherwise.
fn complain(what: &str) {
    let _ = writeln!(std::io::stderr(), "stepback: {what}");
}
