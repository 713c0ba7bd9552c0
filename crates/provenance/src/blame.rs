//! The origin of every line of a file: the checkpoint that first contains it, and the tool call that was at work.
//!
//! The versions of the file are compared from the newest to the oldest. A line belongs to the change in which it appears; it is
//! followed further through renames, formatters, moved blocks ([`crate::line_map`]) and stepback's own rewinds, which bring
//! lines back and write none.

use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;

use stepback_engine::Workspace;
use stepback_engine::authorship::Attribution;
use stepback_model::path::RelPath;
use stepback_model::record::StepRow;
use stepback_model::time::Timestamp;
use stepback_model::tree::TreeNode;

use crate::error::ProvenanceError;
use crate::file_versions::{self, FileVersions};
use crate::follow::{Blamer, FoundLine, Pending, Thread, split_pending};
use crate::line_commits::{CommitRule, LineCommit};
use crate::line_map::{TextDiff, split_lines};

/// A question about the lines of a file.
#[derive(Clone, Debug)]
pub struct BlameRequest {
    /// The file.
    pub path: RelPath,
    /// The point at which it is looked at; the present if none is given.
    pub at: Option<StepRow>,
    /// The lines, counted from 1; all if none are given.
    pub lines: Option<RangeInclusive<usize>>,
}

/// What a line comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OriginKind {
    /// A change that was recorded.
    Change,
    /// A rewind, undo, switch or merge brought it back, from a version that is not on this line of checkpoints.
    Restored,
    /// It was there when the recording began, or before the oldest state that is kept.
    BeforeRecording,
    /// It is newer than the last checkpoint.
    NotRecorded,
}

/// Where some lines come from.
#[derive(Clone, Debug)]
pub struct LineOrigin {
    /// What they come from.
    pub kind: OriginKind,
    /// The checkpoint that first contains them; `None` if none does yet.
    pub step: Option<StepRow>,
    /// When that was; the current time if they are in no checkpoint.
    pub at: Timestamp,
    /// The file they were written into.
    pub path: RelPath,
    /// Who wrote them, as far as the recorded calls tell.
    pub who: Attribution,
    /// Whether the call named the file. Otherwise it is inferred from which calls were running.
    pub is_named: bool,
    /// Git's commit of them, where [`add_commits`](crate::add_commits) found one.
    pub commit: Option<LineCommit>,
    /// How the commit was found, or why none is known; `None` if none was searched.
    pub commit_rule: Option<CommitRule>,
}

/// A line and its origin.
#[derive(Clone, Debug)]
pub struct BlamedLine {
    /// Its number, counted from 1.
    pub number: usize,
    /// Its number in the version that first contains it.
    pub original: usize,
    /// Its content, with the line break.
    pub text: Vec<u8>,
    /// The index of its origin in [`Blame::origins`].
    pub origin: usize,
    /// The last step that only formatted it.
    pub formatted: Option<u64>,
    /// The last step that moved it.
    pub moved: Option<u64>,
}

/// The lines of a file with their origins.
#[derive(Clone, Debug)]
pub struct Blame {
    /// The file.
    pub path: RelPath,
    /// The number of its lines.
    pub count: usize,
    /// The lines that were asked for.
    pub lines: Vec<BlamedLine>,
    /// Their origins, each once.
    pub origins: Vec<LineOrigin>,
}

