//! The commands `stepback show` and `stepback restore`.

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use stepback_agents::session_states;
use stepback_api::state::{RepositoryDocument, StateSlotsDocument};
use stepback_engine::diff::FilesSize;
use stepback_engine::workspace::describe_checkpoint;
use stepback_engine::{EngineError, Workspace, diff};
use stepback_model::change::PathChange;
use stepback_model::escape::safe;
use stepback_model::record::{StepKind, StepRow};
use stepback_model::tree::TreeNode;

use super::{CommandResult, DONE, documents, session_parts};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Most paths of a kind that are named.
const MAX_SHOWN_PATHS: usize = 8;

/// Runs `stepback show` and `stepback checkpoint show`.
pub fn show_point(context: &Context, point: &str) -> CommandResult {
    let workspace = context.open_workspace()?;
    // The lock keeps a prune from freeing objects that are being read.
    let lock = workspace.lock_shared()?;
    let stored = context.resolve(&workspace, point)?;
    let state = workspace.load_state(&stored)?;
    let entries = diff::compare_trees(workspace.store(), None, state.files).map_err(EngineError::from)?;
    let git = RepositoryDocument::from_state(&workspace, &state)?;
    let sessions = session_states::session_states(&workspace, &stored)?;
    drop(lock);
    if context.json {
        let files: Vec<_> = entries
            .iter()
            .filter_map(|entry| Some(documents::file(&entry.path, entry.after.as_ref()?)))
            .collect();
        let repositories: Vec<_> = git.iter().map(repository_document).collect();
        let mut value = documents::step(&stored);
        value["detail"] = json!(workspace.load_detail(&stored.step)?);
        value["files"] = json!(files);
        value["git"] = json!(repositories);
        value["slots"] = json!(StateSlotsDocument::from_state(&state));
        value["sessions"] = json!(sessions);
        value["size_bytes"] = json!(count_files(&entries).bytes);
        value["board"] = super::board::state_board_document(&workspace, &state)?;
        output::print_document(&value);
        return DONE;
    }
    let paint = Paint::stdout();
    let step = &stored.step;
    let noun = if stored.is_checkpoint() { "Checkpoint" } else { "Step" };
    output::print_line(format!(
        "{noun} {} {}",
        paint.strong(describe_checkpoint(&stored)),
        paint.name(step.id)
    ));
    output::print_line(format!("  made     {} ({})", step.at, step.at.ago(context.now())));
    if let Some(trigger) = stored.trigger {
        output::print_line(format!("  trigger  {}", trigger.as_str()));
    }
    output::print_line(format!("  summary  {}", step.summary));
    if let Some(note) = &stored.annotation.note {
        output::print_line(format!("  note     {}", safe(note)));
    }
    if !stored.annotation.tags.is_empty() {
        output::print_line(format!("  tags     {}", stored.annotation.tags.join(", ")));
    }
    if step.kind != StepKind::Checkpoint && step.kind != StepKind::Rewind {
        show_step(&workspace, &stored)?;
    }
    let FilesSize { files, bytes, not_covered } = count_files(&entries);
    output::print_line(format!(
        "  files    {}, {} ({not_covered} not covered)",
        output::count(files, "file"),
        output::bytes(bytes)
    ));
    for repository in &git {
        output::print_line(format!(
            "  git      {}: {} at {}",
            repository.path,
            repository.branch.as_deref().unwrap_or("detached HEAD"),
            repository.commit.as_deref().unwrap_or("no commit yet")
        ));
        for line in uncommitted_lines(repository) {
            output::print_line(format!("           {line}"));
        }
    }
    sessions.iter().flat_map(session_parts::state_lines).for_each(output::print_line);
    super::board::print_state_board(&workspace, &state)?;
    output::print_status(paint.dim(format!(
        "\"stepback diff '#{0}'\" compares it with now, \"stepback rewind '#{0}'\" goes back to it.",
        step.number
    )));
    DONE
}

fn repository_document(repository: &RepositoryDocument) -> Value {
    let RepositoryDocument { path, branch, commit, in_progress, stashes, staged, changed, uncommitted } =
        repository;
    json!({
        "id": path,
        "path": path,
        "head": { "branch": branch, "commit": commit, "in_progress": in_progress, "stashes": stashes },
        "staged": staged,
        "changed": changed,
        "uncommitted": uncommitted,
    })
}

/// Returns what was staged and changed in a repository.
fn uncommitted_lines(repository: &RepositoryDocument) -> Vec<String> {
    let list = |what: &str, paths: &[String]| {
        let shown = paths.iter().take(MAX_SHOWN_PATHS).map(|path| safe(path)).collect::<Vec<_>>().join(", ");
        let more = paths.len().saturating_sub(MAX_SHOWN_PATHS);
        let more = if more == 0 { String::new() } else { format!(" and {more} more") };
        (!paths.is_empty()).then(|| format!("{what}: {shown}{more}"))
    };
    let staged = repository.staged.as_deref().unwrap_or_default();
    let mut lines: Vec<String> = list("staged", staged).into_iter().collect();
    lines.extend(list("changed, not staged", &repository.changed));
    match repository.uncommitted {
        None => lines.push("whether everything was committed is not known".into()),
        Some(false) => lines.push("no uncommitted changes".into()),
        Some(true) => {}
    }
    lines
}

