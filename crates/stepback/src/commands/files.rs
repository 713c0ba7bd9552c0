//! The commands `stepback ls` and `stepback cat`: files as they were at a point.

use std::io::Write;

use serde_json::json;
use stepback_engine::workspace::describe_checkpoint;
use stepback_engine::{EngineError, diff};
use stepback_model::path::RelPath;
use stepback_model::record::StepRow;
use stepback_model::tree::TreeNode;

use super::{CommandResult, DONE, documents};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback ls`.
pub fn list(context: &Context, point: &str, path: Option<&str>, recursive: bool) -> CommandResult {
    let workspace = context.open_workspace()?;
    // The lock keeps a prune from freeing objects that are being read.
    let lock = workspace.lock_shared()?;
    let stored = context.resolve(&workspace, point)?;
    let state = workspace.load_state(&stored)?;
    let entries = diff::compare_trees(workspace.store(), None, state.files).map_err(EngineError::from)?;
    drop(lock);
    let entries: Vec<(RelPath, TreeNode)> =
        entries.into_iter().filter_map(|entry| Some((entry.path, entry.after?))).collect();
    let base = context.to_workspace_path(&workspace, path.unwrap_or("."));
    let below = match base.as_str() {
        "" => None,
        base => Some(parse_path(base)?),
    };
    if let Some(base) = &below
        && !entries.iter().any(|(path, _)| path == base || is_below(path, base))
    {
        return Err(no_file(base, &stored));
    }
    let is_listed = |path: &RelPath| match &below {
        Some(base) if path == base => !entries.iter().any(|(path, _)| is_below(path, base)),
        Some(base) => is_below(path, base) && (recursive || depth(path) == depth(base) + 1),
        None => recursive || depth(path) == 1,
    };
    let listed: Vec<&(RelPath, TreeNode)> = entries.iter().filter(|(path, _)| is_listed(path)).collect();
    if context.json {
        let items: Vec<_> = listed.iter().map(|(path, node)| documents::file(path, node)).collect();
        output::print_document(&json!({ "step": stored.step.number, "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    for (path, node) in listed {
        let (mode, size, note) = match node {
            TreeNode::File { mode, size, .. } => (format!("{mode:04o}"), output::bytes(*size), String::new()),
            TreeNode::Dir { mode, .. } => (format!("{mode:04o}"), String::new(), "/".to_owned()),
            TreeNode::Symlink { target } => (
                "link".to_owned(),
                String::new(),
                format!(" -> {}", stepback_model::path::display_bytes(target)),
            ),
            TreeNode::Skipped { reason } => {
                (String::new(), String::new(), paint.dim(format!("  (not covered: {})", reason.describe())))
            }
        };
        output::print_line(format!("{mode:>5} {size:>9}  {}{note}", path.display()));
    }
    DONE
}

fn depth(path: &RelPath) -> usize {
    path.components().count()
}

fn is_below(path: &RelPath, base: &RelPath) -> bool {
    path.as_bytes().strip_prefix(base.as_bytes()).is_some_and(|rest| rest.starts_with(b"/"))
}

fn no_file(path: &RelPath, stored: &StepRow) -> CommandFailure {
    CommandFailure::new(
        FailureKind::Point,
        format!("{path} did not exist at {}", describe_checkpoint(stored)),
    )
    .with_hint(format!("\"stepback ls '#{}'\" lists the files there", stored.step.number))
}

/// Runs `stepback cat`.
pub fn cat(context: &Context, point: &str, path: &str) -> CommandResult {
    let workspace = context.open_workspace()?;
    // The lock keeps a prune from freeing objects that are being read.
    let lock = workspace.lock_shared()?;
    let stored = context.resolve(&workspace, point)?;
    let state = workspace.load_state(&stored)?;
    let relative = parse_path(&context.to_workspace_path(&workspace, path))?;
    let (node, bytes) = workspace.read_path(&state, &relative)?.ok_or_else(|| no_file(&relative, &stored))?;
    drop(lock);
    match &node {
        TreeNode::Dir { .. } => {
            return Err(CommandFailure::new(FailureKind::Usage, format!("{relative} was a directory")));
        }
        TreeNode::Skipped { reason } => {
            let why = format!("{relative} was not covered: {}", reason.describe());
            return Err(CommandFailure::new(FailureKind::Point, why));
        }
        _ => {}
    }
    if context.json {
        let mut value = documents::file(&relative, &node);
        value["text"] = json!(String::from_utf8(bytes).ok());
        output::print_document(&value);
        return DONE;
    }
    let _ = std::io::stdout().write_all(&bytes);
    DONE
}

/// Parses a path from the command line.
fn parse_path(path: &str) -> Result<RelPath, CommandFailure> {
    RelPath::parse(path).map_err(|error| {
        CommandFailure::new(FailureKind::Usage, format!("{path}: {error}"))
            .with_hint("use a path inside the workspace")
    })
}
