//! Limits: concurrent requests, requests per second from one address, and the duration of a request.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use crate::accept::Peer;
use crate::problem::Problem;

/// Most requests at once. Those that only stream are not counted.
const AT_ONCE: usize = 256;
/// The longest time until the answer to a request begins.
const LONGEST: Duration = Duration::from_secs(300);
/// Most addresses with a rate that are remembered.
const MAX_ADDRESSES: usize = 4096;

/// The limits of a server. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Limits {
    inner: Arc<Inner>,
}

struct Inner {
    slots: Semaphore,
    per_second: Option<u32>,
    buckets: Mutex<HashMap<IpAddr, TokenBucket>>,
}

/// The token bucket of an address: it refills with time, up to two seconds' worth of requests.
#[derive(Clone, Copy)]
struct TokenBucket {
    tokens: f64,
    refilled_at: Instant,
}

impl Limits {
    /// Limits each address to so many requests per second; `None` for no limit.
    pub(crate) fn new(per_second: Option<u32>) -> Self {
        let inner = Inner { slots: Semaphore::new(AT_ONCE), per_second, buckets: Mutex::default() };
        Self { inner: Arc::new(inner) }
    }

    /// Whether one more request of `address` at `now` is allowed.
    fn try_take_token(&self, address: IpAddr, now: Instant) -> bool {
        let Some(per_second) = self.inner.per_second.map(f64::from) else { return true };
        let most = per_second * 2.0;
        let mut buckets = self.inner.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= MAX_ADDRESSES {
            // An address without requests for two seconds has a full bucket, like a new one.
            buckets.retain(|_, bucket| now.duration_since(bucket.refilled_at) < Duration::from_secs(2));
        }
        let bucket = buckets.entry(address).or_insert(TokenBucket { tokens: most, refilled_at: now });
        let passed = now.duration_since(bucket.refilled_at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed * per_second).min(most);
        bucket.refilled_at = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }
}

/// Middleware that refuses requests beyond the limits.
pub(crate) async fn enforce_limits(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    let address = request.extensions().get::<Peer>().map(|peer| peer.0.ip());
    if address.is_some_and(|address| !limits.try_take_token(address, Instant::now())) {
        return too_many_requests("too many requests", "reduce the request rate");
    }
    let Ok(_slot) = limits.inner.slots.try_acquire() else {
        return too_many_requests(
            "the server has reached its limit of concurrent requests",
            "try again in a moment",
        );
    };
    match tokio::time::timeout(LONGEST, next.run(request)).await {
        Ok(response) => response,
        Err(_) => {
            let detail = format!("the request timed out after {} s", LONGEST.as_secs());
            Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
                .with_hint("it may still complete; check the result before you retry")
                .into_response()
        }
    }
}

fn too_many_requests(detail: &str, hint: &str) -> Response {
    let problem = Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail).with_hint(hint);
    let mut response = problem.into_response();
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_asks_too_fast_waits_and_the_others_do_not() {
        let limits = Limits::new(Some(10));
        let (one, other): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let begun = Instant::now();
        assert_eq!((0..50).filter(|_| limits.try_take_token(one, begun)).count(), 20);
        assert!(limits.try_take_token(other, begun));
        let later = begun + Duration::from_millis(500);
        assert_eq!((0..50).filter(|_| limits.try_take_token(one, later)).count(), 5);
        let much_later = begun + Duration::from_secs(3600);
        assert_eq!((0..50).filter(|_| limits.try_take_token(one, much_later)).count(), 20);
    }

    #[test]
    fn addresses_are_forgotten() {
        let limits = Limits::new(Some(10));
        let begun = Instant::now();
        for number in 0..MAX_ADDRESSES as u32 {
            assert!(limits.try_take_token(IpAddr::from(number.to_be_bytes()), begun));
        }
        assert!(limits.try_take_token(IpAddr::from([9, 9, 9, 9]), begun + Duration::from_secs(3)));
        assert_eq!(limits.inner.buckets.lock().unwrap().len(), 1);
    }

    #[test]
    fn without_a_limit_everything_is_allowed() {
        let limits = Limits::new(None);
        assert!((0..10_000).all(|_| limits.try_take_token(IpAddr::from([127, 0, 0, 1]), Instant::now())));
    }
}
