//! One change of a rerun, named by a path: a prompt, the instructions, the model, a memory value, or the input or output of a
//! call.
//!
//! | path | what it is |
//! |---|---|
//! | `model` | the model that is called |
//! | `system` | the instructions |
//! | `prompt`, `prompt[2]` | what the user said: the first prompt, the third |
//! | `memory.KEY` | a value of the agent's memory |
//! | `messages[3].content` | the text of a message, counted from 0 in the newest request to the model |
//! | `messages[3].content[1].text` | a part of it, as the model's API has it |
//! | `#14.input`, `#14.input.command` | the input of the call of step 14 |
//! | `#14.output`, `#14.output.stdout` | the result of that call, as the model gets it |
//!
//! A path that does not exist is an error that lists what does.

use serde_json::Value;
use stepback_llm_wire::{Exchange, Wire, edit};

use crate::recorded_session::RecordedSession;

/// One change of the recorded session.
#[derive(Clone, PartialEq, Debug)]
pub enum RerunChange {
    /// Use another model.
    Model(String),
    /// Use other instructions.
    System(String),
    /// Use another prompt.
    Prompt {
        /// Index of the prompt, counted from 0.
        index: usize,
        /// The recorded prompt.
        old: String,
        /// The new prompt.
        new: String,
    },
    /// Use another value in the agent's memory.
    Memory {
        /// Keys that lead to the value.
        path: Vec<String>,
        /// The new value.
        value: Value,
    },
    /// Use another message in the conversation.
    Message {
        /// Index of the message in requests to the model, counted from 0.
        index: usize,
        /// The message as recorded.
        old: Value,
        /// The message instead of it.
        new: Value,
    },
    /// Give a call another input.
    Input {
        /// Index of the call in the recorded session.
        call: usize,
        /// The whole new input.
        input: Value,
    },
    /// Give the model another result of a call.
    Output {
        /// Index of the call in the recorded session.
        call: usize,
        /// The part of the result that is replaced; `None` for all of it.
        part: Option<String>,
        /// The text that replaces it.
        text: String,
    },
}

/// Why a change cannot be made.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChangeError {
    /// The text does not have the form PATH=VALUE.
    #[error("\"{0}\" is not PATH=VALUE")]
    InvalidForm(String),
    /// The path begins with an unknown name.
    #[error(
        "\"{0}\" cannot be changed; use model, system, prompt, prompt[N], messages[N].content, memory.KEY, \
         #STEP.input… or #STEP.output…"
    )]
    UnknownPath(String),
    /// There is no such prompt.
    #[error("there is no prompt[{index}]: the session has {count}, counted from 0")]
    NoPrompt {
        /// The requested index.
        index: usize,
        /// How many prompts there are.
        count: usize,
    },
    /// The step is not a tool call.
    #[error("step #{number} of this session is not a tool call; calls are {calls}")]
    NotAToolCall {
        /// The number of the step.
        number: u64,
        /// The steps that are calls.
        calls: String,
    },
    /// The path does not exist.
    #[error("{path} does not exist; there is {available}")]
    PathNotFound {
        /// The path.
        path: String,
        /// What exists at that level.
        available: String,
    },
    /// The value has the wrong type.
    #[error("{path} must be {expected}")]
    WrongType {
        /// The path.
        path: String,
        /// The required type.
        expected: &'static str,
    },
}

