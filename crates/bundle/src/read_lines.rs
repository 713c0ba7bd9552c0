//! Imports sessions from lines of JSON: their steps and conversation, without files.
//!
//! Such an export contains the input and output of every step and the conversation. The imported sessions can be listed,
//! searched, compared and replayed, but there are no files to rewind to. As with a bundle, nothing is imported from a file
//! that is truncated or inconsistent.

use std::collections::HashMap;
use std::io::{BufRead, Read};
use std::sync::atomic::Ordering;

use serde_json::Value;
use stepback_engine::Engine;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::SessionId;
use stepback_model::json::{self as stored_json, JsonError};
use stepback_model::record::StateRefs;
use stepback_model::state::WorkspaceState;
use stepback_model::{conversation, json::ValueRoot};
use stepback_store::ObjectBatch;

use crate::error::BundleError;
use crate::import::ImportReport;
use crate::lines::{FORMAT, VERSION};
use crate::records::{ExportedStep, Record, WorkspaceLog};
use crate::{check, import};

/// Maximum length of a line, in bytes: the texts of a step are cut when it is recorded, and a message is at most one answer
/// of a model.
const MAX_LINE_BYTES: u64 = 64 << 20;

/// Imports everything in exported lines that the store does not have, or nothing.
pub fn import_lines(engine: &Engine, lines: impl BufRead) -> Result<ImportReport, BundleError> {
    let _lock = engine.block_garbage_collection()?;
    let batch = engine.store.begin()?;
    let mut reading = LineImporter::new(&*batch)?;
    reading.read_all(lines, |_| {
        if let Some(progress) = &engine.progress {
            progress.fetch_add(1, Ordering::Relaxed);
        }
    })?;
    let logs = reading.finish()?;
    check::check_logs(&logs)?;
    let (imported, mutations) = import::plan_import(engine, &logs, import::MissingObjects::Files)?;
    if !mutations.is_empty() {
        engine.store.commit(Some(batch.finish()?), &mutations)?;
    }
    Ok(imported)
}
/// The conversation of a session so far.
#[derive(Default)]
struct MessageChain {
    tip: Option<Hash>,
    count: u64,
}

/// The state of an import: what was read so far, and the batch it is written to.
struct LineImporter<'b> {
    batch: &'b dyn ObjectBatch,
    /// The empty state that every step gets, since its files are unknown.
    state: Hash,
    logs: Vec<WorkspaceLog>,
    conversations: HashMap<SessionId, MessageChain>,
    lines: u64,
    steps: u64,
    /// Whether the end line was read.
    is_complete: bool,
}

impl<'b> LineImporter<'b> {
    fn new(batch: &'b dyn ObjectBatch) -> Result<Self, BundleError> {
        let state = batch.write(ObjectKind::State, &WorkspaceState::default().encode(), None)?;
        let (logs, conversations) = (Vec::new(), HashMap::new());
        Ok(Self { batch, state, logs, conversations, lines: 0, steps: 0, is_complete: false })
    }

