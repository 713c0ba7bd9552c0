//! What an agent thought, as documents: the board of a moment, and what changed on it.

mod describe;

use serde::Serialize;
use serde_json::Value;
use stepback_model::time::Timestamp;
use stepback_store::port::StoredCheckpoint;
use utoipa::ToSchema;

pub use self::describe::Describer;

/// The step at which a thought was recorded.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ThoughtDocument {
    /// Its number.
    pub number: u64,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// What was thought, in a sentence.
    pub summary: String,
}

impl ThoughtDocument {
    /// Of a row.
    pub fn of(stored: &StoredCheckpoint) -> Self {
        let step = &stored.checkpoint.step;
        Self { number: step.number, at: step.at, summary: step.summary.clone() }
    }
}

/// Where something on a board came from.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct OriginDocument {
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The number of the step that recorded it; none if that step is gone.
    pub step: Option<u64>,
    /// The number of the step at which the call began that was going on.
    pub during: Option<u64>,
}

/// Where evidence comes from.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SourceDocument {
    /// `tool`, `code`, `documentation`, `reasoning` or `verification`.
    pub kind: String,
    /// Which tool, file and line, document, or verification.
    pub text: String,
    /// The number of the step of the call.
    pub step: Option<u64>,
}

/// What an item has to do with another one.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MindLinkDocument {
    /// The other item.
    pub to: String,
    /// How: `for`, `of`, `requires`, `derived-from`, `caused-by`, `supported-by`, `excludes`, `contradicts`, `blocks`, `after`,
    /// `about`.
    pub how: String,
    /// How much, from 0 to 1, if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Something on a board.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MindItemDocument {
    /// Its name, such as `H2`.
    pub id: String,
    /// `hypothesis`, `evidence`, `belief`, `contradiction`, `gap`, `verification`, `run`, `note` or `experiment`.
    pub kind: String,
    /// How it stands, in the word of its kind: `active`, `held`, `open`, `passed`, …
    pub status: String,
    /// What it says.
    pub text: String,
    /// What sort of its kind it is: `assumption`, `cause`, `test`, …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sort: Option<String>,
    /// How much depends on it: the severity of a contradiction, the criticality of a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<String>,
    /// How likely a hypothesis is by its evidence, or how sure a belief is by what it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confidence: Option<f64>,
    /// The same without evidence, or without what it rests on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// How strongly evidence speaks for (to 1) or against (to -1) its hypothesis.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strength: Option<f64>,
    /// What else is to be said: why it was concluded, the answer, what could be done, what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub more: Option<String>,
    /// Where evidence comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceDocument>,
    /// What it has to do with others.
    pub links: Vec<MindLinkDocument>,
    /// Words to find it by.
    pub tags: Vec<String>,
    /// Where it came from.
    pub origin: OriginDocument,
    /// What last changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<OriginDocument>,
    /// What happened to it since the moment that is compared with: `added` or `changed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// All of it, as it is stored.
    #[schema(value_type = Object)]
    pub whole: Value,
}

/// Something on a board that is not as it was.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MindChangeDocument {
    /// Its name.
    pub item: String,
    /// `added`, `changed` or `removed`.
    pub change: String,
    /// What happened to it.
    pub sentence: String,
}

/// The items of one kind: the first of them.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MindPartDocument {
    /// `hypotheses`, `evidence`, `beliefs`, `contradictions`, `gaps`, `verifications`, `runs`, `notes` or `experiments`.
    pub name: String,
    /// How many there are.
    pub total: u64,
    /// The most important of them.
    pub items: Vec<MindItemDocument>,
    /// Where `/mind/{part}` goes on; none if all are here.
    pub next_cursor: Option<String>,
}

/// What could be done next.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct NextDocument {
    /// What it is about.
    pub item: String,
    /// What to do.
    pub what: String,
    /// Why.
    pub why: String,
    /// A command that does it.
    pub command: String,
}

/// What a session thought at a moment.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MindDocument {
    /// The session.
    pub session: String,
    /// The thought that made the board what it is; none if nothing had been thought yet.
    pub step: Option<ThoughtDocument>,
    /// The thought that made it what it is compared with; none if nothing had been thought by then.
    pub against: Option<ThoughtDocument>,
    /// What changed since, in a sentence.
    pub summary: String,
    /// What changed since: the first 200.
    pub changes: Vec<MindChangeDocument>,
    /// How many changed.
    pub changed: u64,
    /// What is on the board.
    pub parts: Vec<MindPartDocument>,
    /// What could be done next, the best first.
    pub next: Vec<NextDocument>,
}

/// A line between two items.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MindEdgeDocument {
    /// What rests on the other, belongs to it, or contradicts it.
    pub from: String,
    /// How and to what.
    #[serde(flatten)]
    pub link: MindLinkDocument,
}

/// What rests on what, for drawing.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct MindGraphDocument {
    /// Beliefs and hypotheses.
    pub nodes: Vec<MindItemDocument>,
    /// The lines between them.
    pub edges: Vec<MindEdgeDocument>,
    /// How many had no room.
    pub left_out: u64,
}

/// What became of one hypothesis, in columns; an entry holds until the next.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ConfidenceLineDocument {
    /// The hypothesis.
    pub hypothesis: String,
    /// What it says; the last that it said, if it was taken back.
    pub text: String,
    /// At which moments something changed, as places among them.
    pub at: Vec<u64>,
    /// How likely it was from there on; nothing once it was taken back.
    pub confidence: Vec<Option<f64>>,
    /// How far it had got.
    pub status: Vec<Option<String>>,
}

/// How sure a session was of its hypotheses over time.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct ConfidenceDocument {
    /// The session.
    pub session: String,
    /// How many thoughts there were.
    pub thoughts: u64,
    /// Every how many of them there is a moment; 1 if none was left out.
    pub every: u64,
    /// The numbers of the steps of the moments, oldest first.
    pub number: Vec<u64>,
    /// When they were.
    #[schema(value_type = Vec<String>, format = DateTime)]
    pub at: Vec<Timestamp>,
    /// Hypotheses, the most important first.
    pub lines: Vec<ConfidenceLineDocument>,
    /// How many hypotheses had no room.
    pub left_out: u64,
}
