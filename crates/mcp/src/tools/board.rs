//! The board as a whole: showing it, next steps, the summary after a compaction, undoing a change.

use serde_json::{Value, json};
use stepback_engine::board::BoardEditor;
use stepback_model::clip;
use stepback_reasoning::ItemId;

use super::experiment::{merge_reply, merge_schema};
use super::{
    ADDITIVE, Args, READ_ONLY, Tool, ToolReply, limit_schema, page_limit, point_schema, resolve_moment,
    resolve_step,
};
use crate::schema::{
    any_number, array, boolean, bounded_integer, integer, object, open_object, string, string_array,
};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The sections of a board.
const BOARD_SECTIONS: [&str; 7] =
    ["hypotheses", "contradictions", "beliefs", "gaps", "verifications", "experiments", "notes"];
/// Default size of a summary, in tokens.
const DEFAULT_BUDGET_TOKENS: u64 = 1500;
/// The most characters of an item that is requested by name.
const MAX_ITEM_CHARS: usize = 6000;

pub(super) fn recover_tool() -> Tool {
    Tool {
        name: "recover",
        title: "Where did I leave off?",
        description: "A summary of where you left off: the task, open hypotheses, what is settled, what to do next, last commands and changed files. Call it first after a compaction.",
        input: object(
            &[
                ("budget", bounded_integer("Limit in tokens (default 1500)", 100, 20_000)),
                ("at", point_schema("As of this point instead of now")),
                ("steps", boolean("Also list the steps that bring the session back after a crash")),
            ],
            &[],
        ),
        output: object(
            &[
                ("page", string("The page, in Markdown")),
                ("steps", array("Each with its kind", open_object(&[("kind", string(""))], &["kind"]))),
                ("step", integer("The step that made the board what it is")),
            ],
            &["page"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let session = context.target_session()?;
            let moment = resolve_moment(context, args.text("at"))?;
            let budget =
                usize::try_from(args.count("budget").unwrap_or(DEFAULT_BUDGET_TOKENS)).unwrap_or(usize::MAX);
            let recovery = stepback_board::build_recovery_page(
                context.workspace,
                &session,
                &moment,
                budget,
                context.now,
            )?;
            let mut structured = json!({ "page": recovery.page });
            if let Some(step) = recovery.step {
                structured["step"] = json!(step);
            }
            if args.flag("steps") && context.workspace.head_id()?.is_some() {
                let checkpoint = match args.text("at") {
                    Some(point) => context.workspace.nearest_checkpoint(&resolve_step(context, point)?)?,
                    None => context.workspace.head()?,
                };
                let until = args.text("at").map(|_| checkpoint.step.number);
                let steps =
                    stepback_board::plan_recovery_steps(context.workspace, &session, &checkpoint, until)?;
                structured["steps"] = json!(steps);
            }
            Ok(ToolReply { text: recovery.page, structured })
        },
    }
}

pub(super) fn mind_tool() -> Tool {
    Tool {
        name: "mind",
        title: "The board",
        description: "The board of hypotheses, beliefs, contradictions, gaps, checks, experiments and notes, now or at any past point; one item in full (item: \"H2\"); or what changed since a point (since).",
        input: object(
            &[
                ("at", point_schema("As of this point: #42, 10 minutes ago, a branch")),
                ("since", point_schema("Only what changed from this point on, in sentences")),
                ("item", string("One item in full, such as H2 or B3")),
                ("parts", array("Only these parts", json!({ "type": "string", "enum": BOARD_SECTIONS }))),
                ("all", boolean("Include archived, settled and filled items")),
                ("limit", limit_schema(12, 500)),
            ],
            &[],
        ),
        output: object(
            &[
                ("step", integer("The step that made the board what it is")),
                (
                    "parts",
                    array(
                        "The parts that hold something",
                        object(
                            &[
                                ("title", string("What it is about")),
                                ("lines", string_array("Most important first")),
                                ("more", integer("Lines that were left out")),
                            ],
                            &["title", "lines"],
                        ),
                    ),
                ),
                ("item", open_object(&[("id", string("Its name"))], &["id"])),
                ("changes", string_array("What changed since then")),
                ("summary", string("The same in short")),
            ],
            &[],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: true,
        run: show_board,
    }
}

fn show_board(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    let board_at_point = context.workspace.board_at(&session, &resolve_moment(context, args.text("at"))?)?;
    let step = board_at_point.step.as_ref().map(|stored| stored.step.number);
    let mut structured = json!({});
    if let Some(step) = step {
        structured["step"] = json!(step);
    }
    let limit = page_limit(args, 12);
    if let Some(item) = args.optional_item::<ItemId>("item")? {
        let mut lists = board_at_point.board.document();
        let items = lists[item.kind.plural()].as_array_mut().map(std::mem::take).unwrap_or_default();
        let Some(mut document) = items.into_iter().find(|items| items["id"] == json!(item)) else {
            return Err(ToolError::new(format!("there is no {} {item} on the board", item.kind.noun()))
                .with_hint("call mind without item to see what there is"));
        };
        clip::value(&mut document, MAX_ITEM_CHARS);
        structured["item"] = document.clone();
        return Ok(ToolReply { text: format!("{document:#}"), structured });
    }
    if let Some(since) = args.text("since") {
        let earlier = context.workspace.board_at(&session, &resolve_moment(context, Some(since))?)?;
        let diff = earlier.board.diff(&board_at_point.board);
        let changes: Vec<&String> = diff.changes.iter().map(|change| &change.sentence).take(limit).collect();
        structured["changes"] = json!(changes);
        structured["summary"] = json!(diff.summary);
        let mut lines: Vec<String> = changes.into_iter().cloned().collect();
        lines.push(diff.summary);
        return Ok(ToolReply { text: lines.join("\n"), structured });
    }
    let requested_parts = args.texts("parts");
    let is_wanted = |title: &str| {
        requested_parts.is_empty() || requested_parts.iter().any(|part| part.eq_ignore_ascii_case(title))
    };
    let (mut parts, mut lines): (Vec<Value>, Vec<String>) = (Vec::new(), Vec::new());
    for section in
        board_at_point.board.board(args.flag("all")).into_iter().filter(|section| is_wanted(section.title))
    {
        let hidden = section.lines.len().saturating_sub(limit);
        let visible = &section.lines[..section.lines.len() - hidden];
        lines.push(format!("{}:", section.title));
        lines.extend(visible.iter().map(|line| format!("  {line}")));
        let mut part = json!({ "title": section.title, "lines": visible });
        if hidden > 0 {
            part["more"] = json!(hidden);
            lines.push(format!("  … {hidden} more lines"));
        }
        parts.push(part);
    }
    if parts.is_empty() {
        lines.push("The board is empty.".to_owned());
    }
    structured["parts"] = json!(parts);
    Ok(ToolReply { text: lines.join("\n"), structured })
}

pub(super) fn next_tool() -> Tool {
    Tool {
        name: "next",
        title: "What to do next",
        description: "What to do next, ranked: gaps to fill, hypotheses to test, contradictions to resolve.",
        input: object(&[("limit", limit_schema(5, 100))], &[]),
        output: object(
            &[(
                "actions",
                array(
                    "The best first",
                    object(
                        &[
                            ("item", string("What it is about")),
                            ("what", string("What to do")),
                            ("why", string("Why")),
                            ("score", any_number("How much there is to gain")),
                        ],
                        &["item", "what", "why", "score"],
                    ),
                ),
            )],
            &["actions"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let session = context.target_session()?;
            let mut actions = BoardEditor::new(context.workspace, &session).board()?.next_actions();
            actions.truncate(page_limit(args, 5));
            let lines: Vec<String> = actions
                .iter()
                .map(|action| format!("{}: {} ({})", action.item, action.what, action.why))
                .collect();
            let documents: Vec<Value> = actions
                .iter()
                .map(|action| {
                    json!({ "item": action.item, "what": action.what, "why": action.why, "score": action.score })
                })
                .collect();
            let text = if lines.is_empty() { "Nothing is open.".to_owned() } else { lines.join("\n") };
            Ok(ToolReply { text, structured: json!({ "actions": documents }) })
        },
    }
}

pub(super) fn undo_tool() -> Tool {
    Tool {
        name: "mind_undo",
        title: "Undo a change of the board",
        description: "Undoes one change of your board: the newest, or that of a step. Later changes are kept.",
        input: object(
            &[
                ("step", bounded_integer("The number of the step that recorded it", 1, u64::MAX)),
                ("dry_run", boolean("Only report what would change")),
            ],
            &[],
        ),
        output: merge_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let session = context.target_session()?;
            let mut editor = BoardEditor::new(context.workspace, &session);
            Ok(merge_reply(&editor.take_back(args.count("step"), args.flag("dry_run"))?))
        },
    }
}
