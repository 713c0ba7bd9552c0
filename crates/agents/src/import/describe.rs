//! Summarizes a call in one line for the user: the tool, and the most informative part of its input.

use serde_json::Value;

use super::SUMMARY;
use crate::transcript::{clip_line, get_str};

/// The most informative keys of all agents' tools, best first.
const INFORMATIVE_KEYS: [&str; 17] = [
    "command",
    "cmd",
    "file_path",
    "filePath",
    "absolute_path",
    "notebook_path",
    "path",
    "pattern",
    "query",
    "url",
    "subject",
    "description",
    "prompt",
    "skill",
    "name",
    "dir_path",
    "question",
];

/// Returns a short description of a call: `Bash: cargo test`, `Edit: src/main.rs`, `apply_patch: a.txt, b.txt`.
pub fn describe_call(tool: &str, input: &Value) -> String {
    let said = match input {
        Value::String(patch) if patch.contains("*** Begin Patch") => list_patched_files(patch),
        Value::String(text) => text.clone(),
        _ => describe_task_update(input)
            .or_else(|| INFORMATIVE_KEYS.iter().find_map(|key| describe_value(input, key)))
            .unwrap_or_default(),
    };
    if said.trim().is_empty() {
        clip_line(tool, SUMMARY)
    } else {
        clip_line(&format!("{tool}: {said}"), SUMMARY)
    }
}

fn describe_value(input: &Value, key: &str) -> Option<String> {
    match input.get(key)? {
        Value::String(text) if !text.trim().is_empty() && text.contains("*** Begin Patch") => {
            Some(list_patched_files(text))
        }
        Value::String(text) if !text.trim().is_empty() => Some(text.clone()),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            (!words.is_empty()).then(|| words.join(" "))
        }
        _ => None,
    }
}

fn describe_task_update(input: &Value) -> Option<String> {
    let id = get_str(input, "taskId")?;
    Some(format!("#{id} {}", get_str(input, "status").unwrap_or_default()))
}

/// Returns the files that a patch names.
fn list_patched_files(patch: &str) -> String {
    let file = |line: &str| {
        let rest = line.strip_prefix("*** ")?;
        let kinds = ["Add File: ", "Update File: ", "Delete File: "];
        kinds.iter().find_map(|kind| rest.strip_prefix(kind)).map(str::to_owned)
    };
    patch.lines().filter_map(file).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn calls_are_described_by_what_says_most() {
        assert_eq!(
            describe_call("Bash", &json!({"command": "cargo\n test", "description": "x"})),
            "Bash: cargo test"
        );
        assert_eq!(describe_call("shell", &json!({"command": ["bash", "-lc", "ls"]})), "shell: bash -lc ls");
        assert_eq!(
            describe_call("Edit", &json!({"file_path": "/p/a.rs", "old_string": "a"})),
            "Edit: /p/a.rs"
        );
        assert_eq!(
            describe_call("TaskUpdate", &json!({"taskId": "1", "status": "completed"})),
            "TaskUpdate: #1 completed"
        );
        assert_eq!(describe_call("exit", &json!({"deep": {"er": 1}})), "exit");
        assert_eq!(describe_call("odd", &Value::Null), "odd");
        let patch = "*** Begin Patch\n*** Add File: a.txt\n+one\n*** Update File: b.rs\n*** End Patch";
        assert_eq!(describe_call("apply_patch", &json!(patch)), "apply_patch: a.txt, b.rs");
    }

    #[test]
    fn descriptions_are_short_whatever_goes_in() {
        let long = "é".repeat(1 << 20);
        assert_eq!(describe_call("Bash", &json!({"command": long})).chars().count(), SUMMARY);
        assert_eq!(describe_call(&long, &Value::Null).chars().count(), SUMMARY);
    }
}
