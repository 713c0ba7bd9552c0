//! The events of `/events` over a WebSocket, which also takes commands for live agents.

use std::sync::LazyLock;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::StatusCode;
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use serde_json::json;
use stepback_api::control::{BreakpointSwitch, LiveCommand, LiveRequest, NewMessage};
use stepback_api::steps::StepEventDocument;
use utoipa::ToSchema;

use crate::api::breakpoints;
use crate::api::events::EventsQuery;
use crate::api::stops;
use crate::extract::{Json, Path, QueryString};
use crate::live::{Follower, FollowerEvent};
use crate::problem::Problem;
use crate::state::AppState;
use crate::strict::BodySchema;

/// Largest message of a client, in bytes.
const LARGEST: usize = 256 << 10;

/// Sends the events of `/events` as messages `{"event": "step", "data": …}`, and runs the commands of a client (`{"id": 1,
/// "do": "answer", "stop": …, "answer": "resume"}`), answered by `{"reply": 1, "data": …}` or `{"reply": 1, "problem": …}`.
#[utoipa::path(get, path = "/live", tag = "live", params(EventsQuery),
    responses((status = 101, description = "Switched to a WebSocket", body = LiveRequest), (status = "default", body = Problem)))]
pub async fn connect(
    State(state): State<AppState>,
    QueryString(query): QueryString<EventsQuery>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(StatusCode::UPGRADE_REQUIRED, "usage", rejection.body_text())
            .with_hint("open it as a WebSocket, or use /api/v1/events")
    })?;
    let follower = query.start_follower(&state, None).await?;
    // A browser's script proposes this one and one that holds its page's key, and closes the connection if none is chosen.
    let upgrade = upgrade.max_message_size(LARGEST).max_frame_size(LARGEST).protocols(["stepback"]);
    Ok(upgrade.on_upgrade(|socket| serve_socket(state, follower, socket)))
}

/// Serves a connection until the client leaves or stops reading, or the server stops.
async fn serve_socket(state: AppState, mut follower: Follower, mut socket: WebSocket) {
    let hello = json!({ "event": "hello", "position": follower.position() });
    if socket.send(Message::text(hello.to_string())).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            news = follower.next() => {
                let Some(news) = news else { break };
                for message in encode_event(&news, follower.position()) {
                    if socket.send(message).await.is_err() {
                        return;
                    }
                }
            }
            heard = socket.recv() => {
                let text = match heard {
                    Some(Ok(Message::Text(text))) => text,
                    Some(Ok(Message::Binary(_))) => {
                        let problem = Problem::usage("messages must be JSON text");
                        let _ = socket.send(Message::text(json!({ "reply": null, "problem": problem }).to_string())).await;
                        break;
                    }
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => continue,
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return,
                };
                let reply = handle_request(&state, &text).await;
                if socket.send(Message::text(reply.to_string())).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = socket.send(Message::Close(None)).await;
}

fn encode_event(event: &FollowerEvent, position: u64) -> Vec<Message> {
    let text = |value: Value| Message::text(value.to_string());
    match event {
        FollowerEvent::Steps(steps) => steps
            .iter()
            .map(|placed| text(json!({ "event": "step", "position": placed.position, "data": StepEventDocument::from_step(placed) })))
            .collect(),
        FollowerEvent::Changed => vec![text(json!({ "event": "changed" }))],
        FollowerEvent::Stops(stops) => vec![text(json!({ "event": "stops", "data": { "items": stops } }))],
        // Writing is how a client that vanished is noticed.
        FollowerEvent::KeepAlive => vec![text(json!({ "event": "quiet", "position": position })), Message::Ping(Vec::new().into())],
    }
}

async fn handle_request(state: &AppState, text: &str) -> Value {
    static SCHEMA: LazyLock<BodySchema> = LazyLock::new(|| {
        BodySchema::from_component(&super::operations().split_for_parts().1, &LiveRequest::name())
    });
    let whole = serde_json::from_str::<Value>(text);
    let checked = whole.as_ref().map_or(Ok(()), |whole| SCHEMA.check(whole));
    let request = checked.and_then(|()| {
        serde_json::from_str::<LiveRequest>(text).map_err(|error| Problem::usage(error.to_string()))
    });
    let request = match request {
        Ok(request) => request,
        Err(problem) => {
            // The reply carries the id if it can be read, so that the client can match it.
            let id = whole.ok().and_then(|value| value.get("id").cloned());
            return json!({ "reply": id, "problem": problem });
        }
    };
    match run_command(state, request.what).await {
        Ok(data) => json!({ "reply": request.id, "data": data }),
        Err(problem) => json!({ "reply": request.id, "problem": problem }),
    }
}

async fn run_command(app_state: &AppState, command: LiveCommand) -> Result<Value, Problem> {
    let state = State(app_state.clone());
    match command {
        LiveCommand::Answer { stop, say } => {
            stops::answer(state, Path(stop), Json(say)).await.and_then(to_json_value)
        }
        LiveCommand::Stops => stops::list(state).await.and_then(to_json_value),
        LiveCommand::Pause { session } => stops::pause(state, Path(session)).await.and_then(to_json_value),
        LiveCommand::Resume { session } => stops::resume(state, Path(session)).await.and_then(to_json_value),
        LiveCommand::Inject { session, text } => {
            stops::inject(state, Path(session), Json(NewMessage { text })).await.and_then(to_json_value)
        }
        LiveCommand::Breakpoints { workspace } => {
            breakpoints::list(state, Path(workspace)).await.and_then(to_json_value)
        }
        LiveCommand::AddBreakpoint { workspace, breakpoint } => {
            breakpoints::add(state, Path(workspace), Json(breakpoint))
                .await
                .and_then(|(_, added)| to_json_value(added))
        }
        LiveCommand::SwitchBreakpoint { workspace, breakpoint, enabled } => {
            breakpoints::set_enabled(state, Path((workspace, breakpoint)), Json(BreakpointSwitch { enabled }))
                .await
                .and_then(to_json_value)
        }
        LiveCommand::RemoveBreakpoint { workspace, breakpoint } => {
            breakpoints::remove(state, Path((workspace, breakpoint))).await.and_then(to_json_value)
        }
    }
}

fn to_json_value<T: Serialize>(Json(value): Json<T>) -> Result<Value, Problem> {
    serde_json::to_value(value).map_err(|error| Problem::internal(error.to_string()))
}
