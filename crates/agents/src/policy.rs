//! What tool calls may do in a rerun.
//!
//! A rerun runs unattended. In a sandbox, calls can do no harm elsewhere; without one, calls that could are refused here. The
//! user may also want that no tool runs at all, or that recorded results are used instead.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stepback_engine::control::BreakSide;
use stepback_engine::{EngineError, Workspace};
use stepback_model::event::AgentEvent;
use stepback_model::ids::SessionId;
use stepback_model::json;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_store::port::{StepQuery, StepRow};

use crate::Agent;
use crate::answer::HookAnswer;
use crate::breakpoints::StopDecision;
use crate::decisions::{DecidedCalls, RepeatedCall};
use crate::payload::HookPoint;
use crate::record;
use crate::tools;

/// The environment variable that names the policy file.
pub const VARIABLE: &str = "STEPBACK_RERUN";

/// What happens to tool calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolHandling {
    /// Calls run.
    #[default]
    Real,
    /// Calls do not run; the changes they made when they were recorded are applied instead.
    Recorded,
    /// Calls that can change something do not run.
    Deny,
}

/// The rules of one rerun.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// What happens to tool calls.
    pub tools: ToolHandling,
    /// Root directory of the rerun.
    pub root: PathBuf,
    /// Whether namespaces keep calls from having effects outside of `root`.
    pub fenced: bool,
    /// The workspace whose recorded changes are applied, if calls do not run.
    pub original: Option<PathBuf>,
    /// The session that is rerun.
    pub session: SessionId,
    /// The user's decisions about its calls, with paths mapped to the directories of the rerun.
    #[serde(default)]
    pub decided: DecidedCalls,
    /// Messages that the model got with the prompt, besides the prompt.
    #[serde(default)]
    pub told_with_prompt: Vec<String>,
}

impl Policy {
    /// Reads the policy from a file; `None` if the file is missing or does not parse.
    pub fn load(file: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }

    /// Whether the recording has a decision or message for this event. `dir` is the cache of the scratch workspace.
    pub fn has_recorded_reply(&self, event: &AgentEvent, point: HookPoint, dir: &Path) -> bool {
        match break_side(point) {
            Some(side) => {
                !self.decided.is_empty()
                    && self.decided.find(event, side, &read_repeated_calls(dir)).is_some()
            }
            None => point == HookPoint::Prompt && !self.told_with_prompt.is_empty(),
        }
    }

    /// Repeats the user's decision and messages at this point of the recorded session.
    pub fn repeat_reply(
        &self,
        scratch: &Workspace,
        event: &AgentEvent,
        point: HookPoint,
        now: Timestamp,
    ) -> Result<HookAnswer, EngineError> {
        let mut answer = HookAnswer::default();
        let Some(dir) = scratch.cache_dir()? else { return Ok(answer) };
        let told = match break_side(point) {
            Some(side) => {
                let known = read_repeated_calls(&dir);
                let Some(call) = self.decided.find(event, side, &known) else { return Ok(answer) };
                if side == BreakSide::Start {
                    append_repeated_call(
                        &dir,
                        &RepeatedCall { number: call.number, call: event.call.clone() },
                    )?;
                }
                let reply = call.reply_at(side);
                answer.deny.clone_from(&reply.refused);
                if let Some(decision) = &reply.decision {
                    record::record_repeated_decision(scratch, event, decision, now)?;
                    match decision.stop_decision() {
                        StopDecision::Proceed => {}
                        StopDecision::Refused(reason) => answer.deny = Some(reason),
                        StopDecision::Edited(input) => answer.input = Some(input),
                    }
                }
                &reply.told
            }
            None if point == HookPoint::Prompt => &self.told_with_prompt,
            None => return Ok(answer),
        };
        if !told.is_empty() {
            answer.context = Some(told.join("\n\n"));
            for text in told {
                record::record_message(scratch, event, text, now)?;
            }
        }
        Ok(answer)
    }

    /// Returns why a call must not run; `None` if it may.
    pub fn refusal_reason(&self, agent: Agent, tool: &str, paths: &[String]) -> Option<String> {
        let changes = tools::can_change(agent, tool);
        if self.tools == ToolHandling::Deny && changes {
            return Some("this is a rerun in which tools that change something do not run".to_owned());
        }
        if self.fenced || !changes || self.tools == ToolHandling::Recorded {
            return None;
        }
        if paths.is_empty() {
            return Some(format!(
                "this is a rerun without a sandbox, so it is not safe to run {tool}, which might act outside of {}",
                self.root.display()
            ));
        }
        let outside = |path: &&String| {
            let whole = self.root.join(path);
            whole.components().any(|part| part == Component::ParentDir) || !whole.starts_with(&self.root)
        };
        let path = paths.iter().find(outside)?;
        Some(format!("this is a rerun, and {path} is outside of its directory {}", self.root.display()))
    }
}

