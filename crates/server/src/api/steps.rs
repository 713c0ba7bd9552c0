//! The steps of a session, and stepping through them.

use axum::extract::State;
use serde::Deserialize;
use stepback_api::page::Page;
use stepback_api::steps::{StepDetailDocument, StepDocument, StepPositionDocument};
use stepback_engine::{Engine, Workspace};
use stepback_model::json;
use stepback_model::record::{Session, StepKind};
use stepback_store::port::{StepQuery as Steps, StepRow};
use utoipa::IntoParams;

use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Filters for steps.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SessionStepsQuery {
    /// Only of these kinds, separated by commas.
    pub kind: Option<String>,
    /// Only those about this tool or model.
    pub tool: Option<String>,
    /// Only those that failed (`true`), or that did not (`false`).
    pub failed: Option<bool>,
    /// Only those of this model turn.
    pub iteration: Option<u64>,
    /// Only those of the task with this id.
    pub task: Option<String>,
    /// Only those of the trace with this id.
    pub trace: Option<String>,
    /// Only those of the span with this id.
    pub span: Option<String>,
    /// Only those with a greater number than this.
    pub above: Option<u64>,
    /// Only those with a smaller number than this.
    pub below: Option<u64>,
    /// Oldest first instead of newest first.
    #[serde(default)]
    pub oldest_first: bool,
    /// With the checkpoints that the user made by hand while the session was at work, as in its timeline.
    #[serde(default)]
    pub manual: bool,
}

pub(super) fn parse_kinds(text: Option<&str>) -> Result<Vec<StepKind>, Problem> {
    let words = text.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            StepKind::parse(word).ok_or_else(|| {
                let all: Vec<&str> = StepKind::ALL.iter().map(|kind| kind.as_str()).collect();
                Problem::usage("unknown kind of step")
                    .with_hint(format!("known kinds are {}", all.join(", ")))
            })
        })
        .collect()
}

/// Lists the steps of a session.
#[utoipa::path(get, path = "/sessions/{session}/steps", tag = "steps",
    params(("session" = String, Path, description = "The session"), SessionStepsQuery, Paging),
    responses((status = 200, body = Page<StepDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(filter): QueryString<SessionStepsQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<StepDocument>>, Problem> {
    let limit = paging.limit()?;
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let about = ("steps", session.id.to_string(), format!("{filter:?}"));
            let at = paging.start_position(&about)?;
            let query = Steps {
                session: Some(session.id),
                kinds: parse_kinds(filter.kind.as_deref())?,
                tool: filter.tool.clone(),
                failed: filter.failed,
                iteration: filter.iteration,
                task: filter.task.clone(),
                trace: filter.trace.clone(),
                span: filter.span.clone(),
                oldest_first: filter.oldest_first,
                after: at.filter(|_| filter.oldest_first).max(filter.above),
                before: at.filter(|_| !filter.oldest_first).into_iter().chain(filter.below).min(),
                limit: Some(limit + 1),
                ..Steps::default()
            };
            let mut steps = engine.store.steps(workspace.record.id, &query)?;
            if filter.manual {
                add_manual_checkpoints(&workspace, &session, &query, &mut steps)?;
            }
            let number = |stored: &StepRow| stored.step.number;
            Ok(Json(pagination::paginate(steps, limit, &about, number, StepDocument::from_row)))
        })
        .await
}

/// Adds to a page of the steps of a session the checkpoints that the user made by hand meanwhile.
fn add_manual_checkpoints(
    workspace: &Workspace,
    session: &Session,
    query: &Steps,
    steps: &mut Vec<StepRow>,
) -> Result<(), Problem> {
    let Steps {
        kinds, tool, failed, iteration, task, trace, span, after, before, limit, oldest_first, ..
    } = query;
    let is_other = |filter: &Option<String>| filter.is_some();
    if !kinds.is_empty() && !kinds.contains(&StepKind::Checkpoint)
        || *failed == Some(true)
        || iteration.is_some()
        || [tool, task, trace, span].into_iter().any(is_other)
    {
        return Ok(());
    }
    steps.extend(workspace.manual_checkpoints_during(session)?.into_iter().filter(|stored| {
        let number = stored.step.number;
        after.is_none_or(|after| number > after) && before.is_none_or(|before| number < before)
    }));
    // What comes after the last step of a full page is on the next one.
    steps.sort_by_key(|stored| stored.step.number);
    if !oldest_first {
        steps.reverse();
    }
    steps.truncate(limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX)));
    Ok(())
}

