//! A naive copy of a directory: everything in it, in memory, to compare workspaces byte for byte.
//!
//! The code is deliberately simple, and shares nothing with the code under test: it lists directories with `std`, one
//! level at a time through an open handle, so that paths longer than `PATH_MAX` work.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One thing in a directory.
#[derive(Clone, PartialEq, Eq)]
pub enum Thing {
    /// A directory with its permission bits.
    Dir(u32),
    /// A file with its permission bits and content.
    File(u32, Arc<[u8]>),
    /// A symbolic link and where it points.
    Link(Vec<u8>),
    /// A pipe, a socket or a device.
    Special,
}

impl Thing {
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        matches!(self, Thing::Dir(_))
    }
}

impl std::fmt::Debug for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Thing::Dir(mode) => write!(f, "dir {mode:04o}"),
            Thing::File(mode, bytes) if bytes.len() <= 24 => {
                write!(f, "file {mode:04o} {:?}", String::from_utf8_lossy(bytes))
            }
            Thing::File(mode, bytes) => {
                write!(
                    f,
                    "file {mode:04o} {} bytes {:?}…",
                    bytes.len(),
                    String::from_utf8_lossy(&bytes[..16])
                )
            }
            Thing::Link(target) => write!(f, "link to {:?}", String::from_utf8_lossy(target)),
            Thing::Special => f.write_str("special"),
        }
    }
}

/// Everything in a directory, by path from its root.
pub type Copy = BTreeMap<Vec<u8>, Thing>;

/// Copies the directory `root` into memory. Paths for which `leave_out` returns `true` are not entered.
pub fn copy_of(root: &Path, leave_out: impl Fn(&[u8]) -> bool) -> Copy {
    let mut copy = Copy::new();
    walk(&File::open(root).unwrap(), &[], &leave_out, &mut copy);
    copy
}

fn walk(dir: &File, path: &[u8], leave_out: &dyn Fn(&[u8]) -> bool, copy: &mut Copy) {
    for name in list_names(dir) {
        let child = if path.is_empty() { name.clone() } else { [path, b"/", &name].concat() };
        if leave_out(&child) {
            continue;
        }
        let node_path = within(dir, &name);
        let metadata = fs::symlink_metadata(&node_path).unwrap();
        let (kind, mode) = (metadata.file_type(), metadata.permissions().mode() & 0o7777);
        let node = if kind.is_dir() {
            walk(&File::open(&node_path).unwrap(), &child, leave_out, copy);
            Thing::Dir(mode)
        } else if kind.is_symlink() {
            Thing::Link(fs::read_link(&node_path).unwrap().into_os_string().into_vec())
        } else if kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device() {
            Thing::Special
        } else {
            Thing::File(mode, fs::read(&node_path).unwrap().into())
        };
        copy.insert(child, node);
    }
}

fn list_names(dir: &File) -> Vec<Vec<u8>> {
    let listed = fs::read_dir(format!("/proc/self/fd/{}", dir.as_raw_fd())).unwrap();
    let mut names: Vec<Vec<u8>> = listed.map(|entry| entry.unwrap().file_name().into_vec()).collect();
    names.sort();
    names
}

/// A path for `name` in the open directory `dir`, however deep that is.
pub fn within(dir: &File, name: &[u8]) -> PathBuf {
    Path::new(&format!("/proc/self/fd/{}", dir.as_raw_fd())).join(OsStr::from_bytes(name))
}

/// Writes a copy into the empty directory `directory`.
pub fn write(copy: &Copy, directory: &Path) {
    for (path, node) in copy {
        let node_path = directory.join(OsStr::from_bytes(path));
        match node {
            Thing::Dir(_) => fs::create_dir(&node_path).unwrap(),
            Thing::File(mode, bytes) => {
                fs::write(&node_path, bytes).unwrap();
                fs::set_permissions(&node_path, Permissions::from_mode(*mode)).unwrap();
            }
            Thing::Link(target) => symlink(OsStr::from_bytes(target), &node_path).unwrap(),
            Thing::Special => {}
        }
    }
    for (path, node) in copy.iter().rev() {
        if let Thing::Dir(mode) = node {
            fs::set_permissions(directory.join(OsStr::from_bytes(path)), Permissions::from_mode(*mode))
                .unwrap();
        }
    }
}

/// The differences of two copies, one line per path; empty if they are the same.
pub fn differences(expected: &Copy, actual: &Copy) -> String {
    let mut lines = String::new();
    for path in expected.keys().chain(actual.keys().filter(|path| !expected.contains_key(*path))) {
        let (expected, actual) = (expected.get(path), actual.get(path));
        if expected != actual {
            let show = |node: Option<&Thing>| node.map_or("nothing".into(), |node| format!("{node:?}"));
            let path = path.escape_ascii();
            lines.push_str(&format!("  {path}: expected {}, found {}\n", show(expected), show(actual)));
        }
    }
    lines
}

/// A directory for a test's files: in memory if the system has such a directory, because thousands of syncs to a shared
/// disk take minutes.
pub fn scratch_place() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let usable =
        fs::metadata(memory).is_ok_and(|metadata| metadata.is_dir() && !metadata.permissions().readonly());
    if usable { memory.to_path_buf() } else { std::env::temp_dir() }
}

/// A small pseudo-random number generator; the same seed gives the same numbers everywhere.
#[derive(Clone, Debug)]
pub struct Draw(u64);

impl Draw {
    /// Starts at `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bf0_3635)
    }

    /// The next number (SplitMix64).
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`, which must not be zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit as u64) as usize
    }

    /// One of `choices`, which must not be empty.
    pub fn pick<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len())]
    }

    /// `true` once in `times` times.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// So many bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}
