//! Finds the shell commands of a session: where each ran, what it printed and how it ended.
//!
//! Every agent reports that in its own format (`command_ending` reads them), and some only in their conversation. What no form
//! tells stays unknown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_store::port::{StepQuery, StepRow};

use crate::command_ending::{CommandEnding, parse_ending, read_ending};

/// How many bytes of a command's output are kept.
const MAX_OUTPUT_BYTES: usize = 400;
/// How many messages of the conversation are searched for the results of commands.
const MAX_SEARCHED_MESSAGES: usize = 4000;
/// How the result of a call that did not run begins, in the agents' formats: the user or a rule refused it.
const REFUSED_CALL_PREFIXES: [&str; 9] = [
    "The user doesn't want to proceed with this tool use",
    "Permission to use ",
    "Claude requested permissions to ",
    "This call was refused and did not run",
    "Tools that change something are not run here",
    "This call was not recorded",
    "Command blocked by PreToolUse hook",
    "exec command rejected by user",
    "The user rejected permission to use this specific tool call",
];

/// A shell command that ran.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CommandRun {
    /// The number of the step at which it ended.
    pub step: u64,
    /// When it ended.
    pub at: Timestamp,
    /// The tool that ran the command, by the agent's name for it.
    pub tool: String,
    /// The command line.
    pub command: String,
    /// The directory it ran in, if known.
    pub directory: Option<String>,
    /// The exit code, if known.
    pub exit: Option<i64>,
    /// Whether the agent reported an error.
    pub failed: bool,
    /// The beginning of its output.
    pub output: String,
}

/// Returns at most `limit` commands that a session ran, newest first, up to step `until`. Refused commands did not run
/// and are left out.
pub fn list_commands(
    workspace: &Workspace,
    session: &Session,
    until: Option<u64>,
    limit: usize,
) -> Result<Vec<CommandRun>, EngineError> {
    let mut runs = Vec::new();
    let mut next_limit = until.map(|number| number.saturating_add(1));
    let mut endings = None;
    while runs.len() < limit {
        let query = StepQuery {
            session: Some(session.id),
            kinds: vec![StepKind::ToolEnd],
            before: next_limit,
            limit: Some(64),
            ..StepQuery::default()
        };
        let steps = workspace.store().steps(workspace.record.id, &query)?;
        let Some(last) = steps.last() else { break };
        next_limit = Some(last.step.number);
        for stored in &steps {
            runs.extend(read_command(workspace, session, stored, &mut endings)?);
        }
    }
    runs.truncate(limit);
    Ok(runs)
}

/// Returns the command that a call ran, if it ran one. `endings` caches what the conversation says about calls.
fn read_command(
    workspace: &Workspace,
    session: &Session,
    stored: &StepRow,
    endings: &mut Option<HashMap<String, CommandEnding>>,
) -> Result<Option<CommandRun>, EngineError> {
    let step = &stored.step;
    let Some(detail) = workspace.load_detail(step)? else { return Ok(None) };
    let start = detail.get("start").and_then(|id| serde_json::from_value(id.clone()).ok());
    let start = start.map(|start| workspace.store().step(start)).transpose()?.flatten();
    let began = match &start {
        Some(start) => workspace.load_detail(&start.step)?.unwrap_or_default(),
        None => Value::Null,
    };
    let input = [&detail, &began].into_iter().filter_map(|detail| detail.get("input"));
    let Some((input, command)) = input.into_iter().find_map(|input| Some((input, extract_command(input)?)))
    else {
        return Ok(None);
    };
    let output = detail.get("output").unwrap_or(&Value::Null);
    let error = detail.pointer("/error/message").and_then(Value::as_str);
    let mut ending = read_ending(output);
    if let Some(error) = error {
        ending = ending.or(parse_ending(error));
    }
    let printed = ending.output.as_deref().unwrap_or_default();
    let not_run = REFUSED_CALL_PREFIXES.iter().any(|words| printed.starts_with(words));
    if output.get("denied").is_some() || (step.meta.failed && not_run) {
        return Ok(None);
    }
    if let (None, Some(call)) = (ending.exit, &step.meta.call) {
        if endings.is_none() {
            *endings = Some(read_conversation_endings(workspace, session)?);
        }
        let reported_ending = endings.as_ref().and_then(|endings| endings.get(call)).cloned();
        ending = ending.or(reported_ending.unwrap_or_default());
    }
    let cwd = [&began, &detail].into_iter().find_map(|detail| detail.pointer("/raw/cwd")?.as_str());
    let mut printed = ending.output.unwrap_or_default();
    printed.truncate(printed.floor_char_boundary(MAX_OUTPUT_BYTES));
    Ok(Some(CommandRun {
        step: step.number,
        at: step.at,
        tool: step.meta.tool.clone().unwrap_or_default(),
        command,
        directory: resolve_directory(workspace, session, input, cwd),
        exit: ending.exit,
        failed: step.meta.failed,
        output: printed,
    }))
}

