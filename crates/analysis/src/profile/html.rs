//! A profile as one page that needs nothing else: no script, nothing to load, and a policy that forbids both.
//!
//! Everything that a session contributes to it is text, written through [`Page::text`].

use std::fmt::Write;
use std::time::Duration;

use stepback_api::profile::{
    CallStatisticsDocument, CategoryTimeDocument, ProfileDocument, ProfileSpanDocument,
};
use stepback_model::escape::safe;
use stepback_model::quantity::{bytes, count, duration, grouped};

use super::html_style::STYLE;
use super::{Profile, TimeCategory};
use crate::facts::SessionFacts;
use crate::profile::{SpanWindow, profile_document};

/// The policy of the page.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// A pause of at least this long, in microseconds, ends a stretch of the waterfall.
const STRETCH_PAUSE: u64 = 60 * 1_000_000;
/// Columns of the waterfall.
const WIDTH: f64 = 1000.0;
/// Height of a row.
const ROW: u64 = 18;
/// The most spans that are drawn.
const MAX_DRAWN: usize = 6000;
/// The most stretches that are shown; the longest.
const MAX_STRETCHES: usize = 60;

/// Returns the page.
pub fn render_html(facts: &SessionFacts, profile: &Profile) -> String {
    let window = SpanWindow { limit: MAX_DRAWN, ..SpanWindow::default() };
    let document = profile_document(facts, profile, window);
    let mut page = Page { out: String::new() };
    page.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.raw(&format!("<meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n"));
    page.raw("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>");
    page.text(&format!("Profile of {} {}", document.agent, document.session));
    page.raw(&format!("</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<h1>"));
    page.text(&format!("Where the time went: {} {}", document.agent, document.session));
    page.raw("</h1>\n<p class=\"dim\">");
    page.text(&format!("{} to {}, {}", document.started_at, document.ended_at, micros(document.wall_us)));
    page.raw("</p>\n");
    page.categories(&document);
    page.statistics("Tools", &document.tools);
    page.statistics("Models", &document.models);
    page.critical_path(&document);
    page.context(&document);
    page.waterfall(&document);
    page.notes(&document);
    page.raw("</body>\n</html>\n");
    page.out
}

struct Page {
    out: String,
}

/// A time in words.
fn micros(micros: u64) -> String {
    if (1..1000).contains(&micros) { "< 1 ms".to_owned() } else { duration(Duration::from_micros(micros)) }
}

/// The part of a whole, in percent.
fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn title_of(category: &str) -> &str {
    TimeCategory::ALL.iter().find(|one| one.as_str() == category).map_or(category, |one| one.title())
}

