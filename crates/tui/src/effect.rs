//! The messages to the [`App`](crate::app::App), and the effects it asks for.

use std::time::Duration;

use crossterm::event::KeyCode;
use serde_json::Value;
use stepback_api::anomalies::AnomaliesDocument;
use stepback_api::branches::BranchDocument;
use stepback_api::control::{BreakpointDocument, SessionControlDocument, StopDocument};
use stepback_api::files::{ChangedFileDocument, FileDocument};
use stepback_api::page::Page;
use stepback_api::plans::{AppliedPlanDocument, PlanDocument};
use stepback_api::reasoning::ConfidenceDocument;
use stepback_api::search::SearchResultsDocument;
use stepback_api::sessions::SessionDocument;
use stepback_api::state::StateDocument;
use stepback_api::steps::StepDocument;
use stepback_api::timeline::BranchLinesDocument;
use stepback_model::time::Timestamp;

use crate::app::pager::PagerRow;
use crate::app::window::WindowSide;
use crate::app::{BoardView, CompareTarget, StatePart};
use crate::source::SourceResult;

/// A value that is requested and may have arrived. It belongs to a key, such as a step.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum LoadState<T> {
    /// Not requested.
    #[default]
    NotRequested,
    /// Requested for this key.
    Waiting(String),
    /// Arrived for this key.
    Ready(String, T),
    /// The request for this key failed, and why.
    Failed(String, String),
}

impl<T> LoadState<T> {
    /// Returns the key it was requested for.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::NotRequested => None,
            Self::Waiting(key) | Self::Ready(key, _) | Self::Failed(key, _) => Some(key),
        }
    }

    /// Returns the value, if it arrived.
    pub fn value(&self) -> Option<&T> {
        if let Self::Ready(_, value) = self { Some(value) } else { None }
    }

    /// Returns the value, if it arrived.
    pub fn value_mut(&mut self) -> Option<&mut T> {
        if let Self::Ready(_, value) = self { Some(value) } else { None }
    }

    /// Returns whether the value must be requested, and marks it as requested.
    pub fn request(&mut self, key: &str) -> bool {
        let is_requested = self.key() == Some(key);
        if !is_requested {
            *self = Self::Waiting(key.to_owned());
        }
        !is_requested
    }

    /// Stores the value, if it is still wanted.
    pub fn store(&mut self, key: &str, result: SourceResult<T>) {
        if self.key() == Some(key) {
            *self = match result {
                Ok(value) => Self::Ready(key.to_owned(), value),
                Err(trouble) => {
                    Self::Failed(key.to_owned(), stepback_model::escape::safe(&trouble.to_line()))
                }
            };
        }
    }
}

/// An event that the app handles.
#[derive(Clone, PartialEq, Debug)]
pub enum AppMessage {
    /// A key, and whether control was held.
    Key(KeyCode, bool),
    /// Text was pasted.
    Paste(String),
    /// The mouse was pressed at a column and a row.
    Click(u16, u16),
    /// The wheel was turned; true means down.
    Wheel(bool),
    /// The terminal has a new size.
    Resize(u16, u16),
    /// The current time, and how long the program has been running.
    Tick(Timestamp, Duration),
    /// An event of the source.
    SourceEvent(SourceEvent),
    /// A response of the source.
    Response(Box<SourceResponse>),
}

/// An event of the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceEvent {
    /// The event stream is connected.
    Connected,
    /// The event stream is not available, and why.
    Disconnected(String),
    /// A session has a new step.
    Step {
        /// The id of the session.
        session: String,
    },
    /// The list of waiting agents changed.
    Stops,
    /// Something else may have changed.
    Changed,
}

/// A response of the source.
#[derive(Clone, PartialEq, Debug)]
pub enum SourceResponse {
    /// Sessions: the first page, or the one after a cursor.
    Sessions(SourceResult<Page<SessionDocument>>, Option<String>),
    /// A session, with steps around a number.
    Session(SourceResult<(SessionDocument, StepsAround)>),
    /// Steps around a number of a session.
    StepsAround(String, SourceResult<StepsAround>),
    /// Steps on one side of a window.
    MoreSteps(String, WindowSide, SourceResult<Page<StepDocument>>),
    /// The step that was searched for.
    FoundStep(SourceResult<StepDocument>),
    /// A step as text.
    Step(String, SourceResult<Vec<PagerRow>>),
    /// A state, and what its step changed.
    State(String, SourceResult<(Box<StateDocument>, Vec<ChangedFileDocument>)>),
    /// Another page of a state's files.
    Files(String, SourceResult<Page<FileDocument>>),
    /// A part of a state as text.
    Part(String, SourceResult<Vec<PagerRow>>),
    /// A file as text.
    File(String, SourceResult<Vec<PagerRow>>),
    /// The board at a step.
    Board(String, SourceResult<BoardView>),
    /// The agent's confidence over time.
    Confidence(String, SourceResult<ConfidenceDocument>),
    /// A difference as text.
    Diff(String, SourceResult<Vec<PagerRow>>),
    /// Agents that wait.
    Stops(SourceResult<Page<StopDocument>>),
    /// Breakpoints of a workspace.
    Breakpoints(SourceResult<Page<BreakpointDocument>>),
    /// Branches of a workspace.
    Branches(SourceResult<Page<BranchDocument>>),
    /// On which branches the steps of a session are.
    Lines(String, SourceResult<BranchLinesDocument>),
    /// What is unusual in a session.
    Anomalies(String, SourceResult<AnomaliesDocument>),
    /// A plan, and the point it rewinds to.
    Plan(SourceResult<PlanDocument>, Option<String>),
    /// The result of a plan.
    Applied(SourceResult<AppliedPlanDocument>),
    /// Whether a session is paused.
    Paused(SourceResult<SessionControlDocument>),
    /// The results of a search for this text.
    SearchHits(String, SourceResult<SearchResultsDocument>),
    /// A command succeeded; holds the notice to show.
    CommandDone(SourceResult<String>),
}

