//! Checks a rerun before anything runs: whether the session can be rerun, whether the changes fit it, and the name of its
//! branch. What passes can be started at once or recorded for later.

use stepback_agents::Agent;
use stepback_engine::Workspace;
use stepback_engine::reruns::{Rerun, RerunStatus};
use stepback_model::record::{Session, StepRow};

use crate::change::RerunChange;
use crate::error::RerunError;
use crate::recorded_session::RecordedSession;
use crate::{RerunBranch, RerunOptions};

/// A rerun whose options fit the recording.
pub(crate) struct CheckedRerun {
    pub(crate) recorded: RecordedSession,
    pub(crate) changes: Vec<RerunChange>,
    pub(crate) agent: RerunAgent,
    /// Index of the prompt it is started with.
    pub(crate) prompt: usize,
    /// The step whose files it starts with.
    pub(crate) start: StepRow,
}

impl CheckedRerun {
    /// Loads the recording of a session and checks that it can be rerun with these options.
    pub(crate) fn new(
        workspace: &Workspace,
        session: Session,
        options: &RerunOptions,
    ) -> Result<Self, RerunError> {
        let recorded = RecordedSession::load(workspace, session)?;
        let changes: Vec<RerunChange> =
            options.set.iter().map(|text| RerunChange::parse(text, &recorded)).collect::<Result<_, _>>()?;
        if recorded.exchanges.is_empty() {
            return Err(RerunError::NoCalls);
        }
        let agent = match Agent::parse(&recorded.session.agent) {
            Some(agent) => RerunAgent::Agent(agent),
            None if recorded.session.agent == stepback_builtin_agent::NAME => RerunAgent::BuiltIn,
            None => return Err(RerunError::UnknownAgent(recorded.session.agent.clone())),
        };
        check_changes(agent, &changes)?;
        let number = options.from.as_ref().map(|start| start.step.number);
        if let Some(number) = number.filter(|number| recorded.step(*number).is_none()) {
            let id = recorded.session.id.short();
            return Err(RerunError::NotApplicable(format!("#{number} is not a step of session {id}")));
        }
        let prompt = number.and_then(|number| recorded.prompt_at(number)).unwrap_or(0);
        let recorded_prompt = recorded.prompts.get(prompt).ok_or(RerunError::NoPrompt)?;
        let prompted = recorded.step(recorded_prompt.number).ok_or(RerunError::NoPrompt)?.clone();
        // Agents other than the built-in one can only be started with a prompt.
        let start = match (agent, &options.from) {
            (RerunAgent::BuiltIn, Some(start)) if recorded.step(start.step.number).is_some() => start.clone(),
            _ => prompted,
        };
        Ok(Self { recorded, changes, agent, prompt, start })
    }

    /// What is recorded of the rerun before it runs.
    pub(crate) fn pending(&self, branch: String, set: &[String]) -> Rerun {
        Rerun {
            deleted: false,
            branch,
            of: self.recorded.session.id,
            from: self.start.step.id,
            // What a user types can hold a secret too.
            changes: set.iter().map(|change| stepback_redact::redact(change).into_owned()).collect(),
            status: RerunStatus::Pending,
            reason: None,
            session: None,
            process: std::process::id(),
            plan: None,
        }
    }
}

/// Records a rerun that is started later, with [`crate::RerunBranch::Prepared`]. `plan` is the request in the caller's own form.
///
/// The changes are stored as they are, so a change that contains a secret is refused.
pub fn prepare(
    workspace: &Workspace,
    session: Session,
    options: &RerunOptions,
    plan: serde_json::Value,
) -> Result<Rerun, RerunError> {
    let checked = CheckedRerun::new(workspace, session, options)?;
    if let Some(change) = options.set.iter().find(|change| stepback_redact::redact(change) != **change) {
        let path = change.split_once('=').map_or("", |(path, _)| path);
        return Err(RerunError::NotApplicable(format!(
            "the change of {path} contains a secret, which is never stored, so it cannot be kept for later"
        )));
    }
    let _lock = workspace.lock_recording()?;
    let branch = choose_branch(workspace, &options.branch)?;
    let rerun = Rerun { plan: Some(plan), process: 0, ..checked.pending(branch, &options.set) };
    workspace.record_rerun(&rerun)?;
    Ok(rerun)
}

/// Returns the name of the branch, once it is sure that no other rerun creates it.
pub(crate) fn choose_branch(workspace: &Workspace, branch: &RerunBranch) -> Result<String, RerunError> {
    match branch {
        RerunBranch::Unnamed => Ok(workspace.next_rerun_name()?),
        RerunBranch::Named(name) => {
            workspace.check_new_rerun_branch(name)?;
            Ok(name.clone())
        }
        RerunBranch::Prepared(name) => {
            let reruns = workspace.reruns()?;
            let waits = reruns.iter().any(|rerun| rerun.branch == *name && rerun.is_prepared());
            if !waits {
                return Err(RerunError::NotPrepared(name.clone()));
            }
            workspace.check_new_branch(name)?;
            Ok(name.clone())
        }
    }
}

/// The agent whose session is rerun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RerunAgent {
    /// An agent other than the built-in one.
    Agent(Agent),
    /// The built-in agent.
    BuiltIn,
}

/// Refuses changes that would have no effect.
fn check_changes(rerun_agent: RerunAgent, changes: &[RerunChange]) -> Result<(), RerunError> {
    let memory = changes.iter().any(|change| matches!(change, RerunChange::Memory { .. }));
    match rerun_agent {
        RerunAgent::Agent(agent) if memory => Err(RerunError::NotApplicable(format!(
            "{} has no memory that stepback can change; only the built-in agent has",
            agent.title()
        ))),
        _ => Ok(()),
    }
}
