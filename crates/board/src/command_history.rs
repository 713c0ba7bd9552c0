//! Lists the shell commands that agents called, newest first: those that ran, those that are running, and those that were
//! refused.
//!
//! A command ends with the step of its call's end. A call without one was refused, was interrupted, or is still running; what
//! tells these apart is a decision that was recorded, the session's list of open calls, and the agent's conversation.
//! Whether a call ran a command is in the details of its steps, so every call is read. A page therefore ends after a number of
//! calls that were read too, and says where to continue.

use std::collections::HashSet;

use stepback_engine::{EngineError, Workspace};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Session, Step, StepKind};
use stepback_store::port::{StepQuery, StepRow};

use crate::commands::{CommandReader, CommandRun, CommandStatus};

/// How many steps are read from the store at once.
const STEPS_AT_ONCE: u64 = 64;

/// Which commands to list.
#[derive(Clone, Debug, Default)]
pub struct CommandFilter {
    /// Only those of this session.
    pub session: Option<SessionId>,
    /// Only those that ran and failed.
    pub failed: bool,
    /// As it was at the step with this number; `None` for now.
    pub until: Option<u64>,
    /// Only those whose step has a smaller number than this: where an earlier page ended.
    pub before: Option<u64>,
    /// Most commands of a page.
    pub most: usize,
    /// Most starts and ends of calls that are read for a page; `None` for all.
    pub max_steps: Option<u64>,
}

/// A page of commands, newest first.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct CommandPage {
    /// The commands.
    pub commands: Vec<CommandRun>,
    /// The value of `before` for the next page; `None` if this is the last one.
    pub next: Option<u64>,
}

/// Returns a page of the commands that the agents in a workspace called.
pub fn command_history(workspace: &Workspace, filter: &CommandFilter) -> Result<CommandPage, EngineError> {
    let mut reader = CommandReader::new(workspace);
    let mut page = CommandPage::default();
    let after_until = filter.until.map(|number| number.saturating_add(1));
    let mut before = filter.before.into_iter().chain(after_until).min();
    let mut ended = HashSet::new();
    let mut left = filter.max_steps.unwrap_or(u64::MAX);
    loop {
        let query = StepQuery {
            session: filter.session,
            kinds: vec![StepKind::ToolStart, StepKind::ToolEnd],
            before,
            limit: Some(STEPS_AT_ONCE),
            ..StepQuery::default()
        };
        let steps = workspace.store().steps(workspace.record.id, &query)?;
        if steps.is_empty() {
            return Ok(page);
        }
        for stored in &steps {
            if page.commands.len() >= filter.most || left == 0 {
                page.next = before;
                return Ok(page);
            }
            left -= 1;
            before = Some(stored.step.number);
            let run = match stored.step.kind {
                StepKind::ToolEnd => {
                    let (start, run) = reader.read_end(stored)?;
                    ended.extend(start);
                    run
                }
                _ => read_without_end(workspace, &mut reader, stored, &ended, filter.until)?,
            };
            page.commands.extend(run.filter(|run| !filter.failed || run.is_failure()));
        }
    }
}

/// Returns at most `most` commands that a session ran, newest first, up to step `until`. Refused commands did not run and
/// are left out.
pub fn list_commands(
    workspace: &Workspace,
    session: &Session,
    until: Option<u64>,
    most: usize,
) -> Result<Vec<CommandRun>, EngineError> {
    let mut found = Vec::new();
    let mut before = None;
    while found.len() < most {
        let most = most - found.len();
        let filter =
            CommandFilter { session: Some(session.id), until, before, most, ..CommandFilter::default() };
        let page = command_history(workspace, &filter)?;
        found.extend(page.commands.into_iter().filter(|run| run.status == CommandStatus::Ran));
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    Ok(found)
}

/// Returns the command that begins with this step, if its end is not among the steps up to `until`.
fn read_without_end(
    workspace: &Workspace,
    reader: &mut CommandReader<'_>,
    stored: &StepRow,
    ended: &HashSet<StepId>,
    until: Option<u64>,
) -> Result<Option<CommandRun>, EngineError> {
    let step = &stored.step;
    if ended.contains(&step.id) {
        return Ok(None);
    }
    let Some(run) = reader.read_start(stored)? else { return Ok(None) };
    let Some(call) = &step.meta.call else { return Ok(Some(run)) };
    match find_end(workspace, step, call)? {
        // Its end was listed, or the start was recorded after it.
        Some(end) if until.is_none_or(|until| end.step.number <= until) => return Ok(None),
        Some(_) => return Ok(Some(CommandRun { status: CommandStatus::Running, ..run })),
        None => {}
    }
    if let Some(reason) = find_refusal(workspace, step, call, until)? {
        return Ok(Some(CommandRun { status: CommandStatus::NotRun, output: reason, ..run }));
    }
    let session = reader.session(step.session)?;
    let is_open = session.is_some_and(|session| {
        session.info.ended_at.is_none()
            && session.info.open.iter().any(|open| open.step == step.id && !open.ended)
    });
    if is_open {
        return Ok(Some(CommandRun { status: CommandStatus::Running, ..run }));
    }
    let told = reader.told_ending(step.session, call)?;
    Ok(Some(match told.filter(|ending| ending.is_refusal()) {
        Some(ending) => CommandRun { status: CommandStatus::NotRun, ..run }.with_output(ending),
        None => run,
    }))
}

/// Returns the end of a call: the next one with its id, or one that was recorded without a start.
fn find_end(workspace: &Workspace, start: &Step, call: &str) -> Result<Option<StepRow>, EngineError> {
    let query = StepQuery {
        session: Some(start.session),
        call: Some(call.to_owned()),
        kinds: vec![StepKind::ToolStart, StepKind::ToolEnd],
        limit: Some(1),
        ..StepQuery::default()
    };
    let next = StepQuery { after: Some(start.number), oldest_first: true, ..query.clone() };
    let next = workspace.store().steps(workspace.record.id, &next)?.pop();
    if let Some(next) = next.filter(|next| next.step.kind == StepKind::ToolEnd) {
        return Ok(Some(next));
    }
    let last = StepQuery { before: Some(start.number), ..query };
    let Some(last) = workspace.store().steps(workspace.record.id, &last)?.pop() else { return Ok(None) };
    if last.step.kind != StepKind::ToolEnd {
        return Ok(None);
    }
    let detail = workspace.load_detail(&last.step)?.unwrap_or_default();
    Ok(detail.get("start").is_none().then_some(last))
}

/// Returns why a call was refused, if a decision about it was recorded.
fn find_refusal(
    workspace: &Workspace,
    start: &Step,
    call: &str,
    until: Option<u64>,
) -> Result<Option<String>, EngineError> {
    let query = StepQuery {
        session: Some(start.session),
        call: Some(call.to_owned()),
        kinds: vec![StepKind::Decision],
        after: Some(start.number),
        before: until.map(|number| number.saturating_add(1)),
        ..StepQuery::default()
    };
    for stored in workspace.store().steps(workspace.record.id, &query)? {
        let detail = workspace.load_detail(&stored.step)?.unwrap_or_default();
        if detail.pointer("/raw/hook_event_name").is_some_and(|name| name == "PermissionDenied") {
            let reason = detail.pointer("/raw/reason").and_then(|reason| reason.as_str());
            return Ok(Some(reason.unwrap_or(&stored.step.summary).to_owned()));
        }
    }
    Ok(None)
}
