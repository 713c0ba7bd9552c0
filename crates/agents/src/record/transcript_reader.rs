//! Reads what is new in an agent's transcript at an event, redacted, and finds the model turn that requested a call.

use serde_json::json;
use stepback_engine::EngineError;
use stepback_engine::recorder::{ModelTurn, NewMessages, RecordedConversation};
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;

use crate::agent::Agent;
use crate::gemini;
use crate::transcript::{self, TranscriptCursor, TranscriptLocation};

/// How many messages back the search for the turn that requested a call goes.
const MAX_SEARCHED_MESSAGES: usize = 256;
/// How many recorded messages each attempt of that search reads: the turn is usually among the last few.
const RECORDED_PER_ATTEMPT: [usize; 3] = [0, 16, MAX_SEARCHED_MESSAGES];

/// A transcript as it was at an event.
pub(super) struct TranscriptReader {
    pub location: TranscriptLocation,
    /// Only read this many bytes of the file, which is all there was when the event happened; `None` for all of it.
    pub limit: Option<u64>,
    /// Whether the event is about the next entry of the main conversation: it is not a sub-agent's, and nothing later was
    /// recorded.
    pub is_next: bool,
    /// The first of the lines just read, if one of them may be a compaction that no hook reports.
    pub may_compact_from: Option<usize>,
}

impl TranscriptReader {
    /// Creates a reader of a transcript; `limit` is its length at the event, in bytes.
    pub fn new(location: TranscriptLocation, limit: Option<u64>, is_next: bool) -> Self {
        Self { location, limit, is_next, may_compact_from: None }
    }

    /// Reads what is new since the last event. A transcript that cannot be read adds nothing.
    pub fn read_new(
        &mut self,
        recorded: &RecordedConversation<'_>,
        event: &AgentEvent,
    ) -> Result<NewMessages, EngineError> {
        let cursor = recorded.cursor().and_then(|cursor| serde_json::from_value(cursor.clone()).ok());
        let cursor: TranscriptCursor = cursor.unwrap_or_default();
        let mut messages = NewMessages::default();
        if let Ok(new) = transcript::read_until(&self.location, &cursor, self.limit) {
            if self.location.agent == Agent::Gemini && new.lines.iter().any(|line| gemini::may_compact(line))
            {
                self.may_compact_from = Some(new.keep);
            }
            messages = NewMessages {
                keep: Some(new.keep as u64),
                lines: new.lines.iter().map(|line| stepback_redact::redact(line).into_owned()).collect(),
                start_cursor: recorded.cursor().cloned(),
                cursor: Some(json!(new.cursor)),
                turn: None,
            };
        }
        if let (StepKind::ToolStart, Some(call)) = (event.kind, &event.call) {
            messages.turn = self.find_turn(recorded, &messages, call)?;
        }
        Ok(messages)
    }

    fn find_turn(
        &self,
        recorded: &RecordedConversation<'_>,
        new: &NewMessages,
        call: &str,
    ) -> Result<Option<ModelTurn>, EngineError> {
        let agent = self.location.agent;
        let count = recorded.count()?;
        let kept = new.keep.map_or(count, |keep| keep.min(count));
        let most = MAX_SEARCHED_MESSAGES.saturating_sub(new.lines.len());
        let mut turn = None;
        for some in RECORDED_PER_ATTEMPT {
            let older = recorded.tail(kept, some.min(most))?;
            let first = kept - older.len() as u64;
            let lines: Vec<&str> = older.iter().chain(&new.lines).map(String::as_str).collect();
            let found = transcript::find_requesting_answer(agent, &lines, call, self.is_next);
            turn = found.answer.map(|answer| {
                let start = answer.lines.start;
                let messages = transcript::parse_messages(agent, &lines[start..]);
                let id = messages.first().and_then(|message| message.id.clone());
                ModelTurn { before: first + start as u64, id }
            });
            if found.is_final || first == 0 || some >= most {
                break;
            }
        }
        Ok(turn)
    }
}
