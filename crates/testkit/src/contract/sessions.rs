//! Clauses about workspaces and sessions: registration, order of lists, and updates as a whole.

use stepback_model::hash::Hash;
use stepback_model::ids::{StepId, WorkspaceId};
use stepback_model::record::{OpenCall, Session, SessionInfo};
use stepback_model::time::Timestamp;
use stepback_store::StoreError;
use stepback_store::port::{Mutation, Store};

use crate::sample::Sample;

const STATE: Hash = Hash::from_bytes([7; 32]);

fn step_id(byte: u8) -> StepId {
    StepId::from_bytes([byte; 16])
}

/// A root belongs to one workspace; its bytes need not be UTF-8.
pub fn a_workspace_is_registered_once(store: &dyn Store) {
    let sample = Sample::new(1);
    let root = b"/tmp/\xff\xfe\n w";
    let first = sample.workspace(root);
    store.commit(None, &[Mutation::AddWorkspace(first.clone())]).unwrap();
    let second_commit = store.commit(None, &[Mutation::AddWorkspace(sample.workspace(root))]);
    assert!(matches!(second_commit, Err(StoreError::Exists { .. })), "{second_commit:?}");
    let mut same_id = sample.workspace(b"/elsewhere");
    same_id.id = first.id;
    let second_commit = store.commit(None, &[Mutation::AddWorkspace(same_id)]);
    assert!(matches!(second_commit, Err(StoreError::Exists { .. })), "{second_commit:?}");
    assert_eq!(store.workspace_at(root).unwrap(), Some(first.clone()));
    assert_eq!(store.workspaces().unwrap(), [first]);
    assert_eq!(store.workspace_at(b"/tmp").unwrap(), None);
}

/// A workspace keeps its id and its history when it gets another root; a forgotten one is in no list, and its root is free.
pub fn a_workspace_can_get_another_root(store: &dyn Store) {
    let sample = Sample::new(1);
    let (first, second) = (sample.workspace(b"/one"), sample.workspace(b"/two"));
    let session = sample.session(first.id);
    let add = [
        Mutation::AddWorkspace(first.clone()),
        Mutation::AddWorkspace(second.clone()),
        Mutation::AddSession(session.clone()),
    ];
    store.commit(None, &add).unwrap();
    let set = |workspace, root: &[u8]| {
        store.commit(None, &[Mutation::SetWorkspaceRoot { workspace, root: root.to_vec() }])
    };
    let taken = set(first.id, b"/two");
    assert!(matches!(taken, Err(StoreError::Exists { .. })), "{taken:?}");
    set(first.id, b"/three").unwrap();
    assert_eq!(store.workspace_at(b"/one").unwrap(), None);
    let moved = store.workspace_at(b"/three").unwrap().unwrap();
    assert_eq!((moved.id, moved.created_at), (first.id, first.created_at));
    assert_eq!(store.sessions(first.id).unwrap(), [session]);
    set(second.id, &second.forgotten_root()).unwrap();
    assert_eq!(store.workspaces().unwrap(), [moved]);
    assert_eq!(store.workspace_at(b"/two").unwrap(), None);
    store.commit(None, &[Mutation::AddWorkspace(sample.workspace(b"/two"))]).unwrap();
}

/// Lists are sorted by the recorded time, not by the order of registration.
pub fn workspaces_and_sessions_are_listed_oldest_first(store: &dyn Store) {
    let sample = Sample::new(1);
    let (old, new) = (sample.workspace(b"/old"), sample.workspace(b"/new"));
    let (early, late) = (sample.session(old.id), sample.session(old.id));
    let elsewhere = Session { agent: Session::PERSON.into(), ..sample.session(new.id) };
    let mutations = [
        Mutation::AddWorkspace(new.clone()),
        Mutation::AddWorkspace(old.clone()),
        Mutation::AddSession(late.clone()),
        Mutation::AddSession(elsewhere.clone()),
        Mutation::AddSession(early.clone()),
    ];
    store.commit(None, &mutations).unwrap();
    assert_eq!(store.workspaces().unwrap(), [old.clone(), new.clone()]);
    assert_eq!(store.sessions(old.id).unwrap(), [early, late]);
    assert_eq!(store.sessions(new.id).unwrap(), [elsewhere]);
    assert_eq!(store.sessions(WorkspaceId::from_bytes([3; 16])).unwrap(), []);
}

/// A session counts as working while it has an open call, and only then.
pub fn sessions_with_open_calls_are_working(store: &dyn Store) {
    let sample = Sample::new(1);
    let workspace = sample.workspace(b"/w");
    let (early, idle, late) =
        (sample.session(workspace.id), sample.session(workspace.id), sample.session(workspace.id));
    let open = |call: &str| OpenCall {
        call: call.into(),
        step: StepId::from_bytes([7; 16]),
        tool: Some("Bash".into()),
        at: early.started_at,
        worker: None,
        changes: true,
        paths: vec!["\"open\":[]".into()],
        only_named: false,
        overtaken: false,
        edited: false,
        ended: false,
        cut_short: false,
        unrecorded: false,
        waited: 0,
    };
    let working = |session: &Session| {
        let info = SessionInfo { open: vec![open("\"open\":[]")], ..session.info.clone() };
        Session { info, ..session.clone() }
    };
    let idle =
        Session { info: SessionInfo { title: Some("\"open\":[{}]".into()), ..idle.info.clone() }, ..idle };
    let mutations = [
        Mutation::AddWorkspace(workspace.clone()),
        Mutation::AddSession(working(&late)),
        Mutation::AddSession(idle),
        Mutation::AddSession(working(&early)),
    ];
    store.commit(None, &mutations).unwrap();
    assert_eq!(store.working_sessions(workspace.id).unwrap(), [working(&early), working(&late)]);
    let done = Mutation::SetSessionInfo { session: early.id, info: Box::new(early.info.clone()) };
    store.commit(None, &[done]).unwrap();
    assert_eq!(store.working_sessions(workspace.id).unwrap(), [working(&late)]);
    assert_eq!(store.working_sessions(WorkspaceId::from_bytes([3; 16])).unwrap(), []);
}

/// The information about a session can be replaced without affecting other sessions.
pub fn what_is_known_about_a_session_grows(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, one) = sample.begin(store, b"/w");
    let two = sample.session(workspace.id);
    let info = SessionInfo {
        external: Some("abc".into()),
        iteration: 7,
        tip: Some(STATE),
        cursor: Some(serde_json::json!({"offset": 5})),
        open: vec![OpenCall {
            call: "c".into(),
            step: step_id(1),
            tool: Some("Bash".into()),
            at: Timestamp::from_micros(5),
            worker: None,
            changes: true,
            paths: vec!["a/b".into()],
            only_named: false,
            overtaken: false,
            edited: false,
            ended: false,
            cut_short: false,
            unrecorded: false,
            waited: 0,
        }],
        ..SessionInfo::default()
    };
    let set = Mutation::SetSessionInfo { session: one.id, info: Box::new(info.clone()) };
    store.commit(None, &[Mutation::AddSession(two.clone()), set]).unwrap();
    assert_eq!(store.session(one.id).unwrap().unwrap(), Session { info, ..one });
    assert_eq!(store.session(two.id).unwrap().unwrap(), two);
    assert_eq!(store.session(stepback_model::ids::SessionId::from_bytes([9; 16])).unwrap(), None);
}
