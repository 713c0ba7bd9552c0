//! The items on a board as documents.

use std::collections::{BTreeMap, HashMap};

use stepback_model::ids::StepId;
use stepback_reasoning::contradiction::said;
use stepback_reasoning::ids::{HypothesisId, VerificationId};
use stepback_reasoning::item::{EvidenceOrigin, ItemOrigin};
use stepback_reasoning::{ItemId, ItemKind, ReasoningBoard};
use stepback_store::{Store, StoreError};

use crate::reasoning::{BoardItemDocument, BoardLinkDocument, EvidenceSourceDocument, ItemOriginDocument};

/// Turns the items of a board into documents.
pub struct ItemDescriber<'m> {
    store: &'m dyn Store,
    board: &'m ReasoningBoard,
    confidences: BTreeMap<u32, f64>,
    effective_confidences: BTreeMap<u32, f64>,
    changes: HashMap<ItemId, &'static str>,
    numbers: HashMap<StepId, Option<u64>>,
}

impl<'m> ItemDescriber<'m> {
    /// Describes a board whose steps are in this store. `changes` says what happened to items since another moment.
    pub fn new(
        store: &'m dyn Store,
        board: &'m ReasoningBoard,
        changes: HashMap<ItemId, &'static str>,
    ) -> Self {
        Self {
            store,
            board,
            confidences: board.confidences(),
            effective_confidences: board.effective(),
            changes,
            numbers: HashMap::new(),
        }
    }

    /// Returns the number of a step; `None` if it is gone. Cached.
    fn step_number(&mut self, step: StepId) -> Result<Option<u64>, StoreError> {
        if let Some(known) = self.numbers.get(&step) {
            return Ok(*known);
        }
        let number = self.store.step(step)?.map(|stored| stored.step.number);
        self.numbers.insert(step, number);
        Ok(number)
    }

    fn describe_origin(&mut self, origin: &ItemOrigin) -> Result<ItemOriginDocument, StoreError> {
        let during = match origin.during {
            Some(step) => self.step_number(step)?,
            None => None,
        };
        Ok(ItemOriginDocument { at: origin.at, step: self.step_number(origin.step)?, during })
    }

    fn describe_source(&mut self, source: &EvidenceOrigin) -> Result<EvidenceSourceDocument, StoreError> {
        let (kind, text, step) = match source {
            EvidenceOrigin::Tool { step, tool } => ("tool", tool.clone().unwrap_or_default(), *step),
            EvidenceOrigin::Code { file, line: Some(line) } => ("code", format!("{file}:{line}"), None),
            EvidenceOrigin::Code { file, line: None } => ("code", file.clone(), None),
            EvidenceOrigin::Documentation(place) => ("documentation", place.clone(), None),
            EvidenceOrigin::Reasoning => ("reasoning", String::new(), None),
            EvidenceOrigin::Verification(id) => ("verification", id.to_string(), None),
        };
        let step = match step {
            Some(step) => self.step_number(step)?,
            None => None,
        };
        Ok(EvidenceSourceDocument { kind: kind.to_owned(), text, step })
    }

    /// Returns the document of an item; `None` if it does not exist.
    pub fn describe_item(&mut self, item: ItemId) -> Result<Option<BoardItemDocument>, StoreError> {
        let board = self.board;
        let Some((origin, whole)) = board.origin_of(item).zip(board.document_of(item)) else {
            return Ok(None);
        };
        let mut document = BoardItemDocument {
            id: item.to_string(),
            kind: item.kind.noun().to_owned(),
            text: board.text_of(item),
            origin: self.describe_origin(origin)?,
            change: self.changes.get(&item).map(|change| (*change).to_owned()),
            whole,
            ..BoardItemDocument::default()
        };
        if let Some(changed) = self.fill_kind_fields(item, &mut document)? {
            document.changed = Some(self.describe_origin(changed)?);
        }
        Ok(Some(document))
    }

