//! Follows lines from version to version until the change is found in which each appeared.

use std::collections::HashMap;
use std::rc::Rc;

use stepback_engine::Workspace;
use stepback_engine::authorship::{AttributedChange, Attribution};
use stepback_model::path::RelPath;
use stepback_model::record::StepKind;
use stepback_model::tree::TreeNode;

use crate::blame::{LineOrigin, OriginKind};
use crate::error::ProvenanceError;
use crate::file_versions::FileVersions;
use crate::line_map::{Relation, Source, TextDiff, map_lines, split_lines};
use crate::moved::RemovedBlocks;

/// The share of lines, in percent, that a new file must have in common with a deleted one to be the same file renamed.
const RENAME_PERCENT: usize = 50;

/// A line whose origin is still searched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// Its index in the text that was asked about.
    pub number: usize,
    /// Its index in the version that the search has reached.
    pub line: usize,
    /// The last step that only formatted it.
    pub formatted: Option<u64>,
    /// The last step that moved it.
    pub moved: Option<u64>,
}

/// Lines that are followed together, because they are in the same version of the same file.
pub(crate) struct Thread {
    /// The file.
    pub path: RelPath,
    /// The checkpoint, counted from the newest.
    pub index: usize,
    /// The file in that checkpoint.
    pub node: TreeNode,
    /// Its text.
    pub text: Rc<Vec<u8>>,
    /// The lines.
    pub pending: Vec<Pending>,
}

/// A line whose origin is known.
pub(crate) struct FoundLine {
    /// The line, at the version in which it was found.
    pub line: Pending,
    /// The index of its origin.
    pub origin: usize,
}

/// The origins found so far.
#[derive(Default)]
pub(crate) struct Origins {
    /// Each origin, once.
    pub all: Vec<LineOrigin>,
    known: HashMap<(OriginKind, Option<u64>, RelPath), usize>,
    /// Every line, in no particular order.
    pub lines: Vec<FoundLine>,
}

impl Origins {
    fn add(&mut self, origin: LineOrigin, lines: &[Pending]) {
        let key = (origin.kind, origin.step.as_ref().map(|stored| stored.step.number), origin.path.clone());
        let index = *self.known.entry(key).or_insert_with(|| {
            self.all.push(origin);
            self.all.len() - 1
        });
        self.lines.extend(lines.iter().map(|line| FoundLine { line: *line, origin: index }));
    }
}

/// Splits lines into those that an older text has, with their place there, and those that it does not have. `step` is the
/// step between the two.
pub(crate) fn split_pending(
    diff: &TextDiff<'_>,
    pending: Vec<Pending>,
    step: Option<u64>,
) -> (Vec<Pending>, Vec<Pending>) {
    let (mut known, mut new) = (Vec::with_capacity(pending.len()), Vec::new());
    for pending in pending {
        match diff.source(pending.line) {
            Some(Source { line, relation }) => known.push(Pending {
                line,
                formatted: pending.formatted.or(step.filter(|_| relation == Relation::Reformatted)),
                moved: pending.moved.or(step.filter(|_| relation == Relation::Moved)),
                ..pending
            }),
            None => new.push(pending),
        }
    }
    (known, new)
}

/// A file in an older version: its path, its node and its text.
type OlderFile = (RelPath, TreeNode, Rc<Vec<u8>>);

/// Follows the lines of a file from version to version.
pub(crate) struct Blamer<'w> {
    workspace: &'w Workspace,
    versions: FileVersions<'w>,
    origins: Origins,
    removed: RemovedBlocks,
}

impl<'w> Blamer<'w> {
    /// Creates one for a line of checkpoints.
    pub(crate) fn new(workspace: &'w Workspace, versions: FileVersions<'w>) -> Self {
        Self { workspace, versions, origins: Origins::default(), removed: RemovedBlocks::default() }
    }

