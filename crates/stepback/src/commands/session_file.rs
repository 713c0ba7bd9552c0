//! The command `stepback export` in the formats that hold one session for people or for other programs.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::Path;

use serde_json::json;
use stepback_engine::Workspace;
use stepback_export::otlp_sender::{MAX_BYTES, MAX_SPANS, OtlpEndpoint};
use stepback_export::session_file::session_spans;
use stepback_export::{ExportContext, ExportError, SessionFileFormat, SessionFileReport, write_session};
use stepback_model::record::Session;

use super::{CommandResult, DONE, sessions, share};
use crate::args::share::ExportArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Headers for receivers, by the name that OpenTelemetry gives them.
const HEADERS: &str = "OTEL_EXPORTER_OTLP_HEADERS";

/// Runs `stepback export` for one of these formats.
pub fn export(context: &Context, arguments: &ExportArgs, format: SessionFileFormat) -> CommandResult {
    let (workspace, session) = match arguments.sessions.as_slice() {
        [] => sessions::find(context, None)?,
        [one] => sessions::find(context, Some(one))?,
        _ => {
            let reason = format!("--{} exports one session", format.as_str());
            return Err(CommandFailure::new(FailureKind::Usage, reason)
                .with_hint("run it once for each session; bundles and lines of JSON hold several"));
        }
    };
    let output = arguments.chosen_output();
    if let Some(url) = output.to_str().filter(|text| OtlpEndpoint::is_address(text)) {
        return match format {
            SessionFileFormat::Otlp => send(context, &workspace, &session, url),
            _ => Err(CommandFailure::new(FailureKind::Usage, "only --otlp sends to an address")
                .with_hint("give the name of a file with -o FILE")),
        };
    }
    let version = export_context(context);
    if output == Path::new("-") {
        let stdout = io::stdout();
        if stdout.is_terminal() && format == SessionFileFormat::Html {
            return Err(CommandFailure::new(FailureKind::Usage, "a page is not for a terminal")
                .with_hint("write it to a file with -o FILE, and open that in a browser"));
        }
        if context.json {
            return Err(CommandFailure::new(FailureKind::Usage, "--json requires -o FILE"));
        }
        write_session(format, &workspace, &session, version, BufWriter::new(stdout.lock()))?;
        return DONE;
    }
    let path = context.directory.join(output);
    let report = share::write_atomically(&path, arguments.force, |file| {
        let mut out = BufWriter::new(file);
        let report = write_session(format, &workspace, &session, version, &mut out)?;
        out.flush().map_err(ExportError::Write)?;
        Ok::<_, ExportError>(report)
    })?;
    let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
    if context.json {
        output::print_document(
            &json!({ "file": path, "format": format.as_str(), "bytes": bytes, "exported": report }),
        );
        return DONE;
    }
    output::print_line(format!(
        "Wrote {} to {} ({}).",
        describe(&report, format),
        path.display(),
        output::bytes(bytes)
    ));
    if let Some(hint) = explain(format, &report) {
        output::print_status(Paint::stderr().dim(hint));
    }
    DONE
}

fn export_context(context: &Context) -> ExportContext<'static> {
    ExportContext { version: env!("CARGO_PKG_VERSION"), now: context.now() }
}

fn describe(report: &SessionFileReport, format: SessionFileFormat) -> String {
    format!(
        "1 session with {} as {}",
        output::count(report.steps, "step"),
        output::count(report.entries, format.entry_name())
    )
}

/// What a user should know about a file.
fn explain(format: SessionFileFormat, report: &SessionFileReport) -> Option<&'static str> {
    match (format, report.entries) {
        (SessionFileFormat::Har, 0) => Some(
            "No model calls were recorded as HTTP: \"stepback run -- AGENT\" and \"stepback proxy\" record them.",
        ),
        (SessionFileFormat::AgentTrace, 0) => {
            Some("No line of a file comes from this session, as far as is recorded.")
        }
        (SessionFileFormat::Html, _) => {
            Some("Anyone who gets the page can read the session. Recognised secrets were replaced.")
        }
        _ => None,
    }
}

/// Sends the spans of a session to a receiver.
fn send(context: &Context, workspace: &Workspace, session: &Session, url: &str) -> CommandResult {
    let headers = std::env::var(HEADERS).unwrap_or_default();
    let receiver = OtlpEndpoint::parse(url, &headers)?;
    let (spans, steps) = session_spans(workspace, session, export_context(context))?;
    let requests = spans.requests(MAX_SPANS, MAX_BYTES);
    let (rejected, reason) = receiver.send(requests)?;
    let report = SessionFileReport { sessions: 1, steps, entries: spans.count() as u64 };
    if context.json {
        output::print_document(
            &json!({ "format": "otlp", "sent": report, "rejected": rejected, "reason": reason }),
        );
    } else {
        output::print_line(format!("Sent {}.", describe(&report, SessionFileFormat::Otlp)));
    }
    if rejected > 0 {
        let reason = reason.map(|reason| format!(": {reason}")).unwrap_or_default();
        let message = format!("the receiver rejected {}{reason}", output::count(rejected, "span"));
        return Err(CommandFailure::new(FailureKind::Partial, message));
    }
    DONE
}
