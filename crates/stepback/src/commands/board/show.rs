//! Commands that only read a board: `stepback board show`, `commands` and `metrics`.

use std::time::Duration;

use serde_json::json;
use stepback_board::SessionMetrics;
use stepback_engine::Workspace;
use stepback_engine::board::BoardMoment;
use stepback_model::quantity;
use stepback_model::record::Session;

use super::{resolve_board_moment, with_board};
use crate::args::board::{BoardSelector, BoardShowArgs};
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::output::{self, Paint};

/// Runs `stepback board show`.
pub fn show(context: &Context, arguments: &BoardShowArgs) -> CommandResult {
    with_board(context, &arguments.board, |workspace, session| {
        print_board(context, workspace, session, arguments)
    })
}

fn print_board(
    context: &Context,
    workspace: &Workspace,
    session: &Session,
    arguments: &BoardShowArgs,
) -> CommandResult {
    let moment = resolve_board_moment(context, workspace, arguments.point.as_deref())?;
    let seen = workspace.board_at(session, &moment)?;
    let step = seen.step.as_ref().map(|stored| &stored.step);
    if context.json {
        let mut document = seen.board.document();
        document["session"] = json!(session.id);
        document["step"] = json!(step.map(|step| step.number));
        document["at"] = json!(step.map(|step| step.at));
        let until = (moment != BoardMoment::Now).then(|| step.map_or(0, |step| step.number));
        document["metrics"] = json!(stepback_board::measure_session(workspace, session, &seen.board, until)?);
        document["next"] = json!(seen.board.next_actions());
        output::print_document(&document);
        return DONE;
    }
    let paint = Paint::stdout();
    let whose = match session.agent == Session::PERSON {
        true => "your own board".to_owned(),
        false => format!("the board of {} {}", session.agent, session.id.short()),
    };
    match step {
        Some(step) => output::print_line(paint.dim(format!(
            "As of #{}, {}: {whose}",
            step.number,
            step.at.ago(context.now())
        ))),
        None => {
            output::print_line(format!("There is nothing on {whose} yet."));
            output::print_status(
                paint.dim("Start with \"stepback board hypothesis propose\" or \"stepback board gap add\"."),
            );
        }
    }
    for section in seen.board.board(arguments.all) {
        output::print_line("");
        output::print_line(paint.strong(section.title));
        section.lines.iter().for_each(|line| output::print_line(format!("  {line}")));
    }
    DONE
}

/// Runs `stepback board commands`.
pub fn commands(context: &Context, limit: usize, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let commands = stepback_board::list_commands(workspace, session, None, limit)?;
        if context.json {
            output::print_document(&json!({ "items": commands }));
            return DONE;
        }
        for ran in &commands {
            let exit = ran.exit.map_or(String::new(), |code| format!("  exit {code}"));
            let failed = if ran.failed && ran.exit.is_none() { "  failed" } else { "" };
            let command = ran.command.lines().next().unwrap_or_default();
            output::print_line(format!(
                "#{}  {}{exit}{failed}  {command}",
                ran.step,
                ran.at.ago(context.now())
            ));
        }
        DONE
    })
}

/// Runs `stepback board metrics`.
pub fn metrics(context: &Context, board: &BoardSelector) -> CommandResult {
    with_board(context, board, |workspace, session| {
        let board = workspace.board_at(session, &BoardMoment::Now)?.board;
        let metrics = stepback_board::measure_session(workspace, session, &board, None)?;
        if context.json {
            output::print_document(&json!(metrics));
            return DONE;
        }
        let SessionMetrics { board: m, activity } = &metrics;
        output::print_line(format!(
            "{}, {} concluded",
            if m.hypotheses == 1 {
                "1 hypothesis".to_owned()
            } else {
                format!("{} hypotheses", m.hypotheses)
            },
            m.concluded
        ));
        output::print_line(format!("{} of evidence", output::count(m.evidence as u64, "piece")));
        output::print_line(format!(
            "{}, {} open",
            output::count(m.beliefs as u64, "belief"),
            output::count(m.contradictions as u64, "contradiction")
        ));
        output::print_line(format!("{}, {} filled", output::count(m.gaps as u64, "gap"), m.gaps_filled));
        output::print_line(format!(
            "{} run, {} passed",
            output::count(m.verifications_run as u64, "check"),
            m.verifications_passed
        ));
        output::print_line(format!(
            "{} ended, {}",
            output::count(m.experiments_ended as u64, "experiment"),
            output::count(m.notes as u64, "note")
        ));
        let per_hour = activity.checkpoints_per_hour;
        let per_hour = per_hour.map_or(String::new(), |number| format!(", {number} per hour"));
        let spent = quantity::duration(Duration::from_secs(activity.seconds_spent));
        let checkpoints = output::count(activity.checkpoints, "checkpoint");
        output::print_line(format!("{checkpoints} in {spent} of work{per_hour}"));
        DONE
    })
}
