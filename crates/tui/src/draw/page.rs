//! Draws text, and the state of a step.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use stepback_model::quantity;

use super::{
    author_style, bold_style, dim_style, draw_text, error_style, fitting_bytes, row_style, truncate_to_width,
};
use crate::app::pager::{LineGutter, Pager};
use crate::app::{App, FileTree, StatePart};
use crate::effect::LoadState;

/// The width of a gutter, and of one in a narrow terminal.
const GUTTER: u16 = 32;
const NARROW_GUTTER: u16 = 9;
/// The columns of a terminal in which a gutter has its full width.
const WIDE_GUTTER_TERMINAL: u16 = 72;

/// Draws text from its scroll position on. Long rows are wrapped.
pub fn draw_pager(pager: &Pager, area: Rect, buffer: &mut Buffer) {
    let mut y = area.y;
    let end = area.y + area.height;
    let mut is_first = true;
    for row in pager.rows.iter().skip(pager.top) {
        let mut rest = row.text.as_str();
        let mut gutter = row.gutter.clone();
        if let Some(gutter) = gutter.as_mut().filter(|gutter| is_first && gutter.text.is_empty()) {
            // The row that says it is above the screen.
            let above = pager.rows[..=pager.top].iter().rev().filter_map(|row| row.gutter.as_ref());
            gutter.text =
                above.map(|gutter| gutter.text.clone()).find(|text| !text.is_empty()).unwrap_or_default();
        }
        is_first = false;
        loop {
            if y >= end {
                return;
            }
            let taken = gutter.as_mut().map_or(0, |gutter| draw_gutter(gutter, area, y, buffer));
            let width = usize::from(area.width - taken);
            let (line, remaining) = rest.split_at(find_line_break(rest, width));
            draw_text(buffer, area.x + taken, y, line, width, row_style(row.style));
            y += 1;
            if remaining.is_empty() {
                break;
            }
            rest = remaining;
        }
    }
}

/// Draws what is beside a row, once, and returns its width. In a narrow terminal only the step is shown.
fn draw_gutter(gutter: &mut LineGutter, area: Rect, y: u16, buffer: &mut Buffer) -> u16 {
    let width = if area.width >= WIDE_GUTTER_TERMINAL { GUTTER } else { NARROW_GUTTER };
    let text = std::mem::take(&mut gutter.text);
    let style = gutter.author.map_or_else(dim_style, author_style);
    let columns = usize::from(width) - 2;
    draw_text(buffer, area.x, y, &truncate_to_width(&text, columns), columns, style);
    draw_text(buffer, area.x + width - 2, y, "│", 1, style);
    width
}

/// Returns where to break a line of `width` columns: between words if a word ends in its second half, and never at the
/// start.
fn find_line_break(text: &str, width: usize) -> usize {
    // At least one character, however wide.
    let fits = fitting_bytes(text, width).max(text.chars().next().map_or(0, char::len_utf8));
    if fits == text.len() {
        return fits;
    }
    let space = text.get(..fits).and_then(|line| line.rfind(' ')).map(|offset| offset + 1);
    space.filter(|offset| *offset > fits / 2).unwrap_or(fits)
}

/// Draws text that may not have arrived yet.
pub fn draw_loaded(content: &LoadState<Pager>, placeholder: &str, area: Rect, buffer: &mut Buffer) {
    match content {
        LoadState::Ready(_, pager) => draw_pager(pager, area, buffer),
        LoadState::NotRequested => draw_note(placeholder, area, buffer),
        LoadState::Waiting(_) => draw_note("reading …", area, buffer),
        LoadState::Failed(_, reason) => {
            draw_text(
                buffer,
                area.x,
                area.y,
                &truncate_to_width(&format!("! {reason}"), usize::from(area.width)),
                usize::from(area.width),
                error_style(),
            );
        }
    }
}

/// Draws a short note in an empty area.
pub fn draw_note(text: &str, area: Rect, buffer: &mut Buffer) {
    draw_text(
        buffer,
        area.x,
        area.y,
        &truncate_to_width(text, usize::from(area.width)),
        usize::from(area.width),
        dim_style(),
    );
}

