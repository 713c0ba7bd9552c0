//! Exports the records of sessions as lines of JSON, for other programs to read.
//!
//! These are the same records as in a bundle, in the same order, but with the content of objects written out in place: the
//! input and output of a step, the paths it changed, the conversation. File contents are not included.

use std::collections::HashMap;
use std::io::{BufWriter, Write};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};
use stepback_engine::{Engine, diff};
use stepback_model::conversation::ConversationMessage;
use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_model::json::{self as stored_json, ValueRoot};
use stepback_model::record::Session;
use stepback_model::state::WorkspaceState;

use crate::error::BundleError;
use crate::export::ExportReport;
use crate::gather;
use crate::records::{ExportedStep, Record, WorkspaceLog};

/// Name of the format, in the first line.
pub const FORMAT: &str = "stepback-jsonl";
/// The version of the format.
pub const VERSION: u32 = 1;

/// Whether a file that begins with these bytes is such an export.
pub fn is_json_lines_export(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let first: Value = serde_json::from_slice(line).unwrap_or_default();
    first["record"] == "export" && first["format"] == FORMAT
}

/// Writes `sessions` as lines of JSON.
pub fn export_lines(
    engine: &Engine,
    sessions: &[Session],
    out: impl Write,
) -> Result<ExportReport, BundleError> {
    let _lock = engine.block_garbage_collection()?;
    let mut exported = ExportReport { sessions: sessions.len() as u64, ..ExportReport::default() };
    let mut lines = JsonLineWriter { out: BufWriter::with_capacity(256 << 10, out), written: 0 };
    let ids: Vec<String> = sessions.iter().map(|session| session.id.to_string()).collect();
    lines.write(&json!({ "record": "export", "format": FORMAT, "version": VERSION, "sessions": ids }))?;
    for log in gather::collect_logs(engine, sessions)? {
        exported.steps += log.steps.len() as u64;
        exported.operations += log.operations.len() as u64;
        write_log(engine, &log, &mut lines)?;
    }
    let count = lines.written + 1;
    lines.write(&json!({ "record": "end", "lines": count, "steps": exported.steps }))?;
    lines.out.flush().map_err(BundleError::io("write the lines"))?;
    Ok(exported)
}

fn write_log(
    engine: &Engine,
    log: &WorkspaceLog,
    lines: &mut JsonLineWriter<impl Write>,
) -> Result<(), BundleError> {
    let mut files = StepFileTrees { engine, known: HashMap::new() };
    for record in log.records() {
        // Ids, times and texts always serialise.
        let mut value = serde_json::to_value(&record).unwrap_or_default();
        if let Record::Step(moment) = &record {
            value["detail"] = load_detail(engine, moment.step.meta.detail)?;
            value["changes"] = files.list_changes(moment)?;
            if let Some(progress) = &engine.progress {
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
        lines.write(&value)?;
    }
    for session in &log.sessions {
        write_messages(engine, session, lines)?;
    }
    Ok(())
}

fn load_detail(engine: &Engine, root: Option<ValueRoot>) -> Result<Value, BundleError> {
    let Some(root) = root else { return Ok(Value::Null) };
    stored_json::load(engine.store(), root).map_err(|error| match error {
        stored_json::JsonError::Object(error) => error.into(),
        error => BundleError::Value(error),
    })
}

/// Writes the conversation of a session, from its beginning. Only the hashes of the messages are in memory at once.
fn write_messages(
    engine: &Engine,
    session: &Session,
    lines: &mut JsonLineWriter<impl Write>,
) -> Result<(), BundleError> {
    let mut chain = Vec::new();
    let mut next = session.info.tip;
    while let Some(hash) = next {
        chain.push(hash);
        next = ConversationMessage::load(engine.store(), hash)?.previous;
    }
    for (index, hash) in chain.into_iter().rev().enumerate() {
        let text = ConversationMessage::load(engine.store(), hash)?.text;
        let message = serde_json::from_str(&text).unwrap_or(Value::String(text));
        lines.write(&json!({
            "record": "message", "session": session.id, "index": index + 1, "message": message,
        }))?;
    }
    Ok(())
}
struct JsonLineWriter<W: Write> {
    out: BufWriter<W>,
    written: u64,
}

impl<W: Write> JsonLineWriter<W> {
    fn write(&mut self, value: &Value) -> Result<(), BundleError> {
        self.written += 1;
        stepback_faults::point()
            .and_then(|()| writeln!(self.out, "{value}"))
            .map_err(BundleError::io("write the lines"))
    }
}

/// The file trees of steps, kept as far as later steps are compared with them.
struct StepFileTrees<'e> {
    engine: &'e Engine,
    /// The tree of each step: its own, or that of its parent.
    known: HashMap<StepId, Option<Hash>>,
}

impl StepFileTrees<'_> {
    /// Returns the paths that a step changed; empty for a step without files of its own, or without earlier files to compare
    /// with.
    fn list_changes(&mut self, moment: &ExportedStep) -> Result<Value, BundleError> {
        let parent_files = moment.step.parent.and_then(|parent| self.known.get(&parent).copied().flatten());
        if moment.purged {
            self.known.insert(moment.step.id, None);
            return Ok(json!([]));
        }
        let state = WorkspaceState::load(self.engine.store(), moment.step.state)?;
        self.known.insert(moment.step.id, state.files.or(parent_files));
        let (Some(_), Some(parent_files), Some(after)) = (moment.trigger, parent_files, state.files) else {
            return Ok(json!([]));
        };
        let [parent_files, after] = [parent_files, after]
            .map(|files| WorkspaceState { files: Some(files), ..WorkspaceState::default() });
        let changes = diff::compare_visible_files(self.engine.store(), &parent_files, &after)?;
        let changed_paths = changes.iter().map(|change| {
            json!({
                "path": change.path.to_string(),
                "change": change.kind().as_str(),
                "from": change.from.as_ref().map(ToString::to_string),
            })
        });
        Ok(changed_paths.collect())
    }
}
