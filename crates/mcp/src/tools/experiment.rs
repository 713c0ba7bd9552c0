//! Experiments on their own branches, and merging their findings.

use serde_json::json;
use stepback_engine::board::{BoardEditor, BoardReplacement};
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::ExperimentStatus;

use super::rewind::{check_no_other_agents, moving_session};
use super::{
    ADDITIVE, Args, Tool, ToolReply, change_board, edit_reply, enum_names, limit_schema, page_limit,
    point_schema, require_known, resolve_moment,
};
use crate::schema::{boolean, integer, object, string, string_array, string_enum};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most changes and conflicts of a board listed.
const MAX_LISTED_CHANGES: usize = 30;

pub(super) fn experiment_tool() -> Tool {
    let outcomes: Vec<&str> = (enum_names(ExperimentStatus::ALL, ExperimentStatus::as_str).into_iter())
        .filter(|word| *word != ExperimentStatus::Running.as_str())
        .collect();
    Tool {
        name: "experiment",
        title: "Experiments",
        description: "Start an experiment on a new branch: files do not change, and your later changes are on that branch. End it with its outcome. switch_plan returns to the branch you left, and mind_merge merges your findings there.",
        input: object(
            &[
                ("do", string_enum("What to do", &["start", "end", "list"])),
                ("branch", string("start: the name of the new branch")),
                ("hypothesis", string("start: the hypothesis it tests, such as H1")),
                ("success", string("start: the criterion for success")),
                ("experiment", string("end: which one, such as X1")),
                ("outcome", string_enum("end: how it went", &outcomes)),
                ("result", string("end: the result")),
                ("limit", limit_schema(20, 500)),
            ],
            &["do"],
        ),
        output: object(
            &[
                ("item", string("What started or ended")),
                ("said", string_array("")),
                ("step", integer("For mind_undo")),
                ("checkpoint", integer("Made for it")),
                ("branch", string("The current branch")),
                ("left", string("The previous branch")),
                ("experiments", string_array("With their results")),
                ("more", integer("Lines that were left out")),
            ],
            &[],
        ),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| match args.require_text("do")? {
            "start" => start_experiment(context, args),
            "end" => change_board(
                context,
                &BoardMutation::EndExperiment {
                    experiment: args.required_item("experiment")?,
                    status: parse_outcome(args.require_text("outcome")?)?,
                    result: args.require_text("result")?.to_owned(),
                },
            ),
            _ => list_experiments(context, args),
        },
    }
}

fn parse_outcome(name: &str) -> Result<ExperimentStatus, ToolError> {
    require_known(ExperimentStatus::ALL.iter().copied().find(|status| status.as_str() == name), "outcome")
}

fn start_experiment(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let (branch, success) = (args.require_text("branch")?, args.require_text("success")?);
    let hypothesis = args.optional_item("hypothesis")?;
    let session = moving_session(context)?;
    check_no_other_agents(context, &session)?;
    let agent_session = (session.agent != stepback_model::record::Session::PERSON).then_some(session.id);
    let started = stepback_board::start_experiment(
        &mut BoardEditor::new(context.workspace, &session),
        branch,
        hypothesis,
        success,
        agent_session,
    )?;
    let mut reply = edit_reply(&started.edit);
    reply.text.push_str(&format!("\nYou are on branch {branch} now, and left {}.", started.left));
    reply.structured["branch"] = json!(branch);
    reply.structured["left"] = json!(started.left);
    Ok(reply)
}

fn list_experiments(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    let sections = BoardEditor::new(context.workspace, &session).board()?.board(true);
    let section = sections.into_iter().find(|section| section.title == "Experiments");
    let mut lines = section.map_or_else(Vec::new, |section| section.lines);
    let hidden = lines.len().saturating_sub(page_limit(args, 20));
    lines.truncate(lines.len() - hidden);
    let mut structured = json!({ "experiments": lines });
    let mut text = if lines.is_empty() { "There are none yet.".to_owned() } else { lines.join("\n") };
    if hidden > 0 {
        structured["more"] = json!(hidden);
        text.push_str(&format!("\n… {hidden} more lines"));
    }
    Ok(ToolReply { text, structured })
}

pub(super) fn merge_tool() -> Tool {
    Tool {
        name: "mind_merge",
        title: "Merge a board",
        description: "Merges into your board what changed on another branch since its experiment started, or between two points (from, base). In a conflict, your version is kept unless theirs is set; conflicts are listed.",
        input: object(
            &[
                ("from", point_schema("The branch, or any point with base")),
                ("base", point_schema("Merge changes after this point")),
                ("theirs", boolean("In a conflict, use the version of the branch")),
                ("dry_run", boolean("Only report what would change")),
            ],
            &["from"],
        ),
        output: merge_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| {
            let session = context.target_session()?;
            let source = resolve_moment(context, Some(args.require_text("from")?))?;
            let base = args.text("base").map(|point| resolve_moment(context, Some(point))).transpose()?;
            let mut editor = BoardEditor::new(context.workspace, &session);
            Ok(merge_reply(&stepback_board::merge_board(
                &mut editor,
                &source,
                base.as_ref(),
                args.flag("theirs"),
                args.flag("dry_run"),
            )?))
        },
    }
}

/// The reply to a merge of two boards.
pub(super) fn merge_reply(joined: &BoardReplacement) -> ToolReply {
    let changes_found = &joined.diff.changes;
    let changes: Vec<&String> =
        changes_found.iter().map(|change| &change.sentence).take(MAX_LISTED_CHANGES).collect();
    let hidden = changes_found.len() - changes.len();
    let conflicts: Vec<String> = joined
        .conflicts
        .iter()
        .take(MAX_LISTED_CHANGES)
        .map(|conflict| {
            let outcome = if conflict.taken { "theirs was taken" } else { "it stays as it is here" };
            format!("{}; {outcome}", conflict.sentence)
        })
        .collect();
    let renamed: Vec<String> = joined
        .renamed
        .iter()
        .take(MAX_LISTED_CHANGES)
        .map(|(their_id, own_id)| format!("{their_id} is {own_id} here"))
        .collect();
    let mut lines = vec![joined.summary.clone()];
    lines.extend(changes.iter().map(|change| (*change).clone()));
    if hidden > 0 {
        lines.push(format!("… and {hidden} more changes"));
    }
    lines.extend(renamed.iter().cloned());
    lines.extend(conflicts.iter().map(|conflict| format!("Conflict: {conflict}")));
    let mut structured = json!({ "changes": changes, "conflicts": conflicts });
    if hidden > 0 {
        structured["changes_more"] = json!(hidden);
    }
    if !renamed.is_empty() {
        structured["renamed"] = json!(renamed);
    }
    if let Some(step) = joined.step {
        structured["step"] = json!(step);
    }
    ToolReply { text: lines.join("\n"), structured }
}

/// The schema of [`joined`].
pub(super) fn merge_schema() -> serde_json::Value {
    object(
        &[
            ("changes", string_array("")),
            ("changes_more", integer("Not listed")),
            ("conflicts", string_array("Items changed on both sides, and which version was used")),
            ("renamed", string_array("Items that have another name here")),
            ("step", integer("For mind_undo")),
        ],
        &["changes"],
    )
}
