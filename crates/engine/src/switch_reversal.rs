//! Whether a switch of branches can be taken back, and from which step the line then goes on.

use stepback_model::ids::StepId;
use stepback_model::record::{Operation, StateTransition, StepRow};

use crate::branch::quote_branch_name;
use crate::error::EngineError;
use crate::workspace::{Workspace, describe_checkpoint};

impl Workspace {
    /// Returns the step from which the line goes on when a move is taken back. Fails if it was a switch of branches, and the
    /// workspace is on another branch now, or the branch that was left has gone on.
    pub(crate) fn find_resumed_step(
        &self,
        moved: &StateTransition,
        operations: &[Operation],
    ) -> Result<StepId, EngineError> {
        let Some((later, entered)) = &moved.branches else { return Ok(moved.before) };
        let present = self.present_branch()?;
        if present != *entered {
            return Err(EngineError::CannotUndo(format!(
                "that was a switch to branch {entered}, but the workspace is now on {present}: switch to {entered} first"
            )));
        }
        match self.branch_tip(later)? {
            // Otherwise the checkpoints made on that branch since would be on no branch.
            Some(tip) if !self.has_only_switches_since(&tip, moved.before, operations)? => {
                Err(EngineError::CannotUndo(format!(
                    "that was a switch from branch {later}, which is at {} now: \"stepback branch switch {quoted}\" switches to it",
                    describe_checkpoint(&tip),
                    quoted = quote_branch_name(later),
                )))
            }
            tip => Ok(tip.map_or(moved.before, |tip| tip.step.id)),
        }
    }

    /// Whether a branch is at `tip` and not at `before` only because it was switched to, which changed nothing on it.
    fn has_only_switches_since(
        &self,
        tip: &StepRow,
        before: StepId,
        operations: &[Operation],
    ) -> Result<bool, EngineError> {
        let is_switch = |id: StepId| {
            let moves = operations.iter().filter_map(|op| op.action.moved());
            moves.into_iter().any(|moved| moved.after == id && moved.branches.is_some())
        };
        let mut step = tip.clone();
        while step.step.id != before {
            let parent = step.step.parent.filter(|_| is_switch(step.step.id));
            match parent.map(|id| self.store().step(id)).transpose()?.flatten() {
                Some(parent) => step = parent,
                None => return Ok(false),
            }
        }
        Ok(true)
    }
}
