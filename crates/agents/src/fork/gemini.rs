//! Gemini CLI: a truncated session file under a new id, among the chats of the directory to continue in.

use std::fs;
use std::path::{Path, PathBuf};

use super::{FileWrite, Fork, ForkMode, ForkOptions, ForkSource, StartLines, command_words, rewrite};

pub(super) fn plan(source: &ForkSource<'_>, options: &ForkOptions<'_>, start: &StartLines) -> Fork {
    let session = rewrite::uuid_v4(options.id);
    let old = source.location.session.as_str();
    let lines = start.lines.iter().map(|line| rewrite::replace_value(line, old, &session));
    let chats = find_chats_dir(source, options.cwd);
    let folder =
        chats.clone().or_else(|| source.location.path.parent().map(PathBuf::from)).unwrap_or_default();
    let path =
        folder.join(format!("session-{}-{}.jsonl", rewrite::file_name_time(options.now, 16), &session[..8]));
    let file = path.to_string_lossy().into_owned();
    let writes = vec![FileWrite { path, bytes: rewrite::join_lines(lines) }];
    // A directory that Gemini CLI does not know yet has no folder of chats, but a file can be named from anywhere.
    let (mut command, note) = match chats {
        Some(_) => (command_words(["gemini", "--resume", &session]), None),
        None => {
            let note =
                "Gemini CLI does not know this directory yet and will assign a new id to the conversation";
            (command_words(["gemini", "--session-file", &file]), Some(note.to_owned()))
        }
    };
    if let ForkMode::Prompt(prompt) = options.mode {
        command.push(format!("--prompt={prompt}"));
    }
    Fork { session, kept_lines: 0, writes, prepare: None, command, cwd: options.cwd.into(), note }
}

/// Returns where Gemini CLI looks for the chats of a directory, if it knows that directory.
fn find_chats_dir(source: &ForkSource<'_>, cwd: &Path) -> Option<PathBuf> {
    if cwd == source.cwd {
        return source.location.path.parent().map(PathBuf::from);
    }
    let projects = fs::read_dir(source.home.gemini.join("tmp")).ok()?;
    let of = |folder: &PathBuf| {
        fs::read_to_string(folder.join(".project_root")).is_ok_and(|root| Path::new(root.trim()) == cwd)
    };
    let folders = projects.filter_map(|entry| Some(entry.ok()?.path()));
    folders.into_iter().find(of).map(|folder| folder.join("chats"))
}
