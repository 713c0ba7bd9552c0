//! Commands about what an agent thinks: `stepback hypothesis`, `evidence`, `belief`, `contradiction`, `gap`, `verify`,
//! `note`, `experiment`, `mind` and `recover`.

mod board;
mod change;
mod check;
mod trial;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use stepback_engine::Workspace;
use stepback_engine::reason::{BoardEdit, BoardMoment, Thinker};
use stepback_model::record::Session;
use stepback_reasoning::{BoardMutation, ReasoningBoard};

pub use self::board::{mind, recover};
pub use self::change::{belief, contradiction, evidence, gap, hypothesis, note};
pub use self::check::verify;
pub use self::trial::{experiment, go_back, session_at, tell_moved};

use super::{CommandResult, DONE};
use crate::args::mind::BoardArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `act` with the selected board.
fn with_board(
    context: &Context,
    board: &BoardArgs,
    act: impl FnOnce(&Workspace<'_>, &Session) -> CommandResult,
) -> CommandResult {
    let engine = context.engine();
    let workspace = context.workspace_or_new(&engine)?;
    stepback_agents::record::take_in_quietly(&workspace)?;
    let session = workspace.thinking_session(board.session.as_deref(), context.now())?;
    act(&workspace, &session)
}

/// Applies a change to the board and prints its consequences.
fn think(
    context: &Context,
    board: &BoardArgs,
    make: impl FnOnce(&Workspace<'_>) -> Result<BoardMutation, CommandFailure>,
) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let mutation = make(workspace)?;
        tell(context, &Thinker::new(workspace, session).think(&mutation)?);
        DONE
    })
}

/// Prints the consequences of a change.
fn tell(context: &Context, thought: &BoardEdit) {
    let undo = format!("stepback mind undo {}", thought.step);
    if context.json {
        let mut document = json!(thought);
        document["undo"] = json!(undo);
        output::document(&document);
        return;
    }
    thought.effect.said.iter().for_each(output::line);
    if let Some(number) = thought.checkpoint {
        output::say(
            Paint::stderr().dim(format!("Checkpoint #{number} was made, because files had changed.")),
        );
    }
    output::say(Paint::stderr().dim(format!("\"{undo}\" takes that back.")));
}

/// Shows a part of the current board, or of the board at a point.
fn look(
    context: &Context,
    board: &BoardArgs,
    at: Option<&str>,
    show: impl FnOnce(&ReasoningBoard) -> CommandResult,
) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let moment = moment(context, workspace, at)?;
        show(&workspace.mind_at(session, &moment)?.mind)
    })
}

/// Resolves a point to a moment.
fn moment(
    context: &Context,
    workspace: &Workspace<'_>,
    at: Option<&str>,
) -> Result<BoardMoment, CommandFailure> {
    match at {
        None => Ok(BoardMoment::Now),
        Some(point) => Ok(workspace.moment(point, context.now(), &TimeZone::system)?),
    }
}

/// Prints a part of a board: its items as a JSON document, or as lines.
fn list(
    context: &Context,
    mind: &ReasoningBoard,
    part: &str,
    title: &str,
    keep: impl Fn(&Value) -> bool,
) -> CommandResult {
    if context.json {
        let mut items = mind.document()[part].take();
        if let Some(items) = items.as_array_mut() {
            items.retain(keep);
        }
        output::document(&json!({ "items": items }));
        return DONE;
    }
    let sections = mind.board(true);
    let section = sections.iter().find(|section| section.title == title);
    match section {
        None => output::say(format!("There are no {part} yet.")),
        Some(section) => section.lines.iter().for_each(output::line),
    }
    DONE
}

/// Parses the name of an item of some kind.
fn name<T: std::str::FromStr<Err = stepback_reasoning::MindError>>(text: &str) -> Result<T, CommandFailure> {
    text.trim().parse().map_err(|error| stepback_engine::EngineError::Mind(error).into())
}

/// Parses names of items.
fn names<T: std::str::FromStr<Err = stepback_reasoning::MindError>>(
    texts: &[String],
) -> Result<Vec<T>, CommandFailure> {
    texts.iter().map(|text| name(text)).collect()
}

/// Parses one of a fixed set of words.
fn word<T: Copy>(
    what: &str,
    given: &str,
    all: &[T],
    text: impl Fn(T) -> &'static str,
) -> Result<T, CommandFailure> {
    all.iter().copied().find(|word| text(*word) == given).ok_or_else(|| {
        let known: Vec<&str> = all.iter().map(|word| text(*word)).collect();
        CommandFailure::new(FailureKind::Usage, format!("\"{given}\" is no {what}"))
            .hint(format!("use one of {}", known.join(", ")))
    })
}
