//! Claude Code: `.claude/settings.local.json` of the project, or `settings.json` of the user.
//!
//! The project's `settings.json` is shared by git, and a hook of stepback names a path of one machine; so the project scope
//! uses the local file. Claude Code reads these files as plain JSON: if one has a comment or a trailing comma, it silently
//! ignores the whole file. A hook that is in several files runs once, as long as its text is the same.

use std::path::PathBuf;

use super::hooks::EventHandler;
use super::value::Value;
use super::{HookCommand, InstallScope, SettingsPaths};

/// Seconds that a tool may wait at a breakpoint. After that, the tool runs.
const PATIENCE: u64 = 3600;
const TIMEOUT: u64 = 60;

const EVENTS: [&str; 16] = [
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PostToolUse",
    "PostToolUseFailure",
    "PreCompact",
    "PostCompact",
    "SubagentStart",
    "SubagentStop",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "TaskCreated",
    "TaskCompleted",
    "Notification",
    "PermissionDenied",
];

pub(super) fn settings_file(scope: InstallScope, paths: &SettingsPaths) -> PathBuf {
    match scope {
        InstallScope::Project => paths.workspace.join(".claude/settings.local.json"),
        InstallScope::User => paths.claude_dir.join("settings.json"),
    }
}

/// Returns the handlers, in exec form: no shell and no quoting is involved.
pub(super) fn build_handlers(hook: &HookCommand<'_>) -> Vec<EventHandler> {
    let args: Vec<Value> = hook.args().into_iter().map(Value::Text).collect();
    let handler = |event| {
        let before_tool = event == "PreToolUse";
        // The agent may also be stopped after a call, by a breakpoint on errors.
        let stops = before_tool || matches!(event, "PostToolUse" | "PostToolUseFailure");
        let mut members = vec![
            ("type", Value::Text("command".to_owned())),
            ("command", Value::Text(hook.binary.to_owned())),
            ("args", Value::Array(args.clone())),
            ("timeout", Value::Number(if stops { PATIENCE } else { TIMEOUT })),
        ];
        if hook.strict && before_tool {
            // Only here: failing closed on a prompt would lose what was typed, and on a compaction the session.
            members.push(("onFailure", Value::Text("block".to_owned())));
        }
        Value::Object(members)
    };
    EVENTS.into_iter().map(|event| (event, handler(event))).collect()
}

pub(super) fn follow_up_notes(hook: &HookCommand<'_>, scope: InstallScope) -> Vec<String> {
    let mut notes = vec!["Sessions that are open now load the hooks when they are restarted.".to_owned()];
    if scope == InstallScope::Project {
        notes.push(
            "Keep .claude/settings.local.json out of git: it contains a path of this machine.".to_owned(),
        );
    }
    if hook.strict {
        notes.push(
            "Blocking when the hook itself cannot run needs Claude Code 2.1.295 or later; earlier versions let such a call run."
                .to_owned(),
        );
    }
    notes
}