/// Returns where a call ran: the directory it names, otherwise that of the agent, otherwise the root.
fn resolve_directory(
    workspace: &Workspace,
    session: &Session,
    input: &Value,
    cwd: Option<&str>,
) -> Option<String> {
    const NAMES: [&str; 6] = ["cwd", "workdir", "working_directory", "directory", "dir_path", "dir"];
    let named_dir = NAMES.iter().find_map(|name| input.get(name)?.as_str()).filter(|text| !text.is_empty());
    let own_dir = cwd.or(session.info.directory.as_deref()).map(PathBuf::from);
    // A remote workspace has no directory on this machine.
    let own_dir =
        own_dir.or_else(|| workspace.record.remote_name().is_none().then(|| workspace.root.clone()));
    let directory = match (own_dir, named_dir) {
        (Some(own_dir), Some(named_dir)) => own_dir.join(named_dir),
        (Some(own_dir), None) => own_dir,
        (None, named_dir) => Path::new(named_dir?).to_path_buf(),
    };
    Some(directory.display().to_string())
}

/// Returns what the conversation of a session tells about calls, by call id. Some agents report there what their hooks do
/// not.
fn read_conversation_endings(
    workspace: &Workspace,
    session: &Session,
) -> Result<HashMap<String, CommandEnding>, EngineError> {
    let mut endings: HashMap<String, CommandEnding> = HashMap::new();
    for (_, message) in conversation::tail(workspace.store(), session.info.tip, MAX_SEARCHED_MESSAGES)? {
        let Ok(line) = serde_json::from_str::<Value>(&message.text) else { continue };
        collect_endings(&line, 0, &mut endings);
    }
    Ok(endings)
}

/// Collects from `value` the objects that hold a call id and the result of the call.
fn collect_endings(value: &Value, depth: usize, endings: &mut HashMap<String, CommandEnding>) {
    const MAX_DEPTH: usize = 8;
    match value {
        Value::Array(items) if depth < MAX_DEPTH => {
            items.iter().for_each(|item| collect_endings(item, depth + 1, endings));
        }
        Value::Object(fields) if depth < MAX_DEPTH => {
            let names = ["call_id", "tool_use_id", "tool_call_id", "callID", "id"];
            let id = names.iter().find_map(|name| value.get(name)?.as_str());
            if let Some(id) = id {
                let result = ["output", "content", "state"].iter().find_map(|name| value.get(name));
                let ending = read_ending(value).or(result.map(read_ending).unwrap_or_default());
                if ending.exit.is_some() {
                    let known_ending = endings.remove(id).unwrap_or_default();
                    endings.insert(id.to_owned(), ending.or(known_ending));
                }
            }
            fields.values().for_each(|field| collect_endings(field, depth + 1, endings));
        }
        _ => {}
    }
}

/// Returns the command in the input of a call. A patch does not count, although some agents send it as a command.
fn extract_command(input: &Value) -> Option<String> {
    let value = ["/command", "/cmd", "/script", "/action/command"]
        .iter()
        .find_map(|pointer| input.pointer(pointer))?;
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            match words.as_slice() {
                [_, "-c" | "-lc", script] => (*script).to_owned(),
                words => words.join(" "),
            }
        }
        _ => return None,
    };
    (!text.trim().is_empty() && !text.trim_start().starts_with("*** Begin Patch")).then_some(text)
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
        assert_eq!(told["c2"], CommandEnding { exit: Some(0), output: Some("yes".into()) });
    }

    #[test]
    fn commands_are_found_in_inputs_and_patches_are_none() {
        let of = |input: Value| extract_command(&input);
        assert_eq!(of(json!({ "command": "ls" })).as_deref(), Some("ls"));
        assert_eq!(of(json!({ "cmd": "ls" })).as_deref(), Some("ls"));
        assert_eq!(of(json!({ "command": ["bash", "-lc", "ls | wc"] })).as_deref(), Some("ls | wc"));
        assert_eq!(of(json!({ "action": { "command": ["ls", "-l"] } })).as_deref(), Some("ls -l"));
        assert_eq!(of(json!({ "command": "*** Begin Patch\n*** End Patch" })), None);
        assert_eq!(of(json!({ "file_path": "a" })), None);
    }
}
