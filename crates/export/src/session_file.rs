//! The formats of session files, and writing one.

use std::io::Write;

use serde::Serialize;
use stepback_engine::Workspace;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;

use crate::error::ExportError;
use crate::otlp::SessionSpans;
use crate::recording::SessionRecording;
use crate::session_steps::SessionSteps;
use crate::{agent_trace, atif, har, html};

/// A format in which one session is written as a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionFileFormat {
    /// A page to read.
    Html,
    /// A trajectory in ATIF.
    Atif,
    /// A record of Agent Trace.
    AgentTrace,
    /// An HTTP archive of the model calls.
    Har,
    /// Spans in OTLP's JSON encoding.
    Otlp,
}

/// What an export says about its making.
#[derive(Clone, Copy, Debug)]
pub struct ExportContext<'a> {
    /// The version of the program.
    pub version: &'a str,
    /// The time of the export.
    pub now: Timestamp,
}

/// What was written.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct SessionFileReport {
    /// The number of sessions: 1.
    pub sessions: u64,
    /// The number of recorded steps of the session.
    pub steps: u64,
    /// What the file has one of for each thing: items of a page, steps of a trajectory, files, model calls or spans.
    pub entries: u64,
}

impl SessionFileFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Html, Self::Atif, Self::AgentTrace, Self::Har, Self::Otlp];

    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Atif => "atif",
            Self::AgentTrace => "agent-trace",
            Self::Har => "har",
            Self::Otlp => "otlp",
        }
    }

    /// The end of a file's name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Atif => "atif.json",
            Self::AgentTrace => "agent-trace.json",
            Self::Har => "har",
            Self::Otlp => "otlp.json",
        }
    }

    /// The media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Html => "text/html; charset=utf-8",
            Self::AgentTrace => "application/vnd.agent-trace.record+json",
            Self::Atif | Self::Har | Self::Otlp => "application/json",
        }
    }

    /// What [`SessionFileReport::entries`] counts.
    pub fn entry_name(self) -> &'static str {
        match self {
            Self::Html => "item",
            Self::Atif => "step",
            Self::AgentTrace => "file",
            Self::Har => "model call",
            Self::Otlp => "span",
        }
    }
}

/// Writes a session in a format.
pub fn write_session(
    format: SessionFileFormat,
    workspace: &Workspace,
    session: &Session,
    context: ExportContext<'_>,
    mut out: impl Write,
) -> Result<SessionFileReport, ExportError> {
    let mut write = |text: &str| {
        stepback_faults::point().and_then(|()| out.write_all(text.as_bytes())).map_err(ExportError::Write)
    };
    let count = |value: &serde_json::Value| value.as_array().map_or(0, Vec::len) as u64;
    let (steps, entries) = match format {
        SessionFileFormat::Html => {
            let recording = SessionRecording::read(workspace, session, true)?;
            write(&html::render(&recording, context.now))?;
            (recording.steps, recording.items.len() as u64)
        }
        SessionFileFormat::Atif => {
            let recording = SessionRecording::read(workspace, session, false)?;
            let trajectory = atif::trajectory(&recording);
            write(&format!("{trajectory:#}\n"))?;
            (recording.steps, count(&trajectory["steps"]))
        }
        SessionFileFormat::AgentTrace => {
            let _lock = workspace.engine.block_garbage_collection()?;
            let steps = SessionSteps::load(workspace, session)?;
            let record = agent_trace::record(workspace, &steps, session, context.version)?;
            write(&format!("{record:#}\n"))?;
            (steps.rows.len() as u64, count(&record["files"]))
        }
        SessionFileFormat::Har => {
            let _lock = workspace.engine.block_garbage_collection()?;
            let steps = SessionSteps::load(workspace, session)?;
            let entries = har::write(&steps, session, context.version, &mut out)?;
            (steps.rows.len() as u64, entries)
        }
        SessionFileFormat::Otlp => {
            let (spans, steps) = session_spans(workspace, session, context)?;
            spans.write(&mut out)?;
            (steps, spans.count() as u64)
        }
    };
    out.flush().map_err(ExportError::Write)?;
    Ok(SessionFileReport { sessions: 1, steps, entries })
}

/// Returns the spans of a session, and the number of its steps.
pub fn session_spans(
    workspace: &Workspace,
    session: &Session,
    context: ExportContext<'_>,
) -> Result<(SessionSpans, u64), ExportError> {
    let recording = SessionRecording::read(workspace, session, false)?;
    let _lock = workspace.engine.block_garbage_collection()?;
    let steps = SessionSteps::load(workspace, session)?;
    Ok((SessionSpans::build(&steps, session, &recording, context.version)?, recording.steps))
}
