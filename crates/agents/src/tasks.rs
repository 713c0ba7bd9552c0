//! The task that an agent works on, as its hooks and its task tools tell.
//!
//! Claude Code reports tasks that are created and completed, and its tools for tasks name one by its id. Agents that replace a
//! whole list of tasks ([`crate::tools::REPLACE_TASKS`]) give them no ids, so their steps belong to none.

use serde_json::{Map, Value};
use stepback_engine::recorder::TaskChange;
use stepback_model::record::{StepContext, StepKind};

/// Tools that are about one task.
const TASK_TOOLS: [&str; 4] = ["TaskUpdate", "TaskGet", "TaskOutput", "TaskStop"];

/// Returns the ids that a payload tells: the task of the event or of its call.
pub fn payload_context(
    fields: &Map<String, Value>,
    tool: Option<&str>,
    input: Option<&Value>,
) -> StepContext {
    let own = fields.get("task_id").and_then(id);
    let of_call =
        || input.filter(|_| tool.is_some_and(|tool| TASK_TOOLS.contains(&tool))).and_then(task_of_input);
    StepContext { task: own.or_else(of_call), ..StepContext::default() }
}

/// Returns the task that the worker begins with or puts aside with this call, once the call has run.
pub fn task_change(kind: StepKind, tool: Option<&str>, input: Option<&Value>) -> Option<TaskChange> {
    let input = input.filter(|_| kind == StepKind::ToolEnd && tool == Some("TaskUpdate"))?;
    let task = task_of_input(input)?;
    match input.get("status")?.as_str()? {
        "in_progress" => Some(TaskChange::Started(task)),
        _ => Some(TaskChange::Ended(task)),
    }
}

fn task_of_input(input: &Value) -> Option<String> {
    ["taskId", "task_id"].iter().find_map(|name| id(input.get(*name)?))
}

/// Returns an id, which may be written as a number.
fn id(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() && text.len() <= 1000 => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_task_begins_when_its_status_says_so_and_the_call_has_run() {
        let input = json!({ "taskId": "3", "status": "in_progress" });
        let of = |kind, input| task_change(kind, Some("TaskUpdate"), Some(input));
        assert_eq!(of(StepKind::ToolEnd, &input), Some(TaskChange::Started("3".into())));
        assert_eq!(of(StepKind::ToolStart, &input), None);
        let done = json!({ "taskId": 3, "status": "completed" });
        assert_eq!(of(StepKind::ToolEnd, &done), Some(TaskChange::Ended("3".into())));
        assert_eq!(of(StepKind::ToolEnd, &json!({ "taskId": "3", "subject": "other words" })), None);
        assert_eq!(task_change(StepKind::ToolEnd, Some("Bash"), Some(&input)), None);
    }

    #[test]
    fn a_payload_names_its_task() {
        let task = |fields: Value, tool, input: &Value| {
            payload_context(fields.as_object().unwrap(), tool, Some(input)).task
        };
        let none = json!({});
        assert_eq!(task(json!({ "task_id": "7" }), None, &none).as_deref(), Some("7"));
        assert_eq!(task(json!({}), Some("TaskGet"), &json!({ "taskId": "8" })).as_deref(), Some("8"));
        assert_eq!(task(json!({}), Some("Bash"), &json!({ "taskId": "8" })), None);
        assert_eq!(task(json!({ "task_id": "" }), None, &none), None);
    }
}
