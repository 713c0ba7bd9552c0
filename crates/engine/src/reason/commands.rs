//! Finds the shell commands of a session: where each ran, what it printed and how it ended.
//!
//! Every agent reports that in its own format, and some only in their conversation. This module reads the forms they use:
//! fields (`exit_code`, `stdout`, …), and lines such as `Exit code 1` around the output. What no form tells stays unknown.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;
use stepback_model::conversation;
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_store::port::{StepQuery, StepRow};

use crate::error::EngineError;
use crate::workspace::Workspace;

/// How many bytes of a command's output are kept.
const PRINTED: usize = 400;
/// How many messages of the conversation are searched for the results of commands.
const MESSAGES: usize = 4000;
/// How the result of a call that did not run begins, in the agents' formats: the user or a rule refused it.
const NOT_RUN: [&str; 9] = [
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

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Ending {
    exit: Option<i64>,
    printed: Option<String>,
}

impl Ending {
    /// Fills in from `other` what this one does not know.
    fn or(self, other: Self) -> Self {
        Self { exit: self.exit.or(other.exit), printed: self.printed.or(other.printed) }
    }
}

impl Workspace {
    /// Returns at most `most` commands that a session ran, newest first, up to step `until`. Refused commands did not run and
    /// are left out.
    pub fn commands_of(
        &self,
        session: &Session,
        until: Option<u64>,
        most: usize,
    ) -> Result<Vec<CommandRun>, EngineError> {
        let mut found = Vec::new();
        let mut before = until.map(|number| number.saturating_add(1));
        let mut told = None;
        while found.len() < most {
            let query = StepQuery {
                session: Some(session.id),
                kinds: vec![StepKind::ToolEnd],
                before,
                limit: Some(64),
                ..StepQuery::default()
            };
            let steps = self.store().steps(self.record.id, &query)?;
            let Some(last) = steps.last() else { break };
            before = Some(last.step.number);
            for stored in &steps {
                found.extend(self.command_in(session, stored, &mut told)?);
            }
        }
        found.truncate(most);
        Ok(found)
    }

    /// Returns the command that a call ran, if it ran one. `told` caches what the conversation tells.
    fn command_in(
        &self,
        session: &Session,
        stored: &StepRow,
        told: &mut Option<HashMap<String, Ending>>,
    ) -> Result<Option<CommandRun>, EngineError> {
        let step = &stored.step;
        let Some(detail) = self.detail_of(step)? else { return Ok(None) };
        let start = detail.get("start").and_then(|id| serde_json::from_value(id.clone()).ok());
        let start = start.map(|start| self.store().step(start)).transpose()?.flatten();
        let began = match &start {
            Some(start) => self.detail_of(&start.step)?.unwrap_or_default(),
            None => Value::Null,
        };
        let input = [&detail, &began].into_iter().filter_map(|detail| detail.get("input"));
        let Some((input, command)) = input.into_iter().find_map(|input| Some((input, command(input)?)))
        else {
            return Ok(None);
        };
        let output = detail.get("output").unwrap_or(&Value::Null);
        let error = detail.pointer("/error/message").and_then(Value::as_str);
        let mut ending = ending(output);
        if let Some(error) = error {
            ending = ending.or(in_text(error));
        }
        let printed = ending.printed.as_deref().unwrap_or_default();
        let not_run = NOT_RUN.iter().any(|words| printed.starts_with(words));
        if output.get("denied").is_some() || (step.meta.failed && not_run) {
            return Ok(None);
        }
        if let (None, Some(call)) = (ending.exit, &step.meta.call) {
            if told.is_none() {
                *told = Some(self.told_in_conversation(session)?);
            }
            let known = told.as_ref().and_then(|told| told.get(call)).cloned();
            ending = ending.or(known.unwrap_or_default());
        }
        let cwd = [&began, &detail].into_iter().find_map(|detail| detail.pointer("/raw/cwd")?.as_str());
        let mut printed = ending.printed.unwrap_or_default();
        printed.truncate(printed.floor_char_boundary(PRINTED));
        Ok(Some(CommandRun {
            step: step.number,
            at: step.at,
            tool: step.meta.tool.clone().unwrap_or_default(),
            command,
            directory: self.directory(session, input, cwd),
            exit: ending.exit,
            failed: step.meta.failed,
            output: printed,
        }))
    }

    /// Returns where a call ran: the directory it names, otherwise that of the agent, otherwise the root.
    fn directory(&self, session: &Session, input: &Value, cwd: Option<&str>) -> Option<String> {
        const NAMES: [&str; 6] = ["cwd", "workdir", "working_directory", "directory", "dir_path", "dir"];
        let named = NAMES.iter().find_map(|name| input.get(name)?.as_str()).filter(|text| !text.is_empty());
        let own = cwd.or(session.info.directory.as_deref()).map(PathBuf::from);
        // A remote workspace has no directory on this machine.
        let own = own.or_else(|| self.record.remote_name().is_none().then(|| self.root.clone()));
        let whole = match (own, named) {
            (Some(own), Some(named)) => own.join(named),
            (Some(own), None) => own,
            (None, named) => Path::new(named?).to_path_buf(),
        };
        Some(whole.display().to_string())
    }

    /// Returns what the conversation of a session tells about calls, by call id. Some agents report there what their hooks do
    /// not.
    fn told_in_conversation(&self, session: &Session) -> Result<HashMap<String, Ending>, EngineError> {
        let mut told: HashMap<String, Ending> = HashMap::new();
        for (_, message) in conversation::tail(self.store(), session.info.tip, MESSAGES)? {
            let Ok(line) = serde_json::from_str::<Value>(&message.text) else { continue };
            collect(&line, 0, &mut told);
        }
        Ok(told)
    }
}

/// Collects from `value` the objects that hold a call id and the result of the call.
fn collect(value: &Value, depth: usize, told: &mut HashMap<String, Ending>) {
    const DEEPEST: usize = 8;
    match value {
        Value::Array(items) if depth < DEEPEST => {
            items.iter().for_each(|item| collect(item, depth + 1, told));
        }
        Value::Object(fields) if depth < DEEPEST => {
            let names = ["call_id", "tool_use_id", "tool_call_id", "callID", "id"];
            let id = names.iter().find_map(|name| value.get(name)?.as_str());
            if let Some(id) = id {
                let answer = ["output", "content", "state"].iter().find_map(|name| value.get(name));
                let found = ending(value).or(answer.map(ending).unwrap_or_default());
                if found.exit.is_some() {
                    let known = told.remove(id).unwrap_or_default();
                    told.insert(id.to_owned(), found.or(known));
                }
            }
            fields.values().for_each(|field| collect(field, depth + 1, told));
        }
        _ => {}
    }
}

/// Returns the command in the input of a call. A patch does not count, although some agents send it as a command.
fn command(input: &Value) -> Option<String> {
    let value =
        ["/command", "/cmd", "/script", "/action/command"].iter().find_map(|place| input.pointer(place))?;
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

/// Reads how a command ended from the output of a call.
fn ending(output: &Value) -> Ending {
    const EXITS: [&str; 8] = [
        "/exit_code",
        "/exitCode",
        "/exit",
        "/returncode",
        "/metadata/exit_code",
        "/metadata/exitCode",
        "/metadata/exit",
        "/status/exit_code",
    ];
    const PRINTS: [&str; 7] =
        ["/output", "/aggregated_output", "/llmContent", "/text", "/content", "/result", "/stdout"];
    let exit = EXITS.iter().find_map(|place| output.pointer(place)?.as_i64());
    let known = match output {
        Value::String(text) => in_text(text),
        Value::Object(fields) if fields.contains_key("stdout") => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            let (out, err) = (text("stdout"), text("stderr"));
            let gap = if out.is_empty() || err.is_empty() || out.ends_with('\n') { "" } else { "\n" };
            // Claude Code uses this form only for what it considers a success, and adds a field if the exit code is not 0.
            let is_set = |name: &str| {
                fields.get(name).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
            };
            let is_sure = fields.contains_key("interrupted")
                && !["interrupted", "backgroundTaskId", "returnCodeInterpretation"].into_iter().any(is_set);
            Ending { exit: is_sure.then_some(0), printed: Some(format!("{out}{gap}{err}")) }
        }
        Value::Object(_) => {
            let found = PRINTS.iter().find_map(|place| Some(in_text(&plain(output.pointer(place)?)?)));
            found.unwrap_or_default()
        }
        Value::Array(_) => plain(output).map(|text| in_text(&text)).unwrap_or_default(),
        _ => Ending::default(),
    };
    Ending { exit: exit.or(known.exit), ..known }
}

/// Returns a text, or the joined texts of a list of parts.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            (!texts.is_empty()).then(|| texts.join("\n"))
        }
        _ => None,
    }
}

