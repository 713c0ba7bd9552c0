//! Clauses about queries for steps: all conditions, totals, and order.

use std::time::Duration;

use stepback_model::hash::Hash;
use stepback_model::ids::{OpId, WorkspaceId};
use stepback_model::record::{Annotation, Session, Step, StepContext, StepKind, StepMeta, StepRow, Trigger};
use stepback_model::search::{Pattern, TextField, Texts};
use stepback_model::time::Timestamp;
use stepback_store::port::{Mutation, SearchDocument, SearchRequest, SortKey, StepQuery, Store};

use crate::sample::{Sample, append};

fn numbers(store: &dyn Store, workspace: Option<WorkspaceId>, query: &StepQuery) -> Vec<u64> {
    let page = store.find(workspace, query).unwrap();
    page.steps.iter().map(|placed| placed.stored.step.number).collect()
}

/// Two workspaces with sessions of two agents, and five steps.
pub(super) fn two_workspaces(store: &dyn Store) -> (WorkspaceId, WorkspaceId) {
    let sample = Sample::new(1);
    let (first_workspace, own_session) = sample.begin(store, b"/one");
    let (second_workspace, _) = sample.begin(store, b"/two");
    let other_session = Session { agent: "other".into(), ..sample.session(second_workspace.id) };
    store.commit(None, &[Mutation::AddSession(other_session.clone())]).unwrap();
    let step = |session: &Session, micros: i64, duration: Option<u64>, worker: Option<&str>| {
        let step = sample.step(session.id, Hash::from_bytes([micros as u8; 32]));
        let facts = StepMeta { duration, worker: worker.map(Into::into), ..StepMeta::default() };
        Step { at: Timestamp::from_micros(micros), meta: facts, ..step }
    };
    let light = |step: Step| Mutation::AppendStep { step, annotation: Annotation::default(), trigger: None };
    let labelled = Annotation {
        label: Some("here".into()),
        note: None,
        tags: vec!["one".into(), "with \"quotes\"".into()],
    };
    let first = step(&own_session, 30, Some(5), None);
    let hidden = step(&own_session, 10, None, None);
    let hide = Mutation::SetHidden { steps: vec![hidden.id], by: Some(OpId::from_bytes([1; 16])) };
    store
        .commit(
            None,
            &[
                Mutation::AppendStep { step: first, annotation: labelled, trigger: Some(Trigger::Manual) },
                light(step(&other_session, 20, Some(70), Some("helper"))),
                append(hidden),
                light(step(&other_session, 40, Some(5), None)),
                append(step(&own_session, 40, Some(900), None)),
                hide,
            ],
        )
        .unwrap();
    (first_workspace.id, second_workspace.id)
}

/// Every condition limits what is found, in one workspace and in all.
pub fn steps_are_found_by_every_condition(store: &dyn Store) {
    let (first_workspace, second_workspace) = two_workspaces(store);
    let any_step = StepQuery::default;
    let numbers_in_first = |query: StepQuery| numbers(store, Some(first_workspace), &query);
    let anywhere = |query: StepQuery| store.find(None, &query).unwrap().total;
    assert_eq!(numbers_in_first(any_step()), [3, 2, 1]);
    assert_eq!(anywhere(any_step()), 5);
    assert_eq!(numbers_in_first(StepQuery { agent: Some("other".into()), ..any_step() }), [0; 0]);
    assert_eq!(
        numbers(store, Some(second_workspace), &StepQuery { agent: Some("other".into()), ..any_step() }),
        [2, 1]
    );
    assert_eq!(anywhere(StepQuery { agent: Some("sample".into()), ..any_step() }), 3);
    assert_eq!(numbers(store, None, &StepQuery { worker: Some("helper".into()), ..any_step() }), [1]);
    let at = Timestamp::from_micros;
    assert_eq!(numbers_in_first(StepQuery { since: Some(at(30)), ..any_step() }), [3, 1]);
    assert_eq!(numbers_in_first(StepQuery { until: Some(at(30)), ..any_step() }), [2, 1]);
    assert_eq!(numbers_in_first(StepQuery { since: Some(at(11)), until: Some(at(39)), ..any_step() }), [1]);
    assert_eq!(numbers_in_first(StepQuery { state: Some(Hash::from_bytes([10; 32])), ..any_step() }), [2]);
    assert_eq!(anywhere(StepQuery { checkpoint: Some(false), ..any_step() }), 2);
    assert_eq!(anywhere(StepQuery { checkpoint: Some(true), ..any_step() }), 3);
    assert_eq!(numbers_in_first(StepQuery { hidden: Some(true), ..any_step() }), [2]);
    assert_eq!(numbers_in_first(StepQuery { hidden: Some(false), ..any_step() }), [3, 1]);
    assert_eq!(numbers_in_first(StepQuery { label: Some("here".into()), ..any_step() }), [1]);
    assert_eq!(numbers_in_first(StepQuery { label: Some("her".into()), ..any_step() }), [0; 0]);
    assert_eq!(numbers_in_first(StepQuery { tag: Some("with \"quotes\"".into()), ..any_step() }), [1]);
    assert_eq!(numbers_in_first(StepQuery { tag: Some("on".into()), ..any_step() }), [0; 0]);
    assert_eq!(anywhere(StepQuery { min_duration: Some(70), ..any_step() }), 2);
}

