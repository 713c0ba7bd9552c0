//! Examines one directory entry: is it what the cache says, and if not, what is it now?

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::tree::SkipReason;

use super::node::{DirKind, DirNode};
use super::walk::{CacheTrust, OutEntry, WalkState};
use crate::content::{self, ChunkError, WHOLE_LIMIT};
use crate::error::WorktreeError;
use crate::git;
use crate::rules::{self, RuleVerdict};
use crate::statcache::{CachedEntry, CachedKind, DAMAGED, Dir, IGNORED, LINKED, NONE, RACY, Stat};

/// Files above this size wait until the walk is over, so that all threads can share the work.
pub(super) const DEFER_ABOVE_BYTES: u64 = 8 << 20;
/// How often a file that changes while it is read is tried.
const ATTEMPTS: usize = 4;
/// Files changed this shortly before the scan (in nanoseconds) could change again within the same timestamp.
const RACY_MARGIN: i64 = 20_000_000;
/// The same where timestamps have whole seconds.
const COARSE_MARGIN: i64 = 2_000_000_000;

pub(super) const NO_HASH: Hash = Hash::from_bytes([0; 32]);

const REASONS: [SkipReason; 10] = [
    SkipReason::HeavyCache,
    SkipReason::Rule,
    SkipReason::Budget,
    SkipReason::Fifo,
    SkipReason::Socket,
    SkipReason::Device,
    SkipReason::Unreadable,
    SkipReason::GitDir,
    SkipReason::Foreign,
    SkipReason::Unstable,
];

/// The skip reason for a cached number.
pub(super) fn reason_from(aux: u32) -> Option<SkipReason> {
    REASONS.get(aux as usize).copied()
}

pub(super) fn reason_number(reason: SkipReason) -> u32 {
    REASONS.iter().position(|candidate| *candidate == reason).unwrap_or(0) as u32
}

/// A large file to be stored after the walk.
#[derive(Debug)]
pub(super) struct DeferredFile {
    pub dir: u32,
    pub node: Arc<DirNode>,
    pub name: Vec<u8>,
    pub old: Option<Hash>,
    /// [`IGNORED`] and [`LINKED`].
    pub flags: u8,
}

/// The result of examining an entry.
#[derive(Debug)]
pub(super) enum ExamineResult {
    /// What the cache says, at this position.
    Same(u32),
    /// Not what the cache says.
    New(OutEntry),
    /// A large file, to be stored later; the entry is a placeholder.
    Large(OutEntry, Option<Hash>),
    /// Not there any more, or transient.
    Gone,
    /// A directory after all (on file systems that do not report types in listings).
    IsDir,
}

/// The result of examining a subdirectory.
#[derive(Debug)]
pub(super) enum ExaminedDir {
    /// Not walked.
    Skipped { same_at: Option<u32>, entry: OutEntry },
    /// To be walked.
    Walk { same_at: Option<u32>, entry: OutEntry, old: u32, old_stat: Option<Stat> },
    /// A directory of immutable objects with no entry added or removed: the cached state holds without a scan.
    Untouched { at: u32, id: u32, old: u32, stat: Stat },
}

pub(super) fn to_stat(stat: &rustix::fs::Stat) -> Stat {
    let nanos = |seconds: i64, nanos: u64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos as i64);
    Stat {
        size: stat.st_size as u64,
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
        ctime: nanos(stat.st_ctime, stat.st_ctime_nsec),
        ino: stat.st_ino,
        mode: stat.st_mode,
    }
}

/// Git's rule for racy timestamps, applied to the status change time: every write changes it, and no program can set it.
pub(super) fn is_racy(stat: &Stat, started: i64) -> bool {
    let coarse = stat.ctime % 1_000_000_000 == 0 && stat.mtime % 1_000_000_000 == 0;
    stat.ctime.saturating_add(if coarse { COARSE_MARGIN } else { RACY_MARGIN }) >= started
}

