//! Files: differences, checkpoints, branches, and comparing two runs.

use serde_json::{Value, json};
use stepback_api::branches::BranchDocument;
use stepback_engine::checkpoint::validate_annotation;
use stepback_engine::diff as differences;
use stepback_engine::path_filter::PathFilter;
use stepback_engine::workspace::describe_checkpoint;
use stepback_history::compare::{self, ComparedRun};
use stepback_model::clip;
use stepback_model::point::is_number;
use stepback_model::record::{Annotation, BranchStatus, Trigger};

use super::{
    ADDITIVE, Args, READ_ONLY, Tool, ToolReply, cursor_schema, first_line, limit_schema, page_limit,
    point_schema, require_known, resolve_step,
};
use crate::schema::{array, boolean, bounded_integer, integer, object, string, string_array, string_enum};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most sentences and paths of a comparison listed.
const MAX_LISTED_ITEMS: usize = 20;

pub(super) fn diff_tool() -> Tool {
    Tool {
        name: "diff",
        title: "What changed in files",
        description: "Files that differ between a point and now, or between two points; with lines: true, the changed lines as a unified diff.",
        input: object(
            &[
                ("from", point_schema("The earlier point")),
                ("to", point_schema("The later point (default: the files as they are now)")),
                ("paths", string_array("Only these: paths, directories, globs")),
                ("lines", boolean("Include the changed lines")),
                (
                    "max_chars",
                    bounded_integer("Maximum characters of lines in total (default 6000)", 256, 200_000),
                ),
                ("limit", limit_schema(40, 500)),
                ("cursor", cursor_schema()),
            ],
            &["from"],
        ),
        output: object(
            &[
                (
                    "files",
                    array(
                        "By path",
                        object(
                            &[
                                ("path", string("")),
                                ("change", string("created, modified, deleted, renamed, …")),
                                ("from", string("Where it was before it was renamed")),
                                ("lines", string("The changed lines")),
                            ],
                            &["path", "change"],
                        ),
                    ),
                ),
                ("total", integer("")),
                ("next_cursor", string("")),
            ],
            &["files", "total"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: show_diff,
    }
}

fn show_diff(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let workspace = context.workspace;
    let old_state = workspace.load_state(&resolve_step(context, args.require_text("from")?)?)?;
    let new_state = match args.text("to") {
        Some(point) => workspace.load_state(&resolve_step(context, point)?)?,
        None => workspace.scan_for_display()?.state,
    };
    let paths: Vec<String> = args.texts("paths").iter().map(|path| context.relative_path(path)).collect();
    let filter = PathFilter::new(&paths)?;
    // Keeps a prune from freeing what is being read.
    let _lock = workspace.lock_shared()?;
    let mut changes = differences::compare_visible_files(workspace.store(), &old_state, &new_state)?;
    changes.retain(|change| {
        filter.matches(&change.path) || change.from.as_ref().is_some_and(|old_path| filter.matches(old_path))
    });
    let (offset, limit) = (args.page_offset()?, page_limit(args, 40));
    let mut chars_left = usize::try_from(args.count("max_chars").unwrap_or(6000)).unwrap_or(usize::MAX);
    let (mut files, mut lines) = (Vec::new(), Vec::new());
    for change in changes.iter().skip(offset).take(limit) {
        let mut file = json!({ "path": change.path.display(), "change": change.kind().as_str() });
        if let Some(old_path) = &change.from {
            file["from"] = json!(old_path.display());
        }
        lines.push(format!("{} {}", change.kind().as_str(), change.path));
        if args.flag("lines")
            && chars_left > clip::LEAST
            && let Some(mut text) = workspace.unified_diff(change)?
        {
            clip::text(&mut text, chars_left);
            chars_left = chars_left.saturating_sub(text.len());
            lines.push(text.clone());
            file["lines"] = json!(text);
        }
        files.push(file);
    }
    if files.is_empty() {
        lines.push("Nothing differs.".to_owned());
    }
    let mut structured = json!({ "files": files, "total": changes.len() });
    if changes.len() > offset + limit {
        structured["next_cursor"] = json!(args.cursor(offset + limit));
        lines.push(format!("… of {}", changes.len()));
    }
    Ok(ToolReply { text: lines.join("\n"), structured })
}

pub(super) fn checkpoint_tool() -> Tool {
    Tool {
        name: "checkpoint",
        title: "Create a checkpoint",
        description: "Saves all files as they are now, under a label that points can use. Use it before something risky.",
        input: object(
            &[("label", string("A short name")), ("note", string("Why")), ("tags", string_array("Tags"))],
            &[],
        ),
        output: object(
            &[("step", integer("Its number: go back to it with #NUMBER")), ("label", string("Its label"))],
            &["step"],
        ),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            context.target_session()?;
            let (label, note) = (args.owned_text("label"), args.owned_text("note"));
            let annotation = validate_annotation(Annotation { label, note, tags: args.texts("tags") })?;
            let created = context.workspace.create_checkpoint(annotation, Trigger::Manual)?;
            let stored = &created.stored;
            let mut structured = json!({ "step": stored.step.number });
            if let Some(label) = &stored.annotation.label {
                structured["label"] = json!(label);
            }
            Ok(ToolReply { text: format!("Created checkpoint {}.", describe_checkpoint(stored)), structured })
        },
    }
}

pub(super) fn branch_tool() -> Tool {
    Tool {
        name: "branch",
        title: "Branches",
        description: "Lists branches with their status and where they began; with a name, creates one that starts at a point; with a name and a status, sets the status of one. Files do not change.",
        input: object(
            &[
                ("name", string("The name of a new branch, or with status of an existing one")),
                ("status", string_enum("Its new status", &BranchStatus::ALL.map(BranchStatus::as_str))),
                ("at", point_schema("Where it starts (default: the newest checkpoint)")),
            ],
            &[],
        ),
        output: object(
            &[(
                "branches",
                array(
                    "All that are not archived",
                    object(
                        &[
                            ("name", string("")),
                            ("step", integer("Its newest checkpoint")),
                            ("status", string("active, merged, abandoned, or that of a rerun")),
                            (
                                "from",
                                object(&[("branch", string("")), ("step", integer(""))], &["branch", "step"]),
                            ),
                            ("present", boolean("The workspace is on it")),
                        ],
                        &["name", "step"],
                    ),
                ),
            )],
            &["branches"],
        ),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| {
            if let (Some(name), Some(word)) = (args.text("name"), args.text("status")) {
                context.target_session()?;
                let status = require_known(BranchStatus::parse(word), "status")?;
                context.workspace.set_branch_status(name, status)?;
            } else if let Some(name) = args.text("name") {
                context.target_session()?;
                let start = match args.text("at") {
                    Some(point) => resolve_step(context, point)?,
                    None => context.workspace.head()?,
                };
                context.workspace.create_branch(name, &start)?;
            }
            context.workspace.update_branches_with_directories()?;
            let (mut documents, mut lines) = (Vec::new(), Vec::new());
            for branch in BranchDocument::list(context.workspace)? {
                let Some(tip) = branch.tip.as_ref().filter(|_| !branch.is_archived()) else { continue };
                let step = tip.number;
                let mut document = json!({ "name": branch.name, "step": step, "status": branch.status });
                if branch.present {
                    document["present"] = json!(true);
                }
                let mut marker = if branch.present { " (present)".to_owned() } else { String::new() };
                if branch.status != BranchStatus::Active.as_str() {
                    marker.push_str(&format!(" ({})", branch.status));
                }
                if let Some(from) = &branch.from {
                    document["from"] = json!({ "branch": from.branch, "step": from.number });
                    marker.push_str(&format!(" from {} at #{},", from.branch, from.number));
                }
                lines.push(format!("{}{marker} at #{step}", branch.name));
                documents.push(document);
            }
            Ok(ToolReply { text: lines.join("\n"), structured: json!({ "branches": documents }) })
        },
    }
}

pub(super) fn compare_tool() -> Tool {
    Tool {
        name: "compare",
        title: "Two runs side by side",
        description: "Compares two sessions, branches or points: what each did, where they diverge, how their files differ.",
        input: object(
            &[
                ("a", string("A session (beginning of its id), a branch or a point")),
                ("b", string("The other")),
            ],
            &["a", "b"],
        ),
        output: object(
            &[
                ("summary", string_array("In sentences")),
                (
                    "parts_at",
                    array("The steps at which they diverge, one of each", json!({ "type": "integer" })),
                ),
                ("files", string_array("What changed from a to b")),
                ("files_more", integer("Changes that are not listed")),
            ],
            &["summary"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| {
            let (a, b) = (
                resolve_run(context, args.require_text("a")?)?,
                resolve_run(context, args.require_text("b")?)?,
            );
            let comparison = compare::compare(context.workspace.store(), &a, &b)?;
            let summary: Vec<String> = comparison
                .summary
                .iter()
                .take(MAX_LISTED_ITEMS)
                .map(|sentence| first_line(sentence, 300))
                .collect();
            let mut structured = json!({ "summary": summary });
            let mut lines = summary;
            if let Some(first) = &comparison.first_difference {
                let steps: Vec<u64> = [first.a, first.b].into_iter().flatten().collect();
                structured["parts_at"] = json!(steps);
            }
            if let Some(changes) = &comparison.ends.files {
                let lines_shown: Vec<String> = (changes.iter().take(MAX_LISTED_ITEMS))
                    .map(|change| format!("{} {}", change.kind().as_str(), change.path))
                    .collect();
                lines.extend(lines_shown.iter().cloned());
                structured["files"] = json!(lines_shown);
                if changes.len() > MAX_LISTED_ITEMS {
                    structured["files_more"] = json!(changes.len() - MAX_LISTED_ITEMS);
                }
            }
            Ok(ToolReply { text: lines.join("\n"), structured: Value::clone(&structured) })
        },
    }
}

/// What `text` names: a branch, a session, or a point.
fn resolve_run(context: &ToolContext<'_>, text: &str) -> Result<ComparedRun, ToolError> {
    let workspace = context.workspace;
    workspace.update_branches_with_directories()?;
    if is_number(text) {
        return Ok(ComparedRun::from_point(workspace, &resolve_step(context, text)?)?);
    }
    let name = text.strip_prefix("branch:").unwrap_or(text);
    if let Some(tip) = workspace.branch_tip(name)? {
        return Ok(ComparedRun::from_branch(workspace, name, &tip)?);
    }
    let session_name = text
        .strip_prefix("session:")
        .or((text.len() >= 4 && !text.contains(['#', '@', ':'])).then_some(text));
    if let Some(session) = session_name.and_then(|session_name| workspace.find_session(session_name).ok()) {
        return Ok(ComparedRun::from_session(workspace, &session)?);
    }
    Ok(ComparedRun::from_point(workspace, &resolve_step(context, text)?)?)
}
