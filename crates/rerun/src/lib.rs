//! Reruns a recorded session: from any point, with one thing changed, in a separate directory and a sandbox.
//!
//! [`rerun`] is the whole story (and [`prepare`] records one for later); start there:
//!
//! 1. [`recorded_session`] loads the session: exchanges, calls, prompts, the user's decisions and messages. [`change`]
//!    finds the value to change, or lists the available ones.
//! 2. The rerun is recorded as `pending`. The files of the point are written into the scratch directory ([`scratch`]),
//!    which becomes a workspace with a first checkpoint; the rerun is `running`.
//! 3. [`store_access`] lets the sandboxed agent reach the store. `agent` prepares an agent, [`builtin`] the built-in one: home, command, environment, starting point; `history`
//!    restores the conversation before a later prompt.
//! 4. [`run`] starts the sandbox: our own program as `stepback fenced` ([`sandbox`]) gives up the network and write
//!    access, and passes out listening sockets. Proxies answer on them, outside; then the process inside becomes the
//!    agent.
//! 5. [`replay_responder`] handles each model call: recorded results are inserted if calls do not run, the change is
//!    made, secrets are removed, the recording is searched, and paths in the answer become those of the present
//!    directories.
//! 6. Calls that the user decided about get the same decision again, from the policy in a hook or in the built-in
//!    agent.
//! 7. The run ends when the agent exits, diverges, reaches its target or times out; everything in its process group and
//!    network namespace is killed.
//! 8. The resulting files become a step of the original workspace, on a branch, and the outcome is recorded.
//!
//! It starts agents without knowing their formats: what is specific to each is in `stepback-agents`, which also records
//! what the proxies forward. Design: `docs/design/0014-rerun-behind-a-fence.md`, and `0015-matching-by-content.md` for
//! which recorded answer fits.

mod agent;
pub mod builtin;
pub mod change;
mod checked;
mod error;
mod history;
pub mod recorded_session;
pub mod replay_responder;
pub mod run;
pub mod sandbox;
pub mod scratch;
pub mod store_access;

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use stepback_agents::policy::ToolHandling;
use stepback_engine::materialize::make_apart;
use stepback_engine::reruns::{Rerun, RerunStatus};
use stepback_engine::{EngineError, Workspace};
use stepback_llm_wire::prices::Prices;
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, Session, StepKind, Trigger};
use stepback_model::state::WorkspaceState;
use stepback_proxy::Timing;
use stepback_store::Mutation;

pub use crate::checked::prepare;
use crate::checked::{CheckedRerun, RerunAgent, choose_branch};
pub use crate::error::RerunError;
use crate::replay_responder::OnDifference;
use crate::run::{RerunRequest, RunEnd, RunEnv, RunResult};
use crate::store_access::StoreAccess;

/// Options of a rerun.
#[derive(Clone, Debug)]
pub struct RerunOptions {
    /// The step to begin at; the agent is started with the prompt that it belongs to.
    pub from: Option<StepRow>,
    /// `PATH=VALUE` for each thing that is changed.
    pub set: Vec<String>,
    /// Stop after the first step of this kind.
    pub until: Option<StepKind>,
    /// Stop after this many steps.
    pub max_steps: Option<u64>,
    /// Stop after this time.
    pub timeout: Option<Duration>,
    /// What happens to tool calls.
    pub tools: ToolHandling,
    /// What to do where the rerun diverges from the recording.
    pub on_difference: OnDifference,
    /// When recorded answers are sent.
    pub timing: Timing,
    /// The branch for its result.
    pub branch: RerunBranch,
}

/// The branch that the result of a rerun becomes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum RerunBranch {
    /// A new one, with a name that stepback chooses.
    #[default]
    Unnamed,
    /// A new one with this name.
    Named(String),
    /// That of the rerun which [`prepare`] recorded under this name.
    Prepared(String),
}

impl RerunBranch {
    /// A new branch, with the given name if there is one.
    pub fn new(name: Option<String>) -> Self {
        name.map_or(Self::Unnamed, Self::Named)
    }
}

/// The result of a rerun.
#[derive(Debug)]
pub struct RerunResult {
    /// Its record in the workspace.
    pub rerun: Rerun,
    /// How the run ended.
    pub run: RunResult,
    /// The tip of its branch.
    pub tip: StepRow,
    /// The step it began at.
    pub from: StepRow,
}

/// The environment of a rerun: directories, programs and settings of the host.
pub struct RerunHost<'a> {
    /// An empty directory for this rerun only.
    pub dir: &'a Path,
    /// Path of stepback's own program.
    pub program: &'a Path,
    /// The store, as another stepback process would be given it: a directory or an address.
    pub store: &'a Path,
    /// The user's home.
    pub home: &'a Path,
    /// The user's environment.
    pub environment: &'a [(OsString, OsString)],
    /// Prices of models.
    pub prices: &'a Prices,
    /// A file of certificates that are trusted besides those of the system.
    pub certificates: Option<&'a Path>,
    /// Set when the user ends the rerun.
    pub interrupted: &'a AtomicBool,
}

