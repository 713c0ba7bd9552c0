//! Plans as resources: create one, review it, apply it. No file changes without a plan that was shown before.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use stepback_engine::kept::Audience;
use stepback_engine::rewind::{PreparedRewind, RewindRequest};
use stepback_engine::undo::{Reversal, UndoDirection};
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::OpId;
use stepback_model::plan::RewindPlan;
use utoipa::ToSchema;

use super::apply::{applied, reversed};
use super::points::resolved_within;
use crate::documents::files::LeftAloneDocument;
use crate::documents::plans::{AppliedDocument, KeptDocument, PlanDocument, PlannedDocument};
use crate::extract::{Json, OptionalJson, Path, relative};
use crate::plans::{KeptPlan, PlanKind, PlanRequest};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// What to rewind. Exactly one of `point`, `changes`, `last` and `all` must be given.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewRewind {
    /// The point to rewind to.
    pub point: Option<String>,
    /// Changes to take back, by number.
    pub changes: Vec<usize>,
    /// Take back the last so many changes of agents, or of `session`; those of any author with `everything`.
    pub last: Option<usize>,
    /// Take back all changes of agents, or of `session`; those of any author with `everything`.
    pub all: bool,
    /// Only these paths (globs; a directory includes its contents).
    pub paths: Vec<String>,
    /// Rewind git directories too.
    pub git: bool,
    /// Take back changes of the user and of other sessions too.
    pub everything: bool,
    /// Only what this session changed; errors, calls and iterations in `point` are counted in it.
    pub session: Option<String>,
    /// Only these hunks of the one change that is chosen, counted from 1.
    pub hunks: Vec<usize>,
    /// Replace databases although a process has them open.
    pub force: bool,
}

/// What to undo.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewUndo {
    /// The operation, by id or number; the newest in force if none is given.
    pub operation: Option<String>,
    /// Replace databases although a process has them open.
    pub force: bool,
}

/// Options of a plan that takes no other input.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PlanOptions {
    /// Replace databases although a process has them open.
    pub force: bool,
}

/// Plans a rewind. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/rewind-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewRewind,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn rewind(
    State(work): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewRewind>,
) -> Result<Response, Problem> {
    create(work, id, new.force, move |workspace| {
        new.paths.iter().try_for_each(|path| relative(path.trim_end_matches('/')).map(drop))?;
        let ways = [new.point.is_some(), !new.changes.is_empty(), new.last.is_some(), new.all];
        if ways.iter().filter(|given| **given).count() != 1 {
            return Err(Problem::usage("say one of point, changes, last and all"));
        }
        let session = new.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
        let within = |point: &String| resolved_within(workspace, point, session.as_ref());
        let target = new.point.as_ref().map(within).transpose()?;
        Ok(PlanRequest::Rewind(Box::new(RewindRequest {
            target,
            paths: new.paths,
            changes: new.changes,
            last: new.last,
            all: new.all,
            git: new.git,
            everything: new.everything,
            session: session.map(|session| session.id),
            hunks: new.hunks,
            audience: Audience::User,
            conversation: false,
        })))
    })
    .await
}

/// Plans an undo of an operation. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/undo-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewUndo,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn undo(
    State(work): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewUndo>,
) -> Result<Response, Problem> {
    create(work, id, new.force, move |workspace| {
        let found = new.operation.as_ref().map(|text| operation(workspace, text)).transpose()?;
        Ok(PlanRequest::Undo(found))
    })
    .await
}

/// Plans a redo of what was undone last. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/redo-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = Option<PlanOptions>,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn redo(
    State(work): State<AppState>,
    Path(id): Path<String>,
    OptionalJson(options): OptionalJson<PlanOptions>,
) -> Result<Response, Problem> {
    create(work, id, options.force, |_| Ok(PlanRequest::Redo)).await
}

/// Plans a switch to another branch. Changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/branches/{branch}/switch-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "The branch")),
    request_body = Option<PlanOptions>,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn switch(
    State(work): State<AppState>,
    Path((id, branch)): Path<(String, String)>,
    OptionalJson(options): OptionalJson<PlanOptions>,
) -> Result<Response, Problem> {
    create(work, id, options.force, move |workspace| {
        super::branches::known(workspace, &branch)?;
        Ok(PlanRequest::Switch(branch))
    })
    .await
}

/// Finds the operation that `text` names by its number or the beginning of its id.
fn operation(workspace: &Workspace<'_>, text: &str) -> Result<OpId, Problem> {
    workspace.find_operation(text).map_err(|error| match error {
        EngineError::Point(_) => Problem::unknown("operation", text),
        other => other.into(),
    })
}

async fn create(
    work: AppState,
    id: String,
    force: bool,
    question: impl FnOnce(&Workspace<'_>) -> Result<PlanRequest, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let keeper = work.clone();
    work.run(move |engine| {
        let workspace = state::workspace(engine, &id)?;
        let question = question(&workspace)?;
        let (document, _) = planned(&workspace, &question, force)?;
        let place = format!("/api/v1/{}-plans/{}", document.kind, document.id);
        let shown = KeptPlan { workspace: workspace.record.id, question, force, document: document.clone() };
        keeper.plans().keep(shown);
        Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(document)).into_response())
    })
    .await
}

/// What applying a plan will do.
enum Deed {
    /// Rewind the workspace or switch its branch.
    Move(Box<PreparedRewind>),
    /// Undo or redo an operation.
    Reverse(Box<Reversal>, UndoDirection),
}

impl Deed {
    fn prepared(&mut self) -> Option<&mut PreparedRewind> {
        match self {
            Self::Move(prepared) => Some(prepared),
            Self::Reverse(reversal, _) => match &mut **reversal {
                Reversal::Files { prepared, .. } => Some(prepared),
                Reversal::Log { .. } => None,
            },
        }
    }
}

