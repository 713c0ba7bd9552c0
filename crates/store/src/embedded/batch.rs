//! Writes a batch of objects, each in its smallest form, into packs that this batch has locked.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rusqlite::{OptionalExtension, TransactionBehavior};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};

use super::objects::{IN_DATABASE, Location, PackedBatch, find};
use super::{EmbeddedStore, schema};
use crate::codec::{self, Codec};
use crate::error::StoreError;
use crate::git_pack::{self, GitPack, Oid};
use crate::pack::{self, IfAbsent, PackWriter, RecordHeader};
use crate::port::{FinishedBatch, ObjectBatch};

/// A batch of objects being written.
pub(super) struct Batch<'a> {
    store: &'a EmbeddedStore,
    epoch: u64,
    /// Whether nothing is stored yet, so that lookups can be skipped: they are most of a first checkpoint's database time.
    store_is_empty: bool,
    /// Objects that are known to be damaged: not relied on, and stored again.
    damaged: HashSet<Hash>,
    /// How many more objects may be stored as deltas.
    differences: AtomicU32,
    /// Git packs that blobs may be borrowed from.
    lenders: OnceLock<Vec<Arc<GitPack>>>,
    inner: Mutex<Pending>,
}

/// Smaller blobs, in bytes, cost less to store than to borrow.
const MIN_BORROWED_BYTES: usize = 128;

/// An object in its stored form.
struct StoredForm {
    codec: Codec,
    depth: u8,
    base: Option<Hash>,
    lender: Option<Oid>,
    /// `None` if the bytes are stored uncompressed.
    stored: Option<Vec<u8>>,
}

impl StoredForm {
    fn new(codec: Codec, stored: Option<Vec<u8>>) -> Self {
        Self { codec, depth: 0, base: None, lender: None, stored }
    }
}

/// An object is stored against the base of its predecessor as long as the delta is smaller than its size divided by this:
/// about the cost, spread over a chain, of beginning a new chain with a whole object.
const MIN_DELTA_RATIO: usize = 16;

/// Maximum number of deltas in a batch. A delta requires reading the base and searching it: worth it for the few objects of
/// a usual checkpoint, too slow when thousands of files changed at once.
const MAX_DIFFERENCES: u32 = 96;

/// Objects of an agent's record up to this size come by the thousand. They are looked up and compressed when there are many
/// of them or the batch is complete: in one database query, and on all cores.
const MAX_DEFERRED_OBJECT_BYTES: usize = 32 << 10;
/// Maximum number of bytes of such objects that wait in memory.
const MAX_DEFERRED_BYTES: usize = 4 << 20;
/// Below this number of bytes another thread costs more than it saves.
const MIN_BYTES_PER_THREAD: usize = 64 << 10;

/// Records of a batch go into the database if they have no more bytes than this together: a pack is one more file to sync.
/// So little does not fill a page in a pack, and does not make the database's log long.
const MAX_INLINE_RECORD_BYTES: usize = 16 << 10;

/// A small object that waits.
struct SmallObject {
    kind: ObjectKind,
    hash: Hash,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Pending {
    objects: HashMap<Hash, Location>,
    small: Vec<SmallObject>,
    small_hashes: HashSet<Hash>,
    small_bytes: usize,
    /// Records for the database, as long as they are few; after that, everything goes into packs.
    records: Vec<(Hash, Vec<u8>)>,
    record_bytes: usize,
    current: Option<PackWriter>,
    full: Vec<PackWriter>,
}

impl Pending {
    /// Whether a record of this length still goes into the database, together with all before it.
    fn is_little(&self, record_len: u64) -> bool {
        let all = (self.record_bytes as u64).saturating_add(record_len);
        self.current.is_none() && self.full.is_empty() && all <= MAX_INLINE_RECORD_BYTES as u64
    }
}

impl EmbeddedStore {
    pub(super) fn new_batch(&self, epoch: u64) -> Result<Batch<'_>, StoreError> {
        self.files.check(&self.dir)?;
        self.find_cut_packs()?;
        Ok(Batch {
            store: self,
            epoch,
            store_is_empty: self.is_empty()?,
            damaged: self.damaged_objects(),
            differences: AtomicU32::new(MAX_DIFFERENCES),
            lenders: OnceLock::new(),
            inner: Mutex::new(Pending::default()),
        })
    }

