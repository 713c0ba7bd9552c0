//! Messages between agents: attributes named after the parameters of KQML and FIPA ACL, and methods of the Agent2Agent
//! protocol.
//!
//! OpenTelemetry has no convention for them yet. A span or a log record is a message if it has a performative, or if it is a
//! remote call of one of A2A's methods.

use stepback_model::message::{A2A, AgentMessage, MAX_NAME_BYTES, performative};

use super::{SpanReading, SpanRole};
use crate::attributes::Attributes;
use crate::telemetry::Span;

const PERFORMATIVE: [&str; 6] = [
    "agent.message.performative",
    "message.performative",
    "kqml.performative",
    "fipa.performative",
    "acl.performative",
    "a2a.method",
];
const METHOD: [&str; 2] = ["rpc.method", "jsonrpc.method"];
const SENDER: [&str; 6] =
    ["agent.message.sender", "message.sender", "kqml.sender", "fipa.sender", "acl.sender", "a2a.sender"];
const RECEIVER: [&str; 7] = [
    "agent.message.receiver",
    "message.receiver",
    "kqml.receiver",
    "fipa.receiver",
    "acl.receiver",
    "a2a.receiver",
    "a2a.agent.name",
];
const CONTENT: [&str; 7] = [
    "agent.message.content",
    "message.content",
    "kqml.content",
    "fipa.content",
    "acl.content",
    "a2a.message",
    "input.value",
];
const ID: [&str; 5] =
    ["agent.message.id", "kqml.reply-with", "fipa.reply-with", "acl.reply-with", "a2a.message.id"];
const ANSWERS: [&str; 5] = [
    "agent.message.in_reply_to",
    "kqml.in-reply-to",
    "fipa.in-reply-to",
    "acl.in-reply-to",
    "a2a.message.reference_id",
];

/// Reads a span that is a message.
pub fn read(span: &mut Span) -> Option<SpanReading> {
    let message = take_message(&mut span.attributes)?;
    let mut reading = SpanReading::new(SpanRole::Message, "message");
    reading.error = span.attributes.take_text(&["error.type"]).filter(|kind| !kind.is_empty());
    reading.message = Some(message);
    Some(reading)
}

/// Takes a message out of attributes, if they are those of one.
pub fn take_message(attributes: &mut Attributes) -> Option<AgentMessage> {
    let short = |name: &String| !name.trim().is_empty() && name.len() <= MAX_NAME_BYTES;
    let is_method = |name: &String| A2A.iter().any(|(method, _)| method == name);
    let named = attributes.text(&PERFORMATIVE).filter(short);
    let named = named.or_else(|| attributes.text(&METHOD).filter(is_method))?;
    attributes.take_text(&PERFORMATIVE);
    Some(AgentMessage {
        sender: attributes
            .take_text(&SENDER)
            .or_else(|| attributes.text(&["gen_ai.agent.name"]))
            .filter(short),
        receiver: attributes.take_text(&RECEIVER).filter(short),
        performative: performative(&named),
        content: attributes.take_document(&CONTENT).unwrap_or_default(),
        id: attributes.take_text(&ID).filter(short),
        answers: attributes.take_text(&ANSWERS).filter(short),
    })
}
