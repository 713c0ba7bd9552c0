//! Reads the shell command that a call ran: where it ran, what it printed and how it ended.
//!
//! Every agent reports that in its own format (`command_ending` reads them), and some only in their conversation. What no form
//! tells stays unknown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::Session;
use stepback_model::shell::command_line;
use stepback_model::time::Timestamp;
use stepback_store::port::StepRow;

use crate::command_ending::{CommandEnding, parse_ending, read_ending};

/// How many bytes of a command's output are kept.
const MAX_OUTPUT_BYTES: usize = 400;
/// How many messages of the conversation are searched for the results of commands.
const MAX_SEARCHED_MESSAGES: usize = 4000;
/// What became of a command.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CommandStatus {
    /// It ran to its end, or the agent ended it.
    Ran,
    /// It has not ended yet.
    Running,
    /// It was refused by the user, a rule or a breakpoint, and did not run.
    NotRun,
    /// Its end was not reported: the agent was interrupted, or the user refused it in a way that the agent does not tell.
    Unknown,
}

impl CommandStatus {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ran => "ran",
            Self::Running => "running",
            Self::NotRun => "not-run",
            Self::Unknown => "unknown",
        }
    }
}

/// A shell command that an agent called.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CommandRun {
    /// The number of the step at which it ended, or at which it began if it has no end.
    pub step: u64,
    /// The number of the step at which it began, if that was recorded.
    pub start: Option<u64>,
    /// The session that called it.
    pub session: SessionId,
    /// The sub-agent that called it; `None` for the main agent.
    pub worker: Option<String>,
    /// The time of `step`.
    pub at: Timestamp,
    /// The tool that ran the command, by the agent's name for it.
    pub tool: String,
    /// The command line.
    pub command: String,
    /// The directory it ran in, if known.
    pub directory: Option<String>,
    /// What became of it.
    pub status: CommandStatus,
    /// The exit code, if known.
    pub exit: Option<i64>,
    /// Whether the agent reported an error.
    pub failed: bool,
    /// How long it took, in microseconds, if known.
    pub duration_us: Option<u64>,
    /// The beginning of its output: both streams, or why it was not run.
    pub output: String,
    /// The beginning of its standard output, if the agent tells the streams apart.
    pub stdout: Option<String>,
    /// The beginning of its standard error output, if the agent tells the streams apart.
    pub stderr: Option<String>,
}

impl CommandRun {
    /// Whether it ran and failed: the agent reported an error, or its exit code is not 0.
    pub fn is_failure(&self) -> bool {
        self.status == CommandStatus::Ran && (self.failed || self.exit.is_some_and(|code| code != 0))
    }
}

/// Reads the commands of a workspace's sessions. What the conversation of a session tells is read once.
pub struct CommandReader<'a> {
    workspace: &'a Workspace,
    sessions: HashMap<SessionId, ReadSession>,
}

/// A session, with what its conversation tells about calls, by call id; `None` until that is needed.
struct ReadSession {
    session: Session,
    told: Option<HashMap<String, CommandEnding>>,
}

impl<'a> CommandReader<'a> {
    /// Creates a reader for the sessions of a workspace.
    pub fn new(workspace: &'a Workspace) -> Self {
        Self { workspace, sessions: HashMap::new() }
    }

    /// Returns the session of this id.
    pub fn session(&mut self, id: SessionId) -> Result<Option<&Session>, EngineError> {
        Ok(self.read_session(id)?.map(|read| &read.session))
    }

    fn read_session(&mut self, id: SessionId) -> Result<Option<&mut ReadSession>, EngineError> {
        if !self.sessions.contains_key(&id) {
            let Some(session) = self.workspace.store().session(id)? else { return Ok(None) };
            self.sessions.insert(id, ReadSession { session, told: None });
        }
        Ok(self.sessions.get_mut(&id))
    }

    /// Returns what the conversation tells about a call.
    pub fn told_ending(
        &mut self,
        session: SessionId,
        call: &str,
    ) -> Result<Option<CommandEnding>, EngineError> {
        let workspace = self.workspace;
        let Some(read) = self.read_session(session)? else { return Ok(None) };
        if read.told.is_none() {
            read.told = Some(read_conversation_endings(workspace, &read.session)?);
        }
        Ok(read.told.as_ref().and_then(|told| told.get(call)).cloned())
    }

