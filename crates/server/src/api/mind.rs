//! The mind of an agent: its board at any moment, what changed on it, what rests on what, and its confidence over time.

use std::collections::HashMap;

use axum::extract::State;
use serde::Deserialize;
use serde_json::json;
use stepback_api::conversions::ItemDescriber;
use stepback_api::page::Page;
use stepback_api::reasoning::{
    BoardChangeDocument, BoardDocument, BoardEdgeDocument, BoardGraphDocument, BoardItemDocument,
    BoardLinkDocument, BoardPartDocument, ConfidenceDocument, ConfidenceLineDocument, NextActionDocument,
    ThoughtDocument,
};
use stepback_engine::Workspace;
use stepback_engine::board::{BoardAtPoint, BoardMoment};
use stepback_model::record::Session;
use stepback_reasoning::diff::BoardDiff;
use stepback_reasoning::{ItemId, ItemKind};
use utoipa::IntoParams;

use super::points::LONGEST;
use crate::extract::{Json, Path, QueryString};
use crate::pagination::{self, Paging};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Most changes returned with a board.
const MAX_CHANGES: usize = 200;
/// Most next actions returned with a board.
const MAX_SUGGESTIONS: usize = 5;
/// Most items in a graph.
const MAX_GRAPH_ITEMS: u64 = 400;
/// Most moments in a history: more than a chart has points.
const MAX_MOMENTS: usize = 600;
/// Most hypotheses in a history.
const LINES: usize = 50;

/// Selects the moment of a board.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BoardQuery {
    /// The moment, as a point: `#12`, `10 minutes ago`, a branch. Now if none is given.
    pub at: Option<String>,
}

/// The moment a board is compared with, and how much of it to return.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BoardCompareQuery {
    /// The other moment, as a point. The one before the step if none is given.
    pub against: Option<String>,
    /// Only items whose text contains this, ignoring case, or whose id is this.
    pub find: Option<String>,
    /// Most items of each kind to return, at most 1000.
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u64>,
}

/// Selects items.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ItemQuery {
    /// Only items that refer to this item.
    pub about: Option<String>,
    /// Only items whose text contains this, ignoring case, or whose id is this.
    pub find: Option<String>,
}

/// Selects a part of a graph.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct GraphQuery {
    /// The item at the centre of the graph. The newest beliefs if none is given.
    pub around: Option<String>,
    /// Most items to return, at most 400.
    #[param(minimum = 1, maximum = 400)]
    pub limit: Option<u64>,
}

/// Resolves a point to a moment; now if there is none.
fn resolve_moment(workspace: &Workspace, point: Option<&str>) -> Result<BoardMoment, Problem> {
    match point {
        None => Ok(BoardMoment::Now),
        Some(text) if text.len() > LONGEST => {
            Err(Problem::usage(format!("a point must not be longer than {LONGEST} bytes")))
        }
        Some(text) => {
            let now = workspace.engine.env.now();
            Ok(stepback_board::resolve_moment(workspace, text, now, &jiff::tz::TimeZone::system)?)
        }
    }
}

/// The mind that the one of a moment is compared with.
fn comparison_board(
    workspace: &Workspace,
    session: &Session,
    at: &BoardMoment,
    current: &BoardAtPoint,
    against: Option<&str>,
) -> Result<BoardAtPoint, Problem> {
    let other = match (against, at, &current.step) {
        (Some(point), _, _) => resolve_moment(workspace, Some(point))?,
        (None, BoardMoment::Step(number), _) => BoardMoment::Step(number.saturating_sub(1)),
        (None, _, Some(thought)) => BoardMoment::Step(thought.step.number.saturating_sub(1)),
        (None, _, None) => return Ok(current.clone()),
    };
    Ok(workspace.board_at_reusing(session, &other, &current.board)?)
}

