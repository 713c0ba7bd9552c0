//! Moves the workspace in two calls: one shows a plan and changes nothing, the other confirms it by its id.

use serde_json::json;
use stepback_engine::kept::{Audience, KeptChange};
use stepback_engine::reason::{BoardMoment, Joined, Thinker};
use stepback_engine::rewind::{PreparedRewind, RewindReport};
use stepback_engine::undo::{Reversal, UndoDirection};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::plan::SkippedPath;
use stepback_model::record::Session;
use stepback_model::record::StepRow;
use stepback_worktree::apply::ChangeOutcome;

use super::rewind::{expect_alone, not_yours};
use super::{Args, Tool, ToolHints, ToolReply, limit};
use crate::plans::{AgentPlan, AgentRequest};
use crate::schema::{flag, object, text, texts, whole};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most paths listed that are left alone or conflict.
const LEFT: usize = 10;
/// The most changes of a board listed.
const BOARD: usize = 20;

/// A planned action, ready to be applied.
enum Deed<'q> {
    /// Rewind; the board too if a step is given.
    Rewind(PreparedRewind, Option<&'q StepRow>),
    /// Switch to a branch, with its board or without.
    Switch(PreparedRewind, &'q str, bool),
    Reverse(Reversal, UndoDirection),
}

impl Deed<'_> {
    fn prepared(&self) -> Option<&PreparedRewind> {
        match self {
            Self::Rewind(prepared, _) | Self::Switch(prepared, ..) => Some(prepared),
            Self::Reverse(Reversal::Files { prepared, .. }, _) => Some(prepared),
            Self::Reverse(Reversal::Log { .. }, _) => None,
        }
    }

    fn prepared_mut(&mut self) -> Option<&mut PreparedRewind> {
        match self {
            Self::Rewind(prepared, _) | Self::Switch(prepared, ..) => Some(prepared),
            Self::Reverse(Reversal::Files { prepared, .. }, _) => Some(prepared),
            Self::Reverse(Reversal::Log { .. }, _) => None,
        }
    }

    fn summary(&self) -> &str {
        match self {
            Self::Rewind(prepared, _) | Self::Switch(prepared, ..) => &prepared.summary,
            Self::Reverse(Reversal::Files { prepared, .. }, _) => &prepared.summary,
            Self::Reverse(Reversal::Log { summary, .. }, _) => summary,
        }
    }
}

/// Plans what a session asked for, if the session is allowed to apply it.
fn prepare<'q>(
    ground: &ToolContext<'_>,
    session: &Session,
    question: &'q AgentRequest,
) -> Result<Deed<'q>, ToolError> {
    let workspace = ground.workspace;
    let mut deed = match question {
        AgentRequest::Rewind { request, reasoning } => {
            let board = request.target.as_ref().filter(|_| *reasoning);
            Deed::Rewind(workspace.prepare_rewind(request)?, board)
        }
        AgentRequest::Switch { branch, reasoning } => {
            expect_alone(ground, session)?;
            let prepared = workspace.prepare_switch(branch)?;
            if !ground.allow_others {
                expect_own(ground, branch, &prepared, session)?;
            }
            Deed::Switch(prepared, branch, *reasoning)
        }
        AgentRequest::Undo(operation) => {
            let reversal = match ground.allow_others {
                true => workspace.prepare_undo(Some(*operation))?,
                false => workspace.prepare_own_undo(session.id, Some(*operation))?,
            };
            expect_reversible(ground, &reversal, session)?;
            Deed::Reverse(reversal, UndoDirection::Undo)
        }
        AgentRequest::Redo => {
            let reversal = match ground.allow_others {
                true => workspace.prepare_redo()?,
                false => workspace.prepare_own_redo(session.id)?,
            };
            expect_reversible(ground, &reversal, session)?;
            Deed::Reverse(reversal, UndoDirection::Redo)
        }
    };
    let by = (session.agent != Session::PERSON).then_some(session.id);
    if let Some(prepared) = deed.prepared_mut() {
        prepared.by = by;
    }
    Ok(deed)
}

/// Refuses to undo a switch where a switch would be refused.
fn expect_reversible(
    ground: &ToolContext<'_>,
    reversal: &Reversal,
    session: &Session,
) -> Result<(), ToolError> {
    let Reversal::Files { prepared, .. } = reversal else { return Ok(()) };
    let Some(branch) = prepared.enters() else { return Ok(()) };
    expect_alone(ground, session)?;
    match ground.allow_others {
        true => Ok(()),
        false => expect_own(ground, branch, prepared, session),
    }
}

