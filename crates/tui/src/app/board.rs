//! The agent's board at the current step: one row for each item.

use stepback_api::reasoning::{BoardDocument, BoardItemDocument, BoardLinkDocument, ConfidenceDocument};

use super::pager::RowStyle;
use super::{App, View, graph};
use crate::effect::{AppEffect, LoadState};
use crate::source::SourceResult;

/// Rows for the details of the selected item, including the line above them.
const DETAIL_ROWS: usize = 4;
/// The fewest rows at which these details are shown.
const MIN_ROWS_FOR_DETAILS: usize = 14;

/// A row of a board.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BoardRow {
    /// The text of the row.
    pub text: String,
    /// The style of the row.
    pub style: RowStyle,
    /// The id of the item that the row is about; `None` for other rows.
    pub item: Option<String>,
    /// Whether its confidence over time is shown with it.
    pub shows_confidence: bool,
    /// The number of the step it came from.
    pub step: Option<u64>,
    /// The complete text of the item.
    pub full_text: String,
    /// Its origin and its relations to other items.
    pub details: String,
}

/// A board, and the position in it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct BoardView {
    /// The number of the step that last changed the board.
    pub changed_at: Option<u64>,
    /// The rows of the board.
    pub lines: Vec<BoardRow>,
    selected_index: usize,
    top: usize,
}

impl BoardView {
    /// Builds the rows from a document.
    pub fn from_document(document: &BoardDocument) -> Self {
        let mut lines = Vec::new();
        let Some(thought) = &document.step else {
            lines.push(BoardRow {
                text: "The board was empty at this step.".into(),
                style: RowStyle::Quiet,
                ..BoardRow::default()
            });
            return Self { lines, ..Self::default() };
        };
        for change in &document.changes {
            let mark = if change.change == "added" {
                '+'
            } else if change.change == "removed" {
                '-'
            } else {
                '*'
            };
            lines.push(BoardRow {
                text: format!("{mark} {}", change.sentence),
                style: change_style(Some(&change.change)),
                item: Some(change.item.clone()),
                step: Some(thought.number),
                full_text: change.sentence.clone(),
                ..BoardRow::default()
            });
        }
        let change_count = document.changes.len() as u64;
        if document.changed > change_count {
            lines.push(quiet_row(format!("… and {} more changes", document.changed - change_count)));
        }
        if document.changed == 0 {
            lines.push(quiet_row(format!("as of #{}: {}", thought.number, thought.summary)));
        }
        if !document.next.is_empty() {
            lines.push(BoardRow::default());
            lines.push(heading_row("What to do next"));
            lines.extend(document.next.iter().map(|next| BoardRow {
                text: format!("  {}  {}", next.item, next.what),
                item: Some(next.item.clone()),
                full_text: next.what.clone(),
                details: format!("because {}", next.why),
                ..BoardRow::default()
            }));
        }
        let evidence: Vec<&BoardItemDocument> = part_items(document, "evidence").collect();
        let beliefs: Vec<&BoardItemDocument> = part_items(document, "beliefs").collect();
        for (name, title) in [
            ("hypotheses", "Hypotheses"),
            ("contradictions", "Contradictions"),
            ("beliefs", "Beliefs"),
            ("gaps", "Gaps"),
            ("verifications", "Verifications"),
            ("experiments", "Experiments"),
            ("notes", "Notes"),
        ] {
            let Some(part) = document.parts.iter().find(|part| part.name == name && part.total > 0) else {
                continue;
            };
            lines.push(BoardRow::default());
            lines.push(heading_row(&format!("{title} {}", part.total)));
            for item in &part.items {
                lines.push(item_row(item, ""));
                if name == "hypotheses" {
                    let is_about = |evidence_item: &&&BoardItemDocument| {
                        evidence_item.links.iter().any(|link| link.to == item.id)
                    };
                    lines.extend(
                        evidence.iter().filter(is_about).map(|evidence_item| item_row(evidence_item, "  ")),
                    );
                }
                if name == "beliefs" {
                    lines.extend(graph::dependency_rows(item, &beliefs));
                }
            }
            let omitted = part.total.saturating_sub(part.items.len() as u64);
            if omitted > 0 {
                lines.push(quiet_row(format!("  … and {omitted} more; \"stepback board\" shows all")));
            }
        }
        Self { changed_at: Some(thought.number), lines, selected_index: 0, top: 0 }
    }

