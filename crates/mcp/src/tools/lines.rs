//! Where the lines of a file come from.

use serde_json::json;
use stepback_api::blame::{BlameDocument, LineOriginDocument};
use stepback_model::path::RelPath;
use stepback_provenance::blame::{blame, parse_lines};
use stepback_provenance::{BlameRequest, WalkLimits, add_commits, blame_document};

use super::{Args, READ_ONLY, Tool, ToolReply, first_line, point_schema, resolve_step};
use crate::schema::{any_value, array, bounded_integer, integer, object, string};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The most blocks of lines in a reply, unless more are asked for.
const USUAL_BLOCKS: usize = 60;
/// The most characters of a line.
const MAX_LINE_CHARS: usize = 160;

pub(super) fn blame_tool() -> Tool {
    Tool {
        name: "blame",
        title: "Who wrote these lines",
        description: "Where the lines of a file come from: for each block of lines the step, the session, the tool call and the prompt, or git's commit if the lines are older than the recording. Name lines to keep the reply short.",
        input: object(
            &[
                ("path", string("The file")),
                ("lines", string("Only these lines: 12, or 12,20 from the first to the last")),
                ("at", point_schema("As the file was at this point (default: now)")),
                ("limit", bounded_integer("Maximum number of blocks (default 60)", 1, 2000)),
            ],
            &["path"],
        ),
        output: object(
            &[
                ("path", string("")),
                ("count", integer("Lines of the whole file")),
                (
                    "blocks",
                    array(
                        "In order; the lines of a block have one origin",
                        object(
                            &[
                                ("first", integer("The first line")),
                                ("last", integer("The last line")),
                                ("text", string("The first line's text")),
                                (
                                    "origin",
                                    any_value("Kind, basis, rule, step, author or candidates, commit"),
                                ),
                            ],
                            &["first", "last", "origin"],
                        ),
                    ),
                ),
                ("left_out", integer("Blocks that are not listed")),
            ],
            &["path", "count", "blocks"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: list_origins,
    }
}

fn list_origins(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let text = context.relative_path(args.require_text("path")?);
    let path = RelPath::parse(text.as_str())
        .map_err(|error| ToolError::new(format!("\"{text}\" is not a path in the workspace: {error}")))?;
    let lines = match args.text("lines") {
        None => None,
        Some(lines) => Some(parse_lines(lines).ok_or_else(|| {
            ToolError::new(format!("\"{}\" names no lines", first_line(lines, 40)))
                .with_hint("use a number, or two with a comma: 12,20")
        })?),
    };
    let at = args.text("at").map(|point| resolve_step(context, point)).transpose()?;
    let mut found = blame(context.workspace, &BlameRequest { path, at, lines })?;
    add_commits(context.workspace, &mut found, WalkLimits::default())?;
    let document = blame_document(context.workspace, &found)?;
    let limit = super::page_limit(args, USUAL_BLOCKS);
    let blocks = blocks_of(&document);
    let mut lines = Vec::new();
    let mut listed = Vec::new();
    for (first, last) in blocks.iter().take(limit) {
        let (first, last) = (&document.lines[*first], &document.lines[*last]);
        let origin = &document.origins[usize::try_from(first.origin).unwrap_or_default()];
        let text = first_line(&first.text, MAX_LINE_CHARS);
        lines.push(format!("{}-{}: {}\n  {text}", first.number, last.number, describe_origin(origin)));
        listed.push(json!({ "first": first.number, "last": last.number, "text": text, "origin": origin }));
    }
    let left_out = blocks.len() - listed.len();
    if left_out > 0 {
        lines.push(format!("… {left_out} more blocks; name lines, or a larger limit"));
    }
    if lines.is_empty() {
        lines.push("The file is empty.".to_owned());
    }
    let structured = json!({
        "path": document.path, "count": document.count, "blocks": listed, "left_out": left_out,
    });
    Ok(ToolReply { text: lines.join("\n"), structured })
}

/// The first and last index of lines that follow one another and have one origin.
fn blocks_of(document: &BlameDocument) -> Vec<(usize, usize)> {
    let mut blocks: Vec<(usize, usize)> = Vec::new();
    for (index, line) in document.lines.iter().enumerate() {
        match blocks.last_mut() {
            Some((_, last)) if document.lines[*last].origin == line.origin => *last = index,
            _ => blocks.push((index, index)),
        }
    }
    blocks
}

fn describe_origin(origin: &LineOriginDocument) -> String {
    let at = origin.step.map_or_else(|| "now".to_owned(), |step| format!("#{step}"));
    if let Some(commit) = &origin.commit {
        let or_older = if commit.or_older.is_some() { " or an older one" } else { "" };
        let id: String = commit.id.chars().take(10).collect();
        return format!("commit {id}{or_older} by {}: {}", commit.author, first_line(&commit.subject, 100));
    }
    let Some(author) = origin.author.as_ref().or(origin.candidates.first()) else {
        return match origin.kind.as_str() {
            "before-recording" => format!("older than the recording (in {at})"),
            "restored" => format!("brought back at {at}"),
            _ => format!("at {at} by the user, or a program that is not recorded ({})", origin.rule),
        };
    };
    let mut text = format!(
        "at {at} by {} {} ({}), {}: {}",
        author.agent,
        author.session.chars().take(8).collect::<String>(),
        author.tool.as_deref().unwrap_or("a call"),
        origin.basis,
        origin.rule
    );
    if let Some(call) = author.call {
        text.push_str(&format!("; the call is #{call}"));
    }
    if let Some(prompt) = &author.prompt_text {
        text.push_str(&format!("; asked for by: {}", first_line(prompt, 120)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_one_origin_are_a_block() {
        let line = |number: u64, origin: u64| stepback_api::blame::BlamedLineDocument {
            number,
            origin,
            ..Default::default()
        };
        let document = BlameDocument {
            lines: vec![line(1, 0), line(2, 0), line(3, 1), line(4, 0)],
            ..BlameDocument::default()
        };
        assert_eq!(blocks_of(&document), [(0, 1), (2, 2), (3, 3)]);
        assert_eq!(blocks_of(&BlameDocument::default()), []);
    }
}
