//! What can be known: who wrote what, which calls may have been running, and what the files were.
//!
//! Nothing here is shared with the code under test. Time is counted in ticks, one for every thing that happens.

use std::collections::BTreeSet;

use stepback_agents::Agent;
use stepback_engine::authorship::Attribution;
use stepback_model::ids::StepId;

use crate::world::Files;

/// Who wrote something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Actor {
    Person,
    Call(usize),
}

/// One write to one file.
#[derive(Clone, Debug)]
pub struct Edit {
    pub tick: u64,
    pub path: &'static str,
    pub actor: Actor,
    /// The line it added, if it added one.
    pub token: String,
}

impl Edit {
    /// Whether the line that it added is there.
    pub fn is_in(&self, files: &Files) -> bool {
        let line = format!("{}\n", self.token);
        !self.token.is_empty() && files.get(self.path).is_some_and(|text| text.contains(&line))
    }
}

/// A call, as its events were delivered.
#[derive(Clone, Debug)]
pub struct Call {
    pub id: String,
    pub session: usize,
    pub worker: Option<String>,
    pub tool: &'static str,
    /// The only path that it may change.
    pub bound_to: Option<&'static str>,
    pub changes: bool,
    pub turn: Option<String>,
    /// When its start and its end were delivered.
    pub start: Option<u64>,
    pub end: Option<u64>,
    /// When it was known not to run any more, without an end.
    pub closed: Option<u64>,
    /// When the agent said that it was not run.
    pub denied: Option<u64>,
    /// Another call of the same worker has ended since it began.
    pub overtaken: bool,
    pub start_step: Option<StepId>,
}

impl Call {
    pub fn is_open(&self) -> bool {
        self.start.is_some() && self.end.is_none() && self.closed.is_none() && self.denied.is_none()
    }

    fn has_ended(&self) -> bool {
        self.end.is_some() && self.denied.is_none()
    }
}

/// A scan of the workspace.
#[derive(Clone, Debug)]
pub struct Scan {
    pub tick: u64,
    /// The session whose event caused it; `None` for the person's commands.
    pub session: Option<usize>,
    pub step: Option<StepId>,
    /// Paths that it did not look at, because only others were to be changed.
    pub left_out: Vec<&'static str>,
}

#[derive(Default)]
pub struct Oracle {
    pub edits: Vec<Edit>,
    pub calls: Vec<Call>,
    pub scans: Vec<Scan>,
    /// What the files were at every step.
    pub files: Vec<(StepId, Files)>,
    /// For every session, the model turn of its last call.
    pub turns: Vec<Option<String>>,
}

/// What makes it certain that calls of a session are over.
#[derive(Clone, Copy, Debug)]
pub enum Sign<'a> {
    /// A prompt, a stop, a start or an end of the session.
    Session,
    /// The next model request of a worker, or its end.
    Worker(Option<&'a str>),
    /// A call of the same worker starts.
    NextCall(usize),
}

impl Oracle {
    /// Closes calls that cannot be running any more. Returns how many.
    pub fn close(&mut self, session: usize, agent: Agent, sign: Sign<'_>, tick: u64) -> usize {
        let known = self.turns[session].clone();
        let next = match sign {
            Sign::NextCall(at) => Some(self.calls[at].clone()),
            _ => None,
        };
        let is_over = |call: &Call| match (sign, &next) {
            (Sign::Session, _) => true,
            (Sign::Worker(worker), _) => call.worker.as_deref() == worker,
            (Sign::NextCall(_), Some(next)) => {
                let (same, other) = match (&next.turn, &known) {
                    (Some(turn), Some(known)) => (turn == known, turn != known),
                    _ => (false, false),
                };
                let alone = agent == Agent::Claude && next.bound_to.is_some();
                call.worker == next.worker && (other || alone || (call.overtaken && !same))
            }
            _ => false,
        };
        let mut closed = 0;
        for call in self.calls.iter_mut().filter(|call| call.session == session && call.is_open()) {
            if is_over(call) {
                call.closed = Some(tick);
                closed += 1;
            }
        }
        closed
    }

    /// The scan of `path` before the one at `tick`.
    fn scanned_before(&self, path: &str, tick: u64) -> u64 {
        let scans = self.scans.iter().filter(|scan| scan.tick < tick && !scan.left_out.contains(&path));
        scans.map(|scan| scan.tick).max().unwrap_or(0)
    }