/// Steps around a number.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StepsAround {
    /// The number.
    pub number: u64,
    /// The steps, oldest first.
    pub steps: Vec<StepDocument>,
    /// Whether the first is the first of the session.
    pub has_first: bool,
    /// Whether the last is the last of the session.
    pub has_last: bool,
}

/// An effect that the app asks for.
#[derive(Clone, PartialEq, Debug)]
pub enum AppEffect {
    /// End the program.
    Quit,
    /// Request the sessions.
    Sessions,
    /// Request the sessions after this cursor.
    MoreSessions(String),
    /// Open a session, at a step or at its end.
    Open {
        /// The id of the session, or the beginning of it.
        session: String,
        /// The number of the step; `None` for the last one.
        number: Option<u64>,
    },
    /// Request steps around a number.
    StepsAround {
        /// The id of the session.
        session: String,
        /// The number of the step in the middle.
        number: u64,
    },
    /// Request steps on a side of a number.
    MoreSteps {
        /// The id of the session.
        session: String,
        /// Before or after the number.
        side: WindowSide,
        /// The number of the step to start from.
        number: u64,
    },
    /// Search for the nearest error.
    FindError {
        /// The id of the session.
        session: String,
        /// The direction of the search.
        side: WindowSide,
        /// The number of the step to start from.
        number: u64,
    },
    /// Resolve a point.
    Resolve {
        /// The id of the session, for points that are relative to one.
        session: String,
        /// The id of its workspace.
        workspace: String,
        /// The point as the user typed it.
        point: String,
    },
    /// Request a step.
    Step {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the session.
        session: String,
        /// The step itself.
        step: Box<StepDocument>,
    },
    /// Request a state with its files.
    State {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the session.
        session: String,
        /// The step itself.
        step: Box<StepDocument>,
    },
    /// Request another page of files.
    Files {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the session.
        session: String,
        /// The number of the step.
        number: u64,
        /// The cursor of the page.
        cursor: String,
    },
    /// Request another part of a state.
    Part {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the session.
        session: String,
        /// The number of the step.
        number: u64,
        /// The part to load.
        part: StatePart,
    },
    /// Request a file.
    File {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the session.
        session: String,
        /// The number of the step.
        number: u64,
        /// The path of the file as the end of a URL.
        address: String,
    },
    /// Request a file with the author of each line.
    Origins {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the workspace.
        workspace: String,
        /// The number of the step.
        number: u64,
        /// The path of the file.
        path: String,
    },
    /// Request a difference.
    Diff {
        /// The key of the value that waits for it.
        key: String,
        /// The step to compare.
        step: Box<StepDocument>,
        /// What it is compared with.
        against: CompareTarget,
    },
    /// Request the board at a step.
    Board {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the session.
        session: String,
        /// The number of the step.
        number: u64,
    },
    /// Request the agent's confidence over time.
    Confidence {
        /// The key of the value that waits for it.
        key: String,
        /// The id of the session.
        session: String,
    },
    /// Request the agents that wait.
    Stops,
    /// Request the breakpoints of a workspace.
    Breakpoints(String),
    /// Request the branches of a workspace.
    Branches(String),
    /// Request the branches that the steps of a session are on.
    Lines(String),
    /// Request what is unusual in a session.
    Anomalies(String),
    /// Request a plan for a rewind.
    PlanRewind {
        /// The id of the workspace.
        workspace: String,
        /// The point to rewind to.
        point: String,
        /// Whether to also take back changes of the user and of other sessions.
        everything: bool,
    },
    /// Request a plan to undo the last operation of a workspace.
    PlanUndo(String),
    /// Confirm a plan.
    Apply(String),
    /// Stop a session at its next call, or let it run.
    Pause {
        /// The id of the session.
        session: String,
        /// Whether it is to stop.
        stop: bool,
    },
    /// Search for words.
    Search(String),
    /// Run a command.
    RunCommand(TuiCommand),
}

/// A command that takes a single request.
#[derive(Clone, PartialEq, Debug)]
pub struct TuiCommand {
    /// The HTTP method.
    pub method: CommandMethod,
    /// The path of the request.
    pub path: String,
    /// The body of the request.
    pub body: Value,
    /// The notice to show when it succeeded.
    pub notice: String,
}

/// The HTTP method of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommandMethod {
    /// Creates something or runs an action.
    Post,
    /// Changes something.
    Patch,
    /// Removes something.
    Delete,
}
