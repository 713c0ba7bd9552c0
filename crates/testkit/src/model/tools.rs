//! Each agent's names and inputs for the tools of a script.

use std::path::Path;

use serde_json::{Value, json};

use super::ScriptedAgent;
use super::script::ScriptedCall;

/// A call as one agent understands it.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentToolCall {
    /// The tool's name there.
    pub name: String,
    /// Its input: an object, or a text for a tool with free-form input.
    pub input: Value,
}

/// Translates a call into an agent's own format. `offered` are the tools that the agent's request names.
pub fn translate(
    agent: ScriptedAgent,
    call: &ScriptedCall,
    workspace: &Path,
    offered: &[String],
) -> AgentToolCall {
    let absolute = |path: &Path| workspace.join(path).to_string_lossy().into_owned();
    let (name, input) = match (agent, call) {
        (_, ScriptedCall::Named { name, input }) => (name.as_str(), insert_workspace(input, workspace)),

        (ScriptedAgent::Claude, ScriptedCall::Shell { command }) => {
            ("Bash", json!({ "command": command, "description": "Runs a scripted command" }))
        }
        (ScriptedAgent::Claude, ScriptedCall::Write { path, content }) => {
            ("Write", json!({ "file_path": absolute(path), "content": content }))
        }
        (ScriptedAgent::Claude, ScriptedCall::Edit { path, old, new }) => {
            ("Edit", json!({ "file_path": absolute(path), "old_string": old, "new_string": new }))
        }
        (ScriptedAgent::Claude, ScriptedCall::Read { path }) => {
            ("Read", json!({ "file_path": absolute(path) }))
        }

        (ScriptedAgent::Codex, ScriptedCall::Shell { command }) => codex_shell(command, offered),
        (ScriptedAgent::Codex, ScriptedCall::Write { path, content }) => {
            let patch = format!("*** Add File: {}\n{}", path.display(), prefix_lines('+', content));
            ("apply_patch", wrap_patch(&patch))
        }
        (ScriptedAgent::Codex, ScriptedCall::Edit { path, old, new }) => {
            let (old, new) = (prefix_lines('-', old), prefix_lines('+', new));
            ("apply_patch", wrap_patch(&format!("*** Update File: {}\n@@\n{old}{new}", path.display())))
        }
        (ScriptedAgent::Codex, ScriptedCall::Read { path }) => {
            codex_shell(&format!("cat '{}'", path.display()), offered)
        }

        (ScriptedAgent::Gemini, ScriptedCall::Shell { command }) => {
            ("run_shell_command", json!({ "command": command, "description": "Runs a scripted command" }))
        }
        (ScriptedAgent::Gemini, ScriptedCall::Write { path, content }) => {
            ("write_file", json!({ "file_path": absolute(path), "content": content }))
        }
        (ScriptedAgent::Gemini, ScriptedCall::Edit { path, old, new }) => (
            "replace",
            json!({ "file_path": absolute(path), "instruction": "As the script says", "old_string": old, "new_string": new }),
        ),
        (ScriptedAgent::Gemini, ScriptedCall::Read { path }) => {
            ("read_file", json!({ "file_path": absolute(path) }))
        }

        (ScriptedAgent::Opencode, ScriptedCall::Shell { command }) => {
            ("bash", json!({ "command": command, "description": "Runs a scripted command" }))
        }
        (ScriptedAgent::Opencode, ScriptedCall::Write { path, content }) => {
            ("write", json!({ "filePath": absolute(path), "content": content }))
        }
        (ScriptedAgent::Opencode, ScriptedCall::Edit { path, old, new }) => {
            ("edit", json!({ "filePath": absolute(path), "oldString": old, "newString": new }))
        }
        (ScriptedAgent::Opencode, ScriptedCall::Read { path }) => {
            ("read", json!({ "filePath": absolute(path) }))
        }
    };
    AgentToolCall { name: name.to_owned(), input }
}

/// Codex has had three names for its shell; the request says which one this version offers.
fn codex_shell<'a>(command: &str, offered: &[String]) -> (&'a str, Value) {
    let offers = |name: &str| offered.iter().any(|tool| tool == name);
    if offers("shell_command") && !offers("exec_command") {
        ("shell_command", json!({ "command": command }))
    } else if offers("shell") && !offers("exec_command") {
        ("shell", json!({ "command": ["bash", "-c", command] }))
    } else {
        ("exec_command", json!({ "cmd": command }))
    }
}

fn prefix_lines(sign: char, lines: &str) -> String {
    lines.lines().map(|line| format!("{sign}{line}\n")).collect()
}

fn wrap_patch(patch: &str) -> Value {
    Value::String(format!("*** Begin Patch\n{patch}*** End Patch"))
}

fn insert_workspace(input: &Value, workspace: &Path) -> Value {
    match input {
        Value::String(text) => Value::String(text.replace("{workspace}", &workspace.to_string_lossy())),
        Value::Array(items) => items.iter().map(|item| insert_workspace(item, workspace)).collect(),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| (key.clone(), insert_workspace(value, workspace))).collect()
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(agent: ScriptedAgent, call: &ScriptedCall) -> AgentToolCall {
        translate(agent, call, Path::new("/w"), &[])
    }

    #[test]
    fn an_edit_becomes_a_patch_for_codex_and_two_texts_for_the_others() {
        let edit = ScriptedCall::edit("a.txt", "one\ntwo\n", "ONE\n");
        assert_eq!(
            said(ScriptedAgent::Codex, &edit).input,
            "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n-two\n+ONE\n*** End Patch"
        );
        assert_eq!(said(ScriptedAgent::Claude, &edit).input["old_string"], "one\ntwo\n");
        assert_eq!(said(ScriptedAgent::Opencode, &edit).input["filePath"], "/w/a.txt");
    }

    #[test]
    fn a_named_tool_learns_where_the_agent_works() {
        let call = ScriptedCall::named("Glob", json!({ "paths": ["{workspace}/a"] }));
        assert_eq!(said(ScriptedAgent::Claude, &call).input, json!({ "paths": ["/w/a"] }));
    }

    #[test]
    fn codex_gets_the_shell_it_offers() {
        let shell = ScriptedCall::shell("ls");
        let offered = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let name =
            |names: &[&str]| translate(ScriptedAgent::Codex, &shell, Path::new("/w"), &offered(names)).name;
        assert_eq!(name(&["exec_command", "shell"]), "exec_command");
        assert_eq!(name(&["shell_command"]), "shell_command");
        assert_eq!(name(&["shell"]), "shell");
    }
}
