//! Experiments on their own branches, and merging their findings.

use serde_json::json;
use stepback_engine::board::{BoardEditor, BoardReplacement};
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::ExperimentStatus;

use super::rewind::{expect_alone, mover};
use super::{
    ADDS, Args, Tool, ToolReply, change_board, edit_reply, limit, limit_schema, moment, parsed, point_schema,
    words,
};
use crate::schema::{flag, object, text, texts, whole, word};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most changes and conflicts of a board listed.
const MAX_LISTED_CHANGES: usize = 30;

pub(super) fn experiment() -> Tool {
    let outcomes: Vec<&str> = (words(ExperimentStatus::ALL, ExperimentStatus::as_str).into_iter())
        .filter(|word| *word != ExperimentStatus::Running.as_str())
        .collect();
    Tool {
        name: "experiment",
        title: "Experiments",
        description: "Start an experiment on a new branch: files do not change, and your later changes are on that branch. End it with its outcome. switch_plan returns to the branch you left, and mind_merge merges your findings there.",
        input: object(
            &[
                ("do", word("What to do", &["start", "end", "list"])),
                ("branch", text("start: the name of the new branch")),
                ("hypothesis", text("start: the hypothesis it tests, such as H1")),
                ("success", text("start: the criterion for success")),
                ("experiment", text("end: which one, such as X1")),
                ("outcome", word("end: how it went", &outcomes)),
                ("result", text("end: the result")),
                ("limit", limit_schema(20, 500)),
            ],
            &["do"],
        ),
        output: object(
            &[
                ("item", text("What started or ended")),
                ("said", texts("")),
                ("step", whole("For mind_undo")),
                ("checkpoint", whole("Made for it")),
                ("branch", text("The current branch")),
                ("left", text("The previous branch")),
                ("experiments", texts("With their results")),
                ("more", whole("Lines that were left out")),
            ],
            &[],
        ),
        hints: ADDS,
        slow: false,
        makes: true,
        run: |ground, args| match args.need("do")? {
            "start" => start(ground, args),
            "end" => change_board(
                ground,
                &BoardMutation::EndExperiment {
                    experiment: args.item("experiment")?,
                    status: outcome(args.need("outcome")?)?,
                    result: args.need("result")?.to_owned(),
                },
            ),
            _ => list(ground, args),
        },
    }
}

fn outcome(given: &str) -> Result<ExperimentStatus, ToolError> {
    parsed(ExperimentStatus::ALL.iter().copied().find(|status| status.as_str() == given), "outcome")
}

fn start(ground: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let (branch, success) = (args.need("branch")?, args.need("success")?);
    let hypothesis = args.name("hypothesis")?;
    let session = mover(ground)?;
    expect_alone(ground, &session)?;
    let by = (session.agent != stepback_model::record::Session::PERSON).then_some(session.id);
    let begun = stepback_board::start_experiment(
        &mut BoardEditor::new(ground.workspace, &session),
        branch,
        hypothesis,
        success,
        by,
    )?;
    let mut reply = edit_reply(&begun.edit);
    reply.text.push_str(&format!("\nYou are on branch {branch} now, and left {}.", begun.left));
    reply.structured["branch"] = json!(branch);
    reply.structured["left"] = json!(begun.left);
    Ok(reply)
}

fn list(ground: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = ground.session()?;
    let sections = BoardEditor::new(ground.workspace, &session).board()?.board(true);
    let section = sections.into_iter().find(|section| section.title == "Experiments");
    let mut lines = section.map_or_else(Vec::new, |section| section.lines);
    let more = lines.len().saturating_sub(limit(args, 20));
    lines.truncate(lines.len() - more);
    let mut structured = json!({ "experiments": lines });
    let mut text = if lines.is_empty() { "There are none yet.".to_owned() } else { lines.join("\n") };
    if more > 0 {
        structured["more"] = json!(more);
        text.push_str(&format!("\n… {more} more lines"));
    }
    Ok(ToolReply { text, structured })
}

pub(super) fn merge() -> Tool {
    Tool {
        name: "mind_merge",
        title: "Merge a board",
        description: "Merges into your board what changed on another branch since its experiment started, or between two points (from, base). In a conflict, your version is kept unless theirs is set; conflicts are listed.",
        input: object(
            &[
                ("from", point_schema("The branch, or any point with base")),
                ("base", point_schema("Merge changes after this point")),
                ("theirs", flag("In a conflict, use the version of the branch")),
                ("dry_run", flag("Only report what would change")),
            ],
            &["from"],
        ),
        output: joined_schema(),
        hints: ADDS,
        slow: false,
        makes: false,
        run: |ground, args| {
            let session = ground.session()?;
            let from = moment(ground, Some(args.need("from")?))?;
            let base = args.text("base").map(|point| moment(ground, Some(point))).transpose()?;
            let mut editor = BoardEditor::new(ground.workspace, &session);
            Ok(joined(&stepback_board::merge(
                &mut editor,
                &from,
                base.as_ref(),
                args.flag("theirs"),
                args.flag("dry_run"),
            )?))
        },
    }
}

/// The reply to a merge of two boards.
pub(super) fn joined(joined: &BoardReplacement) -> ToolReply {
    let all = &joined.diff.changes;
    let changes: Vec<&String> = all.iter().map(|change| &change.sentence).take(MAX_LISTED_CHANGES).collect();
    let more = all.len() - changes.len();
    let conflicts: Vec<String> = joined
        .conflicts
        .iter()
        .take(MAX_LISTED_CHANGES)
        .map(|conflict| {
            let kept = if conflict.taken { "theirs was taken" } else { "it stays as it is here" };
            format!("{}; {kept}", conflict.sentence)
        })
        .collect();
    let renamed: Vec<String> = joined
        .renamed
        .iter()
        .take(MAX_LISTED_CHANGES)
        .map(|(there, here)| format!("{there} is {here} here"))
        .collect();
    let mut lines = vec![joined.summary.clone()];
    lines.extend(changes.iter().map(|change| (*change).clone()));
    if more > 0 {
        lines.push(format!("… and {more} more changes"));
    }
    lines.extend(renamed.iter().cloned());
    lines.extend(conflicts.iter().map(|conflict| format!("Conflict: {conflict}")));
    let mut structured = json!({ "changes": changes, "conflicts": conflicts });
    if more > 0 {
        structured["changes_more"] = json!(more);
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
pub(super) fn joined_schema() -> serde_json::Value {
    object(
        &[
            ("changes", texts("")),
            ("changes_more", whole("Not listed")),
            ("conflicts", texts("Items changed on both sides, and which version was used")),
            ("renamed", texts("Items that have another name here")),
            ("step", whole("For mind_undo")),
        ],
        &["changes"],
    )
}
