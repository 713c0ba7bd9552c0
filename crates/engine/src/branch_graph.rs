//! Lines of steps: on which branch each step is, where branches left each other, and which steps were rolled back.
//!
//! A step is rolled back if and only if it is not on the line that its session stands on. Every session has its own: a rewind
//! that takes back what one session did since a point leaves the steps of all others where they are, and one that goes to a
//! past state as a whole takes everybody along. What a switch leaves stays on its branch. A rewind that changed no file, or
//! was undone, rolls nothing back. The start and the end of a call go together: the end decides for both.
//!
//! A step that several branches lead to is on the one that was there first. So a branch begins behind the step at which it
//! left another one, and that step is where the two part.

mod calls;
mod graph;

use std::collections::HashMap;

use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Action, Operation, Step, StepKind};
use stepback_store::port::StoredCheckpoint;

pub(crate) use self::graph::LineGraph;
use self::graph::LineSegment;
use crate::branch::{Branch, MAIN};
use crate::error::EngineError;
use crate::workspace::Workspace;

/// Lines of steps.
pub struct Lines {
    /// The branches: one that others left comes before them.
    pub branches: Vec<Line>,
    graph: LineGraph,
    /// The place among the branches of every checkpoint that is on one.
    on: HashMap<StepId, usize>,
    /// The same for checkpoints that were rolled back: the branch they were on.
    was_on: HashMap<StepId, usize>,
    /// How branches, by their place, pass each checkpoint on their way.
    passed: HashMap<StepId, Vec<(usize, LineSegment)>>,
    /// The checkpoint before each one on its line.
    previous: HashMap<StepId, StepId>,
    /// The checkpoints on the line that the workspace stands on, newest first.
    present: Vec<StepId>,
    /// Starts of calls whose end is elsewhere: whether that is rolled back, and its branch.
    ends: HashMap<StepId, (bool, usize)>,
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
    /// On which branch each step is, and which steps were rolled back.
    pub fn lines(&self) -> Result<Lines, EngineError> {
        let mut lines = self.lines_without_calls()?;
        lines.ends = self.ends_of_split_calls(&lines, None)?;
        Ok(lines)
    }

    /// The same for the steps of one session; the others are not asked about.
    pub fn lines_of(&self, session: SessionId) -> Result<Lines, EngineError> {
        let mut lines = self.lines_without_calls()?;
        lines.ends = self.ends_of_split_calls(&lines, Some(session))?;
        Ok(lines)
    }

    /// The branches as lines of steps.
    pub fn branch_lines(&self) -> Result<Vec<Line>, EngineError> {
        Ok(self.lines_without_calls()?.branches)
    }

