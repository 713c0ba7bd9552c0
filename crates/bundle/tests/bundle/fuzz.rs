//! Bundles with changes anywhere, and a hash that fits all the same: taken in soundly, or refused with nothing taken in.

use std::cell::RefCell;

use stepback_store::codec;
use stepback_testkit::fuzz::{FuzzTarget, MeteredAllocator};

use crate::place::{BundleStore, small};

#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

/// Start of the file: its name and format.
const START: usize = 20;
/// Head of a block: kind, size as stored, size before compression or 0.
const HEAD: usize = 9;
/// The last block, which is the hash of all before it.
const END: usize = HEAD + 32;

/// The same bundle with nothing compressed, so that a change hits what is meant by it.
fn without_compression(bundle: &[u8]) -> Vec<u8> {
    let mut plain = bundle[..START].to_vec();
    let mut rest = &bundle[START..bundle.len() - END];
    while !rest.is_empty() {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().unwrap()) as usize;
        let (stored, raw) = (number(1), number(5));
        let block = &rest[HEAD..HEAD + stored];
        let block = if raw == 0 { block.to_vec() } else { codec::decompress(block, raw, None).unwrap() };
        plain.push(rest[0]);
        plain.extend_from_slice(&(block.len() as u32).to_le_bytes());
        plain.extend_from_slice(&[0; 4]);
        plain.extend_from_slice(&block);
        rest = &rest[HEAD + stored..];
    }
    plain
}

fn with_hash(mut bundle: Vec<u8>) -> Vec<u8> {
    let hash = blake3::hash(&bundle);
    bundle.extend_from_slice(&[255, 32, 0, 0, 0, 0, 0, 0, 0]);
    bundle.extend_from_slice(hash.as_bytes());
    bundle
}

const WORDS: [&str; 12] = [
    "null",
    "{",
    "[",
    "\n",
    "\"parent\":",
    "\"session\":",
    "\"state\":",
    "\"number\":0,",
    "{\"record\":\"step\"",
    "..",
    "-1",
    "1e99",
];

/// Imports with `import`, and checks the store after it. A store that took something in is not used again.
fn expect_all_or_nothing(there: &RefCell<BundleStore>, import: impl FnOnce(&BundleStore) -> bool) {
    let taken = import(&there.borrow());
    match taken {
        false => assert_eq!(there.borrow().store.workspaces().unwrap(), []),
        true => {
            let problems = there.borrow().engine().verify_objects().unwrap().problems;
            assert!(problems.is_empty(), "{problems:?}");
            there.replace(BundleStore::in_memory(1));
        }
    }
}

#[test]
fn bundles() {
    let world = small(2);
    let plain = without_compression(&world.export(&world.sessions()));
    let there = RefCell::new(BundleStore::in_memory(1));
    assert!(there.borrow().import(&with_hash(plain.clone())).is_ok());
    there.replace(BundleStore::in_memory(1));
    FuzzTarget::new("bundle", [plain]).words(&WORDS).run(1_000, |input| {
        expect_all_or_nothing(&there, |there| there.import(&with_hash(input.to_vec())).is_ok());
    });
    there.borrow().expect_nothing();
}

#[test]
fn lines() {
    let world = small(3);
    let mut lines = Vec::new();
    stepback_bundle::export_lines(&world.home.engine(), &world.sessions(), &mut lines).unwrap();
    let there = RefCell::new(BundleStore::in_memory(1));
    FuzzTarget::new("exported lines", [lines]).words(&WORDS).run(1_000, |input| {
        expect_all_or_nothing(&there, |there| stepback_bundle::import_lines(&there.engine(), input).is_ok());
    });
}
