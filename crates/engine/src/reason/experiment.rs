//! Boards and branches: starts experiments on a branch of their own, and restores the board that a branch had when it was
//! left.

use stepback_model::ids::SessionId;
use stepback_model::plan::RewindPlan;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::HypothesisId;

use super::at_point::BoardMoment;
use super::editor::{BoardEdit, Thinker};
use crate::error::EngineError;
use crate::rewind::{PreparedRewind, RewindReport};

/// An experiment that was started.
#[derive(Debug)]
pub struct StartedExperiment {
    /// The entry on the board.
    pub thought: BoardEdit,
    /// The branch that the workspace was on before.
    pub left: String,
    /// The report of the switch to the new branch.
    pub report: RewindReport,
}

impl Thinker<'_> {
    /// Starts an experiment on a new branch and switches to it. Files stay as they are. `by` is the session that requested it,
    /// if an agent did so on its own.
    pub fn start_experiment(
        &mut self,
        branch: &str,
        hypothesis: Option<HypothesisId>,
        success: &str,
        by: Option<SessionId>,
    ) -> Result<StartedExperiment, EngineError> {
        let workspace = self.workspace;
        // Checked before anything is written: a branch that cannot be created must not leave an experiment without one.
        workspace.check_new_branch(branch)?;
        workspace.head()?;
        let thought = self.think(&BoardMutation::StartExperiment {
            branch: branch.to_owned(),
            hypothesis,
            success: success.to_owned(),
        })?;
        let left = workspace.present_branch()?;
        match self.enter_new(branch, by) {
            Ok(report) => Ok(StartedExperiment { thought, left, report }),
            Err(error) => {
                // Undo the entry on the board, unless the workspace is already on the branch. The original error is the one to
                // report, even if this fails too.
                if workspace.present_branch().is_ok_and(|present| present != branch) {
                    let _ = self.take_back(Some(thought.step), false);
                }
                Err(error)
            }
        }
    }

    /// Creates a branch at the head and switches to it.
    fn enter_new(&mut self, branch: &str, by: Option<SessionId>) -> Result<RewindReport, EngineError> {
        let workspace = self.workspace;
        workspace.create_branch(branch, &workspace.head()?)?;
        // Before the workspace is locked: the lock for recording is always taken before that of the workspace.
        let left = self.workspace.present_branch().and_then(|present| self.leave(&present));
        let entered = left.and_then(|()| workspace.prepare_switch(branch)).and_then(|mut prepared| {
            // Changes since the checkpoint belong to the experiment too.
            prepared.plan = RewindPlan::default();
            prepared.by = by;
            workspace.switch(branch, prepared)
        });
        if entered.is_err() {
            // Fails, as it should, if the workspace is on the branch.
            let _ = workspace.delete_branch(branch);
        }
        entered
    }

    /// Switches to another branch as planned, and restores the board that was left there.
    pub fn switch(
        &mut self,
        branch: &str,
        mut prepared: PreparedRewind,
    ) -> Result<RewindReport, EngineError> {
        // The lock for recording is always taken before that of the workspace. Should files change meanwhile: applying
        // compares every path with the plan.
        prepared.release();
        self.leave(&self.workspace.present_branch()?)?;
        // Read before the switch: the board of a branch can be looked up only while the branch is not the present one.
        let there = self.at(&BoardMoment::Branch(branch.to_owned()))?.step;
        let report = self.workspace.switch(branch, prepared)?;
        let there = BoardMoment::Step(there.map_or(0, |stored| stored.step.number));
        let board = self.restore_with(&there, report.operation.id)?;
        Ok(RewindReport { board: Some(board), ..report })
    }
}
