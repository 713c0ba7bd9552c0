//! Reading and writing objects as rows, compressed like in every other store.
//!
//! A batch makes as few round trips as possible. What it writes stays in memory, and one query at the end asks which
//! objects are stored already. Only a batch that grows large is sent ahead, into a temporary table that is private to its
//! connection and vanishes with it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ObjectError, ObjectSink, ObjectSource};
use stepback_store::StoreError;
use stepback_store::codec::{self, Codec};
use stepback_store::port::{FinishedBatch, ObjectBatch, ObjectStore, ReadVersions};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row};

use crate::pool::{Connection, Lease};
use crate::{PostgresStore, rows};

/// Reads an object and its chain of bases in one query. The depth decreases along the chain, so that no damage can make the
/// server loop.
const READ_CHAIN_SQL: &str = "WITH RECURSIVE chain AS (
        SELECT codec, depth, raw_len, base, payload FROM stepback_objects WHERE hash = $1 AND kind = $2
        UNION ALL
        SELECT o.codec, o.depth, o.raw_len, o.base, o.payload
        FROM stepback_objects o JOIN chain c ON o.hash = c.base AND o.depth < c.depth AND o.kind = $2
    ) SELECT codec, depth, raw_len, base, payload FROM chain ORDER BY depth";

/// Inserts objects, given as columns, into the shared table.
pub(crate) const INSERT_NEW: &str = "INSERT INTO stepback_objects (hash, kind, codec, depth, raw_len, base, payload)
    SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bytea[], $7::bytea[])
    ON CONFLICT (hash) DO NOTHING";

/// Inserts objects, given as columns, into the temporary table.
const INSERT_AHEAD: &str = "INSERT INTO pg_temp.stepback_ahead (hash, kind, codec, depth, raw_len, base, payload)
    SELECT * FROM unnest($1::bytea[], $2::smallint[], $3::smallint[], $4::smallint[], $5::bigint[], $6::bytea[], $7::bytea[])";

/// A batch with more bytes than this is sent ahead.
const MAX_BUFFERED_BYTES: usize = 16 << 20;

/// A batch with fewer bytes than this does not ask what is stored already: asking takes longer than sending.
const MIN_LOOKUP_BYTES: usize = 256 << 10;

/// Maximum size of an object, in bytes. PostgreSQL accepts at most 1 GiB per value, and needs several times that in
/// memory. Large files are stored in pieces, so ordinary objects stay far below.
const MAX_OBJECT_BYTES: usize = 256 << 20;

/// An object is stored against the base of its predecessor as long as the delta is smaller than its size divided by this.
const MIN_DELTA_RATIO: usize = 16;

/// Maximum number of objects of a batch stored as deltas: each requires reading another object first.
const MAX_DIFFERENCES: u32 = 96;

/// An object in its stored form.
pub(crate) struct EncodedObject {
    hash: Hash,
    kind: ObjectKind,
    codec: Codec,
    depth: u8,
    raw_len: u64,
    base: Option<Hash>,
    payload: Vec<u8>,
}

/// Objects as columns, so that one statement takes many.
pub(crate) struct Columns<'a> {
    hashes: Vec<&'a [u8]>,
    kinds: Vec<i16>,
    codecs: Vec<i16>,
    depths: Vec<i16>,
    lengths: Vec<i64>,
    bases: Vec<Option<&'a [u8]>>,
    payloads: Vec<&'a [u8]>,
}

impl<'a> Columns<'a> {
    /// Sorts by hash, so that two commits which store the same objects lock them in the same order.
    pub fn new(objects: &'a [EncodedObject]) -> Self {
        let mut sorted: Vec<&EncodedObject> = objects.iter().collect();
        sorted.sort_unstable_by_key(|object| object.hash);
        Self {
            hashes: sorted.iter().map(|object| object.hash.as_bytes().as_slice()).collect(),
            kinds: sorted.iter().map(|object| object.kind as i16).collect(),
            codecs: sorted.iter().map(|object| object.codec as i16).collect(),
            depths: sorted.iter().map(|object| i16::from(object.depth)).collect(),
            lengths: sorted.iter().map(|object| object.raw_len as i64).collect(),
            bases: sorted
                .iter()
                .map(|object| object.base.as_ref().map(|base| base.as_bytes().as_slice()))
                .collect(),
            payloads: sorted.iter().map(|object| object.payload.as_slice()).collect(),
        }
    }

    /// The columns as parameters of a statement.
    pub fn values(&self) -> [&(dyn ToSql + Sync); 7] {
        [&self.hashes, &self.kinds, &self.codecs, &self.depths, &self.lengths, &self.bases, &self.payloads]
    }
}

/// Copies the objects that were sent ahead into the shared table.
pub(crate) const TAKE_OVER: &str = "INSERT INTO stepback_objects SELECT * FROM pg_temp.stepback_ahead ORDER BY hash ON CONFLICT (hash) DO NOTHING";

