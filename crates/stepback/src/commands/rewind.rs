//! The command `stepback rewind`, and how plans and their results are printed.

use std::process::ExitCode;

use serde_json::{Value, json};
use stepback_agents::rewind_warnings::add_rewind_warnings;
use stepback_api::plans::{MovedPartDocument, PlannedPartDocument};
use stepback_engine::board::BoardReplacement;
use stepback_engine::kept::{Audience, format_path_list};
use stepback_engine::moves::{MoveKind, MoveRequest, RewindParts};
use stepback_engine::rewind::{PreparedRewind, RewindReport, RewindRequest};
use stepback_engine::{EngineError, Workspace};
use stepback_model::plan::{How, PlannedChange, SkippedPath};
use stepback_model::record::{Session, StepRow};
use stepback_model::state::WorkspaceState;

use super::conversation::{self, ContinuedConversation};
use super::{CommandResult, DONE, board, documents, moves, session_parts};
use crate::args::RewindArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The most lines of a plan that are printed.
const MAX_PLAN_LINES: usize = 40;
/// The most kept changes that are printed.
const MAX_KEPT_LINES: usize = 8;

/// Runs `stepback rewind`.
pub fn rewind(context: &Context, arguments: &RewindArgs) -> CommandResult {
    plan_and_rewind(context, arguments, arguments.everything)
}

fn plan_and_rewind(context: &Context, arguments: &RewindArgs, everything: bool) -> CommandResult {
    let workspace = context.open_workspace()?;
    if let Some(id) = &arguments.plan {
        return moves::apply_shown_plan(context, &workspace, id, &arguments.agree);
    }
    let session = arguments.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
    let request =
        RewindRequest { everything, ..read_request(context, &workspace, arguments, session.as_ref())? };
    let until = request.until;
    let parts = read_parts(&workspace, arguments, request.target.as_ref())?;
    if arguments.resume.is_some() && !parts.conversation {
        return Err(CommandFailure::new(FailureKind::Usage, "--resume continues a conversation")
            .with_hint("add --conversation, or --both for files and conversation"));
    }
    let spoken = match (&request.target, parts.conversation) {
        (Some(target), true) => Some(conversation::last_session_step(&workspace, target, session.as_ref())?),
        _ => None,
    };
    let moves_files = parts.files || parts.is_empty();
    // A range has no point at which the conversation could continue.
    let target = request.target.clone().filter(|_| until.is_none());
    let request = MoveRequest { force: arguments.agree.force, ..workspace.request_parts(request, parts)? };
    let mut planned = workspace.plan_move(&request)?;
    let live = session_parts::live_parts(&planned);
    if let Some(prepared) = planned.files.as_ref().filter(|_| planned.is_empty()) {
        let offers_everything = !prepared.everything_changes.is_empty();
        let reported = report_nothing_to_do(context, prepared, None, arguments.agree.dry_run)?;
        if offers_everything && !context.json && !arguments.agree.dry_run {
            // The plan holds the lock that planning again needs.
            drop(planned);
            if output::confirm("Rewind everything instead?") == Some(true) {
                return plan_and_rewind(context, arguments, true);
            }
        }
        return Ok(reported);
    }
    add_rewind_warnings(&workspace, &mut planned)?;
    // Checked before anything is written: a conversation that cannot continue must not leave half a rewind.
    let conversation = spoken
        .map(|spoken| {
            conversation::plan_fork_at(context, &workspace, &spoken, None, arguments.resume.as_deref())
        })
        .transpose()?;
    let Some(planned) = moves::confirm_plan(context, &workspace, planned, &arguments.agree)? else {
        return DONE;
    };
    let Some(mut report) = workspace.apply_move(planned)?.into_files() else { return DONE };
    if !context.json {
        board::print_moved_board(context, report.board.take())?;
    }
    let code = match conversation {
        Some(planned) => {
            // Files go first: the agent compares what it knows with the files when it continues.
            let continued = conversation::apply_fork(context, &workspace, planned)?;
            let code = print_report(context, &workspace, report, MoveKind::Rewind, Some(&continued))?;
            let ran = conversation::resume_conversation(context, &continued, arguments.resume.is_some())?;
            if code == ExitCode::SUCCESS { ran } else { code }
        }
        None => {
            let code = print_report(context, &workspace, report, MoveKind::Rewind, None)?;
            if moves_files {
                print_conversation_hint(context, &workspace, target.as_ref())?;
            }
            code
        }
    };
    session_parts::print_live_hints(context, &live, target.as_ref());
    Ok(code)
}

