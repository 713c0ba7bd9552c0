//! The commands `stepback export`, and `stepback import` of a bundle.

use std::fs::{self, File};
use std::io::{self, BufReader, IsTerminal, Read, Seek};
use std::path::Path;

use serde_json::json;
use stepback_bundle::{Bundle, BundleError, ExportReport, ImportReport};
use stepback_engine::Engine;
use stepback_export::SessionFileFormat;
use stepback_model::path::display_bytes;
use stepback_model::record::Session;
use stepback_store::new_file::{Durability, NewFile};

use super::{CommandResult, DONE, git_export, session_file, sessions};
use crate::args::share::{ExportArgs, ExportFormat};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// How many bytes of a file are read to detect its format.
const FORMAT_PROBE_BYTES: u64 = 64 << 10;

/// Runs `stepback export`.
pub fn export(context: &Context, arguments: &ExportArgs) -> CommandResult {
    if let Some(branch) = &arguments.into_git.git {
        return match arguments.sessions.as_slice() {
            [] => git_export::export_to_branch(context, None, branch, arguments),
            [session] => git_export::export_to_branch(context, Some(session), branch, arguments),
            _ => Err(CommandFailure::new(FailureKind::Usage, "--git takes one session")
                .with_hint("export each session to a branch of its own")),
        };
    }
    let engine = context.engine();
    let format = match StoreFormat::of(arguments.chosen_format()) {
        Ok(format) => format,
        Err(format) => return session_file::export(context, arguments, format),
    };
    let chosen = match arguments.sessions.as_slice() {
        [] => vec![sessions::find(context, None)?.1],
        named => {
            let find = |text: &String| Ok(sessions::find(context, Some(text))?.1);
            named.iter().map(find).collect::<Result<Vec<_>, CommandFailure>>()?
        }
    };
    if arguments.output == Path::new("-") {
        let stdout = io::stdout();
        if stdout.is_terminal() && format == StoreFormat::Bundle {
            return Err(CommandFailure::new(
                FailureKind::Usage,
                "a bundle is binary and cannot be written to a terminal",
            )
            .with_hint("write it to a file with -o FILE, or use --format jsonl"));
        }
        if context.json {
            return Err(CommandFailure::new(FailureKind::Usage, "--json requires -o FILE"));
        }
        write_export(engine, format, &chosen, stdout.lock())?;
        return DONE;
    }
    let path = context.directory.join(&arguments.output);
    let exported =
        write_atomically(&path, arguments.force, |file| write_export(engine, format, &chosen, file))?;
    let bytes = fs::metadata(&path).map_or(0, |metadata| metadata.len());
    if context.json {
        output::print_document(&json!({ "file": path, "bytes": bytes, "exported": exported }));
        return DONE;
    }
    output::print_line(format!(
        "Wrote {} with {} to {} ({}).",
        output::count(exported.sessions, "session"),
        output::count(exported.steps, "step"),
        path.display(),
        output::bytes(bytes)
    ));
    if format == StoreFormat::Bundle {
        let hint = "It contains the recorded files and conversations; \"stepback import FILE\" imports it.";
        output::print_status(Paint::stderr().dim(hint));
    }
    DONE
}

/// A format that holds any number of sessions and that `import` reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StoreFormat {
    Bundle,
    Jsonl,
}

impl StoreFormat {
    /// The format, or the one of files that hold a session for other programs.
    fn of(format: ExportFormat) -> Result<Self, SessionFileFormat> {
        match format {
            ExportFormat::Bundle => Ok(Self::Bundle),
            ExportFormat::Jsonl => Ok(Self::Jsonl),
            ExportFormat::Html => Err(SessionFileFormat::Html),
            ExportFormat::Atif => Err(SessionFileFormat::Atif),
            ExportFormat::AgentTrace => Err(SessionFileFormat::AgentTrace),
            ExportFormat::Har => Err(SessionFileFormat::Har),
            ExportFormat::Otlp => Err(SessionFileFormat::Otlp),
        }
    }
}

fn write_export(
    engine: &Engine,
    format: StoreFormat,
    chosen: &[Session],
    out: impl io::Write,
) -> Result<ExportReport, BundleError> {
    match format {
        StoreFormat::Bundle => stepback_bundle::export(engine, chosen, out),
        StoreFormat::Jsonl => stepback_bundle::export_lines(engine, chosen, out),
    }
}

