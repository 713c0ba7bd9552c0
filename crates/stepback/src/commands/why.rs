//! The command `stepback why`: the chain that led to something, and what the model had seen that has its words.

use jiff::tz::TimeZone;
use serde_json::json;
use stepback_api::why::{
    WhyDocument, WhyEdgeDocument, WhyExplanationDocument, WhyNodeDocument, WhySourceDocument,
};
use stepback_model::clip;
use stepback_model::escape::safe;
use stepback_provenance::why::{self as origin, TargetContext, dot};

use super::why_without::without;
use super::{CommandResult, DONE};
use crate::args::why::WhyArgs;
use crate::context::Context;
use crate::output::{self, Paint};

/// The most lines of a text that are printed, and the most characters of each.
const MAX_LINES: usize = 4;
const MAX_LINE_CHARS: usize = 120;
/// The most words without origin that are printed.
const MAX_WORDS: usize = 10;

/// Runs `stepback why`.
pub fn why(context: &Context, arguments: &WhyArgs) -> CommandResult {
    let workspace = context.open_workspace()?;
    let session = arguments.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
    let target = origin::parse_target(
        &workspace,
        &arguments.target,
        &TargetContext {
            now: context.now(),
            zone: &TimeZone::system,
            to_path: &|path| context.to_workspace_path(&workspace, path),
            session,
            at: arguments.at.as_deref(),
        },
    )?;
    if let Some(source) = arguments.without {
        return without(context, &workspace, &target, arguments, source);
    }
    let document = origin::explain(&workspace, &target, &arguments.target)?;
    if context.json {
        output::print_document(&json!(document));
    } else if arguments.graph {
        output::write_raw(dot::render(&document).as_bytes());
    } else {
        print_answer(&document);
    }
    DONE
}

fn print_answer(document: &WhyDocument) {
    let paint = Paint::stdout();
    if let Some(node) = find_node(document, &document.target.node) {
        output::print_line(paint.strong(safe(&node.title)));
    }
    for (index, explanation) in document.explanations.iter().enumerate() {
        if index > 0 {
            output::print_line("");
        }
        print_chain(document, explanation);
        print_sources(document, explanation);
        print_words(explanation);
        print_items(document, explanation);
    }
    for note in &document.notes {
        output::print_line(paint.dim(format!("Note: {}", safe(note))));
    }
}

fn find_node<'d>(document: &'d WhyDocument, id: &str) -> Option<&'d WhyNodeDocument> {
    document.nodes.iter().find(|node| node.id == id)
}

/// Prints the chain from the thing itself back to the prompt.
fn print_chain(document: &WhyDocument, explanation: &WhyExplanationDocument) {
    let paint = Paint::stdout();
    let mut before: Option<&str> = None;
    for id in &explanation.chain {
        let Some(node) = find_node(document, id) else { continue };
        let link = before
            .and_then(|before| document.edges.iter().find(|edge| edge.from == before && edge.to == *id));
        before = Some(id);
        if *id == document.target.node && node.kind != "call" && node.kind != "model-turn" {
            print_text(node.text.as_deref(), "    ");
            continue;
        }
        let step = node.step.map(|step| format!(" {}", paint.strong(format!("#{step}")))).unwrap_or_default();
        let relation = link.map_or_else(String::new, |link| link.relation.replace('-', " "));
        let tool = node.tool.as_ref().filter(|_| node.kind == "call");
        let tool = tool.map(|tool| format!(" {}", safe(tool))).unwrap_or_default();
        let who = describe_worker(node);
        let about =
            if node.kind == "prompt" { format!("\"{}\"", safe(&node.title)) } else { safe(&node.title) };
        output::print_line(format!(
            "  {relation:<13} {}{step}{tool}{who}  {about}",
            name_of_kind(&node.kind)
        ));
        if let Some(link) = link {
            output::print_line(format!("                {}", paint.dim(describe_link(link))));
        }
        if node.kind == "model-turn" {
            print_text(node.text.as_deref().filter(|text| text.contains('\n')), "                ");
            if let Some(thinking) = &node.thinking {
                output::print_line(format!("                {}", paint.dim("it thought:")));
                print_text(Some(thinking), "                  ");
            }
        }
    }
}

fn describe_worker(node: &WhyNodeDocument) -> String {
    let worker = node.worker.as_ref().map(|worker| format!(" of {}", safe(worker)));
    match (node.kind.as_str(), &node.agent) {
        ("call" | "model-turn", Some(agent)) => format!("{} ({})", worker.unwrap_or_default(), safe(agent)),
        _ => String::new(),
    }
}

