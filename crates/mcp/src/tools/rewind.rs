//! Plans to rewind, to switch branches, and to undo what was done with a plan.

use serde_json::json;
use stepback_engine::kept::Audience;
use stepback_engine::moves::{MoveAction, MoveRequest, MovingAgent};
use stepback_engine::rewind::RewindRequest;
use stepback_engine::workspace::describe_checkpoint;
use stepback_model::point;
use stepback_model::record::Session;
use stepback_model::record::StepRow;

use super::apply::{plan_schema, show_plan, show_plan_of};
use super::{Args, READ_ONLY, Tool, limit_schema, point_schema, resolve_step};
use crate::schema::{array, boolean, bounded_integer, object, string, string_array};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn rewind_tool() -> Tool {
    Tool {
        name: "rewind_plan",
        title: "Plan a rewind",
        description: "Plans to revert your changes: everything since a point (to), or your last changes (last, changes). Changes nothing; rewind_apply applies the plan. Changes by others are kept.",
        input: object(
            &[
                ("to", point_schema("Back to the files of this point: #42, @-3, a label, tool:Bash:last")),
                ("last", bounded_integer("Or: take back this many of your last changes", 1, 100_000)),
                (
                    "changes",
                    array(
                        "Or: take back these changes, by the numbers that why lists",
                        json!({ "type": "integer", "minimum": 1 }),
                    ),
                ),
                ("paths", string_array("Only these: paths, directories, globs")),
                ("reasoning", boolean("With to: also restore your board")),
                ("limit", limit_schema(30, 500)),
            ],
            &[],
        ),
        output: plan_schema(),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| {
            let (session, request) = parse_rewind_request(context, args)?;
            show_plan(context, args, &session, MoveAction::Rewind(Box::new(request)))
        },
    }
}

/// What to rewind to or take back, and the session it is for.
fn parse_rewind_request(
    context: &ToolContext<'_>,
    args: &Args,
) -> Result<(Session, RewindRequest), ToolError> {
    let changes: Vec<usize> =
        args.counts("changes").into_iter().filter_map(|number| usize::try_from(number).ok()).collect();
    let last = args.count("last").and_then(|last| usize::try_from(last).ok());
    let selectors = [args.text("to").is_some(), last.is_some(), !changes.is_empty()];
    if selectors.iter().filter(|is_given| **is_given).count() != 1 {
        return Err(ToolError::new("specify exactly one of to, last and changes"));
    }
    if args.flag("reasoning") && args.text("to").is_none() {
        return Err(
            ToolError::new("the board can only be restored to a point").with_hint("use to, or mind_undo")
        );
    }
    let session = moving_session(context)?;
    let agent_session = (session.agent != Session::PERSON).then_some(session.id);
    let target = args.text("to").map(|point| match agent_session {
        Some(agent_session) => resolve_step(context, &point::in_session(point, &agent_session.to_string())),
        None => resolve_step(context, point),
    });
    let target = target.transpose()?;
    if let (false, Some(target)) = (context.allow_others, &target) {
        check_on_current_line(context, target)?;
    }
    let request = RewindRequest {
        target,
        paths: args.texts("paths").iter().map(|path| context.relative_path(path)).collect(),
        changes,
        last,
        session: agent_session,
        audience: Audience::Agent,
        ..RewindRequest::default()
    };
    Ok((session, request))
}

/// The session for which the workspace may be moved.
pub(super) fn moving_session(context: &ToolContext<'_>) -> Result<Session, ToolError> {
    let (own_session, session) = (context.own_session()?, context.target_session()?);
    if own_session.id != session.id && !context.allow_others {
        return Err(not_own_session_error(&session, &own_session));
    }
    if session.agent == Session::PERSON && !context.allow_others {
        return Err(ToolError::new(
            "no recorded session of yours is running here, so your changes are not known",
        )
        .with_hint("ask the user to install the hooks (stepback init), or to start this server with --session or --allow-others"));
    }
    Ok(session)
}

pub(super) fn not_own_session_error(session: &Session, own_session: &Session) -> ToolError {
    ToolError::new(format!(
        "session {} is not yours: you can revert only your own changes ({} {})",
        session.id.short(),
        own_session.agent,
        own_session.id.short()
    ))
    .with_hint("omit \"session\"; the user can allow more by starting this server with --allow-others")
}

