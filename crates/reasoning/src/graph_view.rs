//! The dependency graph for drawing: beliefs, the hypotheses they belong to, and contradictions.
//!
//! A drawing of thousands of beliefs is useless. So it is drawn around one item, or around the newest beliefs, with a
//! limited number of items; the number of omitted items is reported.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::ids::{BeliefId, HypothesisId, ItemId, ItemKind};
use crate::item::ContradictionStatus;
use crate::mind::ReasoningBoard;

/// An edge between two items.
#[derive(Clone, PartialEq, Debug)]
pub struct Edge {
    /// The item that depends on the other, belongs to it, or contradicts it.
    pub from: ItemId,
    /// The item at the other end.
    pub to: ItemId,
    /// The kind of edge: a kind of dependency, `belongs-to`, `part-of`, `excludes` or `contradicts`.
    pub how: &'static str,
    /// The strength from 0 to 1; `None` if the edge has none.
    pub strength: Option<f64>,
    /// The reason that was given for it.
    pub reason: Option<String>,
}

/// Items, and the edges between them.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Picture {
    /// The items, in the order of a board.
    pub nodes: Vec<ItemId>,
    /// The edges between them.
    pub edges: Vec<Edge>,
    /// The number of items that were omitted.
    pub left_out: usize,
}

impl ReasoningBoard {
    /// The graph around an item, or around the newest beliefs, with at most `max_items` items.
    pub fn picture(&self, center: Option<ItemId>, max_items: usize) -> Picture {
        let edges = self.edges();
        let mut neighbours: HashMap<ItemId, Vec<ItemId>> = HashMap::new();
        for edge in &edges {
            neighbours.entry(edge.from).or_default().push(edge.to);
            neighbours.entry(edge.to).or_default().push(edge.from);
        }
        let beliefs = self.beliefs.iter().rev().map(|(number, _)| ItemId::from(BeliefId(number)));
        let mut joined: Vec<ItemId> =
            neighbours.keys().copied().filter(|item| item.kind != ItemKind::Belief).collect();
        joined.sort();
        let all_items: Vec<ItemId> = beliefs.chain(joined).collect();
        let seeds: Vec<ItemId> = match center {
            Some(item) => vec![item],
            None => all_items.clone(),
        };
        let mut nodes: HashSet<ItemId> = HashSet::new();
        for seed in seeds {
            let mut wave = VecDeque::from([seed]);
            while let Some(item) = wave.pop_front() {
                if nodes.len() >= max_items || self.expect(item).is_err() || !nodes.insert(item) {
                    continue;
                }
                wave.extend(neighbours.get(&item).into_iter().flatten());
            }
        }
        let left_out = all_items.iter().filter(|item| !nodes.contains(item)).count();
        let edges = edges.into_iter().filter(|edge| nodes.contains(&edge.from) && nodes.contains(&edge.to));
        let edges = edges.collect();
        let mut nodes: Vec<ItemId> = nodes.into_iter().collect();
        nodes.sort();
        Picture { nodes, edges, left_out }
    }

    fn edges(&self) -> Vec<Edge> {
        let unlabelled = |from: ItemId, to: ItemId, how| Edge { from, to, how, strength: None, reason: None };
        let mut edges = Vec::new();
        for (number, belief) in self.beliefs.iter() {
            let from = ItemId::from(BeliefId(number));
            edges.extend(belief.depends.iter().map(|dependency| Edge {
                from,
                to: dependency.on.into(),
                how: dependency.kind.as_str(),
                strength: Some(dependency.strength),
                reason: dependency.reason.clone(),
            }));
            edges.extend(belief.hypothesis.map(|to| unlabelled(from, to.into(), "belongs-to")));
        }
        for (number, hypothesis) in self.hypotheses.iter() {
            let from = ItemId::from(HypothesisId(number));
            edges.extend(hypothesis.parents.iter().map(|to| unlabelled(from, (*to).into(), "part-of")));
            edges.extend(hypothesis.excludes.iter().map(|to| unlabelled(from, (*to).into(), "excludes")));
        }
        for (_, contradiction) in self.contradictions.iter() {
            if contradiction.status == ContradictionStatus::Open {
                let reason = Some(contradiction.reason.clone());
                edges.push(Edge {
                    reason,
                    ..unlabelled(contradiction.left, contradiction.right, "contradicts")
                });
            }
        }
        edges.retain(|edge| self.expect(edge.from).is_ok() && self.expect(edge.to).is_ok());
        edges
    }
}
