//! Conversations that go on from an earlier point in the real agent: `rewind --conversation`, `branch create --resume`.

use std::path::Path;
use std::process::{Command, ExitCode};

use serde_json::{Value, json};
use stepback_agents::fork::{self, Fork, Mode, Ready, Source, Wish};
use stepback_agents::transcript::{self, Place};
use stepback_agents::{Agent, fork::ForkError};
use stepback_engine::workspace::describe;
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::record::{Session, SessionInfo, StepKind};
use stepback_model::state::State;
use stepback_store::Mutation;
use stepback_store::port::StoredCheckpoint;

use super::{Answer, DONE};
use crate::context::{self, Context};
use crate::failure::{Failure, Kind};
use crate::output::{self, Paint};

/// A conversation that is ready to go on.
pub struct Continued {
    /// The session it came from.
    pub session: Session,
    /// What goes on, and where.
    pub ready: Ready,
    /// How many messages it begins with.
    pub kept: usize,
    /// What the person should know.
    pub note: Option<String>,
}

/// A conversation that can go on from a point; nothing is written yet.
pub struct Planned {
    session: Session,
    target: StoredCheckpoint,
    fork: Fork,
}

/// Makes the conversation as it was at `target` go on under a new id, in the directory `cwd` if one is given.
pub fn fork_at(
    context: &Context,
    workspace: &Workspace<'_>,
    target: &StoredCheckpoint,
    cwd: Option<&Path>,
    prompt: Option<&str>,
) -> Result<Continued, Failure> {
    carry_out(context, workspace, plan_at(context, workspace, target, cwd, prompt)?)
}

/// Does what was planned.
pub fn carry_out(
    context: &Context,
    workspace: &Workspace<'_>,
    planned: Planned,
) -> Result<Continued, Failure> {
    let Planned { session, target, fork } = planned;
    let ready = fork::carry_out(&fork).map_err(|error| cannot(&error, &target))?;
    remember(context, workspace, &session, &target, &ready)?;
    Ok(Continued { session, ready, kept: fork.kept, note: fork.note })
}

/// Finds out whether and how the conversation can go on from `target`.
pub fn plan_at(
    context: &Context,
    workspace: &Workspace<'_>,
    target: &StoredCheckpoint,
    cwd: Option<&Path>,
    prompt: Option<&str>,
) -> Result<Planned, Failure> {
    let session = session_of(workspace, target)?;
    if session.agent == stepback_builtin::NAME {
        return built_in(context, workspace, session, target, cwd, prompt);
    }
    let agent = Agent::parse(&session.agent).ok_or_else(|| {
        Failure::new(
            Kind::Usage,
            format!("{} has no conversation that stepback can go on with", session.agent),
        )
    })?;
    let store = workspace.store();
    let objects = |error| EngineError::from(error);
    let tip = State::load(store, target.checkpoint.step.state).map_err(objects)?.conversation;
    let keep = conversation::len(store, tip).map_err(objects)?;
    // The whole chain holds at least as much; where the conversation was rewritten since, only what was there then counts.
    let shared = conversation::shared(store, tip, session.info.tip).map_err(objects)?;
    let whole = if shared == keep { session.info.tip } else { tip };
    let lines = conversation::texts(store, whole).map_err(objects)?;
    let home = context::agents_home().ok_or_else(|| {
        Failure::new(Kind::System, "HOME is not set, so the agent's conversations cannot be found")
    })?;
    let external = session.info.external.clone().unwrap_or_default();
    let directory = session.info.directory.clone().map_or_else(|| workspace.root.clone(), Into::into);
    let place = match &session.info.transcript {
        Some(path) => Place { agent, path: path.into(), session: external },
        None => transcript::locate(agent, &home, &external, Some(&directory)).ok_or_else(|| {
            Failure::new(
                Kind::Nothing,
                format!("the conversation of {} cannot be found", super::sessions::name(&session)),
            )
        })?,
    };
    let source = Source { place: &place, cwd: &directory, home: &home, lines: &lines };
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    // The agent may have been behind with writing when the call began, and even with the result of the one before.
    let began = &target.checkpoint.step;
    let call = began.facts.call.as_deref().filter(|_| began.kind == StepKind::ToolStart);
    let before = call.and_then(|call| transcript::before_call_since(agent, &lines, call, keep));
    let wish = Wish {
        keep: before.unwrap_or(keep),
        cwd: cwd.unwrap_or(&directory),
        id: context.fresh_id(),
        now: context.now(),
        mode: prompt.filter(|prompt| !prompt.is_empty()).map_or(Mode::Interactive, Mode::Prompt),
    };
    let fork = fork::plan(&source, &wish).map_err(|error| cannot(&error, target))?;
    Ok(Planned { session, target: target.clone(), fork })
}

