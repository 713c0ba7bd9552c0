//! `stepback mirror restore`: a store, made of a mirror.

use std::path::Path;
use std::process::ExitCode;

use serde_json::json;
use stepback_mirror::address::{CreateDirectory, MirrorAddress};
use stepback_mirror::archive::{IDENTITY, MirrorArchive};
use stepback_mirror::{MirrorError, restore as restoring};

use crate::commands::{CommandResult, DONE};
use crate::failure::FailureKind;
use crate::mirroring::storage_access;
use crate::output::{self, Paint, Progress};
use crate::system;

/// Runs `stepback mirror restore`.
pub fn restore(address: &MirrorAddress, into: &Path, generation: Option<u64>, json: bool) -> CommandResult {
    let storage = address.open(CreateDirectory::No, &storage_access())?;
    let place = storage.place();
    let Some(archive) = MirrorArchive::open(storage)? else {
        return Err(MirrorError::NotAMirror { place, reason: format!("it has no {IDENTITY}") }.into());
    };
    let progress = Progress::start("objects restored", json);
    let counter = progress.counter();
    let report = restoring::restore(&archive, into, generation, &system::environment(), &counter);
    drop(progress);
    let report = report?;
    let is_whole = report.missing.is_empty();
    if json {
        output::print_document(&json!({
            "ok": is_whole,
            "place": place,
            "store": into.display().to_string(),
            "report": report,
        }));
    } else {
        output::print_line(format!(
            "Restored {} of {} ({}) to {}, and verified them",
            output::count(report.steps, "step"),
            output::count(report.workspaces, "workspace"),
            output::count(report.objects, "object"),
            into.display()
        ));
        if let Some(at) = report.written_at {
            output::print_line(format!("Generation {}, as of {at}", report.generation));
        }
        if report.unpurged > 0 {
            output::print_line(format!(
                "{} that a prune had freed {} complete again; \"stepback checkpoint list --all\" shows hidden ones",
                output::count(report.unpurged, "checkpoint"),
                if report.unpurged == 1 { "is" } else { "are" }
            ));
        }
        let paint = Paint::stdout();
        for problem in &report.missing {
            output::print_line(format!("{} {problem}", paint.bad("missing:")));
        }
        output::print_status(Paint::stderr().dim(format!(
            "To use it: export STEPBACK_HOME='{}', or move it to the place of the old store. \"stepback mirror add {place}\" continues the mirror.",
            into.display()
        )));
    }
    if is_whole { DONE } else { Ok(ExitCode::from(FailureKind::Store as u8)) }
}
