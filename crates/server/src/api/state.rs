//! The state at a step: files, conversation, memory, tasks, environment.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::Value;
use stepback_agents::transcript::{self, MessageRole, TranscriptMessage};
use stepback_agents::{Agent, session_states};
use stepback_api::files::FileDocument;
use stepback_api::page::Page;
use stepback_api::state::{MessageDocument, RepositoryDocument, StateDocument, StateSlotsDocument};
use stepback_api::steps::StepDocument;
use stepback_engine::{Engine, Workspace, diff};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::path::RelPath;
use stepback_model::record::Session;
use stepback_model::record::StepRow;
use stepback_model::state::WorkspaceState as Moment;
use stepback_model::tree::{Content, Tree, TreeNode};
use stepback_model::{conversation, json};
use utoipa::IntoParams;

use super::steps::find_step;
use crate::extract::{Json, Path, QueryString, parse_relative_path, percent_decode};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Largest file that is sent in one response, in bytes.
const LARGEST: u64 = 256 << 20;

/// Filters for files.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FilesQuery {
    /// Only this path and what is below it.
    pub path: Option<String>,
}

fn load_step(engine: &Engine, id: &str, number: u64) -> Result<(Workspace, Session, StepRow), Problem> {
    let (workspace, session) = state::find_session(engine, id)?;
    let stored = find_step(engine, &workspace, &session, number)?;
    Ok((workspace, session, stored))
}

/// Loads the state of a step with the files of the step it grew from; without files if none were scanned by then. At a step
/// of the user, the rest is what the session had then.
fn load_state(workspace: &Workspace, session: &Session, stored: &StepRow) -> Result<Moment, Problem> {
    let state = match workspace.load_state(stored) {
        Ok(state) => state,
        Err(stepback_engine::EngineError::NoFiles { .. }) => {
            Moment::load(workspace.store(), stored.step.state)?
        }
        Err(error) => return Err(error.into()),
    };
    if stored.step.session == session.id {
        return Ok(state);
    }
    let own = workspace.session_state_at(session.id, stored.step.number)?;
    Ok(own.map_or(state, |(_, own)| Moment { files: state.files, git: state.git, ..own }))
}

/// The state at a step: which parts are known, the heads of git repositories, and the files.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/state", tag = "state",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step"), FilesQuery, Paging),
    responses((status = 200, body = StateDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(app_state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
    QueryString(query): QueryString<FilesQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<StateDocument>, Problem> {
    let limit = paging.limit()?;
    app_state
        .run(move |engine| {
            let (workspace, session, stored) = load_step(engine, &id, number)?;
            let about = ("state", stored.step.id.to_string(), query.path.clone());
            let after = paging.start_position(&about)?.unwrap_or(0);
            // Keeps a concurrent prune from freeing what is being read.
            let _lock = workspace.lock_shared()?;
            let state = load_state(&workspace, &session, &stored)?;
            let mut listing = FileListing { engine, after, limit: limit + 1, count: 0, items: Vec::new() };
            if let Some(files) = state.files {
                match query
                    .path
                    .as_deref()
                    .map(|path| path.trim_end_matches('/'))
                    .filter(|path| !path.is_empty())
                {
                    None => listing.add_directory(RelPath::root(), files)?,
                    Some(path) => {
                        let path = parse_relative_path(path)?;
                        let node = diff::find_node(engine.store(), files, &path)?;
                        let node = node.ok_or_else(|| Problem::not_found("path", &path.display()))?;
                        listing.add(&path, &node);
                        if let TreeNode::Dir { tree, .. } = node {
                            listing.add_directory(path, tree)?;
                        }
                    }
                }
            }
            let is_first = after == 0;
            let (mut sessions, mut size_bytes, mut git) = (Vec::new(), None, Vec::new());
            if is_first && query.path.is_none() {
                git = RepositoryDocument::from_state(&workspace, &state)?;
                sessions = session_states::session_states(&workspace, &stored)?;
                size_bytes = state.files.map(|files| diff::files_size(engine.store(), files)).transpose()?;
            }
            let place = |(place, _): &(u64, FileDocument)| *place;
            let shown = pagination::paginate(listing.items, limit, &about, place, |(_, file)| file.clone());
            Ok(Json(StateDocument {
                step: StepDocument::from_row(&stored),
                slots: StateSlotsDocument::from_state(&state),
                git,
                sessions,
                size_bytes: size_bytes.map(|size| size.bytes),
                items: shown.items,
                next_cursor: shown.next_cursor,
            }))
        })
        .await
}

/// Walks a tree until a page is full.
struct FileListing<'e> {
    engine: &'e Engine,
    after: u64,
    limit: u64,
    count: u64,
    items: Vec<(u64, FileDocument)>,
}

impl FileListing<'_> {
    /// Whether the page is full.
    fn is_full(&self) -> bool {
        self.items.len() as u64 >= self.limit
    }

    fn add(&mut self, path: &RelPath, node: &TreeNode) {
        self.count += 1;
        if self.count > self.after {
            self.items.push((self.count, FileDocument::from_node(path, node)));
        }
    }

    /// Adds everything below a directory. Iterative, because trees may be deeper than the stack allows.
    fn add_directory(&mut self, path: RelPath, tree: Hash) -> Result<(), Problem> {
        let mut open = vec![(path, Tree::load(self.engine.store(), tree)?.into_entries().into_iter())];
        while let Some((above, entries)) = open.last_mut() {
            if self.is_full() {
                break;
            }
            let Some(entry) = entries.next() else {
                open.pop();
                continue;
            };
            let path = above.join(&entry.name);
            self.add(&path, &entry.node);
            if let TreeNode::Dir { tree, .. } = entry.node {
                open.push((path, Tree::load(self.engine.store(), tree)?.into_entries().into_iter()));
            }
        }
        Ok(())
    }
}

/// The content of a file as it was at a step, or the target of a symlink.
///
/// The path is the `address` of a listing: bytes other than letters, digits and `-_.~/` are written as `%XX`.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/state/files/{*path}", tag = "state",
    params(
        ("session" = String, Path, description = "The session"),
        ("number" = u64, Path, description = "The step"),
        ("path" = String, Path, description = "The file; its name may contain `/`"),
        ("If-None-Match" = Option<String>, Header, description = "The `ETag` of a cached copy"),
    ),
    responses(
        (status = 200, description = "The bytes; text if they are UTF-8", content((Vec<u8> = "application/octet-stream"), (String = "text/plain"))),
        (status = 304, description = "Not modified"),
        (status = "default", body = Problem)
    ))]
