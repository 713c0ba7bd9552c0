//! A session as spans by OpenTelemetry's conventions for generative AI, in OTLP's JSON encoding.
//!
//! The session is one trace: a span around everything, in it a span for each prompt and what followed, and in these a span for each
//! model call and tool call, and one without duration for every other step. Attributes that begin with `stepback.` say which steps
//! a span stands for, so that stepback's own receiver (`stepback_otlp::conventions::stepback`) gets the same steps back.

mod attributes;

use std::collections::HashMap;
use std::io::Write;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use stepback_llm_wire::Wire;
use stepback_llm_wire::recorded_call::{CallUsage, parse_answer};
use stepback_model::hex;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::time::Timestamp;

use self::attributes::{SpanAttributes, answer_messages, output_messages};
use crate::error::ExportError;
use crate::recording::{ItemContent, SessionRecording};
use crate::session_steps::SessionSteps;

/// The spans of a session, and what says where they come from.
pub struct SessionSpans {
    resource: Value,
    scope: Value,
    spans: Vec<Value>,
}

impl SessionSpans {
    /// Makes the spans of a session. `recording` adds the answers that only the conversation has.
    pub fn build(
        steps: &SessionSteps<'_>,
        session: &Session,
        recording: &SessionRecording,
        version: &str,
    ) -> Result<Self, ExportError> {
        let mut builder = SpanBuilder::new(steps, session);
        builder.add_steps()?;
        builder.add_conversation(recording);
        let resource = json!({ "attributes": [
            { "key": "service.name", "value": { "stringValue": session.agent } },
            { "key": "telemetry.distro.name", "value": { "stringValue": "stepback" } },
            { "key": "telemetry.distro.version", "value": { "stringValue": version } },
        ] });
        Ok(Self {
            resource,
            scope: json!({ "name": "stepback", "version": version }),
            spans: builder.finish(),
        })
    }

    /// The number of spans.
    pub fn count(&self) -> usize {
        self.spans.len()
    }

    /// An `ExportTraceServiceRequest` with some of the spans.
    fn request(&self, spans: &[Value]) -> Value {
        json!({ "resourceSpans": [{ "resource": self.resource, "scopeSpans": [{ "scope": self.scope, "spans": spans }] }] })
    }

    /// Writes all spans as one request.
    pub fn write(&self, mut out: impl Write) -> Result<(), ExportError> {
        let text = self.request(&self.spans).to_string();
        out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).map_err(ExportError::Write)
    }

    /// The spans as requests of at most this many spans and about this many bytes.
    pub fn requests(&self, max_spans: usize, max_bytes: usize) -> Vec<Vec<u8>> {
        let mut requests = Vec::new();
        let (mut start, mut size) = (0, 0);
        for (index, span) in self.spans.iter().enumerate() {
            let length = span.to_string().len();
            if index > start && (index - start >= max_spans || size + length > max_bytes) {
                requests.push(self.request(&self.spans[start..index]).to_string().into_bytes());
                (start, size) = (index, 0);
            }
            size += length;
        }
        if start < self.spans.len() {
            requests.push(self.request(&self.spans[start..]).to_string().into_bytes());
        }
        requests
    }
}

/// A prompt, and the time up to which what followed took.
struct TurnSpan {
    span: usize,
    end: i64,
}

struct SpanBuilder<'a, 'w> {
    steps: &'a SessionSteps<'w>,
    session: &'a Session,
    conversation: String,
    trace: String,
    spans: Vec<Value>,
    root_end: i64,
    turn: Option<TurnSpan>,
    /// For each prompt, when it was and its span.
    turns: Vec<(i64, String)>,
    /// The spans of calls that have not ended, with their start.
    open: HashMap<(Option<String>, String), (usize, i64)>,
}

impl<'a, 'w> SpanBuilder<'a, 'w> {
    fn new(steps: &'a SessionSteps<'w>, session: &'a Session) -> Self {
        let mut builder = Self {
            steps,
            session,
            conversation: session.info.external.clone().unwrap_or_else(|| session.id.to_string()),
            trace: hex::encode(session.id.as_bytes()),
            spans: Vec::new(),
            root_end: session.started_at.as_micros(),
            turn: None,
            turns: Vec::new(),
            open: HashMap::new(),
        };
        let mut attributes = builder.attributes("session");
        attributes.text("gen_ai.operation.name", "invoke_agent");
        attributes.text("gen_ai.agent.name", &session.agent);
        let name = format!("invoke_agent {}", session.agent);
        let start = steps.rows.iter().map(|row| row.step.at.as_micros()).min().unwrap_or(builder.root_end);
        let start = start.min(builder.root_end);
        builder.push(&builder.root_id(), None, &name, start, attributes);
        builder
    }