    /// Keeps the position of another board: the same item stays selected.
    fn keep_position(mut self, previous: &Self) -> Self {
        let old_item = previous.lines.get(previous.selected_index).and_then(|line| line.item.as_ref());
        // The list of changes comes first and differs at every step, so the last row of the item is used.
        let index =
            old_item.and_then(|item| self.lines.iter().rposition(|line| line.item.as_ref() == Some(item)));
        if previous.selected_index > 0 {
            self.selected_index =
                index.unwrap_or(previous.selected_index.min(self.lines.len().saturating_sub(1)));
            self.top = previous.top;
        }
        self
    }

    fn move_by(&mut self, by: i64) {
        let last = self.lines.len().saturating_sub(1) as i64;
        self.selected_index = (self.selected_index as i64).saturating_add(by).clamp(0, last) as usize;
    }

    /// Moves to the next or the previous heading.
    fn move_to_heading(&mut self, forward: bool) {
        let is_head = |line: &BoardRow| line.style == RowStyle::Heading;
        let match_index = match forward {
            true => self
                .lines
                .iter()
                .skip(self.selected_index + 1)
                .position(is_head)
                .map(|index| index + self.selected_index + 1),
            false => self.lines.iter().take(self.selected_index).rposition(is_head),
        };
        self.selected_index = match_index.unwrap_or(self.selected_index);
    }

    fn scroll_into_view(&mut self, rows: usize) {
        let rows = list_height(rows);
        self.top = self.top.clamp((self.selected_index + 1).saturating_sub(rows.max(1)), self.selected_index);
    }

    /// Returns the selected row.
    pub fn selected(&self) -> Option<&BoardRow> {
        self.lines.get(self.selected_index)
    }

    /// Returns at most `rows` rows, each with whether it is selected.
    pub fn visible_rows(&self, rows: usize) -> impl Iterator<Item = (&BoardRow, bool)> {
        self.lines
            .iter()
            .enumerate()
            .skip(self.top)
            .take(rows)
            .map(|(index, line)| (line, index == self.selected_index))
    }

    pub(super) fn click_row(&mut self, row: usize) -> bool {
        let index = self.top + row;
        index >= self.lines.len() || std::mem::replace(&mut self.selected_index, index) != index
    }
}

/// Returns how many of the board's `rows` belong to the list; the rest shows the selected item.
pub fn list_height(rows: usize) -> usize {
    if rows >= MIN_ROWS_FOR_DETAILS { rows - DETAIL_ROWS } else { rows }
}

fn part_items<'m>(
    document: &'m BoardDocument,
    name: &str,
) -> impl Iterator<Item = &'m BoardItemDocument> + use<'m> {
    let part = document.parts.iter().find(|part| part.name == name);
    part.into_iter().flat_map(|part| &part.items)
}

fn heading_row(text: &str) -> BoardRow {
    BoardRow { text: text.to_owned(), style: RowStyle::Heading, ..BoardRow::default() }
}

fn quiet_row(text: String) -> BoardRow {
    BoardRow { full_text: text.clone(), text, style: RowStyle::Quiet, ..BoardRow::default() }
}

fn change_style(change: Option<&str>) -> RowStyle {
    match change {
        Some("added") => RowStyle::Added,
        Some("removed") => RowStyle::Removed,
        Some(_) => RowStyle::Location,
        None => RowStyle::Plain,
    }
}

