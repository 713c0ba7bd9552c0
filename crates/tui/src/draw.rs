//! Draws the interface on a screen of any size. It only reads the app, and only the part that fits.

mod board;
mod lists;
mod page;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Position, Rect};
use ratatui::style::{Color, Modifier, Style};
use stepback_model::escape::safe;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::app::pager::RowStyle;
use crate::app::{App, Overlay, View};
use crate::keys::{self, KeyAction};

/// The smallest supported terminal, in columns and rows.
const MIN_TERMINAL_SIZE: (u16, u16) = (36, 8);

/// What the terminal can show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TerminalCapabilities {
    /// Whether it shows colours.
    pub colors: bool,
    /// Whether it shows more than ASCII.
    pub unicode: bool,
}

/// Draws the whole screen.
pub fn draw(app: &App, frame: &mut Frame<'_>, capabilities: TerminalCapabilities) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    let mut cursor = None;
    if area.width < MIN_TERMINAL_SIZE.0 || area.height < MIN_TERMINAL_SIZE.1 {
        draw_too_small(area, buffer);
    } else {
        draw_tabs(app, row_rect(area, 0), buffer);
        draw_header(app, row_rect(area, 1), buffer);
        let body = Rect { y: 2, height: area.height - 3, ..area };
        match &app.overlay {
            Overlay::Help(pager) => page::draw_pager(pager, body, buffer),
            Overlay::Plan(planned) => page::draw_pager(&planned.pager, body, buffer),
            Overlay::SearchResults(results) => lists::draw_search_hits(results, body, buffer),
            Overlay::None | Overlay::Prompt(_) => draw_view(app, body, buffer),
        }
        cursor = draw_status(app, row_rect(area, area.height - 1), buffer);
    }
    replace_unsupported(buffer, capabilities);
    if let Some(cursor) = cursor {
        frame.set_cursor_position(cursor);
    }
}

fn row_rect(area: Rect, y: u16) -> Rect {
    Rect { y, height: 1, ..area }
}

fn draw_too_small(area: Rect, buffer: &mut Buffer) {
    let text = format!(
        "Too small: {}x{}, {}x{} is needed. q quits.",
        area.width, area.height, MIN_TERMINAL_SIZE.0, MIN_TERMINAL_SIZE.1
    );
    let mut rest = text.as_str();
    for y in 0..area.height {
        let fits = fitting_bytes(rest, usize::from(area.width));
        let (line, remaining) = rest.split_at(fits);
        buffer.set_stringn(0, y, line.trim_start(), usize::from(area.width), Style::new());
        rest = remaining;
    }
}

fn draw_view(app: &App, area: Rect, buffer: &mut Buffer) {
    match app.view {
        View::Sessions => lists::draw_sessions(app, area, buffer),
        View::Timeline => lists::draw_timeline(app, area, buffer),
        View::Step => page::draw_loaded(&app.step, "select a step in the timeline", area, buffer),
        View::State => page::draw_state(app, area, buffer),
        View::Diff => page::draw_loaded(&app.diff, "select a step in the timeline", area, buffer),
        View::Live => lists::draw_live(app, area, buffer),
        View::Board => board::draw_board(app, area, buffer),
    }
}

/// Returns the name of a view, shortened on a narrow screen.
fn tab_name(view: View, width: u16) -> &'static str {
    let (long, short) = match view {
        View::Sessions => (" 1 Sessions ", " 1Se "),
        View::Timeline => (" 2 Timeline ", " 2Ti "),
        View::Step => (" 3 Step ", " 3Sp "),
        View::State => (" 4 State ", " 4St "),
        View::Diff => (" 5 Diff ", " 5Di "),
        View::Live => (" 6 Live ", " 6Li "),
        View::Board => (" 7 Mind ", " 7Mi "),
    };
    if width >= 70 { long } else { short }
}

/// Returns the view whose name is at a column.
pub fn tab_at(width: u16, column: u16) -> Option<View> {
    let mut end = 0;
    View::ALL.into_iter().find(|view| {
        end += tab_name(*view, width).len();
        usize::from(column) < end
    })
}

fn draw_tabs(app: &App, area: Rect, buffer: &mut Buffer) {
    let mut x = 0;
    for view in View::ALL {
        let name = tab_name(view, area.width);
        // The brackets mark the current view on terminals without emphasis.
        let (text, style) = match view == app.view {
            true => (format!("[{}]", name.trim()), bold_style().add_modifier(Modifier::REVERSED)),
            false => (name.to_owned(), dim_style()),
        };
        let text = format!("{text:<width$}", width = name.len());
        buffer.set_stringn(x, 0, text, usize::from(area.width.saturating_sub(x)), style);
        x += name.len() as u16;
    }
    let count = app.live.stops.len();
    let longest = if count == 1 { "! 1 agent waits ".into() } else { format!("! {count} agents wait ") };
    let room = usize::from(area.width.saturating_sub(x));
    // On a narrow screen, a single sign says that an agent waits.
    let waits = [longest, format!("! {count} waits "), format!("!{count}"), "!".into()];
    let waits = waits.into_iter().find(|text| text.len() <= room).filter(|_| count > 0);
    if let Some(waits) = waits {
        let index = area.width - waits.len() as u16;
        buffer.set_stringn(index, 0, waits, room, error_style().add_modifier(Modifier::BOLD));
    }
}

