//! Clauses about search: results, highlights, limits, and updates of the index.

use stepback_model::hash::Hash;
use stepback_model::ids::{OpId, StepId, WorkspaceId};
use stepback_model::record::{Annotation, Step, StepKind};
use stepback_model::search::{Pattern, TextField, Texts};
use stepback_store::port::{
    Mutation, SearchDocument, SearchRequest, SearchResult, SortKey, StepQuery, Store,
};

use super::find::two_workspaces;
use crate::sample::{Sample, append};

/// Indexes a text for every step that is not indexed yet.
fn tell(store: &dyn Store, text: impl Fn(&Step) -> String) -> usize {
    let steps = store.unindexed(1000).unwrap();
    let documents: Vec<SearchDocument> = (steps.into_iter())
        .map(|stored| {
            let mut texts = Texts::from([(TextField::Output, text(&stored.step))]);
            if let Some(label) = &stored.annotation.label {
                texts.insert(TextField::Annotation, label.clone());
            }
            if stored.purged {
                texts.clear();
            }
            SearchDocument { stored, texts }
        })
        .collect();
    store.index(&documents).unwrap();
    documents.len()
}

fn look(store: &dyn Store, text: &str) -> SearchResult {
    store.search(&SearchRequest::new(Pattern::words(text).unwrap(), 100)).unwrap()
}

fn found(found: &SearchResult) -> Vec<u64> {
    found.hits.iter().map(|hit| hit.stored.step.number).collect()
}

/// Appends one step for each summary.
fn steps(store: &dyn Store, summaries: &[&str]) -> (WorkspaceId, Vec<StepId>) {
    let sample = Sample::new(1);
    let (workspace, session) = sample.begin(store, b"/w");
    let step = |summary: &&str| Step {
        summary: summary.to_string(),
        ..sample.step(session.id, Hash::from_bytes([7; 32]))
    };
    let steps: Vec<Step> = summaries.iter().map(step).collect();
    let mutations: Vec<Mutation> = steps.iter().cloned().map(append).collect();
    store.commit(None, &mutations).unwrap();
    (workspace.id, steps.iter().map(|step| step.id).collect())
}

/// Words, phrases, prefixes and exclusions, best first, with the matches marked.
pub fn words_are_found_and_marked(store: &dyn Store) {
    steps(
        store,
        &[
            "the build failed in src/parser.rs",
            "build, build and build again",
            "nothing to see here at all, but it goes on for quite a while; build",
            "Größe ändern: NOT AND OR \"quoted\" col:x ^y {z}",
        ],
    );
    assert_eq!(look(store, "build").total, 0, "nothing was told yet");
    assert_eq!(tell(store, |step| step.summary.clone()), 4);
    assert_eq!(found(&look(store, "build")), [2, 1, 3], "best first");
    assert_eq!(found(&look(store, "BUILD failed")), [1]);
    assert_eq!(found(&look(store, "\"build and build\"")), [2]);
    assert_eq!(found(&look(store, "\"failed build\"")), [0; 0]);
    assert_eq!(found(&look(store, "parser.rs")), [1]);
    assert_eq!(found(&look(store, "pars*")), [1]);
    assert_eq!(found(&look(store, "pars")), [0; 0]);
    assert_eq!(found(&look(store, "build -failed -again")), [3]);
    assert_eq!(found(&look(store, "größe")), [4]);
    assert_eq!(found(&look(store, "not and or col:x")), [4]);
    let hits = look(store, "failed src").hits;
    let [snippet] = &hits[0].snippets[..] else { panic!("{hits:?}") };
    let marked: Vec<&str> = snippet.marks.iter().map(|(start, end)| &snippet.text[*start..*end]).collect();
    assert_eq!((snippet.field, marked), (TextField::Output, vec!["failed", "src"]));
}

/// A substring is found anywhere in a text, newest first.
pub fn a_substring_is_found_anywhere(store: &dyn Store) {
    steps(store, &["let x = foo_bar(&mut y)?;", "FOO_BAR", "nothing", "ÄÖÜ straße"]);
    tell(store, |step| step.summary.clone());
    let look =
        |text: &str| store.search(&SearchRequest::new(Pattern::substring(text).unwrap(), 100)).unwrap();
    assert_eq!(found(&look("oo_ba")), [2, 1]);
    assert_eq!(found(&look("(&mut y)?")), [1]);
    assert_eq!(found(&look("x")), [1]);
    assert_eq!(found(&look("öü S")), [4]);
    assert_eq!(found(&look("%")), [0; 0]);
    assert_eq!(found(&look("_ar\"' OR 1=1 --")), [0; 0]);
    assert_eq!(found(&look("\0")), [0; 0]);
}

