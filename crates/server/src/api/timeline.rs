//! A session at a glance, and step by step.

use std::collections::HashMap;

use axum::extract::State;
use stepback_engine::timeline::{Cursor, is_error};
use stepback_store::port::{Query as Steps, StoredCheckpoint};

use crate::documents::StepDocument;
use crate::documents::timeline::{
    LaneDocument, SummaryDocument, TimelineDocument, TimelineStepDocument, TipDocument,
};
use crate::extract::{Json, Path, Query};
use crate::page::{self, Paging};
use crate::problem::Problem;
use crate::work::{self, Work};

/// A session as something one can go through: what it is about, and its steps in order, each on its lane.
#[utoipa::path(get, path = "/sessions/{session}/timeline", tag = "steps",
    params(("session" = String, Path, description = "The session"), Paging),
    responses((status = 200, body = TimelineDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(work): State<Work>,
    Path(id): Path<String>,
    Query(paging): Query<Paging>,
) -> Result<Json<TimelineDocument>, Problem> {
    let limit = paging.limit()?;
    work.run(move |engine| {
        let (workspace, session) = work::session(engine, &id)?;
        let about = ("timeline", session.id.to_string());
        let after = paging.position(&about)?.unwrap_or(0);
        let query = Steps { session: Some(session.id), oldest_first: true, ..Steps::default() };
        let mut steps = engine.store.steps(workspace.record.id, &query)?;
        steps.retain(|stored| stored.checkpoint.hidden_by.is_none());
        let cursor = Cursor::new(steps);
        let left_behind = workspace.left_behind()?;
        let branches = workspace.branches()?;
        let lanes = Lanes::of(cursor.steps());
        let kept = cursor.steps().iter().filter(|stored| stored.checkpoint.trigger.is_some()).count();
        let number = |stored: &StoredCheckpoint| stored.checkpoint.step.number;
        let wanted = cursor.steps().iter().filter(|stored| number(stored) > after);
        let most = usize::try_from(limit + 1).unwrap_or(usize::MAX);
        let shown = page::page(
            wanted.take(most).collect(),
            limit,
            &about,
            |stored| number(stored),
            |stored| {
                let id = stored.checkpoint.step.id;
                TimelineStepDocument {
                    step: StepDocument::of(stored),
                    lane: lanes.place(stored),
                    since_start_us: u64::try_from(cursor.since_start(stored).as_micros()).unwrap_or(u64::MAX),
                    rolled_back: left_behind.has(stored),
                    branches: (branches.iter())
                        .filter(|branch| branch.tip.checkpoint.step.id == id)
                        .map(|branch| branch.name.clone())
                        .collect(),
                }
            },
        );
        Ok(Json(TimelineDocument {
            session: session.id.to_string(),
            summary: SummaryDocument::of(&cursor.summary(), kept as u64),
            lanes: lanes.documents,
            branches: (branches.iter())
                .map(|branch| TipDocument {
                    name: branch.name.clone(),
                    number: number(&branch.tip),
                    present: branch.present,
                })
                .collect(),
            items: shown.items,
            next_cursor: shown.next_cursor,
        }))
    })
    .await
}

/// The lanes of a session: the agent itself first, then sub-agents as they appear.
pub(super) struct Lanes {
    pub(super) documents: Vec<LaneDocument>,
    places: HashMap<Option<String>, usize>,
}

impl Lanes {
    pub(super) fn of(steps: &[StoredCheckpoint]) -> Self {
        let mut lanes = Self { documents: Vec::new(), places: HashMap::new() };
        lanes.add(None);
        for step in steps.iter().map(|stored| &stored.checkpoint.step) {
            let place = lanes.add(step.facts.worker.clone());
            if let Some(lane) = lanes.documents.get_mut(place) {
                lane.steps += 1;
                lane.errors += u64::from(is_error(step));
            }
        }
        lanes
    }

    fn add(&mut self, worker: Option<String>) -> usize {
        let next = self.documents.len();
        let place = *self.places.entry(worker.clone()).or_insert(next);
        if place == next {
            self.documents.push(LaneDocument { worker, steps: 0, errors: 0 });
        }
        place
    }

    pub(super) fn place(&self, stored: &StoredCheckpoint) -> u64 {
        self.places.get(&stored.checkpoint.step.facts.worker).map_or(0, |place| *place as u64)
    }
}
