//! The order in which items of a kind are shown: the most important first.

use crate::ids::{ItemId, ItemKind};
use crate::item::{ContradictionStatus, ExperimentStatus, GapStatus, HypothesisStatus};
use crate::mind::{ReasoningBoard, each_table};

impl ReasoningBoard {
    /// All items of a kind, the most important first.
    ///
    /// Hypotheses: open ones by confidence, then confirmed, rejected and archived ones. Gaps: the next to fill first, then
    /// those that wait for others, then those that are filled or dropped. Contradictions and experiments: open ones first.
    /// Evidence, runs and notes: the newest first. Beliefs and verifications: in the order they were added.
    pub fn in_order(&self, kind: ItemKind) -> Vec<ItemId> {
        let mut items = Vec::new();
        each_table!(self, table => {
            if table.kind == kind {
                items.extend(table.iter().map(|(number, _)| ItemId { kind, number }));
            }
        });
        match kind {
            ItemKind::Hypothesis => self.sort_hypotheses(&mut items),
            ItemKind::Gap => return self.gaps_in_order(),
            ItemKind::Contradiction => items.sort_by_key(|item| {
                let entry = self.contradictions.get(item.number);
                entry.is_none_or(|entry| entry.status != ContradictionStatus::Open)
            }),
            ItemKind::Experiment => items.sort_by_key(|item| {
                let entry = self.experiments.get(item.number);
                entry.is_none_or(|entry| entry.status != ExperimentStatus::Running)
            }),
            ItemKind::Evidence | ItemKind::Run | ItemKind::Note => items.reverse(),
            ItemKind::Belief | ItemKind::Verification => {}
        }
        items
    }

    fn sort_hypotheses(&self, items: &mut [ItemId]) {
        let confidences = self.confidences();
        let sure = |item: &ItemId| confidences.get(&item.number).copied().unwrap_or(0.5);
        let rank = |item: &ItemId| match self.hypotheses.get(item.number).map(|entry| entry.status) {
            Some(HypothesisStatus::Testing | HypothesisStatus::Active) | None => 0,
            Some(status) => status as u8,
        };
        items.sort_by(|a, b| rank(a).cmp(&rank(b)).then(sure(b).total_cmp(&sure(a))).then(a.cmp(b)));
    }

    fn gaps_in_order(&self) -> Vec<ItemId> {
        let next: Vec<ItemId> = self.gap_actions().iter().map(|action| action.item).collect();
        let entry: std::collections::HashSet<ItemId> = next.iter().copied().collect();
        let select = |is_next: bool| {
            let gaps = self.gaps.iter().filter(move |(_, gap)| (gap.status == GapStatus::Open) == is_next);
            gaps.map(|(number, _)| ItemId { kind: ItemKind::Gap, number })
        };
        let waiting: Vec<ItemId> = select(true).filter(|item| !entry.contains(item)).collect();
        next.into_iter().chain(waiting).chain(select(false)).collect()
    }
}
