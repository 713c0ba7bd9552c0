//! Reads the facts of sessions from a store, and keeps them.
//!
//! The steps of a session are never changed or removed, so what was read once is kept beside the store ([`kept`]) and only what
//! came since is read again. What is kept is only a cache: if it is lost, damaged, of another format or not writable, the facts
//! are read from the steps. Prices are applied after that, because the user's price table may change.
//!
//! - `details`: one step's detail as numbers. `request_parts`: what a recorded request was made of.
//! - `builder`: the facts of a session, step by step. `conversation`: the answers that only the conversation has.
//! - [`kept`], `encoding`: the files.

mod builder;
mod conversation;
mod details;
mod encoding;
pub mod kept;
mod request_parts;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use stepback_engine::{Engine, session};
use stepback_llm_wire::prices::Prices;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::{Session, WorkspaceRecord};
use stepback_model::time::Timestamp;
use stepback_store::Store;
use stepback_store::port::{StepQuery, StepRow};

use self::builder::FactsBuilder;
use self::kept::{KeptFacts, KeptIndex, WorkspaceCache, newest_number};
use crate::error::AnalysisError;
use crate::facts::SessionFacts;

/// Which sessions' facts to load. Sessions of people have none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FactsQuery {
    /// Only sessions of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only this session, whether it is a rerun or not.
    pub session: Option<SessionId>,
    /// Only sessions that were active at this time or later. Their facts are complete, with what is older.
    pub since: Option<Timestamp>,
    /// Also sessions of reruns.
    pub reruns: bool,
}

/// Loads the facts of the sessions that match `query`, by workspace and oldest first.
pub fn load_facts(
    engine: &Engine,
    prices: &Prices,
    query: &FactsQuery,
) -> Result<Vec<SessionFacts>, AnalysisError> {
    let mut all = Vec::new();
    for workspace in matching_workspaces(engine, query)? {
        all.extend(load_workspace(engine, &workspace, query)?);
    }
    for facts in &mut all {
        apply_prices(facts, prices);
    }
    Ok(all)
}

/// Loads the facts of one session.
pub fn load_session_facts(
    engine: &Engine,
    prices: &Prices,
    session: &Session,
) -> Result<SessionFacts, AnalysisError> {
    let query =
        FactsQuery { workspace: Some(session.workspace), session: Some(session.id), ..FactsQuery::default() };
    Ok(load_facts(engine, prices, &query)?.pop().unwrap_or_default())
}

fn matching_workspaces(engine: &Engine, query: &FactsQuery) -> Result<Vec<WorkspaceRecord>, AnalysisError> {
    let wanted = match (query.session, query.workspace) {
        (Some(session), None) => match engine.store.session(session)? {
            Some(session) => Some(session.workspace),
            None => return Ok(Vec::new()),
        },
        (_, workspace) => workspace,
    };
    let mut workspaces = engine.store.workspaces()?;
    workspaces.retain(|workspace| match wanted {
        Some(wanted) => workspace.id == wanted,
        None => query.reruns || !workspace.is_rerun(),
    });
    Ok(workspaces)
}

fn load_workspace(
    engine: &Engine,
    workspace: &WorkspaceRecord,
    query: &FactsQuery,
) -> Result<Vec<SessionFacts>, AnalysisError> {
    let store = engine.store();
    let cache = WorkspaceCache::new(store.local_dir(), workspace.id);
    if let Some(id) = query.session {
        let Some(session) = store.session(id)?.filter(|session| session.workspace == workspace.id) else {
            return Ok(Vec::new());
        };
        let loader = SessionLoader { store, workspace, cache: &cache, threads: engine.threads };
        let kept = cache.read(id).filter(|kept| kept.continues_in(store));
        return Ok(vec![loader.load(&session, kept, None)?.facts]);
    }
    let newest = newest_number(store, workspace.id)?;
    let index = cache.read_index().filter(|index| index.continues_in(store, workspace.id));
    let changed = match &index {
        Some(index) if index.until < newest => {
            let query = StepQuery { after: Some(index.until), oldest_first: true, ..StepQuery::default() };
            let rows = store.steps(workspace.id, &query)?;
            rows.iter().map(|stored| stored.step.session).collect()
        }
        _ => HashSet::new(),
    };
    let is_wanted =
        |session: &Session| query.since.is_none_or(|since| session::last_event_time(session) >= since);
    let mut sessions = store.sessions(workspace.id)?;
    // All that changed are loaded, so that the index can go on.
    sessions
        .retain(|session| is_of_an_agent(session) && (is_wanted(session) || changed.contains(&session.id)));
    let work = WorkspaceLoad { store, workspace, cache: &cache, index: index.as_ref(), changed: &changed };
    let loaded = work.load_all(&sessions, engine.threads)?;
    let is_written = loaded.iter().all(|loaded| loaded.is_kept);
    let is_new = index.as_ref().is_none_or(|index| index.until != newest || !index.has_all(&loaded));
    // Without an index, only a load of all sessions can begin one.
    if is_written && is_new && (index.is_some() || query.since.is_none()) {
        let known = index.map(|index| index.sessions).unwrap_or_default();
        cache.write_index(&KeptIndex::of(newest, store, workspace.id, known, &loaded)?);
    }
    let wanted: HashSet<SessionId> =
        sessions.iter().filter(|session| is_wanted(session)).map(|session| session.id).collect();
    let facts = loaded.into_iter().map(|loaded| loaded.facts);
    Ok(facts.filter(|facts| facts.session.is_some_and(|session| wanted.contains(&session))).collect())
}

