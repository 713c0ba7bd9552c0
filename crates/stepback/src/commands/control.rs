//! The commands `stepback breakpoint`, `pause`, `resume`, `step`, `inspect`, `inject`, `deny` and `edit-input`.

use std::time::Duration;

use serde_json::{Value, json};
use stepback_agents::Agent;
use stepback_agents::answer::HookAnswer;
use stepback_agents::session_states;
use stepback_agents::transcript::{MessagePart, MessageRole};
use stepback_api::state::SessionStateDocument;
use stepback_engine::control::{
    Breakpoint as Stored, BudgetScope, Condition, Control, Stop, StopAnswer as Said,
};
use stepback_engine::session::{last_event_time, not_running_reason, session_status};
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::escape::safe;
use stepback_model::quantity;
use stepback_model::record::Session;
use stepback_model::state::WorkspaceState;
use stepback_store::port::StepQuery;

use super::{CommandResult, DONE, session_parts, sessions};
use crate::args::live::{AddBreakpointArgs, BreakpointCommand};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback breakpoint …`.
pub fn breakpoint(context: &Context, command: &BreakpointCommand) -> CommandResult {
    let workspace = context.open_or_create_workspace()?;
    let control = workspace.control()?;
    match command {
        BreakpointCommand::Add(add) => {
            let on = parse_condition(add)?;
            let probe = Stored {
                condition: add.condition.clone(),
                hit_condition: add.hits,
                log: add.log || add.log_message.is_some(),
                message: add.log_message.clone(),
                ..Stored::new(on)
            };
            probe.check().map_err(|what| {
                CommandFailure::new(FailureKind::Usage, format!("the breakpoint cannot be used: {what}"))
                    .with_hint("\"stepback breakpoint add --help\" has examples")
            })?;
            let id = control.change_breakpoints(|all| all.add(probe.clone()))?;
            print_result(
                context,
                json!({ "id": id }),
                &format!("Breakpoint {id} added: {}.", probe.describe()),
            );
            output::print_unless_json(
                context.json,
                &format!("\"stepback breakpoint remove {id}\" removes it."),
            );
            DONE
        }
        BreakpointCommand::List => list(context, &control),
        BreakpointCommand::Remove { id } => {
            let gone = control.change_breakpoints(|all| {
                let before = all.items.len();
                all.items.retain(|item| item.id != *id);
                before != all.items.len()
            })?;
            require_breakpoint(gone, *id)?;
            print_result(context, json!({ "id": id, "removed": true }), &format!("Breakpoint {id} removed."));
            DONE
        }
        BreakpointCommand::Enable { id } => set_enabled(context, &control, *id, true),
        BreakpointCommand::Disable { id } => set_enabled(context, &control, *id, false),
        BreakpointCommand::Clear => {
            let count = control.change_breakpoints(|all| std::mem::take(&mut all.items).len())?;
            print_result(
                context,
                json!({ "removed": count }),
                &format!("{} removed.", output::count(count as u64, "breakpoint")),
            );
            DONE
        }
    }
}

fn parse_condition(add: &AddBreakpointArgs) -> Result<Condition, CommandFailure> {
    let usage = |what: &str| CommandFailure::new(FailureKind::Usage, what.to_string());
    let value = || {
        add.value.clone().ok_or_else(|| {
            usage(&format!("\"{}\" needs a value", add.kind))
                .with_hint("\"stepback breakpoint add --help\" has examples")
        })
    };
    let per = add.per.map(BudgetScope::from);
    if per.is_some() && !matches!(add.kind.as_str(), "cost" | "tokens") {
        return Err(usage(&format!("--per belongs to cost and tokens, not to \"{}\"", add.kind)));
    }
    Ok(match add.kind.as_str() {
        "tool" => Condition::Tool { name: value()? },
        "pattern" => Condition::Pattern { pattern: value()? },
        "path" => Condition::Path { glob: value()? },
        "iteration" => Condition::Iteration {
            number: value()?.parse().map_err(|_| usage("an iteration is a number, such as 20"))?,
        },
        "cost" => Condition::Cost {
            usd: value()?.parse().map_err(|_| usage("a cost is a number of dollars, such as 2.50"))?,
            per,
        },
        "tokens" => Condition::Tokens {
            number: value()?.parse().map_err(|_| usage("a size is a number of tokens, such as 150000"))?,
            per,
        },
        "anomaly" => {
            Condition::Anomaly { kind: add.value.as_deref().map(super::anomalies::parse_kind).transpose()? }
        }
        _ => Condition::Error,
    })
}

fn require_breakpoint(found: bool, id: u64) -> Result<(), CommandFailure> {
    match found {
        true => Ok(()),
        false => Err(CommandFailure::new(FailureKind::Nothing, format!("there is no breakpoint {id}"))
            .with_hint("\"stepback breakpoint list\" lists them")),
    }
}

fn set_enabled(context: &Context, control: &Control, id: u64, enabled: bool) -> CommandResult {
    let there = control.change_breakpoints(|all| {
        let mut there = false;
        for item in all.items.iter_mut().filter(|item| item.id == id) {
            item.enabled = enabled;
            there = true;
        }
        there
    })?;
    require_breakpoint(there, id)?;
    let word = if enabled { "enabled" } else { "disabled" };
    print_result(context, json!({ "id": id, "enabled": enabled }), &format!("Breakpoint {id} {word}."));
    DONE
}

fn list(context: &Context, control: &Control) -> CommandResult {
    let all = control.breakpoints()?;
    if context.json {
        output::print_document(&json!({ "items": all.items.iter().rev().collect::<Vec<_>>() }));
        return DONE;
    }
    let paint = Paint::stdout();
    for item in &all.items {
        let mut marks = Vec::new();
        if !item.enabled {
            marks.push("disabled".to_string());
        }
        if item.log {
            marks.push("log only".into());
        }
        if let Some(condition) = item.hit_condition {
            marks.push(condition.describe());
        }
        if let Some(message) = &item.message {
            marks.push(format!("message: {message}"));
        }
        let marks = if marks.is_empty() { String::new() } else { format!("  ({})", marks.join(", ")) };
        output::print_line(format!(
            "{:>4}  {}{}  {}",
            paint.strong(item.id),
            item.describe(),
            paint.note(marks),
            paint.dim(format!("hit {}", output::count(item.hits, "time")))
        ));
    }
    if all.items.is_empty() {
        output::print_line("No breakpoints.");
    }
    DONE
}

fn print_result(context: &Context, document: Value, line: &str) {
    match context.json {
        true => output::print_document(&document),
        false => output::print_line(line),
    }
}

/// Runs `stepback pause`.
pub fn pause(context: &Context, session: Option<&str>) -> CommandResult {
    let workspace = context.open_workspace()?;
    let session = session.map(|text| sessions::pick_running(context, &workspace, Some(text))).transpose()?;
    workspace.control()?.pause(session.as_ref().map(|session| session.id))?;
    let running = workspace.running_sessions()?;
    let line = match &session {
        Some(session) => format!("{} stops at its next call", sessions::display_name(session)),
        None if running.is_empty() => {
            "No agent is running here; one that starts stops at its first call".into()
        }
        None => "Every agent here stops at its next call".into(),
    };
    let running: Vec<_> = running.iter().map(|session| session.id).collect();
    print_result(
        context,
        json!({ "paused": session.map(|session| session.id), "running": running }),
        &format!("{line}; \"stepback resume\" resumes it."),
    );
    DONE
}

/// Runs `stepback resume`, or `stepback step` if `again` is set.
pub fn resume(context: &Context, session: Option<&str>, single_step: bool) -> CommandResult {
    let workspace = context.open_workspace()?;
    let control = workspace.control()?;
    let stop = find_stop(&workspace, &control, session)?;
    let asked = session.map(|text| workspace.find_session(text)).transpose()?.map(|session| session.id);
    let unpaused = match (single_step, &stop) {
        (true, Some(stop)) => {
            control.pause(Some(stop.session))?;
            false
        }
        _ => control.unpause(asked)?,
    };
    match stop {
        Some(stop) => {
            control.answer_stop(&stop, &Said::Resume)?;
            let line = match single_step {
                true => format!("{} makes one call: {}.", agent_label(&stop), stop.tool),
                false => format!("{} continues with {}.", agent_label(&stop), stop.tool),
            };
            print_result(context, json!({ "resumed": stop }), &line);
            DONE
        }
        None if unpaused => {
            control.disarm_if_empty();
            print_result(
                context,
                json!({ "resumed": null }),
                "The pause is lifted; no agent will be stopped.",
            );
            DONE
        }
        None => Err(not_stopped_failure()),
    }
}

/// Returns the agent as the subject of a sentence. The built-in agent has the program's name, which would be misread as
/// the program.
fn agent_label(stop: &Stop) -> &str {
    if stop.agent == stepback_builtin_agent::NAME { "The built-in agent" } else { &stop.agent }
}

/// Runs `stepback deny`.
pub fn deny(context: &Context, session: Option<&str>, reason: Option<&str>) -> CommandResult {
    let reason = reason.unwrap_or("The user refused this call.").to_string();
    send_answer(context, session, &Said::Deny { reason })
}

/// Runs `stepback edit-input`.
pub fn edit_input(context: &Context, session: Option<&str>, text: &str) -> CommandResult {
    let input: Value = serde_json::from_str(text).map_err(|error| {
        CommandFailure::new(FailureKind::Usage, format!("the input is not JSON: {error}"))
            .with_hint("\"stepback inspect input\" shows the current one")
    })?;
    if !input.is_object() {
        return Err(CommandFailure::new(FailureKind::Usage, "the input of a call must be a JSON object")
            .with_hint("\"stepback inspect input\" shows the current one"));
    }
    send_answer(context, session, &Said::Edit { input })
}

fn send_answer(context: &Context, session: Option<&str>, answer: &Said) -> CommandResult {
    let workspace = context.open_workspace()?;
    let control = workspace.control()?;
    let stop = find_stop(&workspace, &control, session)?.ok_or_else(not_stopped_failure)?;
    control.answer_stop(&stop, answer)?;
    let line = match answer {
        Said::Deny { .. } if stop.output.is_some() => {
            format!("{} receives the message about its {} call.", agent_label(&stop), stop.tool)
        }
        Said::Deny { .. } => {
            format!("{} may not run {}; the model gets the reason.", agent_label(&stop), stop.tool)
        }
        // An edit has no effect once the call has run.
        Said::Edit { .. } if stop.output.is_some() => {
            format!("{} continues; {} has already run.", agent_label(&stop), stop.tool)
        }
        Said::Edit { .. } if !can_change_input(&stop) => format!(
            "{} cannot change the input of a call: this {} is refused, and the model is asked to call it again with the new input.",
            agent_label(&stop),
            stop.tool
        ),
        _ => format!("{} continues with the new input of {}.", agent_label(&stop), stop.tool),
    };
    let mut document = json!({ "stop": stop, "answer": answer });
    if let Said::Edit { .. } = answer {
        document["applied"] = json!(can_change_input(&stop) && stop.output.is_none());
    }
    print_result(context, document, &line);
    DONE
}

/// Whether the waiting agent can run its call with another input.
fn can_change_input(stop: &Stop) -> bool {
    Agent::parse(&stop.agent).is_none_or(HookAnswer::can_change_input)
}

/// Runs `stepback inject`.
pub fn inject(context: &Context, session: Option<&str>, text: &str) -> CommandResult {
    if text.trim().is_empty() {
        return Err(CommandFailure::new(FailureKind::Usage, "the message is empty"));
    }
    let workspace = context.open_workspace()?;
    let session = sessions::pick_running(context, &workspace, session)?;
    workspace.control()?.queue_message(session.id, text)?;
    print_result(
        context,
        json!({ "session": session.id, "text": text }),
        &format!("{} gets the message with its next call.", sessions::display_name(&session)),
    );
    DONE
}

/// Returns the waiting agent: that of the given session, or the one that has waited longest.
fn find_stop(
    workspace: &Workspace,
    control: &Control,
    session: Option<&str>,
) -> Result<Option<Stop>, CommandFailure> {
    let session = session.map(|text| workspace.find_session(text)).transpose()?;
    let stops = control.list_stops()?;
    Ok(stops.into_iter().find(|stop| session.as_ref().is_none_or(|session| session.id == stop.session)))
}

fn not_stopped_failure() -> CommandFailure {
    CommandFailure::new(FailureKind::Nothing, "no agent is stopped here").with_hint(
        "\"stepback breakpoint add\" or \"stepback pause\" stops one; \"stepback watch\" shows them",
    )
}

/// Runs `stepback inspect`.
pub fn inspect(context: &Context, session: Option<&str>, what: Option<&str>) -> CommandResult {
    let workspace = context.open_workspace()?;
    let control = workspace.control()?;
    let stop = find_stop(&workspace, &control, session)?;
    let stopped_in = match &stop {
        Some(stop) => workspace.store().session(stop.session).map_err(EngineError::from)?,
        None => None,
    };
    let session = match stopped_in {
        Some(session) => session,
        None => match (session, workspace.running_sessions()?.into_iter().next()) {
            (None, Some(running)) => running,
            (session, _) => sessions::pick(&workspace, session)?,
        },
    };
    match what {
        Some("input") => {
            let stop = stop.ok_or_else(not_stopped_failure)?;
            output::print_document(&stop.input);
        }
        Some("conversation") => {
            let lines =
                conversation::texts(workspace.store(), session.info.tip).map_err(EngineError::from)?;
            show_conversation(context, &session, &lines);
        }
        Some("files") => return super::status::list_session_changes(context, &workspace, &session),
        Some(slot @ ("task" | "memory")) => {
            let slots = &session.info.slots;
            let hash = if slot == "task" { slots.task } else { slots.memory };
            let value = hash.map(|hash| stepback_model::json::load(workspace.store(), hash)).transpose();
            let value = value.map_err(|error| CommandFailure::new(FailureKind::Store, error.to_string()))?;
            output::print_document(&value.unwrap_or(Value::Null));
        }
        Some(_) => {
            let state = WorkspaceState { conversation: session.info.tip, ..WorkspaceState::default() };
            let full = load_full_state(&workspace, &session)?;
            output::print_document(
                &json!({ "session": session, "stop": stop, "state": state, "full": full }),
            );
        }
        None => print_session(context, &workspace, &session, stop.as_ref())?,
    }
    DONE
}

/// Returns what a session has now; `None` if it has no step yet.
fn load_full_state(
    workspace: &Workspace,
    session: &Session,
) -> Result<Option<SessionStateDocument>, CommandFailure> {
    let query = StepQuery { session: Some(session.id), limit: Some(1), ..StepQuery::default() };
    let newest = workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?.pop();
    Ok(newest.map(|step| session_states::session_state(workspace, session, &step)).transpose()?)
}

fn show_conversation(context: &Context, session: &Session, lines: &[String]) {
    let messages = stepback_agents::transcript::parse_agent_messages(&session.agent, lines);
    if context.json {
        output::print_document(&json!({ "items": messages.iter().rev().collect::<Vec<_>>() }));
        return;
    }
    let paint = Paint::stdout();
    for message in &messages {
        // Printed line by line, so that message text cannot send control sequences to the terminal.
        let text = if message.role == MessageRole::Unknown { message.display_text() } else { message.text() };
        let text = text.lines().map(safe).collect::<Vec<_>>().join("\n");
        if !text.is_empty() {
            output::print_line(format!(
                "{} {text}",
                paint.strong(format!("{:?}:", message.role).to_lowercase())
            ));
        }
        for part in &message.parts {
            if let MessagePart::ToolCall { name, input, .. } = part {
                let call = stepback_agents::import::describe_call(name, input);
                output::print_line(paint.dim(format!("  calls {call}")));
            }
        }
    }
}

fn print_session(
    context: &Context,
    workspace: &Workspace,
    session: &Session,
    stop: Option<&Stop>,
) -> Result<(), CommandFailure> {
    let now = context.now();
    if context.json {
        let status = session_status(session, stop.is_some(), now);
        output::print_document(&json!({ "session": session, "status": status, "stop": stop }));
        return Ok(());
    }
    let paint = Paint::stdout();
    output::print_line(format!("Session {}", paint.strong(sessions::display_name(session))));
    if let Some(title) = &session.info.title {
        output::print_line(format!("  prompt     {title}"));
    }
    output::print_line(format!("  iteration  {}", session.info.iteration));
    let full = load_full_state(workspace, session)?;
    full.iter().flat_map(session_parts::detail_lines).for_each(output::print_line);
    match stop {
        None => match (not_running_reason(session, now), session_status(session, false, now)) {
            (Some(why), _) => {
                output::print_line(format!(
                    "  not running: it {why}; {}",
                    workspace.describe_running_sessions()?
                ));
            }
            (None, "idle") => output::print_line(format!(
                "  no activity since {}; not stopped",
                last_event_time(session).ago(now)
            )),
            _ => output::print_line("  running, not stopped"),
        },
        Some(stop) => {
            output::print_line(format!("  stopped    {}", paint.note(&stop.reason)));
            output::print_line(format!("  at step    #{}", stop.step));
            let word = if stop.output.is_some() { "has run   " } else { "wants     " };
            output::print_line(format!("  {word} {}", paint.strong(&stop.tool)));
            let input = serde_json::to_string_pretty(&stop.input).unwrap_or_default();
            for line in input.lines() {
                output::print_line(format!("    {line}"));
            }
            let then = if stop.output.is_some() { "continues" } else { "is refused" };
            let left = quantity::duration(Duration::from_micros(
                (stop.until.as_micros() - now.as_micros()).max(0).unsigned_abs(),
            ));
            output::print_line(format!("  waits for an answer; {left} left, then it {then}"));
            output::print_status(
                paint.dim(
                    "\"stepback resume\", \"step\", \"deny [REASON]\" or \"edit-input JSON\" answers it.",
                ),
            );
        }
    }
    Ok(())
}
