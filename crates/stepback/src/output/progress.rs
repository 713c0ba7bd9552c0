//! A display of progress on stderr, which never shares a line with other output.

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use stepback_model::quantity::grouped;

/// Whether a display is on the screen. Other output holds the lock, so that nothing is drawn meanwhile.
static IS_SHOWN: Mutex<bool> = Mutex::new(false);

/// Removes the display from the screen, and keeps it away until the result is dropped.
pub(super) fn hide_progress() -> MutexGuard<'static, bool> {
    let mut is_shown = IS_SHOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if std::mem::take(&mut *is_shown) {
        let _ = write!(io::stderr(), "\r\x1b[2K");
    }
    is_shown
}

/// A progress display on stderr that appears only if the work takes long, and only on a terminal.
#[derive(Debug)]
pub struct Progress {
    count: Arc<AtomicU64>,
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Progress {
    /// Starts the display. `what` names what is counted, such as `files scanned`; if it is empty, nothing is shown.
    pub fn start(what: &'static str, quiet: bool) -> Self {
        let count = Arc::new(AtomicU64::new(0));
        let done = Arc::new(AtomicBool::new(false));
        let visible = !quiet && !what.is_empty() && io::stderr().is_terminal();
        let thread = visible.then(|| {
            let (count, done) = (count.clone(), done.clone());
            std::thread::spawn(move || run_progress_bar(what, &count, &done))
        });
        Self { count, done, thread }
    }

    /// Returns the counter that the work advances.
    pub fn counter(&self) -> Arc<AtomicU64> {
        self.count.clone()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn run_progress_bar(what: &'static str, count: &AtomicU64, done: &AtomicBool) {
    std::thread::park_timeout(Duration::from_millis(400));
    if done.load(Ordering::Relaxed) {
        return;
    }
    let style = ProgressStyle::with_template("{spinner} {human_pos} {msg} ({rate}, {elapsed})");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_spinner());
    let style = style.with_key("rate", |state: &ProgressState, text: &mut dyn std::fmt::Write| {
        // A rate is an estimate: digits after the point would say nothing.
        let _ = write!(text, "{}/s", grouped(state.per_sec() as u64));
    });
    // Made without drawing anything: a question may be open already.
    let target = ProgressDrawTarget::stderr();
    let bar = ProgressBar::with_draw_target(None, target).with_style(style).with_message(what);
    while !done.load(Ordering::Relaxed) {
        // While a question is open or something is printed, the display waits.
        if let Ok(mut is_shown) = IS_SHOWN.try_lock() {
            *is_shown = true;
            bar.set_position(count.load(Ordering::Relaxed));
            bar.tick();
        }
        std::thread::park_timeout(Duration::from_millis(100));
    }
    drop(hide_progress());
    // It is off the screen already, and must not clear what was printed since.
    bar.set_draw_target(ProgressDrawTarget::hidden());
    bar.abandon();
}
