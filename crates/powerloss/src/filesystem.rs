//! The file systems that are cut, and how one is made and mounted.
//!
//! A mount uses a loop device that the kernel frees at the unmount (`mount -o loop`). All mounts are in a mount namespace of
//! this process (see [`crate::namespace`]), so that nothing is left behind however the process ends.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A kind of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    /// With its defaults: ordered data, a journal with checksums.
    Ext4,
    /// With its defaults.
    Xfs,
    /// With its defaults.
    Btrfs,
}

impl FileSystem {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    /// Its name, as `mount -t` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// By its name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Why it cannot be tested on this machine; `None` if it can.
    pub fn missing(self) -> Option<String> {
        let name = self.name();
        let program = format!("mkfs.{name}");
        if find_program(&program).is_none() {
            return Some(format!("{program} is not installed"));
        }
        let listed = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
        let is_known = listed.lines().any(|line| line.trim() == name);
        // A module is loaded on demand.
        let loaded = || Command::new("modprobe").arg(name).stderr(Stdio::null()).status();
        if !is_known && !loaded().is_ok_and(|status| status.success()) {
            return Some(format!("this kernel has no {name}"));
        }
        None
    }

    /// The smallest comfortable size of a disk, in bytes.
    pub fn disk_size(self) -> u64 {
        let mib = match self {
            Self::Ext4 => 96,
            // The least that mkfs accepts are 300 and about 110.
            Self::Xfs => 320,
            Self::Btrfs => 192,
        };
        mib << 20
    }

    /// Makes an empty file system in a file.
    pub fn make(self, file: &Path) -> Result<()> {
        let mut mkfs = Command::new(format!("mkfs.{}", self.name()));
        // Everything is written now: a file system that goes on initialising itself would fill the log with its own writes.
        match self {
            Self::Ext4 => {
                mkfs.args(["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
            }
            Self::Xfs => mkfs.args(["-q", "-f"]),
            Self::Btrfs => mkfs.args(["-q", "-f"]),
        };
        run(mkfs.arg(file))
    }

    /// Mounts it; a journal is replayed.
    pub fn mount(self, file: &Path, directory: &Path) -> Result<FileSystemMount> {
        if self == Self::Btrfs {
            // Btrfs remembers devices, and refuses one that has gone back in time.
            run(Command::new("btrfs").args(["device", "scan", "--forget"]))?;
        }
        run(Command::new("mount").args(["-t", self.name(), "-o", "loop"]).arg(file).arg(directory))?;
        Ok(FileSystemMount { directory: directory.to_owned() })
    }
}

/// A mounted file system. It is unmounted when dropped.
#[derive(Debug)]
pub struct FileSystemMount {
    directory: PathBuf,
}

impl Drop for FileSystemMount {
    fn drop(&mut self) {
        // A process that was just killed may hold it for a moment.
        for _ in 0..50 {
            if run(Command::new("umount").arg(&self.directory)).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // The mount namespace takes it away at the end.
        drop(run(Command::new("umount").arg("--lazy").arg(&self.directory)));
    }
}

/// Where a program is, in the directories of `PATH` and those of the system administrator.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    directories.map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// Runs a command; its output is the error if it fails.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
