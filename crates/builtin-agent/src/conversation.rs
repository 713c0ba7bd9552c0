//! The built-in agent's conversation: a list of messages in the form of the Messages API, and the same as one line of JSON
//! per message for the recorder.

use serde_json::{Value, json};
use stepback_engine::recorder::{ModelTurn, NewMessages};

use crate::request;
use crate::tools::ToolResult;

/// One conversation with a model: that of the agent, or that of a worker.
#[derive(Clone, Debug, Default)]
pub struct Dialogue {
    messages: Vec<Value>,
    /// The same messages with secrets redacted, as they are recorded.
    lines: Vec<String>,
}

impl Dialogue {
    /// Creates a conversation that begins with these messages.
    pub fn new(messages: Vec<Value>) -> Self {
        let mut dialogue = Self::default();
        for message in messages {
            dialogue.push(message);
        }
        dialogue
    }

    /// Returns the messages, not redacted.
    pub fn messages(&self) -> &[Value] {
        &self.messages
    }

    /// Adds a message.
    pub fn push(&mut self, message: Value) {
        self.lines.push(stepback_redact::redact(&message.to_string()).into_owned());
        self.messages.push(message);
    }

    /// Adds a message of the user: as a new message, or as a part of the last one if the model has not answered it yet. The
    /// API does not allow two consecutive messages of the same role.
    pub fn say(&mut self, text: &str) {
        let part = json!({ "type": "text", "text": text });
        let open = self.messages.last().is_some_and(|last| last["role"] == "user");
        let Some(mut last) = self.messages.pop_if(|_| open) else {
            return self.push(json!({ "role": "user", "content": [part] }));
        };
        self.lines.pop();
        let mut parts = match last["content"].take() {
            Value::Array(parts) => parts,
            text => vec![json!({ "type": "text", "text": text })],
        };
        parts.push(part);
        last["content"] = parts.into();
        self.push(last);
    }

    /// Returns how many answers the model has given.
    pub fn answers(&self) -> usize {
        self.messages.iter().filter(|message| message["role"] == "assistant").count()
    }

    /// Returns the messages that are not recorded yet. `cursor` is where the recorded ones end, and `call` a call that begins
    /// now, for which the turn that requested it is found.
    pub fn new_messages(&self, cursor: Option<&Value>, call: Option<&str>) -> NewMessages {
        let read = |name: &str| cursor.and_then(|cursor| cursor[name].as_u64()).unwrap_or_default();
        let count = usize::try_from(read("count")).unwrap_or_default();
        // The last message can have grown since it was recorded.
        let last = count.checked_sub(1).and_then(|at| self.lines.get(at)).map(|line| line.len() as u64);
        let keep = if last == Some(read("last")) { count } else { count.saturating_sub(1) };
        let size = self.lines.last().map_or(0, String::len);
        NewMessages {
            keep: Some(keep as u64),
            lines: self.lines.get(keep..).unwrap_or_default().to_vec(),
            start_cursor: cursor.cloned(),
            cursor: Some(json!({ "count": self.lines.len(), "last": size })),
            turn: call.and_then(|call| self.find_turn(call)),
        }
    }

    fn find_turn(&self, call: &str) -> Option<ModelTurn> {
        // The last match, in case an id occurs twice.
        self.lines.iter().enumerate().rev().find_map(|(at, line)| {
            let message: Value = serde_json::from_str(line).ok()?;
            let calls: Vec<&str> = call_ids(&message).collect();
            let id = calls.first().filter(|_| calls.contains(&call))?.to_string();
            Some(ModelTurn { before: at as u64, id: Some(id) })
        })
    }
}

/// Returns the ids of the calls that a message requests.
fn call_ids(message: &Value) -> impl Iterator<Item = &str> {
    let parts = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    parts.iter().filter(|part| part["type"] == "tool_use").filter_map(|part| part["id"].as_str())
}