/// Refuses a switch that would remove changes of other sessions from the workspace.
fn expect_own(
    ground: &ToolContext<'_>,
    branch: &str,
    prepared: &PreparedRewind,
    session: &Session,
) -> Result<(), ToolError> {
    let in_the_way = ground.workspace.foreign_changes(branch, prepared, session.id)?;
    if in_the_way.is_empty() {
        return Ok(());
    }
    let more = in_the_way.len().saturating_sub(LEFT);
    let mut paths: Vec<String> = in_the_way.iter().take(LEFT).map(ToString::to_string).collect();
    if more > 0 {
        paths.push(format!("{more} more"));
    }
    Err(ToolError::new(format!(
        "branch {branch} has other files where others than you changed something since: {}",
        paths.join(", ")
    ))
    .hint("take back only your own changes with rewind_plan; a person can go there with \"stepback branch switch\""))
}

/// Plans what was asked, shows the plan, and keeps the question until it is confirmed.
pub(super) fn show_plan(
    ground: &ToolContext<'_>,
    args: &Args,
    session: &Session,
    question: AgentRequest,
) -> Result<ToolReply, ToolError> {
    let deed = prepare(ground, session, &question)?;
    let id = fingerprint(ground, &question, &deed);
    let reply = shown(&id, &deed, limit(args, 30));
    ground.plans.keep(AgentPlan { id, workspace: ground.workspace.record.id, session: session.id, question });
    Ok(reply)
}

/// The id of a plan. It covers question and plan, so confirming it confirms exactly this plan.
fn fingerprint(ground: &ToolContext<'_>, question: &AgentRequest, deed: &Deed<'_>) -> String {
    let (plan, warnings) = match deed.prepared() {
        Some(prepared) => (
            Hash::of(ObjectKind::Plan, &prepared.plan.encode()).to_string(),
            format!("{:?}", prepared.warnings),
        ),
        None => Default::default(),
    };
    let content = format!("{} {question:?} {} {warnings} {plan}", ground.workspace.record.id, deed.summary());
    Hash::of(ObjectKind::Blob, content.as_bytes()).to_string().chars().take(16).collect()
}

/// What is left alone: paths that conflict with later changes, and changes of other sessions.
fn left(items: &[SkippedPath], kept: &[KeptChange]) -> Vec<String> {
    let conflicts = items.iter().filter(|item| item.is_conflict());
    let mut stays: Vec<String> =
        conflicts.take(LEFT).map(|item| format!("{}: {}", item.path, item.reason)).collect();
    let by = |item: &KeptChange| format!("{}: changed by {}", item.path, item.author.name(Audience::Agent));
    stays.extend(kept.iter().take(LEFT).map(by));
    if kept.len() > LEFT {
        stays.push(format!("{} more changes of others", kept.len() - LEFT));
    }
    stays
}

fn shown(id: &str, deed: &Deed<'_>, most: usize) -> ToolReply {
    let prepared = deed.prepared();
    let all = prepared.map_or(&[][..], |prepared| &prepared.plan.changes);
    let changes: Vec<String> =
        all.iter().take(most).map(|change| format!("{} {}", change.verb(), change.path)).collect();
    let more = all.len().saturating_sub(most);
    let left = prepared.map_or_else(Vec::new, |prepared| left(&prepared.plan.left_alone, &prepared.kept));
    let mut warnings = prepared.map_or_else(Vec::new, |prepared| prepared.warnings.clone());
    let mut lines = vec![format!("Plan {id}: {}", deed.summary())];
    lines.extend(changes.iter().map(|change| format!("  {change}")));
    let mut structured = json!({ "plan": id, "summary": deed.summary(), "changes": changes });
    if all.is_empty() {
        lines.push("  no file changes".to_owned());
        let because = prepared.and_then(|prepared| prepared.unchanged_because.as_deref());
        warnings.extend(because.map(|because| format!("no file changes: {because}")));
    }
    if more > 0 {
        structured["changes_more"] = json!(more);
        lines.push(format!("  … and {more} more"));
    }
    if !left.is_empty() {
        lines.extend(left.iter().map(|item| format!("  left alone: {item}")));
        structured["left_alone"] = json!(left);
    }
    if !warnings.is_empty() {
        lines.extend(warnings.iter().map(|warning| format!("  warning: {warning}")));
        structured["warnings"] = json!(warnings);
    }
    ToolReply { text: lines.join("\n"), structured }
}

/// The schema of [`shown`].
pub(super) fn plan_schema() -> serde_json::Value {
    object(
        &[
            ("plan", text("For rewind_apply")),
            ("summary", text("")),
            ("changes", texts("Of files")),
            ("changes_more", whole("Not listed")),
            ("left_alone", texts("What stays, and why")),
            ("warnings", texts("")),
        ],
        &["plan", "summary", "changes"],
    )
}

