//! Compares two runs: where they diverge, what each did, and how they end.
//!
//! A run is a [`ComparedRun`]: a list of steps, and the states it began and ended with. Its origin does not matter: a session, a
//! branch, a rerun in a workspace of its own, or a single point, which is a side without steps. The result is plain data; the
//! caller decides how to show it.
//!
//! Steps are aligned by what was done, not by number: one more call on one side does not make all later ones differ. The
//! directories that the sides ran in are removed from texts first, because a rerun has another one.

mod align;
mod ends;
mod reading;
mod side;
mod speech;
#[cfg(test)]
mod tests;
mod tips;
mod totals;
mod words;

use serde::Serialize;
use stepback_model::ids::StepId;
use stepback_model::json;
use stepback_model::object::ObjectSource;
use stepback_model::record::{Step, StepKind};

pub use ends::{Conversations, Ends, SlotDifference};
pub use side::{ComparedRun, RunFork};
pub use tips::{TipComparison, compare_tips};
pub use totals::{Ending, Totals};

use self::ends::compare_ends;
use self::reading::SideSummary;
use crate::error::HistoryError;

/// Maximum number of differing parts listed for the first step that differs.
const PARTS: usize = 50;
/// Longest text in such a part, in characters.
const TEXT: usize = 2000;

/// All differences between two runs, and what they have in common.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Totals of the first side.
    pub a: Totals,
    /// Totals of the second side.
    pub b: Totals,
    /// The differences in a few sentences.
    pub summary: Vec<String>,
    /// The first difference; `None` if all steps are the same.
    pub first_difference: Option<FirstDifference>,
    /// Number of rows of each kind.
    pub counts: RowCounts,
    /// The steps of both, aligned, oldest first.
    #[serde(rename = "items")]
    pub rows: Vec<ComparisonRow>,
    /// Files, memory and conversation at the end.
    #[serde(flatten)]
    pub ends: Ends,
}

/// Numbers of rows, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct RowCounts {
    /// Steps that are equal on both sides.
    pub same: u64,
    /// Steps that are paired and differ.
    pub differ: u64,
    /// Steps that only the first side has.
    pub only_a: u64,
    /// Steps that only the second side has.
    pub only_b: u64,
}

/// A step of one side, of the other, or of both.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ComparisonRow {
    /// The step of the first side; `None` if only the second has it.
    pub a: Option<ComparedStep>,
    /// The step of the second side; `None` if only the first has it.
    pub b: Option<ComparedStep>,
    /// How they differ; empty if they are equal.
    pub differs: Vec<StepDifference>,
}

impl ComparisonRow {
    /// Whether both sides have the step and it is equal.
    pub fn is_same(&self) -> bool {
        self.differs.is_empty()
    }
}

/// One way in which two steps differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepDifference {
    /// Only the first side has such a step.
    OnlyA,
    /// Only the second side has such a step.
    OnlyB,
    /// The tool or model differs.
    Tool,
    /// The input differs.
    Input,
    /// The output or answer differs.
    Output,
    /// One failed, the other did not.
    Outcome,
    /// The description differs.
    Summary,
}

/// The data of a step that a list shows.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ComparedStep {
    /// Id of the step.
    pub id: StepId,
    /// Its number in its workspace.
    pub number: u64,
    /// Kind of the step.
    pub kind: StepKind,
    /// Name of the tool or model, if there is one.
    pub tool: Option<String>,
    /// One-line description.
    pub summary: String,
    /// Whether it failed.
    pub failed: bool,
}

impl ComparedStep {
    fn from_step(step: &Step) -> Self {
        Self {
            id: step.id,
            number: step.number,
            kind: step.kind,
            tool: step.meta.tool.clone(),
            summary: step.summary.clone(),
            failed: step.meta.failed,
        }
    }
}

/// The first difference between two runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FirstDifference {
    /// Index of the row, from 0.
    pub row: usize,
    /// Number of the step on the first side; `None` if only the second has it.
    pub a: Option<u64>,
    /// Number of the step on the second side; `None` if only the first has it.
    pub b: Option<u64>,
    /// How the two steps differ.
    pub differs: Vec<StepDifference>,
    /// The exact differences in input, output and error, each with its JSON pointer; empty for requests to models and their
    /// answers.
    pub parts: Vec<json::ValueDifference>,
}

