//! Live events: the server-sent events of the HTTP API as messages.

use std::collections::VecDeque;

use axum::body::{Body, BodyDataStream};
use futures_util::{Stream, StreamExt, stream};
use tonic::{Code, Status};

use crate::operation::internal;
use crate::status::refusal;
use crate::v1::event::Kind;
use crate::v1::{Empty, Event};

/// Reads server-sent events. Only what this server writes is understood.
struct EventReader {
    body: BodyDataStream,
    /// What is not a whole event yet.
    rest: Vec<u8>,
    ready: VecDeque<Result<Event, Status>>,
    position: u64,
    has_ended: bool,
}

/// The events of a body.
pub(crate) fn events(body: Body) -> impl Stream<Item = Result<Event, Status>> + Send {
    let reader = EventReader {
        body: body.into_data_stream(),
        rest: Vec::new(),
        ready: VecDeque::new(),
        position: 0,
        has_ended: false,
    };
    stream::unfold(reader, |mut reader| async move { Some((reader.next().await?, reader)) })
}

impl EventReader {
    async fn next(&mut self) -> Option<Result<Event, Status>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Some(event);
            }
            if self.has_ended {
                return None;
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.read(&bytes),
                Some(Err(error)) => self.end(internal(error.to_string())),
                // The log never ends.
                None => self.end(refusal(
                    Code::Unavailable,
                    "busy",
                    "the server is about to stop".into(),
                    Some("follow again, after the last position"),
                )),
            }
        }
    }

    fn end(&mut self, status: Status) {
        self.has_ended = true;
        self.ready.push_back(Err(status));
    }

    fn read(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.windows(2).position(|two| two == b"\n\n") {
            let block: Vec<u8> = self.rest.drain(..end + 2).collect();
            match self.read_event(&String::from_utf8_lossy(&block)) {
                Ok(event) => self.ready.extend(event.map(Ok)),
                Err(error) => return self.end(internal(format!("an event has an unexpected form: {error}"))),
            }
        }
    }

    fn read_event(&mut self, block: &str) -> Result<Option<Event>, serde_json::Error> {
        let (mut name, mut data, mut has_id) = ("", "", false);
        for line in block.lines() {
            match line.split_once(": ") {
                Some(("event", value)) => name = value,
                Some(("data", value)) => data = value,
                Some(("id", value)) => {
                    self.position = value.parse().unwrap_or(self.position);
                    has_id = true;
                }
                _ => {}
            }
        }
        let kind = match name {
            "step" => Some(Kind::Step(serde_json::from_str(data)?)),
            "stops" => Some(Kind::Stops(serde_json::from_str(data)?)),
            "changed" => Some(Kind::Changed(Empty {})),
            "" if has_id => None,
            // Kinds of events that a later server has are not in the `.proto` files, and mean nothing to a client.
            _ => return Ok(None),
        };
        Ok(Some(Event { position: self.position, kind }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn events_are_read_however_they_are_cut() {
        let text = "retry: 1000\nid: 7\n\nid: 8\nevent: step\ndata: {\"id\":\"s\",\"number\":3,\"position\":8}\n\n\
                    event: changed\ndata: {}\n\nevent: later\ndata: {}\n\n: nothing happened\nid: 9\n\n\
                    event: stops\ndata: {\"items\":[]}\n\n";
        for size in [1, 7, 64, 4096] {
            let pieces: Vec<Result<Vec<u8>, std::io::Error>> =
                text.as_bytes().chunks(size).map(|piece| Ok(piece.to_vec())).collect();
            let read: Vec<_> = events(Body::from_stream(stream::iter(pieces))).collect().await;
            let (last, read) = read.split_last().unwrap();
            assert_eq!(last.as_ref().unwrap_err().code(), Code::Unavailable);
            let read: Vec<_> = read.iter().map(|event| event.as_ref().unwrap()).collect();
            let positions: Vec<u64> = read.iter().map(|event| event.position).collect();
            assert_eq!(positions, [7, 8, 8, 9, 9]);
            assert!(matches!(&read[1].kind, Some(Kind::Step(step)) if step.number == 3 && step.id == "s"));
            assert!(read[0].kind.is_none() && matches!(read[2].kind, Some(Kind::Changed(_))));
        }
    }
}