    /// The calls that, for all that is known, may have changed `path` between the scan before `tick` and `tick`.
    fn candidates(&self, path: &str, tick: u64) -> Vec<usize> {
        let since = self.scanned_before(path, tick);
        let may_have = |call: &&Call| {
            if !call.changes || call.bound_to.is_some_and(|only| only != path) {
                return false;
            }
            if call.denied.is_some_and(|denied| denied <= tick) {
                return false;
            }
            let ended = call.end.filter(|end| *end <= tick);
            // The start was missed, or the call had been taken for abandoned: it is known to have run when its end arrives.
            if ended == Some(tick) {
                return true;
            }
            if call.start.is_none_or(|start| start >= tick) || ended.is_some_and(|end| end <= since) {
                return false;
            }
            // One that was closed counts until its own session's next scan.
            match call.closed.filter(|closed| *closed <= tick) {
                None => true,
                Some(closed) => {
                    let own = self.scans.iter().filter(|scan| scan.session == Some(call.session));
                    !own.map(|scan| scan.tick).any(|at| at >= closed && at < tick)
                }
            }
        };
        (0..self.calls.len()).filter(|at| may_have(&&self.calls[*at])).collect()
    }

    /// Whether a call is known to have run to its end, or may be running.
    fn is_certain(&self, at: usize) -> bool {
        let call = &self.calls[at];
        let missed_start = call.start.is_none() && call.bound_to.is_none();
        call.denied.is_none() && (call.has_ended() || call.closed.is_none()) && !missed_start
    }

    /// Whether `who` is what can be known of the change of `path` that was found at `tick`.
    pub fn check_author(&self, path: &str, tick: u64, who: &Attribution) -> Result<(), String> {
        let all = self.candidates(path, tick);
        let named: Vec<usize> = (all.iter().copied())
            .filter(|at| self.calls[*at].bound_to == Some(path) && self.is_certain(*at))
            .collect();
        let naming: Vec<usize> =
            all.iter().copied().filter(|at| self.calls[*at].bound_to == Some(path)).collect();
        let candidates = if named.is_empty() { all } else { naming };
        let certain: Vec<usize> = candidates.iter().copied().filter(|at| self.is_certain(*at)).collect();
        let sessions: BTreeSet<usize> = candidates.iter().map(|at| self.calls[*at].session).collect();
        let expected = match (candidates.is_empty(), certain.is_empty(), sessions.len()) {
            (true, _, _) => "the person",
            (_, false, 1) => "a call",
            _ => "uncertain",
        };
        let (found, authors) = match who {
            Attribution::Unreported => ("the person", Vec::new()),
            Attribution::Call(author) => ("a call", vec![author.step]),
            Attribution::OneOf(authors) => ("uncertain", authors.iter().map(|author| author.step).collect()),
        };
        let possible: Vec<&str> = candidates.iter().map(|at| self.calls[*at].id.as_str()).collect();
        let problem = |what: &str| {
            let since = self.scanned_before(path, tick);
            let truth: Vec<String> = (self.edits.iter())
                .filter(|edit| edit.path == path && edit.tick > since && edit.tick <= tick)
                .map(|edit| format!("{:?} at {}", edit.actor, edit.tick))
                .collect();
            Err(format!(
                "{path} at tick {tick}: {what}; expected {expected} of {possible:?}, found {who:?}; in truth {truth:?}"
            ))
        };
        if found != expected {
            return problem("wrong author");
        }
        for step in authors {
            let known = self.calls.iter().position(|call| call.start_step == Some(step));
            if known.is_some_and(|at| !candidates.contains(&at)) {
                return problem("a call that cannot have done it is named");
            }
        }
        Ok(())
    }

    /// Who really wrote to `path` between the scan before `tick` and `tick`.
    pub fn truth(&self, path: &str, tick: u64) -> BTreeSet<Actor> {
        let since = self.scanned_before(path, tick);
        let edits = self.edits.iter();
        edits
            .filter(|edit| edit.path == path && edit.tick > since && edit.tick <= tick)
            .map(|edit| edit.actor)
            .collect()
    }

    /// The tick of the scan that a step was.
    pub fn tick_of(&self, step: StepId) -> Option<u64> {
        self.scans.iter().find(|scan| scan.step == Some(step)).map(|scan| scan.tick)
    }

    /// Whether a call that is open, or was closed and not scanned since by its session, may have changed something.
    pub fn has_unscanned(&self, session: usize) -> bool {
        self.calls.iter().filter(|call| call.session == session && call.changes && call.start.is_some()).any(
            |call| {
                let over = call.denied.or(call.end).or(call.closed);
                let own = self.scans.iter().filter(|scan| scan.session == Some(session));
                call.denied.is_none()
                    && !own.map(|scan| scan.tick).any(|at| over.is_some_and(|over| at >= over))
            },
        )
    }
}
