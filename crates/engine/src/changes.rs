//! The list of changes: what happened to which file, step by step, numbered so that each can be taken back.

use stepback_model::change::Change;
use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_model::state::State;
use stepback_model::time::Timestamp;
use stepback_store::port::StoredCheckpoint;

use crate::diff;
use crate::error::EngineError;
use crate::workspace::{StoreSource, Workspace};

/// A change with its place in the list.
#[derive(Clone, Debug)]
pub struct Numbered {
    /// Counts from 1, oldest first; new changes get new numbers.
    pub number: usize,
    /// What changed.
    pub change: Change,
    /// The step that first saw it; `None` if no checkpoint has it yet.
    pub step: Option<(StepId, u64)>,
    /// When that was.
    pub at: Timestamp,
    /// The tree before the change, where directories that must come back can be found.
    pub before: Option<Hash>,
}

impl Workspace<'_> {
    /// All changes on the present line, oldest first; with `since`, only those after it (numbers stay the same).
    pub fn numbered_changes(&self, since: Option<&StoredCheckpoint>) -> Result<Vec<Numbered>, EngineError> {
        let present = self.look()?;
        self.numbered_changes_against(&present.state, since)
    }

    pub(crate) fn numbered_changes_against(
        &self,
        present: &State,
        since: Option<&StoredCheckpoint>,
    ) -> Result<Vec<Numbered>, EngineError> {
        let source = StoreSource(self.store());
        let head = self.head()?;
        let mut line = self.ancestry(&head)?;
        line.reverse();
        // Where a prune freed states, the list begins after them.
        let first = line.iter().rposition(|stored| stored.purged).map_or(0, |at| at + 1);
        let line = &line[first.min(line.len())..];
        let mut numbered = Vec::new();
        let mut add =
            |changes: Vec<Change>, step: Option<(StepId, u64)>, at: Timestamp, before: Option<Hash>| {
                for change in changes {
                    numbered.push(Numbered { number: numbered.len() + 1, change, step, at, before });
                }
            };
        for pair in line.windows(2) {
            let (before, after) = (self.state_of(&pair[0])?, self.state_of(&pair[1])?);
            let step = &pair[1].checkpoint.step;
            add(
                diff::visible(&source, &before, &after)?,
                Some((step.id, step.number)),
                step.at,
                before.files,
            );
        }
        let last = self.state_of(&head)?;
        add(diff::visible(&source, &last, present)?, None, self.engine.env.now(), last.files);
        if let Some(since) = since {
            let after: std::collections::HashSet<StepId> = line
                .iter()
                .map(|stored| stored.checkpoint.step.id)
                .skip_while(|id| *id != since.checkpoint.step.id)
                .skip(1)
                .collect();
            let on_line = line.iter().any(|stored| stored.checkpoint.step.id == since.checkpoint.step.id);
            if !on_line {
                return Err(EngineError::Input(format!(
                    "{} is not on the present line, so no list of changes leads from it to now; \"stepback diff\" compares them",
                    crate::workspace::describe(since)
                )));
            }
            numbered.retain(|numbered| numbered.step.is_none_or(|(id, _)| after.contains(&id)));
        }
        Ok(numbered)
    }
}
