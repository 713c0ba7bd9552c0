//! Merges into a board what was concluded on a branch of the workspace, along with the files of the branch.
//!
//! Several sessions may have worked on the branch, each with a board of its own. The board that was left there by the session
//! into whose board is merged comes first, then those of the other sessions. A board that has nothing in common with this one
//! is added as a whole.

use serde_json::json;
use stepback_model::ids::{OpId, SessionId};
use stepback_model::record::{OperationAction, StepKind};
use stepback_reasoning::ReasoningBoard;
use stepback_reasoning::merge::BoardMerge;
use stepback_store::port::StepQuery;

use super::at_point::BoardMoment;
use super::editor::BoardEditor;
use super::replace::BoardReplacement;
use crate::error::EngineError;
use crate::workspace::Workspace;

/// A board to merge, and the one that it began with on the branch.
struct BranchBoard {
    base: ReasoningBoard,
    theirs: ReasoningBoard,
}

impl BoardEditor<'_> {
    /// Merges what was concluded on `branch` after the step numbered `base`. `operation` merges the files of the branch; undoing
    /// it takes both back.
    pub(crate) fn merge_branch(
        &mut self,
        branch: &str,
        base: u64,
        operation: Option<OpId>,
        dry_run: bool,
    ) -> Result<BoardReplacement, EngineError> {
        let mut merged = BoardMerge { mind: self.board()?, conflicts: Vec::new(), renamed: Vec::new() };
        for BranchBoard { base, theirs } in self.boards_of_branch(branch, base)? {
            let is_related = merged.mind.continues(&base);
            let base = if is_related { base } else { ReasoningBoard::default() };
            let next = merged.mind.merge_again(&base, &theirs)?;
            merged.mind = next.mind;
            merged.conflicts.extend(next.conflicts);
            merged.renamed.extend(next.renamed);
        }
        let mut input = json!({ "do": "merge", "branch": branch, "base": base });
        if let Some(operation) = operation {
            input["operation"] = json!(operation);
        }
        self.replace(merged, format!("merge the board of branch {branch}"), input, dry_run)
    }

    /// Returns the boards of the sessions that worked on a branch after the step numbered `base`.
    fn boards_of_branch(&self, branch: &str, base: u64) -> Result<Vec<BranchBoard>, EngineError> {
        let (workspace, own) = (self.workspace, self.session()?);
        let mut boards = Vec::new();
        // Without a stored board, the session never left the branch with its board: everything from there is still on it.
        if workspace.store().reference(&workspace.board_ref(own.id, branch))?.is_some() {
            let theirs = workspace.board_at(&own, &BoardMoment::Branch(branch.to_owned()))?.board;
            let begun = theirs.experiments.iter().rev().find(|(_, experiment)| experiment.branch == branch);
            let begun = begun.map(|(_, experiment)| workspace.store().step(experiment.origin.step));
            let begun = begun.transpose()?.flatten().map_or(0, |stored| stored.step.number);
            let base = workspace.board_at(&own, &BoardMoment::Step(base.max(begun)))?.board;
            boards.push(BranchBoard { base, theirs });
        }
        for (session, newest) in workspace.last_board_changes_on(branch, base)? {
            let Some(session) = workspace.store().session(session)?.filter(|session| session.id != own.id)
            else {
                continue;
            };
            boards.push(BranchBoard {
                base: workspace.board_at(&session, &BoardMoment::Step(base))?.board,
                theirs: workspace.board_at(&session, &BoardMoment::Step(newest))?.board,
            });
        }
        Ok(boards)
    }
}

impl Workspace {
    /// Returns the number of the newest step that a branch shares with the present one, for its boards.
    pub(crate) fn board_merge_base(&self, branch: &str) -> Result<u64, EngineError> {
        let tip = self.require_branch_tip(branch)?;
        let fork = self.find_merge_base(branch, &self.head()?, &tip)?;
        let mut name = branch.to_owned();
        for operation in self.operations()? {
            match operation.action {
                OperationAction::BranchRename { from, to, .. } if to == name && !operation.undone => {
                    name = from
                }
                // Steps without files of their own that came before the branch are on both lines.
                OperationAction::BranchCreate { name: created, upto, .. } if created == name => {
                    return Ok(fork.map_or(0, |fork| fork.step.number).max(upto.unwrap_or(0)));
                }
                _ => {}
            }
        }
        Ok(fork.map_or(0, |fork| fork.step.number))
    }

    /// Returns the sessions that changed their boards on a branch after the step numbered `after`, each with the number of its
    /// newest change there.
    fn last_board_changes_on(&self, branch: &str, after: u64) -> Result<Vec<(SessionId, u64)>, EngineError> {
        let query =
            StepQuery { kinds: vec![StepKind::Reasoning], after: Some(after), ..StepQuery::default() };
        let changes = self.store().steps(self.record.id, &query)?;
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let lines = self.load_lines()?;
        let mut newest: Vec<(SessionId, u64)> = Vec::new();
        for stored in changes.iter().filter(|stored| !lines.is_rolled_back(stored)) {
            let is_there =
                lines.branches.get(lines.branch_of(stored)).is_some_and(|line| line.name == branch);
            if is_there && !newest.iter().any(|(session, _)| *session == stored.step.session) {
                newest.push((stored.step.session, stored.step.number));
            }
        }
        Ok(newest)
    }
}
