//! Reading and writing objects: packs for the bytes, one table for where they are.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{Next, ObjectError, ObjectSink, ObjectSource};

use super::{EmbeddedStore, schema};
use crate::codec::{self, Codec};
use crate::error::StoreError;
use crate::lender::{self, Lender, Oid};
use crate::pack::{self, IfAbsent, PackWriter, RecordHeader};
use crate::port::{FinishedBatch, ObjectBatch};

/// Where an object's record is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    pub kind: ObjectKind,
    pub pack: u64,
    pub offset: u64,
    pub record_len: u64,
    pub raw_len: u32,
    pub depth: u8,
    pub base: Option<Hash>,
    /// The git pack that has the bytes instead.
    pub lender: Option<Oid>,
}

/// A batch that is written and waits for its commit.
pub(super) struct Written {
    pub objects: Vec<(Hash, Location)>,
    /// Durable before the commit is; held until it is done, so that nobody cuts off what is not committed yet.
    pub packs: Vec<PackWriter>,
}

impl EmbeddedStore {
    pub(super) fn locate(&self, kind: ObjectKind, hash: Hash) -> Result<Option<Location>, StoreError> {
        let found = find(&self.connection(), hash)?;
        Ok(found.filter(|location| location.kind == kind))
    }

    pub(super) fn pack_file(&self, id: u64, reopen: bool) -> Result<Arc<File>, StoreError> {
        let mut open = self.open_packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&id).filter(|_| !reopen) {
            return Ok(file.clone());
        }
        let path = pack::path_of(&self.packs, id);
        let file = Arc::new(File::open(&path).map_err(StoreError::io("open", &path))?);
        // A pack that a collection removed occupies the disk for as long as somebody holds it open.
        open.retain(|_, file| file.metadata().is_ok_and(|metadata| metadata.nlink() > 0));
        open.insert(id, file.clone());
        Ok(file)
    }

    /// The git pack `id` in the vault, opened once.
    fn lender(&self, id: Oid) -> Result<Arc<Lender>, String> {
        let mut open = self.open_lenders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lender) = open.get(&id) {
            return Ok(lender.clone());
        }
        let lender = Arc::new(Lender::open(&self.dir.join(crate::port::VAULT), id)?);
        open.insert(id, lender.clone());
        Ok(lender)
    }

    pub(super) fn close_pack(&self, id: u64) {
        self.open_packs.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    fn read_at(
        &self,
        kind: ObjectKind,
        hash: Hash,
        location: Location,
        reopen: bool,
    ) -> Result<Vec<u8>, ObjectError> {
        let corrupt = |reason: String| {
            let pack = pack::path_of(Path::new(""), location.pack);
            ObjectError::corrupt(
                kind,
                hash,
                format!("{} at byte {}: {reason}", pack.display(), location.offset),
            )
        };
        let file = match self.pack_file(location.pack, reopen) {
            Err(StoreError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                return Err(corrupt("the pack is missing".into()));
            }
            file => file?,
        };
        let (header, payload) =
            pack::read_record(&file, location.offset, location.record_len).map_err(corrupt)?;
        let expected = (kind, hash, location.raw_len, location.depth, location.base);
        if (header.kind, header.hash, header.raw_len, header.depth, header.base) != expected {
            return Err(corrupt("the record is not the one the database knows".into()));
        }
        let bytes = match (header.codec, header.base) {
            (Codec::Raw, _) => payload,
            (Codec::Zstd, _) => {
                codec::decompress(&payload, header.raw_len as usize, None).map_err(corrupt)?
            }
            (Codec::ZstdOnBase, Some(base)) if header.depth > 0 && header.depth <= codec::MAX_DEPTH => {
                let base = self.read_below(kind, base, header.depth)?;
                codec::decompress(&payload, header.raw_len as usize, Some(&base)).map_err(corrupt)?
            }
            (Codec::Borrowed, _) => {
                let (oid, lender) =
                    borrowed(&payload).ok_or_else(|| corrupt("it names no git object".into()))?;
                let lender = self.lender(lender).map_err(corrupt)?;
                lender.read(&oid, header.raw_len as usize).map_err(corrupt)?
            }
            (Codec::ZstdOnBase, _) => {
                return Err(corrupt("its base is missing or its chain too long".into()));
            }
        };
        if Hash::of(kind, &bytes) != hash {
            return Err(corrupt("its bytes have another hash".into()));
        }
        if kind == ObjectKind::Tree {
            self.recent.put(hash, &bytes);
        }
        Ok(bytes)
    }

    /// Reads an object whose chain of bases is shorter than `depth`, so that no damage can make us run in circles.
    fn read_below(&self, kind: ObjectKind, hash: Hash, depth: u8) -> Result<Vec<u8>, ObjectError> {
        if kind == ObjectKind::Tree
            && let Some(bytes) = self.recent.get(hash)
        {
            return Ok(bytes.to_vec());
        }
        let mut location = self.locate(kind, hash)?.ok_or(ObjectError::Missing { kind, hash })?;
        let mut reopen = false;
        loop {
            if location.depth >= depth {
                return Err(ObjectError::corrupt(kind, hash, "its chain of bases does not end"));
            }
            let error = match self.read_at(kind, hash, location, reopen) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => error,
            };
            // A collection may have moved the object to another pack between the lookup and the read.
            let again = self.locate(kind, hash)?.ok_or(ObjectError::Missing { kind, hash })?;
            if reopen && (again.pack, again.offset) == (location.pack, location.offset) {
                return Err(error);
            }
            (location, reopen) = (again, true);
        }
    }
}

