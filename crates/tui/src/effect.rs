//! What happens to the [`App`](crate::app::App), and what it wants to be done.

use std::time::Duration;

use crossterm::event::KeyCode;
use serde_json::Value;
use stepback_model::time::Timestamp;

use crate::app::pager::Row;
use crate::app::window::Side;
use crate::app::{Against, Board, Part};
use crate::documents::mind::Confidence;
use crate::documents::{
    Applied, Branch, Breakpoint, Changed, Controlled, Entry, Hits, Lines, Page, Plan, Session, State, Step,
    Stop,
};
use crate::source::Answered;

/// Something that is asked for and may have come. It belongs to something, such as a step, and to nothing else.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Loaded<T> {
    /// Nobody asked.
    #[default]
    No,
    /// It is on its way, for this key.
    Waiting(String),
    /// It came, for this key.
    Ready(String, T),
    /// It does not come, and why.
    Failed(String, String),
}

impl<T> Loaded<T> {
    /// For what it was asked.
    pub fn key(&self) -> Option<&str> {
        match self {
            Self::No => None,
            Self::Waiting(key) | Self::Ready(key, _) | Self::Failed(key, _) => Some(key),
        }
    }

    /// It, if it came.
    pub fn ready(&self) -> Option<&T> {
        if let Self::Ready(_, value) = self { Some(value) } else { None }
    }

    /// It, if it came.
    pub fn ready_mut(&mut self) -> Option<&mut T> {
        if let Self::Ready(_, value) = self { Some(value) } else { None }
    }

    /// Whether it must be asked for; from now on it is.
    pub fn ask(&mut self, key: &str) -> bool {
        let asked = self.key() == Some(key);
        if !asked {
            *self = Self::Waiting(key.to_owned());
        }
        !asked
    }

    /// Takes it in, if it is still wanted.
    pub fn take(&mut self, key: &str, came: Answered<T>) {
        if self.key() == Some(key) {
            *self = match came {
                Ok(value) => Self::Ready(key.to_owned(), value),
                Err(trouble) => Self::Failed(key.to_owned(), stepback_model::escape::safe(&trouble.line())),
            };
        }
    }
}

/// What happened.
#[derive(Clone, PartialEq, Debug)]
pub enum Message {
    /// A key, and whether control was held.
    Key(KeyCode, bool),
    /// Text was pasted.
    Paste(String),
    /// The mouse was pressed at a column and a row.
    Click(u16, u16),
    /// The wheel was turned; whether down.
    Wheel(bool),
    /// The terminal has this size now.
    Resize(u16, u16),
    /// What time it is, and how long we have been running.
    Tick(Timestamp, Duration),
    /// Something happened at the source.
    News(SourceEvent),
    /// What was asked for came.
    Came(Box<SourceResponse>),
}

/// What is heard of the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SourceEvent {
    /// It can be heard.
    Connected,
    /// It cannot.
    Gone(String),
    /// A session has another step.
    Step {
        /// Its id.
        session: String,
    },
    /// Agents wait, or no longer.
    Stops,
    /// Something else may have changed.
    Changed,
}

/// What came.
#[derive(Clone, PartialEq, Debug)]
pub enum SourceResponse {
    /// Sessions, the first of them or those after a cursor.
    Sessions(Answered<Page<Session>>, Option<String>),
    /// A session, with steps around a number.
    Session(Answered<(Session, Around)>),
    /// Steps around a number of a session.
    Around(String, Answered<Around>),
    /// Steps on a side.
    More(String, Side, Answered<Page<Step>>),
    /// The step that was looked for.
    Found(Answered<Step>),
    /// A step as text.
    Step(String, Answered<Vec<Row>>),
    /// A state, and what changed in its step.
    State(String, Answered<(State, Vec<Changed>)>),
    /// More files of a state.
    Files(String, Answered<Page<Entry>>),
    /// A part of a state as text.
    Part(String, Answered<Vec<Row>>),
    /// A file as text.
    File(String, Answered<Vec<Row>>),
    /// What was thought by a step.
    Board(String, Answered<Board>),
    /// How sure the agent was over time.
    Confidence(String, Answered<Confidence>),
    /// A difference as text.
    Diff(String, Answered<Vec<Row>>),
    /// Agents that wait.
    Stops(Answered<Page<Stop>>),
    /// Breakpoints of a workspace.
    Breakpoints(Answered<Page<Breakpoint>>),
    /// Branches of a workspace.
    Branches(Answered<Page<Branch>>),
    /// On which branches the steps of a session are.
    Lines(String, Answered<Lines>),
    /// A plan, and the point it goes back to.
    Plan(Answered<Plan>, Option<String>),
    /// What became of a plan.
    Applied(Answered<Applied>),
    /// Whether a session is paused.
    Paused(Answered<Controlled>),
    /// What a search found.
    Hits(String, Answered<Hits>),
    /// Something was done; what to tell.
    Done(Answered<String>),
}

