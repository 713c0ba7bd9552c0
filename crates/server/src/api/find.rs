//! Finds steps of one workspace or of all, by their fields or by full text: `stepback query` and `stepback search`.

use axum::extract::State;
use jiff::tz::TimeZone;
use serde::Deserialize;
use stepback_api::conversions::StepDescriber;
use stepback_api::search::{FoundStepsDocument, SearchResultsDocument};
use stepback_engine::Engine;
use stepback_model::escape::excerpt;
use stepback_model::hash::Hash;
use stepback_model::ids::WorkspaceId;
use stepback_model::page_cursor;
use stepback_model::search::{Pattern, PatternError};
use stepback_model::time::Timestamp;
use stepback_model::time_expr;
use stepback_store::port::{ORDERS, SearchRequest, StepQuery as Steps};
use utoipa::IntoParams;

use super::steps::parse_kinds;
use crate::extract::{Json, QueryString};
use crate::pagination::Paging;
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Selects the steps to search.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SearchScope {
    /// Only those of this workspace; all workspaces if none is given.
    pub workspace: Option<String>,
    /// Only those of this session.
    pub session: Option<String>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only of these kinds, separated by commas.
    pub kind: Option<String>,
    /// Only those made since this time: `2 hours ago`, `2026-01-23`.
    pub since: Option<String>,
    /// Only those made until this time.
    pub until: Option<String>,
    /// Only those that failed (`true`), or that did not (`false`).
    pub failed: Option<bool>,
    /// Also checkpoints that were deleted or pruned.
    #[serde(default)]
    pub hidden: bool,
}

impl SearchScope {
    /// Resolves the workspace and the query; records first what hooks left there.
    fn resolve(&self, engine: &Engine) -> Result<(Option<WorkspaceId>, Steps), Problem> {
        let mut workspace = match &self.workspace {
            Some(id) => Some(state::find_workspace(engine, id)?.record.id),
            None => None,
        };
        let session = match &self.session {
            Some(id) => {
                let (home, session) = state::find_session(engine, id)?;
                // If both are given and the session is in another workspace, nothing is found.
                workspace = workspace.or(Some(home.record.id));
                Some(session.id)
            }
            None => None,
        };
        let now = engine.env.now();
        let among = Steps {
            session,
            agent: self.agent.clone(),
            kinds: parse_kinds(self.kind.as_deref())?,
            since: parse_time("since", self.since.as_deref(), now)?,
            until: parse_time("until", self.until.as_deref(), now)?,
            failed: self.failed,
            hidden: (!self.hidden).then_some(false),
            ..Steps::default()
        };
        Ok((workspace, among))
    }
}

pub(super) fn parse_time(
    name: &str,
    text: Option<&str>,
    now: Timestamp,
) -> Result<Option<Timestamp>, Problem> {
    let parse = |text: &str| {
        time_expr::parse(text, now, &TimeZone::system()).map_err(|error| {
            Problem::usage(format!("{name}: {error}"))
                .with_hint("2 hours ago, yesterday 14:00, 2026-01-23T12:00")
        })
    };
    text.map(parse).transpose()
}

/// Further filters for steps.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StepFilter {
    /// Only those of this sub-agent.
    pub worker: Option<String>,
    /// Only those about this tool or model.
    pub tool: Option<String>,
    /// Only those of this call.
    pub call: Option<String>,
    /// Only those of this model turn.
    pub iteration: Option<u64>,
    /// Only those of the task with this id.
    pub task: Option<String>,
    /// Only those of the trace with this id.
    pub trace: Option<String>,
    /// Only those of the span with this id.
    pub span: Option<String>,
    /// Only those with this state: a hash.
    pub state: Option<String>,
    /// Only checkpoints (`true`), or only other steps (`false`).
    pub checkpoint: Option<bool>,
    /// Only those with this label.
    pub label: Option<String>,
    /// Only those with this tag.
    pub tag: Option<String>,
    /// Only those that took at least this long: `500ms`, `30s`, `2m`.
    pub min_duration: Option<String>,
    /// The order: `newest` or `oldest` (as recorded), `latest` or `earliest` (as it happened), `longest` or `shortest` first.
    pub order: Option<String>,
}

