//! A slow and simple model of lines of steps: sets of step numbers, computed from scratch for every query.
//!
//! A test records what each step did to the line of its branch, then compares [`LineModel::rolled_back`] with the
//! engine's result. The model does not use the engine's algorithm.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stepback_model::ids::SessionId;
use stepback_model::record::StepRow;
use stepback_model::record::{Step, StepKind};

/// What a step did to the line it is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LineEffect {
    /// It continues the line.
    Append,
    /// The whole line continues from the step with this number.
    Jump(u64),
    /// The lines of these sessions continue from the step with this number; those of the others stay.
    JumpSessions(Vec<SessionId>, u64),
    /// The move that led to the step with this number no longer counts.
    Reverse(u64),
}

struct ModelStep {
    before: Option<u64>,
    session: SessionId,
    effect: LineEffect,
}

/// Branches as lines of step numbers.
#[derive(Default)]
pub struct LineModel {
    steps: HashMap<u64, ModelStep>,
    /// The newest step of every branch.
    tips: BTreeMap<String, u64>,
}

impl LineModel {
    /// Appends the steps that are not known yet to a branch. That a branch was created is on no line.
    pub fn append(&mut self, branch: &str, steps: &[StepRow], effect: impl Fn(u64) -> LineEffect) {
        for stored in steps {
            let step = &stored.step;
            if step.kind != StepKind::BranchCreated && !self.steps.contains_key(&step.number) {
                self.append_step(branch, step, effect(step.number));
            }
        }
    }

    /// Appends one step to a branch.
    pub fn append_step(&mut self, branch: &str, step: &Step, effect: LineEffect) {
        let previous_tip = self.tips.insert(branch.to_owned(), step.number);
        self.steps.insert(step.number, ModelStep { before: previous_tip, session: step.session, effect });
    }

    /// Whether a step is known.
    pub fn contains(&self, number: u64) -> bool {
        self.steps.contains_key(&number)
    }

    /// The newest step of a branch, if there is such a branch.
    pub fn tip(&self, branch: &str) -> Option<u64> {
        self.tips.get(branch).copied()
    }

    /// Adds a branch whose newest step is `tip`.
    pub fn create_branch(&mut self, name: &str, tip: u64) {
        self.tips.insert(name.to_owned(), tip);
    }

    /// The names of all branches.
    pub fn branches(&self) -> impl Iterator<Item = &str> {
        self.tips.keys().map(String::as_str)
    }

    /// Whether a step is on a branch.
    pub fn is_on(&self, number: u64, branch: &str) -> bool {
        self.tip(branch).is_some_and(|tip| self.line(Some(tip), &BTreeSet::new()).contains(&number))
    }

    /// Numbers of the steps that are on no branch, among all steps of the workspace, oldest first. The end of a call decides for
    /// its start.
    pub fn rolled_back(&self, steps: &[StepRow]) -> Vec<u64> {
        let no_reversal = BTreeSet::new();
        let on_branches: BTreeSet<u64> =
            self.tips.values().flat_map(|tip| self.line(Some(*tip), &no_reversal)).collect();
        let steps: Vec<&Step> = steps.iter().map(|stored| &stored.step).collect();
        let mut deciding: HashMap<u64, u64> = HashMap::new();
        let mut open = HashMap::new();
        for step in &steps {
            let call = (step.session, &step.meta.call);
            match step.kind {
                StepKind::ToolStart => drop(open.insert(call, step.number)),
                StepKind::ToolEnd => deciding.extend(open.remove(&call).map(|start| (start, step.number))),
                _ => {}
            }
        }
        let numbers =
            steps.iter().filter(|step| step.kind != StepKind::BranchCreated).map(|step| step.number);
        numbers.filter(|number| !on_branches.contains(deciding.get(number).unwrap_or(number))).collect()
    }

    fn line(&self, tip: Option<u64>, reversed: &BTreeSet<u64>) -> BTreeSet<u64> {
        let Some(tip) = tip else { return BTreeSet::new() };
        let step = &self.steps[&tip];
        if reversed.contains(&tip) {
            return self.line(step.before, reversed);
        }
        let mut line = match &step.effect {
            LineEffect::Append => self.line(step.before, reversed),
            LineEffect::Jump(target) => self.line(Some(*target), reversed),
            LineEffect::Reverse(moved) => {
                self.line(step.before, &reversed.iter().copied().chain([*moved]).collect())
            }
            LineEffect::JumpSessions(sessions, target) => {
                let is_one = |number: &u64| sessions.contains(&self.steps[number].session);
                let mut line = self.line(step.before, reversed);
                line.retain(|number| !is_one(number));
                line.extend(self.line(Some(*target), reversed).into_iter().filter(is_one));
                line
            }
        };
        line.insert(tip);
        line
    }
}
