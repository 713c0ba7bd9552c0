//! opencode: imports the truncated conversation with opencode's own `import` command.
//!
//! Its server can fork too, but only what its database still has, whole messages at a time, and it would have to be started
//! and reached over a port. An import takes exactly what was recorded, works in any directory, and needs nothing but the
//! command. Every message and part gets a new id, because ids are unique in the whole database and opencode silently skips a
//! row that exists.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    FileWrite, Fork, ForkError, ForkMode, ForkOptions, ForkSource, PrepareCommand, StartLines, command_words,
    push_last_argument, rewrite,
};
use crate::agent::Agent;
use crate::transcript::{TranscriptLocation, get_str, opencode_session, parse_conversation_head};

pub(super) fn plan(
    source: &ForkSource<'_>,
    options: &ForkOptions<'_>,
    start: &StartLines,
) -> Result<Fork, ForkError> {
    let old = source.location.session.as_str();
    let session = new_session_id(options);
    let messages: Vec<Value> =
        start.lines.iter().filter_map(|line| replace_ids(line, options, old, &session)).collect();
    let row = opencode_session(&source.location.path, old).ok().flatten();
    let first = || parse_conversation_head(Agent::Opencode, &start.lines).title.unwrap_or_default();
    let title = row.as_ref().map_or_else(first, |row| row.title.clone());
    let now = options.now.as_micros() / 1000;
    let document = json!({
        "info": {
            "id": session,
            "slug": row.as_ref().map_or("stepback", |row| &row.slug),
            "projectID": "global",
            "directory": options.cwd.to_string_lossy(),
            "title": format!("{title} (fork)"),
            "version": row.as_ref().map_or("0.0.0", |row| &row.version),
            "time": {"created": now, "updated": now},
        },
        "messages": messages,
    });
    let folder = source.location.path.parent().unwrap_or(Path::new("."));
    let file = folder.join(format!("stepback-{session}.json"));
    let prepare = PrepareCommand {
        command: command_words(["opencode", "import", &file.to_string_lossy()]),
        file: file.clone(),
        location: TranscriptLocation {
            agent: Agent::Opencode,
            path: source.location.path.clone(),
            session: session.clone(),
        },
    };
    let command = match options.mode {
        ForkMode::Interactive => command_words(["opencode", "--session", &session]),
        ForkMode::Prompt(prompt) => {
            let mut command = command_words(["opencode", "run", "--session", &session]);
            push_last_argument(&mut command, prompt);
            command
        }
    };
    let writes = vec![FileWrite { path: file, bytes: document.to_string().into_bytes() }];
    Ok(Fork {
        session,
        kept_lines: 0,
        writes,
        prepare: Some(prepare),
        command,
        cwd: options.cwd.into(),
        note: None,
    })
}

/// Returns a session id in opencode's format: later ids sort first.
fn new_session_id(options: &ForkOptions<'_>) -> String {
    let time = !((options.now.as_micros() / 1000) as u64).wrapping_mul(0x1000) & 0xffff_ffff_ffff;
    format!("ses_{time:012x}{}", derive_suffix(options, "session"))
}

/// Returns a line with new ids. The time in an id is kept, so that the order stays the same.
fn replace_ids(line: &str, options: &ForkOptions<'_>, old: &str, new: &str) -> Option<Value> {
    let read: Value = serde_json::from_str(line).ok()?;
    let mut line = rewrite::replace_value(line, old, new);
    let parts = read.get("parts")?.as_array()?;
    // Answers to a message also contain its id.
    let info = read.get("info")?;
    let ids = [get_str(info, "id"), get_str(info, "parentID")]
        .into_iter()
        .chain(parts.iter().map(|part| get_str(part, "id")));
    let tails = parts.iter().map(|part| get_str(part, "tail_start_id"));
    for id in ids.chain(tails).flatten() {
        line = rewrite::replace_value(&line, id, &derive_id(options, id));
    }
    serde_json::from_str(&line).ok()
}

fn derive_id(options: &ForkOptions<'_>, id: &str) -> String {
    let time: String = id.chars().take(16).collect();
    format!("{time}{}", derive_suffix(options, id))
}

/// Returns fourteen letters and digits derived from the fork and from `of`.
fn derive_suffix(options: &ForkOptions<'_>, seed: &str) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hasher = blake3::Hasher::new();
    hasher.update(&options.id).update(seed.as_bytes());
    hasher.finalize().as_bytes()[..14]
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % 62]))
        .collect()
}
