//! A session as one page of HTML that reads like the session, works without a network, and can be sent to anyone.
//!
//! Everything in the page that was recorded is text: it passes `escape`, or the Markdown renderer, which emits only elements of
//! its own. The page has one style sheet and one script, both inline and named by their hashes in a content security policy that
//! forbids everything else, so that neither the page nor anything in it can load or run anything. It can be read without the
//! script.
//!
//! - `escape`: recorded text as HTML. `markdown`: texts of the model.
//! - `excerpt`: how much of long texts is shown, so that the page stays small.
//! - `items`, `cards`, `tool_view`: the items; a tool call as a card; what a tool's input and output are.
//! - `timeline`: the session as a drawing.

mod cards;
mod escape;
mod excerpt;
mod items;
mod markdown;
mod timeline;
mod tool_view;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use stepback_llm_wire::prices::Prices;
use stepback_model::clip;
use stepback_model::quantity::{count, duration, grouped};
use stepback_model::time::Timestamp;

use self::escape::{push_attribute, push_text};
use self::excerpt::ExcerptLimits;
use crate::recording::{ItemContent, RecordedItem, SessionRecording};

const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// The most items that are shown; of a longer session, its beginning and its end.
const MAX_ITEMS: usize = 10_000;
/// The most characters of a prompt in the list of prompts.
const CONTENTS_CHARS: usize = 60;

/// Renders a session as a page. `exported_at` is the time that the page names as its own.
pub fn render(recording: &SessionRecording, exported_at: Timestamp) -> String {
    let shown = choose_items(&recording.items);
    let limits = ExcerptLimits::of(shown.iter().map(|(_, item)| *item));
    let turns = split_turns(&shown);
    let mut out = String::with_capacity(256 << 10);
    push_head(&mut out, recording);
    out.push_str(
        "<body>\n<a class=\"skip\" href=\"#session\">Skip to the session</a>\n<header class=\"top\">\n",
    );
    push_summary(&mut out, recording);
    timeline::push(&mut out, &shown);
    out.push_str("<p class=\"tools\" id=\"tools\" hidden><button id=\"open\">Open all</button> <button id=\"close\">Close all</button> <button id=\"error\">Next error</button></p>\n</header>\n<div class=\"columns\">\n");
    push_contents(&mut out, &turns);
    out.push_str("<main id=\"session\">\n");
    if shown.is_empty() {
        out.push_str("<p class=\"empty\">Nothing was recorded in this session.</p>\n");
    }
    let left_out = recording.items.len() - shown.len();
    for (number, turn) in turns.iter().enumerate() {
        push_turn(&mut out, number, turn, &limits, left_out);
    }
    out.push_str("</main>\n</div>\n");
    push_footer(&mut out, recording, &limits, exported_at);
    out.push_str("<script>");
    out.push_str(SCRIPT);
    out.push_str("</script>\n</body>\n</html>\n");
    out
}

/// An item with its index in the session.
type NumberedItem<'r> = (usize, &'r RecordedItem);

/// A prompt and what followed it.
struct Turn<'a, 'r> {
    items: &'a [NumberedItem<'r>],
}

fn choose_items(items: &[RecordedItem]) -> Vec<NumberedItem<'_>> {
    let all = items.iter().enumerate();
    if items.len() <= MAX_ITEMS {
        return all.collect();
    }
    let tail = items.len() - MAX_ITEMS / 2;
    all.filter(|(index, _)| *index < MAX_ITEMS / 2 || *index >= tail).collect()
}

fn split_turns<'a, 'r>(items: &'a [NumberedItem<'r>]) -> Vec<Turn<'a, 'r>> {
    let begins =
        |item: &RecordedItem| matches!(item.content, ItemContent::Prompt(_)) && item.worker.is_none();
    let mut turns = Vec::new();
    let mut start = 0;
    for (at, (_, item)) in items.iter().enumerate() {
        if begins(item) && at > start {
            turns.push(Turn { items: &items[start..at] });
            start = at;
        }
    }
    if start < items.len() {
        turns.push(Turn { items: &items[start..] });
    }
    turns
}

