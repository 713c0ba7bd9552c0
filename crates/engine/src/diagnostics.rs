//! Classifies errors into kinds and adds advice, with the same words on the command line and over the network.

use stepback_model::json::JsonError;
use stepback_model::object::ObjectError;
use stepback_reasoning::MindError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;

use crate::bundle::BundleError;
use crate::error::EngineError;

/// Kinds of failure, each with its own exit code. Documented in `docs/guide/exit-codes.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A bug, or an unexpected failure.
    Internal = 1,
    /// Invalid arguments (clap uses the same code).
    Usage = 2,
    /// A point that was not found or is ambiguous.
    Point = 3,
    /// Nothing is recorded, or there is nothing to undo.
    Nothing = 4,
    /// Done, but some paths were skipped because their author is uncertain or a later change is in the way.
    Partial = 5,
    /// The store is damaged, newer than this program, or not a store.
    Store = 6,
    /// The system refused: permission, space, a missing file.
    System = 7,
    /// Another process holds a lock; retry.
    Busy = 8,
    /// Not done because it was not confirmed.
    Refused = 9,
}

impl Kind {
    /// Returns the stable name of the kind.
    pub fn name(self) -> &'static str {
        match self {
            Self::Internal => "internal",
            Self::Usage => "usage",
            Self::Point => "point",
            Self::Nothing => "nothing",
            Self::Partial => "partial",
            Self::Store => "store",
            Self::System => "system",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }
}

/// Returns the kind of an error, and advice if there is any.
pub fn of(error: &EngineError) -> (Kind, Option<&'static str>) {
    match error {
        EngineError::Store(error) => of_store(error),
        EngineError::Worktree(error) => of_worktree(error),
        EngineError::Bundle(error) => of_bundle(error),
        EngineError::Point(_) => (
            Kind::Point,
            Some("\"stepback log\" lists what there is; points are explained in \"stepback help points\""),
        ),
        EngineError::NothingRecorded { .. } => {
            (Kind::Nothing, Some("run \"stepback checkpoint create\" to make the first one"))
        }
        EngineError::NoFiles { .. } => (Kind::Nothing, Some("\"stepback log\" shows the checkpoints")),
        EngineError::NoDirectory { .. } => {
            (Kind::Refused, Some("go back in the workspace of a session that was recorded on this machine"))
        }
        EngineError::Purged { .. } => {
            (Kind::Nothing, Some("\"stepback checkpoint list\" shows what is left"))
        }
        EngineError::NothingTo(_) => (Kind::Nothing, Some("\"stepback op log\" shows what stepback did")),
        EngineError::CannotUndo(_) => (
            Kind::Nothing,
            Some("\"stepback op log\" shows what stepback did; \"stepback undo N\" takes back another one"),
        ),
        EngineError::NotRunning(_) => (Kind::Nothing, Some("\"stepback sessions\" lists all sessions")),
        EngineError::Mind(error) => of_mind(error),
        EngineError::Input(_) => (Kind::Usage, None),
        EngineError::Busy { .. } => (Kind::Busy, Some("wait until it has finished, then try again")),
        EngineError::GitBusy { .. } => {
            (Kind::Busy, Some("let git finish; if no git is running, remove that lock file"))
        }
        EngineError::RolledBack { cause } => (of(cause).0, of(cause).1),
        EngineError::Unfinished { cause, .. } | EngineError::Unrecorded { cause } => (
            of(cause).0,
            Some("mend the cause, then run \"stepback status\": it finishes what was begun; nothing is lost"),
        ),
    }
}

fn of_mind(error: &MindError) -> (Kind, Option<&'static str>) {
    match error {
        MindError::Unknown { .. } | MindError::TakenBack(_) => {
            (Kind::Nothing, Some("\"stepback mind\" shows the board with all names"))
        }
        MindError::Cycle(_) => (
            Kind::Refused,
            Some("take one of these dependencies back first, with \"stepback belief undepend\" for beliefs"),
        ),
        MindError::State { .. } | MindError::TooMany { .. } => (Kind::Refused, None),
        MindError::Json(JsonError::Object(_)) | MindError::Unreadable(_) => {
            (Kind::Store, Some("\"stepback fsck\" says what is damaged and what is not"))
        }
        _ => (Kind::Usage, None),
    }
}

