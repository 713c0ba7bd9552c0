//! Options of a run of the built-in agent, and its outcome.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Map, Value};
use stepback_agents::decisions::DecidedCalls;
use stepback_engine::recorder::CheckpointSchedule;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::event::ReportedError;
use stepback_model::ids::SessionId;
use stepback_model::record::StepKind;

use crate::tools::ToolResult;

/// Returns the recorded result of a call, by its tool and input.
pub type RecordedResults<'a> = dyn FnMut(&str, &Value) -> Option<ToolResult> + 'a;

/// What happens to tool calls.
#[derive(Default)]
pub enum ToolPolicy<'a> {
    /// Calls run.
    #[default]
    Real,
    /// Calls that can change something are refused.
    Deny,
    /// Calls return their recorded result, and nothing runs. A call without a recorded result fails.
    Recorded(Box<RecordedResults<'a>>),
}

/// Returns the price of an answer in millionths of a dollar, by model and tokens; `None` if it is unknown.
pub type Price<'a> = dyn Fn(&str, &TokenUsage) -> Option<u64> + 'a;

/// Something that happens while the agent runs, for display.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'a> {
    /// The model said something.
    Said {
        /// The worker, or `None` for the agent itself.
        worker: Option<&'a str>,
        /// What the model said.
        text: &'a str,
    },
    /// A call begins.
    Calls {
        /// The worker, or `None` for the agent itself.
        worker: Option<&'a str>,
        /// The call in one line.
        summary: &'a str,
    },
    /// A call has ended.
    Called {
        /// The worker, or `None` for the agent itself.
        worker: Option<&'a str>,
        /// The tool.
        tool: &'a str,
        /// The result of the call.
        result: &'a ToolResult,
    },
    /// The agent got a message that the user left while it ran.
    Told {
        /// The user's message.
        text: &'a str,
    },
    /// The agent is stopped at a breakpoint and waits for the user.
    Waits,
    /// The model call failed and is retried.
    Retries {
        /// The error of the failed call.
        why: &'a str,
    },
}

/// The options of one run.
pub struct RunOptions<'a> {
    /// The task; `None` if the conversation so far ends with one.
    pub prompt: Option<String>,
    /// Name of the model.
    pub model: String,
    /// Messages, in the form of the Messages API, that the conversation begins with.
    pub history: Vec<Value>,
    /// Instructions that replace the built-in ones.
    pub system: Option<String>,
    /// The agent's memory at the start.
    pub memory: Map<String, Value>,
    /// What the session's environment says besides the tools, such as the provider. No secrets.
    pub environment: Map<String, Value>,
    /// The agent's own id of the session; a new one if not given.
    pub session: Option<String>,
    /// Whether files are scanned before and after calls that can change something.
    pub looks: bool,
    /// When checkpoints are made by themselves.
    pub schedule: CheckpointSchedule,
    /// The user's decisions about calls in the recorded session, to be repeated.
    pub decided: DecidedCalls,
    /// The user's messages to the running agent in the recorded session: the id of the model call that gets the message, and
    /// its text.
    pub told: Vec<(String, String)>,
    /// What happens to tool calls.
    pub tools: ToolPolicy<'a>,
    /// Most answers of the model in one conversation.
    pub max_turns: u64,
    /// Most steps that are recorded before the run ends.
    pub max_steps: Option<u64>,
    /// The run ends after the first step of this kind.
    pub until: Option<StepKind>,
    /// The run ends after this time.
    pub timeout: Option<Duration>,
    /// How long to wait at a breakpoint before the call is refused.
    pub patience: Duration,
    /// How often a call to a busy model is retried.
    pub retries: u32,
    /// Set to end the run: running tools are ended, and what happened is recorded.
    pub stop: Arc<AtomicBool>,
    /// Prices of answers.
    pub price: &'a Price<'a>,
    /// Called with what happens.
    pub watch: &'a mut dyn FnMut(RunEvent<'_>),
}

impl<'a> RunOptions<'a> {
    /// Returns options for a model, with defaults for everything else.
    pub fn new(model: impl Into<String>, watch: &'a mut dyn FnMut(RunEvent<'_>)) -> Self {
        Self {
            prompt: None,
            model: model.into(),
            history: Vec::new(),
            system: None,
            memory: Map::new(),
            environment: Map::new(),
            session: None,
            looks: true,
            schedule: CheckpointSchedule::default(),
            decided: DecidedCalls::default(),
            told: Vec::new(),
            tools: ToolPolicy::Real,
            max_turns: MAX_TURNS,
            max_steps: None,
            until: None,
            timeout: None,
            patience: Duration::from_secs(3540),
            retries: 3,
            stop: Arc::default(),
            price: &|_, _| None,
            watch,
        }
    }
}

/// Default of the most answers of the model in one conversation.
pub const MAX_TURNS: u64 = 50;

/// Why a run ended.
#[derive(Clone, PartialEq, Debug)]
pub enum ExitReason {
    /// The model finished the task.
    Done,
    /// The model reached the limit of turns.
    MaxTurns,
    /// The limit of recorded steps was reached.
    MaxSteps,
    /// A step of the requested kind was recorded.
    Until,
    /// The run timed out.
    TimedOut,
    /// The user ended the run.
    Interrupted,
    /// The model call failed.
    Failed(ReportedError),
}

impl ExitReason {
    /// Returns the stable name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::MaxTurns => "max-turns",
            Self::MaxSteps => "max-steps",
            Self::Until => "until",
            Self::TimedOut => "timed-out",
            Self::Interrupted => "interrupted",
            Self::Failed(_) => "failed",
        }
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct RunOutcome {
    /// The session in the record.
    pub session: SessionId,
    /// The agent's own id of the session.
    pub external: String,
    /// How many answers the model gave, to the agent and to its workers.
    pub turns: u64,
    /// How many steps the agent recorded.
    pub steps: u64,
    /// The model's last text.
    pub text: String,
    /// Cost in millionths of a dollar, as far as prices are known.
    pub cost: u64,
    /// Why it ended.
    pub ended: ExitReason,
}
