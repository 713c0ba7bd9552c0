//! Git's objects as values: ids, signatures, commits and trees, and their bytes.

use std::fmt;

use sha1::{Digest as _, Sha1};
use stepback_model::hex;

use crate::error::GitError;

/// The id of an object: the SHA-1 of its kind, size and content.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GitOid(pub [u8; 20]);

impl GitOid {
    /// Reads 40 hexadecimal digits.
    pub fn parse(text: &[u8]) -> Option<Self> {
        hex::decode_array(text).map(Self)
    }

    /// The id of an object.
    pub fn of(kind: GitObjectKind, body: &[u8]) -> Self {
        let mut digest = Sha1::new();
        digest.update(format!("{} {}\0", kind.name(), body.len()));
        digest.update(body);
        Self(digest.finalize().into())
    }
}

impl fmt::Display for GitOid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for GitOid {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{self}")
    }
}

/// The kind of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GitObjectKind {
    /// The content of a file, or the target of a link.
    Blob,
    /// A directory.
    Tree,
    /// A commit.
    Commit,
    /// An annotated tag.
    Tag,
}

impl GitObjectKind {
    /// Git's name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Blob => "blob",
            Self::Tree => "tree",
            Self::Commit => "commit",
            Self::Tag => "tag",
        }
    }
}

/// An object that was read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GitObject {
    /// Its kind.
    pub kind: GitObjectKind,
    /// Its content.
    pub body: Vec<u8>,
}

/// A person or program, and a time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GitSignature {
    /// The name; bytes that are not UTF-8 are replaced.
    pub name: String,
    /// The address.
    pub email: String,
    /// Seconds since 1970.
    pub seconds: i64,
}

impl GitSignature {
    /// Reads `NAME <EMAIL> SECONDS ZONE`. What is missing is empty or 0, as in commits of careless programs.
    fn parse(line: &[u8]) -> Self {
        let text = String::from_utf8_lossy(line);
        let (who, time) = text.rsplit_once('>').unwrap_or((&text, ""));
        let (name, email) = who.split_once('<').unwrap_or((who, ""));
        let seconds = time.split_whitespace().next().and_then(|seconds| seconds.parse().ok());
        Self {
            name: name.trim().to_owned(),
            email: email.trim().to_owned(),
            seconds: seconds.unwrap_or_default(),
        }
    }

    /// The signature as a line of a commit, in UTC. Characters that would end the name, the address or the line are left
    /// out, and a time before 1970 is 1970, which git requires.
    fn encode(&self) -> String {
        let clean = |text: &str| -> String {
            let is_kept = |letter: &char| !letter.is_control() && !matches!(letter, '<' | '>');
            let kept: String = text.chars().filter(is_kept).collect();
            kept.trim_matches(|letter: char| letter.is_whitespace() || ".,:;\"'\\".contains(letter))
                .to_owned()
        };
        let name = match clean(&self.name) {
            name if name.is_empty() => "unknown".to_owned(),
            name => name,
        };
        format!("{name} <{}> {} +0000", clean(&self.email), self.seconds.max(0))
    }
}

/// A commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GitCommit {
    /// The files.
    pub tree: GitOid,
    /// The commits before it.
    pub parents: Vec<GitOid>,
    /// Who wrote the change, and when.
    pub author: GitSignature,
    /// Who made the commit, and when.
    pub committer: GitSignature,
    /// The message.
    pub message: Vec<u8>,
}

impl GitCommit {
    /// Reads the content of a commit.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let split = body.windows(2).position(|pair| pair == b"\n\n");
        let (head, message) = match split {
            Some(end) => (&body[..end], body[end + 2..].to_vec()),
            None => (body, Vec::new()),
        };
        let mut tree = None;
        let mut commit = Self {
            tree: GitOid([0; 20]),
            parents: Vec::new(),
            author: GitSignature::default(),
            committer: GitSignature::default(),
            message,
        };
        for line in head.split(|byte| *byte == b'\n') {
            let Some(space) = line.iter().position(|byte| *byte == b' ') else { continue };
            let value = &line[space + 1..];
            match &line[..space] {
                b"tree" => tree = Some(GitOid::parse(value)?),
                b"parent" => commit.parents.push(GitOid::parse(value)?),
                b"author" => commit.author = GitSignature::parse(value),
                b"committer" => commit.committer = GitSignature::parse(value),
                // A continued line begins with a space, so its name is empty.
                _ => {}
            }
        }
        commit.tree = tree?;
        Some(commit)
    }

    /// The content of the commit.
    pub fn encode(&self) -> Vec<u8> {
        let mut head = format!("tree {}\n", self.tree);
        for parent in &self.parents {
            head.push_str(&format!("parent {parent}\n"));
        }
        head.push_str(&format!("author {}\ncommitter {}\n\n", self.author.encode(), self.committer.encode()));
        let mut body = head.into_bytes();
        // Git allows no zero byte in a commit.
        body.extend(self.message.iter().copied().filter(|byte| *byte != 0));
        body
    }

    /// The first line of the message.
    pub fn subject(&self) -> String {
        let text = String::from_utf8_lossy(&self.message);
        text.trim_start().lines().next().unwrap_or_default().trim_end().to_owned()
    }
}