    /// Fills in the fields of its kind. Returns the origin of its last change.
    fn fill_kind_fields(
        &mut self,
        item: ItemId,
        document: &mut BoardItemDocument,
    ) -> Result<Option<&'m ItemOrigin>, StoreError> {
        let (board, number) = (self.board, item.number);
        let mut changed = None;
        match item.kind {
            ItemKind::Hypothesis => {
                let Some(known) = board.hypotheses.get(number) else { return Ok(None) };
                document.status = known.status.as_str().to_owned();
                document.confidence = self.confidences.get(&number).copied();
                document.alone = Some(known.prior);
                document.more = match (&known.reason, &known.fallen) {
                    (_, Some(fallen)) => Some(format!("rejected along with {}", fallen.with)),
                    (reason, None) => reason.clone(),
                };
                document.links.extend(known.parents.iter().map(|parent| link_to(*parent, "of")));
                let children = board.children(HypothesisId(number));
                document.links.extend(children.into_iter().map(|child| link_to(child, "special-case")));
                document.links.extend(known.excludes.iter().map(|other| link_to(*other, "excludes")));
                document.tags.clone_from(&known.tags);
                changed = known.changed.as_ref();
            }
            ItemKind::Evidence => {
                let Some(known) = board.evidence.get(number) else { return Ok(None) };
                document.status = if known.withdrawn.is_some() { "withdrawn" } else { "in-force" }.to_owned();
                document.sort = Some(known.kind.as_str().to_owned());
                document.strength = Some(known.strength);
                document.more.clone_from(&known.withdrawn);
                document.links.push(link_to(known.hypothesis, "for"));
                document.source = Some(self.describe_source(&known.source)?);
            }
            ItemKind::Belief => {
                let Some(known) = board.beliefs.get(number) else { return Ok(None) };
                document.status = known.status.as_str().to_owned();
                document.sort = Some(known.kind.as_str().to_owned());
                document.confidence = self.effective_confidences.get(&number).copied();
                document.alone = Some(known.confidence);
                let value = known.subject.as_ref().zip(known.value.as_ref());
                let value = value.map(|(subject, value)| format!("{subject} = {}", said(value)));
                document.more = known.reason.clone().or(value);
                document.links.extend(known.depends.iter().map(|on| BoardLinkDocument {
                    strength: Some(on.strength),
                    reason: on.reason.clone(),
                    ..link_to(on.on, on.kind.as_str())
                }));
                document.links.extend(known.hypothesis.map(|id| link_to(id, "of")));
                document.tags.clone_from(&known.tags);
                changed = known.changed.as_ref();
            }
            ItemKind::Contradiction => {
                let Some(known) = board.contradictions.get(number) else { return Ok(None) };
                document.status = known.status.as_str().to_owned();
                document.sort = Some(if known.detected { "detected" } else { "declared" }.to_owned());
                document.weight = Some(known.severity.as_str().to_owned());
                document.more = Some(known.resolution.clone().unwrap_or_else(|| known.suggestion.clone()));
                document.links.extend([known.left, known.right].map(|side| link_to(side, "contradicts")));
            }
            ItemKind::Gap => {
                let Some(known) = board.gaps.get(number) else { return Ok(None) };
                document.status = known.status.as_str().to_owned();
                document.sort = Some(known.kind.as_str().to_owned());
                document.weight = Some(known.criticality.as_str().to_owned());
                document.more = known.answer.clone().or_else(|| known.strategy.clone());
                document.links.extend(known.blocks.iter().map(|other| link_to(*other, "blocks")));
                document.links.extend(known.after.iter().map(|other| link_to(*other, "after")));
                changed = known.changed.as_ref();
            }
            ItemKind::Verification => {
                let of = VerificationId(number);
                let last = board.runs.iter().rev().find(|(_, run)| run.verification == of);
                document.status = last.map_or("planned", |(_, run)| run.outcome.as_str()).to_owned();
                document.more = last.map(|(_, run)| run.reason.clone());
            }
            ItemKind::Run => {
                let Some(known) = board.runs.get(number) else { return Ok(None) };
                document.status = known.outcome.as_str().to_owned();
                document.more = Some(known.output.clone()).filter(|output| !output.is_empty());
                document.links.push(link_to(known.verification, "of"));
            }
            ItemKind::Note => {
                let Some(known) = board.notes.get(number) else { return Ok(None) };
                document.status = "noted".to_owned();
                document.links.extend(known.about.iter().map(|other| link_to(*other, "about")));
                document.tags.clone_from(&known.tags);
            }
            ItemKind::Experiment => {
                let Some(known) = board.experiments.get(number) else { return Ok(None) };
                document.status = known.status.as_str().to_owned();
                document.more.clone_from(&known.result);
                document.links.extend(known.hypothesis.map(|id| link_to(id, "for")));
                changed = known.changed.as_ref();
            }
        }
        Ok(changed)
    }
}

/// A link to another item.
fn link_to(to: impl Into<ItemId>, how: &str) -> BoardLinkDocument {
    BoardLinkDocument { to: to.into().to_string(), how: how.to_owned(), strength: None, reason: None }
}
