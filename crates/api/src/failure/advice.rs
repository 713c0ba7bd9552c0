//! Classifies the errors of the engine and of what is built on it, and adds advice in the words of the command line.

use stepback_board::BoardError;
use stepback_bundle::BundleError;
use stepback_engine::EngineError;
use stepback_engine::branch::BranchError;
use stepback_engine::changes::SelectionError;
use stepback_engine::moves::PartsError;
use stepback_engine::workspace_admin::WorkspaceError;
use stepback_git::GitError;
use stepback_history::HistoryError;
use stepback_model::json::JsonError;
use stepback_model::object::ObjectError;
use stepback_reasoning::MindError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;

use super::FailureKind;

/// Returns the kind of an error, and advice if there is any.
pub fn classify_engine_error(error: &EngineError) -> (FailureKind, Option<&'static str>) {
    match error {
        EngineError::Store(error) => classify_store_error(error),
        EngineError::Worktree(error) => classify_worktree_error(error),
        EngineError::Point(_) => (
            FailureKind::Point,
            Some("\"stepback log\" lists all steps; points are explained in \"stepback help points\""),
        ),
        EngineError::NothingRecorded { .. } => {
            (FailureKind::Nothing, Some("run \"stepback checkpoint create\" to create the first one"))
        }
        EngineError::NoFiles { .. } => (FailureKind::Nothing, Some("\"stepback log\" shows the checkpoints")),
        EngineError::NoDirectory { .. } => {
            (FailureKind::Refused, Some("rewind in a workspace whose session was recorded on this machine"))
        }
        EngineError::Purged { .. } => {
            (FailureKind::Nothing, Some("\"stepback checkpoint list\" lists the remaining ones"))
        }
        EngineError::CannotFit { freed_at_once, .. } => {
            (FailureKind::Refused, Some(advise_too_small_a_size(*freed_at_once)))
        }
        EngineError::TooManyManual { .. } => (
            FailureKind::Refused,
            Some(
                "delete some with \"stepback checkpoint delete POINT\", or raise the limit with \"stepback settings checkpoint.max-manual N\" (0: no limit)",
            ),
        ),
        EngineError::NothingToUndo(_) => {
            (FailureKind::Nothing, Some("\"stepback op log\" lists the operations"))
        }
        EngineError::CannotUndo(_) => (
            FailureKind::Nothing,
            Some("\"stepback op log\" lists the operations; \"stepback undo N\" undoes another one"),
        ),
        EngineError::NotRunning(_) => {
            (FailureKind::Nothing, Some("\"stepback sessions\" lists all sessions"))
        }
        EngineError::Mind(error) => classify_reasoning_error(error),
        EngineError::Selection(SelectionError::OtherLine(_)) => {
            (FailureKind::Usage, Some("\"stepback diff\" compares them"))
        }
        EngineError::Selection(SelectionError::NoSuchChange { .. }) => {
            (FailureKind::Usage, Some("\"stepback changes\" lists them"))
        }
        EngineError::Selection(SelectionError::HunksOfMany) => {
            (FailureKind::Usage, Some("name the change with --change N"))
        }
        EngineError::Parts(error) => classify_parts_error(error),
        EngineError::Workspace(error) => classify_workspace_error(error),
        EngineError::Branch(error) => classify_branch_error(error),
        EngineError::Selection(_)
        | EngineError::Pattern(_)
        | EngineError::Annotation(_)
        | EngineError::NoTarget
        | EngineError::NothingMatches { .. }
        | EngineError::NotACheckpoint { .. }
        | EngineError::PlanOutdated
        | EngineError::NotEmpty { .. }
        | EngineError::NoLocalDirectory
        | EngineError::InvalidWhenRedacted(_) => (FailureKind::Usage, None),
        EngineError::Json(error) => of_json(error),
        EngineError::NotABoardChange { .. } => {
            (FailureKind::Usage, Some("\"stepback log --kind reasoning\" lists them"))
        }
        EngineError::NotCaptured { .. } => {
            (FailureKind::Refused, Some("\"stepback settings record.capture all\" records everything again"))
        }
        EngineError::ScanInBatch => (FailureKind::Internal, None),
        EngineError::Io { error, .. } => classify_io_error(error),
        EngineError::RetriesExhausted { .. } => (
            FailureKind::Busy,
            Some("many stepback processes are writing to this store; retry when there are fewer"),
        ),
        EngineError::Busy { .. } => (FailureKind::Busy, Some("wait until it has finished, then retry")),
        EngineError::GitBusy { .. } => {
            (FailureKind::Busy, Some("let git finish; if no git is running, remove that lock file"))
        }
        EngineError::RolledBack { cause } => (classify_engine_error(cause).0, classify_engine_error(cause).1),
        EngineError::Unfinished { cause, .. } | EngineError::Unrecorded { cause } => (
            classify_engine_error(cause).0,
            Some(
                "fix the cause, then run \"stepback status\", which finishes the operation; nothing is lost",
            ),
        ),
    }
}

