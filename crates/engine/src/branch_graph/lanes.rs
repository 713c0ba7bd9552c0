//! The layout of a session's timeline: lanes of steps, the forks between them, and spans of steps on one branch.
//!
//! Every surface that draws a session draws it in the same way, so the layout is computed here from the branches and the
//! steps alone.

use std::collections::HashMap;

use stepback_model::ids::StepId;
use stepback_model::record::StepRow;

use super::BranchLines;

/// A lane of a timeline: the steps of the main agent, or of one of its sub-agents, on one branch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimelineLane {
    /// The branch; `None` if the workspace has none yet.
    pub branch: Option<String>,
    /// The sub-agent; `None` for the main agent.
    pub worker: Option<String>,
    /// Number of steps on it.
    pub steps: u64,
    /// Number of steps on it that failed.
    pub errors: u64,
}

/// The lanes of a session: branch by branch, on each the main agent first, then sub-agents as they appear.
pub struct LaneLayout<'l> {
    /// The lanes, of which there is at least one.
    pub lanes: Vec<TimelineLane>,
    lines: &'l BranchLines,
    /// For every branch, the lanes of the agents that worked on it, by index.
    indexes: Vec<HashMap<Option<String>, usize>>,
}

impl LaneLayout<'_> {
    /// Returns the index of the lane that a step is on.
    pub fn lane_of(&self, stored: &StepRow) -> usize {
        let on_branch = self.indexes.get(self.lines.branch_of(stored));
        on_branch.and_then(|lanes| lanes.get(&stored.step.meta.worker)).copied().unwrap_or(0)
    }

    /// Returns the index of the lane of a worker, or of the main agent, on the branch of a step; `None` if it has none there.
    pub fn lane_of_worker(&self, beside: &StepRow, worker: Option<&str>) -> Option<usize> {
        let on_branch = self.indexes.get(self.lines.branch_of(beside))?;
        on_branch.get(&worker.map(str::to_owned)).copied()
    }
}

/// A checkpoint that did not grow from the checkpoint before it: after a rewind, or on another branch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimelineFork {
    /// The number of the step it grew from.
    pub from: u64,
    /// The number of the checkpoint.
    pub to: u64,
}

/// Consecutive steps on one branch, either all rolled back or none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BranchSpan {
    /// The number of the first step.
    pub first: u64,
    /// The number of the last step.
    pub last: u64,
    /// The branch; `None` if the workspace has none yet.
    pub branch: Option<String>,
    /// Whether a rewind has rolled them back.
    pub rolled_back: bool,
}

