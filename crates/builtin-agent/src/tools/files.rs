//! The tools `read`, `write`, `edit` and `list`.

use std::fs::{self, File};
use std::io::Read;
use std::path::Path;

use super::clip::clipped;
use super::path_guard;
use super::{ToolInput, ToolResult};

/// Largest file that is read or edited, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Most entries of a directory that are listed.
const MAX_LISTED_ENTRIES: usize = 1000;

/// Returns the text of a file.
fn text_of(path: &Path, name: &str) -> Result<String, String> {
    let facts = fs::metadata(path).map_err(|error| format!("cannot read {name}: {error}"))?;
    if facts.is_dir() {
        return Err(format!("{name} is a directory; use list"));
    }
    if !facts.is_file() {
        // Reading a pipe or a device may never end.
        return Err(format!("{name} is not a regular file"));
    }
    if facts.len() > MAX_FILE_BYTES {
        return Err(format!(
            "{name} has {} bytes, more than the {MAX_FILE_BYTES} that are read",
            facts.len()
        ));
    }
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {name}: {error}"))?;
    let size = bytes.len();
    String::from_utf8(bytes).map_err(|_| format!("{name} is not text ({size} bytes)"))
}

/// Reads a file, or some of its lines.
pub fn read(root: &Path, given: &ToolInput<'_>) -> Result<ToolResult, String> {
    let name = given.text("path")?;
    let text = text_of(&path_guard::resolve_path(root, name)?, name)?;
    let (offset, limit) = (given.number("offset")?, given.number("limit")?);
    if offset.is_none() && limit.is_none() {
        return Ok(ToolResult::good(clipped(&text)));
    }
    let first = usize::try_from(offset.unwrap_or(1).max(1)).unwrap_or(usize::MAX) - 1;
    let most = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let lines: Vec<&str> = text.split_inclusive('\n').skip(first).take(most).collect();
    Ok(ToolResult::good(clipped(&lines.concat())))
}

/// Writes a file and creates the directories above it.
pub fn write(root: &Path, given: &ToolInput<'_>) -> Result<ToolResult, String> {
    let (name, content) = (given.text("path")?, given.any_text("content")?);
    let path = path_guard::resolve_path(root, name)?;
    must_be_a_file(&path, name)?;
    let io = |error: std::io::Error| format!("cannot write {name}: {error}");
    path_guard::write_file(root, &path, content.as_bytes()).map_err(io)?;
    Ok(ToolResult::good(format!("wrote {} bytes to {name}", content.len())))
}

/// Replaces a text that occurs exactly once.
pub fn edit(root: &Path, given: &ToolInput<'_>) -> Result<ToolResult, String> {
    let (name, old, new) = (given.text("path")?, given.any_text("old")?, given.any_text("new")?);
    if old.is_empty() {
        return Err("\"old\" is empty; specify the text to replace, or use write".into());
    }
    let path = path_guard::resolve_path(root, name)?;
    let text = text_of(&path, name)?;
    match text.matches(old).count() {
        0 => return Err(format!("\"old\" not found in {name}; read the file first")),
        1 => {}
        many => return Err(format!("\"old\" occurs {many} times in {name}; add lines around it")),
    }
    path_guard::write_file(root, &path, text.replacen(old, new, 1).as_bytes())
        .map_err(|error| format!("cannot write {name}: {error}"))?;
    Ok(ToolResult::good(format!("edited {name}")))
}

fn must_be_a_file(path: &Path, name: &str) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(facts) if facts.is_dir() => Err(format!("{name} is a directory")),
        Ok(facts) if !facts.is_file() => Err(format!("{name} is not a regular file")),
        _ => Ok(()),
    }
}

/// Lists a directory.
pub fn list(root: &Path, given: &ToolInput<'_>) -> Result<ToolResult, String> {
    let name = given.optional("path")?.unwrap_or(".");
    let path = path_guard::resolve_path(root, name)?;
    let entries = fs::read_dir(&path).map_err(|error| format!("cannot list {name}: {error}"))?;
    let mut lines = Vec::new();
    for entry in entries.flatten() {
        let called = entry.file_name().to_string_lossy().into_owned();
        lines.push(match entry.file_type() {
            Ok(kind) if kind.is_dir() => format!("{called}/"),
            Ok(kind) if kind.is_symlink() => {
                let to = fs::read_link(entry.path()).unwrap_or_default();
                format!("{called} -> {}", to.display())
            }
            _ => format!("{called} ({} bytes)", entry.metadata().map_or(0, |facts| facts.len())),
        });
    }
    lines.sort();
    let more = lines.len().saturating_sub(MAX_LISTED_ENTRIES);
    lines.truncate(MAX_LISTED_ENTRIES);
    if more > 0 {
        lines.push(format!("[… {more} more left out …]"));
    }
    let text = if lines.is_empty() { "[empty]".into() } else { lines.join("\n") };
    Ok(ToolResult::good(clipped(&text)))
}