fn changed_items(diff: &BoardDiff) -> Vec<(ItemId, &'static str)> {
    let word = |change: &stepback_reasoning::diff::ItemChange| match (&change.before, &change.after) {
        (None, _) => "added",
        (_, None) => "removed",
        _ => "changed",
    };
    diff.changes.iter().map(|change| (change.item, word(change))).collect()
}

/// The mind of a session at a moment, what changed since another moment, and what to do next.
#[utoipa::path(get, path = "/sessions/{session}/mind", tag = "mind",
    params(("session" = String, Path, description = "The session"), BoardQuery, BoardCompareQuery),
    responses((status = 200, body = BoardDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(at): QueryString<BoardQuery>,
    QueryString(compare): QueryString<BoardCompareQuery>,
) -> Result<Json<BoardDocument>, Problem> {
    let limit = Paging { limit: compare.limit, after: None }.limit()?;
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let at = resolve_moment(&workspace, at.at.as_deref())?;
            let seen = workspace.board_at(&session, &at)?;
            let before = comparison_board(&workspace, &session, &at, &seen, compare.against.as_deref())?;
            let diff = before.board.diff(&seen.board);
            let changes = changed_items(&diff);
            let mut describer =
                ItemDescriber::new(workspace.store(), &seen.board, changes.iter().copied().collect());
            let mut parts = Vec::new();
            let which = ItemQuery { about: None, find: compare.find };
            for kind in ItemKind::ALL {
                let list = ItemList { session: &session, current: &seen, kind, query: &which };
                let all = list.matching_items(None);
                let total = all.len() as u64;
                let page = list.describe_page(&mut describer, all, 0, limit)?;
                let (items, next_cursor) = (page.items, page.next_cursor);
                parts.push(BoardPartDocument { name: kind.plural().to_owned(), total, items, next_cursor });
            }
            let told = diff.changes.iter().zip(&changes).take(MAX_CHANGES);
            let until =
                (at != BoardMoment::Now).then(|| seen.step.as_ref().map_or(0, |stored| stored.step.number));
            let metrics = stepback_board::measure_session(&workspace, &session, &seen.board, until)?;
            Ok(Json(BoardDocument {
                metrics: json!(metrics),
                session: session.id.to_string(),
                step: seen.step.as_ref().map(ThoughtDocument::from_row),
                against: before.step.as_ref().map(ThoughtDocument::from_row),
                summary: diff.summary.clone(),
                changed: diff.changes.len() as u64,
                changes: told
                    .map(|(change, (item, word))| BoardChangeDocument {
                        item: item.to_string(),
                        change: (*word).to_owned(),
                        sentence: change.sentence.clone(),
                    })
                    .collect(),
                parts,
                next: (seen.board.next_actions().into_iter().take(MAX_SUGGESTIONS))
                    .map(|action| NextActionDocument {
                        item: action.item.to_string(),
                        what: action.what,
                        why: action.why,
                        command: action.command,
                    })
                    .collect(),
            }))
        })
        .await
}

/// A list of items of one kind at one moment.
struct ItemList<'l> {
    session: &'l Session,
    current: &'l BoardAtPoint,
    kind: ItemKind,
    query: &'l ItemQuery,
}

