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
use crate::timeline_messages::list_timeline_messages;

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
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<TimelineMarksDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let query = Steps {
                session: Some(session.id),
                oldest_first: true,
                hidden: Some(false),
                ..Steps::default()
            };
            let steps = engine.store.steps(workspace.record.id, &query)?;
            let cursor = TimelineCursor::new(workspace.with_manual_checkpoints(&session, steps)?);
            let lines = workspace.load_session_lines(session.id)?;
            let layout = lines.layout_lanes(cursor.steps());
            let (mut kinds, mut tools) = (NameIndex::default(), NameIndex::default());
            let kept = cursor.steps().iter().filter(|stored| stored.is_checkpoint()).count();
            let mut marks = TimelineMarksDocument {
                session: session.id.to_string(),
                summary: SessionSummaryDocument::from_summary(&cursor.summary(), kept as u64),
                branches: BranchLineDocument::from_lines(&lines.branches),
                forks: lines.find_forks(cursor.steps()).iter().map(TimelineForkDocument::from_fork).collect(),
                messages: list_timeline_messages(&workspace, &session.agent, &layout, cursor.steps())?,
                lanes: layout.lanes.iter().map(TimelineLaneDocument::from_lane).collect(),
                ..TimelineMarksDocument::default()
            };
            let (mut number, mut at) = (0, 0);
            for stored in cursor.steps() {
                let step = &stored.step;
                let since = u64::try_from(cursor.elapsed_at(stored).as_micros()).unwrap_or(u64::MAX);
                marks.number.push(step.number - number);
                number = step.number;
                // Steps are ordered by number; a clock that was set back must not make a time negative.
                marks.at_us.push(since.saturating_sub(at));
                at = at.max(since);
                marks.kind.push(kinds.index_of(step.kind.as_str()));
                marks.tool.push(step.meta.tool.as_deref().map_or(0, |tool| tools.index_of(tool) + 1));
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
            (marks.kinds, marks.tools) = (kinds.names, tools.names);
            Ok(Json(marks))
        })
        .await
}

/// Names, indexed in the order of their first use.
#[derive(Default)]
struct NameIndex {
    names: Vec<String>,
    indices: HashMap<String, u64>,
}

impl NameIndex {
    fn index_of(&mut self, name: &str) -> u64 {
        if let Some(place) = self.indices.get(name) {
            return *place;
        }
        let place = self.names.len() as u64;
        self.names.push(name.to_owned());
        self.indices.insert(name.to_owned(), place);
        place
    }
}
