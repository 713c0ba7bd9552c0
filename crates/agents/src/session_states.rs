//! What the sessions at work in a workspace had at a step: position, summary of the conversation, working set, tools, tokens.
//!
//! Nothing of this is stored for it. Every session's own steps have its conversation, memory, task list and environment, and
//! steps stay: so a checkpoint covers every session at work, and everything else is derived when it is requested.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;
use stepback_api::state::{SessionStateDocument, WorkingFileDocument};
use stepback_engine::{EngineError, Workspace};
use stepback_llm_wire::{ModelRequest, semantics};
use stepback_model::conversation;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_store::port::StepQuery;

use crate::agent::Agent;
use crate::context_size::tokens_at;
use crate::tools;
use crate::transcript::{MessagePart, TranscriptMessage, parse_agent_messages};

/// The most calls, the newest ones, that are read for the working set.
const MAX_CALLS: u64 = 10_000;
/// Words in the names of tools that only read.
const LOOKING_WORDS: [&str; 10] =
    ["read", "view", "list", "get", "search", "grep", "glob", "find", "fetch", "show"];

/// Returns what every session at work at a step had then, the one of the step first, then the most recently active.
pub fn session_states(workspace: &Workspace, at: &StepRow) -> Result<Vec<SessionStateDocument>, EngineError> {
    let sessions = workspace.sessions_at_work(at)?;
    sessions.iter().map(|session| session_state(workspace, session, at)).collect()
}

/// Returns what one session had at a step; only its position is set if it had no step by then.
pub fn session_state(
    workspace: &Workspace,
    session: &Session,
    at: &StepRow,
) -> Result<SessionStateDocument, EngineError> {
    let mut document = SessionStateDocument::from_record(workspace, session, at)?;
    let Some((_, state)) = workspace.session_state_at(session.id, at.step.number)? else {
        return Ok(document);
    };
    let lines = conversation::texts(workspace.store(), state.conversation)?;
    let messages = parse_agent_messages(&session.agent, &lines);
    document.messages = messages.len() as u64;
    document.summary = match last_summary(&messages, &lines) {
        Some(summary) => Some(summary),
        None => reported_summary(workspace, session, at)?,
    };
    document.tokens =
        Some(tokens_at(workspace, session, &messages, Some(at.step.number))?).filter(|tokens| *tokens > 0);
    if document.tools.is_empty() {
        document.tools = requested_tools(workspace, session, at)?;
    }
    add_calls(workspace, session, at, &mut document)?;
    Ok(document)
}

/// Returns the summary that replaced the earlier conversation last, as the conversation has it.
fn last_summary(messages: &[TranscriptMessage], lines: &[String]) -> Option<String> {
    messages.iter().rev().filter(|message| message.worker.is_none()).find_map(|message| {
        let compacted = message.parts.iter().find_map(|part| match part {
            MessagePart::Compaction { text } => Some(text.clone()),
            _ => None,
        });
        // Claude Code marks the boundary with a notice, and the message after it has the summary.
        let of_claude = || {
            let line = lines.get(message.lines.start)?;
            let is_summary = line.contains("\"isCompactSummary\"")
                && serde_json::from_str::<Value>(line).ok()?["isCompactSummary"] == true;
            is_summary.then(|| message.text())
        };
        of_claude().or(compacted).filter(|text| !text.is_empty())
    })
}

/// Returns the summary of the last compaction that a hook reported.
fn reported_summary(
    workspace: &Workspace,
    session: &Session,
    at: &StepRow,
) -> Result<Option<String>, EngineError> {
    let query = StepQuery {
        session: Some(session.id),
        kinds: vec![StepKind::StateChange],
        before: Some(at.step.number.saturating_add(1)),
        ..StepQuery::default()
    };
    for stored in workspace.store().steps(workspace.record.id, &query)? {
        if stored.step.summary.contains("compacted")
            && let Some(text) = workspace.load_detail(&stored.step)?.unwrap_or_default()["output"].as_str()
        {
            return Ok(Some(text.to_owned()));
        }
    }
    Ok(None)
}

/// Returns the names of the tools that the last recorded model call offered.
fn requested_tools(
    workspace: &Workspace,
    session: &Session,
    at: &StepRow,
) -> Result<Vec<String>, EngineError> {
    let query = StepQuery {
        session: Some(session.id),
        kinds: vec![StepKind::ModelStart],
        before: Some(at.step.number.saturating_add(1)),
        limit: Some(1),
        ..StepQuery::default()
    };
    let Some(call) = workspace.store().steps(workspace.record.id, &query)?.pop() else {
        return Ok(Vec::new());
    };
    let input = workspace.load_detail(&call.step)?.unwrap_or_default()["input"].take();
    let Ok(request) = serde_json::from_value::<ModelRequest>(input) else { return Ok(Vec::new()) };
    let asked = request.wire.map(|wire| semantics::asked(wire, &request)).unwrap_or_default();
    Ok(asked.tools)
}

/// Adds what the calls of a session up to a step say: the newest call, the number of commands, and the files they named.
fn add_calls(
    workspace: &Workspace,
    session: &Session,
    at: &StepRow,
    document: &mut SessionStateDocument,
) -> Result<(), EngineError> {
    let query = StepQuery {
        session: Some(session.id),
        kinds: vec![StepKind::ToolStart],
        before: Some(at.step.number.saturating_add(1)),
        limit: Some(MAX_CALLS),
        ..StepQuery::default()
    };
    let agent = Agent::parse(&session.agent);
    let mut files: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    for stored in workspace.store().steps(workspace.record.id, &query)?.into_iter().rev() {
        let facts = &stored.step.meta;
        let tool = facts.tool.clone().unwrap_or_default();
        let input = workspace.load_detail(&stored.step)?.unwrap_or_default()["input"].take();
        let is_command = ["command", "cmd"].iter().any(|field| !input[field].is_null());
        let paths = tools::named_paths(&input);
        document.commands += u64::from(is_command && paths.is_empty());
        let writes = agent.map_or_else(|| !only_looks(&tool), |agent| tools::can_change(agent, &tool));
        for path in paths {
            let file = files.entry(relative(workspace, &path)).or_default();
            *file = (file.0 || !writes, file.1 || writes);
        }
    }
    for path in workspace.paths_changed_by(session.id, at)? {
        files.entry(path.display().into_owned()).or_default().1 = true;
    }
    document.working_set = files
        .into_iter()
        .map(|(path, (read, written))| WorkingFileDocument { path, read, written })
        .collect();
    Ok(())
}

/// Whether the tool of an agent that stepback does not know only reads, as far as its name tells.
fn only_looks(tool: &str) -> bool {
    let tool = tool.to_lowercase();
    LOOKING_WORDS.iter().any(|word| tool.contains(word))
}

/// The path relative to the workspace; one outside of it stays as written.
fn relative(workspace: &Workspace, path: &str) -> String {
    let inside = Path::new(path).strip_prefix(&workspace.root).ok();
    let inside = inside.map(|inside| inside.to_string_lossy().into_owned());
    inside.unwrap_or_else(|| path.strip_prefix("./").unwrap_or(path).to_owned())
}
