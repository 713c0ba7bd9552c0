//! Garbage collection of unreferenced objects, and the consistency check.
//!
//! A sweep first deletes the rows of dead objects in one transaction that also starts a new epoch, so that every writer
//! that relied on seeing them notices at its commit. Then it copies the live objects out of mostly dead packs and removes
//! these packs. A crash in between leaves dead bytes in packs, which the next sweep removes; it never loses a live object.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;

use rusqlite::{Connection, TransactionBehavior, params};
use stepback_faults as faults;
use stepback_model::hash::{Hash, ObjectKind};

use super::size::bytes_below;
use super::{EmbeddedStore, schema};
use crate::error::StoreError;
use crate::pack::{self, IfAbsent, PackWriter};
use crate::port::{CommitMark, ObjectInfo, Swept};

/// A pack is rewritten when less than this share of it (in percent) is live.
const MIN_LIVE_PERCENT: i128 = 70;

struct PackedObject {
    hash: Hash,
    offset: u64,
    record_len: u64,
}

impl EmbeddedStore {
    /// Calls `visit` for every object, with the bytes of its record.
    pub(super) fn visit_objects(&self, visit: &mut dyn FnMut(ObjectInfo, u64)) -> Result<(), StoreError> {
        let connection = self.connection();
        let mut statement =
            connection.prepare("SELECT kind, hash, raw_len, base, record_len FROM objects")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let hash = Hash::from_slice(row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?);
            let kind = ObjectKind::from_u8(row.get(0)?);
            let (Some(hash), Some(kind)) = (hash, kind) else {
                return Err(StoreError::Corrupt { what: "an object row has no valid hash or kind".into() });
            };
            let base =
                row.get_ref(3)?.as_blob_or_null().map_err(rusqlite::Error::from)?.and_then(Hash::from_slice);
            let object = ObjectInfo { kind, hash, raw_len: row.get::<_, i64>(2)? as u64, base };
            visit(object, row.get::<_, i64>(4)?.max(0) as u64);
        }
        Ok(())
    }

    pub(super) fn sweep_objects(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<Swept, StoreError> {
        let before = bytes_below(&self.dir);
        self.recent.clear();
        let objects = self.forget_dead(live, mark)?;
        self.compact()?;
        self.return_free_pages()?;
        self.restart_record(mark.0 + 1);
        Ok(Swept { objects, bytes: before.saturating_sub(bytes_below(&self.dir)) })
    }

    /// Returns the database's free pages to the system, and folds the log into the database.
    fn return_free_pages(&self) -> Result<(), StoreError> {
        let connection = self.connection();
        faults::point().map_err(StoreError::io("shrink", &self.dir))?;
        if schema::is_incremental(&connection)? {
            schema::vacuum(&connection)?;
        } else {
            // A store of an older version: rewriting it once makes its pages movable.
            connection.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; VACUUM;")?;
        }
        connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE);")?;
        Ok(())
    }

    /// The stored objects that are neither in `live` nor the base of one that stays.
    pub(super) fn dead_objects(&self, live: &HashSet<Hash>) -> Result<Vec<Hash>, StoreError> {
        let mut all = Vec::new();
        self.visit_objects(&mut |object, _| all.push((object.hash, object.base)))?;
        let base_of: HashMap<Hash, Hash> =
            all.iter().filter_map(|(hash, base)| Some((*hash, (*base)?))).collect();
        // The bases of live objects stay, whether or not the caller named them.
        let mut bases = HashSet::new();
        for hash in live {
            let mut next = base_of.get(hash);
            while let Some(base) = next.filter(|base| bases.insert(**base)) {
                next = base_of.get(base);
            }
        }
        let is_dead = |hash: &Hash| !live.contains(hash) && !bases.contains(hash);
        Ok(all.into_iter().map(|(hash, _)| hash).filter(is_dead).collect())
    }

    fn forget_dead(&self, live: &HashSet<Hash>, mark: CommitMark) -> Result<u64, StoreError> {
        let dead = self.dead_objects(live)?;
        let connection = self.connection();
        let transaction = rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
        let format = schema::check_format(&transaction, &self.dir)?;
        let commits: i64 = transaction.query_row(
            "UPDATE meta SET epoch = epoch + 1, commits = commits + 1 RETURNING commits",
            [],
            |row| row.get(0),
        )?;
        if commits as u64 != mark.0 + 1 {
            return Err(StoreError::Grew);
        }
        let (entry, name) = self.begin_collection(&transaction)?;
        delete_objects(&transaction, format, &dead)?;
        faults::point().map_err(StoreError::io("commit to", &self.dir))?;
        transaction.commit()?;
        self.record_commit(&entry, name, false);
        Ok(dead.len() as u64)
    }

    fn compact(&self) -> Result<(), StoreError> {
        let packs = live_bytes_by_pack(&self.connection())?;
        for (id, committed, alive) in packs {
            let path = pack::path_of(&self.packs, id as u64);
            if is_worth_rewriting(alive, committed) {
                self.rewrite(id)?;
            } else if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > committed as u64) {
                // Locking truncates what a dead writer left; no other writer may append for a long time.
                let locked =
                    PackWriter::lock(&self.packs, id as u64, IfAbsent::Skip, || self.committed_len(id));
                drop(unless_damaged(locked)?);
            }
        }
        self.remove_strays()
    }

    /// Removes pack files without a row, left by a crash between deleting a pack's row and removing its file.
    ///
    /// No writer is in danger: the row of a new pack is committed before its file is created. A pack whose row is lost by
    /// damage is kept as long as an object is in it.
    fn remove_strays(&self) -> Result<(), StoreError> {
        let entries = fs::read_dir(&self.packs).map_err(StoreError::io("list", &self.packs))?;
        for id in entries.flatten().filter_map(|entry| pack::id_of(&entry.file_name())) {
            if self.committed_len(id as i64)?.is_none() && self.pack_objects(id as i64)?.is_empty() {
                self.remove_pack(id)?;
            }
        }
        Ok(())
    }

    fn remove_pack(&self, id: u64) -> Result<(), StoreError> {
        self.close_pack(id);
        let path = pack::path_of(&self.packs, id);
        match faults::point().and_then(|()| fs::remove_file(&path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(StoreError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Moves the live objects of pack `id` to another pack and removes it. Skips the pack while another writer has it
    /// locked, and when it is damaged and something may still be rescued from it.
    fn rewrite(&self, id: i64) -> Result<(), StoreError> {
        let path = pack::path_of(&self.packs, id as u64);
        let locked = PackWriter::lock(&self.packs, id as u64, IfAbsent::Skip, || self.committed_len(id));
        let damaged = matches!(locked, Err(StoreError::Corrupt { .. })) || !path.exists();
        let source = unless_damaged(locked)?;
        if source.is_none() && !damaged {
            return Ok(());
        }
        let residents = self.pack_objects(id)?;
        if residents.is_empty() {
            self.connection().execute("DELETE FROM packs WHERE id = ?1", [id])?;
            return self.remove_pack(id as u64);
        }
        if damaged {
            return Ok(());
        }
        let file = File::open(&path).map_err(StoreError::io("open", &path))?;
        let mut target = self.lock_a_new_pack()?;
        let mut moved = Vec::with_capacity(residents.len());
        for resident in &residents {
            let Ok((header, payload)) = pack::read_record(&file, resident.offset, resident.record_len) else {
                return Ok(());
            };
            moved.push((resident.hash, target.append(&header, &payload)?));
        }
        target.sync()?;
        {
            let connection = self.connection();
            let transaction =
                rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
            schema::check_format(&transaction, &self.dir)?;
            {
                let mut statement = transaction
                    .prepare("UPDATE objects SET pack = ?2, offset = ?3 WHERE hash = ?1 AND pack = ?4")?;
                for (hash, offset) in &moved {
                    let hash = hash.as_bytes().as_slice();
                    statement.execute(params![hash, target.id() as i64, *offset as i64, id])?;
                }
            }
            transaction.execute("DELETE FROM packs WHERE id = ?1", [id])?;
            transaction.execute(
                "UPDATE packs SET committed = ?2 WHERE id = ?1",
                params![target.id() as i64, target.end() as i64],
            )?;
            transaction.execute("UPDATE meta SET commits = commits + 1", [])?;
            faults::point().map_err(StoreError::io("commit to", &self.dir))?;
            transaction.commit()?;
        }
        self.remove_pack(id as u64)
    }

    fn pack_objects(&self, pack: i64) -> Result<Vec<PackedObject>, StoreError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare("SELECT hash, offset, record_len FROM objects WHERE pack = ?1 ORDER BY offset")?;
        let rows = statement.query_map([pack], |row| {
            Ok((row.get::<_, Vec<u8>>(0)?, row.get::<_, i64>(1)? as u64, row.get::<_, i64>(2)? as u64))
        })?;
        let mut residents = Vec::new();
        for row in rows {
            let (hash, offset, record_len) = row?;
            let hash = Hash::from_slice(&hash)
                .ok_or_else(|| StoreError::Corrupt { what: "an object row has no valid hash".into() })?;
            residents.push(PackedObject { hash, offset, record_len });
        }
        Ok(residents)
    }

    /// The vault files that objects are borrowed from.
    pub(super) fn lender_files(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        let connection = self.connection();
        let mut statement = connection
            .prepare("SELECT pack FROM lenders WHERE id IN (SELECT DISTINCT lender FROM objects WHERE lender IS NOT NULL)")?;
        let rows = statement.query_map([], |row| row.get::<_, Vec<u8>>(0))?;
        let mut files = HashSet::new();
        for row in rows {
            let id = row?
                .try_into()
                .map_err(|_| StoreError::Corrupt { what: "a lender row has no valid pack".into() })?;
            let (pack, idx) = crate::git_pack::file_names(&id);
            files.extend([pack.into_bytes(), idx.into_bytes()]);
        }
        Ok(files)
    }

    /// Checks the database, and that every pack has the bytes that the database refers to.
    pub(super) fn check_structures(&self) -> Result<Vec<String>, StoreError> {
        self.recent.clear();
        let mut problems = Vec::new();
        let connection = self.connection();
        {
            let mut statement = connection.prepare("PRAGMA integrity_check(20)")?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?;
            for row in rows {
                let line = row?;
                if line != "ok" {
                    problems.push(format!("database: {line}"));
                }
            }
        }
        let mut statement = connection.prepare("SELECT id, committed FROM packs ORDER BY id")?;
        let rows =
            statement.query_map([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)? as u64)))?;
        for row in rows {
            let (id, committed) = row?;
            let path = pack::path_of(&self.packs, id as u64);
            let problem = match File::open(&path) {
                _ if committed == 0 => None,
                Err(error) => Some(error.to_string()),
                Ok(file) => match file.metadata() {
                    Ok(metadata) if metadata.len() < committed => {
                        Some(format!("it has {} bytes where {committed} were committed", metadata.len()))
                    }
                    Ok(_) => pack::check_magic(&file).err(),
                    Err(error) => Some(error.to_string()),
                },
            };
            problems.extend(problem.map(|problem| format!("{}: {problem}", path.display())));
        }
        let count = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
        let outside = count(
            "SELECT count(*) FROM objects o LEFT JOIN packs p ON p.id = o.pack
             WHERE o.pack <> 0 AND (p.id IS NULL OR o.offset + o.record_len > p.committed)",
        )?;
        let missing = match schema::check_format(&connection, &self.dir)? {
            1 => count("SELECT count(*) FROM objects WHERE pack = 0")?,
            _ => count(
                "SELECT count(*) FROM objects o LEFT JOIN records r ON r.id = o.offset
                 WHERE o.pack = 0 AND (r.id IS NULL OR length(r.record) <> o.record_len)",
            )?,
        };
        if missing > 0 {
            problems.push(format!("{missing} objects have no record in the database"));
        }
        if outside > 0 {
            problems.push(format!("{outside} objects are in no committed part of a pack"));
        }
        let baseless = count(
            "SELECT count(*) FROM objects o LEFT JOIN objects b ON b.hash = o.base
             WHERE o.base IS NOT NULL AND b.hash IS NULL",
        )?;
        if baseless > 0 {
            problems.push(format!("{baseless} objects are stored against an object that is missing"));
        }
        Ok(problems)
    }
}

