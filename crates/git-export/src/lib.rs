//! What is recorded, written into the user's git repository: sessions as commits, and authorship notes.
//!
//! Both add objects and move one reference; nothing else in the repository changes (see [`stepback_git`]). Who wrote which
//! line comes from [`stepback_provenance`].
//!
//! # Modules
//!
//! - [`session_commits`]: a session as commits on a branch. Start there.
//! - `state_tree`: a recorded state as a git tree, and what is left out of it.
//! - `commit_message`: messages with trailers that a prompt cannot forge.
//! - [`authorship_note`]: the format of authorship notes.
//! - `note_tree`: the notes of a repository, by commit.
//! - [`notes`]: writes and reads the notes of commits.
//! - `error`: what can go wrong.

pub mod authorship_note;
mod commit_message;
mod error;
mod note_tree;
pub mod notes;
pub mod session_commits;
mod state_tree;

pub use error::GitExportError;
pub use notes::{NotesRequest, read_notes, write_notes};
pub use session_commits::{CommitGrouping, SessionCommitsRequest, export_session};
