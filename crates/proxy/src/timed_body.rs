//! The body of a request that must keep arriving: a client that sends only a part of it is not waited for.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

/// A body that fails if nothing of it arrives for some time.
#[derive(Debug)]
pub struct TimedBody<B> {
    body: B,
    patience: Duration,
    /// The deadline of the next frame; `None` if none is awaited.
    until: Option<Pin<Box<Sleep>>>,
}

impl<B> TimedBody<B> {
    /// Wraps a body that may be silent for at most `patience`.
    pub fn new(body: B, patience: Duration) -> Self {
        Self { body, patience, until: None }
    }
}

impl<B> Body for TimedBody<B>
where
    B: Body + Unpin,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    type Data = B::Data;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            self.until = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(io::Error::other)));
        }
        let patience = self.patience;
        let until = self.until.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
        match until.as_mut().poll(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                let late = io::Error::new(io::ErrorKind::TimedOut, "the client stopped sending the request");
                Poll::Ready(Some(Err(late)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
