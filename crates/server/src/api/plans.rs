//! Plans as resources: create one, review it, apply it. No file changes without a plan that was shown before.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use stepback_api::plans::{AppliedPlanDocument, NewMerge, NewRewind, NewUndo, PlanDocument, PlanOptions};
use stepback_engine::moves::{Confirmation, MoveAction, MoveKind, MoveRequest, PlannedMove, ShownPlan};
use stepback_engine::rewind::RewindRequest;
use stepback_engine::{Engine, EngineError, Workspace};

use super::points::resolve_point_in_session;
use crate::extract::{Json, OptionalJson, Path, parse_relative_path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Plans a rewind. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/rewind-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewRewind,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn plan_rewind(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewRewind>,
) -> Result<Response, Problem> {
    create_plan(state, id, new.force, move |workspace| {
        new.paths.iter().try_for_each(|path| parse_relative_path(path.trim_end_matches('/')).map(drop))?;
        let ways = [new.point.is_some(), !new.changes.is_empty(), new.last.is_some(), new.all];
        if ways.iter().filter(|given| **given).count() != 1 {
            return Err(Problem::usage("specify exactly one of point, changes, last and all"));
        }
        let session = new.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
        let within = |point: &String| resolve_point_in_session(workspace, point, session.as_ref());
        let target = new.point.as_ref().map(within).transpose()?;
        Ok(MoveAction::Rewind(Box::new(RewindRequest {
            target,
            paths: new.paths,
            changes: new.changes,
            last: new.last,
            all: new.all,
            git: new.git,
            everything: new.everything,
            session: session.map(|session| session.id),
            hunks: new.hunks,
            ..RewindRequest::default()
        })))
    })
    .await
}

/// Plans an undo of an operation. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/undo-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewUndo,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn plan_undo(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewUndo>,
) -> Result<Response, Problem> {
    create_plan(state, id, new.force, move |workspace| {
        let found = new.operation.as_ref().map(|text| {
            workspace.find_operation(text).map_err(|error| match error {
                EngineError::Point(_) => Problem::not_found("operation", text),
                other => other.into(),
            })
        });
        Ok(MoveAction::Undo { operation: found.transpose()? })
    })
    .await
}

/// Plans a redo of what was undone last. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/redo-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = Option<PlanOptions>,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn plan_redo(
    State(state): State<AppState>,
    Path(id): Path<String>,
    OptionalJson(options): OptionalJson<PlanOptions>,
) -> Result<Response, Problem> {
    create_plan(state, id, options.force, |_| Ok(MoveAction::Redo)).await
}

/// Plans a switch to another branch. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/branches/{branch}/switch-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "The branch")),
    request_body = Option<PlanOptions>,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn plan_switch(
    State(state): State<AppState>,
    Path((id, branch)): Path<(String, String)>,
    OptionalJson(options): OptionalJson<PlanOptions>,
) -> Result<Response, Problem> {
    create_plan(state, id, options.force, move |workspace| {
        super::branches::find_branch(workspace, &branch)?;
        Ok(MoveAction::Switch { branch, begin_at: None })
    })
    .await
}

/// Plans to merge a branch into the present one. Changes nothing; the plan is applied like that of a rewind.
#[utoipa::path(post, path = "/workspaces/{workspace}/branches/{branch}/merge-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "The branch")),
    request_body = Option<NewMerge>,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn plan_merge(
    State(state): State<AppState>,
    Path((id, branch)): Path<(String, String)>,
    OptionalJson(new): OptionalJson<NewMerge>,
) -> Result<Response, Problem> {
    create_plan(state, id, new.force, move |workspace| {
        super::branches::find_branch(workspace, &branch)?;
        let now = workspace.engine.env.now();
        let board = match new.files_only {
            true => None,
            false => Some(stepback_board::choose_session(workspace, new.session.as_deref(), now)?.id),
        };
        Ok(MoveRequest { board, ..MoveRequest::merge(&branch, new.markers) })
    })
    .await
}

async fn create_plan<R: Into<MoveRequest>>(
    state: AppState,
    id: String,
    force: bool,
    request: impl FnOnce(&Workspace) -> Result<R, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let request = MoveRequest { force, ..request(&workspace)?.into() };
            let document = save_plan(&workspace, &workspace.plan_move(&request)?)?;
            let place = format!("/api/v1/{}-plans/{}", document.kind, document.id);
            Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(document)).into_response())
        })
        .await
}

/// Keeps a plan until it is confirmed, and returns its document.
fn save_plan(workspace: &Workspace, planned: &PlannedMove) -> Result<PlanDocument, Problem> {
    let document = PlanDocument::from_planned_move(workspace.record.id, planned);
    workspace.save_plan(planned, json!(document))?;
    Ok(document)
}

/// Finds a plan that was shown, by this server or by any other process.
fn find_plan(engine: &Engine, kind: MoveKind, id: &str) -> Result<ShownPlan, Problem> {
    let found = engine.load_shown_plan(id)?.filter(|shown| shown.request.action.kind() == kind);
    found.ok_or_else(|| {
        let what = format!("{} plan", kind.name());
        Problem::not_found(&what, id).with_hint("plans are kept for a day; plan again")
    })
}

/// Applies a plan, if it is still what would happen.
pub(super) async fn apply_plan(
    state: AppState,
    kind: MoveKind,
    id: String,
) -> Result<Json<AppliedPlanDocument>, Problem> {
    state
        .run(move |engine| {
            let shown = find_plan(engine, kind, &id)?;
            let workspace = state::open_workspace(engine, shown.workspace)?;
            let planned = match workspace.confirm_move(&shown)? {
                Confirmation::Same(planned) => planned,
                Confirmation::Changed(planned) => {
                    let problem = Problem::new(
                        StatusCode::CONFLICT,
                        "refused",
                        "the workspace changed since the plan was made; nothing was done",
                    );
                    let problem = problem.with_hint("review the new plan and confirm it");
                    return Err(problem.with_plan(save_plan(&workspace, &planned)?));
                }
            };
            if planned.is_empty() {
                let detail = format!("the plan changes nothing{}", planned.reason_unchanged());
                return Err(Problem::new(StatusCode::CONFLICT, "nothing", detail));
            }
            let report = workspace.apply_move(planned)?;
            engine.delete_plan(&id)?;
            Ok(Json(AppliedPlanDocument::from_report(engine.store(), workspace.record.id, &report)?))
        })
        .await
}

/// Returns a plan as it was shown; one that was too large to be kept, as it is now.
pub(super) async fn get_plan(state: AppState, kind: MoveKind, id: String) -> Result<Json<Value>, Problem> {
    state
        .run(move |engine| {
            let shown = find_plan(engine, kind, &id)?;
            if !shown.document.is_null() {
                return Ok(Json(shown.document));
            }
            let workspace = state::open_workspace(engine, shown.workspace)?;
            let planned = workspace.plan_move(&shown.request)?;
            Ok(Json(json!(PlanDocument::from_planned_move(workspace.record.id, &planned))))
        })
        .await
}
