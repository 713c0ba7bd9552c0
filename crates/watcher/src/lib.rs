//! The watcher: reports which directories of a workspace may have changed since an earlier scan.
//!
//! A scan without a watcher calls `stat` on every file. Where a watcher runs, the kernel reports changes to it as they
//! happen, and a scan asks the watcher instead: it visits only the directories that the watcher names. Events are hints.
//! Whenever one could have been lost, the answer is "scan everything", and a client that gets no answer does the same.
//!
//! [`change_log`] and [`dirs`] hold the state, [`watch`] keeps it up to date for one workspace from what a [`kernel`]
//! reports, [`server`] answers on a socket in the format of [`wire`], and [`client`] asks. A watcher is part of `stepback
//! serve`, or a separate [`process`] that is [started](launch) by the first hook for which scanning takes long.
//! `docs/design/0018-watcher.md` explains why an answer is reliable.

pub mod change_log;
pub mod client;
pub mod dirs;
pub mod kernel;
pub mod launch;
pub mod mounts;
pub mod process;
pub mod report;
pub mod server;
mod sight;
pub mod watch;
pub mod wire;
