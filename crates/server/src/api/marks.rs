//! All steps of a session in one compact document, from which a timeline of a hundred thousand steps can be drawn.
//!
//! `timeline` returns everything about some steps; this returns for every step only the position and the look of its mark.

use std::collections::HashMap;

use axum::extract::State;
use stepback_api::timeline::{
    BranchLineDocument, SessionSummaryDocument, TimelineForkDocument, TimelineLaneDocument,
    TimelineMarksDocument,
};
use stepback_history::timeline::TimelineCursor;
use stepback_store::port::StepQuery as Steps;

use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The bits of `TimelineMarksDocument::flags`.
const FAILED: u8 = 1;
const KEPT: u8 = 2;
const ROLLED_BACK: u8 = 4;
const ANNOTATED: u8 = 8;

/// All steps of a session as columns of numbers, one entry for each step, oldest first: for drawing the whole session.
#[utoipa::path(get, path = "/sessions/{session}/marks", tag = "steps",
    params(("session" = String, Path, description = "The session")),
    responses((status = 200, body = TimelineMarksDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(work): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<TimelineMarksDocument>, Problem> {
    work.run(move |engine| {
        let (workspace, session) = state::session(engine, &id)?;
        let query =
            Steps { session: Some(session.id), oldest_first: true, hidden: Some(false), ..Steps::default() };
        let cursor = TimelineCursor::new(engine.store.steps(workspace.record.id, &query)?);
        let lines = workspace.lines_of(session.id)?;
        let layout = lines.lanes(cursor.steps());
        let (mut kinds, mut tools) = (Names::default(), Names::default());
        let kept = cursor.steps().iter().filter(|stored| stored.is_checkpoint()).count();
        let mut marks = TimelineMarksDocument {
            session: session.id.to_string(),
            summary: SessionSummaryDocument::of(&cursor.summary(), kept as u64),
            branches: BranchLineDocument::all(&lines.branches),
            forks: lines.forks(cursor.steps()).iter().map(TimelineForkDocument::of).collect(),
            lanes: layout.lanes.iter().map(TimelineLaneDocument::of).collect(),
            ..TimelineMarksDocument::default()
        };
        let (mut number, mut at) = (0, 0);
        for stored in cursor.steps() {
            let step = &stored.step;
            let since = u64::try_from(cursor.since_start(stored).as_micros()).unwrap_or(u64::MAX);
            marks.number.push(step.number - number);
            number = step.number;
            // Steps are ordered by number; a clock that was set back must not make a time negative.
            marks.at_us.push(since.saturating_sub(at));
            at = at.max(since);
            marks.kind.push(kinds.place(step.kind.as_str()));
            marks.tool.push(step.meta.tool.as_deref().map_or(0, |tool| tools.place(tool) + 1));
            marks.lane.push(layout.lane_of(stored) as u64);
            marks.duration_us.push(step.meta.duration.unwrap_or(0));
            let annotation = &stored.annotation;
            let annotated =
                annotation.label.is_some() || annotation.note.is_some() || !annotation.tags.is_empty();
            let bit = |holds: bool, bit: u8| if holds { bit } else { 0 };
            marks.flags.push(
                bit(step.is_error(), FAILED)
                    | bit(stored.trigger.is_some(), KEPT)
                    | bit(lines.is_rolled_back(stored), ROLLED_BACK)
                    | bit(annotated, ANNOTATED),
            );
        }
        (marks.kinds, marks.tools) = (kinds.all, tools.all);
        Ok(Json(marks))
    })
    .await
}

/// Names, indexed in the order of their first use.
#[derive(Default)]
struct Names {
    all: Vec<String>,
    places: HashMap<String, u64>,
}

impl Names {
    fn place(&mut self, name: &str) -> u64 {
        if let Some(place) = self.places.get(name) {
            return *place;
        }
        let place = self.all.len() as u64;
        self.all.push(name.to_owned());
        self.places.insert(name.to_owned(), place);
        place
    }
}
