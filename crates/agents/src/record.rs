//! Turns what agents report into reports for the engine's recorder: hook events, notes from the inbox, decisions at
//! breakpoints, and imported conversations.
//!
//! The direction is one way. An event is parsed, its step is opened in the engine ([`Workspace::open_step`], or
//! [`Workspace::open_batch`] for several), which says how far the conversation was read; then the transcript is read from
//! there, and the event is recorded together with what is new.
//!
//! [`Workspace::open_step`]: stepback_engine::Workspace::open_step
//! [`Workspace::open_batch`]: stepback_engine::Workspace::open_batch

mod decision;
mod hook_event;
mod import;
mod inbox;
mod transcript_reader;

use stepback_model::event::AgentEvent;
use stepback_model::record::StepContext;

pub use self::decision::{
    MESSAGE_PREFIX, record_decision, record_log_point, record_message, record_refusal,
    record_repeated_decision, record_stop,
};
pub use self::hook_event::{describe_undo, describe_undo_of_call, record_hook_event};
pub use self::import::{RecordedImport, record_import};
pub use self::inbox::{record_inbox, record_inbox_if_free, record_inbox_locked, record_notes};
pub use crate::workspace_paths::relative_call_paths;

/// Redacts secrets in an event, and escapes control characters in its summary.
pub fn redact_event(event: &mut AgentEvent) {
    for value in
        [&mut event.input, &mut event.output, &mut event.metadata, &mut event.raw].into_iter().flatten()
    {
        stepback_redact::redact_value(value);
    }
    if let Some(message) = &mut event.message {
        stepback_redact::redact_value(&mut message.content);
        for name in [&mut message.sender, &mut message.receiver].into_iter().flatten() {
            *name = stepback_redact::redact(name).into_owned();
        }
    }
    let StepContext { task, trace, span, parent_span } = &mut event.context;
    for id in [task, trace, span, parent_span].into_iter().flatten() {
        *id = stepback_redact::redact(id).into_owned();
    }
    event.summary = stepback_model::escape::safe(&stepback_redact::redact(&event.summary));
    if let Some(error) = &mut event.error {
        error.message = stepback_redact::redact(&error.message).into_owned();
        for text in [&mut error.name, &mut error.stack, &mut error.cause].into_iter().flatten() {
            *text = stepback_redact::redact(text).into_owned();
        }
    }
}
