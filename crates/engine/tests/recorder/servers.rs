//! Several servers with one database that record the same session: none overwrites what another learned of it.

use std::sync::Arc;

use stepback_engine::Engine;
use stepback_engine::recorder::{ReportedEvent, SessionUpdate, WorkspaceEvents};
use stepback_model::env::{Env, FrozenEnv};
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_postgres::PostgresStore;
use stepback_store::port::StepQuery;
use stepback_store::prelude::*;
use stepback_testkit::postgres::PostgresServer;

const SERVERS: u64 = 3;
const EVENTS: u64 = 40;

/// Records events that cost one each, by a server of its own: sometimes one, sometimes three together.
fn record(store: Arc<PostgresStore>, server: u64) {
    let env = Arc::new(FrozenEnv::new(Timestamp::from_micros(1_700_000_000_000_000), server + 1));
    let engine = Engine::new(store, env.clone());
    let workspace = engine.open_remote_workspace("shared").unwrap();
    let report = |number: u64| {
        let event = AgentEvent {
            key: Some(format!("{server} {number}")),
            ..AgentEvent::new("agent", "the same for all", StepKind::ToolEnd, "said something")
        };
        let update = SessionUpdate { cost: 1, ..SessionUpdate::default() };
        ReportedEvent { update, ..ReportedEvent::new(event, env.now()) }
    };
    let mut number = 0;
    while number < EVENTS {
        let some = if number % 4 == 0 { 1 } else { 3.min(EVENTS - number) };
        let reports: Vec<ReportedEvent> = (number..number + some).map(report).collect();
        let lock = workspace.lock_recording().unwrap();
        let arrivals = WorkspaceEvents { workspace: &workspace, lock: &lock, reports: &reports };
        let recorded = engine.record_workspaces(&[arrivals]).unwrap();
        assert_eq!(recorded[0].len() as u64, some);
        number += some;
    }
}

#[test]
fn servers_that_record_one_session_at_once_lose_nothing_of_it() {
    let server = PostgresServer::start();
    let url = server.database();
    let local = tempfile::tempdir().unwrap();
    let stores: Vec<Arc<PostgresStore>> = (0..SERVERS)
        .map(|at| Arc::new(PostgresStore::open(&url, &local.path().join(at.to_string())).unwrap()))
        .collect();
    // The first makes the session; then all at once.
    record(stores[0].clone(), 100);
    std::thread::scope(|scope| {
        for (at, store) in stores.iter().enumerate() {
            scope.spawn(move || record(store.clone(), at as u64));
        }
    });
    let workspace = stores[0].workspaces().unwrap().remove(0);
    let session = stores[0].sessions(workspace.id).unwrap();
    let session = session.iter().find(|session| session.agent == "agent").unwrap();
    let all = (SERVERS + 1) * EVENTS;
    assert_eq!(session.info.cost, all, "what each cost is counted once");
    let steps = stores[0].steps(workspace.id, &StepQuery::default()).unwrap();
    let mut numbers: Vec<u64> = steps.iter().map(|stored| stored.step.number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=all).collect::<Vec<_>>());
}
