//! Answers of many messages: the bytes of files in pieces, and clients that stop reading.
//!
//! HTTP/2 lets a client stop one stream while its connection goes on, so the timeout of writes to the connection never ends
//! such a stream. Here a task moves messages into a short queue, and gives up when the queue stays full: what the stream held
//! is freed, and nothing grows.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::stream::{self, BoxStream};
use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use tonic::{Code, Status};

use crate::status::refusal;
use crate::v1::Chunk;

/// Messages that wait for a client to read them.
const QUEUE: usize = 8;
/// Largest piece of a file.
const MAX_CHUNK_BYTES: usize = 64 << 10;

/// Passes a stream on; ends it with an error when the client reads nothing for `stall_timeout`.
pub(crate) fn pump<T: Send + 'static>(
    items: impl Stream<Item = Result<T, Status>> + Send + 'static,
    stall_timeout: Duration,
) -> BoxStream<'static, Result<T, Status>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let has_stalled = Arc::new(AtomicBool::new(false));
    let stalled = Arc::clone(&has_stalled);
    tokio::spawn(async move {
        let mut items = pin!(items);
        loop {
            let item = tokio::select! {
                item = items.next() => item,
                // The client is gone.
                () = sender.closed() => return,
            };
            let Some(item) = item else { return };
            match tokio::time::timeout(stall_timeout, sender.send(item)).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return,
                Err(_) => return stalled.store(true, Ordering::Release),
            }
        }
    });
    let queue =
        stream::unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
    let end = stream::once(async move {
        has_stalled.load(Ordering::Acquire).then(|| {
            let detail = format!("the client read nothing for {} s", stall_timeout.as_secs());
            Err(refusal(Code::ResourceExhausted, "busy", detail, Some("read faster, or filter what is sent")))
        })
    });
    queue.chain(end.filter_map(|end| async move { end })).boxed()
}

/// The bytes of an answer in pieces.
pub(crate) fn chunks(body: Body) -> impl Stream<Item = Result<Chunk, Status>> + Send {
    body.into_data_stream().flat_map(|piece| {
        stream::iter(match piece {
            Ok(bytes) => split(bytes).map(Ok).collect(),
            Err(error) => {
                let detail = format!("the file could not be read to its end: {error}");
                vec![Err(refusal(Code::DataLoss, "store", detail, None))]
            }
        })
    })
}

fn split(mut bytes: Bytes) -> impl Iterator<Item = Chunk> {
    std::iter::from_fn(move || {
        let size = bytes.len().min(MAX_CHUNK_BYTES);
        (size > 0).then(|| Chunk { data: bytes.split_to(size).into() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_client_that_stops_reading_loses_its_stream_and_the_source_is_freed() {
        let alive = Arc::new(());
        let held = Arc::clone(&alive);
        let source = stream::repeat_with(move || {
            let _held = &held;
            Ok(1)
        });
        let mut pumped = pump(source, Duration::from_secs(30));
        // A slow client is not a stalled one.
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(pumped.next().await.unwrap().unwrap(), 1);
        }
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(Arc::strong_count(&alive), 1, "the source is gone");
        let rest: Vec<_> = pumped.collect().await;
        assert!(rest.len() <= QUEUE + 2, "{}", rest.len());
        assert_eq!(rest.last().unwrap().as_ref().unwrap_err().code(), Code::ResourceExhausted);
    }

    #[tokio::test]
    async fn a_stream_that_ends_ends() {
        let pumped = pump(stream::iter([Ok(1), Err(Status::internal("no"))]), Duration::from_secs(30));
        let all: Vec<_> = pumped.collect().await;
        assert_eq!(all.len(), 2);
        assert_eq!(*all[0].as_ref().unwrap(), 1);
    }

    #[tokio::test]
    async fn a_file_arrives_in_pieces() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|number| number as u8).collect();
        let pieces: Vec<_> =
            chunks(Body::from(bytes.clone())).map(|piece| piece.unwrap().data).collect().await;
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_CHUNK_BYTES));
        assert_eq!(pieces.concat(), bytes);
    }
}