fn name_of_kind(kind: &str) -> &str {
    match kind {
        "model-turn" => "model turn",
        kind => kind,
    }
}

fn describe_link(link: &WhyEdgeDocument) -> String {
    format!("{}: {}", link.basis, safe(&link.rule))
}

fn print_text(text: Option<&str>, indent: &str) {
    let paint = Paint::stdout();
    let Some(text) = text else { return };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    for line in lines.iter().take(MAX_LINES) {
        output::print_line(format!("{indent}{}", paint.dim(clip::first(&safe(line), MAX_LINE_CHARS))));
    }
    if lines.len() > MAX_LINES {
        output::print_line(format!(
            "{indent}{}",
            paint.dim(format!("… {} more lines", lines.len() - MAX_LINES))
        ));
    }
}

fn print_sources(document: &WhyDocument, explanation: &WhyExplanationDocument) {
    if explanation.sources.is_empty() {
        if explanation.words.decisive > 0 && explanation.context.texts > 0 {
            output::print_line(format!(
                "  None of its {} decisive words stand together in the {} texts that the model had seen.",
                explanation.words.decisive, explanation.context.texts
            ));
        }
        return;
    }
    output::print_line(format!(
        "  Its words also stand in what the model had seen (inferred; {} of {} decisive words):",
        explanation.words.found, explanation.words.decisive
    ));
    for (index, id) in explanation.sources.iter().enumerate() {
        if let Some(node) = find_node(document, id)
            && let Some(source) = &node.source
        {
            print_source(index + 1, node, source);
        }
    }
}

fn print_source(number: usize, node: &WhyNodeDocument, source: &WhySourceDocument) {
    let paint = Paint::stdout();
    let trust = match source.trust.as_str() {
        "untrusted" => paint.bad("untrusted"),
        "user" => paint.good("yours"),
        "own" => "its own".to_owned(),
        other => other.to_owned(),
    };
    let place = &source.place;
    let mut about = String::new();
    let path = node.path.as_ref().or(place.url.as_ref());
    if let Some(path) = path {
        about.push_str(&format!(" {}", safe(path)));
    } else if let Some(tool) = &node.tool {
        about.push_str(&format!(" {}", safe(tool)));
    }
    if let Some(line) = place.file_line.filter(|_| node.path.is_some()) {
        about.push_str(&format!(":{line}"));
    }
    let step = match (node.step, place.message) {
        (Some(step), _) => format!(" in #{step}"),
        (None, Some(message)) => format!(" in message {message}"),
        (None, None) => String::new(),
    };
    let mut marks = Vec::new();
    if source.repeats > 0 {
        marks.push(format!("{} earlier with the same", source.repeats));
    }
    if !source.in_context {
        marks.push("had left the context: the conversation was compacted".to_owned());
    }
    let marks = if marks.is_empty() { String::new() } else { format!("  ({})", marks.join("; ")) };
    output::print_line(format!(
        "  {number:>2}. {trust} {}{about}{step}{marks}",
        source.kind.replace('-', " "),
    ));
    print_text(Some(&place.excerpt), "        ");
    for run in source.runs.iter().skip(1).take(2) {
        let text = clip::first(&safe(run.text.trim()), MAX_LINE_CHARS);
        output::print_line(format!("        {}", paint.dim(format!("line {}: {text}", run.line))));
    }
    output::print_line(format!("        {}", paint.dim(safe(&source.trust_rule))));
}

fn print_words(explanation: &WhyExplanationDocument) {
    let words = &explanation.words;
    if words.invented.is_empty() || explanation.context.texts == 0 {
        return;
    }
    let shown: Vec<String> = words.invented.iter().take(MAX_WORDS).map(|word| safe(word)).collect();
    let more = words.invented_count.saturating_sub(shown.len() as u64);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    output::print_line(format!("  Words that stand nowhere in it: {}{more}", shown.join(", ")));
}

fn print_items(document: &WhyDocument, explanation: &WhyExplanationDocument) {
    let paint = Paint::stdout();
    if explanation.board.is_empty() {
        return;
    }
    output::print_line("  On the board:");
    for id in &explanation.board {
        let Some(node) = find_node(document, id) else { continue };
        let link = document.edges.iter().find(|edge| edge.to == *id);
        let link = link.map(describe_link).unwrap_or_default();
        output::print_line(format!("    {}  {}", safe(&node.title), paint.dim(link)));
    }
}
