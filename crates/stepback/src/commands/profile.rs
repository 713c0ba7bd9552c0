//! The command `stepback profile`: where the time of a session went.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use serde_json::json;
use stepback_analysis::profile::chrome_trace::to_chrome_trace;
use stepback_analysis::profile::speedscope::to_speedscope;
use stepback_analysis::profile::{SpanWindow, TimeCategory, load_profile, profile_document, render_html};
use stepback_api::profile::{CallStatisticsDocument, ContextSampleDocument, ProfileDocument};
use stepback_model::escape::safe;
use stepback_model::quantity;

use super::{CommandResult, DONE, sessions, share};
use crate::args::profile::{ProfileArgs, ProfileFormat};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Columns of the bars.
const BAR_COLUMNS: usize = 24;
/// Columns of names in tables.
const NAME_COLUMNS: usize = 21;
/// The most tools and models that are listed.
const MAX_ROWS: usize = 12;
/// The most parts of the critical path that are listed.
const MAX_SEGMENTS: usize = 6;
/// Columns of the whole report.
const REPORT_COLUMNS: usize = 80;

/// Runs `stepback profile`.
pub fn profile(context: &Context, arguments: &ProfileArgs) -> CommandResult {
    let (_, session) = sessions::find(context, arguments.session.as_deref())?;
    let (facts, profile) = load_profile(context.engine(), &session)?;
    let is_file = arguments.output != Path::new("-");
    if context.json && (is_file || arguments.format != ProfileFormat::Text) {
        return Err(CommandFailure::new(
            FailureKind::Usage,
            "--json prints a document of its own: it goes neither with --format nor with --output",
        )
        .with_hint("leave out --json to write a file in another format"));
    }
    let document = || profile_document(&facts, &profile, SpanWindow::default());
    if context.json {
        output::print_document(&json!(document()));
        return DONE;
    }
    let text = match arguments.format {
        ProfileFormat::Text => {
            let paint = if is_file { Paint::off() } else { Paint::stdout() };
            render_report(&document(), &sessions::display_name(&session), paint)
        }
        ProfileFormat::Speedscope => format!("{}\n", to_speedscope(&facts, &profile)),
        ProfileFormat::Chrome => format!("{}\n", to_chrome_trace(&facts, &profile)),
        ProfileFormat::Html => render_html(&facts, &profile),
    };
    if !is_file {
        output::write_raw(text.as_bytes());
        return DONE;
    }
    let path = context.directory.join(&arguments.output);
    share::write_atomically(&path, true, |mut file| file.write_all(text.as_bytes()))?;
    let size = output::bytes(text.len() as u64);
    output::print_line(format!(
        "Wrote the profile of {} to {} ({size}).",
        sessions::display_name(&session),
        path.display()
    ));
    DONE
}

