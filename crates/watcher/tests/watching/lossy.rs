//! Lost events: the kernel reports the loss, or it does not and our own mark is missing.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::inotify::ReadFlags;
use stepback_testkit::tree::Draw;
use stepback_watcher::dirs::Watched;
use stepback_watcher::kernel::{Inotify, Kernel, KernelEvent};
use stepback_watcher::watch::KernelSource;
use stepback_worktree::scan::hints::WatchAnswer;

use crate::desk::{WatchFixture, let_times_settle};
use crate::random::work;

/// How a kernel loses events.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Loss {
    /// As the real one does when its queue is full: nothing more is queued, and the last event says so.
    Overflow,
    /// Everything from some event on is gone, and nothing says so.
    Silent,
    /// Reading fails.
    Fails,
    /// No more directories can be watched.
    Full,
    /// As [`Loss::Overflow`], of everything, while [`OVERFLOWS`] is set.
    WhenTold,
    /// Nothing is lost, but every directory takes long to watch.
    Slow,
}

/// Of the one test that tells.
static OVERFLOWS: AtomicBool = AtomicBool::new(false);

struct Lossy {
    inner: Inotify,
    loss: Loss,
    draw: Draw,
}

impl Lossy {
    fn source(loss: Loss) -> KernelSource {
        static SEED: AtomicU64 = AtomicU64::new(1);
        Box::new(move || {
            let draw = Draw::new(SEED.fetch_add(1, Ordering::Relaxed));
            Ok(Box::new(Self { inner: Inotify::new()?, loss, draw }) as Box<dyn Kernel>)
        })
    }
}

