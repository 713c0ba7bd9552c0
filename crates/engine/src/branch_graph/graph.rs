//! The steps of a workspace and the moves between them: the graph along which lines are followed.
//!
//! A checkpoint names its parent step. That is enough as long as the workspace only goes forward. A rewind, an undo, a redo
//! or a switch takes the line elsewhere, for all sessions or for some of them; the effect of each is read from the operations
//! and from the detail record of the step it led to. A light step is a step without files of its own.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use serde_json::Value;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepRow;
use stepback_model::record::{OpStatus, Operation, OperationAction, StateTransition, StepKind, Trigger};
use stepback_model::state::WorkspaceState;

use crate::error::EngineError;
use crate::workspace::Workspace;

/// The facts about a checkpoint that lines depend on.
pub(super) struct LineNode {
    pub number: u64,
    pub parent: Option<StepId>,
    pub session: SessionId,
}

/// The effect of a move on the line of its branch.
enum MoveEffect {
    /// The line continues from `onto`; of the light steps after it, those up to number `upto` are on the line.
    Jump { onto: StepId, upto: u64 },
    /// These sessions continue from `onto`, like a [`Self::Jump`]; the others stay.
    MoveSessions { sessions: Vec<SessionId>, onto: StepId, upto: u64 },
    /// No effect: the move took back single files or changes, or nothing.
    Unchanged,
    /// Cancels the move that led to this step.
    Reverse(StepId),
}

struct LineMove {
    /// The step that the line had reached before the move.
    before: StepId,
    effect: MoveEffect,
}

/// The checkpoints of a workspace, hidden ones included, and the moves between them.
#[derive(Default)]
pub(crate) struct LineGraph {
    pub(super) nodes: HashMap<StepId, LineNode>,
    /// Moves by the step they led to.
    moves: HashMap<StepId, LineMove>,
    /// The step at which each branch was created or last left, by its present name, and the highest number of a light step
    /// after it that is on the branch.
    ends: HashMap<String, (StepId, u64)>,
    /// Steps that only save the present state before a move.
    saved: HashSet<StepId>,
}

/// Sessions that rewinds moved to an earlier step, each with the number of that step.
pub(super) type RewoundSessions = Rc<HashMap<SessionId, u64>>;

/// A checkpoint that a walk passes, with the light steps after it that belong to the same line.
#[derive(Clone)]
pub(super) struct LineSegment {
    pub id: StepId,
    pub number: u64,
    /// Light steps with a number up to this one are on the line.
    pub upto: u64,
    /// Sessions whose steps are not on the line here.
    pub rewound: RewoundSessions,
    /// If set, the segment applies only to these sessions.
    only_sessions: Option<Rc<HashSet<SessionId>>>,
    /// Whether the checkpoint itself is on the line.
    pub is_on_line: bool,
    /// Whether everything before it is on the line without exception.
    pub is_clean: bool,
}

impl LineSegment {
    /// Whether a light step after this checkpoint is on the line.
    pub fn contains_light_step(&self, session: SessionId, number: u64) -> bool {
        let is_part = self.only_sessions.as_ref().is_none_or(|only| only.contains(&session));
        is_part && number <= self.upto && !self.rewound.contains_key(&session)
    }
}

/// Walks back along a line, checkpoint by checkpoint, newest first. Where sessions are on different lines, the walk may pass
/// a checkpoint more than once, each time for other sessions.
pub(super) struct LineWalk<'g> {
    graph: &'g LineGraph,
    trails: Vec<Trail>,
}

/// One of the lines that a walk follows.
struct Trail {
    /// The next checkpoint, and the highest number of a light step after it that counts.
    next: (StepId, u64),
    rewound: RewoundSessions,
    /// Moves further back that were undone.
    reversed: Vec<StepId>,
    /// If set, only these sessions are on it; the others are on another trail.
    only_sessions: Option<Rc<HashSet<SessionId>>>,
}