/// A time in few columns: `40ms`, `1.4s`, `3m20s`, `2h05m`, `3d04h`.
fn compact(micros: u64) -> String {
    let seconds = micros / 1_000_000;
    match seconds {
        0 if micros == 0 => "0".to_owned(),
        0 if micros < 1000 => "<1ms".to_owned(),
        0 => format!("{}ms", micros / 1000),
        1..=9 => format!("{:.1}s", micros as f64 / 1e6),
        10..=59 => format!("{seconds}s"),
        60..=3599 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..=86_399 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A number in at most six columns.
fn short_count(number: u64) -> String {
    match number {
        0..=99_999 => quantity::grouped(number),
        100_000..=999_999 => format!("{}k", number / 1000),
        _ => format!("{:.1}M", number as f64 / 1e6),
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    if whole == 0 { 0 } else { (part as f64 * 100.0 / whole as f64).round() as u64 }
}

/// The report, which fits into 80 columns.
fn render_report(document: &ProfileDocument, name: &str, paint: Paint) -> String {
    let mut out = String::new();
    let mut line = |text: String| {
        out.push_str(text.trim_end());
        out.push('\n');
    };
    line(format!("{}  {}, {}", paint.strong(safe(name)), compact(document.wall_us), document.started_at));
    line(String::new());
    for time in document.categories.iter().filter(|time| time.us > 0) {
        let category = TimeCategory::ALL.iter().find(|one| one.as_str() == time.category);
        let title = category.map_or(time.category.as_str(), |category| category.title());
        let columns = time.us as f64 / document.wall_us as f64 * BAR_COLUMNS as f64;
        let bar = "█".repeat((columns.round() as usize).min(BAR_COLUMNS));
        let is_idle = time.category == TimeCategory::Idle.as_str();
        let inferred = match time.inferred_us {
            0 => String::new(),
            _ if is_idle => String::new(),
            part if part == time.us => "inferred".to_owned(),
            part => format!("{} inferred", compact(part)),
        };
        let share = percent(time.us, document.wall_us);
        let row = format!("  {title:<21}{:>7}{share:>4} %  {bar:<BAR_COLUMNS$}  ", compact(time.us));
        line(format!("{row}{}", paint.dim(inferred)));
    }
    for (title, all) in [("Tools", &document.tools), ("Models", &document.models)] {
        render_table(&mut line, title, all, paint);
    }
    render_path(&mut line, document, paint);
    render_context(&mut line, document, paint);
    render_notes(&mut line, document, paint);
    out
}

fn render_table(line: &mut impl FnMut(String), title: &str, all: &[CallStatisticsDocument], paint: Paint) {
    if all.is_empty() {
        return;
    }
    line(String::new());
    let head = format!(
        "{title:<NAME_COLUMNS$}{:>8}{:>7}{:>8}{:>7}{:>7}{:>7}{:>7}{:>8}",
        "calls", "failed", "total", "mean", "p50", "p95", "max", "waited"
    );
    line(paint.dim(head));
    for one in all.iter().take(MAX_ROWS) {
        let name = safe(one.name.as_deref().unwrap_or("(not recorded)"));
        let name = output::truncate_to_width(&name, NAME_COLUMNS - 1);
        let time = |value: Option<u64>| value.map_or_else(|| "?".to_owned(), compact);
        let known = one.durations.as_ref();
        let failed = if one.failed == 0 { "-".to_owned() } else { short_count(one.failed) };
        let waited = if one.waited_us == 0 { "-".to_owned() } else { compact(one.waited_us) };
        let name = paint.name(pad(&name, NAME_COLUMNS));
        let numbers = format!(
            "{:>8}{failed:>7}{:>8}{:>7}{:>7}{:>7}{:>7}{waited:>8}",
            short_count(one.calls),
            time(known.map(|times| times.total_us)),
            time(known.map(|times| times.mean_us)),
            time(known.map(|times| times.p50_us)),
            time(known.map(|times| times.p95_us)),
            time(known.map(|times| times.max_us)),
        );
        line(format!("{name}{numbers}"));
    }
    if all.len() > MAX_ROWS {
        line(paint.dim(format!("  … and {} more; --json has all", all.len() - MAX_ROWS)));
    }
}

/// A text with spaces after it, as wide as the column.
fn pad(text: &str, columns: usize) -> String {
    use unicode_width::UnicodeWidthStr;
    format!("{text}{}", " ".repeat(columns.saturating_sub(text.width())))
}

fn render_path(line: &mut impl FnMut(String), document: &ProfileDocument, paint: Paint) {
    let path = &document.critical_path;
    if path.segments.is_empty() {
        return;
    }
    line(String::new());
    let mut title = format!("Critical path  {} in {}", compact(path.us), quantity::count(path.count, "part"));
    if document.parallel_saved_us > 0 {
        let _ = write!(title, "; parallel calls saved {}", compact(document.parallel_saved_us));
    }
    line(paint.dim(title));
    let mut longest: Vec<_> = path.segments.iter().collect();
    longest.sort_by_key(|segment| std::cmp::Reverse(segment.us));
    for segment in longest.into_iter().take(MAX_SEGMENTS) {
        let category = TimeCategory::ALL.iter().find(|one| one.as_str() == segment.category);
        let title = category.map_or(segment.category.as_str(), |category| category.title());
        let what = match (&segment.name, category) {
            (Some(name), Some(TimeCategory::Model | TimeCategory::Tool)) => name.clone(),
            (Some(name), _) => format!("{title}: {name}"),
            (None, _) => title.to_owned(),
        };
        let subject = segment.subject.as_ref().map_or(String::new(), |subject| format!(" {subject}"));
        let what = output::truncate_to_width(&safe(&format!("{what}{subject}")), REPORT_COLUMNS - 30);
        line(format!(
            "  {:>7}  {:>7}  {}",
            compact(segment.us),
            paint.strong(format!("#{}", segment.step)),
            paint.name(what)
        ));
    }
}

fn render_context(line: &mut impl FnMut(String), document: &ProfileDocument, paint: Paint) {
    // Zero tokens are those of a model that does not count.
    let known = || document.context.iter().filter(|sample| sample.tokens.is_some_and(|tokens| tokens > 0));
    let (Some(first), Some(last)) = (known().next(), known().next_back()) else { return };
    let Some(largest) = known().max_by_key(|sample| sample.tokens) else { return };
    let tokens = |sample: &ContextSampleDocument| quantity::grouped(sample.tokens.unwrap_or_default());
    line(String::new());
    line(paint.dim(format!(
        "Context  {} to {} tokens, at most {} (#{})",
        tokens(first),
        tokens(last),
        tokens(largest),
        largest.step
    )));
    let compactions = document.context.iter().filter(|sample| sample.compacted).count() as u64;
    if compactions > 0 {
        line(format!("  compacted or begun anew {}", quantity::count(compactions, "time")));
    }
    let total: u64 = largest.parts.iter().map(|part| part.bytes).fold(0, u64::saturating_add);
    for part in largest.parts.iter().take(MAX_SEGMENTS) {
        let title = match (part.kind.as_str(), &part.tool) {
            ("result", Some(tool)) => format!("results of {tool}"),
            (kind, _) => kind.to_owned(),
        };
        let title = output::truncate_to_width(&safe(&title), 40);
        let share = match largest.basis.as_str() {
            "recorded" => format!("{:>3} %", percent(part.bytes, total)),
            _ => "(inferred)".to_owned(),
        };
        line(format!("  {}  {:>9}  {share}", pad(&title, 40), output::bytes(part.bytes)));
    }
}

fn render_notes(line: &mut impl FnMut(String), document: &ProfileDocument, paint: Paint) {
    if document.rules.is_empty() && document.caveats.is_empty() {
        return;
    }
    line(String::new());
    line(paint.dim("How certain this is"));
    let rules = document.rules.iter().map(|rule| format!("{} inferred: {}", compact(rule.us), rule.rule));
    for note in rules.chain(document.caveats.iter().cloned()) {
        for (index, part) in output::wrap_text(&note, REPORT_COLUMNS - 4).into_iter().enumerate() {
            line(format!("  {}{part}", if index == 0 { "" } else { "  " }));
        }
    }
}

#[cfg(test)]
mod tests {
    use stepback_api::profile::{CategoryTimeDocument, DurationSummaryDocument};

    use super::*;

    #[test]
    fn times_take_few_columns() {
        let times = [0, 900, 40_000, 1_400_000, 42_000_000, 200_000_000, 7_500_000_000, 270_000_000_000];
        assert_eq!(times.map(compact), ["0", "<1ms", "40ms", "1.4s", "42s", "3m20s", "2h05m", "3d03h"]);
        assert!(compact(u64::MAX).ends_with('h'));
    }

    #[test]
    fn the_report_fits_into_80_columns() {
        use unicode_width::UnicodeWidthStr;
        let time = |category: &str, us| CategoryTimeDocument {
            category: category.to_owned(),
            us,
            inferred_us: us / 2,
        };
        let durations = DurationSummaryDocument {
            count: 3,
            total_us: 400_000_000_000,
            mean_us: 86_000_000_000,
            ..DurationSummaryDocument::default()
        };
        let document = ProfileDocument {
            wall_us: 1_000_000_000_000,
            categories: vec![time("model", 1_000_000_000), time("user", 999_000_000_000), time("tool", 0)],
            tools: vec![CallStatisticsDocument {
                name: Some("mcp__a_server_with_a_long_name__\u{1b}[31mand_a_longer_tool".to_owned()),
                calls: 1_234_567,
                failed: 123_456,
                waited_us: 400_000_000_000,
                durations: Some(durations),
                ..CallStatisticsDocument::default()
            }],
            caveats: vec!["words ".repeat(40)],
            ..ProfileDocument::default()
        };
        let report = render_report(&document, "claude 4f2a", Paint::off());
        for line in report.lines() {
            assert!(line.width() <= REPORT_COLUMNS, "{} columns: {line}", line.width());
        }
        assert!(!report.contains('\u{1b}'), "{report}");
    }
}