fn classify_branch_error(error: &BranchError) -> (FailureKind, Option<&'static str>) {
    match error {
        BranchError::NoFiles { .. } => (
            FailureKind::Refused,
            Some(
                "\"POST /branches/NAME/execute\" runs a pending one, \"stepback branch delete\" deletes one that is pending or failed",
            ),
        ),
        _ => (FailureKind::Usage, None),
    }
}

fn classify_parts_error(error: &PartsError) -> (FailureKind, Option<&'static str>) {
    match error {
        PartsError::Unknown { .. } => (FailureKind::Usage, None),
        PartsError::NeedsPoint(_) => (
            FailureKind::Usage,
            Some("name a point; files go back change by change in a rewind of their own"),
        ),
        PartsError::NeedsFiles(_) => (FailureKind::Usage, Some("name files too (--files), or leave it out")),
        PartsError::NoSession(_) | PartsError::NotStarted { .. } => (
            FailureKind::Nothing,
            Some("\"stepback sessions\" lists the sessions; name another one or a later point"),
        ),
        PartsError::NothingRecorded { .. } => (
            FailureKind::Nothing,
            Some("\"stepback at POINT\" shows what is recorded; --session names another session"),
        ),
        PartsError::NoBoard => (
            FailureKind::Nothing,
            Some("\"stepback board\" shows the board; \"stepback rewind\" takes other parts back"),
        ),
    }
}

fn classify_reasoning_error(error: &MindError) -> (FailureKind, Option<&'static str>) {
    match error {
        MindError::Unknown { .. } | MindError::TakenBack(_) => {
            (FailureKind::Nothing, Some("\"stepback board\" shows the board with all items"))
        }
        MindError::Cycle(_) => (
            FailureKind::Refused,
            Some(
                "remove one of these dependencies first, with \"stepback board belief undepend\" for beliefs",
            ),
        ),
        MindError::State { .. } | MindError::TooMany { .. } => (FailureKind::Refused, None),
        MindError::Json(JsonError::Object(_)) | MindError::Unreadable(_) => {
            (FailureKind::Store, Some("\"stepback fsck\" reports what is damaged"))
        }
        _ => (FailureKind::Usage, None),
    }
}

