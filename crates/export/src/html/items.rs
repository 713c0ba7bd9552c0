//! The items of a session: prompts, answers, calls and events.

use std::time::Duration;

use stepback_model::quantity::{duration, grouped};
use stepback_model::record::{StepKind, Trigger};
use stepback_model::time::Timestamp;

use super::cards::{push_block, push_call, push_changes, push_shortened};
use super::escape::{push_attribute, push_text};
use super::excerpt::{ExcerptLimits, shorten};
use super::format_cost;
use super::markdown::push_markdown;
use crate::recording::{
    AnswerCost, AnswerPart, CheckpointMark, ExportedAnswer, ItemContent, RecordedItem, SessionEvent,
};

/// Adds an item. `before` is the one above it.
pub fn push(
    out: &mut String,
    index: usize,
    item: &RecordedItem,
    before: Option<&RecordedItem>,
    limits: &ExcerptLimits,
) {
    let class = match &item.content {
        ItemContent::Prompt(_) => "prompt",
        ItemContent::Answer(_) => "answer",
        ItemContent::Call(_) => "tool",
        ItemContent::Event(event) if event.is_error => "event bad",
        ItemContent::Event(event) => event_class(event.kind),
    };
    out.push_str(&format!("<article class=\"item {class}\" id=\"i{index}\">\n"));
    push_margin(out, item, before);
    out.push_str("<div class=\"body\">\n");
    match &item.content {
        ItemContent::Prompt(text) => {
            out.push_str("<h2 class=\"who\">Prompt</h2>\n<div class=\"text\" dir=\"auto\">");
            push_shortened(out, text.trim_end(), limits.prose);
            out.push_str("</div>\n");
        }
        ItemContent::Answer(answer) => push_answer(out, answer, limits),
        ItemContent::Call(call) => push_call(out, call, limits),
        ItemContent::Event(event) => push_event(out, event, limits),
    }
    push_changes(out, &item.changes, limits);
    if let Some(checkpoint) = &item.checkpoint {
        push_checkpoint(out, checkpoint);
    }
    out.push_str("</div>\n</article>\n");
}

/// The number and time of an item, and what distinguishes it from most others.
fn push_margin(out: &mut String, item: &RecordedItem, before: Option<&RecordedItem>) {
    out.push_str("<p class=\"margin\">");
    if let Some(step) = item.step {
        out.push_str(&format!("<b>#{step}</b> "));
    }
    if let Some(at) = item.at {
        let is_same = before.and_then(|before| before.at).is_some_and(|before| clock(before) == clock(at));
        out.push_str(&format!("<time datetime=\"{at}\" title=\"{at}\""));
        out.push_str(if is_same { " class=\"same\">" } else { ">" });
        out.push_str(&clock(at));
        out.push_str("</time>");
    }
    if let Some(worker) = &item.worker {
        out.push_str(" <span class=\"worker\" title=\"sub-agent\">");
        push_text(out, &worker.chars().take(40).collect::<String>());
        out.push_str("</span>");
    }
    out.push_str("</p>\n");
}

fn clock(at: Timestamp) -> String {
    let text = at.to_string();
    text.split_once('T').and_then(|(_, time)| time.get(..8)).unwrap_or(&text).to_owned()
}

fn push_answer(out: &mut String, answer: &ExportedAnswer, limits: &ExcerptLimits) {
    for part in &answer.parts {
        match part {
            AnswerPart::Thought(text) => {
                out.push_str("<details class=\"thought\"><summary>Thinking</summary>\n");
                push_prose(out, text, limits);
                out.push_str("</details>\n");
            }
            AnswerPart::Text(text) => push_prose(out, text, limits),
        }
    }
    if let Some(error) = &answer.error {
        push_block(out, "code bad", Some("The model did not answer"), error, limits.folded);
    }
    let facts = answer_facts(answer);
    if !facts.is_empty() {
        out.push_str("<p class=\"usage\">");
        push_text(out, &facts.join(" · "));
        out.push_str("</p>\n");
    }
}

/// A text of the model, as Markdown; one that is too long in two parts, since what is left out may have closed a block.
fn push_prose(out: &mut String, text: &str, limits: &ExcerptLimits) {
    let excerpt = shorten(text, limits.prose);
    out.push_str("<div class=\"text\">\n");
    push_markdown(out, excerpt.head);
    out.push_str("</div>\n");
    if excerpt.left_out > 0 {
        out.push_str(&format!(
            "<p class=\"left-out\">… {} of {} bytes left out …</p>\n<div class=\"text\">\n",
            grouped(excerpt.left_out as u64),
            grouped(text.len() as u64)
        ));
        push_markdown(out, excerpt.tail);
        out.push_str("</div>\n");
    }
}

fn answer_facts(answer: &ExportedAnswer) -> Vec<String> {
    let mut facts: Vec<String> = answer.model.iter().cloned().collect();
    if answer.is_open {
        facts.push("no answer recorded".to_owned());
    }
    if let Some(usage) = answer.usage {
        let cached = match usage.cache_read {
            0 => String::new(),
            read => format!(" (+{} cached)", grouped(read)),
        };
        facts.push(format!(
            "{}{cached} → {} tokens",
            grouped(usage.input.saturating_add(usage.cache_write)),
            grouped(usage.output)
        ));
    }
    match answer.cost {
        Some(AnswerCost::Recorded(micros)) => facts.push(format_cost(micros)),
        Some(AnswerCost::Listed(micros)) => facts.push(format!("{} by list prices", format_cost(micros))),
        None => {}
    }
    if let Some(took) = answer.duration {
        facts.push(duration(Duration::from_micros(took)));
    }
    if answer.replayed {
        facts.push("replayed: no model was called".to_owned());
    }
    facts
}

fn event_class(kind: StepKind) -> &'static str {
    match kind {
        StepKind::BreakpointHit => "event stop",
        StepKind::Gap => "event gap",
        StepKind::Rewind | StepKind::BranchCreated | StepKind::BranchSwitched => "event moved",
        StepKind::Decision | StepKind::Message | StepKind::Reasoning => "event",
        _ => "event quiet",
    }
}

fn push_event(out: &mut String, event: &SessionEvent, limits: &ExcerptLimits) {
    let kind = event.kind.as_str().replace('-', " ");
    match &event.text {
        Some(text) => {
            out.push_str(&format!(
                "<details class=\"more\"><summary><b>{kind}</b> <span class=\"title\" dir=\"auto\">"
            ));
            push_text(out, &event.summary);
            out.push_str("</span></summary>\n");
            push_block(out, "code", None, text, limits.folded);
            out.push_str("</details>\n");
        }
        None => {
            out.push_str(&format!("<p class=\"line\"><b>{kind}</b> <span dir=\"auto\">"));
            push_text(out, &event.summary);
            out.push_str("</span></p>\n");
        }
    }
}

fn push_checkpoint(out: &mut String, checkpoint: &CheckpointMark) {
    out.push_str(&format!(
        "<p class=\"checkpoint\" title=\"stepback rewind &#39;#{0}&#39;\">checkpoint #{0}",
        checkpoint.step
    ));
    match checkpoint.trigger {
        Trigger::Manual => out.push_str(", by the user"),
        Trigger::Scheduled => out.push_str(", by schedule"),
        Trigger::Automatic => {}
    }
    if let Some(label) = &checkpoint.label {
        out.push_str(" <q title=\"");
        push_attribute(out, label);
        out.push_str("\">");
        push_text(out, label);
        out.push_str("</q>");
    }
    if checkpoint.purged {
        out.push_str(" (its files were freed)");
    }
    out.push_str("</p>\n");
}
