//! Parses the payload that an agent gives its hook into a [`HookEvent`].
//!
//! Claude Code and Codex use the same format, Gemini CLI a close one, and stepback's plugin for opencode follows it. Unknown
//! fields and events are kept as they are and never refused: the agent may be newer than stepback.

use std::path::PathBuf;

use serde_json::{Map, Value, json};
use stepback_engine::recorder::settings::LeftOut;
use stepback_engine::recorder::{
    CallFacts, CallStatus, ChangeScope, FinishedCalls, ScanPolicy, SessionMilestone, SessionUpdate,
};
use stepback_model::clip;
use stepback_model::escape::safe;
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::record::{StepKind, Trigger};

use crate::agent::Agent;
use crate::{gemini, tasks, tools};

/// Longest text kept of an error, or of a field that no other part of the event has, in bytes. Inputs and outputs have
/// limits that the user sets.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// Where a payload has the input of its event.
const INPUT_FIELDS: [&str; 1] = ["tool_input"];
/// Where a payload has the output of its event, in order of preference.
const OUTPUT_FIELDS: [&str; 4] =
    ["tool_response", "last_assistant_message", "prompt_response", "compact_summary"];
/// Longest summary, in characters.
const SUMMARY: usize = 100;

/// The point in the agent's work at which its hook waits for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HookPoint {
    /// A tool is about to run.
    Before,
    /// A tool has run.
    After,
    /// The user gave a prompt.
    Prompt,
    /// The agent is done with a prompt.
    Done,
    /// Any other point, where no answer is possible.
    Other,
}

/// A parsed hook payload.
#[derive(Clone, Debug)]
pub struct HookEvent {
    /// The event to record.
    pub event: AgentEvent,
    /// Whether the files are scanned, and when.
    pub scan_policy: ScanPolicy,
    /// The point in the agent's work, which decides what can be answered.
    pub point: HookPoint,
    /// The agent's own name of the event, which the answer repeats.
    pub name: String,
    /// The agent's current directory, if the payload names it.
    pub cwd: Option<PathBuf>,
    /// The transcript file, if the payload names it.
    pub transcript: Option<PathBuf>,
    /// What is known of the call, with the paths as written in its input.
    pub call: CallFacts,
    /// What the event says about the session.
    pub update: SessionUpdate,
    /// Whether the event is not worth a step.
    pub is_ignored: bool,
    /// What was cut from the event.
    pub left_out: LeftOut,
}

/// Why a payload cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PayloadError {
    /// JSON, but not an object.
    #[error("the payload is not a JSON object")]
    NotAnObject,
    /// No field names the session.
    #[error("the payload has no session")]
    NoSession,
}

/// Returns the hook point of an event by its name, as far as tool calls go: all that is known of a payload that does not parse.
pub fn hook_point_by_name(name: &str) -> HookPoint {
    match name {
        "PreToolUse" | "BeforeTool" | "tool.execute.before" => HookPoint::Before,
        _ => HookPoint::Other,
    }
}

