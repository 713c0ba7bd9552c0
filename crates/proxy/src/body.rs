//! Bodies in transit: each chunk is passed on as it arrives, and a copy goes to the recording.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use stepback_llm_wire::AnswerEnd;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};

use crate::connect::{AnyBody, AnyError};
use crate::recording::{Recording, RequestRecorder, StreamState};
use crate::refusal::error_chain;
use crate::state::ProxyState;

/// After the end of the model's answer, the sink is called once nothing has arrived for this long. What arrives later is
/// passed on and not recorded; usually the end of the body follows at once.
const QUIET_PERIOD: Duration = Duration::from_millis(50);

/// A chunk that an agent may act on is held this long for the end of the answer, so that the answer is recorded before
/// its consequences. Any further chunk shows that the model continues.
const MAX_CHUNK_HOLD: Duration = Duration::from_millis(50);

/// The sink is called at the latest this long after that end, however much still arrives.
const MAX_SINK_DELAY: Duration = Duration::from_millis(250);

/// The most bytes that are held back.
const MAX_HELD_BYTES: usize = 1 << 20;

/// How long data already written gets to leave before a connection is broken.
const FLUSH_DELAY: Duration = Duration::from_millis(10);

/// The body of a request.
pub(crate) struct RequestBody<B> {
    inner: B,
    recorder: Arc<RequestRecorder>,
}

