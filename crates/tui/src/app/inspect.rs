//! The state at a step: its files as a tree, and the other parts as text.

use std::collections::{HashMap, HashSet};
use stepback_api::files::{ChangedFileDocument, FileDocument};
use stepback_api::page::Page;
use stepback_api::state::RepositoryDocument;
use stepback_api::steps::StepDocument;

use super::pager::Pager;
use super::{App, CompareTarget, View, WIDE};
use crate::effect::{AppEffect, LoadState};

/// A part of a state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum StatePart {
    /// The files.
    #[default]
    Files,
    /// The messages so far.
    Conversation,
    /// The agent's memory.
    Memory,
    /// The task list.
    Task,
    /// The state of git repositories.
    Git,
}

impl StatePart {
    /// All parts, in order.
    pub const ALL: [Self; 5] = [Self::Files, Self::Conversation, Self::Memory, Self::Task, Self::Git];

    /// Returns the name of the part.
    pub fn name(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Conversation => "conversation",
            Self::Memory => "memory",
            Self::Task => "task",
            Self::Git => "git",
        }
    }
}

/// Files as a tree whose directories can be collapsed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileTree {
    entries: Vec<FileDocument>,
    collapsed: HashSet<String>,
    /// The indices of visible entries: those in no collapsed directory.
    visible: Vec<usize>,
    selected_index: usize,
    top: usize,
    /// The cursor of the next page of files; `None` on the last page.
    next_cursor: Option<String>,
    /// The kind of change of each path that this step changed.
    changes: HashMap<String, String>,
    /// The git repositories in the workspace.
    pub git: Vec<RepositoryDocument>,
}

/// A row of the tree.
pub struct FileTreeRow<'f> {
    /// The file or directory.
    pub entry: &'f FileDocument,
    /// Its depth in the tree.
    pub depth: usize,
    /// Whether it is a collapsed directory.
    pub is_collapsed: bool,
    /// How this step changed it; `None` if it did not.
    pub change: Option<&'f str>,
    /// Whether it is selected.
    pub is_selected: bool,
}

impl FileTree {
    /// Creates the tree from a listing and the changes of the step.
    pub fn new(
        entries: Vec<FileDocument>,
        cursor: Option<String>,
        git: Vec<RepositoryDocument>,
        changed: &[ChangedFileDocument],
    ) -> Self {
        let changed =
            changed.iter().map(|change| (change.change.path.clone(), change.change.kind.clone())).collect();
        let mut files = Self { entries, next_cursor: cursor, git, changes: changed, ..Self::default() };
        files.update_visible();
        files
    }

    /// Keeps the position of another tree: the same path selected, the same directories collapsed.
    fn keep_position(mut self, previous: &Self) -> Self {
        self.collapsed.clone_from(&previous.collapsed);
        self.update_visible();
        if let Some(path) = previous.selected().map(|entry| &entry.path) {
            let position = self
                .visible
                .iter()
                .position(|index| self.entries.get(*index).is_some_and(|one| one.path == *path));
            self.selected_index = position.unwrap_or(0);
        }
        self.top = previous.top;
        self
    }

    fn update_visible(&mut self) {
        self.visible.clear();
        let mut inside: Option<String> = None;
        for (index, entry) in self.entries.iter().enumerate() {
            if inside.as_ref().is_some_and(|dir| entry.path.starts_with(dir.as_str())) {
                continue;
            }
            inside = self.collapsed.contains(&entry.path).then(|| format!("{}/", entry.path));
            self.visible.push(index);
        }
    }

    fn extend(&mut self, entries: Vec<FileDocument>, cursor: Option<String>) {
        self.entries.extend(entries);
        self.next_cursor = cursor;
        self.update_visible();
    }

    /// Returns the selected entry.
    pub fn selected(&self) -> Option<&FileDocument> {
        self.entries.get(*self.visible.get(self.selected_index)?)
    }

    fn move_by(&mut self, by: i64) {
        let last = self.visible.len().saturating_sub(1) as i64;
        self.selected_index = (self.selected_index as i64).saturating_add(by).clamp(0, last) as usize;
    }

    fn scroll_into_view(&mut self, rows: usize) {
        self.top = self.top.clamp((self.selected_index + 1).saturating_sub(rows.max(1)), self.selected_index);
    }

    fn toggle_directory(&mut self, path: &str) {
        if !self.collapsed.remove(path) {
            self.collapsed.insert(path.to_owned());
        }
        self.update_visible();
    }

    /// Returns how many paths are loaded, and whether there are more.
    pub fn loaded_count(&self) -> (usize, bool) {
        (self.entries.len(), self.next_cursor.is_some())
    }

    /// Returns at most `rows` rows.
    pub fn visible_rows(&self, rows: usize) -> impl Iterator<Item = FileTreeRow<'_>> {
        let rows_in_view = self.visible.iter().enumerate().skip(self.top).take(rows);
        rows_in_view.filter_map(|(index, entry)| {
            let entry = self.entries.get(*entry)?;
            Some(FileTreeRow {
                depth: entry.path.matches('/').count(),
                is_collapsed: self.collapsed.contains(&entry.path),
                change: self.changes.get(&entry.path).map(String::as_str),
                is_selected: index == self.selected_index,
                entry,
            })
        })
    }
}

