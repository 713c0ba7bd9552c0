//! The timeline of a session: a summary, and its steps in order.

use axum::extract::State;
use stepback_api::steps::StepDocument;
use stepback_api::timeline::{
    BranchLineDocument, BranchLinesDocument, BranchSpanDocument, SessionSummaryDocument, TimelineDocument,
    TimelineLaneDocument, TimelineStepDocument,
};
use stepback_history::timeline::TimelineCursor;
use stepback_store::port::{StepQuery as Steps, StepRow};

use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The timeline of a session: a summary, and its steps in order, each on its lane. Checkpoints that the user made by hand
/// while the session was at work are among them.
#[utoipa::path(get, path = "/sessions/{session}/timeline", tag = "steps",
    params(("session" = String, Path, description = "The session"), Paging),
    responses((status = 200, body = TimelineDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<TimelineDocument>, Problem> {
    let limit = paging.limit()?;
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let about = ("timeline", session.id.to_string());
            let after = paging.start_position(&about)?.unwrap_or(0);
            let query = Steps { session: Some(session.id), oldest_first: true, ..Steps::default() };
            let mut steps = engine.store.steps(workspace.record.id, &query)?;
            steps.retain(|stored| stored.hidden_by.is_none());
            let cursor = TimelineCursor::new(workspace.with_manual_checkpoints(&session, steps)?);
            let lines = workspace.load_session_lines(session.id)?;
            let layout = lines.layout_lanes(cursor.steps());
            let kept = cursor.steps().iter().filter(|stored| stored.is_checkpoint()).count();
            let number = |stored: &StepRow| stored.step.number;
            let wanted = cursor.steps().iter().filter(|stored| number(stored) > after);
            let most = usize::try_from(limit + 1).unwrap_or(usize::MAX);
            let shown = pagination::paginate(
                wanted.take(most).collect(),
                limit,
                &about,
                |stored| number(stored),
                |stored| {
                    let own = stored.step.number;
                    TimelineStepDocument {
                        step: StepDocument::from_row(stored),
                        lane: layout.lane_of(stored) as u64,
                        since_start_us: u64::try_from(cursor.elapsed_at(stored).as_micros())
                            .unwrap_or(u64::MAX),
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
                summary: SessionSummaryDocument::from_summary(&cursor.summary(), kept as u64),
                lanes: layout.lanes.iter().map(TimelineLaneDocument::from_lane).collect(),
                branches: BranchLineDocument::from_lines(&lines.branches),
                items: shown.items,
                next_cursor: shown.next_cursor,
            }))
        })
        .await
}

/// The branches that a session was on, and which of its steps were rolled back by rewinds.
#[utoipa::path(get, path = "/sessions/{session}/lines", tag = "steps",
    params(("session" = String, Path, description = "The session")),
    responses((status = 200, body = BranchLinesDocument), (status = "default", body = Problem)))]
pub async fn get_lines(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<BranchLinesDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let query = Steps {
                session: Some(session.id),
                oldest_first: true,
                hidden: Some(false),
                ..Steps::default()
            };
            let lines = workspace.load_session_lines(session.id)?;
            let all = |query: &Steps| engine.store.steps(workspace.record.id, query);
            // With one branch and nothing rolled back, the answer does not require reading all steps.
            let steps = match lines.is_linear() {
                true => {
                    let mut ends = all(&Steps { limit: Some(1), ..query.clone() })?;
                    ends.extend(all(&Steps { limit: Some(1), oldest_first: false, ..query })?);
                    ends
                }
                false => all(&query)?,
            };
            let stretches = lines.spans(&steps).into_iter().map(BranchSpanDocument::from_span).collect();
            Ok(Json(BranchLinesDocument {
                branches: BranchLineDocument::from_lines(&lines.branches),
                stretches,
            }))
        })
        .await
}
