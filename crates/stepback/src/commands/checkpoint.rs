//! The command `stepback checkpoint …`.

use serde_json::json;
use stepback_api::steps::StepDocument;
use stepback_engine::checkpoint::checked;
use stepback_engine::workspace::describe;
use stepback_model::record::{Annotation, StepKind, Trigger};

use super::{CommandResult, DONE, documents, titles};
use crate::context::Context;
use crate::output::{self, Paint};

/// Runs `stepback checkpoint create`.
pub fn create(
    context: &Context,
    label: Option<String>,
    note: Option<String>,
    tags: Vec<String>,
) -> CommandResult {
    let annotation = checked(Annotation { label, note, tags })?;
    let workspace = context.workspace_or_new()?;
    let created = workspace.create_checkpoint(annotation, Trigger::Manual)?;
    let stored = &created.stored;
    if context.json {
        let mut value = json!(StepDocument::of(stored));
        value["files_read"] = json!(created.hashed);
        value["not_covered"] = created.troubles.iter().map(documents::left_alone).collect();
        output::document(&value);
        return DONE;
    }
    let paint = Paint::stdout();
    let step = &stored.step;
    output::line(format!(
        "Created checkpoint {} {} ({} read)",
        paint.strong(describe(stored)),
        paint.name(step.id.short()),
        output::count(created.hashed, "new or changed file"),
    ));
    for trouble in &created.troubles {
        output::say(format!(
            "{} {} is not covered: {}.",
            paint.note("Warning:"),
            trouble.path,
            trouble.reason
        ));
    }
    output::say(paint.dim(format!(
        "Go back to it with \"stepback rewind '#{}'\"; \"stepback undo\" removes it.",
        step.number
    )));
    DONE
}

/// Runs `stepback checkpoint list`.
pub fn list(context: &Context, tag: Option<&str>, find: Option<&str>, all: bool) -> CommandResult {
    let workspace = context.workspace()?;
    let wanted = find.map(str::to_lowercase);
    let mut listed = workspace.checkpoints()?;
    listed.retain(|stored| {
        let annotation = &stored.annotation;
        let texts = annotation.label.iter().chain(&annotation.note).chain(&annotation.tags);
        let kept = stored.step.kind == StepKind::Checkpoint && stored.trigger != Some(Trigger::Automatic);
        (all || kept)
            && tag.is_none_or(|tag| annotation.tags.iter().any(|known| known == tag))
            && wanted
                .as_ref()
                .is_none_or(|wanted| texts.into_iter().any(|text| text.to_lowercase().contains(wanted)))
    });
    if context.json {
        let items: Vec<_> = listed.iter().map(StepDocument::of).collect();
        output::document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    for stored in &listed {
        let step = &stored.step;
        output::line(format!(
            "{:>5}  {}  {:>12}  {}",
            paint.strong(format!("#{}", step.number)),
            paint.name(step.id.short()),
            paint.dim(step.at.ago(now)),
            titles::title(stored)
        ));
    }
    if listed.is_empty() {
        output::say("No checkpoint matches.");
    }
    DONE
}

/// Runs `stepback checkpoint show`.
pub fn show(context: &Context, point: &str) -> CommandResult {
    super::inspect::at(context, point)
}

/// Runs `stepback checkpoint annotate`.
pub fn annotate(
    context: &Context,
    point: &str,
    note: &str,
    label: Option<&str>,
    tags: &[String],
) -> CommandResult {
    let workspace = context.workspace()?;
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
    let annotation = checked(annotation)?;
    let operation = workspace.annotate(&stored, annotation.clone())?;
    stored.annotation = annotation;
    if context.json {
        let mut value = json!(StepDocument::of(&stored));
        value["operation"] = json!(operation.id);
        output::document(&value);
        return DONE;
    }
    output::line(format!("Annotated checkpoint {}", describe(&stored)));
    undo_hint();
    DONE
}

/// Runs `stepback checkpoint delete`.
pub fn delete(context: &Context, point: &str) -> CommandResult {
    let workspace = context.workspace()?;
    let stored = context.resolve(&workspace, point)?;
    let operation = workspace.delete_checkpoint(&stored)?;
    if context.json {
        output::document(&json!({ "id": stored.step.id, "deleted": true, "operation": operation.id }));
        return DONE;
    }
    output::line(format!("Deleted checkpoint {}", describe(&stored)));
    undo_hint();
    DONE
}

fn undo_hint() {
    output::say(Paint::stderr().dim("\"stepback undo\" undoes this."));
}
