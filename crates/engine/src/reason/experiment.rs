//! Boards and branches: experiments on a branch of their own, and boards that wait where a branch was left.

use stepback_mind::Mutation;
use stepback_mind::ids::HypothesisId;
use stepback_model::ids::SessionId;
use stepback_model::plan::Plan;

use super::at_point::Moment;
use super::editor::{Thinker, Thought};
use crate::error::EngineError;
use crate::rewind::{PreparedRewind, RewindReport};

/// An experiment that began.
#[derive(Debug)]
pub struct StartedExperiment {
    /// What it is on the board.
    pub thought: Thought,
    /// The branch that was left for it.
    pub left: String,
    /// How the workspace came to stand on the new one.
    pub report: RewindReport,
}

impl Thinker<'_> {
    /// Begins to try something out on a branch of its own, and stands on it. Files stay as they are. `by` is the session that
    /// asks for it, if an agent does so by itself.
    pub fn start_experiment(
        &mut self,
        branch: &str,
        hypothesis: Option<HypothesisId>,
        success: &str,
        by: Option<SessionId>,
    ) -> Result<StartedExperiment, EngineError> {
        let workspace = self.workspace;
        // Before anything is written: a branch that cannot be made must not leave an experiment without one.
        workspace.check_new_branch(branch)?;
        workspace.head()?;
        let thought = self.think(&Mutation::StartExperiment {
            branch: branch.to_owned(),
            hypothesis,
            success: success.to_owned(),
        })?;
        let left = workspace.present_branch()?;
        match self.enter_new(branch, by) {
            Ok(report) => Ok(StartedExperiment { thought, left, report }),
            Err(error) => {
                // Nothing half done stays, unless the workspace stands there already. Why it failed is what to say, even if
                // tidying up fails too.
                if workspace.present_branch().is_ok_and(|present| present != branch) {
                    let _ = self.take_back(Some(thought.step), false);
                }
                Err(error)
            }
        }
    }

    /// Makes a branch here and stands on it.
    fn enter_new(&mut self, branch: &str, by: Option<SessionId>) -> Result<RewindReport, EngineError> {
        let workspace = self.workspace;
        workspace.create_branch(branch, &workspace.head()?)?;
        let entered = self.prepare_switch(branch).and_then(|mut prepared| {
            // What is written between the checkpoint and now belongs to the experiment, too.
            prepared.plan = Plan::default();
            prepared.by = by;
            workspace.switch(branch, prepared)
        });
        if entered.is_err() {
            // Refused where the workspace stands on it.
            let _ = workspace.delete_branch(branch);
        }
        entered
    }

    /// Plans to stand on another branch with the board that was left there. Where the board stands here is noted.
    pub fn prepare_switch(&mut self, branch: &str) -> Result<PreparedRewind, EngineError> {
        // Before the workspace is locked: whoever records a step waits for the workspace, and not the other way round.
        self.leave(&self.workspace.present_branch()?)?;
        self.workspace.prepare_switch(branch)
    }

    /// Stands on another branch, as planned, and the board becomes what it was there.
    pub fn switch(&mut self, branch: &str, prepared: PreparedRewind) -> Result<RewindReport, EngineError> {
        // Where the board of a branch is, is known as long as it is not the present one.
        let there = self.at(&Moment::Branch(branch.to_owned()))?.step;
        let report = self.workspace.switch(branch, prepared)?;
        let there = Moment::Step(there.map_or(0, |stored| stored.checkpoint.step.number));
        let board = self.restore_with(&there, report.operation.id)?;
        Ok(RewindReport { board: Some(board), ..report })
    }
}
