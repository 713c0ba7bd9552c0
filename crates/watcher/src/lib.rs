//! The watcher: reports which directories of a workspace may have changed since an earlier scan.
//!
//! A scan without a watcher calls `stat` on every file. Where a watcher runs, the kernel reports changes to it as they
//! happen, and a scan asks the watcher instead: it visits only the directories that the watcher names. Events are
//! hints. Whenever one could have been lost, the answer is "scan everything", and a client that gets no answer does the
//! same. `docs/design/0018-watcher.md` explains why an answer is reliable.
//!
//! A watcher is part of `stepback serve`, or a separate process that the first hook with a slow scan starts. It knows
//! what a scan walks, but neither the log nor agents, and it writes nothing into the store but its own socket, lock and
//! marks.
//!
//! # Modules
//!
//! - [`change_log`], [`dirs`]: which directories changed at which position, and the directory of each kernel watch.
//!   Pure.
//! - [`kernel`], [`mounts`]: the kernel interface (a trait, so that tests can lose events) with inotify, and file
//!   systems mounted inside a workspace.
//! - [`watch`] and `sight`: one watched workspace, and its thread.
//! - [`server`], [`wire`], [`report`]: the socket with all watched workspaces, its protocol, and what a watcher says
//!   about itself.
//! - [`client`]: asks with a short timeout, and decides whether a watcher is worth starting. Start here, at
//!   [`client::WatcherClient`].
//! - [`launch`], [`process`]: starts a watcher once, with backoff after failures; that process, from releasing what it
//!   inherited from the agent to its exit.

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