impl Page {
    /// Writes markup of our own.
    fn raw(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// Writes text of any origin.
    fn text(&mut self, text: &str) {
        for c in safe(text).chars() {
            match c {
                '&' => self.out.push_str("&amp;"),
                '<' => self.out.push_str("&lt;"),
                '>' => self.out.push_str("&gt;"),
                '"' => self.out.push_str("&quot;"),
                '\'' => self.out.push_str("&#39;"),
                c => self.out.push(c),
            }
        }
    }

    fn markup(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = self.out.write_fmt(arguments);
    }

    fn cell(&mut self, text: &str) {
        self.raw("<td>");
        self.text(text);
        self.raw("</td>");
    }

    fn categories(&mut self, document: &ProfileDocument) {
        self.raw("<svg viewBox=\"0 0 1000 26\" preserveAspectRatio=\"none\" height=\"26\" role=\"img\" aria-label=\"Time per category\">");
        let mut x = 0.0;
        for time in &document.categories {
            let width = percent(time.us, document.wall_us) * WIDTH / 100.0;
            let class = class_of(&time.category);
            self.markup(format_args!(
                "<rect class=\"{class}\" x=\"{x:.2}\" y=\"0\" width=\"{width:.2}\" height=\"26\"/>"
            ));
            x += width;
        }
        self.raw("</svg>\n<ul class=\"key\">");
        for time in document.categories.iter().filter(|time| time.us > 0) {
            self.category_key(time, document.wall_us);
        }
        self.raw("</ul>\n");
    }

    fn category_key(&mut self, time: &CategoryTimeDocument, wall: u64) {
        let class = class_of(&time.category);
        self.markup(format_args!(
            "<li><svg viewBox=\"0 0 1 1\" aria-hidden=\"true\"><rect class=\"{class}\" width=\"1\" height=\"1\"/></svg>"
        ));
        self.text(&format!(
            "{} {} ({:.1} %)",
            title_of(&time.category),
            micros(time.us),
            percent(time.us, wall)
        ));
        if time.inferred_us > 0 && time.category != TimeCategory::Idle.as_str() {
            self.raw(" <span class=\"dim\">");
            self.text(&format!("{} inferred", micros(time.inferred_us)));
            self.raw("</span>");
        }
        self.raw("</li>");
    }

    fn statistics(&mut self, title: &str, all: &[CallStatisticsDocument]) {
        if all.is_empty() {
            return;
        }
        self.markup(format_args!("<h2>{title}</h2>\n<div class=\"scroll\"><table><thead><tr><th>Name</th><th>Calls</th><th>Failed</th>"));
        self.raw("<th>Total</th><th>Mean</th><th>p50</th><th>p90</th><th>p95</th><th>p99</th><th>Max</th><th>Waited</th><th>Critical path</th></tr></thead><tbody>\n");
        for one in all {
            self.raw("<tr>");
            self.cell(one.name.as_deref().unwrap_or("(not recorded)"));
            self.cell(&grouped(one.calls));
            self.cell(&grouped(one.failed));
            let known = one.durations.as_ref();
            for value in [
                known.map(|times| times.total_us),
                known.map(|times| times.mean_us),
                known.map(|times| times.p50_us),
                known.map(|times| times.p90_us),
                known.map(|times| times.p95_us),
                known.map(|times| times.p99_us),
                known.map(|times| times.max_us),
                Some(one.waited_us),
                Some(one.critical_us),
            ] {
                self.cell(&value.map_or_else(|| "unknown".to_owned(), micros));
            }
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
    }

    fn critical_path(&mut self, document: &ProfileDocument) {
        let path = &document.critical_path;
        let mut longest: Vec<_> = path.segments.iter().collect();
        longest.sort_by_key(|segment| std::cmp::Reverse(segment.us));
        self.raw("<h2>Critical path</h2>\n<p class=\"dim\">");
        self.text(&format!(
            "What the end of the session depended on (inferred): {} in {}. Parallel calls saved {}. The longest parts:",
            micros(path.us),
            count(path.count, "part"),
            micros(document.parallel_saved_us)
        ));
        self.raw("</p>\n<div class=\"scroll\"><table><thead><tr><th>What</th><th>Step</th><th>After</th><th>Took</th></tr></thead><tbody>\n");
        for segment in longest.into_iter().take(12) {
            let what = describe_what(&segment.category, segment.name.as_deref());
            let about = segment.subject.as_ref().map_or(String::new(), |subject| format!(" {subject}"));
            self.raw("<tr>");
            self.cell(&format!("{what}{about}"));
            self.cell(&format!("#{}", segment.step));
            self.cell(&micros(segment.start_us));
            self.cell(&micros(segment.us));
            self.raw("</tr>\n");
        }
        self.raw("</tbody></table></div>\n");
    }

    fn context(&mut self, document: &ProfileDocument) {
        let peak = document.context.iter().filter_map(|sample| sample.tokens).max().unwrap_or_default();
        if peak == 0 {
            return;
        }
        self.raw("<h2>Context</h2>\n<p class=\"dim\">");
        self.text(&format!(
            "Tokens that the model read for each answer; the largest request had {}.",
            grouped(peak)
        ));
        self.raw("</p>\n<svg viewBox=\"0 0 1000 90\" preserveAspectRatio=\"none\" height=\"90\" role=\"img\" aria-label=\"Size of the context\">");
        let samples: Vec<_> = document.context.iter().filter(|sample| sample.tokens.is_some()).collect();
        let width = WIDTH / samples.len().max(1) as f64;
        for (index, sample) in samples.iter().enumerate() {
            let tokens = sample.tokens.unwrap_or_default();
            let height = percent(tokens, peak) * 0.88;
            let (x, y, bar) = (index as f64 * width, 90.0 - height, (width - 0.5).max(0.5));
            self.markup(format_args!("<rect class=\"model\" x=\"{x:.2}\" y=\"{y:.2}\" width=\"{bar:.2}\" height=\"{height:.2}\"><title>"));
            let parts: Vec<String> = sample
                .parts
                .iter()
                .take(6)
                .map(|part| format!("{} {}", part.tool.as_deref().unwrap_or(&part.kind), bytes(part.bytes)))
                .collect();
            self.text(&format!(
                "#{}: {} tokens; {} ({})",
                sample.step,
                grouped(tokens),
                parts.join(", "),
                sample.basis
            ));
            self.raw("</title></rect>");
        }
        self.raw("</svg>\n");
    }

    fn waterfall(&mut self, document: &ProfileDocument) {
        let mut stretches = split_stretches(&document.spans);
        let all = stretches.len();
        if all > MAX_STRETCHES {
            stretches.sort_by_key(|stretch| std::cmp::Reverse(stretch.until - stretch.from));
            stretches.truncate(MAX_STRETCHES);
            stretches.sort_by_key(|stretch| stretch.from);
        }
        self.raw("<h2>Waterfall</h2>\n<p class=\"dim\">");
        self.text("Each stretch of work has its own scale. Pale bars are inferred, outlined ones failed, a line below marks the critical path.");
        if document.spans_left_out > 0 {
            self.text(&format!(
                " {} of {} are too short to be shown.",
                grouped(document.spans_left_out),
                count(document.spans_total, "interval")
            ));
        }
        if all > stretches.len() {
            self.text(&format!(
                " The {} longest of {} stretches are shown.",
                stretches.len(),
                grouped(all as u64)
            ));
        }
        self.raw("</p>\n");
        for (index, stretch) in stretches.iter().enumerate() {
            self.stretch(document, stretch, index < 3);
        }
    }

    fn stretch(&mut self, document: &ProfileDocument, stretch: &Stretch<'_>, open: bool) {
        self.raw(if open { "<details open><summary>" } else { "<details><summary>" });
        let length = stretch.until - stretch.from;
        let first = stretch.spans.first().map_or(0, |span| span.step);
        self.text(&format!(
            "After {}: {}, {}, from #{first}",
            micros(stretch.from),
            micros(length),
            count(stretch.spans.len() as u64, "interval")
        ));
        self.raw("</summary>\n");
        let mut rows: Vec<(u64, u64)> = stretch.spans.iter().map(|span| (span.lane, span.row)).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut last_lane = None;
        for &(lane, row) in &rows {
            if last_lane != Some(lane) {
                let name =
                    usize::try_from(lane).ok().and_then(|lane| document.lanes.get(lane)?.worker.as_deref());
                if name.is_some() || last_lane.is_some() {
                    self.raw("<p class=\"dim\">");
                    self.text(name.unwrap_or("main agent"));
                    self.raw("</p>\n");
                }
            }
            last_lane = Some(lane);
            self.markup(format_args!("<svg viewBox=\"0 0 1000 {ROW}\" preserveAspectRatio=\"none\" height=\"{ROW}\"><line class=\"axis\" x1=\"0\" x2=\"1000\" y1=\"16\" y2=\"16\"/>"));
            for span in stretch.spans.iter().filter(|span| (span.lane, span.row) == (lane, row)) {
                self.bar(span, stretch.from, length);
            }
            self.raw("</svg>\n");
        }
        self.raw("</details>\n");
    }

    fn bar(&mut self, span: &ProfileSpanDocument, from: u64, length: u64) {
        let x = percent(span.start_us.saturating_sub(from), length) * WIDTH / 100.0;
        let width = (percent(span.us, length) * WIDTH / 100.0).max(0.6);
        let class = class_of(&span.category);
        let inferred = if span.rule.is_some() { " inferred" } else { "" };
        let failed = if span.failed { " failed" } else { "" };
        self.markup(format_args!("<rect class=\"{class}{inferred}{failed}\" x=\"{x:.2}\" y=\"1\" width=\"{width:.2}\" height=\"13\"><title>"));
        let what = describe_what(&span.category, span.name.as_deref());
        let about = span.subject.as_ref().map_or(String::new(), |subject| format!(" {subject}"));
        self.text(&format!(
            "#{} {what}{about}: {} ({})",
            span.step,
            micros(span.us),
            title_of(&span.category)
        ));
        if let Some(rule) = &span.rule {
            self.text(&format!("; inferred: {rule}"));
        }
        self.raw("</title></rect>");
        if span.critical {
            self.markup(format_args!(
                "<rect class=\"critical\" x=\"{x:.2}\" y=\"15\" width=\"{width:.2}\" height=\"2\"/>"
            ));
        }
    }

    fn notes(&mut self, document: &ProfileDocument) {
        if document.rules.is_empty() && document.caveats.is_empty() {
            return;
        }
        self.raw("<h2>How certain this is</h2>\n<ul>\n");
        for rule in &document.rules {
            self.raw("<li>");
            self.text(&format!("{} inferred: {}", micros(rule.us), rule.rule));
            self.raw("</li>\n");
        }
        for caveat in &document.caveats {
            self.raw("<li>");
            self.text(caveat);
            self.raw("</li>\n");
        }
        self.raw("</ul>\n");
    }
}

/// What happened: the tool or model; or who waited, and for what.
fn describe_what(category: &str, name: Option<&str>) -> String {
    let is_call = [TimeCategory::Model, TimeCategory::Tool].iter().any(|one| one.as_str() == category);
    match name {
        Some(name) if is_call => name.to_owned(),
        Some(name) => format!("{}: {name}", title_of(category)),
        None => title_of(category).to_owned(),
    }
}

/// The class of a category: only names of our own.
fn class_of(category: &str) -> &'static str {
    TimeCategory::ALL.iter().find(|one| one.as_str() == category).map_or("idle", |one| one.as_str())
}

/// Spans that follow each other without a long pause.
struct Stretch<'a> {
    from: u64,
    until: u64,
    spans: Vec<&'a ProfileSpanDocument>,
}

/// Splits spans, which are sorted by their start, where nothing was done for long. Long waits for the user are pauses too.
fn split_stretches(spans: &[ProfileSpanDocument]) -> Vec<Stretch<'_>> {
    let is_pause = |span: &&ProfileSpanDocument| {
        span.category == TimeCategory::User.as_str() && span.name.is_none() && span.us >= STRETCH_PAUSE
    };
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for span in spans.iter().filter(|span| !is_pause(span)) {
        let end = span.start_us.saturating_add(span.us);
        match stretches.last_mut() {
            Some(last) if span.start_us < last.until.saturating_add(STRETCH_PAUSE) => {
                last.until = last.until.max(end);
                last.spans.push(span);
            }
            _ => stretches.push(Stretch { from: span.start_us, until: end, spans: vec![span] }),
        }
    }
    stretches
}