    fn root_id(&self) -> String {
        hex::encode(&self.session.id.as_bytes()[..8])
    }

    fn attributes(&self, shape: &str) -> SpanAttributes {
        let mut attributes = SpanAttributes::default();
        attributes.text("gen_ai.conversation.id", &self.conversation);
        attributes.text("stepback.span", shape);
        attributes
    }

    /// Adds a span without duration.
    fn push(
        &mut self,
        id: &str,
        parent: Option<&str>,
        name: &str,
        at: i64,
        attributes: SpanAttributes,
    ) -> usize {
        let mut span = json!({
            "traceId": self.trace,
            "spanId": id,
            "name": name,
            "kind": 1,
            "startTimeUnixNano": nanos(at),
            "endTimeUnixNano": nanos(at),
            "attributes": attributes.into_value(),
            "status": {},
        });
        if let Some(parent) = parent {
            span["parentSpanId"] = json!(parent);
        }
        self.spans.push(span);
        self.extend(at);
        self.spans.len() - 1
    }

    /// The session and the prompt took at least until `end`.
    fn extend(&mut self, end: i64) {
        self.root_end = self.root_end.max(end);
        if let Some(turn) = &mut self.turn {
            turn.end = turn.end.max(end);
        }
    }

    fn parent(&self) -> String {
        self.turns.last().map_or_else(|| self.root_id(), |(_, id)| id.clone())
    }

    fn add_steps(&mut self) -> Result<(), ExportError> {
        let rows = &self.steps.rows;
        for row in rows {
            let key = row.step.meta.call.clone().map(|call| (row.step.meta.worker.clone(), call));
            match (row.step.kind, key) {
                (StepKind::ToolStart | StepKind::ModelStart, Some(key)) => {
                    let span = self.start_call(row)?;
                    self.open.insert(key, (span, row.step.at.as_micros()));
                }
                (StepKind::ToolEnd | StepKind::ModelEnd, key) => {
                    let open = key.and_then(|key| self.open.remove(&key));
                    self.end_call(row, open)?;
                }
                (StepKind::UserInput, _) if row.step.meta.worker.is_none() => self.start_turn(row)?,
                _ => self.add_single(row)?,
            }
        }
        Ok(())
    }

    /// What the attributes of every span for a step say.
    fn step_attributes(&self, row: &StepRow, shape: &str) -> SpanAttributes {
        let step = &row.step;
        let mut attributes = self.attributes(shape);
        if let Some(worker) = &step.meta.worker {
            attributes.text("stepback.worker", worker);
        }
        if let Some(task) = &step.meta.context.task {
            attributes.text("gen_ai.task.id", task);
        }
        attributes
    }

    fn add_single(&mut self, row: &StepRow) -> Result<(), ExportError> {
        let (id, attributes, error) = self.read_single(row)?;
        let name = row.step.kind.as_str();
        let parent = self.parent();
        let span = self.push(&id, Some(&parent), name, row.step.at.as_micros(), attributes);
        self.finish_span(span, row, row.step.at.as_micros(), &error);
        Ok(())
    }

    fn start_turn(&mut self, row: &StepRow) -> Result<(), ExportError> {
        self.end_turn();
        let (id, mut attributes, error) = self.read_single(row)?;
        attributes.text("gen_ai.operation.name", "invoke_agent");
        attributes.text("gen_ai.agent.name", &self.session.agent);
        let detail = self.steps.detail_part(row, "/input")?;
        let prompt = detail.get("prompt").unwrap_or(&detail);
        if let Some(text) = crate::recording::plain_text(prompt) {
            attributes.document(
                "gen_ai.input.messages",
                &json!([{ "role": "user", "parts": [{ "type": "text", "content": text }] }]),
            );
        }
        let (root, at) = (self.root_id(), row.step.at.as_micros());
        let span =
            self.push(&id, Some(&root), &format!("invoke_agent {}", self.session.agent), at, attributes);
        self.finish_span(span, row, at, &error);
        self.turn = Some(TurnSpan { span, end: at });
        self.turns.push((at, id));
        Ok(())
    }

    fn end_turn(&mut self) {
        if let Some(TurnSpan { span, end }) = self.turn.take() {
            self.spans[span]["endTimeUnixNano"] = nanos(end);
        }
    }

