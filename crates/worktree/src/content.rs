//! Stores the content of an open file: whole up to 1 MiB, in content-defined chunks beyond.
//!
//! Chunk boundaries depend only on the bytes, never on history, so equal files have equal lists in every session. When an
//! older version of a large file is known, its chunk table is a shortcut: a chunk whose bytes still hash the same would be
//! cut the same, so only the stretches between such chunks are cut again. A changed byte in 200 MB costs one pass of
//! hashing and one stored chunk.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use fastcdc::v2020::FastCDC;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::list::{self, ListItem};
use stepback_model::object::{ObjectError, ObjectSource};
use stepback_store::ObjectBatch;

/// Files above this size are stored in chunks.
pub const WHOLE_LIMIT: u64 = 1 << 20;
const MIN_CHUNK: usize = 16 << 10;
const AVERAGE_CHUNK: usize = 64 << 10;
const MAX_CHUNK: usize = 256 << 10;
/// How many bytes of a large file one worker processes at a time.
const SEGMENT: u64 = 8 << 20;

/// Why a large file could not be stored.
#[derive(Debug)]
pub enum ChunkError {
    /// Reading the file failed, or it became shorter.
    Read(io::Error),
    /// The store failed.
    Store(ObjectError),
}

impl From<io::Error> for ChunkError {
    fn from(error: io::Error) -> Self {
        Self::Read(error)
    }
}

impl From<ObjectError> for ChunkError {
    fn from(error: ObjectError) -> Self {
        Self::Store(error)
    }
}

/// Stores the first `size` bytes of `file` in chunks, with `threads` threads, and returns the list's hash. `old` is the list of
/// an earlier version of the same file, if known.
pub fn store_chunked(
    file: &File,
    size: u64,
    old: Option<Hash>,
    source: &(dyn ObjectSource + Sync),
    batch: &dyn ObjectBatch,
    threads: usize,
) -> Result<Hash, ChunkError> {
    // Only a shortcut: a list that was collected or cannot be read is not needed.
    let known_items =
        old.and_then(|root| list::iter(source, root).collect::<Result<Vec<ListItem>, ObjectError>>().ok());
    let known_items = known_items.unwrap_or_default();
    let kept_chunks = find_kept(file, size, &known_items, threads)?;
    let items = cut_between(file, size, kept_chunks, batch, threads)?;
    Ok(list::build(batch, items)?)
}

/// Known chunks that are still in the file, at their old place or, behind an insertion or deletion, shifted by it.
fn find_kept(
    file: &File,
    size: u64,
    known_items: &[ListItem],
    threads: usize,
) -> Result<Vec<(u64, ListItem)>, ChunkError> {
    let old_size: u64 = known_items.iter().map(|item| item.len).sum();
    if known_items.is_empty() || old_size == 0 {
        return Ok(Vec::new());
    }
    let mut starts = Vec::with_capacity(known_items.len());
    let mut offset = 0;
    for item in known_items {
        starts.push(offset);
        offset += item.len;
    }
    let unchanged = verify(file, size, known_items, &starts, 0, 0..known_items.len(), threads)?;
    let mut new_start: Vec<Option<u64>> =
        unchanged.iter().zip(&starts).map(|(unchanged, start)| unchanged.then_some(*start)).collect();
    let shift = size as i64 - old_size as i64;
    if shift != 0 {
        let first_changed = unchanged.iter().position(|unchanged| !unchanged).unwrap_or(known_items.len());
        let shifted =
            verify(file, size, known_items, &starts, shift, first_changed..known_items.len(), threads)?;
        for (index, unchanged) in shifted.into_iter().enumerate() {
            let index = first_changed + index;
            if unchanged && new_start[index].is_none() {
                new_start[index] = Some((starts[index] as i64 + shift) as u64);
            }
        }
    }
    // The last chunk was cut by the end of the file; unless it still ends there, it would be cut elsewhere now.
    if let Some(last) = new_start.last_mut()
        && last.is_some_and(|start| start + known_items[known_items.len() - 1].len != size)
    {
        *last = None;
    }
    Ok(new_start.into_iter().zip(known_items).filter_map(|(start, item)| Some((start?, *item))).collect())
}

