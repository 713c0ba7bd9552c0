//! Checkpoints: lists, creates, annotates and deletes them.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use serde::Deserialize;
use stepback_api::checkpoints::{
    AnnotatedCheckpointDocument, AnnotationChange, CreatedCheckpointDocument, NewCheckpoint,
};
use stepback_api::files::SkippedPathDocument;
use stepback_api::operations::OperationDocument;
use stepback_api::page::Page;
use stepback_api::steps::StepDocument;
use stepback_engine::checkpoint::validate_annotation;
use stepback_engine::{Engine, Workspace};
use stepback_model::ids::StepId;
use stepback_model::record::StepRow;
use stepback_model::record::{Annotation, Trigger};
use utoipa::IntoParams;

use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Most tags of a checkpoint.
const MAX_TAGS: usize = 100;

/// Filters for checkpoints.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct CheckpointsQuery {
    /// Only those with this tag.
    pub tag: Option<String>,
    /// Only those whose label, note or summary contains this text, ignoring case.
    pub find: Option<String>,
    /// Only those that the user requested (`manual`), that stepback made by itself (`automatic`), or that were `scheduled`.
    pub trigger: Option<String>,
}

impl CheckpointsQuery {
    /// Reads the name of the trigger, if one is given.
    pub(super) fn trigger(&self) -> Result<Option<Trigger>, Problem> {
        let parse = |text: &str| {
            Trigger::parse(text).ok_or_else(|| {
                Problem::usage("unknown trigger").with_hint("triggers are manual, automatic and scheduled")
            })
        };
        self.trigger.as_deref().map(parse).transpose()
    }

    /// Keeps the checkpoints that are asked for, below a number if there is one.
    pub(super) fn filter(&self, listed: &mut Vec<StepRow>, trigger: Option<Trigger>, before: Option<u64>) {
        let text = self.find.as_ref().map(|text| text.to_lowercase());
        listed.retain(|stored| {
            let (step, said) = (&stored.step, &stored.annotation);
            let mut texts =
                [Some(&step.summary), said.label.as_ref(), said.note.as_ref()].into_iter().flatten();
            before.is_none_or(|before| step.number < before)
                && trigger.is_none_or(|trigger| stored.trigger == Some(trigger))
                && self.tag.as_ref().is_none_or(|tag| said.tags.contains(tag))
                && text.as_ref().is_none_or(|text| texts.any(|other| other.to_lowercase().contains(text)))
        });
    }
}

pub(super) fn build_annotation(
    label: Option<String>,
    note: Option<String>,
    tags: Vec<String>,
) -> Result<Annotation, Problem> {
    if tags.len() > MAX_TAGS {
        return Err(Problem::usage(format!("a checkpoint has at most {MAX_TAGS} tags")));
    }
    Ok(validate_annotation(Annotation { label, note, tags })?)
}

/// The checkpoints of a workspace, newest first, without deleted and pruned ones.
#[utoipa::path(get, path = "/workspaces/{workspace}/checkpoints", tag = "checkpoints",
    params(("workspace" = String, Path, description = "The workspace"), CheckpointsQuery, Paging),
    responses((status = 200, body = Page<StepDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<CheckpointsQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<StepDocument>>, Problem> {
    let limit = paging.limit()?;
    let trigger = query.trigger()?;
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let about = ("checkpoints", workspace.record.id.to_string(), format!("{query:?}"));
            let before = paging.start_position(&about)?;
            let mut listed = workspace.checkpoints()?;
            query.filter(&mut listed, trigger, before);
            listed.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
            let number = |stored: &StepRow| stored.step.number;
            Ok(Json(pagination::paginate(listed, limit, &about, number, StepDocument::from_row)))
        })
        .await
}

/// Creates a checkpoint of the workspace as it is now.
#[utoipa::path(post, path = "/workspaces/{workspace}/checkpoints", tag = "checkpoints",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewCheckpoint,
    responses((status = 201, body = CreatedCheckpointDocument), (status = "default", body = Problem)))]
pub async fn create(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewCheckpoint>,
) -> Result<impl IntoResponse, Problem> {
    let annotation = build_annotation(new.label, new.note, new.tags)?;
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            create_in(&workspace, annotation)
        })
        .await
}

