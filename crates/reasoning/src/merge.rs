//! Three-way merge of minds: merges what was learned on a branch, or reverts a change.
//!
//! With `base` the common ancestor, `theirs` the mind to merge from and `ours` the one to merge into:
//!
//! - an item that only `theirs` has is added, under a new name if ours has another item of that name; references to it
//!   among the merged items use the new name;
//! - an item that `theirs` changed and ours did not becomes what it is in theirs; if ours changed it in the same way, nothing
//!   happens;
//! - an item that both changed differently is a conflict. It stays as it is in ours unless the caller prefers theirs.
//!
//! Merging a branch is one use; taking back a single change is the other, with the mind after the change as the base and
//! the one before it as theirs.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;
use serde_json::Value;
use stepback_model::ids::StepId;

use crate::error::MindError;
use crate::ids::{BeliefId, GapId, HypothesisId, ItemId, ItemKind, VerificationId};
use crate::item::{
    Belief, CheckRun, Contradiction, Evidence, EvidenceOrigin, Experiment, Gap, Hypothesis, ItemOrigin, Note,
    OnOutcome, Verification,
};
use crate::mind::{ReasoningBoard, each_table};
use crate::paged_table::Table;

/// An item that both sides changed differently.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Conflict {
    /// The item in conflict.
    pub item: ItemId,
    /// A sentence about both sides.
    pub sentence: String,
    /// The item in ours; `None` if it does not exist there.
    pub ours: Option<Value>,
    /// The item in theirs; `None` if it does not exist there.
    pub theirs: Option<Value>,
    /// Whether theirs was taken.
    pub taken: bool,
}

/// The result of a merge.
#[derive(Clone, Debug)]
pub struct BoardMerge {
    /// The merged mind.
    pub mind: ReasoningBoard,
    /// Items that both sides changed differently.
    pub conflicts: Vec<Conflict>,
    /// Items that were renamed: their name in theirs, and in the merged mind.
    pub renamed: Vec<(ItemId, ItemId)>,
}

/// Maps names in theirs to names in ours.
#[derive(Default)]
struct ItemRenames(BTreeMap<ItemId, ItemId>);

impl ItemRenames {
    fn resolve(&self, item: ItemId) -> ItemId {
        self.0.get(&item).copied().unwrap_or(item)
    }

    fn resolve_number<T: Into<ItemId> + Copy>(&self, id: T) -> u32 {
        self.resolve(id.into()).number
    }
}

/// An item that may refer to other items.
trait ItemReferences {
    fn origin(&self) -> &ItemOrigin;
    fn rename(&mut self, names: &ItemRenames);
    fn refers(&self) -> Vec<ItemId>;
}

fn rename_hypothesis(id: &mut HypothesisId, names: &ItemRenames) {
    id.0 = names.resolve_number(*id);
}

impl ItemReferences for Hypothesis {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        self.parent.iter_mut().chain(&mut self.excludes).for_each(|id| rename_hypothesis(id, names));
        if let Some(fallen) = &mut self.fallen {
            rename_hypothesis(&mut fallen.with, names);
        }
    }

    fn refers(&self) -> Vec<ItemId> {
        self.parent.iter().chain(&self.excludes).map(|id| (*id).into()).collect()
    }
}

impl ItemReferences for Evidence {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        rename_hypothesis(&mut self.hypothesis, names);
        if let EvidenceOrigin::Verification(id) = &mut self.source {
            *id = VerificationId(names.resolve_number(*id));
        }
    }

    fn refers(&self) -> Vec<ItemId> {
        let checked = match self.source {
            EvidenceOrigin::Verification(id) => Some(id.into()),
            _ => None,
        };
        checked.into_iter().chain([self.hypothesis.into()]).collect()
    }
}

impl ItemReferences for Belief {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        self.hypothesis.iter_mut().for_each(|id| rename_hypothesis(id, names));
        self.depends
            .iter_mut()
            .for_each(|dependency| dependency.on = BeliefId(names.resolve_number(dependency.on)));
        self.depends.sort_by_key(|dependency| dependency.on);
    }

    fn refers(&self) -> Vec<ItemId> {
        let rests = self.depends.iter().map(|dependency| dependency.on.into());
        rests.chain(self.hypothesis.map(ItemId::from)).collect()
    }
}

impl ItemReferences for Contradiction {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        (self.left, self.right) = (names.resolve(self.left), names.resolve(self.right));
    }

    fn refers(&self) -> Vec<ItemId> {
        vec![self.left, self.right]
    }
}

impl ItemReferences for Gap {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        self.blocks.iter_mut().for_each(|item| *item = names.resolve(*item));
        self.after.iter_mut().for_each(|id| *id = GapId(names.resolve_number(*id)));
    }

    fn refers(&self) -> Vec<ItemId> {
        self.blocks.iter().copied().chain(self.after.iter().map(|id| (*id).into())).collect()
    }
}

