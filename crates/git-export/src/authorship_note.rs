//! The format of authorship notes, `authorship/3.0.0`: which lines of a commit's files were written by which session.
//!
//! A note has a text part, with entries below the path of each file, then a line `---`, then an object in JSON that says
//! who the keys of the entries are. What other programs wrote is kept as it is: lines of the text part byte for byte, and
//! values of the object in their own spelling.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use stepback_model::hex;

/// The version of the format that is written.
pub const SCHEMA: &str = "authorship/3.0.0";
/// The versions that are read begin with this.
const SCHEMA_FAMILY: &str = "authorship/3.";
/// The line between the two parts.
const DIVIDER: &str = "---";
/// The mark of our own sessions in the object.
pub const OWN_ATTRIBUTE: &str = "stepback_session";

/// The key of a session: the beginning of the SHA-256 of the agent and its own id of the session.
pub fn session_key(agent: &str, conversation: &str) -> String {
    format!("s_{}", short_digest(&format!("{agent}:{conversation}")))
}

/// The key of a person.
pub fn human_key(author: &str) -> String {
    format!("h_{}", short_digest(author))
}

/// The key of a step of a session.
pub fn trace_key(step: &str) -> String {
    format!("t_{}", short_digest(step))
}

/// The first 14 hexadecimal digits of a SHA-256.
fn short_digest(text: &str) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..7])
}

/// Some lines of a file with one author.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoteEntry {
    /// Who: `s_…::t_…`, `h_…`, or the key of an older version.
    pub key: String,
    /// The first and last line of each range, counted from 1.
    pub ranges: Vec<(u64, u64)>,
    /// The line of the note, with its indentation.
    pub raw: String,
}

impl NoteEntry {
    /// The entry for some lines, which are in order.
    pub fn new(key: String, lines: &[u64]) -> Self {
        let ranges = ranges_of(lines);
        let described: Vec<String> = ranges
            .iter()
            .map(|(first, last)| if first == last { first.to_string() } else { format!("{first}-{last}") })
            .collect();
        let raw = format!("  {key} {}", described.join(","));
        Self { key, ranges, raw }
    }

    /// The part of the key that the object explains.
    pub fn author_key(&self) -> &str {
        self.key.split("::").next().unwrap_or_default()
    }

    fn parse(line: &str) -> Option<Self> {
        let (key, ranges) = line.strip_prefix("  ")?.rsplit_once(' ')?;
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            let range = (first.parse().ok()?, last.parse().ok()?);
            (range.0 >= 1 && range.0 <= range.1).then_some(range)
        };
        let ranges = ranges.split(',').map(range).collect::<Option<Vec<(u64, u64)>>>()?;
        Some(Self { key: key.to_owned(), ranges, raw: line.to_owned() })
    }
}

/// Lines that follow one another, as ranges.
fn ranges_of(lines: &[u64]) -> Vec<(u64, u64)> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for line in lines {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == *line => *last = *line,
            _ => ranges.push((*line, *line)),
        }
    }
    ranges
}

/// The lines of one file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NoteFile {
    /// The path.
    pub path: String,
    /// The line of the note.
    raw: String,
    /// Who wrote which lines.
    pub entries: Vec<NoteEntry>,
}

/// The object after the text part, with the values of other programs as they wrote them.
type RawObject = BTreeMap<String, Box<RawValue>>;

/// An authorship note.
#[derive(Clone, Debug, Default)]
pub struct AuthorshipNote {
    /// The files, in order.
    pub files: Vec<NoteFile>,
    object: RawObject,
}

/// Who a key of a note is, as its object says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NoteAuthor {
    /// The agent.
    pub agent: Option<String>,
    /// The agent's own id of the session.
    pub conversation: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// The person.
    pub human: Option<String>,
}

impl AuthorshipNote {
    /// Creates an empty note for a commit.
    pub fn new(commit: &str) -> Self {
        let mut note = Self::default();
        note.set("schema_version", &serde_json::json!(SCHEMA));
        note.set("base_commit_sha", &serde_json::json!(commit));
        note.set("prompts", &serde_json::json!({}));
        note
    }