fn hash_source(text: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(Sha256::digest(text.as_bytes())))
}

/// The policy of the page: nothing but its own style and script.
pub fn content_security_policy() -> String {
    format!(
        "default-src 'none'; style-src {}; script-src {}; base-uri 'none'; form-action 'none'",
        hash_source(STYLE),
        hash_source(SCRIPT)
    )
}

fn page_title(recording: &SessionRecording) -> String {
    let title = recording.title.as_deref().map(str::trim).filter(|title| !title.is_empty());
    clip::first(title.unwrap_or("A session without a prompt"), 120).to_string()
}

fn push_head(out: &mut String, recording: &SessionRecording) {
    out.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    out.push_str(&format!(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n",
        content_security_policy()
    ));
    out.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"robots\" content=\"noindex\">\n<title>");
    push_text(out, &page_title(recording));
    out.push_str(" · stepback</title>\n<style>");
    out.push_str(STYLE);
    out.push_str("</style>\n</head>\n");
}

fn push_summary(out: &mut String, recording: &SessionRecording) {
    let (session, totals) = (&recording.session, &recording.totals);
    out.push_str("<h1 dir=\"auto\">");
    push_text(out, &page_title(recording));
    out.push_str("</h1>\n<dl class=\"facts\">\n");
    let mut fact = |name: &str, value: &str, hint: &str| {
        out.push_str("<div><dt>");
        out.push_str(name);
        out.push_str("</dt><dd");
        if !hint.is_empty() {
            out.push_str(" title=\"");
            push_attribute(out, hint);
            out.push('"');
        }
        out.push('>');
        push_text(out, value);
        out.push_str("</dd></div>\n");
    };
    fact("Agent", &session.agent, "");
    let models = match totals.models.is_empty() {
        true => session.info.model.clone().unwrap_or_else(|| "not recorded".to_owned()),
        false => totals.models.join(", "),
    };
    fact("Model", &models, "");
    fact("Began", &format_time(session.started_at), "");
    if let Some((first, last)) = totals.times {
        let micros = last.as_micros().saturating_sub(first.as_micros());
        let took = Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        fact("Lasted", &duration(took), "From the first step to the end of the last one, with all waiting.");
    }
    fact("Steps", &grouped(recording.steps), "");
    fact("Prompts", &grouped(totals.prompts), "");
    fact("Tool calls", &grouped(totals.calls), "");
    fact("Errors", &grouped(totals.errors), "");
    fact("Checkpoints", &grouped(totals.checkpoints), "");
    let tokens = match totals.tokens {
        Some(tokens) => format!(
            "{} in, {} cached, {} out{}",
            grouped(tokens.input.saturating_add(tokens.cache_write)),
            grouped(tokens.cache_read),
            grouped(tokens.output),
            incomplete(totals.answers_without_usage, "answer")
        ),
        None => "not recorded".to_owned(),
    };
    fact("Tokens", &tokens, "As the model reported them. Answers from a recording are left out.");
    let cost = match totals.cost {
        Some(micros) => {
            format!("{}{}", format_cost(micros), incomplete(totals.answers_without_cost, "answer"))
        }
        None => "not known".to_owned(),
    };
    let basis = match totals.listed_cost {
        0 => "As it was recorded.".to_owned(),
        listed => {
            format!(
                "{} of it computed from tokens by list prices of {}.",
                format_cost(listed),
                Prices::table_date()
            )
        }
    };
    fact("Cost", &cost, &basis);
    fact("Directory", &recording.root, "");
    fact("Session", &session.id.to_string(), "");
    out.push_str("</dl>\n");
}

/// Says that a sum is incomplete.
fn incomplete(missing: u64, unit: &str) -> String {
    match missing {
        0 => String::new(),
        missing => format!(" (not known of {})", count(missing, unit)),
    }
}

