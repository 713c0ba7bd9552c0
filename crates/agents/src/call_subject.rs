//! What a call is about, in one short name: the file it names, or the program that it runs.

use crate::tools::named_paths;
use serde_json::Value;

/// Longest name that is kept, in bytes.
const MAX_BYTES: usize = 200;
/// The fields in which the tools of agents have a command line.
const COMMAND_FIELDS: [&str; 4] = ["command", "cmd", "script", "commandLine"];
/// Programs whose first word that is no option says what they do.
const WITH_SUBCOMMANDS: [&str; 17] = [
    "cargo", "git", "npm", "pnpm", "yarn", "npx", "docker", "kubectl", "go", "uv", "pip", "make", "just",
    "bazel", "gradle", "mvn", "dotnet",
];
/// Programs that only run another one.
const WRAPPERS: [&str; 8] = ["sudo", "env", "time", "nohup", "nice", "timeout", "exec", "command"];

/// Returns the path or program that a call is about.
pub fn call_subject(input: &Value) -> Option<String> {
    let path = named_paths(input).into_iter().next();
    let command = || COMMAND_FIELDS.iter().find_map(|field| program_of(input.get(field)?));
    let address = || input.get("url").and_then(Value::as_str).map(str::to_owned);
    let subject = path.or_else(command).or_else(address)?;
    let end = subject.floor_char_boundary(MAX_BYTES);
    Some(subject[..end].to_owned()).filter(|subject| !subject.is_empty())
}

/// Returns the program of a command: a line for a shell, or a list of arguments.
fn program_of(command: &Value) -> Option<String> {
    match command {
        Value::String(line) => program_in_line(line),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            match words.as_slice() {
                // A shell with a line to run.
                [_, option, line, ..] if matches!(*option, "-c" | "-lc") => program_in_line(line),
                words => program_in_line(&words.join(" ")),
            }
        }
        _ => None,
    }
}

/// Returns the program that a command line is about: not `cd DIR &&`, variables or wrappers before it.
fn program_in_line(line: &str) -> Option<String> {
    let head = &line[..line.floor_char_boundary(4096)];
    let parts = head.split(['\n', ';', '|']).flat_map(|part| part.split("&&"));
    for part in parts {
        let mut words = part.split_whitespace().skip_while(|word| {
            is_assignment(word)
                || WRAPPERS.contains(word)
                || word.starts_with('-')
                || word.chars().all(|c| c.is_ascii_digit())
        });
        let Some(first) = words.next() else { continue };
        let program = first.trim_matches(['"', '\'', '(', ')']).rsplit('/').next().unwrap_or(first);
        if matches!(program, "cd" | "export" | "set" | "source" | "." | "") || program.starts_with('#') {
            continue;
        }
        let rest = words.find(|word| !word.starts_with('-') && !word.starts_with('+'));
        return Some(match rest.filter(|_| WITH_SUBCOMMANDS.contains(&program)) {
            Some(rest) => format!("{program} {rest}"),
            None => program.to_owned(),
        });
    }
    None
}

fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_about_a_file_or_a_program() {
        let subject = |input| call_subject(&input).unwrap_or_default();
        assert_eq!(subject(json!({ "file_path": "/w/a.rs", "content": "x" })), "/w/a.rs");
        assert_eq!(
            subject(json!({ "command": "cd /w && RUST_LOG=1 cargo --quiet test -p x" })),
            "cargo test"
        );
        assert_eq!(subject(json!({ "command": "timeout 60 ./scripts/run.sh now | tail" })), "run.sh");
        assert_eq!(subject(json!({ "command": ["bash", "-lc", "ls -la"] })), "ls");
        assert_eq!(subject(json!({ "cmd": "# nothing\n\npytest tests" })), "pytest");
        assert_eq!(subject(json!({ "url": "https://example.org/a" })), "https://example.org/a");
        for nothing in [json!({}), json!(null), json!({ "command": 3 }), json!({ "command": "  " })] {
            assert_eq!(subject(nothing), "");
        }
        assert!(subject(json!({ "file_path": "ä".repeat(4000) })).len() <= MAX_BYTES);
    }
}
