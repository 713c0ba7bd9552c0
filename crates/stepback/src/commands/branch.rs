//! The command `stepback branch`.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use stepback_api::branches::BranchDocument;
use stepback_engine::branch::{BranchError, quote_branch_name};
use stepback_engine::moves::{MoveAction, MoveKind, MoveRequest};
use stepback_engine::reruns::{Rerun, RerunStatus};
use stepback_engine::workspace::describe_checkpoint;
use stepback_engine::{EngineError, Workspace};
use stepback_history::compare::{Conversations, TipComparison, compare_tips};
use stepback_model::change::ChangeKind;
use stepback_model::ids::StepId;
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, BranchStatus, Trigger};
use stepback_model::state::WorkspaceState;

use super::{CommandResult, DONE, conversation, documents, moves, rewind, titles};
use crate::args::ConfirmArgs;
use crate::args::live::BranchCommand;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback branch …`.
pub fn run(context: &Context, command: &BranchCommand) -> CommandResult {
    let workspace = context.open_workspace()?;
    match command {
        BranchCommand::Create { name, from, worktree, resume, agree } => {
            let from = match from {
                Some(point) => context.resolve(&workspace, point)?,
                None => context.resolve(&workspace, "@")?,
            };
            match (worktree, resume) {
                (worktree, resume) if agree.dry_run && (worktree.is_some() || resume.is_none()) => {
                    workspace.check_new_rerun_branch(name)?;
                    match context.json {
                        true => output::print_document(
                            &json!({ "id": name, "from": from.step.id, "applied": false }),
                        ),
                        false => {
                            output::print_line(format!(
                                "Branch {name} would start at {}.",
                                describe_checkpoint(&from)
                            ));
                            output::print_status("Nothing was changed (dry run).");
                        }
                    }
                    DONE
                }
                (None, Some(prompt)) => create_and_resume(context, &workspace, name, &from, prompt, agree),
                _ => create(context, &workspace, name, &from, worktree.as_deref(), resume.as_deref()),
            }
        }
        BranchCommand::List { all } => list(context, &workspace, *all),
        BranchCommand::Switch { name, reasoning, conversation, resume, agree } => {
            let board = match reasoning {
                true => Some(stepback_board::choose_session(&workspace, None, context.now())?.id),
                false => None,
            };
            let request = MoveRequest { board, ..switch_request(name, None, agree) };
            if *conversation {
                let resume = resume.as_deref();
                return switch_with_conversation(context, &workspace, &request, name, (resume, agree));
            }
            moves::confirm_and_apply(context, &workspace, workspace.plan_move(&request)?, agree)
        }
        BranchCommand::Rename { name, to } => {
            workspace.rename_branch(name, to)?;
            print_result(context, to, &format!("Renamed branch {name} to {to}."))
        }
        BranchCommand::Abandon { name } => {
            workspace.set_branch_status(name, BranchStatus::Abandoned)?;
            print_result(context, name, &format!("Branch {name} is abandoned."))
        }
        BranchCommand::Archive { name } => {
            workspace.set_branch_status(name, BranchStatus::Archived)?;
            print_result(
                context,
                name,
                &format!("Branch {name} is archived; \"branch list --all\" lists it."),
            )
        }
        BranchCommand::Activate { name } => {
            workspace.set_branch_status(name, BranchStatus::Active)?;
            print_result(context, name, &format!("Branch {name} is active again."))
        }
        BranchCommand::Delete { name } => {
            let has_steps = workspace.branch_tip(name)?.is_some();
            workspace.delete_branch(name)?;
            let kept = if has_steps { "; its steps are kept" } else { "" };
            print_result(context, name, &format!("Deleted branch {name}{kept}."))
        }
        BranchCommand::Merge { name, markers, session, agree } => {
            let request = MoveRequest { force: agree.force, ..MoveRequest::merge(name, *markers) };
            merge(context, &workspace, request, session.as_deref(), agree)
        }
        BranchCommand::Compare { a, b } => {
            let b = match b {
                Some(name) => name.clone(),
                None => workspace.present_branch()?,
            };
            compare_branches(context, &workspace, a, &b)
        }
    }
}

/// The request to switch to a branch, which begins at `begin_at` if it is to be created.
fn switch_request(name: &str, begin_at: Option<StepId>, agree: &ConfirmArgs) -> MoveRequest {
    let action = MoveAction::Switch { branch: name.to_owned(), begin_at };
    MoveRequest { force: agree.force, ..MoveRequest::from_user(action) }
}

/// Switches to a branch, and continues the conversation that the agent had when the branch was left.
fn switch_with_conversation(
    context: &Context,
    workspace: &Workspace,
    request: &MoveRequest,
    name: &str,
    (resume, agree): (Option<&str>, &ConfirmArgs),
) -> CommandResult {
    let mut switched = workspace.plan_move(request)?;
    switched.release_lock();
    // Checked before anything is written: a conversation that cannot continue must not leave half a switch.
    let spoken = workspace.branch_conversation(name)?;
    let planned = conversation::plan_fork_at(context, workspace, &spoken, None, resume)?;
    let Some(switched) = moves::confirm_plan(context, workspace, switched, agree)? else { return DONE };
    let Some(mut report) = workspace.apply_move(switched)?.into_files() else { return DONE };
    super::board::print_moved_board(context, report.board.take())?;
    let continued = conversation::apply_fork(context, workspace, planned)?;
    let code = rewind::print_report(context, workspace, report, MoveKind::Switch, Some(&continued))?;
    // If some files could not be restored, the agent would work on files that differ from what it believes.
    let is_there = code == ExitCode::SUCCESS;
    let ran = conversation::resume_conversation(context, &continued, is_there && resume.is_some())?;
    Ok(if is_there { ran } else { code })
}

/// Merges the files of a branch, and what was concluded on it into the board of a session.
fn merge(
    context: &Context,
    workspace: &Workspace,
    request: MoveRequest,
    session: Option<&str>,
    agree: &ConfirmArgs,
) -> CommandResult {
    let board = match stepback_board::choose_session(workspace, session, context.now()) {
        Ok(session) => Some(session.id),
        Err(error) if session.is_none() => {
            let note = format!("The reasoning board is not merged: {error}.");
            output::print_unless_json(context.json, &note);
            None
        }
        Err(error) => return Err(error.into()),
    };
    let planned = workspace.plan_move(&MoveRequest { board, ..request })?;
    match planned.files.as_ref().filter(|_| planned.is_empty()) {
        Some(prepared) => {
            rewind::report_nothing_to_do(context, prepared, planned.merged_board.as_ref(), agree.dry_run)
        }
        None => moves::confirm_and_apply(context, workspace, planned, agree),
    }
}

fn print_result(context: &Context, name: &str, line: &str) -> CommandResult {
    match context.json {
        true => output::print_document(&json!({ "id": name })),
        false => {
            output::print_line(line);
            output::print_status(Paint::stderr().dim("\"stepback undo\" undoes this."));
        }
    }
    DONE
}

/// Creates a branch, switches to it, and continues the agent there with the conversation and the files of the point.
fn create_and_resume(
    context: &Context,
    workspace: &Workspace,
    name: &str,
    from: &StepRow,
    prompt: &str,
    agree: &ConfirmArgs,
) -> CommandResult {
    // Checked before anything is written: a conversation that cannot continue must not leave half of the work done.
    let planned = conversation::plan_fork_at(context, workspace, from, None, Some(prompt))?;
    let switched = workspace.plan_move(&switch_request(name, Some(from.step.id), agree))?;
    let Some(switched) = moves::confirm_plan(context, workspace, switched, agree)? else { return DONE };
    let Some(report) = workspace.apply_move(switched)?.into_files() else { return DONE };
    if !context.json {
        output::print_line(format!(
            "Branch {} starts at {}.",
            Paint::stdout().strong(name),
            describe_checkpoint(from)
        ));
    }
    let continued = conversation::apply_fork(context, workspace, planned)?;
    let code = rewind::print_report(context, workspace, report, MoveKind::Switch, Some(&continued))?;
    // If some files could not be restored, the agent would work on files that differ from what it believes.
    let is_there = code == ExitCode::SUCCESS;
    let ran = conversation::resume_conversation(context, &continued, is_there)?;
    Ok(if is_there { ran } else { code })
}

fn create(
    context: &Context,
    workspace: &Workspace,
    name: &str,
    from: &StepRow,
    worktree: Option<&Path>,
    resume: Option<&str>,
) -> CommandResult {
    // Checked before anything is written for the branch.
    workspace.check_new_rerun_branch(name)?;
    let state = WorkspaceState::load(workspace.store(), from.step.state).map_err(EngineError::from)?;
    if resume.is_some() && state.conversation.is_none() {
        return Err(CommandFailure::new(
            FailureKind::Nothing,
            format!("no conversation is recorded at {}", describe_checkpoint(from)),
        )
        .with_hint(
            "\"stepback log --kind user-input\" lists the prompts, which are good points to continue from",
        ));
    }
    let worktree = worktree.map(|dir| context.directory.join(dir));
    if let Some(dir) = &worktree {
        if workspace.root.starts_with(dir) {
            return Err(CommandFailure::new(
                FailureKind::Usage,
                format!("{} contains the workspace itself", dir.display()),
            ));
        }
        if let Some(outer) = covering_workspace(context, workspace, dir)? {
            return Err(CommandFailure::new(
                FailureKind::Usage,
                format!("{} is inside the workspace {}", dir.display(), outer.display()),
            )
            .with_hint("checkpoints of that workspace would cover it, and its rewinds change it: name a directory outside, such as ../NAME"));
        }
        let lock = workspace.lock_shared()?;
        workspace.materialize(&workspace.load_state(from)?, dir, true)?;
        drop(lock);
    }
    workspace.create_branch(name, from)?;
    let mut forked = None;
    let mut directory = None;
    if let Some(dir) = &worktree {
        let engine = context.engine();
        let dir = dir.canonicalize()?;
        let own = engine.open_workspace_root(&dir)?;
        let label = format!("branch {name} starts");
        own.create_checkpoint(
            Annotation { label: Some(label), ..Annotation::default() },
            Trigger::Automatic,
        )?;
        workspace.set_branch_directory(name, &own)?;
        directory = Some(dir.clone());
        if state.conversation.is_some() {
            forked = Some(conversation::fork_at(context, workspace, from, Some(&dir), resume)?);
        }
    }
    if context.json {
        output::print_document(&json!({
            "id": name,
            "from": from.step.id,
            "worktree": directory,
            "conversation": forked.as_ref().map(conversation::fork_document),
        }));
    } else {
        output::print_line(format!(
            "Branch {} starts at {}.",
            Paint::stdout().strong(name),
            describe_checkpoint(from)
        ));
        if let Some(dir) = &directory {
            output::print_line(format!("Its directory is {}.", dir.display()));
            let hint =
                format!("\"stepback branch merge {}\" merges what is done there.", quote_branch_name(name));
            output::print_status(Paint::stderr().dim(hint));
        } else {
            output::print_status(
                Paint::stderr()
                    .dim(format!("\"stepback branch switch {}\" switches to it.", quote_branch_name(name))),
            );
        }
        output::print_status(Paint::stderr().dim("\"stepback undo\" deletes the branch."));
    }
    match &forked {
        Some(forked) => conversation::resume_conversation(context, forked, resume.is_some()),
        None => DONE,
    }
}

/// Returns the root of a workspace that would cover a directory, which may not exist yet, and does not already cover this
/// workspace.
fn covering_workspace(
    context: &Context,
    workspace: &Workspace,
    dir: &Path,
) -> Result<Option<PathBuf>, CommandFailure> {
    let dir = std::path::absolute(dir)?;
    // Links are resolved as far as there are directories.
    let resolved = dir.ancestors().find_map(|existing| {
        let rest = dir.strip_prefix(existing).ok()?;
        existing.canonicalize().ok().map(|existing| existing.join(rest))
    });
    for parent in resolved.unwrap_or(dir).ancestors().skip(1) {
        let covers_both = workspace.root != parent && workspace.root.starts_with(parent);
        if !covers_both && context.store().workspace_at(parent.as_os_str().as_bytes())?.is_some() {
            return Ok(Some(parent.to_path_buf()));
        }
    }
    Ok(None)
}

/// Returns a branch as JSON: its newest step is an id here, and has its number and time beside it.
fn branch_document(branch: BranchDocument) -> Value {
    let mut value = json!(branch);
    value["id"] = json!(branch.name);
    match branch.tip {
        Some(tip) => {
            value["tip"] = json!(tip.id);
            value["number"] = json!(tip.number);
            value["at"] = json!(tip.at);
        }
        None => drop(value.as_object_mut().map(|fields| fields.remove("tip"))),
    }
    value
}

fn list(context: &Context, workspace: &Workspace, all: bool) -> CommandResult {
    let mut documents = BranchDocument::list(workspace)?;
    let count = documents.len();
    documents.retain(|branch| all || !branch.is_archived());
    let hidden = (count - documents.len()) as u64;
    if context.json {
        let items: Vec<_> = documents.into_iter().map(branch_document).collect();
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let branches = workspace.branches()?;
    let reruns = workspace.reruns()?;
    let rerun = |name: &str| reruns.iter().find(|rerun| rerun.branch == name);
    // A finished rerun without a branch was forgotten.
    let is_there = |rerun: &&Rerun| branches.iter().any(|branch| branch.name == rerun.branch);
    let unfinished = reruns.iter().filter(|rerun| !is_there(rerun) && !rerun.has_result());
    let paint = Paint::stdout();
    let now = context.now();
    for branch in &branches {
        let mark = if branch.present { "@" } else { " " };
        let Some(document) = documents.iter().find(|document| document.name == branch.name) else { continue };
        let from = document.from.as_ref();
        let from = from.map_or(String::new(), |from| format!("  from {} at #{}", from.branch, from.number));
        // The status of a rerun is in its own line.
        let is_told = ["merged", "abandoned", "archived"].contains(&document.status.as_str());
        let status = if is_told { format!("  ({})", document.status) } else { String::new() };
        output::print_line(format!(
            "{} {:<20} {:>8}  {}{}{}",
            paint.good(mark),
            paint.strong(&branch.name),
            describe_checkpoint(&branch.tip),
            paint.dim(branch.tip.step.at.ago(now)),
            paint.dim(from),
            paint.note(status)
        ));
        if let Some(directory) = &document.directory {
            output::print_line(format!("    {}", paint.dim(format!("in {directory}"))));
        }
        if let Some(rerun) = rerun(&branch.name) {
            output::print_line(format!("    {}", paint.dim(describe_rerun(rerun))));
        }
    }
    for rerun in unfinished.filter(|rerun| rerun.status != RerunStatus::Failed) {
        output::print_line(format!(
            "  {:<20} {}",
            paint.strong(&rerun.branch),
            paint.dim(describe_rerun(rerun))
        ));
    }
    if hidden > 0 {
        let hidden = match hidden {
            1 => "1 archived branch is".to_owned(),
            number => format!("{} archived branches are", output::grouped(number)),
        };
        output::print_status(paint.dim(format!("{hidden} not listed; --all lists all.")));
    }
    DONE
}

/// Describes the branch that a rerun created.
fn describe_rerun(rerun: &Rerun) -> String {
    let mut about = format!("rerun of {}, {}", rerun.of.short(), rerun.effective_status());
    if rerun.is_abandoned() {
        about.push_str(": its process has exited");
    }
    for change in &rerun.changes {
        about.push_str(&format!(", {}", stepback_agents::payload::summary_line(change)));
    }
    about
}

fn compare_branches(context: &Context, workspace: &Workspace, a: &str, b: &str) -> CommandResult {
    let tip = |name: &str| -> Result<StepRow, CommandFailure> {
        workspace.require_branch_tip(name).map_err(|error| match error {
            EngineError::Branch(BranchError::NotFound { name, known }) => {
                CommandFailure::new(FailureKind::Point, format!("branch {name} not found"))
                    .with_hint(format!("known branches are {}", known.join(", ")))
            }
            other => other.into(),
        })
    };
    for name in [a, b] {
        workspace.save_branch_directory(name)?;
    }
    let (one, other) = (tip(a)?, tip(b)?);
    let TipComparison { fork, since_fork: [since_a, since_b], ends } = compare_tips(workspace, &one, &other)?;
    let changes = ends.files.unwrap_or_default();
    let Conversations { shared, a: said_left, b: said_right } = ends.conversation;
    if context.json {
        let items: Vec<_> = changes.iter().map(documents::change).collect();
        output::print_document(&json!({
            "a": { "id": a, "tip": one.step.id, "steps_since_fork": since_a, "messages": said_left },
            "b": { "id": b, "tip": other.step.id, "steps_since_fork": since_b, "messages": said_right },
            "fork": fork.as_ref().map(|stored| stored.step.id),
            "shared_messages": shared,
            "items": items,
        }));
        return DONE;
    }
    let paint = Paint::stdout();
    match &fork {
        Some(fork) => {
            output::print_line(format!("{a} and {b} diverge at {}", paint.strong(describe_checkpoint(fork))))
        }
        None => output::print_line(format!("{a} and {b} have no step in common")),
    }
    output::print_line(format!("  steps since     {:>6} {:>6}", since_a, since_b));
    output::print_line(format!("  messages        {said_left:>6} {said_right:>6}   ({shared} in common)"));
    let of = |kind: ChangeKind| changes.iter().filter(|change| change.kind() == kind).count();
    output::print_line(format!(
        "  files from {a} to {b}: {} created, {} modified, {} deleted, {} renamed",
        of(ChangeKind::Created),
        of(ChangeKind::Modified),
        of(ChangeKind::Deleted),
        of(ChangeKind::Renamed)
    ));
    for change in changes.iter().take(40) {
        output::print_line(format!("    {:<12} {}", paint.change_kind(change), titles::change_path(change)));
    }
    let [a, b] = [a, b].map(|name| quote_branch_name(&format!("branch:{name}")).into_owned());
    output::print_status(paint.dim(format!("\"stepback diff {a} {b}\" shows the lines.")));
    DONE
}
