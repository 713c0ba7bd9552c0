//! Plans as resources: made, looked at, agreed to. Nothing changes a file that was not shown before.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use stepback_engine::rewind::{Prepared, Request};
use stepback_engine::undo::{Direction, Reversal};
use stepback_engine::{Engine, Workspace};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::OpId;
use stepback_model::plan::Plan;
use utoipa::ToSchema;

use super::apply::{applied, reversed};
use super::points::resolved;
use crate::documents::files::LeftAloneDocument;
use crate::documents::plans::{AppliedDocument, PlanDocument, PlannedDocument};
use crate::extract::{Json, Path, relative};
use crate::plans::{Kind, Question, Shown};
use crate::problem::Problem;
use crate::work::{self, Work};

/// What to go back to. Either a point, or the changes to take back: some by number, the last so many, or all.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewRewind {
    /// The point.
    pub point: Option<String>,
    /// Changes by their number.
    pub changes: Vec<usize>,
    /// The last so many changes.
    pub last: Option<usize>,
    /// All changes.
    pub all: bool,
    /// Only these paths (globs; a directory stands for what it holds).
    pub paths: Vec<String>,
    /// Git directories too.
    pub git: bool,
    /// The whole workspace, and not only what agents changed.
    pub everything: bool,
    /// Only what this session changed.
    pub session: Option<String>,
    /// Only these hunks of the one change that is chosen, counted from 1.
    pub hunks: Vec<usize>,
}

/// What to take back.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewUndo {
    /// The operation, by id or number; the newest in force if none is given.
    pub operation: Option<String>,
}

/// Plans to go back, and changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/rewind-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewRewind,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn rewind(
    State(work): State<Work>,
    Path(id): Path<String>,
    Json(new): Json<NewRewind>,
) -> Result<Response, Problem> {
    create(work, id, move |workspace| {
        new.paths.iter().try_for_each(|path| relative(path.trim_end_matches('/')).map(drop))?;
        let ways = [new.point.is_some(), !new.changes.is_empty(), new.last.is_some(), new.all];
        if ways.iter().filter(|given| **given).count() != 1 {
            return Err(Problem::usage("say one of point, changes, last and all"));
        }
        let target = new.point.as_ref().map(|point| resolved(workspace, point)).transpose()?;
        let session = new.session.as_ref().map(|text| workspace.find_session(text)).transpose()?;
        Ok(Question::Rewind(Box::new(Request {
            target,
            paths: new.paths,
            changes: new.changes,
            last: new.last,
            all: new.all,
            git: new.git,
            everything: new.everything,
            session: session.map(|session| session.id),
            hunks: new.hunks,
        })))
    })
    .await
}

/// Plans to take back what stepback did, and changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/undo-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewUndo,
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn undo(
    State(work): State<Work>,
    Path(id): Path<String>,
    Json(new): Json<NewUndo>,
) -> Result<Response, Problem> {
    create(work, id, move |workspace| {
        let found = new.operation.as_ref().map(|text| operation(workspace, text)).transpose()?;
        Ok(Question::Undo(found))
    })
    .await
}

/// Plans to bring back what was undone last, and changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/redo-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace")),
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn redo(State(work): State<Work>, Path(id): Path<String>) -> Result<Response, Problem> {
    create(work, id, |_| Ok(Question::Redo)).await
}

/// Plans to stand on another branch, and changes nothing.
#[utoipa::path(post, path = "/workspaces/{workspace}/branches/{branch}/switch-plans", tag = "plans",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "The branch")),
    responses((status = 201, body = PlanDocument), (status = "default", body = Problem)))]
pub async fn switch(
    State(work): State<Work>,
    Path((id, branch)): Path<(String, String)>,
) -> Result<Response, Problem> {
    create(work, id, move |workspace| {
        super::branches::known(workspace, &branch)?;
        Ok(Question::Switch(branch))
    })
    .await
}

/// The operation that `text` names by its number or the beginning of its id.
fn operation(workspace: &Workspace<'_>, text: &str) -> Result<OpId, Problem> {
    let operations = workspace.operations()?;
    let number = text.trim_start_matches('#').parse::<u64>().ok();
    let by_number = operations.iter().find(|op| Some(op.number) == number);
    let mut by_id = operations.iter().filter(|op| text.len() >= 4 && op.id.to_string().starts_with(text));
    match (by_number, by_id.next(), by_id.next()) {
        (Some(op), _, _) | (None, Some(op), None) => Ok(op.id),
        _ => Err(Problem::unknown("operation", text)),
    }
}