/// Draws the header line: what is being shown.
fn draw_header(app: &App, area: Rect, buffer: &mut Buffer) {
    let title = match (&app.overlay, &app.open) {
        (Overlay::Help(_), _) => "Keys; any other key leaves".into(),
        (Overlay::Plan(planned), _) => format!("Plan: {} — y confirms, esc cancels", planned.plan.kind),
        (Overlay::SearchResults(results), _) => {
            let progress = if results.hits.complete { "" } else { ", still reading" };
            format!("{} found for \"{}\"{progress}", results.hits.total, results.text)
        }
        (_, None) if app.view == View::Sessions => format!("{} sessions", app.sessions.len()),
        (_, Some(_)) if app.view == View::Sessions => format!("{} sessions", app.sessions.len()),
        (_, None) => "no session is open".into(),
        (_, Some(open)) => {
            let session = &open.session;
            let status = match app.current_stop() {
                Some(stop) => format!("stopped at {}", stop.tool),
                None if open.paused => "pausing".into(),
                None => session.status.clone(),
            };
            format!(
                "{} {} ({status}) {}",
                session.agent,
                session.short_id(),
                session.title.as_deref().unwrap_or("")
            )
        }
    };
    let right = match app.current_step().filter(|_| app.view != View::Sessions && app.view != View::Live) {
        Some(step) => {
            let playing = app.playing.map(|(_, speed)| format!("playing {speed}x  ")).unwrap_or_default();
            format!("{playing}#{} {}", step.number, position_text(app))
        }
        None => String::new(),
    };
    let room = usize::from(area.width).saturating_sub(right.width() + 2);
    draw_text(buffer, 0, 1, &truncate_to_width(&safe(&title), room), room, bold_style());
    let x = area.width.saturating_sub(right.width() as u16);
    draw_text(buffer, x, 1, &right, right.width(), Style::new());
}

/// Returns the position between the first and the last loaded step.
fn position_text(app: &App) -> String {
    let Some(window) = app.open.as_ref().map(|open| &open.window) else { return String::new() };
    match (window.number_range(), window.has_first, window.has_last && window.is_last()) {
        (Some(_), _, true) => "last".into(),
        (Some((first, _)), true, _) if window.current().is_some_and(|step| step.number == first) => {
            "first".into()
        }
        (Some((_, last)), _, _) if window.has_last => format!("of #{last}"),
        _ => "of many".into(),
    }
}

/// Draws the last line: a prompt, a notice, or a few keys. Returns the position of the cursor.
fn draw_status(app: &App, area: Rect, buffer: &mut Buffer) -> Option<Position> {
    let width = usize::from(area.width);
    if let Overlay::Prompt(prompt) = &app.overlay {
        let question = format!("{}: ", prompt.purpose.question());
        let (before_cursor, after_cursor) = prompt.split_at_cursor();
        let (before_cursor, after_cursor) = (safe(&before_cursor), safe(&after_cursor));
        let room = width.saturating_sub(question.width() + 1);
        // Of a long line, the end is shown, because that is where the user types.
        let mut visible_text = before_cursor.as_str();
        while visible_text.width() > room {
            visible_text =
                visible_text.char_indices().nth(1).map_or("", |(offset, _)| &visible_text[offset..]);
        }
        draw_text(buffer, 0, area.y, &question, width, bold_style());
        let offset = question.width();
        draw_text(buffer, offset as u16, area.y, visible_text, room, Style::new());
        let x = (offset + visible_text.width()).min(width.saturating_sub(1)) as u16;
        let help = if prompt.text().is_empty() { prompt.purpose.help() } else { after_cursor.as_str() };
        let style = if prompt.text().is_empty() { dim_style() } else { Style::new() };
        draw_text(
            buffer,
            x,
            area.y,
            &truncate_to_width(help, width.saturating_sub(usize::from(x))),
            width,
            style,
        );
        // An earlier error stays visible while the user corrects the input.
        if let Some(notice) = app.notice.as_ref().filter(|notice| notice.is_error) {
            draw_text(
                buffer,
                0,
                1,
                &format!("{:<width$}", truncate_to_width(&format!("! {}", notice.text), width)),
                width,
                error_style(),
            );
        }
        return Some(Position { x, y: area.y });
    }
    let (text, style) = match (&app.notice, &app.source_error) {
        (Some(notice), _) if notice.is_error => (format!("! {}", notice.text), error_style()),
        (Some(notice), _) => (notice.text.clone(), Style::new()),
        (None, Some(reason)) => (format!("! retrying: {reason}"), error_style()),
        (None, None) => (key_hints(app), dim_style()),
    };
    draw_text(buffer, 0, area.y, &truncate_to_width(&text, width), width, style);
    None
}