    /// The attributes of a step that is a span of its own.
    fn read_single(&self, row: &StepRow) -> Result<(String, SpanAttributes, Value), ExportError> {
        let detail = self.steps.detail(row)?;
        let redactor = self.steps.redactor();
        let mut attributes = self.step_attributes(row, "step");
        attributes.text("stepback.step.kind", row.step.kind.as_str());
        attributes.count("stepback.step.number", row.step.number);
        attributes.text("stepback.step.summary", &redactor.text(&row.step.summary));
        attributes.stored(&detail, &["input", "output", "error", "message"]);
        if let Some(tool) = &row.step.meta.tool {
            attributes.text("stepback.tool", &redactor.text(tool));
        }
        if let Some(call) = &row.step.meta.call {
            attributes.text("stepback.call", call);
        }
        if row.is_checkpoint() {
            attributes.flag("stepback.checkpoint");
        }
        if let Some(label) = &row.annotation.label {
            attributes.text("stepback.checkpoint.label", &redactor.text(label));
        }
        Ok((step_span_id(row), attributes, detail.get("error").cloned().unwrap_or_default()))
    }

    fn start_call(&mut self, row: &StepRow) -> Result<usize, ExportError> {
        let redactor = self.steps.redactor();
        let mut attributes = self.step_attributes(row, "call");
        attributes.count("stepback.start.number", row.step.number);
        attributes.text("stepback.start.summary", &redactor.text(&row.step.summary));
        let name = self.name_call(row, &mut attributes);
        if row.step.kind == StepKind::ToolStart {
            let input = self.steps.detail_part(row, "/input")?;
            attributes.document("gen_ai.tool.call.arguments", &input);
        } else {
            let wire = self.steps.detail_part(row, "/input/wire")?;
            if let Some(provider) = serde_json::from_value(wire).ok().map(provider) {
                attributes.text("gen_ai.provider.name", provider);
            }
        }
        let parent = self.parent();
        Ok(self.push(&step_span_id(row), Some(&parent), &name, row.step.at.as_micros(), attributes))
    }

    /// Adds what a tool or a model is called, and returns the name of the span.
    fn name_call(&self, row: &StepRow, attributes: &mut SpanAttributes) -> String {
        let redactor = self.steps.redactor();
        let name = row.step.meta.tool.as_deref().map(|name| redactor.text(name));
        let call = row.step.meta.call.as_deref();
        if matches!(row.step.kind, StepKind::ToolStart | StepKind::ToolEnd) {
            let name = name.unwrap_or_else(|| "unnamed".to_owned());
            attributes.text("gen_ai.operation.name", "execute_tool");
            attributes.text("gen_ai.tool.name", &name);
            attributes.text("gen_ai.tool.type", "function");
            if let Some(call) = call {
                attributes.text("gen_ai.tool.call.id", call);
            }
            return format!("execute_tool {name}");
        }
        attributes.text("gen_ai.operation.name", "chat");
        if let Some(model) = &name {
            attributes.text("gen_ai.request.model", model);
        }
        if let Some(call) = call {
            attributes.text("stepback.call", call);
        }
        name.map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"))
    }

    fn end_call(&mut self, row: &StepRow, open: Option<(usize, i64)>) -> Result<(), ExportError> {
        let detail = self.steps.detail(row)?;
        let redactor = self.steps.redactor();
        let at = row.step.at.as_micros();
        let mut attributes = SpanAttributes::default();
        let (span, start) = match open {
            Some(open) => open,
            None => {
                let mut attributes = self.step_attributes(row, "call");
                let name = self.name_call(row, &mut attributes);
                if row.step.kind == StepKind::ToolEnd {
                    attributes
                        .document("gen_ai.tool.call.arguments", detail.get("input").unwrap_or(&Value::Null));
                }
                let took = i64::try_from(row.step.meta.duration.unwrap_or(0)).unwrap_or(0);
                let start = at.saturating_sub(took);
                let parent = self.parent();
                (self.push(&step_span_id(row), Some(&parent), &name, start, attributes), start)
            }
        };
        attributes.count("stepback.end.number", row.step.number);
        attributes.text("stepback.end.summary", &redactor.text(&row.step.summary));
        // An end may repeat the input, or have another one.
        attributes.stored(&detail, &["input", "error"]);
        if let Some(took) = row.step.meta.duration {
            attributes.count("stepback.duration_us", took);
        }
        if row.is_checkpoint() {
            attributes.flag("stepback.checkpoint");
        }
        let output = detail.get("output").unwrap_or(&Value::Null);
        match row.step.kind {
            StepKind::ToolEnd => attributes.document("gen_ai.tool.call.result", output),
            _ => {
                if let Some(usage) = CallUsage::of(&detail) {
                    attributes.usage(&usage);
                }
                let stop = detail.pointer("/metadata/stop").and_then(Value::as_str);
                if let Some(stop) = stop {
                    attributes.texts("gen_ai.response.finish_reasons", stop);
                }
                let said = parse_answer(output, None).map(|answer| answer_messages(&answer.content, stop));
                let said = said.or_else(|| Some(output_messages(output.as_str()?, stop)));
                if let Some(said) = said {
                    attributes.document("gen_ai.output.messages", &said);
                }
            }
        }
        let known = self.spans[span]["attributes"].as_array_mut();
        if let (Some(known), Value::Array(more)) = (known, attributes.into_value()) {
            known.extend(more);
        }
        self.finish_span(span, row, at.max(start), detail.get("error").unwrap_or(&Value::Null));
        Ok(())
    }

