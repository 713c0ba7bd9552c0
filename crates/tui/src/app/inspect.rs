//! The state at a step: its files as a tree, and the other parts as text.

use std::collections::{HashMap, HashSet};
use stepback_api::files::{ChangedFileDocument, FileDocument};
use stepback_api::page::Page;
use stepback_api::state::RepositoryDocument;
use stepback_api::steps::StepDocument;

use super::pager::Pager;
use super::{Against, App, View, WIDE};
use crate::effect::{AppEffect, Loaded};

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
    closed: HashSet<String>,
    /// The indices of visible entries: those in no collapsed directory.
    shown: Vec<usize>,
    at: usize,
    top: usize,
    /// The cursor of the next page of files; `None` on the last page.
    cursor: Option<String>,
    /// The kind of change of each path that this step changed.
    changed: HashMap<String, String>,
    /// The git repositories in the workspace.
    pub git: Vec<RepositoryDocument>,
}

/// A row of the tree.
pub struct Leaf<'f> {
    /// The file or directory.
    pub entry: &'f FileDocument,
    /// Its depth in the tree.
    pub depth: usize,
    /// Whether it is a collapsed directory.
    pub closed: bool,
    /// How this step changed it; `None` if it did not.
    pub changed: Option<&'f str>,
    /// Whether it is selected.
    pub selected: bool,
}

impl FileTree {
    /// Creates the tree from a listing and the changes of the step.
    pub fn new(
        entries: Vec<FileDocument>,
        cursor: Option<String>,
        git: Vec<RepositoryDocument>,
        changed: &[ChangedFileDocument],
    ) -> Self {
        let changed = changed.iter().map(|one| (one.change.path.clone(), one.change.kind.clone())).collect();
        let mut files = Self { entries, cursor, git, changed, ..Self::default() };
        files.lay_out();
        files
    }

    /// Keeps the position of another tree: the same path selected, the same directories collapsed.
    fn stay(mut self, before: &Self) -> Self {
        self.closed.clone_from(&before.closed);
        self.lay_out();
        if let Some(path) = before.selected().map(|entry| &entry.path) {
            let found =
                self.shown.iter().position(|at| self.entries.get(*at).is_some_and(|one| one.path == *path));
            self.at = found.unwrap_or(0);
        }
        self.top = before.top;
        self
    }

    fn lay_out(&mut self) {
        self.shown.clear();
        let mut inside: Option<String> = None;
        for (at, entry) in self.entries.iter().enumerate() {
            if inside.as_ref().is_some_and(|dir| entry.path.starts_with(dir.as_str())) {
                continue;
            }
            inside = self.closed.contains(&entry.path).then(|| format!("{}/", entry.path));
            self.shown.push(at);
        }
    }

    fn extend(&mut self, entries: Vec<FileDocument>, cursor: Option<String>) {
        self.entries.extend(entries);
        self.cursor = cursor;
        self.lay_out();
    }

    /// Returns the selected entry.
    pub fn selected(&self) -> Option<&FileDocument> {
        self.entries.get(*self.shown.get(self.at)?)
    }

    fn go(&mut self, by: i64) {
        let last = self.shown.len().saturating_sub(1) as i64;
        self.at = (self.at as i64).saturating_add(by).clamp(0, last) as usize;
    }

    fn keep_in_sight(&mut self, rows: usize) {
        self.top = self.top.clamp((self.at + 1).saturating_sub(rows.max(1)), self.at);
    }

    fn fold(&mut self, path: &str) {
        if !self.closed.remove(path) {
            self.closed.insert(path.to_owned());
        }
        self.lay_out();
    }

    /// Returns how many paths are loaded, and whether there are more.
    pub fn count(&self) -> (usize, bool) {
        (self.entries.len(), self.cursor.is_some())
    }