/// Steps around a number.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Around {
    /// The number.
    pub number: u64,
    /// The steps, oldest first.
    pub steps: Vec<Step>,
    /// Whether the first is the first of the session.
    pub begins: bool,
    /// Whether the last is the last of the session.
    pub ends: bool,
}

/// What is to be done.
#[derive(Clone, PartialEq, Debug)]
pub enum Effect {
    /// End.
    Quit,
    /// Ask for the sessions.
    Sessions,
    /// Ask for more of them.
    MoreSessions(String),
    /// Open a session, at a step or at its end.
    Open {
        /// Its id, or the beginning of it.
        session: String,
        /// The step.
        number: Option<u64>,
    },
    /// Ask for steps around a number.
    Around {
        /// The session.
        session: String,
        /// The number.
        number: u64,
    },
    /// Ask for steps on a side of a number.
    More {
        /// The session.
        session: String,
        /// The side.
        side: Side,
        /// The number.
        number: u64,
    },
    /// Look for the nearest error.
    Error {
        /// The session.
        session: String,
        /// In which direction.
        side: Side,
        /// From this number on.
        number: u64,
    },
    /// Find out what a point names.
    Resolve {
        /// The session that is meant where one must be.
        session: String,
        /// Its workspace.
        workspace: String,
        /// The point.
        point: String,
    },
    /// Ask for a step.
    Step {
        /// Whom it is for.
        key: String,
        /// The session.
        session: String,
        /// The step.
        step: Box<Step>,
    },
    /// Ask for a state with its files.
    State {
        /// Whom it is for.
        key: String,
        /// The session.
        session: String,
        /// The step.
        step: Box<Step>,
    },
    /// Ask for more files.
    Files {
        /// Whom it is for.
        key: String,
        /// The session.
        session: String,
        /// The step.
        number: u64,
        /// Where to go on.
        cursor: String,
    },
    /// Ask for another part of a state.
    Part {
        /// Whom it is for.
        key: String,
        /// The session.
        session: String,
        /// The step.
        number: u64,
        /// Which.
        part: Part,
    },
    /// Ask for a file.
    File {
        /// Whom it is for.
        key: String,
        /// The session.
        session: String,
        /// The step.
        number: u64,
        /// The end of its address.
        address: String,
    },
    /// Ask for a difference.
    Diff {
        /// Whom it is for.
        key: String,
        /// The step.
        step: Box<Step>,
        /// With what it is compared.
        against: Against,
    },
    /// Ask for what was thought by a step.
    Board {
        /// Whom it is for.
        key: String,
        /// The session.
        session: String,
        /// The step.
        number: u64,
    },
    /// Ask how sure the agent was over time.
    Confidence {
        /// Whom it is for.
        key: String,
        /// The session.
        session: String,
    },
    /// Ask for agents that wait.
    Stops,
    /// Ask for breakpoints of a workspace.
    Breakpoints(String),
    /// Ask for branches of a workspace.
    Branches(String),
    /// Ask on which branches the steps of a session are.
    Lines(String),
    /// Plan to go back.
    PlanRewind {
        /// The workspace.
        workspace: String,
        /// The point.
        point: String,
        /// Whether to all of it.
        everything: bool,
    },
    /// Plan to take back what was done last.
    PlanUndo(String),
    /// Agree to a plan.
    Apply(String),
    /// Stop a session at its next call, or let it run.
    Pause {
        /// The session.
        session: String,
        /// Whether it is to stop.
        stop: bool,
    },
    /// Look for words.
    Search(String),
    /// Ask for something to be done.
    Do(TuiCommand),
}

/// Something that is done with one request.
#[derive(Clone, PartialEq, Debug)]
pub struct TuiCommand {
    /// How.
    pub method: Method,
    /// Where.
    pub path: String,
    /// With what.
    pub body: Value,
    /// What to tell when it is done.
    pub told: String,
}

/// How something is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Something new.
    Post,
    /// Something else.
    Patch,
    /// Away with it.
    Delete,
}