/// Finds the origin of the lines of a file.
pub fn blame(workspace: &Workspace, request: &BlameRequest) -> Result<Blame, ProvenanceError> {
    // A prune must not free what is being read.
    let _lock = workspace.lock_shared()?;
    let newest = match &request.at {
        Some(at) => workspace.nearest_checkpoint(at)?,
        None => workspace.head()?,
    };
    let versions = FileVersions::new(workspace, &newest)?;
    let path = &request.path;
    let recorded = if versions.is_empty() { None } else { versions.node(0, path)? };
    let text = match (&request.at, &recorded) {
        (None, _) => read_present(workspace, &versions, path)?,
        (Some(_), Some(node)) => file_versions::require_text(workspace, path, node)?,
        (Some(at), None) => return Err(no_file(&versions, path, format!("at #{}", at.step.number))),
    };
    let lines = split_lines(&text);
    let asked = check_range(path, request.lines.as_ref(), lines.len())?;
    let mut blamer = Blamer::new(workspace, versions);
    let pending =
        asked.clone().map(|line| Pending { number: line, line, formatted: None, moved: None }).collect();
    let start = match (&request.at, recorded) {
        (Some(_), Some(node)) => {
            Thread { path: path.clone(), index: 0, node, text: Rc::new(text.clone()), pending }
        }
        (_, recorded) => {
            let older = match &recorded {
                Some(node) => blamer.versions().text(node)?,
                None => None,
            };
            let older = older.unwrap_or_default();
            let (known, new) = split_pending(&TextDiff::new(&older, &text), pending, None);
            blamer.attribute_present(path, new)?;
            let node =
                recorded.unwrap_or(TreeNode::Dir { mode: 0, tree: stepback_model::tree::Tree::empty_hash() });
            Thread { path: path.clone(), index: 0, node, text: older, pending: known }
        }
    };
    let origins = blamer.follow(start)?;
    let mut found = origins.lines;
    found.sort_by_key(|found| found.line.number);
    let blamed = found.into_iter().map(|FoundLine { line, origin }| BlamedLine {
        number: line.number + 1,
        original: line.line + 1,
        text: lines[line.number].to_vec(),
        origin,
        formatted: line.formatted,
        moved: line.moved,
    });
    Ok(Blame { path: path.clone(), count: lines.len(), lines: blamed.collect(), origins: origins.all })
}

/// Reads lines as people write them: `12`, or `12,20` from the first to the last.
pub fn parse_lines(text: &str) -> Option<RangeInclusive<usize>> {
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number > 0);
    let (first, last) = match text.split_once(',') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    (first <= last).then_some(first..=last)
}

/// The lines that were asked for, as indexes.
fn check_range(
    path: &RelPath,
    asked: Option<&RangeInclusive<usize>>,
    count: usize,
) -> Result<std::ops::Range<usize>, ProvenanceError> {
    let Some(asked) = asked else { return Ok(0..count) };
    for line in [*asked.start(), *asked.end()] {
        if line == 0 || line > count {
            return Err(ProvenanceError::NoLine { path: path.clone(), line, count });
        }
    }
    Ok(asked.start() - 1..*asked.end())
}

/// Reads a file as it is now.
fn read_present(
    workspace: &Workspace,
    versions: &FileVersions<'_>,
    path: &RelPath,
) -> Result<Vec<u8>, ProvenanceError> {
    let place = workspace.root.join(std::ffi::OsStr::from_bytes(path.as_bytes()));
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
            no_file(versions, path, "now".to_owned())
        }
        _ => ProvenanceError::Engine(stepback_engine::EngineError::Io {
            what: format!("cannot read {path}"),
            error: source,
        }),
    };
    let metadata = fs::symlink_metadata(&place).map_err(failed)?;
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() => None,
        () if kind.is_dir() => Some("a directory"),
        () if kind.is_symlink() => Some("a symbolic link"),
        () => Some("a special file"),
    };
    if let Some(what) = what {
        return Err(ProvenanceError::NotAFile { path: path.clone(), what });
    }
    file_versions::check_size(path, metadata.len())?;
    let bytes = fs::read(&place).map_err(failed)?;
    if file_versions::is_text(&bytes) { Ok(bytes) } else { Err(ProvenanceError::NotText(path.clone())) }
}

/// The error for a path that does not exist, with the last step at which it did.
fn no_file(versions: &FileVersions<'_>, path: &RelPath, at: String) -> ProvenanceError {
    let existed = (0..versions.len()).find(|index| matches!(versions.node(*index, path), Ok(Some(_))));
    let last = existed.map(|index| versions.step(index).step.number);
    ProvenanceError::NoFile { path: path.clone(), at, last }
}
