//! An agent's reasoning: its board at a moment, what changed on it, and its confidence over time.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::record::StepRow;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// The step at which a thought was recorded.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ThoughtDocument {
    /// The number of the step.
    pub number: u64,
    /// When it was recorded.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The thought in one sentence.
    pub summary: String,
}

impl ThoughtDocument {
    /// The document of a step.
    pub fn from_row(stored: &StepRow) -> Self {
        let step = &stored.step;
        Self { number: step.number, at: step.at, summary: step.summary.clone() }
    }
}

/// The origin of an item on a board.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ItemOriginDocument {
    /// When it was recorded.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The number of the step that recorded it; none if that step is gone.
    pub step: Option<u64>,
    /// The number of the step at which the enclosing call began; none if there was no call, or that step is gone.
    pub during: Option<u64>,
}

/// The source of evidence.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct EvidenceSourceDocument {
    /// `tool`, `code`, `documentation`, `reasoning` or `verification`.
    pub kind: String,
    /// The tool, file and line, document, or verification.
    pub text: String,
    /// The number of the step of the call, if it is known.
    pub step: Option<u64>,
}

/// A link from an item to another one.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardLinkDocument {
    /// The id of the other item.
    pub to: String,
    /// The type of link: `for`, `of`, `requires`, `derived-from`, `caused-by`, `supported-by`, `excludes`, `contradicts`,
    /// `blocks`, `after`, `about`.
    pub how: String,
    /// The strength from 0 to 1, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// The reason for the link, if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// An item on a board.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardItemDocument {
    /// The id, such as `H2`.
    pub id: String,
    /// `hypothesis`, `evidence`, `belief`, `contradiction`, `gap`, `verification`, `run`, `note` or `experiment`.
    pub kind: String,
    /// The status, in the terms of its kind: `active`, `held`, `open`, `passed`, …
    pub status: String,
    /// The text of the item.
    pub text: String,
    /// The subtype within its kind: `assumption`, `cause`, `test`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<String>,
    /// The severity of a contradiction, or the criticality of a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// The confidence in a hypothesis given its evidence, or in a belief given what it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The confidence without evidence, or without what it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// How strongly evidence supports (up to 1) or refutes (down to -1) its hypothesis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// Further text: why it was concluded, the answer, what could be done, or the result.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
    /// The source of evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<EvidenceSourceDocument>,
    /// Links to other items.
    pub links: Vec<BoardLinkDocument>,
    /// Tags to find it by.
    pub tags: Vec<String>,
    /// Where it came from.
    pub origin: ItemOriginDocument,
    /// The origin of its last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<ItemOriginDocument>,
    /// What happened to it since the moment compared with: `added` or `changed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// The whole item, as it is stored.
    #[schema(value_type = Object)]
    pub whole: Value,
}

/// A change on a board.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardChangeDocument {
    /// The id of the item.
    pub item: String,
    /// `added`, `changed` or `removed`.
    pub change: String,
    /// The change in one sentence.
    pub sentence: String,
}

/// The first items of one kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardPartDocument {
    /// `hypotheses`, `evidence`, `beliefs`, `contradictions`, `gaps`, `verifications`, `runs`, `notes` or `experiments`.
    pub name: String,
    /// Number of items of this kind.
    pub total: u64,
    /// The most important items.
    pub items: Vec<BoardItemDocument>,
    /// The cursor with which `/mind/{part}` continues; none if all items are here.
    pub next_cursor: Option<String>,
}

/// A suggested next action.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct NextActionDocument {
    /// The id of the item that it concerns.
    pub item: String,
    /// What to do.
    pub what: String,
    /// Why to do it.
    pub why: String,
    /// A command that does it.
    pub command: String,
}

