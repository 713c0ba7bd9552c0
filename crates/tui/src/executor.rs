//! Carries out the app's effects, off the screen's thread.
//!
//! Requests that only matter for what is shown now (a step, a file, a difference) run one at a time, and of the waiting
//! ones only the newest is kept: a user who holds a key down sees where it ends, and does not wait for steps that were
//! passed.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use stepback_api::address::encode_segment;
use stepback_api::blame::BlameDocument;
use stepback_api::branches::BranchDocument;
use stepback_api::files::{ChangedFileDocument, FileDocument};
use stepback_api::page::Page;
use stepback_api::plans::{NewRewind, NewUndo};
use stepback_api::reasoning::BoardDocument;
use stepback_api::sessions::SessionDocument;
use stepback_api::state::{MessageDocument, StateDocument};
use stepback_api::steps::{StepDetailDocument, StepDocument};
use stepback_model::point;

use crate::app::pager::PagerRow;
use crate::app::window::{PAGE, WindowSide};
use crate::app::{BoardView, CompareTarget, StatePart};
use crate::effect::{AppEffect, AppMessage, CommandMethod, SourceResponse, StepsAround, TuiCommand};
use crate::source::{DataSource, SourceError, SourceResult, session_path, workspace_path};
use crate::write;

/// The most bytes of a file that are shown.
const FILE: usize = 16 << 20;
/// The most items of each kind that a board shows.
const MAX_BOARD_ITEMS: usize = 200;
/// The most messages of a conversation that are shown.
const MAX_MESSAGES: usize = 1000;

/// Carries out effects and reports their results.
pub struct EffectExecutor {
    source: DataSource,
    sender: Sender<AppMessage>,
    pending: Arc<Mutex<PendingEffects>>,
}

/// For each kind of effect that is running, the one that comes next.
type PendingEffects = HashMap<Discriminant<AppEffect>, Option<AppEffect>>;

impl EffectExecutor {
    /// Creates a performer that sends requests to `source` and results to `tell`.
    pub fn new(source: DataSource, sender: Sender<AppMessage>) -> Self {
        Self { source, sender, pending: Arc::default() }
    }

    /// Starts to carry out an effect.
    pub fn execute(&self, effect: AppEffect) {
        let (source, tell, lanes) = (self.source.clone(), self.sender.clone(), self.pending.clone());
        if !is_replaceable(&effect) {
            self.source.handle().spawn(async move {
                let response = run_effect(&source, effect).await;
                // The receiver is gone when the program ends.
                let _ = tell.send(AppMessage::Response(Box::new(response)));
            });
            return;
        }
        let lane = discriminant(&effect);
        let locked = move |lanes: &Mutex<PendingEffects>, next: Option<AppEffect>| -> Option<AppEffect> {
            // The map is consistent even after a panic: no change in it is partial.
            let mut lanes = lanes.lock().unwrap_or_else(PoisonError::into_inner);
            match (lanes.get_mut(&lane), next) {
                (Some(waiting), Some(next)) => {
                    *waiting = Some(next);
                    None
                }
                (None, Some(next)) => {
                    lanes.insert(lane, None);
                    Some(next)
                }
                (Some(waiting), None) => {
                    let next = waiting.take();
                    if next.is_none() {
                        lanes.remove(&lane);
                    }
                    next
                }
                (None, None) => None,
            }
        };
        let Some(mut effect) = locked(&self.pending, Some(effect)) else { return };
        self.source.handle().spawn(async move {
            loop {
                let response = run_effect(&source, effect).await;
                let _ = tell.send(AppMessage::Response(Box::new(response)));
                match locked(&lanes, None) {
                    Some(next) => effect = next,
                    None => return,
                }
            }
        });
    }
}

/// Whether a newer effect of the same kind makes this one unnecessary.
fn is_replaceable(effect: &AppEffect) -> bool {
    matches!(
        effect,
        AppEffect::Sessions
            | AppEffect::Stops
            | AppEffect::Branches(_)
            | AppEffect::Lines(_)
            | AppEffect::Anomalies(_)
            | AppEffect::StepsAround { .. }
            | AppEffect::Step { .. }
            | AppEffect::State { .. }
            | AppEffect::Part { .. }
            | AppEffect::File { .. }
            | AppEffect::Origins { .. }
            | AppEffect::Diff { .. }
            | AppEffect::Board { .. }
            | AppEffect::Confidence { .. }
            | AppEffect::Search(_)
    )
}

