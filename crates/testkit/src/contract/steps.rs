//! Clauses about steps and checkpoints: numbers, content, annotations, hiding and purging.

use std::collections::HashSet;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{OpId, StepId, WorkspaceId};
use stepback_model::json::ValueRoot;
use stepback_model::record::{Annotation, Session, Step, StepContext, StepKind, StepMeta, Trigger};
use stepback_model::time::Timestamp;
use stepback_store::port::{Mutation, Questions, StepQuery, Store};

use crate::sample::{Sample, append};

const STATE: Hash = Hash::from_bytes([7; 32]);

fn step_id(byte: u8) -> StepId {
    StepId::from_bytes([byte; 16])
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
    let step_ids = [steps[1].id, step_id(98), steps[3].id, steps[1].id];
    let nothing = Questions { steps: &[], references: &[], sessions: &[] };
    let looked = store.look(&Questions { steps: &step_ids, ..nothing }).unwrap();
    assert_eq!(looked.stored, HashSet::from([steps[1].id, steps[3].id]));
    assert!(store.look(&nothing).unwrap().stored.is_empty());
    let (_, elsewhere) = sample.begin(store, b"/elsewhere");
    assert_eq!(store.commit(None, &[append(sample.step(elsewhere.id, STATE))]).unwrap().steps, [1]);
}

/// Lists are sorted by the order of commits, newest first, regardless of the clock, over all sessions of one workspace.
pub fn checkpoints_are_listed_newest_first(store: &dyn Store) {
    let sample = Sample::new(1);
    let (workspace, one) = sample.begin(store, b"/w");
    let (elsewhere, stranger) = sample.begin(store, b"/elsewhere");
    let two = sample.session(workspace.id);
    store.commit(None, &[Mutation::AddSession(two.clone())]).unwrap();
    let mut expected = Vec::new();
    for (index, session) in [one.id, two.id, two.id, one.id].into_iter().enumerate() {
        let mut step = sample.step(session, STATE);
        step.at = Timestamp::from_micros(1000 - 10 * index as i64);
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

/// Everything recorded about a checkpoint is read back unchanged, any kind of text included.
pub fn a_checkpoint_keeps_every_field(store: &dyn Store) {
    let sample = Sample::new(1);
    let (_, session) = sample.begin(store, b"/w");
    let triggers = [Some(Trigger::Manual), Some(Trigger::Automatic), Some(Trigger::Scheduled), None];
    for (index, trigger) in triggers.into_iter().enumerate() {
        let step = Step {
            parent: (index > 0).then(|| step_id(index as u8)),
            kind: if index == 1 { StepKind::Rewind } else { StepKind::Checkpoint },
            at: Timestamp::from_micros(-5 + index as i64),
            state: Hash::of(ObjectKind::State, &[index as u8]),
            summary: "quotes ' \" and \0 and \n and ü and 🦀".into(),
            meta: StepMeta {
                iteration: index as u64,
                worker: (index == 2).then(|| "helper".into()),
                call: (index == 3).then(|| "call-1".into()),
                tool: (index == 1).then(|| "Bash".into()),
                failed: index == 1,
                duration: (index == 2).then_some(1 << 40),
                detail: (index > 1)
                    .then_some(ValueRoot { node: STATE, part: (index == 2).then_some(u32::MAX) }),
                context: StepContext {
                    task: (index == 1).then(|| "task \0 1".into()),
                    trace: (index != 2).then(|| "4bf92f3577b34da6a3ce929d0e0e4736".into()),
                    span: (index == 3).then(|| "00f067aa0ba902b7".into()),
                    parent_span: (index == 3).then(|| "ü".into()),
                },
            },
            ..sample.step(session.id, STATE)
        };
        let annotation = Annotation {
            label: (index != 1).then(|| "v1.0 ü".to_string()),
            note: (index != 2).then(String::new),
            tags: ["b", "a", "", "with, comma", "b", "c"].map(String::from)[..index * 2].to_vec(),
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
        let numbered = store.step_numbered(workspace.id, at as u64 + 1).unwrap().unwrap();
        assert_eq!(numbered, store.step(*step).unwrap().unwrap());
    }
    for number in [0, 4, u64::MAX, 1 << 63] {
        assert_eq!(store.step_numbered(workspace.id, number).unwrap(), None, "#{number}");
    }
    assert_eq!(store.step_numbered(other.id, 1).unwrap(), None);
}

/// Steps are listed by a query, newest first; steps that are not checkpoints are not in the list of checkpoints.
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
    let any_step = StepQuery::default;
    assert_eq!(numbers(any_step()), [4, 3, 2, 1]);
    assert_eq!(numbers(StepQuery { oldest_first: true, limit: Some(2), ..any_step() }), [1, 2]);
    assert_eq!(numbers(StepQuery { session: Some(two.id), ..any_step() }), [4, 3]);
    assert_eq!(
        numbers(StepQuery { kinds: vec![StepKind::ToolStart, StepKind::UserInput], ..any_step() }),
        [4, 3, 1]
    );
    assert_eq!(numbers(StepQuery { tool: Some("bash".into()), ..any_step() }), [4, 2, 1]);
    assert_eq!(numbers(StepQuery { call: Some("Read-1".into()), ..any_step() }), [3]);
    assert_eq!(numbers(StepQuery { failed: Some(true), ..any_step() }), [2]);
    assert_eq!(numbers(StepQuery { iteration: Some(1), ..any_step() }), [2, 1]);
    assert_eq!(numbers(StepQuery { after: Some(1), before: Some(4), ..any_step() }), [3, 2]);
    assert_eq!(numbers(StepQuery { limit: Some(0), ..any_step() }), [0; 0]);
    let checkpoints = store.checkpoints(workspace.id).unwrap();
    assert_eq!(checkpoints.iter().map(|stored| stored.step.number).collect::<Vec<_>>(), [1]);
}

/// An annotation is replaced as a whole, and can be removed.
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

/// A hidden checkpoint stays in the lists, with the operation that hid it; it can be shown again.
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

/// Purging marks hidden checkpoints; one that was shown again before the purge keeps its state.
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
