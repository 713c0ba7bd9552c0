//! Which files outside of the workspace the calls of agents named. stepback covers only the workspace, so a rewind says that
//! these stay as they are.

use std::path::Path;

use serde_json::Value;
use stepback_engine::{EngineError, Workspace};
use stepback_model::ids::SessionId;
use stepback_model::record::StepKind;
use stepback_store::port::StepQuery;

use crate::agent::Agent;
use crate::tools;
use crate::workspace_paths::is_outside;

/// Directories whose files are devices or programs, which commands name without changing them.
const SYSTEM_DIRECTORIES: [&str; 8] =
    ["/dev/", "/proc/", "/sys/", "/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/"];

/// Returns the paths outside of the workspace that calls which can change something named, in the steps after `after` and up to
/// `until`, each once, oldest first. Calls of `session` only, if one is given.
pub fn outside_paths(
    workspace: &Workspace,
    after: u64,
    until: Option<u64>,
    session: Option<SessionId>,
) -> Result<Vec<String>, EngineError> {
    let query = StepQuery {
        session,
        kinds: vec![StepKind::ToolStart],
        // The point before a call is its start step, and going there takes the call back.
        after: Some(after.saturating_sub(1)),
        before: until.map(|until| until.saturating_add(1)),
        oldest_first: true,
        ..StepQuery::default()
    };
    let mut found: Vec<String> = Vec::new();
    for stored in workspace.store().steps(workspace.record.id, &query)? {
        let agent =
            workspace.store().session(stored.step.session)?.and_then(|session| Agent::parse(&session.agent));
        let tool = stored.step.meta.tool.as_deref().unwrap_or_default();
        if agent.is_some_and(|agent| !tools::can_change(agent, tool)) {
            continue;
        }
        let detail = workspace.load_detail(&stored.step)?.unwrap_or_default();
        for path in paths_of_call(&detail["input"]) {
            if is_outside(workspace, Path::new(&path)) && !found.contains(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}

/// Returns the paths that a call names: in the fields for paths, and as words of a command.
fn paths_of_call(input: &Value) -> Vec<String> {
    let mut paths = tools::named_paths(input);
    let commands = ["command", "cmd", "script"].iter().filter_map(|name| input.get(name));
    for command in commands {
        match command {
            Value::String(text) => paths.extend(paths_in_command(text)),
            // Codex passes a program and its arguments.
            Value::Array(words) => {
                paths.extend(words.iter().filter_map(Value::as_str).flat_map(paths_in_command));
            }
            _ => {}
        }
    }
    paths
}

/// Returns the words of a command that are paths from the root, the home directory or above the current directory.
fn paths_in_command(command: &str) -> Vec<String> {
    let words = command.split(|c: char| c.is_whitespace() || "'\"`;|&<>()=,".contains(c));
    let is_path = |word: &&str| {
        (word.starts_with('/') && word.len() > 1 || word.starts_with("~/") || word.starts_with("../"))
            && !word.starts_with("//")
            && !SYSTEM_DIRECTORIES.iter().any(|dir| word.starts_with(dir))
    };
    words.filter(is_path).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn commands_name_paths() {
        let found = |command: &str| paths_in_command(command);
        assert_eq!(
            found("echo x > /etc/hosts; rm -rf ~/notes '../other dir'"),
            ["/etc/hosts", "~/notes", "../other"]
        );
        assert_eq!(found("/usr/bin/env sh -c 'true' 2>/dev/null"), Vec::<String>::new());
        assert_eq!(found("curl https://example.org/a/b | sed s/x/y/ src/a"), Vec::<String>::new());
        assert_eq!(found("cp --target-directory=/srv a"), ["/srv"]);
        assert_eq!(found("ls / ~"), Vec::<String>::new());
    }

    #[test]
    fn calls_name_paths() {
        let input = json!({ "file_path": "/etc/motd", "content": "/not/a/path" });
        assert_eq!(paths_of_call(&input), ["/etc/motd"]);
        assert_eq!(paths_of_call(&json!({ "command": ["bash", "-lc", "touch /srv/x"] })), ["/srv/x"]);
    }
}