/// Steps are found by the ids of their task, trace and span, in one workspace and in all, with other conditions, page by
/// page, and by a search among them.
pub fn steps_are_found_by_their_context(store: &dyn Store) {
    let sample = Sample::new(1);
    let (one, session) = sample.begin(store, b"/one");
    let (two, elsewhere) = sample.begin(store, b"/two");
    let step = |session: &Session, task: &str, trace: &str, span: &str, failed: bool| {
        let id = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let context = StepContext { task: id(task), trace: id(trace), span: id(span), parent_span: id(task) };
        let step = sample.step(session.id, Hash::from_bytes([1; 32]));
        let step = Step { meta: StepMeta { context, failed, ..StepMeta::default() }, ..step };
        Mutation::AppendStep { step, annotation: Annotation::default(), trigger: None }
    };
    let steps = [
        step(&session, "plan", "t1", "s1", false),
        step(&session, "plan", "t1", "s2", true),
        step(&session, "", "t2", "s1", false),
        step(&session, "", "", "", false),
        step(&elsewhere, "plan", "t1", "s1", false),
    ];
    store.commit(None, &steps).unwrap();
    let task = |id: &str| StepQuery { task: Some(id.into()), ..StepQuery::default() };
    let trace = |id: &str| StepQuery { trace: Some(id.into()), ..StepQuery::default() };
    let span = |id: &str| StepQuery { span: Some(id.into()), ..StepQuery::default() };
    let here = |query: &StepQuery| numbers(store, Some(one.id), query);
    assert_eq!(here(&task("plan")), [2, 1]);
    assert_eq!(numbers(store, Some(two.id), &task("plan")), [1]);
    assert_eq!(store.find(None, &trace("t1")).unwrap().total, 3);
    assert_eq!(here(&trace("t1")), [2, 1]);
    assert_eq!(here(&span("s1")), [3, 1]);
    assert_eq!(here(&StepQuery { trace: Some("t1".into()), ..span("s1") }), [1]);
    assert_eq!(here(&StepQuery { failed: Some(true), ..task("plan") }), [2]);
    assert_eq!(here(&StepQuery { session: Some(session.id), oldest_first: true, ..trace("t1") }), [1, 2]);
    for nothing in ["pla", "PLAN", "", "\0"] {
        assert_eq!(here(&task(nothing)), [0; 0], "{nothing:?}");
    }
    let listed = store.steps(one.id, &task("plan")).unwrap();
    assert_eq!(listed.iter().map(|stored| stored.step.number).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(listed[0].step.meta.context.parent_span.as_deref(), Some("plan"));
    let first = store.find(Some(one.id), &StepQuery { limit: Some(1), ..trace("t1") }).unwrap();
    let rest = store.find(Some(one.id), &StepQuery { from: first.next, ..trace("t1") }).unwrap();
    assert_eq!((first.total, rest.total, rest.steps[0].stored.step.number), (2, 2, 1));
    let unindexed = store.unindexed(10).unwrap();
    let texts = |stored: &StepRow| {
        let ids = stored.step.meta.context.ids().flatten().collect::<Vec<_>>().join("\n");
        Texts::from([(TextField::Summary, "word".to_owned()), (TextField::Id, ids)])
    };
    let documents = unindexed.into_iter().map(|stored| SearchDocument { texts: texts(&stored), stored });
    store.index(&documents.collect::<Vec<_>>()).unwrap();
    let search = |words: &str, among| {
        let request = SearchRequest::new(Pattern::words(words).unwrap(), 10);
        store.search(&SearchRequest { among, ..request }).unwrap().total
    };
    assert_eq!(
        (search("word", trace("t1")), search("word", span("s2")), search("t1", task("plan"))),
        (3, 1, 3)
    );
    let substring = SearchRequest::new(Pattern::substring("wor").unwrap(), 10);
    assert_eq!(store.search(&SearchRequest { among: span("s2"), ..substring }).unwrap().total, 1);
}

/// Steps are counted by agent and kind.
pub fn steps_are_counted_by_agent_and_kind(store: &dyn Store) {
    let (first_workspace, second_workspace) = two_workspaces(store);
    let counted = |workspace: WorkspaceId| -> Vec<(String, StepKind, u64, u64)> {
        let tally = store.tally(workspace).unwrap().into_iter();
        tally.map(|tally| (tally.agent, tally.kind, tally.steps, tally.failed)).collect()
    };
    assert_eq!(counted(first_workspace), [("sample".to_string(), StepKind::Checkpoint, 3, 0)]);
    let sample = Sample::new(3);
    let session = store
        .sessions(second_workspace)
        .unwrap()
        .into_iter()
        .find(|session| session.agent == "other")
        .unwrap();
    let facts = StepMeta { failed: true, ..StepMeta::default() };
    let failed =
        Step { kind: StepKind::ToolEnd, meta: facts, ..sample.step(session.id, Hash::from_bytes([1; 32])) };
    store.commit(None, &[append(failed)]).unwrap();
    let other_agent = || "other".to_string();
    assert_eq!(
        counted(second_workspace),
        [(other_agent(), StepKind::Checkpoint, 2, 0), (other_agent(), StepKind::ToolEnd, 1, 1)]
    );
}

/// Steps come in the order asked for, and a cursor goes through all of them, whatever is added meanwhile.
pub fn a_query_is_gone_through_page_by_page(store: &dyn Store) {
    let (first_workspace, second_workspace) = two_workspaces(store);
    let by = |by: SortKey, oldest_first: bool| StepQuery { by, oldest_first, ..StepQuery::default() };
    assert_eq!(numbers(store, Some(first_workspace), &by(SortKey::Time, true)), [2, 1, 3]);
    assert_eq!(numbers(store, Some(first_workspace), &by(SortKey::Duration, false)), [3, 1, 2]);
    assert_eq!(numbers(store, None, &by(SortKey::Commit, true)), [1, 1, 2, 2, 3]);
    let sample = Sample::new(2);
    for order in [SortKey::Commit, SortKey::Time, SortKey::Duration] {
        for oldest_first in [true, false] {
            for workspace in [None, Some(first_workspace), Some(second_workspace)] {
                let all_steps = store.find(workspace, &by(order, oldest_first)).unwrap();
                let mut query = StepQuery { limit: Some(2), ..by(order, oldest_first) };
                let mut numbers = Vec::new();
                loop {
                    let page = store.find(workspace, &query).unwrap();
                    assert!(page.total >= all_steps.total && page.steps.len() <= 2);
                    numbers.extend(page.steps);
                    let Some(next) = page.next else { break };
                    query.from = Some(next.to_string().parse().unwrap());
                    if order == SortKey::Commit && !oldest_first {
                        let session = store.sessions(first_workspace).unwrap()[0].id;
                        store
                            .commit(None, &[append(sample.step(session, Hash::from_bytes([9; 32])))])
                            .unwrap();
                    }
                }
                assert_eq!(numbers, all_steps.steps, "{order:?} {oldest_first} {workspace:?}");
            }
        }
    }
    let nothing = store.find(None, &StepQuery { limit: Some(0), ..StepQuery::default() }).unwrap();
    assert!(nothing.steps.is_empty() && nothing.next.is_none() && nothing.total >= 5);
}

/// A reader that follows the log gets every step once, in the order of the commits, even if others commit meanwhile.
pub fn commits_are_followed_without_a_gap(store: &dyn Store) {
    assert_eq!(store.newest_position().unwrap(), 0);
    assert!(store.follow(0, 10).unwrap().is_empty());
    let start = store.commit_seq().unwrap();
    let (first_workspace, second_workspace) = two_workspaces(store);
    assert_ne!(store.wait_for_commit(start, Duration::from_secs(60)).unwrap(), start, "there was one");
    let now = store.commit_seq().unwrap();
    assert_eq!(store.wait_for_commit(now, Duration::from_millis(1)).unwrap(), now, "there was none");
    let sample = Sample::new(2);
    let session = store.sessions(first_workspace).unwrap()[0].id;
    let (mut followed, mut position) = (Vec::new(), 0);
    loop {
        let batch = store.follow(position, 2).unwrap();
        assert!(batch.len() <= 2);
        let Some(last) = batch.last() else { break };
        assert!(batch.iter().all(|placed| placed.position > position));
        position = last.position;
        followed.extend(batch.into_iter().map(|placed| (placed.workspace, placed.stored.step.number)));
        if followed.len() < 8 {
            store.commit(None, &[append(sample.step(session, Hash::from_bytes([9; 32])))]).unwrap();
        }
    }
    let numbers = |workspace: WorkspaceId| -> Vec<u64> {
        followed
            .iter()
            .filter(|(step_workspace, _)| *step_workspace == workspace)
            .map(|(_, number)| *number)
            .collect()
    };
    let newest = store.steps(first_workspace, &StepQuery::default()).unwrap()[0].step.number;
    assert_eq!(numbers(first_workspace), (1..=newest).collect::<Vec<_>>());
    assert_eq!(numbers(second_workspace), [1, 2]);
    assert_eq!(store.newest_position().unwrap(), position);
    assert!(store.follow(u64::MAX, 10).unwrap().is_empty());
}