impl RerunChange {
    /// Parses `PATH=VALUE`. The value is JSON if it parses as such, otherwise a string.
    pub fn parse(text: &str, recorded: &RecordedSession) -> Result<Self, ChangeError> {
        let (path, value) = text.split_once('=').ok_or_else(|| ChangeError::InvalidForm(text.to_owned()))?;
        let (path, literal) = (path.trim(), value);
        let value: Value = serde_json::from_str(literal).unwrap_or_else(|_| Value::from(literal));
        let as_text = || value.as_str().unwrap_or(literal).to_owned();
        match path {
            "model" => return Ok(Self::Model(as_text())),
            "system" => return Ok(Self::System(as_text())),
            _ => {}
        }
        if let Some(index) = prompt_index(path) {
            let old = recorded.prompts.get(index).map(|prompt| prompt.text.clone());
            let old = old.ok_or(ChangeError::NoPrompt { index, count: recorded.prompts.len() })?;
            return Ok(Self::Prompt { index, old, new: as_text() });
        }
        if let Some(remaining) = path.strip_prefix("memory.").filter(|remaining| !remaining.is_empty()) {
            return Ok(Self::Memory { path: remaining.split('.').map(str::to_owned).collect(), value });
        }
        if let Some((index, inner)) = message_path(path) {
            return message_change(recorded, path, (index, inner), value);
        }
        let unknown = || ChangeError::UnknownPath(path.to_owned());
        let (number, remaining) =
            path.strip_prefix('#').and_then(|remaining| remaining.split_once('.')).ok_or_else(unknown)?;
        let number: u64 = number.parse().map_err(|_| unknown())?;
        let call =
            recorded.calls.iter().position(|call| call.steps.0 == number || call.steps.1 == Some(number));
        let call = call.ok_or_else(|| ChangeError::NotAToolCall { number, calls: list_calls(recorded) })?;
        let (side, inner) =
            remaining.split_once('.').map_or((remaining, None), |(side, inner)| (side, Some(inner)));
        match side {
            "input" => {
                let mut input = recorded.calls[call].input.clone();
                match inner {
                    None => input = value,
                    Some(inner) => *value_at_path(&mut input, inner, path)? = value,
                }
                Ok(Self::Input { call, input })
            }
            "output" => {
                let output = recorded.calls[call].output.clone().unwrap_or_default();
                let part = inner.map(|inner| text_at_path(output, inner, path)).transpose()?;
                Ok(Self::Output { call, part, text: as_text() })
            }
            _ => Err(unknown()),
        }
    }
}

/// Returns the text at a path into an output.
fn text_at_path(mut output: Value, inner: &str, path: &str) -> Result<String, ChangeError> {
    let value = value_at_path(&mut output, inner, path)?;
    let text = value.as_str().filter(|text| !text.is_empty());
    text.map(str::to_owned).ok_or(ChangeError::WrongType {
        path: path.to_owned(),
        expected: "a string; to replace the whole result, omit the part after .output",
    })
}

/// Parses `prompt` and `prompt[N]`.
fn prompt_index(path: &str) -> Option<usize> {
    match path.strip_prefix("prompt")? {
        "" => Some(0),
        index => index.strip_prefix('[')?.strip_suffix(']')?.parse().ok(),
    }
}

/// Parses `messages[N]` and `messages[N].PATH`.
fn message_path(path: &str) -> Option<(usize, Option<&str>)> {
    let (index, rest) = path.strip_prefix("messages[")?.split_once(']')?;
    let inner = match rest {
        "" => None,
        rest => Some(rest.strip_prefix('.')?),
    };
    Some((index.parse().ok()?, inner))
}

/// Builds the change of a message, or of a part of one.
fn message_change(
    recorded: &RecordedSession,
    path: &str,
    (index, inner): (usize, Option<&str>),
    value: Value,
) -> Result<RerunChange, ChangeError> {
    let wrong = |expected: &'static str| ChangeError::WrongType { path: path.to_owned(), expected };
    let (wire, messages) = newest_messages(recorded);
    let available = match messages.len() {
        0 => "no message in the recording".to_owned(),
        count => format!("messages[0] to messages[{}]", count - 1),
    };
    let missing = || ChangeError::PathNotFound { path: path.to_owned(), available };
    let old = messages.into_iter().nth(index).ok_or_else(missing)?;
    let mut new = old.clone();
    match (inner, wire) {
        (None, _) if value.is_object() => new = value,
        (None, _) => return Err(wrong("a whole message; to change its text, add .content")),
        (Some("content" | "parts" | "text"), Some(wire)) if value.is_string() => {
            let text = value.as_str().unwrap_or_default();
            if !edit::set_message_text(wire, &mut new, text) {
                return Err(wrong(
                    "the path of a part, because this message has no text; \"#STEP.output\" changes a result",
                ));
            }
        }
        (Some(inner), _) => *value_at_path(&mut new, inner, path)? = value,
    }
    Ok(RerunChange::Message { index, old, new })
}