pub(super) fn apply() -> Tool {
    Tool {
        name: "rewind_apply",
        title: "Do what a plan says",
        description: "Does what a plan of rewind_plan, switch_plan or undo_plan says, if it still holds. What is there now is kept first; undo_plan takes it back.",
        input: object(&[("plan", text("Its id")), ("force", flag("Even open databases"))], &["plan"]),
        output: object(
            &[
                ("summary", text("")),
                ("done", whole("Files that were changed")),
                ("operation", whole("For undo_plan")),
                ("before", whole("The step that keeps what was there")),
                ("after", whole("The step that was reached")),
                ("left_alone", texts("What stayed, and why")),
                ("board", texts("What changed on the board")),
            ],
            &["summary", "done"],
        ),
        hints: ToolHints { read_only: false, destructive: true, idempotent: false, open_world: false },
        slow: false,
        makes: false,
        run: carry_out,
    }
}

fn carry_out(ground: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let id = args.need("plan")?;
    let workspace = ground.workspace;
    let unknown = || {
        let shown: String = id.chars().take(40).collect();
        ToolError::new(format!("there is no plan \"{shown}\"")).hint(
            "make one with rewind_plan, switch_plan or undo_plan; plans are kept as long as this server runs",
        )
    };
    let kept =
        ground.plans.get(id).filter(|kept| kept.workspace == workspace.record.id).ok_or_else(unknown)?;
    let own = ground.own()?;
    let session = workspace.store().session(kept.session)?.ok_or_else(unknown)?;
    if session.id != own.id && !ground.allow_others {
        return Err(not_yours(&session, &own));
    }
    let mut thinker = Thinker::new(workspace, &session);
    if let AgentRequest::Switch { reasoning: true, .. } = kept.question {
        // Must happen before the prepared plan locks the workspace.
        thinker.leave(&workspace.present_branch()?)?;
    }
    let mut deed = prepare(ground, &session, &kept.question)?;
    let now = fingerprint(ground, &kept.question, &deed);
    if now != id {
        let new = shown(&now, &deed, 30);
        ground.plans.keep(AgentPlan { id: now, ..kept.clone() });
        return Err(ToolError::new(format!(
            "something changed since the plan was made, and nothing was done; the new plan is:\n{}",
            new.text
        ))
        .hint("look at it and call rewind_apply with its id"));
    }
    // The plan listed these paths as left alone, with the reason.
    if let (true, Some(prepared)) = (args.flag("force"), deed.prepared_mut()) {
        prepared.force();
    }
    let summary = deed.summary().to_owned();
    let report = match deed {
        Deed::Rewind(prepared, None) if prepared.plan.is_empty() => {
            let because = prepared.unchanged_because.map(|because| format!(": {because}"));
            return Err(ToolError::new(format!("the plan changes nothing{}", because.unwrap_or_default())));
        }
        Deed::Rewind(prepared, board) => {
            let report = workspace.apply(prepared)?;
            let back = |target: &StepRow| {
                let moment = BoardMoment::Step(target.step.number);
                thinker.restore_with(&moment, report.operation.id)
            };
            let board = board.map(back).transpose()?;
            Some(RewindReport { board, ..report })
        }
        Deed::Switch(prepared, branch, true) => Some(thinker.switch(branch, prepared)?),
        Deed::Switch(prepared, branch, false) => Some(workspace.switch(branch, prepared)?),
        Deed::Reverse(reversal, direction) => workspace.reverse_now(reversal, direction)?,
    };
    ground.plans.forget(id);
    Ok(told(&summary, report.as_ref()))
}

/// The reply after applying a plan.
fn told(summary: &str, report: Option<&RewindReport>) -> ToolReply {
    let Some(report) = report else {
        let text = format!("Done: {summary}. No file was touched.");
        return ToolReply { text, structured: json!({ "summary": summary, "done": 0 }) };
    };
    let mut left_alone = report.left_alone.clone();
    let mut done = 0_u64;
    for (change, outcome) in &report.outcomes {
        match outcome {
            ChangeOutcome::Done => done += 1,
            ChangeOutcome::LeftAlone(reason) => {
                left_alone.push(SkippedPath::conflict(change.path.clone(), reason.clone()));
            }
        }
    }
    let left_alone = left(&left_alone, &report.kept);
    let mut lines = vec![format!(
        "Done: {summary}. {done} paths changed; #{} keeps what was there before.",
        report.before
    )];
    let mut structured = json!({
        "summary": summary,
        "done": done,
        "operation": report.operation.number,
        "before": report.before,
        "after": report.after,
    });
    if !left_alone.is_empty() {
        lines.extend(left_alone.iter().map(|item| format!("  left alone: {item}")));
        structured["left_alone"] = json!(left_alone);
    }
    if let Some(Joined { diff, .. }) = &report.board {
        let said: Vec<&String> = diff.changes.iter().map(|change| &change.sentence).take(BOARD).collect();
        lines.extend(said.iter().map(|sentence| format!("  board: {sentence}")));
        structured["board"] = json!(said);
    }
    ToolReply { text: lines.join("\n"), structured }
}