impl Iterator for LineWalk<'_> {
    type Item = LineSegment;

    fn next(&mut self) -> Option<LineSegment> {
        let nodes = &self.graph.nodes;
        self.trails.retain(|trail| nodes.contains_key(&trail.next.0));
        let number = |trail: &Trail| nodes.get(&trail.next.0).map_or(0, |node| node.number);
        let newest = (0..self.trails.len()).max_by_key(|index| number(&self.trails[*index]))?;
        let mut trail = self.trails.swap_remove(newest);
        let (id, upto) = trail.next;
        let node = nodes.get(&id)?;
        let is_reversed = trail.reversed.contains(&id);
        let is_part = trail.only_sessions.as_ref().is_none_or(|only| only.contains(&node.session));
        let segment = LineSegment {
            id,
            number: node.number,
            upto,
            is_on_line: is_part && !is_reversed && !trail.rewound.contains_key(&node.session),
            is_clean: trail.rewound.is_empty() && trail.reversed.is_empty() && self.trails.is_empty(),
            rewound: trail.rewound.clone(),
            only_sessions: trail.only_sessions.clone(),
        };
        // Steps further back have lower numbers, so the walk cannot meet the other moves any more.
        trail.reversed.retain(|moved| nodes.get(moved).is_some_and(|moved| moved.number < node.number));
        let next = match self.graph.moves.get(&id) {
            None => node.parent.map(|parent| (parent, u64::MAX)),
            Some(LineMove { before, .. }) if is_reversed => Some((*before, u64::MAX)),
            Some(LineMove { before, effect }) => match effect {
                MoveEffect::Jump { onto, upto } => Some((*onto, *upto)),
                MoveEffect::Unchanged => Some((*before, u64::MAX)),
                MoveEffect::Reverse(moved) => {
                    trail.reversed.push(*moved);
                    Some((*before, u64::MAX))
                }
                MoveEffect::MoveSessions { sessions, onto, upto } => {
                    self.trails.extend(trail.split_off(sessions, *onto, *upto));
                    Some((*before, u64::MAX))
                }
            },
        };
        let is_over = |trail: &Trail| {
            let mut only = trail.only_sessions.iter().flat_map(|only| only.iter());
            trail.only_sessions.is_some() && only.all(|session| trail.rewound.contains_key(session))
        };
        self.trails.extend(next.map(|next| Trail { next, ..trail }).filter(|trail| !is_over(trail)));
        Some(segment)
    }
}

impl Trail {
    /// Moves those of `sessions` that are still on this trail to a new one that continues from `onto`, and returns it.
    fn split_off(&mut self, sessions: &[SessionId], onto: StepId, upto: u64) -> Option<Trail> {
        let is_here = |session: &&SessionId| {
            let is_part = self.only_sessions.as_ref().is_none_or(|only| only.contains(session));
            is_part && !self.rewound.contains_key(session)
        };
        let parting: HashSet<SessionId> = sessions.iter().filter(is_here).copied().collect();
        if parting.is_empty() {
            return None;
        }
        let mut rewound = HashMap::clone(&self.rewound);
        rewound.extend(parting.iter().map(|session| (*session, upto)));
        self.rewound = Rc::new(rewound);
        let only = Some(Rc::new(parting));
        Some(Trail {
            next: (onto, upto),
            rewound: RewoundSessions::default(),
            reversed: self.reversed.clone(),
            only_sessions: only,
        })
    }
}

impl LineGraph {
    /// Whether the workspace only ever went forward.
    pub(super) fn has_no_moves(&self) -> bool {
        self.moves.is_empty()
    }

