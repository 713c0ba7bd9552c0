//! A mind: the complete reasoning state of an agent at one moment.

use serde_json::{Map, Value, json};

use crate::error::MindError;
use crate::ids::{HypothesisId, ItemId, ItemKind};
use crate::item::{
    Belief, CheckRun, Contradiction, Evidence, Experiment, Gap, Hypothesis, ItemOrigin, Note, Verification,
};
use crate::paged_table::Table;

/// The complete reasoning state of an agent at one moment. Cheap to clone.
#[derive(Clone, PartialEq, Debug)]
pub struct ReasoningBoard {
    /// Statements that may be true.
    pub hypotheses: Table<Hypothesis>,
    /// Evidence for and against hypotheses.
    pub evidence: Table<Evidence>,
    /// Statements held to be true.
    pub beliefs: Table<Belief>,
    /// Pairs of items that cannot both be true.
    pub contradictions: Table<Contradiction>,
    /// Open and answered questions.
    pub gaps: Table<Gap>,
    /// Checks that can be run.
    pub verifications: Table<Verification>,
    /// Results of checks.
    pub runs: Table<CheckRun>,
    /// Notes.
    pub notes: Table<Note>,
    /// Experiments on branches.
    pub experiments: Table<Experiment>,
}

impl Default for ReasoningBoard {
    fn default() -> Self {
        Self {
            hypotheses: Table::new(ItemKind::Hypothesis),
            evidence: Table::new(ItemKind::Evidence),
            beliefs: Table::new(ItemKind::Belief),
            contradictions: Table::new(ItemKind::Contradiction),
            gaps: Table::new(ItemKind::Gap),
            verifications: Table::new(ItemKind::Verification),
            runs: Table::new(ItemKind::Run),
            notes: Table::new(ItemKind::Note),
            experiments: Table::new(ItemKind::Experiment),
        }
    }
}

/// Runs the same code for every table of a mind.
macro_rules! each_table {
    ($mind:expr, $table:ident => $body:expr) => {{
        let mind = $mind;
        {
            let $table = &mind.hypotheses;
            $body
        }
        {
            let $table = &mind.evidence;
            $body
        }
        {
            let $table = &mind.beliefs;
            $body
        }
        {
            let $table = &mind.contradictions;
            $body
        }
        {
            let $table = &mind.gaps;
            $body
        }
        {
            let $table = &mind.verifications;
            $body
        }
        {
            let $table = &mind.runs;
            $body
        }
        {
            let $table = &mind.notes;
            $body
        }
        {
            let $table = &mind.experiments;
            $body
        }
    }};
}
pub(crate) use each_table;

impl ReasoningBoard {
    /// Whether it has no items.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// The number of items.
    pub fn count(&self) -> usize {
        let mut count = 0;
        each_table!(self, table => count += table.count());
        count
    }

    /// Checks that an item exists.
    pub fn expect(&self, item: ItemId) -> Result<(), MindError> {
        match item.kind {
            ItemKind::Hypothesis => self.hypotheses.require(item.number).map(drop),
            ItemKind::Evidence => self.evidence.require(item.number).map(drop),
            ItemKind::Belief => self.beliefs.require(item.number).map(drop),
            ItemKind::Contradiction => self.contradictions.require(item.number).map(drop),
            ItemKind::Gap => self.gaps.require(item.number).map(drop),
            ItemKind::Verification => self.verifications.require(item.number).map(drop),
            ItemKind::Run => self.runs.require(item.number).map(drop),
            ItemKind::Note => self.notes.require(item.number).map(drop),
            ItemKind::Experiment => self.experiments.require(item.number).map(drop),
        }
    }

    /// Where an item came from.
    pub fn origin_of(&self, item: ItemId) -> Option<&ItemOrigin> {
        let number = item.number;
        match item.kind {
            ItemKind::Hypothesis => self.hypotheses.get(number).map(|entry| &entry.origin),
            ItemKind::Evidence => self.evidence.get(number).map(|entry| &entry.origin),
            ItemKind::Belief => self.beliefs.get(number).map(|entry| &entry.origin),
            ItemKind::Contradiction => self.contradictions.get(number).map(|entry| &entry.origin),
            ItemKind::Gap => self.gaps.get(number).map(|entry| &entry.origin),
            ItemKind::Verification => self.verifications.get(number).map(|entry| &entry.origin),
            ItemKind::Run => self.runs.get(number).map(|entry| &entry.origin),
            ItemKind::Note => self.notes.get(number).map(|entry| &entry.origin),
            ItemKind::Experiment => self.experiments.get(number).map(|entry| &entry.origin),
        }
    }

