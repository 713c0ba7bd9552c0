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
use crate::api::events::Following;
use crate::api::stops;
use crate::extract::{Json, Path, QueryString};
use crate::live::{Follower, News};
use crate::problem::Problem;
use crate::state::AppState;
use crate::strict::BodySchema;

/// Largest message of a client, in bytes.
const LARGEST: usize = 256 << 10;

/// Sends the events of `/events` as messages `{"event": "step", "data": …}`, and runs the commands of a client (`{"id": 1,
/// "do": "answer", "stop": …, "answer": "resume"}`), answered by `{"reply": 1, "data": …}` or `{"reply": 1, "problem": …}`.
#[utoipa::path(get, path = "/live", tag = "live", params(Following),
    responses((status = 101, description = "Switched to a WebSocket", body = LiveRequest), (status = "default", body = Problem)))]
pub async fn control(
    State(work): State<AppState>,
    QueryString(following): QueryString<Following>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(StatusCode::UPGRADE_REQUIRED, "usage", rejection.body_text())
            .hint("open it as a WebSocket, or use /api/v1/events")
    })?;
    let follower = following.begin(&work, None).await?;
    // A browser's script proposes this one and one that holds its page's key, and closes the connection if none is chosen.
    let upgrade = upgrade.max_message_size(LARGEST).max_frame_size(LARGEST).protocols(["stepback"]);
    Ok(upgrade.on_upgrade(|socket| talk(work, follower, socket)))
}

/// Serves a connection until the client leaves or stops reading, or the server stops.
async fn talk(work: AppState, mut follower: Follower, mut socket: WebSocket) {
    let hello = json!({ "event": "hello", "position": follower.position() });
    if socket.send(Message::text(hello.to_string())).await.is_err() {
        return;
    }
    loop {
        tokio::select! {
            news = follower.next() => {
                let Some(news) = news else { break };
                for message in messages(&news, follower.position()) {
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
                let reply = answer(&work, &text).await;
                if socket.send(Message::text(reply.to_string())).await.is_err() {
                    return;
                }
            }
        }
    }
    let _ = socket.send(Message::Close(None)).await;
}

fn messages(news: &News, position: u64) -> Vec<Message> {
    let text = |value: Value| Message::text(value.to_string());
    match news {
        News::Steps(steps) => steps
            .iter()
            .map(|placed| text(json!({ "event": "step", "position": placed.position, "data": StepEventDocument::of(placed) })))
            .collect(),
        News::Changed => vec![text(json!({ "event": "changed" }))],
        News::Stops(stops) => vec![text(json!({ "event": "stops", "data": { "items": stops } }))],
        // Writing is how a client that vanished is noticed.
        News::Quiet => vec![text(json!({ "event": "quiet", "position": position })), Message::Ping(Vec::new().into())],
    }
}

async fn answer(work: &AppState, text: &str) -> Value {
    static SCHEMA: LazyLock<BodySchema> = LazyLock::new(|| {
        BodySchema::component(&super::operations().split_for_parts().1, &LiveRequest::name())
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
    match done(work, request.what).await {
        Ok(data) => json!({ "reply": request.id, "data": data }),
        Err(problem) => json!({ "reply": request.id, "problem": problem }),
    }
}

async fn done(work: &AppState, what: LiveCommand) -> Result<Value, Problem> {
    let state = State(work.clone());
    match what {
        LiveCommand::Answer { stop, say } => {
            stops::answer(state, Path(stop), Json(say)).await.and_then(document)
        }
        LiveCommand::Stops => stops::list(state).await.and_then(document),
        LiveCommand::Pause { session } => stops::pause(state, Path(session)).await.and_then(document),
        LiveCommand::Resume { session } => stops::resume(state, Path(session)).await.and_then(document),
        LiveCommand::Inject { session, text } => {
            stops::inject(state, Path(session), Json(NewMessage { text })).await.and_then(document)
        }
        LiveCommand::Breakpoints { workspace } => {
            breakpoints::list(state, Path(workspace)).await.and_then(document)
        }
        LiveCommand::AddBreakpoint { workspace, breakpoint } => {
            breakpoints::add(state, Path(workspace), Json(breakpoint))
                .await
                .and_then(|(_, added)| document(added))
        }
        LiveCommand::SwitchBreakpoint { workspace, breakpoint, enabled } => {
            breakpoints::switch(state, Path((workspace, breakpoint)), Json(BreakpointSwitch { enabled }))
                .await
                .and_then(document)
        }
        LiveCommand::RemoveBreakpoint { workspace, breakpoint } => {
            breakpoints::remove(state, Path((workspace, breakpoint))).await.and_then(document)
        }
    }
}

fn document<T: Serialize>(Json(value): Json<T>) -> Result<Value, Problem> {
    serde_json::to_value(value).map_err(|error| Problem::internal(error.to_string()))
}
