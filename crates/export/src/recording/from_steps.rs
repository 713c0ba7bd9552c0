//! Items from steps: the start and the end of a call become one item.

use std::collections::HashMap;

use serde_json::Value;
use stepback_engine::Workspace;
use stepback_llm_wire::Wire;
use stepback_llm_wire::recorded_call::{CallUsage, parse_answer};
use stepback_llm_wire::semantics::ContentPart;
use stepback_model::record::{StepKind, StepRow};

use super::{
    AnswerCost, AnswerPart, CallEnding, CheckpointMark, ExportedAnswer, ItemContent, RecordedItem,
    SessionEvent, ToolCallRecord,
};
use crate::error::ExportError;
use crate::file_changes::ChangeReader;
use crate::redactor::Redactor;
use crate::session_steps::SessionSteps;

/// A call of a worker.
type CallKey = (Option<String>, String);

/// Reads the items of all steps, in their order.
pub fn read_items(
    workspace: &Workspace,
    steps: &SessionSteps<'_>,
    with_changes: bool,
) -> Result<Vec<RecordedItem>, ExportError> {
    let mut reader = ItemReader {
        steps,
        changes: ChangeReader::new(workspace, steps.redactor()),
        items: Vec::with_capacity(steps.rows.len()),
        open: HashMap::new(),
    };
    for row in &steps.rows {
        let index = reader.add_step(row)?;
        let redactor = steps.redactor();
        if let Some(trigger) = row.trigger {
            let item = &mut reader.items[index];
            item.checkpoint = Some(CheckpointMark {
                step: row.step.number,
                trigger,
                label: row.annotation.label.as_deref().map(|label| redactor.text(label)),
                purged: row.purged,
            });
        }
        if with_changes {
            let changes = reader.changes.read(row)?;
            reader.items[index].changes.extend(changes);
        }
    }
    Ok(reader.items)
}

struct ItemReader<'a, 'w> {
    steps: &'a SessionSteps<'w>,
    changes: ChangeReader<'w>,
    items: Vec<RecordedItem>,
    /// The items of calls that have not ended.
    open: HashMap<CallKey, usize>,
}

impl ItemReader<'_, '_> {
    /// Adds a step and returns the index of its item.
    fn add_step(&mut self, row: &StepRow) -> Result<usize, ExportError> {
        let step = &row.step;
        let key = step.meta.call.clone().map(|call| (step.meta.worker.clone(), call));
        let redactor = self.steps.redactor();
        match step.kind {
            StepKind::ToolStart => {
                let call = read_call_start(row, &self.steps.detail(row)?, redactor);
                Ok(self.push_start(row, ItemContent::Call(Box::new(call)), key))
            }
            StepKind::ToolEnd => {
                let detail = self.steps.detail(row)?;
                let index = match key.and_then(|key| self.open.remove(&key)) {
                    Some(index) if matches!(self.items[index].content, ItemContent::Call(_)) => index,
                    _ => self.push(row, ItemContent::Call(Box::new(read_call_start(row, &detail, redactor)))),
                };
                let item = &mut self.items[index];
                if item.step != Some(step.number) {
                    item.end_step = Some(step.number);
                }
                if let ItemContent::Call(call) = &mut item.content {
                    end_call(call, row, &detail, redactor);
                }
                Ok(index)
            }
            StepKind::ModelStart => {
                let model = step.meta.tool.as_deref().map(|model| redactor.text(model));
                let answer = ExportedAnswer { model, is_open: true, ..ExportedAnswer::default() };
                Ok(self.push_start(row, ItemContent::Answer(answer), key))
            }
            StepKind::ModelEnd => {
                let started = key.and_then(|key| self.open.remove(&key));
                let wire = match started {
                    Some(index) => self.wire_of(index)?,
                    None => None,
                };
                let answer = read_answer(row, &self.steps.detail(row)?, wire, redactor);
                let started =
                    started.filter(|index| matches!(self.items[*index].content, ItemContent::Answer(_)));
                match started {
                    Some(index) => {
                        let item = &mut self.items[index];
                        item.end_step = Some(step.number);
                        item.content = ItemContent::Answer(answer);
                        Ok(index)
                    }
                    None => Ok(self.push(row, ItemContent::Answer(answer))),
                }
            }
            StepKind::UserInput => {
                let text = prompt_text(&self.steps.detail(row)?);
                let text = text.unwrap_or_else(|| redactor.text(&step.summary));
                Ok(self.push(row, ItemContent::Prompt(text)))
            }
            _ => {
                let event = read_event(row, &self.steps.detail(row)?, redactor);
                Ok(self.push(row, ItemContent::Event(event)))
            }
        }
    }

    fn push(&mut self, row: &StepRow, content: ItemContent) -> usize {
        let step = &row.step;
        self.items.push(RecordedItem {
            step: Some(step.number),
            iteration: step.meta.iteration,
            worker: step.meta.worker.clone(),
            ..RecordedItem::new(content, Some(step.at))
        });
        self.items.len() - 1
    }

    fn push_start(&mut self, row: &StepRow, content: ItemContent, key: Option<CallKey>) -> usize {
        let index = self.push(row, content);
        if let Some(key) = key {
            self.open.insert(key, index);
        }
        index
    }

