//! All sessions at a glance: what they cost, which tools are slow, what fails.
//!
//! A dashboard is added up from [`summary`]s, one for each session, which are kept: only sessions with new steps are read again. So a
//! store with a million steps is answered from a few numbers per session, hour and tool.

mod document;
mod kept;
pub mod latency;
pub mod summary;

use std::collections::{HashMap, HashSet};

use stepback_engine::branch::MAIN;
use stepback_engine::{Engine, Workspace};
use stepback_llm_wire::prices::Prices;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::record::WorkspaceRecord;
use stepback_model::time::Timestamp;
use stepback_store::port::StepQuery;

pub use self::document::dashboard_document;
use self::kept::KeptSummaries;
use self::summary::SessionSummary;
use crate::error::AnalysisError;
use crate::load::kept::{WorkspaceCache, newest_number};
use crate::load::{FactsQuery, load_facts};
use crate::prices::{fingerprint_prices, load_prices};

/// What a dashboard is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DashboardRequest {
    /// Only sessions of this workspace, and their reruns.
    pub workspace: Option<WorkspaceId>,
    /// Only what was done since this time; the whole hour counts.
    pub since: Option<Timestamp>,
    /// Whether reruns count.
    pub reruns: bool,
}

/// A session with its place.
#[derive(Clone, PartialEq, Debug)]
pub struct PlacedSummary {
    /// The workspace; of a rerun, the one whose session it reruns, if that is known.
    pub workspace: WorkspaceId,
    /// The branch.
    pub branch: String,
    /// The numbers.
    pub summary: SessionSummary,
}

/// Loads the summaries of the sessions that a dashboard is about.
pub fn load_summaries(
    engine: &Engine,
    request: DashboardRequest,
) -> Result<Vec<PlacedSummary>, AnalysisError> {
    let prices = load_prices(engine.store().local_dir())?;
    let mut all = engine.store.workspaces()?;
    all.sort_by_key(WorkspaceRecord::is_rerun);
    let reruns = if request.reruns { rerun_places(engine)? } else { HashMap::new() };
    let mut keeper = SummaryKeeper::new(engine, &prices, &all);
    let mut placed = Vec::new();
    for record in &all {
        let is_asked = request.workspace.is_none_or(|wanted| wanted == record.id);
        if record.is_rerun() {
            if !request.reruns {
                continue;
            }
            for summary in keeper.refresh(record)? {
                let place = summary.session.and_then(|session| reruns.get(&session));
                let workspace = place.map_or(record.id, |(workspace, _)| *workspace);
                if request.workspace.is_none_or(|wanted| wanted == workspace) {
                    let branch = place.map_or_else(|| MAIN.to_owned(), |(_, branch)| branch.clone());
                    placed.push(PlacedSummary { workspace, branch, summary });
                }
            }
        } else if is_asked || request.reruns {
            // What a rerun repeats is known only when the sessions are.
            let summaries = keeper.refresh(record)?;
            if is_asked {
                placed.extend(place_on_branches(engine, record, summaries)?);
            }
        }
    }
    Ok(placed)
}

/// The workspace and the branch that each rerun belongs to.
fn rerun_places(engine: &Engine) -> Result<HashMap<SessionId, (WorkspaceId, String)>, AnalysisError> {
    let mut places = HashMap::new();
    for workspace in engine.all_workspaces()?.iter().filter(|workspace| !workspace.record.is_rerun()) {
        let place = |branch: String| (workspace.record.id, branch);
        let reruns = workspace.reruns()?.into_iter();
        places.extend(reruns.filter_map(|rerun| Some((rerun.session?, place(rerun.branch)))));
    }
    Ok(places)
}