    /// Walks back from a checkpoint, including light steps after it up to number `upto`.
    pub(super) fn walk(&self, from: StepId, upto: u64) -> LineWalk<'_> {
        let trail = Trail {
            next: (from, upto),
            rewound: RewoundSessions::default(),
            reversed: Vec::new(),
            only_sessions: None,
        };
        LineWalk { graph: self, trails: vec![trail] }
    }

    /// Returns the highest number of a light step after `tip` that is on `branch`, which is not the present one.
    pub(super) fn last_light_step_number(&self, branch: &str, tip: StepId) -> u64 {
        match self.ends.get(branch) {
            Some((step, upto)) if *step == tip => *upto,
            _ => self.nodes.get(&tip).map_or(0, |node| node.number),
        }
    }

    /// Returns the lowest number from which on two steps of a call may be on different lines.
    pub(super) fn first_boundary(&self) -> u64 {
        let lowest_split = |(result_step, moved): (&StepId, &LineMove)| {
            let number = self.nodes.get(result_step).map_or(0, |node| node.number);
            match &moved.effect {
                MoveEffect::Jump { onto, upto } | MoveEffect::MoveSessions { onto, upto, .. } => {
                    number.min(*upto).min(self.nodes.get(onto).map_or(0, |node| node.number))
                }
                MoveEffect::Unchanged | MoveEffect::Reverse(_) => number,
            }
        };
        self.moves.iter().map(lowest_split).min().unwrap_or(u64::MAX)
    }

    /// Returns the states on the line that leads to a step, newest first, the step itself included. Steps that only save the
    /// present before a move are excluded, unless the line starts there, and so are states with changes of a session that a
    /// later rewind took back.
    pub(crate) fn states_on_line_to<'s>(
        &'s self,
        from: &'s StepRow,
        by_id: &'s HashMap<StepId, &'s StepRow>,
    ) -> impl Iterator<Item = &'s StepRow> {
        let step = &from.step;
        let walk = match from.trigger {
            Some(_) => Some(self.walk(step.id, u64::MAX)),
            None => step.parent.map(|parent| self.walk(parent, step.number)),
        };
        let passed: Vec<LineSegment> = walk.into_iter().flatten().collect();
        let reached_steps: HashSet<StepId> =
            passed.iter().filter(|segment| segment.is_on_line).map(|segment| segment.id).collect();
        // Nothing was taken back before the first step that a session went back to.
        let first = passed.iter().flat_map(|segment| segment.rewound.values().copied()).min();
        let is_included = move |segment: &LineSegment| {
            let Some(first) = first else { return true };
            let states =
                self.walk(segment.id, u64::MAX).take_while(|reached_segment| reached_segment.number > first);
            let mut steps = states.filter(|reached_segment| {
                reached_segment.is_on_line && !self.moves.contains_key(&reached_segment.id)
            });
            steps.all(|reached_segment| reached_steps.contains(&reached_segment.id))
        };
        let is_state = move |segment: &LineSegment| {
            segment.is_on_line
                && segment.id != step.id
                && !self.saved.contains(&segment.id)
                && is_included(segment)
        };
        let states = passed.into_iter().filter(is_state);
        std::iter::once(from).chain(states.filter_map(|segment| by_id.get(&segment.id).copied()))
    }
}

impl Workspace {
    /// Builds the graph of the checkpoints `checkpoints` and the moves between them.
    pub(crate) fn line_graph(
        &self,
        checkpoints: &[StepRow],
        operations: &[Operation],
    ) -> Result<LineGraph, EngineError> {
        let by_id: HashMap<StepId, &StepRow> =
            checkpoints.iter().map(|stored| (stored.step.id, stored)).collect();
        let node = |stored: &StepRow| {
            let step = &stored.step;
            (step.id, LineNode { number: step.number, parent: step.parent, session: step.session })
        };
        let mut graph = LineGraph {
            nodes: checkpoints.iter().map(node).collect(),
            moves: HashMap::new(),
            ends: HashMap::new(),
            saved: HashSet::new(),
        };
        let mut operations: Vec<&Operation> =
            operations.iter().filter(|operation| operation.status == OpStatus::Done).collect();
        operations.sort_by_key(|operation| operation.number);
        // The step that each operation, and the last undo of it, led to.
        let (mut applied, mut reversals) = (HashMap::new(), HashMap::new());
        for operation in operations {
            match &operation.action {
                OperationAction::BranchCreate { name, step, upto } => {
                    let result_number = graph.nodes.get(step).map_or(0, |node| node.number);
                    graph.ends.insert(name.clone(), (*step, upto.unwrap_or(result_number)));
                }
                OperationAction::BranchRename { from, to, .. } => {
                    let end = graph.ends.remove(from).map(|end| (to.clone(), end));
                    graph.ends.extend(end);
                }
                _ => {}
            }
            let Some(moved) = operation.action.moved() else { continue };
            let saves = |stored: &&StepRow| is_pre_move_save(stored, operation);
            if by_id.get(&moved.before).is_some_and(saves) {
                graph.saved.insert(moved.before);
            }
            let reversed = match &operation.action {
                OperationAction::Undo { op, .. } => {
                    reversals.insert(*op, moved.after);
                    applied.get(op).copied()
                }
                OperationAction::Redo { op, .. } => {
                    applied.insert(*op, moved.after);
                    reversals.get(op).copied()
                }
                _ => {
                    applied.insert(operation.id, moved.after);
                    None
                }
            };
            let effect = match (&moved.branches, reversed) {
                (Some((left_branch, entered_branch)), _) => {
                    let upto = graph.last_light_step_number(entered_branch, moved.onto);
                    graph.ends.insert(left_branch.clone(), (moved.before, u64::MAX));
                    MoveEffect::Jump { onto: moved.onto, upto }
                }
                (None, Some(moved)) => MoveEffect::Reverse(moved),
                (None, None) => self.rewind_effect(moved, &by_id, &graph.saved)?,
            };
            graph.moves.insert(moved.after, LineMove { before: moved.before, effect });
        }
        Ok(graph)
    }

