//! What the result of a tool is: a web page, the answer of an MCP server, a file, the output of a command.

use serde_json::Value;
use stepback_agents::Agent;
use stepback_agents::tools::{changes_only_named_paths, named_paths};

use super::context::join_strings;
use super::trust::{Judgement, Trust};

/// Programs and words in commands that read the network, separated by commas.
const NETWORK_WORDS: &str = "curl,wget,http://,https://,ftp://,git clone,git fetch,git pull,gh api,gh issue,gh pr,gh gist,ssh ,scp ,rsync ,nc ,npm view,npm install,pip install,pip download,lynx,aria2c";

/// What the result of a tool is, by the name and the input of the call.
pub(super) fn judge_tool(agent: &str, tool: &str, input: &Value) -> Judgement {
    let name = tool.to_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let paths = named_paths(input);
    let field = |names: &[&str]| names.iter().find_map(|name| input[*name].as_str()).map(str::to_owned);
    let url = field(&["url", "uri"]).filter(|url| url.contains("://"));
    let judged = |kind, trust, rule: &str| Judgement {
        kind,
        trust,
        rule: rule.to_owned(),
        step: None,
        tool: None,
        path: None,
        url: None,
        identity: String::new(),
    };
    let is_own_server =
        ["mcp__stepback__", "mcp_stepback_", "stepback_"].iter().any(|own| name.starts_with(own));
    if is_own_server {
        return judged("tool-result", Trust::Own, "stepback's own tools answer from the record");
    }
    if name.starts_with("mcp_") {
        return judged("mcp", Trust::Untrusted, "the result of an MCP server");
    }
    if url.is_some() || has(&["web", "fetch", "browse", "codesearch"]) {
        let query = field(&["query", "prompt"]).unwrap_or_default();
        let identity = format!("web {}", url.as_deref().unwrap_or(&query));
        return Judgement {
            url,
            identity,
            ..judged("web", Trust::Untrusted, "a page or search result of the web")
        };
    }
    let is_edit = match Agent::parse(agent) {
        Some(agent) => changes_only_named_paths(agent, tool),
        None => has(&["edit", "write", "replace", "patch"]),
    };
    if is_edit {
        return judged("tool-result", Trust::Own, "the result of an edit by the session");
    }
    if let Some(command) = command_of(input) {
        let (trust, rule) = match reads_network(input) {
            true => (Trust::Untrusted, "the output of a command that reads the network"),
            false => (Trust::Unknown, "the output of a command: whose words those are is not recorded"),
        };
        return Judgement { identity: format!("command {command}"), ..judged("command", trust, rule) };
    }
    if has(&["grep", "glob", "search", "find", "list"]) {
        return judged("file", Trust::Unknown, "what a search found: whose words those are is not recorded");
    }
    if let Some(path) = paths.first() {
        return Judgement {
            path: Some(path.clone()),
            identity: format!("file {path}"),
            ..judged("file", Trust::Unknown, "whose words those are is not recorded")
        };
    }
    if ["task", "agent", "delegate"].contains(&name.as_str()) {
        let rule = "the answer of a sub-agent; what that had seen is not followed";
        return judged("tool-result", Trust::Unknown, rule);
    }
    judged("tool-result", Trust::Unknown, "whose words those are is not recorded")
}

/// The command that a call runs.
fn command_of(input: &Value) -> Option<String> {
    ["command", "cmd"].iter().find_map(|name| match &input[*name] {
        Value::String(command) => Some(command.clone()),
        words @ Value::Array(_) => Some(join_strings(words).replace('\n', " ")),
        _ => None,
    })
}

/// Whether a call runs a command that reads the network, as far as its words tell.
pub(super) fn reads_network(input: &Value) -> bool {
    let Some(command) = command_of(input) else { return false };
    let is_part_of_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || "_-".contains(c));
    NETWORK_WORDS.split(',').any(|word| {
        command.match_indices(word).any(|(at, _)| {
            let before = command[..at].chars().next_back();
            let after = command[at + word.len()..].chars().next();
            !is_part_of_word(before) && (!word.ends_with(char::is_alphanumeric) || !is_part_of_word(after))
        })
    })
}

/// The words of a command that may be paths.
pub(super) fn command_paths(identity: &str) -> impl Iterator<Item = &str> {
    let words = identity.strip_prefix("command ").unwrap_or_default();
    let words = words.split(|c: char| c.is_whitespace() || "'\"|;&<>()`$".contains(c));
    words.filter(|word| word.len() > 1 && !word.starts_with('-')).take(32)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tools_are_known_by_their_names_and_inputs() {
        let judged = |tool: &str, input: Value| {
            let judged = judge_tool("claude", tool, &input);
            (judged.kind, judged.trust)
        };
        assert_eq!(judged("WebFetch", json!({ "url": "https://x.example/a" })), ("web", Trust::Untrusted));
        assert_eq!(judged("google_web_search", json!({ "query": "x" })), ("web", Trust::Untrusted));
        assert_eq!(judged("mcp__tickets__get", json!({ "id": 1 })), ("mcp", Trust::Untrusted));
        assert_eq!(judged("mcp__stepback__mind", json!({})), ("tool-result", Trust::Own));
        assert_eq!(judged("Read", json!({ "file_path": "/w/a" })), ("file", Trust::Unknown));
        assert_eq!(judged("Edit", json!({ "file_path": "/w/a" })), ("tool-result", Trust::Own));
        assert_eq!(judged("Bash", json!({ "command": "curl -s x" })), ("command", Trust::Untrusted));
        assert_eq!(judged("Bash", json!({ "command": "make test" })), ("command", Trust::Unknown));
        assert_eq!(judged("Bash", json!({ "command": "async func curly" })), ("command", Trust::Unknown));
        assert_eq!(judged("Grep", json!({ "pattern": "x" })), ("file", Trust::Unknown));
        assert_eq!(judge_tool("stepback", "edit", &json!({ "path": "a" })).trust, Trust::Own);
        assert_eq!(judged("", Value::Null), ("tool-result", Trust::Unknown));
    }
}
