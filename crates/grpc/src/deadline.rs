//! Deadlines: how long a client waits for a call, and streams that end then.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderMap, HeaderValue};
use hyper::body::{Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::{Code, Status};

use crate::status::refusal;

/// The header with the time that a call may take.
const TIMEOUT: &str = "grpc-timeout";
/// Longer deadlines are none: a client that waits for a year does not wait for us.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// Reads the time that a call may take; `None` for no limit.
pub(crate) fn timeout(headers: &HeaderMap) -> Result<Option<Duration>, Status> {
    let Some(value) = headers.get(TIMEOUT) else { return Ok(None) };
    match parse(value) {
        Some(timeout) => Ok(Some(timeout).filter(|timeout| *timeout < LONGEST)),
        None => {
            let detail = "grpc-timeout is not a time".to_owned();
            Err(refusal(
                Code::InvalidArgument,
                "usage",
                detail,
                Some("at most 8 digits and one of H M S m u n"),
            ))
        }
    }
}

fn parse(value: &HeaderValue) -> Option<Duration> {
    let (digits, unit) = value.to_str().ok()?.split_at_checked(value.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        "H" => Some(Duration::from_secs(count * 3600)),
        "M" => Some(Duration::from_secs(count * 60)),
        "S" => Some(Duration::from_secs(count)),
        "m" => Some(Duration::from_millis(count)),
        "u" => Some(Duration::from_micros(count)),
        "n" => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

/// The status of a call that took too long.
pub(crate) fn exceeded() -> Status {
    let detail = "the deadline of the call has passed".to_owned();
    refusal(
        Code::DeadlineExceeded,
        "busy",
        detail,
        Some("what was begun may still complete; check the result before you retry"),
    )
}

/// A body that ends at the deadline with a status.
pub(crate) struct DeadlineBody {
    body: Body,
    deadline: Pin<Box<Sleep>>,
    has_ended: bool,
}

impl DeadlineBody {
    pub(crate) fn new(body: Body, deadline: Instant) -> Self {
        Self { body, deadline: Box::pin(sleep_until(deadline)), has_ended: false }
    }
}

impl HttpBody for DeadlineBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        // A stream that always has something to send must end too.
        if self.deadline.as_mut().poll(context).is_ready() {
            self.has_ended = true;
            // What the body holds is freed now, and not when the client has read the status.
            self.body = Body::empty();
            let mut trailers = HeaderMap::new();
            return Poll::Ready(
                exceeded().add_header(&mut trailers).ok().map(|()| Ok(Frame::trailers(trailers))),
            );
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.has_ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn a_deadline_is_read_in_every_unit_and_never_guessed() {
        let read = |text: &'static str| parse(&HeaderValue::from_static(text));
        assert_eq!(read("2H"), Some(Duration::from_secs(7200)));
        assert_eq!(read("3M"), Some(Duration::from_secs(180)));
        assert_eq!(read("99999999S"), Some(Duration::from_secs(99_999_999)));
        assert_eq!(read("100m"), Some(Duration::from_millis(100)));
        assert_eq!(read("5u"), Some(Duration::from_micros(5)));
        assert_eq!(read("0n"), Some(Duration::ZERO));
        for wrong in ["", "S", "5", "5s", "-1S", "+1S", "1.5S", "123456789S", "1 S", "S5"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let mut headers = HeaderMap::new();
        assert_eq!(timeout(&headers).unwrap(), None);
        headers.insert(TIMEOUT, HeaderValue::from_static("99999999H"));
        assert_eq!(timeout(&headers).unwrap(), None);
        headers.insert(TIMEOUT, HeaderValue::from_static("soon"));
        assert_eq!(timeout(&headers).unwrap_err().code(), Code::InvalidArgument);
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_stream_ends_at_the_deadline() {
        for pending in [true, false] {
            let endless: Body = match pending {
                true => Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>()),
                false => {
                    Body::from_stream(stream::repeat_with(|| Ok::<_, axum::Error>(Bytes::from_static(b"x"))))
                }
            };
            let mut body = DeadlineBody::new(endless, Instant::now() + Duration::from_secs(5));
            let trailers = loop {
                let frame = body.frame().await.unwrap().unwrap();
                match frame.into_trailers() {
                    Ok(trailers) => break trailers,
                    Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            };
            assert_eq!(trailers["grpc-status"], "4");
            assert!(body.frame().await.is_none());
        }
    }
}