impl ObjectSource for EmbeddedStore {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        self.read_below(kind, hash, u8::MAX)
    }

    fn read_chain(&self, kind: ObjectKind, first: Hash, next: &mut Next<'_>) -> Result<(), ObjectError> {
        let mut at = Some(first);
        while let Some(hash) = at {
            at = next(hash, self.read(kind, hash)?)?;
            at = self.read_on(kind, at, next)?;
        }
        Ok(())
    }
}

pub(super) fn find(connection: &Connection, hash: Hash) -> Result<Option<Location>, StoreError> {
    let mut statement = connection.prepare_cached(
        "SELECT kind, pack, offset, record_len, raw_len, depth, base FROM objects WHERE hash = ?1",
    )?;
    let row = statement
        .query_row([hash.as_bytes().as_slice()], |row| {
            Ok((
                row.get::<_, u8>(0)?,
                Location {
                    kind: ObjectKind::Blob,
                    pack: row.get::<_, i64>(1)? as u64,
                    offset: row.get::<_, i64>(2)? as u64,
                    record_len: row.get::<_, i64>(3)? as u64,
                    raw_len: row.get(4)?,
                    depth: row.get(5)?,
                    base: row.get_ref(6)?.as_blob_or_null()?.and_then(Hash::from_slice),
                    lender: None,
                },
            ))
        })
        .optional()?;
    match row {
        None => Ok(None),
        Some((kind, location)) => {
            let kind = ObjectKind::from_u8(kind).ok_or_else(|| StoreError::Corrupt {
                what: format!("object {hash} has unknown kind {kind}"),
            })?;
            Ok(Some(Location { kind, ..location }))
        }
    }
}

/// Objects on their way into packs.
pub(super) struct Batch<'a> {
    store: &'a EmbeddedStore,
    epoch: u64,
    /// Nothing is stored yet, so nothing needs to be looked up: most of a first checkpoint's database time.
    store_is_empty: bool,
    /// How many more objects may be stored as differences.
    differences: AtomicU32,
    /// Git packs that blobs may be borrowed from.
    lenders: OnceLock<Vec<Arc<Lender>>>,
    inner: Mutex<Pending>,
}

/// Smaller blobs cost less to store than to borrow.
const WORTH_BORROWING: usize = 128;

/// An object in the form it is stored in.
struct Encoded {
    codec: Codec,
    depth: u8,
    base: Option<Hash>,
    lender: Option<Oid>,
    /// `None` for the bytes as they are.
    stored: Option<Vec<u8>>,
}

impl Encoded {
    fn new(codec: Codec, stored: Option<Vec<u8>>) -> Self {
        Self { codec, depth: 0, base: None, lender: None, stored }
    }
}

/// The object and the pack that a borrowed record names.
fn borrowed(payload: &[u8]) -> Option<(Oid, Oid)> {
    let (oid, pack) = payload.split_at_checked(20)?;
    Some((oid.try_into().ok()?, pack.try_into().ok()?))
}

/// An object is stored against the base of its predecessor as long as the difference is below this part of its size: about
/// what it costs, spread over a chain, that a new chain begins with a whole object.
const CLOSE: usize = 16;

/// Storing a difference means reading the base and a search through it: worth it for the few objects of a usual checkpoint,
/// too slow when thousands of files changed at once.
const MAX_DIFFERENCES: u32 = 96;

#[derive(Default)]
struct Pending {
    objects: HashMap<Hash, Location>,
    current: Option<PackWriter>,
    full: Vec<PackWriter>,
}