/// Reads a payload, which must have been redacted.
pub fn read(agent: Agent, payload: &Value) -> Result<HookEvent, PayloadError> {
    let Value::Object(fields) = payload else { return Err(PayloadError::NotAnObject) };
    let text = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let session = text("session_id").ok_or(PayloadError::NoSession)?.to_string();
    let name = text("hook_event_name").unwrap_or("unknown").to_string();
    let tool = text("tool_name").map(safe);
    let input = fields.get("tool_input").cloned();
    let call = text("tool_use_id").map(str::to_string).or_else(|| {
        // Without an id, a call is identified by its tool and input.
        Some(AgentEvent::derived_call(tool.as_ref()?, input.as_ref().unwrap_or(&Value::Null)))
    });
    // The id alone: model calls and transcripts have nothing else, and a sub-agent needs one name. Its kind is in `raw`.
    let worker = text("agent_id").map(safe);
    let prompt = text("prompt").map(str::to_string).or_else(|| join_prompt_parts(fields));
    let whole = PayloadFields {
        agent,
        name: &name,
        fields,
        tool: tool.as_deref(),
        input: input.as_ref(),
        prompt: prompt.as_deref(),
    };
    let EventClass { kind, point, scan_policy, summary } = whole.classify();
    let runs_alone = tool.as_deref().is_some_and(|tool| tools::is_run_alone(agent, tool));
    let mut update = SessionUpdate {
        directory: text("cwd").map(str::to_string),
        transcript: text("transcript_path").map(str::to_string),
        model: text("model").map(str::to_string),
        milestone: match point {
            HookPoint::Done => Some(SessionMilestone::Answered),
            _ => (name == "SessionEnd").then_some(SessionMilestone::Ended),
        },
        finished_calls: match name.as_str() {
            _ if point == HookPoint::Done => FinishedCalls::All,
            "SessionStart" | "SessionEnd" | "Interrupt" => FinishedCalls::All,
            // opencode reports a reply of the model when the calls that it requested have ended.
            "SubagentStop" | "message.updated" => FinishedCalls::OfWorker,
            _ if point == HookPoint::Before && runs_alone => FinishedCalls::OfWorker,
            _ => FinishedCalls::Unknown,
        },
        ..SessionUpdate::default()
    };
    if let Some(info) = fields.get("properties").and_then(|properties| properties.get("info")) {
        let cost = info.get("cost").and_then(Value::as_f64).unwrap_or_default();
        update.cost = (cost.max(0.0) * 1e6) as u64;
        update.model = info.get("modelID").and_then(Value::as_str).map(str::to_string).or(update.model);
    }
    // The input of a tool that replaces the whole task list is the new list.
    let replaces = tool.as_deref().is_some_and(|tool| tools::REPLACE_TASKS.contains(&tool));
    if let (true, StepKind::ToolEnd, Some(input)) = (replaces, kind, &input) {
        update.tasks = Some(input.clone());
    }
    update.task = tasks::task_change(kind, tool.as_deref(), input.as_ref());
    let error = whole.error();
    let event = AgentEvent {
        agent: agent.name().into(),
        session,
        kind,
        at: None,
        key: whole.dedup_key(kind, call.as_deref()),
        call: call.filter(|_| {
            matches!(kind, StepKind::ToolStart | StepKind::ToolEnd) || name == "PermissionDenied"
        }),
        tool: tool.clone(),
        worker,
        summary,
        input: input.clone().or_else(|| prompt.as_ref().map(|prompt| json!({ "prompt": prompt }))),
        output: whole.output(),
        error,
        duration: fields.get("duration_ms").and_then(Value::as_f64).map(|ms| (ms * 1000.0) as u64),
        message: None,
        context: tasks::payload_context(fields, tool.as_deref(), input.as_ref()),
        metadata: model_usage(fields),
        raw: whole.remaining_fields(),
    };
    let call = call_facts(agent, &name, scan_policy, &event);
    Ok(HookEvent {
        event,
        scan_policy,
        point,
        name: name.clone(),
        cwd: text("cwd").map(PathBuf::from),
        transcript: text("transcript_path").map(PathBuf::from),
        call,
        update,
        is_ignored: gemini::is_compaction_check(agent, &name, text("trigger")),
        left_out: LeftOut::default(),
    })
}

/// Returns what is known about the call of an event: the paths it names, what it can change, and whether it ran.
fn call_facts(agent: Agent, name: &str, scan_policy: ScanPolicy, event: &AgentEvent) -> CallFacts {
    let input = event.input.as_ref().filter(|_| event.call.is_some());
    CallFacts {
        paths: input.map(tools::named_paths).unwrap_or_default(),
        scope: match (scan_policy, event.tool.as_deref()) {
            (ScanPolicy::Before | ScanPolicy::After, Some(tool))
                if tools::changes_only_named_paths(agent, tool) =>
            {
                ChangeScope::NamedPaths
            }
            (ScanPolicy::Before | ScanPolicy::After, _) => ChangeScope::Anything,
            _ => ChangeScope::Nothing,
        },
        status: if name == "PermissionDenied" { CallStatus::NeverRan } else { CallStatus::Ran },
    }
}

