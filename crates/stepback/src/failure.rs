//! Failures at the edge: what went wrong, what to do, and which exit code says so.

use std::io::Write;
use std::process::ExitCode;

use serde_json::json;
use stepback_engine::EngineError;
use stepback_model::object::ObjectError;
use stepback_store::StoreError;
use stepback_worktree::WorktreeError;

/// Kinds of failure, each with its own exit code. Documented in `docs/guide/exit-codes.md`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A bug, or something nobody thought of.
    Internal = 1,
    /// Arguments that do not fit together (clap uses the same code).
    Usage = 2,
    /// A point that names nothing, or more than one thing.
    Point = 3,
    /// Nothing is recorded, or there is nothing to undo.
    Nothing = 4,
    /// Done, but some paths were left alone because somebody else changed them.
    Partial = 5,
    /// The store is damaged, newer than this program, or not a store.
    Store = 6,
    /// The system refused: permission, space, a missing file.
    System = 7,
    /// Somebody else is at work; try again.
    Busy = 8,
    /// Not done because nobody agreed to it.
    Refused = 9,
}

impl Kind {
    fn name(self) -> &'static str {
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

/// A failure with everything a person needs.
#[derive(Debug)]
pub struct Failure {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// A failure of a kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None }
    }

    /// Adds what to do.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// What went wrong.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints it as the one JSON document. The exit code counts even if the reader has gone away.
    pub fn print_document(&self) {
        let error = json!({
            "error": { "code": self.kind.name(), "message": self.message, "hint": self.hint }
        });
        let _ = writeln!(std::io::stdout(), "{error}");
    }

    /// Prints it and gives the exit code.
    pub fn report(&self, json: bool) -> ExitCode {
        if json {
            self.print_document();
        }
        let paint = crate::output::Paint::stderr();
        crate::output::say(format!("{} {}", paint.bad("Error:"), self.message));
        if let Some(hint) = &self.hint {
            crate::output::say(format!("{} {hint}", paint.note("Hint:")));
        }
        ExitCode::from(self.kind as u8)
    }
}

impl From<EngineError> for Failure {
    fn from(error: EngineError) -> Self {
        let message = error.to_string();
        let (kind, hint) = classify(&error);
        Self { kind, message, hint: hint.map(str::to_string) }
    }
}

fn classify(error: &EngineError) -> (Kind, Option<&'static str>) {
    match error {
        EngineError::Store(error) => of_store(error),
        EngineError::Worktree(error) => of_worktree(error),
        EngineError::Point(_) => (
            Kind::Point,
            Some("\"stepback log\" lists what there is; points are explained in \"stepback help points\""),
        ),
        EngineError::NothingRecorded { .. } => {
            (Kind::Nothing, Some("run \"stepback checkpoint create\" to make the first one"))
        }
        EngineError::NoFiles { .. } => (Kind::Nothing, Some("\"stepback log\" shows the checkpoints")),
        EngineError::Purged { .. } => {
            (Kind::Nothing, Some("\"stepback checkpoint list\" shows what is left"))
        }
        EngineError::NothingTo(_) => (Kind::Nothing, Some("\"stepback op log\" shows what stepback did")),
        EngineError::CannotUndo(_) => (
            Kind::Nothing,
            Some("\"stepback op log\" shows what stepback did; \"stepback undo N\" takes back another one"),
        ),
        EngineError::Input(_) => (Kind::Usage, None),
        EngineError::Busy { .. } => (Kind::Busy, Some("wait until it has finished, then try again")),
        EngineError::GitBusy { .. } => {
            (Kind::Busy, Some("let git finish; if no git is running, remove that lock file"))
        }
        EngineError::RolledBack { cause } => (classify(cause).0, classify(cause).1),
        EngineError::Unfinished { cause, .. } | EngineError::Unrecorded { cause } => (
            classify(cause).0,
            Some("mend the cause, then run \"stepback status\": it finishes what was begun; nothing is lost"),
        ),
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

fn of_io(error: &std::io::Error) -> (Kind, Option<&'static str>) {
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

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        EngineError::from(error).into()
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let (kind, hint) = of_io(&error);
        Self { kind, message: error.to_string(), hint: hint.map(str::to_string) }
    }
}

impl From<ObjectError> for Failure {
    fn from(error: ObjectError) -> Self {
        EngineError::from(error).into()
    }
}
