//! Codex: `hooks.json` in its home, or in `.codex` of a project that Codex trusts.
//!
//! Codex runs a hook only after the user has reviewed it, and silently skips it before. It stores a hash of the definition
//! under the file, the event and two indexes. Lasting trust is the user's decision; nothing here writes it. For one run there
//! is another way, see [`overrides`].

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use stepback_model::shell::quote_word;

use super::hooks::{EventHandler, OwnHandlers};
use super::jsonc::JsoncDocument;
use super::value::{Value, quote_json};
use super::{HookCommand, InstallScope, SettingsPaths};
use crate::Agent;

/// Seconds that a tool may wait at a breakpoint. After that, the tool runs.
const PATIENCE: u64 = 3600;
const TIMEOUT: u64 = 60;
/// Timeout of the hooks at the end or interruption of a session, in seconds. Codex waits no longer than this for them.
const END_HOOK_TIMEOUT_SECONDS: u64 = 3;

const EVENTS: [(&str, &str, u64); 11] = [
    ("SessionStart", "session_start", TIMEOUT),
    ("UserPromptSubmit", "user_prompt_submit", TIMEOUT),
    ("PreToolUse", "pre_tool_use", PATIENCE),
    ("PostToolUse", "post_tool_use", PATIENCE),
    ("PreCompact", "pre_compact", TIMEOUT),
    ("PostCompact", "post_compact", TIMEOUT),
    ("SubagentStart", "subagent_start", TIMEOUT),
    ("SubagentStop", "subagent_stop", TIMEOUT),
    ("Stop", "stop", TIMEOUT),
    ("SessionEnd", "session_end", END_HOOK_TIMEOUT_SECONDS),
    ("Interrupt", "interrupt", END_HOOK_TIMEOUT_SECONDS),
];

pub(super) fn hooks_file(scope: InstallScope, paths: &SettingsPaths) -> PathBuf {
    match scope {
        InstallScope::Project => paths.workspace.join(".codex/hooks.json"),
        InstallScope::User => paths.codex_home.join("hooks.json"),
    }
}

/// Returns the handlers. Their text must stay the same from release to release: the user's trust depends on it.
pub(super) fn build_handlers(hook: &HookCommand<'_>) -> Vec<EventHandler> {
    let handler = |timeout| {
        Value::Object(vec![
            ("type", Value::Text("command".to_owned())),
            ("command", Value::Text(hook_command_line(hook))),
            ("timeout", Value::Number(timeout)),
        ])
    };
    EVENTS.into_iter().map(|(event, _, timeout)| (event, handler(timeout))).collect()
}

pub(super) fn follow_up_notes(scope: InstallScope) -> Vec<String> {
    let mut notes = vec![
        "Codex runs hooks only after you have reviewed them. It asks the next time you start `codex` here (\"Hooks need \
         review\"; later: /hooks). Until then it skips them silently, and so does `codex exec`, which never asks."
            .to_owned(),
    ];
    if scope == InstallScope::Project {
        notes.push("Codex reads .codex/hooks.json only in a project it trusts.".to_owned());
        notes.push(
            "Keep .codex/hooks.json out of git, or install with --user: it contains a path of this machine."
                .to_owned(),
        );
    }
    notes
}

/// The note for the case that other hooks come after stepback's: removing stepback's moves them, and Codex identifies them by
/// index.
pub(super) fn moved_hooks_note() -> String {
    "Other hooks moved up by one; Codex may ask you to review them again.".to_owned()
}

/// Returns the `-c` settings that give one run stepback's hooks and no others: they are passed together with the trust that
/// they need, so that other unreviewed hooks do not run, as they would with `--dangerously-bypass-hook-trust`. Codex would
/// run a hook that is also installed a second time, so installed ones are disabled for the run.
pub(super) fn build_overrides(hook: &HookCommand<'_>, paths: &SettingsPaths, binary: &Path) -> Vec<String> {
    let command = hook_command_line(hook);
    let mut settings = Vec::new();
    let mut state = Vec::new();
    for (event, key, timeout) in EVENTS {
        settings.push(format!(
            "hooks.{event}=[{{hooks=[{{type=\"command\",command={},timeout={timeout}}}]}}]",
            quote_json(&command)
        ));
        state.push(format!(
            "{}={{trusted_hash=\"{}\"}}",
            quote_json(&format!("/<session-flags>/config.toml:{key}:0:0")),
            trusted_hash(key, &command, timeout)
        ));
    }
    for scope in [InstallScope::User, InstallScope::Project] {
        let file = hooks_file(scope, paths);
        for key in installed_hook_keys(&file, OwnHandlers { agent: Agent::Codex, binary }) {
            state.push(format!("{}={{enabled=false}}", quote_json(&key)));
        }
    }
    settings.push(format!("hooks.state={{{}}}", state.join(",")));
    settings
}

