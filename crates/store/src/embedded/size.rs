//! How large the store is, and how large it would be after a sweep.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rusqlite::{Connection, TransactionBehavior};
use stepback_model::hash::Hash;

use super::commit_record::{RECORD, RECORD_BEFORE};
use super::sweep::{delete_objects, is_worth_rewriting, live_bytes_by_pack};
use super::{EmbeddedStore, apply, schema};
use crate::error::StoreError;
use crate::pack;
use crate::port::{Mutation, StoreUsage};

impl EmbeddedStore {
    /// Carries out a commit and a sweep in the database, measures the result, and rolls all of it back. Packs are only
    /// computed: which of them a sweep rewrites, and what is left of these.
    pub(super) fn preview_sweep(
        &self,
        mutations: &[Mutation],
        live: &HashSet<Hash>,
    ) -> Result<StoreUsage, StoreError> {
        let dead = self.dead_objects(live)?;
        let connection = self.connection();
        let is_incremental = schema::is_incremental(&connection)?;
        let transaction = rusqlite::Transaction::new_unchecked(&connection, TransactionBehavior::Immediate)?;
        let format = schema::check_format(&transaction, &self.dir)?;
        let packs_before = self.pack_bytes(&transaction, |_, committed| committed)?;
        if format < schema::needed(mutations, false) {
            schema::raise(&transaction)?;
        }
        apply::apply(&transaction, mutations)?;
        let (record, _) = self.begin_collection(&transaction)?;
        delete_objects(&transaction, format, &dead)?;
        if is_incremental {
            schema::vacuum(&transaction)?;
        }
        let usage = usage(&transaction, &self.dir)?;
        let packs_after = self.pack_bytes(&transaction, |alive, committed| match alive {
            0 => 0,
            _ if is_worth_rewriting(alive, committed) => alive + pack::MAGIC.len() as i64,
            _ => committed,
        })?;
        let pages: i64 = transaction.pragma_query_value(None, "page_count", |row| row.get(0))?;
        let free: i64 = transaction.pragma_query_value(None, "freelist_count", |row| row.get(0))?;
        let page: i64 = transaction.pragma_query_value(None, "page_size", |row| row.get(0))?;
        transaction.rollback()?;
        // The record of commits begins anew with the entry of the sweep.
        let database = [schema::DATABASE, schema::LOG, RECORD, RECORD_BEFORE]
            .iter()
            .filter_map(|name| fs::metadata(self.dir.join(name)).ok())
            .map(|metadata| metadata.len())
            .sum::<u64>();
        let replaced = database + packs_before;
        let total_bytes = usage.total_bytes.saturating_sub(replaced)
            + ((pages - free) * page) as u64
            + packs_after
            + record.len() as u64;
        Ok(StoreUsage { total_bytes, ..usage })
    }

    /// The bytes of all packs, each of the length that `length` computes from its live and its committed bytes.
    fn pack_bytes(
        &self,
        transaction: &Connection,
        length: impl Fn(i64, i64) -> i64,
    ) -> Result<u64, StoreError> {
        let packs = live_bytes_by_pack(transaction)?;
        let exists = |id: i64| pack::path_of(&self.packs, id as u64).exists();
        Ok(packs
            .iter()
            .filter(|(id, ..)| exists(*id))
            .map(|(_, committed, alive)| length(*alive, *committed).max(0) as u64)
            .sum())
    }
}

/// Counts the objects, and the bytes below `dir`.
pub(super) fn usage(connection: &Connection, dir: &Path) -> Result<StoreUsage, StoreError> {
    let (objects, raw, stored) = connection.query_row(
        "SELECT count(*), coalesce(sum(raw_len), 0), coalesce(sum(record_len), 0) FROM objects",
        [],
        |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?)),
    )?;
    Ok(StoreUsage {
        objects: objects as u64,
        raw_bytes: raw as u64,
        stored_bytes: stored as u64,
        total_bytes: bytes_below(dir),
    })
}

/// Bytes occupied below `dir`. A file that also has a name elsewhere (a git pack in the vault) counts as zero.
pub fn bytes_below(dir: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else { return 0 };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
            Ok(metadata) if metadata.nlink() <= 1 => metadata.len(),
            _ => 0,
        })
        .sum()
}