/// Computes the plan for a request, as things are now.
fn planned(
    workspace: &Workspace<'_>,
    question: &PlanRequest,
    force: bool,
) -> Result<(PlanDocument, Deed), Problem> {
    let empty = RewindPlan::default();
    let mut deed = match question {
        PlanRequest::Rewind(request) => Deed::Move(Box::new(workspace.prepare_rewind(request)?)),
        PlanRequest::Switch(branch) => Deed::Move(Box::new(workspace.prepare_switch(branch)?)),
        PlanRequest::Undo(operation) => {
            Deed::Reverse(Box::new(workspace.prepare_undo(*operation)?), UndoDirection::Undo)
        }
        PlanRequest::Redo => Deed::Reverse(Box::new(workspace.prepare_redo()?), UndoDirection::Redo),
    };
    if let (true, Some(prepared)) = (force, deed.prepared()) {
        prepared.force();
    }
    let (prepared, summary, operation) = match &deed {
        Deed::Move(prepared) => (Some(prepared), &prepared.summary, None),
        Deed::Reverse(reversal, _) => match &**reversal {
            Reversal::Files { prepared, operation } => (Some(prepared), &prepared.summary, Some(operation)),
            Reversal::Log { operation, summary } => (None, summary, Some(operation)),
        },
    };
    let (plan, git) = prepared.map_or((&empty, false), |prepared| (&prepared.plan, prepared.git));
    let warnings = prepared.map(|prepared| prepared.warnings.clone()).unwrap_or_default();
    let kept = prepared.map_or(&[][..], |prepared| &prepared.kept);
    let everything = prepared.map_or(&[][..], |prepared| &prepared.everything_changes);
    let kind = question.kind().name();
    let operation = operation.map(|operation| operation.id.to_string());
    // The id covers request and plan: a client that applies an id confirms exactly this.
    let mut content =
        format!("{} {kind} {question:?} {force} {summary} {warnings:?} {operation:?}\n", workspace.record.id);
    content.push_str(&Hash::of(ObjectKind::Plan, &plan.encode()).to_string());
    let id: String = Hash::of(ObjectKind::Blob, content.as_bytes()).to_string().chars().take(32).collect();
    let document = PlanDocument {
        apply: format!("/api/v1/{kind}-plans/{id}/apply"),
        id,
        kind: kind.to_owned(),
        workspace: workspace.record.id.to_string(),
        summary: summary.clone(),
        git,
        items: plan.changes.iter().map(PlannedDocument::of).collect(),
        left_alone: plan.left_alone.iter().map(LeftAloneDocument::of).collect(),
        kept: kept.iter().map(KeptDocument::of).collect(),
        everything_changes: everything.iter().map(|path| path.display().into_owned()).collect(),
        unchanged_because: prepared.and_then(|prepared| prepared.unchanged_because.clone()),
        warnings,
        operation,
    };
    Ok((document, deed))
}

fn kept(work: &AppState, kind: PlanKind, id: &str) -> Result<KeptPlan, Problem> {
    work.plans().get(kind, id).ok_or_else(|| {
        let what = format!("{} plan", kind.name());
        Problem::unknown(&what, id)
            .hint("plans are kept for an hour and not longer than the server runs; plan again")
    })
}

/// Applies a plan, if it is still what would happen.
pub(super) async fn agree(
    work: AppState,
    kind: PlanKind,
    id: String,
) -> Result<Json<AppliedDocument>, Problem> {
    let keeper = work.clone();
    work.run(move |engine| {
        let shown = kept(&keeper, kind, &id)?;
        let workspace = state::opened(engine, shown.workspace)?;
        let (document, deed) = planned(&workspace, &shown.question, shown.force)?;
        if document.id != id {
            let problem = Problem::new(
                StatusCode::CONFLICT,
                "refused",
                "something changed since the plan was made; nothing was done",
            );
            let problem = problem.hint("look at the new plan and agree to that one").plan(document.clone());
            keeper.plans().keep(KeptPlan { document, ..shown });
            return Err(problem);
        }
        let moves_nothing = document.items.is_empty() && document.operation.is_none();
        if moves_nothing && !matches!(shown.question, PlanRequest::Switch(_)) {
            let why = document.unchanged_because.map(|because| format!(": {because}")).unwrap_or_default();
            let detail = format!("the plan changes nothing{why}");
            return Err(Problem::new(StatusCode::CONFLICT, "nothing", detail));
        }
        let done = carry_out(engine, &workspace, &shown.question, deed)?;
        keeper.plans().forget(&id);
        Ok(Json(done))
    })
    .await
}

fn carry_out(
    engine: &Engine<'_>,
    workspace: &Workspace<'_>,
    question: &PlanRequest,
    deed: Deed,
) -> Result<AppliedDocument, Problem> {
    match (deed, question) {
        (Deed::Move(prepared), PlanRequest::Switch(branch)) => {
            applied(engine, workspace, &workspace.switch(branch, *prepared)?)
        }
        (Deed::Move(prepared), _) => applied(engine, workspace, &workspace.apply(*prepared)?),
        (Deed::Reverse(reversal, direction), _) => {
            let (Reversal::Files { operation, .. } | Reversal::Log { operation, .. }) = &*reversal;
            let operation = operation.id;
            match workspace.reverse_now(*reversal, direction)? {
                Some(report) => applied(engine, workspace, &report),
                None => reversed(workspace, operation),
            }
        }
    }
}

/// Returns a plan as it was shown.
pub(super) async fn look(work: AppState, kind: PlanKind, id: String) -> Result<Json<PlanDocument>, Problem> {
    Ok(Json(kept(&work, kind, &id)?.document))
}
