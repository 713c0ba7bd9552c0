//! A mind: the complete reasoning state of an agent at one moment.

use serde_json::{Map, Value, json};

use crate::error::MindError;
use crate::ids::{Item, Kind};
use crate::item::{
    Belief, Contradiction, Evidence, Experiment, Gap, Hypothesis, Note, Origin, Run, Verification,
};
use crate::paged_table::Table;

/// The complete reasoning state of an agent at one moment. Cheap to clone.
#[derive(Clone, PartialEq, Debug)]
pub struct Mind {
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
    pub runs: Table<Run>,
    /// Notes.
    pub notes: Table<Note>,
    /// Experiments on branches.
    pub experiments: Table<Experiment>,
}

impl Default for Mind {
    fn default() -> Self {
        Self {
            hypotheses: Table::new(Kind::Hypothesis),
            evidence: Table::new(Kind::Evidence),
            beliefs: Table::new(Kind::Belief),
            contradictions: Table::new(Kind::Contradiction),
            gaps: Table::new(Kind::Gap),
            verifications: Table::new(Kind::Verification),
            runs: Table::new(Kind::Run),
            notes: Table::new(Kind::Note),
            experiments: Table::new(Kind::Experiment),
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

impl Mind {
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
    pub fn expect(&self, item: Item) -> Result<(), MindError> {
        match item.kind {
            Kind::Hypothesis => self.hypotheses.known(item.number).map(drop),
            Kind::Evidence => self.evidence.known(item.number).map(drop),
            Kind::Belief => self.beliefs.known(item.number).map(drop),
            Kind::Contradiction => self.contradictions.known(item.number).map(drop),
            Kind::Gap => self.gaps.known(item.number).map(drop),
            Kind::Verification => self.verifications.known(item.number).map(drop),
            Kind::Run => self.runs.known(item.number).map(drop),
            Kind::Note => self.notes.known(item.number).map(drop),
            Kind::Experiment => self.experiments.known(item.number).map(drop),
        }
    }

    /// Where an item came from.
    pub fn origin_of(&self, item: Item) -> Option<&Origin> {
        let number = item.number;
        match item.kind {
            Kind::Hypothesis => self.hypotheses.get(number).map(|known| &known.origin),
            Kind::Evidence => self.evidence.get(number).map(|known| &known.origin),
            Kind::Belief => self.beliefs.get(number).map(|known| &known.origin),
            Kind::Contradiction => self.contradictions.get(number).map(|known| &known.origin),
            Kind::Gap => self.gaps.get(number).map(|known| &known.origin),
            Kind::Verification => self.verifications.get(number).map(|known| &known.origin),
            Kind::Run => self.runs.get(number).map(|known| &known.origin),
            Kind::Note => self.notes.get(number).map(|known| &known.origin),
            Kind::Experiment => self.experiments.get(number).map(|known| &known.origin),
        }
    }

    /// The text of an item; empty if it does not exist.
    pub fn text_of(&self, item: Item) -> String {
        let number = item.number;
        let text = match item.kind {
            Kind::Hypothesis => self.hypotheses.get(number).map(|known| known.statement.clone()),
            Kind::Evidence => self.evidence.get(number).map(|known| known.text.clone()),
            Kind::Belief => self.beliefs.get(number).map(|known| known.statement.clone()),
            Kind::Contradiction => self.contradictions.get(number).map(|known| known.reason.clone()),
            Kind::Gap => self.gaps.get(number).map(|known| known.question.clone()),
            Kind::Verification => self.verifications.get(number).map(|known| known.title.clone()),
            Kind::Run => self.runs.get(number).map(|known| known.reason.clone()),
            Kind::Note => self.notes.get(number).map(|known| known.text.clone()),
            Kind::Experiment => (self.experiments.get(number))
                .map(|known| format!("branch {}: succeeds if {}", known.branch, known.success)),
        };
        text.unwrap_or_default()
    }

    /// One item as a document, with its computed values.
    pub fn document_of(&self, item: Item) -> Option<Value> {
        fn plain(item: Option<&impl serde::Serialize>) -> Option<Value> {
            item.map(|item| json!(item))
        }
        let number = item.number;
        let mut document = match item.kind {
            Kind::Hypothesis => plain(self.hypotheses.get(number)),
            Kind::Evidence => plain(self.evidence.get(number)),
            Kind::Belief => plain(self.beliefs.get(number)),
            Kind::Contradiction => plain(self.contradictions.get(number)),
            Kind::Gap => plain(self.gaps.get(number)),
            Kind::Verification => plain(self.verifications.get(number)),
            Kind::Run => plain(self.runs.get(number)),
            Kind::Note => plain(self.notes.get(number)),
            Kind::Experiment => plain(self.experiments.get(number)),
        }?;
        document["id"] = json!(item);
        Some(document)
    }

    /// All items that exist.
    pub fn items(&self) -> Vec<Item> {
        let mut items = Vec::new();
        each_table!(self, table => {
            items.extend(table.iter().map(|(number, _)| Item { kind: table.kind, number }));
        });
        items
    }

    /// Everything as one document: a list of each kind, with the computed values of hypotheses and beliefs.
    pub fn document(&self) -> Value {
        let confidences = self.confidences();
        let effective = self.effective();
        let mut lists = Map::new();
        for kind in Kind::ALL {
            lists.insert(kind.plural().to_owned(), Value::Array(Vec::new()));
        }
        for item in self.items() {
            let Some(mut document) = self.document_of(item) else { continue };
            match item.kind {
                Kind::Hypothesis => {
                    document["confidence"] = json!(confidences.get(&item.number).copied().unwrap_or(0.5));
                }
                Kind::Belief => {
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
