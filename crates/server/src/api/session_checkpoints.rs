//! The checkpoints of a session, each with its files, git, size and place in the conversation.
//!
//! Files belong to the workspace, whichever session changed them. The checkpoints of a session are those that were made at its
//! own steps, and those that the user made by hand while it was at work.

use axum::extract::State;
use axum::response::IntoResponse;
use stepback_agents::transcript::parse_agent_messages;
use stepback_api::checkpoints::{CreatedCheckpointDocument, NewCheckpoint, SessionCheckpointDocument};
use stepback_api::page::Page;
use stepback_api::state::RepositoryDocument;
use stepback_api::steps::StepDocument;
use stepback_engine::{Workspace, diff};
use stepback_model::conversation;
use stepback_model::hash::Hash;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_store::port::StepQuery;

use super::checkpoints::{CheckpointsQuery, build_annotation, create_in};
use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The checkpoints of a session, newest first, without deleted and pruned ones.
#[utoipa::path(get, path = "/sessions/{session}/checkpoints", tag = "checkpoints",
    params(("session" = String, Path, description = "The session"), CheckpointsQuery, Paging),
    responses((status = 200, body = Page<SessionCheckpointDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(query): QueryString<CheckpointsQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<SessionCheckpointDocument>>, Problem> {
    let limit = paging.limit()?;
    let trigger = query.trigger()?;
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let about = ("session-checkpoints", session.id.to_string(), format!("{query:?}"));
            let before = paging.start_position(&about)?;
            // A prune must not free what is being read.
            let _lock = workspace.lock_shared()?;
            let mut listed = list_checkpoints(&workspace, &session)?;
            query.filter(&mut listed, trigger, None);
            let total = listed.len() as u64;
            query.filter(&mut listed, trigger, before);
            listed.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
            let mut describer = CheckpointDescriber::new(&workspace, &session, listed.first())?;
            let mut documents = Vec::with_capacity(listed.len());
            for stored in &listed {
                documents.push((stored.step.number, describer.describe(stored)?));
            }
            let number = |(number, _): &(u64, SessionCheckpointDocument)| *number;
            let mut page =
                pagination::paginate(documents, limit, &about, number, |(_, document)| document.clone());
            page.total = Some(total);
            Ok(Json(page))
        })
        .await
}

/// Creates a checkpoint of the workspace of a session as it is now.
#[utoipa::path(post, path = "/sessions/{session}/checkpoints", tag = "checkpoints",
    params(("session" = String, Path, description = "The session")), request_body = NewCheckpoint,
    responses((status = 201, body = CreatedCheckpointDocument), (status = "default", body = Problem)))]
pub async fn create(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewCheckpoint>,
) -> Result<impl IntoResponse, Problem> {
    let annotation = build_annotation(new.label, new.note, new.tags)?;
    state.run(move |engine| create_in(&state::find_session(engine, &id)?.0, annotation)).await
}

/// Returns a checkpoint of a session, with what was staged and changed in its git repositories.
#[utoipa::path(get, path = "/sessions/{session}/checkpoints/{checkpoint}", tag = "checkpoints",
    params(("session" = String, Path, description = "The session"), ("checkpoint" = String, Path, description = "Its id")),
    responses((status = 200, body = SessionCheckpointDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path((session, id)): Path<(String, String)>,
) -> Result<Json<SessionCheckpointDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &session)?;
            let _lock = workspace.lock_shared()?;
            let mut listed = list_checkpoints(&workspace, &session)?;
            listed.retain(|stored| !id.is_empty() && stored.step.id.to_string().starts_with(&id));
            let [stored] = listed.as_slice() else {
                return Err(Problem::not_found("checkpoint of this session", &id));
            };
            let mut describer = CheckpointDescriber::new(&workspace, &session, Some(stored))?;
            let mut document = describer.describe(stored)?;
            document.git = RepositoryDocument::from_state(&workspace, &workspace.load_state(stored)?)?;
            Ok(Json(document))
        })
        .await
}

/// The checkpoints of a session, newest first.
fn list_checkpoints(workspace: &Workspace, session: &Session) -> Result<Vec<StepRow>, Problem> {
    let mut own = workspace.checkpoints()?;
    own.retain(|stored| stored.step.session == session.id);
    let mut listed = workspace.with_manual_checkpoints(session, own)?;
    listed.retain(|stored| !stored.purged);
    listed.reverse();
    Ok(listed)
}

/// Describes checkpoints of one session. Its conversation is read once, up to the newest of them.
struct CheckpointDescriber<'w> {
    workspace: &'w Workspace,
    session: &'w Session,
    /// The newest conversation.
    tip: Option<Hash>,
    /// For each of its messages, how many lines the conversation has with it.
    ends: Vec<u64>,
}

impl<'w> CheckpointDescriber<'w> {
    fn new(
        workspace: &'w Workspace,
        session: &'w Session,
        newest: Option<&StepRow>,
    ) -> Result<Self, Problem> {
        let tip = match newest {
            Some(newest) => conversation_at(workspace, session, newest)?,
            None => None,
        };
        let ends = message_ends(workspace, session, tip)?;
        Ok(Self { workspace, session, tip, ends })
    }

    fn describe(&mut self, stored: &StepRow) -> Result<SessionCheckpointDocument, Problem> {
        let store = self.workspace.store();
        let state = WorkspaceState::load(store, stored.step.state)?;
        let size = state.files.map(|files| diff::files_size(store, files)).transpose()?.unwrap_or_default();
        let git = state.git.map(|git| GitState::load(store, git)).transpose()?.unwrap_or_default();
        let calls = StepQuery {
            session: Some(self.session.id),
            kinds: vec![StepKind::ToolStart],
            before: Some(stored.step.number.saturating_add(1)),
            limit: Some(1),
            ..StepQuery::default()
        };
        let call = store.steps(self.workspace.record.id, &calls)?.pop();
        Ok(SessionCheckpointDocument {
            checkpoint: StepDocument::from_row(stored),
            files: size.files,
            size_bytes: size.bytes,
            git: git.repositories.iter().map(RepositoryDocument::from_repository).collect(),
            messages: self.count_messages(stored)?,
            call: call.and_then(|call| call.step.meta.call),
        })
    }

    fn count_messages(&mut self, stored: &StepRow) -> Result<u64, Problem> {
        let tip = conversation_at(self.workspace, self.session, stored)?;
        let lines = conversation::len(self.workspace.store(), tip)?;
        if conversation::shared(self.workspace.store(), self.tip, tip)? < lines {
            // The conversation went on differently from an earlier line.
            self.ends = message_ends(self.workspace, self.session, tip)?;
            self.tip = tip;
        }
        Ok(self.ends.iter().filter(|end| **end <= lines).count() as u64)
    }
}

/// The conversation that a session had at a checkpoint.
fn conversation_at(
    workspace: &Workspace,
    session: &Session,
    stored: &StepRow,
) -> Result<Option<Hash>, Problem> {
    let state = workspace.session_state_at(session.id, stored.step.number)?;
    Ok(state.and_then(|(_, state)| state.conversation))
}

/// For each message of a conversation, how many lines the conversation has with it.
fn message_ends(workspace: &Workspace, session: &Session, tip: Option<Hash>) -> Result<Vec<u64>, Problem> {
    let lines = conversation::texts(workspace.store(), tip)?;
    let messages = parse_agent_messages(&session.agent, &lines);
    Ok(messages.iter().map(|message| message.lines.end as u64).collect())
}
