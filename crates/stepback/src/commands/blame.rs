//! The command `stepback blame`: where each line of a file comes from.

use std::ops::RangeInclusive;

use serde_json::json;
use stepback_api::blame::{BlameDocument, LineAuthorDocument, LineOriginDocument};
use stepback_model::clip;
use stepback_model::escape::safe;
use stepback_model::path::RelPath;
use stepback_provenance::blame::{self as lines, parse_lines};
use stepback_provenance::{BlameRequest, WalkLimits, add_commits, blame_document};

use super::{CommandResult, DONE};
use crate::args::find::BlameArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The width of the column with the author.
const AUTHOR_CHARS: usize = 30;
/// How much of the id of a commit is shown.
const COMMIT_CHARS: usize = 10;
/// The width of the column with the prompt.
const PROMPT_CHARS: usize = 28;

/// Runs `stepback blame`.
pub fn blame(context: &Context, arguments: &BlameArgs) -> CommandResult {
    let workspace = context.open_workspace()?;
    let (file, range) = split_file(&arguments.file);
    let path = context.to_workspace_path(&workspace, file);
    let path = RelPath::parse(path.as_str()).map_err(|error| {
        CommandFailure::new(FailureKind::Usage, format!("{file}: {error}"))
            .with_hint("use a path inside the workspace")
    })?;
    let at = arguments.at.as_ref().map(|point| context.resolve(&workspace, point)).transpose()?;
    let mut found = lines::blame(&workspace, &BlameRequest { path, at, lines: range })?;
    if !arguments.no_git {
        add_commits(&workspace, &mut found, WalkLimits::default())?;
    }
    let document = blame_document(&workspace, &found)?;
    if context.json {
        output::print_document(&json!(document));
    } else if arguments.porcelain {
        print_porcelain(&document);
    } else {
        print_lines(context, &document);
    }
    DONE
}

/// Splits `FILE:LINE[,LINE]`. A file whose name ends like that is meant if it exists.
fn split_file(text: &str) -> (&str, Option<RangeInclusive<usize>>) {
    if std::path::Path::new(text).symlink_metadata().is_ok() {
        return (text, None);
    }
    let split = text.rsplit_once(':').and_then(|(file, range)| Some((file, parse_lines(range)?)));
    split.map_or((text, None), |(file, range)| (file, Some(range)))
}

fn print_lines(context: &Context, document: &BlameDocument) {
    let paint = Paint::stdout();
    let now = context.now();
    let width = document.count.to_string().len();
    let mut before = None;
    for line in &document.lines {
        let origin = &document.origins[usize::try_from(line.origin).unwrap_or_default()];
        // An origin is shown where it begins.
        let is_new = before != Some(line.origin);
        before = Some(line.origin);
        let step = origin.step.map_or_else(|| "now".to_owned(), |step| format!("#{step}"));
        let (author, prompt) = if is_new {
            (describe_author(origin), prompt_of(origin))
        } else {
            (String::new(), String::new())
        };
        let at = origin.commit.as_ref().map_or(origin.at, |commit| commit.at);
        let age = if is_new && origin.step.is_some() { at.ago(now) } else { String::new() };
        output::print_line(format!(
            "{:>6} {}  {}  {}  {:>width$}  {}",
            paint.strong(step),
            paint.name(pad(&author, AUTHOR_CHARS)),
            paint.dim(pad(&prompt, PROMPT_CHARS)),
            paint.dim(format!("{age:>14}")),
            paint.dim(line.number.to_string()),
            safe(&line.text),
        ));
    }
}

/// The author in a few words: the agent, its session, the tool.
fn describe_author(origin: &LineOriginDocument) -> String {
    let call = |author: &LineAuthorDocument| {
        let session: String = author.session.chars().take(8).collect();
        let mark = if origin.basis == "inferred" { "~" } else { "" };
        let tool = author.tool.as_deref().unwrap_or("call");
        format!("{mark}{} {session} {tool}", author.agent)
    };
    if let Some(commit) = &origin.commit {
        // As git marks a commit at which its search ended.
        let mark = if commit.or_older.is_some() { "^" } else { "" };
        let id: String = commit.id.chars().take(COMMIT_CHARS).collect();
        return format!("{mark}{id} {}", commit.author);
    }
    match (origin.kind.as_str(), &origin.author, origin.candidates.first()) {
        (_, Some(author), _) => call(author),
        (_, None, Some(first)) => format!("{} or another", call(first)),
        ("before-recording", ..) => "before the recording".to_owned(),
        ("restored", ..) => "brought back".to_owned(),
        ("not-recorded", ..) => "you, not recorded yet".to_owned(),
        _ => "you".to_owned(),
    }
}

fn prompt_of(origin: &LineOriginDocument) -> String {
    if let Some(commit) = &origin.commit {
        return commit.subject.clone();
    }
    let text = origin.author.as_ref().and_then(|author| author.prompt_text.as_deref());
    text.map(|text| format!("\"{text}\"")).unwrap_or_default()
}

/// A text in a column.
fn pad(text: &str, width: usize) -> String {
    format!("{:<width$}", clip::first(&safe(text).to_string(), width))
}

/// Prints each line as a record of fields, then the line after a tab.
fn print_porcelain(document: &BlameDocument) {
    for line in &document.lines {
        let origin = &document.origins[usize::try_from(line.origin).unwrap_or_default()];
        let step = origin.step.map_or_else(|| "-".to_owned(), |step| step.to_string());
        output::print_line(format!("{step} {} {}", line.original, line.number));
        let field = |name: &str, value: &str| output::print_line(format!("{name} {}", safe(value)));
        field("kind", &origin.kind);
        field("basis", &origin.basis);
        field("time", &origin.at.to_string());
        field("filename", &origin.path);
        if let Some(author) = &origin.author {
            field("session", &author.session);
            field("agent", &author.agent);
            let number = |number: Option<u64>| number.map(|number| number.to_string());
            let fields = [
                ("tool", author.tool.clone()),
                ("call", number(author.call)),
                ("turn", number(author.turn)),
                ("model", number(author.model)),
                ("prompt", number(author.prompt)),
                ("summary", author.prompt_text.clone()),
            ];
            for (name, value) in fields {
                if let Some(value) = value {
                    field(name, &value);
                }
            }
        }
        if let Some(commit) = &origin.commit {
            field("commit", &commit.id);
            field("commit-author", &commit.author);
            field("commit-mail", &commit.email);
            field("commit-time", &commit.at.to_string());
            field("commit-subject", &commit.subject);
            field("commit-filename", &commit.path);
            if let Some(reason) = &commit.or_older {
                field("commit-or-older", reason);
            }
        }
        for (name, step) in [("formatted", line.formatted), ("moved", line.moved)] {
            if let Some(step) = step {
                field(name, &step.to_string());
            }
        }
        output::print_line(format!("\t{}", safe(&line.text)));
    }
}