/// Reads which parts of the state go back.
fn read_parts(
    workspace: &Workspace,
    arguments: &RewindArgs,
    target: Option<&StepRow>,
) -> Result<RewindParts, CommandFailure> {
    let with_board = match target {
        Some(target) if arguments.with_board => has_board(workspace, target)?,
        _ => false,
    };
    Ok(RewindParts {
        files: arguments.files
            || arguments.both
            || arguments.with_board
            || (arguments.git && arguments.everything),
        git: arguments.git,
        conversation: arguments.conversation || arguments.both,
        memory: arguments.memory,
        task: arguments.task,
        reasoning: arguments.reasoning || with_board,
    })
}

/// Reads what is to be rewound from the arguments.
fn read_request(
    context: &Context,
    workspace: &Workspace,
    arguments: &RewindArgs,
    session: Option<&Session>,
) -> Result<RewindRequest, CommandFailure> {
    let target = arguments
        .point
        .as_ref()
        .map(|point| context.resolve_in_session(workspace, point, session))
        .transpose()?;
    let selected = match arguments.between.as_slice() {
        [from, to] => {
            let resolve = |point| context.resolve_in_session(workspace, point, session);
            RewindRequest::between(resolve(from)?, &resolve(to)?)?
        }
        _ => RewindRequest { target, all: arguments.all, ..RewindRequest::default() },
    };
    Ok(RewindRequest {
        paths: arguments.paths.iter().map(|path| context.to_workspace_path(workspace, path)).collect(),
        changes: arguments.changes.clone(),
        last: arguments.last,
        session: session.map(|session| session.id),
        hunks: arguments.hunks.clone(),
        audience: Audience::User,
        ..selected
    })
}

/// Whether a reasoning board is recorded at a step.
fn has_board(workspace: &Workspace, target: &StepRow) -> Result<bool, CommandFailure> {
    let state = WorkspaceState::load(workspace.store(), target.step.state).map_err(EngineError::from)?;
    Ok(state.reasoning.is_some())
}

/// Prints how to rewind the conversation too, if there is one.
fn print_conversation_hint(
    context: &Context,
    workspace: &Workspace,
    target: Option<&StepRow>,
) -> Result<(), CommandFailure> {
    let Some(target) = target else { return Ok(()) };
    let state = WorkspaceState::load(workspace.store(), target.step.state).map_err(EngineError::from)?;
    if state.conversation.is_some() {
        let number = target.step.number;
        output::print_unless_json(
            context.json,
            &format!(
                "Only files were rewound; \"stepback rewind '#{number}' --conversation\" continues the conversation from there."
            ),
        );
    }
    Ok(())
}

/// Reports that the workspace already matches the target, as far as that is possible. `board` is what a merge changes on the
/// reasoning board.
pub fn report_nothing_to_do(
    context: &Context,
    prepared: &PreparedRewind,
    board: Option<&BoardReplacement>,
    dry_run: bool,
) -> CommandResult {
    let conflicts_on_board = board.is_some_and(|board| !board.conflicts.is_empty());
    if context.json {
        let mut document = plan_document(prepared);
        if let Some(board) = board {
            document["board"] = json!(board);
        }
        output::print_document(&document);
    } else {
        print_plan(context, prepared, board, dry_run);
        match &prepared.unchanged_because {
            _ if conflicts_on_board => {
                output::print_line("Nothing to change: what differs is in conflict, as listed.");
            }
            Some(because) => output::print_line(format!("Nothing to change: {because}.")),
            None => output::print_line("Nothing to change."),
        }
        if !prepared.everything_changes.is_empty() {
            let paths = &prepared.everything_changes;
            let count = output::count(paths.len() as u64, "path");
            output::print_line(format!(
                "--everything would change {count}: {}.",
                format_path_list(paths.iter())
            ));
        }
    }
    match (has_conflict(&prepared.plan.left_alone) || conflicts_on_board) && !dry_run {
        true => Ok(ExitCode::from(FailureKind::Partial as u8)),
        false => DONE,
    }
}