fn classify_store_error(error: &StoreError) -> (FailureKind, Option<&'static str>) {
    match error {
        StoreError::Newer { .. } => {
            (FailureKind::Store, Some("use a newer version of stepback, or another store with --store"))
        }
        StoreError::NotAStore { .. } => {
            (FailureKind::Store, Some("choose another directory with --store or STEPBACK_HOME"))
        }
        StoreError::Absent { .. } => (
            FailureKind::Nothing,
            Some("run \"stepback checkpoint create\" to create one, or choose another with --store"),
        ),
        StoreError::Lost { .. } => (
            FailureKind::Store,
            Some("\"stepback fsck --repair\" shows what is missing and brings it back; reading still works"),
        ),
        StoreError::ReadOnly { .. } => (
            FailureKind::System,
            Some(
                "reading works (\"stepback log\", \"stepback restore POINT --into DIR\"); to record, make it writable or use another store with --store",
            ),
        ),
        StoreError::Replaced { .. } => {
            (FailureKind::Store, Some("restart this process; \"stepback doctor\" shows which store is used"))
        }
        StoreError::Corrupt { .. } => (FailureKind::Store, Some("\"stepback fsck\" reports what is damaged")),
        StoreError::Object(error) => of_object(error),
        StoreError::Io { error, .. } => classify_io_error(error),
        StoreError::Full { .. } => (FailureKind::System, Some("\"stepback prune\" frees space")),
        StoreError::Locked => (FailureKind::Busy, Some("another process is using the store; retry")),
        StoreError::Database { .. } => (FailureKind::System, None),
        StoreError::Server { remedy, .. } => (FailureKind::System, Some(remedy)),
        StoreError::Forbidden { .. } => (
            FailureKind::System,
            Some(
                "run it where the store is, as the user that owns it, or with the server's own token in STEPBACK_TOKEN",
            ),
        ),
        _ => (FailureKind::Internal, None),
    }
}

fn of_object(error: &ObjectError) -> (FailureKind, Option<&'static str>) {
    match error {
        ObjectError::Backend(inner) => {
            inner.downcast_ref::<StoreError>().map_or((FailureKind::System, None), classify_store_error)
        }
        _ => (FailureKind::Store, Some("\"stepback fsck\" reports what is damaged")),
    }
}

fn of_json(error: &JsonError) -> (FailureKind, Option<&'static str>) {
    match error {
        JsonError::Object(error) => of_object(error),
        _ => (FailureKind::Usage, None),
    }
}

fn classify_worktree_error(error: &WorktreeError) -> (FailureKind, Option<&'static str>) {
    match error {
        WorktreeError::Root { error, .. }
        | WorktreeError::Io { error, .. }
        | WorktreeError::Aside { error, .. } => classify_io_error(error),
        WorktreeError::Store(error) => classify_store_error(error),
        WorktreeError::Object(error) => of_object(error),
    }
}

/// Like [`classify_engine_error`], for a `BundleError`.
pub fn classify_bundle_error(error: &BundleError) -> (FailureKind, Option<&'static str>) {
    match error {
        BundleError::NotABundle => {
            (FailureKind::Usage, Some("\"stepback export SESSION --format bundle -o FILE\" makes one"))
        }
        BundleError::Newer { .. } => (
            FailureKind::Refused,
            Some(
                "use a newer version of stepback, or export it again with this version; nothing was changed",
            ),
        ),
        BundleError::Damaged(_) => (
            FailureKind::Refused,
            Some("copy it again from its source, or export it again; nothing was changed"),
        ),
        BundleError::Inconsistent(_) => {
            (FailureKind::Refused, Some("do not trust its source, or export it again; nothing was changed"))
        }
        BundleError::Conflict(_) => (
            FailureKind::Refused,
            Some("import it into another store with --store DIR; nothing was changed here"),
        ),
        BundleError::Io { error, .. } => classify_io_error(error),
        BundleError::UserSession | BundleError::NoDirectoryForGit | BundleError::Value(_) => {
            (FailureKind::Usage, None)
        }
        BundleError::Engine(error) => classify_engine_error(error),
    }
}

/// Like [`classify_engine_error`], for a `HistoryError`.
pub fn classify_history_error(error: &HistoryError) -> (FailureKind, Option<&'static str>) {
    match error {
        HistoryError::Unrelated { .. } => {
            (FailureKind::Point, Some("\"stepback timeline\" shows how steps are related"))
        }
        HistoryError::NothingBetween => (
            FailureKind::Nothing,
            Some("specify two points: stepback bisect --run CMD --good POINT --bad POINT"),
        ),
        HistoryError::NotGood { .. } => (FailureKind::Usage, Some("choose an earlier one with --good")),
        HistoryError::NotBad { .. } => (FailureKind::Usage, Some("choose a later one with --bad")),
        HistoryError::Killed { .. } => (FailureKind::System, None),
        HistoryError::CannotRun { .. } => (FailureKind::System, Some("try it in the workspace first")),
        HistoryError::ProbePanicked => (FailureKind::Internal, None),
        HistoryError::Io(error) => classify_io_error(error),
        HistoryError::Value(_) => (FailureKind::Usage, None),
        HistoryError::Engine(error) => classify_engine_error(error),
    }
}

