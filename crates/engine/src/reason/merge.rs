//! Restores a mind to an earlier moment, takes back a single change, or merges what was learned on another branch.

use serde::Serialize;
use serde_json::{Value, json};
use stepback_model::ids::{OpId, StepId};
use stepback_model::record::{Operation, StepKind};
use stepback_reasoning::diff::BoardDiff;
use stepback_reasoning::merge::{BoardMerge, Conflict};
use stepback_reasoning::{ItemId, ReasoningBoard};
use stepback_store::Mutation;
use stepback_store::port::StepQuery;

use super::at_point::{BoardAtPoint, BoardMoment};
use super::editor::{Next, Thinker};
use crate::error::EngineError;
use crate::workspace::Workspace;

/// The tool name of steps that restore, revert or merge a mind.
const JOINED: &str = "mind";

/// The result of a restore, revert or merge of a mind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Joined {
    /// A one-line description.
    pub summary: String,
    /// The differences to the mind before.
    #[serde(flatten)]
    pub diff: BoardDiff,
    /// Items that both sides had changed.
    pub conflicts: Vec<Conflict>,
    /// Items whose id differs between the two sides.
    pub renamed: Vec<(ItemId, ItemId)>,
    /// The number of the step that records it; `None` if nothing changed or for a dry run.
    pub step: Option<u64>,
}

impl Thinker<'_> {
    /// Restores the mind of a moment. Everything since stays recorded.
    pub fn restore(&mut self, moment: &BoardMoment, dry_run: bool) -> Result<Joined, EngineError> {
        self.restored(moment, None, dry_run)
    }

    /// Restores the mind along with the files that `operation` took to that moment. Undoing the operation reverts both.
    pub fn restore_with(&mut self, moment: &BoardMoment, operation: OpId) -> Result<Joined, EngineError> {
        self.restored(moment, Some(operation), false)
    }

    fn restored(
        &mut self,
        moment: &BoardMoment,
        operation: Option<OpId>,
        dry_run: bool,
    ) -> Result<Joined, EngineError> {
        let seen = self.at(moment)?;
        let summary = format!("restore the board of {}", described(&seen));
        let from = seen.step.as_ref().map(|stored| stored.step.id);
        let merged = BoardMerge { mind: seen.mind, conflicts: Vec::new(), renamed: Vec::new() };
        self.become_of(merged, summary, said("restore", "from", from, operation), dry_run)
    }

    /// Takes back what one step changed, the newest by default. Later changes stay.
    pub fn take_back(&mut self, number: Option<u64>, dry_run: bool) -> Result<Joined, EngineError> {
        self.taken_back(number, None, dry_run)
    }

    fn taken_back(
        &mut self,
        number: Option<u64>,
        operation: Option<OpId>,
        dry_run: bool,
    ) -> Result<Joined, EngineError> {
        let session = self.session()?;
        let moment = number.map_or(BoardMoment::Now, BoardMoment::Step);
        let after = self.workspace.mind_at(&session, &moment)?;
        let step = match (&after.step, number) {
            (Some(stored), wanted) if wanted.is_none_or(|wanted| wanted == stored.step.number) => {
                stored.step.clone()
            }
            (_, Some(wanted)) => {
                return Err(EngineError::Input(format!(
                    "step #{wanted} is not a board change of this session: \"stepback log --kind reasoning\" lists them"
                )));
            }
            (_, None) => return Err(EngineError::NothingTo("take back")),
        };
        let before = self.workspace.mind_at(&session, &BoardMoment::Step(step.number.saturating_sub(1)))?;
        let merged = self.present(&session)?.0.revert(&before.mind, &after.mind)?;
        let summary = format!("take back #{}: {}", step.number, step.summary);
        self.become_of(merged, summary, said("take-back", "step", Some(step.id), operation), dry_run)
    }

    /// Merges what was learned between `base` and `from`. `base` defaults to the start of the experiment on the branch `from`.
    pub fn merge(
        &mut self,
        from: &BoardMoment,
        base: Option<&BoardMoment>,
        take_theirs: bool,
        dry_run: bool,
    ) -> Result<Joined, EngineError> {
        let session = self.session()?;
        let theirs = self.workspace.mind_at(&session, from)?;
        let base = match (base, from) {
            (Some(base), _) => self.workspace.mind_at(&session, base)?,
            (None, BoardMoment::Branch(branch)) => self.fork_of(branch, &theirs.mind)?,
            (None, _) => {
                return Err(EngineError::Input(
                    "a point that is not a branch requires --base, the point to merge from".into(),
                ));
            }
        };
        let merged = self.present(&session)?.0.merge(&base.mind, &theirs.mind, take_theirs)?;
        let summary = match from {
            BoardMoment::Branch(branch) => format!("merge the board of branch {branch}"),
            _ => format!("merge from {}", described(&theirs)),
        };
        let id = |seen: &BoardAtPoint| seen.step.as_ref().map(|stored| stored.step.id);
        let input = json!({ "do": "merge", "from": id(&theirs), "base": id(&base), "theirs": take_theirs });
        self.become_of(merged, summary, input, dry_run)
    }

    /// Returns the mind as it was when the experiment on a branch began.
    fn fork_of(&self, branch: &str, theirs: &ReasoningBoard) -> Result<BoardAtPoint, EngineError> {
        let begun = theirs.experiments.iter().rev().find(|(_, known)| known.branch == branch);
        let begun = begun.ok_or_else(|| {
            EngineError::Input(format!(
                "no experiment started on branch {branch}, so its starting point is unknown: specify it with --base"
            ))
        })?;
        let step = self.workspace.store().step(begun.1.origin.step)?;
        let number = step.map_or(0, |stored| stored.step.number);
        self.workspace.mind_at(&self.session()?, &BoardMoment::Step(number))
    }

    fn become_of(
        &mut self,
        merged: BoardMerge,
        summary: String,
        input: Value,
        dry_run: bool,
    ) -> Result<Joined, EngineError> {
        let lock = self.workspace.lock_recording()?;
        let session = self.session()?;
        let (now, place) = self.present(&session)?;
        let diff = now.diff(&merged.mind);
        let mut joined =
            Joined { summary, diff, conflicts: merged.conflicts, renamed: merged.renamed, step: None };
        if dry_run || joined.diff.changes.is_empty() && now == merged.mind {
            return Ok(joined);
        }
        let origin = self.origin(&session);
        let said: Vec<&str> = joined.diff.changes.iter().map(|change| change.sentence.as_str()).collect();
        let next = Next {
            mind: merged.mind,
            noun: JOINED,
            summary: joined.summary.clone(),
            output: json!({ "said": said, "conflicts": joined.conflicts }),
            input,
            causes: vec!["board-replaced"],
        };
        let (recorded, _) = self.record(&lock, &session, place, origin, next)?;
        joined.step = Some(recorded.number);
        Ok(joined)
    }

    /// Stores the present mind as that of `branch`, which is about to be left, so that a switch back can restore it.
    pub(super) fn leave(&mut self, branch: &str) -> Result<(), EngineError> {
        let _lock = self.workspace.lock_recording()?;
        let session = self.session()?;
        let name = self.workspace.mind_ref(session.id, branch);
        let Some(step) = self.workspace.mind_at(&session, &BoardMoment::Now)?.step else { return Ok(()) };
        let value = step.step.id;
        let expected = self.workspace.store().reference(&name)?;
        self.workspace.store().commit(None, &[Mutation::SetRef { name, expected, value }])?;
        Ok(())
    }
}

