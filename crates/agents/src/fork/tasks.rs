//! Restores Claude Code's task list, which it keeps beside the conversation, as it was at the cut.
//!
//! The files have only the current list. The earlier list is replayed from the calls that made it; only what no call changes
//! is taken from the files.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::FileWrite;
use crate::agent::Agent;
use crate::transcript::{MessagePart, get_str, parse_messages};

/// Returns the files of the task list for a new session.
pub(super) fn plan_task_files(claude: &Path, old: &str, new: &str, lines: &[String]) -> Vec<FileWrite> {
    let (tasks, highest) = replay_task_calls(lines);
    let folder = claude.join("tasks").join(new);
    let mut writes = Vec::new();
    for (id, mut task) in tasks {
        let file = claude.join("tasks").join(old).join(format!("{id}.json"));
        let now: Option<Map<String, Value>> =
            fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        for (key, value) in now.into_iter().flatten() {
            if !["owner", "blocks", "blockedBy", "activeForm", "metadata"].contains(&key.as_str()) {
                task.entry(key).or_insert(value);
            }
        }
        let bytes = format!("{:#}", Value::Object(task)).into_bytes();
        writes.push(FileWrite { path: folder.join(format!("{id}.json")), bytes });
    }
    if highest > 0 {
        // So that a task number is not used twice.
        writes
            .push(FileWrite { path: folder.join(".highwatermark"), bytes: highest.to_string().into_bytes() });
    }
    writes
}

type Tasks = BTreeMap<u64, Map<String, Value>>;

/// Returns the list that the calls in these lines led to, and the highest task number used.
fn replay_task_calls(lines: &[String]) -> (Tasks, u64) {
    let all = parse_messages(Agent::Claude, lines);
    let mut calls = BTreeMap::new();
    let (mut tasks, mut highest) = (Tasks::new(), 0);
    for part in all.iter().flat_map(|message| &message.parts) {
        match part {
            MessagePart::ToolCall { id, name, input, .. } if name == "TaskCreate" || name == "TaskUpdate" => {
                calls.insert(id.as_str(), (name.as_str(), input));
            }
            MessagePart::ToolResult { id, output, failed: false, .. } => match calls.remove(id.as_str()) {
                Some(("TaskCreate", input)) => {
                    if let Some(number) = parse_created_number(output) {
                        highest = highest.max(number);
                        tasks.insert(number, new_task(number, input));
                    }
                }
                Some((_, input)) => apply_task_update(&mut tasks, input),
                None => {}
            },
            _ => {}
        }
    }
    (tasks, highest)
}

/// The number in `Task #1 created successfully: …`.
fn parse_created_number(output: &Value) -> Option<u64> {
    let said = match output {
        Value::String(said) => said.as_str(),
        blocks => get_str(blocks.get(0)?, "text")?,
    };
    let digits = said.strip_prefix("Task #")?;
    digits[..digits.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

fn new_task(number: u64, input: &Value) -> Map<String, Value> {
    let mut task = Map::new();
    task.insert("id".into(), number.to_string().into());
    for key in ["subject", "description"] {
        task.insert(key.into(), get_str(input, key).unwrap_or_default().into());
    }
    for key in ["activeForm", "metadata"] {
        if let Some(value) = input.get(key) {
            task.insert(key.into(), value.clone());
        }
    }
    task.insert("status".into(), "pending".into());
    task.insert("blocks".into(), json!([]));
    task.insert("blockedBy".into(), json!([]));
    task
}

fn apply_task_update(tasks: &mut Tasks, input: &Value) {
    let Some(number) = get_str(input, "taskId").and_then(|id| id.parse::<u64>().ok()) else { return };
    if get_str(input, "status") == Some("deleted") {
        tasks.remove(&number);
        return;
    }
    for (key, there, back) in [("addBlocks", "blocks", "blockedBy"), ("addBlockedBy", "blockedBy", "blocks")]
    {
        for other in input.get(key).and_then(Value::as_array).into_iter().flatten() {
            let Some(other_number) = other.as_str().and_then(|id| id.parse::<u64>().ok()) else { continue };
            add_dependency(tasks, number, there, other.clone());
            add_dependency(tasks, other_number, back, number.to_string().into());
        }
    }
    let Some(task) = tasks.get_mut(&number) else { return };
    for key in ["status", "subject", "description", "activeForm", "owner"] {
        if let Some(value) = input.get(key) {
            task.insert(key.into(), value.clone());
        }
    }
    for (key, value) in input.get("metadata").and_then(Value::as_object).into_iter().flatten() {
        let metadata = task.entry("metadata").or_insert_with(|| json!({}));
        match metadata.as_object_mut() {
            Some(metadata) if value.is_null() => drop(metadata.remove(key)),
            Some(metadata) => drop(metadata.insert(key.clone(), value.clone())),
            None => {}
        }
    }
}

fn add_dependency(tasks: &mut Tasks, number: u64, key: &str, value: Value) {
    let list = tasks.get_mut(&number).and_then(|task| task.get_mut(key)).and_then(Value::as_array_mut);
    if let Some(list) = list.filter(|list| !list.contains(&value)) {
        list.push(value);
    }
}
