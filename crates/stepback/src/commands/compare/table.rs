//! The steps of both sides in two columns, with long runs of equal steps folded.

use stepback_history::compare::{ComparedStep, ComparisonRow, StepDifference};
use stepback_model::record::StepKind;
use unicode_width::UnicodeWidthStr;

use crate::diff_view;
use crate::output::{self, Paint};

/// Equal steps shown before and after one that differs.
const CONTEXT_STEPS: usize = 2;
/// The separator between the columns.
const GAP: &str = " │ ";
/// The narrowest width of a column.
const MIN_COLUMN_WIDTH: usize = 24;

/// Returns the table, fitted to `width` columns. Equal steps far from any difference are included only with `all`.
pub fn render_lines(rows: &[ComparisonRow], all: bool, paint: Paint, width: usize) -> Vec<String> {
    // A mark, a space, two columns.
    let column = (width.saturating_sub(2 + GAP.chars().count()) / 2).max(MIN_COLUMN_WIDTH);
    let near = rows_near_differences(rows);
    let mut lines = vec![format!("  {}{}{}", pad("A", column), paint.dim(GAP), "B")];
    let mut folded = 0;
    for (row, near) in rows.iter().zip(near) {
        if !near && !all {
            folded += 1;
            continue;
        }
        flush_folded(&mut lines, &mut folded, paint);
        lines.push(render_row(row, column, paint));
    }
    flush_folded(&mut lines, &mut folded, paint);
    lines
}

fn flush_folded(lines: &mut Vec<String>, folded: &mut u64, paint: Paint) {
    match std::mem::take(folded) {
        0 => {}
        count => lines.push(paint.dim(format!("  … {} …", output::count(count, "equal step")))),
    }
}

/// Returns which rows differ or are close to one that does.
fn rows_near_differences(rows: &[ComparisonRow]) -> Vec<bool> {
    let mut near = vec![false; rows.len()];
    for at in (0..rows.len()).filter(|at| !rows[*at].is_same()) {
        let end = (at + CONTEXT_STEPS + 1).min(rows.len());
        near[at.saturating_sub(CONTEXT_STEPS)..end].fill(true);
    }
    near
}

fn render_row(row: &ComparisonRow, column: usize, paint: Paint) -> String {
    let cell = |entry: &Option<ComparedStep>| {
        entry.as_ref().map_or_else(String::new, |entry| render_cell(entry, column))
    };
    let (left, right) = (pad(&cell(&row.a), column), cell(&row.b));
    let (mark, left, right) = match row.differs.first() {
        None => (" ".to_string(), paint.dim(left), paint.dim(right)),
        Some(StepDifference::OnlyA) => (paint.bad("-"), paint.bad(left), right),
        Some(StepDifference::OnlyB) => (paint.good("+"), left, paint.good(right)),
        Some(_) => (paint.note("≠"), paint.note(left), paint.note(right)),
    };
    let line = format!("{mark} {left}{}{right}", paint.dim(GAP));
    if row.b.is_none() && !paint.is_on() { line.trim_end().to_string() } else { line }
}

/// Returns a step as the text of one cell.
fn render_cell(entry: &ComparedStep, column: usize) -> String {
    let side = match entry.kind {
        StepKind::ToolStart | StepKind::ModelStart => "▸ ",
        StepKind::ToolEnd | StepKind::ModelEnd => "◂ ",
        _ => "  ",
    };
    let failed = if entry.failed { " (failed)" } else { "" };
    let label = format!("{:<6}{side}", format!("#{}", entry.number));
    let room = column.saturating_sub(label.width() + failed.len());
    format!("{label}{}{failed}", output::truncate_to_width(&diff_view::safe(&entry.summary), room))
}

fn pad(text: &str, columns: usize) -> String {
    format!("{text}{}", " ".repeat(columns.saturating_sub(text.width())))
}

#[cfg(test)]
mod tests {
    use stepback_model::ids::StepId;

    use super::*;

    fn row(number: u64, differs: Vec<StepDifference>) -> ComparisonRow {
        let entry = ComparedStep {
            id: StepId::from_bytes([0; 16]),
            number,
            kind: StepKind::ToolStart,
            tool: None,
            summary: format!("a rather long description of step {number} 漢字"),
            failed: false,
        };
        let a = (differs != [StepDifference::OnlyB]).then(|| entry.clone());
        let b = (differs != [StepDifference::OnlyA]).then_some(entry);
        ComparisonRow { a, b, differs }
    }

    #[test]
    fn what_is_the_same_is_folded_and_nothing_is_too_wide() {
        let mut rows: Vec<ComparisonRow> = (1..=20).map(|number| row(number, Vec::new())).collect();
        rows.insert(10, row(99, vec![StepDifference::OnlyB]));
        let shown = render_lines(&rows, false, Paint::stderr(), 80);
        assert_eq!(shown.iter().filter(|line| line.contains("8 equal steps")).count(), 2, "{shown:#?}");
        assert_eq!(shown.len(), 1 + 2 + 5);
        assert!(shown.iter().any(|line| line.starts_with('+') && line.contains("#99")));
        let all = render_lines(&rows, true, Paint::stderr(), 80);
        assert_eq!(all.len(), 22);
        assert!(all.iter().all(|line| line.width() <= 80), "{all:#?}");
    }
}