/// The built-in agent needs nothing written: it finds its conversation in the store.
fn built_in(
    context: &Context,
    workspace: &Workspace<'_>,
    session: Session,
    target: &StoredCheckpoint,
    cwd: Option<&Path>,
    prompt: Option<&str>,
) -> Result<Planned, Failure> {
    let store = workspace.store();
    let tip = State::load(store, target.checkpoint.step.state).map_err(EngineError::from)?.conversation;
    let kept = conversation::len(store, tip).map_err(EngineError::from)?;
    let env = session.info.slots.env.and_then(|hash| stepback_model::json::load(store, hash).ok());
    let words = env.and_then(|env| serde_json::from_value(env["arguments"].clone()).ok());
    let id = stepback_model::ids::SessionId::from_bytes(context.fresh_id()).to_string();
    let mut command: Vec<String> = vec![stepback_builtin::NAME.into()];
    if crate::place::Place::find(None).ok().as_ref() != Some(context.place()) {
        command.extend(["--store".into(), context.place().argument()]);
    }
    command.extend(["agent".into(), "--session".into(), id.clone()]);
    command.extend::<Vec<String>>(words.unwrap_or_default());
    command.push("--".into());
    command.push(prompt.filter(|prompt| !prompt.is_empty()).unwrap_or("Go on.").to_string());
    let fork = Fork {
        session: id,
        kept: usize::try_from(kept).unwrap_or(usize::MAX),
        writes: Vec::new(),
        prepare: None,
        command,
        cwd: cwd.unwrap_or(&workspace.root).to_path_buf(),
        note: None,
    };
    Ok(Planned { session, target: target.clone(), fork })
}

fn cannot(error: &ForkError, target: &StoredCheckpoint) -> Failure {
    Failure::new(Kind::Nothing, format!("the conversation cannot go on from {}: {error}", describe(target)))
        .hint("\"stepback log --kind user-input\" lists the prompts, which are good points to go on from")
}

/// The session whose conversation is meant: that of the step, or the one that was at work then.
fn session_of(workspace: &Workspace<'_>, target: &StoredCheckpoint) -> Result<Session, Failure> {
    let own = workspace.store().session(target.checkpoint.step.session).map_err(EngineError::from)?;
    match own {
        Some(session) if session.agent != Session::PERSON => Ok(session),
        _ => super::sessions::pick(workspace, None),
    }
}

/// Notes where the new session comes from, before its first event arrives.
fn remember(
    context: &Context,
    workspace: &Workspace<'_>,
    from: &Session,
    target: &StoredCheckpoint,
    ready: &Ready,
) -> Result<(), Failure> {
    let engine = context.engine();
    // A branch in a directory of its own is a workspace of its own.
    let elsewhere =
        if ready.cwd.starts_with(&workspace.root) { None } else { Some(engine.workspace(&ready.cwd)?) };
    let home = elsewhere.as_ref().unwrap_or(workspace);
    let session = Session {
        id: Session::id_of(home.record.id, &from.agent, &ready.session),
        workspace: home.record.id,
        agent: from.agent.clone(),
        started_at: context.now(),
        info: SessionInfo {
            external: Some(ready.session.clone()),
            directory: Some(ready.cwd.display().to_string()),
            title: from.info.title.clone(),
            forked_from: Some((from.id, target.checkpoint.step.id)),
            seen_at: Some(context.now()),
            ..SessionInfo::default()
        },
    };
    home.store().commit(None, &[Mutation::AddSession(session)]).map_err(EngineError::from)?;
    Ok(())
}

/// Says how it goes on.
pub fn document(continued: &Continued) -> Value {
    json!({
        "session": continued.session.id,
        "agent": continued.session.agent,
        "new_agent_session": continued.ready.session,
        "messages": continued.kept,
        "command": continued.ready.command,
        "directory": continued.ready.cwd,
        "note": continued.note,
    })
}

/// Prints the command that goes on, or runs it.
pub fn go_on(context: &Context, continued: &Continued, run: bool) -> Answer {
    let command = shell_words(&continued.ready.command);
    if !context.json {
        let paint = Paint::stdout();
        output::line(format!(
            "The conversation of {} goes on from there as {}.",
            super::sessions::name(&continued.session),
            paint.name(&continued.ready.session)
        ));
        if let Some(note) = &continued.note {
            output::say(note);
        }
        if !run {
            output::line(format!(
                "  cd {} && {}",
                shell_word(&continued.ready.cwd.display().to_string()),
                paint.strong(&command)
            ));
        }
    }
    if !run {
        return DONE;
    }
    let Some((program, arguments)) = continued.ready.command.split_first() else { return DONE };
    // The built-in agent is this very program, wherever it is.
    let own = (program == stepback_builtin::NAME).then(std::env::current_exe).and_then(Result::ok);
    let program = own.unwrap_or_else(|| program.into());
    let status = Command::new(program).args(arguments).current_dir(&continued.ready.cwd).status().map_err(
        |error| {
            Failure::new(Kind::System, format!("cannot run {command}: {error}"))
                .hint("the conversation is ready; run the command yourself")
        },
    )?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}

fn shell_words(words: &[String]) -> String {
    words.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" ")
}

fn shell_word(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_string(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}
