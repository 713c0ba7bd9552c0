//! `stepback doctor --fix`: shows what it would do, asks, does it, and says how to undo it.
//!
//! A fix does only what another command or the next ordinary use of stepback would do too. Damage of the store is not fixed
//! here: `fsck --repair` has a plan of its own.

use serde_json::{Value, json};
use stepback_agents::install::{self, InstallPlan};
use stepback_store::private_files::{self, ExposedFile};

use super::Examination;
use super::report::Finding;
use crate::args::store::DoctorArgs;
use crate::commands::agents::install_failure;
use crate::commands::confirmation::ask_user;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Something that `--fix` can do.
#[derive(Clone)]
pub struct Fix {
    /// What it would do, as a verb phrase: "tighten the permissions of 3 files".
    pub description: String,
    /// How the user can undo it.
    pub undo: String,
    pub action: FixAction,
}

/// What a fix changes. They are applied in this order.
#[derive(Clone)]
pub enum FixAction {
    TightenPermissions(Vec<ExposedFile>),
    InstallHooks(Box<InstallPlan>),
    FinishOperations,
    RecordInbox,
    RebuildStatCache,
    IndexSteps,
}

impl FixAction {
    fn order(&self) -> usize {
        match self {
            Self::TightenPermissions(_) => 0,
            Self::InstallHooks(_) => 1,
            Self::FinishOperations => 2,
            Self::RecordInbox => 3,
            Self::RebuildStatCache => 4,
            Self::IndexSteps => 5,
        }
    }
}

/// A fix that was applied, or failed.
pub struct AppliedFix {
    /// The id of the finding that it is about.
    id: String,
    fix: Fix,
    /// What was done, or why it failed; `None` if it was not tried.
    result: Option<Result<String, CommandFailure>>,
}

impl AppliedFix {
    /// The fix as JSON.
    pub fn document(&self) -> Value {
        let (done, failure) = match &self.result {
            None => (None, None),
            Some(Ok(done)) => (Some(done.as_str()), None),
            Some(Err(failure)) => (None, Some(failure.message())),
        };
        json!({
            "id": self.id,
            "fix": self.fix.description,
            "applied": done.is_some(),
            "result": done,
            "error": failure,
            "undo": self.fix.undo,
        })
    }
}

/// Shows the plan, asks, and applies it. Returns what was done; with `--dry-run` the plan.
pub fn run_fixes(
    examination: &Examination,
    findings: &[Finding],
    wanted: &DoctorArgs,
    json: bool,
) -> Result<Vec<AppliedFix>, CommandFailure> {
    let mut fixes: Vec<AppliedFix> = findings
        .iter()
        .filter_map(|finding| {
            Some(AppliedFix { id: finding.id.clone(), fix: finding.fix.clone()?, result: None })
        })
        .collect();
    fixes.sort_by_key(|planned| planned.fix.action.order());
    if !json {
        print_plan(&fixes);
    }
    if wanted.dry_run || fixes.is_empty() {
        return Ok(fixes);
    }
    if !wanted.yes {
        let refusal = CommandFailure::new(FailureKind::Refused, "confirmation required: nothing was fixed")
            .with_hint("add --yes to confirm, or --dry-run to only show the plan");
        if !ask_user(json, "Continue?", refusal)? {
            return Ok(fixes);
        }
    }
    let paint = Paint::stdout();
    for (at, planned) in fixes.iter_mut().enumerate() {
        let result = apply(examination, &planned.fix.action);
        if !json {
            match &result {
                Ok(done) => output::print_line(format!("{}  {}. {done}", paint.good("done  "), at + 1)),
                Err(failure) => {
                    output::print_line(format!("{}  {}. {}", paint.bad("failed"), at + 1, failure.message()));
                }
            }
            if result.is_ok() {
                output::print_line(paint.dim(format!("           Undo: {}", planned.fix.undo)));
            }
        }
        planned.result = Some(result);
    }
    if !json {
        output::print_line("");
    }
    Ok(fixes)
}

fn print_plan(fixes: &[AppliedFix]) {
    if fixes.is_empty() {
        output::print_line("Nothing that --fix can do.");
        output::print_line("");
        return;
    }
    output::print_line("Plan:");
    for (at, planned) in fixes.iter().enumerate() {
        output::print_line(format!("{:>3}. {}", at + 1, planned.fix.description));
    }
    output::print_line("");
}

fn apply(examination: &Examination, action: &FixAction) -> Result<String, CommandFailure> {
    match action {
        FixAction::TightenPermissions(exposed) => {
            private_files::tighten(exposed)?;
            Ok(format!("only you can access {} now", output::count(exposed.len() as u64, "path")))
        }
        FixAction::InstallHooks(plan) => {
            install::apply_plan(plan).map_err(install_failure)?;
            Ok(format!("{}: {}", plan.agent.title(), plan.changes.join("; ")))
        }
        FixAction::FinishOperations => {
            let context = examination.context()?;
            let before = examination.unfinished()?;
            // Opening the workspace finishes them.
            context.engine().open_known_workspace(&examination.root)?;
            let mut ends = Vec::new();
            for operation in before {
                let now = context.store().operation(operation.id)?;
                let status = now.map_or("gone", |operation| operation.status.as_str());
                ends.push(format!("{} is {status}", operation.summary));
            }
            Ok(ends.join("; "))
        }
        FixAction::RecordInbox => {
            let workspace = examination.workspace()?;
            let dir = workspace.cache_dir()?;
            let notes = match &dir {
                Some(dir) => stepback_agents::inbox::summarize(dir)?.notes,
                None => 0,
            };
            stepback_agents::record::record_inbox(workspace)?;
            Ok(format!("recorded {}", output::count(notes, "report")))
        }
        FixAction::RebuildStatCache => {
            let present = examination.workspace()?.scan_for_display()?;
            Ok(format!("scanned every file, {} were read", output::grouped(present.hashed)))
        }
        FixAction::IndexSteps => {
            let steps = examination.context()?.engine().update_index()?;
            Ok(format!("indexed {}", output::count(steps, "step")))
        }
    }
}
