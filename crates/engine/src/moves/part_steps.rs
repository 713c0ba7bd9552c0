//! Takes parts of sessions back: the memory, the task list and the reasoning board.
//!
//! A part goes back by a step of its session that records the earlier value, so that everything since stays recorded and the
//! session goes on from there. The operation names these steps. Undoing it takes back what each of them changed, and keeps
//! what changed later.

use serde_json::{Value, json};
use stepback_model::event::AgentEvent;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Operation, Session, StepKind, StepRow};

use super::parts::{PlannedPart, SessionPart, describe_differences, planned_part};
use super::request::{MoveAction, MoveRequest};
use crate::board::{BoardEditor, BoardMoment, BoardReplacement};
use crate::error::EngineError;
use crate::kept::SessionName;
use crate::recorder::ReportedEvent;
use crate::workspace::{Workspace, describe_checkpoint};

/// The tool name of steps that take a part of a session back.
pub(crate) const TAKE_BACK_TOOL: &str = "rewind";

/// What happened to a part of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MovedPart {
    /// The part.
    pub part: SessionPart,
    /// The session it belongs to.
    pub session: SessionName,
    /// What changed, one sentence each without a full stop.
    pub changes: Vec<String>,
    /// What was not taken back because it changed later, one sentence each without a full stop.
    pub kept: Vec<String>,
    /// The number of the step that records it.
    pub step: u64,
}

/// Parts that were moved, and the steps that record it.
#[derive(Default)]
pub(crate) struct MovedParts {
    pub steps: Vec<StepId>,
    pub parts: Vec<MovedPart>,
    pub board: Option<BoardReplacement>,
}

impl Workspace {
    /// Takes the parts of sessions back that a rewind names. The workspace must not be locked exclusively: the lock for
    /// recording is always taken first.
    pub(crate) fn take_back_parts(&self, request: &MoveRequest) -> Result<MovedParts, EngineError> {
        let mut moved = MovedParts::default();
        let MoveAction::Rewind(rewind) = &request.action else { return Ok(moved) };
        let Some(target) = &rewind.target else { return Ok(moved) };
        for (part, id) in [(SessionPart::Memory, request.memory), (SessionPart::Task, request.task)] {
            let Some(id) = id else { continue };
            let point = describe_checkpoint(target);
            let summary = format!("the {} is as it was at {point}", part.noun());
            self.record_part(part, id, &summary, &mut moved, |session, _| {
                let value = self.past_value(part, session, target)?;
                Ok((value.unwrap_or(part.empty_value()), Vec::new()))
            })?;
        }
        if let Some(id) = request.board {
            let session = self.require_session(id)?;
            let moment = BoardMoment::Step(target.step.number);
            moved.add_board(self, BoardEditor::new(self, &session).restore(&moment, false)?)?;
        }
        Ok(moved)
    }

    /// Takes back what these steps changed, each of which took a part of a session back. Later changes stay.
    pub(crate) fn reverse_part_steps(&self, steps: &[StepId]) -> Result<MovedParts, EngineError> {
        let mut moved = MovedParts::default();
        for step in steps.iter().rev() {
            let Some(stored) = self.store().step(*step)? else { continue };
            if stored.step.kind == StepKind::Reasoning {
                let session = self.require_session(stored.step.session)?;
                let mut editor = BoardEditor::new(self, &session);
                moved.add_board(self, editor.take_back(Some(stored.step.number), false)?)?;
                continue;
            }
            let Some(part) = self.part_of_step(&stored)? else { continue };
            let summary = format!("the {} is as it was before #{}", part.noun(), stored.step.number);
            self.record_part(part, stored.step.session, &summary, &mut moved, |session, present| {
                self.revert_part(part, session, &stored, present)
            })?;
        }
        Ok(moved)
    }

    /// Plans what [`Self::reverse_part_steps`] does, and what happens to the board that moves with the operation and to the
    /// conversation. The workspace must not be locked exclusively.
    pub(super) fn plan_part_reversal(
        &self,
        steps: &[StepId],
        operation: &Operation,
        conversation_from: Option<StepId>,
    ) -> Result<Vec<PlannedPart>, EngineError> {
        let mut planned = Vec::new();
        if let Some(id) = conversation_from {
            let source = self.require_step(id)?;
            if let Some(session) = self.conversation_session(&source)? {
                planned.push(self.plan_conversation(&session, &source)?);
            }
        }
        for step in steps.iter().rev() {
            let Some(stored) = self.store().step(*step)? else { continue };
            let session = self.require_session(stored.step.session)?;
            if stored.step.kind == StepKind::Reasoning {
                let mut editor = BoardEditor::new(self, &session);
                let board = editor.take_back(Some(stored.step.number), true)?;
                planned.push(planned_board(&session, &stored, board));
                continue;
            }
            let Some(part) = self.part_of_step(&stored)? else { continue };
            let present = self.present_value(part, &session)?.unwrap_or(part.empty_value());
            let (value, kept) = self.revert_part(part, &session, &stored, &present)?;
            let mut changes = describe_differences(&present, &value);
            changes.extend(kept);
            planned.push(planned_part(part, &session, &stored, changes));
        }
        if let Some((session, stored)) = self.board_step_of_operation(operation)? {
            let mut editor = BoardEditor::new(self, &session);
            let board = editor.take_back(Some(stored.step.number), true)?;
            planned.push(planned_board(&session, &stored, board));
        }
        Ok(planned)
    }

