//! Observability: metrics in Prometheus' format, and a log line for every request.
//!
//! Neither ever contains a token, a query or a body: requests are named by their route.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::Response;
use jiff::Timestamp;
use serde_json::json;

use crate::accept::Peer;
use crate::request_id::{REQUEST_ID, RequestIds};

/// Upper bounds of the histogram buckets, in milliseconds.
const BUCKET_BOUNDS_MILLIS: [f64; 10] = [1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 1000.0, 5000.0];

/// Counts requests and writes the log. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Observer {
    inner: Arc<Inner>,
}

struct Inner {
    started_at: Instant,
    in_flight: AtomicU64,
    routes: Mutex<BTreeMap<(&'static str, String, u16), RouteStats>>,
    log: Option<Mutex<Box<dyn Write + Send>>>,
    ids: RequestIds,
}

/// The counters of one route with one status.
#[derive(Default)]
struct RouteStats {
    requests: u64,
    total_millis: f64,
    /// Requests that took at most as long as each bucket allows; cumulative, as Prometheus expects.
    buckets: [u64; BUCKET_BOUNDS_MILLIS.len()],
}

impl Observer {
    /// Creates an observer that writes a line for every request to `log`, if there is one.
    pub(crate) fn new(log: Option<Box<dyn Write + Send>>) -> Self {
        let inner = Inner {
            started_at: Instant::now(),
            in_flight: AtomicU64::new(0),
            routes: Mutex::default(),
            log: log.map(Mutex::new),
            ids: RequestIds::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    fn record_request(&self, method: &'static str, route: &str, status: u16, milliseconds: f64) {
        let mut routes = self.inner.routes.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = routes.entry((method, route.to_owned(), status)).or_default();
        seen.requests += 1;
        seen.total_millis += milliseconds;
        for (class, most) in seen.buckets.iter_mut().zip(BUCKET_BOUNDS_MILLIS) {
            *class += u64::from(milliseconds <= most);
        }
    }

    fn write_log_line(&self, line: &serde_json::Value) {
        if let Some(log) = &self.inner.log {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            // A failing log must not fail the request.
            let _ = writeln!(log, "{line}").and_then(|()| log.flush());
        }
    }

    /// Returns all metrics in Prometheus' text format; `commits` is the number of commits to the store so far.
    pub(crate) fn render_prometheus(&self, commits: Option<u64>) -> String {
        let mut text = String::new();
        let mut say = |line: std::fmt::Arguments<'_>| {
            // Writing to a string does not fail.
            let _ = text.write_fmt(line);
            text.push('\n');
        };
        say(format_args!("# HELP stepback_requests_total Requests that were answered."));
        say(format_args!("# TYPE stepback_requests_total counter"));
        let routes = self.inner.routes.lock().unwrap_or_else(PoisonError::into_inner);
        for ((method, route, status), seen) in routes.iter() {
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            say(format_args!("stepback_requests_total{{{labels}}} {}", seen.requests));
        }
        say(format_args!("# HELP stepback_request_seconds How long they took."));
        say(format_args!("# TYPE stepback_request_seconds histogram"));
        for ((method, route, status), seen) in routes.iter() {
            let labels = format!("method=\"{method}\",route=\"{route}\",status=\"{status}\"");
            for (most, count) in BUCKET_BOUNDS_MILLIS.iter().zip(seen.buckets) {
                let most = most / 1000.0;
                say(format_args!("stepback_request_seconds_bucket{{{labels},le=\"{most}\"}} {count}"));
            }
            say(format_args!("stepback_request_seconds_bucket{{{labels},le=\"+Inf\"}} {}", seen.requests));
            say(format_args!("stepback_request_seconds_sum{{{labels}}} {}", seen.total_millis / 1000.0));
            say(format_args!("stepback_request_seconds_count{{{labels}}} {}", seen.requests));
        }
        drop(routes);
        let mut gauge = |name: &str, help: &str, value: u64| {
            say(format_args!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}"));
        };
        let in_flight = self.inner.in_flight.load(Ordering::Relaxed);
        gauge("stepback_requests_in_flight", "Requests being worked on.", in_flight);
        gauge(
            "stepback_uptime_seconds",
            "Since the server began.",
            self.inner.started_at.elapsed().as_secs(),
        );
        if let Some(bytes) = resident_bytes() {
            gauge("process_resident_memory_bytes", "Memory in use.", bytes);
        }
        if let Some(commits) = commits {
            gauge("stepback_store_commits", "Commits to the store, by all processes.", commits);
        }
        text
    }
}

/// Returns the resident memory of this process; `None` where the system does not report it.
fn resident_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// Counts a request as in flight until it is dropped.
struct InFlight<'a>(&'a AtomicU64);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Middleware that measures every request and its answer.
pub(crate) async fn measure_request(
    State(observer): State<Observer>,
    request: Request,
    next: Next,
) -> Response {
    let begun = Instant::now();
    observer.inner.in_flight.fetch_add(1, Ordering::Relaxed);
    let in_flight = InFlight(&observer.inner.in_flight);
    let method = method_name(request.method());
    // Clients can send any unknown path, so those are counted under one name.
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let peer = request.extensions().get::<Peer>().map(|peer| peer.0.ip().to_string());
    let length = |headers: &HeaderMap| {
        headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok())
    };
    let sent = length(request.headers());
    let id = observer.inner.ids.id_for(request.headers());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id.clone());
    drop(in_flight);
    let status = stepback_grpc::http_status(&response);
    let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
    observer.record_request(method, &route, status, milliseconds);
    if observer.inner.log.is_some() {
        let level = if status >= 500 { "error" } else { "info" };
        observer.write_log_line(&json!({
            "time": Timestamp::now().to_string(), "level": level, "message": "request",
            "id": id.to_str().unwrap_or_default(), "method": method, "route": route,
            "status": status, "ms": (milliseconds * 1e3).round() / 1e3, "bytes_in": sent,
            "bytes_out": length(response.headers()), "peer": peer,
        }));
    }
    response
}

/// The name of a method; unusual ones are all `OTHER`.
fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::HEAD => "HEAD",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::PATCH => "PATCH",
        Method::DELETE => "DELETE",
        Method::OPTIONS => "OPTIONS",
        _ => "OTHER",
    }
}
