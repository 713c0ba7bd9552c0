//! Both backends keep the store contract.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_testkit::contract::Clause;

fn in_memory(clause: Clause) {
    clause(&MemoryStore::new(u64::MAX));
}

fn embedded(clause: Clause) {
    let dir = tempfile::tempdir().unwrap();
    clause(&EmbeddedStore::open(dir.path()).unwrap());
}

mod memory {
    stepback_testkit::store_contract!(super::in_memory);
}

mod embedded {
    stepback_testkit::store_contract!(super::embedded);
}
