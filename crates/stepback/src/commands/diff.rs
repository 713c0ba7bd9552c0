//! The command `stepback diff`.

use std::io::{BufWriter, Write};

use serde_json::json;
use stepback_api::steps::StepDocument;
use stepback_engine::path_filter::PathFilter;
use stepback_engine::{Workspace, diff as engine_diff};
use stepback_model::change::PathChange;
use stepback_model::state::WorkspaceState;
use stepback_model::tree::{Content, TreeNode};

use super::{CommandResult, DONE, documents};
use crate::args::DiffArgs;
use crate::context::Context;
use crate::diff_view::{self, DiffStyle, FileDiff, PathSide};
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// Files above this size are not compared line by line.
const MAX_COMPARED_BYTES: u64 = 20 << 20;
/// The default number of unchanged lines around a change.
const DEFAULT_CONTEXT_LINES: usize = 3;

/// Runs `stepback diff`.
pub fn diff(context: &Context, arguments: &DiffArgs) -> CommandResult {
    let workspace = context.open_workspace()?;
    // The lock keeps a prune from freeing objects that are being read.
    let lock = workspace.lock_shared()?;
    let (points, paths) = split_points_and_paths(context, &workspace, arguments)?;
    let now = || -> Result<(WorkspaceState, serde_json::Value), CommandFailure> {
        Ok((workspace.scan_for_display()?.state, json!({ "id": "now", "label": "working directory" })))
    };
    let at = |point: &str| -> Result<(WorkspaceState, serde_json::Value), CommandFailure> {
        let stored = context.resolve(&workspace, point)?;
        Ok((workspace.load_state(&stored)?, json!(StepDocument::from_row(&stored))))
    };
    let ((from, from_name), (to, to_name)) = match points.as_slice() {
        [] => (at("@")?, now()?),
        [a] => (at(a)?, now()?),
        [a, b, ..] => (at(a)?, at(b)?),
    };
    let paths: Vec<String> = paths.iter().map(|path| context.to_workspace_path(&workspace, path)).collect();
    let filter = PathFilter::new(&paths)?;
    let mut changes = engine_diff::compare_visible_files(workspace.store(), &from, &to)?;
    changes.retain(|change| {
        filter.matches(&change.path) || change.from.as_ref().is_some_and(|from| filter.matches(from))
    });
    // Of some paths only, the board is not asked for.
    let board = match paths.is_empty() {
        true => super::board::diff_state_boards(&workspace, &from, &to)?,
        false => None,
    };
    if arguments.name_only && !context.json {
        drop(lock);
        changes.iter().for_each(|change| output::print_line(change.path.display()));
        return DONE;
    }
    if context.json {
        let mut items = Vec::with_capacity(changes.len());
        let (mut added, mut removed) = (0, 0);
        for change in &changes {
            let file = load_file_diff(&workspace, change)?;
            let (plus, minus) = diff_view::count_changed_lines(&file);
            added += plus;
            removed += minus;
            let mut value = documents::change(change);
            value["added"] = json!(plus);
            value["removed"] = json!(minus);
            if !arguments.stat && !arguments.name_only {
                value["content"] = diff_view::hunks_json(&file);
            }
            items.push(value);
        }
        drop(lock);
        let totals = json!({ "files": items.len(), "added": added, "removed": removed });
        output::print_document(&json!({
            "from": from_name, "to": to_name, "items": items, "totals": totals, "board": board,
        }));
        return DONE;
    }
    let files = changes
        .iter()
        .map(|change| load_file_diff(&workspace, change))
        .collect::<Result<Vec<_>, CommandFailure>>()?;
    drop(lock);
    let style = stdout_style(arguments.unified);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let shown = if arguments.stat {
        diff_view::write_stat(&files, &style, &mut out)
    } else if arguments.side_by_side {
        diff_view::write_side_by_side(&files, &style, &mut out)
    } else {
        diff_view::write_unified(&files, &style, &mut out)
    };
    // A pager that was closed early is not an error.
    let _ = shown.and_then(|()| out.flush());
    drop(out);
    board.iter().for_each(super::board::print_board_diff);
    DONE
}

