//! The dependency graph of beliefs: confidence through dependencies, the impact of a wrong belief, and root beliefs.
//!
//! The effective confidence of a belief is its own confidence, times a factor for its dependencies. With `s` the strength
//! of a dependency and `c` the effective confidence of the belief that it depends on:
//!
//! - each `requires`, `derived-from` and `caused-by` has the factor `1 - s·(1 - c)`;
//! - all `supported-by` together have the factor `(1 - ∏(1 - s·c)) / (1 - ∏(1 - s))`: while one support holds, most of it
//!   remains.
//!
//! A retracted belief counts as 0. There are no cycles, because [`ReasoningBoard::apply`] refuses them.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::Serialize;

use crate::error::MindError;
use crate::ids::{BeliefId, GapId, HypothesisId, ItemId};
use crate::item::{Belief, BeliefStatus, DependencyKind};
use crate::mind::ReasoningBoard;

/// A belief whose confidence would drop.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WeakenedBelief {
    /// The id of the belief.
    pub belief: BeliefId,
    /// The statement of the belief.
    pub statement: String,
    /// How many dependencies away it is.
    pub distance: usize,
    /// Its effective confidence now.
    pub now: f64,
    /// Its effective confidence if the belief in question were wrong.
    pub then: f64,
    /// The chain of dependencies between the two.
    pub path: Vec<BeliefId>,
}

/// What is affected if a belief is wrong.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Impact {
    /// The belief that is assumed to be wrong.
    pub belief: BeliefId,
    /// Beliefs that depend on it, the most affected first.
    pub shaken: Vec<WeakenedBelief>,
    /// Hypotheses that some of these belong to.
    pub hypotheses: Vec<HypothesisId>,
    /// Gaps that wait for some of these.
    pub gaps: Vec<GapId>,
}

/// A belief without dependencies on which another one ultimately depends.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RootBelief {
    /// The id of the root belief.
    pub belief: BeliefId,
    /// The statement of the belief.
    pub statement: String,
    /// Its effective confidence.
    pub confidence: f64,
    /// How strongly the belief depends on it along the strongest path.
    pub weight: f64,
    /// The chain of dependencies between the two.
    pub path: Vec<BeliefId>,
}

/// The effective confidence of a belief, given that of its dependencies.
fn effective_confidence(belief: &Belief, confidence_of: impl Fn(BeliefId) -> f64) -> f64 {
    if belief.status == BeliefStatus::Retracted {
        return 0.0;
    }
    let (mut weighted, mut none_stands, mut none_could) = (belief.confidence, 1.0, 1.0);
    for dependency in &belief.depends {
        let (strength, confidence) = (dependency.strength, confidence_of(dependency.on));
        match dependency.kind {
            DependencyKind::SupportedBy => {
                none_stands *= 1.0 - strength * confidence;
                none_could *= 1.0 - strength;
            }
            _ => weighted *= 1.0 - strength * (1.0 - confidence),
        }
    }
    if none_could < 1.0 {
        weighted *= (1.0 - none_stands) / (1.0 - none_could);
    }
    weighted.clamp(0.0, 1.0)
}

impl ReasoningBoard {
    /// The effective confidence of every belief, by its number.
    pub fn effective(&self) -> BTreeMap<u32, f64> {
        self.effective_if(None)
    }

    /// The same, if one of them were wrong. Every belief is computed once, whatever the shape of the graph, without
    /// recursion.
    fn effective_if(&self, wrong_belief: Option<BeliefId>) -> BTreeMap<u32, f64> {
        let mut computed: BTreeMap<u32, f64> = BTreeMap::new();
        for (start, _) in self.beliefs.iter() {
            let mut pending = vec![start];
            // A cycle cannot be created, but a damaged store must not cause a hang: no belief is waited for twice.
            let mut waited: HashSet<u32> = HashSet::from([start]);
            while let Some(&number) = pending.last() {
                let Some(belief) = self.beliefs.get(number).filter(|_| !computed.contains_key(&number))
                else {
                    pending.pop();
                    continue;
                };
                let waiting = pending.len();
                let rests = belief.depends.iter().map(|dependency| dependency.on.0);
                let rests = rests.filter(|on| !computed.contains_key(on) && self.beliefs.get(*on).is_some());
                pending.extend(rests.filter(|on| waited.insert(*on)));
                if pending.len() == waiting {
                    let value = match wrong_belief {
                        Some(wrong_belief) if wrong_belief.0 == number => 0.0,
                        _ => effective_confidence(belief, |on| computed.get(&on.0).copied().unwrap_or(0.0)),
                    };
                    computed.insert(number, value);
                    pending.pop();
                }
            }
        }
        computed
    }

    /// Which beliefs depend directly on each.
    fn dependents(&self) -> HashMap<u32, Vec<u32>> {
        let mut dependents: HashMap<u32, Vec<u32>> = HashMap::new();
        for (number, belief) in self.beliefs.iter() {
            for dependency in &belief.depends {
                dependents.entry(dependency.on.0).or_default().push(number);
            }
        }
        dependents
    }

