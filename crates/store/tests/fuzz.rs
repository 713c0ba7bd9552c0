//! Packs with bytes that stepback did not write: an object is read as it was stored, or not at all.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectSource;
use stepback_store::codec;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::prelude::*;
use stepback_testkit::fuzz::{FuzzTarget, MeteredAllocator};
use stepback_testkit::sample::{noise, prose};
use stepback_testkit::tree::scratch_place;

#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

/// Objects in every encoding, and enough of them for a pack: a few small ones would be in the database.
fn fill(store: &EmbeddedStore) -> Vec<(Hash, Vec<u8>)> {
    let batch = store.begin().unwrap();
    let mut stored = Vec::new();
    let mut last = None;
    for seed in 0..6 {
        let (mut text, random) = (prose(1, 100), noise(seed, 5000));
        text.extend_from_slice(format!("version {seed}").as_bytes());
        last = Some(batch.write(ObjectKind::Blob, &text, last).unwrap());
        stored.push((last.unwrap(), text));
        stored.push((batch.write(ObjectKind::Blob, &random, None).unwrap(), random));
    }
    store.commit(Some(batch.finish().unwrap()), &[]).unwrap();
    stored
}

#[test]
fn packs() {
    let dir = tempfile::tempdir_in(scratch_place()).unwrap();
    let stored = fill(&EmbeddedStore::open(dir.path()).unwrap());
    let pack = dir.path().join("packs/00000001.pack");
    FuzzTarget::new("pack", [fs::read(&pack).unwrap()]).words(&["SR", "SBPACK\0\u{1}"]).run(150, |input| {
        fs::write(&pack, input).unwrap();
        let Ok(store) = EmbeddedStore::open_existing(dir.path()) else { return };
        for (hash, bytes) in &stored {
            if let Ok(read) = store.read(ObjectKind::Blob, *hash) {
                assert_eq!(read, *bytes);
            }
        }
        let _ = store.check();
    });
}

#[test]
fn compressed_bytes() {
    let base = prose(1, 60);
    let texts = [prose(2, 30), prose(3, 600), vec![0; 50_000]];
    let alone = texts.iter().map(|text| codec::compress(text).unwrap());
    let corpus: Vec<_> = alone.chain(codec::compress_on(&base, &prose(1, 40))).collect();
    FuzzTarget::new("compressed bytes", corpus).run(10_000, |input| {
        for base in [None, Some(&base[..])] {
            if let Ok(bytes) = codec::decompress(input, 2000, base) {
                assert_eq!(bytes.len(), 2000);
            }
        }
    });
}
