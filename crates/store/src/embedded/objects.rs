//! Locating and reading objects: packs hold the bytes, one table says where.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use rusqlite::{Connection, OptionalExtension, params};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::{ChainStep, ObjectError, ObjectSource};

use super::EmbeddedStore;
use crate::codec::{self, Codec};
use crate::error::StoreError;
use crate::git_pack::{GitPack, Oid};
use crate::pack::{self, PackWriter};

/// Instead of a pack number: the record is in the database.
pub(super) const IN_DATABASE: u64 = 0;

/// The location of an object's record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    pub kind: ObjectKind,
    /// The pack's number, or [`IN_DATABASE`].
    pub pack: u64,
    /// The record's offset in the pack, or the id of its row in `records`.
    pub offset: u64,
    pub record_len: u64,
    pub raw_len: u32,
    pub depth: u8,
    pub base: Option<Hash>,
    /// The git pack that holds the bytes, if they are borrowed.
    pub lender: Option<Oid>,
}

/// A finished batch that waits for its commit.
pub(super) struct PackedBatch {
    pub objects: Vec<(Hash, Location)>,
    /// The records that go into the database.
    pub records: HashMap<Hash, Vec<u8>>,
    /// Made durable before the commit; locked until it is done, so that no other writer truncates what is not committed
    /// yet.
    pub packs: Vec<PackWriter>,
    /// Objects that were known to be damaged, and replace what is stored.
    pub replaced: HashSet<Hash>,
}

impl EmbeddedStore {
    pub(super) fn locate(&self, kind: ObjectKind, hash: Hash) -> Result<Option<Location>, StoreError> {
        let found = find(&self.reader(), hash)?;
        Ok(found.filter(|location| location.kind == kind))
    }

    pub(super) fn pack_file(&self, id: u64, reopen: bool) -> Result<Arc<File>, StoreError> {
        let mut open = self.open_packs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = open.get(&id).filter(|_| !reopen) {
            return Ok(file.clone());
        }
        let path = pack::path_of(&self.packs, id);
        let file = Arc::new(File::open(&path).map_err(StoreError::io("open", &path))?);
        // A pack that a collection removed occupies the disk as long as a process has it open.
        open.retain(|_, file| file.metadata().is_ok_and(|metadata| metadata.nlink() > 0));
        open.insert(id, file.clone());
        Ok(file)
    }

    /// The git pack `id` in the vault, opened once.
    pub(super) fn open_git_pack(&self, id: Oid) -> Result<Arc<GitPack>, String> {
        let mut open = self.open_lenders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lender) = open.get(&id) {
            return Ok(lender.clone());
        }
        let lender = Arc::new(GitPack::open(&self.dir.join(crate::port::VAULT), id)?);
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
            let place = match location.pack {
                IN_DATABASE => format!("record {} of the database", location.offset),
                pack => {
                    format!("{} at byte {}", pack::path_of(Path::new(""), pack).display(), location.offset)
                }
            };
            ObjectError::corrupt(kind, hash, format!("{place}: {reason}"))
        };
        let (header, payload) = if location.pack == IN_DATABASE {
            let record = read_record(&self.reader(), location.offset)?;
            let record = record.ok_or_else(|| corrupt("it is missing".into()))?;
            pack::parse_record(record, location.record_len).map_err(corrupt)?
        } else {
            let file = match self.pack_file(location.pack, reopen) {
                Err(StoreError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                    return Err(corrupt("the pack is missing".into()));
                }
                file => file?,
            };
            pack::read_record(&file, location.offset, location.record_len).map_err(corrupt)?
        };
        let expected = (kind, hash, location.raw_len, location.depth, location.base);
        if (header.kind, header.hash, header.raw_len, header.depth, header.base) != expected {
            return Err(corrupt("the record does not match the database".into()));
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
                let (oid, lender) = parse_borrowed(&payload)
                    .ok_or_else(|| corrupt("it does not name a git object".into()))?;
                let lender = self.open_git_pack(lender).map_err(corrupt)?;
                lender.read(&oid, header.raw_len as usize).map_err(corrupt)?
            }
            (Codec::ZstdOnBase, _) => {
                return Err(corrupt("its base is missing or its chain too long".into()));
            }
        };
        if Hash::of(kind, &bytes) != hash {
            return Err(corrupt("its hash does not match".into()));
        }
        if kind == ObjectKind::Tree {
            self.recent.put(hash, &bytes);
        }
        Ok(bytes)
    }

    /// Reads an object whose chain of bases is shorter than `depth`, so that no damage can make the read loop.
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
        self.read_below(kind, hash, u8::MAX).inspect_err(|error| self.note_damage(hash, error))
    }

    fn read_chain(&self, kind: ObjectKind, first: Hash, next: &mut ChainStep<'_>) -> Result<(), ObjectError> {
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

/// Reads a record that is in the database.
pub(super) fn read_record(connection: &Connection, id: u64) -> Result<Option<Vec<u8>>, StoreError> {
    let mut statement = connection.prepare_cached("SELECT record FROM records WHERE id = ?1")?;
    Ok(statement.query_row([id as i64], |row| row.get(0)).optional()?)
}

/// The object id and the pack id that a borrowed record contains.
fn parse_borrowed(payload: &[u8]) -> Option<(Oid, Oid)> {
    let (oid, pack) = payload.split_at_checked(20)?;
    Some((oid.try_into().ok()?, pack.try_into().ok()?))
}

/// Adds the written objects to the database, inside the caller's transaction.
pub(super) fn insert(transaction: &Connection, written: &PackedBatch) -> Result<(), StoreError> {
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
    let mut next = match written.records.is_empty() {
        true => 0,
        false => transaction
            .prepare_cached("SELECT coalesce(max(id), 0) + 1 FROM records")?
            .query_row([], |row| row.get::<_, i64>(0))?,
    };
    for hash in &written.replaced {
        transaction.execute("DELETE FROM objects WHERE hash = ?1", [hash.as_bytes().as_slice()])?;
    }
    for (hash, location) in &written.objects {
        let record = written.records.get(hash);
        let inserted = statement.execute(params![
            hash.as_bytes().as_slice(),
            location.kind as u8,
            location.pack as i64,
            record.map_or(location.offset as i64, |_| next),
            location.record_len as i64,
            location.raw_len,
            location.depth,
            location.base.as_ref().map(|base| base.as_bytes().as_slice()),
            location.lender.and_then(|pack| lenders.get(&pack)),
        ])?;
        // Unless another process has stored it meanwhile.
        if let Some(record) = record.filter(|_| inserted > 0) {
            transaction
                .prepare_cached("INSERT INTO records (id, record) VALUES (?1, ?2)")?
                .execute(params![next, record])?;
            next += 1;
        }
    }
    let mut statement = transaction.prepare_cached(
        "INSERT INTO packs (id, committed) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET committed = excluded.committed",
    )?;
    for writer in &written.packs {
        statement.execute(params![writer.id() as i64, writer.end() as i64])?;
    }
    Ok(())
}
