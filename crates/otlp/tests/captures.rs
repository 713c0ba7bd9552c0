//! What real instrumentations sent, in both encodings, and the story that is made of it.
//!
//! The captures are requests of real SDKs and instrumentations: two model calls with a tool between them, against a model that
//! only repeats itself.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stepback_llm_wire::prices::Prices;
use stepback_model::event::AgentEvent;
use stepback_model::time::Timestamp;
use stepback_otlp::{AssembledRequest, Assembler, Encoding, logs, traces};

/// A day after the captures were made.
const NOW: Timestamp = Timestamp::from_micros(1_794_850_000_000_000);

fn captures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

fn names() -> Vec<String> {
    let files =
        fs::read_dir(captures()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = files.filter_map(|file| file.strip_suffix(".pb").map(str::to_owned)).collect();
    names.sort();
    names
}

fn bytes(name: &str, encoding: Encoding) -> Vec<u8> {
    let ending = if encoding == Encoding::Json { "json" } else { "pb" };
    fs::read(captures().join(format!("{name}.{ending}"))).unwrap()
}

fn take(assembler: &mut Assembler, name: &str, encoding: Encoding) -> AssembledRequest {
    let bytes = bytes(name, encoding);
    let is_known = |_: &_, _: &str| false;
    match name.contains(".logs.") {
        true => assembler.logs(logs(encoding, &bytes).unwrap(), NOW, &is_known),
        false => assembler.traces(traces(encoding, &bytes).unwrap(), NOW, &is_known),
    }
}

fn assembler() -> Assembler {
    Assembler::new(Prices::built_in())
}

/// The events as a person would want to read them.
fn story(taken: &AssembledRequest) -> String {
    let mut text = String::new();
    for (service, events) in &taken.services {
        writeln!(text, "service {}", service.name).unwrap();
        let mut session = "";
        for event in events {
            if event.session != session {
                session = &event.session;
                writeln!(text, "session {session}").unwrap();
            }
            one(event, &mut text);
        }
    }
    writeln!(text, "rejected {}", taken.rejected.count).unwrap();
    text
}

fn one(event: &AgentEvent, text: &mut String) {
    let clip = |value: &Value| {
        let line = value.to_string();
        match line.char_indices().nth(400) {
            Some((at, _)) => format!("{}…", &line[..at]),
            None => line,
        }
    };
    let took = event.duration.map(|micros| format!(" ({micros} µs)")).unwrap_or_default();
    writeln!(text, "\n{}{took}: {}", event.kind.as_str(), event.summary).unwrap();
    let words = [("tool", &event.tool), ("call", &event.call), ("worker", &event.worker)];
    for (name, word) in words {
        if let Some(word) = word {
            writeln!(text, "  {name}: {word}").unwrap();
        }
    }
    let error = event.error.as_ref().map(|error| serde_json::to_value(error).unwrap());
    let values = [
        ("input", &event.input),
        ("output", &event.output),
        ("error", &error),
        ("metadata", &event.metadata),
    ];
    for (name, value) in values {
        if let Some(value) = value {
            writeln!(text, "  {name}: {}", clip(value)).unwrap();
        }
    }
    if let Some(raw) = event.raw.as_ref().and_then(|raw| raw["attributes"].as_object()) {
        writeln!(text, "  kept as it came: {}", raw.keys().cloned().collect::<Vec<_>>().join(" ")).unwrap();
    }
}

#[test]
fn both_encodings_of_every_capture_tell_the_same_story() {
    let names = names();
    assert_eq!(names.len(), 10);
    for name in names {
        let from_protobuf = take(&mut assembler(), &name, Encoding::Protobuf);
        let from_json = take(&mut assembler(), &name, Encoding::Json);
        assert_eq!(from_protobuf, from_json, "{name}");
        insta::assert_snapshot!(name.as_str(), story(&from_protobuf));
    }
}
