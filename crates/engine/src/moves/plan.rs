//! Plans a move, and names the plan by its content.

use serde_json::json;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Operation, Session, StepRow};

use super::parts::PlannedPart;
use super::request::{MoveAction, MoveRequest};
use super::shown::request_document;
use crate::board::{BoardEditor, BoardReplacement};
use crate::error::EngineError;
use crate::rewind::{PreparedRewind, RewindRequest};
use crate::undo::Reversal;
use crate::workspace::{Workspace, describe_checkpoint};

/// The length of a plan's id, in hexadecimal digits.
const ID_LENGTH: usize = 32;

/// A move that is planned and not yet applied. It may hold the lock of the workspace.
pub struct PlannedMove {
    /// The id of the plan. It stands for the request and for everything that would happen.
    pub id: String,
    /// What was asked for.
    pub request: MoveRequest,
    /// A one-line description.
    pub summary: String,
    /// The operation that is undone or redone.
    pub operation: Option<Operation>,
    /// The changes of files; `None` if only the log changes.
    pub files: Option<PreparedRewind>,
    /// What a merge of branches changes on the reasoning board that it is for.
    pub merged_board: Option<BoardReplacement>,
}

/// The parts of a workspace's state that a move changes.
#[derive(Clone, Copy, Debug)]
pub struct MoveRiders {
    /// Whether files change.
    pub files: bool,
    /// Whether git directories take part.
    pub git: bool,
    /// The step whose conversation, memory and task list the new state gets; `None` if they stay as they are.
    pub conversation: Option<StepId>,
    /// The session whose reasoning board moves along.
    pub reasoning: Option<SessionId>,
}

impl PlannedMove {
    /// The parts of the state that the move changes.
    pub fn moved_parts(&self) -> MoveRiders {
        let files = self.files.as_ref();
        MoveRiders {
            files: files.is_some_and(|files| !files.plan.is_empty()),
            git: files.is_some_and(|files| files.git),
            conversation: files.and_then(|files| files.conversation_from),
            reasoning: self
                .request
                .board
                .filter(|_| self.merged_board.as_ref().is_none_or(|merged| !merged.diff.changes.is_empty())),
        }
    }

    /// What happens to the parts of sessions.
    pub fn parts(&self) -> &[PlannedPart] {
        self.files.as_ref().map_or(&[], |files| &files.parts)
    }

    /// Whether applying it would record an operation and change nothing else.
    pub fn is_empty(&self) -> bool {
        let MoveRiders { files, conversation, .. } = self.moved_parts();
        let is_rewind = matches!(self.request.action, MoveAction::Rewind(_));
        is_rewind
            && !files
            && conversation.is_none()
            && self.parts().iter().all(|part| part.changes.is_empty())
            && self.merged_board.as_ref().is_none_or(|merged| merged.diff.changes.is_empty())
    }

    /// Why no file changes, as the end of a sentence: `: the files already are …`, or nothing.
    pub fn reason_unchanged(&self) -> String {
        let reason = self.files.as_ref().and_then(|files| files.unchanged_because.as_deref());
        reason.map(|reason| format!(": {reason}")).unwrap_or_default()
    }

    /// The branch that the workspace will be on, if it is not the present one.
    pub fn entered_branch(&self) -> Option<&str> {
        self.files.as_ref().and_then(PreparedRewind::entered_branch)
    }

    /// Drops the lock so that other processes can use the workspace while the user reads the plan.
    pub fn release_lock(&mut self) {
        if let Some(files) = &mut self.files {
            files.release_lock();
        }
    }

    /// Forces the replacement of databases that a process has open.
    pub fn force(&mut self) {
        if let Some(files) = &mut self.files {
            files.force();
        }
    }
}

impl Workspace {
    /// Plans a move and changes nothing. If files may change, the plan holds the workspace's lock.
    pub fn plan_move(&self, request: &MoveRequest) -> Result<PlannedMove, EngineError> {
        // Before the workspace is locked: the lock for recording is always taken before that of the workspace.
        let parts = self.plan_parts(request)?;
        let merged_board = self.plan_board_merge(request)?;
        let mut planned = match &request.action {
            MoveAction::Rewind(rewind) => build_planned_move(request, self.prepare_rewind(rewind)?),
            MoveAction::Switch { branch, begin_at: None } => {
                build_planned_move(request, self.prepare_switch(branch)?)
            }
            MoveAction::Switch { branch, begin_at: Some(step) } => {
                build_planned_move(request, self.prepare_switch_to_new(branch, &self.require_step(*step)?)?)
            }
            MoveAction::Undo { operation } => build_planned_reversal(
                request,
                match restricted_session(request) {
                    Some(session) => self.prepare_own_undo(session, *operation)?,
                    None => self.prepare_undo(*operation)?,
                },
            ),
            MoveAction::Redo => build_planned_reversal(
                request,
                match restricted_session(request) {
                    Some(session) => self.prepare_own_redo(session)?,
                    None => self.prepare_redo()?,
                },
            ),
        };
        planned.merged_board = merged_board;
        self.add_reversed_parts(&mut planned)?;
        if request.force {
            planned.force();
        }
        if let (MoveAction::Rewind(rewind), Some(files)) = (&request.action, &mut planned.files) {
            files.summary = summarize_parts(rewind, &parts, &files.summary);
            planned.summary.clone_from(&files.summary);
            files.parts = parts;
        }
        if let (Some(files), Some(agent)) = (&mut planned.files, request.agent) {
            let session = self.store().session(agent.session)?;
            files.requested_by =
                session.filter(|session| session.agent != Session::PERSON).map(|session| session.id);
        }
        planned.id = self.compute_plan_id(&planned);
        Ok(planned)
    }

