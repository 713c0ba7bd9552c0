//! The timeline of a session: a summary, and its steps in order.

use std::collections::HashMap;

use axum::extract::State;
use stepback_engine::branch_graph::BranchLines;
use stepback_history::timeline::{TimelineCursor, is_error};
use stepback_store::port::{StepQuery as Steps, StepRow};

use crate::documents::StepDocument;
use crate::documents::timeline::{
    LaneDocument, LinesDocument, StretchDocument, SummaryDocument, TimelineDocument, TimelineStepDocument,
    TipDocument,
};
use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The timeline of a session: a summary, and its steps in order, each on its lane.
#[utoipa::path(get, path = "/sessions/{session}/timeline", tag = "steps",
    params(("session" = String, Path, description = "The session"), Paging),
    responses((status = 200, body = TimelineDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(work): State<AppState>,
    Path(id): Path<String>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<TimelineDocument>, Problem> {
    let limit = paging.limit()?;
    work.run(move |engine| {
        let (workspace, session) = state::session(engine, &id)?;
        let about = ("timeline", session.id.to_string());
        let after = paging.position(&about)?.unwrap_or(0);
        let query = Steps { session: Some(session.id), oldest_first: true, ..Steps::default() };
        let mut steps = engine.store.steps(workspace.record.id, &query)?;
        steps.retain(|stored| stored.hidden_by.is_none());
        let cursor = TimelineCursor::new(steps);
        let lines = workspace.lines_of(session.id)?;
        let lanes = Lanes::of(cursor.steps(), &lines);
        let kept = cursor.steps().iter().filter(|stored| stored.is_checkpoint()).count();
        let number = |stored: &StepRow| stored.step.number;
        let wanted = cursor.steps().iter().filter(|stored| number(stored) > after);
        let most = usize::try_from(limit + 1).unwrap_or(usize::MAX);
        let shown = pagination::page(
            wanted.take(most).collect(),
            limit,
            &about,
            |stored| number(stored),
            |stored| {
                let own = stored.step.number;
                TimelineStepDocument {
                    step: StepDocument::of(stored),
                    lane: lanes.place(stored),
                    since_start_us: u64::try_from(cursor.since_start(stored).as_micros()).unwrap_or(u64::MAX),
                    rolled_back: lines.is_rolled_back(stored),
                    branches: (lines.branches.iter())
                        .filter(|line| line.tip == own)
                        .map(|line| line.name.clone())
                        .collect(),
                }
            },
        );
        Ok(Json(TimelineDocument {
            session: session.id.to_string(),
            summary: SummaryDocument::of(&cursor.summary(), kept as u64),
            lanes: lanes.documents,
            branches: TipDocument::all(&lines.branches),
            items: shown.items,
            next_cursor: shown.next_cursor,
        }))
    })
    .await
}

/// The lanes of a session: branch by branch, on each the main agent first, then sub-agents as they appear.
pub(super) struct Lanes<'l> {
    pub(super) documents: Vec<LaneDocument>,
    lines: &'l BranchLines,
    /// For every branch, the lanes of the agents that worked on it.
    places: Vec<HashMap<Option<String>, usize>>,
}

impl<'l> Lanes<'l> {
    pub(super) fn of(steps: &[StepRow], lines: &'l BranchLines) -> Self {
        let branches = lines.branches.len().max(1);
        let mut found: Vec<Vec<LaneDocument>> = vec![Vec::new(); branches];
        let mut places: Vec<HashMap<Option<String>, usize>> = vec![HashMap::new(); branches];
        for stored in steps {
            let (step, branch) = (&stored.step, lines.branch_of(stored));
            let (lanes, places) = (&mut found[branch], &mut places[branch]);
            // The main agent comes first, even where a sub-agent worked before it.
            for worker in [&None, &step.meta.worker] {
                if !places.contains_key(worker) {
                    places.insert(worker.clone(), lanes.len());
                    let branch = lines.branches.get(branch).map(|line| line.name.clone());
                    lanes.push(LaneDocument { branch, worker: worker.clone(), steps: 0, errors: 0 });
                }
            }
            let lane = &mut lanes[places[&step.meta.worker]];
            lane.steps += 1;
            lane.errors += u64::from(is_error(step));
        }
        let mut before = 0;
        for (lanes, places) in found.iter().zip(&mut places) {
            places.values_mut().for_each(|place| *place += before);
            before += lanes.len();
        }
        let mut documents: Vec<LaneDocument> = found.into_iter().flatten().collect();
        if documents.is_empty() {
            let branch = lines.branches.first().map(|line| line.name.clone());
            documents.push(LaneDocument { branch, worker: None, steps: 0, errors: 0 });
        }
        Self { documents, lines, places }
    }

    pub(super) fn place(&self, stored: &StepRow) -> u64 {
        let places = self.places.get(self.lines.branch_of(stored));
        let place = places.and_then(|places| places.get(&stored.step.meta.worker));
        place.map_or(0, |place| *place as u64)
    }
}

/// The branches that a session was on, and which of its steps were rolled back by rewinds.
#[utoipa::path(get, path = "/sessions/{session}/lines", tag = "steps",
    params(("session" = String, Path, description = "The session")),
    responses((status = 200, body = LinesDocument), (status = "default", body = Problem)))]
pub async fn lines(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<LinesDocument>, Problem> {
    work.run(move |engine| {
        let (workspace, session) = state::session(engine, &id)?;
        let query =
            Steps { session: Some(session.id), oldest_first: true, hidden: Some(false), ..Steps::default() };
        let lines = workspace.lines_of(session.id)?;
        let all = |query: &Steps| engine.store.steps(workspace.record.id, query);
        // With one branch and nothing rolled back, the answer does not require reading all steps.
        let steps = match lines.is_one() {
            true => {
                let mut ends = all(&Steps { limit: Some(1), ..query.clone() })?;
                ends.extend(all(&Steps { limit: Some(1), oldest_first: false, ..query })?);
                ends
            }
            false => all(&query)?,
        };
        let mut stretches: Vec<StretchDocument> = Vec::new();
        for stored in &steps {
            let number = stored.step.number;
            let branch = lines.branches.get(lines.branch_of(stored)).map(|line| line.name.as_str());
            let rolled_back = lines.is_rolled_back(stored);
            match stretches.last_mut() {
                Some(last) if last.branch.as_deref() == branch && last.rolled_back == rolled_back => {
                    last.last = number;
                }
                _ => stretches.push(StretchDocument {
                    first: number,
                    last: number,
                    branch: branch.map(str::to_owned),
                    rolled_back,
                }),
            }
        }
        Ok(Json(LinesDocument { branches: TipDocument::all(&lines.branches), stretches }))
    })
    .await
}
