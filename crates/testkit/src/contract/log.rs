//! Promises about the log: commits are atomic, numbers have no gaps, references move by compare-and-swap.

use std::collections::{BTreeSet, HashSet};

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, StepId, WorkspaceId};
use stepback_model::json::ValueRoot;
use stepback_model::record::{
    Annotation, OpStatus, OpenCall, Session, SessionInfo, Step, StepKind, StepMeta, Trigger,
};
use stepback_model::time::Timestamp;
use stepback_store::StoreError;
use stepback_store::port::{Mutation, Questions, StepQuery, Store};

use super::hashes;
use crate::sample::{Sample, append, put};

const STATE: Hash = Hash::from_bytes([7; 32]);

fn set_ref(name: &str, expected: Option<StepId>, value: StepId) -> Mutation {
    Mutation::SetRef { name: name.into(), expected, value }
}

fn step_id(byte: u8) -> StepId {
    StepId::from_bytes([byte; 16])
}

/// When one mutation fails, no object, row, reference or number of the commit remains.
pub fn a_failed_commit_leaves_nothing(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let (first, _) = sample.append(store, session.id, b"first");
    let op = sample.operation(workspace.id, OpStatus::Applying);
    let mutations = [Mutation::AppendOp(op.clone()), set_ref("head", None, first)];
    store.commit(None, &mutations).unwrap();
    let objects = hashes(store);
    let mark = store.commit_seq().unwrap();

    let other = sample.workspace(b"/other");
    let late = sample.session(workspace.id);
    let batch = store.begin().unwrap();
    let lost = batch.write(ObjectKind::Blob, b"lost", None).unwrap();
    let step = sample.step(session.id, lost);
    let failed = store.commit(
        Some(batch.finish().unwrap()),
        &[
            Mutation::AddWorkspace(other.clone()),
            Mutation::AddSession(late),
            append(step.clone()),
            append(sample.step(session.id, lost)),
            Mutation::AppendOp(sample.operation(workspace.id, OpStatus::Done)),
            Mutation::SetOpStatus { op: op.id, status: OpStatus::Done },
            Mutation::SetOpUndone { op: op.id, undone: true },
            Mutation::SetHidden { steps: vec![first], by: Some(op.id) },
            Mutation::Purge { steps: vec![first] },
            Mutation::Annotate {
                step: first,
                annotation: Annotation { label: Some("x".into()), ..Default::default() },
            },
            set_ref("new", None, first),
            set_ref("head", Some(first), step.id),
            set_ref("head", Some(first), first),
        ],
    );
    assert!(matches!(&failed, Err(StoreError::Moved { name }) if name == "head"), "{failed:?}");

    assert_eq!(hashes(store), objects);
    assert!(!store.contains(ObjectKind::Blob, lost).unwrap());
    assert_eq!(store.workspaces().unwrap(), std::slice::from_ref(&workspace));
    assert_eq!(store.workspace_at(b"/other").unwrap(), None);
    assert_eq!(store.sessions(workspace.id).unwrap(), std::slice::from_ref(&session));
    let checkpoints = store.checkpoints(workspace.id).unwrap();
    assert_eq!(checkpoints.len(), 1);
    assert_eq!(checkpoints[0].annotation, Annotation::default());
    assert_eq!((checkpoints[0].hidden_by, checkpoints[0].purged), (None, false));
    assert_eq!(store.step(step.id).unwrap(), None);
    let operations = store.operations(workspace.id).unwrap();
    assert_eq!(operations.len(), 1);
    assert_eq!((operations[0].status, operations[0].undone), (OpStatus::Applying, false));
    assert_eq!(operations[0].journal, op.journal);
    assert_eq!(store.references("").unwrap(), [("head".to_string(), first)]);
    assert_eq!(store.commit_seq().unwrap(), mark, "a failed commit counts as one");

    let receipt = store
        .commit(None, &[append(step), Mutation::AppendOp(sample.operation(workspace.id, OpStatus::Done))])
        .unwrap();
    assert_eq!((receipt.steps, receipt.ops), (vec![2], vec![2]), "a failed commit used up numbers");
}

