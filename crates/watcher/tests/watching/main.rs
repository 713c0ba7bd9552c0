//! Whatever happens to files and to events, a scan that asks the watcher finds what a scan of everything finds.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod cases;
mod desk;
mod life;
mod lossy;
mod random;
mod socket;
