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
        let mut differing = Vec::new();
        macro_rules! compare {
            ($($table:ident),+) => {
                $(differing.extend(self.$table.differing(&other.$table).into_iter().map(|number| {
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
        differing
    }

    /// The numbers of hypotheses that differ from another mind, or have other evidence.
    pub fn hypotheses_touched(&self, other: &Self) -> BTreeSet<u32> {
        let mut touched: BTreeSet<u32> = self.hypotheses.differing(&other.hypotheses).into_iter().collect();
        for number in self.evidence.differing(&other.evidence) {
            let evidence_on_both = [self, other].into_iter().filter_map(|mind| mind.evidence.get(number));
            touched.extend(evidence_on_both.map(|evidence| evidence.hypothesis.0));
        }
        touched
    }

    /// The difference between this state and a later one.
    pub fn diff(&self, later: &Self) -> BoardDiff {
        let mut items = self.differing(later);
        let (old_confidences, new_confidences) = (self.confidences(), later.confidences());
        // New evidence changes the confidence in hypotheses that did not change themselves.
        for (number, new_value) in &new_confidences {
            let item = ItemId::from(HypothesisId(*number));
            if old_confidences.get(number).is_some_and(|old_value| old_value != new_value)
                && !items.contains(&item)
            {
                items.push(item);
            }
        }
        let (old_effective, new_effective) = (self.effective(), later.effective());
        for (number, new_value) in &new_effective {
            let item = ItemId::from(BeliefId(*number));
            if old_effective.get(number).is_some_and(|old_value| old_value != new_value)
                && !items.contains(&item)
            {
                items.push(item);
            }
        }
        items.sort();
        let changes: Vec<ItemChange> = items
            .into_iter()
            .filter_map(|item| {
                let sentence = match item.kind {
                    ItemKind::Hypothesis => {
                        self.describe_hypothesis(later, item, &old_confidences, &new_confidences)
                    }
                    ItemKind::Belief => self.describe_belief(later, item, &old_effective, &new_effective),
                    _ => self.describe_item(later, item),
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

    fn describe_hypothesis(
        &self,
        later: &Self,
        item: ItemId,
        old_confidences: &std::collections::BTreeMap<u32, f64>,
        new_confidences: &std::collections::BTreeMap<u32, f64>,
    ) -> Option<String> {
        let number = item.number;
        let (old_hypothesis, suffix) = (self.hypotheses.get(number), later.hypotheses.get(number));
        let confidence =
            |all: &std::collections::BTreeMap<u32, f64>| all.get(&number).copied().unwrap_or(0.5);
        Some(match (old_hypothesis, suffix) {
            (None, Some(new)) => {
                let status = match new.status.is_open() {
                    true => String::new(),
                    false => format!(", and {}", new.status.as_str()),
                };
                format!(
                    "{item} was proposed{status} ({}): {}",
                    format_confidence(confidence(new_confidences)),
                    clip_line(&new.statement)
                )
            }
            (Some(old), None) => format!("{item} was taken back: {}", clip_line(&old.statement)),
            (Some(old), Some(new)) => {
                let mut parts = Vec::new();
                let (old_value, new_value) = (confidence(old_confidences), confidence(new_confidences));
                if old_value != new_value {
                    let verb = if new_value > old_value { "rose" } else { "fell" };
                    let evidence = self.evidence_between(later, HypothesisId(number));
                    let suffix = match evidence.is_empty() {
                        true => String::new(),
                        false => format!(" after {}", list_names(&evidence)),
                    };
                    parts.push(format!(
                        "{verb} from {} to {}{suffix}",
                        format_confidence(old_value),
                        format_confidence(new_value)
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
                let is_about = |mind: &Self| mind.evidence.get(*number).is_some_and(|e| e.hypothesis == id);
                is_about(self) || is_about(later)
            })
            .map(|number| EvidenceId(number).into())
            .collect()
    }

    fn describe_belief(
        &self,
        later: &Self,
        item: ItemId,
        old_effective: &std::collections::BTreeMap<u32, f64>,
        new_effective: &std::collections::BTreeMap<u32, f64>,
    ) -> Option<String> {
        let number = item.number;
        let confidence =
            |all: &std::collections::BTreeMap<u32, f64>| all.get(&number).copied().unwrap_or(0.0);
        let (old_value, new_value) =
            (format_confidence(confidence(old_effective)), format_confidence(confidence(new_effective)));
        Some(match (self.beliefs.get(number), later.beliefs.get(number)) {
            (None, Some(new)) => {
                format!(
                    "{item} was added ({}, {new_value}): {}",
                    new.kind.as_str(),
                    clip_line(&new.statement)
                )
            }
            (Some(old), None) => format!("{item} was taken back: {}", clip_line(&old.statement)),
            (Some(old), Some(new)) if old.status != new.status => {
                format!("{item} was {}: {}", new.status.as_str(), clip_line(&new.statement))
            }
            (Some(old), Some(new)) => {
                let mut parts = Vec::new();
                if old_value != new_value {
                    parts.push(format!("went from {old_value} to {new_value}"));
                }
                for dependency in
                    new.depends.iter().filter(|d| !old.depends.iter().any(|other| other.on == d.on))
                {
                    parts.push(format!("now depends on {}", dependency.on));
                }
                for dependency in
                    old.depends.iter().filter(|d| !new.depends.iter().any(|other| other.on == d.on))
                {
                    parts.push(format!("no longer depends on {}", dependency.on));
                }
                if parts.is_empty() {
                    parts.push("was edited".to_owned());
                }
                format!("{item} {}", parts.join(" and "))
            }
            (None, None) => return None,
        })
    }

    fn describe_item(&self, later: &Self, item: ItemId) -> Option<String> {
        let describe = |mind: &Self| mind.status_and_text(item);
        let noun = item.kind.noun();
        Some(match (describe(self), describe(later)) {
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
            (Some((old_status, _)), Some((new_status, text))) if old_status != new_status => {
                format!("{noun} {item} is {new_status}, was {old_status}: {text}")
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
                let entry = self.hypotheses.get(number)?;
                (entry.status.as_str(), clip_line(&entry.statement))
            }
            ItemKind::Evidence => {
                let entry = self.evidence.get(number)?;
                (if entry.withdrawn.is_some() { "withdrawn" } else { "in force" }, clip_line(&entry.text))
            }
            ItemKind::Belief => {
                let entry = self.beliefs.get(number)?;
                (entry.status.as_str(), clip_line(&entry.statement))
            }
            ItemKind::Contradiction => {
                let entry = self.contradictions.get(number)?;
                (entry.status.as_str(), clip_line(&entry.reason))
            }
            ItemKind::Gap => {
                let entry = self.gaps.get(number)?;
                let answer =
                    entry.answer.as_ref().map_or(String::new(), |answer| format!(" → {}", clip_line(answer)));
                (entry.status.as_str(), format!("{}{answer}", clip_line(&entry.question)))
            }
            ItemKind::Verification => ("planned", clip_line(&self.verifications.get(number)?.title)),
            ItemKind::Run => {
                let entry = self.runs.get(number)?;
                (entry.outcome.as_str(), clip_line(&entry.reason))
            }
            ItemKind::Note => ("noted", clip_line(&self.notes.get(number)?.text)),
            ItemKind::Experiment => {
                let entry = self.experiments.get(number)?;
                let result =
                    entry.result.as_ref().map_or(String::new(), |result| format!(" → {}", clip_line(result)));
                (
                    entry.status.as_str(),
                    format!("branch {}: {}{result}", entry.branch, clip_line(&entry.success)),
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
    let count_where = |kind: ItemKind, test: &dyn Fn(&ItemChange) -> bool| {
        changes.iter().filter(|change| change.item.kind == kind && test(change)).count()
    };
    let added = |change: &ItemChange| change.before.is_none();
    put(count_where(ItemKind::Hypothesis, &added), "hypothesis proposed", "hypotheses proposed");
    let changed = |change: &ItemChange| change.before.is_some() && change.after.is_some();
    put(count_where(ItemKind::Hypothesis, &changed), "hypothesis changed", "hypotheses changed");
    put(count_where(ItemKind::Evidence, &added), "piece of evidence added", "pieces of evidence added");
    put(count_where(ItemKind::Belief, &added), "belief added", "beliefs added");
    put(count_where(ItemKind::Belief, &changed), "belief changed", "beliefs changed");
    put(count_where(ItemKind::Contradiction, &added), "contradiction", "contradictions");
    let filled = |mind: &ReasoningBoard| {
        let is_filled = |gap: &crate::item::Gap| gap.status == crate::item::GapStatus::Filled;
        mind.gaps.iter().filter(|(_, gap)| is_filled(gap)).count()
    };
    put(filled(after).saturating_sub(filled(before)), "gap filled", "gaps filled");
    put(count_where(ItemKind::Gap, &added), "gap found", "gaps found");
    put(count_where(ItemKind::Run, &added), "verification run", "verifications run");
    put(count_where(ItemKind::Note, &added), "note added", "notes added");
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
        let mut newest = Vec::new();
        each_table!(self, table => {
            if let Some((number, _)) = table.iter().next_back() {
                newest.push(ItemId { kind: table.kind, number });
            }
        });
        newest
    }
}
