//! Edits that lead nowhere: versions that take turns, and edits that are taken back.

use std::collections::{HashMap, VecDeque};

use super::AnomalyKind;
use super::finding::{CallFinding, DetectionRule, PlacedCall, build_finding};

/// How many edits are kept.
const KEPT: usize = 64;
/// How many edits later a finding of the same kind belongs to the same incident.
const SAME_INCIDENT: u64 = 8;
/// How many paths are remembered.
const MAX_PATHS: usize = 4096;

/// Finds versions that take turns.
#[derive(Clone, Debug)]
pub(super) struct AlternationDetector {
    limit: u64,
    edits: u64,
    recent: VecDeque<PlacedCall>,
    /// How many states in a row were those of two, and of three edits before.
    runs: [u64; 2],
    paths: HashMap<u64, PathEdits>,
    open: Option<(usize, u64)>,
}

/// The edits of one path.
#[derive(Clone, Debug, Default)]
struct PathEdits {
    recent: VecDeque<PlacedCall>,
    run: u64,
}

impl AlternationDetector {
    pub(super) fn new(limit: u64) -> Self {
        let (recent, paths) = (VecDeque::new(), HashMap::new());
        Self { limit, edits: 0, recent, runs: [0; 2], paths, open: None }
    }

    pub(super) fn observe(&mut self, placed: PlacedCall, findings: &mut Vec<CallFinding>) {
        let call = &placed.call;
        let is_known_edit = call.edits && !call.failed && (call.before == 0 || call.after == 0);
        if !call.changed_files() && !is_known_edit {
            return;
        }
        self.edits += 1;
        let found = match call.changed_files() {
            true => self.find_states(placed),
            false => None,
        };
        let found = found.or_else(|| self.find_inputs(placed));
        let Some((rule, measured, calls)) = found else { return };
        match self.open {
            Some((index, last)) if self.edits - last <= SAME_INCIDENT => {
                let measured = findings[index].measured.max(measured).max(findings[index].count + 1);
                findings[index].extend(placed.position, call, measured);
                self.open = Some((index, self.edits));
            }
            _ => {
                let kind = AnomalyKind::AlternatingEdits;
                if let Some(finding) = build_finding(kind, rule, (measured, self.limit), calls.iter()) {
                    self.open = Some((findings.len(), self.edits));
                    findings.push(finding);
                }
            }
        }
    }

    fn find_states(&mut self, placed: PlacedCall) -> Option<(DetectionRule, u64, Vec<PlacedCall>)> {
        for (index, run) in self.runs.iter_mut().enumerate() {
            let before = self.recent.len().checked_sub(index + 2).map(|at| self.recent[at].call.after);
            *run = if before == Some(placed.call.after) { run.saturating_add(1) } else { 0 };
        }
        keep(&mut self.recent, placed);
        let [two, three] = self.runs;
        let length = match (two, three) {
            (1.., _) if two + 2 >= self.limit => two + 2,
            (_, 1..) if three + 3 >= self.limit.max(6) => three + 3,
            _ => return None,
        };
        Some((DetectionRule::AlternatingStates, length, newest(&self.recent, length)))
    }

    fn find_inputs(&mut self, placed: PlacedCall) -> Option<(DetectionRule, u64, Vec<PlacedCall>)> {
        let call = &placed.call;
        if !call.edits || call.failed || call.subject == 0 || call.input == 0 {
            return None;
        }
        if self.paths.len() >= MAX_PATHS {
            self.paths.clear();
        }
        let path = self.paths.entry(call.subject).or_default();
        let input = |back: usize| path.recent.len().checked_sub(back).map(|at| path.recent[at].call.input);
        let takes_turns = input(2) == Some(call.input) && input(1) != Some(call.input);
        path.run = if takes_turns { path.run.saturating_add(1) } else { 0 };
        keep(&mut path.recent, placed);
        let length = path.run + 2;
        (path.run > 0 && length >= self.limit)
            .then(|| (DetectionRule::AlternatingInputs, length, newest(&path.recent, length)))
    }
}