impl ItemReferences for Verification {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        for act in self.on_pass.iter_mut().chain(&mut self.on_fail) {
            match act {
                OnOutcome::Evidence { hypothesis: id, .. } => rename_hypothesis(id, names),
                OnOutcome::Fill(gap) => *gap = GapId(names.resolve_number(*gap)),
                OnOutcome::Halt => {}
            }
        }
    }

    fn refers(&self) -> Vec<ItemId> {
        let acts = self.on_pass.iter().chain(&self.on_fail);
        acts.filter_map(|act| match act {
            OnOutcome::Evidence { hypothesis, .. } => Some((*hypothesis).into()),
            OnOutcome::Fill(gap) => Some((*gap).into()),
            OnOutcome::Halt => None,
        })
        .collect()
    }
}

impl ItemReferences for CheckRun {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        self.verification = VerificationId(names.resolve_number(self.verification));
    }

    fn refers(&self) -> Vec<ItemId> {
        vec![self.verification.into()]
    }
}

impl ItemReferences for Note {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        self.about.iter_mut().for_each(|item| *item = names.resolve(*item));
    }

    fn refers(&self) -> Vec<ItemId> {
        self.about.clone()
    }
}

impl ItemReferences for Experiment {
    fn origin(&self) -> &ItemOrigin {
        &self.origin
    }

    fn rename(&mut self, names: &ItemRenames) {
        self.hypothesis.iter_mut().for_each(|id| rename_hypothesis(id, names));
    }

    fn refers(&self) -> Vec<ItemId> {
        self.hypothesis.iter().map(|id| (*id).into()).collect()
    }
}

/// Assigns names in ours to items that only `theirs` has. With `by_origin`, an item that was recorded by a step that also
/// recorded one in ours is the same item.
fn name<T: Clone + PartialEq + ItemReferences>(
    base: &Table<T>,
    theirs: &Table<T>,
    ours: &Table<T>,
    by_origin: bool,
    names: &mut ItemRenames,
) -> Vec<(u32, u32)> {
    let mut free = ours.newest().max(base.newest());
    let mut added = Vec::new();
    // One step may record several items of a kind; they are in the same order on both sides.
    let mut known: BTreeMap<StepId, VecDeque<u32>> = BTreeMap::new();
    for (number, item) in ours.iter().filter(|_| by_origin) {
        known.entry(item.origin().step).or_default().push_back(number);
    }
    for (number, item) in theirs.iter().filter(|(number, _)| base.get(*number).is_none()) {
        if ours.get(number) == Some(item) {
            continue;
        }
        if let Some(own_number) = known.get_mut(&item.origin().step).and_then(VecDeque::pop_front) {
            let kind = ours.kind;
            names.0.insert(ItemId { kind, number }, ItemId { kind, number: own_number });
            continue;
        }
        // A name that was used and taken back is free for the same item.
        let own_number = match ours.get(number).is_none() && number <= ours.newest() {
            true => number,
            false => {
                free += 1;
                free
            }
        };
        added.push((number, own_number));
        if own_number != number {
            let kind = ours.kind;
            names.0.insert(ItemId { kind, number }, ItemId { kind, number: own_number });
        }
    }
    added
}

struct Joining<'a> {
    names: &'a ItemRenames,
    take_theirs: bool,
    conflicts: Vec<ItemId>,
}

impl Joining<'_> {
    /// Merges what `theirs` changed.
    fn table<T: Clone + PartialEq + ItemReferences>(
        &mut self,
        base: &Table<T>,
        theirs: &Table<T>,
        ours: &mut Table<T>,
        added: &[(u32, u32)],
    ) -> Result<(), MindError> {
        for number in base.differing(theirs) {
            let (Some(base_item), their_item) = (base.get(number), theirs.get(number)) else { continue };
            let their_item = their_item.cloned().map(|mut item| {
                item.rename(self.names);
                item
            });
            let own_item = ours.get(number);
            if own_item == their_item.as_ref() {
                continue;
            }
            if own_item != Some(base_item) {
                self.conflicts.push(ItemId { kind: ours.kind, number });
                if !self.take_theirs {
                    continue;
                }
            }
            if number <= ours.newest() {
                ours.put(number, their_item);
            }
        }
        for (their_number, own_item) in added {
            let Some(mut item) = theirs.get(*their_number).cloned() else { continue };
            item.rename(self.names);
            if *own_item <= ours.newest() {
                ours.put(*own_item, Some(item));
                continue;
            }
            // Numbers that were used in the base and no longer exist in ours stay empty.
            while ours.newest() + 1 < *own_item {
                let new_number = ours.push(item.clone())?;
                ours.put(new_number, None);
            }
            ours.push(item)?;
        }
        Ok(())
    }
}

