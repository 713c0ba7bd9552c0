//! Draws the board of the current step, and the details of the selected item.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use stepback_model::escape::safe;

use super::page::{note, pager};
use super::{fit, put, quiet, styled};
use crate::app::pager::{Mood, Pager, RowBuilder};
use crate::app::{App, BoardView, list_rows};
use crate::effect::Loaded;

/// Bars for confidence, from low to high.
const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Columns for the confidence over time.
const HISTORY_COLUMNS: usize = 12;
/// The fewest columns at which it is shown.
const MIN_COLUMNS_FOR_HISTORY: u16 = 60;

/// Draws the board.
pub fn board(app: &App, area: Rect, buffer: &mut Buffer) {
    match &app.board {
        Loaded::Ready(_, of) => ready(app, of, area, buffer),
        Loaded::Waiting(_) => note("reading …", area, buffer),
        Loaded::Failed(_, why) => note(&format!("! {why}"), area, buffer),
        Loaded::No => note("select a step in the timeline", area, buffer),
    }
}

fn ready(app: &App, of: &BoardView, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let rows = list_rows(usize::from(area.height));
    let number = app.current().map_or(0, |step| step.number);
    for (y, (line, is)) in (area.y..).zip(of.rows(rows)) {
        let course = match (&line.item, line.course && area.width >= MIN_COLUMNS_FOR_HISTORY) {
            (Some(item), true) => course(app, item, number),
            _ => String::new(),
        };
        let used = course.chars().count();
        let text = format!("{}{}", if is { "> " } else { "  " }, safe(&line.text));
        let room = width.saturating_sub(used + 1);
        let style = if is { styled(line.mood).add_modifier(Modifier::REVERSED) } else { styled(line.mood) };
        put(buffer, area.x, y, &format!("{:<room$}", fit(&text, room)), room, style);
        let at = area.width.saturating_sub(used as u16);
        put(buffer, area.x + at, y, &course, used, Style::new());
    }
    let below = usize::from(area.height) - rows;
    let Some(line) = of.selected().filter(|_| below > 0) else { return };
    let y = area.y + rows as u16;
    put(buffer, area.x, y, &"─".repeat(width), width, quiet());
    let mut about = RowBuilder::default();
    about.text("", &line.whole, Mood::Plain);
    if !line.facts.is_empty() {
        about.text("", &line.facts, Mood::Quiet);
    }
    pager(&Pager::new(about.done()), Rect { y: y + 1, height: below as u16 - 1, ..area }, buffer);
}

/// Returns the confidence in a hypothesis up to a step, as bars.
fn course(app: &App, hypothesis: &str, step: u64) -> String {
    let Some(confidence) = app.confidence.ready() else { return String::new() };
    let bar = |sure: Option<f64>| match sure {
        Some(sure) => BARS[((sure * 8.0) as usize).min(7)],
        None => " ",
    };
    confidence.up_to(hypothesis, step, HISTORY_COLUMNS).into_iter().map(bar).collect()
}
