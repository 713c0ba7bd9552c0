//! An open directory with its ancestors, and the rules that apply in it.

use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use rustix::fs::{AtFlags, Mode, OFlags};
use stepback_model::path::RelPath;
use stepback_model::tree::SkipReason;

use crate::git::GitPlace;
use crate::rules::{self, DirRules, RuleVerdict};

pub(super) const DIR_FLAGS: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK);

/// The part of the workspace a directory belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum DirKind {
    /// The user's files.
    Work,
    /// A git directory.
    Git,
    /// The objects of a git directory.
    Objects,
}

/// An open directory and its ancestors.
#[derive(Debug)]
pub(super) struct DirNode {
    pub parent: Option<Arc<DirNode>>,
    pub name: Vec<u8>,
    pub fd: OwnedFd,
    pub area: DirKind,
    rules: OnceLock<DirRules>,
    ignored: OnceLock<bool>,
}

impl DirNode {
    pub fn new(parent: Option<Arc<DirNode>>, name: Vec<u8>, fd: OwnedFd, area: DirKind) -> Self {
        Self { parent, name, fd, area, rules: OnceLock::new(), ignored: OnceLock::new() }
    }

    /// Opens a subdirectory; fails if it is a link.
    pub fn open(&self, name: &[u8]) -> rustix::io::Result<OwnedFd> {
        rustix::fs::openat(&self.fd, OsStr::from_bytes(name), DIR_FLAGS, Mode::empty())
    }

    /// Whether a directory of the git area is a git directory itself: it has a `HEAD`.
    pub fn has_head(&self) -> bool {
        self.area == DirKind::Git
            && rustix::fs::accessat(&self.fd, "HEAD", rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok()
    }

    pub fn path(&self) -> RelPath {
        match &self.parent {
            None => RelPath::root(),
            Some(parent) => parent.path().join(&self.name),
        }
    }

    fn rules(&self) -> &DirRules {
        self.rules.get_or_init(|| DirRules::read(&self.fd))
    }

    /// Applies the rules from here up to the root; the nearest one that mentions the path wins.
    fn find_verdict(&self, name: &[u8], ask: impl Fn(&DirRules, &[u8]) -> RuleVerdict) -> RuleVerdict {
        let mut path = name.to_vec();
        let mut node = self;
        loop {
            match (ask(node.rules(), &path), &node.parent) {
                (RuleVerdict::Silent, Some(parent)) => {
                    path = [node.name.as_slice(), b"/", &path].concat();
                    node = parent;
                }
                (verdict, _) => return verdict,
            }
        }
    }

    pub fn own_verdict(&self, name: &[u8], is_dir: bool) -> RuleVerdict {
        self.find_verdict(name, |rules, path| rules.own_verdict(path, is_dir))
    }

    /// Whether git ignores the entry `name` of this directory.
    pub fn is_ignored(&self, name: &[u8], is_dir: bool) -> bool {
        self.is_ignored_itself()
            || self.find_verdict(name, |rules, path| rules.git_verdict(path, is_dir)) == RuleVerdict::Out
    }

    fn is_ignored_itself(&self) -> bool {
        *self.ignored.get_or_init(|| match &self.parent {
            None => false,
            Some(parent) => parent.is_ignored(&self.name, true),
        })
    }

    /// What `.stepbackignore` files above say about this directory itself.
    pub fn own_verdict_of_self(&self) -> RuleVerdict {
        match &self.parent {
            None => RuleVerdict::In,
            Some(parent) => parent.own_verdict(&self.name, true),
        }
    }

    /// Why a directory is not stored; `None` if it is.
    pub fn leave_out(&self, name: &[u8]) -> Option<SkipReason> {
        match self.own_verdict(name, true) {
            RuleVerdict::Out => return Some(SkipReason::Rule),
            RuleVerdict::In => return None,
            RuleVerdict::Silent => {}
        }
        let heavy = rules::is_heavy(self.fd.as_fd(), name)
            || (name == b"target" && self.is_ignored(name, true))
            || self.marked_as_cache(name);
        heavy.then_some(SkipReason::HeavyCache)
    }

    /// Checks for files that mark a cache, without listing the directory.
    fn marked_as_cache(&self, name: &[u8]) -> bool {
        let Ok(inside) = self.open(name) else {
            return false;
        };
        let exists = |name: &str| {
            rustix::fs::accessat(&inside, name, rustix::fs::Access::EXISTS, AtFlags::empty()).is_ok()
        };
        ["CACHEDIR.TAG", "pyvenv.cfg"]
            .iter()
            .any(|mark| exists(mark) && rules::marks_cache(inside.as_fd(), mark.as_bytes()))
    }

    /// Where in a git directory this directory is; `None` if it is not in one.
    pub fn git_place(&self) -> Option<GitPlace> {
        match self.area {
            DirKind::Work => None,
            DirKind::Objects => Some(GitPlace::Objects),
            DirKind::Git => {
                let is_top = self.parent.as_ref().is_none_or(|parent| parent.area == DirKind::Work);
                Some(if is_top { GitPlace::Top } else { GitPlace::Inside })
            }
        }
    }

    /// The area of the subdirectory `name`; `has_head` is the result of [`Self::has_head`].
    pub fn child_area(&self, name: &[u8], has_head: bool) -> DirKind {
        match self.area {
            DirKind::Work if name == b".git" => DirKind::Git,
            DirKind::Work => DirKind::Work,
            DirKind::Git
                if name == b"objects" && (has_head || self.name == b".git" || self.name == b"lfs") =>
            {
                DirKind::Objects
            }
            DirKind::Git => DirKind::Git,
            // `objects/info` holds small files that change.
            DirKind::Objects if name == b"info" => DirKind::Git,
            DirKind::Objects => DirKind::Objects,
        }
    }
}

/// Whether this file system changes a directory's times whenever an entry is added or removed. Local ones do; others are
/// not trusted.
pub(super) fn dir_times_tell(root: &impl AsFd) -> bool {
    const EXT: u64 = 0xef53;
    const XFS: u64 = 0x5846_5342;
    const BTRFS: u64 = 0x9123_683e;
    const TMPFS: u64 = 0x0102_1994;
    const F2FS: u64 = 0xf2f5_2010;
    rustix::fs::fstatfs(root).is_ok_and(|fs| [EXT, XFS, BTRFS, TMPFS, F2FS].contains(&(fs.f_type as u64)))
}
