//! Lines of steps: on which branch each step is, where branches left each other, and which steps rewinds have left behind.
//!
//! A step is on the branch that was there first of those that lead to it. So a branch begins behind the step at which it left
//! another one, and that step is where the two part. Steps that are on no branch are on record, and on no line that goes on.

use std::collections::{HashMap, HashSet};

use stepback_model::ids::StepId;
use stepback_model::record::{Action, Operation, Step, StepKind};
use stepback_store::port::StoredCheckpoint;

use crate::branch::{Branch, MAIN};
use crate::error::EngineError;
use crate::workspace::Workspace;

/// Lines of steps.
#[derive(Debug)]
pub struct Lines {
    /// The branches: one that others left comes before them.
    pub branches: Vec<Line>,
    /// The place among the branches of every kept step that is on one.
    on: HashMap<StepId, usize>,
    /// The same for kept steps that rewinds have left behind: the branch they were on.
    was_on: HashMap<StepId, usize>,
    /// The number of every kept step, and the step it grew from.
    grew: HashMap<StepId, (u64, Option<StepId>)>,
    /// Rewinds on the present line: the step each grew from, and the numbers of its target and of itself; what lies between
    /// was left.
    rewinds: Vec<(StepId, u64, u64)>,
}

/// A branch as a line of steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Whether the workspace stands on it.
    pub present: bool,
    /// The number of its newest step.
    pub tip: u64,
    /// Where it left another branch: the place of that one, and the number of the step that both have.
    pub from: Option<(usize, u64)>,
    /// The number of the first kept step that is its own; none if it has none yet.
    pub first: Option<u64>,
    /// How many kept steps are its own.
    pub own: u64,
}

impl Workspace<'_> {
    /// On which branch each step is, and which steps rewinds have left behind.
    pub fn lines(&self) -> Result<Lines, EngineError> {
        let all = self.store().checkpoints(self.record.id)?;
        let by_id: HashMap<StepId, &StoredCheckpoint> =
            all.iter().map(|stored| (stored.checkpoint.step.id, stored)).collect();
        let grew = all.iter().map(|stored| &stored.checkpoint.step);
        let grew: HashMap<StepId, (u64, Option<StepId>)> =
            grew.map(|step| (step.id, (step.number, step.parent))).collect();
        let operations = self.operations()?;
        let mut branches = self.branches()?;
        let made = made(&operations);
        branches.sort_by_key(|branch| {
            let unknown = (u64::MAX, branch.tip.checkpoint.step.number);
            (branch.name != MAIN, made.get(branch.name.as_str()).map_or(unknown, |number| (*number, 0)))
        });
        let (mut on, mut lines) = (HashMap::new(), Vec::new());
        for (place, branch) in branches.iter().enumerate() {
            lines.push(line(branch, place, &grew, &mut on));
        }
        let mut was_on: HashMap<StepId, usize> = HashMap::new();
        let mut steps: Vec<&Step> = all.iter().map(|stored| &stored.checkpoint.step).collect();
        // What a step grew from has a lower number, so it is looked at first.
        steps.sort_by_key(|step| step.number);
        for step in steps.into_iter().filter(|step| !on.contains_key(&step.id)) {
            let parent = step.parent.and_then(|parent| on.get(&parent).or_else(|| was_on.get(&parent)));
            if let Some(place) = parent.copied() {
                was_on.insert(step.id, place);
            }
        }
        let present =
            branches.iter().find(|branch| branch.present).map(|branch| branch.tip.checkpoint.step.id);
        let rewinds = self.rewinds_on(present, &by_id, &operations)?;
        Ok(Lines { branches: lines, on, was_on, grew, rewinds })
    }

    /// The rewinds on the line that leads to a step.
    fn rewinds_on(
        &self,
        tip: Option<StepId>,
        by_id: &HashMap<StepId, &StoredCheckpoint>,
        operations: &[Operation],
    ) -> Result<Vec<(StepId, u64, u64)>, EngineError> {
        // An undo goes back to where it was before; it leaves nothing behind but what it undoes.
        let undoing = operations.iter().filter(|operation| matches!(operation.action, Action::Undo { .. }));
        let undone: HashSet<StepId> =
            undoing.filter_map(|operation| Some(operation.action.moved()?.after)).collect();
        let (mut rewinds, mut at) = (Vec::new(), tip);
        while let Some(stored) = at.and_then(|id| by_id.get(&id)) {
            let step = &stored.checkpoint.step;
            if step.kind == StepKind::Rewind
                && !undone.contains(&step.id)
                && let Some(onto) = step.parent
            {
                let detail = self.detail_of(step)?;
                let target = detail.as_ref().and_then(|detail| detail.get("target")?.as_u64());
                rewinds.push((onto, target.unwrap_or(0), step.number));
            }
            at = step.parent;
        }
        Ok(rewinds)
    }
}

