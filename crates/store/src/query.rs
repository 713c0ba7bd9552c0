//! Queries over steps: filters, orders and cursors that every backend implements the same way.

use std::fmt;
use std::str::FromStr;

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::port::StepRow;

/// Which steps to list. A filter that is `None` or empty does not restrict the result.
#[derive(Clone, PartialEq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct StepQuery {
    /// Steps of this session.
    pub session: Option<SessionId>,
    /// Steps of sessions of this agent.
    pub agent: Option<String>,
    /// Steps of this sub-agent.
    pub worker: Option<String>,
    /// Steps of one of these kinds.
    pub kinds: Vec<StepKind>,
    /// Steps of this tool; ASCII case is ignored.
    pub tool: Option<String>,
    /// Steps of the call with this id.
    pub call: Option<String>,
    /// Steps of this iteration (model turn).
    pub iteration: Option<u64>,
    /// Steps of the task with this id.
    pub task: Option<String>,
    /// Steps of the trace with this id.
    pub trace: Option<String>,
    /// Steps of the span with this id.
    pub span: Option<String>,
    /// Only steps that failed, or only those that did not.
    pub failed: Option<bool>,
    /// Steps made at this time or later.
    pub since: Option<Timestamp>,
    /// Steps made at this time or earlier.
    pub until: Option<Timestamp>,
    /// Steps with this state.
    pub state: Option<Hash>,
    /// Only checkpoints, or only steps that are not checkpoints.
    pub checkpoint: Option<bool>,
    /// Only hidden steps, or only visible ones.
    pub hidden: Option<bool>,
    /// Steps with this label.
    pub label: Option<String>,
    /// Steps with this tag.
    pub tag: Option<String>,
    /// Steps that took at least this many microseconds.
    pub min_duration: Option<u64>,
    /// Steps with a number above this one.
    pub after: Option<u64>,
    /// Steps with a number below this one.
    pub before: Option<u64>,
    /// The sort key.
    pub by: SortKey,
    /// Oldest (or shortest) first instead of newest (or longest) first.
    pub oldest_first: bool,
    /// Steps after this place in the order.
    pub from: Option<QueryCursor>,
    /// Maximum number of steps to return.
    pub limit: Option<u64>,
    /// Count all matches, also beyond [`COUNTED`].
    pub count_all: bool,
}

/// The sort key of a list of steps. Ties are in commit order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub enum SortKey {
    /// Commit order; within one workspace, this is the order of step numbers.
    #[default]
    Commit,
    /// The time at which the step was made.
    Time,
    /// How long the step took; a step of unknown duration sorts as shorter than any other.
    Duration,
}

/// The orders by name, with their sort key and whether the oldest (or shortest) step comes first.
pub const ORDERS: [(&str, SortKey, bool); 6] = [
    ("newest", SortKey::Commit, false),
    ("oldest", SortKey::Commit, true),
    ("latest", SortKey::Time, false),
    ("earliest", SortKey::Time, true),
    ("longest", SortKey::Duration, false),
    ("shortest", SortKey::Duration, true),
];

/// The number of matches up to which a store must count. Counting a million steps takes longer than showing a page of them.
pub const COUNTED: u64 = 10_000;

/// A place in a list of steps from which the list can be continued. It stays valid when steps are added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub struct QueryCursor {
    /// The sort key's value of the last step returned.
    pub value: i64,
    /// The position of that step in commit order.
    pub position: u64,
}

impl fmt::Display for QueryCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.value, self.position)
    }
}

impl FromStr for QueryCursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('.');
        let read = parts.and_then(|(value, position)| {
            Some(Self { value: value.parse().ok()?, position: position.parse().ok()? })
        });
        read.ok_or("it is not a valid cursor")
    }
}

/// A step with its workspace and position.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct StepAt {
    /// The workspace of the step.
    pub workspace: WorkspaceId,
    /// Its position in commit order; it never changes.
    pub position: u64,
    /// The step.
    pub stored: StepRow,
}

/// The number of steps of one agent and one kind.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct StepCount {
    /// The agent's stable name.
    pub agent: String,
    /// The kind of step.
    pub kind: StepKind,
    /// The number of steps.
    pub steps: u64,
    /// How many of them failed.
    pub failed: u64,
}

/// One page of the steps that match a query.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct StepPage {
    /// The steps of this page, in the order of the query.
    pub steps: Vec<StepAt>,
    /// The number of matches, including those before the cursor and beyond the limit.
    pub total: u64,
    /// Whether `total` is only a lower bound, because the store stopped counting.
    pub at_least: bool,
    /// Where the next page begins; `None` if this is the last page.
    pub next: Option<QueryCursor>,
}

impl StepQuery {
    /// Whether a step of a session of `agent` matches the filters. The cursor and the limit are not considered.
    pub fn matches(&self, stored: &StepRow, agent: &str) -> bool {
        let step = &stored.step;
        let facts = &step.meta;
        self.session.is_none_or(|session| session == step.session)
            && self.agent.as_ref().is_none_or(|wanted| wanted == agent)
            && self.worker.as_ref().is_none_or(|worker| facts.worker.as_ref() == Some(worker))
            && (self.kinds.is_empty() || self.kinds.contains(&step.kind))
            && self
                .tool
                .as_ref()
                .is_none_or(|tool| facts.tool.as_ref().is_some_and(|known| known.eq_ignore_ascii_case(tool)))
            && self.call.as_ref().is_none_or(|call| facts.call.as_ref() == Some(call))
            && self.iteration.is_none_or(|iteration| facts.iteration == iteration)
            && self.task.as_ref().is_none_or(|task| facts.context.task.as_ref() == Some(task))
            && self.trace.as_ref().is_none_or(|trace| facts.context.trace.as_ref() == Some(trace))
            && self.span.as_ref().is_none_or(|span| facts.context.span.as_ref() == Some(span))
            && self.failed.is_none_or(|failed| facts.failed == failed)
            && self.since.is_none_or(|since| step.at >= since)
            && self.until.is_none_or(|until| step.at <= until)
            && self.state.is_none_or(|state| step.state == state)
            && self.checkpoint.is_none_or(|wanted| stored.trigger.is_some() == wanted)
            && self.hidden.is_none_or(|hidden| stored.hidden_by.is_some() == hidden)
            && self.label.as_ref().is_none_or(|label| stored.annotation.label.as_ref() == Some(label))
            && self.tag.as_ref().is_none_or(|tag| stored.annotation.tags.contains(tag))
            && self.min_duration.is_none_or(|least| facts.duration.is_some_and(|took| took >= least))
            && self.after.is_none_or(|number| step.number > number)
            && self.before.is_none_or(|number| step.number < number)
    }

    /// The place of a step in the requested order, given its `position` in commit order.
    pub fn place(&self, stored: &StepRow, position: u64) -> QueryCursor {
        let step = &stored.step;
        let value = match self.by {
            SortKey::Commit => 0,
            SortKey::Time => step.at.as_micros(),
            SortKey::Duration => {
                step.meta.duration.map_or(-1, |micros| i64::try_from(micros).unwrap_or(i64::MAX))
            }
        };
        QueryCursor { value, position }
    }
}
