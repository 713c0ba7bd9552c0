//! What an agent may do without the user: operations that affect nothing but its own work.
//!
//! A move of the workspace records the session on whose behalf it was made. So an agent can undo its own rewinds, but not a
//! rewind by which the user took back the agent's work.

use std::collections::HashSet;

use stepback_model::ids::{OpId, SessionId, StepId};
use stepback_model::path::RelPath;
use stepback_model::record::{Operation, StateTransition};

use crate::authorship::Attribution;
use crate::branch::BranchError;
use crate::error::EngineError;
use crate::rewind::PreparedRewind;
use crate::undo::{Reversal, find_last_undo, find_latest_redo_move, is_in_force};
use crate::workspace::Workspace;

impl Workspace {
    /// Returns the paths that differ on branch `name` and that another author than `session` changed here since the two
    /// branches diverged: a switch would remove that author's work from the workspace.
    pub fn foreign_changes(
        &self,
        name: &str,
        prepared: &PreparedRewind,
        session: SessionId,
    ) -> Result<Vec<RelPath>, EngineError> {
        let Some(tip) = self.branch_tip(name)? else { return Ok(Vec::new()) };
        let ancestors_there: HashSet<StepId> =
            self.ancestry(&tip)?.iter().map(|stored| stored.step.id).collect();
        let mut line = self.ancestry(&self.head()?)?;
        let fork = line.iter().position(|stored| ancestors_there.contains(&stored.step.id));
        line.truncate(fork.map_or(0, |fork| fork + 1));
        if line.is_empty() || line.iter().any(|stored| stored.purged) {
            return Err(BranchError::UnknownAuthors(name.to_owned()).into());
        }
        line.reverse();
        let planned: HashSet<&RelPath> = prepared.plan.changes.iter().map(|change| &change.path).collect();
        let mut paths = Vec::new();
        for numbered in self.attribute_changes(&line, &prepared.present.state)? {
            if numbered.taken_back || numbered.who.is_certainly_by(session) {
                continue;
            }
            let change = numbered.change;
            paths.extend([Some(change.path), change.from].into_iter().flatten());
        }
        paths.retain(|path| planned.contains(path));
        paths.sort_by(RelPath::cmp_by_components);
        paths.dedup();
        Ok(paths)
    }

    /// Plans the undo of a move that was made on behalf of `session`: of `op`, or of its newest move in force.
    pub fn prepare_own_undo(&self, session: SessionId, op: Option<OpId>) -> Result<Reversal, EngineError> {
        let operations = self.operations()?;
        let operation = match op {
            None => {
                operations.iter().find(|candidate| is_in_force(candidate) && is_made_by(candidate, session))
            }
            Some(id) => operations.iter().find(|candidate| candidate.id == id),
        };
        let operation = operation.ok_or(EngineError::NothingToUndo("undo"))?;
        check_made_by(operation, session)?;
        let reversal = self.prepare_undo(Some(operation.id))?;
        let moved = find_latest_redo_move(&operations, operation.id).or(operation.action.moved());
        self.check_no_foreign_changes_since(&reversal, moved, session)?;
        Ok(attribute_to_session(reversal, session))
    }

    /// Plans the redo of the last undo, if that was made on behalf of `session`, too.
    pub fn prepare_own_redo(&self, session: SessionId) -> Result<Reversal, EngineError> {
        let operations = self.operations()?;
        let undo = find_last_undo(&operations).ok_or(EngineError::NothingToUndo("redo"))?;
        check_made_by(undo, session)?;
        let reversal = self.prepare_redo()?;
        self.check_no_foreign_changes_since(&reversal, undo.action.moved(), session)?;
        Ok(attribute_to_session(reversal, session))
    }

    /// Fails if other agents changed files after the move: the workspace would continue from before the move, and their
    /// changes would be on a line that it has left.
    fn check_no_foreign_changes_since(
        &self,
        reversal: &Reversal,
        moved: Option<&StateTransition>,
        session: SessionId,
    ) -> Result<(), EngineError> {
        let (Reversal::Files { prepared, operation }, Some(moved)) = (reversal, moved) else { return Ok(()) };
        // Switches are checked by [`Self::foreign_changes`], which is more precise.
        if moved.branches.is_some() {
            return Ok(());
        }
        let mut line = self.ancestry(&self.head()?)?;
        let Some(reached) = line.iter().position(|stored| stored.step.id == moved.after) else {
            return Err(EngineError::CannotUndo(format!(
                "the workspace is no longer on the line of operation {} ({})",
                operation.number, operation.summary
            )));
        };
        line.truncate(reached + 1);
        line.reverse();
        let steps: Vec<_> = line.into_iter().filter(|stored| !stored.purged).collect();
        let since = self.attribute_changes(&steps, &prepared.present.state)?;
        let others = since.iter().find(|numbered| {
            let author = numbered.who.session().is_some_and(|other| other != session);
            !numbered.taken_back && (author || matches!(numbered.who, Attribution::OneOf(_)))
        });
        match others {
            None => Ok(()),
            Some(numbered) => Err(EngineError::CannotUndo(format!(
                "after operation {} ({}) another agent changed {}: take back only your own changes, or ask the user to do it",
                operation.number, operation.summary, numbered.change.path
            ))),
        }
    }
}

fn is_made_by(operation: &Operation, session: SessionId) -> bool {
    operation.action.moved().is_some_and(|moved| moved.by == Some(session))
}

fn check_made_by(operation: &Operation, session: SessionId) -> Result<(), EngineError> {
    match is_made_by(operation, session) {
        true => Ok(()),
        false => Err(EngineError::CannotUndo(format!(
            "operation {} ({}) is not one of session {}",
            operation.number,
            operation.summary,
            session.short()
        ))),
    }
}

fn attribute_to_session(mut reversal: Reversal, session: SessionId) -> Reversal {
    if let Reversal::Files { prepared, .. } = &mut reversal {
        prepared.requested_by = Some(session);
    }
    reversal
}
