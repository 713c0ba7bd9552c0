//! Starts an experiment: an entry on the board, and a branch of its own.

use stepback_engine::EngineError;
use stepback_engine::board::{BoardEdit, BoardEditor};
use stepback_engine::rewind::RewindReport;
use stepback_model::ids::SessionId;
use stepback_model::plan::RewindPlan;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::HypothesisId;

/// An experiment that was started.
#[derive(Debug)]
pub struct StartedExperiment {
    /// The entry on the board.
    pub edit: BoardEdit,
    /// The branch that the workspace was on before.
    pub left: String,
    /// The report of the switch to the new branch.
    pub report: RewindReport,
}

/// Starts an experiment on a new branch and switches to it. Files stay as they are. `by` is the session that requested it,
/// if an agent did so on its own.
pub fn start_experiment(
    editor: &mut BoardEditor<'_>,
    branch: &str,
    hypothesis: Option<HypothesisId>,
    success: &str,
    by: Option<SessionId>,
) -> Result<StartedExperiment, EngineError> {
    let workspace = editor.workspace();
    // Checked before anything is written: a branch that cannot be created must not leave an experiment without one.
    workspace.check_new_rerun_branch(branch)?;
    workspace.head()?;
    let edit = editor.apply(&BoardMutation::StartExperiment {
        branch: branch.to_owned(),
        hypothesis,
        success: success.to_owned(),
    })?;
    let old_branch = workspace.present_branch()?;
    match switch_to_new_branch(editor, branch, by) {
        Ok(report) => Ok(StartedExperiment { edit, left: old_branch, report }),
        Err(error) => {
            // Undo the entry on the board, unless the workspace is already on the branch. The original error is the one to
            // report, even if this fails too.
            if workspace.present_branch().is_ok_and(|present| present != branch) {
                let _ = editor.take_back(Some(edit.step), false);
            }
            Err(error)
        }
    }
}

/// Creates a branch at the head and switches to it.
fn switch_to_new_branch(
    editor: &mut BoardEditor<'_>,
    branch: &str,
    by: Option<SessionId>,
) -> Result<RewindReport, EngineError> {
    let workspace = editor.workspace();
    workspace.create_branch(branch, &workspace.head()?)?;
    // Before the workspace is locked: the lock for recording is always taken before that of the workspace.
    let saved = workspace.present_branch().and_then(|present| editor.save_board_for_branch(&present));
    let entered = saved.and_then(|()| workspace.prepare_switch(branch)).and_then(|mut prepared| {
        // Changes since the checkpoint belong to the experiment too.
        prepared.plan = RewindPlan::default();
        prepared.requested_by = by;
        workspace.switch(branch, prepared)
    });
    if entered.is_err() {
        // Fails, as it should, if the workspace is on the branch.
        let _ = workspace.delete_branch(branch);
    }
    entered
}
