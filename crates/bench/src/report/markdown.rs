//! Tables for people: the same Markdown goes to the terminal and into docs/benchmarks/.

use std::fmt::Write;

use serde_json::Value;

use crate::report::goals::Goal;
use crate::report::results::{Results, Row, TreeResults, median, ms};
use crate::systems::{ALL, is_peer};

/// The tables of `bench files`.
pub fn render_files(results: &Results, goals: &[Goal]) -> String {
    let mut text = String::new();
    for tree in &results.trees {
        tree_tables(&mut text, tree);
    }
    large_file(&mut text, results);
    store_table(&mut text, results);
    memory_table(&mut text, results);
    goal_list(&mut text, goals);
    bullet_list(&mut text, "Failures of stepback", &results.failures);
    bullet_list(&mut text, "Notes on peers", &results.notes);
    // Every section begins with an empty line.
    text.trim_start().to_owned()
}

/// One line on the machine and the versions.
pub fn machine_line(machine: &Value) -> String {
    let machine_field = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
    let tools = ["git", "restic", "borg", "stepback"].iter().filter_map(|tool| machine[*tool].as_str());
    format!(
        "{}, {} cores, Linux {}, {}; {}.",
        machine_field("cpu"),
        machine["cores"],
        machine_field("kernel"),
        machine_field("file_system"),
        tools.collect::<Vec<_>>().join(", ")
    )
}

// Writing to a string cannot fail, so the results of `writeln!` are dropped throughout.
fn tree_tables(text: &mut String, tree: &TreeResults) {
    let has_samples = |name: &&str| tree.rows.iter().any(|row| row.samples.contains_key(*name));
    let systems: Vec<&str> = ALL.into_iter().filter(has_samples).collect();
    let _ = writeln!(text, "\n## Tree {}: {} files\n\nMedian wall time in ms.\n", tree.name, tree.files);
    let mut table = MarkdownTable::new(["operation"].into_iter().chain(systems.iter().copied()));
    for column in ["stepback ÷ limit", "fastest peer ÷ stepback", "cline ÷ stepback"] {
        table.head.push(column.to_owned());
    }
    for row in &tree.rows {
        let mut cells = vec![row.operation.clone()];
        cells.extend(systems.iter().map(|system| format_number(row.median_wall(system))));
        cells.extend(ratio_cells(row));
        table.rows.push(cells);
    }
    text.push_str(&table.to_markdown());
    let _ = writeln!(text, "\nMedian CPU time in ms, all processes of the operation.\n");
    let mut table = MarkdownTable::new(["operation"].into_iter().chain(systems.iter().copied()));
    for row in &tree.rows {
        let cells = systems.iter().map(|system| format_number(row.median_cpu(system)));
        table.rows.push([row.operation.clone()].into_iter().chain(cells).collect());
    }
    text.push_str(&table.to_markdown());
}

/// stepback over the limit, and how many times faster it is than the fastest peer and than Cline's way.
fn ratio_cells(row: &Row) -> [String; 3] {
    let stepback_ms = row.median_wall("stepback");
    let ratio = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a / b);
    let format_ratio = |ratio: Option<f64>| ratio.map_or("–".to_owned(), |ratio| format!("{ratio:.2} ×"));
    let peer = row.fastest(ALL.into_iter().filter(|name| is_peer(name)));
    let peer_ratio = peer.and_then(|(name, wall)| Some(format!("{:.2} × ({name})", wall / stepback_ms?)));
    [
        format_ratio(ratio(stepback_ms, row.median_wall("limit"))),
        peer_ratio.unwrap_or_else(|| "–".to_owned()),
        format_ratio(ratio(row.median_wall("cline"), stepback_ms)),
    ]
}

