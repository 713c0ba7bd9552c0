//! What a user should know before a rewind, besides what its plan says: changes that git does not have, and files outside of the
//! workspace that calls named. Every surface shows it with the plan; the plan itself, and so its id, does not depend on it.

use stepback_engine::git_warnings::UncommittedCount;
use stepback_engine::moves::{MoveAction, PlannedMove};
use stepback_engine::{EngineError, Workspace};
use stepback_model::escape::safe;
use stepback_model::plan::RewindPlan;
use stepback_model::quantity;

use crate::outside_paths::outside_paths;

/// The most paths outside of the workspace that are named.
const MAX_OUTSIDE_PATHS: usize = 8;

/// Adds the warnings to a planned rewind; nothing to any other move.
pub fn add_rewind_warnings(workspace: &Workspace, planned: &mut PlannedMove) -> Result<(), EngineError> {
    let MoveAction::Rewind(request) = &planned.request.action else { return Ok(()) };
    let Some(files) = planned.files.as_mut().filter(|files| !files.plan.is_empty()) else { return Ok(()) };
    files.warnings.extend(uncommitted_warning(workspace, &files.plan));
    let since = request.target.as_ref().filter(|_| request.changes.is_empty() && request.merge.is_none());
    if let Some(since) = since {
        let named = outside_paths(workspace, since.step.number, request.until, request.session)?;
        files.warnings.extend(outside_warning(&named));
    }
    Ok(())
}

/// Says how many of the files that will change have changes that are not committed to git. They are saved first, but the
/// user should know.
fn uncommitted_warning(workspace: &Workspace, plan: &RewindPlan) -> Option<String> {
    let UncommittedCount { certain, is_lower_bound } = workspace.count_uncommitted(plan);
    let count = certain as u64;
    let have = if count == 1 { "has" } else { "have" };
    let shown = match is_lower_bound {
        true => format!("at least {}", quantity::grouped(count)),
        false => quantity::grouped(count),
    };
    (count > 0 || is_lower_bound).then(|| {
        format!("{shown} of these files {have} changes that git does not have; they are saved first")
    })
}

/// Names files outside of the workspace that agents' calls named since, because a rewind does not reach them.
fn outside_warning(named: &[String]) -> Option<String> {
    if named.is_empty() {
        return None;
    }
    let mut listed: Vec<String> = named.iter().take(MAX_OUTSIDE_PATHS).map(|path| safe(path)).collect();
    if let Some(more @ 1..) = named.len().checked_sub(MAX_OUTSIDE_PATHS) {
        listed.push(format!("{more} more"));
    }
    let listed = listed.join(", ");
    Some(format!("calls since named paths outside of the workspace, which stay as they are: {listed}"))
}
