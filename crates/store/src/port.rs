//! The store interface that the engine uses: immutable objects, an append-only log, and a few references moved by
//! compare-and-swap.
//!
//! A backend implements one small trait for each subject, and with them [`Store`], their sum. It passes the contract suite
//! in `testkit`, which alone defines what a correct store is and has a module for each trait. All changes of the log go
//! through [`CommitLog::commit`]: a list of mutations that take effect together, after the batch's objects are durable, or
//! not at all.

use std::path::Path;
use std::time::Duration;

mod commit;
mod lookup;
mod maintenance;
mod objects;
mod operations;
mod plans;
mod refs;
mod search;
mod sessions;
mod step_chain;
mod steps;

pub use stepback_model::record::StepRow;

pub use self::commit::{CommitLog, CommitMark, Mutation, Receipt};
pub use self::lookup::{BatchAnswers, BatchLookup, Questions, ReadVersions};
pub use self::maintenance::{LostCommit, MaintenanceStore, StoreFormat, StoreUsage, Swept};
pub use self::objects::{FinishedBatch, ObjectBatch, ObjectInfo, ObjectStore};
pub use self::operations::OperationStore;
pub use self::plans::{KEPT_PLANS, PlanStore, StoredPlan};
pub use self::refs::RefStore;
pub use self::search::SearchStore;
pub use self::sessions::SessionStore;
pub use self::step_chain::{ChainEntry, ChainHead, StepChainStore};
pub use self::steps::StepStore;
pub use crate::query::{COUNTED, ORDERS, QueryCursor, SortKey, StepAt, StepCount, StepPage, StepQuery};
pub use crate::search::{SearchDocument, SearchHit, SearchRequest, SearchResult};

/// Name of the vault directory inside a store's local directory. It holds immutable git files, kept by hard link.
pub const VAULT: &str = "vault";

/// A backend that keeps states and their history. Its methods, and those of the other traits, can be called on a
/// `&dyn Store` without imports; with a concrete store, import [`crate::prelude`].
pub trait Store:
    BatchLookup
    + CommitLog
    + OperationStore
    + SearchStore
    + MaintenanceStore
    + PlanStore
    + StepChainStore
    + Send
    + Sync
{
    /// A local directory for caches, locks and hard links, if this store has one.
    fn local_dir(&self) -> Option<&Path>;

    /// Whether immutable git files may be kept by hard link in the local directory. A store that other machines read must
    /// hold their content itself.
    fn has_vault(&self) -> bool {
        self.local_dir().is_some()
    }

    /// The longest time to wait for other processes, if the caller that opened the store has less time than usual.
    fn patience(&self) -> Option<Duration> {
        None
    }
}
