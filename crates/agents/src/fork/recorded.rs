//! Forks a recorded session at one of its steps: selects the conversation and how much of it to keep, and records the new
//! session.

use std::path::Path;

use stepback_engine::{Engine, Workspace};
use stepback_model::conversation;
use stepback_model::record::StepRow;
use stepback_model::record::{Session, SessionInfo, StepKind};
use stepback_model::time::Timestamp;
use stepback_store::Mutation;

use super::{Fork, ForkError, ForkMode, ForkOptions, ForkSource, ReadyFork, program};
use crate::agent::Agent;
use crate::transcript::{self, AgentDirs, TranscriptLocation};

/// A fork of a recorded conversation that is planned; nothing is written yet.
#[derive(Clone, Debug)]
pub struct PlannedFork {
    /// The session it comes from.
    pub session: Session,
    /// The step it continues from.
    pub target: StepRow,
    /// The plan of the fork.
    pub fork: Fork,
}

/// How to continue.
#[derive(Clone, Copy, Debug)]
pub struct ForkRequest<'a> {
    /// The directory to continue in; `None` for the one the session ran in.
    pub cwd: Option<&'a Path>,
    /// Random bytes, for the new id.
    pub id: [u8; 16],
    /// The current time.
    pub now: Timestamp,
    /// Interactive, or with one prompt.
    pub mode: ForkMode<'a>,
}

/// Plans how the conversation of a session continues from one of its steps; fails if it cannot.
pub fn plan_recorded_fork(
    workspace: &Workspace,
    session: Session,
    target: &StepRow,
    home: &AgentDirs,
    request: &ForkRequest<'_>,
) -> Result<PlannedFork, ForkError> {
    let agent = Agent::parse(&session.agent).ok_or_else(|| ForkError::Unsupported(session.agent.clone()))?;
    let store = workspace.store();
    let tip = workspace.conversation_tip_at(&session, target)?;
    let keep = conversation::len(store, tip)?;
    // The whole chain has at least as many lines; if the conversation was rewritten since, only the lines of that time count.
    let shared = conversation::shared(store, tip, session.info.tip)?;
    let whole = if shared == keep { session.info.tip } else { tip };
    let lines = conversation::texts(store, whole)?;
    let external = session.info.external.clone().unwrap_or_default();
    let directory = session.info.directory.clone().map_or_else(|| workspace.root.clone(), Into::into);
    let place = match &session.info.transcript {
        Some(path) => TranscriptLocation { agent, path: path.into(), session: external },
        None => transcript::locate(agent, home, &external, Some(&directory))
            .ok_or_else(|| ForkError::NotFound(format!("{} {}", session.agent, session.id.short())))?,
    };
    let source = ForkSource { location: &place, cwd: &directory, home, lines: &lines };
    let keep = usize::try_from(keep).unwrap_or(usize::MAX);
    // The agent may not have written the call yet when it began, and not even the result of the call before.
    let began = &target.step;
    let call = began.meta.call.as_deref().filter(|_| began.kind == StepKind::ToolStart);
    let before = call.and_then(|call| transcript::cut_before_later_call(agent, &lines, call, keep));
    let options = ForkOptions {
        keep: before.unwrap_or(keep),
        cwd: request.cwd.unwrap_or(&directory),
        id: request.id,
        now: request.now,
        mode: request.mode,
    };
    let mut fork = super::plan(&source, &options)?;
    program::use_recorded_program(&mut fork, agent, session.info.started.as_ref(), request.mode)?;
    Ok(PlannedFork { session, target: target.clone(), fork })
}

impl PlannedFork {
    /// Carries out the plan, and records where the new session comes from before its first event arrives.
    pub fn execute(
        &self,
        engine: &Engine,
        workspace: &Workspace,
        now: Timestamp,
    ) -> Result<ReadyFork, ForkError> {
        let ready = super::execute_fork(&self.fork)?;
        // A branch in a directory of its own is a workspace of its own.
        let elsewhere = if ready.cwd.starts_with(&workspace.root) {
            None
        } else {
            Some(engine.open_workspace_root(&ready.cwd)?)
        };
        let home = elsewhere.as_ref().unwrap_or(workspace);
        let from = &self.session;
        let session = Session {
            id: Session::id_of(home.record.id, &from.agent, &ready.session),
            workspace: home.record.id,
            agent: from.agent.clone(),
            started_at: now,
            info: SessionInfo {
                external: Some(ready.session.clone()),
                directory: Some(ready.cwd.display().to_string()),
                title: from.info.title.clone(),
                started: program::derive_launch_command(&from.agent, from.info.started.as_ref()),
                forked_from: Some((from.id, self.target.step.id)),
                seen_at: Some(now),
                ..SessionInfo::default()
            },
        };
        home.store()
            .commit(None, &[Mutation::AddSession(session)])
            .map_err(stepback_engine::EngineError::from)?;
        Ok(ready)
    }
}
