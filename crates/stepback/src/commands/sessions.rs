//! The commands `stepback sessions` and `stepback watch`.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use stepback_api::sessions::SessionDocument;
use stepback_engine::session::{is_prepared, last_event_time};
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::ids::SessionId;
use stepback_model::path::display_bytes;
use stepback_model::record::{Session, StepKind};
use stepback_model::time::Timestamp;
use stepback_model::time_expr;
use stepback_store::port::{StepQuery, StepRow};

use super::{CommandResult, DONE, documents, titles};
use crate::args::live::SessionsArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// How often `watch` polls for new steps.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns a session's name for the user: the agent and the beginning of the id.
pub fn display_name(session: &Session) -> String {
    format!("{} {}", session.agent, session.id.short())
}

/// Returns the named session, or the one that was active last. A fork that was never started was never active.
pub fn pick(workspace: &Workspace, session: Option<&str>) -> Result<Session, CommandFailure> {
    match session {
        Some(text) => Ok(workspace.find_session(text)?),
        None => {
            workspace.agent_sessions()?.into_iter().find(|session| !is_prepared(session)).ok_or_else(|| {
                CommandFailure::new(FailureKind::Nothing, "no agent has been recorded in this workspace yet").with_hint(
                    "\"stepback init\" sets up the agents in use; \"stepback run -- AGENT\" records one run",
                )
            })
        }
    }
}

/// Returns the named session, or the running one that was active last. Fails if nothing can be delivered to it.
pub fn pick_running(
    context: &Context,
    workspace: &Workspace,
    session: Option<&str>,
) -> Result<Session, CommandFailure> {
    let session = match (session, workspace.running_sessions()?.into_iter().next()) {
        (Some(text), _) => workspace.find_session(text)?,
        (None, Some(running)) => return Ok(running),
        (None, None) => pick(workspace, None)?,
    };
    workspace.check_running(&session, context.now())?;
    Ok(session)
}

/// Returns the session that `text` names, in any workspace of the store: by the beginning of its id, by the agent's own
/// record of it, or by the directory it ran in. Without a text, returns the one that was active last here.
pub fn find(context: &Context, text: Option<&str>) -> Result<(Workspace, Session), CommandFailure> {
    let Some(text) = text else {
        let here = context.open_workspace()?;
        let session = pick(&here, None)?;
        return Ok((here, session));
    };
    let unknown = match find_by_id(context, text) {
        Ok(found) => return Ok(found),
        Err(failure) => failure,
    };
    let Ok(path) = context.directory.join(text).canonicalize() else { return Err(unknown) };
    if path.is_dir() {
        let workspace = context.engine().open_known_workspace(&context.find_root(&path)?)?;
        stepback_agents::record::record_inbox(&workspace)?;
        let session = pick(&workspace, None)?;
        return Ok((workspace, session));
    }
    let is_it = |session: &Session| {
        let transcript = session.info.transcript.as_ref().map(Path::new);
        transcript.is_some_and(|known| {
            known.file_name() == path.file_name() && known.canonicalize().is_ok_and(|known| known == path)
        })
    };
    // Some agents keep many sessions in one file; the one that was active last is meant.
    let found = context.engine().all_sessions()?.into_iter().filter(is_it).max_by_key(last_event_time);
    let session = found.ok_or_else(|| {
        CommandFailure::new(FailureKind::Nothing, format!("no session was recorded from {}", path.display()))
            .with_hint("\"stepback import FILE\" imports a conversation that an agent recorded itself")
    })?;
    open_workspace_of(context.engine(), session)
}

/// Returns the session whose id, ours or the agent's, begins with `text`: one of this workspace, else one of the store.
pub fn find_by_id(context: &Context, text: &str) -> Result<(Workspace, Session), CommandFailure> {
    if let Ok(here) = context.open_workspace()
        && let Ok(session) = here.find_session(text)
    {
        return Ok((here, session));
    }
    let session = context.engine().find_session_in_store(text).map_err(|error| {
        CommandFailure::from(error).with_hint("\"stepback sessions\" lists the sessions of this workspace")
    })?;
    open_workspace_of(context.engine(), session)
}

/// Opens the workspace of a session and records its pending events.
fn open_workspace_of(engine: &Engine, session: Session) -> Result<(Workspace, Session), CommandFailure> {
    let workspace = engine.open_session_workspace(&session)?;
    stepback_agents::record::record_inbox(&workspace)?;
    let now = workspace.store().session(session.id).map_err(EngineError::from)?;
    Ok((workspace, now.unwrap_or(session)))
}

/// Reads the time of `--since`.
pub fn parse_since(context: &Context, text: Option<&str>) -> Result<Option<Timestamp>, CommandFailure> {
    let parse = |text| {
        time_expr::parse(text, context.now(), &jiff::tz::TimeZone::system())
            .map_err(|error| CommandFailure::new(FailureKind::Usage, format!("--since {text}: {error}")))
    };
    text.map(parse).transpose()
}

