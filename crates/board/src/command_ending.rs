//! Reads how a command ended from the result of its call, in the agents' formats: fields (`exit_code`, `stdout`, …), and lines
//! such as `Exit code 1` around the output.

use serde_json::Value;

/// How the result of a call that did not run begins, in the agents' formats: the user or a rule refused it.
const REFUSED_CALL_PREFIXES: [&str; 10] = [
    "The user doesn't want to proceed with this tool use",
    "Permission to use ",
    "Claude requested permissions to ",
    "This call was refused and did not run",
    "Tools that change something are not run here",
    "This call was not recorded",
    "Command blocked by PreToolUse hook",
    "exec command rejected by user",
    "The user rejected permission to use this specific tool call",
    "[Operation Cancelled] Reason: User",
];

/// How a command ended.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CommandEnding {
    /// The exit code, if it is known.
    pub exit: Option<i64>,
    /// The output, if it is known: both streams, as far as the agent tells them.
    pub output: Option<String>,
    /// The standard output and the standard error output, if the agent tells them apart.
    pub streams: Option<(String, String)>,
}

impl CommandEnding {
    /// Fills in from `other` what this one does not know.
    pub fn or(self, other: Self) -> Self {
        Self {
            exit: self.exit.or(other.exit),
            output: self.output.or(other.output),
            streams: self.streams.or(other.streams),
        }
    }

    /// Whether the result says that the call was refused, and so did not run.
    pub fn is_refusal(&self) -> bool {
        let printed = self.output.as_deref().unwrap_or_default();
        REFUSED_CALL_PREFIXES.iter().any(|words| printed.starts_with(words))
    }
}

/// Reads how a command ended from the output of a call.
pub fn read_ending(output: &Value) -> CommandEnding {
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
    let exit = EXITS.iter().find_map(|pointer| output.pointer(pointer)?.as_i64());
    let ending_in_fields = match output {
        Value::String(text) => parse_ending(text),
        Value::Object(fields) if fields.contains_key("stdout") => {
            let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
            let (stdout, stderr) = (text("stdout"), text("stderr"));
            let gap =
                if stdout.is_empty() || stderr.is_empty() || stdout.ends_with('\n') { "" } else { "\n" };
            // Claude Code uses this form only for what it considers a success, and adds a field if the exit code is not 0.
            let is_set = |name: &str| {
                fields.get(name).is_some_and(|value| !matches!(value, Value::Null | Value::Bool(false)))
            };
            let is_sure = fields.contains_key("interrupted")
                && !["interrupted", "backgroundTaskId", "returnCodeInterpretation"].into_iter().any(is_set);
            CommandEnding {
                exit: is_sure.then_some(0),
                output: Some(format!("{stdout}{gap}{stderr}")),
                streams: Some((stdout.to_owned(), stderr.to_owned())),
            }
        }
        Value::Object(_) => {
            let parsed = PRINTS
                .iter()
                .find_map(|pointer| Some(parse_ending(&join_text_parts(output.pointer(pointer)?)?)));
            parsed.unwrap_or_default()
        }
        Value::Array(_) => join_text_parts(output).map(|text| parse_ending(&text)).unwrap_or_default(),
        _ => CommandEnding::default(),
    };
    CommandEnding { exit: exit.or(ending_in_fields.exit), ..ending_in_fields }
}

/// Returns a text, or the joined texts of a list of parts.
fn join_text_parts(value: &Value) -> Option<String> {
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
pub fn parse_ending(text: &str) -> CommandEnding {
    let inner = text.trim_start().strip_prefix("<untrusted_context>").unwrap_or(text);
    let inner = inner.trim_end().strip_suffix("</untrusted_context>").unwrap_or(inner);
    let ending = parse_first_line(inner)
        .or_else(|| parse_heading(inner))
        .or_else(|| parse_footer(inner))
        .or_else(|| parse_last_line(inner));
    ending.unwrap_or_else(|| CommandEnding { output: Some(inner.to_owned()), ..CommandEnding::default() })
}

/// Reads `Exit code 1` followed by the output, as Claude Code reports a failure.
fn parse_first_line(text: &str) -> Option<CommandEnding> {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let exit = first.strip_prefix("Exit code ")?.trim().parse().ok()?;
    Some(CommandEnding { exit: Some(exit), output: Some(rest.to_owned()), streams: None })
}

/// Reads a few lines of facts, `Output:`, and then the output, as Codex writes it for the model.
fn parse_heading(text: &str) -> Option<CommandEnding> {
    let (facts, printed) = match text.split_once("\nOutput:\n") {
        Some((facts, printed)) => (facts, printed),
        None => (text.strip_suffix("\nOutput:")?, ""),
    };
    let exit = facts.lines().take(8).find_map(|line| {
        let code = line.strip_prefix("Process exited with code ").or(line.strip_prefix("Exit code: "))?;
        code.trim().parse().ok()
    });
    Some(CommandEnding { exit: Some(exit?), output: Some(printed.to_owned()), streams: None })
}

/// Reads the output after `Output:`, followed by facts, as Gemini CLI writes it for the model. It names only a nonzero exit
/// code.
fn parse_footer(text: &str) -> Option<CommandEnding> {
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
    let printed = if printed == "(empty)" { String::new() } else { printed };
    let streams = fact("Stderr: ").map(|errors| (printed.clone(), errors.to_owned()));
    Some(CommandEnding { exit, output: Some(printed), streams })
}

/// Reads `[exit code 1]` after the output, as the built-in agent writes it.
fn parse_last_line(text: &str) -> Option<CommandEnding> {
    let (printed, last) = text.rsplit_once('\n').unwrap_or(("", text));
    let exit = last.strip_prefix("[exit code ")?.strip_suffix(']')?.parse().ok()?;
    Some(CommandEnding { exit: Some(exit), output: Some(printed.to_owned()), streams: None })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_agents_way_to_tell_how_a_command_ended_is_read() {
        let known = |exit: i64, printed: &str| CommandEnding {
            exit: Some(exit),
            output: Some(printed.into()),
            streams: None,
        };
        let unknown =
            |printed: &str| CommandEnding { exit: None, output: Some(printed.into()), streams: None };
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
            (json!(null), CommandEnding::default()),
        ] {
            assert_eq!(CommandEnding { streams: None, ..read_ending(&output) }, ending, "{output}");
        }
    }

    #[test]
    fn streams_are_told_apart_where_the_agent_does() {
        let streams = |output: Value| read_ending(&output).streams;
        let both = |out: &str, err: &str| Some((out.to_owned(), err.to_owned()));
        assert_eq!(streams(json!({ "stdout": "a", "stderr": "b", "interrupted": false })), both("a", "b"));
        let gemini = "Command: x\nDirectory: (root)\nOutput: a\nStderr: b\nExit Code: 1";
        assert_eq!(streams(json!({ "llmContent": gemini })), both("a", "b"));
        assert_eq!(streams(json!("Exit code 1\nboth")), None);
    }

    #[test]
    fn a_refusal_is_told_from_an_output() {
        let refused = |text: &str| parse_ending(text).is_refusal();
        assert!(refused("The user doesn't want to proceed with this tool use. The tool use was rejected."));
        assert!(refused("exec command rejected by user"));
        assert!(!refused("nothing was refused"));
    }
}
