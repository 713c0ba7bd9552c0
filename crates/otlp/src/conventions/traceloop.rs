//! OpenLLMetry (Traceloop): `traceloop.span.kind` for everything around model calls, GenAI attributes for the calls
//! themselves.

use super::{SpanReading, SpanRole};
use crate::langchain;
use crate::telemetry::Span;

/// Reads a span, or adds to the reading of its GenAI attributes.
pub fn read(span: &mut Span, genai_reading: Option<SpanReading>) -> Option<SpanReading> {
    let attributes = &mut span.attributes;
    let kind = attributes.take_text(&["traceloop.span.kind"]);
    let role = kind.as_deref().map(|kind| match kind {
        "tool" => SpanRole::Tool,
        "agent" => SpanRole::Agent,
        _ => SpanRole::Task,
    });
    let mut reading = match (genai_reading, role) {
        (Some(genai_reading), _) => genai_reading,
        (None, Some(role)) => SpanReading::new(role, "traceloop"),
        // Neither a span of this convention nor one that another convention read.
        (None, None) => return None,
    };
    let name = attributes.take_text(&["traceloop.entity.name"]);
    let workflow = attributes.text(&["traceloop.workflow.name"]);
    if reading.role != SpanRole::Model {
        reading.name = reading.name.or(name).or(workflow.filter(|_| kind.as_deref() == Some("workflow")));
        let input = attributes.take_document(&["traceloop.entity.input"]);
        let output = attributes.take_document(&["traceloop.entity.output"]);
        if let Some(input) = reading.input.take().or(input) {
            let (inner, rest) = langchain::input(input);
            reading.input = Some(inner);
            rest.into_iter().for_each(|rest| attributes.put_back("traceloop.entity.input", rest));
        }
        if let Some(output) = reading.output.take().or(output) {
            let (inner, rest) = langchain::output(output);
            rest.into_iter().for_each(|rest| attributes.put_back("traceloop.entity.output", rest));
            let inner = langchain::tool_output(inner);
            reading.call = reading.call.or(inner.call);
            reading.failed |= inner.failed;
            reading.output = Some(inner.content);
        }
    }
    Some(reading)
}
