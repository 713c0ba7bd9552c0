//! A session as a reader follows it: prompts, answers, tool calls and events in one order, each once.
//!
//! Two sources tell of a session. Its steps have times, calls, results and files; the conversation that the agent keeps has the
//! texts and thoughts of the model, which hooks do not report. [`SessionRecording::read`] makes items of the steps, then adds
//! what only the conversation has. An item says which of the two it is from.
//!
//! - `from_steps`: items from steps.
//! - `conversation`: what the conversation adds to them.

mod conversation;
mod from_steps;

pub use from_steps::plain_text;

use serde_json::Value;
use stepback_engine::Workspace;
use stepback_llm_wire::prices::Prices;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::path::display_bytes;
use stepback_model::record::{Session, StepKind, Trigger};
use stepback_model::time::Timestamp;

use crate::error::ExportError;
use crate::file_changes::FileChange;
use crate::session_steps::SessionSteps;

/// A session with everything that its export shows, redacted.
#[derive(Debug)]
pub struct SessionRecording {
    /// The session.
    pub session: Session,
    /// The title, redacted.
    pub title: Option<String>,
    /// The root of its workspace, for display.
    pub root: String,
    /// What happened, in order.
    pub items: Vec<RecordedItem>,
    /// The number of steps.
    pub steps: u64,
    /// How many steps lost their files to a purge.
    pub purged: u64,
    /// Sums.
    pub totals: SessionTotals,
}

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct RecordedItem {
    /// The number of its (first) step; `None` if only the conversation has it.
    pub step: Option<u64>,
    /// The number of the step that ended it, if that is another one.
    pub end_step: Option<u64>,
    /// When it (first) happened, if that is known.
    pub at: Option<Timestamp>,
    /// The model turn; 0 if unknown.
    pub iteration: u64,
    /// The sub-agent; `None` for the main agent.
    pub worker: Option<String>,
    /// What it is.
    pub content: ItemContent,
    /// The checkpoint that was made with it.
    pub checkpoint: Option<CheckpointMark>,
    /// The files that the checkpoint found changed.
    pub changes: Vec<FileChange>,
}

/// What an item is.
#[derive(Clone, Debug)]
pub enum ItemContent {
    /// A prompt of the user.
    Prompt(String),
    /// An answer of the model.
    Answer(ExportedAnswer),
    /// A call of a tool.
    Call(Box<ToolCallRecord>),
    /// Any other step.
    Event(SessionEvent),
}

/// An answer of the model.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ExportedAnswer {
    /// Text and thoughts, in order.
    pub parts: Vec<AnswerPart>,
    /// Ids of the calls that it requests.
    pub calls: Vec<String>,
    /// The model.
    pub model: Option<String>,
    /// Tokens, if they were recorded.
    pub usage: Option<TokenUsage>,
    /// The cost.
    pub cost: Option<AnswerCost>,
    /// How long it took, in microseconds.
    pub duration: Option<u64>,
    /// The error, if there was no answer.
    pub error: Option<String>,
    /// Whether it came from a recording: no model was called.
    pub replayed: bool,
    /// Whether no end of the call was recorded.
    pub is_open: bool,
}

/// A part of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AnswerPart {
    /// Text for the user.
    Text(String),
    /// A thought.
    Thought(String),
}

/// What an answer cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerCost {
    /// Recorded, in millionths of a dollar.
    Recorded(u64),
    /// Computed from the tokens by the list of prices, in millionths of a dollar.
    Listed(u64),
}

/// A call of a tool.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToolCallRecord {
    /// The agent's id of the call.
    pub id: Option<String>,
    /// The name of the tool.
    pub tool: String,
    /// One line about it.
    pub summary: String,
    /// The input.
    pub input: Value,
    /// The output; `Null` if there is none.
    pub output: Value,
    /// The error.
    pub error: Option<String>,
    /// How it ended.
    pub status: CallEnding,
    /// How long it took, in microseconds, without waiting.
    pub duration: Option<u64>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The sizes in bytes of input and output before the recorder cut them; `None` for what is whole.
    pub cut_from: (Option<u64>, Option<u64>),
}

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CallEnding {
    /// No end was recorded: it was refused, interrupted, or is still running.
    #[default]
    Open,
    /// It ended.
    Done,
    /// It failed.
    Failed,
}

/// A step that is no prompt, answer or call.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionEvent {
    /// The kind of step.
    pub kind: StepKind,
    /// One line about it.
    pub summary: String,
    /// A longer text, if there is one.
    pub text: Option<String>,
    /// Whether it is an error.
    pub is_error: bool,
}

/// A checkpoint.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckpointMark {
    /// The number of its step.
    pub step: u64,
    /// What made it.
    pub trigger: Trigger,
    /// The label and note that the user gave it.
    pub label: Option<String>,
    /// Whether its files were freed.
    pub purged: bool,
}

/// Sums over a session.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct SessionTotals {
    /// Prompts.
    pub prompts: u64,
    /// Tool calls.
    pub calls: u64,
    /// Tool calls and other steps that failed.
    pub errors: u64,
    /// Checkpoints.
    pub checkpoints: u64,
    /// Tokens of all answers whose usage was recorded; replayed ones are left out.
    pub tokens: Option<TokenUsage>,
    /// Answers without a recorded usage.
    pub answers_without_usage: u64,
    /// The recorded cost, in millionths of a dollar.
    pub cost: Option<u64>,
    /// How much of the cost was computed from the list of prices.
    pub listed_cost: u64,
    /// Answers with tokens whose cost is not known.
    pub answers_without_cost: u64,
    /// Models that answered.
    pub models: Vec<String>,
    /// The times of the first and last item.
    pub times: Option<(Timestamp, Timestamp)>,
}

