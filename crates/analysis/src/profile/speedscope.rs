//! A profile in the file format of speedscope: one profile for each row of each agent, in microseconds from the start of the session.
//!
//! A frame is what happened, and inside it another one is what a call was about, so that the view by time shows which program or
//! file a tool spent its time on.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::rows::arrange_in_rows;
use super::{Profile, ProfileSpan, TimeCategory};
use crate::facts::SessionFacts;

/// Where the format is defined.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// Returns the profile as a file for speedscope.
pub fn to_speedscope(facts: &SessionFacts, profile: &Profile) -> Value {
    let mut frames = FrameTable::default();
    let mut profiles = Vec::new();
    for row in arrange_in_rows(&profile.spans) {
        let mut events = Vec::with_capacity(row.spans.len() * 4);
        for span in row.spans.iter().map(|index| &profile.spans[*index]) {
            let (start, end) = (span.start.abs_diff(profile.start), span.end.abs_diff(profile.start));
            let outer = frames.index(describe_span(facts, span));
            let inner = Some(facts.name(span.subject)).filter(|subject| !subject.is_empty());
            let inner = inner.map(|subject| frames.index(subject.to_owned()));
            events.push(json!({ "type": "O", "frame": outer, "at": start }));
            if let Some(frame) = inner {
                events.push(json!({ "type": "O", "frame": frame, "at": start }));
                events.push(json!({ "type": "C", "frame": frame, "at": end }));
            }
            events.push(json!({ "type": "C", "frame": outer, "at": end }));
        }
        profiles.push(json!({
            "type": "evented",
            "name": row_title(facts, profile, row.lane, row.number),
            "unit": "microseconds",
            "startValue": 0,
            "endValue": profile.wall(),
            "events": events,
        }));
    }
    json!({
        "$schema": SCHEMA,
        "name": session_title(facts),
        "exporter": "stepback",
        "activeProfileIndex": 0,
        "shared": { "frames": frames.frames },
        "profiles": profiles,
    })
}

/// The session in a few words.
pub(super) fn session_title(facts: &SessionFacts) -> String {
    let session = facts.session.map(|session| session.to_string()).unwrap_or_default();
    format!("{} {session}", facts.agent).trim().to_owned()
}

/// An agent in a few words.
pub(super) fn lane_title(facts: &SessionFacts, profile: &Profile, lane: usize) -> String {
    match profile.lanes.get(lane).and_then(|lane| lane.worker) {
        Some(worker) => format!("sub-agent {}", facts.name(Some(worker))),
        None if facts.agent.is_empty() => "main agent".to_owned(),
        None => facts.agent.clone(),
    }
}

fn row_title(facts: &SessionFacts, profile: &Profile, lane: usize, number: usize) -> String {
    let lane = lane_title(facts, profile, lane);
    if number == 0 { lane } else { format!("{lane}, parallel calls {number}") }
}

/// What happened, in a few words: the tool, the model, or who waited for what.
pub(super) fn describe_span(facts: &SessionFacts, span: &ProfileSpan) -> String {
    let name = facts.name(span.name);
    match span.category {
        TimeCategory::Tool if name.is_empty() => "a tool".to_owned(),
        TimeCategory::Model if name.is_empty() => "model".to_owned(),
        TimeCategory::Tool | TimeCategory::Model => name.to_owned(),
        other if name.is_empty() => other.title().to_owned(),
        other => format!("{} ({name})", other.title()),
    }
}

#[derive(Default)]
struct FrameTable {
    frames: Vec<Value>,
    by_name: HashMap<String, usize>,
}

impl FrameTable {
    fn index(&mut self, name: String) -> usize {
        if let Some(&index) = self.by_name.get(&name) {
            return index;
        }
        let index = self.frames.len();
        self.frames.push(json!({ "name": name }));
        self.by_name.insert(name, index);
        index
    }
}
