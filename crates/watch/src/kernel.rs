//! What is needed of the kernel, and inotify, which gives it. A trait, so that tests can lose events.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;

use crate::dirs::Watched;

/// Something happened in a watched directory, or to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The watch.
    pub watch: Watched,
    /// What.
    pub what: ReadFlags,
    /// The name in the directory; `None` if it is about the directory itself.
    pub name: Option<Vec<u8>>,
}

/// Tells what happens in directories, in the order it happens.
pub trait Kernel: Send {
    /// Watches a directory.
    fn watch(&mut self, dir: BorrowedFd<'_>) -> io::Result<Watched>;
    /// Ends a watch. Fails if it has ended by itself, which is no harm.
    fn unwatch(&mut self, watch: Watched);
    /// Everything that has been reported and not yet read. Never waits.
    fn drain(&mut self) -> io::Result<Vec<Event>>;
    /// Becomes readable when there is something to drain.
    fn readiness(&self) -> Arc<OwnedFd>;
}

/// Linux's inotify.
#[derive(Debug)]
pub struct Inotify {
    fd: Arc<OwnedFd>,
    buffer: Vec<MaybeUninit<u8>>,
}

/// Everything by which the files of a directory can become different. Also the end of a writer, because what is written
/// through a memory map is not reported until then.
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
    /// A queue of its own.
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
        // By its open file, so that it is this directory whatever its path leads to by now.
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

    fn drain(&mut self) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut reader = inotify::Reader::new(&*self.fd, &mut self.buffer);
        loop {
            match reader.next() {
                Ok(event) => events.push(Event {
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

    /// What an answer rests on: when a call that changes a file has returned, its event is in the queue.
    #[test]
    fn an_event_is_there_as_soon_as_the_change_is_done() {
        let dir = tempfile::tempdir().unwrap();
        let mut kernel = Inotify::new().unwrap();
        let watch = kernel.watch(fs::File::open(dir.path()).unwrap().as_fd()).unwrap();
        for round in 0..2000 {
            let path = dir.path().join(format!("f{}", round % 7));
            // Somebody else's thread, so that the writer and the reader are not the same.
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
