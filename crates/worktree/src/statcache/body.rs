//! Reads the directories of a stat cache: from memory, or on demand from the file.
//!
//! A scan of some directories of a large tree needs a few of thousands. The rest is not read: neither the entries, nor
//! the records of the directories, which are read in groups of neighbours.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

use super::DIR_RECORD;

/// The number of directory records read together: less than a page.
const DIRS_PER_READ: usize = 64;

/// The records of all directories, followed by their entries and names.
#[derive(Debug)]
pub(super) enum Body {
    Whole {
        bytes: Vec<u8>,
        table: usize,
    },
    Parts {
        file: File,
        /// Its range in the file, which is never written to again.
        range: Range<usize>,
        table: usize,
        groups: Vec<OnceLock<Option<Group>>>,
    },
}

/// A group of directories whose records were read.
#[derive(Debug)]
pub(super) struct Group {
    records: Vec<u8>,
    /// Entries and names of each, once they were requested.
    loaded: Vec<OnceLock<Option<Box<[u8]>>>>,
}

impl Body {
    /// The part `range` of the file, which begins with a table of `table` bytes. Nothing is read yet.
    pub(super) fn new(file: File, range: Range<usize>, table: usize) -> Self {
        let groups = (table / DIR_RECORD).div_ceil(DIRS_PER_READ);
        let groups = std::iter::repeat_with(OnceLock::new).take(groups).collect();
        Self::Parts { file, range, table, groups }
    }

    /// The same, read at once.
    pub(super) fn read_whole(self) -> Option<Self> {
        match self {
            Self::Whole { .. } => Some(self),
            Self::Parts { file, range, table, .. } => {
                Some(Self::Whole { bytes: read_at(&file, range)?, table })
            }
        }
    }

    /// The record of a directory.
    pub(super) fn dir_record(&self, dir: u32) -> Option<&[u8; DIR_RECORD]> {
        let dir = dir as usize;
        match self {
            Self::Whole { bytes, table } => bytes[..*table].get(dir * DIR_RECORD..)?.first_chunk(),
            Self::Parts { .. } => {
                self.load_group(dir)?.records.get(dir % DIRS_PER_READ * DIR_RECORD..)?.first_chunk()
            }
        }
    }

    fn load_group(&self, dir: usize) -> Option<&Group> {
        let Self::Parts { file, range, table, groups } = self else { return None };
        let read = || {
            let start = dir / DIRS_PER_READ * DIRS_PER_READ * DIR_RECORD;
            let end = (start + DIRS_PER_READ * DIR_RECORD).min(*table);
            let records = read_at(file, range.start + start..range.start + end)?;
            let loaded = std::iter::repeat_with(OnceLock::new).take(records.len() / DIR_RECORD).collect();
            Some(Group { records, loaded })
        };
        groups.get(dir / DIRS_PER_READ)?.get_or_init(read).as_ref()
    }

    /// Entries and names of a directory; their offsets count from the end of the table.
    pub(super) fn dir_parts(
        &self,
        dir: u32,
        records: Range<usize>,
        names: Range<usize>,
    ) -> Option<(&[u8], &[u8])> {
        match self {
            Self::Whole { bytes, table } => {
                let bytes = &bytes[*table..];
                Some((bytes.get(records)?, bytes.get(names)?))
            }
            Self::Parts { file, range, table, .. } => {
                let start = range.start + table;
                let read = || {
                    if records.end.max(names.end) > range.len() - table {
                        return None;
                    }
                    let mut bytes = vec![0; records.len() + names.len()];
                    let (first, second) = bytes.split_at_mut(records.len());
                    file.read_exact_at(first, (start + records.start) as u64).ok()?;
                    file.read_exact_at(second, (start + names.start) as u64).ok()?;
                    Some(bytes.into_boxed_slice())
                };
                let loaded = self.load_group(dir as usize)?.loaded.get(dir as usize % DIRS_PER_READ)?;
                loaded.get_or_init(read).as_deref()?.split_at_checked(records.len())
            }
        }
    }
}

/// Reads this range of a file.
pub(super) fn read_at(file: &File, range: Range<usize>) -> Option<Vec<u8>> {
    let mut bytes = vec![0; range.len()];
    file.read_exact_at(&mut bytes, range.start as u64).ok().map(|()| bytes)
}