async fn create(
    work: Work,
    id: String,
    question: impl FnOnce(&Workspace<'_>) -> Result<Question, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    let keeper = work.clone();
    work.run(move |engine| {
        let workspace = work::workspace(engine, &id)?;
        let question = question(&workspace)?;
        let (document, _) = planned(&workspace, &question)?;
        let place = format!("/api/v1/{}-plans/{}", document.kind, document.id);
        let shown = Shown { workspace: workspace.record.id, question, document: document.clone() };
        keeper.plans().keep(shown);
        Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(document)).into_response())
    })
    .await
}

/// What will be done when somebody agrees.
enum Deed {
    /// The workspace is taken somewhere.
    Move(Box<Prepared>),
    /// An operation is taken back or brought back.
    Reverse(Box<Reversal>, Direction),
}

/// The answer to a question, as things are now.
fn planned(workspace: &Workspace<'_>, question: &Question) -> Result<(PlanDocument, Deed), Problem> {
    let empty = Plan::default();
    let deed = match question {
        Question::Rewind(request) => Deed::Move(Box::new(workspace.prepare_rewind(request)?)),
        Question::Switch(branch) => Deed::Move(Box::new(workspace.prepare_switch(branch)?)),
        Question::Undo(operation) => {
            Deed::Reverse(Box::new(workspace.prepare_undo(*operation)?), Direction::Undo)
        }
        Question::Redo => Deed::Reverse(Box::new(workspace.prepare_redo()?), Direction::Redo),
    };
    let (prepared, summary, operation) = match &deed {
        Deed::Move(prepared) => (Some(prepared), &prepared.summary, None),
        Deed::Reverse(reversal, _) => match &**reversal {
            Reversal::Files { prepared, operation } => (Some(prepared), &prepared.summary, Some(operation)),
            Reversal::Log { operation, summary } => (None, summary, Some(operation)),
        },
    };
    let (plan, git) = prepared.map_or((&empty, false), |prepared| (&prepared.plan, prepared.git));
    let warnings = prepared.map(|prepared| prepared.warnings.clone()).unwrap_or_default();
    let kind = question.kind().name();
    let operation = operation.map(|operation| operation.id.to_string());
    // Whoever agrees to an id agrees to this question with this answer.
    let mut content =
        format!("{} {kind} {question:?} {summary} {warnings:?} {operation:?}\n", workspace.record.id);
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
        warnings,
        operation,
    };
    Ok((document, deed))
}

fn kept(work: &Work, kind: Kind, id: &str) -> Result<Shown, Problem> {
    work.plans().get(kind, id).ok_or_else(|| {
        let what = format!("{} plan", kind.name());
        Problem::unknown(&what, id)
            .hint("plans are kept for an hour and not longer than the server runs; plan again")
    })
}

/// Does what a plan says, if it is still what would happen.
pub(super) async fn agree(work: Work, kind: Kind, id: String) -> Result<Json<AppliedDocument>, Problem> {
    let keeper = work.clone();
    work.run(move |engine| {
        let shown = kept(&keeper, kind, &id)?;
        let workspace = work::opened(engine, shown.workspace)?;
        let (document, deed) = planned(&workspace, &shown.question)?;
        if document.id != id {
            let problem = Problem::new(
                StatusCode::CONFLICT,
                "refused",
                "something changed since the plan was made; nothing was done",
            );
            let problem = problem.hint("look at the new plan and agree to that one").plan(document.clone());
            keeper.plans().keep(Shown { document, ..shown });
            return Err(problem);
        }
        let moves_nothing = document.items.is_empty() && document.operation.is_none();
        if moves_nothing && !matches!(shown.question, Question::Switch(_)) {
            return Err(Problem::new(StatusCode::CONFLICT, "nothing", "the plan changes nothing"));
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
    question: &Question,
    deed: Deed,
) -> Result<AppliedDocument, Problem> {
    match (deed, question) {
        (Deed::Move(prepared), Question::Switch(branch)) => {
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

/// A plan as it was shown.
pub(super) async fn look(work: Work, kind: Kind, id: String) -> Result<Json<PlanDocument>, Problem> {
    Ok(Json(kept(&work, kind, &id)?.document))
}
