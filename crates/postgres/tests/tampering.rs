//! Rows that are changed by other means than the store are named by the verification of chains.

use stepback_model::hash::{Hash, ObjectKind};
use stepback_postgres::PostgresStore;
use stepback_store::prelude::*;
use stepback_store::step_chain;
use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::sample::{Sample, append};

#[test]
fn a_direct_change_is_named() {
    let server = PostgresServer::start();
    for (place, (sql, expected)) in [
        ("SELECT 1", ""),
        ("UPDATE stepback_steps SET summary = 'harmless' WHERE number = 4", "step #4 was altered"),
        ("UPDATE stepback_steps SET state = sha256('x') WHERE number = 10", "step #10 was altered"),
        ("UPDATE stepback_steps SET kind = 'nonsense' WHERE number = 4", "step #4 was altered"),
        ("DELETE FROM stepback_steps WHERE number = 5", "step #5 was removed"),
        ("DELETE FROM stepback_steps WHERE number = 10", "1 step was removed after #9"),
        (
            "UPDATE stepback_steps SET number = 100 WHERE number = 5;
             UPDATE stepback_steps SET number = 5 WHERE number = 6; UPDATE stepback_steps SET number = 6 WHERE number = 100",
            "step #5 was reordered",
        ),
        (
            "INSERT INTO stepback_steps SELECT (jsonb_populate_record(s, jsonb_build_object('number', 11,
             'position', 100, 'id', '\\x00000000000000000000000000000001'))).* FROM stepback_steps s WHERE number = 10",
            "step #11 was altered",
        ),
        ("UPDATE stepback_chains SET head = sha256('x')", "the chain does not end at its head"),
        ("DELETE FROM stepback_chains", "10 steps were inserted after #0"),
    ]
    .into_iter()
    .enumerate()
    {
        let local = tempfile::tempdir().unwrap();
        let store = PostgresStore::open(&server.schema(), local.path()).unwrap();
        let sample = Sample::new(1);
        let (workspace, session) = sample.begin(&store, b"/w");
        let state = Hash::of(ObjectKind::State, b"state");
        let steps: Vec<_> = (0..10).map(|_| append(sample.step(session.id, state))).collect();
        store.commit(None, &steps).unwrap();
        server.sql("postgres", &format!("SET search_path = test{place}; {sql}"));
        let report = step_chain::verify(&store, workspace.id).unwrap();
        let said: Vec<String> = report.breaks.iter().map(ToString::to_string).collect();
        assert!(said.first().map_or("", String::as_str).starts_with(expected), "{sql}: {said:?}");
        assert_eq!(said.is_empty(), expected.is_empty(), "{sql}: {said:?}");
    }
}