/// Returns the most important keys of this view.
fn key_hints(app: &App) -> String {
    let actions: &[(KeyAction, &str)] = match (&app.overlay, app.view) {
        (Overlay::Plan(_), _) => return "y confirm  esc cancel  a everything  j/k scroll".into(),
        (Overlay::Help(_) | Overlay::SearchResults(_), _) => return "j/k move  enter open  esc leave".into(),
        (_, View::Sessions) => &[(KeyAction::Open, "open"), (KeyAction::Search, "search")],
        (_, View::Timeline) => &[
            (KeyAction::Open, "open"),
            (KeyAction::NextError, "error"),
            (KeyAction::Jump, "jump"),
            (KeyAction::Play, "play"),
            (KeyAction::Rewind, "rewind"),
            (KeyAction::Checkpoint, "checkpoint"),
        ],
        (_, View::Step) => {
            &[(KeyAction::Back, "back"), (KeyAction::Forward, "forward"), (KeyAction::Rewind, "rewind")]
        }
        (_, View::State) => {
            &[(KeyAction::Open, "open"), (KeyAction::NextPart, "part"), (KeyAction::Forward, "forward")]
        }
        (_, View::Board) => {
            &[(KeyAction::Open, "its step"), (KeyAction::NextPart, "part"), (KeyAction::Forward, "forward")]
        }
        (_, View::Diff) => &[
            (KeyAction::NextPart, "file"),
            (KeyAction::CompareWithStep, "mark"),
            (KeyAction::CompareWithNow, "now"),
        ],
        (_, View::Live) => &[
            (KeyAction::Resume, "resume"),
            (KeyAction::ResumeOneCall, "step"),
            (KeyAction::Deny, "deny"),
            (KeyAction::EditInput, "edit input"),
            (KeyAction::SendMessage, "tell"),
            (KeyAction::AddBreakpoint, "add"),
            (KeyAction::RemoveBreakpoint, "remove"),
        ],
    };
    let always = [(KeyAction::Help, "keys"), (KeyAction::Quit, "quit"), (KeyAction::NextView, "views")];
    let keys = always.iter().chain(actions).filter_map(|(action, word)| {
        let binding = keys::BINDINGS.iter().find(|binding| binding.action == *action)?;
        Some(format!("{} {word}", keys::name(*binding.keys.first()?)))
    });
    keys.collect::<Vec<_>>().join("  ")
}

/// Writes a text. All external text goes through here, so no part of it can control the terminal.
fn draw_text(buffer: &mut Buffer, x: u16, y: u16, text: &str, max_width: usize, style: Style) {
    buffer.set_stringn(x, y, safe(text), max_width, style);
}

/// Returns the beginning of a text that fits, with a mark where it was cut.
fn truncate_to_width(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let beginning = &text[..fitting_bytes(text, columns.saturating_sub(1))];
    format!("{beginning}…")
}

/// Returns how many bytes of a text fit.
fn fitting_bytes(text: &str, columns: usize) -> usize {
    let mut used = 0;
    let end = text.char_indices().find(|(_, c)| {
        used += c.width().unwrap_or(0);
        used > columns
    });
    end.map_or(text.len(), |(offset, _)| offset)
}

fn bold_style() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn dim_style() -> Style {
    Style::new().add_modifier(Modifier::DIM)
}

fn error_style() -> Style {
    Style::new().fg(Color::Red)
}

/// The colour of an author. The text names the author, too.
fn author_style(author: usize) -> Style {
    const COLORS: [Color; 5] = [Color::Cyan, Color::Green, Color::Yellow, Color::Magenta, Color::Blue];
    Style::new().fg(COLORS[author % COLORS.len()])
}

fn row_style(style: RowStyle) -> Style {
    match style {
        RowStyle::Plain => Style::new(),
        RowStyle::Quiet => dim_style(),
        RowStyle::Heading => bold_style(),
        RowStyle::Error => error_style(),
        RowStyle::Added => Style::new().fg(Color::Green),
        RowStyle::Removed => Style::new().fg(Color::Red),
        RowStyle::Location => Style::new().fg(Color::Cyan),
    }
}

/// Replaces everything that the terminal cannot show.
fn replace_unsupported(buffer: &mut Buffer, capabilities: TerminalCapabilities) {
    for cell in &mut buffer.content {
        if !capabilities.colors {
            cell.fg = Color::Reset;
            cell.bg = Color::Reset;
        }
        if !capabilities.unicode && !cell.symbol().is_ascii() {
            let replacement = match cell.symbol() {
                "…" => "~",
                "—" | "─" => "-",
                "│" => "|",
                "●" => "*",
                "▸" => "+",
                "▾" => "-",
                "▁" => "_",
                "▂" => ".",
                "▃" => ",",
                "▄" => "-",
                "▅" => "=",
                "▆" => "+",
                "▇" => "*",
                "█" => "#",
                _ => "?",
            };
            cell.set_symbol(replacement);
        }
    }
}
