//! Request ids: every answer has one, and so has its line in the log, so that a report about a failed request can be matched
//! with the log.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::http::{HeaderMap, HeaderName, HeaderValue};

/// The header that carries the id, in requests and answers.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Most characters of an id that a client chooses.
const MAX_ID_CHARS: usize = 64;

/// Issues ids: those of clients are kept, and requests without one get one that no other server issues.
#[derive(Debug)]
pub(crate) struct RequestIds {
    prefix: String,
    issued: AtomicU64,
}

impl RequestIds {
    pub(crate) fn new() -> Self {
        let mut random = [0; 6];
        // Without randomness, ids of two servers may be the same, which makes them harder to tell apart and nothing else.
        let _ = getrandom::fill(&mut random);
        let prefix = random.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self { prefix, issued: AtomicU64::new(1) }
    }

    /// The id of a request with these headers.
    pub(crate) fn id_for(&self, headers: &HeaderMap) -> HeaderValue {
        let chosen = headers.get(REQUEST_ID).filter(|id| is_plain(id.as_bytes()));
        chosen.cloned().unwrap_or_else(|| {
            let number = self.issued.fetch_add(1, Ordering::Relaxed);
            // The invariant: hex digits, a hyphen and decimal digits are visible ASCII.
            HeaderValue::from_str(&format!("{}-{number}", self.prefix))
                .unwrap_or_else(|_| HeaderValue::from_static("unknown"))
        })
    }
}

/// Whether an id can be repeated in an answer and in a log as it is.
fn is_plain(id: &[u8]) -> bool {
    (1..=MAX_ID_CHARS).contains(&id.len())
        && id.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_of_the_client_is_kept_if_it_is_plain() {
        let ids = RequestIds::new();
        let id_for = |id: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(REQUEST_ID, HeaderValue::from_bytes(id).unwrap());
            ids.id_for(&headers).to_str().unwrap().to_owned()
        };
        assert_eq!(id_for(b"order-66_a.b"), "order-66_a.b");
        for wrong in [&b"a b"[..], b"", b"\"x\"", b"a{}", &[b'a'; 65], "é".as_bytes()] {
            assert!(id_for(wrong).starts_with(&ids.prefix), "{wrong:?}");
        }
        assert_ne!(ids.id_for(&HeaderMap::new()), ids.id_for(&HeaderMap::new()));
    }
}