/// A finished batch that waits for its commit.
#[derive(Default)]
pub(crate) struct EncodedBatch {
    pub objects: Vec<EncodedObject>,
    /// The connection whose temporary table holds the rest of the batch.
    pub ahead: Option<Lease>,
    /// What must be unchanged when it is committed.
    pub expected: Option<ReadVersions>,
}

impl EncodedBatch {
    /// Whether the batch wrote nothing.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.ahead.is_none()
    }
}

impl ObjectSource for PostgresStore {
    fn read(&self, kind: ObjectKind, hash: Hash) -> Result<Vec<u8>, ObjectError> {
        if kind == ObjectKind::Tree
            && let Some(bytes) = self.recent.get(hash)
        {
            return Ok(bytes.to_vec());
        }
        let key = hash.as_bytes().as_slice();
        let chain = self
            .pool
            .ask(async |connection| connection.rows(READ_CHAIN_SQL, &[&key, &(kind as i16)]).await)?;
        if chain.is_empty() {
            return Err(ObjectError::Missing { kind, hash });
        }
        let mut bytes = None;
        for row in &chain {
            let read = decode(row, bytes.as_deref());
            bytes = Some(read.map_err(|reason| ObjectError::corrupt(kind, hash, reason))?);
        }
        let bytes = bytes.filter(|bytes| Hash::of(kind, bytes) == hash);
        let bytes = bytes.ok_or_else(|| ObjectError::corrupt(kind, hash, "its hash does not match"))?;
        if kind == ObjectKind::Tree {
            self.recent.put(hash, &bytes);
        }
        Ok(bytes)
    }
}

/// Decodes one object, given the bytes of its base.
fn decode(row: &Row, below: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let to_text = |error: StoreError| error.to_string();
    let code: i16 = rows::get(row, 0).map_err(to_text)?;
    let length = usize::try_from(rows::get::<i64>(row, 2).map_err(to_text)?).map_err(|_| "no length")?;
    if length > MAX_OBJECT_BYTES {
        return Err("it cannot be as large as its row says".into());
    }
    let based = rows::get::<Option<&[u8]>>(row, 3).map_err(to_text)?.is_some();
    let payload: &[u8] = rows::get(row, 4).map_err(to_text)?;
    match u8::try_from(code).ok().and_then(Codec::from_u8) {
        Some(Codec::Raw) if payload.len() == length => Ok(payload.to_vec()),
        Some(Codec::Raw) => Err("it has another length".into()),
        Some(Codec::Zstd) => codec::decompress(payload, length, None),
        Some(Codec::ZstdOnBase) => match below {
            Some(base) if based => codec::decompress(payload, length, Some(base)),
            _ => Err("its base is missing".into()),
        },
        Some(Codec::Borrowed) | None => Err(format!("unknown form {code}")),
    }
}

/// A batch of objects being written.
pub(crate) struct Batch<'a> {
    store: &'a PostgresStore,
    epoch: u64,
    differences: AtomicU32,
    inner: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    seen: HashSet<Hash>,
    bytes: usize,
    written: EncodedBatch,
}

impl PostgresStore {
    /// Starts a batch.
    pub(crate) fn new_batch(&self, epoch: u64, expected: Option<ReadVersions>) -> Batch<'_> {
        let written = EncodedBatch { expected, ..EncodedBatch::default() };
        let inner = Mutex::new(Pending { written, ..Pending::default() });
        Batch { store: self, epoch, differences: AtomicU32::new(MAX_DIFFERENCES), inner }
    }

    /// The delta depth of a stored object, and its base.
    fn delta_base(&self, kind: ObjectKind, hash: Hash) -> Result<Option<(u8, Option<Hash>)>, StoreError> {
        let sql = "SELECT depth, base FROM stepback_objects WHERE hash = $1 AND kind = $2";
        let key = hash.as_bytes().as_slice();
        let row = self.pool.ask(async |connection| connection.row(sql, &[&key, &(kind as i16)]).await)?;
        let Some(row) = row else { return Ok(None) };
        let depth = u8::try_from(rows::get::<i16>(&row, 0)?).unwrap_or(u8::MAX);
        Ok(Some((depth, rows::maybe_id(&row, 1, Hash::from_slice)?)))
    }
}

