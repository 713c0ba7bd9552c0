//! Recognises files that a power failure left incomplete.
//!
//! A new file takes its place before its bytes are durable; syncing each one first would multiply the time of a rewind. So
//! after a power failure the name may lead to a file that is shorter than planned, or that has zeros where blocks are missing.
//! The journal is still open then. The run that completes it must not take such a file for an edit by another process.
//!
//! A user can make such a file too, for example by emptying it before the next command. Its bytes tell nothing about who wrote
//! it, so the caller saves it ([`Applier::find_torn_files`]) before it may be replaced ([`Applier::replacing`]).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;

use rustix::fs::AtFlags;
use stepback_model::path::RelPath;
use stepback_model::plan::PlannedChange;
use stepback_model::tree::{Content, TreeNode};

use super::{Applier, existing_parent};
use crate::anchored_path::{Identity, Present, open_file};
use crate::error::WorktreeError;
use crate::git;
use crate::restore::read_content;

/// Blocks are missing or there as a whole. No file system in use has smaller ones than this.
const BLOCK: usize = 512;

/// Files that hold only a part of what a plan writes or replaces.
pub type TornFiles = HashMap<RelPath, Identity>;

impl Applier<'_> {
    /// Finds the files that are a part of what `changes` write, or of what their reversal wrote. A file that is complete,
    /// before or after, is not among them, whatever its mode.
    pub fn find_torn_files(&self, changes: &[PlannedChange]) -> Result<TornFiles, WorktreeError> {
        let mut anchor = self.anchor.duplicate();
        let mut torn = TornFiles::new();
        for change in changes {
            let path = &change.path;
            let Some((dir, name)) = existing_parent(anchor.parent(path), path)? else { continue };
            let Ok((file, stat)) = open_file(&dir, name) else { continue };
            let nodes = || [&change.then, &change.now].into_iter().flatten();
            let mut is_complete = false;
            for node in nodes() {
                let present = self.compare_present(&dir, name, node, path)?;
                is_complete |= matches!(present, Present::Matches(_) | Present::OtherMode(_));
            }
            // What cannot be compared is not known to be torn.
            let is_torn = |node| self.is_part_of(&file, path, node).unwrap_or(false);
            if !is_complete && nodes().any(is_torn) {
                torn.insert(path.clone(), Identity::of(&stat));
            }
        }
        Ok(torn)
    }

    /// Allows these files to be replaced or removed as if they were what the plan expects. They must have been saved.
    pub fn replacing(self, torn: TornFiles) -> Self {
        Self { torn, ..self }
    }

    /// Returns the file at `name` if it may be replaced because it is torn.
    pub(super) fn torn_at(&self, dir: &impl AsFd, name: &OsStr, path: &RelPath) -> Option<Identity> {
        let torn_file = self.torn.get(path)?;
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        (Identity::of(&stat) == *torn_file).then_some(*torn_file)
    }

    fn is_part_of(&self, file: &File, path: &RelPath, node: &TreeNode) -> io::Result<bool> {
        let TreeNode::File { content, .. } = node else { return Ok(false) };
        let mut present = file;
        io::Seek::rewind(&mut present)?;
        if *content != Content::Vaulted {
            let planned = read_content(content, self.source).map_err(io::Error::other)?;
            return is_part(BufReader::new(present), &planned[..]);
        }
        let Some((parent, name)) = path.split_last() else { return Ok(false) };
        let key = git::vault_name(parent.components().next_back().unwrap_or_default(), name);
        let (Some(key), Some(vault)) = (key, self.vault) else { return Ok(false) };
        is_part(BufReader::new(present), BufReader::new(vault.open_sound(&key)?))
    }
}

/// Whether `present` has only blocks of `planned` and zeros, and not all of them.
fn is_part(mut present: impl Read, mut planned: impl Read) -> io::Result<bool> {
    let (mut present_block, mut planned_block) = (Vec::with_capacity(BLOCK), Vec::with_capacity(BLOCK));
    let mut is_equal = true;
    loop {
        present_block.clear();
        planned_block.clear();
        present.by_ref().take(BLOCK as u64).read_to_end(&mut present_block)?;
        planned.by_ref().take(BLOCK as u64).read_to_end(&mut planned_block)?;
        if present_block.len() > planned_block.len() {
            return Ok(false);
        }
        if !planned_block.starts_with(&present_block) && present_block.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        is_equal &= present_block == planned_block;
        if present_block.len() < BLOCK {
            return Ok(!is_equal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_a_beginning_or_has_zeros_for_whole_blocks() {
        let whole: Vec<u8> = (0..2000).map(|index| (index % 250) as u8 + 1).collect();
        let mut holed = whole.clone();
        holed[512..1024].fill(0);
        for part in [&whole[..0], &whole[..700], &whole[..1024], &holed, &vec![0; 2000]] {
            assert!(is_part(part, &whole[..]).unwrap(), "{} bytes", part.len());
        }
        let mut edited = whole[..700].to_vec();
        edited[699] ^= 1;
        let mut half_block = whole.clone();
        half_block[512..600].fill(0);
        let longer = [&whole[..], b"more"].concat();
        let zeros = vec![0; 2001];
        for other in [&whole[..], &edited, &half_block, &longer, &zeros, b"other"] {
            assert!(!is_part(other, &whole[..]).unwrap(), "{} bytes", other.len());
        }
    }
}
