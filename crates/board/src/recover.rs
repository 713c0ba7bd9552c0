//! The recovery page: tells an agent where it stopped, from its board and from the record of its session.

use serde::Serialize;
use stepback_engine::board::BoardMoment;
use stepback_engine::{EngineError, Workspace, diff};
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_reasoning::ItemId;
use stepback_reasoning::recovery::RecoveryContext;
use stepback_store::port::{StepQuery, StepRow};

use crate::command_history::list_commands;
use crate::commands::CommandRun;

/// The maximum number of commands and of files on a page.
const MAX_PAGE_ITEMS: usize = 8;
/// How many checkpoints are searched for changed files.
const MAX_SEARCHED_CHECKPOINTS: usize = 12;

/// A recovery page.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RecoveryPage {
    /// The page, in Markdown.
    pub page: String,
    /// The maximum size of the page, in tokens.
    pub budget: usize,
    /// The newest item of each kind on the board.
    pub newest: Vec<ItemId>,
    /// The number of the step that recorded the board; `None` if nothing is on it.
    pub step: Option<u64>,
}

/// Returns the recovery page for a session at a moment, with at most `budget` tokens.
pub fn build_recovery_page(
    workspace: &Workspace,
    session: &Session,
    moment: &BoardMoment,
    budget: usize,
    now: Timestamp,
) -> Result<RecoveryPage, EngineError> {
    let board_at_moment = workspace.board_at(session, moment)?;
    let until = match moment {
        BoardMoment::Now => None,
        _ => board_at_moment.step.as_ref().map(|stored| stored.step.number),
    };
    let query = StepQuery {
        session: Some(session.id),
        before: until.map(|number| number.saturating_add(1)),
        limit: Some(1),
        ..StepQuery::default()
    };
    let last = workspace.store().steps(workspace.record.id, &query)?.pop();
    let prompts = StepQuery { kinds: vec![StepKind::UserInput], ..query };
    let prompt = workspace.store().steps(workspace.record.id, &prompts)?.pop();
    let commands = list_commands(workspace, session, until, MAX_PAGE_ITEMS)?;
    let context = RecoveryContext {
        heading: format_heading(session, last.as_ref(), board_at_moment.step.as_ref(), now),
        prompt: prompt.map(|stored| stored.step.summary),
        commands: commands.iter().map(format_command).collect(),
        changed: recently_changed_paths(workspace, until)?,
        closing: vec![
            "`stepback board` shows the whole board, `stepback log` every step.".to_owned(),
            "Continue from here; do not investigate settled questions again.".to_owned(),
        ],
    };
    let page = board_at_moment.board.recovery(&context, budget);
    let step = board_at_moment.step.map(|stored| stored.step.number);
    Ok(RecoveryPage { page, budget, newest: board_at_moment.board.newest(), step })
}

/// Returns the paths that changed at the last checkpoints before the head, newest first, each once.
fn recently_changed_paths(workspace: &Workspace, until: Option<u64>) -> Result<Vec<String>, EngineError> {
    let Ok(head) = workspace.head() else { return Ok(Vec::new()) };
    let mut line = workspace.ancestry(&head)?;
    line.retain(|stored| until.is_none_or(|until| stored.step.number <= until) && !stored.purged);
    let mut paths: Vec<String> = Vec::new();
    for pair in line.windows(2).take(MAX_SEARCHED_CHECKPOINTS) {
        let (Ok(after), Ok(before)) = (workspace.load_state(&pair[0]), workspace.load_state(&pair[1])) else {
            break;
        };
        for change in diff::compare_visible_files(workspace.store(), &before, &after)? {
            let path = change.path.to_string();
            let number = pair[0].step.number;
            let kind = change.kind().as_str();
            if !paths.iter().any(|listed| listed.starts_with(&format!("{path} "))) {
                paths.push(format!("{path} {kind} at #{number}"));
            }
        }
        if paths.len() > MAX_PAGE_ITEMS {
            paths.truncate(MAX_PAGE_ITEMS);
            break;
        }
    }
    Ok(paths)
}

fn format_heading(
    session: &Session,
    last: Option<&StepRow>,
    change: Option<&StepRow>,
    now: Timestamp,
) -> Vec<String> {
    let mut lines = vec![format!("# Where you left off ({} {})", session.agent, session.id.short())];
    // The last prompt may be only "go on".
    lines.extend(session.info.title.as_ref().map(|title| format!("The session began with: {title}")));
    if let Some(step) = last.map(|stored| &stored.step) {
        lines.push(format!(
            "Last step #{}, iteration {}, {}: {}",
            step.number,
            step.meta.iteration,
            step.at.ago(now),
            step.summary
        ));
    }
    match change.map(|stored| &stored.step) {
        Some(step) => {
            lines.push(format!("Last board change #{}, {}: {}", step.number, step.at.ago(now), step.summary))
        }
        None => lines.push("The board is empty.".to_owned()),
    }
    lines
}

fn format_command(ran: &CommandRun) -> String {
    let exit = match (ran.exit, ran.failed) {
        (Some(code), _) => format!(" → exit {code}"),
        (None, true) => " → failed".to_owned(),
        (None, false) => String::new(),
    };
    let mut command = ran.command.lines().next().unwrap_or_default().to_owned();
    command.truncate(command.floor_char_boundary(120));
    format!("#{} {command}{exit}", ran.step)
}