    /// Returns at most `rows` rows.
    pub fn rows(&self, rows: usize) -> impl Iterator<Item = Leaf<'_>> {
        let shown = self.shown.iter().enumerate().skip(self.top).take(rows);
        shown.filter_map(|(at, entry)| {
            let entry = self.entries.get(*entry)?;
            Some(Leaf {
                depth: entry.path.matches('/').count(),
                closed: self.closed.contains(&entry.path),
                changed: self.changed.get(&entry.path).map(String::as_str),
                selected: at == self.at,
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
    pub files: Loaded<FileTree>,
    /// The text of any other part.
    pub text: Loaded<Pager>,
    /// The open file: its path and content.
    pub file: Option<(String, Loaded<Pager>)>,
}

impl Inspector {
    pub(super) fn turn(&mut self, onwards: bool) {
        self.file = None;
        let at = StatePart::ALL.iter().position(|part| *part == self.part).unwrap_or(0);
        let by = if onwards { 1 } else { StatePart::ALL.len() - 1 };
        self.part = StatePart::ALL[(at + by) % StatePart::ALL.len()];
    }

    /// Closes the open file. Returns whether one was open.
    pub(super) fn leave(&mut self) -> bool {
        self.file.take().is_some()
    }

    pub(super) fn click(&mut self, row: usize) -> bool {
        let Some(files) =
            self.files.ready_mut().filter(|_| self.part == StatePart::Files && self.file.is_none())
        else {
            return true;
        };
        // The first row names the parts.
        let Some(to) = row.checked_sub(1).map(|row| files.top + row) else { return true };
        to >= files.shown.len() || std::mem::replace(&mut files.at, to) != to
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
        let beside = self.view == View::Timeline && self.size.0 >= WIDE;
        if (beside || self.view == View::Step) && self.step.ask(&key) {
            effects.push(AppEffect::Step {
                key: key.clone(),
                session: session.clone(),
                step: step.clone().into(),
            });
        }
        if self.view == View::Diff {
            let key = match &self.against {
                Against::Parent => key.clone(),
                Against::Marked(id, _) => format!("{key} {id}"),
                Against::Now => format!("{key} now"),
            };
            if self.diff.ask(&key) {
                effects.push(AppEffect::Diff {
                    key,
                    step: step.clone().into(),
                    against: self.against.clone(),
                });
            }
        }
        if self.view == View::Mind {
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
            let files = inspector.files.ready();
            let address = files.and_then(|files| files.entries.iter().find(|entry| entry.path == *path));
            let address = address.map(|entry| entry.address.clone())?;
            let key = format!("{key} {path}");
            return content.ask(&key).then_some(AppEffect::File { key, session, number, address });
        }
        match inspector.part {
            StatePart::Files | StatePart::Git => {
                if inspector.files.key() == Some(key.as_str()) {
                    return None;
                }
                // The old content stays until the new one arrives, to avoid flicker and to keep the position.
                inspector.files = match std::mem::take(&mut inspector.files) {
                    Loaded::Ready(_, files) => Loaded::Ready(key.clone(), files),
                    _ => Loaded::Waiting(key.clone()),
                };
                Some(AppEffect::State { key, session, step: step.into() })
            }
            part => {
                let key = format!("{key} {}", part.name());
                inspector.text.ask(&key).then_some(AppEffect::Part { key, session, number, part })
            }
        }
    }

    pub(super) fn scroll_state(&mut self, by: i64) -> Vec<AppEffect> {
        let rows = self.rows().saturating_sub(1);
        let open = self
            .open
            .as_ref()
            .and_then(|open| Some((open.session.id.clone(), open.window.current()?.number)));
        let inspector = &mut self.inspector;
        if let Some((_, content)) = &mut inspector.file {
            content.ready_mut().into_iter().for_each(|pager| pager.scroll(by));
            return Vec::new();
        }
        match inspector.part {
            StatePart::Files => {
                let key = inspector.files.key().unwrap_or_default().to_owned();
                let Some(files) = inspector.files.ready_mut() else { return Vec::new() };
                files.go(by);
                files.keep_in_sight(rows);
                let near = files.at + 2 * rows >= files.shown.len();
                match (files.cursor.take_if(|_| near), open) {
                    (Some(cursor), Some((session, number))) => {
                        vec![AppEffect::Files { key, session, number, cursor }]
                    }
                    _ => Vec::new(),
                }
            }
            StatePart::Git => Vec::new(),
            _ => {
                inspector.text.ready_mut().into_iter().for_each(|pager| pager.scroll(by));
                Vec::new()
            }
        }
    }

    pub(super) fn open_entry(&mut self) -> Vec<AppEffect> {
        let inspector = &mut self.inspector;
        if inspector.file.is_some() || inspector.part != StatePart::Files {
            return Vec::new();
        }
        let Some(files) = inspector.files.ready_mut() else { return Vec::new() };
        let Some(entry) = files.selected().cloned() else { return Vec::new() };
        match entry.node.kind.as_str() {
            "directory" => files.fold(&entry.path),
            "file" => {
                inspector.file = Some((entry.path, Loaded::No));
                return self.refresh();
            }
            "symlink" => {
                let target = entry.node.target.unwrap_or_default();
                self.say(&format!("{} points to {target}", entry.path));
            }
            _ => {
                let reason = entry.node.reason.unwrap_or_else(|| "it is not stored".into());
                self.say(&format!("{}: {reason}", entry.path));
            }
        }
        Vec::new()
    }

    /// Stores the files of a state that arrived.
    pub(super) fn take_state(&mut self, key: &str, came: crate::source::SourceResult<FileTree>) {
        let files = &mut self.inspector.files;
        if files.key() == Some(key) {
            let before = files.ready().cloned();
            files.take(key, came);
            if let (Some(before), Loaded::Ready(_, now)) = (before, files) {
                *now = std::mem::take(now).stay(&before);
            }
        }
        let rows = self.rows().saturating_sub(1);
        self.inspector.files.ready_mut().into_iter().for_each(|files| files.keep_in_sight(rows));
    }

    /// Stores another page of files.
    pub(super) fn take_files(&mut self, key: &str, came: crate::source::SourceResult<Page<FileDocument>>) {
        match came {
            Ok(page) if self.inspector.files.key() == Some(key) => {
                if let Some(files) = self.inspector.files.ready_mut() {
                    files.extend(page.items, page.next_cursor);
                }
            }
            Ok(_) => {}
            Err(trouble) => self.complain(&trouble.line()),
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

    fn shown(files: &FileTree) -> Vec<&str> {
        files.rows(100).map(|leaf| leaf.entry.path.as_str()).collect()
    }

    #[test]
    fn closed_directories_hide_what_they_hold_and_nothing_else() {
        let mut files = tree();
        assert_eq!(shown(&files), ["a", "a/one", "a/sub", "a/sub/two", "ab"]);
        files.fold("a");
        assert_eq!(shown(&files), ["a", "ab"]);
        files.fold("a");
        files.fold("a/sub");
        assert_eq!(shown(&files), ["a", "a/one", "a/sub", "ab"]);
        assert_eq!(files.rows(9).filter_map(|leaf| leaf.changed).collect::<Vec<_>>(), ["created"]);
    }

    #[test]
    fn the_place_is_kept_from_one_step_to_the_next() {
        let mut files = tree();
        files.fold("a/sub");
        files.go(3);
        assert_eq!(files.selected().unwrap().path, "ab");
        let mut other = tree();
        other.entries.insert(1, entry("a/new", "file"));
        other.lay_out();
        let other = other.stay(&files);
        assert_eq!(shown(&other), ["a", "a/new", "a/one", "a/sub", "ab"]);
        assert_eq!(other.selected().unwrap().path, "ab");
    }
}