impl ItemList<'_> {
    /// The key that a cursor belongs to: another moment has another list.
    fn cursor_key(&self) -> (&'static str, String, String, String) {
        let step = self.current.step.as_ref().map(|stored| stored.step.id.to_string());
        let which = format!("{:?} {:?}", self.query.about, self.query.find);
        (self.kind.plural(), self.session.id.to_string(), step.unwrap_or_default(), which)
    }

    /// All items, in order, after filtering.
    fn matching_items(&self, about: Option<ItemId>) -> Vec<ItemId> {
        let mind = &self.current.board;
        let mut all = mind.in_order(self.kind);
        if let Some(about) = about {
            all.retain(|item| mind.refers(*item).contains(&about));
        }
        if let Some(text) = self.query.find.as_deref().map(str::to_lowercase) {
            let says = |item: &ItemId| mind.text_of(*item).to_lowercase().contains(&text);
            all.retain(|item| item.to_string().to_lowercase() == text || says(item));
        }
        all
    }

    /// Returns a page of at most `limit` items after a position.
    fn describe_page(
        &self,
        describer: &mut ItemDescriber<'_>,
        all: Vec<ItemId>,
        after: u64,
        limit: u64,
    ) -> Result<Page<BoardItemDocument>, Problem> {
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        let wanted = usize::try_from(limit + 1).unwrap_or(usize::MAX);
        let rows: Vec<(u64, ItemId)> =
            (after + 1..).zip(all.into_iter().skip(skipped).take(wanted)).collect();
        let page =
            pagination::paginate(rows, limit, &self.cursor_key(), |(place, _)| *place, |(_, item)| *item);
        let mut items = Vec::with_capacity(page.items.len());
        for item in page.items {
            items.extend(describer.describe_item(item)?);
        }
        Ok(Page { items, next_cursor: page.next_cursor, total: page.total })
    }
}

/// Items of one kind on a session's board at a moment, the most important first.
#[utoipa::path(get, path = "/sessions/{session}/mind/{part}", tag = "mind",
    params(
        ("session" = String, Path, description = "The session"),
        ("part" = String, Path, description = "`hypotheses`, `evidence`, `beliefs`, `contradictions`, `gaps`, `verifications`, `runs`, `notes` or `experiments`"),
        BoardQuery, ItemQuery, Paging,
    ),
    responses((status = 200, body = Page<BoardItemDocument>), (status = "default", body = Problem)))]
pub async fn list_items(
    State(state): State<AppState>,
    Path((id, part)): Path<(String, String)>,
    QueryString(at): QueryString<BoardQuery>,
    QueryString(query): QueryString<ItemQuery>,
    QueryString(paging): QueryString<Paging>,
) -> Result<Json<Page<BoardItemDocument>>, Problem> {
    let limit = paging.limit()?;
    let kind = ItemKind::ALL.into_iter().find(|kind| kind.plural() == part).ok_or_else(|| {
        let all: Vec<&str> = ItemKind::ALL.iter().map(|kind| kind.plural()).collect();
        Problem::not_found("part of a board", &part).with_hint(format!("there are {}", all.join(", ")))
    })?;
    let about = query.about.as_deref().map(parse_item_id).transpose()?;
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let seen = workspace.board_at(&session, &resolve_moment(&workspace, at.at.as_deref())?)?;
            let list = ItemList { session: &session, current: &seen, kind, query: &query };
            let after = paging.start_position(&list.cursor_key())?.unwrap_or(0);
            let mut describer = ItemDescriber::new(workspace.store(), &seen.board, HashMap::new());
            Ok(Json(list.describe_page(&mut describer, list.matching_items(about), after, limit)?))
        })
        .await
}

fn parse_item_id(name: &str) -> Result<ItemId, Problem> {
    name.parse().map_err(|error: stepback_reasoning::MindError| Problem::usage(error.to_string()))
}

/// What rests on what at a moment: beliefs, the hypotheses they belong to, and contradictions.
#[utoipa::path(get, path = "/sessions/{session}/mind/graph", tag = "mind",
    params(("session" = String, Path, description = "The session"), BoardQuery, GraphQuery),
    responses((status = 200, body = BoardGraphDocument), (status = "default", body = Problem)))]
