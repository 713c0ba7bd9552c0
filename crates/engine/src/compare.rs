//! Two runs side by side: where they part, what each did, and how they end.
//!
//! A run is a [`Side`]: a list of steps, and the states it began and ended with. Where it comes from does not matter: a
//! session, a branch, a rerun in a workspace of its own, or a single point, which is a side without steps. Everything comes
//! out as data; how it looks is for whoever asked.
//!
//! Steps are aligned by what was done, not by number: one more call on one side does not make all later ones differ.
//! Directories that the sides ran in are taken out first, because a rerun has another one.

mod align;
mod ends;
mod reading;
mod side;
mod speech;
#[cfg(test)]
mod tests;
mod totals;
mod words;

use serde::Serialize;
use stepback_model::ids::StepId;
use stepback_model::json;
use stepback_model::object::ObjectSource;
use stepback_model::record::{Step, StepKind};

pub use ends::{Conversations, Ends, SlotDifference, ends};
pub use side::Side;
pub use totals::{Ending, Totals};

use self::reading::Reading;
use crate::error::EngineError;

/// How many differing parts of the first step that differs are listed.
const PARTS: usize = 50;
/// Longest text in such a part, in characters.
const TEXT: usize = 2000;

/// Everything in which two runs differ, and what they have in common.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// What the first one did, in numbers.
    pub a: Totals,
    /// What the second one did.
    pub b: Totals,
    /// The differences in a few sentences.
    pub summary: Vec<String>,
    /// Where they part first; `None` if all steps are the same.
    pub first_difference: Option<FirstDifference>,
    /// How many rows there are of each kind.
    pub counts: Counts,
    /// The steps of both, aligned, oldest first.
    #[serde(rename = "items")]
    pub rows: Vec<Row>,
    /// Files, memory and conversation at the end.
    #[serde(flatten)]
    pub ends: Ends,
}

/// Rows, counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counts {
    /// Steps that are the same on both sides.
    pub same: u64,
    /// Steps that stand for each other and differ.
    pub differ: u64,
    /// Steps that only the first side has.
    pub only_a: u64,
    /// Steps that only the second side has.
    pub only_b: u64,
}

/// A step of one side, of the other, or of both.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Row {
    /// The step of the first side.
    pub a: Option<Entry>,
    /// The step of the second side.
    pub b: Option<Entry>,
    /// In what they differ; nothing if they are the same.
    pub differs: Vec<Part>,
}

impl Row {
    /// Whether both sides have the step, and it is the same.
    pub fn is_same(&self) -> bool {
        self.differs.is_empty()
    }
}

/// In what two steps differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Only the first side has such a step.
    OnlyA,
    /// Only the second side has such a step.
    OnlyB,
    /// Another tool or model.
    Tool,
    /// Another input.
    Input,
    /// Another output or answer.
    Output,
    /// One went wrong, the other did not.
    Outcome,
    /// Another description.
    Summary,
}

/// A step, as far as a list shows it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Entry {
    /// Its id.
    pub id: StepId,
    /// Its number in its workspace.
    pub number: u64,
    /// What it is.
    pub kind: StepKind,
    /// The tool or model.
    pub tool: Option<String>,
    /// One line for people.
    pub summary: String,
    /// Whether it went wrong.
    pub failed: bool,
}

impl Entry {
    fn of(step: &Step) -> Self {
        Self {
            id: step.id,
            number: step.number,
            kind: step.kind,
            tool: step.facts.tool.clone(),
            summary: step.summary.clone(),
            failed: step.facts.failed,
        }
    }
}

/// Where two runs part first.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FirstDifference {
    /// Which row it is, counted from 0.
    pub row: usize,
    /// The number of the step on the first side.
    pub a: Option<u64>,
    /// The number of the step on the second side.
    pub b: Option<u64>,
    /// In what they differ.
    pub differs: Vec<Part>,
    /// What exactly differs in input, output and error, with the place of each as a JSON pointer; not for what models say.
    pub parts: Vec<json::Difference>,
}

/// Compares two runs whose objects are in one store.
pub fn compare(source: &dyn ObjectSource, a: &Side, b: &Side) -> Result<Comparison, EngineError> {
    let (read_a, read_b) = (Reading::of(source, a)?, Reading::of(source, b)?);
    let (rows, pairs): (Vec<Row>, Vec<_>) = align::align(&read_a.keys(), &read_b.keys())
        .into_iter()
        .map(|(left, right)| {
            let entry = |side: &Side, at: Option<usize>| at.map(|at| Entry::of(&side.steps[at]));
            let differs = match (left, right) {
                (Some(left), Some(right)) => read_a.prints[left].differs(&read_b.prints[right]),
                (Some(_), None) => vec![Part::OnlyA],
                (None, _) => vec![Part::OnlyB],
            };
            (Row { a: entry(a, left), b: entry(b, right), differs }, (left, right))
        })
        .unzip();
    let first = rows.iter().position(|row| !row.is_same());
    let first_difference = match first {
        None => None,
        Some(row) => {
            let (left, right) = pairs[row];
            Some(FirstDifference {
                row,
                a: left.map(|at| a.steps[at].number),
                b: right.map(|at| b.steps[at].number),
                differs: rows[row].differs.clone(),
                parts: match (left, right) {
                    (Some(left), Some(right)) => parts(source, (a, &a.steps[left]), (b, &b.steps[right]))?,
                    _ => Vec::new(),
                },
            })
        }
    };
    let ends = ends(source, a, b)?;
    let mut comparison = Comparison {
        a: Totals::of(a, &read_a, ends.conversation.a),
        b: Totals::of(b, &read_b, ends.conversation.b),
        summary: Vec::new(),
        first_difference,
        counts: counts(&rows),
        rows,
        ends,
    };
    comparison.summary = words::sentences(&comparison);
    Ok(comparison)
}

fn counts(rows: &[Row]) -> Counts {
    let mut counts = Counts::default();
    for row in rows {
        match row.differs.first() {
            None => counts.same += 1,
            Some(Part::OnlyA) => counts.only_a += 1,
            Some(Part::OnlyB) => counts.only_b += 1,
            Some(_) => counts.differ += 1,
        }
    }
    counts
}

/// What differs in input, output and error of two steps.
fn parts(
    source: &dyn ObjectSource,
    (a, left): (&Side, &Step),
    (b, right): (&Side, &Step),
) -> Result<Vec<json::Difference>, EngineError> {
    let asks_model = matches!(left.kind, StepKind::ModelStart | StepKind::ModelEnd);
    let (Some(before), Some(after), false) = (left.facts.detail, right.facts.detail, asks_model) else {
        return Ok(Vec::new());
    };
    let mut found = json::diff(source, before, after).map_err(side::unreadable)?;
    found.retain(|part| {
        let top = part.pointer.split('/').nth(1);
        let is_said = matches!(top, Some("input" | "output" | "error"));
        let shown = |side: &Side, value: &Option<_>| value.as_ref().map(|value| side.normal(value));
        is_said && shown(a, &part.before) != shown(b, &part.after)
    });
    found.truncate(PARTS);
    for part in &mut found {
        part.before.as_mut().map(shorten);
        part.after.as_mut().map(shorten);
    }
    Ok(found)
}

/// Cuts a long text.
fn shorten(value: &mut serde_json::Value) {
    if let serde_json::Value::String(text) = value
        && let Some((at, _)) = text.char_indices().nth(TEXT)
    {
        text.truncate(at);
        text.push('…');
    }
}