    /// What is affected, and how much, if a belief is wrong.
    pub fn impact(&self, id: BeliefId) -> Result<Impact, MindError> {
        self.beliefs.require(id.0)?;
        let (now, then) = (self.effective(), self.effective_if(Some(id)));
        let dependents = self.dependents();
        let mut reached_by: BTreeMap<u32, (u32, usize)> = BTreeMap::new();
        let (mut visited, mut wave) = (BTreeSet::from([id.0]), vec![id.0]);
        let mut distance = 0;
        while !wave.is_empty() {
            distance += 1;
            let mut next = Vec::new();
            for source in wave {
                for &dependent in dependents.get(&source).into_iter().flatten() {
                    if visited.insert(dependent) {
                        reached_by.insert(dependent, (source, distance));
                        next.push(dependent);
                    }
                }
            }
            wave = next;
        }
        let mut shaken: Vec<WeakenedBelief> = reached_by
            .iter()
            .filter_map(|(number, (_, distance))| {
                let belief = self.beliefs.get(*number)?;
                let mut path = vec![BeliefId(*number)];
                let mut current = *number;
                while let Some((source, _)) = reached_by.get(&current) {
                    path.push(BeliefId(*source));
                    current = *source;
                }
                path.reverse();
                Some(WeakenedBelief {
                    belief: BeliefId(*number),
                    statement: belief.statement.clone(),
                    distance: *distance,
                    now: now.get(number).copied().unwrap_or(0.0),
                    then: then.get(number).copied().unwrap_or(0.0),
                    path,
                })
            })
            .collect();
        shaken.sort_by(|a, b| (b.now - b.then).total_cmp(&(a.now - a.then)).then(a.belief.cmp(&b.belief)));
        let touched: BTreeSet<u32> = visited;
        let belonging = |number: &u32| self.beliefs.get(*number).and_then(|belief| belief.hypothesis);
        let hypotheses: BTreeSet<HypothesisId> = touched.iter().filter_map(belonging).collect();
        let waits = |item: &ItemId| touched.iter().any(|number| *item == BeliefId(*number).into());
        let gaps = self.gaps.iter().filter(|(_, gap)| gap.blocks.iter().any(waits));
        let gaps = gaps.map(|(number, _)| GapId(number)).collect();
        Ok(Impact { belief: id, shaken, hypotheses: hypotheses.into_iter().collect(), gaps })
    }

    /// The beliefs on which a belief ultimately depends, the least certain first: where to look if it turns out wrong.
    pub fn roots(&self, id: BeliefId) -> Result<Vec<RootBelief>, MindError> {
        self.beliefs.require(id.0)?;
        let effective = self.effective();
        // The strongest path to each, found in order of distance from the belief; strengths are at most 1, so extending a
        // path never makes it stronger.
        let mut best: BTreeMap<u32, (f64, u32)> = BTreeMap::from([(id.0, (1.0, id.0))]);
        let mut pending = vec![id.0];
        while let Some(number) = pending.pop() {
            let weight = best.get(&number).map_or(0.0, |(weight, _)| *weight);
            for dependency in self.beliefs.get(number).into_iter().flat_map(|belief| &belief.depends) {
                let path_strength = weight * dependency.strength;
                let best_so_far = best.get(&dependency.on.0).map(|(weight, _)| *weight);
                if best_so_far.is_none_or(|best_so_far| path_strength > best_so_far) {
                    best.insert(dependency.on.0, (path_strength, number));
                    pending.push(dependency.on.0);
                }
            }
        }
        let mut roots: Vec<RootBelief> = best
            .iter()
            .filter(|(number, _)| **number != id.0)
            .filter_map(|(number, (weight, _))| {
                let belief = self.beliefs.get(*number).filter(|belief| belief.depends.is_empty())?;
                let mut path = vec![BeliefId(*number)];
                let mut current = *number;
                while let Some((_, from)) = best.get(&current).filter(|(_, from)| *from != current) {
                    path.push(BeliefId(*from));
                    current = *from;
                }
                path.reverse();
                Some(RootBelief {
                    belief: BeliefId(*number),
                    statement: belief.statement.clone(),
                    confidence: effective.get(number).copied().unwrap_or(0.0),
                    weight: *weight,
                    path,
                })
            })
            .collect();
        let shaky = |root: &RootBelief| root.weight * (1.0 - root.confidence);
        roots.sort_by(|a, b| shaky(b).total_cmp(&shaky(a)).then(a.belief.cmp(&b.belief)));
        Ok(roots)
    }
}

/// The path from `from` to `to` along `next`, if there is one.
pub(crate) fn find_path(from: u32, to: u32, next: impl Fn(u32) -> Vec<u32>) -> Option<Vec<u32>> {
    let mut reached_from: HashMap<u32, u32> = HashMap::from([(from, from)]);
    let mut wave = vec![from];
    while let Some(number) = wave.pop() {
        if number == to {
            let mut path = vec![to];
            let mut current = to;
            while current != from {
                current = reached_from[&current];
                path.push(current);
            }
            path.reverse();
            return Some(path);
        }
        for on in next(number) {
            reached_from.entry(on).or_insert_with(|| {
                wave.push(on);
                number
            });
        }
    }
    None
}
