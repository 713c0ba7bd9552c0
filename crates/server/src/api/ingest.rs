//! The ingest endpoint: records steps that agents report over the network.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use stepback_api::ingest::{EventBatch, IngestReportDocument, RejectedEventDocument};
use stepback_engine::Engine;
use stepback_engine::recorder::ReportedEvent;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;
use utoipa::IntoParams;

use crate::extract::{Json, QueryString};
use crate::ingest::body::{self, BatchFormat};
use crate::ingest::reported::{self, IngestContext};
use crate::ingest::{CapacityPermit, IngestQueue, IngestResult, IngestTarget};
use crate::problem::Problem;
use crate::state::AppState;

/// A body of at most this many bytes is recorded on the thread of its request, if no commit is in progress.
const MAX_INLINE_BODY_BYTES: usize = 8 << 10;

/// What applies to all events of a batch that is sent as lines.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct BatchDefaults {
    /// The workspace: the id or root of one in the store, or the name of one that is not a directory on this machine
    /// (`default` if none is given).
    pub workspace: Option<String>,
    /// The agent of events that name none.
    pub agent: Option<String>,
}

/// Records steps that an agent reports, in batches: `{"workspace": …, "agent": …, "events": [ … ]}`, or one event on each
/// line (`application/x-ndjson`); gzip is accepted. The answer is sent once they are durable. An event with an `id` is stored
/// once, however often it is delivered; an `Idempotency-Key` stands in for missing ids. 429 means that nothing was stored;
/// `Retry-After` says when to retry.
#[utoipa::path(post, path = "/ingest", tag = "ingest", params(BatchDefaults,
        ("idempotency-key" = Option<String>, Header, description = "With their position, replaces the ids of events that have none")),
    request_body(content((EventBatch = "application/json"), (String = "application/x-ndjson"))),
    responses((status = 200, body = IngestReportDocument), (status = 429, body = Problem), (status = "default", body = Problem)))]
pub async fn ingest_batch(
    State(state): State<AppState>,
    QueryString(defaults): QueryString<BatchDefaults>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let form = BatchFormat::from_headers(&headers)?;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let length = text(header::CONTENT_LENGTH.as_str()).and_then(|length| length.parse().ok());
    let length: usize = length.unwrap_or(body::LARGEST);
    if length > body::LARGEST {
        return Err(body::too_large_problem());
    }
    let key = text("idempotency-key").map(str::to_owned);
    if key.as_ref().is_some_and(|key| key.is_empty() || key.len() > 200) {
        return Err(Problem::usage("an Idempotency-Key must have 1 to 200 bytes"));
    }
    let room = match state.ingest().reserve_capacity(form.max_memory_bytes(length)) {
        Ok(room) => room,
        Err(full) => return Ok(full.into_response()),
    };
    let Ok(bytes) = axum::body::to_bytes(body, length).await else {
        return Err(match length < body::LARGEST {
            true => Problem::usage("the length of the body does not match Content-Length"),
            false => body::too_large_problem(),
        });
    };
    let reading = move |engine: &Engine| parse_batch(engine, form, &defaults, key.as_deref(), &bytes, room);
    let added = match length <= MAX_INLINE_BODY_BYTES && state.ingest().is_idle() && can_block_here() {
        true => enqueue_on_this_thread(&state, reading)?,
        false => enqueue_on_blocking_thread(&state, reading).await?,
    };
    Ok(Json(wait_for_commit(added).await?).into_response())
}

/// Reads and commits a batch on a blocking thread.
async fn enqueue_on_blocking_thread(
    state: &AppState,
    parse: impl FnOnce(&Engine) -> Result<ParsedBatch, Problem> + Send + 'static,
) -> Result<QueuedBatch, Problem> {
    let (told, added) = oneshot::channel();
    let own = state.clone();
    state.spawn_blocking(move |engine| {
        let (added, nobody_commits) = match parse(engine).map(|read| enqueue(own.ingest(), read)) {
            Ok((added, nobody_commits)) => (Ok(added), nobody_commits),
            Err(problem) => (Err(problem), false),
        };
        // The request goes on from here, and does not wait until what arrives meanwhile is recorded too.
        let _ = told.send(added);
        if nobody_commits {
            own.ingest().commit_all(engine);
        }
    });
    added.await.map_err(|_| recording_failed())?
}