fn of_bundle(error: &BundleError) -> (Kind, Option<&'static str>) {
    match error {
        BundleError::NotABundle => {
            (Kind::Usage, Some("\"stepback export SESSION --format bundle -o FILE\" makes one"))
        }
        BundleError::Newer { .. } => (
            Kind::Refused,
            Some(
                "use the newer stepback that made it, or let it be made again by this one; nothing was changed",
            ),
        ),
        BundleError::Damaged(_) => (
            Kind::Refused,
            Some("copy it again from where it was made, or export again; nothing was changed"),
        ),
        BundleError::Senseless(_) => (
            Kind::Refused,
            Some("do not trust where it comes from, or have it made again; nothing was changed"),
        ),
        BundleError::Clash(_) => {
            (Kind::Refused, Some("import it into another store with --store DIR; nothing was changed here"))
        }
        BundleError::Io { error, .. } => of_io(error),
    }
}

fn of_store(error: &StoreError) -> (Kind, Option<&'static str>) {
    match error {
        StoreError::Newer { .. } => {
            (Kind::Store, Some("use the newer stepback that wrote it, or another store with --store"))
        }
        StoreError::NotAStore { .. } => {
            (Kind::Store, Some("name another directory with --store or STEPBACK_HOME"))
        }
        StoreError::Absent { .. } => (
            Kind::Nothing,
            Some("run \"stepback checkpoint create\" to make one, or name another with --store"),
        ),
        StoreError::Corrupt { .. } => {
            (Kind::Store, Some("\"stepback fsck\" says what is damaged and what is not"))
        }
        StoreError::Object(ObjectError::Missing { .. } | ObjectError::Corrupt { .. }) => {
            (Kind::Store, Some("\"stepback fsck\" says what is damaged and what is not"))
        }
        StoreError::Object(ObjectError::Backend(inner)) => {
            inner.downcast_ref::<StoreError>().map_or((Kind::System, None), of_store)
        }
        StoreError::Io { error, .. } => of_io(error),
        StoreError::Full { .. } => (Kind::System, Some("\"stepback prune\" frees space")),
        StoreError::Locked => (Kind::Busy, Some("another stepback is using the store; try again")),
        StoreError::Database(_) => (Kind::System, None),
        StoreError::Server { remedy, .. } => (Kind::System, Some(remedy)),
        _ => (Kind::Internal, None),
    }
}

fn of_worktree(error: &WorktreeError) -> (Kind, Option<&'static str>) {
    match error {
        WorktreeError::Root { error, .. }
        | WorktreeError::Io { error, .. }
        | WorktreeError::Aside { error, .. } => of_io(error),
        WorktreeError::Store(error) => of_store(error),
        WorktreeError::Object(ObjectError::Backend(inner)) => {
            inner.downcast_ref::<StoreError>().map_or((Kind::System, None), of_store)
        }
        WorktreeError::Object(_) => {
            (Kind::Store, Some("\"stepback fsck\" says what is damaged and what is not"))
        }
    }
}

/// Like [`of`], for an I/O error.
pub fn of_io(error: &std::io::Error) -> (Kind, Option<&'static str>) {
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => of_full(),
        std::io::ErrorKind::PermissionDenied => {
            (Kind::System, Some("check who owns it and its permissions; nothing was changed"))
        }
        std::io::ErrorKind::NotFound => (Kind::System, Some("check that the path exists")),
        _ => (Kind::System, None),
    }
}

fn of_full() -> (Kind, Option<&'static str>) {
    (
        Kind::System,
        Some("the disk is full: make room (\"stepback prune --now\" frees old checkpoints), then try again"),
    )
}
