//! Detects mounts inside a workspace. inotify does not report when a file system is mounted over a directory, and a
//! directory that is mounted twice would have two paths. So a workspace with a mount inside is not watched.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec};

/// The kernel's table of mounts, which reports when it changes.
#[derive(Debug)]
pub struct Mounts {
    table: File,
}

impl Mounts {
    /// Opens the table. Changes are reported from now on.
    pub fn open() -> io::Result<Self> {
        Ok(Self { table: File::open("/proc/self/mountinfo")? })
    }

    /// Whether the table has changed since the last call.
    pub fn changed(&self) -> bool {
        let mut polled = [PollFd::new(&self.table, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(rustix::event::poll(&mut polled, Some(&at_once)), Ok(0))
    }

    /// Whether something is mounted below `root`.
    pub fn any_below(&mut self, root: &Path) -> io::Result<bool> {
        let mut table = Vec::new();
        self.table.rewind()?;
        self.table.read_to_end(&mut table)?;
        Ok(is_any_below(&table, root.as_os_str().as_bytes()))
    }
}

fn is_any_below(table: &[u8], root: &[u8]) -> bool {
    let mut prefix = escape_path(root);
    prefix.push(b'/');
    let is_below =
        |line: &[u8]| line.split(|byte| *byte == b' ').nth(4).is_some_and(|point| point.starts_with(&prefix));
    table.split(|byte| *byte == b'\n').any(is_below)
}

/// A path with the escapes that the table uses.
fn escape_path(path: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' => text.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            _ => text.push(*byte),
        }
    }
    text
}

/// The id of this process's mount namespace: in another one, other file systems may be mounted at the same paths. Zero if
/// it is not known.
pub fn namespace() -> u64 {
    fs::metadata("/proc/self/ns/mnt").map_or(0, |metadata| metadata.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mounts_inside_count() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
            2 1 8:1 / /work/a\\040b rw - ext4 /dev/sda1 rw\n\
            3 2 0:5 / /work/a\\040b/cache rw - tmpfs tmpfs rw\n\
            4 2 0:6 / /work/a\\040bc rw - tmpfs tmpfs rw\n";
        assert!(is_any_below(table, b"/work/a b"));
        assert!(!is_any_below(table, b"/work/a bc"));
        assert!(!is_any_below(table, b"/work/a"));
    }
}
