//! Reading a file of lines that another process appends to.
//!
//! An agent may rewrite its transcript, a person may delete it, a backup may put an older one back. So a cursor remembers
//! which file it was and how the edges of what it read looked; if any of that differs, reading starts over. Starting over
//! is always right, only slower.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::{Cursor, Fresh, TranscriptError};

/// Longer lines are replaced by a marker that says how long they were.
pub const LINE_LIMIT: usize = 16 << 20;

/// How much of either end of what was read is looked at again.
const EDGE: u64 = 4096;

/// The line that stands in for one that was too long to keep.
fn marker(bytes: u64) -> String {
    format!("{{\"stepback\":\"line left out\",\"bytes\":{bytes}}}")
}

/// Whether a line of a chain is only the marker of one that was too long to keep.
pub fn left_out(line: &str) -> bool {
    line.starts_with("{\"stepback\":\"line left out\"")
}

pub(super) fn read(path: &Path, cursor: &Cursor, limit: u64) -> Result<Fresh, TranscriptError> {
    let io = |error| TranscriptError::io(path, error);
    // Opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(io(io::Error::other("not a regular file")));
    }
    let mut file = File::open(path).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    let id = (meta.dev(), meta.ino());
    let grew = cursor.offset > 0
        && cursor.file == id
        && meta.len() >= cursor.offset
        && edges(&file, cursor.offset).map_err(io)? == cursor.seen;
    let (mut offset, keep) = if grew { (cursor.offset, cursor.lines) } else { (0, 0) };
    file.seek(SeekFrom::Start(offset)).map_err(io)?;
    let mut lines = Vec::new();
    let mut reader = BufReader::with_capacity(64 << 10, (&file).take(limit.saturating_sub(offset)));
    while let Some((line, length)) = next_line(&mut reader).map_err(io)? {
        offset += length;
        if !line.trim().is_empty() {
            lines.push(line);
        }
    }
    let seen = edges(&file, offset).map_err(io)?;
    let cursor = Cursor { lines: keep + lines.len(), offset, file: id, seen, marks: Vec::new() };
    Ok(Fresh { keep, lines, cursor })
}

/// The next complete line and its length with the line feed; `None` at the end or where a line is still being written.
fn next_line(reader: &mut impl BufRead) -> io::Result<Option<(String, u64)>> {
    let (mut line, mut length) = (Vec::new(), 0u64);
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() {
            return Ok(None);
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffer.len(), |at| at + 1);
        length += taken as u64;
        if length as usize <= LINE_LIMIT {
            line.extend_from_slice(&buffer[..end.unwrap_or(taken)]);
        } else {
            line = Vec::new();
        }
        reader.consume(taken);
        if end.is_some() {
            let text = if length as usize > LINE_LIMIT {
                marker(length)
            } else {
                String::from_utf8(line)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
            };
            return Ok(Some((text, length)));
        }
    }
}

/// What the first and the last bytes before `offset` look like.
fn edges(file: &File, offset: u64) -> io::Result<String> {
    let size = offset.min(EDGE);
    let mut bytes = vec![0; size as usize];
    let mut hasher = blake3::Hasher::new();
    for start in [0, offset - size] {
        match file.read_exact_at(&mut bytes, start) {
            Ok(()) => hasher.update(&bytes),
            // It was truncated while we looked; the next reading starts over.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(String::new()),
            Err(error) => return Err(error),
        };
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}