/// When each branch was made, by the name it has now.
fn made(operations: &[Operation]) -> HashMap<&str, u64> {
    let mut made = HashMap::new();
    let mut operations: Vec<&Operation> = operations.iter().collect();
    operations.sort_by_key(|operation| operation.number);
    for operation in operations {
        match &operation.action {
            Action::BranchCreate { name, .. } => drop(made.insert(name.as_str(), operation.number)),
            Action::BranchRename { from, to, .. } => {
                if let Some(number) = made.remove(from.as_str()) {
                    made.insert(to.as_str(), number);
                }
            }
            _ => {}
        }
    }
    made
}

/// The steps of a branch that are on none before it.
fn line(
    branch: &Branch,
    place: usize,
    grew: &HashMap<StepId, (u64, Option<StepId>)>,
    on: &mut HashMap<StepId, usize>,
) -> Line {
    let tip = &branch.tip.checkpoint.step;
    let (mut first, mut own, mut at) = (None, 0, Some(tip.id));
    let mut from = None;
    while let Some((id, (number, parent))) = at.and_then(|id| Some((id, grew.get(&id)?))) {
        if let Some(other) = on.get(&id) {
            from = Some((*other, *number));
            break;
        }
        on.insert(id, place);
        (first, own, at) = (Some(*number), own + 1, *parent);
    }
    Line { name: branch.name.clone(), present: branch.present, tip: tip.number, from, first, own }
}

impl Lines {
    /// Whether all steps are on one line, and none was left behind.
    pub fn is_one(&self) -> bool {
        self.branches.len() <= 1 && self.on.len() == self.grew.len() && self.rewinds.is_empty()
    }

    /// Whether a rewind has left a step behind.
    pub fn left_behind(&self, stored: &StoredCheckpoint) -> bool {
        if self.is_one() {
            return false;
        }
        let step = &stored.checkpoint.step;
        if stored.checkpoint.trigger.is_some() {
            return !self.on.contains_key(&step.id);
        }
        // A step without files of its own went with the step it grew from, or stood between that and a rewind to it.
        let Some(parent) = step.parent else { return false };
        !self.on.contains_key(&parent)
            || self.rewinds.iter().any(|(onto, target, rewind)| {
                *onto == parent && *target < step.number && step.number < *rewind
            })
    }

    /// The place among the branches of the one that a step is on, or was.
    pub fn branch_of(&self, stored: &StoredCheckpoint) -> usize {
        if self.branches.len() <= 1 {
            return 0;
        }
        let step = &stored.checkpoint.step;
        let of = |id: &StepId| self.on.get(id).or_else(|| self.was_on.get(id)).copied();
        of(&step.id).or_else(|| of(&step.parent?)).unwrap_or(0)
    }

    /// The nearest kept step before one along the way it grew that fits, and its number.
    pub fn grown_from(&self, step: StepId, fits: impl Fn(StepId) -> bool) -> Option<(StepId, u64)> {
        let mut at = self.grew.get(&step)?.1;
        while let Some((id, (number, parent))) = at.and_then(|id| Some((id, self.grew.get(&id)?))) {
            if fits(id) {
                return Some((id, *number));
            }
            at = *parent;
        }
        None
    }
}