    /// Adds to the plan of an undo or redo what happens to the parts of sessions that moved with the operation.
    fn add_reversed_parts(&self, planned: &mut PlannedMove) -> Result<(), EngineError> {
        let (Some(operation), Some(files)) = (&planned.operation, &mut planned.files) else { return Ok(()) };
        // The conversation of a branch goes with the branch.
        let conversation = files.conversation_from.filter(|_| files.branches.is_none());
        let has_board = self.board_step_of_operation(operation)?.is_some();
        if conversation.is_none() && files.reversed_steps.is_empty() && !has_board {
            return Ok(());
        }
        // The lock for recording is always taken before that of the workspace. Should files change meanwhile: applying
        // compares every path with the plan.
        files.release_lock();
        files.parts = self.plan_part_reversal(&files.reversed_steps, operation, conversation)?;
        Ok(())
    }

    /// Returns what a merge of branches would change on the board that it is for; `None` for every other request.
    fn plan_board_merge(&self, request: &MoveRequest) -> Result<Option<BoardReplacement>, EngineError> {
        let (Some(branch), Some(session)) = (request.merged_branch(), request.board) else { return Ok(None) };
        let session = self.require_session(session)?;
        let base = self.board_merge_base(branch)?;
        BoardEditor::new(self, &session).merge_branch(branch, base, None, true).map(Some)
    }

    fn compute_plan_id(&self, planned: &PlannedMove) -> String {
        let files = planned.files.as_ref();
        let mut content = json!({
            "workspace": self.record.id,
            "request": request_document(&planned.request),
            "summary": planned.summary,
            "operation": planned.operation.as_ref().map(|operation| operation.id),
            "parts": planned.parts().iter().map(|part| (part.session.id, &part.changes)).collect::<Vec<_>>(),
            "warnings": files.map(|files| &files.warnings),
            "plan": files.map(|files| Hash::of(ObjectKind::Plan, &files.plan.encode()).to_string()),
        });
        if let Some(merged) = &planned.merged_board {
            content["board"] = json!(merged);
        }
        let mut id = Hash::of(ObjectKind::Blob, content.to_string().as_bytes()).to_string();
        id.truncate(ID_LENGTH);
        id
    }

    pub(super) fn require_step(&self, id: StepId) -> Result<StepRow, EngineError> {
        self.store().step(id)?.ok_or_else(|| EngineError::Point(format!("there is no step {id}")))
    }
}

/// The session outside which nothing may be undone or redone.
fn restricted_session(request: &MoveRequest) -> Option<SessionId> {
    request.agent.filter(|agent| agent.own_only).map(|agent| agent.session)
}

fn build_planned_move(request: &MoveRequest, files: PreparedRewind) -> PlannedMove {
    let summary = files.summary.clone();
    PlannedMove {
        id: String::new(),
        request: request.clone(),
        summary,
        operation: None,
        files: Some(files),
        merged_board: None,
    }
}

fn build_planned_reversal(request: &MoveRequest, reversal: Reversal) -> PlannedMove {
    match reversal {
        Reversal::Files { prepared, operation } => {
            PlannedMove { operation: Some(operation), ..build_planned_move(request, *prepared) }
        }
        Reversal::Log { operation, summary } => PlannedMove {
            id: String::new(),
            request: request.clone(),
            summary,
            operation: Some(operation),
            files: None,
            merged_board: None,
        },
    }
}

/// Adds the parts that go back to the summary of a rewind.
fn summarize_parts(rewind: &RewindRequest, parts: &[PlannedPart], summary: &str) -> String {
    let mut names: Vec<&str> = parts.iter().map(|planned| planned.part.noun()).collect();
    if names.is_empty() && !rewind.keep_files {
        return summary.to_owned();
    }
    let without_git = summary.strip_suffix(" with git");
    if rewind.git && (rewind.keep_files || without_git.is_some()) {
        names.insert(0, "git");
    }
    if !rewind.keep_files {
        return format!("{} with {}", without_git.unwrap_or(summary), join(&names));
    }
    let Some(target) = &rewind.target else { return summary.to_owned() };
    format!("rewind {} to {}", join(&names), describe_checkpoint(target))
}

/// Joins names: `git, memory and task list`.
fn join(names: &[&str]) -> String {
    match names {
        [first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        names => names.concat(),
    }
}
