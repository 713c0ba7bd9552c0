//! The difference between two states of a mind, in sentences.

use std::collections::BTreeSet;

use serde::Serialize;
use serde_json::Value;

use crate::apply::{clip_line, format_confidence};
use crate::ids::{BeliefId, EvidenceId, HypothesisId, ItemId, ItemKind};
use crate::mind::{ReasoningBoard, each_table};

/// One item that differs between two states.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ItemChange {
    /// The item that differs.
    pub item: ItemId,
    /// What happened to it.
    pub sentence: String,
    /// The item in the earlier state; `None` if it did not exist.
    pub before: Option<Value>,
    /// The item in the later state; `None` if it does not exist.
    pub after: Option<Value>,
}

/// The difference between two states.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct BoardDiff {
    /// A summary in one sentence.
    pub summary: String,
    /// One change for every item that differs, in the order of a board.
    pub changes: Vec<ItemChange>,
}

impl ReasoningBoard {
    /// The items that differ.
    pub fn differing(&self, other: &Self) -> Vec<ItemId> {
        let mut found = Vec::new();
        macro_rules! compare {
            ($($table:ident),+) => {
                $(found.extend(self.$table.differing(&other.$table).into_iter().map(|number| {
                    ItemId { kind: self.$table.kind, number }
                }));)+
            };
        }
        compare!(
            hypotheses,
            evidence,
            beliefs,
            contradictions,
            gaps,
            verifications,
            runs,
            notes,
            experiments
        );
        found
    }

    /// The numbers of hypotheses that differ from another mind, or have other evidence.
    pub fn hypotheses_touched(&self, other: &Self) -> BTreeSet<u32> {
        let mut touched: BTreeSet<u32> = self.hypotheses.differing(&other.hypotheses).into_iter().collect();
        for number in self.evidence.differing(&other.evidence) {
            let about = [self, other].into_iter().filter_map(|mind| mind.evidence.get(number));
            touched.extend(about.map(|evidence| evidence.hypothesis.0));
        }
        touched
    }

    /// The difference between this state and a later one.
    pub fn diff(&self, later: &Self) -> BoardDiff {
        let mut items = self.differing(later);
        let (was, is) = (self.confidences(), later.confidences());
        // New evidence changes the confidence in hypotheses that did not change themselves.
        for (number, after) in &is {
            let item = ItemId::from(HypothesisId(*number));
            if was.get(number).is_some_and(|before| before != after) && !items.contains(&item) {
                items.push(item);
            }
        }
        let (held, holds) = (self.effective(), later.effective());
        for (number, after) in &holds {
            let item = ItemId::from(BeliefId(*number));
            if held.get(number).is_some_and(|before| before != after) && !items.contains(&item) {
                items.push(item);
            }
        }
        items.sort();
        let changes: Vec<ItemChange> = items
            .into_iter()
            .filter_map(|item| {
                let sentence = match item.kind {
                    ItemKind::Hypothesis => self.hypothesis_sentence(later, item, &was, &is),
                    ItemKind::Belief => self.belief_sentence(later, item, &held, &holds),
                    _ => self.plain_sentence(later, item),
                }?;
                Some(ItemChange {
                    item,
                    sentence,
                    before: self.document_of(item),
                    after: later.document_of(item),
                })
            })
            .collect();
        BoardDiff { summary: summary(&changes, self, later), changes }
    }

    fn hypothesis_sentence(
        &self,
        later: &Self,
        item: ItemId,
        was: &std::collections::BTreeMap<u32, f64>,
        is: &std::collections::BTreeMap<u32, f64>,
    ) -> Option<String> {
        let number = item.number;
        let (before, after) = (self.hypotheses.get(number), later.hypotheses.get(number));
        let sure = |all: &std::collections::BTreeMap<u32, f64>| all.get(&number).copied().unwrap_or(0.5);
        Some(match (before, after) {
            (None, Some(new)) => {
                let status = match new.status.is_open() {
                    true => String::new(),
                    false => format!(", and {}", new.status.as_str()),
                };
                format!(
                    "{item} was proposed{status} ({}): {}",
                    format_confidence(sure(is)),
                    clip_line(&new.statement)
                )
            }
            (Some(old), None) => format!("{item} was taken back: {}", clip_line(&old.statement)),
            (Some(old), Some(new)) => {
                let mut parts = Vec::new();
                let (from, to) = (sure(was), sure(is));
                if from != to {
                    let verb = if to > from { "rose" } else { "fell" };
                    let because = self.evidence_between(later, HypothesisId(number));
                    let after = match because.is_empty() {
                        true => String::new(),
                        false => format!(" after {}", list_names(&because)),
                    };
                    parts.push(format!(
                        "{verb} from {} to {}{after}",
                        format_confidence(from),
                        format_confidence(to)
                    ));
                }
                if old.status != new.status {
                    let reason = new
                        .reason
                        .as_ref()
                        .map_or(String::new(), |reason| format!(": {}", clip_line(reason)));
                    let fallen =
                        new.fallen.as_ref().map_or(String::new(), |fallen| format!(", with {}", fallen.with));
                    parts.push(format!(
                        "went from {} to {}{fallen}{reason}",
                        old.status.as_str(),
                        new.status.as_str()
                    ));
                }
                if old.statement != new.statement {
                    parts.push(format!("now says: {}", clip_line(&new.statement)));
                }
                if parts.is_empty() {
                    parts.push("was edited".to_owned());
                }
                format!("{item} {}", parts.join(" and "))
            }
            (None, None) => return None,
        })
    }