/// Writes beside the target and renames, so that no incomplete file appears under its name. A file that exists is replaced only
/// with `force`.
pub(super) fn write_atomically<T, E>(
    path: &Path,
    force: bool,
    write: impl FnOnce(&File) -> Result<T, E>,
) -> Result<T, CommandFailure>
where
    CommandFailure: From<E>,
{
    let refused = |error: io::Error| {
        let (kind, hint) = stepback_api::failure::classify_io_error(&error);
        let failure = CommandFailure::new(kind, format!("cannot write {}: {error}", path.display()));
        match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    };
    if path.is_dir() {
        return Err(CommandFailure::new(FailureKind::Usage, format!("{} is a directory", path.display()))
            .with_hint("-o FILE"));
    }
    let exists = || {
        CommandFailure::new(FailureKind::Refused, format!("{} exists", path.display()))
            .with_hint("give another name, or --force to replace it")
    };
    if !force && path.symlink_metadata().is_ok() {
        return Err(exists());
    }
    // It contains what was recorded, files included.
    let new = NewFile::create(path, 0o600, Durability::Synced).map_err(refused)?;
    let done = write(new.file())?;
    match force {
        true => new.replace().map_err(refused)?,
        // Another process may have made the file meanwhile.
        false => new.link().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists(),
            _ => refused(error),
        })?,
    }
    Ok(done)
}

/// The format of a file.
pub enum ImportFormat {
    /// A bundle.
    Bundle(File),
    /// Lines written by `export --format jsonl`.
    Lines(File),
    /// Any other format.
    Other,
}

/// Detects the format of a file from its beginning.
pub fn detect_format(path: &Path) -> io::Result<ImportFormat> {
    if !path.is_file() {
        return Ok(ImportFormat::Other);
    }
    let mut file = File::open(path)?;
    if stepback_bundle::is_bundle(&mut file) {
        file.rewind()?;
        return Ok(ImportFormat::Bundle(file));
    }
    file.rewind()?;
    let mut start = Vec::new();
    (&file).take(FORMAT_PROBE_BYTES).read_to_end(&mut start)?;
    file.rewind()?;
    Ok(if stepback_bundle::is_json_lines_export(&start) {
        ImportFormat::Lines(file)
    } else {
        ImportFormat::Other
    })
}

/// Runs `stepback import` for a bundle.
pub fn import_bundle(context: &Context, path: &Path, file: File) -> CommandResult {
    let engine = context.engine();
    let bundle =
        Bundle::open(file, engine.progress.as_deref()).map_err(|error| bundle_failure(path, error))?;
    print_import_report(
        context,
        &stepback_bundle::import(engine, &bundle).map_err(|error| bundle_failure(path, error))?,
    )
}

/// Runs `stepback import` for lines.
pub fn import_lines(context: &Context, path: &Path, file: File) -> CommandResult {
    let engine = context.engine();
    let imported = stepback_bundle::import_lines(engine, BufReader::new(file))
        .map_err(|error| bundle_failure(path, error))?;
    if !context.json {
        output::print_status(
            Paint::stderr().dim(
                "JSON lines contain no files: the sessions can be searched and replayed, but not rewound.",
            ),
        );
    }
    print_import_report(context, &imported)
}

/// Prints what was imported.
fn print_import_report(context: &Context, imported: &ImportReport) -> CommandResult {
    let roots = context.store().workspaces()?;
    let mut items = Vec::new();
    for (session, workspace) in &imported.sessions {
        let root = roots.iter().find(|known| known.id == *workspace).map(|known| known.root.clone());
        let record = context.store().session(*session)?;
        items.push(json!({
            "id": session,
            "agent": record.map(|record| record.agent),
            "workspace": workspace,
            "root": root.map(|root| display_bytes(&root).into_owned()),
        }));
    }
    if context.json {
        output::print_document(&json!({ "items": items, "imported": imported }));
        return DONE;
    }
    let count = output::count(imported.sessions.len() as u64, "session");
    match imported.new_steps {
        0 => output::print_line(format!("Already imported: {count}.")),
        new => output::print_line(format!(
            "Imported {count} with {}, {new} of them new.",
            output::count(imported.steps, "step")
        )),
    }
    let paint = Paint::stdout();
    for (session, workspace) in &imported.sessions {
        output::print_line(format!("  {} in workspace {}", paint.name(session.short()), workspace.short()));
    }
    if let Some((session, workspace)) = imported.sessions.first() {
        output::print_status(Paint::stderr().dim(format!(
            "\"stepback replay {}\" replays it; \"stepback --workspace {} log\" lists its steps.",
            session.short(),
            workspace.short()
        )));
    }
    DONE
}

/// Adds the file's path to an error about a bundle.
fn bundle_failure(path: &Path, error: BundleError) -> CommandFailure {
    let is_about_file = !matches!(error, BundleError::NoDirectoryForGit | BundleError::Engine(_));
    let failure = CommandFailure::from(error);
    if is_about_file { failure.with_subject(&path.display().to_string()) } else { failure }
}
