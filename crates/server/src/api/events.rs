//! Live updates as server-sent events whose ids are positions in the log.

use std::convert::Infallible;
use std::fmt::Write;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use serde::{Deserialize, Serialize};
use stepback_api::page::Page;
use stepback_api::steps::{StepEventDocument, StreamEventDocument};
use stepback_model::record::StepKind;
use utoipa::IntoParams;

use crate::extract::QueryString;
use crate::live::{Follower, FollowerEvent, LiveFilter};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Which events to receive.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Only what happens in this workspace.
    pub workspace: Option<String>,
    /// Only what happens in this session.
    pub session: Option<String>,
    /// Only steps of these kinds, separated by commas.
    pub kinds: Option<String>,
    /// Begin after this position: the `id` of the last event that was seen. Without it, only new events are sent.
    pub after: Option<u64>,
}

impl EventsQuery {
    /// Begins to follow. `last` is the last event id that a reconnecting client sends; it overrides `after`.
    pub async fn start_follower(
        self,
        state: &AppState,
        last_event_id: Option<u64>,
    ) -> Result<Follower, Problem> {
        let mut kinds = Vec::new();
        for kind in self.kinds.iter().flat_map(|kinds| kinds.split(',')).filter(|kind| !kind.is_empty()) {
            let known = StepKind::parse(kind).ok_or_else(|| {
                let all: Vec<&str> = StepKind::ALL.into_iter().map(StepKind::as_str).collect();
                Problem::usage("unknown kind of step")
                    .with_hint(format!("known kinds are {}", all.join(", ")))
            })?;
            kinds.push(known);
        }
        let (workspace, session) = (self.workspace, self.session);
        let wanted = state
            .run(move |engine| {
                let workspace = workspace.map(|id| state::find_workspace(engine, &id)).transpose()?;
                let session = session.map(|id| state::find_session(engine, &id)).transpose()?;
                let session = session.map(|(_, session)| session.id);
                Ok(LiveFilter { workspace: workspace.map(|workspace| workspace.record.id), session, kinds })
            })
            .await?;
        Follower::start(state, wanted, last_event_id.or(self.after)).await
    }
}

/// Streams what happens: `step` with the step as data and its position in the log as id; `stops` with all agents that wait,
/// when that changes; `changed` when something else may have changed (sessions, annotations, operations), as a hint to fetch
/// it again. A client that reconnects with `Last-Event-ID` misses no step.
#[utoipa::path(get, path = "/events", tag = "live",
    params(EventsQuery, ("last-event-id" = Option<u64>, Header, description = "The id of the last event received")),
    responses((status = 200, body = StreamEventDocument, content_type = "text/event-stream"), (status = "default", body = Problem)))]
pub async fn follow(
    State(state): State<AppState>,
    QueryString(query): QueryString<EventsQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let last = match headers.get("last-event-id") {
        None => None,
        Some(id) => {
            let position = id.to_str().ok().and_then(|id| id.parse().ok());
            Some(position.ok_or_else(|| Problem::usage("the Last-Event-ID is not a position in this log"))?)
        }
    };
    let follower = query.start_follower(&state, last).await?;
    // A client that is cut off before the first step still needs a position to resume from.
    let first = format!("retry: 1000\nid: {}\n\n", follower.position());
    let pieces = stream::unfold((Some(first), follower), |(first, mut follower)| async move {
        let piece = match first {
            Some(first) => first,
            None => {
                let news = follower.next().await?;
                render_event(&news, follower.position())
            }
        };
        Some((Ok::<_, Infallible>(piece), (None, follower)))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
        // Proxies in between must not buffer events.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((headers, Body::from_stream(pieces)).into_response())
}

fn render_event(event: &FollowerEvent, position: u64) -> String {
    let mut text = String::new();
    match event {
        FollowerEvent::Steps(steps) => {
            for placed in steps {
                let data = to_json(&StepEventDocument::from_step(placed));
                // Writing into a string cannot fail.
                let _ = write!(text, "id: {}\nevent: step\ndata: {data}\n\n", placed.position);
            }
        }
        FollowerEvent::Changed => text.push_str("event: changed\ndata: {}\n\n"),
        FollowerEvent::Stops(stops) => {
            let page = Page::whole(stops.clone());
            let _ = write!(text, "event: stops\ndata: {}\n\n", to_json(&page));
        }
        // An id without data is not an event, but updates the position that a client reconnects with.
        FollowerEvent::KeepAlive => {
            let _ = write!(text, ": nothing happened\nid: {position}\n\n");
        }
    }
    text
}

fn to_json(document: &impl Serialize) -> String {
    // Documents are plain data with names as keys, which always serialise.
    serde_json::to_string(document).unwrap_or_default()
}
