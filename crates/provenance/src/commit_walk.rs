//! Follows lines through git's history to the commit in which each appeared.
//!
//! This is what `git blame` does, with the same rules as for recorded steps: through renames, formatters and blocks that
//! moved within the file ([`crate::line_map`]). Commits are visited from the newest to the oldest; a merge passes each line
//! to the first parent that has it. The walk is bounded, and says so for the lines that it did not finish.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use stepback_git::object::parse_tree;
use stepback_git::{GitCommit, GitEntry, GitError, GitObjectKind, GitOid, GitRepository, ObjectReader};

use crate::file_versions::is_text;
use crate::line_map::{TextDiff, map_lines, split_lines};

/// The share of lines, in percent, that a file must have in common with a deleted one to be the same file renamed.
const RENAME_PERCENT: usize = 50;
/// The most deleted files of a commit that are compared to find a renamed one.
const MAX_RENAME_CANDIDATES: usize = 50;
/// The most entries of two trees that are compared to find a renamed file.
const MAX_COMPARED_ENTRIES: usize = 100_000;
/// How many directories are kept in memory.
const MAX_CACHED_TREES: usize = 4096;
/// The largest file whose lines are followed, in bytes.
const MAX_FILE_BYTES: usize = 32 << 20;

/// A parent with the path of the file in it and the lines that it had.
type PassedLines = (GitOid, Vec<u8>, Suspect);
/// The path of a file, its blob, and its text.
type FoundFile = (Vec<u8>, GitOid, Vec<u8>);

/// How far a walk goes.
#[derive(Clone, Copy, Debug)]
pub struct WalkLimits {
    /// The most commits that are visited.
    pub commits: usize,
    /// How long it may take.
    pub patience: Duration,
}

impl Default for WalkLimits {
    fn default() -> Self {
        Self { commits: 50_000, patience: Duration::from_secs(2) }
    }
}

/// Why a line may be older than the commit that was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WalkEnd {
    /// The repository is shallow, and the history ends there.
    Shallow,
    /// An older commit, or a file in it, is not in the repository or cannot be read.
    Missing,
    /// The limit of commits was reached.
    Commits,
    /// The limit of time was reached.
    Time,
}

/// The commit in which a line appeared.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FoundCommit {
    pub oid: GitOid,
    /// The path of the file in that commit, from the root of the repository.
    pub path: Vec<u8>,
    /// Why the line may be from an older commit; `None` if it is certainly from this one.
    pub or_older: Option<WalkEnd>,
}

/// A line that is followed: its index in the text that was asked about, and in the file that the walk has reached.
type FollowedLine = (usize, usize);

/// A version of a file, and the lines in it that are followed.
struct Suspect {
    blob: GitOid,
    lines: Vec<FollowedLine>,
}

/// A commit in the queue: the newest first, then by id, so that the order is always the same.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct QueuedCommit {
    seconds: i64,
    oid: GitOid,
    path: Vec<u8>,
}

/// The versions of files that are still to be visited.
#[derive(Default)]
struct SuspectQueue {
    order: BinaryHeap<QueuedCommit>,
    suspects: HashMap<(GitOid, Vec<u8>), Suspect>,
}

impl SuspectQueue {
    fn push(&mut self, seconds: i64, oid: GitOid, path: Vec<u8>, suspect: Suspect) {
        if suspect.lines.is_empty() {
            return;
        }
        match self.suspects.entry((oid, path.clone())) {
            Entry::Occupied(mut entry) => entry.get_mut().lines.extend(suspect.lines),
            Entry::Vacant(entry) => {
                entry.insert(suspect);
                self.order.push(QueuedCommit { seconds, oid, path });
            }
        }
    }

    fn pop(&mut self) -> Option<(GitOid, Vec<u8>, Suspect)> {
        let QueuedCommit { oid, path, .. } = self.order.pop()?;
        let suspect = self.suspects.remove(&(oid, path.clone()))?;
        Some((oid, path, suspect))
    }
}

/// A walk through the history of a repository. What it read is kept for the next file.
pub(crate) struct CommitWalk {
    reader: ObjectReader,
    shallow: HashSet<GitOid>,
    limits: WalkLimits,
    started: Instant,
    visited: usize,
    commits: HashMap<GitOid, Rc<GitCommit>>,
    trees: HashMap<GitOid, Rc<Vec<GitEntry>>>,
}

impl CommitWalk {
    /// Prepares one.
    pub(crate) fn new(repository: &GitRepository, limits: WalkLimits) -> Result<Self, GitError> {
        Ok(Self {
            reader: ObjectReader::open(repository)?,
            shallow: repository.shallow_commits().into_iter().collect(),
            limits,
            started: Instant::now(),
            visited: 0,
            commits: HashMap::new(),
            trees: HashMap::new(),
        })
    }