/// Returns how many files a listing has, and their size.
fn count_files(entries: &[PathChange]) -> FilesSize {
    let mut size = FilesSize::default();
    for entry in entries {
        match &entry.after {
            Some(TreeNode::File { size: bytes, .. }) => {
                size.files += 1;
                size.bytes += bytes;
            }
            Some(TreeNode::Symlink { .. }) => size.files += 1,
            Some(TreeNode::Skipped { .. }) => size.not_covered += 1,
            _ => {}
        }
    }
    size
}

/// Prints what is recorded about a step of an agent.
fn show_step(workspace: &Workspace, stored: &StepRow) -> Result<(), CommandFailure> {
    /// Most lines shown of an input or output; the JSON document has all of it.
    const MAX_SHOWN_LINES: usize = 8;
    let step = &stored.step;
    let facts = &step.meta;
    let session = workspace.store().session(step.session).map_err(EngineError::from)?;
    if let Some(session) = session {
        output::print_line(format!(
            "  session  {}, iteration {}",
            super::sessions::display_name(&session),
            facts.iteration
        ));
    }
    output::print_line(format!("  kind     {}", step.kind.as_str()));
    if let Some(worker) = &facts.worker {
        output::print_line(format!("  worker   {worker}"));
    }
    let names = ["task", "trace", "span", "parent"];
    for (name, id) in names.into_iter().zip(facts.context.ids()) {
        if let Some(id) = id {
            output::print_line(format!("  {name:<8} {}", safe(id)));
        }
    }
    if let Some(micros) = facts.duration {
        output::print_line(format!("  took     {:.1} ms", micros as f64 / 1000.0));
    }
    let detail = workspace.load_detail(step)?.unwrap_or_default();
    for name in ["input", "output"] {
        if let Some(bytes) = detail.pointer(&format!("/truncated/{name}/bytes")).and_then(Value::as_u64) {
            output::print_line(format!(
                "  cut      the {name}; the whole has {}",
                output::count(bytes, "byte")
            ));
        }
    }
    let parts = detail.get("not_recorded").and_then(Value::as_array).into_iter().flatten();
    let parts: Vec<&str> = parts.filter_map(Value::as_str).collect();
    if !parts.is_empty() {
        output::print_line(format!("  left out {} (the setting record.capture)", parts.join(", ")));
    }
    if let Some(skipped) = detail.get("skipped").and_then(Value::as_object) {
        let kinds: Vec<String> = skipped.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        output::print_line(format!("  skipped  before this step: {} (settings)", kinds.join(", ")));
    }
    for name in ["message", "input", "output", "error"] {
        let Some(value) = detail.get(name) else { continue };
        let text = match value {
            Value::String(text) => text.clone(),
            other => serde_json::to_string_pretty(other).unwrap_or_default(),
        };
        let lines: Vec<&str> = text.lines().collect();
        output::print_line(format!("  {name}"));
        for line in lines.iter().take(MAX_SHOWN_LINES) {
            output::print_line(format!("    {}", safe(line)));
        }
        if lines.len() > MAX_SHOWN_LINES {
            output::print_line(format!(
                "    … and {} more lines (--json has all)",
                lines.len() - MAX_SHOWN_LINES
            ));
        }
    }
    Ok(())
}

/// Runs `stepback restore`.
pub fn restore(context: &Context, point: &str, into: &Path, git: bool) -> CommandResult {
    let workspace = context.open_workspace()?;
    // The lock keeps a prune from freeing objects that are being read.
    let _lock = workspace.lock_shared()?;
    let stored = context.resolve(&workspace, point)?;
    let state = workspace.load_state(&stored)?;
    let into = context.directory.join(into);
    let done = workspace.materialize_intact(&state, &into, git)?;
    // The directory exists now, so it has a path without "..".
    let into = into.canonicalize().unwrap_or(into);
    let inside = into.starts_with(&workspace.root);
    let code = match done.damaged.is_empty() {
        true => DONE,
        false => Ok(ExitCode::from(FailureKind::Store as u8)),
    };
    if context.json {
        output::print_document(&json!({
            "id": stored.step.id,
            "into": into.display().to_string(),
            "files": done.files,
            "cloned": done.cloned,
            "bytes": done.bytes,
            "missing": done.missing.iter().map(documents::skipped_path).collect::<Vec<_>>(),
            "damaged": done.damaged.iter().map(documents::skipped_path).collect::<Vec<_>>(),
        }));
        return code;
    }
    output::print_line(format!(
        "Wrote {} ({}) of {} to {}",
        output::count(done.files, "file"),
        output::bytes(done.bytes),
        describe_checkpoint(&stored),
        into.display()
    ));
    for item in &done.missing {
        output::print_status(format!("  not written: {} ({})", item.path, item.reason));
    }
    for item in &done.damaged {
        let path = if item.path.as_bytes().is_empty() { ".".to_string() } else { item.path.to_string() };
        output::print_status(format!("  damaged: {path} ({})", item.reason));
    }
    if !done.damaged.is_empty() {
        output::print_status("Hint: everything else was written; \"stepback fsck\" reports all damage.");
    }
    if inside {
        output::print_status("The directory is inside the workspace, so the next checkpoint includes it.");
    }
    code
}
