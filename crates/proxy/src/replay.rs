//! Sends a recorded answer: the same chunks in the same order, at once or with the recorded delays, with the same end.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, header};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, SizeHint};
use stepback_llm_wire::{AnswerEnd, Response, Wire};
use tokio::time::Sleep;

use crate::Timing;
use crate::body::AnswerBody;
use crate::connect::AnyError;
use crate::handler::{ProxyResult, error_response};
use crate::recording::Recording;
use crate::state::ProxyState;

/// Sends a recorded answer.
pub(crate) async fn send_recorded(
    shared: &Arc<ProxyState>,
    wire: Option<Wire>,
    mut recording: Option<Recording>,
    response: Response,
    timing: Timing,
    arrived: Instant,
) -> ProxyResult {
    if let AnswerEnd::Failed(reason) = &response.ended {
        if let Some(recording) = &mut recording {
            recording.failed(reason.clone());
        }
        if response.body.is_empty() {
            let message = format!("stepback proxy: no answer was recorded: {reason}");
            return error_response(shared, wire, recording, 502, &message).await;
        }
    }
    let body = RecordedBody::new(&response, timing, arrived);
    if response.status == 0 {
        // The agent disconnected before there was an answer, so there is none to send.
        return Err("nothing was recorded before the connection ended".into());
    }
    if let (Timing::Real, Some((delay, _))) = (timing, body.chunks.front()) {
        tokio::time::sleep_until((arrived + *delay).into()).await;
    }
    let mut builder = http::Response::builder().status(response.status);
    for (name, value) in &response.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value))
            && ![header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::TRANSFER_ENCODING].contains(&name)
            && name != Response::REPLAYED
        {
            builder = builder.header(name, value);
        }
    }
    builder = builder.header(Response::REPLAYED, "1");
    let answer = builder.body(body.boxed_unsync())?;
    if let Some(recording) = &mut recording {
        recording.record_head(response.status, answer.headers());
    }
    let (parts, body) = answer.into_parts();
    let mut body = AnswerBody::new(shared, body, recording);
    body.tell_if_empty().await;
    Ok(http::Response::from_parts(parts, body))
}

/// A recorded body.
struct RecordedBody {
    chunks: VecDeque<(Duration, Bytes)>,
    /// Why the body is cut off after the last chunk; `None` if it is not.
    breaks: Option<String>,
    arrived: Instant,
    timing: Timing,
    waiting: Option<Pin<Box<Sleep>>>,
    /// Whether its length is sent in advance: the body is complete, and came in one chunk.
    sized: bool,
}

impl RecordedBody {
    fn new(response: &Response, timing: Timing, arrived: Instant) -> Self {
        let mut rest = Bytes::from(response.body.clone());
        let mut chunks = VecDeque::new();
        for chunk in &response.chunks.0 {
            let bytes = usize::try_from(chunk.bytes).unwrap_or(usize::MAX).min(rest.len());
            if bytes > 0 {
                chunks.push_back((Duration::from_micros(chunk.after), rest.split_to(bytes)));
            }
        }
        if !rest.is_empty() {
            let last_delay = chunks.back().map_or(Duration::ZERO, |(last_delay, _)| *last_delay);
            chunks.push_back((last_delay, rest));
        }
        let breaks = match &response.ended {
            AnswerEnd::Complete | AnswerEnd::Failed(_) if response.left_out > 0 => {
                Some("the rest of the answer was not recorded".to_owned())
            }
            AnswerEnd::Complete | AnswerEnd::Failed(_) => None,
            AnswerEnd::Cancelled => Some("the agent disconnected here when it was recorded".to_owned()),
            AnswerEnd::CutOff(reason) => {
                Some(format!("it was interrupted here when it was recorded: {reason}"))
            }
        };
        let sized = breaks.is_none() && chunks.len() <= 1;
        Self { chunks, breaks, arrived, timing, waiting: None, sized }
    }
}

impl Body for RecordedBody {
    type Data = Bytes;
    type Error = AnyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, AnyError>>> {
        let this = &mut *self;
        let Some((delay, _)) = this.chunks.front() else {
            return Poll::Ready(this.breaks.take().map(|reason| Err(reason.into())));
        };
        if this.timing == Timing::Real {
            let moment = this.arrived + *delay;
            let waiting =
                this.waiting.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(moment.into())));
            ready!(waiting.as_mut().poll(cx));
            this.waiting = None;
        }
        Poll::Ready(this.chunks.pop_front().map(|(_, chunk)| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty() && self.breaks.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.sized {
            SizeHint::with_exact(self.chunks.iter().map(|(_, piece)| piece.len() as u64).sum())
        } else {
            SizeHint::default()
        }
    }
}
