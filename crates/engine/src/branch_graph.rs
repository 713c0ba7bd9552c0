//! Lines of steps: which branch each step is on, where branches diverged, and which steps were rolled back.
//!
//! A step is rolled back if and only if it is not on the line of its session. Every session has its own line: a rewind that
//! takes back what one session did since a point leaves the steps of all others where they are, and a rewind of the whole
//! workspace to a past state affects all sessions. Steps that a switch leaves stay on their branch. A rewind that changed no
//! file, or was undone, rolls nothing back. The start and the end of a call belong together: the end decides for both.
//!
//! A step that several branches lead to is on the oldest of them. So a branch begins after the step at which it left another
//! one, and that step is their fork point.

mod calls;
mod graph;
mod lanes;

use std::collections::HashMap;

use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepRow;
use stepback_model::record::{Operation, OperationAction, Step, StepKind};

pub(crate) use self::graph::LineGraph;
use self::graph::LineSegment;
pub use self::lanes::{BranchSpan, LaneLayout, TimelineFork, TimelineLane};
use crate::branch::{BranchInfo, MAIN};
use crate::error::EngineError;
use crate::workspace::Workspace;

/// The branches of a workspace and the place of every step on them.
#[derive(Default)]
pub struct BranchLines {
    /// The branches; a branch comes before those that left it.
    pub branches: Vec<BranchLine>,
    graph: LineGraph,
    /// Index in `branches` of every checkpoint that is on one.
    branch_by_step: HashMap<StepId, usize>,
    /// Index in `branches` of every checkpoint that was rolled back: the branch it was on.
    former_branch_by_step: HashMap<StepId, usize>,
    /// For each checkpoint, the branches (by index) that pass it, and how.
    segments_by_step: HashMap<StepId, Vec<(usize, LineSegment)>>,
    /// The previous checkpoint of each checkpoint on its line.
    previous: HashMap<StepId, StepId>,
    /// The checkpoints on the line that the workspace is on, newest first.
    present: Vec<StepId>,
    /// Starts of calls whose end is on another line: whether the end is rolled back, and the index of its branch.
    split_call_ends: HashMap<StepId, (bool, usize)>,
}

/// A branch as a line of steps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BranchLine {
    /// Name of the branch.
    pub name: String,
    /// Whether the workspace is on it.
    pub present: bool,
    /// Number of its newest step.
    pub tip: u64,
    /// Where it left another branch: the index of that branch, and the number of the last step that both have.
    pub from: Option<(usize, u64)>,
    /// Number of its first own kept step; `None` if it has none yet.
    pub first: Option<u64>,
    /// Number of kept steps that are its own.
    pub own: u64,
}

impl Workspace {
    /// Returns which branch each step is on, and which steps were rolled back.
    pub fn load_lines(&self) -> Result<BranchLines, EngineError> {
        let mut lines = self.load_lines_without_calls()?;
        lines.split_call_ends = self.find_split_call_ends(&lines, None)?;
        Ok(lines)
    }

    /// Like [`Self::load_lines`], but only correct for the steps of `session`: calls of other sessions are not paired.
    pub fn load_session_lines(&self, session: SessionId) -> Result<BranchLines, EngineError> {
        let mut lines = self.load_lines_without_calls()?;
        lines.split_call_ends = self.find_split_call_ends(&lines, Some(session))?;
        Ok(lines)
    }

    /// Returns the branches as lines of steps.
    pub fn branch_lines(&self) -> Result<Vec<BranchLine>, EngineError> {
        Ok(self.load_lines_without_calls()?.branches)
    }

    fn load_lines_without_calls(&self) -> Result<BranchLines, EngineError> {
        let checkpoints = self.store().checkpoints(self.record.id)?;
        let operations = self.operations()?;
        let mut branches = self.branches()?;
        let created_at = branch_creation_order(&operations);
        branches.sort_by_key(|branch| {
            let unknown = (u64::MAX, branch.tip.step.number);
            (branch.name != MAIN, created_at.get(branch.name.as_str()).map_or(unknown, |number| (*number, 0)))
        });
        let graph = self.line_graph(&checkpoints, &operations)?;
        let mut lines = BranchLines { graph, ..BranchLines::default() };
        for branch in &branches {
            lines.add_branch(branch);
        }
        let mut steps: Vec<&Step> = checkpoints.iter().map(|stored| &stored.step).collect();
        // The parent of a step has a lower number, so it is processed first.
        steps.sort_by_key(|step| step.number);
        for step in steps.into_iter().filter(|step| !lines.branch_by_step.contains_key(&step.id)) {
            let place = |parent| {
                lines
                    .branch_by_step
                    .get(&parent)
                    .or_else(|| lines.former_branch_by_step.get(&parent))
                    .copied()
            };
            if let Some(place) = step.parent.and_then(place) {
                lines.former_branch_by_step.insert(step.id, place);
            }
        }
        Ok(lines)
    }
}

/// Returns when each branch was created, by its present name.
fn branch_creation_order(operations: &[Operation]) -> HashMap<&str, u64> {
    let mut created_at = HashMap::new();
    let mut operations: Vec<&Operation> = operations.iter().collect();
    operations.sort_by_key(|operation| operation.number);
    for operation in operations {
        match &operation.action {
            OperationAction::BranchCreate { name, .. } => {
                created_at.insert(name.as_str(), operation.number);
            }
            OperationAction::BranchRename { from: old_name, to: new_name, .. } => {
                if let Some(number) = created_at.remove(old_name.as_str()) {
                    created_at.insert(new_name.as_str(), number);
                }
            }
            _ => {}
        }
    }
    created_at
}

