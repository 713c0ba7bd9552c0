//! Gemini CLI: `.gemini/settings.json` of the project or of the user.
//!
//! It accepts comments but not trailing commas, refuses to start with a file that does not parse, and has timeouts in
//! milliseconds. The model events (`BeforeModel`, `AfterModel`) are not hooked: they carry a whole request for each chunk of
//! a reply.

use std::path::PathBuf;

use stepback_model::shell::quote_word;

use super::hooks::EventHandler;
use super::value::Value;
use super::{HookCommand, InstallScope, SettingsPaths};

/// Milliseconds that a tool may wait at a breakpoint. After that, the tool runs.
const PATIENCE: u64 = 3_600_000;
const TIMEOUT: u64 = 60_000;

const EVENTS: [&str; 8] = [
    "SessionStart",
    "BeforeAgent",
    "AfterAgent",
    "BeforeTool",
    "AfterTool",
    "PreCompress",
    "SessionEnd",
    "Notification",
];

pub(super) fn settings_file(scope: InstallScope, paths: &SettingsPaths) -> PathBuf {
    match scope {
        InstallScope::Project => paths.workspace.join(".gemini/settings.json"),
        InstallScope::User => paths.gemini_dir.join("settings.json"),
    }
}

pub(super) fn build_handlers(hook: &HookCommand<'_>) -> Vec<EventHandler> {
    let command = format!("{} {}", quote_word(hook.binary), hook.args().join(" "));
    let handler = |event| {
        // The agent may also be stopped after a call, by a breakpoint on errors.
        let stops = matches!(event, "BeforeTool" | "AfterTool");
        Value::Object(vec![
            ("name", Value::Text("stepback".to_owned())),
            ("type", Value::Text("command".to_owned())),
            ("command", Value::Text(command.clone())),
            ("timeout", Value::Number(if stops { PATIENCE } else { TIMEOUT })),
        ])
    };
    EVENTS.into_iter().map(|event| (event, handler(event))).collect()
}

pub(super) fn follow_up_notes(scope: InstallScope) -> Vec<String> {
    let mut notes = vec!["Sessions that are open now load the hooks when they are restarted.".to_owned()];
    if scope == InstallScope::Project {
        notes.push(
            "Gemini CLI reads the project's settings only in a folder it trusts, and not when trust comes from --skip-trust; \
             with --user the hooks run there too."
                .to_owned(),
        );
        notes.push(
            "Keep .gemini/settings.json out of git, or install with --user: it contains a path of this machine."
                .to_owned(),
        );
    }
    notes
}