/// Fetches the newest sessions of agents, then what people did by themselves.
async fn fetch_sessions(source: &DataSource) -> SourceResult<Page<SessionDocument>> {
    let mut page: Page<SessionDocument> = source.get("/sessions?limit=200").await?;
    let people: Page<SessionDocument> = source.get("/sessions?agent=person&limit=200").await?;
    page.items.extend(people.items);
    Ok(page)
}

async fn run_effect(source: &DataSource, effect: AppEffect) -> SourceResponse {
    match effect {
        // The loop ends before this is reached.
        AppEffect::Quit => SourceResponse::CommandDone(Ok(String::new())),
        AppEffect::Sessions => SourceResponse::Sessions(fetch_sessions(source).await, None),
        AppEffect::MoreSessions(cursor) => {
            let page = source.get(&format!("/sessions?limit=200&after={}", encode_segment(&cursor))).await;
            SourceResponse::Sessions(page, Some(cursor))
        }
        AppEffect::Open { session, number } => {
            SourceResponse::Session(fetch_session(source, &session, number).await)
        }
        AppEffect::StepsAround { session, number } => {
            let steps = fetch_steps_around(source, &session, number).await;
            SourceResponse::StepsAround(session, steps)
        }
        AppEffect::MoreSteps { session, side, number } => {
            let page = fetch_steps(source, &session, side, number, PAGE).await;
            SourceResponse::MoreSteps(session, side, page)
        }
        AppEffect::FindError { session, side, number } => {
            let relation = if side == WindowSide::After { "next" } else { "previous" };
            let path = session_path(&session, &format!("/steps/{number}/{relation}?error=true"));
            SourceResponse::FoundStep(source.get(&path).await)
        }
        AppEffect::Resolve { session, workspace, point } => {
            SourceResponse::FoundStep(resolve_point(source, &workspace, &session, &point).await)
        }
        AppEffect::Step { key, session, step } => {
            SourceResponse::Step(key, fetch_step_rows(source, &session, &step).await)
        }
        AppEffect::State { key, session, step } => {
            SourceResponse::State(key, fetch_state(source, &session, &step).await)
        }
        AppEffect::Files { key, session, number, cursor } => {
            SourceResponse::Files(key, fetch_files(source, &session, number, &cursor).await)
        }
        AppEffect::Part { key, session, number, part: state_part } => {
            SourceResponse::Part(key, fetch_state_part(source, &session, number, state_part).await)
        }
        AppEffect::File { key, session, number, address } => {
            let path = session_path(&session, &format!("/steps/{number}/state/files/{address}"));
            let rows =
                source.get_beginning(&path, FILE).await.map(|(bytes, cut)| write::file_rows(&bytes, cut));
            SourceResponse::File(key, rows)
        }
        AppEffect::Origins { key, workspace, number, path } => {
            SourceResponse::File(key, fetch_origin_rows(source, &workspace, number, &path).await)
        }
        AppEffect::Diff { key, step, against } => {
            SourceResponse::Diff(key, fetch_diff_rows(source, &step, &against).await)
        }
        AppEffect::Board { key, session, number } => {
            SourceResponse::Board(key, fetch_board(source, &session, number).await)
        }
        AppEffect::Confidence { key, session } => {
            let path = session_path(&session, "/mind/confidence");
            SourceResponse::Confidence(key, source.get(&path).await)
        }
        AppEffect::Stops => SourceResponse::Stops(source.get("/stops").await),
        AppEffect::Breakpoints(workspace) => {
            SourceResponse::Breakpoints(source.get(&workspace_path(&workspace, "/breakpoints")).await)
        }
        AppEffect::Branches(workspace) => {
            SourceResponse::Branches(source.get(&workspace_path(&workspace, "/branches")).await)
        }
        AppEffect::Lines(session) => {
            let lines = source.get(&session_path(&session, "/lines")).await;
            SourceResponse::Lines(session, lines)
        }
        AppEffect::Anomalies(session) => {
            let path = format!("/anomalies?session={}&limit=2000", encode_segment(&session));
            SourceResponse::Anomalies(session, source.get(&path).await)
        }
        AppEffect::PlanRewind { workspace, point, everything } => {
            let path = workspace_path(&workspace, "/rewind-plans");
            let body = NewRewind { point: Some(point.clone()), everything, ..NewRewind::default() };
            SourceResponse::Plan(source.post(&path, &json!(body)).await, Some(point))
        }
        AppEffect::PlanUndo(workspace) => {
            let path = workspace_path(&workspace, "/undo-plans");
            SourceResponse::Plan(source.post(&path, &json!(NewUndo::default())).await, None)
        }
        AppEffect::Apply(address) => {
            let path = address.strip_prefix("/api/v1").unwrap_or(&address);
            SourceResponse::Applied(source.post(path, &json!({})).await)
        }
        AppEffect::Pause { session, stop } => {
            let relation = if stop { "pause" } else { "resume" };
            SourceResponse::Paused(
                source.post(&session_path(&session, &format!("/{relation}")), &json!({})).await,
            )
        }
        AppEffect::Search(text) => {
            let hits = source.get(&format!("/search?limit=200&q={}", encode_segment(&text))).await;
            SourceResponse::SearchHits(text, hits)
        }
        AppEffect::RunCommand(command) => SourceResponse::CommandDone(run_command(source, command).await),
    }
}

