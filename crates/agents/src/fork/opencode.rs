//! opencode: imports the truncated conversation with opencode's own `import` command.
//!
//! Its server can fork too, but only what its database still has, whole messages at a time, and it would have to be started
//! and reached over a port. An import takes exactly what was recorded, works in any directory, and needs nothing but the
//! command. Every message and part gets a new id, because ids are unique in the whole database and opencode silently skips a
//! row that exists.

use std::path::Path;

use serde_json::{Value, json};

use super::{
    Fork, ForkError, ForkOptions, ForkSource, Mode, Prepare, Start, Write, last_argument, rewrite, words,
};
use crate::agent::Agent;
use crate::transcript::{TranscriptLocation, about, opencode_session, text};

pub(super) fn plan(
    source: &ForkSource<'_>,
    wish: &ForkOptions<'_>,
    start: &Start,
) -> Result<Fork, ForkError> {
    let old = source.place.session.as_str();
    let session = session_id(wish);
    let messages: Vec<Value> =
        start.lines.iter().filter_map(|line| renamed(line, wish, old, &session)).collect();
    let row = opencode_session(&source.place.path, old).ok().flatten();
    let first = || about(Agent::Opencode, &start.lines).title.unwrap_or_default();
    let title = row.as_ref().map_or_else(first, |row| row.title.clone());
    let now = wish.now.as_micros() / 1000;
    let document = json!({
        "info": {
            "id": session,
            "slug": row.as_ref().map_or("stepback", |row| &row.slug),
            "projectID": "global",
            "directory": wish.cwd.to_string_lossy(),
            "title": format!("{title} (fork)"),
            "version": row.as_ref().map_or("0.0.0", |row| &row.version),
            "time": {"created": now, "updated": now},
        },
        "messages": messages,
    });
    let folder = source.place.path.parent().unwrap_or(Path::new("."));
    let file = folder.join(format!("stepback-{session}.json"));
    let prepare = Prepare {
        command: words(["opencode", "import", &file.to_string_lossy()]),
        file: file.clone(),
        place: TranscriptLocation {
            agent: Agent::Opencode,
            path: source.place.path.clone(),
            session: session.clone(),
        },
    };
    let command = match wish.mode {
        Mode::Interactive => words(["opencode", "--session", &session]),
        Mode::Prompt(prompt) => {
            let mut command = words(["opencode", "run", "--session", &session]);
            last_argument(&mut command, prompt);
            command
        }
    };
    let writes = vec![Write { path: file, bytes: document.to_string().into_bytes() }];
    Ok(Fork { session, kept: 0, writes, prepare: Some(prepare), command, cwd: wish.cwd.into(), note: None })
}

/// Returns a session id in opencode's format: later ids sort first.
fn session_id(wish: &ForkOptions<'_>) -> String {
    let time = !((wish.now.as_micros() / 1000) as u64).wrapping_mul(0x1000) & 0xffff_ffff_ffff;
    format!("ses_{time:012x}{}", letters(wish, "session"))
}

/// Returns a line with new ids. The time in an id is kept, so that the order stays the same.
fn renamed(line: &str, wish: &ForkOptions<'_>, old: &str, new: &str) -> Option<Value> {
    let read: Value = serde_json::from_str(line).ok()?;
    let mut line = rewrite::value(line, old, new);
    let parts = read.get("parts")?.as_array()?;
    // Answers to a message also contain its id.
    let info = read.get("info")?;
    let ids = [text(info, "id"), text(info, "parentID")]
        .into_iter()
        .chain(parts.iter().map(|part| text(part, "id")));
    let tails = parts.iter().map(|part| text(part, "tail_start_id"));
    for id in ids.chain(tails).flatten() {
        line = rewrite::value(&line, id, &another(wish, id));
    }
    serde_json::from_str(&line).ok()
}

fn another(wish: &ForkOptions<'_>, id: &str) -> String {
    let time: String = id.chars().take(16).collect();
    format!("{time}{}", letters(wish, id))
}

/// Returns fourteen letters and digits derived from the fork and from `of`.
fn letters(wish: &ForkOptions<'_>, of: &str) -> String {
    const ALPHABET: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let mut hasher = blake3::Hasher::new();
    hasher.update(&wish.id).update(of.as_bytes());
    hasher.finalize().as_bytes()[..14]
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % 62]))
        .collect()
}