impl BranchLines {
    /// Arranges the steps of a session, oldest first, in lanes.
    pub fn layout_lanes(&self, steps: &[StepRow]) -> LaneLayout<'_> {
        let branches = self.branches.len().max(1);
        let mut lanes_by_branch: Vec<Vec<TimelineLane>> = vec![Vec::new(); branches];
        let mut indexes: Vec<HashMap<Option<String>, usize>> = vec![HashMap::new(); branches];
        let name = |branch: usize| self.branches.get(branch).map(|line| line.name.clone());
        for stored in steps {
            let (step, branch) = (&stored.step, self.branch_of(stored));
            let (lanes, indexes) = (&mut lanes_by_branch[branch], &mut indexes[branch]);
            // The main agent comes first, even where a sub-agent worked before it.
            for worker in [&None, &step.meta.worker] {
                if !indexes.contains_key(worker) {
                    indexes.insert(worker.clone(), lanes.len());
                    lanes.push(TimelineLane {
                        branch: name(branch),
                        worker: worker.clone(),
                        steps: 0,
                        errors: 0,
                    });
                }
            }
            let lane = &mut lanes[indexes[&step.meta.worker]];
            lane.steps += 1;
            lane.errors += u64::from(step.is_error());
        }
        let mut previous_number = 0;
        for (lanes, indexes) in lanes_by_branch.iter().zip(&mut indexes) {
            indexes.values_mut().for_each(|index| *index += previous_number);
            previous_number += lanes.len();
        }
        let mut lanes: Vec<TimelineLane> = lanes_by_branch.into_iter().flatten().collect();
        if lanes.is_empty() {
            lanes.push(TimelineLane { branch: name(0), worker: None, steps: 0, errors: 0 });
        }
        LaneLayout { lanes, lines: self, indexes }
    }

    /// Returns the checkpoints among the steps of a session, oldest first, that did not grow from the checkpoint before, or
    /// that are on another branch. Rewinds and switches are steps of the user's session, so the parent of a step is searched
    /// beyond them, up to a step of this session.
    pub fn find_forks(&self, steps: &[StepRow]) -> Vec<TimelineFork> {
        let mut branch_of: HashMap<StepId, usize> = HashMap::new();
        let mut last = None;
        let mut forks = Vec::new();
        for stored in steps.iter().filter(|stored| stored.is_checkpoint()) {
            let (step, branch) = (&stored.step, self.branch_of(stored));
            if let Some((parent, from)) = self.find_ancestor(step.id, |id| branch_of.contains_key(&id))
                && (last != Some(parent) || branch_of.get(&parent) != Some(&branch))
            {
                forks.push(TimelineFork { from, to: step.number });
            }
            branch_of.insert(step.id, branch);
            last = Some(step.id);
        }
        forks
    }

    /// Joins consecutive steps, oldest first, that are on the same branch and rolled back alike.
    pub fn spans(&self, steps: &[StepRow]) -> Vec<BranchSpan> {
        let mut spans: Vec<BranchSpan> = Vec::new();
        for stored in steps {
            let number = stored.step.number;
            let branch = self.branches.get(self.branch_of(stored)).map(|line| line.name.as_str());
            let rolled_back = self.is_rolled_back(stored);
            match spans.last_mut() {
                Some(span) if span.branch.as_deref() == branch && span.rolled_back == rolled_back => {
                    span.last = number;
                }
                _ => spans.push(BranchSpan {
                    first: number,
                    last: number,
                    branch: branch.map(str::to_owned),
                    rolled_back,
                }),
            }
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::hash::{Hash, ObjectKind};
    use stepback_model::ids::SessionId;
    use stepback_model::record::{Annotation, Step, StepKind, StepMeta, Trigger};
    use stepback_model::time::Timestamp;

    use super::*;
    use crate::branch_graph::BranchLine;

    fn checkpoint(number: u8, worker: Option<&str>, failed: bool) -> StepRow {
        let step = Step {
            id: StepId::from_bytes([number; 16]),
            session: SessionId::from_bytes([1; 16]),
            number: number.into(),
            parent: None,
            kind: StepKind::ToolEnd,
            at: Timestamp::from_micros(0),
            state: Hash::of(ObjectKind::State, b""),
            summary: String::new(),
            meta: StepMeta { failed, worker: worker.map(str::to_owned), ..StepMeta::default() },
        };
        let trigger = Some(Trigger::Automatic);
        StepRow { step, annotation: Annotation::default(), trigger, hidden_by: None, purged: false }
    }

    /// Branches with these names; each checkpoint is on the one with this index, after the checkpoint named third.
    fn lines(names: &[&str], on: &[(u8, usize, u8)]) -> BranchLines {
        let mut lines = BranchLines::default();
        for name in names {
            let name = (*name).to_owned();
            lines.branches.push(BranchLine { name, present: false, tip: 0, from: None, first: None, own: 0 });
        }
        for (number, branch, previous) in on {
            let [id, previous] = [*number, *previous].map(|number| StepId::from_bytes([number; 16]));
            lines.branch_by_step.insert(id, *branch);
            lines.previous.insert(id, previous);
            let (parent, session) = (Some(previous), SessionId::from_bytes([1; 16]));
            let node = crate::branch_graph::graph::LineNode { number: (*number).into(), parent, session };
            lines.graph.nodes.insert(id, node);
        }
        lines
    }

    fn lane(branch: &str, worker: Option<&str>, steps: u64, errors: u64) -> TimelineLane {
        TimelineLane { branch: Some(branch.to_owned()), worker: worker.map(str::to_owned), steps, errors }
    }

    #[test]
    fn lanes_are_ordered_by_branch_and_the_main_agent_comes_first() {
        let lines = lines(&["main", "plan-b"], &[(1, 0, 0), (2, 1, 1), (3, 0, 1), (4, 1, 2)]);
        let steps = [
            checkpoint(1, Some("tester"), false),
            checkpoint(2, None, false),
            checkpoint(3, None, true),
            checkpoint(4, None, false),
        ];
        let layout = lines.layout_lanes(&steps);
        let expected =
            [lane("main", None, 1, 1), lane("main", Some("tester"), 1, 0), lane("plan-b", None, 2, 0)];
        assert_eq!(layout.lanes, expected);
        assert_eq!(steps.each_ref().map(|step| layout.lane_of(step)), [1, 2, 0, 2]);
    }

    #[test]
    fn a_session_without_steps_has_one_lane() {
        assert_eq!(lines(&["main"], &[]).layout_lanes(&[]).lanes, [lane("main", None, 0, 0)]);
        assert_eq!(lines(&[], &[]).layout_lanes(&[]).lanes[0].branch, None);
    }

    #[test]
    fn steps_that_do_not_follow_each_other_are_forks_and_begin_spans() {
        let lines = lines(&["main", "plan-b"], &[(1, 0, 0), (2, 0, 1), (3, 1, 1), (4, 1, 3)]);
        let steps = [1, 2, 3, 4].map(|number| checkpoint(number, None, false));
        assert_eq!(lines.find_forks(&steps), [TimelineFork { from: 1, to: 3 }]);
        let spans = lines.spans(&steps).into_iter();
        let spans: Vec<_> =
            spans.map(|span| (span.first, span.last, span.branch, span.rolled_back)).collect();
        assert_eq!(spans, [(1, 2, Some("main".to_owned()), false), (3, 4, Some("plan-b".to_owned()), false)]);
    }
}