impl StepFilter {
    fn apply_to(&self, steps: Steps) -> Result<Steps, Problem> {
        let state = match &self.state {
            Some(text) => {
                Some(Hash::from_hex(text).ok_or_else(|| Problem::usage("state: a hash has 64 hex digits"))?)
            }
            None => None,
        };
        let min_duration = match &self.min_duration {
            Some(text) => Some(time_expr::span_micros(text).ok_or_else(|| {
                Problem::usage("min_duration: not a duration").with_hint("500ms, 30s, 2m, 1h")
            })?),
            None => None,
        };
        let wanted = self.order.as_deref().unwrap_or("newest");
        let order = ORDERS
            .iter()
            .find(|(name, _, _)| *name == wanted)
            .ok_or_else(|| Problem::unknown_word("order", wanted, &ORDERS.map(|(name, _, _)| name)))?;
        Ok(Steps {
            worker: self.worker.clone(),
            tool: self.tool.clone(),
            call: self.call.clone(),
            iteration: self.iteration,
            task: self.task.clone(),
            trace: self.trace.clone(),
            span: self.span.clone(),
            state,
            checkpoint: self.checkpoint,
            label: self.label.clone(),
            tag: self.tag.clone(),
            min_duration,
            by: order.1,
            oldest_first: order.2,
            ..steps
        })
    }
}

/// Finds steps by their fields.
#[utoipa::path(get, path = "/steps", tag = "search", params(SearchScope, StepFilter, Paging),
    responses((status = 200, body = FoundStepsDocument), (status = "default", body = Problem)))]
pub async fn find_steps(
    State(state): State<AppState>,
    QueryString(scope): QueryString<SearchScope>,
    QueryString(filter): QueryString<StepFilter>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<FoundStepsDocument>, Problem> {
    let about = ("find", format!("{scope:?} {filter:?}"));
    let (limit, from) = (paging.limit()?, paging.start_position(&about)?);
    state
        .run(move |engine| {
            let (workspace, among) = scope.resolve(engine)?;
            let query = Steps { from, limit: Some(limit), ..filter.apply_to(among)? };
            let page = engine.store.find(workspace, &query)?;
            let mut steps = StepDescriber::new(engine.store());
            let mut items = Vec::with_capacity(page.steps.len());
            for placed in &page.steps {
                items.push(steps.describe_step(placed.workspace, &placed.stored)?);
            }
            Ok(Json(FoundStepsDocument {
                items,
                total: page.total,
                total_is_exact: !page.at_least,
                next_cursor: page.next.map(|next| page_cursor::encode(next, &about)),
            }))
        })
        .await
}

/// A full-text query.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct SearchQuery {
    /// The query: `word`, `"a phrase"`, `begin*`, `-not`.
    pub q: String,
    /// Search for exactly these characters, punctuation included, anywhere in a text.
    #[serde(default)]
    pub substring: bool,
    /// Sort by newest instead of best match.
    #[serde(default)]
    pub newest: bool,
}

/// Finds steps by full text.
#[utoipa::path(get, path = "/search", tag = "search", params(SearchQuery, SearchScope, Paging),
    responses((status = 200, body = SearchResultsDocument), (status = "default", body = Problem)))]
pub async fn search(
    State(state): State<AppState>,
    QueryString(query): QueryString<SearchQuery>,
    QueryString(scope): QueryString<SearchScope>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<SearchResultsDocument>, Problem> {
    let about = ("search", format!("{query:?} {scope:?}"));
    let (limit, skip) = (paging.limit()?, paging.start_position(&about)?.unwrap_or(0));
    let pattern = match query.substring {
        true => Pattern::substring(&query.q),
        false => Pattern::words(&query.q),
    };
    let pattern = pattern.map_err(pattern_problem)?;
    let again = state.clone();
    state
        .run(move |engine| {
            let (workspace, among) = scope.resolve(engine)?;
            let search = SearchRequest { pattern, workspace, among, ranked: !query.newest, skip, limit };
            let (found, complete) = match again.is_indexing() {
                // A background task is indexing already, so this search need not.
                true => (engine.store.search(&search)?, false),
                false => engine.search_with_partial_index(&search)?,
            };
            if !complete {
                again.index_in_background();
            }
            let mut steps = StepDescriber::new(engine.store());
            let items = found.hits.iter().map(|hit| steps.describe_hit(hit)).collect::<Result<_, _>>()?;
            Ok(Json(SearchResultsDocument {
                items,
                total: found.total,
                total_is_exact: !found.at_least,
                next_cursor: found.next.map(|next| page_cursor::encode(next, &about)),
                complete,
            }))
        })
        .await
}

fn pattern_problem(error: PatternError) -> Problem {
    let hint = match error {
        PatternError::NoWord { .. } => "substring=true also matches punctuation",
        PatternError::Unclosed => "substring=true matches quotation marks",
        _ => "word, \"a phrase\", begin*, -not",
    };
    Problem::usage(format!("q: {}", excerpt(&error.to_string(), 300))).with_hint(hint)
}