/// Runs `stepback sessions`.
pub fn list(context: &Context, arguments: &SessionsArgs) -> CommandResult {
    let engine = context.engine();
    let since = parse_since(context, arguments.since.as_deref())?;
    let workspaces = match arguments.all_workspaces {
        true => {
            // Pending events of other workspaces are not recorded: opening a workspace finishes interrupted work in it,
            // which the user did not ask for.
            let _ = context.open_workspace();
            let mut all = engine.all_workspaces()?;
            all.retain(|workspace| !workspace.record.is_rerun());
            all
        }
        false => vec![context.open_workspace()?],
    };
    let mut listed = Vec::new();
    for workspace in &workspaces {
        let stops = workspace.control()?.list_stops()?;
        for session in workspace.agent_sessions()? {
            let wanted = arguments.agent.as_ref().is_none_or(|agent| session.agent == *agent)
                && since.is_none_or(|since| last_event_time(&session) >= since);
            if !wanted {
                continue;
            }
            let is_stopped = stops.iter().any(|stop| stop.session == session.id);
            let status = stepback_engine::session::session_status(&session, is_stopped, context.now());
            listed.push((workspace, session, status));
        }
    }
    listed.sort_by_key(|(_, session, _)| (std::cmp::Reverse(last_event_time(session)), session.id));
    if context.json {
        let items: Vec<Value> = listed
            .iter()
            .map(|(workspace, session, status)| {
                let (steps, errors) = count_steps(workspace, session.id)?;
                let mut value = json!(SessionDocument::from_session(session, status));
                value["root"] = json!(display_bytes(&workspace.record.root));
                value["directory"] = json!(session.info.directory);
                value["transcript"] = json!(session.info.transcript);
                value["steps"] = json!(steps);
                value["errors"] = json!(errors);
                value["forked_from"] = json!(session.info.forked_from);
                Ok(value)
            })
            .collect::<Result<_, CommandFailure>>()?;
        output::print_document(&json!({ "items": items }));
        return DONE;
    }
    let paint = Paint::stdout();
    let now = context.now();
    for (workspace, session, status) in &listed {
        let (steps, errors) = count_steps(workspace, session.id)?;
        let errors = if errors > 0 {
            paint.bad(format!("  {}", output::count(errors, "error")))
        } else {
            String::new()
        };
        let place = match arguments.all_workspaces {
            true => paint.dim(format!(
                "  {} {}",
                workspace.record.id.short(),
                display_bytes(&workspace.record.root)
            )),
            false => String::new(),
        };
        output::print_line(format!(
            "{}  {:<8}  {:>12}  {:<7}  {:>10}{errors}  {}{place}",
            paint.name(session.id.short()),
            session.agent,
            paint.dim(last_event_time(session).ago(now)),
            status,
            output::count(steps, "step"),
            session.info.title.as_deref().unwrap_or_default()
        ));
    }
    if listed.is_empty() {
        output::print_line("No sessions.");
        output::print_status(paint.dim("\"stepback init\" sets up the agents in use."));
    }
    DONE
}

fn count_steps(workspace: &Workspace, session: SessionId) -> Result<(u64, u64), CommandFailure> {
    let steps = workspace
        .store()
        .steps(workspace.record.id, &StepQuery { session: Some(session), ..StepQuery::default() })
        .map_err(EngineError::from)?;
    let failed = steps.iter().filter(|stored| stored.step.meta.failed).count();
    Ok((steps.len() as u64, failed as u64))
}

/// Parses the names of step kinds.
pub fn parse_kinds(names: &[String]) -> Result<Vec<StepKind>, CommandFailure> {
    names
        .iter()
        .map(|name| {
            StepKind::parse(name.trim()).ok_or_else(|| {
                let known: Vec<&str> = StepKind::ALL.iter().map(|kind| kind.as_str()).collect();
                CommandFailure::new(FailureKind::Usage, format!("\"{name}\" is not a kind of step"))
                    .with_hint(format!("known kinds are {}", known.join(", ")))
            })
        })
        .collect()
}

/// Runs `stepback watch`.
pub fn watch(
    context: &Context,
    session: Option<&str>,
    filter: &[String],
    limit: Option<usize>,
) -> CommandResult {
    let kinds = parse_kinds(filter)?;
    let workspace = context.open_or_create_workspace()?;
    let session = session.map(|text| workspace.find_session(text)).transpose()?;
    let newest = |query: StepQuery| -> Result<Vec<StepRow>, CommandFailure> {
        Ok(workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?)
    };
    let mut last = newest(StepQuery { limit: Some(1), ..StepQuery::default() })?
        .first()
        .map_or(0, |stored| stored.step.number);
    output::print_unless_json(context.json, "Watching; Press Ctrl-C to stop.");
    let mut shown = 0;
    let mut announced: Vec<String> = Vec::new();
    loop {
        stepback_agents::record::record_inbox(&workspace)?;
        let query = StepQuery {
            session: session.as_ref().map(|session| session.id),
            kinds: kinds.clone(),
            after: Some(last),
            oldest_first: true,
            ..StepQuery::default()
        };
        for stored in newest(query)? {
            last = last.max(stored.step.number);
            print_step(context, &workspace, &stored)?;
            shown += 1;
            if limit.is_some_and(|limit| shown >= limit) {
                return DONE;
            }
        }
        for stop in workspace.control()?.list_stops()? {
            if !announced.contains(&stop.id) {
                output::print_unless_json(
                    context.json,
                    &format!("{} is stopped ({}); \"stepback inspect\" shows where", stop.agent, stop.reason),
                );
                announced.push(stop.id);
            }
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

fn print_step(context: &Context, workspace: &Workspace, stored: &StepRow) -> Result<(), CommandFailure> {
    let step = &stored.step;
    let session = workspace.store().session(step.session).map_err(EngineError::from)?;
    let agent = session.map(|session| session.agent).unwrap_or_default();
    if context.json {
        let mut value = documents::step(stored);
        value["agent"] = json!(agent);
        output::print_line(value);
        return Ok(());
    }
    let paint = Paint::stdout();
    let failed = if step.meta.failed { paint.bad("  failed") } else { String::new() };
    output::print_line(format!(
        "{:>6}  {:<8}  {:<14}  {}{failed}",
        paint.strong(format!("#{}", step.number)),
        agent,
        step.kind.as_str(),
        titles::step_title(stored)
    ));
    Ok(())
}