/// Whether a session is one of an agent; neither a person's nor one that only has an agent's gaps.
fn is_of_an_agent(session: &Session) -> bool {
    session.agent != Session::PERSON && session.info.external.as_deref() != Some(Session::GAPS)
}

/// The facts of a session, and whether the cache has them.
pub(crate) struct LoadedSession {
    facts: SessionFacts,
    is_kept: bool,
}

/// The sessions of one workspace, loaded on several threads.
struct WorkspaceLoad<'a> {
    store: &'a dyn Store,
    workspace: &'a WorkspaceRecord,
    cache: &'a WorkspaceCache,
    index: Option<&'a KeptIndex>,
    /// The sessions that have steps which the index does not know.
    changed: &'a HashSet<SessionId>,
}

impl WorkspaceLoad<'_> {
    fn load_all(&self, sessions: &[Session], threads: usize) -> Result<Vec<LoadedSession>, AnalysisError> {
        let outer = threads.min(sessions.len()).max(1);
        let inner = (threads / outer).max(1);
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<Option<Result<LoadedSession, AnalysisError>>>> =
            Mutex::new(sessions.iter().map(|_| None).collect());
        std::thread::scope(|scope| {
            for _ in 0..outer {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(session) = sessions.get(at) else { return };
                        let loaded = self.load_one(session, inner);
                        // No code panics while holding this lock.
                        results.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[at] = Some(loaded);
                    }
                });
            }
        });
        let results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        results.into_iter().flatten().collect()
    }

    fn load_one(&self, session: &Session, threads: usize) -> Result<LoadedSession, AnalysisError> {
        let Self { store, workspace, cache, .. } = *self;
        let loader = SessionLoader { store, workspace, cache, threads };
        let Some(index) = self.index else {
            let kept = cache.read(session.id).filter(|kept| kept.continues_in(store));
            return loader.load(session, kept, None);
        };
        let kept = cache.read(session.id).filter(|kept| index.allows(session.id, kept, store));
        let is_unchanged = !self.changed.contains(&session.id);
        loader.load(session, kept, is_unchanged.then_some(Vec::new()))
    }
}

/// Loads one session.
struct SessionLoader<'a> {
    store: &'a dyn Store,
    workspace: &'a WorkspaceRecord,
    cache: &'a WorkspaceCache,
    threads: usize,
}

impl SessionLoader<'_> {
    /// Continues `kept` with the steps that came since: `newer`, or those that the store has.
    fn load(
        &self,
        session: &Session,
        kept: Option<KeptFacts>,
        newer: Option<Vec<StepRow>>,
    ) -> Result<LoadedSession, AnalysisError> {
        let was_kept = kept.is_some();
        let kept = kept.unwrap_or_default();
        let last = kept.facts.steps.last().map_or(0, |step| step.number);
        let newer = match newer.filter(|_| was_kept) {
            Some(newer) => newer,
            None => self.steps_after(session.id, last)?,
        };
        if was_kept && newer.is_empty() && kept.tip == session.info.tip {
            return Ok(LoadedSession { facts: self.with_session(session, kept.facts), is_kept: true });
        }
        let mut builder = FactsBuilder::new(kept.facts);
        let newer = match builder.reread_from() {
            // Steps at the end depend on those that follow: they are read again.
            Some(number) => self.steps_after(session.id, number.saturating_sub(1))?,
            None => newer,
        };
        let details = details::read_details(self.store, &newer, self.threads);
        for (stored, detail) in newer.iter().zip(details) {
            builder.add_step(stored, detail);
        }
        let conversation = conversation::read_answers(self.store, session, &newer)?;
        let facts = builder.finish(conversation);
        let kept = KeptFacts { tip: session.info.tip, facts };
        let is_kept = self.cache.write(session.id, &kept);
        Ok(LoadedSession { facts: self.with_session(session, kept.facts), is_kept })
    }

    fn steps_after(&self, session: SessionId, number: u64) -> Result<Vec<StepRow>, AnalysisError> {
        let query = StepQuery {
            session: Some(session),
            after: Some(number),
            oldest_first: true,
            ..StepQuery::default()
        };
        Ok(self.store.steps(self.workspace.id, &query)?)
    }

    /// Adds what is known of the session itself.
    fn with_session(&self, session: &Session, facts: SessionFacts) -> SessionFacts {
        SessionFacts {
            workspace: Some(session.workspace),
            session: Some(session.id),
            agent: session.agent.clone(),
            is_rerun: self.workspace.is_rerun(),
            is_imported: session.info.imported,
            forked_from: session.info.forked_from.map(|(session, _)| session),
            started_at: session.started_at,
            ..facts
        }
    }
}

/// Computes the cost of calls for which none was recorded, if their model has a price.
fn apply_prices(facts: &mut SessionFacts, prices: &Prices) {
    let mut by_model: HashMap<u32, bool> = HashMap::new();
    for call in &mut facts.model_calls {
        let (None, false, Some(tokens), Some(model)) = (call.cost, call.replayed, call.tokens, call.model)
        else {
            continue;
        };
        let Some(name) = facts.names.get(model as usize) else { continue };
        if by_model.get(&model) == Some(&false) {
            continue;
        }
        call.cost = prices.cost(name, &tokens);
        call.priced = call.cost.is_some();
        by_model.insert(model, call.priced);
    }
}
