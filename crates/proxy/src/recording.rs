//! The recording of one exchange while it happens: the request's side, the answer's side, and the calls of the sink.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use http::HeaderMap;
use serde_json::Value;
use stepback_llm_wire::{AnswerEnd, Exchange, ModelRequest, Response, Wire, semantics, sse};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::body_capture::{BodyCapture, BudgetShare};
use crate::headers;
use crate::state::{ProxyState, increment_counter};

/// The request's side. It is shared by the body that goes to the model and the answer that comes from it.
pub(crate) struct RequestRecorder {
    shared: Arc<ProxyState>,
    id: String,
    head: RequestHead,
    at: SystemTime,
    since: Instant,
    stage: Mutex<RequestStage>,
}

/// The head of a request.
#[derive(Clone)]
pub(crate) struct RequestHead {
    pub(crate) wire: Option<Wire>,
    pub(crate) method: String,
    /// Path and query, without secrets.
    pub(crate) path: String,
    /// All headers that may be recorded.
    pub(crate) headers: Vec<(String, String)>,
}

impl RequestHead {
    /// Returns the request with its body.
    pub(crate) fn build_request(&self, copy: BodyCapture) -> (ModelRequest, BudgetShare) {
        let bytes = copy.passed;
        let text = copy.text();
        let document = if text.left_out == 0 { serde_json::from_str(&text.body).ok() } else { None };
        let request = ModelRequest {
            wire: self.wire,
            method: self.method.clone(),
            path: self.path.clone(),
            headers: headers::about_the_message(&self.headers, text.decoded),
            body: document.unwrap_or(Value::String(text.body)),
            bytes,
        };
        (request, text.share)
    }
}

type SinkCall = JoinHandle<Option<(ModelRequest, Option<BudgetShare>)>>;

enum RequestStage {
    /// The body is in transit.
    Coming(BodyCapture),
    /// The body was read to decide what to do with the request.
    Known(Box<ModelRequest>),
    /// The sink is being called.
    Told(SinkCall),
    /// The answer's side took the request.
    Taken,
}

impl RequestRecorder {
    /// Creates a recorder for a request whose body has not arrived yet.
    pub(crate) fn with_pending_body(
        shared: &Arc<ProxyState>,
        id: String,
        head: RequestHead,
        arrived: (SystemTime, Instant),
        copy: BodyCapture,
    ) -> Arc<Self> {
        Self::new(shared, id, head, arrived, RequestStage::Coming(copy))
    }

    /// Creates a recorder for a request that is already complete.
    pub(crate) fn with_request(
        shared: &Arc<ProxyState>,
        id: String,
        head: RequestHead,
        arrived: (SystemTime, Instant),
        request: ModelRequest,
    ) -> Arc<Self> {
        let recorder = Self::new(shared, id, head, arrived, RequestStage::Known(Box::new(request)));
        recorder.finish_body();
        recorder
    }

    fn new(
        shared: &Arc<ProxyState>,
        id: String,
        head: RequestHead,
        (at, since): (SystemTime, Instant),
        stage: RequestStage,
    ) -> Arc<Self> {
        Arc::new(Self { shared: Arc::clone(shared), id, head, at, since, stage: Mutex::new(stage) })
    }

    fn stage(&self) -> MutexGuard<'_, RequestStage> {
        // Nothing that can panic happens under this lock.
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a chunk of the body.
    pub(crate) fn add_chunk(&self, chunk: &[u8]) {
        if let RequestStage::Coming(copy) = &mut *self.stage() {
            copy.push(0, chunk);
        }
    }

    /// Ends the body: the sink is called, once.
    pub(crate) fn finish_body(self: &Arc<Self>) {
        let mut stage = self.stage();
        let body = match std::mem::replace(&mut *stage, RequestStage::Taken) {
            RequestStage::Coming(copy) => Ok(copy),
            RequestStage::Known(request) => Err(request),
            other => {
                *stage = other;
                return;
            }
        };
        let recorder = Arc::clone(self);
        *stage =
            RequestStage::Told(self.shared.spawn_sink_call(std::future::ready(body), move |shared, body| {
                let (request, share) = match body {
                    Ok(copy) => {
                        let (request, share) = recorder.head.build_request(copy);
                        (request, Some(share))
                    }
                    Err(request) => (*request, None),
                };
                shared.call_sink(|sink| {
                    sink.begun(&recorder.id, recorder.at, &request, &recorder.head.headers)
                });
                (request, share)
            }));
    }

    /// Returns the request, once the sink was called for it.
    async fn request(self: &Arc<Self>) -> Option<(ModelRequest, Option<BudgetShare>)> {
        self.finish_body();
        let stage = std::mem::replace(&mut *self.stage(), RequestStage::Taken);
        match stage {
            RequestStage::Told(stage) => stage.await.ok().flatten(),
            _ => None,
        }
    }