/// Returns the messages of recorded lines, to continue the conversation; `None` if one of them does not parse. The API
/// requires a result for every requested call: calls without one get a result that says it is unknown.
pub fn resumable<S: AsRef<str>>(lines: &[S]) -> Option<Vec<Value>> {
    let read = |line: &S| serde_json::from_str::<Value>(line.as_ref()).ok();
    let mut messages = lines.iter().map(read).collect::<Option<Vec<_>>>()?;
    let unknown = ToolResult::bad("The result of this call is unknown.");
    let open: Vec<Value> = messages
        .last()
        .map_or_else(Vec::new, |last| call_ids(last).map(|call| request::result(call, &unknown)).collect());
    if !open.is_empty() {
        messages.push(json!({ "role": "user", "content": open }));
    }
    Some(messages)
}

/// Removes the user's last input from a conversation: the message, or the part that [`Dialogue::say`] added to the results of
/// the calls before it.
pub fn take_back_prompt(messages: &mut Vec<Value>) {
    let Some(last) = messages.last_mut().filter(|last| last["role"] == "user") else { return };
    match last["content"].as_array_mut().filter(|parts| parts.len() > 1) {
        Some(parts) => drop(parts.pop()),
        None => drop(messages.pop()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(id: &str) -> Value {
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": "bash", "input": {} }] })
    }

    #[test]
    fn only_what_is_new_is_read_and_a_message_that_grew_is_read_again() {
        let mut talk = Dialogue::new(vec![json!({ "role": "user", "content": "go" })]);
        let first = talk.new_messages(None, None);
        assert_eq!((first.keep, first.lines.len()), (Some(0), 1));
        talk.push(asking("a"));
        let second = talk.new_messages(first.cursor.as_ref(), None);
        assert_eq!((second.keep, second.lines.len()), (Some(1), 1));
        talk.push(json!({ "role": "user", "content": [] }));
        let third = talk.new_messages(second.cursor.as_ref(), None);
        talk.say("one more thing");
        assert_eq!(talk.messages().len(), 3, "it joins the message that was not answered");
        let fourth = talk.new_messages(third.cursor.as_ref(), None);
        assert_eq!((fourth.keep, fourth.lines.len()), (Some(2), 1));
        assert!(fourth.lines[0].contains("one more thing"));
    }

    #[test]
    fn the_turn_that_asked_is_found() {
        let talk = Dialogue::new(vec![asking("a"), json!({ "role": "user", "content": [] }), asking("b")]);
        let turn = |call| talk.new_messages(None, Some(call)).turn;
        assert_eq!(turn("b"), Some(ModelTurn { before: 2, id: Some("b".into()) }));
        assert_eq!(turn("c"), None);
    }

    #[test]
    fn a_conversation_that_broke_off_can_go_on() {
        let asks = asking("a").to_string();
        let messages = resumable(&[&asks]).unwrap();
        assert_eq!(messages[1]["content"][0]["tool_use_id"], "a");
        let answered = messages[1].to_string();
        assert_eq!(resumable(&[&asks, &answered]).unwrap(), messages, "what is known stays as it is");
        assert_eq!(resumable(&["{"]), None);
    }

    #[test]
    fn a_prompt_that_is_taken_back_leaves_the_results_it_came_with() {
        let result = json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "a" }] });
        let before = [vec![asking("a"), result], vec![json!({ "role": "user", "content": "go" })], vec![]];
        for before in before {
            let mut talk = Dialogue::new(before.clone());
            talk.say("numbers, please");
            let mut messages = talk.messages().to_vec();
            take_back_prompt(&mut messages);
            // A message that was plain text has become a list of one part.
            let plain = |messages: &[Value]| {
                serde_json::to_string(messages)
                    .unwrap()
                    .replace(r#"[{"text":"go","type":"text"}]"#, r#""go""#)
            };
            assert_eq!(plain(&messages), plain(&before));
        }
    }

    #[test]
    fn secrets_are_not_in_the_lines() {
        let token = ["ghp_", "a1B2c3D4e5", "F6g7H8i9J0", "k1L2m3N4o5", "P6q7R8"].concat();
        let talk = Dialogue::new(vec![json!({ "role": "user", "content": format!("use {token}") })]);
        assert!(!talk.lines[0].contains(&token), "{}", talk.lines[0]);
        assert!(talk.messages()[0].to_string().contains(&token), "the model gets what the person said");
    }
}