impl<B: Body<Data = Bytes>> RequestBody<B> {
    pub(crate) fn new(inner: B, recorder: Arc<RequestRecorder>) -> Self {
        if inner.is_end_stream() {
            recorder.finish_body();
        }
        Self { inner, recorder }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for RequestBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if let Some(chunk) = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref) {
            self.recorder.add_chunk(chunk);
        }
        if frame.is_none() || self.inner.is_end_stream() {
            self.recorder.finish_body();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

/// The body of an answer, whether it comes from the model, from a recording or from the proxy.
pub(crate) struct AnswerBody {
    shared: Arc<ProxyState>,
    inner: AnyBody,
    /// The recording; `None` once the sink was called.
    recording: Option<Recording>,
    stage: AnswerStage,
    held: VecDeque<Frame<Bytes>>,
    held_bytes: usize,
    /// Set when the model's answer has ended: the latest time until which more is waited for.
    settled: Option<Instant>,
    body_end: Option<BodyEnd>,
    silence: Pin<Box<Sleep>>,
}

enum AnswerStage {
    /// Chunks are passed on.
    Passing,
    /// The answer may have ended; its last chunk is held back until the next one shows whether it has.
    Doubting(Pin<Box<Sleep>>),
    /// The answer has ended; what still arrives is held back until nothing does.
    Settling(Pin<Box<Sleep>>),
    /// The sink is being called, up to a deadline.
    Telling(oneshot::Receiver<()>, Pin<Box<Sleep>>),
    /// Chunks that were held back are sent.
    Releasing,
    /// Data already written is sent before the connection is broken.
    Breaking(Pin<Box<Sleep>>),
}

/// How the inner body ended.
enum BodyEnd {
    Clean,
    Broken(AnyError),
}

impl AnswerBody {
    pub(crate) fn new(shared: &Arc<ProxyState>, inner: AnyBody, recording: Option<Recording>) -> Self {
        Self {
            shared: Arc::clone(shared),
            inner,
            recording,
            stage: AnswerStage::Passing,
            held: VecDeque::new(),
            held_bytes: 0,
            settled: None,
            body_end: None,
            silence: Box::pin(tokio::time::sleep(shared.limits.idle)),
        }
    }

    /// For an answer without a body, calls the sink before the head is sent: no chunks will be polled.
    pub(crate) async fn tell_if_empty(&mut self) {
        if self.inner.is_end_stream() {
            self.body_end = Some(BodyEnd::Clean);
            if let Some(recording) = self.recording.take() {
                let sink_call = recording.notify_sink(AnswerEnd::Complete);
                if tokio::time::timeout(self.shared.sink_timeout(), sink_call).await.is_err() {
                    self.shared.was_late();
                }
            }
            self.stage = AnswerStage::Releasing;
        }
    }

    fn poll_inner(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        let idle = self.shared.limits.idle;
        match Pin::new(&mut self.inner).poll_frame(cx) {
            Poll::Ready(frame) => {
                self.silence.as_mut().reset(Instant::now() + idle);
                Poll::Ready(frame)
            }
            Poll::Pending => {
                ready!(self.silence.as_mut().poll(cx));
                let text = format!("no data for {} s", idle.as_secs_f32());
                Poll::Ready(Some(Err(std::io::Error::new(std::io::ErrorKind::TimedOut, text).into())))
            }
        }
    }

    fn hold(&mut self, frame: Frame<Bytes>) {
        self.held_bytes += frame.data_ref().map_or(0, Bytes::len);
        self.held.push_back(frame);
    }

    /// Starts to tell the sink how the answer ended.
    fn notify_sink(&mut self) {
        let ended = match &self.body_end {
            Some(BodyEnd::Broken(error)) => AnswerEnd::CutOff(error_chain(&**error)),
            Some(BodyEnd::Clean) | None => AnswerEnd::Complete,
        };
        self.stage = match self.recording.take() {
            Some(recording) => {
                let patience = tokio::time::sleep(self.shared.sink_timeout());
                AnswerStage::Telling(recording.notify_sink(ended), Box::pin(patience))
            }
            None => AnswerStage::Releasing,
        };
    }

    /// Handles a chunk. Returns it if it can be sent at once.
    fn handle_frame(&mut self, frame: Option<Result<Frame<Bytes>, AnyError>>) -> Option<Frame<Bytes>> {
        match frame {
            Some(Ok(frame)) => {
                let stream_state = match (&mut self.recording, frame.data_ref()) {
                    (Some(recording), Some(chunk)) => recording.add_chunk(chunk),
                    _ => StreamState::More,
                };
                if self.inner.is_end_stream() {
                    if let Some(recording) = &mut self.recording {
                        recording.at_end();
                    }
                    self.body_end = Some(BodyEnd::Clean);
                    self.hold(frame);
                    self.notify_sink();
                } else if stream_state == StreamState::PerhapsAll {
                    self.hold(frame);
                    if !matches!(self.stage, AnswerStage::Doubting(_)) {
                        self.stage = AnswerStage::Doubting(Box::pin(tokio::time::sleep(MAX_CHUNK_HOLD)));
                    }
                } else if stream_state == StreamState::All {
                    self.hold(frame);
                    let now = Instant::now();
                    let latest = *self.settled.get_or_insert(now + MAX_SINK_DELAY);
                    let quiet = tokio::time::sleep_until((now + QUIET_PERIOD).min(latest));
                    self.stage = AnswerStage::Settling(Box::pin(quiet));
                    if self.held_bytes > MAX_HELD_BYTES {
                        self.notify_sink();
                    }
                } else {
                    return Some(frame);
                }
            }
            Some(Err(error)) => {
                self.body_end = Some(BodyEnd::Broken(error));
                self.notify_sink();
            }
            None => {
                self.body_end = Some(BodyEnd::Clean);
                self.notify_sink();
            }
        }
        None
    }
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        let this = &mut *self;
        loop {
            match &mut this.stage {
                AnswerStage::Passing => {
                    let frame = ready!(this.poll_inner(cx));
                    if let Some(frame) = this.handle_frame(frame) {
                        return Poll::Ready(Some(Ok(frame)));
                    }
                }
                AnswerStage::Doubting(long_enough) => {
                    let is_over = long_enough.as_mut().poll(cx).is_ready();
                    match this.poll_inner(cx) {
                        Poll::Ready(frame) => {
                            let goes_on = this.handle_frame(frame).map(|frame| this.hold(frame)).is_some();
                            let doubts = matches!(this.stage, AnswerStage::Doubting(_));
                            if goes_on || doubts && (is_over || this.held_bytes > MAX_HELD_BYTES) {
                                this.stage = AnswerStage::Releasing;
                            }
                        }
                        Poll::Pending if is_over => this.stage = AnswerStage::Releasing,
                        Poll::Pending => return Poll::Pending,
                    }
                }
                AnswerStage::Settling(quiet) => {
                    let is_over = quiet.as_mut().poll(cx).is_ready();
                    match this.poll_inner(cx) {
                        Poll::Ready(frame) => {
                            if let Some(frame) = this.handle_frame(frame) {
                                this.hold(frame);
                            }
                        }
                        Poll::Pending if is_over => this.notify_sink(),
                        Poll::Pending => return Poll::Pending,
                    }
                }
                AnswerStage::Telling(sink_call, patience) => {
                    if Pin::new(sink_call).poll(cx).is_pending() {
                        ready!(patience.as_mut().poll(cx));
                        this.shared.was_late();
                    }
                    this.stage = AnswerStage::Releasing;
                }
                AnswerStage::Releasing => {
                    if let Some(frame) = this.held.pop_front() {
                        this.held_bytes -= frame.data_ref().map_or(0, Bytes::len);
                        return Poll::Ready(Some(Ok(frame)));
                    }
                    match &this.body_end {
                        Some(BodyEnd::Clean) => return Poll::Ready(None),
                        Some(BodyEnd::Broken(_)) => {
                            this.stage = AnswerStage::Breaking(Box::pin(tokio::time::sleep(FLUSH_DELAY)));
                        }
                        None => this.stage = AnswerStage::Passing,
                    }
                }
                AnswerStage::Breaking(leaving) => {
                    ready!(leaving.as_mut().poll(cx));
                    return Poll::Ready(match this.body_end.take() {
                        Some(BodyEnd::Broken(error)) => Some(Err(error)),
                        _ => None,
                    });
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.stage, AnswerStage::Releasing)
            && self.held.is_empty()
            && matches!(self.body_end, Some(BodyEnd::Clean))
    }

    fn size_hint(&self) -> SizeHint {
        let inner = self.inner.size_hint();
        let held_bytes =
            self.held.iter().filter_map(Frame::data_ref).map(|chunk| chunk.len() as u64).sum::<u64>();
        let mut hint = SizeHint::new();
        hint.set_lower(inner.lower() + held_bytes);
        if let Some(upper) = inner.upper() {
            hint.set_upper(upper + held_bytes);
        }
        hint
    }
}