/// Later mutations of a commit see the earlier ones.
pub fn a_commit_applies_its_mutations_in_order(store: &dyn Store) {
    let sample = Sample::new(1);
    let workspace = sample.workspace(b"/w");
    let session = sample.session(workspace.id);
    let step = sample.step(session.id, STATE);
    let op = sample.operation(workspace.id, OpStatus::Applying);
    let receipt = store
        .commit(
            None,
            &[
                Mutation::AddWorkspace(workspace.clone()),
                Mutation::AddSession(session.clone()),
                append(step.clone()),
                set_ref("head", None, step_id(1)),
                set_ref("head", Some(step_id(1)), step.id),
                Mutation::AppendOp(op.clone()),
                Mutation::SetHidden { steps: vec![step.id], by: Some(op.id) },
                Mutation::Purge { steps: vec![step.id] },
                Mutation::SetOpStatus { op: op.id, status: OpStatus::Done },
            ],
        )
        .unwrap();
    assert_eq!((receipt.steps, receipt.ops), (vec![1], vec![1]));
    assert_eq!(store.reference("head").unwrap(), Some(step.id));
    let stored = store.step(step.id).unwrap().unwrap();
    assert_eq!((stored.hidden_by, stored.purged), (Some(op.id), true));
    assert_eq!(store.operation(op.id).unwrap().unwrap().status, OpStatus::Done);
}

/// Steps count 1, 2, 3 in each workspace, over all its sessions and whatever number the caller put in; receipts are in
/// order of the mutations.
pub fn steps_are_numbered_per_workspace(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, one) = sample.begin(store, b"/w");
    let two = sample.session(workspace.id);
    store.commit(None, &[Mutation::AddSession(two.clone())]).unwrap();
    let mut steps = Vec::new();
    for session in [&one, &two, &one, &one, &two] {
        let mut step = sample.step(session.id, STATE);
        step.number = 99;
        steps.push(step);
    }
    let mutations: Vec<Mutation> = steps.iter().cloned().map(append).collect();
    assert_eq!(store.commit(None, &mutations).unwrap().steps, [1, 2, 3, 4, 5]);
    assert_eq!(store.commit(None, &[append(sample.step(two.id, STATE))]).unwrap().steps, [6]);
    assert_eq!(store.step(steps[3].id).unwrap().unwrap().step.number, 4);
    let asked = [steps[1].id, step_id(98), steps[3].id, steps[1].id];
    let none = Questions { steps: &[], references: &[], sessions: &[] };
    let looked = store.look(&Questions { steps: &asked, ..none }).unwrap();
    assert_eq!(looked.stored, HashSet::from([steps[1].id, steps[3].id]));
    assert!(store.look(&none).unwrap().stored.is_empty());
    let (_, elsewhere) = sample.begin(store, b"/elsewhere");
    assert_eq!(store.commit(None, &[append(sample.step(elsewhere.id, STATE))]).unwrap().steps, [1]);
}