impl BranchLines {
    /// Adds a branch. Its own steps are those that are on no branch added before.
    fn add_branch(&mut self, branch: &BranchInfo) {
        let index = self.branches.len();
        let tip = &branch.tip.step;
        let upto =
            if branch.present { u64::MAX } else { self.graph.last_light_step_number(&branch.name, tip.id) };
        let (mut from, mut first, mut own_count) = (None, None, 0);
        let mut newer: Option<StepId> = None;
        for segment in self.graph.walk(tip.id, upto) {
            if segment.is_on_line {
                match self.branch_by_step.get(&segment.id) {
                    Some(other_branch) => from = from.or(Some((*other_branch, segment.number))),
                    None => {
                        self.branch_by_step.insert(segment.id, index);
                        (first, own_count) = (Some(segment.number), own_count + 1);
                    }
                }
                if branch.present {
                    self.present.push(segment.id);
                }
                if let Some(newer) = newer.replace(segment.id) {
                    self.previous.entry(newer).or_insert(segment.id);
                }
            }
            let passed = self.segments_by_step.entry(segment.id).or_default();
            let is_known = |(_, segment_on_branch): &(usize, LineSegment)| {
                segment_on_branch.is_clean && segment_on_branch.upto >= segment.upto
            };
            let goes_on_as_known = !branch.present && segment.is_clean && passed.iter().any(is_known);
            passed.push((index, segment));
            if goes_on_as_known {
                break;
            }
        }
        let name = branch.name.clone();
        self.branches.push(BranchLine {
            name,
            present: branch.present,
            tip: tip.number,
            from,
            first,
            own: own_count,
        });
    }

    /// Whether all steps are on one line, and none was rolled back.
    pub fn is_linear(&self) -> bool {
        self.branches.len() <= 1
            && self.branch_by_step.len() == self.graph.nodes.len()
            && self.graph.has_no_moves()
    }

    /// Whether a step was rolled back.
    pub fn is_rolled_back(&self, stored: &StepRow) -> bool {
        if self.is_linear() {
            return false;
        }
        match self.split_call_ends.get(&stored.step.id) {
            Some((rolled_back, _)) => *rolled_back,
            None => !self.is_on_line(stored),
        }
    }

    /// Whether a step is on a line, without regard to the other end of its call.
    fn is_on_line(&self, stored: &StepRow) -> bool {
        let step = &stored.step;
        if stored.is_checkpoint() {
            return self.branch_by_step.contains_key(&step.id);
        }
        // The creation of a branch is never rolled back; its step is a child of the step where the branch begins.
        if step.kind == StepKind::BranchCreated {
            return true;
        }
        step.parent.is_none() || self.branch_of_light_step(step).is_some()
    }

    /// Returns the first branch that contains a step without files of its own.
    fn branch_of_light_step(&self, step: &Step) -> Option<usize> {
        let passed = self.segments_by_step.get(&step.parent?)?;
        passed
            .iter()
            .find(|(_, segment)| segment.contains_light_step(step.session, step.number))
            .map(|(branch, _)| *branch)
    }

    /// Returns the checkpoints on the line that the workspace is on, newest first. This includes the start of a call whose
    /// end was rolled back: the line left that call there.
    pub fn present_line(&self) -> &[StepId] {
        &self.present
    }

    /// Returns the index of the branch that a step is on, or was on before it was rolled back.
    pub fn branch_of(&self, stored: &StepRow) -> usize {
        if self.branches.len() <= 1 {
            return 0;
        }
        match self.split_call_ends.get(&stored.step.id) {
            Some((_, branch)) => *branch,
            None => self.own_branch_of(&stored.step),
        }
    }

    fn own_branch_of(&self, step: &Step) -> usize {
        let name_of =
            |id: &StepId| self.branch_by_step.get(id).or_else(|| self.former_branch_by_step.get(id)).copied();
        name_of(&step.id)
            .or_else(|| self.branch_of_light_step(step))
            .or_else(|| name_of(&step.parent?))
            .unwrap_or(0)
    }

    /// Returns the checkpoint before `step`: on its line if it is on one, otherwise on the line it was on.
    pub fn previous_checkpoint(&self, step: StepId) -> Option<StepId> {
        let is_rolled_back = |id: &StepId| {
            self.split_call_ends
                .get(id)
                .map_or(!self.branch_by_step.contains_key(id), |(rolled_back, _)| *rolled_back)
        };
        if !is_rolled_back(&step) {
            let mut previous = self.previous.get(&step);
            while let Some(id) = previous.filter(|id| is_rolled_back(id)) {
                previous = self.previous.get(id);
            }
            return previous.copied();
        }
        // Steps of other sessions that stayed on the line may lie between: this one left the line where its own session went
        // back to.
        let session = self.graph.nodes.get(&step)?.session;
        let passed = self.segments_by_step.get(&step).into_iter().flatten();
        let limit = passed.filter_map(|(_, segment)| segment.rewound.get(&session)).min();
        let mut previous = self.graph.nodes.get(&step)?.parent;
        while let Some((id, node)) = previous.and_then(|id| Some((id, self.graph.nodes.get(&id)?))) {
            if is_rolled_back(&id) || limit.is_none_or(|limit| node.number <= *limit) {
                return Some(id);
            }
            previous = node.parent;
        }
        None
    }

    /// Returns the nearest checkpoint before `step` along the line for which `fits` holds, and its number.
    pub fn find_ancestor(&self, step: StepId, fits: impl Fn(StepId) -> bool) -> Option<(StepId, u64)> {
        let mut candidate = self.previous_checkpoint(step);
        while let Some(id) = candidate {
            if fits(id) {
                return Some((id, self.graph.nodes.get(&id)?.number));
            }
            candidate = self.previous_checkpoint(id);
        }
        None
    }
}
