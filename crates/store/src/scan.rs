//! Queries by a full scan of all steps, for stores without an index.

use std::collections::{BTreeMap, HashMap, HashSet};

use stepback_model::ids::WorkspaceId;
use stepback_model::record::{Session, WorkspaceRecord};

use crate::port::{StepAt, StepCount, StepPage, StepQuery, StepRow};
use crate::query::QueryCursor;

/// The rows to scan.
#[derive(Clone, Copy, Debug)]
pub struct ScanRows<'l> {
    /// All workspaces.
    pub workspaces: &'l [WorkspaceRecord],
    /// All sessions.
    pub sessions: &'l [Session],
    /// Their steps, in commit order.
    pub steps: &'l [StepRow],
}

/// The steps that match a query, in its order; its cursor and limit are ignored.
pub(crate) fn matching_steps<'l>(
    log: ScanRows<'l>,
    workspace: Option<WorkspaceId>,
    query: &StepQuery,
) -> Vec<(QueryCursor, WorkspaceId, &'l StepRow)> {
    let sessions: HashMap<_, &Session> = log.sessions.iter().map(|session| (session.id, session)).collect();
    let forgotten: HashSet<WorkspaceId> =
        log.workspaces.iter().filter(|known| known.is_forgotten()).map(|known| known.id).collect();
    let mut found: Vec<_> = (log.steps.iter().zip(1..))
        .filter_map(|(stored, position)| {
            let session = sessions.get(&stored.step.session)?;
            let is_there = match workspace {
                Some(workspace) => workspace == session.workspace,
                None => !forgotten.contains(&session.workspace),
            };
            let wanted = is_there && query.matches(stored, &session.agent);
            wanted.then(|| (query.place(stored, position), session.workspace, stored))
        })
        .collect();
    found.sort_by_key(|(place, _, _)| *place);
    if !query.oldest_first {
        found.reverse();
    }
    found
}

/// One page of the steps that match a query.
pub fn page(log: ScanRows<'_>, workspace: Option<WorkspaceId>, query: &StepQuery) -> StepPage {
    let mut found = matching_steps(log, workspace, query);
    let total = found.len() as u64;
    if let Some(from) = query.from {
        found.retain(|(place, _, _)| if query.oldest_first { *place > from } else { *place < from });
    }
    let most = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let next = match most {
        0 => None,
        _ if found.len() > most => Some(found[most - 1].0),
        _ => None,
    };
    found.truncate(most);
    let placed = |(place, workspace, stored): (QueryCursor, WorkspaceId, &StepRow)| StepAt {
        workspace,
        position: place.position,
        stored: stored.clone(),
    };
    StepPage { steps: found.into_iter().map(placed).collect(), total, at_least: false, next }
}

/// Step counts of a workspace by agent and kind.
pub fn tally(log: ScanRows<'_>, workspace: WorkspaceId) -> Vec<StepCount> {
    let mut counted: BTreeMap<(&str, &str), StepCount> = BTreeMap::new();
    for session in log.sessions.iter().filter(|session| session.workspace == workspace) {
        let own = |stored: &&StepRow| stored.step.session == session.id;
        for stored in log.steps.iter().filter(own) {
            let step = &stored.step;
            let (agent, kind) = (session.agent.as_str(), step.kind);
            let tally = counted.entry((agent, kind.as_str())).or_insert_with(|| StepCount {
                agent: agent.to_string(),
                kind,
                steps: 0,
                failed: 0,
            });
            tally.steps += 1;
            tally.failed += u64::from(step.meta.failed);
        }
    }
    counted.into_values().collect()
}