/// The mode of a directory in a tree.
pub const MODE_DIR: u32 = 0o040_000;
/// The mode of a file.
pub const MODE_FILE: u32 = 0o100_644;
/// The mode of a file that can be run.
pub const MODE_EXECUTABLE: u32 = 0o100_755;
/// The mode of a symbolic link.
pub const MODE_LINK: u32 = 0o120_000;
/// The mode of a submodule: a commit of another repository.
pub const MODE_SUBMODULE: u32 = 0o160_000;

/// An entry of a tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GitEntry {
    /// Its mode, such as [`MODE_FILE`].
    pub mode: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// The object.
    pub oid: GitOid,
}

impl GitEntry {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.mode & 0o170_000 == MODE_DIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }
}

/// Reads the content of a tree.
pub fn parse_tree(mut body: &[u8]) -> Option<Vec<GitEntry>> {
    let mut entries = Vec::new();
    while !body.is_empty() {
        let space = body.iter().take(8).position(|byte| *byte == b' ')?;
        let mode = u32::from_str_radix(std::str::from_utf8(&body[..space]).ok()?, 8).ok()?;
        let end = space + 1 + body[space + 1..].iter().position(|byte| *byte == 0)?;
        let oid = body.get(end + 1..end + 21)?;
        let name = body[space + 1..end].to_vec();
        entries.push(GitEntry { mode, name, oid: GitOid(oid.try_into().ok()?) });
        body = &body[end + 21..];
    }
    Some(entries)
}

/// The content of a tree with these entries, in git's order.
pub fn encode_tree(mut entries: Vec<GitEntry>) -> Vec<u8> {
    // A directory sorts as if its name ended with a slash.
    let key = |entry: &GitEntry| {
        let mut key = entry.name.clone();
        if entry.is_dir() {
            key.push(b'/');
        }
        key
    };
    entries.sort_by_cached_key(key);
    let mut body = Vec::new();
    for entry in entries {
        body.extend_from_slice(format!("{:o} ", entry.mode).as_bytes());
        body.extend_from_slice(&entry.name);
        body.push(0);
        body.extend_from_slice(&entry.oid.0);
    }
    body
}

/// Reads an object as a commit.
pub(crate) fn require_commit(oid: GitOid, object: &GitObject) -> Result<GitCommit, GitError> {
    let commit = (object.kind == GitObjectKind::Commit).then(|| GitCommit::parse(&object.body)).flatten();
    commit.ok_or_else(|| GitError::damaged(format!("object {oid}"), "it is not a commit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_read_as_it_was_written() {
        let commit = GitCommit {
            tree: GitOid([7; 20]),
            parents: vec![GitOid([1; 20]), GitOid([2; 20])],
            author: GitSignature { name: "Ann".into(), email: "ann@example.org".into(), seconds: 12 },
            committer: GitSignature { name: "Bob".into(), email: String::new(), seconds: 13 },
            message: b"subject\n\nbody\n".to_vec(),
        };
        assert_eq!(GitCommit::parse(&commit.encode()).unwrap(), commit);
        assert_eq!(commit.subject(), "subject");
        assert_eq!(GitCommit::parse(b"tree 00"), None);
        assert_eq!(GitCommit::parse(b"\n\nmessage"), None);
    }

    #[test]
    fn a_name_cannot_end_its_line() {
        let hostile =
            GitSignature { name: "a <b>\ncommitter x".into(), email: "e>\n\nmessage\0".into(), seconds: -5 };
        let line = hostile.encode();
        assert_eq!(line, "a bcommitter x <emessage> 0 +0000");
        assert_eq!(
            GitSignature { name: "\n".into(), ..GitSignature::default() }.encode(),
            "unknown <> 0 +0000"
        );
        // Such as careless programs write.
        assert_eq!(GitSignature::parse(b"only a name").name, "only a name");
        assert_eq!(GitSignature::parse(b"n <e> nonsense").seconds, 0);
    }

    #[test]
    fn trees_are_sorted_as_git_sorts_them() {
        let entry = |mode, name: &str| GitEntry { mode, name: name.into(), oid: GitOid([3; 20]) };
        let entries = vec![entry(MODE_DIR, "a"), entry(MODE_FILE, "a.b"), entry(MODE_FILE, "a0")];
        let sorted = parse_tree(&encode_tree(entries)).unwrap();
        let names: Vec<_> = sorted.iter().map(|entry| entry.name.as_slice()).collect();
        assert_eq!(names, [b"a.b".as_slice(), b"a", b"a0"]);
        for damaged in [b"100644 a".as_slice(), b"999 a\0", b"100644 a\0short"] {
            assert_eq!(parse_tree(damaged), None);
        }
    }
}
