//! The command `stepback checkpoint …`.

use serde_json::json;
use stepback_api::steps::StepDocument;
use stepback_engine::Workspace;
use stepback_engine::checkpoint::validate_annotation;
use stepback_engine::session::not_running_reason;
use stepback_engine::workspace::describe_checkpoint;
use stepback_model::record::{Annotation, StepKind, Trigger};

use super::{CommandResult, DONE, documents, titles};
use crate::context::Context;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// Runs `stepback checkpoint create`.
pub fn create(
    context: &Context,
    label: Option<String>,
    note: Option<String>,
    tags: Vec<String>,
) -> CommandResult {
    let mut annotation = validate_annotation(Annotation { label, note, tags })?;
    let workspace = context.open_or_create_workspace()?;
    if annotation.label.is_none() {
        annotation.label = choose_label(context, &workspace)?;
    }
    let created = workspace.create_checkpoint(annotation, Trigger::Manual)?;
    let stored = &created.stored;
    if context.json {
        let mut value = json!(StepDocument::from_row(stored));
        value["files_read"] = json!(created.hashed);
        value["not_covered"] = created.skipped_paths.iter().map(documents::skipped_path).collect();
        output::print_document(&value);
        return DONE;
    }
    let paint = Paint::stdout();
    let step = &stored.step;
    output::print_line(format!(
        "Created checkpoint {} {} ({} read)",
        paint.strong(describe_checkpoint(stored)),
        paint.name(step.id.short()),
        output::count(created.hashed, "new or changed file"),
    ));
    for trouble in &created.skipped_paths {
        output::print_status(format!(
            "{} {} is not covered: {}.",
            paint.note("Warning:"),
            trouble.path,
            trouble.reason
        ));
    }
    output::print_status(paint.dim(format!(
        "Go back to it with \"stepback rewind '#{}'\"; \"stepback undo\" removes it.",
        step.number
    )));
    DONE
}

/// Returns a label that says where a running agent is, for a checkpoint without one: `cp_iteration_5`. `None` if no agent is
/// running, or if another checkpoint has this label.
fn choose_label(context: &Context, workspace: &Workspace) -> Result<Option<String>, CommandFailure> {
    let running = workspace.running_sessions()?;
    let newest = running.iter().find(|session| not_running_reason(session, context.now()).is_none());
    let Some(session) = newest.filter(|session| session.info.iteration > 0) else { return Ok(None) };
    let label = format!("cp_iteration_{}", session.info.iteration);
    let is_taken =
        workspace.checkpoints()?.iter().any(|stored| stored.annotation.label.as_ref() == Some(&label));
    Ok((!is_taken).then_some(label))
}

/// Runs `stepback checkpoint list`.
pub fn list(
    context: &Context,
    (tag, find): (Option<&str>, Option<&str>),
    session: Option<&str>,
    all: bool,
) -> CommandResult {
    let workspace = context.open_workspace()?;
    let session = session.map(|text| workspace.find_session(text)).transpose()?;
    let wanted = find.map(str::to_lowercase);
    let mut listed = workspace.checkpoints()?;
    let mut automatic = 0_u64;
    listed.retain(|stored| {
        let annotation = &stored.annotation;
        let texts = annotation.label.iter().chain(&annotation.note).chain(&annotation.tags);
        // Without `--all`, those that are made for their own sake: not before and after every call.
        let kept = match stored.step.kind {
            StepKind::Checkpoint => stored.trigger != Some(Trigger::Automatic) || !annotation.tags.is_empty(),
            StepKind::Reasoning | StepKind::StateChange => true,
            _ => false,
        };
        let matches = tag.is_none_or(|tag| annotation.tags.iter().any(|known| known == tag))
            && wanted
                .as_ref()
                .is_none_or(|wanted| texts.into_iter().any(|text| text.to_lowercase().contains(wanted)));
        automatic += u64::from(matches && !all && !kept);
        matches && (all || kept)
    });
    if let Some(session) = &session {
        super::history::retain_of_session(&workspace, &mut listed, session, |stored| stored)?;
    }
    if context.json {
        let items: Vec<_> = listed.iter().map(StepDocument::from_row).collect();
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    for stored in &listed {
        let step = &stored.step;
        output::print_line(format!(
            "{:>5}  {}  {:>12}  {}",
            paint.strong(format!("#{}", step.number)),
            paint.name(step.id.short()),
            paint.dim(step.at.ago(now)),
            titles::step_title(stored)
        ));
    }
    if listed.is_empty() && automatic == 0 {
        output::print_status("No checkpoint matches.");
    }
    if automatic > 0 {
        // Of a session's, the others were not told apart.
        let of = if session.is_some() { " of all sessions" } else { "" };
        output::print_status(Paint::stderr().dim(format!(
            "{}{of} not listed; --all lists them too.",
            output::count(automatic, "automatic checkpoint")
        )));
    }
    DONE
}

/// Runs `stepback checkpoint show`.
pub fn show(context: &Context, point: &str) -> CommandResult {
    super::inspect::show_point(context, point)
}

/// Runs `stepback checkpoint annotate`.
pub fn annotate(
    context: &Context,
    point: &str,
    note: &str,
    label: Option<&str>,
    tags: &[String],
) -> CommandResult {
    let workspace = context.open_workspace()?;
    let mut stored = context.resolve(&workspace, point)?;
    let mut annotation = stored.annotation.clone();
    annotation.note = (!note.is_empty()).then(|| note.to_string());
    if let Some(label) = label {
        annotation.label = Some(label.to_string());
    }
    for tag in tags {
        if !annotation.tags.contains(tag) {
            annotation.tags.push(tag.clone());
        }
    }
    let annotation = validate_annotation(annotation)?;
    let operation = workspace.annotate(&stored, annotation.clone())?;
    stored.annotation = annotation;
    if context.json {
        let mut value = json!(StepDocument::from_row(&stored));
        value["operation"] = json!(operation.id);
        output::print_document(&value);
        return DONE;
    }
    output::print_line(format!("Annotated checkpoint {}", describe_checkpoint(&stored)));
    print_undo_hint();
    DONE
}

/// Runs `stepback checkpoint delete`.
pub fn delete(context: &Context, point: &str) -> CommandResult {
    let workspace = context.open_workspace()?;
    let stored = context.resolve(&workspace, point)?;
    let operation = workspace.delete_checkpoint(&stored)?;
    if context.json {
        output::print_document(&json!({ "id": stored.step.id, "deleted": true, "operation": operation.id }));
        return DONE;
    }
    output::print_line(format!("Deleted checkpoint {}", describe_checkpoint(&stored)));
    print_undo_hint();
    DONE
}

fn print_undo_hint() {
    output::print_status(Paint::stderr().dim("\"stepback undo\" undoes this."));
}