pub async fn get_file(
    State(app_state): State<AppState>,
    uri: Uri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // A name need not be UTF-8, so the path is decoded here.
    let wrong = || Problem::not_found("page", "at this address");
    let (_, rest) = uri.path().split_once("/sessions/").ok_or_else(wrong)?;
    let (session, rest) = rest.split_once("/steps/").ok_or_else(wrong)?;
    let (number, name) = rest.split_once("/state/files/").ok_or_else(wrong)?;
    let number: u64 = number.parse().map_err(|_| Problem::usage("a step must be a number"))?;
    let session = String::from_utf8(percent_decode(session)?);
    let session = session.map_err(|_| Problem::usage("the session is not UTF-8"))?;
    let path = parse_relative_path(percent_decode(name)?)?;
    let known_tags: Vec<String> = (headers.get_all(header::IF_NONE_MATCH).iter())
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(|tag| tag.trim().trim_start_matches("W/").to_owned())
        .collect();
    app_state
        .run(move |engine| {
            let (workspace, _, stored) = load_step(engine, &session, number)?;
            let _lock = workspace.lock_shared()?;
            let state = workspace.load_state(&stored)?;
            let node = match state.files {
                Some(files) => diff::find_node(engine.store(), files, &path)?,
                None => None,
            };
            let node = node.ok_or_else(|| Problem::not_found("file", &path.display()))?;
            let hash = match &node {
                TreeNode::File { content: Content::Whole(hash) | Content::Chunked(hash), .. } => *hash,
                TreeNode::Symlink { target } => Hash::of(ObjectKind::Blob, target),
                TreeNode::File { content: Content::Vaulted, .. } | TreeNode::Skipped { .. } => {
                    return Err(
                        Problem::not_found("content of", &path.display()).with_hint("it is not stored")
                    );
                }
                TreeNode::Dir { .. } => {
                    return Err(Problem::not_found("file", &path.display())
                        .with_hint("it is a directory; use …/state?path= to list it"));
                }
            };
            let tag = format!("\"{hash}\"");
            let fixed = [
                (header::ETAG, tag.clone()),
                (header::CACHE_CONTROL, "private, max-age=31536000, immutable".to_owned()),
                // File contents are untrusted and must never run as a page of this server.
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
                (header::CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox".to_owned()),
            ];
            if known_tags.iter().any(|known| *known == tag || known == "*") {
                return Ok((StatusCode::NOT_MODIFIED, fixed).into_response());
            }
            if matches!(&node, TreeNode::File { size, .. } if *size > LARGEST) {
                return Err(Problem::usage("the file is too large to be sent")
                    .with_hint("\"stepback cat POINT PATH\" prints it"));
            }
            let bytes = workspace.read_node(&node)?;
            let is_text = !bytes.contains(&0) && std::str::from_utf8(&bytes).is_ok();
            let kind = if is_text { "text/plain; charset=utf-8" } else { "application/octet-stream" };
            Ok((fixed, [(header::CONTENT_TYPE, kind)], bytes).into_response())
        })
        .await
}

/// The conversation up to a step, oldest message first.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/state/conversation", tag = "state",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step"), Paging),
    responses((status = 200, body = Page<MessageDocument>), (status = "default", body = Problem)))]
