//! How large the context of a session is, in tokens, for breakpoints on it.
//!
//! Only the model counts tokens exactly, so the number is what it reported with its last answer: the request that it read,
//! cached or not, and the answer, which the next request contains. Agents keep it with their messages; the built-in agent and
//! model calls through a proxy have it in the step that ends the call.

use serde_json::Value;
use stepback_engine::{EngineError, Workspace};
use stepback_model::conversation;
use stepback_model::ids::SessionId;
use stepback_model::record::{Session, StepKind};
use stepback_store::port::StepQuery;

use crate::transcript::{MessageUsage, TranscriptMessage, parse_agent_messages};

/// How many of the last messages are searched for the last answer: between two answers are the results of their calls.
const SEARCHED_MESSAGES: usize = 200;

/// Returns the number of tokens in the context of a session after the model's last answer; 0 if none was reported.
pub fn context_tokens(workspace: &Workspace, session: SessionId) -> Result<u64, EngineError> {
    let Some(session) = workspace.store().session(session)? else { return Ok(0) };
    let tail = conversation::tail(workspace.store(), session.info.tip, SEARCHED_MESSAGES)?;
    let lines: Vec<String> = tail.into_iter().map(|(_, message)| message.text).collect();
    tokens_at(workspace, &session, &parse_agent_messages(&session.agent, &lines), None)
}

/// Returns the number of tokens in the context after these messages; without counts in them, what the last model call reported,
/// of those up to the step numbered `until`. 0 if none was reported.
pub(crate) fn tokens_at(
    workspace: &Workspace,
    session: &Session,
    messages: &[TranscriptMessage],
    until: Option<u64>,
) -> Result<u64, EngineError> {
    // A sub-agent has a context of its own.
    let own = messages.iter().rev().filter(|message| message.worker.is_none());
    if let Some(usage) = own.filter_map(|message| message.usage).find(|usage| total_tokens(usage) > 0) {
        return Ok(total_tokens(&usage));
    }
    let query = StepQuery {
        session: Some(session.id),
        kinds: vec![StepKind::ModelEnd],
        before: until.map(|until| until.saturating_add(1)),
        limit: Some(1),
        ..StepQuery::default()
    };
    let Some(answered) = workspace.store().steps(workspace.record.id, &query)?.pop() else { return Ok(0) };
    let detail = workspace.load_detail(&answered.step)?.unwrap_or_default();
    Ok(detail.pointer("/metadata/usage").map_or(0, reported_tokens))
}

fn total_tokens(usage: &MessageUsage) -> u64 {
    let MessageUsage { input, output, cache_read, cache_write, reasoning: _ } = usage;
    input.saturating_add(*output).saturating_add(*cache_read).saturating_add(*cache_write)
}

/// Adds up the counts of a model call. Reasoning is a part of the output.
fn reported_tokens(usage: &Value) -> u64 {
    let counts = ["input", "output", "cache_read", "cache_write"];
    counts.iter().filter_map(|name| usage[name].as_u64()).fold(0, u64::saturating_add)
}
