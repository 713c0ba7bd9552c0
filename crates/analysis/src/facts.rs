//! The numbers that all analyses start from: for each step of a session what it was, how long it took, what it used and how
//! large it was, without any of its content.
//!
//! The facts of a session are small (some tens of bytes for each step) and never change once recorded, so they are read from the
//! details of the steps once and kept; see [`crate::load`].

use serde::{Deserialize, Serialize};
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::marks::StepMark;

/// A name in [`SessionFacts::names`].
pub type NameIndex = u32;

/// The facts of one session, in the order of its steps.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
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
    /// Whether the session was imported from the agent's own record instead of being recorded live.
    pub is_imported: bool,
    /// The session that it was forked from, whose calls its conversation begins with.
    pub forked_from: Option<SessionId>,
    /// When it began.
    pub started_at: Timestamp,
    /// Names of tools, models, workers, calls, paths and programs, each once.
    pub names: Vec<String>,
    /// The steps, oldest first.
    pub steps: Vec<StepFact>,
    /// The answers of models, in order of time. One that was recorded twice (by a proxy and in the agent's own conversation) is
    /// in it once.
    pub model_calls: Vec<ModelCallFact>,
    /// What could not be used as it was recorded.
    pub defects: FactDefects,
}

impl Default for SessionFacts {
    fn default() -> Self {
        Self {
            workspace: None,
            session: None,
            agent: String::new(),
            branch: None,
            is_rerun: false,
            is_imported: false,
            forked_from: None,
            started_at: Timestamp::from_micros(0),
            names: Vec::new(),
            steps: Vec::new(),
            model_calls: Vec::new(),
            defects: FactDefects::default(),
        }
    }
}

/// What could not be used as it was recorded, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FactDefects {
    /// Model calls whose token counts or cost are impossible: negative, not a number, or larger than any model allows. Their
    /// usage is unknown.
    pub impossible_usage: u64,
    /// Steps that are older than the step before them: a clock went back.
    pub clock_went_back: u64,
    /// Steps whose detail cannot be read, because it was freed or is damaged. Their sizes and fingerprints are 0.
    pub missing_details: u64,
}

impl FactDefects {
    /// Adds those of another session.
    pub fn add(&mut self, other: Self) {
        self.impossible_usage = self.impossible_usage.saturating_add(other.impossible_usage);
        self.clock_went_back = self.clock_went_back.saturating_add(other.clock_went_back);
        self.missing_details = self.missing_details.saturating_add(other.missing_details);
    }
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
    /// The agent's id of the call that the step starts or ends; of a stop at a breakpoint and of the answer to it, the call that
    /// waited.
    pub call: Option<NameIndex>,
    /// The tool or model.
    pub tool: Option<NameIndex>,
    /// The path or program that the call is about, if it has one.
    pub subject: Option<NameIndex>,
    /// Whether it failed.
    pub failed: bool,
    /// What the step says about who waits for whom.
    pub mark: StepMark,
    /// How long it took, in microseconds, as the agent reported or as its start and end tell. Waiting at breakpoints is not part
    /// of it; waiting for a permission that the agent itself asks for may be, because no agent reports when it was given.
    pub duration: Option<u64>,
    /// At the end of a call: how long the call waited at breakpoints before, in microseconds. The wait began at the step of
    /// kind `breakpoint-hit` with the same call and ended at the one of kind `decision`.
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
    /// The first bytes of the hash of the workspace's files after the step: equal for equal files. 0 where the step has none of its
    /// own, because it is no checkpoint, or because they were freed.
    pub state: u64,
    /// The step of the prompt that the session was working on, as an index into [`SessionFacts::steps`].
    pub prompt: Option<u32>,
}

/// One answer of a model, with what it used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ModelCallFact {
    /// The step that has it, as an index into [`SessionFacts::steps`]: the end of a model call, or, for an answer that is only in
    /// the conversation, the last step before it.
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
    /// Whether the cost was computed from its tokens with the price table of now, because none was recorded.
    pub priced: bool,
    /// Whether the answer came from a recording: no model was called.
    pub replayed: bool,
    /// A fingerprint of the provider's id of the answer, which copies of a conversation keep; 0 without one.
    pub identity: u64,
    /// What the request was made of, in bytes, if it was recorded.
    pub context: Option<ContextParts>,
}

/// Where the usage of a model call was recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UsageSource {
    /// A step that ends a model call: from a proxy, a hook or the built-in agent.
    Step,
    /// A step that was made of a span.
    Telemetry,
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
