//! The command `stepback fsck`: verifies the store, and brings back commits that its database lost.

use std::process::ExitCode;

use serde_json::{Value, json};
use stepback_engine::collect::WorkspaceBreak;
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::{LostCommit, MaintenanceStore as _};

use super::confirmation::ask_user;
use super::{CommandResult, DONE};
use crate::args::{Arguments, Fsck};
use crate::context::{Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::store_location::StoreLocation;

/// Runs `stepback fsck`.
pub fn fsck(arguments: &Arguments, wanted: &Fsck) -> CommandResult {
    let opened = Context::open(arguments, CreateStore::No, "objects verified");
    if !wanted.repair {
        return check(&opened?);
    }
    match opened {
        Ok(context) => {
            let plan = context.store().lost_commits()?;
            if plan.is_empty() {
                return check(&context);
            }
            repair(arguments, wanted, &plan, || context.store().restore_lost_commits().map_err(Into::into))
        }
        Err(failure) => match (rebuildable(arguments), failure.kind()) {
            (Some((place, plan)), FailureKind::Store) => repair(arguments, wanted, &plan, || {
                Ok(EmbeddedStore::open_to_repair(place.local_dir())?.restore_lost_commits()?)
            }),
            _ => Err(failure),
        },
    }
}

/// The commits from which a lost database can be made again.
fn rebuildable(arguments: &Arguments) -> Option<(StoreLocation, Vec<LostCommit>)> {
    let place = StoreLocation::find(arguments.store.as_deref()).ok()?;
    let StoreLocation::Directory(dir) = &place else { return None };
    let plan = EmbeddedStore::rebuildable_commits(dir)?;
    Some((place, plan))
}

/// Shows the plan, asks, brings the commits back, and says what became of them.
fn repair(
    arguments: &Arguments,
    wanted: &Fsck,
    plan: &[LostCommit],
    apply: impl FnOnce() -> Result<Vec<LostCommit>, CommandFailure>,
) -> CommandResult {
    let possible = plan.iter().filter(|commit| commit.obstacle.is_none()).count() as u64;
    let hopeless = plan.len() as u64 - possible;
    if !arguments.json {
        for commit in plan {
            output::print_line(commit.to_string());
        }
        output::print_line(format!(
            "{} would be brought back{}",
            output::count(possible, "commit"),
            if hopeless == 0 {
                String::new()
            } else {
                format!(", {} given up", output::count(hopeless, "commit"))
            }
        ));
    }
    if wanted.dry_run {
        if arguments.json {
            output::print_document(&repair_document(false, plan));
        }
        return DONE;
    }
    if !wanted.yes {
        let refusal = CommandFailure::new(
            FailureKind::Refused,
            "confirmation required: the store would be changed",
        )
        .with_hint(
            "copy the store first if you can; then add --yes to confirm, or --dry-run to only show the plan",
        );
        if !ask_user(arguments.json, "Continue?", refusal)? {
            return DONE;
        }
    }
    let done = apply()?;
    if arguments.json {
        output::print_document(&repair_document(true, &done));
        return DONE;
    }
    let back = done.iter().filter(|commit| commit.obstacle.is_none()).count() as u64;
    output::print_line(format!("Brought back {}", output::count(back, "commit")));
    output::print_status("Hint: \"stepback fsck\" verifies the result.");
    DONE
}

fn repair_document(is_repaired: bool, lost: &[LostCommit]) -> Value {
    json!({ "repaired": is_repaired, "lost": lost })
}

/// Verifies the store and reports what is damaged.
fn check(context: &Context) -> CommandResult {
    let health = context.engine().verify_objects()?;
    let lost = context.store().lost_commits()?;
    let sound = health.problems.is_empty();
    if context.json {
        let items = health.problems.iter().enumerate();
        output::print_document(&json!({
            "ok": sound,
            "verified": health.verified,
            "bytes": health.bytes,
            "steps": health.steps,
            "linked_steps": health.linked,
            "changed_steps": health.breaks.iter().map(break_document).collect::<Vec<_>>(),
            "items": items.map(|(at, problem)| json!({ "id": at + 1, "problem": problem })).collect::<Vec<_>>(),
            "lost": lost,
        }));
    } else {
        let paint = Paint::stdout();
        for problem in &health.problems {
            output::print_line(format!("{} {problem}", paint.bad("damaged:")));
        }
        output::print_line(format!(
            "Verified {} ({}) and {}: {}",
            output::count(health.verified, "object"),
            output::bytes(health.bytes),
            output::count(health.steps, "step"),
            if sound { paint.good("no problems") } else { paint.bad("see above") }
        ));
        if !lost.is_empty() {
            output::print_status(
                "Hint: commits that were acknowledged are missing; \"stepback fsck --repair\" shows which can be brought back.",
            );
        }
        if !health.breaks.is_empty() {
            output::print_status(
                "Hint: another program changed the store. A seal from before names what was there: \"stepback seal --verify SEAL\".",
            );
        }
        if !sound {
            output::print_status(
                "Hint: everything not listed above is intact; \"stepback restore POINT --into DIR\" restores it.",
            );
        }
    }
    if sound { DONE } else { Ok(ExitCode::from(FailureKind::Store as u8)) }
}

/// A step that was changed by other means than stepback.
fn break_document(found: &WorkspaceBreak) -> Value {
    let chain_break = &found.chain_break;
    json!({
        "workspace": found.workspace,
        "session": chain_break.session,
        "step": chain_break.step,
        "count": chain_break.count,
        "at_end": chain_break.at_end,
        "change": chain_break.kind,
    })
}

/// Warns about commits that the store has lost, before a command shows what is left.
pub fn warn_of_lost_commits(store: &dyn Store) {
    if store.has_lost_commits().unwrap_or(false) {
        output::print_status(
            "Warning: the store has lost commits that were acknowledged; nothing is recorded until \"stepback fsck --repair\" has brought them back.",
        );
    }
}