    /// Returns the effect of a rewind on the line.
    fn rewind_effect(
        &self,
        moved: &StateTransition,
        by_id: &HashMap<StepId, &StepRow>,
        saved: &HashSet<StepId>,
    ) -> Result<MoveEffect, EngineError> {
        let Some(after) = by_id.get(&moved.after) else { return Ok(MoveEffect::Unchanged) };
        if by_id.get(&moved.before).is_some_and(|before| self.has_equal_files(before, after)) {
            return Ok(MoveEffect::Unchanged);
        }
        let detail = self.load_detail(&after.step)?;
        let field = |name: &str| detail.as_ref().and_then(|detail| detail.get(name));
        let target = field("target").and_then(Value::as_u64);
        let listed = field("sessions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut sessions: Vec<SessionId> =
            listed.iter().filter_map(|id| SessionId::from_hex(id.as_str()?)).collect();
        let is_whole = moved.onto != moved.before;
        // Where the workspace was then; a step that only saves the present does not count.
        let number = |step: StepId| by_id.get(&step).map(|stored| stored.step.number);
        let head = match by_id.get(&moved.before) {
            Some(before) if saved.contains(&moved.before) => before.step.parent,
            _ => Some(moved.before),
        };
        let target = target.or_else(|| number(moved.onto).filter(|_| is_whole));
        let Some(target) = target else { return Ok(MoveEffect::Unchanged) };
        let stays = head.and_then(number) == Some(target);
        Ok(match (stays, is_whole) {
            (true, false) => MoveEffect::Unchanged,
            // A rewind to the current position takes back only changes that were not recorded yet.
            (true, true) => MoveEffect::Jump { onto: moved.onto, upto: u64::MAX },
            (false, is_whole) if !sessions.is_empty() => {
                let onto = match is_whole {
                    true => Some(moved.onto),
                    false => self.base_checkpoint_id(target)?,
                };
                let Some(onto) = onto else { return Ok(MoveEffect::Unchanged) };
                // The user is where the workspace is, unless other authors were at work, too.
                let is_alone = field("whole").and_then(Value::as_bool).unwrap_or(true);
                sessions.extend((is_whole && is_alone).then_some(self.session.id));
                MoveEffect::MoveSessions { sessions, onto, upto: target }
            }
            (false, true) => MoveEffect::Jump { onto: moved.onto, upto: target },
            (false, false) => MoveEffect::Unchanged,
        })
    }

    /// Returns the checkpoint whose files the step with this number has.
    fn base_checkpoint_id(&self, number: u64) -> Result<Option<StepId>, EngineError> {
        let Some(stored) = self.store().step_numbered(self.record.id, number)? else { return Ok(None) };
        Ok(self.nearest_checkpoint(&stored).ok().map(|base| base.step.id))
    }

    /// Whether two checkpoints have the same files and git directories. A pruned state that cannot be compared counts as
    /// different.
    pub(crate) fn has_equal_files(&self, a: &StepRow, b: &StepRow) -> bool {
        if a.step.state == b.step.state {
            return true;
        }
        let files = |stored: &StepRow| -> Option<WorkspaceState> { self.load_state(stored).ok() };
        match (files(a), files(b)) {
            (Some(a), Some(b)) => a.files == b.files && a.git == b.git,
            _ => false,
        }
    }
}

/// Whether an operation made this checkpoint to save the present state before it.
fn is_pre_move_save(stored: &StepRow, operation: &Operation) -> bool {
    stored.step.kind == StepKind::Checkpoint
        && stored.trigger == Some(Trigger::Automatic)
        && stored.annotation.label.is_none()
        && stored.step.summary.strip_prefix("before ") == Some(&operation.summary)
}
