//! Claude Code: uses its own fork if that applies, otherwise a truncated copy under a new id.
//!
//! Its own (`--resume-session-at` with `--fork-session`) leaves no trace in the history, while a copy that was cut inside a
//! turn gets "Continue from where you left off." added. But it exists in print mode only, and only finds sessions of the same
//! directory.

use serde_json::Value;

use super::{
    FileWrite, Fork, ForkMode, ForkOptions, ForkSource, StartLines, command_words, push_last_argument,
    rewrite, tasks,
};
use crate::transcript::{claude_project_folder, get_str};

pub(super) fn plan(source: &ForkSource<'_>, options: &ForkOptions<'_>, start: &StartLines) -> Fork {
    let session = rewrite::uuid_v4(options.id);
    let old = source.location.session.as_str();
    let mut writes = tasks::plan_task_files(&source.home.claude, old, &session, &start.lines);
    let at =
        last_resumable_uuid(&start.lines).filter(|_| start.is_own_transcript && options.cwd == source.cwd);
    let command = match (options.mode, at) {
        (ForkMode::Prompt(prompt), Some(at)) => {
            let mut command = command_words([
                "claude",
                "-p",
                "--resume",
                old,
                "--resume-session-at",
                &at,
                "--fork-session",
            ]);
            command.extend(command_words(["--session-id", &session]));
            push_last_argument(&mut command, prompt);
            command
        }
        (mode, _) => {
            let folder = source.home.claude.join("projects").join(claude_project_folder(options.cwd));
            let lines = start.lines.iter().map(|line| {
                rewrite::replace_cwd(&rewrite::replace_value(line, old, &session), source.cwd, options.cwd)
            });
            writes.push(FileWrite {
                path: folder.join(format!("{session}.jsonl")),
                bytes: rewrite::join_lines(lines),
            });
            match mode {
                ForkMode::Interactive => command_words(["claude", "--resume", &session]),
                ForkMode::Prompt(prompt) => {
                    let mut command = command_words(["claude", "-p", "--resume", &session]);
                    push_last_argument(&mut command, prompt);
                    command
                }
            }
        }
    };
    Fork { session, kept_lines: 0, writes, prepare: None, command, cwd: options.cwd.into(), note: None }
}

/// Returns the id of the last line that the conversation can be resumed at.
fn last_resumable_uuid(lines: &[String]) -> Option<String> {
    let uuid = |line: &String| {
        let line: Value = serde_json::from_str(line).ok()?;
        let main = line.get("isSidechain").and_then(Value::as_bool) != Some(true);
        let talk = matches!(get_str(&line, "type"), Some("user" | "assistant"));
        get_str(&line, "uuid").filter(|_| main && talk).map(str::to_owned)
    };
    lines.iter().rev().find_map(uuid)
}
