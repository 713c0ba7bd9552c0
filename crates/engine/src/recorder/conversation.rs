//! The conversation of a session, between the agent's own record of it and ours.
//!
//! An agent keeps its conversation in a format that only the caller of the recorder knows. The caller therefore reads it
//! before the event is recorded, from where it was read the last time: [`RecordedConversation`] is what it continues, and
//! [`NewMessages`] is what it found.

use serde_json::{Value, json};
use stepback_model::conversation;
use stepback_model::hash::Hash;
use stepback_model::record::SessionInfo;

use super::step_writer::{ObjectCache, RecordingBatch};
use crate::error::EngineError;

/// What was added to a conversation, and the turn that requested a call. The default adds nothing.
#[derive(Clone, Debug, Default)]
pub struct NewMessages {
    /// How many of the recorded messages are still part of the conversation; `None` for all.
    pub keep: Option<u64>,
    /// The messages after those, one line each.
    pub lines: Vec<String>,
    /// The cursor that the messages were read from; see [`RecordedConversation::cursor`].
    pub start_cursor: Option<Value>,
    /// Where to continue reading next time, in the format of the reader; `None` if the messages were not read but reported.
    pub cursor: Option<Value>,
    /// The turn that requested the call that begins with the event; `None` if it is not known or no call begins.
    pub turn: Option<ModelTurn>,
}

/// The model turn that requested a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ModelTurn {
    /// How many messages of the conversation come before the turn.
    pub before: u64,
    /// The agent's id of the turn.
    pub id: Option<String>,
}

impl NewMessages {
    /// Whether the messages follow the recorded ones. They do not if another process has recorded the conversation since it
    /// was read; then the reader of the next event finds them again. `is_kept` says whether conversations are recorded.
    pub(super) fn can_append_to(&self, info: &SessionInfo, is_kept: bool) -> bool {
        self.cursor.is_none() || self.start_cursor.as_ref() == cursor_to_read_from(info, is_kept)
    }

    /// Returns what remains if conversations are not recorded: how far this one was read, and the turn that requested a
    /// call. `None` if the messages were reported and not read.
    pub(super) fn without_lines(self) -> Option<Self> {
        let cursor = self.cursor.map(|cursor| json!({ NOT_RECORDED: cursor }))?;
        let turn = self.turn.map(|turn| ModelTurn { before: 0, ..turn });
        Some(Self { keep: None, lines: Vec::new(), cursor: Some(cursor), turn, ..self })
    }

    /// Writes the messages and returns the last message of the conversation, which ended in `tip`.
    pub(super) fn append_to(
        &self,
        arriving: &RecordingBatch<'_>,
        tip: Option<Hash>,
    ) -> Result<Option<Hash>, EngineError> {
        let count = conversation::len(arriving, tip)?;
        let keep = self.keep.map_or(count, |keep| keep.min(count));
        let tip = if keep < count { conversation::shorten(arriving, tip, keep)? } else { tip };
        Ok(conversation::append(arriving, tip, keep, self.lines.iter().map(String::as_str))?)
    }
}

/// The name around the cursor of a conversation that was read and not recorded.
const NOT_RECORDED: &str = "not_recorded";

/// Returns where reading a conversation goes on. One that was read and not recorded is read from the beginning as soon as
/// conversations are recorded again, so that it has no hole.
fn cursor_to_read_from(info: &SessionInfo, is_kept: bool) -> Option<&Value> {
    let cursor = info.cursor.as_ref()?;
    match cursor.get(NOT_RECORDED) {
        Some(_) if is_kept => None,
        Some(inner) => Some(inner),
        None => Some(cursor),
    }
}

/// A conversation as it is recorded before an event.
pub struct RecordedConversation<'a> {
    pub(super) objects: &'a ObjectCache<'a>,
    /// `None` if the event is the first of its session.
    pub(super) info: Option<&'a SessionInfo>,
    /// Whether conversations are recorded.
    pub(super) is_kept: bool,
}

impl RecordedConversation<'_> {
    /// Returns how far the conversation was read, in the format of its reader; `None` if it was not read yet.
    pub fn cursor(&self) -> Option<&Value> {
        cursor_to_read_from(self.info?, self.is_kept)
    }

    /// Returns how many messages are recorded.
    pub fn count(&self) -> Result<u64, EngineError> {
        Ok(conversation::len(self.objects, self.tip())?)
    }

    /// Returns the last `limit` of the first `keep` messages, oldest first.
    pub fn tail(&self, keep: u64, limit: usize) -> Result<Vec<String>, EngineError> {
        if limit == 0 {
            return Ok(Vec::new());
        }
        let tip = conversation::shorten(self.objects, self.tip(), keep)?;
        let messages = conversation::tail(self.objects, tip, limit)?;
        Ok(messages.into_iter().map(|(_, message)| message.text).collect())
    }

    fn tip(&self) -> Option<Hash> {
        self.info?.tip.filter(|_| self.is_kept)
    }
}