/// Finds the branch of each session: that of its last step.
fn place_on_branches(
    engine: &Engine,
    record: &WorkspaceRecord,
    summaries: Vec<SessionSummary>,
) -> Result<Vec<PlacedSummary>, AnalysisError> {
    let place =
        |branch: &str, summary| PlacedSummary { workspace: record.id, branch: branch.to_owned(), summary };
    let workspaces = engine.all_workspaces()?;
    let known: Option<&Workspace> = workspaces.iter().find(|workspace| workspace.record.id == record.id);
    let Some(lines) = known.map(|workspace| workspace.load_lines()).transpose()? else {
        return Ok(summaries.into_iter().map(|summary| place(MAIN, summary)).collect());
    };
    let first = lines.branches.first().map_or(MAIN, |branch| branch.name.as_str());
    if lines.branches.len() <= 1 {
        return Ok(summaries.into_iter().map(|summary| place(first, summary)).collect());
    }
    let mut placed = Vec::with_capacity(summaries.len());
    for summary in summaries {
        let query = StepQuery { session: summary.session, limit: Some(1), ..StepQuery::default() };
        let last = engine.store.steps(record.id, &query)?;
        let branch = last.first().and_then(|stored| lines.branches.get(lines.branch_of(stored)));
        placed.push(place(branch.map_or(first, |branch| branch.name.as_str()), summary));
    }
    Ok(placed)
}

/// Reads, renews and keeps summaries.
struct SummaryKeeper<'a> {
    engine: &'a Engine,
    prices: &'a Prices,
    kept: HashMap<WorkspaceId, KeptSummaries>,
    fingerprint: u64,
}

impl<'a> SummaryKeeper<'a> {
    fn new(engine: &'a Engine, prices: &'a Prices, workspaces: &[WorkspaceRecord]) -> Self {
        let (store, fingerprint) = (engine.store(), fingerprint_prices(engine.store().local_dir()));
        let read = |record: &WorkspaceRecord| {
            let cache = WorkspaceCache::new(store.local_dir(), record.id);
            Some((record.id, KeptSummaries::read(&cache, store, record.id, fingerprint)?))
        };
        Self { engine, prices, kept: workspaces.iter().filter_map(read).collect(), fingerprint }
    }

    /// Returns the summaries of the sessions of a workspace. Those with new steps are computed anew.
    fn refresh(&mut self, record: &WorkspaceRecord) -> Result<Vec<SessionSummary>, AnalysisError> {
        let store = self.engine.store();
        let newest = newest_number(store, record.id)?;
        let kept = self.kept.remove(&record.id);
        if let Some(kept) = kept.as_ref().filter(|kept| kept.until == newest) {
            let sessions = kept.sessions.values().cloned().collect();
            self.kept.insert(record.id, kept.clone());
            return Ok(sessions);
        }
        let mut kept = kept.unwrap_or_default();
        let query = FactsQuery { workspace: Some(record.id), reruns: true, ..FactsQuery::default() };
        let changed = if kept.until == 0 {
            load_facts(self.engine, self.prices, &query)?
        } else {
            let newer = StepQuery { after: Some(kept.until), oldest_first: true, ..StepQuery::default() };
            let rows = store.steps(record.id, &newer)?;
            let sessions: HashSet<SessionId> = rows.iter().map(|stored| stored.step.session).collect();
            let mut changed = Vec::with_capacity(sessions.len());
            for session in sessions {
                let query = FactsQuery { session: Some(session), ..query.clone() };
                changed.extend(load_facts(self.engine, self.prices, &query)?);
            }
            changed
        };
        for facts in &changed {
            if let Some(session) = facts.session {
                kept.sessions.remove(&session);
            }
        }
        let others = self.kept.values().chain([&kept]).flat_map(|kept| kept.sessions.values());
        let mut known: HashSet<u64> = others.flat_map(|summary| summary.identities.iter().copied()).collect();
        for facts in &changed {
            if let Some(session) =
                facts.session.filter(|_| !facts.steps.is_empty() || !facts.model_calls.is_empty())
            {
                let summary = SessionSummary::of(facts, self.prices, &mut known);
                kept.sessions.insert(session, summary);
            }
        }
        kept.until = newest;
        kept.last = store.step_numbered(record.id, newest)?.map(|stored| stored.step.id);
        kept.prices = self.fingerprint;
        kept.write(&WorkspaceCache::new(store.local_dir(), record.id));
        let sessions = kept.sessions.values().cloned().collect();
        self.kept.insert(record.id, kept);
        Ok(sessions)
    }
}