/// Refuses a target that is not on the present line: there is no list of which session changed what since then, so the
/// rewind would affect the files of all sessions.
fn check_on_current_line(context: &ToolContext<'_>, target: &StepRow) -> Result<(), ToolError> {
    let workspace = context.workspace;
    let base = workspace.nearest_checkpoint(target)?.step.id;
    let line = workspace.ancestry(&workspace.head()?)?;
    let upto = line.iter().position(|stored| stored.step.id == base);
    match upto {
        Some(index) if !line[..=index].iter().any(|stored| stored.purged) => Ok(()),
        _ => Err(ToolError::new(format!(
            "{} is not on the current line, and rewinding there would also revert changes of others",
            describe_checkpoint(target)
        ))
        .with_hint("choose a later point; the user can rewind there with \"stepback rewind\"")),
    }
}

pub(super) fn switch_tool() -> Tool {
    Tool {
        name: "switch_plan",
        title: "Plan a branch switch",
        description: "Plans a switch of all files to another branch; the current state stays on the current branch. Changes nothing; rewind_apply applies the plan. Refused if it would revert changes of others.",
        input: object(
            &[
                ("branch", string("Its name")),
                ("reasoning", boolean("Also restore your board from there")),
                ("limit", limit_schema(30, 500)),
            ],
            &["branch"],
        ),
        output: plan_schema(),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| {
            let session = moving_session(context)?;
            let branch = args.require_text("branch")?.to_owned();
            show_plan(context, args, &session, MoveAction::Switch { branch, begin_at: None })
        },
    }
}

pub(super) fn merge_plan_tool() -> Tool {
    Tool {
        name: "merge_plan",
        title: "Plan a merge",
        description: "Plans to merge another branch into the current one: files three ways, and conclusions into your board. Conflicts are listed and stay as they are here. Changes nothing; rewind_apply applies the plan.",
        input: object(
            &[
                ("branch", string("Its name")),
                ("markers", boolean("Write conflict markers into text files instead of leaving them")),
                ("limit", limit_schema(30, 500)),
            ],
            &["branch"],
        ),
        output: plan_schema(),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| {
            let session = moving_session(context)?;
            let request = MoveRequest {
                agent: Some(MovingAgent { session: session.id, own_only: !context.allow_others }),
                board: Some(session.id),
                ..MoveRequest::merge(args.require_text("branch")?, args.flag("markers"))
            };
            show_plan_of(context, args, &session, &request)
        },
    }
}

/// Refuses to move a workspace in which another agent is active.
pub(super) fn check_no_other_agents(context: &ToolContext<'_>, session: &Session) -> Result<(), ToolError> {
    if context.allow_others {
        return Ok(());
    }
    let others = context.active_sessions()?;
    let names: Vec<String> = others
        .iter()
        .filter(|active| active.id != session.id)
        .map(|active| format!("{} {}", active.agent, active.id.short()))
        .collect();
    match names.as_slice() {
        [] => Ok(()),
        names => Err(ToolError::new(format!(
            "the files of {} would be switched to another branch or merged with it, too",
            names.join(", ")
        ))
        .with_hint(
            "wait until no other agent is running here; the user can use \"stepback branch switch\" or \"merge\"",
        )),
    }
}

pub(super) fn undo_tool() -> Tool {
    Tool {
        name: "undo_plan",
        title: "Plan to undo or redo",
        description: "Plans to undo what you did with rewind_apply: your newest operation, or one by its number; with redo, to redo what you undid last. Changes nothing; rewind_apply applies the plan.",
        input: object(
            &[
                ("operation", bounded_integer("Its number, from rewind_apply", 1, u64::MAX)),
                ("redo", boolean("Redo what was undone last")),
                ("limit", limit_schema(30, 500)),
            ],
            &[],
        ),
        output: plan_schema(),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| {
            let session = moving_session(context)?;
            let action = match (args.flag("redo"), args.count("operation")) {
                (true, None) => MoveAction::Redo,
                (true, Some(_)) => {
                    return Err(ToolError::new("redo applies to what was undone last: omit operation"));
                }
                (false, number) => {
                    let number = number.map(|number| context.workspace.find_operation(&number.to_string()));
                    let operation = number
                        .transpose()
                        .map_err(|error| ToolError::from(error).with_hint("omit it for the newest one"))?;
                    MoveAction::Undo { operation }
                }
            };
            show_plan(context, args, &session, action)
        },
    }
}