    /// Returns the part of a session that a step took back; `None` if it did not.
    pub(crate) fn part_of_step(&self, stored: &StepRow) -> Result<Option<SessionPart>, EngineError> {
        let detail = self.load_detail(&stored.step)?.unwrap_or_default();
        let part = [SessionPart::Memory, SessionPart::Task].into_iter();
        Ok(part.into_iter().find(|part| detail["input"]["part"] == part.as_str()))
    }

    /// Returns the value of a part without what a step changed, and what stays because it changed later.
    fn revert_part(
        &self,
        part: SessionPart,
        session: &Session,
        stored: &StepRow,
        present: &Value,
    ) -> Result<(Value, Vec<String>), EngineError> {
        let value = |number| -> Result<Value, EngineError> {
            let state = self.session_state_at(session.id, number)?;
            let hash = state.and_then(|(_, state)| part.of_state(&state));
            Ok(self.load_part(hash)?.unwrap_or(part.empty_value()))
        };
        let (before, after) = (value(stored.step.number.saturating_sub(1))?, value(stored.step.number)?);
        Ok(revert_value(part, present, &after, &before))
    }

    /// Records the value that `decide` returns for a part of a session, unless the session has it already.
    fn record_part(
        &self,
        part: SessionPart,
        id: SessionId,
        summary: &str,
        moved: &mut MovedParts,
        decide: impl FnOnce(&Session, &Value) -> Result<(Value, Vec<String>), EngineError>,
    ) -> Result<(), EngineError> {
        let lock = self.lock_recording()?;
        let session = self.require_session(id)?;
        let present = self.present_value(part, &session)?.unwrap_or(part.empty_value());
        let (value, kept) = decide(&session, &present)?;
        let changes = describe_differences(&present, &value);
        if changes.is_empty() && kept.is_empty() {
            return Ok(());
        }
        let external = session.info.external.as_deref().unwrap_or_default();
        let event = AgentEvent {
            tool: Some(TAKE_BACK_TOOL.to_owned()),
            input: Some(json!({ "do": "take-back", "part": part.as_str() })),
            output: Some(json!({ "changes": changes, "kept": kept })),
            ..AgentEvent::new(&session.agent, external, StepKind::StateChange, summary.to_owned())
        };
        let mut report = ReportedEvent::new(event, self.engine.env.now());
        match part {
            SessionPart::Task => report.update.tasks = Some(value),
            _ => report.update.memory = Some(value),
        }
        let recorded = self.record(&lock, &report)?;
        let session = SessionName { id: session.id, agent: session.agent };
        moved.steps.push(recorded.id);
        moved.parts.push(MovedPart { part, session, changes, kept, step: recorded.number });
        Ok(())
    }

    pub(super) fn require_session(&self, id: SessionId) -> Result<Session, EngineError> {
        let missing = || EngineError::Point(format!("there is no session {id}"));
        self.store().session(id)?.ok_or_else(missing)
    }
}

impl MovedParts {
    fn add_board(&mut self, workspace: &Workspace, board: BoardReplacement) -> Result<(), EngineError> {
        if let Some(number) = board.step
            && let Some(stored) = workspace.store().step_numbered(workspace.record.id, number)?
        {
            self.steps.push(stored.step.id);
        }
        self.board = Some(board);
        Ok(())
    }
}

/// Returns what taking back the change of a board by a step does.
fn planned_board(session: &Session, stored: &StepRow, board: BoardReplacement) -> PlannedPart {
    let kept = board.conflicts.into_iter().map(|conflict| format!("{}; it stays", conflict.sentence));
    let changes = board.diff.changes.into_iter().map(|change| change.sentence).chain(kept).collect();
    planned_part(SessionPart::Reasoning, session, stored, changes)
}

/// Returns `present` without what changed from `before` to `after`, and what stays because it changed since.
fn revert_value(part: SessionPart, present: &Value, after: &Value, before: &Value) -> (Value, Vec<String>) {
    let (Value::Object(now), Value::Object(then), Value::Object(back)) = (present, after, before) else {
        return match present == after {
            true => (before.clone(), Vec::new()),
            false => (present.clone(), vec![format!("the {} changed since, so it stays", part.noun())]),
        };
    };
    let (mut result, mut kept) = (now.clone(), Vec::new());
    let mut keys: Vec<&String> =
        then.keys().chain(back.keys().filter(|key| !then.contains_key(*key))).collect();
    keys.retain(|key| then.get(*key) != back.get(*key));
    for key in keys {
        match (now.get(key) == then.get(key), back.get(key)) {
            (true, Some(value)) => drop(result.insert(key.clone(), value.clone())),
            (true, None) => drop(result.remove(key)),
            (false, value) if now.get(key) == value => {}
            (false, _) => kept.push(format!("{key} changed since, so it stays")),
        }
    }
    (Value::Object(result), kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_keeps_what_changed_later() {
        let revert = |now, then, back| revert_value(SessionPart::Memory, &now, &then, &back);
        let (value, kept) = revert(json!({ "a": 1, "c": 9 }), json!({ "a": 1 }), json!({ "a": 2, "b": 3 }));
        assert_eq!(value, json!({ "a": 2, "b": 3, "c": 9 }));
        assert!(kept.is_empty());
        let (value, kept) = revert(json!({ "a": 7 }), json!({ "a": 1 }), json!({ "a": 2 }));
        assert_eq!((value, kept), (json!({ "a": 7 }), vec!["a changed since, so it stays".to_owned()]));
        let lists = |now| revert_value(SessionPart::Task, &now, &json!(["a"]), &json!(["a", "b"]));
        assert_eq!(lists(json!(["a"])).0, json!(["a", "b"]));
        assert_eq!(
            lists(json!(["c"])),
            (json!(["c"]), vec!["the task list changed since, so it stays".to_owned()])
        );
    }
}