/// Returns an item as a row.
fn item_row(item: &BoardItemDocument, indent: &str) -> BoardRow {
    let mark = match item.change.as_deref() {
        Some("added") => '+',
        Some(_) => '*',
        None => ' ',
    };
    let mut words = vec![format!("{mark} {indent}{:<4}", item.id)];
    words.extend(item.confidence.map(|sure| format!("{sure:.2}")));
    words.extend(item.strength.map(|strength| format!("{strength:+}")));
    words.extend(item.weight.clone());
    let is_usual = matches!(item.status.as_str(), "held" | "noted" | "in-force");
    words.extend(Some(item.status.clone()).filter(|_| !is_usual));
    words.extend(item.sort.clone().filter(|sort| sort != "detected" && sort != "declared"));
    words.push(item.text.clone());
    words.extend(item.tags.iter().map(|tag| format!("[{tag}]")));
    let is_over = matches!(
        item.status.as_str(),
        "rejected" | "archived" | "withdrawn" | "retracted" | "filled" | "dropped" | "resolved" | "dismissed"
    );
    let mood = match (item.change.as_deref(), is_over) {
        (None, true) => RowStyle::Quiet,
        (change, _) => change_style(change),
    };
    BoardRow {
        text: words.join(" "),
        style: mood,
        item: Some(item.id.clone()),
        shows_confidence: item.id.starts_with('H'),
        step: item.origin.step,
        full_text: match &item.more {
            Some(more) => format!("{}: {} ({more})", item.id, item.text),
            None => format!("{}: {}", item.id, item.text),
        },
        details: item_details(item),
    }
}

fn item_details(item: &BoardItemDocument) -> String {
    let mut facts = Vec::new();
    facts.extend(item.origin.step.map(|step| format!("came with #{step}")));
    facts.extend(item.origin.during.map(|step| format!("during the call of #{step}")));
    facts.extend(
        item.changed.as_ref().and_then(|origin| origin.step).map(|step| format!("changed with #{step}")),
    );
    facts.extend(
        item.alone
            .filter(|alone| item.confidence.is_some_and(|sure| sure != *alone))
            .map(|alone| format!("on its own {alone:.2}")),
    );
    if let Some(source) = &item.source {
        let step = source.step.map(|step| format!(" at #{step}")).unwrap_or_default();
        facts.push(format!("from {} {}{step}", source.kind, source.text).trim_end().to_owned());
    }
    facts.extend(item.links.iter().map(describe_link));
    facts.join(", ")
}

/// Describes the relation of an item to another one.
pub fn describe_link(link: &BoardLinkDocument) -> String {
    let strength = link.strength.map(|strength| format!(" ({strength:.2})")).unwrap_or_default();
    let reason = link.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{} {}{strength}{reason}", link.how.replace('-', " "), link.to)
}

impl App {
    /// Requests the board of the current step. The old one stays until the new one arrives.
    pub(super) fn refresh_board(&mut self, key: &str, session: String, number: u64) -> Option<AppEffect> {
        if self.board.key() == Some(key) {
            return None;
        }
        self.board = match std::mem::take(&mut self.board) {
            LoadState::Ready(_, board) => LoadState::Ready(key.to_owned(), board),
            _ => LoadState::Waiting(key.to_owned()),
        };
        Some(AppEffect::Board { key: key.to_owned(), session, number })
    }

    /// Stores a board that arrived, and requests the confidence over time if the agent has thought since it was last
    /// loaded.
    pub(super) fn store_board(&mut self, key: &str, result: SourceResult<BoardView>) -> Option<AppEffect> {
        if self.board.key() != Some(key) {
            return None;
        }
        let old_board = self.board.value().cloned();
        self.board.store(key, result);
        if let (Some(old_board), LoadState::Ready(_, new_board)) = (old_board, &mut self.board) {
            *new_board = std::mem::take(new_board).keep_position(&old_board);
        }
        let rows = self.view_rows();
        let board = self.board.value_mut()?;
        board.scroll_into_view(rows);
        let (thought, session) = (board.changed_at?, self.open.as_ref()?.session.id.clone());
        let last_number = self.confidence.value().and_then(|confidence| confidence.number.last().copied());
        let is_same_session =
            self.confidence.key().is_some_and(|is_same_session| is_same_session.starts_with(&session));
        if is_same_session && last_number.is_none_or(|last_number| last_number >= thought) {
            return None;
        }
        let key = format!("{session} {thought}");
        self.confidence.request(&key).then_some(AppEffect::Confidence { key, session })
    }

    pub(super) fn store_confidence(&mut self, key: &str, result: SourceResult<ConfidenceDocument>) {
        self.confidence.store(key, result);
    }

