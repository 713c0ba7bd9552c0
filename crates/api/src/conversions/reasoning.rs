//! The items on a board as documents.

use std::collections::{BTreeMap, HashMap};

use stepback_model::ids::StepId;
use stepback_reasoning::contradiction::said;
use stepback_reasoning::ids::VerificationId;
use stepback_reasoning::item::{EvidenceOrigin, ItemOrigin};
use stepback_reasoning::{ItemId, ItemKind, ReasoningBoard};
use stepback_store::{Store, StoreError};

use crate::reasoning::{BoardItemDocument, BoardLinkDocument, EvidenceSourceDocument, ItemOriginDocument};

/// Turns the items of a board into documents.
pub struct ItemDescriber<'m> {
    store: &'m dyn Store,
    mind: &'m ReasoningBoard,
    confidences: BTreeMap<u32, f64>,
    effective: BTreeMap<u32, f64>,
    changes: HashMap<ItemId, &'static str>,
    numbers: HashMap<StepId, Option<u64>>,
}

impl<'m> ItemDescriber<'m> {
    /// Describes a board whose steps are in this store. `changes` says what happened to items since another moment.
    pub fn new(
        store: &'m dyn Store,
        mind: &'m ReasoningBoard,
        changes: HashMap<ItemId, &'static str>,
    ) -> Self {
        Self {
            store,
            mind,
            confidences: mind.confidences(),
            effective: mind.effective(),
            changes,
            numbers: HashMap::new(),
        }
    }

    /// Returns the number of a step; `None` if it is gone. Cached.
    fn number(&mut self, step: StepId) -> Result<Option<u64>, StoreError> {
        if let Some(known) = self.numbers.get(&step) {
            return Ok(*known);
        }
        let number = self.store.step(step)?.map(|stored| stored.step.number);
        self.numbers.insert(step, number);
        Ok(number)
    }

    fn origin(&mut self, origin: &ItemOrigin) -> Result<ItemOriginDocument, StoreError> {
        let during = match origin.during {
            Some(step) => self.number(step)?,
            None => None,
        };
        Ok(ItemOriginDocument { at: origin.at, step: self.number(origin.step)?, during })
    }

    fn source(&mut self, source: &EvidenceOrigin) -> Result<EvidenceSourceDocument, StoreError> {
        let (kind, text, step) = match source {
            EvidenceOrigin::Tool { step, tool } => ("tool", tool.clone().unwrap_or_default(), *step),
            EvidenceOrigin::Code { file, line: Some(line) } => ("code", format!("{file}:{line}"), None),
            EvidenceOrigin::Code { file, line: None } => ("code", file.clone(), None),
            EvidenceOrigin::Documentation(place) => ("documentation", place.clone(), None),
            EvidenceOrigin::Reasoning => ("reasoning", String::new(), None),
            EvidenceOrigin::Verification(id) => ("verification", id.to_string(), None),
        };
        let step = match step {
            Some(step) => self.number(step)?,
            None => None,
        };
        Ok(EvidenceSourceDocument { kind: kind.to_owned(), text, step })
    }

    /// Returns the document of an item; `None` if it does not exist.
    pub fn item(&mut self, item: ItemId) -> Result<Option<BoardItemDocument>, StoreError> {
        let mind = self.mind;
        let Some((origin, whole)) = mind.origin_of(item).zip(mind.document_of(item)) else {
            return Ok(None);
        };
        let mut document = BoardItemDocument {
            id: item.to_string(),
            kind: item.kind.noun().to_owned(),
            text: mind.text_of(item),
            origin: self.origin(origin)?,
            change: self.changes.get(&item).map(|change| (*change).to_owned()),
            whole,
            ..BoardItemDocument::default()
        };
        if let Some(changed) = self.fill(item, &mut document)? {
            document.changed = Some(self.origin(changed)?);
        }
        Ok(Some(document))
    }