pub async fn get_conversation(
    State(app_state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<MessageDocument>>, Problem> {
    let limit = paging.limit()?;
    app_state
        .run(move |engine| {
            let (workspace, session, stored) = load_step(engine, &id, number)?;
            let about = ("conversation", stored.step.id.to_string());
            let after = paging.start_position(&about)?.unwrap_or(0);
            let _lock = workspace.lock_shared()?;
            let state = load_state(&workspace, &session, &stored)?;
            let lines = conversation::texts(engine.store(), state.conversation)?;
            let mut messages = message_documents(&session.agent, &lines);
            messages.retain(|message| message.number > after);
            messages.truncate(usize::try_from(limit + 1).unwrap_or(usize::MAX));
            Ok(Json(pagination::paginate(
                messages,
                limit,
                &about,
                |message| message.number,
                MessageDocument::clone,
            )))
        })
        .await
}

fn message_documents(agent: &str, lines: &[String]) -> Vec<MessageDocument> {
    let is_ours = Agent::parse(agent).is_some() || agent == stepback_builtin_agent::NAME;
    let document = |(number, message): (u64, &TranscriptMessage)| {
        let (role, text) = (message.role, message.display_text());
        let whole = serde_json::to_value(message).unwrap_or_default();
        let word = whole.get("role").and_then(Value::as_str).map(str::to_owned);
        // What another program reported is returned as it was reported.
        let reported = lines.get(message.lines.start).filter(|_| !is_ours);
        let as_it_came =
            |line: &String| serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.clone()));
        let message = reported.map_or(whole, as_it_came);
        MessageDocument { number, role: word.filter(|_| role != MessageRole::Unknown), text, message }
    };
    (1..).zip(&transcript::parse_agent_messages(agent, lines)).map(document).collect()
}

/// The agent's memory at a step.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/state/memory", tag = "state",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step")),
    responses((status = 200, body = Option<Object>), (status = "default", body = Problem)))]
pub async fn get_memory(state: State<AppState>, path: Path<(String, u64)>) -> Result<Json<Value>, Problem> {
    get_state_part(state, path, |state| state.memory).await
}

/// The task list at a step.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/state/task", tag = "state",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step")),
    responses((status = 200, body = Option<Object>), (status = "default", body = Problem)))]
pub async fn get_task(state: State<AppState>, path: Path<(String, u64)>) -> Result<Json<Value>, Problem> {
    get_state_part(state, path, |state| state.task).await
}

/// The environment at a step.
#[utoipa::path(get, path = "/sessions/{session}/steps/{number}/state/env", tag = "state",
    params(("session" = String, Path, description = "The session"), ("number" = u64, Path, description = "The step")),
    responses((status = 200, body = Option<Object>), (status = "default", body = Problem)))]
pub async fn get_env(state: State<AppState>, path: Path<(String, u64)>) -> Result<Json<Value>, Problem> {
    get_state_part(state, path, |state| state.env).await
}

/// Returns a part of a state that is a JSON value; `null` if it was never recorded.
async fn get_state_part(
    State(app_state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
    part: fn(&Moment) -> Option<Hash>,
) -> Result<Json<Value>, Problem> {
    app_state
        .run(move |engine| {
            let (workspace, session, stored) = load_step(engine, &id, number)?;
            let _lock = workspace.lock_shared()?;
            let value = match part(&load_state(&workspace, &session, &stored)?) {
                Some(hash) => json::load(engine.store(), hash)
                    .map_err(|error| Problem::internal(format!("it cannot be read: {error}")))?,
                None => Value::Null,
            };
            Ok(Json(value))
        })
        .await
}