    /// Evidence about a hypothesis that was added, removed or withdrawn.
    fn evidence_between(&self, later: &Self, id: HypothesisId) -> Vec<ItemId> {
        self.evidence
            .differing(&later.evidence)
            .into_iter()
            .filter(|number| {
                let about = |mind: &Self| mind.evidence.get(*number).is_some_and(|e| e.hypothesis == id);
                about(self) || about(later)
            })
            .map(|number| EvidenceId(number).into())
            .collect()
    }

    fn belief_sentence(
        &self,
        later: &Self,
        item: ItemId,
        held: &std::collections::BTreeMap<u32, f64>,
        holds: &std::collections::BTreeMap<u32, f64>,
    ) -> Option<String> {
        let number = item.number;
        let sure = |all: &std::collections::BTreeMap<u32, f64>| all.get(&number).copied().unwrap_or(0.0);
        let (from, to) = (format_confidence(sure(held)), format_confidence(sure(holds)));
        Some(match (self.beliefs.get(number), later.beliefs.get(number)) {
            (None, Some(new)) => {
                format!("{item} was added ({}, {to}): {}", new.kind.as_str(), clip_line(&new.statement))
            }
            (Some(old), None) => format!("{item} was taken back: {}", clip_line(&old.statement)),
            (Some(old), Some(new)) if old.status != new.status => {
                format!("{item} was {}: {}", new.status.as_str(), clip_line(&new.statement))
            }
            (Some(old), Some(new)) => {
                let mut parts = Vec::new();
                if from != to {
                    parts.push(format!("went from {from} to {to}"));
                }
                for on in new.depends.iter().filter(|d| !old.depends.iter().any(|known| known.on == d.on)) {
                    parts.push(format!("now depends on {}", on.on));
                }
                for on in old.depends.iter().filter(|d| !new.depends.iter().any(|known| known.on == d.on)) {
                    parts.push(format!("no longer depends on {}", on.on));
                }
                if parts.is_empty() {
                    parts.push("was edited".to_owned());
                }
                format!("{item} {}", parts.join(" and "))
            }
            (None, None) => return None,
        })
    }

    fn plain_sentence(&self, later: &Self, item: ItemId) -> Option<String> {
        let says = |mind: &Self| mind.status_and_text(item);
        let noun = item.kind.noun();
        Some(match (says(self), says(later)) {
            (None, Some((state, text))) => match (item.kind, state) {
                (ItemKind::Evidence, _) => {
                    let evidence = later.evidence.get(item.number)?;
                    format!("{item} was added for {} ({:+}): {text}", evidence.hypothesis, evidence.strength)
                }
                (ItemKind::Gap, "filled") => format!("{item} was found and filled: {text}"),
                (ItemKind::Run, outcome) => {
                    let run = later.runs.get(item.number)?;
                    format!("{} was run ({item}) and {outcome}: {text}", run.verification)
                }
                _ => format!("{noun} {item} was added: {text}"),
            },
            (Some((_, text)), None) => format!("{noun} {item} was taken back: {text}"),
            (Some((from, _)), Some((to, text))) if from != to => {
                format!("{noun} {item} is {to}, was {from}: {text}")
            }
            (Some(_), Some((_, text))) => format!("{noun} {item} was edited: {text}"),
            (None, None) => return None,
        })
    }

