//! Stops: an agent's hook waits until the user answers.

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_model::ids::SessionId;
use stepback_model::time::Timestamp;

use super::Control;

/// Interval at which a waiting hook checks for an answer: short enough not to be noticed, long enough to cost nothing.
const POLL_INTERVAL: Duration = Duration::from_millis(15);

/// A stop: an agent that waits for an answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stop {
    /// Id of the stop.
    pub id: String,
    /// The session that waits.
    pub session: SessionId,
    /// Name of the agent.
    pub agent: String,
    /// The agent's id of the call, if it has one.
    pub call: Option<String>,
    /// The tool that is about to run, or has run.
    pub tool: String,
    /// Input of the call.
    pub input: Value,
    /// Output of the call; `None` if it has not run yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Why it stopped, in words.
    pub reason: String,
    /// Id of the breakpoint; `None` if the agent was paused.
    pub breakpoint: Option<u64>,
    /// Number of the step it stopped at.
    pub step: u64,
    /// Number of the model turn.
    pub iteration: u64,
    /// Time at which it stopped.
    pub at: Timestamp,
    /// Time at which the hook stops waiting and refuses the call.
    pub until: Timestamp,
    /// Process id of the waiting hook.
    pub process: u32,
}

/// The user's answer to a waiting agent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "answer")]
pub enum StopAnswer {
    /// Continue.
    Resume,
    /// Refuse the call.
    Deny {
        /// The reason that the model gets.
        reason: String,
    },
    /// Run the call with another input.
    Edit {
        /// The complete new input.
        input: Value,
    },
}

impl Control {
    /// Publishes a stop.
    pub fn publish_stop(&self, stop: &Stop) -> io::Result<()> {
        self.write_file(
            &stop_file_name(&stop.id),
            &serde_json::to_vec_pretty(stop).map_err(io::Error::other)?,
        )
    }

    /// Waits for the answer to a stop, at most for `patience`; returns `None` if it timed out. Removes the stop.
    pub fn wait_for_answer(&self, stop: &Stop, patience: Duration) -> io::Result<Option<StopAnswer>> {
        self.wait_for_answer_while(stop, patience, &|| true)
    }

    /// Like [`Self::wait_for_answer`], but only as long as `waits` returns true.
    pub fn wait_for_answer_while(
        &self,
        stop: &Stop,
        patience: Duration,
        waits: &dyn Fn() -> bool,
    ) -> io::Result<Option<StopAnswer>> {
        let started = Instant::now();
        let answered = loop {
            match self.take_answer(&stop.id)? {
                Some(answer) => break Some(answer),
                // The stop was removed: the user cancelled it.
                None if !self.dir.join(stop_file_name(&stop.id)).exists() => {
                    break self.take_answer(&stop.id)?;
                }
                None if started.elapsed() >= patience || !waits() => break None,
                None => std::thread::sleep(POLL_INTERVAL.min(patience)),
            }
        };
        self.remove_file(&stop_file_name(&stop.id))?;
        // An answer that arrived in the last moment counts.
        let last = self.take_answer(&stop.id)?;
        self.disarm_if_empty();
        Ok(answered.or(last))
    }

    /// Answers a stop, and other stops of the same call: an agent whose hooks are installed twice waits twice.
    pub fn answer_stop(&self, stop: &Stop, answer: &StopAnswer) -> io::Result<()> {
        let bytes = serde_json::to_vec(answer).map_err(io::Error::other)?;
        self.write_file(&answer_file_name(&stop.id), &bytes)?;
        let is_same_call = |other: &Stop| {
            other.id != stop.id
                && other.session == stop.session
                && stop.call.is_some()
                && other.call == stop.call
        };
        for other in self.list_stops()?.iter().filter(|other| is_same_call(other)) {
            self.write_file(&answer_file_name(&other.id), &bytes)?;
        }
        Ok(())
    }

    /// Returns the waiting agents, the longest waiting first. Removes stops whose process has ended.
    pub fn list_stops(&self) -> io::Result<Vec<Stop>> {
        let mut stops: Vec<Stop> = Vec::new();
        let mut cleared = false;
        for name in self.list_files("stop-")? {
            let Ok(bytes) = fs::read(self.dir.join(&name)) else { continue };
            let Ok(stop) = serde_json::from_slice::<Stop>(&bytes) else { continue };
            if is_process_running(stop.process) {
                stops.push(stop);
            } else {
                self.remove_file(&name)?;
                self.remove_file(&answer_file_name(&stop.id))?;
                cleared = true;
            }
        }
        if cleared {
            self.disarm_if_empty();
        }
        stops.sort_by_key(|stop| stop.at);
        Ok(stops)
    }

    fn take_answer(&self, id: &str) -> io::Result<Option<StopAnswer>> {
        let path = self.dir.join(answer_file_name(id));
        match fs::read(&path) {
            Ok(bytes) => {
                self.remove_file(&answer_file_name(id))?;
                serde_json::from_slice(&bytes).map(Some).map_err(io::Error::other)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

fn stop_file_name(id: &str) -> String {
    format!("stop-{id}.json")
}

fn answer_file_name(id: &str) -> String {
    format!("answer-{id}.json")
}

/// Whether a process with this id exists.
pub fn is_process_running(process: u32) -> bool {
    let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else { return false };
    // For a process of another user, the check fails with "not permitted": it runs.
    !matches!(test_kill_process(pid), Err(rustix::io::Errno::SRCH))
}