struct PayloadFields<'a> {
    agent: Agent,
    name: &'a str,
    fields: &'a Map<String, Value>,
    tool: Option<&'a str>,
    input: Option<&'a Value>,
    prompt: Option<&'a str>,
}

struct EventClass {
    kind: StepKind,
    point: HookPoint,
    scan_policy: ScanPolicy,
    summary: String,
}

impl PayloadFields<'_> {
    fn text_field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty())
    }

    fn classify(&self) -> EventClass {
        let changes = self.tool.is_some_and(|tool| tools::can_change(self.agent, tool));
        let step = |kind, point, scan_policy, summary: String| EventClass {
            kind,
            point,
            scan_policy,
            summary: summary_line(&summary),
        };
        let plain = |kind, summary: String| step(kind, HookPoint::Other, ScanPolicy::None, summary);
        let call = || match (self.tool, self.input) {
            (Some(tool), Some(input)) => crate::import::describe_call(tool, input),
            (Some(tool), None) => tool.to_string(),
            _ => "a call".into(),
        };
        let when_changing = |effect| if changes { effect } else { ScanPolicy::None };
        let field = |name: &str| self.text_field(name).unwrap_or_default().to_string();
        match self.name {
            "PreToolUse" | "BeforeTool" | "tool.execute.before" => {
                step(StepKind::ToolStart, HookPoint::Before, when_changing(ScanPolicy::Before), call())
            }
            "PostToolUse" | "PostToolUseFailure" | "AfterTool" | "tool.execute.after" => {
                step(StepKind::ToolEnd, HookPoint::After, when_changing(ScanPolicy::After), call())
            }
            "UserPromptSubmit" | "BeforeAgent" | "chat.message" => {
                let prompt = self.prompt.unwrap_or_default().to_string();
                step(StepKind::UserInput, HookPoint::Prompt, ScanPolicy::None, prompt)
            }
            "Stop" | "AfterAgent" | "session.idle" => {
                let last = self
                    .text_field("last_assistant_message")
                    .or_else(|| last_nonblank_line(self.text_field("prompt_response")?));
                let summary = last.map_or_else(|| "done".into(), summarize_done);
                step(StepKind::AgentStep, HookPoint::Done, ScanPolicy::None, summary)
            }
            "SessionStart" | "session.created" => {
                let source =
                    self.text_field("source").map_or_else(String::new, |source| format!(" ({source})"));
                let keep = ScanPolicy::Checkpoint(Trigger::Automatic);
                step(StepKind::AgentStep, HookPoint::Other, keep, format!("session started{source}"))
            }
            "SessionEnd" => plain(StepKind::AgentStep, "session ended".into()),
            "PreCompact" | "PreCompress" | "session.compacting" => {
                // Always a checkpoint: what the conversation loses now is in it.
                let keep = ScanPolicy::Save(Trigger::Automatic);
                step(
                    StepKind::StateChange,
                    HookPoint::Other,
                    keep,
                    "the conversation is about to be compacted".into(),
                )
            }
            "PostCompact" | "session.compacted" => {
                let keep = ScanPolicy::Save(Trigger::Automatic);
                step(StepKind::StateChange, HookPoint::Other, keep, "the conversation was compacted".into())
            }
            "StopFailure" | "session.error" => {
                let what = self.error().map(|error| error.message);
                plain(StepKind::Error, what.unwrap_or_else(|| "the turn failed".into()))
            }
            "TaskCreated" => plain(StepKind::TaskCreated, field("task_subject")),
            "TaskCompleted" => plain(StepKind::TaskCompleted, field("task_subject")),
            "SubagentStart" => {
                plain(StepKind::AgentStep, format!("sub-agent started: {}", field("agent_type")))
            }
            "SubagentStop" => {
                plain(StepKind::AgentStep, format!("sub-agent done: {}", field("last_assistant_message")))
            }
            "PermissionRequest" => plain(StepKind::Decision, format!("permission asked for {}", call())),
            "PermissionDenied" => plain(StepKind::Decision, format!("permission denied for {}", call())),
            "Notification" => plain(StepKind::AgentStep, field("message")),
            "PreModelRequest" | "BeforeModel" => plain(StepKind::ModelStart, field("model")),
            "message.updated" => {
                let info = self.fields.get("properties").and_then(|properties| properties.get("info"));
                let model = info.and_then(|info| info.get("modelID")).and_then(Value::as_str);
                plain(StepKind::ModelEnd, model.unwrap_or("model").into())
            }
            "AfterModel" => plain(StepKind::ModelEnd, field("model")),
            "Interrupt" => plain(StepKind::AgentStep, "interrupted".into()),
            other => plain(StepKind::AgentStep, other.to_string()),
        }
    }

    /// Identifies this event among others of its kind. Agents that send a timestamp or a prompt id deliver the same event
    /// twice when hooks are installed twice; without either, every delivery counts.
    fn dedup_key(&self, kind: StepKind, call: Option<&str>) -> Option<String> {
        let moment = self.text_field("timestamp");
        match (kind, call) {
            (StepKind::ToolStart | StepKind::ToolEnd, Some(call)) => match self.text_field("tool_use_id") {
                Some(id) => Some(id.to_string()),
                None => moment.map(|moment| format!("{call} {moment}")),
            },
            (StepKind::UserInput, _) => self
                .text_field("prompt_id")
                .or(moment)
                .or_else(|| self.text_field("turn_id"))
                .map(str::to_string),
            // An agent can be done with one prompt several times, but not with the same message.
            _ if moment.is_none() && matches!(self.name, "Stop" | "SubagentStop") => {
                let prompt = self.text_field("prompt_id").or_else(|| self.text_field("turn_id"))?;
                let payload = serde_json::to_vec(self.fields).ok()?;
                Some(format!("{} {prompt} {}", self.name, Hash::of(ObjectKind::Blob, &payload)))
            }
            _ => moment.map(|moment| format!("{} {moment}", self.name)),
        }
    }

    fn output(&self) -> Option<Value> {
        let named = OUTPUT_FIELDS.iter().find_map(|name| self.fields.get(*name));
        named.filter(|value| !value.is_null()).cloned()
    }

    fn error(&self) -> Option<ReportedError> {
        let failed = matches!(self.name, "PostToolUseFailure" | "StopFailure" | "session.error");
        let response = self.fields.get("tool_response");
        let reported = self.fields.get("error").and_then(ReportedError::reported);
        let reported = reported.or_else(|| ReportedError::reported(response?.get("error")?));
        let reported =
            reported.or_else(|| ReportedError::reported(self.fields.get("properties")?.get("error")?));
        let mut error = match reported {
            Some(error) if self.name == "StopFailure" => self.turn_failure(error),
            Some(error) => error,
            None if failed => {
                let usual = if self.tool.is_some() { "it failed" } else { "the turn failed" };
                let message = self.text_field("message").unwrap_or(usual).to_string();
                ReportedError { message, ..ReportedError::default() }
            }
            None => return None,
        };
        for text in
            [Some(&mut error.message), error.stack.as_mut(), error.cause.as_mut()].into_iter().flatten()
        {
            clip::text(text, MAX_TEXT_BYTES);
        }
        Some(error)
    }

    /// Claude Code calls the kind of failure `error` when a turn fails, and says in other fields what happened.
    fn turn_failure(&self, error: ReportedError) -> ReportedError {
        let said = self.text_field("error_details").or_else(|| self.text_field("last_assistant_message"));
        match said {
            Some(message) if error.name.is_none() => {
                ReportedError { name: Some(error.message), message: message.to_owned(), ..error }
            }
            _ => error,
        }
    }

    /// The fields that are not stored elsewhere in the event.
    fn remaining_fields(&self) -> Option<Value> {
        const FIELDS_RECORDED_ELSEWHERE: [&str; 12] = [
            "session_id",
            "transcript_path",
            "cwd",
            "tool_name",
            "tool_input",
            "tool_response",
            "tool_use_id",
            "prompt",
            "last_assistant_message",
            "duration_ms",
            "compact_summary",
            "prompt_response",
        ];
        // The session has the agent's current directory; a call keeps the one it ran in.
        let is_elsewhere =
            |name: &str| FIELDS_RECORDED_ELSEWHERE.contains(&name) && !(name == "cwd" && self.tool.is_some());
        let rest: Map<String, Value> = (self.fields.iter())
            .filter(|(name, _)| !is_elsewhere(name))
            .map(|(name, value)| (name.clone(), clip_long_texts(value.clone())))
            .collect();
        (!rest.is_empty()).then_some(Value::Object(rest))
    }
}