    /// Reads a commit.
    pub(crate) fn commit(&mut self, oid: GitOid) -> Result<Rc<GitCommit>, GitError> {
        if let Some(known) = self.commits.get(&oid) {
            return Ok(known.clone());
        }
        let commit = Rc::new(self.reader.commit(oid)?);
        self.commits.insert(oid, commit.clone());
        Ok(commit)
    }

    /// Follows some lines of a text, by index, from the file at `path` in a commit. A line that the file does not have in
    /// that commit is not in the answer.
    pub(crate) fn follow(
        &mut self,
        commit: GitOid,
        path: &[u8],
        text: &[u8],
        lines: &[usize],
    ) -> Result<BTreeMap<usize, FoundCommit>, GitError> {
        let mut found = BTreeMap::new();
        let tree = self.commit(commit)?.tree;
        let Some((blob, committed)) = self.file_at(tree, path)? else { return Ok(found) };
        let sources = map_lines(&split_lines(&committed), &split_lines(text));
        let followed: Vec<FollowedLine> =
            lines.iter().filter_map(|line| Some((*line, sources.get(*line)?.as_ref()?.line))).collect();
        let mut queue = SuspectQueue::default();
        let seconds = self.commit(commit)?.committer.seconds;
        queue.push(seconds, commit, path.to_vec(), Suspect { blob, lines: followed });
        while let Some((oid, path, Suspect { blob, mut lines })) = queue.pop() {
            self.visited += 1;
            let mut end = self.limit_reached();
            if end.is_none() {
                match self.pass_to_parents(oid, &path, blob, &mut lines) {
                    Ok((passed, is_complete)) => {
                        if !is_complete {
                            let is_shallow = self.shallow.contains(&oid);
                            end = Some(if is_shallow { WalkEnd::Shallow } else { WalkEnd::Missing });
                        }
                        for (parent, parent_path, suspect) in passed {
                            queue.push(self.commit(parent)?.committer.seconds, parent, parent_path, suspect);
                        }
                    }
                    Err(_) => end = Some(WalkEnd::Missing),
                }
            }
            for (line, _) in lines {
                found.insert(line, FoundCommit { oid, path: path.clone(), or_older: end });
            }
        }
        Ok(found)
    }

    fn limit_reached(&self) -> Option<WalkEnd> {
        match () {
            () if self.visited > self.limits.commits => Some(WalkEnd::Commits),
            () if self.started.elapsed() > self.limits.patience => Some(WalkEnd::Time),
            () => None,
        }
    }

    /// Takes the lines that a parent has out of `lines`, and returns them with the parent. The second value is whether all
    /// parents could be read.
    fn pass_to_parents(
        &mut self,
        oid: GitOid,
        path: &[u8],
        blob: GitOid,
        lines: &mut Vec<FollowedLine>,
    ) -> Result<(Vec<PassedLines>, bool), GitError> {
        if self.shallow.contains(&oid) {
            return Ok((Vec::new(), false));
        }
        let commit = self.commit(oid)?;
        let mut passed = Vec::new();
        let mut is_complete = true;
        let mut changed = Vec::new();
        for parent in &commit.parents {
            let Ok(parent_commit) = self.commit(*parent) else {
                is_complete = false;
                continue;
            };
            match self.entry_at(parent_commit.tree, path)? {
                Some(entry) if entry.oid == blob => {
                    // The file is the same, so that is where all lines are from.
                    passed.push((*parent, path.to_vec(), Suspect { blob, lines: std::mem::take(lines) }));
                    return Ok((passed, true));
                }
                entry => changed.push((*parent, parent_commit, entry)),
            }
        }
        let Some(text) = self.text(blob)? else { return Ok((passed, is_complete)) };
        for (parent, parent_commit, entry) in changed {
            let older = match entry.filter(GitEntry::is_file) {
                Some(entry) => self.text(entry.oid)?.map(|text| (path.to_vec(), entry.oid, text)),
                None => {
                    self.find_renamed(commit.tree, parent_commit.tree, path, blob, &split_lines(&text))?
                }
            };
            let Some((older_path, older_blob, older_text)) = older else { continue };
            let diff = TextDiff::new(&older_text, &text);
            let mut older_lines = Vec::new();
            lines.retain(|(line, own)| match diff.source(*own) {
                Some(source) => {
                    older_lines.push((*line, source.line));
                    false
                }
                None => true,
            });
            passed.push((parent, older_path, Suspect { blob: older_blob, lines: older_lines }));
        }
        Ok((passed, is_complete))
    }