/// Returns the messages of the longest recorded request that has the first prompt: those of the main conversation.
fn newest_messages(recorded: &RecordedSession) -> (Option<Wire>, Vec<Value>) {
    let prompt = recorded.prompts.first().map(|prompt| Value::from(prompt.text.as_str()).to_string());
    let prompt = prompt.as_deref().map(|prompt| prompt.trim_matches('"')).unwrap_or_default();
    let of = |exchange: &Exchange| {
        let wire = exchange.request.wire?;
        let messages = edit::messages(wire, &mut exchange.request.body.clone())?.clone();
        Some((wire, messages))
    };
    let all: Vec<(Wire, Vec<Value>)> = recorded.exchanges.iter().filter_map(of).collect();
    let is_main = |messages: &[Value]| messages.iter().any(|message| message.to_string().contains(prompt));
    let has_main = all.iter().any(|(_, messages)| is_main(messages));
    let longest = all
        .into_iter()
        .filter(|(_, messages)| !has_main || is_main(messages))
        .max_by_key(|(_, messages)| messages.len());
    longest.map_or((None, Vec::new()), |(wire, messages)| (Some(wire), messages))
}

fn list_calls(recorded: &RecordedSession) -> String {
    let listed: Vec<String> =
        recorded.calls.iter().take(8).map(|call| format!("#{} ({})", call.steps.0, call.tool)).collect();
    let ellipsis = if recorded.calls.len() > listed.len() { ", …" } else { "" };
    if listed.is_empty() { "none".to_owned() } else { format!("{}{ellipsis}", listed.join(", ")) }
}