pub async fn get_graph(
    State(state): State<AppState>,
    Path(id): Path<String>,
    QueryString(at): QueryString<BoardQuery>,
    QueryString(query): QueryString<GraphQuery>,
) -> Result<Json<BoardGraphDocument>, Problem> {
    let most = match query.limit.unwrap_or(60) {
        limit if (1..=MAX_GRAPH_ITEMS).contains(&limit) => usize::try_from(limit).unwrap_or(usize::MAX),
        _ => return Err(Problem::usage(format!("limit must be between 1 and {MAX_GRAPH_ITEMS}"))),
    };
    let centre = query.around.as_deref().map(parse_item_id).transpose()?;
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let at = resolve_moment(&workspace, at.at.as_deref())?;
            let seen = workspace.board_at(&session, &at)?;
            if let Some(centre) = centre {
                seen.board.expect(centre).map_err(|error| Problem::not_found("item", &error.to_string()))?;
            }
            let before = comparison_board(&workspace, &session, &at, &seen, None)?;
            let changes = changed_items(&before.board.diff(&seen.board)).into_iter().collect();
            let picture = seen.board.picture(centre, most);
            let mut describer = ItemDescriber::new(workspace.store(), &seen.board, changes);
            let mut nodes = Vec::new();
            for item in picture.nodes {
                nodes.extend(describer.describe_item(item)?);
            }
            let edges = picture.edges.into_iter().map(|edge| BoardEdgeDocument {
                from: edge.from.to_string(),
                link: BoardLinkDocument {
                    to: edge.to.to_string(),
                    how: edge.how.to_owned(),
                    strength: edge.strength,
                    reason: edge.reason,
                },
            });
            Ok(Json(BoardGraphDocument { nodes, edges: edges.collect(), left_out: picture.left_out as u64 }))
        })
        .await
}

/// The confidence of a session in its hypotheses, from its first thought to its last. A long session is sampled.
#[utoipa::path(get, path = "/sessions/{session}/mind/confidence", tag = "mind",
    params(("session" = String, Path, description = "The session")),
    responses((status = 200, body = ConfidenceDocument), (status = "default", body = Problem)))]
pub async fn get_confidence(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<ConfidenceDocument>, Problem> {
    state
        .run(move |engine| {
            let (workspace, session) = state::find_session(engine, &id)?;
            let mut history = stepback_board::confidence_history(&workspace, &session, MAX_MOMENTS)?;
            let now = workspace.board_at(&session, &BoardMoment::Now)?.board;
            let mut order: Vec<u32> =
                now.in_order(ItemKind::Hypothesis).iter().map(|item| item.number).collect();
            let gone: Vec<u32> =
                history.lines.keys().copied().filter(|number| !order.contains(number)).collect();
            order.extend(gone);
            let left_out = order.len().saturating_sub(LINES) as u64;
            let mut lines = Vec::new();
            for number in order.into_iter().take(LINES) {
                let Some(line) = history.lines.remove(&number) else { continue };
                let item = ItemId { kind: ItemKind::Hypothesis, number };
                let last = line.confidence.iter().rposition(Option::is_some).and_then(|at| line.at.get(at));
                let text = match (now.hypotheses.get(number), last.and_then(|at| history.moments.get(*at))) {
                    (Some(known), _) => known.statement.clone(),
                    (None, Some((step, _))) => {
                        let then =
                            workspace.board_at_reusing(&session, &BoardMoment::Step(*step), &now)?.board;
                        then.text_of(item)
                    }
                    (None, None) => String::new(),
                };
                lines.push(ConfidenceLineDocument {
                    hypothesis: item.to_string(),
                    text,
                    at: line.at.iter().map(|at| *at as u64).collect(),
                    confidence: line.confidence.iter().map(|one| one.map(round_confidence)).collect(),
                    status: line.status.iter().map(|one| one.map(|word| word.as_str().to_owned())).collect(),
                });
            }
            let (number, at) = history.moments.iter().copied().unzip();
            Ok(Json(ConfidenceDocument {
                session: session.id.to_string(),
                thoughts: history.changes as u64,
                every: history.every as u64,
                number,
                at,
                lines,
                left_out,
            }))
        })
        .await
}

/// Rounds to as many digits as the bounds of confidence have.
fn round_confidence(confidence: f64) -> f64 {
    (confidence * 1e4).round() / 1e4
}