    fn lines_without_calls(&self) -> Result<Lines, EngineError> {
        let all = self.store().checkpoints(self.record.id)?;
        let operations = self.operations()?;
        let mut branches = self.branches()?;
        let made = made(&operations);
        branches.sort_by_key(|branch| {
            let unknown = (u64::MAX, branch.tip.checkpoint.step.number);
            (branch.name != MAIN, made.get(branch.name.as_str()).map_or(unknown, |number| (*number, 0)))
        });
        let graph = self.line_graph(&all, &operations)?;
        let mut lines = Lines {
            branches: Vec::new(),
            graph,
            on: HashMap::new(),
            was_on: HashMap::new(),
            passed: HashMap::new(),
            previous: HashMap::new(),
            present: Vec::new(),
            ends: HashMap::new(),
        };
        for branch in &branches {
            lines.add_branch(branch);
        }
        let mut steps: Vec<&Step> = all.iter().map(|stored| &stored.checkpoint.step).collect();
        // What a step grew from has a lower number, so it is looked at first.
        steps.sort_by_key(|step| step.number);
        for step in steps.into_iter().filter(|step| !lines.on.contains_key(&step.id)) {
            let place = |parent| lines.on.get(&parent).or_else(|| lines.was_on.get(&parent)).copied();
            if let Some(place) = step.parent.and_then(place) {
                lines.was_on.insert(step.id, place);
            }
        }
        Ok(lines)
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

impl Lines {
    /// Adds a branch: its steps that are on none before it are its own.
    fn add_branch(&mut self, branch: &Branch) {
        let place = self.branches.len();
        let tip = &branch.tip.checkpoint.step;
        let upto = if branch.present { u64::MAX } else { self.graph.end_of(&branch.name, tip.id) };
        let (mut from, mut first, mut own) = (None, None, 0);
        let mut newer: Option<StepId> = None;
        for segment in self.graph.walk(tip.id, upto) {
            if segment.is_on {
                match self.on.get(&segment.id) {
                    Some(other) => from = from.or(Some((*other, segment.number))),
                    None => {
                        self.on.insert(segment.id, place);
                        (first, own) = (Some(segment.number), own + 1);
                    }
                }
                if branch.present {
                    self.present.push(segment.id);
                }
                if let Some(newer) = newer.replace(segment.id) {
                    self.previous.entry(newer).or_insert(segment.id);
                }
            }
            let passed = self.passed.entry(segment.id).or_default();
            let is_known = |(_, known): &(usize, LineSegment)| known.is_clean && known.upto >= segment.upto;
            let goes_on_as_known = !branch.present && segment.is_clean && passed.iter().any(is_known);
            passed.push((place, segment));
            if goes_on_as_known {
                break;
            }
        }
        let name = branch.name.clone();
        self.branches.push(Line { name, present: branch.present, tip: tip.number, from, first, own });
    }

    /// Whether all steps are on one line, and none was rolled back.
    pub fn is_one(&self) -> bool {
        self.branches.len() <= 1 && self.on.len() == self.graph.nodes.len() && self.graph.has_no_moves()
    }

    /// Whether a step was rolled back.
    pub fn is_rolled_back(&self, stored: &StoredCheckpoint) -> bool {
        if self.is_one() {
            return false;
        }
        match self.ends.get(&stored.checkpoint.step.id) {
            Some((rolled_back, _)) => *rolled_back,
            None => !self.is_on_line(stored),
        }
    }

    /// Whether a step is on a line, seen by itself.
    fn is_on_line(&self, stored: &StoredCheckpoint) -> bool {
        let step = &stored.checkpoint.step;
        if stored.checkpoint.trigger.is_some() {
            return self.on.contains_key(&step.id);
        }
        // That a branch was made stays true; such a step hangs on the one where the branch begins.
        if step.kind == StepKind::BranchCreated {
            return true;
        }
        step.parent.is_none() || self.branch_of_light(step).is_some()
    }

    /// The first branch that a step without files of its own is on.
    fn branch_of_light(&self, step: &Step) -> Option<usize> {
        let passed = self.passed.get(&step.parent?)?;
        passed.iter().find(|(_, at)| at.admits(step.session, step.number)).map(|(place, _)| *place)
    }

    /// The checkpoints on the line that the workspace stands on, newest first. The start of a call whose end was rolled back is
    /// among them: it is where the line left that call.
    pub fn present_line(&self) -> &[StepId] {
        &self.present
    }

    /// The place among the branches of the one that a step is on, or was.
    pub fn branch_of(&self, stored: &StoredCheckpoint) -> usize {
        if self.branches.len() <= 1 {
            return 0;
        }
        match self.ends.get(&stored.checkpoint.step.id) {
            Some((_, branch)) => *branch,
            None => self.own_branch_of(&stored.checkpoint.step),
        }
    }

    fn own_branch_of(&self, step: &Step) -> usize {
        let of = |id: &StepId| self.on.get(id).or_else(|| self.was_on.get(id)).copied();
        of(&step.id).or_else(|| self.branch_of_light(step)).or_else(|| of(&step.parent?)).unwrap_or(0)
    }

    /// The checkpoint before another one: on its line if it is on one, otherwise on the line it was on.
    pub fn before(&self, step: StepId) -> Option<StepId> {
        let is_rolled_back = |id: &StepId| {
            self.ends.get(id).map_or(!self.on.contains_key(id), |(rolled_back, _)| *rolled_back)
        };
        if !is_rolled_back(&step) {
            let mut at = self.previous.get(&step);
            while let Some(id) = at.filter(|id| is_rolled_back(id)) {
                at = self.previous.get(id);
            }
            return at.copied();
        }
        // Steps of other sessions that stayed on the line lie between: it left where its own session went back to.
        let session = self.graph.nodes.get(&step)?.session;
        let passed = self.passed.get(&step).into_iter().flatten();
        let limit = passed.filter_map(|(_, segment)| segment.gone.get(&session)).min();
        let mut at = self.graph.nodes.get(&step)?.parent;
        while let Some((id, node)) = at.and_then(|id| Some((id, self.graph.nodes.get(&id)?))) {
            if is_rolled_back(&id) || limit.is_none_or(|limit| node.number <= *limit) {
                return Some(id);
            }
            at = node.parent;
        }
        None
    }

    /// The nearest checkpoint before another one along the line that fits, and its number.
    pub fn grown_from(&self, step: StepId, fits: impl Fn(StepId) -> bool) -> Option<(StepId, u64)> {
        let mut at = self.before(step);
        while let Some(id) = at {
            if fits(id) {
                return Some((id, self.graph.nodes.get(&id)?.number));
            }
            at = self.before(id);
        }
        None
    }
}