/// Reads a text in which an agent wrote the exit code around the output.
fn in_text(text: &str) -> Ending {
    let inner = text.trim_start().strip_prefix("<untrusted_context>").unwrap_or(text);
    let inner = inner.trim_end().strip_suffix("</untrusted_context>").unwrap_or(inner);
    let ending =
        first_line(inner).or_else(|| heading(inner)).or_else(|| footer(inner)).or_else(|| last_line(inner));
    ending.unwrap_or_else(|| Ending { exit: None, printed: Some(inner.to_owned()) })
}

/// Reads `Exit code 1` followed by the output, as Claude Code reports a failure.
fn first_line(text: &str) -> Option<Ending> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let exit = first.strip_prefix("Exit code ")?.trim().parse().ok()?;
    Some(Ending { exit: Some(exit), printed: Some(rest.to_owned()) })
}

/// Reads a few lines of facts, `Output:`, and then the output, as Codex writes it for the model.
fn heading(text: &str) -> Option<Ending> {
    let (facts, printed) = match text.split_once("\nOutput:\n") {
        Some((facts, printed)) => (facts, printed),
        None => (text.strip_suffix("\nOutput:")?, ""),
    };
    let exit = facts.lines().take(8).find_map(|line| {
        let code = line.strip_prefix("Process exited with code ").or(line.strip_prefix("Exit code: "))?;
        code.trim().parse().ok()
    });
    Some(Ending { exit: Some(exit?), printed: Some(printed.to_owned()) })
}