    /// Reads a note; the error says what it is not.
    pub fn parse(text: &str) -> Result<Self, String> {
        // A path may be `---`, so the last such line before an object is the divider.
        let lines: Vec<&str> = text.lines().collect();
        let divider = lines
            .iter()
            .enumerate()
            .filter(|(_, line)| **line == DIVIDER)
            .map(|(index, _)| index)
            .find(|index| lines.get(index + 1).is_some_and(|next| next.trim_start().starts_with('{')));
        let divider = divider.ok_or("it has no line --- before an object")?;
        let object: RawObject = serde_json::from_str(&lines[divider + 1..].join("\n"))
            .map_err(|error| format!("its object cannot be read: {error}"))?;
        let version =
            object.get("schema_version").and_then(|raw| serde_json::from_str::<String>(raw.get()).ok());
        let version = version.ok_or("it has no schema_version")?;
        if !version.starts_with(SCHEMA_FAMILY) {
            return Err(format!("its schema_version is {version:?}"));
        }
        let mut files: Vec<NoteFile> = Vec::new();
        for line in lines[..divider].iter().filter(|line| !line.trim().is_empty()) {
            if !line.starts_with("  ") {
                let path = line.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(line);
                files.push(NoteFile { path: path.to_owned(), raw: (*line).to_owned(), entries: Vec::new() });
                continue;
            }
            let entry =
                NoteEntry::parse(line).ok_or_else(|| format!("it has an unreadable entry: {line:?}"))?;
            let file = files.last_mut().ok_or("an entry is not below the path of a file")?;
            file.entries.push(entry);
        }
        Ok(Self { files, object })
    }

    /// The note as text.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        for file in self.files.iter().filter(|file| !file.entries.is_empty()) {
            text.push_str(&format!("{}\n", file.raw));
            file.entries.iter().for_each(|entry| text.push_str(&format!("{}\n", entry.raw)));
        }
        // Writing strings and raw values cannot fail.
        let object = serde_json::to_string_pretty(&self.object).unwrap_or_default();
        format!("{text}{DIVIDER}\n{object}")
    }

    /// The value of a field of the object.
    fn get(&self, name: &str) -> serde_json::Value {
        let raw = self.object.get(name).and_then(|raw| serde_json::from_str(raw.get()).ok());
        raw.unwrap_or_default()
    }

    fn set(&mut self, name: &str, value: &serde_json::Value) {
        if let Ok(raw) = serde_json::value::to_raw_value(value) {
            self.object.insert(name.to_owned(), raw);
        }
    }

    /// Sets who a key is, in the map `field` of the object; other keys keep their values.
    fn set_in(&mut self, field: &str, key: &str, value: &serde_json::Value) {
        let known = self.object.get(field).and_then(|raw| serde_json::from_str::<RawObject>(raw.get()).ok());
        let mut map = known.unwrap_or_default();
        if let Ok(raw) = serde_json::value::to_raw_value(value) {
            map.insert(key.to_owned(), raw);
        }
        if let Ok(raw) = serde_json::value::to_raw_value(&map) {
            self.object.insert(field.to_owned(), raw);
        }
    }

    /// Who a key is.
    pub fn author(&self, key: &str) -> NoteAuthor {
        let text = |value: &serde_json::Value| value.as_str().map(ToOwned::to_owned);
        for field in ["sessions", "prompts"] {
            let found = &self.get(field)[key];
            if found.is_object() {
                let agent = &found["agent_id"];
                return NoteAuthor {
                    agent: text(&agent["tool"]),
                    conversation: text(&agent["id"]),
                    model: text(&agent["model"]),
                    human: text(&found["human_author"]),
                };
            }
        }
        NoteAuthor { human: text(&self.get("humans")[key]["author"]), ..NoteAuthor::default() }
    }

    /// Whether stepback wrote the entries of a key.
    fn is_own(&self, key: &str) -> bool {
        let field = if key.starts_with("h_") { "humans" } else { "sessions" };
        !self.get(field)[key]["custom_attributes"][OWN_ATTRIBUTE].is_null()
    }

    /// Takes the entries out that stepback wrote, so that they can be written again.
    pub fn remove_own(&mut self) {
        let files = std::mem::take(&mut self.files);
        for mut file in files {
            file.entries.retain(|entry| !self.is_own(entry.author_key()));
            self.files.push(file);
        }
    }

    /// Whether an entry covers a line.
    pub fn covers(&self, path: &str, line: u64) -> bool {
        let files = self.files.iter().filter(|file| file.path == path);
        files
            .flat_map(|file| &file.entries)
            .flat_map(|entry| &entry.ranges)
            .any(|(first, last)| (*first..=*last).contains(&line))
    }

    /// Whether another program has entries in the note.
    pub fn has_entries(&self) -> bool {
        self.files.iter().any(|file| !file.entries.is_empty())
    }

    /// Adds an entry.
    pub fn add(&mut self, path: &str, entry: NoteEntry) {
        if let Some(file) = self.files.iter_mut().find(|file| file.path == path) {
            file.entries.push(entry);
            return;
        }
        let raw = match path.contains([' ', '\t']) {
            true => format!("\"{path}\""),
            false => path.to_owned(),
        };
        self.files.push(NoteFile { path: path.to_owned(), raw, entries: vec![entry] });
    }

    /// Says who a session is.
    pub fn describe_session(&mut self, key: &str, author: &NoteAuthor, session: &str) {
        let value = serde_json::json!({
            "agent_id": {
                "tool": author.agent.as_deref().unwrap_or("unknown"),
                "id": author.conversation.as_deref().unwrap_or(session),
                "model": author.model.as_deref().unwrap_or("unknown"),
            },
            "human_author": author.human,
            "custom_attributes": { OWN_ATTRIBUTE: session },
        });
        self.set_in("sessions", key, &value);
    }

    /// Says who a person is.
    pub fn describe_human(&mut self, key: &str, author: &str) {
        let value = serde_json::json!({ "author": author, "custom_attributes": { OWN_ATTRIBUTE: "person" } });
        self.set_in("humans", key, &value);
    }
}

