//! Clauses of `StepChainStore`: the steps of a session form a hash chain.

use std::collections::HashMap;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, SessionId, WorkspaceId};
use stepback_model::json::ValueRoot;
use stepback_model::record::Annotation;
use stepback_model::step_chain::{StepLink, step_digest};
use stepback_store::port::{Mutation, StepQuery, Store};
use stepback_store::step_chain;

use crate::sample::{Sample, append};

/// The number of steps of a session, and the link of the newest.
type Heads = HashMap<SessionId, (u64, StepLink)>;

/// The links that the steps of a workspace must have, by their numbers, and the heads of its sessions.
fn expected_links(store: &dyn Store, workspace: WorkspaceId) -> (Vec<(u64, StepLink)>, Heads) {
    let query = StepQuery { oldest_first: true, ..StepQuery::default() };
    let mut heads = Heads::new();
    let mut links = Vec::new();
    for stored in store.steps(workspace, &query).unwrap() {
        let (linked, head) = heads.entry(stored.step.session).or_insert((0, StepLink::START));
        *linked += 1;
        *head = head.next(step_digest(&stored.step, stored.trigger));
        links.push((stored.step.number, *head));
    }
    (links, heads)
}

fn assert_linked(store: &dyn Store, workspace: WorkspaceId) {
    let (links, heads) = expected_links(store, workspace);
    let found = store.chain_entries(workspace, 0, u64::MAX).unwrap();
    let found: Vec<_> = found.iter().map(|entry| (entry.number, entry.link.unwrap())).collect();
    assert_eq!(found, links);
    let found = store.chain_heads(workspace).unwrap();
    for head in &found {
        let expected = heads.get(&head.session).copied();
        assert_eq!(head.head.map(|link| (head.linked, link)), expected, "{}", head.session);
    }
    assert!(heads.len() <= found.len());
    let report = step_chain::verify(store, workspace).unwrap();
    assert_eq!((report.steps, report.linked), (links.len() as u64, links.len() as u64));
    assert_eq!(report.breaks, []);
}

/// The link of a step follows from the one before it in its session, whatever else is in the commit.
pub fn every_step_is_linked_to_the_one_before(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/a");
    let other = sample.session(workspace.id);
    store.commit(None, &[Mutation::AddSession(other.clone())]).unwrap();
    assert_linked(store, workspace.id);
    for round in 0..3u8 {
        sample.append(store, session.id, &[round]);
        sample.append(store, other.id, &[round]);
        assert_linked(store, workspace.id);
    }
    // Several steps of several sessions in one commit, with every field, and with values that a database may store
    // differently.
    let state = Hash::of(ObjectKind::Blob, b"x");
    let steps = (0..7u32).map(|at| {
        let mut step = sample.step(if at % 3 == 0 { other.id } else { session.id }, state);
        step.summary = "nul \0, private \u{f8ff}, quote ' and \u{1f980}".into();
        step.meta.iteration = u64::from(at);
        step.meta.worker = Some(String::new());
        step.meta.call = Some("call".into());
        step.meta.tool = (at > 3).then(|| "Bash".into());
        step.meta.failed = at % 2 == 0;
        step.meta.duration = Some(u64::from(at));
        let part = (at > 4).then_some(at);
        step.meta.detail = Some(ValueRoot { node: Hash::of(ObjectKind::Json, b"d"), part });
        let trigger = None;
        Mutation::AppendStep { step, annotation: Annotation::labelled("a\0b"), trigger }
    });
    store.commit(None, &steps.collect::<Vec<_>>()).unwrap();
    assert_linked(store, workspace.id);
    // A session and its first steps in one commit.
    let new = sample.session(workspace.id);
    let first = append(sample.step(new.id, state));
    store
        .commit(None, &[Mutation::AddSession(new.clone()), first, append(sample.step(new.id, state))])
        .unwrap();
    assert_linked(store, workspace.id);
    // A commit that does more than append.
    let op = sample.operation(workspace.id, stepback_model::record::OpStatus::Done);
    let mutations =
        [append(sample.step(new.id, state)), Mutation::AppendOp(op), append(sample.step(new.id, state))];
    store.commit(None, &mutations).unwrap();
    assert_linked(store, workspace.id);
}

/// Labels, hiding, purging and session information change no link.
pub fn what_may_change_is_not_linked(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/a");
    let (step, _) = sample.append(store, session.id, b"1");
    sample.append(store, session.id, b"2");
    let links = |store: &dyn Store| store.chain_entries(workspace.id, 0, 10).unwrap();
    let links_before = links(store);
    let annotation = Annotation { note: Some("later".into()), ..Annotation::labelled("later") };
    let operation = Some(OpId::from_bytes([1; 16]));
    let mut info = session.info.clone();
    info.title = Some("later".into());
    let mutations = [
        Mutation::Annotate { step, annotation },
        Mutation::SetHidden { steps: vec![step], by: operation },
        Mutation::Purge { steps: vec![step] },
        Mutation::SetSessionInfo { session: session.id, info: Box::new(info) },
    ];
    store.commit(None, &mutations).unwrap();
    assert_eq!(links(store), links_before);
    assert_linked(store, workspace.id);
}

/// A failed commit leaves the chain as it was.
pub fn a_failed_commit_moves_no_head(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/a");
    let (step, _) = sample.append(store, session.id, b"1");
    let heads = store.chain_heads(workspace.id).unwrap();
    let mut twice = sample.step(session.id, Hash::of(ObjectKind::Blob, b"2"));
    let fresh = append(twice.clone());
    twice.id = step;
    assert!(store.commit(None, &[fresh, append(twice)]).is_err());
    assert_eq!(store.chain_heads(workspace.id).unwrap(), heads);
    sample.append(store, session.id, b"3");
    assert_linked(store, workspace.id);
}

/// Several writers of one session make one chain.
pub fn concurrent_appenders_keep_one_chain(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/a");
    let other = sample.session(workspace.id);
    store.commit(None, &[Mutation::AddSession(other.clone())]).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (session, other) = (session.id, other.id);
            scope.spawn(move || {
                let sample = Sample::new(100 + thread);
                let state = Hash::of(ObjectKind::Blob, b"x");
                for _ in 0..10 {
                    let steps = [session, other, session].map(|session| append(sample.step(session, state)));
                    store.commit(None, &steps).unwrap();
                }
            });
        }
    });
    assert_eq!(store.chain_entries(workspace.id, 0, u64::MAX).unwrap().len(), 120);
    assert_linked(store, workspace.id);
}

/// Entries are read in pages, in the order of their numbers, for one workspace.
pub fn chain_entries_are_read_in_parts(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/a");
    let (elsewhere, there) = sample.begin(store, b"/b");
    let state = Hash::of(ObjectKind::Blob, b"x");
    let steps: Vec<_> = (0..20).map(|_| append(sample.step(session.id, state))).collect();
    store.commit(None, &steps).unwrap();
    sample.append(store, there.id, b"1");
    let numbers = |start, limit| -> Vec<u64> {
        let entries = store.chain_entries(workspace.id, start, limit).unwrap();
        entries.iter().map(|entry| entry.number).collect()
    };
    assert_eq!(numbers(0, 3), [1, 2, 3]);
    assert_eq!(numbers(18, 3), [19, 20]);
    assert_eq!(numbers(20, 3), [0; 0]);
    assert_linked(store, workspace.id);
    assert_linked(store, elsewhere.id);
}
