//! Blocks that were cut from one place and pasted at another, by one call or by several of one session.
//!
//! Pasting comes after cutting, so the block is looked for among the lines that were removed by the same checkpoint, in any
//! file, and by the ones shortly before it, as long as the same session made them.

use std::collections::HashMap;
use std::rc::Rc;

use stepback_model::path::RelPath;

use crate::error::ProvenanceError;
use crate::file_versions::FileVersions;
use crate::line_map::{TextDiff, count_alphanumeric};

/// The fewest letters and digits of a block that is recognised in another file or another checkpoint.
const MIN_CHARS: usize = 40;
/// How many checkpoints before the one with the block are searched.
const MAX_CHECKPOINTS: usize = 10;
/// The most changed files of a checkpoint that are searched.
const MAX_FILES: usize = 20;
/// The most checkpoints whose removed lines are collected for one question.
const MAX_COMPARED: usize = 200;

/// The lines that a checkpoint removed from a file.
pub(crate) struct RemovedLines {
    /// The file, as it was called before.
    pub path: RelPath,
    /// The index of each line in the older text, and its content.
    lines: Vec<(usize, Vec<u8>)>,
    /// The older text.
    pub text: Rc<Vec<u8>>,
}

/// Where a block was before.
pub(crate) struct FoundBlock {
    /// The checkpoint before the one that removed it.
    pub index: usize,
    /// The file it was in.
    pub path: RelPath,
    /// The text of that file.
    pub text: Rc<Vec<u8>>,
    /// For each line of the block, its index there.
    pub lines: Vec<usize>,
}

/// Removed lines by checkpoint, collected once.
#[derive(Default)]
pub(crate) struct RemovedBlocks {
    by_checkpoint: HashMap<usize, Rc<Vec<RemovedLines>>>,
}

impl RemovedBlocks {
    /// Finds the longest block that begins `run` among the lines removed by the checkpoint `index` and those before it.
    /// `added_to` is the file that the block was added to.
    pub(crate) fn find(
        &mut self,
        versions: &FileVersions<'_>,
        index: usize,
        added_to: &RelPath,
        run: &[&[u8]],
    ) -> Result<Option<FoundBlock>, ProvenanceError> {
        if count_alphanumeric(run.iter().copied()) < MIN_CHARS {
            return Ok(None);
        }
        let session = versions.attribute(index, added_to)?.who.session();
        for place in index..versions.len().saturating_sub(1).min(index + MAX_CHECKPOINTS) {
            for removed in self.at(versions, place)?.iter() {
                let Some(lines) = removed.longest_prefix_of(run) else { continue };
                let by_same_session = || -> Result<bool, ProvenanceError> {
                    let who = versions.attribute(place, &removed.path)?.who;
                    Ok(session.is_some() && who.session() == session)
                };
                if place == index || by_same_session()? {
                    let (path, text) = (removed.path.clone(), removed.text.clone());
                    return Ok(Some(FoundBlock { index: place + 1, path, text, lines }));
                }
            }
        }
        Ok(None)
    }

    fn at(
        &mut self,
        versions: &FileVersions<'_>,
        index: usize,
    ) -> Result<Rc<Vec<RemovedLines>>, ProvenanceError> {
        if let Some(known) = self.by_checkpoint.get(&index) {
            return Ok(known.clone());
        }
        let mut found = Vec::new();
        if self.by_checkpoint.len() < MAX_COMPARED {
            for change in versions.changes(index)?.into_iter().take(MAX_FILES) {
                let Some(before) = &change.before else { continue };
                let Some(text) = versions.text(before)? else { continue };
                let new_text = match &change.after {
                    Some(after) => versions.text(after)?.unwrap_or_default(),
                    None => Rc::default(),
                };
                let path = change.from.unwrap_or(change.path);
                let removed = TextDiff::new(&text, &new_text).removed_lines();
                let lines = removed.into_iter().map(|(index, line)| (index, line.to_vec())).collect();
                found.push(RemovedLines { path, lines, text });
            }
        }
        let found = Rc::new(found);
        self.by_checkpoint.insert(index, found.clone());
        Ok(found)
    }
}

impl RemovedLines {
    /// The places of the longest block that begins with the first line of `run`, if it is long enough.
    fn longest_prefix_of(&self, run: &[&[u8]]) -> Option<Vec<usize>> {
        let places = (0..self.lines.len()).filter(|start| Some(&&self.lines[*start].1[..]) == run.first());
        let block_at = |start: usize| -> Vec<usize> {
            let first = self.lines[start].0;
            let pairs = self.lines[start..].iter().zip(run).enumerate();
            let same = pairs.take_while(|(offset, ((index, line), wanted))| {
                *index == first + offset && line.as_slice() == **wanted
            });
            same.map(|(_, ((index, _), _))| *index).collect()
        };
        let longest = places.map(block_at).max_by_key(Vec::len)?;
        let is_long = count_alphanumeric(run[..longest.len()].iter().copied()) >= MIN_CHARS;
        is_long.then_some(longest)
    }
}