    /// The file of the parent that a commit renamed to `path`, perhaps with changes.
    fn find_renamed(
        &mut self,
        tree: GitOid,
        parent_tree: GitOid,
        path: &[u8],
        blob: GitOid,
        lines: &[&[u8]],
    ) -> Result<Option<FoundFile>, GitError> {
        let mut removed = Vec::new();
        let mut budget = MAX_COMPARED_ENTRIES;
        self.collect_removed(Some(tree), parent_tree, Vec::new(), &mut budget, &mut removed)?;
        if let Some((same, oid)) = removed.iter().find(|(_, oid)| *oid == blob) {
            return Ok(self.text(*oid)?.map(|text| (same.clone(), *oid, text)));
        }
        // A file that kept its name, or its directory, is the likelier one.
        let name = |path: &[u8]| path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        removed.sort_by_key(|(other, _)| name(other) != name(path));
        let mut best: Option<(usize, FoundFile)> = None;
        for (other, oid) in removed.into_iter().take(MAX_RENAME_CANDIDATES) {
            let Some(text) = self.text(oid)? else { continue };
            let older = split_lines(&text);
            let longer = lines.len().max(older.len()).max(1);
            if lines.len().min(older.len()) * 100 < RENAME_PERCENT * longer {
                continue;
            }
            let kept = map_lines(&older, lines).iter().flatten().count();
            if kept * 100 >= RENAME_PERCENT * longer && best.as_ref().is_none_or(|(most, _)| kept > *most) {
                best = Some((kept, (other, oid, text.clone())));
            }
        }
        Ok(best.map(|(_, found)| found))
    }

    /// Collects the files of `older` that `newer` does not have.
    fn collect_removed(
        &mut self,
        newer: Option<GitOid>,
        older: GitOid,
        prefix: Vec<u8>,
        budget: &mut usize,
        removed: &mut Vec<(Vec<u8>, GitOid)>,
    ) -> Result<(), GitError> {
        if newer == Some(older) {
            return Ok(());
        }
        let new_entries = match newer {
            Some(newer) => self.tree(newer)?,
            None => Rc::default(),
        };
        for entry in self.tree(older)?.iter() {
            if *budget == 0 {
                return Ok(());
            }
            *budget -= 1;
            let counterpart = new_entries.iter().find(|other| other.name == entry.name);
            let mut path = prefix.clone();
            path.extend_from_slice(&entry.name);
            if entry.is_dir() {
                path.push(b'/');
                let newer = counterpart.filter(|other| other.is_dir()).map(|other| other.oid);
                self.collect_removed(newer, entry.oid, path, budget, removed)?;
            } else if entry.is_file() && !counterpart.is_some_and(GitEntry::is_file) {
                removed.push((path, entry.oid));
            }
        }
        Ok(())
    }

    fn file_at(&mut self, tree: GitOid, path: &[u8]) -> Result<Option<(GitOid, Vec<u8>)>, GitError> {
        match self.entry_at(tree, path)?.filter(GitEntry::is_file) {
            Some(entry) => Ok(self.text(entry.oid)?.map(|text| (entry.oid, text))),
            None => Ok(None),
        }
    }

    fn entry_at(&mut self, mut tree: GitOid, path: &[u8]) -> Result<Option<GitEntry>, GitError> {
        let mut names = path.split(|byte| *byte == b'/').peekable();
        while let Some(name) = names.next() {
            let entries = self.tree(tree)?;
            match (entries.iter().find(|entry| entry.name == name), names.peek()) {
                (entry, None) => return Ok(entry.cloned()),
                (Some(entry), Some(_)) if entry.is_dir() => tree = entry.oid,
                _ => return Ok(None),
            }
        }
        Ok(None)
    }

    fn tree(&mut self, oid: GitOid) -> Result<Rc<Vec<GitEntry>>, GitError> {
        if let Some(known) = self.trees.get(&oid) {
            return Ok(known.clone());
        }
        let object = self.reader.require(oid)?;
        let entries = (object.kind == GitObjectKind::Tree).then(|| parse_tree(&object.body)).flatten();
        let damaged =
            || GitError::Damaged { what: format!("object {oid}"), reason: "it is not a tree".to_owned() };
        let entries = Rc::new(entries.ok_or_else(damaged)?);
        if self.trees.len() >= MAX_CACHED_TREES {
            self.trees.clear();
        }
        self.trees.insert(oid, entries.clone());
        Ok(entries)
    }

    /// The text of a file; `None` if it is not text of a reasonable size.
    fn text(&self, oid: GitOid) -> Result<Option<Vec<u8>>, GitError> {
        let bytes = self.reader.blob(oid)?;
        Ok((bytes.len() <= MAX_FILE_BYTES && is_text(&bytes)).then_some(bytes))
    }
}
