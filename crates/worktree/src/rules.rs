//! Rules that decide which files are stored and which are only noted.
//!
//! Everything is stored except: directories that tools rebuild (heavy caches), paths that `.stepbackignore` excludes, and
//! files that git ignores once a size budget is used up. `.stepbackignore` has gitignore syntax and takes precedence: a
//! `!node_modules` includes even a heavy cache.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use rustix::fs::{Mode, OFlags};
use stepback_model::hash::{Hash, ObjectKind};

/// The file with the user's own rules.
pub const RULE_FILE: &[u8] = b".stepbackignore";
/// The file with git's rules.
pub const GIT_RULE_FILE: &[u8] = b".gitignore";

/// Files up to this size count against the budget for small files.
pub const SMALL: u64 = 64 << 10;

/// How much of what git ignores is stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Budget {
    /// The largest single ignored file, in bytes.
    pub file: u64,
    /// The most bytes of all small ignored files together.
    pub small_total: u64,
    /// The most bytes of all larger ignored files together.
    pub large_total: u64,
    /// Bytes of git objects that may be copied when they cannot be hard-linked.
    pub git_copy: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { file: 16 << 20, small_total: 128 << 20, large_total: 256 << 20, git_copy: 1 << 30 }
    }
}

impl Budget {
    /// A fingerprint that differs when decisions made under other budgets no longer hold.
    pub fn fingerprint(&self) -> [u8; 32] {
        *Hash::of(ObjectKind::Blob, format!("rules 1 {self:?}").as_bytes()).as_bytes()
    }
}

/// Directories that are caches wherever they are.
const ALWAYS_HEAVY: &[&[u8]] = &[
    b"node_modules",
    b"bower_components",
    b"__pycache__",
    b".venv",
    b".tox",
    b".nox",
    b".mypy_cache",
    b".pytest_cache",
    b".ruff_cache",
    b".gradle",
    b".terraform",
    b".next",
    b".nuxt",
    b".svelte-kit",
    b".turbo",
    b".parcel-cache",
    b".dart_tool",
];

/// Files beside `target` that show it to be build output and not source code.
const TARGET_MAKERS: &[&str] = &["Cargo.toml", "pom.xml", "build.sbt"];

/// Files that mark the directory they are in as a cache.
const CACHE_MARKS: &[&[u8]] = &[b"CACHEDIR.TAG", b"pyvenv.cfg"];

/// Whether a change of the file `name` can change what is stored elsewhere: it holds rules, or a directory is a cache
/// only while it exists (`was_removed`).
pub fn affects_coverage(name: &[u8], was_removed: bool) -> bool {
    name == RULE_FILE
        || name == GIT_RULE_FILE
        || CACHE_MARKS.contains(&name)
        || (was_removed && TARGET_MAKERS.iter().any(|maker| maker.as_bytes() == name))
}

/// Whether a directory called `name` inside `parent` is a heavy cache, judged by its name and its siblings.
pub fn is_heavy(parent: BorrowedFd<'_>, name: &[u8]) -> bool {
    if ALWAYS_HEAVY.contains(&name) {
        return true;
    }
    name == b"target"
        && TARGET_MAKERS.iter().any(|maker| {
            rustix::fs::accessat(parent, *maker, rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty())
                .is_ok()
        })
}

/// Whether a file in a directory marks that directory as a cache: a `CACHEDIR.TAG` with the right signature, or the
/// configuration file of a Python virtual environment.
pub fn marks_cache(dir: BorrowedFd<'_>, name: &[u8]) -> bool {
    const SIGNATURE: &[u8] = b"Signature: 8a477f597d28d172789f06886806bc55";
    match name {
        b"pyvenv.cfg" => true,
        b"CACHEDIR.TAG" => read_small(dir, name, 64).is_some_and(|bytes| bytes.starts_with(SIGNATURE)),
        _ => false,
    }
}

/// Reads up to `limit` bytes of a regular file beneath `dir`, without following links.
pub fn read_small(dir: BorrowedFd<'_>, name: &[u8], limit: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, OsStr::from_bytes(name), flags, Mode::empty()).ok()?;
    let stat = rustix::fs::fstat(&fd).ok()?;
    if rustix::fs::FileType::from_raw_mode(stat.st_mode) != rustix::fs::FileType::RegularFile {
        return None;
    }
    let mut bytes = vec![0u8; limit.min(stat.st_size as usize)];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::io::read(&fd, &mut bytes[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    bytes.truncate(filled);
    Some(bytes)
}

/// The rule files of one directory.
#[derive(Debug, Default)]
pub struct DirRules {
    own: Option<Gitignore>,
    git: Option<Gitignore>,
}

/// What a set of rules says about a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleVerdict {
    /// Excluded.
    Out,
    /// Explicitly included.
    In,
    /// Not mentioned.
    Silent,
}

impl DirRules {
    /// Reads the rule files of the directory `dir`. Lines that are not valid patterns are ignored, as git does.
    pub fn read(dir: &impl AsFd) -> Self {
        let load = |name: &[u8]| {
            let text = read_small(dir.as_fd(), name, 1 << 20)?;
            let mut builder = GitignoreBuilder::new("");
            for line in String::from_utf8_lossy(&text).lines() {
                let _ = builder.add_line(None, line);
            }
            builder.build().ok().filter(|rules| !rules.is_empty())
        };
        Self { own: load(RULE_FILE), git: load(GIT_RULE_FILE) }
    }

    /// What `.stepbackignore` here says about `path` (relative to this directory).
    pub fn own_verdict(&self, path: &[u8], is_dir: bool) -> RuleVerdict {
        rule_verdict(self.own.as_ref(), path, is_dir)
    }

    /// What `.gitignore` here says about `path` (relative to this directory).
    pub fn git_verdict(&self, path: &[u8], is_dir: bool) -> RuleVerdict {
        rule_verdict(self.git.as_ref(), path, is_dir)
    }
}

fn rule_verdict(rules: Option<&Gitignore>, path: &[u8], is_dir: bool) -> RuleVerdict {
    match rules.map(|rules| rules.matched(Path::new(OsStr::from_bytes(path)), is_dir)) {
        None | Some(Match::None) => RuleVerdict::Silent,
        Some(Match::Ignore(_)) => RuleVerdict::Out,
        Some(Match::Whitelist(_)) => RuleVerdict::In,
    }
}