fn large_file(text: &mut String, results: &Results) {
    if results.large_file.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n## One byte changed in a file of 200 MB\n");
    let mut table = MarkdownTable::new(["system", "wall ms", "CPU ms", "MB added"].into_iter());
    for row in &results.large_file {
        table.rows.push(vec![
            row.system.to_owned(),
            format_number(median(row.samples.iter().map(|cost| ms(cost.wall)))),
            format_number(median(row.samples.iter().map(|cost| ms(cost.cpu)))),
            median(row.added.iter().map(|bytes| *bytes as f64 / 1e6))
                .map_or("–".to_owned(), |mb| format!("{mb:.2}")),
        ]);
    }
    text.push_str(&table.to_markdown());
}

fn store_table(text: &mut String, results: &Results) {
    let Some(first) = results.stores.first() else { return };
    let _ = writeln!(text, "\n## Store after {} checkpoints of 10 changed files\n", first.checkpoints);
    let _ = writeln!(
        text,
        "MB on disk; files that have another name outside the store are not counted but listed as linked.\n"
    );
    let mut table =
        MarkdownTable::new(["system", "allocated", "apparent", "linked", "after its own gc"].into_iter());
    let mb = |bytes: u64| format!("{:.1}", bytes as f64 / 1e6);
    for store in &results.stores {
        let compacted = store.compacted.map_or("–".to_owned(), |size| mb(size.allocated));
        let size = &store.size;
        table.rows.push(vec![
            store.system.to_owned(),
            mb(size.allocated),
            mb(size.apparent),
            mb(size.linked),
            compacted,
        ]);
    }
    text.push_str(&table.to_markdown());
}

fn memory_table(text: &mut String, results: &Results) {
    let Some(tree) = results.largest_tree() else { return };
    let Some(row) = tree.row("first") else { return };
    let _ = writeln!(text, "\n## Peak memory of the first checkpoint on {}\n", tree.name);
    let mut table = MarkdownTable::new(["system", "MB"].into_iter());
    for system in ALL {
        let peak = row.samples.get(system).and_then(|costs| costs.iter().map(|cost| cost.peak_memory).max());
        if let Some(peak) = peak.filter(|peak| *peak > 0) {
            table.rows.push(vec![system.to_owned(), format!("{:.1}", peak as f64 / 1e6)]);
        }
    }
    text.push_str(&table.to_markdown());
}

/// The goals and how they came out.
pub fn goal_list(text: &mut String, goals: &[Goal]) {
    if goals.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n## Goals\n");
    let mut table = MarkdownTable::new(["", "goal", "measured"].into_iter());
    for goal in goals {
        table.rows.push(vec![
            goal.outcome_label().to_owned(),
            goal.description.clone(),
            goal.measured.clone(),
        ]);
    }
    text.push_str(&table.to_markdown());
}

fn bullet_list(text: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n## {title}\n");
    for line in lines {
        let _ = writeln!(text, "- {line}");
    }
}

fn format_number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value < 100.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// A Markdown table that also lines up on a terminal.
pub struct MarkdownTable {
    /// Column titles.
    pub head: Vec<String>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
}

impl MarkdownTable {
    /// A table without rows.
    pub fn new<'a>(head: impl Iterator<Item = &'a str>) -> Self {
        Self { head: head.map(str::to_owned).collect(), rows: Vec::new() }
    }

    /// The table as text; the first column is a name, the others are numbers when they look like it.
    pub fn to_markdown(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.chain(self.head.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0).max(3)
        };
        let widths: Vec<usize> = (0..self.head.len()).map(width).collect();
        let line = |cells: &[String]| {
            let mut line = String::from("|");
            for (cell, width) in cells.iter().zip(&widths) {
                let _ = write!(line, " {cell:<width$} |");
            }
            line.push('\n');
            line
        };
        let mut text = line(&self.head);
        text.push_str(&line(&widths.iter().map(|width| "-".repeat(*width)).collect::<Vec<_>>()));
        for row in &self.rows {
            text.push_str(&line(row));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut table = MarkdownTable::new(["a", "second"].into_iter());
        table.rows.push(vec!["first ×".to_owned(), "2".to_owned()]);
        assert_eq!(table.to_markdown(), "| a       | second |\n| ------- | ------ |\n| first × | 2      |\n");
    }
}