/// The state at a step, and the part of it that is shown.
#[derive(Debug, Default)]
pub struct Inspector {
    /// The part that is shown.
    pub part: StatePart,
    /// The files.
    pub files: LoadState<FileTree>,
    /// The text of any other part.
    pub text: LoadState<Pager>,
    /// The open file: its path and content.
    pub file: Option<(String, LoadState<Pager>)>,
    /// Whether the author of each line is shown beside it.
    pub shows_origins: bool,
}

impl Inspector {
    pub(super) fn change_part(&mut self, forward: bool) {
        self.file = None;
        let index = StatePart::ALL.iter().position(|part| *part == self.part).unwrap_or(0);
        let offset = if forward { 1 } else { StatePart::ALL.len() - 1 };
        self.part = StatePart::ALL[(index + offset) % StatePart::ALL.len()];
    }

    /// Closes the open file. Returns whether one was open.
    pub(super) fn close_file(&mut self) -> bool {
        self.file.take().is_some()
    }

    pub(super) fn click_row(&mut self, row: usize) -> bool {
        let Some(files) =
            self.files.value_mut().filter(|_| self.part == StatePart::Files && self.file.is_none())
        else {
            return true;
        };
        // The first row names the parts.
        let Some(index) = row.checked_sub(1).map(|row| files.top + row) else { return true };
        index >= files.visible.len() || std::mem::replace(&mut files.selected_index, index) != index
    }
}

impl App {
    /// Requests everything that the view needs and does not have.
    pub(super) fn refresh(&mut self) -> Vec<AppEffect> {
        let mut effects = Vec::new();
        let Some((session, step)) = self
            .open
            .as_ref()
            .and_then(|open| Some((open.session.id.clone(), open.window.current()?.clone())))
        else {
            return effects;
        };
        let key = format!("{session} {}", step.number);
        let shows_details = self.view == View::Timeline && self.size.0 >= WIDE;
        if (shows_details || self.view == View::Step) && self.step.request(&key) {
            effects.push(AppEffect::Step {
                key: key.clone(),
                session: session.clone(),
                step: step.clone().into(),
            });
        }
        if self.view == View::Diff {
            let key = match &self.compare_target {
                CompareTarget::Parent => key.clone(),
                CompareTarget::Marked(id, _) => format!("{key} {id}"),
                CompareTarget::Now => format!("{key} now"),
            };
            if self.diff.request(&key) {
                effects.push(AppEffect::Diff {
                    key,
                    step: step.clone().into(),
                    against: self.compare_target.clone(),
                });
            }
        }
        if self.view == View::Board {
            effects.extend(self.refresh_board(&key, session.clone(), step.number));
        }
        if self.view == View::State {
            effects.extend(self.refresh_state(key, session, step));
        }
        effects
    }

    fn refresh_state(&mut self, key: String, session: String, step: StepDocument) -> Option<AppEffect> {
        let (inspector, number) = (&mut self.inspector, step.number);
        if let Some((path, content)) = &mut inspector.file {
            let files = inspector.files.value();
            let address = files.and_then(|files| files.entries.iter().find(|entry| entry.path == *path));
            let address = address.map(|entry| entry.address.clone())?;
            if inspector.shows_origins {
                let key = format!("{key} {path} origins");
                let path = path.clone();
                let workspace = self.open.as_ref().map(|open| open.session.workspace.clone())?;
                return content.request(&key).then_some(AppEffect::Origins { key, workspace, number, path });
            }
            let key = format!("{key} {path}");
            return content.request(&key).then_some(AppEffect::File { key, session, number, address });
        }
        match inspector.part {
            StatePart::Files | StatePart::Git => {
                if inspector.files.key() == Some(key.as_str()) {
                    return None;
                }
                // The old content stays until the new one arrives, to avoid flicker and to keep the position.
                inspector.files = match std::mem::take(&mut inspector.files) {
                    LoadState::Ready(_, files) => LoadState::Ready(key.clone(), files),
                    _ => LoadState::Waiting(key.clone()),
                };
                Some(AppEffect::State { key, session, step: step.into() })
            }
            part => {
                let key = format!("{key} {}", part.name());
                inspector.text.request(&key).then_some(AppEffect::Part { key, session, number, part })
            }
        }
    }

    pub(super) fn scroll_state(&mut self, by: i64) -> Vec<AppEffect> {
        let rows = self.view_rows().saturating_sub(1);
        let open = self
            .open
            .as_ref()
            .and_then(|open| Some((open.session.id.clone(), open.window.current()?.number)));
        let inspector = &mut self.inspector;
        if let Some((_, content)) = &mut inspector.file {
            content.value_mut().into_iter().for_each(|pager| pager.scroll(by));
            return Vec::new();
        }
        match inspector.part {
            StatePart::Files => {
                let key = inspector.files.key().unwrap_or_default().to_owned();
                let Some(files) = inspector.files.value_mut() else { return Vec::new() };
                files.move_by(by);
                files.scroll_into_view(rows);
                let is_near_end = files.selected_index + 2 * rows >= files.visible.len();
                match (files.next_cursor.take_if(|_| is_near_end), open) {
                    (Some(cursor), Some((session, number))) => {
                        vec![AppEffect::Files { key, session, number, cursor }]
                    }
                    _ => Vec::new(),
                }
            }
            StatePart::Git => Vec::new(),
            _ => {
                inspector.text.value_mut().into_iter().for_each(|pager| pager.scroll(by));
                Vec::new()
            }
        }
    }

