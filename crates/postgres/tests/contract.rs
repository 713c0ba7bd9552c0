//! The store in PostgreSQL keeps the store contract.

use stepback_postgres::PostgresStore;
use stepback_testkit::contract;
use stepback_testkit::postgres::PostgresServer;

/// One test for all clauses, since a server takes longer to start than most of them; the last name printed is the broken one.
#[test]
fn every_clause_is_kept() {
    let server = PostgresServer::start();
    for (name, clause) in contract::CLAUSES {
        eprintln!("{name}");
        let local = tempfile::tempdir().unwrap();
        clause(&PostgresStore::open(&server.schema(), local.path()).unwrap());
    }
}