    /// The versions of all files.
    pub(crate) fn versions(&self) -> &FileVersions<'w> {
        &self.versions
    }

    /// Follows lines back until each has an origin.
    pub(crate) fn follow(mut self, start: Thread) -> Result<Origins, ProvenanceError> {
        let mut threads = vec![start];
        while let Some(mut thread) = threads.pop() {
            while !thread.pending.is_empty() {
                let Some(next) = self.step_back(thread, &mut threads)? else { break };
                thread = next;
            }
        }
        Ok(self.origins)
    }

    /// Goes back to the previous version of a file. Lines that it does not have get their origin; blocks that come from
    /// elsewhere become threads of their own. Returns `None` when no older version exists.
    fn step_back(
        &mut self,
        thread: Thread,
        threads: &mut Vec<Thread>,
    ) -> Result<Option<Thread>, ProvenanceError> {
        let Thread { path, index, node, text, pending } = thread;
        let mut older = index + 1;
        let mut older_node = None;
        while older < self.versions.len() {
            older_node = self.versions.node(older, &path)?;
            if older_node.as_ref() != Some(&node) {
                break;
            }
            older += 1;
        }
        let first = older - 1;
        if older >= self.versions.len() {
            self.attribute(first, OriginKind::BeforeRecording, &path, &pending)?;
            return Ok(None);
        }
        let number = self.versions.step(first).step.number;
        let is_restoring =
            matches!(self.versions.step(first).step.kind, StepKind::Rewind | StepKind::BranchSwitched);
        if is_restoring && let Some(index) = self.find_same(older, &path, &node)? {
            return Ok(Some(Thread { path, index, node, text, pending }));
        }
        let (older_path, older_node, older_text) = match older_node {
            Some(older_node) => match self.versions.text(&older_node)? {
                Some(older_text) => (path.clone(), older_node, older_text),
                // Before, it was something without lines.
                None => (path.clone(), older_node, Rc::default()),
            },
            None => match self.find_renamed(first, &path, &text)? {
                Some(renamed) => renamed,
                None => (path.clone(), node, Rc::default()),
            },
        };
        let diff = TextDiff::new(&older_text, &text);
        let (known, new) = split_pending(&diff, pending, Some(number));
        let new = match is_restoring {
            true => new,
            false => self.follow_moved(first, &path, &diff, new, threads)?,
        };
        let kind = if is_restoring { OriginKind::Restored } else { OriginKind::Change };
        self.attribute(first, kind, &path, &new)?;
        drop(diff);
        Ok(Some(Thread {
            path: older_path,
            index: older,
            node: older_node,
            text: older_text,
            pending: known,
        }))
    }

    /// The newest older checkpoint at which a path has the same node.
    fn find_same(
        &self,
        from: usize,
        path: &RelPath,
        node: &TreeNode,
    ) -> Result<Option<usize>, ProvenanceError> {
        for index in from..self.versions.len() {
            if self.versions.node(index, path)?.as_ref() == Some(node) {
                return Ok(Some(index));
            }
        }
        Ok(None)
    }

    /// The file that `path` was before a checkpoint renamed it, perhaps with changes.
    fn find_renamed(
        &self,
        index: usize,
        path: &RelPath,
        text: &[u8],
    ) -> Result<Option<OlderFile>, ProvenanceError> {
        let changes = self.versions.changes(index)?;
        let own = changes.iter().find(|change| change.path == *path);
        if let Some((from, before)) = own.and_then(|change| change.from.clone().zip(change.before.clone())) {
            return Ok(self.versions.text(&before)?.map(|text| (from, before, text)));
        }
        let lines = split_lines(text);
        let mut best: Option<(usize, OlderFile)> = None;
        for change in changes.iter().filter(|change| change.after.is_none()) {
            let Some(before) = &change.before else { continue };
            let Some(older) = self.versions.text(before)? else { continue };
            let older_lines = split_lines(&older);
            let kept = map_lines(&older_lines, &lines).iter().flatten().count();
            let is_same_file = kept * 100 >= RENAME_PERCENT * lines.len().max(older_lines.len()).max(1);
            if is_same_file && best.as_ref().is_none_or(|(most, _)| kept > *most) {
                best = Some((kept, (change.path.clone(), before.clone(), older)));
            }
        }
        Ok(best.map(|(_, found)| found))
    }

    /// Starts a thread for each block that was cut elsewhere, and returns the lines that are really new.
    fn follow_moved(
        &mut self,
        index: usize,
        path: &RelPath,
        diff: &TextDiff<'_>,
        new: Vec<Pending>,
        threads: &mut Vec<Thread>,
    ) -> Result<Vec<Pending>, ProvenanceError> {
        let mut written = Vec::new();
        let mut rest = new.as_slice();
        while let Some(first) = rest.first() {
            // The lines that follow one another in the text, too.
            let length = rest
                .iter()
                .enumerate()
                .take_while(|(offset, pending)| pending.line == first.line + offset)
                .count();
            let run: Vec<&[u8]> =
                rest[..length].iter().filter_map(|pending| diff.changed_line(pending.line)).collect();
            let found = self.removed.find(&self.versions, index, path, &run)?;
            let node = match &found {
                Some(found) => self.versions.node(found.index, &found.path)?,
                None => None,
            };
            let Some((found, node)) = found.zip(node) else {
                written.push(*first);
                rest = &rest[1..];
                continue;
            };
            let number = self.versions.step(index).step.number;
            let pending = rest.iter().zip(&found.lines).map(|(pending, line)| Pending {
                line: *line,
                moved: pending.moved.or(Some(number)),
                ..*pending
            });
            let (path, text) = (found.path.clone(), found.text.clone());
            threads.push(Thread { path, index: found.index, node, text, pending: pending.collect() });
            rest = &rest[found.lines.len()..];
        }
        Ok(written)
    }

    /// Gives lines their origin at a checkpoint.
    fn attribute(
        &mut self,
        index: usize,
        kind: OriginKind,
        path: &RelPath,
        lines: &[Pending],
    ) -> Result<(), ProvenanceError> {
        if lines.is_empty() {
            return Ok(());
        }
        let stored = self.versions.step(index).clone();
        let AttributedChange { who, is_named } = match kind {
            OriginKind::Change => self.versions.attribute(index, path)?,
            _ => AttributedChange { who: Attribution::Unreported, is_named: false },
        };
        let at = stored.step.at;
        let path = path.clone();
        let origin =
            LineOrigin { kind, step: Some(stored), at, path, who, is_named, commit: None, commit_rule: None };
        self.origins.add(origin, lines);
        Ok(())
    }

    /// Gives lines that are in no checkpoint yet their origin.
    pub(crate) fn attribute_present(
        &mut self,
        path: &RelPath,
        lines: Vec<Pending>,
    ) -> Result<(), ProvenanceError> {
        if lines.is_empty() {
            return Ok(());
        }
        let AttributedChange { who, is_named } = self.workspace.attribute_present(path)?;
        let at = self.workspace.engine.env.now();
        let kind = OriginKind::NotRecorded;
        let path = path.clone();
        let origin =
            LineOrigin { kind, step: None, at, path, who, is_named, commit: None, commit_rule: None };
        self.origins.add(origin, &lines);
        Ok(())
    }
}