    /// Returns the command that a call ran, given the step of its end, and the id of the step at which it began.
    pub fn read_end(
        &mut self,
        stored: &StepRow,
    ) -> Result<(Option<StepId>, Option<CommandRun>), EngineError> {
        let step = &stored.step;
        let Some(detail) = self.workspace.load_detail(step)? else { return Ok((None, None)) };
        let start_id: Option<StepId> =
            detail.get("start").and_then(|id| serde_json::from_value(id.clone()).ok());
        let own = detail.get("input").and_then(command_line);
        let start = start_id.map(|start| self.workspace.store().step(start)).transpose()?.flatten();
        let began = match &start {
            Some(start) => self.workspace.load_detail(&start.step)?.unwrap_or_default(),
            None => Value::Null,
        };
        let Some(command) = own.or_else(|| began.get("input").and_then(command_line)) else {
            return Ok((start_id, None));
        };
        let output = detail.get("output").unwrap_or(&Value::Null);
        let mut ending = read_ending(output);
        if let Some(error) = detail.pointer("/error/message").and_then(Value::as_str) {
            ending = ending.or(parse_ending(error));
        }
        let denied = output.get("denied");
        let status = match denied.is_some() || (step.meta.failed && ending.is_refusal()) {
            true => CommandStatus::NotRun,
            false => CommandStatus::Ran,
        };
        if let (CommandStatus::Ran, None, Some(call)) = (status, ending.exit, &step.meta.call) {
            ending = ending.or(self.told_ending(step.session, call)?.unwrap_or_default());
        }
        if let Some(reason) = denied.and_then(Value::as_str) {
            ending.output = Some(reason.to_owned());
        }
        let run = CommandRun {
            start: start.map(|start| start.step.number),
            exit: ending.exit.filter(|_| status == CommandStatus::Ran),
            duration_us: step.meta.duration.filter(|_| status == CommandStatus::Ran),
            ..self.describe(stored, command, status, &[&began, &detail])?.with_output(ending)
        };
        Ok((start_id, Some(run)))
    }

    /// Returns the command that begins with this step; its status is unknown.
    pub fn read_start(&mut self, stored: &StepRow) -> Result<Option<CommandRun>, EngineError> {
        let Some(detail) = self.workspace.load_detail(&stored.step)? else { return Ok(None) };
        let Some(command) = detail.get("input").and_then(command_line) else { return Ok(None) };
        let run = self.describe(stored, command, CommandStatus::Unknown, &[&detail])?;
        Ok(Some(CommandRun { start: Some(stored.step.number), ..run }))
    }

    /// Returns what is known of a command apart from its ending. `details` are those of the call's steps.
    fn describe(
        &mut self,
        stored: &StepRow,
        command: String,
        status: CommandStatus,
        details: &[&Value],
    ) -> Result<CommandRun, EngineError> {
        let step = &stored.step;
        let cwd = details.iter().find_map(|detail| detail.pointer("/raw/cwd")?.as_str());
        let inputs = || details.iter().filter_map(|detail| detail.get("input"));
        let named = inputs().find_map(named_directory);
        let own = self.session(step.session)?.and_then(|session| session.info.directory.clone());
        Ok(CommandRun {
            step: step.number,
            start: None,
            session: step.session,
            worker: step.meta.worker.clone(),
            at: step.at,
            tool: step.meta.tool.clone().unwrap_or_default(),
            command,
            directory: resolve_directory(self.workspace, named, cwd.or(own.as_deref())),
            status,
            exit: None,
            failed: step.meta.failed,
            duration_us: None,
            output: String::new(),
            stdout: None,
            stderr: None,
        })
    }
}

impl CommandRun {
    /// Adds the beginning of what was printed.
    pub fn with_output(self, ending: CommandEnding) -> Self {
        let (stdout, stderr) = ending.streams.map(|(out, err)| (preview(out), preview(err))).unzip();
        Self { output: preview(ending.output.unwrap_or_default()), stdout, stderr, ..self }
    }
}

fn preview(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_OUTPUT_BYTES));
    text
}