/// Like [`classify_engine_error`], for a `BoardError`.
pub fn classify_board_error(error: &BoardError) -> (FailureKind, Option<&'static str>) {
    match error {
        BoardError::Engine(error) => classify_engine_error(error),
        _ => (FailureKind::Usage, None),
    }
}

/// Like [`classify_engine_error`], for an error about a git repository.
pub fn classify_git_error(error: &GitError) -> (FailureKind, Option<&'static str>) {
    match error {
        GitError::NoRepository(_) => {
            (FailureKind::Nothing, Some("\"git init\" makes a repository; work in a directory inside one"))
        }
        GitError::Unsupported { .. } => (
            FailureKind::System,
            Some("only repositories with SHA-1 names and references in files are read and written"),
        ),
        GitError::BadName(_) => {
            (FailureKind::Usage, Some("\"git check-ref-format NAME\" says which names git accepts"))
        }
        GitError::Locked { .. } | GitError::Moved(_) => (FailureKind::Busy, None),
        GitError::NameConflict { .. } => (FailureKind::Usage, Some("choose another name")),
        GitError::NoReference(_) => (FailureKind::Point, None),
        GitError::NoObject(_) => (
            FailureKind::System,
            Some("a shallow or partial clone has no older objects; \"git fetch\" gets them"),
        ),
        GitError::Damaged { .. } => (FailureKind::System, Some("\"git fsck\" examines the repository")),
        GitError::Io { error, .. } => classify_io_error(error),
    }
}

/// Like [`classify_engine_error`], for an I/O error.
pub fn classify_io_error(error: &std::io::Error) -> (FailureKind, Option<&'static str>) {
    if let Some(error) = error.get_ref() {
        if let Some(error) = error.downcast_ref::<ObjectError>() {
            return of_object(error);
        }
        if let Some(error) = error.downcast_ref::<StoreError>() {
            return classify_store_error(error);
        }
    }
    match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => disk_full_advice(),
        std::io::ErrorKind::PermissionDenied => {
            (FailureKind::System, Some("check its owner and permissions; nothing was changed"))
        }
        std::io::ErrorKind::NotFound => (FailureKind::System, Some("check that the path exists")),
        _ => (FailureKind::System, None),
    }
}

fn disk_full_advice() -> (FailureKind, Option<&'static str>) {
    (
        FailureKind::System,
        Some(
            "the disk is full: free some space, then try again; \"stepback prune --now\" frees old checkpoints, but needs a little space itself",
        ),
    )
}

fn classify_workspace_error(error: &WorkspaceError) -> (FailureKind, Option<&'static str>) {
    match error {
        WorkspaceError::Taken(_) => (
            FailureKind::Refused,
            Some("\"stepback workspace list\" lists the workspaces; forget or move that one first"),
        ),
        WorkspaceError::InStore { .. } => {
            (FailureKind::Refused, Some("use a directory outside of the store; nothing was changed"))
        }
        _ => (FailureKind::Nothing, Some("\"stepback workspace list --forgotten\" lists forgotten ones")),
    }
}

/// What to do if pruning cannot reach the requested size.
fn advise_too_small_a_size(freed_at_once: bool) -> &'static str {
    match freed_at_once {
        false => {
            "nothing was pruned; with --now checkpoints of the last 24 hours may go too, which cannot be undone; manual and labelled checkpoints are only deleted by name or by --keep-last and --keep-days"
        }
        true => {
            "nothing was pruned; delete labelled or manual checkpoints by name, use --keep-last or --keep-days, or prune other workspaces"
        }
    }
}
