//! Draws lists: sessions, steps, search results, breakpoints.

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use stepback_api::sessions::SessionDocument;
use stepback_api::steps::StepDocument;
use stepback_model::escape::safe;
use stepback_model::quantity;

use super::page::{draw_loaded, draw_note};
use super::{bold_style, dim_style, draw_text, error_style, truncate_to_width};
use crate::app::{App, LiveRow, OpenSession, SearchHits, WIDE};

fn selected_style(style: Style, is_selected: bool) -> Style {
    if is_selected { style.add_modifier(Modifier::REVERSED) } else { style }
}

fn selection_marker(is_selected: bool) -> &'static str {
    if is_selected { "> " } else { "  " }
}

/// Draws all sessions.
pub fn draw_sessions(app: &App, area: Rect, buffer: &mut Buffer) {
    if app.sessions.is_empty() {
        let text = match app.sessions_loaded {
            true => {
                "No session has been recorded yet. \"stepback init\" records agents, \"stepback demo\" shows one."
            }
            false => "reading …",
        };
        return draw_note(text, area, buffer);
    }
    let width = usize::from(area.width);
    let visible = app.sessions.iter().enumerate().skip(app.selected.1);
    for (y, (index, session)) in (area.y..area.y + area.height).zip(visible) {
        let is_selected = index == app.selected.0;
        let text = format!(
            "{}{}",
            selection_marker(is_selected),
            format_session(app, session, width.saturating_sub(2))
        );
        let style = match session.status.as_str() {
            "stopped" => error_style().add_modifier(Modifier::BOLD),
            "active" => bold_style(),
            _ => Style::new(),
        };
        draw_text(buffer, area.x, y, &format!("{text:<width$}"), width, selected_style(style, is_selected));
    }
}

fn format_session(app: &App, session: &SessionDocument, width: usize) -> String {
    let age = session.last_seen().ago(app.now);
    let mark = match session.status.as_str() {
        "stopped" => "!",
        "active" => "●",
        _ => " ",
    };
    // What a user does without an agent is a session as well.
    let untitled = if session.agent == "person" { "(by hand)" } else { "(no prompt)" };
    let title = safe(session.title.as_deref().unwrap_or(untitled));
    let agent = safe(&session.agent);
    let left = match width {
        0..60 => format!("{mark} {:<8} {:<8} ", session.short_id(), truncate_to_width(&agent, 8)),
        _ => format!(
            "{mark} {:<8} {:<10} {:<8} {:>12} {:>4} ",
            session.short_id(),
            truncate_to_width(&agent, 10),
            session.status,
            age,
            session.iterations
        ),
    };
    let cost = if session.cost_usd > 0.0 { format!(" ${:.2}", session.cost_usd) } else { String::new() };
    let room = width.saturating_sub(unicode_width::UnicodeWidthStr::width(left.as_str()) + cost.len());
    format!("{left}{}{cost}", truncate_to_width(&title, room))
}

/// Draws the steps of the open session, and the current step beside them if there is room.
pub fn draw_timeline(app: &App, area: Rect, buffer: &mut Buffer) {
    let Some(open) = &app.open else {
        return draw_note("No session is open. Select one in the sessions and press enter.", area, buffer);
    };
    let list = if area.width >= WIDE { Rect { width: area.width / 2, ..area } } else { area };
    if open.window.current().is_none() {
        return draw_note("This session has no step yet.", list, buffer);
    }
    for (y, (step, is_selected)) in (list.y..).zip(open.window.visible_rows(usize::from(list.height))) {
        draw_step(open, step, is_selected, Rect { y, height: 1, ..list }, buffer);
    }
    if list.width < area.width {
        for y in area.y..area.y + area.height {
            draw_text(buffer, list.width, y, "│", 1, dim_style());
        }
        let detail_area = Rect { x: list.width + 2, width: area.width - list.width - 2, ..area };
        draw_loaded(&app.step, "", detail_area, buffer);
    }
}

fn draw_step(open: &OpenSession, step: &StepDocument, is_selected: bool, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let stretch = open.lines.find_span(step.number);
    let left_behind = stretch.is_some_and(|stretch| stretch.rolled_back);
    let mark = match (step.is_error(), step.checkpoint) {
        _ if left_behind => "~",
        (true, _) => "!",
        (false, true) => "●",
        (false, false) => " ",
    };
    let tips = open.tip_labels(step.number);
    let branch = stretch.filter(|_| open.lines.is_branched()).and_then(|stretch| stretch.branch.as_deref());
    let branch = branch.map(|name| format!("{name}: ")).unwrap_or_default();
    let time = step.at.to_jiff().to_string();
    let time = time.get(11..19).unwrap_or_default();
    let number = format!("#{}", step.number);
    let duration = match step.kind.as_str() {
        "tool-end" | "model-end" => {
            step.duration_us.map(|took_us| format!(" {}", quantity::duration(Duration::from_micros(took_us))))
        }
        _ => None,
    };
    let label = step.label.as_ref().map(|label| format!("[{label}] ")).unwrap_or_default();
    let worker = step.worker.as_ref().map(|worker| format!("({worker}) ")).unwrap_or_default();
    let anomalies = open.anomaly_labels(step.number);
    let failed = if step.failed { "failed: " } else { "" };
    let columns = match width {
        0..60 => format!(
            "{}{mark} {number:<6} {:<10} ",
            selection_marker(is_selected),
            truncate_to_width(&step.kind, 10)
        ),
        _ => format!(
            "{}{mark} {number:<7} {time} {:<14} ",
            selection_marker(is_selected),
            truncate_to_width(&step.kind, 14)
        ),
    };
    let duration = duration.unwrap_or_default();
    let room = width.saturating_sub(unicode_width::UnicodeWidthStr::width(columns.as_str()) + duration.len());
    let title = truncate_to_width(
        &safe(&format!("{anomalies}{failed}{branch}{tips}{label}{worker}{}", step.summary)),
        room,
    );
    let style = match step.kind.as_str() {
        _ if left_behind => dim_style(),
        _ if step.is_error() => error_style(),
        "user-input" => Style::new().fg(Color::Cyan),
        "tool-start" | "tool-end" => Style::new().fg(Color::Green),
        "model-start" | "model-end" => Style::new().fg(Color::Yellow),
        "checkpoint" | "rewind" => bold_style(),
        _ => Style::new(),
    };
    let text = format!("{columns}{title}");
    let gap = width.saturating_sub(unicode_width::UnicodeWidthStr::width(text.as_str()) + duration.len());
    let line = format!("{text}{}{duration}", " ".repeat(gap));
    draw_text(buffer, area.x, area.y, &line, width, selected_style(style, is_selected));
}