/// Threads that append at once get every number once.
pub fn concurrent_commits_leave_no_gap_and_no_double(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let numbers: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let session = session.id;
                scope.spawn(move || {
                    let sample = Sample::new(100 + thread);
                    let append = |at: u64| sample.append(store, session, format!("{thread} {at}").as_bytes());
                    (0..15).flat_map(|at| append(at).1.steps).collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(numbers.iter().copied().collect::<BTreeSet<_>>(), (1..=60).collect());
    assert_eq!(numbers.len(), 60);
    let listed = store.checkpoints(workspace.id).unwrap();
    assert!(listed.iter().map(|stored| stored.step.number).eq((1..=60).rev()));
    for stored in listed {
        store.read(ObjectKind::Blob, stored.step.state).unwrap();
    }
}

/// A reference is made only where none is, and moved only from what the caller saw.
pub fn a_reference_moves_only_from_what_the_caller_saw(store: &dyn Store) {
    let try_set = |expected, value| store.commit(None, &[set_ref("heads/main", expected, value)]);
    let (a, b, c) = (step_id(1), step_id(2), step_id(3));
    assert_eq!(store.reference("heads/main").unwrap(), None);
    assert!(
        matches!(try_set(Some(a), b), Err(StoreError::Moved { .. })),
        "moved a reference that is not there"
    );
    try_set(None, a).unwrap();
    assert!(matches!(try_set(None, b), Err(StoreError::Moved { .. })), "made a reference twice");
    assert!(matches!(try_set(Some(c), b), Err(StoreError::Moved { .. })));
    assert_eq!(store.reference("heads/main").unwrap(), Some(a));
    try_set(Some(a), b).unwrap();
    try_set(Some(b), b).unwrap();
    assert_eq!(store.reference("heads/main").unwrap(), Some(b));
    assert_eq!(store.reference("heads/mai").unwrap(), None);
    assert_eq!(store.reference("HEADS/MAIN").unwrap(), None);
}

/// Of several threads that saw the same value, exactly one moves the reference, each time.
pub fn of_many_racing_for_a_reference_one_wins(store: &dyn Store) {
    let mut seen = None;
    for round in 0..10u8 {
        let barrier = std::sync::Barrier::new(4);
        let winners: Vec<StepId> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4u8)
                .map(|thread| {
                    let barrier = &barrier;
                    scope.spawn(move || {
                        let value = step_id(1 + round * 4 + thread);
                        barrier.wait();
                        match store.commit(None, &[set_ref("head", seen, value)]) {
                            Ok(_) => Some(value),
                            Err(StoreError::Moved { .. }) => None,
                            Err(other) => panic!("{other}"),
                        }
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(winners.len(), 1, "{winners:?}");
        seen = store.reference("head").unwrap();
        assert_eq!(seen, Some(winners[0]));
    }
}

/// A prefix is taken literally; names come back sorted.
pub fn references_are_listed_by_prefix(store: &dyn Store) {
    let names = ["a%b", "a_b", "heads/b", "heads/a", "heads/a/deeper", "Heads/x", "hé/ü", "axb"];
    let mutations: Vec<Mutation> = names.iter().map(|name| set_ref(name, None, step_id(1))).collect();
    store.commit(None, &mutations).unwrap();
    let listed = |prefix: &str| -> Vec<String> {
        store.references(prefix).unwrap().into_iter().map(|(name, _)| name).collect()
    };
    assert_eq!(listed("heads/"), ["heads/a", "heads/a/deeper", "heads/b"]);
    assert_eq!(listed("heads/a"), ["heads/a", "heads/a/deeper"]);
    assert_eq!(listed("a%"), ["a%b"]);
    assert_eq!(listed("a_"), ["a_b"]);
    assert_eq!(listed("hé/"), ["hé/ü"]);
    assert_eq!(listed("nothing"), [""; 0]);
    assert_eq!(listed("").len(), names.len());
}

/// A root belongs to one workspace; its bytes need not be text.
pub fn a_workspace_is_registered_once(store: &dyn Store) {
    let sample = Sample::new(1);
    let root = b"/tmp/\xff\xfe\n w";
    let first = sample.workspace(root);
    store.commit(None, &[Mutation::AddWorkspace(first.clone())]).unwrap();
    let again = store.commit(None, &[Mutation::AddWorkspace(sample.workspace(root))]);
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    let mut same_id = sample.workspace(b"/elsewhere");
    same_id.id = first.id;
    let again = store.commit(None, &[Mutation::AddWorkspace(same_id)]);
    assert!(matches!(again, Err(StoreError::Exists { .. })), "{again:?}");
    assert_eq!(store.workspace_at(root).unwrap(), Some(first.clone()));
    assert_eq!(store.workspaces().unwrap(), [first]);
    assert_eq!(store.workspace_at(b"/tmp").unwrap(), None);
}

/// No two sessions, steps or operations have the same id.
pub fn ids_are_taken_once(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let step = append(sample.step(session.id, STATE));
    let op = Mutation::AppendOp(sample.operation(workspace.id, OpStatus::Done));
    for (at, mutation) in
        [step, op, Mutation::AddSession(sample.session(workspace.id))].into_iter().enumerate()
    {
        store.commit(None, std::slice::from_ref(&mutation)).unwrap();
        let again = store.commit(None, &[mutation]);
        assert!(matches!(again, Err(StoreError::Exists { .. })), "{at}: {again:?}");
    }
}

/// Oldest first goes by the recorded time, not by the order of registration.
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

/// Whatever else is known about a session, it works while a call is open, and only then.
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

/// Newest first goes by the order of commits, whatever the clock said, over all sessions of one workspace.
pub fn checkpoints_are_listed_newest_first(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, one) = sample.begin(store, b"/w");
    let (elsewhere, stranger) = sample.begin(store, b"/elsewhere");
    let two = sample.session(workspace.id);
    store.commit(None, &[Mutation::AddSession(two.clone())]).unwrap();
    let mut expected = Vec::new();
    for (at, session) in [one.id, two.id, two.id, one.id].into_iter().enumerate() {
        let mut step = sample.step(session, STATE);
        step.at = Timestamp::from_micros(1000 - 10 * at as i64);
        expected.push(step.id);
        store.commit(None, &[append(step), append(sample.step(stranger.id, STATE))]).unwrap();
    }
    let listed = |workspace| -> Vec<StepId> {
        store.checkpoints(workspace).unwrap().into_iter().map(|stored| stored.step.id).collect()
    };
    expected.reverse();
    assert_eq!(listed(workspace.id), expected);
    assert_eq!(listed(elsewhere.id).len(), 4);
    assert_eq!(listed(WorkspaceId::from_bytes([3; 16])), []);
}

/// Everything recorded about a checkpoint comes back as it was, text of any kind included.
pub fn a_checkpoint_keeps_every_field(store: &dyn Store) {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let triggers = [Some(Trigger::Manual), Some(Trigger::Automatic), Some(Trigger::Scheduled), None];
    for (at, trigger) in triggers.into_iter().enumerate() {
        let step = Step {
            parent: (at > 0).then(|| step_id(at as u8)),
            kind: if at == 1 { StepKind::Rewind } else { StepKind::Checkpoint },
            at: Timestamp::from_micros(-5 + at as i64),
            state: Hash::of(ObjectKind::State, &[at as u8]),
            summary: "quotes ' \" and \0 and \n and ü and 🦀".into(),
            meta: StepMeta {
                iteration: at as u64,
                worker: (at == 2).then(|| "helper".into()),
                call: (at == 3).then(|| "call-1".into()),
                tool: (at == 1).then(|| "Bash".into()),
                failed: at == 1,
                duration: (at == 2).then_some(1 << 40),
                detail: (at > 1).then_some(ValueRoot { node: STATE, part: (at == 2).then_some(u32::MAX) }),
            },
            ..sample.step(session.id, STATE)
        };
        let annotation = Annotation {
            label: (at != 1).then(|| "v1.0 ü".to_string()),
            note: (at != 2).then(String::new),
            tags: ["b", "a", "", "with, comma", "b", "c"].map(String::from)[..at * 2].to_vec(),
        };
        let mutation = Mutation::AppendStep { step: step.clone(), annotation: annotation.clone(), trigger };
        let number = store.commit(None, &[mutation]).unwrap().steps[0];
        let stored = store.step(step.id).unwrap().unwrap();
        assert_eq!(stored.step, Step { number, ..step });
        assert_eq!(stored.annotation, annotation);
        assert_eq!((stored.trigger, stored.hidden_by, stored.purged), (trigger, None, false));
    }
    assert_eq!(store.step(step_id(99)).unwrap(), None);
}

/// `#n` of a workspace is the n-th step and nothing else.
pub fn a_step_is_found_by_its_number(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let (other, _) = sample.begin(store, b"/other");
    let steps: Vec<StepId> = (0..3u8).map(|at| sample.append(store, session.id, &[at]).0).collect();
    for (at, step) in steps.iter().enumerate() {
        let found = store.step_numbered(workspace.id, at as u64 + 1).unwrap().unwrap();
        assert_eq!(found, store.step(*step).unwrap().unwrap());
    }
    for number in [0, 4, u64::MAX, 1 << 63] {
        assert_eq!(store.step_numbered(workspace.id, number).unwrap(), None, "#{number}");
    }
    assert_eq!(store.step_numbered(other.id, 1).unwrap(), None);
}

/// Steps are listed by what is asked for, newest first; what is no checkpoint is not among the checkpoints.
pub fn steps_are_listed_by_what_is_asked_for(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, one) = sample.begin(store, b"/w");
    let two = sample.session(workspace.id);
    let (_, elsewhere) = sample.begin(store, b"/elsewhere");
    let step = |session: &Session, kind, tool: &str, failed, iteration| Step {
        kind,
        meta: StepMeta {
            tool: Some(tool.into()),
            call: Some(format!("{tool}-1")),
            failed,
            iteration,
            ..StepMeta::default()
        },
        ..sample.step(session.id, STATE)
    };
    let light = |step| Mutation::AppendStep { step, annotation: Annotation::default(), trigger: None };
    let mutations = [
        Mutation::AddSession(two.clone()),
        append(step(&one, StepKind::ToolStart, "Bash", false, 1)),
        light(step(&one, StepKind::ToolEnd, "Bash", true, 1)),
        light(step(&two, StepKind::ToolStart, "Read", false, 2)),
        light(step(&elsewhere, StepKind::ToolStart, "Bash", false, 1)),
        light(step(&two, StepKind::UserInput, "Bash", false, 3)),
    ];
    store.commit(None, &mutations).unwrap();
    let numbers = |query: StepQuery| -> Vec<u64> {
        store.steps(workspace.id, &query).unwrap().iter().map(|stored| stored.step.number).collect()
    };
    let all = StepQuery::default;
    assert_eq!(numbers(all()), [4, 3, 2, 1]);
    assert_eq!(numbers(StepQuery { oldest_first: true, limit: Some(2), ..all() }), [1, 2]);
    assert_eq!(numbers(StepQuery { session: Some(two.id), ..all() }), [4, 3]);
    assert_eq!(
        numbers(StepQuery { kinds: vec![StepKind::ToolStart, StepKind::UserInput], ..all() }),
        [4, 3, 1]
    );
    assert_eq!(numbers(StepQuery { tool: Some("bash".into()), ..all() }), [4, 2, 1]);
    assert_eq!(numbers(StepQuery { call: Some("Read-1".into()), ..all() }), [3]);
    assert_eq!(numbers(StepQuery { failed: Some(true), ..all() }), [2]);
    assert_eq!(numbers(StepQuery { iteration: Some(1), ..all() }), [2, 1]);
    assert_eq!(numbers(StepQuery { after: Some(1), before: Some(4), ..all() }), [3, 2]);
    assert_eq!(numbers(StepQuery { limit: Some(0), ..all() }), [0; 0]);
    let kept = store.checkpoints(workspace.id).unwrap();
    assert_eq!(kept.iter().map(|stored| stored.step.number).collect::<Vec<_>>(), [1]);
}

/// What is known about a session can be replaced, of that session only.
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

/// An annotation is replaced whole, and can be taken away.
pub fn annotating_replaces_the_annotation(store: &dyn Store) {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let ((step, _), (other, _)) =
        (sample.append(store, session.id, b"1"), sample.append(store, session.id, b"2"));
    let full =
        Annotation { label: Some("l".into()), note: Some("n".into()), tags: vec!["t".into(), "s".into()] };
    let partial = Annotation { tags: vec!["u".into()], ..Annotation::default() };
    for annotation in [full, partial, Annotation::default()] {
        store.commit(None, &[Mutation::Annotate { step, annotation: annotation.clone() }]).unwrap();
        assert_eq!(store.step(step).unwrap().unwrap().annotation, annotation);
        assert_eq!(store.step(other).unwrap().unwrap().annotation, Annotation::default());
    }
}

/// Hiding keeps a checkpoint in the lists with who hid it; showing takes that back.
pub fn hidden_checkpoints_stay_listed_and_come_back(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let steps: Vec<StepId> = (0..3u8).map(|at| sample.append(store, session.id, &[at]).0).collect();
    let by = OpId::from_bytes([5; 16]);
    let hidden = || -> Vec<Option<OpId>> {
        store.checkpoints(workspace.id).unwrap().into_iter().map(|stored| stored.hidden_by).collect()
    };
    store.commit(None, &[Mutation::SetHidden { steps: steps[..2].to_vec(), by: Some(by) }]).unwrap();
    assert_eq!(hidden(), [None, Some(by), Some(by)]);
    store.commit(None, &[Mutation::SetHidden { steps: vec![steps[0]], by: None }]).unwrap();
    assert_eq!(hidden(), [None, Some(by), None]);
    store.read(ObjectKind::Blob, store.step(steps[1]).unwrap().unwrap().step.state).unwrap();
}

/// Purging marks hidden checkpoints; one that was shown again in time keeps its state.
pub fn only_hidden_checkpoints_are_purged(store: &dyn Store) {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let ((hidden, _), (shown, _)) =
        (sample.append(store, session.id, b"1"), sample.append(store, session.id, b"2"));
    let by = Some(OpId::from_bytes([5; 16]));
    store.commit(None, &[Mutation::SetHidden { steps: vec![hidden], by }]).unwrap();
    store.commit(None, &[Mutation::Purge { steps: vec![hidden, shown] }]).unwrap();
    assert!(store.step(hidden).unwrap().unwrap().purged);
    assert!(!store.step(shown).unwrap().unwrap().purged);
}

/// Every commit moves the mark; looking does not.
pub fn the_mark_moves_with_every_commit(store: &dyn Store) {
    let sample = Sample::new(1);
    let mut marks = vec![store.commit_seq().unwrap()];
    let (_, session) = sample.begin(store, b"/w");
    marks.push(store.commit_seq().unwrap());
    put(store, &[b"objects alone"]);
    marks.push(store.commit_seq().unwrap());
    sample.append(store, session.id, b"x");
    marks.push(store.commit_seq().unwrap());
    let distinct: BTreeSet<u64> = marks.iter().map(|mark| mark.0).collect();
    assert_eq!(distinct.len(), marks.len(), "{marks:?}");
    drop(store.begin().unwrap());
    store.checkpoints(sample.workspace(b"/x").id).unwrap();
    assert_eq!(store.commit_seq().unwrap(), marks[3]);
}
