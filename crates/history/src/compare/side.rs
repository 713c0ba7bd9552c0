//! One side of a comparison, built from a session, a branch or a point.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::Value;
use stepback_engine::workspace::describe_checkpoint;
use stepback_engine::{EngineError, Workspace};
use stepback_model::hash::Hash;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Session, Step, StepKind, Trigger};
use stepback_model::state::WorkspaceState;
use stepback_store::port::{StepQuery, StepRow};

use crate::error::HistoryError;

/// A run: its steps, and the states it began and ended with.
#[derive(Clone, Debug, Default)]
pub struct ComparedRun {
    /// Name of the side.
    pub name: String,
    /// Its steps, oldest first; none for a single point.
    pub steps: Vec<Step>,
    /// The state it began with; `None` if unknown.
    pub start: Option<WorkspaceState>,
    /// The state it ended with; `None` if unknown.
    pub end: Option<WorkspaceState>,
    /// The last message of its conversation; `None` if there is none.
    pub conversation: Option<Hash>,
    /// The session, if the side is one.
    pub session: Option<Session>,
    /// Directories it ran in, whose names are ignored.
    pub directories: Vec<String>,
    /// Where it leaves another session, if it continues or repeats one.
    pub fork: Option<RunFork>,
}

/// Where a session leaves the one that it was forked from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunFork {
    /// The session that it was forked from.
    pub(super) of: SessionId,
    /// The number of the step there at which it begins.
    pub(super) number: u64,
    /// Whether it repeats that step: a rerun does, a continued conversation goes on after it.
    pub(super) repeats: bool,
}

impl ComparedRun {
    /// Creates a side from a recorded session.
    pub fn from_session(workspace: &Workspace, session: &Session) -> Result<Self, HistoryError> {
        let query = StepQuery { session: Some(session.id), oldest_first: true, ..StepQuery::default() };
        let mut steps = workspace.store().steps(workspace.record.id, &query)?;
        steps.retain(|stored| stored.hidden_by.is_none() && is_of_run(stored));
        // For a session imported from the agent's own record, the files were not scanned while it ran; the recorded files are
        // those at the time of the import.
        let looked = !session.info.imported || steps.iter().any(|stored| stored.is_checkpoint());
        let is_known = |stored: &StepRow| match workspace.load_state(stored) {
            Ok(state) if looked => Ok(Some(state)),
            Ok(state) => Ok(Some(WorkspaceState { files: None, git: None, ..state })),
            Err(EngineError::NoFiles { .. }) => {
                Ok(Some(WorkspaceState::load(workspace.store(), stored.step.state)?))
            }
            Err(EngineError::Purged { .. }) => Ok(None),
            Err(error) => Err(HistoryError::from(error)),
        };
        let (first, last) = (steps.first().map(is_known), steps.last().map(is_known));
        Ok(Self {
            name: format!("{} {}", session.agent, session.id.short()),
            start: first.transpose()?.flatten(),
            end: last.transpose()?.flatten(),
            conversation: session.info.tip,
            fork: RunFork::of_session(workspace, session)?,
            session: Some(session.clone()),
            directories: run_directories(workspace, session.info.directory.as_deref()),
            steps: steps.into_iter().map(|stored| stored.step).collect(),
        })
    }

    /// Creates a side from a branch, with the steps of its line.
    pub fn from_branch(workspace: &Workspace, name: &str, tip: &StepRow) -> Result<Self, HistoryError> {
        let line = workspace.ancestry(tip)?;
        let mut side = Self::from_line(workspace, name, &line)?;
        side.steps = collect_line_steps(workspace, &line)?;
        // Light steps continue after the last checkpoint, and the conversation with them. A rewind of files has no
        // conversation.
        let states = side
            .steps
            .iter()
            .rev()
            .filter_map(|step| WorkspaceState::load(workspace.store(), step.state).ok());
        if let Some(last) = states.into_iter().find(|state| state.conversation.is_some()) {
            side.conversation = last.conversation;
            side.end = side.end.map(|end| WorkspaceState { env: end.env.or(last.env), ..end });
        }
        side.start = line.last().and_then(|first| workspace.load_state(first).ok());
        Ok(side)
    }

    /// Creates a side from the newest checkpoint of a line, without its steps.
    pub(super) fn from_line(
        workspace: &Workspace,
        name: &str,
        line: &[StepRow],
    ) -> Result<Self, HistoryError> {
        Ok(Self {
            name: name.to_string(),
            end: line.first().map(|tip| workspace.load_state(tip)).transpose()?,
            conversation: last_conversation(workspace, line)?,
            directories: run_directories(workspace, None),
            ..Self::default()
        })
    }

    /// Creates a side from a single point.
    pub fn from_point(workspace: &Workspace, stored: &StepRow) -> Result<Self, HistoryError> {
        let end = workspace.load_state(stored)?;
        Ok(Self {
            name: describe_checkpoint(stored),
            end: Some(end),
            conversation: end.conversation,
            directories: run_directories(workspace, None),
            ..Self::default()
        })
    }