/// Reads the output after `Output:`, followed by facts, as Gemini CLI writes it for the model. It names only a nonzero exit
/// code.
fn footer(text: &str) -> Option<Ending> {
    const FACTS: [&str; 6] =
        ["Error: ", "Exit Code: ", "Signal: ", "Background PIDs: ", "Process Group PGID: ", "Stderr: "];
    let text = text.trim();
    let begin = match text.strip_prefix("Output: ") {
        Some(_) => "Output: ".len(),
        None if text.starts_with("Command: ") => text.find("\nOutput: ")? + "\nOutput: ".len(),
        None => return None,
    };
    let lines: Vec<&str> = text[begin..].lines().collect();
    let facts = lines.iter().rev().take_while(|line| FACTS.iter().any(|fact| line.starts_with(fact))).count();
    let (printed, facts) = lines.split_at(lines.len() - facts);
    let fact = |name: &str| {
        let value = facts.iter().find_map(|line| line.strip_prefix(name)).map(str::trim);
        value.filter(|value| !matches!(*value, "(none)" | "(empty)"))
    };
    let exit = match fact("Exit Code: ") {
        Some(code) => code.parse().ok(),
        None => (fact("Error: ").is_none() && fact("Signal: ").is_none()).then_some(0),
    };
    let printed = printed.join("\n");
    Some(Ending { exit, printed: Some(if printed == "(empty)" { String::new() } else { printed }) })
}

