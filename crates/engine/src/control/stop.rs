//! Stops: an agent's hook waits, a person looks and answers.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::ids::SessionId;
use stepback_model::time::Timestamp;

use super::Control;

/// How often a waiting hook looks for an answer: too short to feel, too long to cost anything.
const GLANCE: Duration = Duration::from_millis(15);

/// An agent that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Its id.
    pub id: String,
    /// The session.
    pub session: SessionId,
    /// The agent.
    pub agent: String,
    /// The agent's id of the call.
    pub call: Option<String>,
    /// What it wants to run, or has run.
    pub tool: String,
    /// With this input.
    pub input: Value,
    /// What came out, if it has run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why it stopped.
    pub reason: String,
    /// The breakpoint, unless it was paused.
    pub breakpoint: Option<u64>,
    /// Number of the step it stopped at.
    pub step: u64,
    /// The model turn.
    pub iteration: u64,
    /// Since when.
    pub at: Timestamp,
    /// When it will answer by itself, with a refusal.
    pub until: Timestamp,
    /// The process that waits.
    pub process: u32,
}

/// What a person says to an agent that waits.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum Answer {
    /// Go on.
    Resume,
    /// Do not run it.
    Deny {
        /// What the model is told.
        reason: String,
    },
    /// Run it with another input.
    Edit {
        /// The whole input.
        input: Value,
    },
}

impl Control {
    /// Announces a stop.
    pub fn stop(&self, stop: &Stop) -> io::Result<()> {
        self.put(&stop_name(&stop.id), &serde_json::to_vec_pretty(stop).map_err(io::Error::other)?)
    }

    /// Waits for the answer to a stop, at most for `patience`; `None` when nobody answered. The stop is gone afterwards.
    pub fn wait(&self, stop: &Stop, patience: Duration) -> io::Result<Option<Answer>> {
        self.wait_while(stop, patience, &|| true)
    }

    /// The same, and no longer than `waits` says so.
    pub fn wait_while(
        &self,
        stop: &Stop,
        patience: Duration,
        waits: &dyn Fn() -> bool,
    ) -> io::Result<Option<Answer>> {
        let begun = Instant::now();
        let answered = loop {
            match self.take_answer(&stop.id)? {
                Some(answer) => break Some(answer),
                // Somebody removed the stop: the person gave up on it.
                None if !self.dir.join(stop_name(&stop.id)).exists() => break self.take_answer(&stop.id)?,
                None if begun.elapsed() >= patience || !waits() => break None,
                None => std::thread::sleep(GLANCE.min(patience)),
            }
        };
        self.remove(&stop_name(&stop.id))?;
        // An answer that came in the very last moment counts.
        let last = self.take_answer(&stop.id)?;
        self.disarm_if_empty();
        Ok(answered.or(last))
    }

    /// Answers a stop, and others of the same call: an agent whose hooks are installed twice waits twice.
    pub fn answer(&self, stop: &Stop, answer: &Answer) -> io::Result<()> {
        let bytes = serde_json::to_vec(answer).map_err(io::Error::other)?;
        self.put(&answer_name(&stop.id), &bytes)?;
        let same = |other: &Stop| {
            other.id != stop.id
                && other.session == stop.session
                && stop.call.is_some()
                && other.call == stop.call
        };
        for other in self.stops()?.iter().filter(|other| same(other)) {
            self.put(&answer_name(&other.id), &bytes)?;
        }
        Ok(())
    }

    /// Agents that wait, the longest waiting first. What a process that is gone left behind is cleared away.
    pub fn stops(&self) -> io::Result<Vec<Stop>> {
        let mut stops: Vec<Stop> = Vec::new();
        let mut cleared = false;
        for name in self.names("stop-")? {
            let Ok(bytes) = fs::read(self.dir.join(&name)) else { continue };
            let Ok(stop) = serde_json::from_slice::<Stop>(&bytes) else { continue };
            if is_running(stop.process) {
                stops.push(stop);
            } else {
                self.remove(&name)?;
                self.remove(&answer_name(&stop.id))?;
                cleared = true;
            }
        }
        if cleared {
            self.disarm_if_empty();
        }
        stops.sort_by_key(|stop| stop.at);
        Ok(stops)
    }

    fn take_answer(&self, id: &str) -> io::Result<Option<Answer>> {
        let path = self.dir.join(answer_name(id));
        match fs::read(&path) {
            Ok(bytes) => {
                self.remove(&answer_name(id))?;
                serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn stop_name(id: &str) -> String {
    format!("stop-{id}.json")
}

fn answer_name(id: &str) -> String {
    format!("answer-{id}.json")
}

pub(crate) fn is_running(process: u32) -> bool {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return false };
    // A process of somebody else answers "not permitted", and runs.
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}
