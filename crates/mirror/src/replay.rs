//! Reads a mirror from its first segment to its last, verifies everything, and passes on what can be used.
//!
//! A generation is used up to the first place where something is missing. Segments that cannot be read are named; what other
//! segments have is not affected, except for changes of the log that come after a gap in the same generation.

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::time::Timestamp;
use stepback_store::embedded::ChainLink;

use crate::archive::MirrorArchive;
use crate::error::MirrorError;
use crate::item::SegmentItem;
use crate::segment::{MirrorSegment, SegmentLink};

/// Something that a mirror has.
#[derive(Debug)]
pub enum ReplayEvent<'a> {
    /// An object, of any generation.
    Object {
        /// Its kind.
        kind: ObjectKind,
        /// A similar object.
        base: Option<Hash>,
        /// Its bytes.
        bytes: &'a [u8],
    },
    /// A file of the vault, by the name of its manifest.
    VaultFile(&'a str),
    /// Changes of the log, which follow those before in the same generation.
    Changes {
        /// The generation.
        generation: u64,
        /// A JSON array of mutations.
        mutations: &'a [u8],
    },
}

/// What is known about a generation after it was read.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct GenerationState {
    /// Its number, from 1.
    pub number: u64,
    /// Why it was begun.
    pub reason: String,
    /// When it was begun.
    pub began_at: Timestamp,
    /// When its last usable segment was written.
    pub written_at: Timestamp,
    /// The newest commit that can be used.
    #[serde(skip)]
    pub commit: ChainLink,
    /// Whether all of the log as it was at the beginning is there.
    pub has_log: bool,
    /// Whether the objects are there too that the store had at the beginning.
    pub is_complete: bool,
    /// Why the rest of it cannot be used, if so.
    pub obstacle: Option<String>,
    /// Number of parts of the log.
    #[serde(skip)]
    parts: u32,
}

/// The result of [`replay`].
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ReplayReport {
    /// Number of segments that were read and verified.
    pub segments: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Number of objects in them.
    pub objects: u64,
    /// Number of commits in them.
    pub commits: u64,
    /// The generations, oldest first.
    pub generations: Vec<GenerationState>,
    /// What is missing or damaged, as sentences.
    pub problems: Vec<String>,
}

/// Reads everything. `visit` gets what can be used, in order.
pub fn replay(
    archive: &MirrorArchive,
    visit: &mut dyn FnMut(ReplayEvent<'_>) -> Result<(), MirrorError>,
) -> Result<ReplayReport, MirrorError> {
    let mut reader = ArchiveReader { report: ReplayReport::default(), previous: None, visit };
    for (sequence, bytes) in archive.sequences()? {
        match archive.read(sequence) {
            Ok(segment) => reader.read_segment(&segment, bytes)?,
            Err(MirrorError::Damaged { what }) => reader.report.problems.push(what),
            Err(error) => return Err(error),
        }
    }
    Ok(reader.report)
}

struct ArchiveReader<'a> {
    report: ReplayReport,
    previous: Option<SegmentLink>,
    visit: &'a mut dyn FnMut(ReplayEvent<'_>) -> Result<(), MirrorError>,
}

impl ArchiveReader<'_> {
    fn read_segment(&mut self, segment: &MirrorSegment, bytes: u64) -> Result<(), MirrorError> {
        self.check_chain(segment);
        self.previous = Some(segment.link());
        self.report.segments += 1;
        self.report.bytes += bytes;
        for item in segment.items() {
            match item {
                Ok(item) => self.read_item(item, segment.header.written_at)?,
                // The checksum matches, so it was written like this, by a newer program or by an attacker.
                Err(what) => {
                    let what = format!("segment {}: {what}", segment.header.sequence);
                    self.break_generation(&what);
                    self.report.problems.push(what);
                    break;
                }
            }
        }
        Ok(())
    }

    fn check_chain(&mut self, segment: &MirrorSegment) {
        let (found, expected) = (segment.header.previous, self.previous);
        if found == expected {
            return;
        }
        let sequence = segment.header.sequence;
        let what = match (found, expected) {
            (Some(found), Some(expected)) if found.sequence == expected.sequence => {
                format!("segment {sequence} does not continue segment {}", found.sequence)
            }
            (Some(found), Some(expected)) if found.sequence > expected.sequence => {
                format!("segment {} is missing or damaged", found.sequence)
            }
            (Some(found), None) => format!("segment {} is missing or damaged", found.sequence),
            // It was written by a process that did not see the segment before it; its commits are compared below.
            _ => return,
        };
        if !self.report.problems.contains(&what) {
            self.report.problems.push(what);
        }
    }

    fn generation(&mut self) -> Option<&mut GenerationState> {
        self.report.generations.last_mut().filter(|generation| generation.obstacle.is_none())
    }

    fn break_generation(&mut self, why: &str) {
        if let Some(generation) = self.generation() {
            generation.obstacle = Some(why.to_owned());
        }
    }

    fn read_item(&mut self, item: SegmentItem, at: Timestamp) -> Result<(), MirrorError> {
        match item {
            SegmentItem::Object { kind, base, bytes, .. } => {
                self.report.objects += 1;
                return (self.visit)(ReplayEvent::Object { kind, base, bytes: &bytes });
            }
            SegmentItem::VaultFile { manifest } => return (self.visit)(ReplayEvent::VaultFile(&manifest)),
            SegmentItem::Generation { number, reason } => {
                self.report.generations.push(GenerationState {
                    number,
                    reason,
                    began_at: at,
                    written_at: at,
                    commit: ChainLink::NONE,
                    has_log: false,
                    is_complete: false,
                    obstacle: None,
                    parts: 0,
                });
            }
            SegmentItem::Log { part, mutations } => {
                let Some(generation) = self.generation() else { return Ok(()) };
                if part != generation.parts || generation.has_log {
                    self.break_generation(&format!("part {part} of its log does not follow the one before"));
                    return Ok(());
                }
                generation.parts += 1;
                return self.pass_on(&mutations, at);
            }
            SegmentItem::LogEnd { link, parts } => {
                let Some(generation) = self.generation() else { return Ok(()) };
                if parts != generation.parts {
                    self.break_generation("a part of its log is missing");
                    return Ok(());
                }
                (generation.has_log, generation.commit) = (true, link);
            }
            SegmentItem::Complete => {
                if let Some(generation) = self.generation() {
                    generation.is_complete = generation.has_log;
                }
            }
            SegmentItem::Commit { link, before, mutations } => {
                self.report.commits += 1;
                let Some(generation) = self.generation() else { return Ok(()) };
                // Written twice, by two processes at the same time.
                if generation.has_log && link.commit <= generation.commit.commit {
                    return Ok(());
                }
                if !generation.has_log || before != generation.commit {
                    let gap = format!(
                        "commits between {} and {} are missing",
                        generation.commit.commit, link.commit
                    );
                    self.break_generation(&gap);
                    return Ok(());
                }
                generation.commit = link;
                return self.pass_on(&mutations, at);
            }
        }
        Ok(())
    }

    fn pass_on(&mut self, mutations: &[u8], at: Timestamp) -> Result<(), MirrorError> {
        let Some(generation) = self.generation() else { return Ok(()) };
        generation.written_at = at;
        let generation = generation.number;
        (self.visit)(ReplayEvent::Changes { generation, mutations })
    }
}