impl ReasoningBoard {
    /// The items that an item refers to.
    pub fn refers(&self, item: ItemId) -> Vec<ItemId> {
        let mut references = Vec::new();
        each_table!(self, table => {
            if table.kind == item.kind {
                references.extend(table.get(item.number).into_iter().flat_map(ItemReferences::refers));
            }
        });
        references
    }

    /// Merges what changed between `base` and `theirs` into this mind.
    pub fn merge(&self, base: &Self, theirs: &Self, take_theirs: bool) -> Result<BoardMerge, MindError> {
        self.merge_items(base, theirs, take_theirs, false)
    }

    /// Like [`Self::merge`], for a board that may have been merged before: an item that is here already under another name is
    /// not added again.
    pub fn merge_again(&self, base: &Self, theirs: &Self) -> Result<BoardMerge, MindError> {
        self.merge_items(base, theirs, false, true)
    }

    /// Whether this board may have grown out of `earlier`: what both have under one name was recorded by the same step.
    pub fn continues(&self, earlier: &Self) -> bool {
        let same = |item: &ItemId| {
            let (here, there) = (self.origin_of(*item), earlier.origin_of(*item));
            here.is_none() || here.map(|origin| origin.step) == there.map(|origin| origin.step)
        };
        earlier.items().iter().all(same)
    }

    fn merge_items(
        &self,
        base: &Self,
        theirs: &Self,
        take_theirs: bool,
        by_origin: bool,
    ) -> Result<BoardMerge, MindError> {
        let mut names = ItemRenames::default();
        macro_rules! all {
            ($($table:ident),+) => {{
                $(let $table = name(&base.$table, &theirs.$table, &self.$table, by_origin, &mut names);)+
                let mut mind = self.clone();
                let mut joining = Joining { names: &names, take_theirs, conflicts: Vec::new() };
                $(joining.table(&base.$table, &theirs.$table, &mut mind.$table, &$table)?;)+
                (mind, joining.conflicts)
            }};
        }
        let (mut mind, mut conflicts) = all!(
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
        self.keep_what_is_referred_to(&mut mind, &mut conflicts);
        let sentence = |item: ItemId| {
            let word = |mind: &Self| {
                mind.status_and_text(item)
                    .map_or("taken back".to_owned(), |(state, text)| format!("{state} ({text})"))
            };
            format!("{item} is {} here and {} there", word(self), word(theirs))
        };
        let conflicts = conflicts
            .into_iter()
            .map(|item| Conflict {
                item,
                sentence: sentence(item),
                ours: self.document_of(item),
                theirs: theirs.document_of(item),
                taken: take_theirs && mind.document_of(item) == theirs.document_of(item),
            })
            .collect();
        names.0.retain(|there, here| there != here);
        Ok(BoardMerge { mind, conflicts, renamed: names.0.into_iter().collect() })
    }

    /// Restores items that remaining items refer to: a dangling reference is worse than an extra item.
    fn keep_what_is_referred_to(&self, mind: &mut Self, conflicts: &mut Vec<ItemId>) {
        loop {
            let mut required: Vec<ItemId> = Vec::new();
            each_table!(&*mind, table => {
                required.extend(table.iter().flat_map(|(_, item)| item.refers()));
            });
            required.retain(|item| mind.expect(*item).is_err() && self.expect(*item).is_ok());
            required.sort();
            required.dedup();
            if required.is_empty() {
                return;
            }
            for item in required {
                let number = item.number;
                match item.kind {
                    ItemKind::Hypothesis => mind.hypotheses.put(number, self.hypotheses.get(number).cloned()),
                    ItemKind::Evidence => mind.evidence.put(number, self.evidence.get(number).cloned()),
                    ItemKind::Belief => mind.beliefs.put(number, self.beliefs.get(number).cloned()),
                    ItemKind::Contradiction => {
                        mind.contradictions.put(number, self.contradictions.get(number).cloned())
                    }
                    ItemKind::Gap => mind.gaps.put(number, self.gaps.get(number).cloned()),
                    ItemKind::Verification => {
                        mind.verifications.put(number, self.verifications.get(number).cloned())
                    }
                    ItemKind::Run => mind.runs.put(number, self.runs.get(number).cloned()),
                    ItemKind::Note => mind.notes.put(number, self.notes.get(number).cloned()),
                    ItemKind::Experiment => {
                        mind.experiments.put(number, self.experiments.get(number).cloned())
                    }
                }
                if !conflicts.contains(&item) {
                    conflicts.push(item);
                }
            }
        }
    }

    /// Returns a mind in which the changes between `before` and `after` are reverted, and later changes stay.
    pub fn revert(&self, before: &Self, after: &Self) -> Result<BoardMerge, MindError> {
        self.merge(after, before, false)
    }
}