    /// Sets the end of a span, and its status.
    fn finish_span(&mut self, span: usize, row: &StepRow, end: i64, error: &Value) {
        let context = &row.step.meta.context;
        self.spans[span]["endTimeUnixNano"] = nanos(end);
        if row.step.is_error() {
            let message = error.get("message").and_then(Value::as_str).unwrap_or(row.step.summary.as_str());
            let message = self.steps.redactor().text(message);
            self.spans[span]["status"] = json!({ "code": 2, "message": message });
            let kind = error.get("name").and_then(Value::as_str).unwrap_or("_OTHER");
            let kind = json!({ "key": "error.type", "value": { "stringValue": kind } });
            if let Some(known) = self.spans[span]["attributes"].as_array_mut() {
                known.push(kind);
            }
        }
        let is_id = |text: &&String, length: usize| {
            text.len() == length
                && text.bytes().all(|byte| byte.is_ascii_hexdigit())
                && text.bytes().any(|byte| byte != b'0')
        };
        // The span that another system reported the step with.
        if let (Some(trace), Some(original)) = (
            context.trace.as_ref().filter(|text| is_id(text, 32)),
            context.span.as_ref().filter(|text| is_id(text, 16)),
        ) {
            self.spans[span]["links"] = json!([{ "traceId": trace, "spanId": original }]);
        }
        self.extend(end);
    }

    /// Adds the answers that only the conversation has.
    fn add_conversation(&mut self, recording: &SessionRecording) {
        let mut before = self.session.started_at;
        for (index, item) in recording.items.iter().enumerate() {
            if let (None, ItemContent::Answer(answer)) = (item.step, &item.content) {
                let at = item.at.unwrap_or(before);
                let mut attributes = self.attributes("conversation");
                attributes.text("gen_ai.operation.name", "chat");
                if let Some(model) = &answer.model {
                    attributes.text("gen_ai.request.model", model);
                    attributes.text("gen_ai.response.model", model);
                }
                if let Some(worker) = &item.worker {
                    attributes.text("stepback.worker", worker);
                }
                attributes.tokens(answer.usage);
                attributes.document("gen_ai.output.messages", &attributes::parts_messages(&answer.parts));
                let id = Sha256::digest(format!("{} answer {index}", self.session.id));
                let turn = self.turns.partition_point(|(start, _)| *start <= at.as_micros());
                let parent =
                    turn.checked_sub(1).map_or_else(|| self.root_id(), |turn| self.turns[turn].1.clone());
                let name =
                    answer.model.as_ref().map_or_else(|| "chat".to_owned(), |model| format!("chat {model}"));
                self.push(&hex::encode(&id[..8]), Some(&parent), &name, at.as_micros(), attributes);
            }
            before = item.at.unwrap_or(before);
        }
    }

    fn finish(mut self) -> Vec<Value> {
        self.end_turn();
        if let Some(root) = self.spans.first_mut() {
            root["endTimeUnixNano"] = nanos(self.root_end);
        }
        self.spans
    }
}

/// The id of the span that begins with a step: the first half of the step's own.
fn step_span_id(row: &StepRow) -> String {
    hex::encode(&row.step.id.as_bytes()[..8])
}

/// The provider whose API a wire is.
fn provider(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => "anthropic",
        Wire::Chat | Wire::Responses => "openai",
        Wire::Gemini => "gcp.gemini",
    }
}

/// A time as OTLP writes it: nanoseconds in a text. Before 1970 there is none.
fn nanos(micros: i64) -> Value {
    let micros = u64::try_from(Timestamp::from_micros(micros).as_micros()).unwrap_or(0);
    json!(micros.saturating_mul(1000).to_string())
}