impl Kernel for Lossy {
    fn watch(&mut self, dir: BorrowedFd<'_>) -> io::Result<Watched> {
        if self.loss == Loss::Slow {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        if self.loss == Loss::Full && self.draw.once_in(60) {
            return Err(rustix::io::Errno::NOSPC.into());
        }
        self.inner.watch(dir)
    }

    fn unwatch(&mut self, watch: Watched) {
        self.inner.unwatch(watch);
    }

    fn drain(&mut self) -> io::Result<Vec<KernelEvent>> {
        let mut events = self.inner.drain()?;
        if self.loss == Loss::WhenTold {
            if OVERFLOWS.load(Ordering::Relaxed) {
                events = vec![KernelEvent { watch: -1, what: ReadFlags::QUEUE_OVERFLOW, name: None }];
            }
            return Ok(events);
        }
        if matches!(self.loss, Loss::Full | Loss::Slow) || events.is_empty() || !self.draw.once_in(4) {
            return Ok(events);
        }
        let kept = self.draw.below(events.len());
        match self.loss {
            Loss::Overflow => {
                events.truncate(kept);
                events.push(KernelEvent { watch: -1, what: ReadFlags::QUEUE_OVERFLOW, name: None });
            }
            Loss::Silent => events.truncate(kept),
            Loss::Fails => return Err(rustix::io::Errno::IO.into()),
            Loss::Full | Loss::WhenTold | Loss::Slow => {}
        }
        Ok(events)
    }

    fn readiness(&self) -> Arc<OwnedFd> {
        self.inner.readiness()
    }
}

/// Random work over a kernel that loses events; a watcher that gives up is replaced now and then.
fn lose(source: fn() -> KernelSource, seeds: std::ops::Range<u64>) -> usize {
    let mut helped = 0;
    for seed in seeds {
        let desk = WatchFixture::over(source);
        helped += work(&desk, seed, 40, |_, draw| {
            if draw.once_in(12) || (desk.watcher.0.lock().unwrap().is_none() && draw.once_in(3)) {
                // It is restarted: moments of the one before mean nothing to this one.
                *desk.watcher.0.lock().unwrap() = None;
                let _ = desk.watch();
            }
            if draw.once_in(5)
                && let Some(watch) = desk.watcher.0.lock().unwrap().as_mut()
            {
                // Between questions events are taken in too.
                let _ = watch.catch_up();
            }
        });
    }
    helped
}

#[test]
fn an_overflow_makes_it_look_at_everything() {
    let helped = lose(|| Lossy::source(Loss::Overflow), 200..206);
    assert!(helped > 40, "the watcher helped only {helped} times: this tests nothing");
}

#[test]
fn an_overflow_between_two_questions_is_remembered() {
    let desk = WatchFixture::over(|| Lossy::source(Loss::WhenTold));
    desk.write("a/b/c/f", "before");
    let_times_settle();
    desk.asked();
    desk.asked();
    assert!(desk.asked().hinted);
    desk.write("a/b/c/f", "change!");
    OVERFLOWS.store(true, Ordering::Relaxed);
    desk.watcher.0.lock().unwrap().as_mut().unwrap().catch_up().unwrap();
    OVERFLOWS.store(false, Ordering::Relaxed);
    assert!(!desk.check(&|| "an overflow".to_string()));
    assert!(desk.check(&|| "afterwards".to_string()));
}

/// The real kernel's queue, which is not read.
#[test]
fn a_queue_that_really_overflows_hides_nothing() {
    let desk = WatchFixture::new();
    desk.write("a/f", "before");
    desk.write("b/f", "before");
    let_times_settle();
    desk.asked();
    desk.asked();
    assert!(desk.asked().hinted);
    let most = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    for number in 0..=most {
        // Two names by turns, because equal events that follow each other are one.
        desk.write(&format!("a/f{}", number % 2), "passing");
    }
    desk.write("b/f", "change!");
    desk.write("b/new/f", "not reported");
    assert!(!desk.check(&|| "an overflow".to_string()));
    assert!(desk.check(&|| "afterwards".to_string()));
}

#[test]
fn a_watch_that_restarts_slowly_gives_no_answer_until_it_has() {
    let desk = WatchFixture::over(|| Lossy::source(Loss::Slow));
    for dir in 0..5 {
        desk.write(&format!("d{dir}/f"), "before");
    }
    desk.watch().unwrap();
    let mut watch = desk.watcher.0.lock().unwrap().take().unwrap();
    let stat = rustix::fs::stat(&desk.root).unwrap();
    let id = (stat.st_dev, stat.st_ino);
    let WatchAnswer::Everything(token) = watch.answer(id, None).unwrap() else { panic!("no moment") };
    assert!(matches!(watch.answer(id, Some(token)).unwrap(), WatchAnswer::Only(..)));
    // A rule file: the directories to visit have to be decided again.
    desk.write(".stepbackignore", "d1\n");
    assert_eq!(watch.answer(id, Some(token)).unwrap(), WatchAnswer::Unknown, "a client does not wait");
    assert!(watch.is_lost());
    watch.catch_up().unwrap();
    assert!(watch.is_lost(), "it does not restart while a client waits");
    assert_eq!(watch.answer(id, Some(token)).unwrap(), WatchAnswer::Unknown);
    watch.restart().unwrap();
    assert!(matches!(watch.answer(id, Some(token)).unwrap(), WatchAnswer::Everything(_)));
}

#[test]
fn events_lost_without_a_word_are_noticed_by_the_missing_mark() {
    // Only together with all that follow: the kernel keeps their order, and our mark is the last.
    let desk_helped = {
        let mut helped = 0;
        for seed in 300..306 {
            helped += work(&WatchFixture::over(|| Lossy::source(Loss::Silent)), seed, 40, |_, _| {});
        }
        helped
    };
    assert!(desk_helped > 40, "the watcher helped only {desk_helped} times: this tests nothing");
}

#[test]
fn a_queue_that_cannot_be_read_makes_it_look_at_everything() {
    let helped = lose(|| Lossy::source(Loss::Fails), 400..406);
    assert!(helped > 40, "the watcher helped only {helped} times: this tests nothing");
}

#[test]
fn too_few_watches_make_it_give_up_and_never_wrong() {
    let helped = lose(|| Lossy::source(Loss::Full), 500..506);
    assert!(helped > 0, "the watcher never helped: this tests nothing");
}
