//! `stepback board`: the reasoning board and its parts.

mod experiment;
mod items;
mod recovery;
mod show;
mod verify;
mod versions;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::board::{BoardEdit, BoardEditor, BoardMoment};
use stepback_model::record::Session;
use stepback_reasoning::{BoardMutation, ReasoningBoard};

pub use self::experiment::{find_board_session, print_moved_board, rewind_board};

use super::{CommandResult, DONE};
use crate::args::board::{BoardArgs, BoardCommand, BoardPartCommand, BoardSelector};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback board …`.
pub fn board(context: &Context, arguments: &BoardArgs) -> CommandResult {
    let Some(command) = &arguments.command else { return show::show(context, &arguments.show) };
    match command {
        BoardCommand::Show(arguments) => show::show(context, arguments),
        BoardCommand::Part(command) => run_part_command(context, command),
        BoardCommand::Diff { from, to, board } => versions::diff(context, from, to.as_deref(), board),
        BoardCommand::Restore { point, dry_run, board } => versions::restore(context, point, *dry_run, board),
        BoardCommand::Undo { step, dry_run, board } => {
            versions::undo(context, step.as_deref(), *dry_run, board)
        }
        BoardCommand::Merge { from, base, theirs, dry_run, board } => {
            versions::merge(context, from, base.as_deref(), *theirs, *dry_run, board)
        }
        BoardCommand::Commands { limit, board } => show::commands(context, *limit, board),
        BoardCommand::Metrics { board } => show::metrics(context, board),
    }
}

/// Runs a command about one part of the board.
pub fn run_part_command(context: &Context, command: &BoardPartCommand) -> CommandResult {
    match command {
        BoardPartCommand::Hypothesis(command) => items::hypothesis(context, command),
        BoardPartCommand::Evidence(command) => items::evidence(context, command),
        BoardPartCommand::Belief(command) => items::belief(context, command),
        BoardPartCommand::Contradiction(command) => items::contradiction(context, command),
        BoardPartCommand::Gap(command) => items::gap(context, command),
        BoardPartCommand::Verify(command) => verify::verify(context, command),
        BoardPartCommand::Note(command) => items::note(context, command),
        BoardPartCommand::Experiment(command) => experiment::experiment(context, command),
        BoardPartCommand::Recover(arguments) => recovery::recover(context, arguments),
    }
}

/// Runs `act` with the selected board.
fn with_board(
    context: &Context,
    board: &BoardSelector,
    act: impl FnOnce(&Workspace, &Session) -> CommandResult,
) -> CommandResult {
    let workspace = context.open_or_create_workspace()?;
    stepback_agents::record::record_inbox(&workspace)?;
    let session = stepback_board::choose_session(&workspace, board.session.as_deref(), context.now())?;
    act(&workspace, &session)
}

/// Applies a change to the board and prints its consequences.
fn change_board(
    context: &Context,
    board: &BoardSelector,
    make: impl FnOnce(&Workspace) -> Result<BoardMutation, CommandFailure>,
) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let mutation = make(workspace)?;
        print_edit(context, &BoardEditor::new(workspace, session).apply(&mutation)?);
        DONE
    })
}

/// Prints the consequences of a change.
fn print_edit(context: &Context, edit: &BoardEdit) {
    let undo = format!("stepback board undo {}", edit.step);
    if context.json {
        let mut document = json!(edit);
        document["undo"] = json!(undo);
        output::print_document(&document);
        return;
    }
    edit.effect.messages.iter().for_each(output::print_line);
    if let Some(number) = edit.checkpoint {
        output::print_status(
            Paint::stderr().dim(format!("Checkpoint #{number} was created, because files had changed.")),
        );
    }
    output::print_status(Paint::stderr().dim(format!("\"{undo}\" undoes this.")));
}

/// Shows a part of the current board, or of the board at a point.
fn with_board_at(
    context: &Context,
    board: &BoardSelector,
    at: Option<&str>,
    show: impl FnOnce(&ReasoningBoard) -> CommandResult,
) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let moment = resolve_board_moment(context, workspace, at)?;
        show(&workspace.board_at(session, &moment)?.board)
    })
}

/// Resolves a point to a moment.
fn resolve_board_moment(
    context: &Context,
    workspace: &Workspace,
    at: Option<&str>,
) -> Result<BoardMoment, CommandFailure> {
    match at {
        None => Ok(BoardMoment::Now),
        Some(point) => {
            Ok(stepback_board::resolve_moment(workspace, point, context.now(), &TimeZone::system)?)
        }
    }
}

/// Prints a part of a board: its items as a JSON document, or as lines.
fn print_items(
    context: &Context,
    reasoning_board: &ReasoningBoard,
    part: &str,
    title: &str,
    keep: impl Fn(&Value) -> bool,
) -> CommandResult {
    if context.json {
        let mut items = reasoning_board.document()[part].take();
        if let Some(items) = items.as_array_mut() {
            items.retain(keep);
        }
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let sections = reasoning_board.board(true);
    let section = sections.iter().find(|section| section.title == title);
    match section {
        None => output::print_status(format!("There are no {part} yet.")),
        Some(section) => section.lines.iter().for_each(output::print_line),
    }
    DONE
}

/// Parses the name of an item of some kind.
fn parse_id<T: std::str::FromStr<Err = stepback_reasoning::MindError>>(
    text: &str,
) -> Result<T, CommandFailure> {
    text.trim().parse().map_err(|error| stepback_engine::EngineError::Mind(error).into())
}

/// Parses names of items.
fn parse_ids<T: std::str::FromStr<Err = stepback_reasoning::MindError>>(
    texts: &[String],
) -> Result<Vec<T>, CommandFailure> {
    texts.iter().map(|text| parse_id(text)).collect()
}

/// Parses one of a fixed set of words.
fn parse_choice<T: Copy>(
    what: &str,
    given: &str,
    all: &[T],
    text: impl Fn(T) -> &'static str,
) -> Result<T, CommandFailure> {
    all.iter().copied().find(|word| text(*word) == given).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|word| text(*word)).collect();
        CommandFailure::new(FailureKind::Usage, format!("\"{given}\" is not a valid {what}"))
            .with_hint(format!("use one of {}", known.join(", ")))
    })
}
