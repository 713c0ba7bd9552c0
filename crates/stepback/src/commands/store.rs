//! The command `stepback store`: operations on the store as a whole.

use std::path::Path;
use std::sync::atomic::Ordering;

use serde_json::json;
use stepback_store::copy::{self, CopyError, Phase};
use stepback_store::{Store, step_chain};

use super::{CommandResult, DONE};
use crate::context::CreateStore;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Progress};
use crate::store_location::StoreLocation;

/// Runs `stepback store copy`.
pub fn copy(from: &Path, to: &Path, accept_breaks: bool, json: bool) -> CommandResult {
    let (from, to) = (StoreLocation::parse(from)?, StoreLocation::parse(to)?);
    if from == to {
        return Err(CommandFailure::new(FailureKind::Usage, "a store cannot be copied onto itself"));
    }
    let source = from.open(CreateStore::No)?;
    if !accept_breaks {
        refuse_changed_steps(&*source)?;
    }
    let target = to.open(CreateStore::Yes)?;
    let mut shown: Option<(Phase, Progress)> = None;
    let mut progress = |phase: Phase, done: u64, _total: u64| {
        if shown.as_ref().is_none_or(|(known, _)| *known != phase) {
            // The old display ends first, because both write on the same line.
            shown = None;
            let what = match phase {
                Phase::Objects => "objects copied",
                Phase::Steps => "steps copied",
                Phase::Verifying => "objects verified",
            };
            shown = Some((phase, Progress::start(what, json)));
        }
        if let Some((_, progress)) = &shown {
            progress.counter().store(done, Ordering::Relaxed);
        }
    };
    let copied = copy::copy(&*source, &*target, &mut progress);
    drop(shown);
    let copied = copied.map_err(|error| copy_failure(error, &to))?;
    if json {
        output::print_document(
            &json!({ "from": from.display_text(), "to": to.display_text(), "copied": copied }),
        );
        return DONE;
    }
    output::print_line(format!(
        "Copied {} ({}), {}, {}, {} and {} to {}, and verified the copy.",
        output::count(copied.objects, "object"),
        output::bytes(copied.bytes),
        output::count(copied.workspaces, "workspace"),
        output::count(copied.sessions, "session"),
        output::count(copied.steps, "step"),
        output::count(copied.operations, "operation"),
        to.display_text()
    ));
    output::print_line(format!(
        "To use it from now on: export STEPBACK_HOME='{}' where you and your agents work. {} is unchanged.",
        to.display_text(),
        from.display_text()
    ));
    DONE
}

/// Refuses a store whose steps were changed by another program. A copy computes the links of all steps anew, and would show no
/// sign of it.
fn refuse_changed_steps(source: &dyn Store) -> Result<(), CommandFailure> {
    for workspace in source.workspaces()? {
        if let Some(first) = step_chain::verify(source, workspace.id)?.breaks.first() {
            return Err(CommandFailure::new(
                FailureKind::Store,
                format!("the record was changed by another program: {first}"),
            )
            .with_hint(
                "\"stepback fsck\" lists all changes; --accept-breaks copies the record as it is, without a trace of them",
            ));
        }
    }
    Ok(())
}

fn copy_failure(error: CopyError, to: &StoreLocation) -> CommandFailure {
    let message = error.to_string();
    match error {
        CopyError::Store(error) => CommandFailure::from(error),
        CopyError::NotEmpty { .. } => {
            CommandFailure::new(FailureKind::Refused, format!("{}: {message}", to.display_text()))
                .with_hint("choose a directory that does not exist, or an empty database")
        }
        CopyError::Disturbed(_) => CommandFailure::new(FailureKind::Busy, message)
            .with_hint("remove the target, and copy again while no agent and no stepback process is running"),
        CopyError::Differs(_) => CommandFailure::new(FailureKind::Store, message)
            .with_hint("\"stepback fsck\" checks the original; do not use the target"),
    }
}