    /// Fills in the fields of its kind. Returns the origin of its last change.
    fn fill(
        &mut self,
        item: ItemId,
        into: &mut BoardItemDocument,
    ) -> Result<Option<&'m ItemOrigin>, StoreError> {
        let (mind, number) = (self.mind, item.number);
        let mut changed = None;
        match item.kind {
            ItemKind::Hypothesis => {
                let Some(known) = mind.hypotheses.get(number) else { return Ok(None) };
                into.status = known.status.as_str().to_owned();
                into.confidence = self.confidences.get(&number).copied();
                into.alone = Some(known.prior);
                into.more = match (&known.reason, &known.fallen) {
                    (_, Some(fallen)) => Some(format!("rejected along with {}", fallen.with)),
                    (reason, None) => reason.clone(),
                };
                into.links.extend(known.parent.map(|parent| link(parent, "of")));
                into.links.extend(known.excludes.iter().map(|other| link(*other, "excludes")));
                into.tags.clone_from(&known.tags);
                changed = known.changed.as_ref();
            }
            ItemKind::Evidence => {
                let Some(known) = mind.evidence.get(number) else { return Ok(None) };
                into.status = if known.withdrawn.is_some() { "withdrawn" } else { "in-force" }.to_owned();
                into.sort = Some(known.kind.as_str().to_owned());
                into.strength = Some(known.strength);
                into.more.clone_from(&known.withdrawn);
                into.links.push(link(known.hypothesis, "for"));
                into.source = Some(self.source(&known.source)?);
            }
            ItemKind::Belief => {
                let Some(known) = mind.beliefs.get(number) else { return Ok(None) };
                into.status = known.status.as_str().to_owned();
                into.sort = Some(known.kind.as_str().to_owned());
                into.confidence = self.effective.get(&number).copied();
                into.alone = Some(known.confidence);
                let value = known.subject.as_ref().zip(known.value.as_ref());
                let value = value.map(|(subject, value)| format!("{subject} = {}", said(value)));
                into.more = known.reason.clone().or(value);
                into.links.extend(known.depends.iter().map(|on| BoardLinkDocument {
                    strength: Some(on.strength),
                    reason: on.reason.clone(),
                    ..link(on.on, on.kind.as_str())
                }));
                into.links.extend(known.hypothesis.map(|id| link(id, "of")));
                into.tags.clone_from(&known.tags);
                changed = known.changed.as_ref();
            }
            ItemKind::Contradiction => {
                let Some(known) = mind.contradictions.get(number) else { return Ok(None) };
                into.status = known.status.as_str().to_owned();
                into.sort = Some(if known.detected { "detected" } else { "declared" }.to_owned());
                into.weight = Some(known.severity.as_str().to_owned());
                into.more = Some(known.resolution.clone().unwrap_or_else(|| known.suggestion.clone()));
                into.links.extend([known.left, known.right].map(|side| link(side, "contradicts")));
            }
            ItemKind::Gap => {
                let Some(known) = mind.gaps.get(number) else { return Ok(None) };
                into.status = known.status.as_str().to_owned();
                into.sort = Some(known.kind.as_str().to_owned());
                into.weight = Some(known.criticality.as_str().to_owned());
                into.more = known.answer.clone().or_else(|| known.strategy.clone());
                into.links.extend(known.blocks.iter().map(|other| link(*other, "blocks")));
                into.links.extend(known.after.iter().map(|other| link(*other, "after")));
                changed = known.changed.as_ref();
            }
            ItemKind::Verification => {
                let of = VerificationId(number);
                let last = mind.runs.iter().rev().find(|(_, run)| run.verification == of);
                into.status = last.map_or("planned", |(_, run)| run.outcome.as_str()).to_owned();
                into.more = last.map(|(_, run)| run.reason.clone());
            }
            ItemKind::Run => {
                let Some(known) = mind.runs.get(number) else { return Ok(None) };
                into.status = known.outcome.as_str().to_owned();
                into.more = Some(known.output.clone()).filter(|output| !output.is_empty());
                into.links.push(link(known.verification, "of"));
            }
            ItemKind::Note => {
                let Some(known) = mind.notes.get(number) else { return Ok(None) };
                into.status = "noted".to_owned();
                into.links.extend(known.about.iter().map(|other| link(*other, "about")));
                into.tags.clone_from(&known.tags);
            }
            ItemKind::Experiment => {
                let Some(known) = mind.experiments.get(number) else { return Ok(None) };
                into.status = known.status.as_str().to_owned();
                into.more.clone_from(&known.result);
                into.links.extend(known.hypothesis.map(|id| link(id, "for")));
                changed = known.changed.as_ref();
            }
        }
        Ok(changed)
    }
}

/// A link to another item.
fn link(to: impl Into<ItemId>, how: &str) -> BoardLinkDocument {
    BoardLinkDocument { to: to.into().to_string(), how: how.to_owned(), strength: None, reason: None }
}
