//! Workspace-relative paths: raw bytes with `/` between components, never absolute, never `.` or `..`.
//!
//! File names on Unix are bytes, not text. `RelPath` keeps them exact and only turns into text for display, with bytes
//! that are not UTF-8 and control characters escaped (`\xff`, `\n`), so that no listing can be spoofed by a name.

use std::borrow::Cow;
use std::fmt;

use crate::escape::{escape, is_hidden};

/// A path relative to a workspace root. The empty path is the root itself.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct RelPath(Vec<u8>);

/// Why bytes are not a workspace-relative path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// The path starts with `/`.
    #[error("the path is absolute")]
    Absolute,
    /// A component is `..`, which could leave the workspace.
    #[error("the path contains '..'")]
    Parent,
    /// A component is empty or `.`, or contains a NUL byte.
    #[error("the path has an empty, '.' or NUL component")]
    BadComponent,
}

/// Whether `name` can be one component of a path.
pub fn is_valid_name(name: &[u8]) -> bool {
    !name.is_empty() && name != b"." && name != b".." && !name.iter().any(|byte| matches!(byte, b'/' | 0))
}

impl RelPath {
    /// The workspace root.
    pub const fn root() -> Self {
        Self(Vec::new())
    }

    /// Checks and wraps `bytes`.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<Self, PathError> {
        let bytes = bytes.into();
        if bytes.is_empty() {
            return Ok(Self::root());
        }
        if bytes[0] == b'/' {
            return Err(PathError::Absolute);
        }
        for name in bytes.split(|byte| *byte == b'/') {
            if name == b".." {
                return Err(PathError::Parent);
            }
            if !is_valid_name(name) {
                return Err(PathError::BadComponent);
            }
        }
        Ok(Self(bytes))
    }

    /// The path one level below: `self/name`. `name` must be a valid component (scanners and decoders check it).
    pub fn join(&self, name: &[u8]) -> Self {
        debug_assert!(is_valid_name(name));
        let mut bytes = Vec::with_capacity(self.0.len() + 1 + name.len());
        bytes.extend_from_slice(&self.0);
        if !bytes.is_empty() {
            bytes.push(b'/');
        }
        bytes.extend_from_slice(name);
        Self(bytes)
    }

    /// The exact bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is the workspace root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The components from the top down.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
    }

    /// Number of components.
    pub fn depth(&self) -> usize {
        self.components().count()
    }

    /// Directory part and last component; `None` for the root.
    pub fn split_last(&self) -> Option<(RelPath, &[u8])> {
        if self.is_root() {
            return None;
        }
        match self.0.iter().rposition(|byte| *byte == b'/') {
            Some(slash) => Some((Self(self.0[..slash].to_vec()), &self.0[slash + 1..])),
            None => Some((Self::root(), &self.0)),
        }
    }

    /// Whether `self` is `ancestor` or lies below it.
    pub fn starts_with(&self, ancestor: &RelPath) -> bool {
        ancestor.is_root()
            || (self.0.starts_with(&ancestor.0)
                && (self.0.len() == ancestor.0.len() || self.0[ancestor.0.len()] == b'/'))
    }

    /// Orders paths so that a directory stands right before its contents: `a`, `a/b`, `a.c`.
    pub fn cmp_by_components(&self, other: &RelPath) -> std::cmp::Ordering {
        // `/` sorts below every other byte; NUL cannot occur in a name.
        let key = |byte: &u8| if *byte == b'/' { 0 } else { *byte };
        self.0.iter().map(key).cmp(other.0.iter().map(key))
    }

    /// Text for display and JSON: UTF-8 as it is, other bytes and control characters escaped.
    pub fn display(&self) -> Cow<'_, str> {
        display_bytes(&self.0)
    }
}

/// Converts the bytes of a name to text that is safe on a terminal.
pub fn display_bytes(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && !text.chars().any(|c| c == '\t' || c == '\\' || is_hidden(c))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => out.push_str("\\\\"),
                c if c == '\t' || is_hidden(c) => out.push_str(&escape(c)),
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    Cow::Owned(out)
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_root() { "." } else { "" })?;
        f.write_str(&self.display())
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.display())
    }
}

impl serde::Serialize for RelPath {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.display())
    }
}

impl<C> minicbor::Encode<C> for RelPath {
    fn encode<W: minicbor::encode::Write>(
        &self,
        e: &mut minicbor::Encoder<W>,
        _: &mut C,
    ) -> Result<(), minicbor::encode::Error<W::Error>> {
        e.bytes(&self.0)?.ok()
    }
}

impl<'b, C> minicbor::Decode<'b, C> for RelPath {
    fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
        Self::parse(d.bytes()?).map_err(minicbor::decode::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_paths_are_refused() {
        assert_eq!(RelPath::parse("/etc/passwd"), Err(PathError::Absolute));
        assert_eq!(RelPath::parse("a/../b"), Err(PathError::Parent));
        assert_eq!(RelPath::parse("a//b"), Err(PathError::BadComponent));
        assert_eq!(RelPath::parse("./a"), Err(PathError::BadComponent));
        assert_eq!(RelPath::parse(*b"a\0b"), Err(PathError::BadComponent));
        assert!(RelPath::parse("a/b c/…").is_ok());
    }

    #[test]
    fn names_cannot_forge_a_listing() {
        let path = RelPath::parse(*b"a\n\x1b[31mb\xff\\").unwrap();
        assert_eq!(path.display(), "a\\n\\u{1b}[31mb\\xff\\\\");
        assert_eq!(RelPath::parse("plain/ü").unwrap().display(), "plain/ü");
    }

    #[test]
    fn ancestors_are_whole_components() {
        let file = RelPath::parse("src/main.rs").unwrap();
        assert!(file.starts_with(&RelPath::parse("src").unwrap()));
        assert!(!file.starts_with(&RelPath::parse("sr").unwrap()));
        assert!(file.starts_with(&RelPath::root()));
        assert_eq!(file.split_last(), Some((RelPath::parse("src").unwrap(), &b"main.rs"[..])));
    }
}