impl SessionRecording {
    /// Reads a session. With `with_changes`, the changed lines of files are part of it.
    pub fn read(workspace: &Workspace, session: &Session, with_changes: bool) -> Result<Self, ExportError> {
        // A prune must not free what is being read.
        let _lock = workspace.engine.block_garbage_collection()?;
        let steps = SessionSteps::load(workspace, session)?;
        let mut items = from_steps::read_items(workspace, &steps, with_changes)?;
        conversation::add(workspace, session, steps.redactor(), &mut items)?;
        let prices = Prices::built_in();
        items.iter_mut().for_each(|item| add_listed_cost(item, &prices));
        Ok(Self {
            session: session.clone(),
            title: session.info.title.as_deref().map(|title| steps.redactor().text(title)),
            root: display_bytes(&workspace.record.root).into_owned(),
            steps: steps.rows.len() as u64,
            purged: steps.rows.iter().filter(|row| row.purged).count() as u64,
            totals: SessionTotals::of(&items),
            items,
        })
    }
}

impl RecordedItem {
    /// Creates an item with only its content and time.
    pub fn new(content: ItemContent, at: Option<Timestamp>) -> Self {
        Self {
            step: None,
            end_step: None,
            at,
            iteration: 0,
            worker: None,
            content,
            checkpoint: None,
            changes: Vec::new(),
        }
    }

    /// Whether it failed.
    pub fn is_error(&self) -> bool {
        match &self.content {
            ItemContent::Prompt(_) => false,
            ItemContent::Answer(answer) => answer.error.is_some(),
            ItemContent::Call(call) => call.status == CallEnding::Failed,
            ItemContent::Event(event) => event.is_error,
        }
    }

    /// How long it took, in microseconds.
    pub fn duration(&self) -> Option<u64> {
        match &self.content {
            ItemContent::Answer(answer) => answer.duration,
            ItemContent::Call(call) => call.duration,
            ItemContent::Prompt(_) | ItemContent::Event(_) => None,
        }
    }
}

impl ExportedAnswer {
    /// Its text, without thoughts.
    pub fn text(&self) -> String {
        self.join(|part| match part {
            AnswerPart::Text(text) => Some(text),
            AnswerPart::Thought(_) => None,
        })
    }

    /// Its thoughts.
    pub fn thoughts(&self) -> String {
        self.join(|part| match part {
            AnswerPart::Thought(text) => Some(text),
            AnswerPart::Text(_) => None,
        })
    }

    fn join(&self, choose: impl Fn(&AnswerPart) -> Option<&String>) -> String {
        self.parts.iter().filter_map(choose).map(String::as_str).collect::<Vec<_>>().join("\n")
    }
}

impl AnswerCost {
    /// The cost in millionths of a dollar, whatever it is based on.
    pub fn micros(self) -> u64 {
        match self {
            Self::Recorded(micros) | Self::Listed(micros) => micros,
        }
    }
}

/// Computes the cost of an answer from the list of prices, if it was not recorded.
fn add_listed_cost(item: &mut RecordedItem, prices: &Prices) {
    if let ItemContent::Answer(answer) = &mut item.content
        && let (None, false, Some(model), Some(usage)) =
            (answer.cost, answer.replayed, &answer.model, &answer.usage)
    {
        answer.cost = prices.cost(model, usage).map(AnswerCost::Listed);
    }
}

impl SessionTotals {
    fn of(items: &[RecordedItem]) -> Self {
        let mut totals = Self::default();
        for item in items {
            totals.errors += u64::from(item.is_error());
            totals.checkpoints += u64::from(item.checkpoint.is_some());
            if let Some(at) = item.at {
                let last =
                    at.as_micros().saturating_add(i64::try_from(item.duration().unwrap_or(0)).unwrap_or(0));
                let last = Timestamp::from_micros(last).max(at);
                totals.times =
                    Some(totals.times.map_or((at, last), |(first, end)| (first.min(at), end.max(last))));
            }
            match &item.content {
                ItemContent::Prompt(_) => totals.prompts += 1,
                ItemContent::Call(_) => totals.calls += 1,
                ItemContent::Answer(answer) => totals.add_answer(answer),
                ItemContent::Event(_) => {}
            }
        }
        totals
    }

    fn add_answer(&mut self, answer: &ExportedAnswer) {
        if let Some(model) = answer.model.as_ref().filter(|model| !self.models.contains(model)) {
            self.models.push(model.clone());
        }
        if answer.replayed {
            return;
        }
        let Some(usage) = answer.usage else {
            self.answers_without_usage += u64::from(answer.error.is_none() && !answer.is_open);
            return;
        };
        self.tokens = Some(add_usage(self.tokens.unwrap_or_default(), usage));
        match answer.cost {
            Some(cost) => {
                self.cost = Some(self.cost.unwrap_or(0).saturating_add(cost.micros()));
                if let AnswerCost::Listed(micros) = cost {
                    self.listed_cost = self.listed_cost.saturating_add(micros);
                }
            }
            None => self.answers_without_cost += 1,
        }
    }
}

/// Adds token counts; absurd ones do not overflow.
fn add_usage(sum: TokenUsage, usage: TokenUsage) -> TokenUsage {
    TokenUsage {
        input: sum.input.saturating_add(usage.input),
        output: sum.output.saturating_add(usage.output),
        cache_read: sum.cache_read.saturating_add(usage.cache_read),
        cache_write: sum.cache_write.saturating_add(usage.cache_write),
        reasoning: sum.reasoning.saturating_add(usage.reasoning),
    }
}