/// Compares two runs whose objects are in one store. If one was forked from the other, they are compared from the fork on.
pub fn compare(
    source: &dyn ObjectSource,
    a: &ComparedRun,
    b: &ComparedRun,
) -> Result<Comparison, HistoryError> {
    let (part_a, part_b) = (a.part_for(b), b.part_for(a));
    let (a, b) = (&*part_a, &*part_b);
    let (read_a, read_b) = (SideSummary::read(source, a)?, SideSummary::read(source, b)?);
    let (rows, pairs): (Vec<ComparisonRow>, Vec<_>) =
        align::align(&read_a.alignment_keys(), &read_b.alignment_keys())
            .into_iter()
            .map(|(left, right)| {
                let entry = |side: &ComparedRun, index: Option<usize>| {
                    index.map(|index| ComparedStep::from_step(&side.steps[index]))
                };
                let differs = match (left, right) {
                    (Some(left), Some(right)) => {
                        read_a.fingerprints[left].differences(&read_b.fingerprints[right])
                    }
                    (Some(_), None) => vec![StepDifference::OnlyA],
                    (None, _) => vec![StepDifference::OnlyB],
                };
                (ComparisonRow { a: entry(a, left), b: entry(b, right), differs }, (left, right))
            })
            .unzip();
    let first = rows.iter().position(|row| !row.is_same());
    let first_difference = match first {
        None => None,
        Some(row) => {
            let (left, right) = pairs[row];
            Some(FirstDifference {
                row,
                a: left.map(|index| a.steps[index].number),
                b: right.map(|index| b.steps[index].number),
                differs: rows[row].differs.clone(),
                parts: match (left, right) {
                    (Some(left), Some(right)) => {
                        compare_details(source, (a, &a.steps[left]), (b, &b.steps[right]))?
                    }
                    _ => Vec::new(),
                },
            })
        }
    };
    let ends = compare_ends(source, a, b)?;
    let mut comparison = Comparison {
        a: Totals::compute(a, &read_a, ends.conversation.a),
        b: Totals::compute(b, &read_b, ends.conversation.b),
        summary: Vec::new(),
        first_difference,
        counts: count_rows(&rows),
        rows,
        ends,
    };
    comparison.summary = words::summarize(&comparison);
    Ok(comparison)
}

fn count_rows(rows: &[ComparisonRow]) -> RowCounts {
    let mut counts = RowCounts::default();
    for row in rows {
        match row.differs.first() {
            None => counts.same += 1,
            Some(StepDifference::OnlyA) => counts.only_a += 1,
            Some(StepDifference::OnlyB) => counts.only_b += 1,
            Some(_) => counts.differ += 1,
        }
    }
    counts
}

/// Returns the differences in input, output and error of two steps.
fn compare_details(
    source: &dyn ObjectSource,
    (a, left): (&ComparedRun, &Step),
    (b, right): (&ComparedRun, &Step),
) -> Result<Vec<json::ValueDifference>, HistoryError> {
    let asks_model = matches!(left.kind, StepKind::ModelStart | StepKind::ModelEnd);
    let (Some(left_detail), Some(right_detail), false) = (left.meta.detail, right.meta.detail, asks_model)
    else {
        return Ok(Vec::new());
    };
    let mut differences = json::diff(source, left_detail, right_detail)?;
    differences.retain(|part| {
        let top = part.pointer.split('/').nth(1);
        let is_said = matches!(top, Some("input" | "output" | "error"));
        let clip =
            |side: &ComparedRun, value: &Option<_>| value.as_ref().map(|value| side.normalize_value(value));
        is_said && clip(a, &part.before) != clip(b, &part.after)
    });
    differences.truncate(PARTS);
    for part in &mut differences {
        part.before.as_mut().map(shorten_text);
        part.after.as_mut().map(shorten_text);
    }
    Ok(differences)
}

/// Cuts a text to [`TEXT`] characters.
fn shorten_text(value: &mut serde_json::Value) {
    if let serde_json::Value::String(text) = value
        && let Some((offset, _)) = text.char_indices().nth(TEXT)
    {
        text.truncate(offset);
        text.push('…');
    }
}
