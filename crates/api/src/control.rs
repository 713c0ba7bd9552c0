//! Control of live agents: breakpoints, agents that wait, and what is said to them.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// The condition of a breakpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BreakpointKind {
    /// A call of the tool `name`.
    Tool,
    /// The model turn with this `number`.
    Iteration,
    /// An input that matches the regular expression `pattern`.
    Pattern,
    /// A step that failed.
    Error,
    /// A call that names a path which `glob` matches.
    Path,
    /// A session whose cost reached `usd`; with `per`, all calls of a day or of the workspace.
    Cost,
    /// A session whose context reached this `number` of tokens; with `per`, all calls of the session, day or workspace.
    Tokens,
    /// Calls that are unusual: an anomaly of the kind `name`, or of any kind if there is none.
    Anomaly,
}

/// What a budget is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetScopeKind {
    /// What the session has used.
    Session,
    /// What all sessions of the workspace have used today, in universal time.
    Day,
    /// What all sessions of the workspace have used.
    Workspace,
}

/// A breakpoint to add. Which of `name`, `number`, `pattern`, `glob` and `usd` must be given depends on `on`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct NewBreakpoint {
    /// The condition.
    pub on: BreakpointKind,
    /// The name of a tool, `*` for any; letter case does not matter. Or the kind of an anomaly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The number of a model turn, or of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// A regular expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// A glob that paths must match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// A cost in dollars.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Of `cost` and `tokens`, what is added up. Without it, the cost is that of the session, and the tokens are the size of the
    /// context.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per: Option<BudgetScopeKind>,
    /// A regular expression that the input must match as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// Stop from this hit on; earlier ones are only counted. The same as the `hit_condition` `>=N`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_hit: Option<u64>,
    /// Which hits take effect: `>=N` from the Nth on, `=N` only the Nth, `%N` every Nth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_condition: Option<String>,
    /// Only record hits, and do not stop the agent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
    /// What a log point records: a text that can have `{tool}`, `{input}`, `{input.FIELD}`, `{iteration}`, `{cost}`, `{tokens}`
    /// and `{hits}`. Only with `log`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl NewBreakpoint {
    /// A breakpoint on this condition, without any of the fields that belong to it.
    pub fn new(on: BreakpointKind) -> Self {
        let (name, number, pattern, glob, usd, per) = (None, None, None, None, None, None);
        let (condition, from_hit, hit_condition, message) = (None, None, None, None);
        let log = false;
        Self { on, name, number, pattern, glob, usd, per, condition, from_hit, hit_condition, log, message }
    }
}

/// Enables or disables a breakpoint.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BreakpointSwitch {
    /// Whether it is enabled from now on.
    pub enabled: bool,
}

/// The result of a removal.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct RemovedBreakpointsDocument {
    /// Number of breakpoints that were removed.
    pub removed: u64,
}

/// A condition that stops a live agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BreakpointDocument {
    /// The number of the breakpoint, from 1.
    pub id: u64,
    /// `tool`, `iteration`, `pattern`, `error`, `path`, `cost` or `tokens`.
    pub on: String,
    /// The tool, turn, expression, glob, cost or number of tokens; none for an error.
    pub value: Option<String>,
    /// The condition in words.
    pub description: String,
    /// A regular expression that the input must match as well.
    pub condition: Option<String>,
    /// Whether it is enabled.
    pub enabled: bool,
    /// Number of times its condition was met.
    pub hits: u64,
    /// It stops from this hit on; none for the first, and if `hit_condition` is not `>=N`.
    pub from_hit: Option<u64>,
    /// Which hits take effect: `>=N`, `=N` or `%N`; none for all.
    pub hit_condition: Option<String>,
    /// Whether it only records hits and does not stop the agent.
    pub log: bool,
    /// What a log point records; none for a summary of the call.
    pub message: Option<String>,
}

/// An agent that waits for an answer.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StopDocument {
    /// The id of the stop.
    pub id: String,
    /// The id of the workspace.
    pub workspace: String,
    /// The id of the session.
    pub session: String,
    /// The name of the agent.
    pub agent: String,
    /// The agent's own id of the call.
    pub call: Option<String>,
    /// The tool that it is about to run, or has run.
    pub tool: String,
    /// The input of the call.
    #[schema(value_type = Object)]
    pub input: Value,
    /// The output of the call, if it has run.
    #[schema(value_type = Option<Object>)]
    pub output: Option<Value>,
    /// Whether the call can run with another input. If not, `edit` denies it and asks the model to call again.
    pub can_edit_input: bool,
    /// Why it stopped.
    pub reason: String,
    /// The number of the breakpoint; none if the session was paused.
    pub breakpoint: Option<u64>,
    /// The number of the step it stopped at.
    pub step: u64,
    /// The number of the model turn.
    pub iteration: u64,
    /// When it stopped.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// When the wait times out, which denies the call.
    #[schema(value_type = String, format = DateTime)]
    pub until: Timestamp,
}

/// The answer to an agent that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum NewAnswer {
    /// Go on with the call.
    Resume,
    /// Go on, and stop again at the next call.
    Step,
    /// Do not run the call.
    Deny {
        /// The reason that the model gets; a default text if there is none.
        reason: Option<String>,
    },
    /// Run the call with another input.
    Edit {
        /// The whole new input, an object.
        #[schema(value_type = Object)]
        input: Value,
    },
}

/// A message to an agent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMessage {
    /// The text of the message.
    pub text: String,
}

/// The state of a session after a command.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct SessionControlDocument {
    /// The id of the session.
    pub session: String,
    /// Whether it stops at its next call.
    pub paused: bool,
    /// The stop that was answered, if any.
    pub answered: Option<StopDocument>,
}

/// A command of a client, with the id that its reply carries.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
pub struct LiveRequest {
    /// Copied into the reply.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub id: Value,
    /// The command.
    #[serde(flatten)]
    pub what: LiveCommand,
}

/// The commands for live agents; each does the same as the HTTP operation of that name.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum LiveCommand {
    /// Answer an agent that waits: resume, step, deny, or edit its input.
    Answer {
        /// The id of the stop.
        stop: String,
        /// The answer.
        #[serde(flatten)]
        say: NewAnswer,
    },
    /// List the agents that wait.
    Stops,
    /// Stop a session at its next call.
    Pause {
        /// The id of the session.
        session: String,
    },
    /// Let a paused session go on, and answer it if it waits.
    Resume {
        /// The id of the session.
        session: String,
    },
    /// Leave a message that a session receives with its next call.
    Inject {
        /// The id of the session.
        session: String,
        /// The text of the message.
        text: String,
    },
    /// List the breakpoints of a workspace.
    Breakpoints {
        /// The id of the workspace.
        workspace: String,
    },
    /// Add a breakpoint.
    AddBreakpoint {
        /// The id of the workspace.
        workspace: String,
        /// The condition of the breakpoint.
        #[serde(flatten)]
        breakpoint: NewBreakpoint,
    },
    /// Enable or disable a breakpoint.
    SwitchBreakpoint {
        /// The id of the workspace.
        workspace: String,
        /// The id of the breakpoint.
        breakpoint: u64,
        /// Whether it is enabled from now on.
        enabled: bool,
    },
    /// Remove a breakpoint.
    RemoveBreakpoint {
        /// The id of the workspace.
        workspace: String,
        /// The id of the breakpoint.
        breakpoint: u64,
    },
}
