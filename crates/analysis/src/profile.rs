//! Where the time of a session went.
//!
//! [`Profile::of`] turns the facts of a session into [`ProfileSpan`]s: intervals in which a model answered, a tool ran, an agent was
//! stopped at a breakpoint, and so on. Everything else follows from them: the time per category ([`attribution`]), the
//! statistics per tool and model ([`statistics`]), and the critical path ([`critical_path`]).
//!
//! Spans can overlap: calls run in parallel, and sub-agents beside the main agent. The time per category does not: each moment
//! of the session belongs to exactly one category, so the categories add up to the length of the session.

pub mod attribution;
mod calls;
pub mod chrome_trace;
pub mod context_size;
pub mod critical_path;
mod document;
mod html;
mod html_style;
mod lane;
pub mod rows;
mod spans;
pub mod speedscope;
pub mod statistics;

use stepback_engine::Engine;
use stepback_llm_wire::prices::Prices;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;

pub use self::attribution::{CategoryTime, TimePart};
pub use self::context_size::ContextSample;
pub use self::critical_path::PathSegment;
pub use self::document::{SpanWindow, profile_document};
pub use self::html::render_html;
pub use self::statistics::CallStatistics;
use crate::AnalysisError;
use crate::facts::{NameIndex, SessionFacts};
use crate::load::load_session_facts;

/// An agent that was not heard of for longer than this did nothing, in microseconds: it was killed, the machine slept, or the user
/// was away.
pub const IDLE_AFTER: i64 = 30 * 60 * 1_000_000;
/// A longer duration without a recorded start is a mistake of the program that reported it, in microseconds.
pub const MAX_REPORTED_DURATION: i64 = 24 * 3_600_000_000;

/// What the time of a session is spent on. Every moment belongs to exactly one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TimeCategory {
    /// A model answered.
    Model,
    /// A tool ran.
    Tool,
    /// Hooks ran, or the agent worked around its calls.
    Hook,
    /// An agent was stopped at a breakpoint.
    Breakpoint,
    /// An agent waited for its user: for a permission, an answer or the next prompt.
    User,
    /// Nothing is known to have happened.
    Idle,
}

impl TimeCategory {
    /// Every category, in the order in which they are shown.
    pub const ALL: [Self; 6] =
        [Self::Model, Self::Tool, Self::Hook, Self::Breakpoint, Self::User, Self::Idle];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tool => "tool",
            Self::Hook => "hook",
            Self::Breakpoint => "breakpoint",
            Self::User => "user",
            Self::Idle => "idle",
        }
    }

    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Tool => "tools",
            Self::Hook => "hooks and agent",
            Self::Breakpoint => "at a breakpoint",
            Self::User => "waiting for the user",
            Self::Idle => "idle",
        }
    }
}

/// How the times of a span are known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum SpanBasis {
    /// Its start and end, or its end and duration, were recorded.
    Recorded,
    /// No model call was recorded between two events of a working agent.
    ModelBetweenEvents,
    /// A call took longer from its start to its end than its agent says that it ran.
    AroundCall,
    /// A working agent reported neither a call nor an answer of its model, although it reports both.
    BetweenCalls,
    /// A permission was asked for, and the call ran for the last part of the time.
    PermissionBeforeCall,
    /// The agent was done, and the next prompt came within [`IDLE_AFTER`].
    UntilNextPrompt,
    /// The call began, and its end was not recorded.
    EndMissing,
}

impl SpanBasis {
    /// The rule by which it was inferred, in words; `None` if it was recorded.
    pub fn rule(self) -> Option<&'static str> {
        match self {
            Self::Recorded => None,
            Self::ModelBetweenEvents => {
                Some("the agent was working, no call ran and no model call is recorded for this time")
            }
            Self::AroundCall => {
                Some("from the start of the call to its end, less the time that the agent says it ran")
            }
            Self::BetweenCalls => Some("the agent was working, and neither a call nor its model ran"),
            Self::PermissionBeforeCall => Some("from the request for a permission until the call ran"),
            Self::UntilNextPrompt => {
                Some("from the end of a turn to the next prompt, if that came within 30 minutes")
            }
            Self::EndMissing => Some(
                "the end of the call is not recorded: until the next event that it cannot have outlasted",
            ),
        }
    }
}

/// An interval in which one thing happened.
#[derive(Clone, PartialEq, Debug)]
pub struct ProfileSpan {
    /// What it was.
    pub category: TimeCategory,
    /// How its times are known.
    pub basis: SpanBasis,
    /// When it began, in microseconds since the epoch.
    pub start: i64,
    /// When it ended; never before `start`.
    pub end: i64,
    /// The agent that did it, as an index into [`Profile::lanes`].
    pub lane: usize,
    /// The tool or model.
    pub name: Option<NameIndex>,
    /// The path or program that the call was about.
    pub subject: Option<NameIndex>,
    /// The step that it is known from, as an index into [`SessionFacts::steps`]: for a call, the one that ended it.
    pub step: u32,
    /// The step that began the call, if it is recorded.
    pub first_step: Option<u32>,
    /// Whether the call failed.
    pub failed: bool,
    /// Whether sub-agents work during the call, so that what they do is where the time went.
    pub delegates: bool,
}