/// Whether a path can be in a note: it is one line of text, and cannot be taken for an entry or for quotes.
pub fn is_writable_path(path: &[u8]) -> bool {
    std::str::from_utf8(path).is_ok_and(|path| {
        !path.contains('"')
            && !path.starts_with(' ')
            && path != DIVIDER
            && !path.chars().any(char::is_control)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOREIGN: &str = "src/a.rs\n  s_1b36c35afd9ad7::t_7cfed781858af0 1-3,8\n  h_9e71e8b09f7cf2 4\n\"with space\"\n  d4a7828bfdafe456 5-6\n---\n{\"schema_version\":\"authorship/3.0.1\",\"git_ai_version\":\"1.6\",\"base_commit_sha\":\"ab\",\"prompts\":{\"d4a7828bfdafe456\":{\"agent_id\":{\"tool\":\"cursor\",\"id\":\"x\",\"model\":\"m\"},\"huge\":1.50e2}},\"humans\":{\"h_9e71e8b09f7cf2\":{\"author\":\"Ann <a@b>\"}}}";

    #[test]
    fn what_others_wrote_is_kept() {
        let mut note = AuthorshipNote::parse(FOREIGN).unwrap();
        assert!(note.covers("src/a.rs", 8) && !note.covers("src/a.rs", 7) && note.covers("with space", 6));
        note.add("src/a.rs", NoteEntry::new("s_x::t_y".into(), &[10, 11, 12, 20]));
        note.describe_session("s_x", &NoteAuthor::default(), "ours");
        let text = note.encode();
        assert!(text.starts_with("src/a.rs\n  s_1b36c35afd9ad7::t_7cfed781858af0 1-3,8\n  h_9e71e8b09f7cf2 4\n  s_x::t_y 10-12,20\n\"with space\"\n  d4a7828bfdafe456 5-6\n---\n{"), "{text}");
        // Values in their own spelling.
        assert!(text.contains("\"huge\":1.50e2") && text.contains("\"git_ai_version\": \"1.6\""), "{text}");
        let mut again = AuthorshipNote::parse(&text).unwrap();
        assert_eq!(again.author("d4a7828bfdafe456").agent.as_deref(), Some("cursor"));
        assert_eq!(again.author("h_9e71e8b09f7cf2").human.as_deref(), Some("Ann <a@b>"));
        again.remove_own();
        assert!(!again.covers("src/a.rs", 10) && again.covers("src/a.rs", 4));
    }

    #[test]
    fn other_formats_are_refused() {
        for text in [
            "",
            "just words",
            "---\n",
            "---\n{}",
            "---\n{\"schema_version\": \"authorship/4.0.0\"}",
            "  s_1::t_1 1\n---\n{\"schema_version\": \"authorship/3.0.0\"}",
            "a\n  s_1::t_1\n---\n{\"schema_version\": \"authorship/3.0.0\"}",
            "a\n  s_1::t_1 9-3\n---\n{\"schema_version\": \"authorship/3.0.0\"}",
            "a\n  s_1::t_1 0\n---\n{\"schema_version\": \"authorship/3.0.0\"}",
            "a\n  s 99999999999999999999999\n---\n{\"schema_version\": \"authorship/3.0.0\"}",
        ] {
            assert!(AuthorshipNote::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn keys_are_digests() {
        let key = session_key("claude", "4f2a");
        assert_eq!((key.len(), &key[..2]), (16, "s_"));
        assert_ne!(key, session_key("claude", "4f2b"));
        for path in ["a\nb", "\"", " x", "---", "a\u{1b}"] {
            assert!(!is_writable_path(path.as_bytes()), "{path}");
        }
        assert!(is_writable_path("with space/ä".as_bytes()) && !is_writable_path(b"\xff"));
    }
}
