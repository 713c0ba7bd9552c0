//! The agent's tools: their names, their input, and what they do in the real directory.
//!
//! Every error is returned to the model as the result of the call; nothing here ends the agent.

mod bash;
mod clip;
mod files;
mod path_guard;
mod search;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// All tools, by the names that scripts and models use.
pub const ALL: [&str; 8] = ["read", "write", "edit", "bash", "list", "search", "delegate", "remember"];

/// The result of a tool call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ToolResult {
    /// Text for the model.
    pub text: String,
    /// Whether the call failed.
    pub failed: bool,
}

impl ToolResult {
    /// A successful result.
    pub fn good(text: impl Into<String>) -> Self {
        Self { text: text.into(), failed: false }
    }

    /// A failed result.
    pub fn bad(text: impl Into<String>) -> Self {
        Self { text: text.into(), failed: true }
    }
}

/// When a tool has to end.
#[derive(Clone, Copy, Debug)]
pub struct ToolLimits<'a> {
    /// Set when the user ends the run.
    pub stop: &'a AtomicBool,
    /// When the whole run has to end; `None` for no limit.
    pub deadline: Option<Instant>,
}

impl ToolLimits<'_> {
    /// Whether the user ended the run.
    pub fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// The input of a call; missing or invalid fields give error messages for the model.
pub(crate) struct ToolInput<'a>(pub &'a Value);

impl<'a> ToolInput<'a> {
    /// Returns a text that must be present and not empty.
    pub fn text(&self, field: &str) -> Result<&'a str, String> {
        match self.any_text(field)? {
            "" => Err(format!("\"{field}\" is empty")),
            text => Ok(text),
        }
    }

    /// Returns a text that must be present.
    pub fn any_text(&self, field: &str) -> Result<&'a str, String> {
        match self.0.get(field) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("\"{field}\" must be a text")),
            None => Err(format!("\"{field}\" is missing")),
        }
    }

    /// Returns a text that may be missing.
    pub fn optional(&self, field: &str) -> Result<Option<&'a str>, String> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(_) => self.any_text(field).map(|text| Some(text).filter(|text| !text.is_empty())),
        }
    }

    /// Returns a number that may be missing.
    pub fn number(&self, field: &str) -> Result<Option<u64>, String> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => match value.as_u64() {
                Some(number) => Ok(Some(number)),
                None => Err(format!("\"{field}\" must be a whole number")),
            },
        }
    }
}

/// Whether a call of the tool can change files. Delegating does not count: the worker's own calls are recorded one by one.
pub fn can_change(tool: &str) -> bool {
    matches!(tool, "write" | "edit" | "bash")
}

/// Returns the paths that a call names, relative to the workspace if they are inside.
pub fn named_paths(root: &Path, tool: &str, input: &Value) -> Vec<String> {
    if !matches!(tool, "read" | "write" | "edit" | "list" | "search") {
        return Vec::new();
    }
    let path = input.get("path").and_then(Value::as_str).filter(|path| !path.is_empty());
    let relative = |path: &str| match path_guard::relative(root, path) {
        Ok(inside) => inside.to_string_lossy().into_owned(),
        Err(_) => path.to_string(),
    };
    path.map(relative).into_iter().collect()
}

/// Runs a tool in the workspace at `root`.
pub fn run(root: &Path, tool: &str, input: &Value, limits: &ToolLimits<'_>) -> ToolResult {
    let given = ToolInput(input);
    let done = match tool {
        "read" => files::read(root, &given),
        "write" => files::write(root, &given),
        "edit" => files::edit(root, &given),
        "list" => files::list(root, &given),
        "search" => search::search(root, &given),
        "bash" => bash::bash(root, &given, limits),
        other => Err(format!("unknown tool \"{other}\"; tools are {}", ALL.join(", "))),
    };
    done.unwrap_or_else(ToolResult::bad)
}

/// Returns the tool definitions for the model. A worker has no tools to delegate or to remember.
pub fn described(for_worker: bool) -> Vec<Value> {
    let text = |about: &str| json!({ "type": "string", "description": about });
    let number = |about: &str| json!({ "type": "integer", "description": about });
    let tool = |name: &str, about: &str, fields: Value, required: &[&str]| {
        json!({
            "name": name,
            "description": about,
            "input_schema": { "type": "object", "properties": fields, "required": required },
        })
    };
    let path = || text("Path of the file, relative to the project");
    let mut all = vec![
        tool(
            "read",
            "Reads a text file.",
            json!({ "path": path(), "offset": number("First line, counted from 1"), "limit": number("How many lines") }),
            &["path"],
        ),
        tool(
            "write",
            "Writes a file, replacing its content. Creates directories as needed.",
            json!({ "path": path(), "content": text("The whole content") }),
            &["path", "content"],
        ),
        tool(
            "edit",
            "Replaces a text in a file. The text must occur exactly once.",
            json!({ "path": path(), "old": text("The exact text to replace"), "new": text("The replacement") }),
            &["path", "old", "new"],
        ),
        tool(
            "bash",
            "Runs a shell command in the project. Processes it leaves running are killed.",
            json!({ "command": text("The command"), "timeout": number("Timeout in seconds (default 120)") }),
            &["command"],
        ),
        tool(
            "list",
            "Lists a directory.",
            json!({ "path": text("The directory; the project itself if not given") }),
            &[],
        ),
        tool(
            "search",
            "Finds lines that match a regular expression, in all files that git does not ignore.",
            json!({
                "pattern": text("The expression"),
                "path": text("Only below this directory or in this file"),
                "glob": text("Only in files whose path matches"),
            }),
            &["pattern"],
        ),
    ];
    if !for_worker {
        all.push(tool(
            "delegate",
            "Gives a task to a worker, which has the same tools and knows nothing of this conversation. Its last message is the result.",
            json!({ "worker": text("A short name for the worker: tester, reviewer"), "task": text("All it needs to know") }),
            &["worker", "task"],
        ));
        all.push(tool(
            "remember",
            "Keeps a fact for later; an empty value forgets it.",
            json!({ "key": text("What it is about"), "value": text("The fact") }),
            &["key", "value"],
        ));
    }
    all
}