    pub(super) fn scroll_board(&mut self, by: i64) {
        let rows = self.view_rows();
        if let Some(board) = self.board.value_mut() {
            board.move_by(by);
            board.scroll_into_view(rows);
        }
    }

    pub(super) fn move_board_heading(&mut self, forward: bool) {
        let rows = self.view_rows();
        if let Some(board) = self.board.value_mut() {
            board.move_to_heading(forward);
            board.scroll_into_view(rows);
        }
    }

    /// Moves to the step that the selected item came from.
    pub(super) fn open_item_step(&mut self) -> Vec<AppEffect> {
        let step = self.board.value().and_then(BoardView::selected).and_then(|line| line.step);
        let session = self.open.as_ref().map(|open| open.session.id.clone());
        match (step, session) {
            (Some(step), Some(session)) => {
                self.view = View::Step;
                self.go_to_step(&session, step)
            }
            _ => {
                self.show_notice("select something on the board that came from a step");
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use stepback_api::reasoning::{
        BoardChangeDocument, BoardPartDocument, ItemOriginDocument, ThoughtDocument,
    };

    use super::*;

    fn item(id: &str, status: &str, text: &str, step: u64) -> BoardItemDocument {
        BoardItemDocument {
            id: id.into(),
            status: status.into(),
            text: text.into(),
            origin: ItemOriginDocument { step: Some(step), ..ItemOriginDocument::default() },
            ..BoardItemDocument::default()
        }
    }

    fn board_document(change: Option<&str>) -> BoardDocument {
        let link = BoardLinkDocument { to: "H1".into(), how: "for".into(), ..BoardLinkDocument::default() };
        let hypotheses = vec![
            BoardItemDocument {
                confidence: Some(0.82),
                change: change.map(str::to_owned),
                ..item("H1", "active", "a", 7)
            },
            BoardItemDocument { confidence: Some(0.2), ..item("H2", "rejected", "b", 8) },
        ];
        let evidence = vec![BoardItemDocument {
            strength: Some(0.5),
            links: vec![link],
            ..item("E1", "in-force", "seen", 9)
        }];
        let part = |name: &str, total, items| BoardPartDocument {
            name: name.into(),
            total,
            items,
            next_cursor: None,
        };
        let sentence = "H1 rose from 0.50 to 0.82 after E1".into();
        BoardDocument {
            step: Some(ThoughtDocument { number: 9, ..ThoughtDocument::default() }),
            changes: vec![BoardChangeDocument { item: "H1".into(), change: "changed".into(), sentence }],
            changed: 1,
            parts: vec![part("hypotheses", 3, hypotheses), part("evidence", 1, evidence)],
            ..BoardDocument::default()
        }
    }

    #[test]
    fn evidence_stands_below_its_hypothesis_and_changes_have_a_mark() {
        let board = BoardView::from_document(&board_document(Some("changed")));
        let texts: Vec<&str> = board.lines.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "* H1 rose from 0.50 to 0.82 after E1",
                "",
                "Hypotheses 3",
                "* H1   0.82 active a",
                "    E1   +0.5 seen",
                "  H2   0.20 rejected b",
                "  … and 1 more; \"stepback board\" shows all",
            ]
        );
        assert_eq!(board.lines[5].style, RowStyle::Quiet);
        assert_eq!(
            BoardView::from_document(&BoardDocument::default()).lines[0].text,
            "The board was empty at this step."
        );
    }

    #[test]
    fn the_place_is_kept_from_one_step_to_the_next() {
        let mut board = BoardView::from_document(&board_document(None));
        board.move_by(5);
        assert_eq!(board.selected().and_then(|line| line.step), Some(8));
        let mut next = board_document(None);
        next.changes.clear();
        let mut board = BoardView::from_document(&next).keep_position(&board);
        assert_eq!(board.selected().and_then(|line| line.item.as_deref()), Some("H2"));
        board.move_to_heading(false);
        assert_eq!(board.selected().map(|line| line.text.as_str()), Some("Hypotheses 3"));
        board.move_by(100);
        board.scroll_into_view(3);
        assert_eq!(board.visible_rows(3).last().map(|(_, is)| is), Some(true));
    }
}
