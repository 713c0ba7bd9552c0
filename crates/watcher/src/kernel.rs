//! The kernel interface that a watcher needs, and its implementation with inotify. A trait, so that tests can lose events.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::dirs::Watched;

/// An event in a watched directory, or on the directory itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelEvent {
    /// The watch that reported it.
    pub watch: Watched,
    /// The kind of event.
    pub what: ReadFlags,
    /// The name in the directory; `None` if the event is about the directory itself.
    pub name: Option<Vec<u8>>,
}

/// Reports events in directories, in the order they happen.
pub trait Kernel: Send {
    /// Watches a directory.
    fn watch(&mut self, dir: BorrowedFd<'_>) -> io::Result<Watched>;
    /// Ends a watch. Fails if it has already ended, which is harmless.
    fn unwatch(&mut self, watch: Watched);
    /// Returns all events that have been reported and not yet read. Never blocks.
    fn drain(&mut self) -> io::Result<Vec<KernelEvent>>;
    /// Becomes readable when there is something to drain.
    fn readiness(&self) -> Arc<OwnedFd>;
}

/// Linux's inotify.
#[derive(Debug)]
pub struct Inotify {
    fd: Arc<OwnedFd>,
    buffer: Vec<MaybeUninit<u8>>,
}

/// All events by which the files of a directory can change. This includes the closing of a written file, because writes
/// through a memory map are not reported before that.
const ALL: WatchFlags = WatchFlags::MODIFY
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::CREATE)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::ONLYDIR)
    .union(WatchFlags::EXCL_UNLINK);

impl Inotify {
    /// A new event queue.
    pub fn new() -> io::Result<Self> {
        let fd =
            inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).map_err(|errno| match errno {
                Errno::MFILE => io::Error::other(
                    "the system allows no more inotify instances (sysctl fs.inotify.max_user_instances)",
                ),
                errno => errno.into(),
            })?;
        Ok(Self { fd: Arc::new(fd), buffer: vec![MaybeUninit::uninit(); 64 << 10] })
    }
}

impl Kernel for Inotify {
    fn watch(&mut self, dir: BorrowedFd<'_>) -> io::Result<Watched> {
        // Through its open file, so that it is this directory wherever its path leads by now.
        let path = format!("/proc/self/fd/{}", dir.as_raw_fd());
        inotify::add_watch(&*self.fd, path, ALL).map_err(|errno| match errno {
            Errno::NOSPC => io::Error::new(
                io::ErrorKind::QuotaExceeded,
                "the system allows no more watches (sysctl fs.inotify.max_user_watches)",
            ),
            errno => errno.into(),
        })
    }

    fn unwatch(&mut self, watch: Watched) {
        let _ = inotify::remove_watch(&*self.fd, watch);
    }

    fn drain(&mut self) -> io::Result<Vec<KernelEvent>> {
        let mut events = Vec::new();
        let mut reader = inotify::Reader::new(&*self.fd, &mut self.buffer);
        loop {
            match reader.next() {
                Ok(event) => events.push(KernelEvent {
                    watch: event.wd(),
                    what: event.events(),
                    name: event.file_name().map(|name| name.to_bytes().to_vec()),
                }),
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn readiness(&self) -> Arc<OwnedFd> {
        self.fd.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::fd::AsFd;

    /// The guarantee that answers rely on: when a call that changes a file has returned, its event is in the queue.
    #[test]
    fn an_event_is_there_as_soon_as_the_change_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut kernel = Inotify::new().unwrap();
        let watch = kernel.watch(fs::File::open(dir.path()).unwrap().as_fd()).unwrap();
        for round in 0..2000 {
            let path = dir.path().join(format!("f{}", round % 7));
            // Another thread, so that writer and reader are not the same.
            std::thread::scope(|scope| {
                scope.spawn(|| fs::write(&path, round.to_string()).unwrap()).join().unwrap();
            });
            let events = kernel.drain().unwrap();
            let name = path.file_name().unwrap().as_encoded_bytes();
            assert!(
                events.iter().any(|event| event.watch == watch && event.name.as_deref() == Some(name)),
                "round {round}: {events:?}"
            );
        }
    }

    /// Events of different directories come in the order in which they happened: a mark in one vouches for the others.
    #[test]
    fn one_queue_keeps_the_order_of_all_its_directories() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut kernel = Inotify::new().unwrap();
        let first = kernel.watch(fs::File::open(one.path()).unwrap().as_fd()).unwrap();
        let second = kernel.watch(fs::File::open(two.path()).unwrap().as_fd()).unwrap();
        let mut expected = Vec::new();
        for round in 0..300 {
            let (dir, watch) = if round % 3 == 0 { (&one, first) } else { (&two, second) };
            fs::create_dir(dir.path().join(round.to_string())).unwrap();
            expected.push((watch, round.to_string().into_bytes()));
        }
        let events = kernel.drain().unwrap();
        let found: Vec<_> =
            events.into_iter().filter_map(|event| event.name.map(|name| (event.watch, name))).collect();
        assert_eq!(found, expected);
    }
}