/// Returns a step with all its details.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}", tag = "steps",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step")),
    responses((status = 200, body = StepDetailDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
) -> Result<Json<StepDetailDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let stored = find_step(engine, &workspace, &session, number)?;
            Ok(Json(step_detail(engine, &session, &stored)?))
        })
        .await
}

/// Which neighbour of a step to return.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct NeighbourQuery {
    /// The nearest of these kinds, separated by commas.
    pub kind: Option<String>,
    /// The nearest that failed.
    #[serde(default)]
    pub error: bool,
}

/// The next step: the very next, the next of a kind, or the next that failed.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/next", tag = "steps",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step"), NeighbourQuery),
    responses((status = 200, body = StepDetailDocument), (status = "default", body = Problem)))]
pub async fn next(
    State(state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
    QueryString(direction): QueryString<NeighbourQuery>,
) -> Result<Json<StepDetailDocument>, Problem> {
    get_neighbour(state, id, number, direction, true).await
}

/// The previous step: the one just before, the last of a kind, or the last that failed.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/previous", tag = "steps",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step"), NeighbourQuery),
    responses((status = 200, body = StepDetailDocument), (status = "default", body = Problem)))]
pub async fn previous(
    State(state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
    QueryString(direction): QueryString<NeighbourQuery>,
) -> Result<Json<StepDetailDocument>, Problem> {
    get_neighbour(state, id, number, direction, false).await
}

async fn get_neighbour(
    state: AppState,
    id: String,
    number: u64,
    direction: NeighbourQuery,
    is_next: bool,
) -> Result<Json<StepDetailDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let query = Steps {
                session: Some(session.id),
                kinds: parse_kinds(direction.kind.as_deref())?,
                failed: direction.error.then_some(true),
                oldest_first: is_next,
                after: is_next.then_some(number),
                before: (!is_next).then_some(number),
                limit: Some(1),
                ..Steps::default()
            };
            let found = engine.store.steps(workspace.record.id, &query)?;
            let side = if is_next { "after" } else { "before" };
            let stored = found
                .first()
                .ok_or_else(|| Problem::not_found(&format!("such step {side}"), &format!("#{number}")))?;
            Ok(Json(step_detail(engine, &session, stored)?))
        })
        .await
}

pub(super) fn find_step(
    engine: &Engine,
    workspace: &Workspace,
    session: &Session,
    number: u64,
) -> Result<StepRow, Problem> {
    let stored = engine.store.step_numbered(workspace.record.id, number)?;
    stored
        .filter(|stored| stored.step.session == session.id || workspace.is_manual_checkpoint(stored))
        .ok_or_else(|| Problem::not_found("step", &format!("#{number} in this session")))
}

/// Describes a step, and where it is in its session.
fn step_detail(engine: &Engine, session: &Session, stored: &StepRow) -> Result<StepDetailDocument, Problem> {
    let detail = stored.step.meta.detail.map(|hash| json::load(engine.store(), hash)).transpose();
    let detail = detail.map_err(|error| Problem::internal(format!("the step cannot be read: {error}")))?;
    let mut document = StepDetailDocument::from_row(stored, detail);
    let count = |query: Steps| Ok::<_, Problem>(engine.store.find(Some(session.workspace), &query)?.total);
    let all = Steps { session: Some(session.id), limit: Some(0), count_all: true, ..Steps::default() };
    let before = count(Steps { before: Some(stored.step.number), ..all.clone() })?;
    document.position = Some(StepPositionDocument::new(before + 1, count(all)?));
    Ok(document)
}