/// Creates a checkpoint, and answers with its address.
pub(super) fn create_in(
    workspace: &Workspace,
    annotation: Annotation,
) -> Result<impl IntoResponse + use<>, Problem> {
    let created = workspace.create_checkpoint(annotation, Trigger::Manual)?;
    let place = format!("/api/v1/checkpoints/{}", created.stored.step.id);
    let document = CreatedCheckpointDocument {
        checkpoint: StepDocument::from_row(&created.stored),
        files_read: created.hashed,
        not_covered: created.skipped_paths.iter().map(SkippedPathDocument::from_skipped_path).collect(),
    };
    Ok((StatusCode::CREATED, [(header::LOCATION, place)], Json(document)))
}

/// Returns a checkpoint, or any other step, by its id.
#[utoipa::path(get, path = "/checkpoints/{checkpoint}", tag = "checkpoints",
    params(("checkpoint" = String, Path, description = "Its id")),
    responses((status = 200, body = StepDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<StepDocument>, Problem> {
    state.run(move |engine| Ok(Json(StepDocument::from_row(&find_step(engine, &id)?.1)))).await
}

/// Changes the annotation of a checkpoint.
#[utoipa::path(patch, path = "/checkpoints/{checkpoint}", tag = "checkpoints",
    params(("checkpoint" = String, Path, description = "Its id")), request_body = AnnotationChange,
    responses((status = 200, body = AnnotatedCheckpointDocument), (status = "default", body = Problem)))]
pub async fn annotate(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(change): Json<AnnotationChange>,
) -> Result<Json<AnnotatedCheckpointDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, stored) = find_step(engine, &id)?;
            let before = stored.annotation.clone();
            let after = build_annotation(
                change.label.unwrap_or(before.label),
                change.note.unwrap_or(before.note),
                change.tags.unwrap_or(before.tags),
            )?;
            Ok(Json(set_annotation(engine, &workspace, &stored, after)?))
        })
        .await
}

/// Replaces the annotation of a checkpoint: what the body leaves out is removed.
#[utoipa::path(put, path = "/checkpoints/{checkpoint}", tag = "checkpoints",
    params(("checkpoint" = String, Path, description = "Its id")), request_body = NewCheckpoint,
    responses((status = 200, body = AnnotatedCheckpointDocument), (status = "default", body = Problem)))]
pub async fn replace_annotation(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewCheckpoint>,
) -> Result<Json<AnnotatedCheckpointDocument>, Problem> {
    let annotation = build_annotation(new.label, new.note, new.tags)?;
    state
        .run(move |engine| {
            let (workspace, stored) = find_step(engine, &id)?;
            Ok(Json(set_annotation(engine, &workspace, &stored, annotation)?))
        })
        .await
}

fn set_annotation(
    engine: &Engine,
    workspace: &Workspace,
    stored: &StepRow,
    annotation: Annotation,
) -> Result<AnnotatedCheckpointDocument, Problem> {
    let operation = workspace.annotate(stored, annotation)?;
    let (_, stored) = find_step(engine, &stored.step.id.to_string())?;
    let operation = OperationDocument::from_store(engine.store(), &operation)?;
    Ok(AnnotatedCheckpointDocument { checkpoint: StepDocument::from_row(&stored), operation })
}

/// Hides a checkpoint. Its bytes stay until a prune, and until then it can be restored.
#[utoipa::path(delete, path = "/checkpoints/{checkpoint}", tag = "checkpoints",
    params(("checkpoint" = String, Path, description = "Its id")),
    responses((status = 200, body = OperationDocument), (status = "default", body = Problem)))]
pub async fn delete(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<OperationDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, stored) = find_step(engine, &id)?;
            let operation = workspace.delete_checkpoint(&stored)?;
            Ok(Json(OperationDocument::from_store(engine.store(), &operation)?))
        })
        .await
}

/// Finds a step that is not hidden, and its workspace.
pub(super) fn find_step(engine: &Engine, id: &str) -> Result<(Workspace, StepRow), Problem> {
    let unknown = || Problem::not_found("checkpoint", id);
    let stored = engine.store.step(StepId::from_hex(id).ok_or_else(unknown)?)?.ok_or_else(unknown)?;
    if stored.hidden_by.is_some() {
        return Err(unknown().with_hint("it was deleted or pruned; undo restores it"));
    }
    let session = engine.store.session(stored.step.session)?.ok_or_else(unknown)?;
    Ok((state::open_workspace(engine, session.workspace)?, stored))
}