/// Returns the directory that the input of a call names.
fn named_directory(input: &Value) -> Option<&str> {
    const NAMES: [&str; 6] = ["cwd", "workdir", "working_directory", "directory", "dir_path", "dir"];
    NAMES.iter().find_map(|name| input.get(name)?.as_str()).filter(|text| !text.is_empty())
}

/// Returns where a call ran: the directory it names, otherwise that of the agent, otherwise the root.
fn resolve_directory(workspace: &Workspace, named: Option<&str>, own: Option<&str>) -> Option<String> {
    // A remote workspace has no directory on this machine.
    let own = own.map(PathBuf::from);
    let own = own.or_else(|| workspace.record.remote_name().is_none().then(|| workspace.root.clone()));
    let whole = match (own, named) {
        (Some(own), Some(named)) => own.join(named),
        (Some(own), None) => own,
        (None, named) => Path::new(named?).to_path_buf(),
    };
    Some(whole.display().to_string())
}

/// Returns what the conversation of a session tells about calls, by call id. Some agents report there what their hooks do
/// not.
fn read_conversation_endings(
    workspace: &Workspace,
    session: &Session,
) -> Result<HashMap<String, CommandEnding>, EngineError> {
    let mut told: HashMap<String, CommandEnding> = HashMap::new();
    for (_, message) in conversation::tail(workspace.store(), session.info.tip, MAX_SEARCHED_MESSAGES)? {
        let Ok(line) = serde_json::from_str::<Value>(&message.text) else { continue };
        collect_endings(&line, 0, &mut told);
    }
    Ok(told)
}

/// Collects from `value` the objects that hold a call id and the result of the call.
fn collect_endings(value: &Value, depth: usize, told: &mut HashMap<String, CommandEnding>) {
    const MAX_DEPTH: usize = 8;
    match value {
        Value::Array(items) if depth < MAX_DEPTH => {
            items.iter().for_each(|item| collect_endings(item, depth + 1, told));
        }
        Value::Object(fields) if depth < MAX_DEPTH => {
            let names = ["call_id", "tool_use_id", "tool_call_id", "callID", "id"];
            let id = names.iter().find_map(|name| value.get(name)?.as_str());
            if let Some(id) = id {
                let answer = ["output", "content", "state"].iter().find_map(|name| value.get(name));
                let found = read_ending(value).or(answer.map(read_ending).unwrap_or_default());
                if found.exit.is_some() || found.is_refusal() {
                    let known = told.remove(id).unwrap_or_default();
                    told.insert(id.to_owned(), found.or(known));
                }
            }
            fields.values().for_each(|field| collect_endings(field, depth + 1, told));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_conversation_tells_what_hooks_do_not() {
        let mut told = HashMap::new();
        for line in [
            json!({ "type": "event_msg", "payload": { "type": "item_completed", "item": {
                "type": "CommandExecution", "id": "c1", "exit_code": 1, "aggregated_output": "no\n" } } }),
            json!({ "type": "response_item", "payload": { "type": "function_call_output", "call_id": "c2",
                "output": "Wall time: 0\nProcess exited with code 0\nOutput:\nyes" } }),
        ] {
            collect_endings(&line, 0, &mut told);
        }
        assert_eq!(told["c1"].exit, Some(1));
        assert_eq!(told["c2"], CommandEnding { exit: Some(0), output: Some("yes".into()), streams: None });
        let refused = json!({ "type": "tool_result", "tool_use_id": "c3",
            "content": "The user doesn't want to proceed with this tool use." });
        collect_endings(&refused, 0, &mut told);
        assert!(told["c3"].is_refusal());
    }

    #[test]
    fn commands_are_found_in_inputs_and_patches_are_none() {
        let of = |input: Value| command_line(&input);
        assert_eq!(of(json!({ "command": "ls" })).as_deref(), Some("ls"));
        assert_eq!(of(json!({ "cmd": "ls" })).as_deref(), Some("ls"));
        assert_eq!(of(json!({ "command": ["bash", "-lc", "ls | wc"] })).as_deref(), Some("ls | wc"));
        assert_eq!(of(json!({ "action": { "command": ["ls", "-l"] } })).as_deref(), Some("ls -l"));
        assert_eq!(of(json!({ "command": "*** Begin Patch\n*** End Patch" })), None);
        assert_eq!(of(json!({ "file_path": "a" })), None);
    }
}
