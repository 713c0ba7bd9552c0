//! The answers of models that the agent's own conversation has, with their usage, and how they are joined with those of steps.
//!
//! A conversation can be cut: by a rewind, by the agent itself. Answers that were cut off were given nevertheless, so the
//! conversations at all prompts and compactions are read too, each only as far as it differs from the others.

use std::collections::{HashMap, HashSet};

use stepback_agents::transcript::{MessageRole, MessageUsage, TranscriptMessage, parse_agent_messages};
use stepback_llm_wire::recorded_call::MAX_CALL_TOKENS;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::conversation::ConversationMessage;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectError;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::state::WorkspaceState;
use stepback_model::time::Timestamp;
use stepback_store::Store;

use super::details::fingerprint;
use crate::error::AnalysisError;
use crate::facts::{ModelCallFact, NameIndex, SessionFacts, UsageSource};

/// How far apart the times of one answer in two records may be, in microseconds.
const SAME_CALL_MICROS: u64 = 30_000_000;
/// The same of one answer in a span and in a step.
const SAME_SPAN_MICROS: u64 = 2_000_000;

/// An answer in a conversation.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct ConversationAnswer {
    identity: u64,
    worker: Option<String>,
    model: Option<String>,
    at: Option<Timestamp>,
    tokens: Option<TokenUsage>,
    impossible: bool,
    /// The calls that it requests.
    calls: Vec<String>,
}

