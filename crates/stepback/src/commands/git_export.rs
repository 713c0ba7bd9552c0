//! The commands `stepback export --git` and `stepback notes`: what is recorded, in the user's git repository.

use serde_json::json;
use stepback_api::git_export::{
    CommitAuthorshipDocument, CommitNoteDocument, LeftOutPathDocument, NotesWrittenDocument,
    SessionCommitsDocument,
};
use stepback_git_export::{
    CommitGrouping, GitExportError, NotesRequest, SessionCommitsRequest, export_session, read_notes,
    write_notes,
};
use stepback_model::escape::safe;

use super::{CommandResult, DONE, sessions};
use crate::args::git::{CommitGroup, NotesCommand};
use crate::args::share::ExportArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The most commits that are listed.
const MAX_LISTED: usize = 20;
/// How much of the id of a commit is shown.
const COMMIT_CHARS: usize = 10;

/// Runs `stepback export --git`.
pub fn export_to_branch(
    context: &Context,
    session: Option<&String>,
    branch: &str,
    arguments: &ExportArgs,
) -> CommandResult {
    let (workspace, session) = sessions::find(context, session.map(String::as_str))?;
    let per = match arguments.into_git.per {
        CommitGroup::Turn => CommitGrouping::Turn,
        CommitGroup::Checkpoint => CommitGrouping::Checkpoint,
    };
    let request =
        SessionCommitsRequest { session, branch: branch.to_owned(), per, is_forced: arguments.force };
    let document = export_session(&workspace, &request)?;
    if context.json {
        output::print_document(&json!(document));
    } else {
        print_session(&document);
    }
    DONE
}

fn print_session(document: &SessionCommitsDocument) {
    let paint = Paint::stdout();
    let reference = safe(&document.reference);
    let verb = if document.changed { "Wrote" } else { "Already written:" };
    let commits = output::count(document.commits.len() as u64, "commit");
    output::print_line(format!("{verb} {commits} to {reference}."));
    let skipped = document.commits.len().saturating_sub(MAX_LISTED);
    if skipped > 0 {
        output::print_line(paint.dim(format!("  {skipped} earlier ones")));
    }
    for commit in &document.commits[skipped..] {
        let id = paint.name(shorten(&commit.id));
        output::print_line(format!("  {id} #{} {}", commit.step, safe(&commit.subject)));
    }
    if document.freed > 0 {
        let freed = output::count(document.freed, "checkpoint");
        output::print_status(format!("{freed} left out: pruning freed the files."));
    }
    print_left_out(&document.left_out, document.left_out_count);
    if document.changed {
        output::print_status(Paint::stderr().dim(format!("To undo: {}", document.undo)));
    }
}

fn print_left_out(paths: &[LeftOutPathDocument], count: u64) {
    if count == 0 {
        return;
    }
    output::print_status(format!("Left out: {}", output::count(count, "path")));
    for path in paths.iter().take(MAX_LISTED) {
        output::print_status(format!("  {} ({})", safe(&path.path), path.reason));
    }
    if count > MAX_LISTED as u64 {
        output::print_status("  … --json lists more");
    }
}

fn shorten(id: &str) -> String {
    id.chars().take(COMMIT_CHARS).collect()
}

/// Runs `stepback notes`.
pub fn notes(context: &Context, command: &NotesCommand) -> CommandResult {
    let workspace = context.open_workspace()?;
    match command {
        NotesCommand::Write(arguments) => {
            let request = NotesRequest { commits: arguments.commits.clone(), is_dry_run: arguments.dry_run };
            let document = write_notes(&workspace, &request)?;
            if context.json {
                output::print_document(&json!(document));
            } else {
                print_written(&document, arguments.dry_run);
            }
        }
        NotesCommand::Read(arguments) => {
            let document = read_notes(&workspace, &arguments.commit)?.ok_or_else(|| {
                CommandFailure::new(FailureKind::Nothing, format!("{} has no note", safe(&arguments.commit)))
                    .with_hint("\"stepback notes write\" writes one, if a session wrote lines of the commit")
            })?;
            if context.json {
                output::print_document(&json!(document));
            } else {
                print_authorship(&document);
            }
        }
    }
    DONE
}

fn print_written(document: &NotesWrittenDocument, is_dry_run: bool) {
    let paint = Paint::stdout();
    for commit in &document.commits {
        output::print_line(format!("{} {}", paint.name(shorten(&commit.commit)), describe_note(commit)));
        print_left_out(&commit.left_out, commit.left_out.len() as u64);
        if is_dry_run && let Some(note) = &commit.note {
            note.lines().for_each(|line| output::print_line(format!("  {}", safe(line))));
        }
    }
    if let Some(undo) = &document.undo {
        output::print_status(Paint::stderr().dim(format!("To undo: {undo}")));
    }
}

fn describe_note(commit: &CommitNoteDocument) -> String {
    if let Some(reason) = &commit.reason {
        return format!("{}: {}", commit.result, safe(reason));
    }
    let parts = [
        (commit.session_lines, "by sessions"),
        (commit.human_lines, "by hand"),
        (commit.foreign_lines, "noted by another program"),
        (commit.unknown_lines, "unknown"),
    ];
    let known = parts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> =
        known.map(|(count, what)| format!("{} {what}", output::count(*count, "line"))).collect();
    match counts.is_empty() {
        true => format!("{}: the commit adds no lines", commit.result),
        false => format!("{}: {}", commit.result, counts.join(", ")),
    }
}

fn print_authorship(document: &CommitAuthorshipDocument) {
    let paint = Paint::stdout();
    for range in &document.ranges {
        let lines = match range.first == range.last {
            true => range.first.to_string(),
            false => format!("{}-{}", range.first, range.last),
        };
        let who = match (range.kind.as_str(), &range.human) {
            ("human", Some(human)) => human.clone(),
            ("session", _) => {
                let agent = range.agent.as_deref().unwrap_or_default();
                let model = range.model.as_deref().map(|model| format!(" ({model})")).unwrap_or_default();
                let session = match (&range.session, &range.agent_session) {
                    (Some(session), _) => session.chars().take(8).collect(),
                    (None, agent_session) => {
                        format!("{}, not recorded here", agent_session.as_deref().unwrap_or("a session"))
                    }
                };
                format!("{agent} {session}{model}")
            }
            _ => range.key.clone(),
        };
        output::print_line(format!("{}:{lines}  {}", safe(&range.path), paint.name(safe(&who))));
    }
}

impl From<GitExportError> for CommandFailure {
    fn from(error: GitExportError) -> Self {
        let (kind, hint) = error.classify();
        let failure = Self::new(kind, error.to_string());
        match hint {
            Some(hint) => failure.with_hint(hint),
            None => failure,
        }
    }
}
