//! What an agent is told before it runs, and what it says afterwards.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde_json::{Map, Value};
use stepback_agents::decisions::DecidedCalls;
use stepback_exchange::semantics::Usage;
use stepback_model::event::ReportedError;
use stepback_model::ids::SessionId;
use stepback_model::record::StepKind;

use crate::tools::ToolResult;

/// Gives the recorded result of a call, by its tool and input.
pub type RecordedResults<'a> = dyn FnMut(&str, &Value) -> Option<ToolResult> + 'a;

/// What a call does.
#[derive(Default)]
pub enum ToolPolicy<'a> {
    /// It runs.
    #[default]
    Real,
    /// It is refused if it can change something.
    Deny,
    /// It gives back what it gave back when it was recorded, and nothing runs. A call without a recorded result fails.
    Recorded(Box<RecordedResults<'a>>),
}

/// The price of an answer in millionths of a dollar, by model and tokens; `None` if nobody knows it.
pub type Price<'a> = dyn Fn(&str, &Usage) -> Option<u64> + 'a;

/// Something that happens while the agent runs, for whoever watches.
#[derive(Clone, Copy, Debug)]
pub enum RunEvent<'a> {
    /// The model said something.
    Said {
        /// The worker that did, if it was not the agent.
        worker: Option<&'a str>,
        /// It.
        text: &'a str,
    },
    /// A call begins.
    Calls {
        /// The worker that calls.
        worker: Option<&'a str>,
        /// The call in one line.
        summary: &'a str,
    },
    /// A call has ended.
    Called {
        /// The worker that called.
        worker: Option<&'a str>,
        /// The tool.
        tool: &'a str,
        /// What came out.
        result: &'a ToolResult,
    },
    /// A person said something to the agent while it ran.
    Told {
        /// It.
        text: &'a str,
    },
    /// The agent stands at a breakpoint and waits for a person.
    Waits,
    /// The model could not be asked; it is asked again.
    Retries {
        /// Why.
        why: &'a str,
    },
}

/// What an agent is told.
pub struct Options<'a> {
    /// The task; `None` if the conversation so far ends with one.
    pub prompt: Option<String>,
    /// The model.
    pub model: String,
    /// Messages, in the form of the Messages API, that the conversation begins with.
    pub history: Vec<Value>,
    /// Instructions other than its own.
    pub system: Option<String>,
    /// What it remembers.
    pub memory: Map<String, Value>,
    /// What the session's environment says beside the tools: who answers, for one. No secrets.
    pub environment: Map<String, Value>,
    /// The agent's own id of the session; drawn if not given.
    pub session: Option<String>,
    /// Whether files are looked at before and after calls that can change something.
    pub looks: bool,
    /// What a person decided about calls when the session was recorded, to be decided again.
    pub decided: DecidedCalls,
    /// What a person said to the agent at work when the session was recorded: the model call that is to hear it, and the words.
    pub told: Vec<(String, String)>,
    /// What calls do.
    pub tools: ToolPolicy<'a>,
    /// Most answers of the model in one conversation.
    pub max_turns: u64,
    /// Most steps that are recorded before it ends.
    pub max_steps: Option<u64>,
    /// It ends when the first step of this kind was recorded.
    pub until: Option<StepKind>,
    /// It ends after this time.
    pub timeout: Option<Duration>,
    /// How long to wait at a breakpoint before refusing.
    pub patience: Duration,
    /// How often a model that is busy is asked again.
    pub retries: u32,
    /// Set to end it: what runs is ended, what happened is recorded.
    pub stop: Arc<AtomicBool>,
    /// What answers cost.
    pub price: &'a Price<'a>,
    /// Is told what happens.
    pub watch: &'a mut dyn FnMut(RunEvent<'_>),
}

impl<'a> Options<'a> {
    /// For a model, with everything else as it is if nobody says otherwise.
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

/// Answers of the model in one conversation, if nobody says otherwise.
pub const MAX_TURNS: u64 = 50;

/// How a run ended.
#[derive(Clone, PartialEq, Debug)]
pub enum ExitReason {
    /// The model had no more to do.
    Done,
    /// The model had as many turns as it may.
    MaxTurns,
    /// As many steps as asked for were recorded.
    MaxSteps,
    /// A step of the kind that was waited for was recorded.
    Until,
    /// It took too long.
    TimedOut,
    /// Somebody ended it.
    Interrupted,
    /// The model could not be asked.
    Failed(ReportedError),
}

impl ExitReason {
    /// The stable name.
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

/// What came of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// The session that recorded it.
    pub session: SessionId,
    /// The agent's own id of it.
    pub external: String,
    /// Answers of the model, to the agent and to its workers.
    pub turns: u64,
    /// Steps that the agent recorded.
    pub steps: u64,
    /// The model's last words.
    pub text: String,
    /// What it cost in millionths of a dollar, as far as prices are known.
    pub cost: u64,
    /// How it ended.
    pub ended: ExitReason,
}