/// Finds edits that are taken back.
#[derive(Clone, Debug)]
pub(super) struct UndoneEditDetector {
    limit: u64,
    edits: u64,
    /// For each state, the number of the edit after which it was the present one.
    states: HashMap<u64, u64>,
    last_state: u64,
    recent: VecDeque<PlacedCall>,
    pairs: VecDeque<InvertibleEdit>,
    /// The last edits, if each of them takes back an earlier one, with those.
    reverting: Vec<PlacedCall>,
    /// The finding of each rule that may go on, and the number of its last edit.
    open: Option<(usize, u64)>,
}

/// An edit that another one may take back.
#[derive(Clone, Debug)]
struct InvertibleEdit {
    placed: PlacedCall,
    taken_back: bool,
}

impl UndoneEditDetector {
    pub(super) fn new(limit: u64) -> Self {
        let (recent, pairs, reverting) = (VecDeque::new(), VecDeque::new(), Vec::new());
        Self { limit, edits: 0, states: HashMap::new(), last_state: 0, recent, pairs, reverting, open: None }
    }

    /// Forgets what came before: a rewind is not the agent's own edit.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.limit);
    }

    pub(super) fn observe(&mut self, placed: PlacedCall, findings: &mut Vec<CallFinding>) {
        self.observe_inverse(placed, findings);
        if !placed.call.changed_files() {
            return;
        }
        // What others changed in between is no edit of the agent, and a state that it began with.
        if placed.call.before != self.last_state {
            self.states.insert(placed.call.before, self.edits);
        }
        self.edits += 1;
        keep(&mut self.recent, placed);
        self.last_state = placed.call.after;
        let Some(visited) = self.states.insert(placed.call.after, self.edits) else { return };
        let lost = (self.edits - visited).saturating_sub(1);
        if lost >= self.limit {
            let calls = newest(&self.recent, lost + 1);
            self.add(DetectionRule::ReturnedState, lost, &calls, findings);
        }
    }

    fn observe_inverse(&mut self, placed: PlacedCall, findings: &mut Vec<CallFinding>) {
        let call = &placed.call;
        if call.inverse == 0 || call.failed {
            return;
        }
        let earlier = |edit: &&mut InvertibleEdit| {
            !edit.taken_back
                && edit.placed.call.inverse == call.input
                && edit.placed.call.subject == call.subject
        };
        let taken_back = self.pairs.iter_mut().rev().find(earlier).map(|edit| {
            edit.taken_back = true;
            edit.placed
        });
        if self.pairs.len() == KEPT {
            self.pairs.pop_front();
        }
        self.pairs.push_back(InvertibleEdit { placed, taken_back: taken_back.is_some() });
        let Some(earlier) = taken_back else {
            self.reverting.clear();
            return;
        };
        if self.reverting.len() < KEPT {
            self.reverting.extend([earlier, placed]);
            self.reverting.sort_by_key(|placed| placed.position);
        }
        let lost = self.reverting.len() as u64;
        if lost >= self.limit {
            let calls = self.reverting.clone();
            self.add(DetectionRule::InverseEdits, lost, &calls, findings);
        }
    }

    fn add(&mut self, rule: DetectionRule, lost: u64, calls: &[PlacedCall], findings: &mut Vec<CallFinding>) {
        let Some(last) = calls.last() else { return };
        if let Some((index, before)) = self.open
            && last.position.saturating_sub(before) <= KEPT as u64
        {
            let finding = &mut findings[index];
            let more = if last.position == before { finding.measured } else { finding.measured + 1 };
            finding.extend(last.position, &last.call, more.max(lost));
            self.open = Some((index, last.position));
            return;
        }
        let kind = AnomalyKind::UndoneEdits;
        if let Some(finding) = build_finding(kind, rule, (lost, self.limit), calls.iter()) {
            self.open = Some((findings.len(), last.position));
            findings.push(finding);
        }
    }
}

fn keep(recent: &mut VecDeque<PlacedCall>, placed: PlacedCall) {
    if recent.len() == KEPT {
        recent.pop_front();
    }
    recent.push_back(placed);
}

fn newest(recent: &VecDeque<PlacedCall>, length: u64) -> Vec<PlacedCall> {
    let length = usize::try_from(length).unwrap_or(KEPT).min(recent.len());
    recent.iter().skip(recent.len() - length).copied().collect()
}