/// Reads the answers of a session's conversation, and of those that it had at `newer` steps and has no more.
pub(super) fn read_answers(
    store: &dyn Store,
    session: &Session,
    newer: &[StepRow],
) -> Result<Vec<ConversationAnswer>, AnalysisError> {
    let Some(tip) = session.info.tip else { return Ok(Vec::new()) };
    let mut tips = vec![tip];
    tips.extend(cut_tips(store, newer));
    let mut seen = HashSet::new();
    let mut known = HashSet::new();
    let mut answers = Vec::new();
    for tip in tips {
        let lines = match unseen_lines(store, tip, &mut seen) {
            Ok(lines) => lines,
            // Purged or damaged: what is left of the session is still counted.
            Err(ObjectError::Missing { .. } | ObjectError::Corrupt { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let messages = parse_agent_messages(&session.agent, &lines);
        let found = answers_of(&messages);
        answers
            .extend(found.into_iter().filter(|answer| answer.identity == 0 || known.insert(answer.identity)));
    }
    if session.info.forked_from.is_some() {
        // What the conversation began with was said in the session that it was forked from.
        answers.retain(|answer| answer.at.is_none_or(|at| at >= session.started_at));
    }
    Ok(answers)
}

/// The last messages of conversations as they were at prompts and compactions, newest first.
fn cut_tips(store: &dyn Store, newer: &[StepRow]) -> Vec<Hash> {
    let mut tips: Vec<Hash> = Vec::new();
    for stored in newer.iter().rev() {
        if !matches!(stored.step.kind, StepKind::UserInput | StepKind::StateChange) || stored.purged {
            continue;
        }
        let state = WorkspaceState::load(store, stored.step.state);
        // A state that was freed has nothing to add.
        if let Ok(WorkspaceState { conversation: Some(tip), .. }) = state
            && tips.last() != Some(&tip)
        {
            tips.push(tip);
        }
    }
    tips
}

/// The messages up to `tip` that were not seen before, oldest first.
fn unseen_lines(store: &dyn Store, tip: Hash, seen: &mut HashSet<Hash>) -> Result<Vec<String>, ObjectError> {
    if seen.contains(&tip) {
        return Ok(Vec::new());
    }
    let mut lines = Vec::new();
    let mut expected: Option<u64> = None;
    store.read_chain(ObjectKind::Message, tip, &mut |hash, bytes| {
        seen.insert(hash);
        let message = ConversationMessage::decode_bytes(hash, &bytes)?;
        // Counts decrease by one, so that no chain can be endless.
        if message.count == 0 || expected.is_some_and(|expected| expected != message.count) {
            return Err(ObjectError::corrupt(ObjectKind::Message, hash, "it is not where it should be"));
        }
        expected = Some(message.count - 1);
        lines.push(message.text);
        Ok(message.previous.filter(|previous| !seen.contains(previous)))
    })?;
    lines.reverse();
    Ok(lines)
}

/// The answers among messages.
fn answers_of(messages: &[TranscriptMessage]) -> Vec<ConversationAnswer> {
    let mut answers = Vec::new();
    let mut latest = None;
    for message in messages {
        latest = message.at.or(latest);
        if message.role != MessageRole::Assistant || (message.usage.is_none() && message.model.is_none()) {
            continue;
        }
        let counted = message.usage.map(count_tokens);
        answers.push(ConversationAnswer {
            identity: message.id.as_ref().map_or(0, |id| fingerprint(id.as_bytes())),
            worker: message.worker.clone(),
            model: message.model.clone(),
            at: latest,
            tokens: counted.flatten(),
            impossible: counted == Some(None),
            calls: message.call_ids().map(str::to_owned).collect(),
        });
    }
    answers
}

/// Returns the counts of an answer; `None` if one is impossible.
fn count_tokens(usage: MessageUsage) -> Option<TokenUsage> {
    let MessageUsage { input, output, cache_read, cache_write, reasoning } = usage;
    let counts = [input, output, cache_read, cache_write, reasoning];
    counts.iter().all(|count| *count <= MAX_CALL_TOKENS).then_some(TokenUsage {
        input,
        output,
        cache_read,
        cache_write,
        reasoning,
    })
}

/// Adds the answers of the conversation to the facts. One that a step has too is joined with it.
///
/// They are the same call if the worker is the same and either the request has the same number of tokens, cached and not, and
/// the times are at most half a minute apart; or one of them has no counts and the time of the answer is within the call.
pub(super) fn merge_answers(
    facts: &mut SessionFacts,
    answers: Vec<ConversationAnswer>,
    mut name: impl FnMut(&mut SessionFacts, &str) -> NameIndex,
) {
    drop_repeated_steps(facts);
    let starts = call_starts(facts);
    let mut by_counts: HashMap<(Option<NameIndex>, RequestCounts), Vec<usize>> = HashMap::new();
    for (at, call) in facts.model_calls.iter().enumerate() {
        if let Some(tokens) = call.tokens {
            by_counts.entry((call.worker, request_counts(tokens))).or_default().push(at);
        }
    }
    let mut taken = vec![false; facts.model_calls.len()];
    let of_steps = facts.model_calls.len();
    let mut clock = facts.started_at;
    for answer in answers {
        facts.defects.impossible_usage =
            facts.defects.impossible_usage.saturating_add(u64::from(answer.impossible));
        let worker = answer.worker.as_deref().map(|worker| name(facts, worker));
        let model = answer.model.as_deref().map(|model| name(facts, model));
        let calls: Vec<NameIndex> = answer.calls.iter().map(|call| name(facts, call)).collect();
        let at = answer.at.unwrap_or(clock);
        clock = at;
        let candidates = answer.tokens.and_then(|tokens| by_counts.get(&(worker, request_counts(tokens))));
        let same = candidates.and_then(|candidates| {
            let open = candidates.iter().copied().filter(|at| !taken[*at]);
            let near = open.map(|index| (distance(facts.model_calls[index].at, at), index));
            near.filter(|(apart, _)| answer.at.is_none() || *apart <= SAME_CALL_MICROS).min()
        });
        let same = same.map(|(_, index)| index).or_else(|| {
            find_uncounted(&facts.model_calls[..of_steps], &taken, worker, at, answer.tokens.is_some())
        });
        if let Some(index) = same {
            taken[index] = true;
            let call = &mut facts.model_calls[index];
            call.tokens = call.tokens.or(answer.tokens);
            call.model = call.model.or(model);
            call.identity = answer.identity;
            continue;
        }
        if facts.is_imported && of_steps > 0 {
            // Its steps were made of the same lines.
            continue;
        }
        let step = step_before(facts, &starts, &calls, at);
        facts.model_calls.push(ModelCallFact {
            step,
            source: UsageSource::Conversation,
            worker,
            model,
            at,
            duration: None,
            first_byte: None,
            tokens: answer.tokens,
            cost: None,
            priced: false,
            replayed: false,
            identity: answer.identity,
            context: None,
        });
    }
    facts.model_calls.sort_by_key(|call| (call.step, call.at));
}

/// Adds answers that were read earlier and that the conversation has no more: they were given nevertheless.
pub(super) fn add_cut_answers(facts: &mut SessionFacts, earlier: Vec<ModelCallFact>) {
    let key = |call: &ModelCallFact| match call.identity {
        0 => (0, call.worker, Some(call.at), call.tokens.map(request_counts)),
        identity => (identity, None, None, None),
    };
    let known: HashSet<_> = facts.model_calls.iter().map(key).collect();
    let last = u32::try_from(facts.steps.len().saturating_sub(1)).unwrap_or(u32::MAX);
    let cut = earlier.into_iter().filter(|call| !known.contains(&key(call)));
    let cut: Vec<_> = cut.map(|call| ModelCallFact { step: call.step.min(last), ..call }).collect();
    facts.model_calls.extend(cut);
    facts.model_calls.sort_by_key(|call| (call.step, call.at));
}

/// The counts by which two records of a call are recognised: those of the request, because streamed answers are often recorded
/// before their end.
type RequestCounts = (u64, u64, u64);

fn request_counts(tokens: TokenUsage) -> RequestCounts {
    (tokens.input, tokens.cache_read, tokens.cache_write)
}

fn distance(a: Timestamp, b: Timestamp) -> u64 {
    a.as_micros().abs_diff(b.as_micros())
}

/// Finds a call of a step that is the same as an answer, where one of the two has no counts.
fn find_uncounted(
    calls: &[ModelCallFact],
    taken: &[bool],
    worker: Option<NameIndex>,
    at: Timestamp,
    is_counted: bool,
) -> Option<usize> {
    let is_within = |call: &ModelCallFact| {
        let began = call.at.as_micros().saturating_sub_unsigned(call.duration.unwrap_or(0));
        let slack = 2_000_000;
        (began.saturating_sub(slack)..=call.at.as_micros().saturating_add(slack)).contains(&at.as_micros())
    };
    // Calls are in order of time, except where a clock went back: those near the answer are enough.
    let middle = calls.partition_point(|call| call.at < at);
    let range = middle.saturating_sub(8)..(middle + 8).min(calls.len());
    range
        .filter(|index| !taken[*index] && calls[*index].worker == worker)
        .filter(|index| !(is_counted && calls[*index].tokens.is_some()) && is_within(&calls[*index]))
        .min_by_key(|index| distance(calls[*index].at, at))
}

/// Takes out calls of telemetry that a proxy or the agent reported too: the same counts, ended within two seconds. A span does
/// not say which sub-agent a call is of.
fn drop_repeated_steps(facts: &mut SessionFacts) {
    let key = |call: &ModelCallFact| {
        let tokens = call.tokens.filter(|tokens| tokens.total() > 0)?;
        Some((request_counts(tokens), tokens.output))
    };
    let mut reported: HashMap<(RequestCounts, u64), Vec<Timestamp>> = HashMap::new();
    for call in facts.model_calls.iter().filter(|call| call.source == UsageSource::Step) {
        if let Some(key) = key(call) {
            reported.entry(key).or_default().push(call.at);
        }
    }
    facts.model_calls.retain(|call| {
        let Some(key) = key(call).filter(|_| call.source == UsageSource::Telemetry) else { return true };
        let Some(times) = reported.get_mut(&key) else { return true };
        // Each reported call accounts for one span.
        match times.iter().position(|at| distance(*at, call.at) <= SAME_SPAN_MICROS) {
            Some(at) => {
                times.swap_remove(at);
                false
            }
            None => true,
        }
    });
}

/// The first step of each call.
fn call_starts(facts: &SessionFacts) -> HashMap<NameIndex, u32> {
    let mut starts = HashMap::new();
    for (index, step) in facts.steps.iter().enumerate().filter(|(_, step)| step.kind == StepKind::ToolStart) {
        if let (Some(call), Ok(index)) = (step.call, u32::try_from(index)) {
            starts.entry(call).or_insert(index);
        }
    }
    starts
}

/// The last step before an answer: the one before the first call that it requests, or else by time.
fn step_before(
    facts: &SessionFacts,
    starts: &HashMap<NameIndex, u32>,
    calls: &[NameIndex],
    at: Timestamp,
) -> u32 {
    if let Some(first) = calls.iter().filter_map(|call| starts.get(call)).min() {
        return first.saturating_sub(1);
    }
    let before = facts.steps.partition_point(|step| step.at <= at);
    u32::try_from(before.saturating_sub(1)).unwrap_or(u32::MAX)
}
