//! Draws the board of the current step, and the details of the selected item.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use stepback_model::escape::safe;

use super::page::{draw_note, draw_pager};
use super::{dim_style, draw_text, row_style, truncate_to_width};
use crate::app::pager::{Pager, RowBuilder, RowStyle};
use crate::app::{App, BoardView, list_height};
use crate::effect::LoadState;

/// Bars for confidence, from low to high.
const BARS: [&str; 8] = ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Columns for the confidence over time.
const HISTORY_COLUMNS: usize = 12;
/// The fewest columns at which it is shown.
const MIN_COLUMNS_FOR_HISTORY: u16 = 60;

/// Draws the board.
pub fn draw_board(app: &App, area: Rect, buffer: &mut Buffer) {
    match &app.board {
        LoadState::Ready(_, board) => draw_ready_board(app, board, area, buffer),
        LoadState::Waiting(_) => draw_note("reading …", area, buffer),
        LoadState::Failed(_, reason) => draw_note(&format!("! {reason}"), area, buffer),
        LoadState::NotRequested => draw_note("select a step in the timeline", area, buffer),
    }
}

fn draw_ready_board(app: &App, view: &BoardView, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let rows = list_height(usize::from(area.height));
    let number = app.current_step().map_or(0, |step| step.number);
    for (y, (line, is_selected)) in (area.y..).zip(view.visible_rows(rows)) {
        let course = match (&line.item, line.shows_confidence && area.width >= MIN_COLUMNS_FOR_HISTORY) {
            (Some(item), true) => confidence_bars(app, item, number),
            _ => String::new(),
        };
        let used = course.chars().count();
        let text = format!("{}{}", if is_selected { "> " } else { "  " }, safe(&line.text));
        let room = width.saturating_sub(used + 1);
        let style = if is_selected {
            row_style(line.style).add_modifier(Modifier::REVERSED)
        } else {
            row_style(line.style)
        };
        draw_text(buffer, area.x, y, &format!("{:<room$}", truncate_to_width(&text, room)), room, style);
        let x = area.width.saturating_sub(used as u16);
        draw_text(buffer, area.x + x, y, &course, used, Style::new());
    }
    let detail_rows = usize::from(area.height) - rows;
    let Some(line) = view.selected().filter(|_| detail_rows > 0) else { return };
    let y = area.y + rows as u16;
    draw_text(buffer, area.x, y, &"─".repeat(width), width, dim_style());
    let mut details = RowBuilder::default();
    details.add_text("", &line.full_text, RowStyle::Plain);
    if !line.details.is_empty() {
        details.add_text("", &line.details, RowStyle::Quiet);
    }
    draw_pager(
        &Pager::new(details.finish()),
        Rect { y: y + 1, height: detail_rows as u16 - 1, ..area },
        buffer,
    );
}

/// Returns the confidence in a hypothesis up to a step, as bars.
fn confidence_bars(app: &App, hypothesis: &str, step: u64) -> String {
    let Some(confidence) = app.confidence.value() else { return String::new() };
    let bar = |sure: Option<f64>| match sure {
        Some(sure) => BARS[((sure * 8.0) as usize).min(7)],
        None => " ",
    };
    confidence.sample_up_to(hypothesis, step, HISTORY_COLUMNS).into_iter().map(bar).collect()
}