/// The mind of a session at a moment.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardDocument {
    /// The id of the session.
    pub session: String,
    /// The last thought before the moment; none if there was none yet.
    pub step: Option<ThoughtDocument>,
    /// The last thought before the moment compared with; none if there was none yet.
    pub against: Option<ThoughtDocument>,
    /// The changes between the two moments in one sentence.
    pub summary: String,
    /// The changes between the two moments: the first 200.
    pub changes: Vec<BoardChangeDocument>,
    /// Number of all changes.
    pub changed: u64,
    /// The items on the board, by kind.
    pub parts: Vec<BoardPartDocument>,
    /// Suggested next actions, the best first.
    pub next: Vec<NextActionDocument>,
    /// Numbers of what is on the board, and of the session: `checkpoints`, `seconds_spent` and `checkpoints_per_hour`.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub metrics: Value,
}

/// An edge between two items of a graph.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardEdgeDocument {
    /// The id of the item that rests on the other, belongs to it, or contradicts it.
    pub from: String,
    /// The other item, and the type of link.
    #[serde(flatten)]
    pub link: BoardLinkDocument,
}

/// A graph of what rests on what.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BoardGraphDocument {
    /// Beliefs and hypotheses.
    pub nodes: Vec<BoardItemDocument>,
    /// The edges between them.
    pub edges: Vec<BoardEdgeDocument>,
    /// Number of items left out because of the limit.
    pub left_out: u64,
}

/// The history of one hypothesis, in columns; an entry is valid until the next.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ConfidenceLineDocument {
    /// The id of the hypothesis.
    pub hypothesis: String,
    /// The statement; the last one if the hypothesis was taken back.
    pub text: String,
    /// The moments at which something changed, as indexes into those of the document.
    pub at: Vec<u64>,
    /// The confidence from there on; null once it was taken back.
    pub confidence: Vec<Option<f64>>,
    /// The status from there on; null once it was taken back.
    pub status: Vec<Option<String>>,
}

/// The confidence of a session in its hypotheses over time.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ConfidenceDocument {
    /// The id of the session.
    pub session: String,
    /// Number of thoughts.
    pub thoughts: u64,
    /// The sampling interval: there is a moment for every so many thoughts; 1 if all are included.
    pub every: u64,
    /// The step numbers of the moments, oldest first.
    pub number: Vec<u64>,
    /// The times of the moments.
    #[schema(value_type = Vec<String>, format = DateTime)]
    pub at: Vec<Timestamp>,
    /// The hypotheses, the most important first.
    pub lines: Vec<ConfidenceLineDocument>,
    /// Number of hypotheses left out because of the limit.
    pub left_out: u64,
}

impl ConfidenceDocument {
    /// Returns the confidence in a hypothesis at `points` moments up to a step, the last of them at that step. `None`
    /// before the hypothesis was proposed.
    pub fn sample_up_to(&self, hypothesis: &str, step: u64, points: usize) -> Vec<Option<f64>> {
        let moments = self.number.partition_point(|number| *number <= step);
        let line = self.lines.iter().find(|line| line.hypothesis == hypothesis);
        let (Some(line), true) = (line, moments > 0) else { return Vec::new() };
        let points = points.min(moments);
        let at = |point: usize| {
            let moment = (point + 1) * moments / points - 1;
            let entry = line.at.partition_point(|at| *at <= moment as u64).checked_sub(1)?;
            line.confidence.get(entry).copied().flatten()
        };
        (0..points).map(at).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_followed_up_to_a_step() {
        let confidence = ConfidenceDocument {
            number: vec![10, 20, 30, 40],
            lines: vec![ConfidenceLineDocument {
                hypothesis: "H1".into(),
                at: vec![1, 3],
                confidence: vec![Some(0.5), Some(0.9)],
                ..ConfidenceLineDocument::default()
            }],
            ..ConfidenceDocument::default()
        };
        assert_eq!(confidence.sample_up_to("H1", 40, 4), [None, Some(0.5), Some(0.5), Some(0.9)]);
        assert_eq!(confidence.sample_up_to("H1", 35, 8), [None, Some(0.5), Some(0.5)]);
        assert_eq!(confidence.sample_up_to("H1", 99, 2), [Some(0.5), Some(0.9)]);
        assert_eq!(confidence.sample_up_to("H1", 9, 4), []);
        assert_eq!(confidence.sample_up_to("H2", 40, 4), []);
    }
}
