//! Claude Code: uses its own fork if that applies, otherwise a truncated copy under a new id.
//!
//! Its own (`--resume-session-at` with `--fork-session`) leaves no trace in the history, while a copy that was cut inside a
//! turn gets "Continue from where you left off." added. But it exists in print mode only, and only finds sessions of the same
//! directory.

use serde_json::Value;

use super::{Fork, ForkOptions, ForkSource, Mode, Start, Write, last_argument, rewrite, tasks, words};
use crate::transcript::{claude_project_folder, text};

pub(super) fn plan(source: &ForkSource<'_>, wish: &ForkOptions<'_>, start: &Start) -> Fork {
    let session = rewrite::uuid(wish.id);
    let old = source.place.session.as_str();
    let mut writes = tasks::writes(&source.home.claude, old, &session, &start.lines);
    let at = last_uuid(&start.lines).filter(|_| start.own && wish.cwd == source.cwd);
    let command = match (wish.mode, at) {
        (Mode::Prompt(prompt), Some(at)) => {
            let mut command =
                words(["claude", "-p", "--resume", old, "--resume-session-at", &at, "--fork-session"]);
            command.extend(words(["--session-id", &session]));
            last_argument(&mut command, prompt);
            command
        }
        (mode, _) => {
            let folder = source.home.claude.join("projects").join(claude_project_folder(wish.cwd));
            let lines = start
                .lines
                .iter()
                .map(|line| rewrite::cwd(&rewrite::value(line, old, &session), source.cwd, wish.cwd));
            writes.push(Write { path: folder.join(format!("{session}.jsonl")), bytes: rewrite::file(lines) });
            match mode {
                Mode::Interactive => words(["claude", "--resume", &session]),
                Mode::Prompt(prompt) => {
                    let mut command = words(["claude", "-p", "--resume", &session]);
                    last_argument(&mut command, prompt);
                    command
                }
            }
        }
    };
    Fork { session, kept: 0, writes, prepare: None, command, cwd: wish.cwd.into(), note: None }
}

/// Returns the id of the last line that the conversation can be resumed at.
fn last_uuid(lines: &[String]) -> Option<String> {
    let uuid = |line: &String| {
        let line: Value = serde_json::from_str(line).ok()?;
        let main = line.get("isSidechain").and_then(Value::as_bool) != Some(true);
        let talk = matches!(text(&line, "type"), Some("user" | "assistant"));
        text(&line, "uuid").filter(|_| main && talk).map(str::to_owned)
    };
    lines.iter().rev().find_map(uuid)
}