/// Returns the style for lines on stdout.
fn stdout_style(context: usize) -> DiffStyle {
    let color = Paint::stdout().is_on();
    let (escape, width) = (output::is_stdout_terminal(), output::terminal_width());
    DiffStyle { color, escape, width, highlight: color, context }
}

/// Returns the changed lines as `diff` shows them, or `None` if there are more than `most`.
pub fn render_if_short(
    workspace: &Workspace,
    changes: &[PathChange],
    most: usize,
) -> Result<Option<Vec<u8>>, CommandFailure> {
    if changes.len() > most {
        return Ok(None);
    }
    let files = changes
        .iter()
        .map(|change| load_file_diff(workspace, change))
        .collect::<Result<Vec<_>, CommandFailure>>()?;
    let changed = files.iter().map(diff_view::count_changed_lines).map(|(added, removed)| added + removed);
    if changed.sum::<usize>() > most {
        return Ok(None);
    }
    let mut lines = Vec::new();
    diff_view::write_unified(&files, &stdout_style(DEFAULT_CONTEXT_LINES), &mut lines)?;
    Ok(Some(lines))
}

/// Splits the arguments into points and paths: up to two points come first, unless a name is a file and not a point.
fn split_points_and_paths(
    context: &Context,
    workspace: &Workspace,
    arguments: &DiffArgs,
) -> Result<(Vec<String>, Vec<String>), CommandFailure> {
    let mut points: Vec<String> = Vec::new();
    let mut paths = arguments.paths.clone();
    let mut given = arguments.points.as_slice();
    if let Some((first, others)) = given.split_first()
        && let Some(range) = split_range(context, workspace, first)?
    {
        points = range;
        given = others;
    }
    for argument in given {
        if points.len() < 2 && paths.len() == arguments.paths.len() {
            match context.resolve(workspace, argument) {
                Ok(_) => {
                    points.push(argument.clone());
                    continue;
                }
                Err(failure) if !context.directory.join(argument).exists() => return Err(failure),
                Err(_) => {}
            }
        }
        paths.push(argument.clone());
    }
    Ok((points, paths))
}

/// Splits `A..B`, in which both sides may be missing. A label or file of this name is meant if there is one.
fn split_range(
    context: &Context,
    workspace: &Workspace,
    text: &str,
) -> Result<Option<Vec<String>>, CommandFailure> {
    let Some((from, to)) = text.split_once("..") else { return Ok(None) };
    if context.resolve(workspace, text).is_ok() || context.directory.join(text).exists() {
        return Ok(None);
    }
    let mut points = vec![if from.is_empty() { "@".to_owned() } else { from.to_owned() }];
    // Without an end, the working directory is compared.
    points.extend((!to.is_empty()).then(|| to.to_owned()));
    for point in &points {
        context.resolve(workspace, point)?;
    }
    Ok(Some(points))
}

fn load_file_diff(workspace: &Workspace, change: &PathChange) -> Result<FileDiff, CommandFailure> {
    let side = |node: &Option<TreeNode>| -> Result<PathSide, CommandFailure> {
        Ok(match node {
            None => PathSide::Absent,
            Some(TreeNode::File { mode, size, content }) => {
                if *size > MAX_COMPARED_BYTES || matches!(content, Content::Vaulted) {
                    PathSide::TooLarge { mode: *mode, size: *size }
                } else if let Some(node) = node {
                    PathSide::File { mode: *mode, bytes: workspace.read_node(node)? }
                } else {
                    PathSide::Absent
                }
            }
            Some(TreeNode::Symlink { target }) => PathSide::Symlink { target: target.clone() },
            Some(TreeNode::Dir { mode, .. }) => PathSide::Dir { mode: *mode },
            Some(TreeNode::Skipped { reason }) => PathSide::Other(reason.describe().to_string()),
        })
    };
    Ok(FileDiff {
        path: change.path.display().into_owned(),
        old_path: change.from.as_ref().map(|from| from.display().into_owned()),
        old: side(&change.before)?,
        new: side(&change.after)?,
    })
}