/// Whether a file changed so recently that the write may still be going on.
fn is_fresh(stat: &Stat) -> bool {
    (0..RACY_MARGIN).contains(&super::walk::current_realtime().saturating_sub(stat.ctime))
}

/// Examines entries, with buffers that are reused.
pub(super) struct Examiner<'s, 'a> {
    pub(super) shared: &'s WalkState<'a>,
    buffer: Vec<u8>,
    /// Something in the current directory can change without a watcher noticing.
    pub unsettled: bool,
}

impl<'s, 'a> Examiner<'s, 'a> {
    pub fn new(shared: &'s WalkState<'a>) -> Self {
        Self { shared, buffer: Vec::new(), unsettled: false }
    }

    /// Examines an entry that is not a directory.
    pub fn examine_known(
        &mut self,
        dir: &Arc<DirNode>,
        name: &[u8],
        kind: FileType,
        cached: Option<(usize, CachedEntry<'_>)>,
    ) -> Result<ExamineResult, WorktreeError> {
        if dir.git_place().is_some_and(|place| git::is_transient(place, name)) {
            return Ok(ExamineResult::Gone);
        }
        let (index, prior) = cached.unzip();
        let same_as_cached = || Ok(ExamineResult::Same(index.unwrap_or(0) as u32));
        if let Some(reason) = skip_reason(kind) {
            let unchanged = prior
                .is_some_and(|prior| prior.kind == CachedKind::Skipped && prior.aux == reason_number(reason));
            return if unchanged {
                same_as_cached()
            } else {
                Ok(ExamineResult::New(skipped_entry(name, Stat::default(), reason)))
            };
        }
        let stat = match rustix::fs::statat(&dir.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(ExamineResult::Gone),
            Err(Errno::ACCESS) => {
                return Ok(ExamineResult::New(skipped_entry(name, Stat::default(), SkipReason::Unreadable)));
            }
            Err(errno) => return Err(WorktreeError::io("look at", &dir.path().join(name))(errno.into())),
        };
        let stat_now = to_stat(&stat);
        // A watcher sees a write through another name only where that name is.
        let linked = stat.st_nlink > 1 && dir.area != DirKind::Objects;
        if linked {
            self.unsettled = true;
            if prior.is_none_or(|prior| prior.flags & LINKED == 0) {
                self.shared.newly_linked.store(true, Ordering::Relaxed);
            }
        }
        if let Some(prior) = &prior
            && prior.stat == stat_now
            && prior.flags & RACY == 0
            && prior.kind != CachedKind::Dir
            && prior.aux != reason_number(SkipReason::Unstable)
            && !self.fits_again(prior)
            && self.is_still_valid(dir, prior)?
        {
            return same_as_cached();
        }
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let mut examined = self.examine_regular(dir, name, stat_now, prior.as_ref())?;
                if linked && let ExamineResult::New(entry) | ExamineResult::Large(entry, _) = &mut examined {
                    entry.flags |= LINKED;
                }
                Ok(examined)
            }
            FileType::Symlink => Ok(self.examine_symlink(dir, name, stat_now)),
            FileType::Directory => Ok(ExamineResult::IsDir),
            other => {
                let reason = skip_reason(other).unwrap_or(SkipReason::Device);
                Ok(ExamineResult::New(skipped_entry(name, Stat::default(), reason)))
            }
        }
    }

    /// Whether a cached entry whose `stat` is unchanged may be used as it is.
    fn is_still_valid(&self, dir: &Arc<DirNode>, prior: &CachedEntry<'_>) -> Result<bool, WorktreeError> {
        if self.shared.trust == CacheTrust::HashesOnly && dir.area == DirKind::Work {
            let verdict = dir.own_verdict(prior.name, false);
            let over_budget =
                prior.kind == CachedKind::Skipped && prior.aux == reason_number(SkipReason::Budget);
            if verdict == RuleVerdict::In && over_budget {
                return Ok(false);
            }
            let is_excluded = verdict == RuleVerdict::Out;
            let is_out = prior.kind == CachedKind::Skipped && prior.aux == reason_number(SkipReason::Rule);
            let ignored = dir.is_ignored(prior.name, false);
            if is_excluded != is_out || ignored != (prior.flags & IGNORED != 0) {
                return Ok(false);
            }
        }
        if self.shared.confirm {
            let object = match prior.kind {
                CachedKind::Whole => ObjectKind::Blob,
                CachedKind::Chunked => ObjectKind::List,
                // The vault is swept together with the objects.
                CachedKind::Vaulted => {
                    let key = git::vault_name(&dir.name, prior.name);
                    let vault = self.shared.scan.vault;
                    return Ok(key.zip(vault).is_some_and(|(key, vault)| vault.has(&key, prior.stat.size)));
                }
                CachedKind::Dir | CachedKind::Symlink | CachedKind::Skipped => return Ok(true),
            };
            return Ok(self.shared.batch.contains(object, prior.hash)?);
        }
        Ok(true)
    }

    fn examine_regular(
        &mut self,
        dir: &Arc<DirNode>,
        name: &[u8],
        stat_now: Stat,
        prior: Option<&CachedEntry<'_>>,
    ) -> Result<ExamineResult, WorktreeError> {
        let previous = prior.filter(|prior| matches!(prior.kind, CachedKind::Whole | CachedKind::Chunked));
        let mut flags = 0;
        match dir.area {
            DirKind::Work => {
                let verdict = dir.own_verdict(name, false);
                if verdict == RuleVerdict::Out {
                    return Ok(ExamineResult::New(skipped_entry(name, stat_now, SkipReason::Rule)));
                }
                if dir.is_ignored(name, false) {
                    flags |= IGNORED;
                    let was_counted = |prior: &&CachedEntry<'_>| {
                        prior.flags & IGNORED != 0
                            && matches!(prior.kind, CachedKind::Whole | CachedKind::Chunked)
                    };
                    let old_size = prior.filter(was_counted).map_or(0, |prior| prior.stat.size);
                    if verdict != RuleVerdict::In && !self.within_budget(stat_now.size, old_size) {
                        let mut entry = skipped_entry(name, stat_now, SkipReason::Budget);
                        entry.flags |= IGNORED;
                        return Ok(ExamineResult::New(entry));
                    }
                }
            }
            DirKind::Objects => {
                if let Some(key) = git::vault_name(&dir.name, name) {
                    return self.examine_object(dir, name, stat_now, previous, &key);
                }
            }
            DirKind::Git => {}
        }
        if stat_now.size > DEFER_ABOVE_BYTES {
            let old = previous.filter(|prior| prior.kind == CachedKind::Chunked).map(|prior| prior.hash);
            return Ok(ExamineResult::Large(
                self.entry(name, CachedKind::Chunked, stat_now, NO_HASH, flags),
                old,
            ));
        }
        self.store_file(dir, name, previous, flags)
    }

    /// Counts an ignored file against the budget; returns `false` if it does not fit any more.
    fn within_budget(&self, size: u64, old_size: u64) -> bool {
        let budget = &self.shared.scan.budget;
        let (used, total) = if size <= rules::SMALL {
            (&self.shared.ignored_bytes[0], budget.small_total)
        } else {
            (&self.shared.ignored_bytes[1], budget.large_total)
        };
        let added = size.saturating_sub(old_size);
        if size > budget.file || used.fetch_add(added, Ordering::Relaxed) + added > total {
            used.fetch_sub(if size > budget.file { 0 } else { added }, Ordering::Relaxed);
            return false;
        }
        true
    }

    /// Whether a file that was over the budget would fit now, because others were removed.
    fn fits_again(&self, prior: &CachedEntry<'_>) -> bool {
        let budget = &self.shared.scan.budget;
        let size = prior.stat.size;
        let (class, total) =
            if size <= rules::SMALL { (0, budget.small_total) } else { (1, budget.large_total) };
        prior.kind == CachedKind::Skipped
            && prior.aux == reason_number(SkipReason::Budget)
            && prior.flags & IGNORED != 0
            && size <= budget.file
            && self.shared.ignored_bytes[class].load(Ordering::Relaxed).saturating_add(size) <= total
    }

    /// Reads and stores a file; retries while it changes during the read.
    pub(super) fn store_file(
        &mut self,
        dir: &Arc<DirNode>,
        name: &[u8],
        previous: Option<&CachedEntry<'_>>,
        flags: u8,
    ) -> Result<ExamineResult, WorktreeError> {
        let fail = |error: io::Error| WorktreeError::io("read", &dir.path().join(name))(error);
        for _ in 0..ATTEMPTS {
            let (file, stat_before) = match open_regular(dir, name) {
                OpenResult::File(file, stat) => (file, stat),
                OpenResult::Gone => return Ok(ExamineResult::Gone),
                OpenResult::Unreadable(stat) => {
                    return Ok(ExamineResult::New(skipped_entry(name, stat, SkipReason::Unreadable)));
                }
                OpenResult::Changed => continue,
                OpenResult::Failed(error) => return Err(fail(error)),
            };
            self.shared.hashed.fetch_add(1, Ordering::Relaxed);
            let mut stored = self.store_content(&file, stat_before.size, previous);
            // A write that began before the first `stat` and still goes on changes no time: only a second read can detect
            // it.
            if let Ok(first) = stored
                && is_fresh(&stat_before)
            {
                stored = match self.store_content(&file, stat_before.size, previous) {
                    Ok(second) if second != first => continue,
                    other => other,
                };
            }
            match stored {
                Ok((kind, hash)) if is_unchanged(&file, &stat_before) => {
                    return Ok(ExamineResult::New(self.entry(name, kind, stat_before, hash, flags)));
                }
                Ok(_) => {}
                Err(ChunkError::Read(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
                Err(ChunkError::Read(error)) => return Err(fail(error)),
                Err(ChunkError::Store(error)) => return Err(error.into()),
            }
        }
        Ok(ExamineResult::New(skipped_entry(name, Stat::default(), SkipReason::Unstable)))
    }

    fn store_content(
        &mut self,
        file: &File,
        size: u64,
        previous: Option<&CachedEntry<'_>>,
    ) -> Result<(CachedKind, Hash), ChunkError> {
        if size <= WHOLE_LIMIT {
            return self.store_whole(file, size, previous).map(|hash| (CachedKind::Whole, hash));
        }
        let old = previous.filter(|prior| prior.kind == CachedKind::Chunked).map(|prior| prior.hash);
        content::store_chunked(file, size, old, self.shared.source, self.shared.batch, 1)
            .map(|hash| (CachedKind::Chunked, hash))
    }

    fn store_whole(
        &mut self,
        file: &File,
        size: u64,
        previous: Option<&CachedEntry<'_>>,
    ) -> Result<Hash, ChunkError> {
        if self.buffer.len() < size as usize {
            self.buffer.resize(size as usize, 0);
        }
        let bytes = &mut self.buffer[..size as usize];
        file.read_exact_at(bytes, 0)?;
        let similar = previous.filter(|prior| prior.kind == CachedKind::Whole).map(|prior| prior.hash);
        Ok(self.shared.batch.write(ObjectKind::Blob, bytes, similar)?)
    }

    pub(super) fn entry(&self, name: &[u8], kind: CachedKind, stat: Stat, hash: Hash, flags: u8) -> OutEntry {
        let racy = if is_racy(&stat, self.shared.started) { RACY } else { 0 };
        OutEntry { name: name.to_vec(), kind, flags: flags | racy, stat, hash, aux: 0, target: Vec::new() }
    }

    /// Reads a link. It can be racy like a file: another link of the same length can replace it within one tick, and get
    /// its inode.
    fn examine_symlink(&self, dir: &DirNode, name: &[u8], stat: Stat) -> ExamineResult {
        match rustix::fs::readlinkat(&dir.fd, OsStr::from_bytes(name), Vec::new()) {
            Ok(target) => {
                let target = target.into_bytes();
                let stat = Stat { size: target.len() as u64, ..stat };
                ExamineResult::New(OutEntry {
                    target,
                    ..self.entry(name, CachedKind::Symlink, stat, NO_HASH, 0)
                })
            }
            Err(Errno::NOENT) => ExamineResult::Gone,
            Err(_) => ExamineResult::New(skipped_entry(name, Stat::default(), SkipReason::Unstable)),
        }
    }

    /// Examines a subdirectory before it is walked.
    pub fn examine_dir(
        &mut self,
        dir: &Arc<DirNode>,
        name: &[u8],
        area: DirKind,
        cached: Option<&Dir<'_>>,
        next_id: &AtomicU32,
    ) -> ExaminedDir {
        let index = cached.and_then(|cached| cached.find(name));
        let prior = index.and_then(|index| cached.and_then(|cached| cached.entry(index)));
        let index = index.map(|index| index as u32);
        let trusted = self.shared.trust == CacheTrust::Decisions;
        if area == DirKind::Work {
            let known_out = prior
                .as_ref()
                .filter(|prior| prior.kind == CachedKind::Skipped)
                .and_then(|prior| reason_from(prior.aux));
            let known_in = prior.as_ref().is_some_and(|prior| prior.kind == CachedKind::Dir);
            let reason = if trusted && known_out == Some(SkipReason::Rule) {
                known_out
            } else if trusted && known_in && !rules::is_heavy(dir.fd.as_fd(), name) {
                None
            } else {
                dir.leave_out(name)
            };
            if let Some(reason) = reason {
                let same_at = index.filter(|_| known_out == Some(reason));
                return ExaminedDir::Skipped { same_at, entry: skipped_entry(name, Stat::default(), reason) };
            }
        }
        let old =
            prior.as_ref().filter(|prior| prior.kind == CachedKind::Dir).map_or(NONE, |prior| prior.aux);
        // A pack is large and there are few: notice when one is written to in place.
        let may_pass = area == DirKind::Objects && name != b"pack" && !self.shared.scan.check_objects;
        if may_pass
            && !self.shared.confirm
            && old != NONE
            && let (Some(index), Some(prior)) = (index, &prior)
            && let Some(stat) = self.unchanged_stat(dir, name, prior)
        {
            let id = next_id.fetch_add(1, Ordering::Relaxed);
            return ExaminedDir::Untouched { at: index, id, old, stat };
        }
        let id = next_id.fetch_add(1, Ordering::Relaxed);
        let mut entry = self.entry(name, CachedKind::Dir, Stat::default(), NO_HASH, 0);
        entry.aux = id;
        let old_stat = prior.filter(|prior| old != NONE && prior.flags & RACY == 0).map(|prior| prior.stat);
        ExaminedDir::Walk { same_at: index.filter(|_| old != NONE), entry, old, old_stat }
    }

    /// The directory's `stat` if it is unchanged. Objects are only ever added or removed, which changes their directory's
    /// times.
    fn unchanged_stat(&self, dir: &Arc<DirNode>, name: &[u8], prior: &CachedEntry<'_>) -> Option<Stat> {
        let stat = rustix::fs::statat(&dir.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let stat_now = to_stat(&stat);
        let flat = self.shared.old?.dir(prior.aux).is_some_and(|cached| {
            (0..cached.len()).all(|index| {
                cached
                    .entry(index)
                    .is_some_and(|entry| entry.kind != CachedKind::Dir && entry.flags & DAMAGED == 0)
            })
        });
        (flat && prior.flags & RACY == 0 && stat_now == prior.stat).then_some(stat_now)
    }
}

/// Stores a large file with all threads. `None` if it is gone.
pub(super) fn store_large(
    shared: &WalkState<'_>,
    large: &DeferredFile,
) -> Result<Option<OutEntry>, WorktreeError> {
    let fail = |error: io::Error| WorktreeError::io("read", &large.node.path().join(&large.name))(error);
    for _ in 0..ATTEMPTS {
        let (file, stat_before) = match open_regular(&large.node, &large.name) {
            OpenResult::File(file, stat) => (file, stat),
            OpenResult::Gone => return Ok(None),
            OpenResult::Unreadable(stat) => {
                return Ok(Some(skipped_entry(&large.name, stat, SkipReason::Unreadable)));
            }
            OpenResult::Changed => continue,
            OpenResult::Failed(error) => return Err(fail(error)),
        };
        if is_fresh(&stat_before) {
            // Another process may be writing it right now. Waiting a moment costs less than reading it twice.
            std::thread::sleep(std::time::Duration::from_nanos(RACY_MARGIN as u64));
            continue;
        }
        shared.hashed.fetch_add(1, Ordering::Relaxed);
        let threads = shared.scan.threads.max(1);
        match content::store_chunked(&file, stat_before.size, large.old, shared.source, shared.batch, threads)
        {
            Ok(hash) if is_unchanged(&file, &stat_before) => {
                let examiner = Examiner::new(shared);
                return Ok(Some(examiner.entry(
                    &large.name,
                    CachedKind::Chunked,
                    stat_before,
                    hash,
                    large.flags,
                )));
            }
            Ok(_) => {}
            Err(ChunkError::Read(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {}
            Err(ChunkError::Read(error)) => return Err(fail(error)),
            Err(ChunkError::Store(error)) => return Err(error.into()),
        }
    }
    Ok(Some(skipped_entry(&large.name, Stat::default(), SkipReason::Unstable)))
}

pub(super) enum OpenResult {
    File(File, Stat),
    Gone,
    Unreadable(Stat),
    /// It is not a regular file any more.
    Changed,
    Failed(io::Error),
}

/// Opens a file for reading without following links and without blocking on pipes or devices.
pub(super) fn open_regular(dir: &DirNode, name: &[u8]) -> OpenResult {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(&dir.fd, OsStr::from_bytes(name), flags, Mode::empty()) {
        Ok(fd) => match rustix::fs::fstat(&fd) {
            Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
                OpenResult::File(File::from(fd), to_stat(&stat))
            }
            Ok(_) => OpenResult::Changed,
            Err(errno) => OpenResult::Failed(errno.into()),
        },
        Err(Errno::NOENT) => OpenResult::Gone,
        Err(Errno::LOOP) => OpenResult::Changed,
        Err(Errno::ACCESS | Errno::PERM) => {
            let stat = rustix::fs::statat(&dir.fd, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW);
            OpenResult::Unreadable(stat.map_or_else(|_| Stat::default(), |stat| to_stat(&stat)))
        }
        Err(errno) => OpenResult::Failed(errno.into()),
    }
}

fn is_unchanged(file: &File, stat_before: &Stat) -> bool {
    rustix::fs::fstat(file).is_ok_and(|stat| to_stat(&stat) == *stat_before)
}

/// Why something of this type is not stored; `None` if it is.
pub(super) fn skip_reason(kind: FileType) -> Option<SkipReason> {
    match kind {
        FileType::Fifo => Some(SkipReason::Fifo),
        FileType::Socket => Some(SkipReason::Socket),
        FileType::BlockDevice | FileType::CharacterDevice => Some(SkipReason::Device),
        _ => None,
    }
}

/// The type of a cached entry that was skipped for its type.
pub(super) fn special_type(prior: &CachedEntry<'_>) -> Option<FileType> {
    if prior.kind != CachedKind::Skipped {
        return None;
    }
    match reason_from(prior.aux)? {
        SkipReason::Fifo => Some(FileType::Fifo),
        SkipReason::Socket => Some(FileType::Socket),
        _ => None,
    }
}

pub(super) fn skipped_entry(name: &[u8], stat: Stat, reason: SkipReason) -> OutEntry {
    OutEntry {
        name: name.to_vec(),
        kind: CachedKind::Skipped,
        flags: 0,
        stat,
        hash: NO_HASH,
        aux: reason_number(reason),
        target: Vec::new(),
    }
}