/// Draws the results of a search.
pub fn draw_search_hits(results: &SearchHits, area: Rect, buffer: &mut Buffer) {
    let (width, rows) = (usize::from(area.width), usize::from(area.height));
    let top = (results.selected_index + 1).saturating_sub(rows);
    let visible = results.hits.items.iter().enumerate().skip(top);
    for (y, (index, hit)) in (area.y..area.y + area.height).zip(visible) {
        let is_selected = index == results.selected_index;
        let step = &hit.found.step;
        let text = hit.snippets.first().map_or(&step.summary, |snippet| &snippet.text);
        let agent = hit.found.agent.as_deref().unwrap_or("");
        let line = format!(
            "{}{:<8} #{:<6} {:<8} {:<12} {}",
            selection_marker(is_selected),
            step.session.get(..8).unwrap_or(&step.session),
            step.number,
            truncate_to_width(&safe(agent), 8),
            truncate_to_width(&step.kind, 12),
            safe(text)
        );
        draw_text(
            buffer,
            area.x,
            y,
            &format!("{:<width$}", truncate_to_width(&line, width)),
            width,
            selected_style(Style::new(), is_selected),
        );
    }
}

/// Draws waiting agents, then breakpoints, then the details of the selected row.
pub fn draw_live(app: &App, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    let mut lines: Vec<(String, Style)> = vec![("Agents that wait".into(), bold_style())];
    for (index, stop) in app.live.stops.iter().enumerate() {
        let seconds_left = (stop.until.as_micros() - app.now.as_micros()) / 1_000_000;
        let session = stop.session.get(..8).unwrap_or(&stop.session);
        let is_selected = app.live.selected_index == index;
        let text = format!(
            "{}! {} {session} wants {} ({}), refused automatically in {} s",
            selection_marker(is_selected),
            stop.agent,
            stop.tool,
            stop.reason,
            seconds_left.max(0)
        );
        lines.push((safe(&text), selected_style(error_style(), is_selected)));
    }
    if app.live.stops.is_empty() {
        lines.push(("  none".into(), dim_style()));
    }
    lines.push((String::new(), Style::new()));
    lines.push(("Breakpoints of this workspace".into(), bold_style()));
    for (index, breakpoint) in app.live.breakpoints.iter().enumerate() {
        let is_selected = app.live.selected_index == app.live.stops.len() + index;
        let state = if breakpoint.enabled { "on " } else { "off" };
        let condition = breakpoint
            .condition
            .as_ref()
            .map(|text| format!(" if the input matches {text}"))
            .unwrap_or_default();
        let when = breakpoint.hit_condition.as_ref().map(|text| format!(", hit {text}")).unwrap_or_default();
        let log = if breakpoint.log { ", log only" } else { "" };
        let text = format!(
            "{}{} {state} {}{condition}{when}{log}, {} hits",
            selection_marker(is_selected),
            breakpoint.id,
            breakpoint.description,
            breakpoint.hits
        );
        lines.push((
            safe(&text),
            selected_style(if breakpoint.enabled { Style::new() } else { dim_style() }, is_selected),
        ));
    }
    if app.live.breakpoints.is_empty() {
        lines.push(("  none; a adds one".into(), dim_style()));
    }
    if let Some(LiveRow::Stop(stop)) = app.live.selected_row() {
        lines.push((String::new(), Style::new()));
        lines.push((safe(&format!("{} wants to run {}", stop.agent, stop.tool)), bold_style()));
        let mut rows = crate::app::pager::RowBuilder::default();
        crate::write::add_value(&mut rows, "  ", &stop.input, crate::app::pager::RowStyle::Plain);
        let visible = rows.finish().into_iter().take(usize::from(area.height));
        lines.extend(visible.map(|row| (row.text, Style::new())));
    }
    for (y, (text, style)) in (area.y..area.y + area.height).zip(&lines) {
        draw_text(buffer, area.x, y, &truncate_to_width(text, width), width, *style);
    }
}
