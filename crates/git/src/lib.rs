//! Git repositories as files: objects and references are read and added without running git.
//!
//! Git itself is never run, because the configuration of a repository can make it run other programs. Nothing here reads
//! a repository's configuration, except two settings that say how it is stored. Packs are read by `gix-odb`; hooks,
//! filters, attributes, `include`s and credential helpers have no meaning to any of this.
//!
//! Writing means adding objects and moving one reference. The index, `HEAD`, the work tree, the reference logs and every
//! other reference stay as they are.
//!
//! # Modules
//!
//! - [`repository`]: finds a repository, and says what it is in the middle of. Start there.
//! - [`object`]: ids, commits and trees as values.
//! - [`object_reader`]: reads objects, loose or packed.
//! - [`object_writer`]: adds single objects.
//! - [`pack_writer`]: adds many objects as one pack.
//! - [`mod@reference`]: reads references, and moves one under git's own lock.
//! - `error`: what can go wrong.

mod error;
pub mod object;
pub mod object_reader;
pub mod object_writer;
pub mod pack_writer;
pub mod reference;
pub mod repository;

pub use error::GitError;
pub use object::{GitCommit, GitEntry, GitObject, GitObjectKind, GitOid, GitSignature};
pub use object_reader::ObjectReader;
pub use pack_writer::GitPackWriter;
pub use repository::GitRepository;
