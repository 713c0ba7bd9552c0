//! Fault points: places where a test can make the n-th I/O fail or kill the process.
//!
//! Every write, sync, rename and commit of the store and the worktree passes [`point`]. Disarmed (always, outside tests) it
//! is one relaxed atomic load. A test arms it through the surface (`STEPBACK_FAULT=enospc:7`), runs a command, and loops
//! with n = 1, 2, … until the command succeeds, checking after each round that nothing was lost.

use std::io;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};

/// What happens when the armed point is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The I/O fails with "no space left on device"; so do all later ones, as on a full disk.
    DiskFull,
    /// The I/O fails once with a general I/O error.
    Once,
    /// The process ends at once, as if killed.
    Kill,
}

static ARMED: AtomicU8 = AtomicU8::new(0);
static REMAINING_POINTS: AtomicI64 = AtomicI64::new(0);

/// Arms the n-th point from now (counting from 1).
pub fn arm(fault: Fault, nth: u32) {
    REMAINING_POINTS.store(i64::from(nth), Ordering::Relaxed);
    let code = match fault {
        Fault::DiskFull => 1,
        Fault::Once => 2,
        Fault::Kill => 3,
    };
    ARMED.store(code, Ordering::SeqCst);
}

/// Disarms all points.
pub fn disarm() {
    ARMED.store(0, Ordering::SeqCst);
}

/// Whether the armed point was reached. A command may succeed although it was: some failures are tolerated.
pub fn was_reached() -> bool {
    REMAINING_POINTS.load(Ordering::SeqCst) <= 0
}

/// Reads a fault from text such as `enospc:3`, `eio:1` or `kill:12`, and arms it. `None` if the text is not one.
pub fn arm_from(text: &str) -> Option<()> {
    let (name, nth) = text.split_once(':')?;
    let fault = match name {
        "enospc" => Fault::DiskFull,
        "eio" => Fault::Once,
        "kill" => Fault::Kill,
        _ => return None,
    };
    arm(fault, nth.parse().ok()?);
    Some(())
}

/// Passes, fails or ends the process, as armed. Call it right before the I/O it stands for.
#[inline]
pub fn point() -> io::Result<()> {
    match ARMED.load(Ordering::Relaxed) {
        0 => Ok(()),
        code => hit_armed_point(code),
    }
}

#[cold]
fn hit_armed_point(code: u8) -> io::Result<()> {
    let left = REMAINING_POINTS.fetch_sub(1, Ordering::SeqCst);
    match code {
        1 if left <= 1 => Err(io::Error::from_raw_os_error(28)),
        2 if left == 1 => Err(io::Error::from_raw_os_error(5)),
        3 if left == 1 => std::process::abort(),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nth_point_fails_and_a_full_disk_stays_full() {
        assert!(point().is_ok());
        arm(Fault::Once, 2);
        assert!(point().is_ok());
        assert!(!was_reached());
        assert_eq!(point().unwrap_err().raw_os_error(), Some(5));
        assert!(was_reached());
        assert!(point().is_ok());
        assert_eq!(arm_from("enospc:1"), Some(()));
        assert_eq!(point().unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(point().is_err());
        disarm();
        assert!(point().is_ok());
        assert_eq!(arm_from("fire:1"), None);
        assert_eq!(arm_from("kill"), None);
    }
}
