//! What the input and the output of a tool call are, for whatever agent made it: a command, an edit, a file, a patch.
//!
//! The names of fields tell, not the name of the tool: tools of other agents and of MCP servers use the same ones.

use serde_json::Value;

use crate::recording::ToolCallRecord;

/// The input of a call.
#[derive(Clone, PartialEq, Debug)]
pub enum ToolInput {
    /// A shell command.
    Command(String),
    /// Texts that replace others in a file.
    Edit {
        /// The file.
        path: String,
        /// Each text with the one that replaces it.
        replacements: Vec<(String, String)>,
    },
    /// The whole content of a file.
    Write {
        /// The file.
        path: String,
        /// The content.
        content: String,
    },
    /// A patch.
    Patch(String),
    /// A file that is read.
    Read(String),
    /// Any other input.
    Other(Value),
}

const PATH_FIELDS: [&str; 6] = ["file_path", "filePath", "absolute_path", "notebook_path", "path", "file"];

impl ToolInput {
    /// Finds out what the input of a call is.
    pub fn of(call: &ToolCallRecord) -> Self {
        let input = &call.input;
        if let Value::String(text) = input {
            return match is_patch(text) {
                true => Self::Patch(text.clone()),
                false => Self::Other(input.clone()),
            };
        }
        let text =
            |names: &[&str]| names.iter().find_map(|name| input.get(name)?.as_str().map(str::to_owned));
        if let Some(patch) = text(&["patch", "patchText", "input", "diff"]).filter(|text| is_patch(text)) {
            return Self::Patch(patch);
        }
        let path = text(&PATH_FIELDS);
        if let Some(command) = command(input) {
            return match is_patch(&command) {
                true => Self::Patch(command),
                false => Self::Command(command),
            };
        }
        let Some(path) = path else { return Self::Other(input.clone()) };
        let replacements = replacements(input);
        if !replacements.is_empty() {
            return Self::Edit { path, replacements };
        }
        if let Some(content) = text(&["content", "contents", "file_text", "new_source", "text"]) {
            return Self::Write { path, content };
        }
        let only_names_lines = input.as_object().is_some_and(|fields| {
            fields.keys().all(|name| {
                PATH_FIELDS.contains(&name.as_str())
                    || matches!(
                        name.as_str(),
                        "offset" | "limit" | "pages" | "start_line" | "end_line" | "cwd"
                    )
            })
        });
        if only_names_lines { Self::Read(path) } else { Self::Other(input.clone()) }
    }
}

fn command(input: &Value) -> Option<String> {
    let value = input.get("command").or_else(|| input.get("cmd"))?;
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            match words.as_slice() {
                [] => None,
                // A shell with a script: the script is the command.
                [shell, flag, script]
                    if flag.starts_with('-') && flag.ends_with('c') && shell.ends_with("sh") =>
                {
                    Some((*script).to_owned())
                }
                words => Some(words.join(" ")),
            }
        }
        _ => None,
    }
}

fn replacements(input: &Value) -> Vec<(String, String)> {
    let one = |value: &Value| {
        let text =
            |names: [&str; 3]| names.iter().find_map(|name| value.get(name)?.as_str().map(str::to_owned));
        let new = text(["new_string", "newString", "new_str"])?;
        Some((text(["old_string", "oldString", "old_str"])?, new))
    };
    match input.get("edits").and_then(Value::as_array) {
        Some(edits) => edits.iter().filter_map(one).collect(),
        None => one(input).into_iter().collect(),
    }
}

fn is_patch(text: &str) -> bool {
    text.contains("*** Begin Patch") || (text.contains("\n@@ ") && text.contains("\n+++ "))
}

/// The output of a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ToolResultView {
    /// What the tool wrote.
    pub text: String,
    /// What it wrote to standard error, if that is recorded separately.
    pub stderr: String,
    /// The exit code of a command.
    pub exit_code: Option<i64>,
}

impl ToolResultView {
    /// Reads the output of a call.
    pub fn of(call: &ToolCallRecord) -> Self {
        let output = &call.output;
        let code = ["/exit_code", "/exitCode", "/returnCode", "/metadata/exit_code", "/metadata/exit"];
        let exit_code = code.iter().find_map(|pointer| output.pointer(pointer)?.as_i64());
        let text = |name: &str| output.get(name).and_then(Value::as_str).map(str::to_owned);
        if let Some(stdout) = text("stdout") {
            let stderr = text("stderr").unwrap_or_default();
            return Self { text: stdout, stderr, exit_code };
        }
        if let Some(content) = output.pointer("/file/content").and_then(Value::as_str) {
            return Self { text: content.to_owned(), exit_code, ..Self::default() };
        }
        let plain =
            text("output").or_else(|| text("llmContent")).or_else(|| crate::recording::plain_text(output));
        let text = plain.unwrap_or_else(|| match output {
            Value::Null => String::new(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        });
        Self { text, stderr: String::new(), exit_code }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(input: Value, output: Value) -> ToolCallRecord {
        ToolCallRecord { input, output, ..ToolCallRecord::default() }
    }

    #[test]
    fn inputs_of_all_agents_are_understood() {
        let input = |input: Value| ToolInput::of(&call(input, Value::Null));
        assert_eq!(input(json!({ "command": "ls", "timeout": 5 })), ToolInput::Command("ls".into()));
        assert_eq!(
            input(json!({ "command": ["bash", "-lc", "make test"] })),
            ToolInput::Command("make test".into())
        );
        let edit = ToolInput::Edit { path: "a".into(), replacements: vec![("x".into(), "y".into())] };
        assert_eq!(input(json!({ "file_path": "a", "old_string": "x", "new_string": "y" })), edit);
        assert_eq!(input(json!({ "filePath": "a", "oldString": "x", "newString": "y" })), edit);
        assert_eq!(
            input(json!({ "file_path": "a", "edits": [{ "old_string": "x", "new_string": "y" }] })),
            edit
        );
        assert_eq!(
            input(json!({ "file_path": "a", "content": "c" })),
            ToolInput::Write { path: "a".into(), content: "c".into() }
        );
        let patch = "*** Begin Patch\n*** End Patch";
        assert_eq!(input(json!(patch)), ToolInput::Patch(patch.into()));
        assert_eq!(
            input(json!({ "command": ["apply_patch", patch] })),
            ToolInput::Patch(format!("apply_patch {patch}"))
        );
        assert_eq!(input(json!({ "file_path": "a", "limit": 3 })), ToolInput::Read("a".into()));
        assert!(matches!(input(json!({ "pattern": "a", "path": "src" })), ToolInput::Other(_)));
        assert!(matches!(input(json!({ "command": 7 })), ToolInput::Other(_)));
    }

    #[test]
    fn outputs_of_all_agents_are_understood() {
        let output = |output: Value| ToolResultView::of(&call(Value::Null, output));
        let shell = output(json!({ "stdout": "a", "stderr": "b", "interrupted": false }));
        assert_eq!((shell.text.as_str(), shell.stderr.as_str(), shell.exit_code), ("a", "b", None));
        let codex = output(json!({ "output": "a", "metadata": { "exit_code": 101 } }));
        assert_eq!((codex.text.as_str(), codex.exit_code), ("a", Some(101)));
        assert_eq!(output(json!({ "type": "text", "file": { "content": "c" } })).text, "c");
        assert_eq!(output(json!([{ "type": "text", "text": "t" }])).text, "t");
        assert_eq!(output(json!({ "matches": 2 })).text, "{\n  \"matches\": 2\n}");
        assert_eq!(output(Value::Null), ToolResultView::default());
    }
}