fn format_time(at: Timestamp) -> String {
    let text = at.to_string();
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    format!("{date} {} UTC", time.get(..8).unwrap_or(time).trim_end_matches('Z'))
}

/// A cost in dollars, with as many digits as it needs.
fn format_cost(micros: u64) -> String {
    let dollars = micros as f64 / 1e6;
    match micros {
        0 => "$0".to_owned(),
        1..1_000 => format!("${dollars:.6}"),
        1_000..100_000 => format!("${dollars:.4}"),
        _ => format!("${dollars:.2}"),
    }
}

fn push_contents(out: &mut String, turns: &[Turn<'_, '_>]) {
    if turns.len() < 2 {
        return;
    }
    out.push_str("<nav aria-label=\"Prompts\"><ol>\n");
    for (number, turn) in turns.iter().enumerate() {
        let errors = turn.items.iter().filter(|(_, item)| item.is_error()).count();
        out.push_str(&format!("<li><a href=\"#turn-{number}\" dir=\"auto\">"));
        push_text(out, clip::first(turn_title(turn), CONTENTS_CHARS).to_string().trim());
        if errors > 0 {
            out.push_str(&format!(" <b class=\"bad\">{}</b>", count(errors as u64, "error")));
        }
        out.push_str("</a></li>\n");
    }
    out.push_str("</ol></nav>\n");
}

fn turn_title<'r>(turn: &Turn<'_, 'r>) -> &'r str {
    match turn.items.first().map(|(_, item)| &item.content) {
        Some(ItemContent::Prompt(text)) => text.trim().lines().next().unwrap_or("An empty prompt"),
        _ => "Before the first prompt",
    }
}

fn push_turn(out: &mut String, number: usize, turn: &Turn<'_, '_>, limits: &ExcerptLimits, left_out: usize) {
    out.push_str(&format!("<section class=\"turn\" id=\"turn-{number}\">\n"));
    let mut before = None;
    for (index, item) in turn.items {
        if left_out > 0 && *index == MAX_ITEMS / 2 + left_out {
            let items = count(left_out as u64, "item");
            out.push_str(&format!(
                "<p class=\"left-out\">{items} left out here: the page would be too large.</p>\n"
            ));
        }
        items::push(out, *index, item, before, limits);
        before = Some(*item);
    }
    out.push_str("</section>\n");
}

fn push_footer(
    out: &mut String,
    recording: &SessionRecording,
    limits: &ExcerptLimits,
    exported_at: Timestamp,
) {
    out.push_str("<footer>\n<p>Exported by stepback on ");
    push_text(out, &format_time(exported_at));
    out.push_str(". Secrets that were recognised are replaced by <code>[redacted:…]</code>, in files too. ");
    if limits.is_shortening() {
        out.push_str(&format!(
            "Long texts are shortened where the page says so: to {} bytes, those of the user and the model to {}. ",
            grouped(limits.folded as u64),
            grouped(limits.prose as u64)
        ));
    }
    if recording.purged > 0 {
        out.push_str(&format!(
            "The files of {} were freed by a prune, so their changes are not shown. ",
            count(recording.purged, "step")
        ));
    }
    out.push_str("Times are UTC. What has a number is a recorded step; what has none is only in the conversation that the agent keeps.</p>\n</footer>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_have_the_digits_they_need() {
        assert_eq!(
            [0, 12, 12_345, 123_456, 12_345_678].map(format_cost),
            ["$0", "$0.000012", "$0.0123", "$0.12", "$12.35"]
        );
    }

    #[test]
    fn the_policy_allows_nothing_but_the_page_itself() {
        let policy = content_security_policy();
        assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains("http"));
        assert!(!SCRIPT.contains("</") && !STYLE.contains("</"));
        assert!(!SCRIPT.contains("innerHTML") && !SCRIPT.contains("eval"));
    }
}