    /// The status and the text of an item, for a line.
    pub(crate) fn status_and_text(&self, item: ItemId) -> Option<(&'static str, String)> {
        let number = item.number;
        Some(match item.kind {
            ItemKind::Hypothesis => {
                let known = self.hypotheses.get(number)?;
                (known.status.as_str(), clip_line(&known.statement))
            }
            ItemKind::Evidence => {
                let known = self.evidence.get(number)?;
                (if known.withdrawn.is_some() { "withdrawn" } else { "in force" }, clip_line(&known.text))
            }
            ItemKind::Belief => {
                let known = self.beliefs.get(number)?;
                (known.status.as_str(), clip_line(&known.statement))
            }
            ItemKind::Contradiction => {
                let known = self.contradictions.get(number)?;
                (known.status.as_str(), clip_line(&known.reason))
            }
            ItemKind::Gap => {
                let known = self.gaps.get(number)?;
                let answer =
                    known.answer.as_ref().map_or(String::new(), |answer| format!(" → {}", clip_line(answer)));
                (known.status.as_str(), format!("{}{answer}", clip_line(&known.question)))
            }
            ItemKind::Verification => ("planned", clip_line(&self.verifications.get(number)?.title)),
            ItemKind::Run => {
                let known = self.runs.get(number)?;
                (known.outcome.as_str(), clip_line(&known.reason))
            }
            ItemKind::Note => ("noted", clip_line(&self.notes.get(number)?.text)),
            ItemKind::Experiment => {
                let known = self.experiments.get(number)?;
                let result =
                    known.result.as_ref().map_or(String::new(), |result| format!(" → {}", clip_line(result)));
                (
                    known.status.as_str(),
                    format!("branch {}: {}{result}", known.branch, clip_line(&known.success)),
                )
            }
        })
    }
}

/// A list of names for a sentence.
pub(crate) fn list_names(items: &[ItemId]) -> String {
    const MAX_LISTED_NAMES: usize = 5;
    let names: Vec<String> = items.iter().take(MAX_LISTED_NAMES).map(ToString::to_string).collect();
    match items.len() - names.len() {
        0 => match names.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
            None => String::new(),
        },
        more => format!("{} and {more} more", names.join(", ")),
    }
}

fn summary(changes: &[ItemChange], before: &ReasoningBoard, after: &ReasoningBoard) -> String {
    if changes.is_empty() {
        return "Nothing changed.".to_owned();
    }
    let mut parts = Vec::new();
    let mut put = |count: usize, one: &str, many: &str| match count {
        0 => {}
        1 => parts.push(format!("1 {one}")),
        count => parts.push(format!("{count} {many}")),
    };
    let of = |wanted: ItemKind, test: &dyn Fn(&ItemChange) -> bool| {
        changes.iter().filter(|change| change.item.kind == wanted && test(change)).count()
    };
    let added = |change: &ItemChange| change.before.is_none();
    put(of(ItemKind::Hypothesis, &added), "hypothesis proposed", "hypotheses proposed");
    let changed = |change: &ItemChange| change.before.is_some() && change.after.is_some();
    put(of(ItemKind::Hypothesis, &changed), "hypothesis changed", "hypotheses changed");
    put(of(ItemKind::Evidence, &added), "piece of evidence added", "pieces of evidence added");
    put(of(ItemKind::Belief, &added), "belief added", "beliefs added");
    put(of(ItemKind::Belief, &changed), "belief changed", "beliefs changed");
    put(of(ItemKind::Contradiction, &added), "contradiction", "contradictions");
    let filled = |mind: &ReasoningBoard| {
        let is_filled = |gap: &crate::item::Gap| gap.status == crate::item::GapStatus::Filled;
        mind.gaps.iter().filter(|(_, gap)| is_filled(gap)).count()
    };
    put(filled(after).saturating_sub(filled(before)), "gap filled", "gaps filled");
    put(of(ItemKind::Gap, &added), "gap found", "gaps found");
    put(of(ItemKind::Run, &added), "verification run", "verifications run");
    put(of(ItemKind::Note, &added), "note added", "notes added");
    put(
        changes.iter().filter(|change| change.after.is_none()).count(),
        "item taken back",
        "items taken back",
    );
    match parts.is_empty() {
        true => {
            format!("{} changed.", list_names(&changes.iter().map(|change| change.item).collect::<Vec<_>>()))
        }
        false => format!("{}.", parts.join(", ")),
    }
}

impl ReasoningBoard {
    /// The newest item of each kind, to show where a list ends.
    pub fn newest(&self) -> Vec<ItemId> {
        let mut found = Vec::new();
        each_table!(self, table => {
            if let Some((number, _)) = table.iter().next_back() {
                found.push(ItemId { kind: table.kind, number });
            }
        });
        found
    }
}