    fn read_all(&mut self, mut lines: impl BufRead, mut on_line: impl FnMut(u64)) -> Result<(), BundleError> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = (&mut lines).take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut line);
            let length = read.map_err(BundleError::io("read the lines"))? as u64;
            if length == 0 {
                return Ok(());
            }
            self.lines += 1;
            if length > MAX_LINE_BYTES {
                return Err(self.line_error("it is too long"));
            }
            if !line.trim_ascii().is_empty() {
                let value =
                    serde_json::from_slice(&line).map_err(|error| self.line_error(&error.to_string()))?;
                self.add_line(value)?;
            }
            on_line(self.lines);
        }
    }

    /// Builds an error about the line that was read last.
    fn line_error(&self, why: &str) -> BundleError {
        BundleError::Inconsistent(format!("line {}: {why}", self.lines))
    }

    fn add_line(&mut self, mut line: Value) -> Result<(), BundleError> {
        if self.is_complete {
            return Err(self.line_error("there is data after the last line"));
        }
        let record = line["record"].as_str().unwrap_or_default().to_owned();
        match (self.lines, record.as_str()) {
            (1, "export") if line["format"] == FORMAT => {
                let version = line["version"].as_u64().unwrap_or(u64::MAX);
                match u32::try_from(version) {
                    Ok(known) if known <= VERSION => Ok(()),
                    other_version => {
                        let other_version = other_version.unwrap_or(u32::MAX);
                        Err(BundleError::Newer { found: other_version, known: VERSION })
                    }
                }
            }
            (1, _) => Err(BundleError::NotABundle),
            (_, "step") => {
                let detail = line.get_mut("detail").map(Value::take).unwrap_or_default();
                let moment = self.parse_record(line)?;
                self.add_step(moment, &detail)
            }
            (_, "workspace" | "session") => match self.parse_record(line)? {
                Record::Workspace(workspace) => {
                    self.logs.push(WorkspaceLog {
                        workspace,
                        sessions: Vec::new(),
                        steps: Vec::new(),
                        operations: Vec::new(),
                        references: Vec::new(),
                    });
                    Ok(())
                }
                Record::Session(mut session) => {
                    // The file does not contain what these refer to.
                    (session.info.slots, session.info.tip) = (StateRefs::default(), None);
                    self.current_log()?.sessions.push(session);
                    Ok(())
                }
                _ => Ok(()),
            },
            (_, "message") => self.add_message(&line),
            (_, "end") => {
                self.is_complete = line["lines"] == self.lines && line["steps"] == self.steps;
                match self.is_complete {
                    true => Ok(()),
                    false => Err(BundleError::Damaged("lines are missing".into())),
                }
            }
            // Operations and references, which concern files that are missing here, and records that later versions add.
            _ => Ok(()),
        }
    }

    fn parse_record(&self, line: Value) -> Result<Record, BundleError> {
        serde_json::from_value(line).map_err(|error| self.line_error(&error.to_string()))
    }

    fn current_log(&mut self) -> Result<&mut WorkspaceLog, BundleError> {
        let missing_workspace = self.line_error("it comes before its workspace");
        self.logs.last_mut().ok_or(missing_workspace)
    }

    fn add_step(&mut self, record: Record, detail: &Value) -> Result<(), BundleError> {
        let Record::Step(mut moment) = record else { return Ok(()) };
        moment.step.meta.detail = match detail {
            Value::Null => None,
            value => {
                Some(ValueRoot::from(stored_json::store(self.batch, value, None).map_err(
                    |error| match error {
                        JsonError::Object(error) => error.into(),
                        error => self.line_error(&error.to_string()),
                    },
                )?))
            }
        };
        // A checkpoint stays marked as one although its files are missing. No other step had files of its own.
        let ExportedStep { step, trigger, purged, .. } = &mut moment;
        *purged = trigger.is_some();
        if trigger.is_none() {
            step.state = self.state;
        }
        self.steps += 1;
        self.current_log()?.steps.push(moment);
        Ok(())
    }

    fn add_message(&mut self, line: &Value) -> Result<(), BundleError> {
        let session: SessionId = serde_json::from_value(line["session"].clone())
            .map_err(|error| self.line_error(&error.to_string()))?;
        let text = match &line["message"] {
            Value::String(text) => text.clone(),
            message => message.to_string(),
        };
        let conversation = self.conversations.entry(session).or_default();
        if line["index"] != conversation.count + 1 {
            return Err(self.line_error("messages are missing before it"));
        }
        conversation.tip =
            conversation::append(self.batch, conversation.tip, conversation.count, [text.as_str()])?;
        conversation.count += 1;
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<WorkspaceLog>, BundleError> {
        if !self.is_complete {
            return Err(BundleError::Damaged("it is truncated: the last line is missing".into()));
        }
        if self.logs.is_empty() {
            return Err(BundleError::inconsistent("it contains no session"));
        }
        for session in self.logs.iter_mut().flat_map(|log| &mut log.sessions) {
            session.info.tip = self.conversations.get(&session.id).and_then(|conversation| conversation.tip);
        }
        Ok(self.logs)
    }
}
