//! Finding the recorded answer to a request: by what it asks, after everything that legitimately differs between two runs
//! was taken out, and not by its place in the order.

use std::path::PathBuf;

use crate::{Exchange, Request};

/// What differs between two runs because they are two runs.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// Directories of the recorded run, each with what stands for it: the workspace, the home, the temporary directory.
    pub recorded: Vec<(PathBuf, &'static str)>,
    /// The same of the present run.
    pub present: Vec<(PathBuf, &'static str)>,
}

/// One difference between the request and the recorded one it is nearest to.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Difference {
    /// Where, as a JSON path: `messages[4].content[0].text`.
    pub path: String,
    /// What was recorded; `None` if there was nothing.
    pub recorded: Option<String>,
    /// What is asked now; `None` if there is nothing.
    pub present: Option<String>,
}

/// What a recording has to say to a request.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// This exchange answers it.
    Same(usize),
    /// It is a background request (a title, a router, a quota check), and this recorded one, if any, comes nearest.
    Background(Option<usize>),
    /// It was never asked like this. The nearest exchange, and where the two part.
    Different {
        /// The nearest one, if there is any of the same wire.
        nearest: Option<usize>,
        /// The first differences, the earliest in the conversation first.
        differences: Vec<Difference>,
    },
}

/// Recorded exchanges of one session, ready to be looked through.
#[derive(Debug)]
pub struct Recording {}

impl Recording {
    /// Takes exchanges in, in the order they happened.
    pub fn new(exchanges: Vec<Exchange>, places: Places) -> Self {
        let _ = (exchanges, places);
        unimplemented!()
    }

    /// The exchanges.
    pub fn exchanges(&self) -> &[Exchange] {
        unimplemented!()
    }

    /// Looks for the answer to a request. Of several that fit, the first that was not given yet is taken; when all were, the
    /// last one again (an agent that retries asks the same thing twice).
    pub fn find(&mut self, request: &Request) -> Found {
        let _ = request;
        unimplemented!()
    }
}