/// Applies the recorded changes of the same call to the files of `scratch`, and returns the text that the agent gets instead
/// of a result. The proxy that answers its model calls makes sure that the model gets the recorded result.
pub fn apply_recorded_call(
    policy: &Policy,
    scratch: &Workspace,
    tool: &str,
    input: &Value,
) -> Result<String, EngineError> {
    let Some(root) = &policy.original else { return Ok(UNRECORDED_CALL_REASON.to_owned()) };
    let original = scratch.engine.open_known_workspace(root)?;
    let calls = StepQuery { session: Some(policy.session), ..StepQuery::default() };
    let mut steps = original.store().steps(original.record.id, &calls)?;
    steps.sort_by_key(|stored| stored.step.number);
    let (then, now) = (root.display().to_string(), policy.root.display().to_string());
    let wanted = input.to_string().replace(&now, &then);
    let used = read_used_calls(scratch)?;
    for start in &steps {
        let step = &start.step;
        let is_call = step.kind == StepKind::ToolStart && step.meta.tool.as_deref() == Some(tool);
        if !is_call || used.contains(&step.number) {
            continue;
        }
        let detail = step.meta.detail.map(|hash| json::load(original.store(), hash)).transpose()?;
        let detail = detail.unwrap_or_default();
        let given = detail["input"].to_string();
        if given != wanted {
            continue;
        }
        let ends = |other: &&StepRow| {
            let other = &other.step;
            other.kind == StepKind::ToolEnd && other.meta.call == step.meta.call && other.number > step.number
        };
        let Some(end) = steps.iter().find(ends) else { continue };
        mark_call_used(scratch, step.number)?;
        let (before, after) = (original.load_state(start)?, original.load_state(end)?);
        return Ok(match original.update_materialized_dir(&before, &after, &scratch.root)?.is_some() {
            true => "this is a rerun: the recorded effects of the call were applied".to_owned(),
            false => "this is a rerun, and the recorded effects of the call no longer apply".to_owned(),
        });
    }
    Ok(UNRECORDED_CALL_REASON.to_owned())
}

/// The end of a call that a hook point belongs to.
fn break_side(point: HookPoint) -> Option<BreakSide> {
    match point {
        HookPoint::Before => Some(BreakSide::Start),
        HookPoint::After => Some(BreakSide::End),
        _ => None,
    }
}

const REPEATED_CALLS_FILE: &str = "repeated-calls";

/// Calls that were matched with a recorded one so far, kept in a file because every hook is a process of its own.
fn read_repeated_calls(dir: &Path) -> Vec<RepeatedCall> {
    let text = std::fs::read_to_string(dir.join(REPEATED_CALLS_FILE)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn append_repeated_call(dir: &Path, call: &RepeatedCall) -> Result<(), EngineError> {
    let line = serde_json::to_string(call).unwrap_or_default();
    append_line(&dir.join(REPEATED_CALLS_FILE), &line)
}

/// Appends a line to a file.
fn append_line(file: &Path, line: &str) -> Result<(), EngineError> {
    let mut options = OpenOptions::new();
    let file = options.append(true).create(true).mode(0o600).open(file);
    file.and_then(|mut file| writeln!(file, "{line}"))
        .map_err(|error| EngineError::Io { what: "cannot record which calls were repeated".into(), error })
}

const UNRECORDED_CALL_REASON: &str = "this is a rerun, and this call is not in the recording";
const USED_CALLS_FILE: &str = "recorded-calls-used";

/// The recorded calls whose changes were applied already: an agent may make the same call twice.
fn read_used_calls(scratch: &Workspace) -> Result<Vec<u64>, EngineError> {
    let file = scratch.cache_dir()?.map(|dir| dir.join(USED_CALLS_FILE));
    let text = file.and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn mark_call_used(scratch: &Workspace, number: u64) -> Result<(), EngineError> {
    let Some(dir) = scratch.cache_dir()? else { return Ok(()) };
    append_line(&dir.join(USED_CALLS_FILE), &number.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(tools: ToolHandling, fenced: bool) -> Policy {
        let session = SessionId::from_bytes([1; 16]);
        Policy {
            tools,
            root: "/scratch".into(),
            fenced,
            original: None,
            session,
            decided: DecidedCalls::default(),
            told_with_prompt: Vec::new(),
        }
    }

    #[test]
    fn without_a_fence_only_what_is_known_to_stay_inside_runs() {
        let refused = |tool: &str, paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            policy(ToolHandling::Real, false).refusal_reason(Agent::Claude, tool, &paths).is_some()
        };
        assert!(!refused("Write", &["/scratch/a/b.txt"]));
        assert!(!refused("Write", &["a.txt"]));
        assert!(refused("Write", &["/etc/passwd"]));
        assert!(refused("Write", &["../a.txt"]));
        assert!(refused("Bash", &[]));
        assert!(!refused("Read", &["/etc/hostname"]));
    }

    #[test]
    fn behind_a_fence_everything_runs_unless_nothing_shall() {
        assert_eq!(policy(ToolHandling::Real, true).refusal_reason(Agent::Claude, "Bash", &[]), None);
        assert!(policy(ToolHandling::Deny, true).refusal_reason(Agent::Claude, "Bash", &[]).is_some());
        assert_eq!(policy(ToolHandling::Deny, true).refusal_reason(Agent::Claude, "Read", &[]), None);
    }
}
