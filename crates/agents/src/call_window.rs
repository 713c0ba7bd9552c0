//! The last calls of an agent in fingerprints, so that a breakpoint can tell whether they are unusual.
//!
//! Each hook is a process of its own, and reading the details of the last steps would take longer than the call. So as long as
//! there is a breakpoint on anomalies, each call that ends adds a line to a small file of its worker, and the detectors that reports
//! use read the lines of that file. A line that cannot be read is left out; a lost file only means that an incident is found later.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stepback_engine::Workspace;
use stepback_engine::recorder::RecordedStep;
use stepback_model::anomaly::call::is_waiting;
use stepback_model::anomaly::{AnomalyLimits, CallFinding, CallMonitor, ObservedCall};
use stepback_model::event::AgentEvent;
use stepback_model::fingerprint::{
    fingerprint_input, fingerprint_inverse, fingerprint_output, fingerprint_text,
};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::new_file::{Durability, replace_file};

use crate::agent::Agent;
use crate::call_subject::call_subject;
use crate::tools;

const DIR: &str = "calls";
/// How many calls are kept: twice as far as any detector looks back.
const KEPT: usize = 64;
/// A longer file was not written by this program.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// How many hexadecimal digits of a hash are the name of a file.
const NAME_DIGITS: usize = 16;

/// The last calls of one agent or sub-agent.
#[derive(Debug)]
pub(crate) struct CallWindow {
    path: PathBuf,
}

impl CallWindow {
    /// Returns the window of the worker that reported an event. `dir` is the workspace's directory in the store.
    pub fn new(dir: &Path, event: &AgentEvent) -> Self {
        let worker = event.worker.as_deref().unwrap_or_default();
        let name = format!("{}\n{}\n{worker}", event.agent, event.session);
        let name = Hash::of(ObjectKind::Blob, name.as_bytes()).to_string();
        Self { path: dir.join(DIR).join(&name[..NAME_DIGITS]) }
    }

    /// Adds a call that has ended, and returns what it completes.
    pub fn add(&self, call: ObservedCall, limits: &AnomalyLimits) -> io::Result<Vec<CallFinding>> {
        let mut calls = self.read();
        let before = calls.last().map_or(0, |last| last.after);
        calls.push(ObservedCall { before, after: if call.after == 0 { before } else { call.after }, ..call });
        let first = calls.len().saturating_sub(KEPT);
        let mut text = String::new();
        for call in &calls[first..] {
            text.push_str(&serde_json::to_string(call)?);
            text.push('\n');
        }
        if let Some(dir) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        replace_file(&self.path, text.as_bytes(), 0o600, Durability::Unsynced)?;
        let mut monitor = CallMonitor::new(limits);
        calls[first..].iter().for_each(|call| monitor.observe(call));
        Ok(monitor.found_by_last_call())
    }

    fn read(&self) -> Vec<ObservedCall> {
        // A pipe would make the hook wait.
        let is_small =
            fs::metadata(&self.path).is_ok_and(|file| file.is_file() && file.len() <= MAX_FILE_BYTES);
        let text = is_small.then(|| fs::read_to_string(&self.path).ok()).flatten().unwrap_or_default();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

/// Returns a call that has ended as the detectors see it. What is before it is what was after the one before.
pub(crate) fn observe_call(
    workspace: &Workspace,
    event: &AgentEvent,
    recorded: &RecordedStep,
) -> ObservedCall {
    let tool = event.tool.as_deref().unwrap_or_default();
    let input = event.input.as_ref().unwrap_or(&Value::Null);
    let subject = call_subject(input).unwrap_or_default();
    let error = || event.error.as_ref().map(|error| Value::from(error.message.as_str()));
    let output = event.output.clone().or_else(error).unwrap_or(Value::Null);
    let step = workspace.store().step(recorded.id).ok().flatten().map(|stored| stored.step);
    let state = step.as_ref().filter(|_| recorded.is_checkpoint).map_or(0, |step| {
        let mut first = [0; 8];
        first.copy_from_slice(&step.state.as_bytes()[..8]);
        u64::from_be_bytes(first)
    });
    let edits = Agent::parse(&event.agent).is_some_and(|agent| tools::changes_only_named_paths(agent, tool));
    ObservedCall {
        step: recorded.number,
        tool: fingerprint_text(tool),
        subject: fingerprint_text(&subject),
        input: fingerprint_input(input),
        inverse: fingerprint_inverse(input),
        output: fingerprint_output(&output),
        failed: event.error.is_some(),
        before: 0,
        after: state,
        at: step.as_ref().map_or(0, |step| step.at.as_micros()),
        duration: step.and_then(|step| step.meta.duration),
        input_bytes: input.to_string().len() as u64,
        edits,
        waits: is_waiting(tool, &subject),
    }
}

#[cfg(test)]
mod tests {
    use stepback_model::anomaly::AnomalyKind;
    use stepback_model::record::StepKind;

    use super::*;

    #[test]
    fn the_call_that_completes_a_loop_is_told_once_and_again_when_it_has_doubled() {
        let dir = tempfile::tempdir().unwrap();
        let event = AgentEvent::new("claude", "../../s", StepKind::ToolEnd, "");
        let window = CallWindow::new(dir.path(), &event);
        let call = ObservedCall { tool: 1, input: 2, output: 3, ..ObservedCall::default() };
        let limits = AnomalyLimits::default();
        let told: Vec<usize> = (1..=200).filter(|_| !window.add(call, &limits).unwrap().is_empty()).collect();
        assert_eq!(told, [5, 10, 20, 40]);
        let other = AgentEvent { worker: Some("w".into()), ..event };
        assert!(CallWindow::new(dir.path(), &other).read().is_empty(), "a sub-agent has its own");
        assert_eq!(window.read().len(), KEPT);
    }

    #[test]
    fn a_damaged_file_is_read_as_far_as_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let window = CallWindow::new(dir.path(), &AgentEvent::new("claude", "s", StepKind::ToolEnd, ""));
        let failing = ObservedCall { tool: 1, input: 2, output: 3, failed: true, ..ObservedCall::default() };
        let limits = AnomalyLimits::default().only(&[AnomalyKind::ErrorBurst]);
        assert!(window.add(failing, &limits).unwrap().is_empty());
        let text = fs::read_to_string(&window.path).unwrap();
        fs::write(&window.path, format!("{text}{{\"step\":\n\u{0}\n")).unwrap();
        assert!(window.add(failing, &limits).unwrap().is_empty());
        assert_eq!(window.read().len(), 2);
        fs::remove_file(&window.path).unwrap();
        fs::create_dir(&window.path).unwrap();
        assert!(window.add(failing, &limits).is_err());
    }
}
