//! Requests of exporters with changes that no exporter makes: read as far as they go, or refused.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::path::Path;

use stepback_llm_wire::prices::Prices;
use stepback_model::time::Timestamp;
use stepback_otlp::{Assembler, Encoding, logs, traces};
use stepback_testkit::fuzz::{FuzzTarget, MeteredAllocator};

#[global_allocator]
static ALLOCATOR: MeteredAllocator = MeteredAllocator;

const NOW: Timestamp = Timestamp::from_micros(1_794_850_000_000_000);

fn captures(ending: &str) -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures");
    let paths = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|found| found == ending)).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

fn read(encoding: Encoding, input: &[u8]) {
    let _ = logs(encoding, input);
    let Ok(batch) = traces(encoding, input) else { return };
    let mut assembler = Assembler::new(Prices::built_in());
    for (_, events) in assembler.traces(batch, NOW, &|_, _| false).services {
        for event in events {
            assert!(event.key.is_some() && event.at.is_some());
            assert!(event.summary.chars().count() < 300, "{}", event.summary);
        }
    }
}

#[test]
fn protobuf() {
    FuzzTarget::new("OTLP protobuf", captures("pb")).run(2_000, |input| read(Encoding::Protobuf, input));
}

#[test]
fn json() {
    let words =
        ["{", "[", "]", "}", "null", "\"intValue\":", "\"traceId\":", "\"kvlistValue\":", "\\ud800", "1e999"];
    FuzzTarget::new("OTLP JSON", captures("json"))
        .words(&words)
        .run(1_500, |input| read(Encoding::Json, input));
}