impl ProfileSpan {
    /// How long it took, in microseconds.
    pub fn duration(&self) -> u64 {
        self.end.abs_diff(self.start)
    }
}

/// The main agent or a sub-agent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentLane {
    /// The name of the sub-agent; `None` for the main agent.
    pub worker: Option<NameIndex>,
    /// The call that started the sub-agent, if it is known, as an index into [`SessionFacts::steps`].
    pub started_by: Option<u32>,
}

/// What was found while the facts were read, and is not as it should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProfileCaveats {
    /// Steps that are more than a second older than the step before them.
    pub clock_went_back: u64,
    /// Calls whose end is older than their start; their duration is not known.
    pub ends_before_start: u64,
    /// Calls whose end is not recorded.
    pub unfinished_calls: u64,
    /// Calls whose start is not recorded and whose duration was not reported.
    pub starts_missing: u64,
    /// Durations of more than a day that were reported without a start; they are left out.
    pub absurd_durations: u64,
    /// Calls that waited for a permission while their agent does not say how long they ran: the time that they waited counts as the
    /// tool's.
    pub permissions_unmeasured: u64,
}

/// Where the time of a session went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// When the session began, in microseconds since the epoch.
    pub start: i64,
    /// When the last thing in it ended; never before `start`.
    pub end: i64,
    /// The agents, the main agent first.
    pub lanes: Vec<AgentLane>,
    /// What happened, by start.
    pub spans: Vec<ProfileSpan>,
    /// The time per category; together the length of the session.
    pub categories: Vec<CategoryTime>,
    /// How much of the time is known only by a rule.
    pub rules: Vec<(SpanBasis, u64)>,
    /// To whom each moment belongs.
    pub parts: Vec<TimePart>,
    /// The calls of tools.
    pub tools: Vec<CallStatistics>,
    /// The calls of models whose duration is recorded.
    pub models: Vec<CallStatistics>,
    /// What the end of the session depended on, in time order.
    pub critical_path: Vec<PathSegment>,
    /// How large the requests to the models were, in time order.
    pub context: Vec<ContextSample>,
    /// What was found to be wrong.
    pub caveats: ProfileCaveats,
}

impl Profile {
    /// Computes the profile of a session.
    pub fn of(facts: &SessionFacts) -> Self {
        let read = spans::read_spans(facts);
        let (spans, lanes) = (read.spans, read.lanes);
        let extent = |step: &&crate::facts::StepFact| !step.kind.is_own();
        let moments = || {
            let own = facts.steps.iter().any(|step| extent(&step));
            facts.steps.iter().filter(move |step| !own || extent(step)).map(|step| step.at.as_micros())
        };
        let start = moments().chain(spans.iter().map(|span| span.start)).min().unwrap_or_default();
        let end = moments().chain(spans.iter().map(|span| span.end)).max().unwrap_or_default();
        let parts = attribution::divide_time(&spans, start, end);
        let categories = attribution::add_up_categories(&spans, &parts);
        let rules = attribution::add_up_rules(&spans, &parts);
        let critical_path = critical_path::critical_path(&spans, &parts);
        let (tools, models) = statistics::summarize_calls(facts, &spans, &read.outcomes, &critical_path);
        let context = context_size::context_samples(facts, &lanes);
        let caveats = read.caveats;
        Self {
            start,
            end,
            lanes,
            spans,
            categories,
            rules,
            parts,
            tools,
            models,
            critical_path,
            context,
            caveats,
        }
    }

    /// The length of the session, in microseconds.
    pub fn wall(&self) -> u64 {
        self.end.abs_diff(self.start)
    }

    /// When the session began.
    pub fn started_at(&self) -> Timestamp {
        Timestamp::from_micros(self.start)
    }

    /// The time that was saved because calls ran in parallel, in microseconds: the sum of all calls of tools less the time in which at least
    /// one of them ran. Calls in which sub-agents worked are not among them.
    pub fn saved_by_parallel_calls(&self) -> u64 {
        let mut calls: Vec<(i64, i64)> = self
            .spans
            .iter()
            .filter(|span| span.category == TimeCategory::Tool && !span.delegates)
            .map(|span| (span.start, span.end))
            .collect();
        calls.sort_unstable();
        let sum = calls.iter().fold(0_u64, |sum, (start, end)| sum.saturating_add(end.abs_diff(*start)));
        sum.saturating_sub(union_length(&calls))
    }
}

/// Loads the facts of a session, and computes its profile.
pub fn load_profile(engine: &Engine, session: &Session) -> Result<(SessionFacts, Profile), AnalysisError> {
    // A profile says nothing about money.
    let facts = load_session_facts(engine, &Prices::default(), session)?;
    let profile = Profile::of(&facts);
    Ok((facts, profile))
}

/// The length of the union of intervals that are sorted by their start, in microseconds.
fn union_length(sorted: &[(i64, i64)]) -> u64 {
    let mut length = 0_u64;
    let mut reached = i64::MIN;
    for &(start, end) in sorted {
        if end > reached {
            length = length.saturating_add(end.abs_diff(start.max(reached)));
            reached = end;
        }
    }
    length
}