/// Deletes the rows of objects, and the records that no object has any more.
pub(super) fn delete_objects(transaction: &Connection, format: u32, dead: &[Hash]) -> Result<(), StoreError> {
    let mut statement = transaction.prepare("DELETE FROM objects WHERE hash = ?1")?;
    for hash in dead {
        statement.execute([hash.as_bytes().as_slice()])?;
    }
    if format > 1 {
        transaction
            .execute("DELETE FROM records WHERE id NOT IN (SELECT offset FROM objects WHERE pack = 0)", [])?;
    }
    Ok(())
}

/// Of every pack: its number, the length that was committed, and how many bytes of it are live.
pub(super) fn live_bytes_by_pack(connection: &Connection) -> Result<Vec<(i64, i64, i64)>, StoreError> {
    let mut statement = connection.prepare(
        "SELECT p.id, p.committed, coalesce(sum(o.record_len), 0) FROM packs p
         LEFT JOIN objects o ON o.pack = p.id GROUP BY p.id",
    )?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Whether a sweep copies the live part of a pack to a new one. In 128 bits, so that a damaged row cannot overflow.
pub(super) fn is_worth_rewriting(alive: i64, committed: i64) -> bool {
    i128::from(alive) * 100 < i128::from(committed) * MIN_LIVE_PERCENT
}

/// Returns `None` for a damaged pack: `check` reports it, and everything else continues without it.
fn unless_damaged(locked: Result<Option<PackWriter>, StoreError>) -> Result<Option<PackWriter>, StoreError> {
    match locked {
        Err(StoreError::Corrupt { .. }) => Ok(None),
        other => other,
    }
}