    /// The text of an item; empty if it does not exist.
    pub fn text_of(&self, item: ItemId) -> String {
        let number = item.number;
        let text = match item.kind {
            ItemKind::Hypothesis => self.hypotheses.get(number).map(|entry| entry.statement.clone()),
            ItemKind::Evidence => self.evidence.get(number).map(|entry| entry.text.clone()),
            ItemKind::Belief => self.beliefs.get(number).map(|entry| entry.statement.clone()),
            ItemKind::Contradiction => self.contradictions.get(number).map(|entry| entry.reason.clone()),
            ItemKind::Gap => self.gaps.get(number).map(|entry| entry.question.clone()),
            ItemKind::Verification => self.verifications.get(number).map(|entry| entry.title.clone()),
            ItemKind::Run => self.runs.get(number).map(|entry| entry.reason.clone()),
            ItemKind::Note => self.notes.get(number).map(|entry| entry.text.clone()),
            ItemKind::Experiment => (self.experiments.get(number))
                .map(|entry| format!("branch {}: succeeds if {}", entry.branch, entry.success)),
        };
        text.unwrap_or_default()
    }

    /// One item as a document, with its computed values.
    pub fn document_of(&self, item: ItemId) -> Option<Value> {
        fn plain(item: Option<&impl serde::Serialize>) -> Option<Value> {
            item.map(|item| json!(item))
        }
        let number = item.number;
        let mut document = match item.kind {
            ItemKind::Hypothesis => plain(self.hypotheses.get(number)),
            ItemKind::Evidence => plain(self.evidence.get(number)),
            ItemKind::Belief => plain(self.beliefs.get(number)),
            ItemKind::Contradiction => plain(self.contradictions.get(number)),
            ItemKind::Gap => plain(self.gaps.get(number)),
            ItemKind::Verification => plain(self.verifications.get(number)),
            ItemKind::Run => plain(self.runs.get(number)),
            ItemKind::Note => plain(self.notes.get(number)),
            ItemKind::Experiment => plain(self.experiments.get(number)),
        }?;
        document["id"] = json!(item);
        Some(document)
    }

    /// The hypotheses that are special cases of this one, directly.
    pub fn children(&self, id: HypothesisId) -> Vec<HypothesisId> {
        let children = self.hypotheses.iter().filter(|(_, other)| other.parents.contains(&id));
        children.map(|(number, _)| HypothesisId(number)).collect()
    }

    /// All items that exist.
    pub fn items(&self) -> Vec<ItemId> {
        let mut items = Vec::new();
        each_table!(self, table => {
            items.extend(table.iter().map(|(number, _)| ItemId { kind: table.kind, number }));
        });
        items
    }

    /// Everything as one document: a list of each kind, with the computed values of hypotheses and beliefs.
    pub fn document(&self) -> Value {
        let confidences = self.confidences();
        let effective = self.effective();
        let mut lists = Map::new();
        for kind in ItemKind::ALL {
            lists.insert(kind.plural().to_owned(), Value::Array(Vec::new()));
        }
        for item in self.items() {
            let Some(mut document) = self.document_of(item) else { continue };
            match item.kind {
                ItemKind::Hypothesis => {
                    document["children"] = json!(self.children(HypothesisId(item.number)));
                    document["confidence"] = json!(confidences.get(&item.number).copied().unwrap_or(0.5));
                }
                ItemKind::Belief => {
                    document["effective_confidence"] =
                        json!(effective.get(&item.number).copied().unwrap_or(0.0));
                }
                _ => {}
            }
            if let Some(Value::Array(list)) = lists.get_mut(item.kind.plural()) {
                list.push(document);
            }
        }
        Value::Object(lists)
    }
}