/// Returns the keys by which Codex identifies stepback's installed hooks.
fn installed_hook_keys(file: &Path, ours: OwnHandlers<'_>) -> Vec<String> {
    let text = std::fs::read_to_string(file).ok();
    let Some(document) = text.and_then(|text| JsoncDocument::parse(text).ok()) else { return Vec::new() };
    let mut names = vec![file.to_owned()];
    names.extend(std::fs::canonicalize(file).ok().filter(|real| real != file));
    let mut keys = Vec::new();
    for (event, group, handler) in ours.find_handlers(&document) {
        let Some((_, key, _)) = EVENTS.into_iter().find(|(name, ..)| *name == event) else { continue };
        keys.extend(names.iter().map(|name| format!("{}:{key}:{group}:{handler}", name.display())));
    }
    keys
}

/// Whether the user has reviewed all of stepback's hooks in `file`, as they are now. `state` is the table `hooks.state` of
/// Codex's own settings.
pub(super) fn are_trusted(file: &Path, ours: OwnHandlers<'_>, state: Option<&toml::Value>) -> bool {
    let text = std::fs::read_to_string(file).ok();
    let Some(document) = text.and_then(|text| JsoncDocument::parse(text).ok()) else { return false };
    let mut names = vec![file.to_owned()];
    names.extend(std::fs::canonicalize(file).ok().filter(|real| real != file));
    ours.find_handlers(&document).into_iter().all(|(event, group, at)| {
        let Some((_, key, timeout)) = EVENTS.into_iter().find(|(name, ..)| *name == event) else {
            return true;
        };
        let path = ["hooks".into(), event.as_str().into(), group.into(), "hooks".into(), at.into()];
        let command = document.get(&path).and_then(|handler| handler.member("command")?.text());
        let hash = command.map(|command| trusted_hash(key, command, timeout));
        names.iter().any(|name| {
            let known = state.and_then(|state| state.get(format!("{}:{key}:{group}:{at}", name.display())));
            let is_off = known.and_then(|known| known.get("enabled")?.as_bool()) == Some(false);
            !is_off
                && hash.is_some()
                && hash.as_deref() == known.and_then(|known| known.get("trusted_hash")?.as_str())
        })
    })
}

fn hook_command_line(hook: &HookCommand<'_>) -> String {
    format!("{} {}", quote_word(hook.binary), hook.args().join(" "))
}

/// Returns the hash that Codex compares: of the definition as JSON with sorted keys and no white space.
fn trusted_hash(event: &str, command: &str, timeout: u64) -> String {
    let definition = format!(
        "{{\"event_name\":\"{event}\",\"hooks\":[{{\"async\":false,\"command\":{},\"timeout\":{timeout},\"type\":\"command\"}}]}}",
        quote_json(command)
    );
    let digest = Sha256::digest(definition.as_bytes());
    format!("sha256:{}", stepback_model::hex::encode(&digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_one_codex_lists() {
        // As codex 0.166.0 lists them (app-server, `hooks/list`).
        assert_eq!(
            trusted_hash("pre_tool_use", "/usr/bin/stepback hook codex", 3600),
            "sha256:9a51bca883a56c85c43d61e5c57e11367a35149d357c130539656cba36c34726"
        );
        assert_eq!(
            trusted_hash("session_end", "'/a b/stepback' hook codex --strict", 3),
            "sha256:e49a83ef7276336597065c65668c4e48b9a6eacc43066a7f5b33e687a80f53e4"
        );
    }
}