/// Prints a plan: as data on stdout if the plan is the result, as narration before it is carried out. `board` is what a merge
/// changes on the reasoning board.
pub fn print_plan(
    context: &Context,
    prepared: &PreparedRewind,
    board: Option<&BoardReplacement>,
    is_data: bool,
) {
    let paint = if is_data { Paint::stdout() } else { Paint::stderr() };
    let tell = |text: String| output::print_data_or_status(is_data, &text);
    let PreparedRewind { plan, warnings, summary, .. } = prepared;
    let title = output::capitalize(summary);
    match plan.is_empty() && !prepared.parts.is_empty() {
        true => tell(title),
        false => tell(format!("{title}: {}", output::count(plan.changes.len() as u64, "path"))),
    }
    session_parts::planned_lines(prepared).into_iter().for_each(&tell);
    // What needs a decision comes first.
    for conflict in prepared.conflicts.iter().take(MAX_PLAN_LINES) {
        let outcome = if conflict.is_marked { "gets conflict markers" } else { "stays as it is here" };
        tell(format!("  {} {} ({}; it {outcome})", paint.bad("conflict"), conflict.path, conflict.reason));
    }
    if prepared.conflicts.len() > MAX_PLAN_LINES {
        let more = prepared.conflicts.len() - MAX_PLAN_LINES;
        tell(format!("  … and {more} more conflicts (--dry-run --json lists all)"));
    }
    for conflict in board.iter().flat_map(|board| &board.conflicts) {
        let sentence = &conflict.sentence;
        tell(format!("  {} on the board: {sentence}; it stays as it is here", paint.bad("conflict")));
    }
    let (inside_git, files): (Vec<_>, Vec<_>) = plan.changes.iter().partition(|change| is_inside_git(change));
    for change in files.iter().take(MAX_PLAN_LINES) {
        let verb = match change.verb() {
            "create" => paint.good("create"),
            "delete" => paint.bad("delete"),
            other => paint.note(other),
        };
        let slash = if change.then.as_ref().or(change.now.as_ref()).is_some_and(|node| node.is_dir()) {
            "/"
        } else {
            ""
        };
        tell(format!("  {verb} {}{slash}", change.path));
    }
    if files.len() > MAX_PLAN_LINES {
        tell(format!("  … and {} more (--dry-run --json lists all)", files.len() - MAX_PLAN_LINES));
    }
    if !inside_git.is_empty() {
        let count = output::count(inside_git.len() as u64, "path");
        tell(format!("  {} {count} inside .git (branches, HEAD, index, objects)", paint.note("restore")));
    }
    let in_conflict = |left: &SkippedPath| prepared.conflicts.iter().any(|found| found.path == left.path);
    let left: Vec<SkippedPath> = plan.left_alone.iter().filter(|left| !in_conflict(left)).cloned().collect();
    print_skipped_paths(&left, is_data);
    print_kept_changes(context, prepared, is_data);
    for change in board.iter().flat_map(|board| &board.diff.changes) {
        tell(format!("  board: {}", change.sentence));
    }
    for warning in warnings {
        tell(format!("{} {warning}.", paint.note("Warning:")));
    }
}

/// Whether a change is a detail inside a git directory; such changes are summarized.
fn is_inside_git(change: &PlannedChange) -> bool {
    change.path.components().any(|name| name == b".git")
}

fn print_skipped_paths(items: &[SkippedPath], is_data: bool) {
    let paint = if is_data { Paint::stdout() } else { Paint::stderr() };
    for item in items.iter().take(MAX_PLAN_LINES) {
        output::print_data_or_status(
            is_data,
            &format!("  {} {} ({})", paint.note("leave"), item.path, item.reason),
        );
    }
    if items.len() > MAX_PLAN_LINES {
        output::print_data_or_status(
            is_data,
            &format!("  … and {} more left alone", items.len() - MAX_PLAN_LINES),
        );
    }
}

/// Prints one line with what is kept and who changed it.
fn print_kept_changes(context: &Context, prepared: &PreparedRewind, is_data: bool) {
    let kept = &prepared.kept;
    if kept.is_empty() {
        return;
    }
    let now = context.now();
    let mut items: Vec<String> = (kept.iter().take(MAX_KEPT_LINES))
        .map(|change| {
            format!("{} ({}, {})", change.path, change.author.name(Audience::User), change.at.ago(now))
        })
        .collect();
    if kept.len() > MAX_KEPT_LINES {
        items.push(format!("and {} more (--dry-run --json lists all)", kept.len() - MAX_KEPT_LINES));
    }
    let paint = if is_data { Paint::stdout() } else { Paint::stderr() };
    output::print_data_or_status(is_data, &format!("  {} {}", paint.note("kept:"), items.join(", ")));
    if !prepared.plan.is_empty() {
        output::print_status(Paint::stderr().dim("  With --everything, these would be reverted too."));
    }
}

