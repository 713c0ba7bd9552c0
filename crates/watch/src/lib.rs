//! The watcher: what may have changed in a workspace since somebody last looked.
//!
//! A scan asks every file how it is. Where a watcher runs, the kernel tells it of changes as they happen, and a scan asks the
//! watcher instead: only the directories it names are looked at. Events are hints. Whenever one could have been lost, the
//! answer is "look at everything", and whoever gets no answer does so by itself.
//!
//! [`change_log`] and [`dirs`] are what is known, [`watch`] keeps them right for one workspace by what a [`kernel`] reports,
//! [`server`] answers on a socket in the words of [`wire`], and [`client`] asks. A watcher is part of `stepback serve`, or a
//! [`process`] of its own that is [started](launch) by the first hook for which scanning takes long. `docs/design/0018-watcher.md`
//! says why an answer can be relied on.

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
