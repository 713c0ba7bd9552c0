//! The lower bound: the cheapest possible scan of every file of a tree.
//!
//! No checkpoint without a watcher can be faster than reading every directory once and asking the kernel
//! once for every entry's metadata. This walk does only that, on all cores: `getdents64` into a reused
//! buffer, one `stat` per entry relative to its directory's descriptor, no allocation per file, no path
//! joining. `.git` is included, because stepback protects it as well.

use std::ffi::{CStr, CString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, openat, statat};
use rustix::io::Errno;

use crate::measure::clock::{Cost, self_cpu};

/// The result of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkTotals {
    /// Entries that are no directories.
    pub files: u64,
    /// Directories, the root included.
    pub directories: u64,
    /// The sum of all sizes; using the metadata keeps the compiler from removing the calls.
    pub bytes: u64,
}

/// Walks `root` once on all cores.
pub fn walk(root: &Path) -> Result<(WalkTotals, Cost)> {
    let threads = thread::available_parallelism().map_or(1, |count| count.get());
    let cpu = self_cpu();
    let started = Instant::now();
    let top = openat(CWD, root, DIRECTORY, Mode::empty())
        .with_context(|| format!("cannot open {}", root.display()))?;
    let pool = Pool::new(threads);
    let totals = thread::scope(|scope| {
        let helpers: Vec<_> = (1..threads).map(|_| scope.spawn(|| pool.run_worker(Vec::new()))).collect();
        let mut totals = pool.run_worker(vec![Job::Opened(top)])?;
        for helper in helpers {
            let helper_totals = helper.join().map_err(|_| Errno::IO)??;
            totals.files += helper_totals.files;
            totals.directories += helper_totals.directories;
            totals.bytes += helper_totals.bytes;
        }
        Ok::<_, Errno>(totals)
    })
    .with_context(|| format!("cannot walk {}", root.display()))?;
    Ok((totals, Cost { wall: started.elapsed(), cpu: self_cpu() - cpu, peak_memory: 0 }))
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);

/// A directory still to be read. It is opened only when its turn comes, so that the number of open descriptors depends on
/// the depth of the tree and not on its breadth.
enum Job {
    Opened(OwnedFd),
    Child { parent: Arc<OwnedFd>, name: CString },
}

/// Work sharing: each thread keeps its own stack, last in first out, and gives away the oldest half, which holds the
/// largest subtrees, only while another thread is idle.
struct Pool {
    threads: usize,
    idle: AtomicUsize,
    shared: Mutex<SharedJobs>,
    wake: Condvar,
}

#[derive(Default)]
struct SharedJobs {
    jobs: Vec<Job>,
    done: bool,
}

impl Pool {
    fn new(threads: usize) -> Self {
        Self { threads, idle: AtomicUsize::new(0), shared: Mutex::default(), wake: Condvar::new() }
    }

    fn run_worker(&self, mut jobs: Vec<Job>) -> rustix::io::Result<WalkTotals> {
        let mut totals = WalkTotals::default();
        // Large enough for any directory of usual size to come in one call.
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); 64 * 1024];
        let mut outcome = Ok(());
        while let Some(job) = jobs.pop().or_else(|| self.wait_for_job()) {
            // After an error the queue is still drained, so that no thread waits for ever.
            if outcome.is_ok() {
                outcome = read_directory(job, &mut buffer, &mut jobs, &mut totals);
            }
            if jobs.len() > 1 && self.idle.load(Ordering::Relaxed) > 0 {
                self.share_half(&mut jobs);
            }
        }
        outcome.map(|()| totals)
    }

    fn share_half(&self, jobs: &mut Vec<Job>) {
        let half = jobs.len() / 2;
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        shared.jobs.extend(jobs.drain(..half));
        drop(shared);
        self.wake.notify_all();
    }

    /// Waits for work from another thread; `None` once all threads wait, as then nothing is left.
    fn wait_for_job(&self) -> Option<Job> {
        let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(job) = shared.jobs.pop() {
            return Some(job);
        }
        if self.idle.fetch_add(1, Ordering::Relaxed) + 1 == self.threads {
            shared.done = true;
            self.wake.notify_all();
            return None;
        }
        loop {
            if shared.done {
                return None;
            }
            if let Some(job) = shared.jobs.pop() {
                self.idle.fetch_sub(1, Ordering::Relaxed);
                return Some(job);
            }
            shared = self.wake.wait(shared).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn read_directory(
    job: Job,
    buffer: &mut [MaybeUninit<u8>],
    jobs: &mut Vec<Job>,
    totals: &mut WalkTotals,
) -> rustix::io::Result<()> {
    let fd = match job {
        Job::Opened(fd) => fd,
        Job::Child { parent, name } => match openat(&*parent, &name, DIRECTORY, Mode::empty()) {
            Ok(fd) => fd,
            // Removed or replaced since its parent was read.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
            Err(error) => return Err(error),
        },
    };
    totals.directories += 1;
    let directory = Arc::new(fd);
    let mut entries = RawDir::new(&*directory, buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let stat = match statat(&*directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(error),
        };
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            jobs.push(Job::Child { parent: Arc::clone(&directory), name: name.to_owned() });
        } else {
            totals.files += 1;
            totals.bytes += stat.st_size.unsigned_abs();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_entry_is_counted_once_whatever_the_shape() {
        let root = std::env::temp_dir().join(format!("xtask-limit-{}", std::process::id()));
        let mut files = 0;
        for (index, directory) in ["a", "a/b", "a/b/c", "d", "e/f/g/h"].iter().enumerate() {
            fs::create_dir_all(root.join(directory)).unwrap();
            for file in 0..=index * 40 {
                fs::write(root.join(directory).join(format!("file-{file}")), "12345").unwrap();
                files += 1;
            }
        }
        std::os::unix::fs::symlink("/", root.join("out")).unwrap();
        let (seen, _) = walk(&root).unwrap();
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(seen, WalkTotals { files: files + 1, directories: 9, bytes: files * 5 + 1 });
    }

    #[test]
    fn a_missing_root_is_an_error() {
        assert!(walk(Path::new("/nonexistent-directory")).is_err());
    }
}