/// Returns the summary of the end of a prompt, from the model's last words.
pub fn summarize_done(last_answer: &str) -> String {
    summary_line(&format!("done: {last_answer}"))
}

/// Returns the last line that is not blank.
fn last_nonblank_line(text: &str) -> Option<&str> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty())
}

/// Returns the text of a prompt that comes in parts.
fn join_prompt_parts(fields: &Map<String, Value>) -> Option<String> {
    let parts = fields.get("parts")?.as_array()?;
    let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Tokens and cost of a model's answer, if the event has them.
fn model_usage(fields: &Map<String, Value>) -> Option<Value> {
    let info = fields.get("properties")?.get("info")?;
    let tokens = info.get("tokens")?;
    Some(json!({ "model": info.get("modelID"), "tokens": tokens, "cost_usd": info.get("cost") }))
}

/// Returns the first line, shortened, with control characters escaped for a terminal.
pub fn summary_line(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default().trim();
    safe(&clip::first(line, SUMMARY))
}

/// Returns a payload as it waits in the inbox: its input and output as `event` has them, which is cut to the limits, and no
/// other long text except the prompt.
pub fn payload_for_inbox(mut payload: Value, event: &HookEvent) -> Value {
    if let Value::Object(fields) = &mut payload {
        let output = OUTPUT_FIELDS.iter().find(|name| fields.contains_key(**name));
        for (name, field) in fields.iter_mut() {
            let name = name.as_str();
            match (&event.event.input, &event.event.output) {
                (Some(input), _) if INPUT_FIELDS.contains(&name) => field.clone_from(input),
                (_, Some(cut)) if output == Some(&name) => field.clone_from(cut),
                _ if matches!(name, "prompt" | "parts") => {}
                _ => drop(clip::value(field, MAX_TEXT_BYTES)),
            }
        }
    }
    payload
}

/// Shortens the long texts in a value and marks the cut. Clipping a value again changes nothing.
pub fn clip_long_texts(mut value: Value) -> Value {
    clip::value(&mut value, MAX_TEXT_BYTES);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(agent: Agent, payload: Value) -> HookEvent {
        let mut whole = json!({ "session_id": "s", "cwd": "/w" });
        whole.as_object_mut().unwrap().extend(payload.as_object().unwrap().clone());
        read(agent, &whole).unwrap()
    }

    #[test]
    fn an_empty_error_is_no_failure() {
        let after = |agent, event: &str, response: Value| {
            let payload = json!({ "hook_event_name": event, "tool_name": "NotebookEdit", "tool_use_id": "1",
                "tool_input": {}, "tool_response": response });
            parse(agent, payload).event.error
        };
        for nothing in [json!(""), json!(null), json!(false), json!({})] {
            let response = json!({ "cell_id": "c", "error": nothing });
            assert_eq!(after(Agent::Claude, "PostToolUse", response.clone()), None);
            assert_eq!(after(Agent::Gemini, "AfterTool", response.clone()), None);
            assert_eq!(after(Agent::Opencode, "tool.execute.after", response), None);
        }
        let failed = after(Agent::Claude, "PostToolUse", json!({ "error": "no such cell" }));
        assert_eq!(failed.unwrap().message, "no such cell");
        // An event that reports a failure is one, even if its message is empty.
        let failure = json!({ "hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "error": "" });
        assert_eq!(parse(Agent::Claude, failure).event.error.unwrap().message, "it failed");
    }

    #[test]
    fn an_error_has_what_the_agent_tells_of_it() {
        let error = |payload: Value| parse(Agent::Gemini, payload).event.error.unwrap();
        let told = json!({ "name": "TypeError", "message": "x is not a function", "stack": "at run (a.js:1)",
            "cause": { "name": "Error", "message": "no network", "cause": "EAI_AGAIN" } });
        let failed = error(json!({ "hook_event_name": "AfterTool", "tool_name": "t", "tool_input": {},
            "tool_response": { "error": told } }));
        assert_eq!(
            (failed.name.as_deref(), failed.message.as_str()),
            (Some("TypeError"), "x is not a function")
        );
        assert_eq!(failed.stack.as_deref(), Some("at run (a.js:1)"));
        assert_eq!(failed.cause.as_deref(), Some("Error: no network: EAI_AGAIN"));
        let typed = json!({ "type": "FILE_NOT_FOUND", "message": "no such file" });
        let failed = error(
            json!({ "hook_event_name": "AfterTool", "tool_name": "t", "tool_response": { "error": typed } }),
        );
        assert_eq!(failed.name.as_deref(), Some("FILE_NOT_FOUND"));
        let turn = json!({ "hook_event_name": "StopFailure", "error": "rate_limit", "error_details": "429 Too Many Requests" });
        let failed = parse(Agent::Claude, turn).event.error.unwrap();
        assert_eq!(
            (failed.name.as_deref(), failed.message.as_str()),
            (Some("rate_limit"), "429 Too Many Requests")
        );
        let session = json!({ "hook_event_name": "session.error",
            "properties": { "error": { "name": "ProviderAuthError", "data": { "message": "no key" } } } });
        let failed = parse(Agent::Opencode, session).event.error.unwrap();
        assert_eq!((failed.name.as_deref(), failed.message.as_str()), (Some("ProviderAuthError"), "no key"));
    }

    #[test]
    fn an_event_about_a_task_names_it() {
        let created = json!({ "hook_event_name": "TaskCreated", "task_id": "4", "task_subject": "tests" });
        assert_eq!(parse(Agent::Claude, created).event.context.task.as_deref(), Some("4"));
    }

    #[test]
    fn a_sub_agent_is_called_by_its_id_as_its_model_calls_and_its_transcript_call_it() {
        let sub = json!({ "hook_event_name": "PreToolUse", "tool_name": "Bash", "agent_id": "a0d6", "agent_type": "Explore" });
        let event = parse(Agent::Claude, sub).event;
        let headers = [("x-claude-code-session-id", "s"), ("x-claude-code-agent-id", "a0d6")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(event.worker, crate::model_call_inbox::parse_caller(&headers).worker);
        assert_eq!(event.raw.unwrap()["agent_type"], "Explore", "its kind is not lost");
    }

    #[test]
    fn gemini_looking_whether_to_compact_is_no_compaction() {
        let about = |trigger: &str| {
            parse(Agent::Gemini, json!({ "hook_event_name": "PreCompress", "trigger": trigger }))
        };
        assert!(about("auto").is_ignored);
        assert!(!about("manual").is_ignored);
        let claude = json!({ "hook_event_name": "PreCompact", "trigger": "auto" });
        assert!(!parse(Agent::Claude, claude).is_ignored);
    }

    #[test]
    fn a_call_knows_where_it_ran() {
        let call = json!({ "hook_event_name": "PostToolUse", "tool_name": "Bash", "tool_input": { "command": "ls" } });
        assert_eq!(parse(Agent::Claude, call).event.raw.unwrap()["cwd"], "/w");
    }
}
