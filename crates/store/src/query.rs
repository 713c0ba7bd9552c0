//! Which steps somebody wants to see, in words that every backend can answer.

use std::fmt;
use std::str::FromStr;

use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use crate::port::StoredCheckpoint;

/// Which steps to list. What is `None` or empty does not limit.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Query {
    /// Of this session.
    pub session: Option<SessionId>,
    /// Of sessions of this agent.
    pub agent: Option<String>,
    /// Of this sub-agent.
    pub worker: Option<String>,
    /// Of one of these kinds.
    pub kinds: Vec<StepKind>,
    /// About this tool; letter case does not matter.
    pub tool: Option<String>,
    /// Of this call.
    pub call: Option<String>,
    /// Of this iteration.
    pub iteration: Option<u64>,
    /// That went wrong, or did not.
    pub failed: Option<bool>,
    /// Made at this moment or later.
    pub since: Option<Timestamp>,
    /// Made at this moment or earlier.
    pub until: Option<Timestamp>,
    /// With this state.
    pub state: Option<Hash>,
    /// That are checkpoints, or are not.
    pub checkpoint: Option<bool>,
    /// That are hidden, or are not.
    pub hidden: Option<bool>,
    /// With this label.
    pub label: Option<String>,
    /// With this tag.
    pub tag: Option<String>,
    /// That took so many microseconds or more.
    pub min_duration: Option<u64>,
    /// With a number above this one.
    pub after: Option<u64>,
    /// With a number below this one.
    pub before: Option<u64>,
    /// In order of this.
    pub by: SortKey,
    /// Oldest (or shortest) first instead of newest (or longest) first.
    pub oldest_first: bool,
    /// That come after this place in the order.
    pub from: Option<Cursor>,
    /// At most so many.
    pub limit: Option<u64>,
    /// Count all of them, also beyond [`COUNTED`].
    pub count_all: bool,
}

/// What steps are ordered by. Those that are equal in it are in order of their commits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SortKey {
    /// Their commits; in one workspace, their numbers.
    #[default]
    Commit,
    /// When they were made.
    Time,
    /// How long they took; those of which it is not known count as shorter than any other.
    Duration,
}

/// Orders by their names: what steps are ordered by, and whether the oldest (or shortest) comes first.
pub const ORDERS: [(&str, SortKey, bool); 6] = [
    ("newest", SortKey::Commit, false),
    ("oldest", SortKey::Commit, true),
    ("latest", SortKey::Time, false),
    ("earliest", SortKey::Time, true),
    ("longest", SortKey::Duration, false),
    ("shortest", SortKey::Duration, true),
];

/// A store need not count further: to count a million steps takes longer than to show a page of them.
pub const COUNTED: u64 = 10_000;

/// A place in a list of steps, at which it can be gone on with. It stays where it is when steps are added.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cursor {
    /// What the last step seen is ordered by.
    pub value: i64,
    /// Its place in the order of commits.
    pub position: u64,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.value, self.position)
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('.');
        let read = parts.and_then(|(value, position)| {
            Some(Self { value: value.parse().ok()?, position: position.parse().ok()? })
        });
        read.ok_or("it is not a place that a list was cut off at")
    }
}

/// A step, and where it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepAt {
    /// Its workspace.
    pub workspace: WorkspaceId,
    /// Its place in the order of commits, for as long as the store is there.
    pub position: u64,
    /// The step.
    pub stored: StoredCheckpoint,
}

/// How many steps an agent has of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StepCount {
    /// The agent.
    pub agent: String,
    /// The kind.
    pub kind: StepKind,
    /// How many.
    pub steps: u64,
    /// How many of them went wrong.
    pub failed: u64,
}

/// Some of the steps that were asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Page {
    /// They.
    pub steps: Vec<StepAt>,
    /// How many there are in all, before the cursor and beyond the limit.
    pub total: u64,
    /// Whether there are so many at least, and nobody counted further.
    pub at_least: bool,
    /// Where to go on, if there are more.
    pub next: Option<Cursor>,
}

impl Query {
    /// Whether a step of a session of `agent` is asked for, as far as one step can tell.
    pub fn matches(&self, stored: &StoredCheckpoint, agent: &str) -> bool {
        let (checkpoint, step) = (&stored.checkpoint, &stored.checkpoint.step);
        let facts = &step.facts;
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
            && self.failed.is_none_or(|failed| facts.failed == failed)
            && self.since.is_none_or(|since| step.at >= since)
            && self.until.is_none_or(|until| step.at <= until)
            && self.state.is_none_or(|state| step.state == state)
            && self.checkpoint.is_none_or(|wanted| checkpoint.trigger.is_some() == wanted)
            && self.hidden.is_none_or(|hidden| checkpoint.hidden_by.is_some() == hidden)
            && self.label.as_ref().is_none_or(|label| checkpoint.annotation.label.as_ref() == Some(label))
            && self.tag.as_ref().is_none_or(|tag| checkpoint.annotation.tags.contains(tag))
            && self.min_duration.is_none_or(|least| facts.duration.is_some_and(|took| took >= least))
            && self.after.is_none_or(|number| step.number > number)
            && self.before.is_none_or(|number| step.number < number)
    }

    /// Where a step that is the `position`th in the order of commits stands in the order that is asked for.
    pub fn place(&self, stored: &StoredCheckpoint, position: u64) -> Cursor {
        let step = &stored.checkpoint.step;
        let value = match self.by {
            SortKey::Commit => 0,
            SortKey::Time => step.at.as_micros(),
            SortKey::Duration => {
                step.facts.duration.map_or(-1, |micros| i64::try_from(micros).unwrap_or(i64::MAX))
            }
        };
        Cursor { value, position }
    }
}
