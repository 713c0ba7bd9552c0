//! What the agents' tools do to files: which tools only read, and which paths a call names.

use serde_json::Value;

use crate::agent::Agent;

/// Tools that only read, plan or ask. Every tool not listed, including unknown ones and those of MCP servers, can change
/// something. A tool that starts a sub-agent is listed because the sub-agent's own calls are reported one by one.
const READ_ONLY_TOOLS: [(Agent, &[&str]); 4] = [
    (
        Agent::Claude,
        &[
            "Read",
            "Glob",
            "Grep",
            "LS",
            "NotebookRead",
            "WebFetch",
            "WebSearch",
            "TodoRead",
            "TodoWrite",
            "TaskCreate",
            "TaskUpdate",
            "TaskGet",
            "TaskList",
            "TaskOutput",
            "Task",
            "Agent",
            "ToolSearch",
            "AskUserQuestion",
            "EnterPlanMode",
            "ExitPlanMode",
            "BashOutput",
            "ListMcpResources",
            "ListMcpResourcesTool",
            "ReadMcpResourceTool",
            "LSP",
            "SendMessage",
        ],
    ),
    (
        Agent::Codex,
        &[
            "update_plan",
            "view_image",
            "web_search",
            "read_file",
            "list_dir",
            "grep_files",
            "request_user_input",
            "list_mcp_resources",
            "list_mcp_resource_templates",
            "read_mcp_resource",
            "tool_search",
        ],
    ),
    (
        Agent::Gemini,
        &[
            "read_file",
            "read_many_files",
            "list_directory",
            "glob",
            "search_file_content",
            "grep_search",
            "google_web_search",
            "web_fetch",
            "write_todos",
            "ask_user",
            "activate_skill",
            "get_internal_docs",
            "enter_plan_mode",
            "exit_plan_mode",
        ],
    ),
    (
        Agent::Opencode,
        &[
            "read",
            "glob",
            "grep",
            "list",
            "webfetch",
            "websearch",
            "codesearch",
            "todowrite",
            "todoread",
            "task",
            "question",
            "skill",
            "lsp",
            "invalid",
        ],
    ),
];

/// Tools of stepback's own MCP server that only read.
const OWN_READ_ONLY_TOOLS: [&str; 18] = [
    "recover",
    "mind",
    "next",
    "belief_impact",
    "timeline",
    "show",
    "search",
    "why",
    "cost",
    "profile",
    "anomalies",
    "blame",
    "diff",
    "compare",
    "rewind_plan",
    "switch_plan",
    "merge_plan",
    "undo_plan",
];

/// Returns the plain name of a tool of stepback's own MCP server: each agent adds its own prefix with the server's name.
fn own_tool_name(tool: &str) -> Option<&str> {
    ["mcp__stepback__", "mcp_stepback_", "stepback_"].iter().find_map(|prefix| tool.strip_prefix(prefix))
}

/// Tools whose input is the whole task list.
pub const REPLACE_TASKS: [&str; 4] = ["TodoWrite", "update_plan", "write_todos", "todowrite"];

/// Whether a tool of an agent can change something.
pub fn can_change(agent: Agent, tool: &str) -> bool {
    let looks = READ_ONLY_TOOLS.iter().any(|(of, names)| *of == agent && names.contains(&tool));
    !looks && !own_tool_name(tool).is_some_and(|tool| OWN_READ_ONLY_TOOLS.contains(&tool))
}

/// Tools that change nothing but the files they name.
const EDITORS: [(Agent, &[&str]); 4] = [
    (Agent::Claude, &["Write", "Edit", "MultiEdit", "NotebookEdit"]),
    (Agent::Codex, &["apply_patch"]),
    (Agent::Gemini, &["write_file", "replace"]),
    (Agent::Opencode, &["write", "edit", "multiedit", "patch", "apply_patch"]),
];

/// Whether a tool of an agent changes only the paths that its call names. Tools of stepback's own MCP server name none: their
/// changes to files are steps of their own. Except for the one that runs programs.
pub fn changes_only_named_paths(agent: Agent, tool: &str) -> bool {
    let edits = EDITORS.iter().any(|(of, names)| *of == agent && names.contains(&tool));
    edits || own_tool_name(tool).is_some_and(|tool| tool != "verify_run")
}

/// Whether an agent runs this tool only when no other call of the same worker is running. Claude Code runs calls in parallel
/// only if all of them just read; the other agents run any calls of one model turn in parallel.
pub fn is_run_alone(agent: Agent, tool: &str) -> bool {
    agent == Agent::Claude && own_tool_name(tool).is_none() && changes_only_named_paths(agent, tool)
}

/// Returns the paths that a call names as those it works on, as written.
pub fn named_paths(input: &Value) -> Vec<String> {
    const FIELDS: [&str; 6] = ["file_path", "filePath", "notebook_path", "absolute_path", "path", "file"];
    let mut found: Vec<String> = FIELDS
        .iter()
        .filter_map(|field| input.get(field)?.as_str())
        .filter(|path| !path.is_empty())
        .map(str::to_string)
        .collect();
    for field in ["command", "input", "patch", "patchText"] {
        if let Some(text) = input.get(field).and_then(Value::as_str) {
            found.extend(patched_paths(text));
        }
    }
    if let Some(text) = input.as_str() {
        found.extend(patched_paths(text));
    }
    found.dedup();
    found
}

/// Returns the paths in a patch of the `*** Begin Patch` format.
fn patched_paths(text: &str) -> Vec<String> {
    if !text.contains("*** Begin Patch") {
        return Vec::new();
    }
    const PATCH_PATH_PREFIXES: [&str; 4] =
        ["*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "];
    let path = |line: &str| {
        PATCH_PATH_PREFIXES
            .iter()
            .find_map(|mark| line.strip_prefix(mark))
            .map(|path| path.trim().to_string())
    };
    text.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn unknown_tools_can_change_something() {
        assert!(can_change(Agent::Claude, "Bash"));
        assert!(can_change(Agent::Claude, "mcp__files__move"));
        assert!(can_change(Agent::Gemini, "replace"));
        assert!(!can_change(Agent::Claude, "mcp__stepback__recover"));
        assert!(!can_change(Agent::Gemini, "mcp_stepback_mind"));
        assert!(!can_change(Agent::Opencode, "stepback_rewind_plan"));
        assert!(can_change(Agent::Claude, "mcp__stepback__rewind_apply"));
        assert!(can_change(Agent::Claude, "mcp__stepback__verify_run"));
        assert!(!can_change(Agent::Claude, "Read"));
        assert!(!can_change(Agent::Opencode, "grep"));
        // Tool names belong to an agent: one that only reads in one agent may be unknown in another.
        assert!(can_change(Agent::Codex, "Read"));
    }

    #[test]
    fn paths_are_found_in_fields_and_in_patches() {
        assert_eq!(named_paths(&json!({"file_path": "/w/a.rs", "content": "x"})), ["/w/a.rs"]);
        let patch =
            "*** Begin Patch\n*** Add File: f.txt\n+x\n*** Update File: a/b\n*** Move to: c\n*** End Patch";
        assert_eq!(named_paths(&json!({ "command": patch })), ["f.txt", "a/b", "c"]);
        assert!(named_paths(&json!({"command": "rm -rf build"})).is_empty());
    }
}