impl EmbeddedStore {
    pub(super) fn new_batch(&self) -> Result<Batch<'_>, StoreError> {
        let connection = self.connection();
        let epoch =
            connection.prepare_cached("SELECT epoch FROM meta")?.query_row([], |row| row.get::<_, i64>(0))?;
        let any: Option<i64> = connection
            .prepare_cached("SELECT 1 FROM objects LIMIT 1")?
            .query_row([], |row| row.get(0))
            .optional()?;
        Ok(Batch {
            store: self,
            epoch: epoch as u64,
            store_is_empty: any.is_none(),
            differences: AtomicU32::new(MAX_DIFFERENCES),
            lenders: OnceLock::new(),
            inner: Mutex::new(Pending::default()),
        })
    }

    /// A pack to append to: the newest one nobody is writing to, or a new one.
    pub(super) fn lock_a_pack(&self) -> Result<PackWriter, StoreError> {
        let candidates: Vec<(i64, i64)> = {
            let connection = self.connection();
            let mut statement = connection
                .prepare_cached("SELECT id, committed FROM packs WHERE committed < ?1 ORDER BY id DESC")?;
            let rows = statement.query_map([pack::MAX_PACK as i64], |row| Ok((row.get(0)?, row.get(1)?)))?;
            rows.collect::<Result<_, _>>()?
        };
        for (id, committed) in candidates {
            // With nothing committed, its writer died or gave up, perhaps before it made the file.
            let if_absent = if committed == 0 { IfAbsent::Create } else { IfAbsent::Skip };
            // Between the query and the lock another writer may have committed more: ask again under the lock.
            match PackWriter::lock(&self.packs, id as u64, if_absent, || self.committed_len(id)) {
                Ok(Some(writer)) => return Ok(writer),
                Ok(None) => {}
                // A damaged pack is never written to; `fsck` reports it, reads of what is intact go on.
                Err(StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.lock_a_new_pack()
    }

    /// A pack that did not exist before; its number was never used.
    ///
    /// Its row comes first: what a dead writer leaves behind is then known, and used again or removed.
    pub(super) fn lock_a_new_pack(&self) -> Result<PackWriter, StoreError> {
        loop {
            let id: i64 = {
                let connection = self.connection();
                let transaction =
                    rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
                schema::check_format(&transaction, &self.dir)?;
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
            // Another writer may have been faster to lock it.
            if let Some(writer) = writer {
                return Ok(writer);
            }
        }
    }

    pub(super) fn committed_len(&self, id: i64) -> Result<Option<u64>, StoreError> {
        let connection = self.connection();
        let mut statement = connection.prepare_cached("SELECT committed FROM packs WHERE id = ?1")?;
        Ok(statement.query_row([id], |row| row.get::<_, i64>(0)).optional()?.map(|len| len as u64))
    }
}

impl Batch<'_> {
    fn may_store_difference(&self) -> bool {
        self.differences
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    fn known(&self, kind: ObjectKind, hash: Hash) -> Result<Option<Location>, StoreError> {
        let pending = self.inner.lock().unwrap_or_else(PoisonError::into_inner).objects.get(&hash).copied();
        match pending {
            Some(location) => Ok(Some(location)),
            None if self.store_is_empty => Ok(None),
            None => self.store.locate(kind, hash),
        }
    }

    /// An object as its difference to another: to what `similar` itself is stored against, if that is close enough, because
    /// then the chain does not grow and `similar` need not be read; else to `similar`.
    fn difference(&self, kind: ObjectKind, bytes: &[u8], similar: Hash) -> Option<Encoded> {
        let against = |base: Hash, depth: u8, share: usize| {
            let base_bytes = self.store.read(kind, base).ok()?;
            let stored = codec::compress_on(&base_bytes, bytes)?;
            let worthwhile = stored.len() + 32 < bytes.len() / share;
            worthwhile.then(|| Encoded {
                depth,
                base: Some(base),
                ..Encoded::new(Codec::ZstdOnBase, Some(stored))
            })
        };
        let location = self.store.locate(kind, similar).ok()??;
        let beside = location.base.and_then(|base| against(base, location.depth, CLOSE));
        beside.or_else(|| {
            (location.depth < codec::MAX_DEPTH).then(|| against(similar, location.depth + 1, 2)).flatten()
        })
    }

    /// The form in which an object costs least: borrowed from git, a difference to `similar_to` (when that is stored, not
    /// merely pending, and its chain short enough), or compressed on its own.
    fn encode(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Encoded {
        if kind == ObjectKind::Blob
            && bytes.len() >= WORTH_BORROWING
            && let Some(lenders) = self.lenders.get()
        {
            let oid = lender::blob_oid(bytes);
            if let Some(lender) = lenders.iter().find(|lender| lender.contains(&oid)) {
                let payload = [oid, lender.id].concat();
                return Encoded { lender: Some(lender.id), ..Encoded::new(Codec::Borrowed, Some(payload)) };
            }
        }
        if let Some(similar) = similar_to
            && !self.store_is_empty
            && self.may_store_difference()
            && let Some(encoded) = self.difference(kind, bytes, similar)
        {
            return encoded;
        }
        match codec::compress(bytes) {
            Some(stored) => Encoded::new(Codec::Zstd, Some(stored)),
            None => Encoded::new(Codec::Raw, None),
        }
    }
}

impl ObjectSink for Batch<'_> {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar_to: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = Hash::of(kind, bytes);
        if self.known(kind, hash)?.is_some() {
            return Ok(hash);
        }
        let raw_len = u32::try_from(bytes.len())
            .map_err(|_| ObjectError::corrupt(kind, hash, "an object cannot be larger than 4 GiB"))?;
        let Encoded { codec, depth, base, lender, stored } = self.encode(kind, bytes, similar_to);
        let payload = stored.as_deref().unwrap_or(bytes);
        let header =
            RecordHeader { kind, codec, depth, raw_len, payload_len: payload.len() as u32, hash, base };

        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.objects.contains_key(&hash) {
            return Ok(hash);
        }
        if inner.current.as_ref().is_none_or(|writer| writer.end() >= pack::MAX_PACK) {
            let full = inner.current.take();
            inner.full.extend(full);
            inner.current = Some(self.store.lock_a_pack()?);
        }
        // The line above has just put a writer there.
        let Some(writer) = inner.current.as_mut() else { unreachable!("a pack was locked") };
        let offset = writer.append(&header, payload)?;
        let pack = writer.id();
        let record_len = header.record_len();
        inner.objects.insert(hash, Location { kind, pack, offset, record_len, raw_len, depth, base, lender });
        Ok(hash)
    }
}

impl ObjectBatch for Batch<'_> {
    fn borrow_from(&self, packs: &[Vec<u8>]) {
        let ids = packs.iter().filter_map(|name| lender::pack_id(name));
        // A pack that cannot be read as git's own cannot lend; its content is stored as usual.
        let _ = self.lenders.set(ids.filter_map(|id| self.store.lender(id).ok()).collect());
    }

    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError> {
        Ok(self.known(kind, hash)?.is_some())
    }

    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError> {
        let pending = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut packs = pending.full;
        packs.extend(pending.current);
        for writer in &mut packs {
            writer.send()?;
        }
        // Sorted by hash, the rows go into neighbouring pages of the table.
        let mut objects: Vec<_> = pending.objects.into_iter().collect();
        objects.sort_unstable_by_key(|(hash, _)| *hash);
        Ok(FinishedBatch { epoch: self.epoch, payload: Box::new(Written { objects, packs }) })
    }
}

/// Names the written objects in the database, inside the caller's transaction.
pub(super) fn insert(transaction: &Connection, written: &Written) -> Result<(), StoreError> {
    let mut statement = transaction.prepare_cached(
        "INSERT OR IGNORE INTO objects (hash, kind, pack, offset, record_len, raw_len, depth, base, lender)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
    )?;
    let mut lenders: HashMap<Oid, i64> = HashMap::new();
    for (_, location) in &written.objects {
        if let Some(pack) = location.lender
            && let Entry::Vacant(slot) = lenders.entry(pack)
        {
            let pack = pack.as_slice();
            transaction.execute("INSERT OR IGNORE INTO lenders (pack) VALUES (?1)", [pack])?;
            slot.insert(
                transaction.query_row("SELECT id FROM lenders WHERE pack = ?1", [pack], |row| row.get(0))?,
            );
        }
    }
    for (hash, location) in &written.objects {
        statement.execute(params![
            hash.as_bytes().as_slice(),
            location.kind as u8,
            location.pack as i64,
            location.offset as i64,
            location.record_len as i64,
            location.raw_len,
            location.depth,
            location.base.as_ref().map(|base| base.as_bytes().as_slice()),
            location.lender.and_then(|pack| lenders.get(&pack)),
        ])?;
    }
    let mut statement = transaction.prepare_cached(
        "INSERT INTO packs (id, committed) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET committed = excluded.committed",
    )?;
    for writer in &written.packs {
        statement.execute(params![writer.id() as i64, writer.end() as i64])?;
    }
    Ok(())
}