/// Draws the state at the step.
pub fn draw_state(app: &App, area: Rect, buffer: &mut Buffer) {
    let inspector = &app.inspector;
    let mut x = area.x;
    for part in StatePart::ALL {
        let (text, style) = match part == inspector.part {
            true => (format!("[{}]", part.name()), bold_style().add_modifier(Modifier::REVERSED)),
            false => (format!(" {} ", part.name()), dim_style()),
        };
        draw_text(buffer, x, area.y, &text, usize::from((area.x + area.width).saturating_sub(x)), style);
        x += text.len() as u16;
    }
    let count =
        inspector.files.value().map(FileTree::loaded_count).filter(|_| inspector.part == StatePart::Files);
    if let Some((count, has_more)) = count {
        let text = format!("{count}{} paths", if has_more { "+" } else { "" });
        let index = (area.x + area.width).saturating_sub(text.len() as u16);
        if index > x {
            draw_text(buffer, index, area.y, &text, text.len(), dim_style());
        }
    }
    let body = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    if let Some((path, content)) = &inspector.file {
        let width = usize::from(body.width);
        draw_text(buffer, body.x, body.y, &truncate_to_width(path, width), width, bold_style());
        let file_area = Rect { y: body.y + 1, height: body.height.saturating_sub(1), ..body };
        return draw_loaded(content, "", file_area, buffer);
    }
    match inspector.part {
        StatePart::Files => match &inspector.files {
            LoadState::Ready(_, files) => draw_files(files, body, buffer),
            LoadState::Failed(_, why) => draw_note(&format!("! {why}"), body, buffer),
            LoadState::Waiting(_) => draw_note("reading …", body, buffer),
            LoadState::NotRequested => draw_note("select a step in the timeline", body, buffer),
        },
        StatePart::Git => draw_git(inspector.files.value(), body, buffer),
        _ => draw_loaded(&inspector.text, "select a step in the timeline", body, buffer),
    }
}

fn draw_files(files: &FileTree, area: Rect, buffer: &mut Buffer) {
    let width = usize::from(area.width);
    if files.loaded_count().0 == 0 {
        return draw_note("no files: they had not been scanned by this step", area, buffer);
    }
    for (y, leaf) in (area.y..).zip(files.visible_rows(usize::from(area.height))) {
        let name = leaf.entry.path.rsplit('/').next().unwrap_or_default();
        let mark = match (leaf.entry.is_dir(), leaf.is_collapsed) {
            (true, true) => "▸ ",
            (true, false) => "▾ ",
            _ => "  ",
        };
        let suffix = match leaf.entry.node.kind.as_str() {
            "directory" => "/".to_owned(),
            "symlink" => format!(" -> {}", leaf.entry.node.target.as_deref().unwrap_or_default()),
            "excluded" => " (not stored)".to_owned(),
            _ => String::new(),
        };
        let text = format!("{}{mark}{name}{suffix}", "  ".repeat(leaf.depth.min(20)));
        let text = stepback_model::escape::safe(&text);
        let size = leaf.entry.node.size.map(quantity::bytes).unwrap_or_default();
        let changed = leaf.change.map(|kind| format!("* {kind}  ")).unwrap_or_default();
        let right = format!("{changed}{size:>9}");
        let room = width.saturating_sub(right.len() + 3);
        let line = format!(
            "{}{:<room$} {right}",
            if leaf.is_selected { "> " } else { "  " },
            truncate_to_width(&text, room)
        );
        let style = match (leaf.is_selected, leaf.change.is_some()) {
            (true, _) => Style::new().add_modifier(Modifier::REVERSED),
            (false, true) => bold_style(),
            (false, false) => Style::new(),
        };
        draw_text(buffer, area.x, y, &line, width, style);
    }
}

fn draw_git(files: Option<&FileTree>, area: Rect, buffer: &mut Buffer) {
    let Some(files) = files else { return draw_note("reading …", area, buffer) };
    if files.git.is_empty() {
        return draw_note("no git repository was seen by this step", area, buffer);
    }
    for (y, repository) in (area.y..area.y + area.height).zip(&files.git) {
        let head = match (&repository.branch, &repository.commit) {
            (Some(branch), Some(commit)) => format!("{branch} at {}", commit.get(..10).unwrap_or(commit)),
            (Some(branch), None) => format!("{branch}, before its first commit"),
            (None, Some(commit)) => format!("detached at {}", commit.get(..10).unwrap_or(commit)),
            (None, None) => "nowhere".into(),
        };
        let operation =
            repository.in_progress.as_ref().map(|name| format!(", {name} in progress")).unwrap_or_default();
        let stashes =
            if repository.stashes > 0 { format!(", {} stashes", repository.stashes) } else { String::new() };
        let text = stepback_model::escape::safe(&format!("{}: {head}{operation}{stashes}", repository.path));
        draw_text(
            buffer,
            area.x,
            y,
            &truncate_to_width(&text, usize::from(area.width)),
            usize::from(area.width),
            Style::new(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words_where_that_costs_little() {
        assert_eq!(find_line_break("one two three", 9), 8);
        assert_eq!(find_line_break("one two", 9), 7);
        assert_eq!(find_line_break("a bcdefghijkl", 9), 9, "half of the line would be empty");
        assert_eq!(find_line_break("日本", 1), 3);
        assert_eq!(find_line_break("", 5), 0);
    }
}
