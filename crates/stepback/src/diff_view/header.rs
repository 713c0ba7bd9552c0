//! The lines above the hunks, as git writes them, and git's quoting of names.
//!
//! For a patch, names are quoted exactly like git with `core.quotePath` on, because `git apply` has to find the file.
//! For people, names are shown as they are: `RelPath::display` has made them safe.

use std::io::{self, Write};

use stepback_model::quantity;

use super::compare::{BlobPair, ContentChange};
use super::paint::{Palette, write_styled};
use super::{DiffStyle, FileDiff};

/// Undoes the escaping of `RelPath::display`.
///
/// That escaping is unambiguous: a backslash in a name is always doubled. Text that it cannot have made is kept.
pub(super) fn unescape_display(shown: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(shown.len());
    let mut rest = shown;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let tail = &rest[at + 1..];
        let (bytes, used): (Vec<u8>, usize) = match tail.as_bytes().first() {
            Some(b'\\') => (vec![b'\\'], 1),
            Some(b'n') => (vec![b'\n'], 1),
            Some(b't') => (vec![b'\t'], 1),
            Some(b'r') => (vec![b'\r'], 1),
            Some(b'x') => match tail.get(1..3).and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                Some(byte) => (vec![byte], 3),
                None => (vec![b'\\'], 0),
            },
            Some(b'u') => match parse_unicode_escape(tail) {
                Some((c, used)) => (c.to_string().into_bytes(), used),
                None => (vec![b'\\'], 0),
            },
            _ => (vec![b'\\'], 0),
        };
        out.extend_from_slice(&bytes);
        rest = &tail[used..];
    }
    out.extend_from_slice(rest.as_bytes());
    out
}

/// Reads `u{1b}`; returns the character and the length.
fn parse_unicode_escape(text: &str) -> Option<(char, usize)> {
    let hex = text.strip_prefix("u{")?;
    let end = hex.find('}')?;
    let c = char::from_u32(u32::from_str_radix(&hex[..end], 16).ok()?)?;
    Some((c, end + 3))
}

/// Quotes a name as git does: plain if it can be, else in double quotes with octal escapes.
pub(super) fn quote_git_path(prefix: &str, name: &[u8]) -> String {
    let plain = |byte: &u8| (b' '..=b'~').contains(byte) && !matches!(byte, b'"' | b'\\');
    if name.iter().all(plain) {
        return format!("{prefix}{}", String::from_utf8_lossy(name));
    }
    let mut out = format!("\"{prefix}");
    for byte in name {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\\' => out.push_str("\\\\"),
            0x07 => out.push_str("\\a"),
            0x08 => out.push_str("\\b"),
            b'\t' => out.push_str("\\t"),
            b'\n' => out.push_str("\\n"),
            0x0b => out.push_str("\\v"),
            0x0c => out.push_str("\\f"),
            b'\r' => out.push_str("\\r"),
            byte if plain(byte) => out.push(char::from(*byte)),
            byte => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    out
}

/// The two names of a difference, ready to print.
pub(super) struct HeaderNames {
    old: String,
    new: String,
    /// Without the `a/` and `b/`, for `rename from` and `rename to`.
    renamed: Option<(String, String)>,
}

impl HeaderNames {
    pub fn new(diff: &FileDiff, style: &DiffStyle) -> Self {
        let show = |prefix: &str, shown: &str| {
            if style.is_for_terminal() {
                format!("{prefix}{shown}")
            } else {
                quote_git_path(prefix, &unescape_display(shown))
            }
        };
        let before = diff.old_path.as_deref().unwrap_or(&diff.path);
        Self {
            old: show("a/", before),
            new: show("b/", &diff.path),
            renamed: diff.old_path.as_deref().map(|from| (show("", from), show("", &diff.path))),
        }
    }
}

/// Writes everything above the hunks of a part: what happened to the file as a whole, and the two names.
///
/// Writes nothing if nothing happened.
pub(super) fn write(
    out: &mut dyn Write,
    names: &HeaderNames,
    part: &BlobPair<'_>,
    body: &ContentChange<'_>,
    style: &DiffStyle,
) -> io::Result<()> {
    let modes = match (&part.old, &part.new) {
        (Some(old), Some(new)) if old.mode != new.mode => {
            vec![format!("old mode {:06o}", old.mode), format!("new mode {:06o}", new.mode)]
        }
        (None, Some(new)) => vec![format!("new file mode {:06o}", new.mode)],
        (Some(old), None) => vec![format!("deleted file mode {:06o}", old.mode)],
        _ => vec![],
    };
    let moved = names.renamed.as_ref().filter(|_| part.old.is_some() && part.new.is_some());
    if modes.is_empty() && moved.is_none() && matches!(body, ContentChange::Unchanged) {
        return Ok(());
    }
    // A part of a type change has no counterpart under the other name.
    let (old, new) = match (&part.old, &part.new) {
        (None, _) if moved.is_none() => (names.new.replacen("b/", "a/", 1), names.new.clone()),
        (_, None) => (names.old.clone(), names.old.replacen("a/", "b/", 1)),
        _ => (names.old.clone(), names.new.clone()),
    };
    let mut lines = vec![format!("diff --git {old} {new}")];
    lines.extend(modes);
    if let Some((from, to)) = moved {
        if matches!(body, ContentChange::Unchanged) {
            lines.push("similarity index 100%".to_owned());
        }
        lines.push(format!("rename from {from}"));
        lines.push(format!("rename to {to}"));
    }
    let old = if part.old.is_some() { old } else { "/dev/null".to_owned() };
    let new = if part.new.is_some() { new } else { "/dev/null".to_owned() };
    match body {
        ContentChange::Unchanged => {}
        ContentChange::Opaque => push_opaque_lines(&mut lines, part, &old, &new, style),
        ContentChange::Text(_) => {
            // Like git, a tab after a name with spaces: older tools cut the name at the first space otherwise.
            let end = |name: &str| if !style.is_for_terminal() && name.contains(' ') { "\t" } else { "" };
            lines.push(format!("--- {old}{}", end(&old)));
            lines.push(format!("+++ {new}{}", end(&new)));
        }
    }
    for line in lines {
        write_styled(out, &line, Palette::header(style))?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Adds a line for contents that differ but are not shown.
///
/// In a patch the line must be git's own, so that `git apply` refuses the patch instead of creating an empty file; the
/// sizes follow on a line that git skips.
fn push_opaque_lines(lines: &mut Vec<String>, part: &BlobPair<'_>, old: &str, new: &str, style: &DiffStyle) {
    let blobs = [&part.old, &part.new];
    let unloaded = blobs.iter().any(|blob| blob.is_some_and(|blob| blob.bytes.is_none()));
    let what = if unloaded { "Files" } else { "Binary files" };
    let why = if unloaded { "too large to compare, " } else { "" };
    let sizes = blobs.map(|blob| blob.map(|blob| quantity::bytes(blob.size)));
    let sizes = match sizes {
        [Some(old), Some(new)] => format!("{old} → {new}"),
        [Some(size), None] | [None, Some(size)] => size,
        [None, None] => String::new(),
    };
    if style.is_for_terminal() {
        lines.push(format!("{what} {old} and {new} differ ({why}{sizes})"));
    } else {
        lines.push(format!("{what} {old} and {new} differ"));
        lines.push(format!("# {why}{sizes}"));
    }
}
