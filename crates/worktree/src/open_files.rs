//! Finds processes that have files open for writing.
//!
//! A file is replaced by giving its name to another one. A process that has the old file open does not notice, and what it
//! writes afterwards goes to a file that has no name any more. Linux lists what each process has open and mapped below
//! `/proc`; files are matched by device and inode, so only the files asked about are compared. Processes of other users
//! cannot be inspected and are not found; on a system without `/proc` no process is found.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use stepback_model::path::RelPath;

/// A process that has a file open for writing.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FileWriter {
    /// The name of the process in the kernel: the first 15 bytes of the program's file name, unless the process set
    /// another.
    pub program: String,
    /// The process id.
    pub pid: u32,
}

impl fmt::Display for FileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {})", self.program, self.pid)
    }
}

/// Returns which of the regular files at `paths` beneath `root` other processes have open or mapped for writing. A path
/// that cannot be read is not in the result.
pub fn find_writers<'p>(
    root: &Path,
    paths: impl IntoIterator<Item = &'p RelPath>,
) -> HashMap<RelPath, Vec<FileWriter>> {
    #[cfg(target_os = "linux")]
    return linux::find_writers(root, paths);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (root, paths.into_iter().count());
        HashMap::new()
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::HashMap;
    use std::ffi::OsStr;
    use std::fs;
    use std::os::fd::OwnedFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::{Path, PathBuf};

    use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
    use stepback_model::path::RelPath;

    use super::FileWriter;
    use crate::anchored_path::AnchoredDir;

    /// Device and inode.
    type FileId = (u64, u64);

    /// The files to search for.
    struct WantedFiles {
        root: PathBuf,
        by_id: HashMap<FileId, Vec<RelPath>>,
        /// Devices by inode: memory maps name the device of the underlying file system, which can be another one.
        devices: HashMap<u64, Vec<u64>>,
    }

    pub(super) fn find_writers<'p>(
        root: &Path,
        paths: impl IntoIterator<Item = &'p RelPath>,
    ) -> HashMap<RelPath, Vec<FileWriter>> {
        let mut writers_by_path = HashMap::new();
        let Some(wanted_files) = WantedFiles::look_up(root, paths) else { return writers_by_path };
        let Ok(processes) = fs::read_dir("/proc") else { return writers_by_path };
        let own_pid = std::process::id();
        for entry in processes.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            if pid == own_pid {
                continue;
            }
            let mut open_for_writing = wanted_files.open_in(pid);
            open_for_writing.extend(wanted_files.mapped_in(pid));
            if open_for_writing.is_empty() {
                continue;
            }
            let writer = FileWriter { program: program(pid), pid };
            for path in open_for_writing.iter().filter_map(|id| wanted_files.by_id.get(id)).flatten() {
                let writers: &mut Vec<FileWriter> = writers_by_path.entry(path.clone()).or_default();
                if !writers.contains(&writer) {
                    writers.push(writer.clone());
                }
            }
        }
        writers_by_path.values_mut().for_each(|writers| writers.sort_by_key(|writer| writer.pid));
        writers_by_path
    }

    impl WantedFiles {
        /// Looks up device and inode of the files; `None` if there are none.
        fn look_up<'p>(root: &Path, paths: impl IntoIterator<Item = &'p RelPath>) -> Option<Self> {
            let mut anchor = AnchoredDir::open(root).ok()?;
            let mut by_id: HashMap<FileId, Vec<RelPath>> = HashMap::new();
            let mut devices: HashMap<u64, Vec<u64>> = HashMap::new();
            for path in paths {
                let Ok(Some((dir, name))) = anchor.parent(path) else { continue };
                let Ok(stat) = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
                if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
                    let same_file_paths = by_id.entry(id_of(&stat)).or_default();
                    if !same_file_paths.contains(path) {
                        same_file_paths.push(path.clone());
                    }
                    devices.entry(stat.st_ino).or_default().push(stat.st_dev);
                }
            }
            (!by_id.is_empty()).then(|| Self { root: root.to_path_buf(), by_id, devices })
        }

        /// Wanted files that a process has open for writing.
        fn open_in(&self, pid: u32) -> Vec<FileId> {
            let mut open = Vec::new();
            let Some(dir) = open_dir(&format!("/proc/{pid}/fd")) else { return open };
            let Ok(entries) = Dir::read_from(&dir) else { return open };
            for entry in entries.flatten() {
                let Ok(stat) = rustix::fs::statat(&dir, entry.file_name(), AtFlags::empty()) else {
                    continue;
                };
                let id = id_of(&stat);
                if self.by_id.contains_key(&id) && is_for_writing(&dir, entry.file_name()) {
                    open.push(id);
                }
            }
            open
        }

        /// Wanted files that a process has mapped as shared, writable memory.
        fn mapped_in(&self, pid: u32) -> Vec<FileId> {
            let maps = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
            maps.split(|byte| *byte == b'\n').filter_map(|line| self.mapped_by(line)).collect()
        }

        /// Parses a line such as `7f12a000-7f12b000 rw-s 00000000 fe:00 123456      /path`.
        fn mapped_by(&self, line: &[u8]) -> Option<FileId> {
            let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
            let permissions = fields.nth(1)?;
            if permissions.get(1) != Some(&b'w') || permissions.get(3) != Some(&b's') {
                return None;
            }
            let device = std::str::from_utf8(fields.nth(1)?).ok()?;
            let inode: u64 = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
            let device_ids = self.devices.get(&inode)?;
            let (major, minor) = device.split_once(':')?;
            let (major, minor) = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
            let device = rustix::fs::makedev(major, minor);
            if device_ids.contains(&device) {
                return Some((device, inode));
            }
            let mapped = Path::new(OsStr::from_bytes(&line[line.iter().position(|byte| *byte == b'/')?..]));
            let relative =
                RelPath::parse(mapped.strip_prefix(&self.root).ok()?.as_os_str().as_bytes()).ok()?;
            device_ids
                .iter()
                .map(|device| (*device, inode))
                .find(|id| self.by_id.get(id).is_some_and(|paths| paths.contains(&relative)))
        }
    }

    fn id_of(stat: &Stat) -> FileId {
        (stat.st_dev, stat.st_ino)
    }

    fn open_dir(path: &str) -> Option<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(path, flags, Mode::empty()).ok()
    }

    /// The links in `/proc/PID/fd` have the permission bits that the file was opened with.
    fn is_for_writing(dir: &OwnedFd, name: &std::ffi::CStr) -> bool {
        rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok_and(|stat| stat.st_mode & 0o200 != 0)
    }

    fn program(pid: u32) -> String {
        let name = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let name = String::from_utf8_lossy(&name);
        match name.trim() {
            "" => "a process".into(),
            name => stepback_model::escape::safe(name),
        }
    }
}
