//! Hunks of a text file's change, so that one of them can be taken back without the others.

use similar::{Algorithm, capture_diff_slices};
use stepback_model::change::PathChange;
use stepback_model::hash::ObjectKind;
use stepback_model::object::{ObjectSink, ObjectSource};
use stepback_model::tree::{Content, TreeNode};

use crate::changes::SelectionError;
use crate::error::EngineError;

/// Returns the change reduced to the hunks `numbers` (counted from 1): taking it back takes back only those.
pub(crate) fn restrict_to_hunks(
    source: &dyn ObjectSource,
    sink: &dyn ObjectSink,
    change: &PathChange,
    numbers: &[usize],
) -> Result<PathChange, EngineError> {
    let (Some(old_text), Some(new_text)) =
        (read_text(source, &change.before)?, read_text(source, &change.after)?)
    else {
        return Err(SelectionError::NoHunks(change.path.clone()).into());
    };
    let (old, new): (Vec<&[u8]>, Vec<&[u8]>) = (split_lines(&old_text), split_lines(&new_text));
    let hunks: Vec<_> = capture_diff_slices(Algorithm::Myers, &old, &new)
        .into_iter()
        .filter(|op| op.tag() != similar::DiffTag::Equal)
        .collect();
    if let Some(unknown) = numbers.iter().find(|number| **number == 0 || **number > hunks.len()) {
        let (path, number, count) = (change.path.clone(), *unknown, hunks.len());
        return Err(SelectionError::NoSuchHunk { path, number, count }.into());
    }
    let mut result = Vec::with_capacity(new_text.len());
    let mut line = 0;
    for (index, hunk) in hunks.iter().enumerate() {
        result.extend(new[line..hunk.new_range().start].concat());
        if numbers.contains(&(index + 1)) {
            result.extend(old[hunk.old_range()].concat());
        } else {
            result.extend(new[hunk.new_range()].concat());
        }
        line = hunk.new_range().end;
    }
    result.extend(new[line..].concat());
    let hash = sink.write(ObjectKind::Blob, &result, None)?;
    let Some(TreeNode::File { mode, .. }) = change.after else { return Ok(change.clone()) };
    let partly = TreeNode::File { mode, size: result.len() as u64, content: Content::Whole(hash) };
    Ok(PathChange { before: Some(partly), ..change.clone() })
}

/// Returns how many hunks a change has; `None` if it is not a modified text file.
pub fn count_hunks(source: &dyn ObjectSource, change: &PathChange) -> Result<Option<usize>, EngineError> {
    let (Some(old_text), Some(new_text)) =
        (read_text(source, &change.before)?, read_text(source, &change.after)?)
    else {
        return Ok(None);
    };
    let ops = capture_diff_slices(Algorithm::Myers, &split_lines(&old_text), &split_lines(&new_text));
    Ok(Some(ops.iter().filter(|op| op.tag() != similar::DiffTag::Equal).count()))
}

fn split_lines(bytes: &[u8]) -> Vec<&[u8]> {
    bytes.split_inclusive(|byte| *byte == b'\n').collect()
}

fn read_text(source: &dyn ObjectSource, node: &Option<TreeNode>) -> Result<Option<Vec<u8>>, EngineError> {
    let Some(TreeNode::File { content: Content::Whole(hash), .. }) = node else { return Ok(None) };
    let bytes = source.read(ObjectKind::Blob, *hash)?;
    Ok((!bytes.contains(&0)).then_some(bytes))
}
