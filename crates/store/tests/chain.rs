//! Conversations in the embedded store: read back whole, wherever their messages lie, and damage is noticed.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use rusqlite::Connection;
use stepback_model::conversation;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectError;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;
use stepback_testkit::sample::{noise, prose, put};

#[test]
fn a_conversation_comes_back_whole_and_damage_in_it_is_noticed() {
    // One message that came with little else, and one that came with much.
    assert!(damaged_message_is_noticed(40));
    assert!(!damaged_message_is_noticed(37));
}

/// Damages the message that is so far from the end. Returns whether it was in the database.
fn damaged_message_is_noticed(from_end: usize) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open(dir.path()).unwrap();
    let mut said: Vec<String> = Vec::new();
    let mut tip = None;
    for turn in 0..60_u64 {
        // Now and then one that is larger than what is read at once, and other things between them.
        let size = if turn % 20 == 7 { 300_000 } else { 50 + turn as usize * 20 };
        let noisy: String = noise(turn, size / 2).iter().map(|byte| format!("{byte:02x}")).collect();
        let texts = [format!("short {turn}"), String::from_utf8(prose(turn, 400)).unwrap(), noisy];
        let batch = store.begin().unwrap();
        let before = said.len() as u64;
        tip = conversation::append(&*batch, tip, before, texts.iter().map(String::as_str)).unwrap();
        store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
        put(&store, &[&noise(1000 + turn, 3000)]);
        said.extend(texts);
    }
    assert_eq!(conversation::texts(&store, tip).unwrap(), said);
    let tail = conversation::tail(&store, tip, 10).unwrap();
    assert_eq!(tail.iter().map(|(_, message)| message.text.as_str()).collect::<Vec<_>>(), said[170..]);
    assert!(conversation::tail(&store, tip, 0).unwrap().is_empty());
    // The connection is free again.
    put(&store, &[b"afterwards"]);
    let damaged: Hash = conversation::tail(&store, tip, from_end).unwrap()[0].0;
    drop(store);
    let db = Connection::open(dir.path().join("log.sqlite")).unwrap();
    let find = "SELECT pack, offset, record_len FROM objects WHERE hash = ?1";
    let (pack, offset, len): (i64, i64, i64) = db
        .query_row(find, [damaged.as_bytes().as_slice()], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .unwrap();
    if pack == 0 {
        let mut record: Vec<u8> =
            db.query_row("SELECT record FROM records WHERE id = ?1", [offset], |row| row.get(0)).unwrap();
        *record.last_mut().unwrap() ^= 1;
        db.execute("UPDATE records SET record = ?2 WHERE id = ?1", (offset, record)).unwrap();
    } else {
        let path = dir.path().join("packs").join(format!("{pack:08}.pack"));
        let at = (offset + len - 1) as u64;
        let byte = fs::read(&path).unwrap()[at as usize];
        File::options().write(true).open(&path).unwrap().write_all_at(&[byte ^ 1], at).unwrap();
    }
    let store = EmbeddedStore::open(dir.path()).unwrap();
    assert_eq!(conversation::tail(&store, tip, from_end - 1).unwrap().len(), from_end - 1);
    match conversation::texts(&store, tip) {
        Err(ObjectError::Corrupt { kind: ObjectKind::Message, hash, .. }) => assert_eq!(hash, damaged),
        other => panic!("{:?}", other.map(|texts| texts.len())),
    }
    pack == 0
}