    /// The wire of the request that an item began with.
    fn wire_of(&self, index: usize) -> Result<Option<Wire>, ExportError> {
        let number = self.items[index].step;
        let rows = &self.steps.rows;
        let at = rows.partition_point(|row| Some(row.step.number) < number);
        let Some(row) = rows.get(at) else { return Ok(None) };
        let wire = self.steps.detail_part(row, "/input/wire")?;
        Ok(serde_json::from_value(wire).ok())
    }
}

fn read_call_start(row: &StepRow, detail: &Value, redactor: Redactor<'_>) -> ToolCallRecord {
    ToolCallRecord {
        id: row.step.meta.call.clone(),
        tool: row.step.meta.tool.as_deref().map_or_else(|| "call".to_owned(), |tool| redactor.text(tool)),
        summary: redactor.text(&row.step.summary),
        input: detail.get("input").cloned().unwrap_or_default(),
        cut_from: (cut_from(detail, "input"), None),
        ..ToolCallRecord::default()
    }
}

/// Adds what the end of a call says.
fn end_call(call: &mut ToolCallRecord, row: &StepRow, detail: &Value, redactor: Redactor<'_>) {
    let step = &row.step;
    call.output = detail.get("output").cloned().unwrap_or_default();
    call.cut_from.1 = cut_from(detail, "output");
    if call.input.is_null() {
        call.input = detail.get("input").cloned().unwrap_or_default();
    }
    call.error = detail.get("error").and_then(error_text);
    call.status = if step.is_error() { CallEnding::Failed } else { CallEnding::Done };
    if call.status == CallEnding::Failed && call.error.is_none() && call.output.is_null() {
        call.error = Some(redactor.text(&step.summary));
    }
    call.duration = step.meta.duration;
    call.ended_at = Some(step.at);
}

/// The size in bytes of an input or output before the recorder cut it.
fn cut_from(detail: &Value, part: &str) -> Option<u64> {
    detail.get("truncated")?.get(part)?.get("bytes")?.as_u64()
}

/// The message of a reported error, with its name.
fn error_text(error: &Value) -> Option<String> {
    let text = |name: &str| error.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    match (text("name"), text("message")) {
        (Some(name), Some(message)) if !message.starts_with(name) => Some(format!("{name}: {message}")),
        (_, Some(message)) => Some(message.to_owned()),
        (Some(name), None) => Some(name.to_owned()),
        (None, None) => match error {
            Value::Null => None,
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        },
    }
}

fn read_answer(row: &StepRow, detail: &Value, wire: Option<Wire>, redactor: Redactor<'_>) -> ExportedAnswer {
    let mut answer = ExportedAnswer {
        model: row.step.meta.tool.as_deref().map(|model| redactor.text(model)),
        duration: row.step.meta.duration,
        error: detail.get("error").and_then(error_text),
        ..ExportedAnswer::default()
    };
    if let Some(usage) = CallUsage::of(detail) {
        answer.usage = usage.tokens;
        answer.replayed = usage.replayed;
        answer.model = usage.model.or(answer.model);
        let micros = usage.cost_usd.filter(|cost| cost.is_finite() && *cost >= 0.0);
        answer.cost = micros.map(|cost| AnswerCost::Recorded((cost * 1e6).round() as u64));
    }
    let output = detail.get("output").unwrap_or(&Value::Null);
    match parse_answer(output, wire) {
        Some(said) => {
            for part in said.content {
                match part {
                    ContentPart::Model(text) => push_part(&mut answer.parts, AnswerPart::Text(text)),
                    ContentPart::Thought(text) => push_part(&mut answer.parts, AnswerPart::Thought(text)),
                    ContentPart::Call(call) => answer.calls.extend(call.id),
                    ContentPart::User(_) | ContentPart::System(_) | ContentPart::Result { .. } => {}
                }
            }
            answer.error = answer.error.or(said.error);
        }
        None => {
            if let Some(text) = plain_text(output) {
                push_part(&mut answer.parts, AnswerPart::Text(text));
            }
        }
    }
    answer
}

/// Adds a part unless it is empty.
pub fn push_part(parts: &mut Vec<AnswerPart>, part: AnswerPart) {
    let (AnswerPart::Text(text) | AnswerPart::Thought(text)) = &part;
    if !text.trim().is_empty() {
        parts.push(part);
    }
}

fn prompt_text(detail: &Value) -> Option<String> {
    let input = detail.get("input")?;
    let said = input.get("prompt").unwrap_or(input);
    plain_text(said).or_else(|| (!said.is_null()).then(|| said.to_string()))
}

fn read_event(row: &StepRow, detail: &Value, redactor: Redactor<'_>) -> SessionEvent {
    let step = &row.step;
    let error = detail.get("error").and_then(error_text);
    let output = detail.get("output").and_then(plain_text);
    let message = detail.pointer("/message/content").and_then(plain_text);
    let summary = redactor.text(&step.summary);
    let text = error.or(message).or(output).filter(|text| *text != summary);
    SessionEvent { kind: step.kind, summary, text, is_error: step.is_error() }
}

/// The text of a value that is one, or a list of parts with text.
pub fn plain_text(value: &Value) -> Option<String> {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part.as_str().or_else(|| part.get("text")?.as_str()));
            texts.collect::<Vec<_>>().join("\n")
        }
        Value::Object(fields) => match fields.get("text").or_else(|| fields.get("content")) {
            Some(inner) if fields.len() <= 3 => return plain_text(inner),
            _ => return None,
        },
        _ => return None,
    };
    (!text.trim().is_empty()).then_some(text)
}
