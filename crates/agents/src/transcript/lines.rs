//! Reads a file of lines that another process appends to.
//!
//! An agent may rewrite its transcript, a user may delete it, a backup may restore an older one. So a cursor stores which
//! file it was and a mark of the first and last bytes read; if any of that differs, reading starts over. Starting over is
//! always correct, only slower.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use super::{NewLines, TranscriptCursor, TranscriptError};

/// Longest line that is kept, in bytes. Longer ones are replaced by a marker with their length.
pub const LINE_LIMIT: usize = 16 << 20;

/// How many bytes at either end of what was read are compared.
const EDGE_BYTES: u64 = 4096;

/// Returns the line that replaces one that was too long to keep.
fn omitted_line_marker(bytes: u64) -> String {
    format!("{{\"stepback\":\"line left out\",\"bytes\":{bytes}}}")
}

/// Whether a line of a chain is the marker of one that was too long to keep.
pub fn is_omitted_line(line: &str) -> bool {
    line.starts_with("{\"stepback\":\"line left out\"")
}

pub(super) fn read_new_lines(
    path: &Path,
    cursor: &TranscriptCursor,
    limit: u64,
) -> Result<NewLines, TranscriptError> {
    let io = |error| TranscriptError::from_io(path, error);
    // Opening a pipe would block until there is a writer.
    if !fs::metadata(path).map_err(io)?.is_file() {
        return Err(io(io::Error::other("not a regular file")));
    }
    let mut file = File::open(path).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    let id = (meta.dev(), meta.ino());
    let grew = cursor.offset > 0
        && cursor.file == id
        && meta.len() >= cursor.offset
        && hash_edges(&file, cursor.offset).map_err(io)? == cursor.seen;
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
    let seen = hash_edges(&file, offset).map_err(io)?;
    let cursor = TranscriptCursor { lines: keep + lines.len(), offset, file: id, seen, marks: Vec::new() };
    Ok(NewLines { keep, lines, cursor })
}

/// Returns the next complete line and its length with the line feed; `None` at the end or if a line is still being written.
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
                omitted_line_marker(length)
            } else {
                String::from_utf8(line)
                    .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
            };
            return Ok(Some((text, length)));
        }
    }
}

/// Returns a mark of the first and the last bytes before `offset`.
fn hash_edges(file: &File, offset: u64) -> io::Result<String> {
    let size = offset.min(EDGE_BYTES);
    let mut bytes = vec![0; size as usize];
    let mut hasher = blake3::Hasher::new();
    for start in [0, offset - size] {
        match file.read_exact_at(&mut bytes, start) {
            Ok(()) => hasher.update(&bytes),
            // The file was truncated meanwhile; the next read starts over.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(String::new()),
            Err(error) => return Err(error),
        };
    }
    Ok(hasher.finalize().to_hex()[..32].to_owned())
}