async fn resolve_point(
    source: &DataSource,
    workspace: &str,
    session: &str,
    point: &str,
) -> SourceResult<StepDocument> {
    let point = normalize_point(session, point);
    source.get(&workspace_path(workspace, &format!("/points/{}", encode_segment(&point)))).await
}

async fn fetch_files(
    source: &DataSource,
    session: &str,
    number: u64,
    cursor: &str,
) -> SourceResult<Page<FileDocument>> {
    let rest = format!("/steps/{number}/state?limit=1000&after={}", encode_segment(cursor));
    source.get(&session_path(session, &rest)).await
}

async fn fetch_origin_rows(
    source: &DataSource,
    workspace: &str,
    number: u64,
    path: &str,
) -> SourceResult<Vec<PagerRow>> {
    let query = format!("/blame?path={}&at=%23{number}", encode_segment(path));
    let blame: BlameDocument = source.get(&workspace_path(workspace, &query)).await?;
    run_blocking(move || write::origin_rows(&blame)).await
}

async fn run_command(source: &DataSource, command: TuiCommand) -> SourceResult<String> {
    let TuiCommand { method, path, body, notice } = command;
    let response: Value = match method {
        CommandMethod::Post => source.post(&path, &body).await?,
        CommandMethod::Patch => source.patch(&path, &body).await?,
        CommandMethod::Delete => source.delete(&path).await?,
    };
    // The name of a rerun's branch is only known from the response.
    let branch: BranchDocument = serde_json::from_value(response).unwrap_or_default();
    Ok(if path.ends_with("/reruns") { format!("{notice} {}", branch.name) } else { notice })
}

/// Returns a session, and steps around a number or at its end.
async fn fetch_session(
    source: &DataSource,
    session: &str,
    number: Option<u64>,
) -> SourceResult<(SessionDocument, StepsAround)> {
    let session_document: SessionDocument = source.get(&session_path(session, "")).await?;
    let steps = fetch_steps_around(source, &session_document.id, number.unwrap_or(u64::MAX >> 1)).await?;
    Ok((session_document, steps))
}

async fn fetch_steps_around(source: &DataSource, session: &str, number: u64) -> SourceResult<StepsAround> {
    let steps_before =
        fetch_steps(source, session, WindowSide::Before, number.saturating_add(1), PAGE).await?;
    let steps_after = fetch_steps(source, session, WindowSide::After, number, PAGE).await?;
    let (has_first, has_last) = (steps_before.next_cursor.is_none(), steps_after.next_cursor.is_none());
    let mut steps = steps_before.items;
    steps.reverse();
    steps.extend(steps_after.items);
    Ok(StepsAround { number, steps, has_first, has_last })
}

/// Returns steps on a side of a number, the nearest first.
async fn fetch_steps(
    source: &DataSource,
    session: &str,
    side: WindowSide,
    number: u64,
    limit: usize,
) -> SourceResult<Page<StepDocument>> {
    let filter = match side {
        WindowSide::Before => format!("below={number}"),
        WindowSide::After => format!("above={number}&oldest_first=true"),
    };
    source.get(&session_path(session, &format!("/steps?limit={limit}&manual=true&{filter}"))).await
}

/// Interprets a point within a session: a plain number is a step, and an error is one of this session.
fn normalize_point(session: &str, text: &str) -> String {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("#{text}");
    }
    point::in_session(text, session)
}