/// Reads and commits a batch on the thread of the request: waking another thread and being woken by it takes as long as
/// recording a few steps. What arrives meanwhile is left to another thread.
fn enqueue_on_this_thread(
    state: &AppState,
    parse: impl FnOnce(&Engine) -> Result<ParsedBatch, Problem>,
) -> Result<QueuedBatch, Problem> {
    tokio::task::block_in_place(|| {
        state.run_on_current_thread(|engine| {
            let (added, nobody_commits) = enqueue(state.ingest(), parse(engine)?);
            if nobody_commits && state.ingest().commit_once(engine) {
                let own = state.clone();
                state.spawn_blocking(move |engine| own.ingest().commit_all(engine));
            }
            Ok(added)
        })
    })
}

/// Whether other requests go on while this one blocks on the disk.
fn can_block_here() -> bool {
    Handle::current().runtime_flavor() == RuntimeFlavor::MultiThread
}

fn recording_failed() -> Problem {
    Problem::internal("the recording failed unexpectedly")
}

/// A batch that was parsed.
struct ParsedBatch {
    target: IngestTarget,
    report: IngestReportDocument,
    reports: Vec<ReportedEvent>,
    permit: CapacityPermit,
}

fn parse_batch(
    engine: &Engine,
    format: BatchFormat,
    defaults: &BatchDefaults,
    key: Option<&str>,
    bytes: &[u8],
    mut permit: CapacityPermit,
) -> Result<ParsedBatch, Problem> {
    let bytes = format.decompress(bytes)?;
    permit.shrink_to(bytes.len());
    let parts = format.split_events(&bytes)?;
    let workspace = parts.workspace.as_ref().or(defaults.workspace.as_ref());
    let target = IngestTarget::resolve(engine, workspace.map(String::as_str))?;
    let agent = parts.agent.as_ref().or(defaults.agent.as_ref()).map(String::as_str);
    let around = IngestContext { agent, key, now: engine.env.now() };
    let mut taken = IngestReportDocument {
        workspace: None,
        accepted: 0,
        rejected: 0,
        steps: Vec::with_capacity(parts.events.len()),
        errors: Vec::new(),
        skipped: 0,
        left_out_bytes: 0,
    };
    let mut reports = Vec::with_capacity(parts.events.len());
    for (index, json) in parts.events.into_iter().enumerate() {
        match reported::parse_event(json, index, around) {
            Ok(mut one) => {
                // Cutting could leave a part of what the user's patterns match, so these come first.
                engine.recorder.redact.redact_event(&mut one.report.event);
                one.report.left_out = engine.recorder.limit(&mut one.report.event, false);
                taken.left_out_bytes += one.clipped_bytes + one.report.left_out.bytes;
                // The number is not known yet; every event in `reports` gets one, or the whole batch fails.
                taken.steps.push(Some(0));
                reports.push(one.report);
            }
            Err(detail) => {
                taken.steps.push(None);
                taken.errors.push(RejectedEventDocument { index: index as u64, detail });
            }
        }
    }
    taken.rejected = taken.errors.len() as u64;
    Ok(ParsedBatch { target, report: taken, reports, permit })
}

/// A batch that is in the queue.
struct QueuedBatch {
    report: IngestReportDocument,
    /// The channel of the answer; `None` if the batch has nothing to store.
    reply: Option<oneshot::Receiver<IngestResult>>,
    permit: CapacityPermit,
}

/// Adds a batch to the queue, and returns whether the caller must start the commit.
fn enqueue(queue: &IngestQueue, batch: ParsedBatch) -> (QueuedBatch, bool) {
    let ParsedBatch { target, report: taken, reports, permit: room } = batch;
    if reports.is_empty() {
        return (QueuedBatch { report: taken, reply: None, permit: room }, false);
    }
    let (answered, nobody_commits) = queue.enqueue(target, reports);
    (QueuedBatch { report: taken, reply: Some(answered), permit: room }, nobody_commits)
}

/// Waits for the commit, and fills in the step numbers.
async fn wait_for_commit(batch: QueuedBatch) -> Result<IngestReportDocument, Problem> {
    let QueuedBatch { report: mut taken, reply: answered, permit: room } = batch;
    let Some(answered) = answered else { return Ok(taken) };
    let answer = answered.await.map_err(|_| recording_failed())??;
    drop(room);
    taken.workspace = Some(answer.workspace.to_string());
    let accepted = taken.steps.iter_mut().filter(|slot| slot.is_some());
    for (slot, recorded) in accepted.zip(answer.steps) {
        // An event that the settings leave out has no number.
        *slot = Some(recorded.number).filter(|number| *number > 0);
        match slot {
            Some(_) => taken.accepted += 1,
            None => taken.skipped += 1,
        }
    }
    Ok(taken)
}
