//! The order in which items of a kind are shown: the most important first.

use crate::ids::{Item, Kind};
use crate::item::{ContradictionStatus, ExperimentStatus, GapStatus, HypothesisStatus};
use crate::mind::{Mind, each_table};

impl Mind {
    /// All items of a kind, the most important first.
    ///
    /// Hypotheses: open ones by confidence, then confirmed, rejected and archived ones. Gaps: the next to fill first, then
    /// those that wait for others, then those that are filled or dropped. Contradictions and experiments: open ones first.
    /// Evidence, runs and notes: the newest first. Beliefs and verifications: in the order they were added.
    pub fn in_order(&self, kind: Kind) -> Vec<Item> {
        let mut items = Vec::new();
        each_table!(self, table => {
            if table.kind == kind {
                items.extend(table.iter().map(|(number, _)| Item { kind, number }));
            }
        });
        match kind {
            Kind::Hypothesis => self.sort_hypotheses(&mut items),
            Kind::Gap => return self.gaps_in_order(),
            Kind::Contradiction => items.sort_by_key(|item| {
                let known = self.contradictions.get(item.number);
                known.is_none_or(|known| known.status != ContradictionStatus::Open)
            }),
            Kind::Experiment => items.sort_by_key(|item| {
                let known = self.experiments.get(item.number);
                known.is_none_or(|known| known.status != ExperimentStatus::Running)
            }),
            Kind::Evidence | Kind::Run | Kind::Note => items.reverse(),
            Kind::Belief | Kind::Verification => {}
        }
        items
    }

    fn sort_hypotheses(&self, items: &mut [Item]) {
        let confidences = self.confidences();
        let sure = |item: &Item| confidences.get(&item.number).copied().unwrap_or(0.5);
        let rank = |item: &Item| match self.hypotheses.get(item.number).map(|known| known.status) {
            Some(HypothesisStatus::Testing | HypothesisStatus::Active) | None => 0,
            Some(other) => other as u8,
        };
        items.sort_by(|a, b| rank(a).cmp(&rank(b)).then(sure(b).total_cmp(&sure(a))).then(a.cmp(b)));
    }

    fn gaps_in_order(&self) -> Vec<Item> {
        let next: Vec<Item> = self.gap_actions().iter().map(|action| action.item).collect();
        let known: std::collections::HashSet<Item> = next.iter().copied().collect();
        let of = |wanted: bool| {
            let gaps = self.gaps.iter().filter(move |(_, gap)| (gap.status == GapStatus::Open) == wanted);
            gaps.map(|(number, _)| Item { kind: Kind::Gap, number })
        };
        let waiting: Vec<Item> = of(true).filter(|item| !known.contains(item)).collect();
        next.into_iter().chain(waiting).chain(of(false)).collect()
    }
}
