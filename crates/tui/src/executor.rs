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
use stepback_api::branches::BranchDocument;
use stepback_api::files::ChangedFileDocument;
use stepback_api::page::Page;
use stepback_api::plans::{NewRewind, NewUndo};
use stepback_api::reasoning::BoardDocument;
use stepback_api::sessions::SessionDocument;
use stepback_api::state::{MessageDocument, StateDocument};
use stepback_api::steps::{StepDetailDocument, StepDocument};
use stepback_model::point;

use crate::app::window::{PAGE, WindowSide};
use crate::app::{Against, BoardView, StatePart};
use crate::effect::{AppEffect, AppMessage, Around, Method, SourceResponse, TuiCommand};
use crate::source::{DataSource, SourceResult, Trouble, session_path, workspace_path};
use crate::write;

/// The most bytes of a file that are shown.
const FILE: usize = 16 << 20;
/// The most items of each kind that a board shows.
const MAX_BOARD_ITEMS: usize = 200;
/// The most messages of a conversation that are shown.
const MAX_MESSAGES: usize = 1000;

/// Carries out effects and reports their results.
pub struct Performer {
    source: DataSource,
    tell: Sender<AppMessage>,
    lanes: Arc<Mutex<Lanes>>,
}

/// For each kind of effect that is running, the one that comes next.
type Lanes = HashMap<Discriminant<AppEffect>, Option<AppEffect>>;

impl Performer {
    /// Creates a performer that sends requests to `source` and results to `tell`.
    pub fn new(source: DataSource, tell: Sender<AppMessage>) -> Self {
        Self { source, tell, lanes: Arc::default() }
    }

