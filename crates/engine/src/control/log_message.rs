//! Messages of log points: a text with names in braces, which are replaced by what the call was when the log point was hit.

use serde_json::Value;

/// The names that a message can have in braces.
const NAMES: [&str; 6] = ["tool", "input", "iteration", "cost", "tokens", "hits"];

/// A piece of a message.
enum MessagePiece<'m> {
    Text(&'m str),
    Name(&'m str),
}

/// Splits a message into texts and names; `{{` and `}}` are braces. Fails at a brace without its pair.
fn split_message(message: &str) -> Result<Vec<MessagePiece<'_>>, String> {
    let mut pieces = Vec::new();
    let mut rest = message;
    while let Some(at) = rest.find(['{', '}']) {
        let (text, tail) = rest.split_at(at);
        pieces.push(MessagePiece::Text(text));
        if tail.starts_with("{{") || tail.starts_with("}}") {
            pieces.push(MessagePiece::Text(&tail[..1]));
            rest = &tail[2..];
            continue;
        }
        let end = tail.strip_prefix('{').and_then(|inside| inside.find('}'));
        let Some(end) = end else {
            return Err("the message has a brace without its pair; write {{ or }} for a brace".into());
        };
        pieces.push(MessagePiece::Name(&tail[1..=end]));
        rest = &tail[end + 2..];
    }
    pieces.push(MessagePiece::Text(rest));
    Ok(pieces)
}

/// Checks that every name in braces is known; the error says which is not.
pub(super) fn check_message(message: &str) -> Result<(), String> {
    for piece in split_message(message)? {
        let MessagePiece::Name(name) = piece else { continue };
        if !NAMES.contains(&name) && !name.starts_with("input.") {
            return Err(format!(
                "the message has {{{name}}}; it can have {{{}}} and {{input.FIELD}}",
                NAMES.join("}, {")
            ));
        }
    }
    Ok(())
}

/// Returns a message with its names replaced. `value` returns what a name other than `input` stands for.
pub fn render_message(message: &str, input: &Value, value: &dyn Fn(&str) -> String) -> String {
    // Checked when the breakpoint was added; a file that was edited by hand shows its message as it is.
    let Ok(pieces) = split_message(message) else { return message.to_owned() };
    let rendered = pieces.into_iter().map(|piece| match piece {
        MessagePiece::Text(text) => text.to_owned(),
        MessagePiece::Name("input") => plain_text(input),
        MessagePiece::Name(name) => match name.strip_prefix("input.") {
            Some(path) => plain_text(field_at(input, path)),
            None => value(name),
        },
    });
    rendered.collect()
}

/// Returns the field at a path such as `edits.0.path`; null if there is none.
fn field_at<'v>(input: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(input, |at, name| match (at, name.parse::<usize>()) {
        (Value::Array(items), Ok(index)) => items.get(index).unwrap_or(&Value::Null),
        _ => at.get(name).unwrap_or(&Value::Null),
    })
}

/// Returns a text without quotes, anything else as JSON.
fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rendered(message: &str) -> String {
        let input = json!({ "command": "rm -rf x", "edits": [{ "path": "a" }], "n": 2 });
        render_message(message, &input, &|name| format!("<{name}>"))
    }

    #[test]
    fn names_are_replaced() {
        assert_eq!(rendered("{tool} runs {input.command}"), "<tool> runs rm -rf x");
        assert_eq!(rendered("{input.edits.0.path}{input.n}, {input.gone}"), "a2, null");
        assert_eq!(rendered("{{{hits}}} of {tokens}"), "{<hits>} of <tokens>");
        assert_eq!(rendered("ä{input.edits}"), r#"ä[{"path":"a"}]"#);
        assert_eq!(rendered(""), "");
    }

    #[test]
    fn wrong_messages_are_refused() {
        for right in ["", "plain", "{tool}", "{input.a.b}", "{{x}}"] {
            assert_eq!(check_message(right), Ok(()), "{right}");
        }
        assert!(check_message("{moon}").unwrap_err().contains("{moon}"));
        assert!(check_message("{tool").unwrap_err().contains("brace"));
        assert!(check_message("tool}").unwrap_err().contains("brace"));
    }
}
