//! Validation of records that come from another user.

use std::collections::HashSet;

use stepback_model::escape::excerpt;
use stepback_model::ids::{OpId, SessionId, StepId};
use stepback_model::record::{OpStatus, Session};

use crate::error::BundleError;
use crate::records::{ExportedStep, Reference, ReferenceKind, WorkspaceLog};

/// Maximum length of a name or one-line text, in bytes.
const MAX_NAME_BYTES: usize = 4096;

/// Checks that records are consistent: every id occurs once, every referenced record exists, and no record refers to a later
/// one.
pub fn check_logs(logs: &[WorkspaceLog]) -> Result<(), BundleError> {
    let mut known_ids = KnownIds::default();
    let mut workspaces = HashSet::new();
    for log in logs {
        if !workspaces.insert(log.workspace.id) {
            return Err(BundleError::inconsistent(format!(
                "it contains workspace {} twice",
                log.workspace.id
            )));
        }
        if log.workspace.root.len() > MAX_NAME_BYTES {
            return Err(BundleError::inconsistent("the path of a workspace is too long"));
        }
        known_ids.check_log(log)?;
    }
    Ok(())
}

#[derive(Default)]
struct KnownIds {
    sessions: HashSet<SessionId>,
    steps: HashSet<StepId>,
    operations: HashSet<OpId>,
}

impl KnownIds {
    fn check_log(&mut self, log: &WorkspaceLog) -> Result<(), BundleError> {
        let inconsistent = |what: String| Err(BundleError::Inconsistent(what));
        let mut sessions_here = HashSet::from([Session::id_of(log.workspace.id, Session::PERSON, "")]);
        for session in &log.sessions {
            if !self.sessions.insert(session.id) {
                return inconsistent(format!("it contains session {} twice", session.id));
            }
            if session.workspace != log.workspace.id {
                return inconsistent(format!("session {} is in another workspace", session.id));
            }
            let agent = session.agent.as_str();
            if agent.is_empty() || agent == Session::PERSON || agent.len() > MAX_NAME_BYTES {
                return inconsistent(format!("session {} has no agent", session.id));
            }
            if !sessions_here.insert(session.id) {
                return inconsistent(format!("session {} belongs to a user", session.id));
            }
        }
        if log.sessions.is_empty() {
            return inconsistent("a workspace in it has no session".into());
        }
        // A parent must be an earlier step, so that no chain of steps can form a cycle.
        let mut steps = HashSet::new();
        for moment in &log.steps {
            let ExportedStep { step, hidden_by, purged, .. } = moment;
            if !sessions_here.contains(&step.session) {
                return inconsistent(format!("step {} has no session", step.id));
            }
            if step.parent.is_some_and(|parent| !steps.contains(&parent)) {
                return inconsistent(format!("the parent of step {} does not come before it", step.id));
            }
            if *purged && hidden_by.is_none() && moment.trigger.is_none() {
                return inconsistent(format!("step {} is pruned but has no files", step.id));
            }
            if !self.steps.insert(step.id) {
                return inconsistent(format!("it contains step {} twice", step.id));
            }
            steps.insert(step.id);
        }
        for operation in &log.operations {
            if !self.operations.insert(operation.id) {
                return inconsistent(format!("it contains operation {} twice", operation.id));
            }
            if operation.workspace != log.workspace.id {
                return inconsistent(format!("operation {} is in another workspace", operation.id));
            }
            if operation.status == OpStatus::Applying || operation.journal.is_some() {
                return inconsistent(format!("operation {} is under way", operation.id));
            }
        }
        log.references.iter().try_for_each(|reference| check_reference(reference, &steps))
    }
}

fn check_reference(reference: &Reference, steps: &HashSet<StepId>) -> Result<(), BundleError> {
    let Reference { what, name, step } = reference;
    let display_name = excerpt(name, 80);
    if !steps.contains(step) {
        return Err(BundleError::inconsistent(format!("\"{display_name}\" names a missing step")));
    }
    let is_name = match what {
        ReferenceKind::Head => name.is_empty(),
        ReferenceKind::Branch | ReferenceKind::Present => stepback_engine::branch::is_valid_branch_name(name),
    };
    match is_name {
        true => Ok(()),
        false => Err(BundleError::inconsistent(format!("\"{display_name}\" cannot be the name of a branch"))),
    }
}