/// Reruns a session. `on_started` is called once the rerun is recorded as running.
pub fn rerun(
    workspace: &Workspace,
    session: Session,
    options: &RerunOptions,
    host: &RerunHost<'_>,
    on_started: &mut dyn FnMut(&Rerun),
) -> Result<RerunResult, RerunError> {
    let checked = CheckedRerun::new(workspace, session, options)?;
    let request = RerunRequest {
        recorded: &checked.recorded,
        prompt: checked.prompt,
        changes: &checked.changes,
        tools: options.tools,
        on_difference: options.on_difference,
        timing: options.timing,
        until: options.until,
        max_steps: options.max_steps,
        timeout: options.timeout,
    };
    // Two reruns that begin at the same time must not get the same name.
    let lock = workspace.lock_recording()?;
    let branch = choose_branch(workspace, &options.branch)?;
    let mut rerun = checked.pending(branch, &options.set);
    workspace.record_rerun(&rerun)?;
    drop(lock);
    let ran =
        run_in_scratch(workspace, checked.agent, &request, &checked.start, host, &mut rerun, on_started);
    let (ran, state) = match ran {
        Ok(ran) => ran,
        Err(error) => {
            rerun.status = RerunStatus::Failed;
            rerun.reason = Some(error.to_string());
            // The error of the rerun matters more than a failure to record it.
            let _ = workspace.record_rerun(&rerun);
            return Err(error);
        }
    };
    rerun.session = ran.session.as_ref().map(|session| session.id);
    (rerun.status, rerun.reason) = rerun_status(&ran, options);
    let tip = workspace.create_rerun_branch(&rerun, &state)?;
    workspace.record_rerun(&rerun)?;
    Ok(RerunResult { rerun, run: ran, tip, from: checked.start })
}

fn run_in_scratch(
    workspace: &Workspace,
    rerun_agent: RerunAgent,
    request: &RerunRequest<'_>,
    start: &StepRow,
    host: &RerunHost<'_>,
    rerun: &mut Rerun,
    on_started: &mut dyn FnMut(&Rerun),
) -> Result<(RunResult, WorkspaceState), RerunError> {
    let work = make_apart(host.dir)
        .map_err(|source| RerunError::Io { what: "make the scratch directory", source })?;
    let lock = workspace.lock_shared()?;
    workspace.materialize(&workspace.load_state(start)?, &work, true)?;
    drop(lock);
    let work = work
        .canonicalize()
        .map_err(|source| RerunError::Io { what: "find the scratch directory", source })?;
    let store = StoreAccess::open(host, &workspace.engine)?;
    let scratch = store.engine.open_workspace_root(&work)?;
    let label = Some(format!("{} begins", rerun.branch));
    scratch.create_checkpoint(Annotation { label, ..Annotation::default() }, Trigger::Automatic)?;
    rerun.status = RerunStatus::Running;
    workspace.record_rerun(rerun)?;
    on_started(rerun);
    let run_env = RunEnv { host, scratch: &scratch, original_root: &workspace.root, store: &store };
    let mut ran = run_prompts(rerun_agent, request, start, workspace, &run_env)?;
    let label = Some(format!("{} ends", rerun.branch));
    let last =
        scratch.create_checkpoint(Annotation { label, ..Annotation::default() }, Trigger::Automatic)?;
    if let Some(session) = &mut ran.session {
        session.info.forked_from = Some((rerun.of, rerun.from));
        let set = Mutation::SetSessionInfo { session: session.id, info: Box::new(session.info.clone()) };
        scratch.store().commit(None, &[set]).map_err(EngineError::from)?;
    }
    let state = scratch.load_state(&last.stored)?;
    Ok((ran, state))
}

/// Gives an agent one prompt after the other, as the user did.
fn run_prompts(
    rerun_agent: RerunAgent,
    request: &RerunRequest<'_>,
    start: &StepRow,
    original: &Workspace,
    run_env: &RunEnv<'_>,
) -> Result<RunResult, RerunError> {
    let run_prompt = |request: &RerunRequest<'_>, continued: Option<&Session>| {
        let ready = match rerun_agent {
            RerunAgent::Agent(agent) => {
                let session = continued.and_then(|session| session.info.external.clone());
                agent::prepare_agent(agent, request, start, original, run_env, session)?
            }
            RerunAgent::BuiltIn => builtin::prepare_agent(request, start, original, run_env, continued)?,
        };
        run::run_agent(ready, request, run_env)
    };
    let started = Instant::now();
    let mut ran = run_prompt(request, None)?;
    for prompt in request.prompt + 1..request.recorded.prompts.len() {
        let session = ran.session.as_ref().filter(|session| session.info.external.is_some());
        let (RunEnd::Exited(0), Some(session)) = (&ran.ended, session) else { break };
        let timeout = request.timeout.map(|limit| limit.saturating_sub(started.elapsed()));
        let next_run = run_prompt(&RerunRequest { prompt, timeout, ..*request }, Some(session))?;
        ran = RunResult {
            counts: ran.counts.merge(next_run.counts),
            session: next_run.session.or(ran.session),
            ..next_run
        };
    }
    Ok(ran)
}

/// Returns the status of a rerun, and a sentence about it.
fn rerun_status(ran: &RunResult, options: &RerunOptions) -> (RerunStatus, Option<String>) {
    let parted = ran.counts.parted.as_ref().map(|parted| match parted.differences.first() {
        Some(first) => format!("diverged from the recording at model call {}: {}", parted.call, first.path),
        None => format!("diverged from the recording at model call {}", parted.call),
    });
    match &ran.ended {
        RunEnd::Exited(0) | RunEnd::Reached => (RerunStatus::Completed, parted),
        // If something was changed, a divergence is expected.
        RunEnd::Parted if !options.set.is_empty() => (RerunStatus::Diverged, parted),
        RunEnd::Parted => (RerunStatus::Failed, parted),
        RunEnd::Exited(code) => (
            RerunStatus::Failed,
            Some(parted.unwrap_or_else(|| format!("the agent ended with exit code {code}"))),
        ),
        RunEnd::TimedOut => (RerunStatus::Failed, Some("it timed out".to_owned())),
        RunEnd::Interrupted => (RerunStatus::Failed, Some("interrupted".to_owned())),
    }
}