    /// Starts to carry out an effect.
    pub fn perform(&self, effect: AppEffect) {
        let (source, tell, lanes) = (self.source.clone(), self.tell.clone(), self.lanes.clone());
        if !is_replaceable(&effect) {
            self.source.handle().spawn(async move {
                let came = done(&source, effect).await;
                // The receiver is gone when the program ends.
                let _ = tell.send(AppMessage::Came(Box::new(came)));
            });
            return;
        }
        let lane = discriminant(&effect);
        let locked = move |lanes: &Mutex<Lanes>, next: Option<AppEffect>| -> Option<AppEffect> {
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
        let Some(mut effect) = locked(&self.lanes, Some(effect)) else { return };
        self.source.handle().spawn(async move {
            loop {
                let came = done(&source, effect).await;
                let _ = tell.send(AppMessage::Came(Box::new(came)));
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
            | AppEffect::Around { .. }
            | AppEffect::Step { .. }
            | AppEffect::State { .. }
            | AppEffect::Part { .. }
            | AppEffect::File { .. }
            | AppEffect::Diff { .. }
            | AppEffect::Board { .. }
            | AppEffect::Confidence { .. }
            | AppEffect::Search(_)
    )
}

async fn done(source: &DataSource, effect: AppEffect) -> SourceResponse {
    match effect {
        // The loop ends before this is reached.
        AppEffect::Quit => SourceResponse::Done(Ok(String::new())),
        AppEffect::Sessions => SourceResponse::Sessions(source.get("/sessions?limit=200").await, None),
        AppEffect::MoreSessions(cursor) => {
            let page = source.get(&format!("/sessions?limit=200&after={}", encode_segment(&cursor))).await;
            SourceResponse::Sessions(page, Some(cursor))
        }
        AppEffect::Open { session, number } => SourceResponse::Session(open(source, &session, number).await),
        AppEffect::Around { session, number } => {
            let around = around(source, &session, number).await;
            SourceResponse::Around(session, around)
        }
        AppEffect::More { session, side, number } => {
            let page = steps(source, &session, side, number, PAGE).await;
            SourceResponse::More(session, side, page)
        }
        AppEffect::Error { session, side, number } => {
            let way = if side == WindowSide::After { "next" } else { "previous" };
            let path = session_path(&session, &format!("/steps/{number}/{way}?error=true"));
            SourceResponse::Found(source.get(&path).await)
        }
        AppEffect::Resolve { session, workspace, point } => {
            let point = meant(&session, &point);
            SourceResponse::Found(
                source.get(&workspace_path(&workspace, &format!("/points/{}", encode_segment(&point)))).await,
            )
        }
        AppEffect::Step { key, session, step } => {
            SourceResponse::Step(key, whole_step(source, &session, &step).await)
        }
        AppEffect::State { key, session, step } => {
            SourceResponse::State(key, state(source, &session, &step).await)
        }
        AppEffect::Files { key, session, number, cursor } => {
            let path = session_path(
                &session,
                &format!("/steps/{number}/state?limit=1000&after={}", encode_segment(&cursor)),
            );
            SourceResponse::Files(key, source.get(&path).await)
        }
        AppEffect::Part { key, session, number, part: of } => {
            SourceResponse::Part(key, other(source, &session, number, of).await)
        }
        AppEffect::File { key, session, number, address } => {
            let path = session_path(&session, &format!("/steps/{number}/state/files/{address}"));
            let rows = source.beginning(&path, FILE).await.map(|(bytes, cut)| write::file(&bytes, cut));
            SourceResponse::File(key, rows)
        }
        AppEffect::Diff { key, step, against } => {
            SourceResponse::Diff(key, diff(source, &step, &against).await)
        }
        AppEffect::Board { key, session, number } => {
            SourceResponse::Board(key, board(source, &session, number).await)
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
        AppEffect::PlanRewind { workspace, point, everything } => {
            let path = workspace_path(&workspace, "/rewind-plans");
            let plan = source
                .post(
                    &path,
                    &json!(NewRewind { point: Some(point.clone()), everything, ..NewRewind::default() }),
                )
                .await;
            SourceResponse::Plan(plan, Some(point))
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
            let way = if stop { "pause" } else { "resume" };
            SourceResponse::Paused(source.post(&session_path(&session, &format!("/{way}")), &json!({})).await)
        }
        AppEffect::Search(text) => {
            let hits = source.get(&format!("/search?limit=200&q={}", encode_segment(&text))).await;
            SourceResponse::Hits(text, hits)
        }
        AppEffect::Do(deed) => SourceResponse::Done(asked(source, deed).await),
    }
}

async fn asked(source: &DataSource, deed: TuiCommand) -> SourceResult<String> {
    let TuiCommand { method, path, body, told } = deed;
    let answer: Value = match method {
        Method::Post => source.post(&path, &body).await?,
        Method::Patch => source.patch(&path, &body).await?,
        Method::Delete => source.delete(&path).await?,
    };
    // The name of a rerun's branch is only known from the response.
    let branch: BranchDocument = serde_json::from_value(answer).unwrap_or_default();
    Ok(if path.ends_with("/reruns") { format!("{told} {}", branch.name) } else { told })
}

/// Returns a session, and steps around a number or at its end.
async fn open(
    source: &DataSource,
    session: &str,
    number: Option<u64>,
) -> SourceResult<(SessionDocument, Around)> {
    let found: SessionDocument = source.get(&session_path(session, "")).await?;
    let around = around(source, &found.id, number.unwrap_or(u64::MAX >> 1)).await?;
    Ok((found, around))
}

async fn around(source: &DataSource, session: &str, number: u64) -> SourceResult<Around> {
    let before = steps(source, session, WindowSide::Before, number.saturating_add(1), PAGE).await?;
    let after = steps(source, session, WindowSide::After, number, PAGE).await?;
    let (begins, ends) = (before.next_cursor.is_none(), after.next_cursor.is_none());
    let mut steps = before.items;
    steps.reverse();
    steps.extend(after.items);
    Ok(Around { number, steps, begins, ends })
}

/// Returns steps on a side of a number, the nearest first.
async fn steps(
    source: &DataSource,
    session: &str,
    side: WindowSide,
    number: u64,
    most: usize,
) -> SourceResult<Page<StepDocument>> {
    let which = match side {
        WindowSide::Before => format!("below={number}"),
        WindowSide::After => format!("above={number}&oldest_first=true"),
    };
    source.get(&session_path(session, &format!("/steps?limit={most}&{which}"))).await
}

/// Interprets a point within a session: a plain number is a step, and an error is one of this session.
fn meant(session: &str, given: &str) -> String {
    if !given.is_empty() && given.bytes().all(|byte| byte.is_ascii_digit()) {
        return format!("#{given}");
    }
    point::in_session(given, session)
}

async fn whole_step(
    source: &DataSource,
    session: &str,
    step: &StepDocument,
) -> SourceResult<Vec<crate::app::pager::PagerRow>> {
    let detail: StepDetailDocument =
        source.get(&session_path(session, &format!("/steps/{}", step.number))).await?;
    let changes = changes(source, step).await;
    aside(move || write::step(&detail, &changes)).await
}

/// Returns what a checkpoint found changed since its parent step. Empty if that cannot be loaded.
async fn changes(source: &DataSource, step: &StepDocument) -> Vec<ChangedFileDocument> {
    let Some(parent) = step.parent.as_ref().filter(|_| step.checkpoint) else { return Vec::new() };
    let path =
        format!("/checkpoints/{}/diff/{}?limit=1000", encode_segment(parent), encode_segment(&step.id));
    source.get::<Page<ChangedFileDocument>>(&path).await.map(|page| page.items).unwrap_or_default()
}

async fn state(
    source: &DataSource,
    session: &str,
    step: &StepDocument,
) -> SourceResult<(Box<StateDocument>, Vec<ChangedFileDocument>)> {
    let path = session_path(session, &format!("/steps/{}/state?limit=1000", step.number));
    Ok((source.get(&path).await?, changes(source, step).await))
}

async fn other(
    source: &DataSource,
    session: &str,
    number: u64,
    of: StatePart,
) -> SourceResult<Vec<crate::app::pager::PagerRow>> {
    let base = format!("/sessions/{}/steps/{number}/state/{}", encode_segment(session), of.name());
    if of == StatePart::Conversation {
        let page: Page<MessageDocument> = source.get(&format!("{base}?limit={MAX_MESSAGES}")).await?;
        return aside(move || write::conversation(&page.items, page.next_cursor.is_some())).await;
    }
    let value: Value = source.get(&base).await?;
    aside(move || write::part(&value)).await
}

async fn board(source: &DataSource, session: &str, number: u64) -> SourceResult<BoardView> {
    let path = session_path(session, &format!("/mind?at=%23{number}&limit={MAX_BOARD_ITEMS}"));
    let mind: BoardDocument = source.get(&path).await?;
    aside(move || BoardView::of(&mind)).await
}

async fn diff(
    source: &DataSource,
    step: &StepDocument,
    against: &Against,
) -> SourceResult<Vec<crate::app::pager::PagerRow>> {
    let id = encode_segment(&step.id);
    let (path, title) = match against {
        Against::Now => (format!("/checkpoints/{id}/diff"), format!("from #{} to now", step.number)),
        Against::Marked(other, number) => (
            format!("/checkpoints/{}/diff/{id}", encode_segment(other)),
            format!("from #{number} to #{}", step.number),
        ),
        Against::Parent => match &step.parent {
            Some(parent) if step.checkpoint => (
                format!("/checkpoints/{}/diff/{id}", encode_segment(parent)),
                format!("what #{} changed", step.number),
            ),
            _ => {
                let title = format!(
                    "#{} is not a checkpoint: files were not scanned, so changes are unknown",
                    step.number
                );
                return Ok(write::diff(&title, &[], false));
            }
        },
    };
    let page: Page<ChangedFileDocument> = source.get(&format!("{path}?text=true&limit=1000")).await?;
    aside(move || write::diff(&title, &page.items, page.next_cursor.is_some())).await
}

/// Runs slow work on a thread where it blocks nothing else.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> SourceResult<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Trouble::Gone(format!("it cannot be shown: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_meant_in_the_session_that_is_open() {
        assert_eq!(meant("s1", "12"), "#12");
        assert_eq!(meant("s1", "#12"), "#12");
        assert_eq!(meant("s1", "error:last"), "s1#error:last");
        assert_eq!(meant("s1", "tool:bash:1"), "s1#tool:bash:1");
        assert_eq!(meant("s1", "10 minutes ago"), "10 minutes ago");
    }
}
