//! A disk in memory that records every write and every flush, and can be cut back to any moment.
//!
//! The disk has two layers of blocks. The durable layer is what has been flushed; the volatile layer above it is what was
//! written since. To cut the power, the volatile layer is thrown away and filled again with the writes that happened to
//! survive. Whatever a check then writes (a replayed journal, a recovered rewind) goes into the volatile layer as well, so the
//! next cut starts from the recording and not from the repair.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The unit that a disk writes as a whole. Larger writes can be torn between blocks.
pub const BLOCK: usize = 4096;

/// The content of one block.
type Block = Box<[u8; BLOCK]>;

/// What reached the disk, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEntry {
    /// Bytes at an offset. They may be lost until the next flush.
    Write {
        /// Where, in bytes.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Everything before is durable.
    Flush,
}

/// A disk of a fixed size. Blocks that were never written are zero and take no memory.
#[derive(Debug, Default)]
pub struct Disk {
    size: u64,
    durable: HashMap<u64, Block>,
    volatile: HashMap<u64, Block>,
    log: Option<Vec<LogEntry>>,
}

impl Disk {
    /// A disk of zeros.
    pub fn new(size: u64) -> Self {
        Self { size, ..Self::default() }
    }

    /// A disk with the content of a file, all of it durable.
    pub fn from_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut disk = Self::new(file.metadata()?.len());
        let mut block: Block = Box::new([0; BLOCK]);
        for index in 0..disk.size / BLOCK as u64 {
            file.read_exact(&mut block[..])?;
            if block.iter().any(|byte| *byte != 0) {
                disk.durable.insert(index, block.clone());
            }
        }
        Ok(disk)
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Starts recording.
    pub fn record(&mut self) {
        self.log = Some(Vec::new());
    }

    /// How many entries have been recorded.
    pub fn position(&self) -> usize {
        self.log.as_ref().map_or(0, Vec::len)
    }

    /// Ends recording: the disk is as it was when the recording started, and the log is returned.
    pub fn take_log(&mut self) -> Vec<LogEntry> {
        self.volatile.clear();
        self.log.take().unwrap_or_default()
    }

    /// Reads bytes; those behind the end are missing.
    pub fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let end = self.size.min(offset.saturating_add(length as u64));
        let mut bytes = Vec::with_capacity(length);
        for (index, range) in blocks_of(offset, end) {
            match self.volatile.get(&index).or_else(|| self.durable.get(&index)) {
                Some(block) => bytes.extend_from_slice(&block[range]),
                None => bytes.resize(bytes.len() + range.len(), 0),
            }
        }
        bytes
    }

    /// Writes bytes; they are lost at a cut unless a flush follows.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let end = offset + bytes.len() as u64;
        if end > self.size {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if let Some(log) = &mut self.log {
            log.push(LogEntry::Write { offset, bytes: bytes.to_vec() });
        }
        let mut rest = bytes;
        for (index, range) in blocks_of(offset, end) {
            let (part, remaining) = rest.split_at(range.len());
            rest = remaining;
            let durable = &self.durable;
            let block = self
                .volatile
                .entry(index)
                .or_insert_with(|| durable.get(&index).cloned().unwrap_or_else(|| Box::new([0; BLOCK])));
            block[range].copy_from_slice(part);
        }
        Ok(())
    }

    /// Notes that everything written before has to survive.
    pub fn flush(&mut self) {
        if let Some(log) = &mut self.log {
            log.push(LogEntry::Flush);
        }
    }

    /// Applies entries of a log for good: the durable layer moves forward in time.
    pub fn make_durable(&mut self, entries: &[LogEntry]) -> io::Result<()> {
        self.volatile.clear();
        self.write_all(entries.iter().filter_map(LogEntry::as_write))?;
        self.durable.extend(self.volatile.drain());
        Ok(())
    }

    /// Cuts the power: of everything that was not durable, only these writes survived.
    pub fn cut<'a>(&mut self, survivors: impl IntoIterator<Item = (u64, &'a [u8])>) -> io::Result<()> {
        self.volatile.clear();
        self.write_all(survivors)
    }

    fn write_all<'a>(&mut self, writes: impl IntoIterator<Item = (u64, &'a [u8])>) -> io::Result<()> {
        writes.into_iter().try_for_each(|(offset, bytes)| self.write(offset, bytes))
    }

    /// Writes the disk as it is now into a sparse file, for inspection with other tools.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.size)?;
        for layer in [&self.durable, &self.volatile] {
            for (index, block) in layer {
                file.write_all_at(&block[..], index * BLOCK as u64)?;
            }
        }
        Ok(())
    }
}

impl LogEntry {
    /// Offset and bytes, unless this is a flush.
    pub fn as_write(&self) -> Option<(u64, &[u8])> {
        match self {
            Self::Write { offset, bytes } => Some((*offset, bytes)),
            Self::Flush => None,
        }
    }
}

/// The parts of a write that survive or are lost as a whole: one per block it touches.
pub fn split_at_blocks(offset: u64, bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = bytes;
    blocks_of(offset, offset + bytes.len() as u64).map(move |(index, range)| {
        let (part, remaining) = rest.split_at(range.len());
        rest = remaining;
        (index * BLOCK as u64 + range.start as u64, part)
    })
}

/// Blocks that a range of bytes touches, each with the part of it.
fn blocks_of(start: u64, end: u64) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let size = BLOCK as u64;
    (start / size..end.div_ceil(size)).filter(move |_| start < end).map(move |index| {
        let part_start = start.saturating_sub(index * size).min(size);
        let part_end = (end - index * size).min(size);
        // Both are at most the size of a block.
        (index, part_start as usize..part_end as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> LogEntry {
        LogEntry::Write { offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn a_cut_keeps_what_was_flushed_and_the_survivors() {
        let mut disk = Disk::new(4 * BLOCK as u64);
        disk.record();
        disk.write(10, b"one").unwrap();
        disk.flush();
        disk.write(10, b"two").unwrap();
        disk.write(BLOCK as u64 - 2, b"torn").unwrap();
        assert_eq!(disk.position(), 4);
        assert_eq!(disk.read(10, 3), b"two");
        let log = disk.take_log();
        assert_eq!(log[0], write(10, b"one"));
        assert_eq!(disk.read(10, 3), [0, 0, 0]);

        disk.make_durable(&log[..2]).unwrap();
        disk.cut([]).unwrap();
        assert_eq!(disk.read(10, 3), b"one");
        let (offset, bytes) = log[3].as_write().unwrap();
        let pieces: Vec<_> = split_at_blocks(offset, bytes).collect();
        assert_eq!(pieces, [(4094, &b"to"[..]), (4096, &b"rn"[..])]);
        disk.cut([pieces[1]]).unwrap();
        assert_eq!(disk.read(4094, 4), [0, 0, b'r', b'n']);
        assert_eq!(disk.read(10, 3), b"one");
        disk.write(10, b"fix").unwrap();
        disk.cut([]).unwrap();
        assert_eq!(disk.read(10, 3), b"one", "what a check wrote is gone at the next cut");
    }

    #[test]
    fn nothing_is_read_or_written_behind_the_end() {
        let mut disk = Disk::new(BLOCK as u64);
        assert_eq!(disk.read(BLOCK as u64 - 1, 10), [0]);
        assert!(disk.read(1 << 40, 10).is_empty());
        assert!(disk.write(BLOCK as u64 - 1, b"ab").is_err());
    }
}
