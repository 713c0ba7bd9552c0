//! Facts that the hooks of Gemini CLI do not report, read from its transcript.
//!
//! `PreCompress` fires before every model call, whether anything is compacted or not; only the transcript shows that messages
//! were replaced. And `AfterAgent` joins everything the model said since the prompt, of which only the last part is its answer.

use crate::agent::Agent;
use crate::transcript::{
    self, MessagePart, MessageRole, TranscriptCursor, TranscriptLocation, parse_messages,
};

/// Whether an event only reports that the agent checks whether to compact, which it does before every model call.
pub(crate) fn is_compaction_check(agent: Agent, event: &str, trigger: Option<&str>) -> bool {
    agent == Agent::Gemini && event == "PreCompress" && trigger != Some("manual")
}

/// Whether a line replaces messages. A compaction does, but other things do too.
pub(crate) fn may_compact(line: &str) -> bool {
    line.contains("\"$set\"") && line.contains("\"messages\"")
}

/// Returns the lines, counted from `from`, at which earlier messages were dropped.
pub(crate) fn find_compactions(location: &TranscriptLocation, limit: Option<u64>, from: usize) -> Vec<usize> {
    let Ok(whole) = transcript::read_until(location, &TranscriptCursor::default(), limit) else {
        return Vec::new();
    };
    let all = parse_messages(location.agent, &whole.lines);
    let compacted =
        all.iter().filter(|message| matches!(message.parts.as_slice(), [MessagePart::Compaction { .. }]));
    compacted.map(|message| message.lines.start).filter(|line| *line >= from).collect()
}

/// Returns the last part of what the model said since the prompt, out of `response`, which is all of it joined.
pub(crate) fn find_last_answer(
    location: &TranscriptLocation,
    limit: Option<u64>,
    response: &str,
) -> Option<String> {
    let whole = transcript::read_until(location, &TranscriptCursor::default(), limit).ok()?;
    let lines: Vec<_> = whole.lines.iter().map(|line| stepback_redact::redact(line)).collect();
    let all = parse_messages(location.agent, &lines);
    let prompt = all.iter().rposition(|message| message.role == MessageRole::User)?;
    let said = all[prompt..].iter().filter(|message| message.role == MessageRole::Assistant);
    let (mut rest, mut last) = (response.trim(), None);
    for text in said.map(|message| message.text()) {
        let text = text.trim();
        if let Some(behind) = rest.strip_prefix(text).filter(|_| !text.is_empty()) {
            (rest, last) = (behind.trim_start(), Some(text.to_owned()));
        }
    }
    // The last message may not be written yet.
    if rest.is_empty() { last } else { last.map(|_| rest.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use serde_json::{Value, json};

    use super::*;

    fn transcript(lines: &[Value]) -> (tempfile::NamedTempFile, TranscriptLocation) {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
        let place =
            TranscriptLocation { agent: Agent::Gemini, path: file.path().into(), session: "s".into() };
        (file, place)
    }

    fn said(id: &str, kind: &str, text: &str) -> Value {
        json!({ "id": id, "type": kind, "content": text, "timestamp": "2026-11-15T18:28:56.949Z" })
    }

    #[test]
    fn the_last_words_are_those_of_the_last_message() {
        let earlier = [said("1", "user", "first"), said("2", "gemini", "Old."), said("3", "user", "do it")];
        let mut lines = earlier.to_vec();
        lines.extend([said("4", "gemini", "Writing."), said("5", "gemini", "All done.\nSee f.txt.")]);
        let response = "Writing.\nAll done.\nSee f.txt.";
        let (_file, place) = transcript(&lines);
        assert_eq!(find_last_answer(&place, None, response).as_deref(), Some("All done.\nSee f.txt."));
        // The hook may come before the last message is written.
        let (_file, place) = transcript(&lines[..4]);
        assert_eq!(find_last_answer(&place, None, response).as_deref(), Some("All done.\nSee f.txt."));
        let (_file, place) = transcript(&lines[..3]);
        assert_eq!(find_last_answer(&place, None, response), None);
    }

    #[test]
    fn only_messages_that_are_given_up_are_a_compaction() {
        let (one, two) = (said("1", "user", "a"), said("2", "gemini", "b"));
        let (_file, place) = transcript(&[
            json!({ "$set": { "messages": [one] } }),
            two.clone(),
            json!({ "$set": { "messages": [one, two] } }),
            json!({ "$set": { "messages": [said("3", "user", "summary")] } }),
        ]);
        assert_eq!(find_compactions(&place, None, 0), [3]);
        assert!(find_compactions(&place, None, 4).is_empty());
    }
}