impl Workspace {
    /// When an operation that restored the board along with the files is undone or redone, reverts the last change it made to
    /// the board. `None` if it did not change the board.
    pub(crate) fn board_goes_along(&self, operation: &Operation) -> Result<Option<Joined>, EngineError> {
        let query = StepQuery {
            kinds: vec![StepKind::Reasoning],
            tool: Some(JOINED.to_owned()),
            since: Some(operation.at),
            ..StepQuery::default()
        };
        for stored in self.store().steps(self.record.id, &query)? {
            let step = &stored.step;
            let detail = self.detail_of(step)?.unwrap_or_default();
            if detail["input"]["operation"] != json!(operation.id) {
                continue;
            }
            let Some(session) = self.store().session(step.session)? else { return Ok(None) };
            let mut thinker = Thinker::new(self, &session);
            return thinker.taken_back(Some(step.number), Some(operation.id), false).map(Some);
        }
        Ok(None)
    }
}

/// Returns the input recorded with a step that restores or reverts a mind.
fn said(what: &str, key: &str, step: Option<StepId>, operation: Option<OpId>) -> Value {
    let mut input = json!({ "do": what, key: step });
    if let Some(operation) = operation {
        input["operation"] = json!(operation);
    }
    input
}

fn described(seen: &BoardAtPoint) -> String {
    match &seen.step {
        Some(stored) => {
            debug_assert_eq!(stored.step.kind, StepKind::Reasoning);
            format!("#{}", stored.step.number)
        }
        None => "before the first change of the board".to_owned(),
    }
}
