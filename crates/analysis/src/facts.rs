//! The numbers that all analyses start from: for each step of a session what it was, how long it took, what it used and how
//! large it was, without any of its content.
//!
//! The facts of a session are small (some tens of bytes for each step) and never change once recorded, so they are read from the details of
//! the steps once.

use serde::{Deserialize, Serialize};
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::marks::StepMark;

/// A name in [`SessionFacts::names`].
pub type NameIndex = u32;

/// The facts of one session, in the order of its steps.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SessionFacts {
    /// The workspace of the session; `None` only in the empty value.
    pub workspace: Option<WorkspaceId>,
    /// The session; `None` only in the empty value.
    pub session: Option<SessionId>,
    /// The agent's stable name.
    pub agent: String,
    /// The branch that the session works on, if it is not the first one.
    pub branch: Option<String>,
    /// Whether the session is a rerun of another one.
    pub is_rerun: bool,
    /// Names of tools, models, workers, calls, paths and programs, each once.
    pub names: Vec<String>,
    /// The steps, oldest first.
    pub steps: Vec<StepFact>,
    /// The model calls whose usage is known, in order. Calls that were recorded twice (by a proxy and in the agent's own
    /// conversation) are in it once.
    pub model_calls: Vec<ModelCallFact>,
}

/// What is known of one step.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StepFact {
    /// The step.
    pub id: StepId,
    /// Its number in the workspace.
    pub number: u64,
    /// The kind of step.
    pub kind: StepKind,
    /// When it happened.
    pub at: Timestamp,
    /// The model turn, counted from 1; 0 before the first one.
    pub iteration: u64,
    /// The sub-agent; `None` for the main agent.
    pub worker: Option<NameIndex>,
    /// The agent's id of the call that the step starts or ends; of a decision, the call that it is about.
    pub call: Option<NameIndex>,
    /// The tool or model.
    pub tool: Option<NameIndex>,
    /// The path or program that the call is about, if it has one.
    pub subject: Option<NameIndex>,
    /// Whether it failed.
    pub failed: bool,
    /// What the step says about who waits for whom.
    pub mark: StepMark,
    /// How long it took, in microseconds, as the agent reported or as its start and end tell. As it was recorded: without the time
    /// that the call waited at a breakpoint, but perhaps with the time that it waited for a permission.
    pub duration: Option<u64>,
    /// How long the call waited at a breakpoint, in microseconds.
    pub waited: u64,
    /// A fingerprint of the input ([`stepback_model::fingerprint::fingerprint_input`]), equal for calls that do the same; 0
    /// without one.
    pub input: u64,
    /// The fingerprint of the input that would take the call back, if it is an edit
    /// ([`stepback_model::fingerprint::fingerprint_inverse`]); 0 otherwise.
    pub inverse: u64,
    /// A fingerprint of the output or error ([`stepback_model::fingerprint::fingerprint_output`]), equal for outputs that differ in
    /// times, durations and ids only; 0 without one.
    pub output: u64,
    /// Size of the input, in bytes of its text.
    pub input_bytes: u64,
    /// Size of the output, in bytes of its text.
    pub output_bytes: u64,
    /// The first bytes of the state after the step: equal for equal files.
    pub state: u64,
    /// The step of the prompt that the session was working on, as an index into [`SessionFacts::steps`].
    pub prompt: Option<u32>,
}

/// One answer of a model, with what it used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelCallFact {
    /// The step that has it, as an index into [`SessionFacts::steps`]: the end of a model call, or, for usage that is only in the
    /// conversation, the last step before the answer.
    pub step: u32,
    /// Where the usage was recorded.
    pub source: UsageSource,
    /// The sub-agent; a sub-agent has a context of its own.
    pub worker: Option<NameIndex>,
    /// The model that answered.
    pub model: Option<NameIndex>,
    /// When the answer was complete.
    pub at: Timestamp,
    /// How long it took, in microseconds.
    pub duration: Option<u64>,
    /// Time until the first byte of the answer, in microseconds.
    pub first_byte: Option<u64>,
    /// Tokens, if they were recorded.
    pub tokens: Option<TokenUsage>,
    /// The cost in millionths of a dollar, if it was recorded or the model has a price; `None` is unknown, not nothing.
    pub cost: Option<u64>,
    /// Whether the answer came from a recording: no model was called.
    pub replayed: bool,
    /// What the request was made of, in bytes, if it was recorded.
    pub context: Option<ContextParts>,
}

/// Where the usage of a model call was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSource {
    /// A step that ends a model call: from a proxy, telemetry, a hook or the built-in agent.
    Step,
    /// The conversation that the agent keeps.
    Conversation,
}

/// What the request of a model call was made of, in bytes of text.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ContextParts {
    /// System prompts and instructions.
    pub system: u64,
    /// Descriptions of tools.
    pub tools: u64,
    /// Prompts of the user and texts that the agent added.
    pub user: u64,
    /// Earlier answers of the model, with the calls they request.
    pub assistant: u64,
    /// Results of tool calls, by tool.
    pub results: Vec<(NameIndex, u64)>,
    /// Images and other parts that are not text.
    pub other: u64,
}

impl SessionFacts {
    /// Returns the name at an index; empty if there is none.
    pub fn name(&self, index: Option<NameIndex>) -> &str {
        index.and_then(|index| self.names.get(index as usize)).map_or("", String::as_str)
    }
}