/// Reads `[exit code 1]` after the output, as the built-in agent writes it.
fn last_line(text: &str) -> Option<Ending> {
    let (printed, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let exit = last.strip_prefix("[exit code ")?.strip_suffix(']')?.parse().ok()?;
    Some(Ending { exit: Some(exit), printed: Some(printed.to_owned()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_agents_way_to_tell_how_a_command_ended_is_read() {
        let known = |exit: i64, printed: &str| Ending { exit: Some(exit), printed: Some(printed.into()) };
        let unknown = |printed: &str| Ending { exit: None, printed: Some(printed.into()) };
        let claude = |extra: Value| {
            let mut output =
                json!({ "stdout": "a\nb", "stderr": "", "interrupted": false, "isImage": false });
            output.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
            output
        };
        for (output, ending) in [
            (claude(json!({})), known(0, "a\nb")),
            (claude(json!({ "stderr": "warning" })), known(0, "a\nb\nwarning")),
            (claude(json!({ "returnCodeInterpretation": "No matches found" })), unknown("a\nb")),
            (claude(json!({ "interrupted": true })), unknown("a\nb")),
            (claude(json!({ "backgroundTaskId": "b1" })), unknown("a\nb")),
            (json!("Exit code 1\nno such file"), known(1, "no such file")),
            (json!("Exit code 127"), known(127, "")),
            (json!("README.md\n"), unknown("README.md\n")),
            (
                json!(
                    "Chunk ID: fc9aee\nWall time: 0.0000 seconds\nProcess exited with code 2\nOriginal token count: 1\nOutput:\nx\nOutput:\ny"
                ),
                known(2, "x\nOutput:\ny"),
            ),
            (
                json!({ "llmContent": "<untrusted_context>\nOutput: README.md\nf.txt\nProcess Group PGID: 19217\n</untrusted_context>",
                "returnDisplay": "README.md\nf.txt" }),
                known(0, "README.md\nf.txt"),
            ),
            (json!({ "llmContent": "Output: (empty)\nExit Code: 1\nProcess Group PGID: 7" }), known(1, "")),
            (
                json!({ "llmContent": "Output: (empty)\nError: spawn failed\nProcess Group PGID: 7" }),
                unknown(""),
            ),
            (
                json!({ "llmContent": "Output: Exit Code: 3\nok\nProcess Group PGID: 7" }),
                known(0, "Exit Code: 3\nok"),
            ),
            (
                json!({ "llmContent": "Command: ls\nDirectory: (root)\nOutput: a\nError: (none)\nExit Code: 0\nSignal: (none)" }),
                known(0, "a"),
            ),
            (
                json!({ "title": "ls", "output": "a\n", "metadata": { "exit": 1, "output": "a\n" } }),
                known(1, "a\n"),
            ),
            (json!({ "text": "a\n[exit code 3]", "failed": true }), known(3, "a")),
            (
                json!({ "text": "a\n[killed by signal 9]", "failed": true }),
                unknown("a\n[killed by signal 9]"),
            ),
            (json!({ "exit_code": 4, "stdout": "s", "stderr": "e" }), known(4, "s\ne")),
            (json!({ "content": [{ "type": "text", "text": "a" }] }), unknown("a")),
            (json!(null), Ending::default()),
        ] {
            assert_eq!(super::ending(&output), ending, "{output}");
        }
    }

    #[test]
    fn a_conversation_tells_what_hooks_do_not() {
        let mut told = HashMap::new();
        for line in [
            json!({ "type": "event_msg", "payload": { "type": "item_completed", "item": {
                "type": "CommandExecution", "id": "c1", "exit_code": 1, "aggregated_output": "no\n" } } }),
            json!({ "type": "response_item", "payload": { "type": "function_call_output", "call_id": "c2",
                "output": "Wall time: 0\nProcess exited with code 0\nOutput:\nyes" } }),
        ] {
            collect(&line, 0, &mut told);
        }
        assert_eq!(told["c1"].exit, Some(1));
        assert_eq!(told["c2"], Ending { exit: Some(0), printed: Some("yes".into()) });
    }

    #[test]
    fn commands_are_found_in_inputs_and_patches_are_none() {
        let of = |input: Value| command(&input);
        assert_eq!(of(json!({ "command": "ls" })).as_deref(), Some("ls"));
        assert_eq!(of(json!({ "cmd": "ls" })).as_deref(), Some("ls"));
        assert_eq!(of(json!({ "command": ["bash", "-lc", "ls | wc"] })).as_deref(), Some("ls | wc"));
        assert_eq!(of(json!({ "action": { "command": ["ls", "-l"] } })).as_deref(), Some("ls -l"));
        assert_eq!(of(json!({ "command": "*** Begin Patch\n*** End Patch" })), None);
        assert_eq!(of(json!({ "file_path": "a" })), None);
    }
}
