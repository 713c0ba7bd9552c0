//! What an agent reported, in words that are the same for every agent.
//!
//! A hook, an import or a proxy turns what it saw into events; the engine turns events into steps. The original is kept
//! beside it, so that nothing an agent says is lost because nobody knew it yet.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::StepKind;
use crate::time::Timestamp;

/// Something that went wrong, as it was reported.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Trouble {
    /// What kind of error, if it has a name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// What it said.
    pub message: String,
    /// The stack, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub stack: Option<String>,
    /// What caused it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cause: Option<String>,
}

/// One thing an agent reported.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// The agent's stable name.
    pub agent: String,
    /// The agent's own id of the session.
    pub session: String,
    /// What happened.
    pub kind: StepKind,
    /// When, if the agent says so; else the moment of arrival.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub at: Option<Timestamp>,
    /// What tells two events of the same kind apart (a call id, a prompt id): the same event delivered twice is recorded once.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The id by which the start and the end of a call are paired.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub call: Option<String>,
    /// The tool or model.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tool: Option<String>,
    /// The sub-agent that did it, if it was not the main one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worker: Option<String>,
    /// One line for people.
    pub summary: String,
    /// What went in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub input: Option<Value>,
    /// What came out.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub output: Option<Value>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<Trouble>,
    /// How long it took, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub duration: Option<u64>,
    /// Tokens and cost, trace ids, and whatever else is known by name.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub metadata: Option<Value>,
    /// The report as it came, where it says more than the fields above.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub raw: Option<Value>,
}

impl Event {
    /// An event of which nothing else is known.
    pub fn new(agent: &str, session: &str, kind: StepKind, summary: impl Into<String>) -> Self {
        Self {
            agent: agent.to_owned(),
            session: session.to_owned(),
            kind,
            at: None,
            key: None,
            call: None,
            tool: None,
            worker: None,
            summary: summary.into(),
            input: None,
            output: None,
            error: None,
            duration: None,
            metadata: None,
            raw: None,
        }
    }
}