/// The JSON document of a plan.
pub fn plan_document(prepared: &PreparedRewind) -> Value {
    let mut document = json!({
        "summary": prepared.summary,
        "applied": false,
        "items": prepared.plan.changes.iter().map(documents::planned_change).collect::<Vec<_>>(),
        "left_alone": prepared.plan.left_alone.iter().map(documents::skipped_path).collect::<Vec<_>>(),
        "kept": prepared.kept.iter().map(documents::kept_change).collect::<Vec<_>>(),
        "everything_changes": prepared.everything_changes,
        "unchanged_because": prepared.unchanged_because,
        "parts": prepared.parts.iter().map(PlannedPartDocument::from_part).collect::<Vec<_>>(),
        "warnings": prepared.warnings,
    });
    if !prepared.conflicts.is_empty() {
        document["conflicts"] = prepared.conflicts.iter().map(documents::merge_conflict).collect();
    }
    document
}

/// Prints what was done and how to undo it.
pub fn print_report(
    context: &Context,
    workspace: &Workspace,
    report: RewindReport,
    kind: MoveKind,
    continued: Option<&ContinuedConversation>,
) -> CommandResult {
    let (conflicts, left) = (report.conflicts(), report.all_left_alone());
    let done = report.outcomes.len() - conflicts.len();
    if context.json {
        let after = workspace.head()?;
        output::print_document(&json!({
            "id": report.operation.id,
            "summary": report.operation.summary,
            "applied": true,
            "before": report.before,
            "after": report.after,
            "head": after.step.id,
            "items": report.outcomes.iter().map(documents::change_outcome).collect::<Vec<_>>(),
            "left_alone": left.iter().map(documents::skipped_path).collect::<Vec<_>>(),
            "kept": report.kept.iter().map(documents::kept_change).collect::<Vec<_>>(),
            "conversation": continued.map(conversation::fork_document),
            "board": report.board,
            "parts": report.parts.iter().map(MovedPartDocument::from_part).collect::<Vec<_>>(),
        }));
    } else {
        let paint = Paint::stdout();
        output::print_line(format!(
            "{} {}, verified; you are at step {}",
            paint.good("Done:"),
            output::count(done as u64, "path"),
            paint.strong(format!("#{}", report.after))
        ));
        session_parts::moved_lines(&report.parts).into_iter().for_each(output::print_line);
        if !conflicts.is_empty() {
            print_skipped_paths(&conflicts, false);
        }
        // The plan said what changes on the board.
        if let Some(board) = report.board.as_ref().filter(|board| !board.diff.changes.is_empty()) {
            output::print_line(format!("  board: {}", board.diff.summary));
        }
        output::print_status(paint.dim(format!(
            "The previous state is step #{}; \"stepback {other}\" restores it.",
            report.before,
            other = kind.reversal_kind().name(),
        )));
    }
    let is_marked = report.outcomes.iter().any(|(change, _)| change.how == How::Marked);
    if left.is_empty() && !is_marked && !has_board_conflict(&report) {
        DONE
    } else {
        Ok(exit_code(&conflicts, &report, is_marked))
    }
}

/// Returns the exit code. Leaving excluded paths alone was announced and is not a failure; leaving alone what another
/// author changed, or marking it for the user to decide, has its own exit code.
fn exit_code(conflicts: &[SkippedPath], report: &RewindReport, is_marked: bool) -> ExitCode {
    let is_left = has_conflict(&report.left_alone) || has_board_conflict(report);
    if conflicts.is_empty() && !is_left && !is_marked {
        return ExitCode::SUCCESS;
    }
    ExitCode::from(FailureKind::Partial as u8)
}

/// Whether a merge or an undo left something on the board as it is, because both sides had changed it.
fn has_board_conflict(report: &RewindReport) -> bool {
    report.board.as_ref().is_some_and(|board| !board.conflicts.is_empty())
}

/// Whether something was left alone because of later changes, and not because it is excluded.
fn has_conflict(items: &[SkippedPath]) -> bool {
    items.iter().any(SkippedPath::is_conflict)
}