/// A search is limited to the steps of a query, and can be read in pages.
pub fn a_search_is_limited_and_goes_on(store: &dyn Store) {
    let (first_workspace, second_workspace) = two_workspaces(store);
    tell(store, |_| "same words everywhere".into());
    let everywhere = SearchRequest::new(Pattern::words("words").unwrap(), 100);
    assert_eq!(store.search(&everywhere).unwrap().total, 5);
    let in_first = SearchRequest { workspace: Some(first_workspace), ..everywhere.clone() };
    assert_eq!(found(&store.search(&in_first).unwrap()), [3, 2, 1], "equally good: newest first");
    let slow = StepQuery { min_duration: Some(70), ..StepQuery::default() };
    let in_second = SearchRequest { workspace: Some(second_workspace), among: slow, ..everywhere.clone() };
    assert_eq!(found(&store.search(&in_second).unwrap()), [1]);
    let kinds = StepQuery { kinds: vec![StepKind::Error], ..StepQuery::default() };
    assert_eq!(store.search(&SearchRequest { among: kinds, ..everywhere.clone() }).unwrap().total, 0);
    let agent = StepQuery { agent: Some("other".into()), failed: Some(false), ..StepQuery::default() };
    assert_eq!(store.search(&SearchRequest { among: agent, ..everywhere.clone() }).unwrap().total, 2);
    let by_time = StepQuery { by: SortKey::Time, oldest_first: true, ..StepQuery::default() };
    let oldest = SearchRequest {
        workspace: Some(first_workspace),
        among: by_time,
        ranked: false,
        ..everywhere.clone()
    };
    assert_eq!(found(&store.search(&oldest).unwrap()), [2, 1, 3]);
    for pattern in [Pattern::words("same").unwrap(), Pattern::substring("ME W").unwrap()] {
        let all_hits = store.search(&SearchRequest::new(pattern.clone(), 100)).unwrap();
        let mut part = SearchRequest::new(pattern, 2);
        let mut hits = Vec::new();
        loop {
            let page_found = store.search(&part).unwrap();
            assert_eq!(page_found.total, 5);
            hits.extend(page_found.hits);
            let Some(next) = page_found.next else { break };
            part.skip = next;
        }
        assert_eq!(hits, all_hits.hits);
    }
}

/// A step is found by an annotation that was added later, and no longer by one that was removed.
pub fn the_index_follows_the_log(store: &dyn Store) {
    let (_, ids) = steps(store, &["first", "second", "third"]);
    assert_eq!(store.unindexed(2).unwrap().len(), 2);
    assert_eq!(tell(store, |step| step.summary.clone()), 3);
    assert_eq!(tell(store, |step| step.summary.clone()), 0);
    let label = |text: &str| Annotation::labelled(text);
    let annotate = |step: StepId, annotation: Annotation| {
        store.commit(None, &[Mutation::Annotate { step, annotation }]).unwrap();
    };
    annotate(ids[0], label("golden"));
    assert_eq!(tell(store, |step| step.summary.clone()), 1);
    assert_eq!(found(&look(store, "golden first")), [1]);
    annotate(ids[0], label("silver"));
    assert_eq!(tell(store, |step| step.summary.clone()), 1);
    assert_eq!((look(store, "golden").total, look(store, "silver").total), (0, 1));
    annotate(ids[0], Annotation::default());
    assert_eq!(tell(store, |step| step.summary.clone()), 1);
    assert_eq!((look(store, "silver").total, look(store, "first").total), (0, 1));
    let by = Some(OpId::from_bytes([1; 16]));
    let hide = Mutation::SetHidden { steps: vec![ids[1]], by };
    store.commit(None, &[hide, Mutation::Purge { steps: vec![ids[1], ids[2]] }]).unwrap();
    assert_eq!(tell(store, |step| step.summary.clone()), 1);
    assert_eq!((look(store, "second").total, look(store, "third").total), (0, 1));
    store.forget_index().unwrap();
    assert_eq!(look(store, "third").total, 0);
    assert_eq!(tell(store, |step| step.summary.clone()), 3);
    assert_eq!(found(&look(store, "third")), [3]);
}