/// Returns the value at the path `inner`: `a.b[2].c`.
fn value_at_path<'v>(value: &'v mut Value, inner: &str, path: &str) -> Result<&'v mut Value, ChangeError> {
    let words = inner.replace('[', ".").replace(']', "");
    let mut current = value;
    for word in words.split('.') {
        let available = match &*current {
            Value::Object(fields) => fields.keys().cloned().collect::<Vec<_>>().join(", "),
            Value::Array(items) => format!("a list of {}", items.len()),
            Value::Null => "nothing".to_owned(),
            _ => "a plain value, which has no parts".to_owned(),
        };
        let child = match current {
            Value::Object(fields) => fields.get_mut(word),
            Value::Array(items) => word.parse::<usize>().ok().and_then(|index| items.get_mut(index)),
            _ => None,
        };
        current = child.ok_or_else(|| ChangeError::PathNotFound { path: path.to_owned(), available })?;
    }
    Ok(current)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use stepback_llm_wire::{AnswerEnd, Chunks, ModelRequest, Response};
    use stepback_model::ids::{SessionId, WorkspaceId};
    use stepback_model::record::{Session, SessionInfo};
    use stepback_model::time::Timestamp;

    use super::*;
    use crate::recorded_session::{RecordedPrompt, ToolCall};

    fn tape() -> RecordedSession {
        let session = Session {
            id: SessionId::from_bytes([1; 16]),
            workspace: WorkspaceId::from_bytes([2; 16]),
            agent: "claude".into(),
            started_at: Timestamp::from_micros(0),
            info: SessionInfo::default(),
        };
        let call = ToolCall {
            steps: (14, Some(15)),
            id: Some("toolu_1".into()),
            tool: "Bash".into(),
            worker: None,
            input: json!({ "command": "ls", "options": [{ "deep": true }] }),
            output: Some(json!({ "stdout": "a.txt", "code": 0 })),
            ..ToolCall::default()
        };
        let prompts = vec![RecordedPrompt { number: 3, text: "do it".into(), messages: Vec::new() }];
        let (steps, injections) = (Vec::new(), Vec::new());
        let messages = json!([
            { "role": "user", "content": "do it" },
            { "role": "assistant", "content": [
                { "type": "text", "text": "I look" },
                { "type": "tool_use", "id": "toolu_1", "name": "Bash", "input": { "command": "ls" } },
            ]},
            { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt" }] },
        ]);
        let request = |messages: Value| ModelRequest {
            wire: Some(Wire::Messages),
            method: "POST".into(),
            path: "/v1/messages".into(),
            headers: Vec::new(),
            body: json!({ "model": "m", "messages": messages }),
            bytes: 0,
        };
        let exchange = |id: &str, messages: Value| Exchange {
            id: id.into(),
            request: request(messages),
            response: Response {
                status: 200,
                headers: Vec::new(),
                body: String::new(),
                chunks: Chunks::default(),
                ended: AnswerEnd::Complete,
                first_byte: None,
                took: 0,
                left_out: 0,
            },
        };
        // A request of a sub-agent is longer, and is not the conversation.
        let other: Vec<Value> =
            (0..9).map(|at| json!({ "role": "user", "content": at.to_string() })).collect();
        let exchanges = vec![exchange("m1", messages), exchange("m2", json!(other))];
        RecordedSession { session, steps, exchanges, calls: vec![call], prompts, injections }
    }

    fn parse(text: &str) -> Result<RerunChange, String> {
        RerunChange::parse(text, &tape()).map_err(|error| error.to_string())
    }

    #[test]
    fn paths_lead_to_what_they_name() {
        assert_eq!(parse("model=x-1"), Ok(RerunChange::Model("x-1".into())));
        let prompt = RerunChange::Prompt { index: 0, old: "do it".into(), new: "do = that".into() };
        assert_eq!(parse("prompt=do = that"), Ok(prompt.clone()));
        assert_eq!(parse("prompt[0]=\"do = that\""), Ok(prompt));
        let input = json!({ "command": "ls -a", "options": [{ "deep": true }] });
        assert_eq!(parse("#14.input.command=ls -a"), Ok(RerunChange::Input { call: 0, input }));
        let input = json!({ "command": "ls", "options": [{ "deep": 3 }] });
        assert_eq!(parse("#15.input.options[0].deep=3"), Ok(RerunChange::Input { call: 0, input }));
        let whole = RerunChange::Output { call: 0, part: None, text: "b.txt".into() };
        assert_eq!(parse("#14.output=b.txt"), Ok(whole));
        let part = RerunChange::Output { call: 0, part: Some("a.txt".into()), text: "b.txt".into() };
        assert_eq!(parse("#14.output.stdout=b.txt"), Ok(part));
        let memory = RerunChange::Memory { path: vec!["plan".into()], value: json!({ "a": 1 }) };
        assert_eq!(parse("memory.plan={\"a\": 1}"), Ok(memory));
    }

    #[test]
    fn any_message_is_changed_by_its_path() {
        let changed = |text: &str| match parse(text) {
            Ok(RerunChange::Message { index, new, .. }) => (index, new),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            changed("messages[0].content=do that"),
            (0, json!({ "role": "user", "content": "do that" }))
        );
        let (index, new) = changed("messages[1].content=I guess");
        assert_eq!((index, &new["content"][0]["text"]), (1, &json!("I guess")));
        assert_eq!(new["content"][1]["name"], "Bash", "a call stays");
        let (_, new) = changed("messages[2].content[0].content=nothing");
        assert_eq!(new["content"][0]["content"], "nothing");
        let whole = json!({ "role": "user", "content": "x" });
        assert_eq!(changed(&format!("messages[2]={whole}")).1, whole);
        for (wrong, said) in [
            ("messages[3].content=x", "messages[0] to messages[2]"),
            ("messages[1].contents=x", "content, role"),
            ("messages[1].content[4]=x", "a list of 2"),
            ("messages[2].content=x", "no text"),
            ("messages[0]=x", "a whole message"),
            ("messages[x].content=x", "cannot be changed"),
            ("messages=x", "cannot be changed"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn paths_that_lead_nowhere_say_what_there_is() {
        assert!(parse("nonsense").unwrap_err().contains("PATH=VALUE"));
        assert!(parse("tool=x").unwrap_err().contains("#STEP.input"));
        assert!(parse("prompt[4]=x").unwrap_err().contains("has 1"));
        assert!(parse("#3.input=x").unwrap_err().contains("#14 (Bash)"));
        assert!(parse("#14.input.cmd=x").unwrap_err().contains("command, options"));
        assert!(parse("#14.input.options[7]=x").unwrap_err().contains("a list of 1"));
        assert!(parse("#14.output.code=1").unwrap_err().contains("a string"));
    }
}