async fn fetch_step_rows(
    source: &DataSource,
    session: &str,
    step: &StepDocument,
) -> SourceResult<Vec<crate::app::pager::PagerRow>> {
    let detail: StepDetailDocument =
        source.get(&session_path(session, &format!("/steps/{}", step.number))).await?;
    let changes = fetch_changes(source, step).await;
    run_blocking(move || write::step_rows(&detail, &changes)).await
}

/// Returns what a checkpoint found changed since its parent step. Empty if that cannot be loaded.
async fn fetch_changes(source: &DataSource, step: &StepDocument) -> Vec<ChangedFileDocument> {
    let Some(parent) = step.parent.as_ref().filter(|_| step.checkpoint) else { return Vec::new() };
    let path =
        format!("/checkpoints/{}/diff/{}?limit=1000", encode_segment(parent), encode_segment(&step.id));
    source.get::<Page<ChangedFileDocument>>(&path).await.map(|page| page.items).unwrap_or_default()
}

async fn fetch_state(
    source: &DataSource,
    session: &str,
    step: &StepDocument,
) -> SourceResult<(Box<StateDocument>, Vec<ChangedFileDocument>)> {
    let path = session_path(session, &format!("/steps/{}/state?limit=1000", step.number));
    Ok((source.get(&path).await?, fetch_changes(source, step).await))
}

async fn fetch_state_part(
    source: &DataSource,
    session: &str,
    number: u64,
    part: StatePart,
) -> SourceResult<Vec<crate::app::pager::PagerRow>> {
    let base = format!("/sessions/{}/steps/{number}/state/{}", encode_segment(session), part.name());
    if part == StatePart::Conversation {
        let page: Page<MessageDocument> = source.get(&format!("{base}?limit={MAX_MESSAGES}")).await?;
        return run_blocking(move || write::conversation_rows(&page.items, page.next_cursor.is_some())).await;
    }
    let value: Value = source.get(&base).await?;
    run_blocking(move || write::state_part_rows(&value)).await
}

async fn fetch_board(source: &DataSource, session: &str, number: u64) -> SourceResult<BoardView> {
    let path = session_path(session, &format!("/mind?at=%23{number}&limit={MAX_BOARD_ITEMS}"));
    let mind: BoardDocument = source.get(&path).await?;
    run_blocking(move || BoardView::from_document(&mind)).await
}

async fn fetch_diff_rows(
    source: &DataSource,
    step: &StepDocument,
    target: &CompareTarget,
) -> SourceResult<Vec<crate::app::pager::PagerRow>> {
    let id = encode_segment(&step.id);
    let (path, title) = match target {
        CompareTarget::Now => (format!("/checkpoints/{id}/diff"), format!("from #{} to now", step.number)),
        CompareTarget::Marked(other, number) => (
            format!("/checkpoints/{}/diff/{id}", encode_segment(other)),
            format!("from #{number} to #{}", step.number),
        ),
        CompareTarget::Parent => match &step.parent {
            Some(parent) if step.checkpoint => (
                format!("/checkpoints/{}/diff/{id}", encode_segment(parent)),
                format!("what #{} changed", step.number),
            ),
            _ => {
                let title = format!(
                    "#{} is not a checkpoint: files were not scanned, so changes are unknown",
                    step.number
                );
                return Ok(write::diff_rows(&title, &[], false));
            }
        },
    };
    let page: Page<ChangedFileDocument> = source.get(&format!("{path}?text=true&limit=1000")).await?;
    run_blocking(move || write::diff_rows(&title, &page.items, page.next_cursor.is_some())).await
}

/// Runs slow work on a thread where it blocks nothing else.
async fn run_blocking<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> SourceResult<T> {
    tokio::task::spawn_blocking(task)
        .await
        .map_err(|error| SourceError::NoResponse(format!("it cannot be shown: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_meant_in_the_session_that_is_open() {
        assert_eq!(normalize_point("s1", "12"), "#12");
        assert_eq!(normalize_point("s1", "#12"), "#12");
        assert_eq!(normalize_point("s1", "error:last"), "s1#error:last");
        assert_eq!(normalize_point("s1", "tool:bash:1"), "s1#tool:bash:1");
        assert_eq!(normalize_point("s1", "10 minutes ago"), "10 minutes ago");
    }
}
