//! Finds where a chain can be cut so that the rest is a valid conversation.

use std::collections::HashSet;

use serde_json::Value;

use super::message::{MessageRole, TranscriptMessage, parse_messages};
use super::{claude, codex};
use crate::agent::Agent;

/// Returns how many lines to keep so that the conversation ends right before the answer that requested a call: neither the
/// call nor what the model thought and said before it remains. `None` if there is no such call.
pub fn cut_before_call<S: AsRef<str>>(agent: Agent, lines: &[S], call: &str) -> Option<usize> {
    find_requesting_answer(agent, lines, call, true).answer.map(|answer| answer.lines.start)
}

/// Like [`cut_before_call`], for a call that began when `seen` lines were written: lines that the agent wrote later, because it
/// writes with a delay, may be older than the call.
pub fn cut_before_later_call<S: AsRef<str>>(
    agent: Agent,
    lines: &[S],
    call: &str,
    written_lines: usize,
) -> Option<usize> {
    let all = parse_messages(agent, lines);
    let mut since = all.iter().filter(|message| message.lines.end > written_lines);
    since.find(|message| message.call_ids().any(|id| id == call)).map(|message| message.lines.start)
}

/// Which answer requested a call, as far as the last lines of a conversation show.
#[derive(Debug)]
pub struct RequestingAnswer {
    /// The answer that requested the call, if it was found.
    pub answer: Option<TranscriptMessage>,
    /// Whether lines further back would not change the result.
    pub is_final: bool,
}

/// Finds the answer that requested a call which is about to run. `main` is false for a call of a sub-agent.
pub fn find_requesting_answer<S: AsRef<str>>(
    agent: Agent,
    lines: &[S],
    call: &str,
    main: bool,
) -> RequestingAnswer {
    let mut all = parse_messages(agent, lines);
    let found = all.iter().rposition(|message| message.call_ids().any(|id| id == call));
    let Some(at) = found else {
        // A model is called again only when its calls have results: a call that begins now belongs to the last answer, or to
        // one that is not written yet. If another answer comes before it, the last one is complete.
        let answers =
            all.iter().filter(|message| message.role == MessageRole::Assistant && message.worker.is_none());
        return RequestingAnswer { answer: None, is_final: main && answers.count() > 1 };
    };
    let answer = all.swap_remove(at);
    let separates =
        |message: &TranscriptMessage| message.role != MessageRole::Tool && message.worker == answer.worker;
    let is_final = match agent {
        // The parts of one answer follow each other, up to results: if anything else comes before it, the answer begins after
        // that.
        Agent::Claude | Agent::Codex => all[..at].iter().any(separates),
        // An answer is written repeatedly under the same id.
        Agent::Gemini => false,
        Agent::Opencode => true,
    };
    RequestingAnswer { answer: Some(answer), is_final }
}

/// Returns how many lines to keep so that the conversation ends right before the prompt `nth`, counted from zero. `None` if
/// there are not that many.
pub fn cut_before_prompt<S: AsRef<str>>(agent: Agent, lines: &[S], nth: usize) -> Option<usize> {
    let all = parse_messages(agent, lines);
    let prompt = all.iter().filter(|message| message.is_prompt()).nth(nth)?;
    let mut keep = prompt.lines.start;
    while keep > 0 && is_prompt_preamble(agent, lines[keep - 1].as_ref()) {
        keep -= 1;
    }
    Some(keep)
}

fn is_prompt_preamble(agent: Agent, line: &str) -> bool {
    let leads: fn(&Value) -> bool = match agent {
        Agent::Claude => claude::is_prompt_preamble,
        Agent::Codex => codex::is_prompt_preamble,
        Agent::Gemini | Agent::Opencode => return false,
    };
    serde_json::from_str(line).is_ok_and(|line| leads(&line))
}

/// Returns the same cut or an earlier one, such that no answer is split and no call at the end is left without its result: an
/// agent that resumes there would have to invent one.
pub fn align_cut<S: AsRef<str>>(agent: Agent, lines: &[S], keep: usize) -> usize {
    let mut keep = keep.min(lines.len());
    let all = parse_messages(agent, lines);
    let main =
        all.iter().filter(|message| message.role == MessageRole::Assistant && message.worker.is_none());
    if let Some(torn) =
        main.map(|message| &message.lines).find(|lines| lines.start < keep && keep < lines.end)
    {
        keep = torn.start;
    }
    while let Some(start) =
        find_unanswered_turn(&parse_messages(agent, &lines[..keep])).filter(|start| *start < keep)
    {
        keep = start;
    }
    keep
}

/// Returns where the last answer begins, if one of its calls has no result.
fn find_unanswered_turn(all: &[TranscriptMessage]) -> Option<usize> {
    let main: Vec<&TranscriptMessage> = all.iter().filter(|message| message.worker.is_none()).collect();
    let at = main
        .iter()
        .rposition(|message| matches!(message.role, MessageRole::Assistant | MessageRole::User))?;
    let last = main[at];
    let results: HashSet<&str> = main[at..].iter().flat_map(|message| message.result_ids()).collect();
    let waits = last.role == MessageRole::Assistant && last.call_ids().any(|id| !results.contains(id));
    waits.then_some(last.lines.start)
}
