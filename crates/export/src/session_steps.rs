//! The steps of one session, and their details, redacted.

use std::sync::atomic::Ordering;

use serde_json::Value;
use stepback_engine::Workspace;
use stepback_model::json::{self, JsonError};
use stepback_model::object::ObjectError;
use stepback_model::record::{Session, StepRow};
use stepback_store::port::StepQuery;

use crate::error::ExportError;
use crate::redactor::Redactor;

/// The steps of a session, oldest first.
pub struct SessionSteps<'w> {
    workspace: &'w Workspace,
    redactor: Redactor<'w>,
    /// The steps.
    pub rows: Vec<StepRow>,
}

impl<'w> SessionSteps<'w> {
    /// Reads the log of a session.
    pub fn load(workspace: &'w Workspace, session: &Session) -> Result<Self, ExportError> {
        let query = StepQuery { session: Some(session.id), oldest_first: true, ..StepQuery::default() };
        let rows = workspace.store().steps(session.workspace, &query)?;
        Ok(Self { workspace, redactor: Redactor::new(&workspace.engine), rows })
    }

    /// The redactor of this export.
    pub fn redactor(&self) -> Redactor<'w> {
        self.redactor
    }

    /// Loads the detail of a step, redacted. `Null` if it has none, or if a purge has freed it.
    pub fn detail(&self, row: &StepRow) -> Result<Value, ExportError> {
        if let Some(progress) = &self.workspace.engine.progress {
            progress.fetch_add(1, Ordering::Relaxed);
        }
        let Some(root) = row.step.meta.detail else { return Ok(Value::Null) };
        match json::load(self.workspace.store(), root) {
            Ok(value) => Ok(self.redactor.value(value)),
            Err(error) => self.freed_or_error(row, error),
        }
    }

    /// Loads one part of the detail of a step, redacted; a request or an answer can be large.
    pub fn detail_part(&self, row: &StepRow, pointer: &str) -> Result<Value, ExportError> {
        let Some(root) = row.step.meta.detail else { return Ok(Value::Null) };
        match json::get(self.workspace.store(), root, pointer) {
            Ok(value) => Ok(value.map_or(Value::Null, |value| self.redactor.value(value))),
            Err(error) => self.freed_or_error(row, error),
        }
    }

    fn freed_or_error(&self, row: &StepRow, error: JsonError) -> Result<Value, ExportError> {
        match error {
            JsonError::Object(ObjectError::Missing { .. }) if row.purged => Ok(Value::Null),
            JsonError::Object(error) => Err(error.into()),
            error => Err(ExportError::Detail { step: row.step.number, error }),
        }
    }
}