    /// Whether nothing is stored yet.
    fn is_empty(&self) -> Result<bool, StoreError> {
        if self.has_objects.load(Ordering::Relaxed) {
            // If all of them were freed, looking them up finds none.
            return Ok(false);
        }
        let any: Option<i64> = (self.connection().prepare_cached("SELECT 1 FROM objects LIMIT 1")?)
            .query_row([], |row| row.get(0))
            .optional()?;
        self.has_objects.store(any.is_some(), Ordering::Relaxed);
        Ok(any.is_none())
    }

    /// Locks a pack to append to: the newest one that no other writer has locked, or a new one.
    pub(super) fn lock_a_pack(&self) -> Result<PackWriter, StoreError> {
        let candidates: Vec<(i64, i64)> = {
            let connection = self.connection();
            let mut statement = connection
                .prepare_cached("SELECT id, committed FROM packs WHERE committed < ?1 ORDER BY id DESC")?;
            let rows = statement.query_map([pack::MAX_PACK as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()?
        };
        for (id, committed) in candidates {
            // With nothing committed, its writer died or stopped, perhaps before it created the file.
            let if_absent = if committed == 0 { IfAbsent::Create } else { IfAbsent::Skip };
            // Between the query and the lock another writer may have committed more: query again under the lock.
            match PackWriter::lock(&self.packs, id as u64, if_absent, || self.committed_len(id)) {
                Ok(Some(writer)) => return Ok(writer),
                Ok(None) => {}
                // A damaged pack is never written to; `fsck` reports it, and its intact objects stay readable.
                Err(StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.lock_a_new_pack()
    }

    /// Locks a new pack, with a number that was never used.
    ///
    /// Its row is committed first: what a dead writer leaves behind is then known, and reused or removed.
    pub(super) fn lock_a_new_pack(&self) -> Result<PackWriter, StoreError> {
        loop {
            let id: i64 = {
                let connection = self.connection();
                let transaction =
                    rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
                schema::check_format(&transaction, &self.dir)?;
                // The number may be that of a pack whose commit was lost.
                self.commit_state(&transaction)?;
                let id = transaction.query_row(
                    "UPDATE meta SET next_pack = next_pack + 1 RETURNING next_pack - 1",
                    [],
                    |row| row.get(0),
                )?;
                transaction.execute("INSERT INTO packs (id, committed) VALUES (?1, 0)", [id])?;
                transaction.commit()?;
                id
            };
            let writer =
                PackWriter::lock(&self.packs, id as u64, IfAbsent::Create, || self.committed_len(id))?;
            // Another writer may have locked it first.
            if let Some(writer) = writer {
                return Ok(writer);
            }
        }
    }

    /// How many bytes of a pack are committed; `None` if it was removed. Fails if bytes beyond that may belong to a lost
    /// commit. The caller has locked the pack, or no writer can have.
    pub(super) fn committed_len(&self, id: i64) -> Result<Option<u64>, StoreError> {
        let committed = {
            let connection = self.connection();
            let mut statement = connection.prepare_cached("SELECT committed FROM packs WHERE id = ?1")?;
            statement.query_row([id], |row| row.get::<_, i64>(0)).optional()?.map(|len| len as u64)
        };
        if let Some(committed) = committed {
            self.refuse_to_cut(id as u64, committed)?;
        }
        Ok(committed)
    }
}

impl Batch<'_> {
    fn may_store_difference(&self) -> bool {
        self.differences
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    fn lock_pending(&self) -> MutexGuard<'_, Pending> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_known(&self, kind: ObjectKind, hash: Hash) -> Result<bool, StoreError> {
        {
            let pending = self.lock_pending();
            if pending.objects.contains_key(&hash) || pending.small_hashes.contains(&hash) {
                return Ok(true);
            }
        }
        let may_be_stored = !self.store_is_empty && !self.damaged.contains(&hash);
        Ok(may_be_stored && self.store.locate(kind, hash)?.is_some())
    }

    /// Queues a small object.
    fn wait(&self, kind: ObjectKind, hash: Hash, bytes: &[u8]) -> Result<(), StoreError> {
        let mut pending = self.lock_pending();
        if !pending.objects.contains_key(&hash) && pending.small_hashes.insert(hash) {
            pending.small_bytes += bytes.len();
            pending.small.push(SmallObject { kind, hash, bytes: bytes.to_vec() });
        }
        match pending.small_bytes > MAX_DEFERRED_BYTES {
            true => self.write_small(&mut pending),
            false => Ok(()),
        }
    }

    /// Writes the queued small objects that are not stored yet, in the order in which they were added.
    fn write_small(&self, pending: &mut Pending) -> Result<(), StoreError> {
        pending.small_bytes = 0;
        pending.small_hashes.clear();
        let mut small = std::mem::take(&mut pending.small);
        if small.is_empty() {
            return Ok(());
        }
        if !self.store_is_empty {
            let reader = self.store.reader();
            let snapshot = reader.unchecked_transaction()?;
            let mut stored = HashSet::new();
            for SmallObject { kind, hash, .. } in &small {
                if !self.damaged.contains(hash)
                    && find(&snapshot, *hash)?.is_some_and(|location| location.kind == *kind)
                {
                    stored.insert(*hash);
                }
            }
            small.retain(|small| !stored.contains(&small.hash));
        }
        let packed = compress_all(&small);
        for (SmallObject { kind, hash, bytes }, packed) in small.into_iter().zip(packed) {
            let encoded = match packed {
                Some(stored) => StoredForm::new(Codec::Zstd, Some(stored)),
                None => StoredForm::new(Codec::Raw, None),
            };
            self.append(pending, kind, hash, &bytes, &encoded)?;
        }
        Ok(())
    }

    /// Writes an object to the pack of this batch, unless the batch already contains it.
    fn append(
        &self,
        pending: &mut Pending,
        kind: ObjectKind,
        hash: Hash,
        bytes: &[u8],
        encoded: &StoredForm,
    ) -> Result<(), StoreError> {
        if pending.objects.contains_key(&hash) {
            return Ok(());
        }
        let raw_len = u32::try_from(bytes.len())
            .map_err(|_| ObjectError::corrupt(kind, hash, "an object cannot be larger than 4 GiB"))?;
        let StoredForm { codec, depth, base, lender, stored } = encoded;
        let payload = stored.as_deref().unwrap_or(bytes);
        let header = RecordHeader {
            kind,
            codec: *codec,
            depth: *depth,
            raw_len,
            payload_len: payload.len() as u32,
            hash,
            base: *base,
        };
        let record_len = header.record_len();
        let (pack, offset) = if pending.is_little(record_len) {
            let mut record = Vec::with_capacity(record_len as usize);
            header.encode(&mut record);
            record.extend_from_slice(payload);
            pending.record_bytes += record.len();
            pending.records.push((hash, record));
            (IN_DATABASE, 0)
        } else {
            let writer = self.pack_writer(pending)?;
            let offset = writer.append(&header, payload)?;
            (writer.id(), offset)
        };
        let (depth, base, lender) = (*depth, *base, *lender);
        pending
            .objects
            .insert(hash, Location { kind, pack, offset, record_len, raw_len, depth, base, lender });
        Ok(())
    }

    /// The writer of this batch's pack. Records meant for the database go there first: they are too large for it by now.
    fn pack_writer<'p>(&self, pending: &'p mut Pending) -> Result<&'p mut PackWriter, StoreError> {
        if pending.current.as_ref().is_none_or(|writer| writer.end() >= pack::MAX_PACK) {
            let full = pending.current.take();
            pending.full.extend(full);
            pending.current = Some(self.store.lock_a_pack()?);
        }
        // The lines above have just put a writer there.
        let Some(writer) = pending.current.as_mut() else { unreachable!("a pack was locked") };
        for (hash, record) in pending.records.drain(..) {
            let offset = writer.append_record(&record);
            if let Some(location) = pending.objects.get_mut(&hash) {
                (location.pack, location.offset) = (writer.id(), offset);
            }
        }
        Ok(writer)
    }

    /// Encodes an object as a delta against the base of `similar` if that is close enough, because then the chain does not
    /// grow and `similar` need not be read; else against `similar`.
    fn encode_delta(&self, kind: ObjectKind, bytes: &[u8], similar: Hash) -> Option<StoredForm> {
        let against = |base: Hash, depth: u8, share: usize| {
            let base_bytes = self.store.read(kind, base).ok()?;
            let stored = codec::compress_on(&base_bytes, bytes)?;
            let worthwhile = stored.len() + 32 < bytes.len() / share;
            worthwhile.then(|| StoredForm {
                depth,
                base: Some(base),
                ..StoredForm::new(Codec::ZstdOnBase, Some(stored))
            })
        };
        let location = self.store.locate(kind, similar).ok()??;
        let beside = location.base.and_then(|base| against(base, location.depth, MIN_DELTA_RATIO));
        beside.or_else(|| {
            (location.depth < codec::MAX_DEPTH).then(|| against(similar, location.depth + 1, 2)).flatten()
        })
    }

    /// Encodes an object in its smallest form: borrowed from git, a delta against `similar_to` (if that is stored, not
    /// merely pending, and its chain is short enough), or compressed on its own.
    fn encode(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> StoredForm {
        if kind == ObjectKind::Blob
            && bytes.len() >= MIN_BORROWED_BYTES
            && let Some(lenders) = self.lenders.get()
        {
            let oid = git_pack::blob_oid(bytes);
            if let Some(lender) = lenders.iter().find(|lender| lender.contains(&oid)) {
                let payload = [oid, lender.id].concat();
                return StoredForm {
                    lender: Some(lender.id),
                    ..StoredForm::new(Codec::Borrowed, Some(payload))
                };
            }
        }
        if let Some(similar) = similar_to
            && !self.store_is_empty
            && self.may_store_difference()
            && let Some(encoded) = self.encode_delta(kind, bytes, similar)
        {
            return encoded;
        }
        match codec::compress(bytes) {
            Some(stored) => StoredForm::new(Codec::Zstd, Some(stored)),
            None => StoredForm::new(Codec::Raw, None),
        }
    }
}

impl ObjectSink for Batch<'_> {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = Hash::of(kind, bytes);
        let is_of_a_record = matches!(kind, ObjectKind::Json | ObjectKind::Message | ObjectKind::State);
        if is_of_a_record && similar_to.is_none() && bytes.len() <= MAX_DEFERRED_OBJECT_BYTES {
            self.wait(kind, hash, bytes)?;
            return Ok(hash);
        }
        if self.is_known(kind, hash)? {
            return Ok(hash);
        }
        let encoded = self.encode(kind, bytes, similar_to);
        self.append(&mut self.lock_pending(), kind, hash, bytes, &encoded)?;
        Ok(hash)
    }
}

/// The number of threads to use. Queried once, since the system reads it from files.
fn thread_count() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// Compresses each object on its own; `None` for those that do not get smaller.
fn compress_all(small: &[SmallObject]) -> Vec<Option<Vec<u8>>> {
    let compress =
        |some: &[SmallObject]| some.iter().map(|small| codec::compress(&small.bytes)).collect::<Vec<_>>();
    let bytes: usize = small.iter().map(|small| small.bytes.len()).sum();
    let worth = bytes / MIN_BYTES_PER_THREAD;
    // The number of cores is read from files, which a hook's commit need not do.
    let threads = if worth < 2 || small.len() < 2 { 1 } else { thread_count().min(worth) };
    if threads < 2 {
        return compress(small);
    }
    std::thread::scope(|scope| {
        let parts = small.chunks(small.len().div_ceil(threads));
        let working: Vec<_> = parts.map(|part| (part, scope.spawn(move || compress(part)))).collect();
        // Compressing does not panic; if it does, it is repeated here.
        working
            .into_iter()
            .flat_map(|(part, thread)| thread.join().unwrap_or_else(|_| compress(part)))
            .collect()
    })
}

impl ObjectBatch for Batch<'_> {
    fn reuse_packs(&self, packs: &[Vec<u8>]) {
        let ids = packs.iter().filter_map(|name| git_pack::pack_id(name));
        // A pack that cannot be parsed cannot be borrowed from; its content is stored as usual.
        let _ = self.lenders.set(ids.filter_map(|id| self.store.open_git_pack(id).ok()).collect());
    }

    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError> {
        Ok(self.is_known(kind, hash)?)
    }

    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError> {
        self.write_small(&mut self.lock_pending())?;
        let pending = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut packs = pending.full;
        packs.extend(pending.current);
        for writer in &mut packs {
            writer.send()?;
        }
        // Sorted by hash, the rows go into neighbouring pages of the table.
        let mut objects: Vec<_> = pending.objects.into_iter().collect();
        objects.sort_unstable_by_key(|(hash, _)| *hash);
        let records = pending.records.into_iter().collect();
        let replaced =
            objects.iter().map(|(hash, _)| *hash).filter(|hash| self.damaged.contains(hash)).collect();
        let payload = Box::new(PackedBatch { objects, records, packs, replaced });
        Ok(FinishedBatch { epoch: self.epoch, payload })
    }
}