    fn elapsed_micros(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

/// What a chunk says about the state of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamState {
    /// The answer continues.
    More,
    /// An agent may act on this chunk, and the end may follow directly.
    PerhapsAll,
    /// The answer has ended.
    All,
}

/// The answer's side. If it is dropped before the sink was called, the agent has disconnected, and the sink gets that.
pub(crate) struct Recording {
    recorder: Arc<RequestRecorder>,
    status: u16,
    headers: Vec<(String, String)>,
    copy: Option<BodyCapture>,
    streamed: bool,
    first_byte: Option<u64>,
    /// Why no answer came from the model; the agent gets one from the proxy.
    failed: Option<String>,
    /// Whether the answer is complete, whatever happens to the connection.
    is_complete: bool,
}

impl Recording {
    pub(crate) fn new(recorder: Arc<RequestRecorder>) -> Self {
        let copy = recorder.shared.new_capture(None);
        increment_counter(&recorder.shared.counts.running);
        Self {
            recorder,
            status: 0,
            headers: Vec::new(),
            copy: Some(copy),
            streamed: false,
            first_byte: None,
            failed: None,
            is_complete: false,
        }
    }

    /// Records the head of the answer.
    pub(crate) fn record_head(&mut self, status: u16, headers: &HeaderMap) {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        self.status = status;
        self.headers = headers::recordable_headers(headers);
        self.copy = Some(self.recorder.shared.new_capture(header("content-encoding")));
        self.streamed = header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
    }

    /// Records that no answer came and the proxy answers itself.
    pub(crate) fn failed(&mut self, reason: String) {
        self.failed = Some(reason);
    }

    /// Adds a chunk of the answer.
    pub(crate) fn add_chunk(&mut self, chunk: &[u8]) -> StreamState {
        let elapsed_micros = self.recorder.elapsed_micros();
        self.first_byte.get_or_insert(elapsed_micros);
        let Some(copy) = &mut self.copy else { return StreamState::More };
        copy.push(elapsed_micros, chunk);
        if self.is_complete {
            return StreamState::All;
        }
        let wire = self.recorder.head.wire.filter(|_| self.streamed);
        let Some((wire, events)) = wire.and_then(|wire| Some((wire, copy.completed_events()?))) else {
            return StreamState::More;
        };
        self.is_complete = semantics::is_last(wire, events) && is_answer_end(wire, events);
        if self.is_complete {
            StreamState::All
        } else if semantics::may_be_followed_by_the_end(wire, events) {
            StreamState::PerhapsAll
        } else {
            StreamState::More
        }
    }

    /// Records that the body has ended.
    pub(crate) fn at_end(&mut self) {
        self.is_complete = true;
    }

    /// Calls the sink. The returned receiver resolves when the sink is done.
    pub(crate) fn notify_sink(mut self, ended: AnswerEnd) -> oneshot::Receiver<()> {
        self.tell_now(ended)
    }

    fn tell_now(&mut self, ended: AnswerEnd) -> oneshot::Receiver<()> {
        let (sender, receiver) = oneshot::channel();
        let Some(copy) = self.copy.take() else { return receiver };
        let ended = match self.failed.take() {
            Some(reason) => AnswerEnd::Failed(reason),
            None => ended,
        };
        let shared = &self.recorder.shared;
        increment_counter(&shared.counts.exchanges);
        match &ended {
            AnswerEnd::Complete => {}
            AnswerEnd::Cancelled => increment_counter(&shared.counts.cancelled),
            AnswerEnd::CutOff(_) => increment_counter(&shared.counts.cut_off),
            AnswerEnd::Failed(_) => increment_counter(&shared.counts.failed),
        }
        shared.counts.running.fetch_sub(1, Ordering::Relaxed);
        let recorder = Arc::clone(&self.recorder);
        let headers = std::mem::take(&mut self.headers);
        let (status, first_byte, duration_micros) =
            (self.status, self.first_byte, self.recorder.elapsed_micros());
        let request = { async move { (recorder.request().await, recorder) } };
        shared.spawn_sink_call(request, move |shared, (request, recorder)| {
            // Without a request the runtime is shutting down, and the sink cannot be called.
            let Some((request, _share)) = request else { return };
            let text = copy.text();
            let headers = headers::about_the_message(&headers, text.decoded);
            let _share_of_answer = text.share;
            let response = Response {
                status,
                headers,
                body: text.body,
                chunks: text.chunks,
                ended,
                first_byte,
                took: duration_micros,
                left_out: text.left_out,
            };
            let exchange = Exchange { id: recorder.id.clone(), request, response };
            shared.call_sink(|sink| sink.ended(&recorder.id, &exchange));
            shared.is_done();
            // The waiting body may be gone.
            let _ = sender.send(());
        });
        receiver
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let ended = if self.is_complete {
            AnswerEnd::Complete
        } else if self.recorder.shared.is_shutting_down.load(Ordering::Relaxed) {
            AnswerEnd::CutOff("the proxy was stopped during the answer".to_owned())
        } else {
            AnswerEnd::Cancelled
        };
        drop(self.tell_now(ended));
    }
}

/// Whether these events really end an answer; `is_last` only says that they look like it. What arrives after the sink was
/// called is not recorded, so this must be certain: a chunk with a finish reason may be followed by the usage (Chat), and
/// every chunk may have one (Gemini).
fn is_answer_end(wire: Wire, events: &[u8]) -> bool {
    let text = String::from_utf8_lossy(events).into_owned();
    match wire {
        Wire::Messages | Wire::Responses => {
            let response = Response {
                status: 200,
                headers: Vec::new(),
                body: text,
                chunks: Default::default(),
                ended: AnswerEnd::Complete,
                first_byte: None,
                took: 0,
                left_out: 0,
            };
            semantics::answered(wire, &response).complete
        }
        Wire::Chat => sse::events(&text).iter().any(|event| event.data.trim() == "[DONE]"),
        Wire::Gemini => false,
    }
}