impl Batch<'_> {
    fn lock_pending(&self) -> MutexGuard<'_, Pending> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes an object as a delta against the base of `similar` if that is close enough, else against `similar`.
    fn encode_delta(&self, kind: ObjectKind, bytes: &[u8], similar: Hash) -> Option<(u8, Hash, Vec<u8>)> {
        let decrement = |decrement: u32| decrement.checked_sub(1);
        self.differences.fetch_update(Ordering::Relaxed, Ordering::Relaxed, decrement).ok()?;
        let (depth, base) = self.store.delta_base(kind, similar).ok()??;
        let against = |base: Hash, depth: u8, share: usize| {
            let base_bytes = self.store.read(kind, base).ok()?;
            let stored = codec::compress_on(&base_bytes, bytes)?;
            (stored.len() + 32 < bytes.len() / share).then_some((depth, base, stored))
        };
        base.and_then(|base| against(base, depth, MIN_DELTA_RATIO))
            .or_else(|| (depth < codec::MAX_DEPTH).then(|| against(similar, depth + 1, 2)).flatten())
    }

    fn encode(&self, kind: ObjectKind, hash: Hash, bytes: &[u8], similar: Option<Hash>) -> EncodedObject {
        let raw_len = bytes.len() as u64;
        let form =
            |codec, depth, base, payload| EncodedObject { hash, kind, codec, depth, raw_len, base, payload };
        if let Some((depth, base, stored)) =
            similar.and_then(|similar| self.encode_delta(kind, bytes, similar))
        {
            return form(Codec::ZstdOnBase, depth, Some(base), stored);
        }
        match codec::compress(bytes) {
            Some(stored) => form(Codec::Zstd, 0, None, stored),
            None => form(Codec::Raw, 0, None, bytes.to_vec()),
        }
    }

    /// Sends what is in memory to the temporary table.
    fn send_pending(&self, pending: &mut Pending) -> Result<(), StoreError> {
        let mut objects = std::mem::take(&mut pending.written.objects);
        pending.bytes = 0;
        self.forget_stored(&mut objects)?;
        if objects.is_empty() {
            return Ok(());
        }
        let pool = &self.store.pool;
        let ahead = match &mut pending.written.ahead {
            Some(lease) => lease,
            none => none.insert(pool.lease_apart()?),
        };
        let connection = ahead.connection()?;
        pool.wait(send_ahead(connection, &objects)).map_err(|error| pool.failed("write to", &error))
    }

    /// Drops objects that are stored already.
    fn forget_stored(&self, objects: &mut Vec<EncodedObject>) -> Result<(), StoreError> {
        if objects.is_empty() {
            return Ok(());
        }
        let hashes: Vec<&[u8]> = objects.iter().map(|object| object.hash.as_bytes().as_slice()).collect();
        let sql = "SELECT hash FROM stepback_objects WHERE hash = ANY($1)";
        let rows = self.store.pool.ask(async |connection| connection.rows(sql, &[&hashes]).await)?;
        let stored: HashSet<Hash> =
            rows.iter().map(|row| rows::id(row, 0, Hash::from_slice)).collect::<Result<_, _>>()?;
        objects.retain(|object| !stored.contains(&object.hash));
        Ok(())
    }
}

async fn send_ahead(connection: &mut Connection, objects: &[EncodedObject]) -> Result<(), Error> {
    let make =
        "CREATE TEMPORARY TABLE IF NOT EXISTS stepback_ahead (LIKE stepback_objects INCLUDING STORAGE)";
    connection.client.batch_execute(make).await?;
    let statement = connection.prepared(INSERT_AHEAD).await?;
    connection.client.execute(&statement, &Columns::new(objects).values()).await?;
    Ok(())
}

impl ObjectSink for Batch<'_> {
    fn write(&self, kind: ObjectKind, bytes: &[u8], similar: Option<Hash>) -> Result<Hash, ObjectError> {
        let hash = Hash::of(kind, bytes);
        if self.lock_pending().seen.contains(&hash) {
            return Ok(hash);
        }
        if bytes.len() > MAX_OBJECT_BYTES {
            let reason =
                format!("an object in PostgreSQL cannot be larger than {} MiB", MAX_OBJECT_BYTES >> 20);
            return Err(ObjectError::corrupt(kind, hash, reason));
        }
        // Finding a base takes a round trip anyway.
        if similar.is_some() && self.store.contains(kind, hash)? {
            return Ok(hash);
        }
        let object = self.encode(kind, hash, bytes, similar);
        let mut pending = self.lock_pending();
        if pending.seen.insert(hash) {
            pending.bytes += object.payload.len() + 200;
            pending.written.objects.push(object);
            if pending.bytes > MAX_BUFFERED_BYTES {
                self.send_pending(&mut pending)?;
            }
        }
        Ok(hash)
    }
}

impl ObjectBatch for Batch<'_> {
    fn contains(&self, kind: ObjectKind, hash: Hash) -> Result<bool, ObjectError> {
        // The hash covers the kind, so an object seen with this hash has this kind.
        Ok(self.lock_pending().seen.contains(&hash) || self.store.contains(kind, hash)?)
    }

    fn finish(self: Box<Self>) -> Result<FinishedBatch, StoreError> {
        let mut pending = self.lock_pending();
        if pending.written.ahead.is_some() {
            self.send_pending(&mut pending)?;
        } else if pending.bytes > MIN_LOOKUP_BYTES {
            self.forget_stored(&mut pending.written.objects)?;
        }
        let written = std::mem::take(&mut pending.written);
        Ok(FinishedBatch { epoch: self.epoch, payload: Box::new(written) })
    }
}
