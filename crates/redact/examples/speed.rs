//! How fast the scanner is: megabytes per second on 50 MB of each of several texts.
//!
//! `cargo run --release -p stepback-redact --example speed [FILE…]` adds files of your own.

use std::time::Instant;
use stepback_redact::redact;

const SIZE: usize = 50_000_000;

/// The time this thread has had a processor, so that a busy machine does not count.
fn cpu_seconds(started: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = stat.split(' ').next().and_then(|field| field.parse::<f64>().ok());
    nanoseconds.map_or(started.elapsed().as_secs_f64(), |n| n / 1e9)
}

fn measure(name: &str, piece: &str) {
    let text = piece.repeat(SIZE / piece.len().max(1) + 1);
    let started = Instant::now();
    let cpu_before = cpu_seconds(started);
    let clean = redact(&text);
    let cpu_used = cpu_seconds(started) - cpu_before;
    let speed = text.len() as f64 / 1e6 / cpu_used;
    let result = if clean.len() == text.len() { "nothing found" } else { "secrets found" };
    println!("{name:<28} {speed:>8.0} MB/s  {result}");
}

fn main() {
    let code = include_str!("../src/scan.rs");
    let payload = serde_json::json!({"session_id": "0198c2f0-7d3e-7a41-b0a2-3d5f6b7c8d9e", "tool_input": {"content": code}});
    measure("source code", code);
    measure("hook payload", &payload.to_string());
    measure("prose", include_str!("../../../docs/guide/what-is-covered.md"));
    measure("payload with a secret", &format!("{payload}\nDB_PASSWORD=hunter2\n"));
    let begin = format!("-----{} ", "BEGIN");
    for piece in [
        "a",
        "=",
        "password=",
        "password='password=\"",
        "-p ",
        "mysql -p",
        "a://b:",
        "aB3/",
        "login password ",
        "\\",
        "token\\\"=\\\"token=\\\"",
        &begin,
    ] {
        measure(&format!("hostile {piece:?}"), piece);
    }
    for path in std::env::args().skip(1) {
        match std::fs::read_to_string(&path) {
            Ok(text) => measure(&path, &text),
            Err(error) => println!("{path}: {error}"),
        }
    }
}