    /// Shows the author of each line, or no longer.
    pub(super) fn toggle_origins(&mut self) -> Vec<AppEffect> {
        if self.inspector.file.is_none() {
            self.show_notice("open a file first");
            return Vec::new();
        }
        self.inspector.shows_origins = !self.inspector.shows_origins;
        self.refresh()
    }

    pub(super) fn open_entry(&mut self) -> Vec<AppEffect> {
        let inspector = &mut self.inspector;
        if inspector.file.is_some() || inspector.part != StatePart::Files {
            return Vec::new();
        }
        let Some(files) = inspector.files.value_mut() else { return Vec::new() };
        let Some(entry) = files.selected().cloned() else { return Vec::new() };
        match entry.node.kind.as_str() {
            "directory" => files.toggle_directory(&entry.path),
            "file" => {
                inspector.file = Some((entry.path, LoadState::NotRequested));
                return self.refresh();
            }
            "symlink" => {
                let target = entry.node.target.unwrap_or_default();
                self.show_notice(&format!("{} points to {target}", entry.path));
            }
            _ => {
                let reason = entry.node.reason.unwrap_or_else(|| "it is not stored".into());
                self.show_notice(&format!("{}: {reason}", entry.path));
            }
        }
        Vec::new()
    }

    /// Stores the files of a state that arrived.
    pub(super) fn store_state(&mut self, key: &str, result: crate::source::SourceResult<FileTree>) {
        let files = &mut self.inspector.files;
        if files.key() == Some(key) {
            let old_files = files.value().cloned();
            files.store(key, result);
            if let (Some(old_files), LoadState::Ready(_, new_files)) = (old_files, files) {
                *new_files = std::mem::take(new_files).keep_position(&old_files);
            }
        }
        let rows = self.view_rows().saturating_sub(1);
        self.inspector.files.value_mut().into_iter().for_each(|files| files.scroll_into_view(rows));
    }

    /// Stores another page of files.
    pub(super) fn append_files(
        &mut self,
        key: &str,
        result: crate::source::SourceResult<Page<FileDocument>>,
    ) {
        match result {
            Ok(page) if self.inspector.files.key() == Some(key) => {
                if let Some(files) = self.inspector.files.value_mut() {
                    files.extend(page.items, page.next_cursor);
                }
            }
            Ok(_) => {}
            Err(trouble) => self.show_error(&trouble.to_line()),
        }
    }
}

#[cfg(test)]
mod tests {
    use stepback_api::files::{ChangeDocument, NodeDocument};

    use super::*;

    fn entry(path: &str, kind: &str) -> FileDocument {
        let node = NodeDocument { kind: kind.into(), ..NodeDocument::default() };
        FileDocument { path: path.into(), address: path.into(), node }
    }

    fn tree() -> FileTree {
        let entries = vec![
            entry("a", "directory"),
            entry("a/one", "file"),
            entry("a/sub", "directory"),
            entry("a/sub/two", "file"),
            entry("ab", "file"),
        ];
        let (path, kind) = ("a/one".into(), "created".into());
        let change = ChangeDocument { path, kind, ..ChangeDocument::default() };
        let changed = [ChangedFileDocument { change, text: None }];
        FileTree::new(entries, None, Vec::new(), &changed)
    }

    fn visible_paths(files: &FileTree) -> Vec<&str> {
        files.visible_rows(100).map(|leaf| leaf.entry.path.as_str()).collect()
    }

    #[test]
    fn closed_directories_hide_what_they_hold_and_nothing_else() {
        let mut files = tree();
        assert_eq!(visible_paths(&files), ["a", "a/one", "a/sub", "a/sub/two", "ab"]);
        files.toggle_directory("a");
        assert_eq!(visible_paths(&files), ["a", "ab"]);
        files.toggle_directory("a");
        files.toggle_directory("a/sub");
        assert_eq!(visible_paths(&files), ["a", "a/one", "a/sub", "ab"]);
        assert_eq!(files.visible_rows(9).filter_map(|leaf| leaf.change).collect::<Vec<_>>(), ["created"]);
    }

    #[test]
    fn the_place_is_kept_from_one_step_to_the_next() {
        let mut files = tree();
        files.toggle_directory("a/sub");
        files.move_by(3);
        assert_eq!(files.selected().unwrap().path, "ab");
        let mut other = tree();
        other.entries.insert(1, entry("a/new", "file"));
        other.update_visible();
        let other = other.keep_position(&files);
        assert_eq!(visible_paths(&other), ["a", "a/new", "a/one", "a/sub", "ab"]);
        assert_eq!(other.selected().unwrap().path, "ab");
    }
}