    /// Returns the part of this run that `other` can be compared with: if that one was forked from this one, what comes after
    /// the fork.
    pub(super) fn part_for(&self, other: &Self) -> Cow<'_, Self> {
        let own = self.session.as_ref().map(|session| session.id);
        let Some(fork) = other.fork.filter(|fork| Some(fork.of) == own) else { return Cow::Borrowed(self) };
        // A rerun begins like the session: what comes before the first prompt is on both sides.
        let first_prompt = self.steps.iter().find(|step| step.kind == StepKind::UserInput);
        let begun = first_prompt.filter(|_| fork.repeats).map_or(0, |step| step.number);
        let is_after = |step: &&Step| match fork.repeats {
            true => step.number >= fork.number || step.number < begun,
            false => step.number > fork.number,
        };
        if self.steps.iter().all(|step| is_after(&step)) {
            return Cow::Borrowed(self);
        }
        Cow::Owned(Self {
            name: format!("{} from #{}", self.name, fork.number),
            steps: self.steps.iter().filter(is_after).cloned().collect(),
            // A fork begins with the files of the step.
            start: other.start,
            ..self.clone()
        })
    }

    /// Returns the text without the names of the directories the side ran in.
    pub(super) fn normalize_text(&self, text: &str) -> String {
        let contained = self.directories.iter().filter(|directory| text.contains(directory.as_str()));
        contained.fold(text.to_string(), |text, directory| text.replace(directory.as_str(), "."))
    }

    /// Returns the value without the names of the directories the side ran in.
    pub(super) fn normalize_value(&self, value: &Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.normalize_text(text)),
            Value::Array(items) => items.iter().map(|item| self.normalize_value(item)).collect(),
            Value::Object(fields) => {
                fields.iter().map(|(name, value)| (name.clone(), self.normalize_value(value))).collect()
            }
            other => other.clone(),
        }
    }
}

impl RunFork {
    fn of_session(workspace: &Workspace, session: &Session) -> Result<Option<Self>, HistoryError> {
        let Some((of, step)) = session.info.forked_from else { return Ok(None) };
        let step = workspace.store().step(step).map_err(EngineError::from)?;
        let repeats = workspace.record.is_rerun();
        Ok(step.map(|stored| Self { of, number: stored.step.number, repeats }))
    }
}

/// Whether a step is something that the run did. A stop at a breakpoint is not, the user's decision there is. A checkpoint that
/// was made because time had passed is not either: it would be at other places in a run that does the same.
fn is_of_run(stored: &StepRow) -> bool {
    let is_scheduled = stored.step.kind == StepKind::Checkpoint && stored.trigger == Some(Trigger::Scheduled);
    stored.step.kind != StepKind::BreakpointHit && !is_scheduled
}

/// Returns the directories of a side, the longest first, so that a nested directory is replaced as a whole.
fn run_directories(workspace: &Workspace, directory: Option<&str>) -> Vec<String> {
    let root = workspace.root.to_string_lossy().into_owned();
    let mut directories: Vec<String> = directory.map(str::to_string).into_iter().chain([root]).collect();
    // A name as short as "/" or "/a" occurs in too many other texts.
    directories.retain(|directory| directory.len() > 2);
    directories.sort_by_key(|directory| std::cmp::Reverse(directory.len()));
    directories.dedup();
    directories
}

/// Returns the steps of a line, including those without files of their own. Steps after the target of a rewind are not part
/// of the line.
fn collect_line_steps(workspace: &Workspace, line: &[StepRow]) -> Result<Vec<Step>, HistoryError> {
    let query = StepQuery { oldest_first: true, ..StepQuery::default() };
    let steps = workspace.store().steps(workspace.record.id, &query)?;
    // Steps after which an agent continued to a checkpoint.
    let checkpoints = steps.iter().filter(|stored| stored.is_checkpoint());
    let went_on: HashSet<StepId> = checkpoints
        .filter(|stored| stored.step.session != workspace.session.id)
        .filter_map(|stored| stored.step.parent)
        .collect();
    let mut last_light = std::collections::HashMap::new();
    let mut next: Option<&Step> = None;
    for stored in line {
        let step = &stored.step;
        let rewound_to = match next {
            None => u64::MAX,
            // A rewind to the agent's current position takes back none of its steps.
            Some(next) if matches!(next.kind, StepKind::Rewind | StepKind::BranchSwitched) => {
                if went_on.contains(&step.id) { step.number } else { next.number }
            }
            Some(next) => next.number,
        };
        last_light.insert(step.id, rewound_to);
        next = Some(step);
    }
    let belongs = |stored: &StepRow| {
        let step = &stored.step;
        match stored.trigger {
            Some(_) => last_light.contains_key(&step.id),
            None => {
                step.parent.and_then(|parent| last_light.get(&parent)).is_some_and(|end| step.number < *end)
            }
        }
    };
    let shown = steps.into_iter().filter(|stored| belongs(stored) && is_of_run(stored));
    Ok(shown.map(|stored| stored.step).collect())
}

/// Returns the conversation at the newest step of a line that has one; a rewind of files alone has none.
fn last_conversation(workspace: &Workspace, line: &[StepRow]) -> Result<Option<Hash>, HistoryError> {
    for stored in line.iter().filter(|stored| !stored.purged) {
        let state = WorkspaceState::load(workspace.store(), stored.step.state)?;
        if state.conversation.is_some() {
            return Ok(state.conversation);
        }
    }
    Ok(None)
}
