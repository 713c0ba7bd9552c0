//! Where the power is cut, and which writes survive.
//!
//! There are three models of a disk. It may keep everything it was sent ([`Model::Kept`]), only what it was asked to
//! flush ([`Model::Dropped`]), or of the rest any part in any order ([`Model::Reordered`]): blocks that were written
//! since the last flush survive or not, each by itself.

use std::collections::BTreeSet;
use std::io;

use crate::disk::{Disk, LogEntry, split_at_blocks};

/// What happens to writes that were not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// All survive.
    Kept,
    /// None survives.
    Dropped,
    /// Each block survives or not, by a seeded draw.
    Reordered,
}

impl Model {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kept => "all kept",
            Self::Dropped => "unsynced dropped",
            Self::Reordered => "reordered",
        }
    }
}

/// One loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cut {
    /// How many entries of the log happened before.
    pub position: usize,
    /// What happens to those that were not flushed.
    pub model: Model,
    /// For the draw of [`Model::Reordered`].
    pub seed: u64,
}

/// Every cut that gives a different image or a different set of acknowledged commands.
///
/// - kept: after every write;
/// - dropped: between two flushes the image stays the same, and the last moment promises the most, so there is one cut before
///   every flush that had writes before it;
/// - reordered: after every write that is not the only one since the last flush, `orders` draws.
pub fn all_cuts(log: &[LogEntry], orders: u64, seed: u64) -> Vec<Cut> {
    let mut cuts = Vec::new();
    let mut draws = SeededDraws::new(seed);
    let mut unflushed = 0;
    for (index, entry) in log.iter().enumerate() {
        match entry {
            LogEntry::Flush => {
                if unflushed > 0 {
                    cuts.push(Cut { position: index, model: Model::Dropped, seed: 0 });
                }
                unflushed = 0;
            }
            LogEntry::Write { offset, bytes } => {
                unflushed += split_at_blocks(*offset, bytes).count();
                let position = index + 1;
                cuts.push(Cut { position, model: Model::Kept, seed: 0 });
                if unflushed > 1 {
                    let drawn = (0..orders).map(|_| draws.next_u64());
                    cuts.extend(drawn.map(|seed| Cut { position, model: Model::Reordered, seed }));
                }
            }
        }
    }
    if unflushed > 0 {
        cuts.push(Cut { position: log.len(), model: Model::Dropped, seed: 0 });
    }
    cuts.sort();
    cuts
}

/// At most this many of the cuts, drawn by the seed, in order.
pub fn sample(cuts: &[Cut], count: usize, seed: u64) -> Vec<Cut> {
    if cuts.len() <= count {
        return cuts.to_vec();
    }
    let mut random = SeededDraws::new(seed);
    let mut chosen = BTreeSet::new();
    while chosen.len() < count {
        chosen.insert(random.below(cuts.len()));
    }
    chosen.into_iter().map(|index| cuts[index]).collect()
}

/// Plays a recording back, cut after cut. Positions must not go back.
#[derive(Debug)]
pub struct Playback<'a> {
    log: &'a [LogEntry],
    durable: usize,
}

impl<'a> Playback<'a> {
    /// Starts at the beginning of the log, with the disk as it was when the recording started.
    pub fn new(log: &'a [LogEntry]) -> Self {
        Self { log, durable: 0 }
    }

    /// Brings the disk into the state that a cut leaves.
    pub fn apply(&mut self, cut: Cut, disk: &mut Disk) -> io::Result<()> {
        let entries_before = &self.log[..cut.position];
        let flushed =
            entries_before.iter().rposition(|entry| *entry == LogEntry::Flush).map_or(0, |flush| flush + 1);
        if flushed > self.durable {
            disk.make_durable(&self.log[self.durable..flushed])?;
            self.durable = flushed;
        }
        let unflushed = entries_before[flushed..].iter().filter_map(LogEntry::as_write);
        match cut.model {
            Model::Kept => disk.cut(unflushed),
            Model::Dropped => disk.cut([]),
            Model::Reordered => {
                let mut random = SeededDraws::new(cut.seed);
                // Sometimes little survives, sometimes nearly everything.
                let chance = [1, 2, 4, 6, 7][random.below(5)];
                let blocks = unflushed.flat_map(|(offset, bytes)| split_at_blocks(offset, bytes));
                disk.cut(blocks.filter(|_| random.below(8) < chance))
            }
        }
    }
}

/// Seeded numbers (SplitMix64), the same on every machine.
#[derive(Debug)]
pub struct SeededDraws(u64);

impl SeededDraws {
    /// Numbers that depend on the seed only.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero.
    pub fn below(&mut self, end: usize) -> usize {
        // The remainder is smaller than a usize.
        (self.next_u64() % end as u64) as usize
    }

    /// Bytes that do not compress.
    pub fn bytes(&mut self, length: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.next_u64().to_le_bytes()).flatten().take(length).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(block: u64, byte: u8) -> LogEntry {
        LogEntry::Write { offset: block * 4096, bytes: vec![byte; 4096] }
    }

    fn log() -> Vec<LogEntry> {
        use LogEntry::Flush;
        vec![write(0, 1), Flush, write(0, 2), write(1, 2), Flush, Flush, write(2, 3)]
    }

    #[test]
    fn every_write_and_every_flush_with_writes_is_a_cut() {
        let cuts = all_cuts(&log(), 2, 1);
        let at =
            |model| cuts.iter().filter(|cut| cut.model == model).map(|cut| cut.position).collect::<Vec<_>>();
        assert_eq!(at(Model::Kept), [1, 3, 4, 7]);
        assert_eq!(at(Model::Dropped), [1, 4, 7]);
        assert_eq!(at(Model::Reordered), [4, 4]);
        assert!(cuts.is_sorted());
        let some = sample(&cuts, 4, 9);
        assert!(some.len() == 4 && some.is_sorted());
        assert_eq!(some, sample(&cuts, 4, 9));
    }

    #[test]
    fn images_follow_the_models() {
        let log = log();
        let mut disk = Disk::new(3 * 4096);
        let mut playback = Playback::new(&log);
        let mut image = |position, model, seed| {
            playback.apply(Cut { position, model, seed }, &mut disk).unwrap();
            [0, 1, 2].map(|block| disk.read(block * 4096, 1)[0])
        };
        assert_eq!(image(1, Model::Kept, 0), [1, 0, 0]);
        assert_eq!(image(1, Model::Dropped, 0), [0, 0, 0]);
        assert_eq!(image(2, Model::Dropped, 0), [1, 0, 0]);
        assert_eq!(image(4, Model::Kept, 0), [2, 2, 0]);
        assert_eq!(image(4, Model::Dropped, 0), [1, 0, 0]);
        let drawn: BTreeSet<_> = (0..200).map(|seed| image(4, Model::Reordered, seed)).collect();
        assert_eq!(drawn, BTreeSet::from([[1, 0, 0], [1, 2, 0], [2, 0, 0], [2, 2, 0]]));
        assert_eq!(image(7, Model::Dropped, 0), [2, 2, 0]);
        assert_eq!(image(7, Model::Kept, 0), [2, 2, 3]);
    }
}