/// Which of `known[range]` have their bytes at their old start plus `shift`.
fn verify(
    file: &File,
    size: u64,
    known_items: &[ListItem],
    starts: &[u64],
    shift: i64,
    range: Range<usize>,
    threads: usize,
) -> Result<Vec<bool>, ChunkError> {
    const CHUNKS_PER_BATCH: usize = 64;
    let next = AtomicUsize::new(range.start);
    let unchanged = Mutex::new(vec![false; range.len()]);
    let failure = Mutex::new(None);
    let work = || {
        let mut buffer = Vec::new();
        loop {
            let from = next.fetch_add(CHUNKS_PER_BATCH, Ordering::Relaxed);
            if from >= range.end {
                return;
            }
            let to = (from + CHUNKS_PER_BATCH).min(range.end);
            let begin = starts[from] as i64 + shift;
            let end = starts[to - 1] as i64 + known_items[to - 1].len as i64 + shift;
            // Nothing matches outside the file; clip the run to what is inside.
            let inside = |index: usize| {
                let start = starts[index] as i64 + shift;
                start >= 0 && start + known_items[index].len as i64 <= size as i64
            };
            let (begin, end) = (begin.max(0) as u64, end.clamp(0, size as i64) as u64);
            if begin >= end {
                continue;
            }
            buffer.resize((end - begin) as usize, 0);
            if let Err(error) = file.read_exact_at(&mut buffer, begin) {
                *lock(&failure) = Some(error);
                return;
            }
            let verdicts: Vec<bool> = (from..to)
                .map(|index| {
                    inside(index) && {
                        let start = ((starts[index] as i64 + shift) as u64 - begin) as usize;
                        let bytes = &buffer[start..start + known_items[index].len as usize];
                        Hash::of(ObjectKind::Blob, bytes) == known_items[index].hash
                    }
                })
                .collect();
            lock(&unchanged)[from - range.start..to - range.start].copy_from_slice(&verdicts);
        }
    };
    run_on(threads, &work);
    match failure.into_inner().unwrap_or_default() {
        Some(error) => Err(error.into()),
        None => Ok(unchanged.into_inner().unwrap_or_default()),
    }
}

/// Cuts, hashes and stores everything outside `kept_chunks`, and returns all items in order.
fn cut_between(
    file: &File,
    size: u64,
    kept_chunks: Vec<(u64, ListItem)>,
    batch: &dyn ObjectBatch,
    threads: usize,
) -> Result<Vec<ListItem>, ChunkError> {
    let mut items = Vec::new();
    let mut offset = 0;
    for (start, item) in kept_chunks {
        if offset < start {
            offset = cut_gap(file, size, offset, start, batch, threads, &mut items)?;
        }
        // A known chunk counts only where a cut really falls; otherwise the gap before it has consumed its beginning.
        if offset == start {
            items.push(item);
            offset += item.len;
        }
    }
    if offset < size {
        cut_gap(file, size, offset, size, batch, threads, &mut items)?;
    }
    Ok(items)
}

/// Cuts from `start` until a boundary at or beyond `end`, stores the chunks, and returns that boundary.
fn cut_gap(
    file: &File,
    size: u64,
    start: u64,
    end: u64,
    batch: &dyn ObjectBatch,
    threads: usize,
    items: &mut Vec<ListItem>,
) -> Result<u64, ChunkError> {
    let mut at = start;
    let mut buffer = Vec::new();
    while at < end {
        // A cut needs to see a whole maximal chunk, so each window reaches that far beyond the part it consumes.
        let window_end = size.min(at + SEGMENT + MAX_CHUNK as u64);
        buffer.resize((window_end - at) as usize, 0);
        file.read_exact_at(&mut buffer, at)?;
        let mut cuts: Vec<Range<usize>> = Vec::new();
        let mut offset = 0;
        while offset < buffer.len() && (offset as u64) < SEGMENT && at + (offset as u64) < end {
            let rest = &buffer[offset..];
            // The cut is a position in the slice; at least one byte, so that this always ends.
            let length = FastCDC::new(rest, MIN_CHUNK, AVERAGE_CHUNK, MAX_CHUNK).cut(0, rest.len()).1.max(1);
            cuts.push(offset..offset + length);
            offset += length;
        }
        items.extend(store_cuts(&buffer, &cuts, batch, threads)?);
        at += offset as u64;
    }
    Ok(at)
}

fn store_cuts(
    buffer: &[u8],
    cuts: &[Range<usize>],
    batch: &dyn ObjectBatch,
    threads: usize,
) -> Result<Vec<ListItem>, ChunkError> {
    let next = AtomicUsize::new(0);
    let stored = Mutex::new(vec![None; cuts.len()]);
    let failure = Mutex::new(None);
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(cut) = cuts.get(index) else { return };
            match batch.write(ObjectKind::Blob, &buffer[cut.clone()], None) {
                Ok(hash) => lock(&stored)[index] = Some(ListItem { hash, len: cut.len() as u64 }),
                Err(error) => {
                    *lock(&failure) = Some(error);
                    return;
                }
            }
        }
    };
    run_on(if cuts.len() < 4 { 1 } else { threads }, &work);
    match failure.into_inner().unwrap_or_default() {
        Some(error) => Err(error.into()),
        None => Ok(stored.into_inner().unwrap_or_default().into_iter().flatten().collect()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs `work` on this thread and `threads - 1` others.
fn run_on(threads: usize, work: &(impl Fn() + Sync)) {
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
}

/// Whether a file consists of exactly these chunks; for verifying restored files.
pub fn matches_chunks(file: &File, size: u64, expected: &[ListItem]) -> io::Result<bool> {
    if expected.iter().map(|item| item.len).sum::<u64>() != size {
        return Ok(false);
    }
    let mut buffer = Vec::new();
    let mut offset = 0;
    for item in expected {
        buffer.resize(item.len as usize, 0);
        file.read_exact_at(&mut buffer, offset)?;
        if Hash::of(ObjectKind::Blob, &buffer) != item.hash {
            return Ok(false);
        }
        offset += item.len;
    }
    Ok(true)
}
