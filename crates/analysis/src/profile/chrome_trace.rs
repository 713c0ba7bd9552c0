//! A profile as Chrome trace events, which open in Perfetto.
//!
//! Each agent is a process, and each of its rows a thread. Arrows lead from an answer of a model to the calls that it asked for, and from a call to
//! the sub-agent that it started. A counter shows the size of the context.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::rows::arrange_in_rows;
use super::speedscope::{describe_span, lane_title, session_title};
use super::{Profile, TimeCategory};
use crate::facts::SessionFacts;

/// Returns the profile as a file of trace events. Times are in microseconds from the start of the session.
pub fn to_chrome_trace(facts: &SessionFacts, profile: &Profile) -> Value {
    let mut writer = TraceWriter { facts, profile, events: Vec::new(), threads: HashMap::new(), flows: 0 };
    writer.write_names();
    for index in 0..profile.spans.len() {
        writer.write_span(index);
    }
    writer.write_calls_of_answers();
    writer.write_starts_of_sub_agents();
    writer.write_context();
    json!({
        "displayTimeUnit": "ms",
        "otherData": { "name": session_title(facts), "exporter": "stepback" },
        "traceEvents": writer.events,
    })
}

struct TraceWriter<'a> {
    facts: &'a SessionFacts,
    profile: &'a Profile,
    events: Vec<Value>,
    /// The thread of each span.
    threads: HashMap<usize, usize>,
    flows: u64,
}

impl TraceWriter<'_> {
    fn offset(&self, at: i64) -> u64 {
        at.max(self.profile.start).abs_diff(self.profile.start)
    }

    fn number(&self, step: u32) -> u64 {
        self.facts.steps.get(step as usize).map_or(0, |step| step.number)
    }

    fn write_names(&mut self) {
        for lane in 0..self.profile.lanes.len() {
            let name = lane_title(self.facts, self.profile, lane);
            self.events.push(metadata("process_name", lane, 0, json!({ "name": name })));
            self.events.push(metadata("process_sort_index", lane, 0, json!({ "sort_index": lane })));
        }
        for row in arrange_in_rows(&self.profile.spans) {
            let name =
                if row.number == 0 { "calls".to_owned() } else { format!("parallel calls {}", row.number) };
            self.events.push(metadata("thread_name", row.lane, row.number, json!({ "name": name })));
            self.threads.extend(row.spans.iter().map(|span| (*span, row.number)));
        }
    }

    fn write_span(&mut self, index: usize) {
        let span = &self.profile.spans[index];
        let mut arguments = json!({ "step": self.number(span.step) });
        let subject = self.facts.name(span.subject);
        if !subject.is_empty() {
            arguments["about"] = json!(subject);
        }
        if span.failed {
            arguments["failed"] = json!(true);
        }
        if let Some(rule) = span.basis.rule() {
            arguments["inferred"] = json!(rule);
        }
        self.events.push(json!({
            "ph": "X",
            "name": describe_span(self.facts, span),
            "cat": span.category.as_str(),
            "pid": span.lane + 1,
            "tid": self.thread(index),
            "ts": self.offset(span.start),
            "dur": span.duration(),
            "args": arguments,
        }));
    }

    fn thread(&self, index: usize) -> usize {
        self.threads.get(&index).copied().unwrap_or_default() + 1
    }

    /// An arrow from a moment in one span to the start of another one.
    fn write_flow(&mut self, name: &str, from: (usize, i64), to: usize) {
        self.flows += 1;
        let start = self.profile.spans[to].start;
        for (phase, index, at) in [("s", from.0, from.1), ("f", to, start)] {
            let event = json!({
                "ph": phase, "name": name, "cat": "flow", "id": self.flows, "bp": "e",
                "pid": self.profile.spans[index].lane + 1, "tid": self.thread(index), "ts": self.offset(at),
            });
            self.events.push(event);
        }
    }

    fn write_calls_of_answers(&mut self) {
        let mut answers: HashMap<usize, usize> = HashMap::new();
        let mut flows = Vec::new();
        for (index, span) in self.profile.spans.iter().enumerate() {
            match span.category {
                TimeCategory::Model => {
                    answers.insert(span.lane, index);
                }
                TimeCategory::Tool => {
                    let answer = answers.get(&span.lane);
                    flows.extend(
                        answer
                            .filter(|answer| self.profile.spans[**answer].end <= span.start)
                            .map(|answer| (*answer, index)),
                    );
                }
                _ => {}
            }
        }
        for (from, to) in flows {
            // An arrow belongs to the slice in which it begins; the end of a slice is not in it.
            let answer = &self.profile.spans[from];
            self.write_flow("asked for", (from, answer.end.saturating_sub(1).max(answer.start)), to);
        }
    }

    fn write_starts_of_sub_agents(&mut self) {
        let mut first: HashMap<usize, usize> = HashMap::new();
        let mut by_step: HashMap<u32, usize> = HashMap::new();
        for (index, span) in self.profile.spans.iter().enumerate() {
            first.entry(span.lane).or_insert(index);
            if let Some(step) = span.first_step.filter(|_| span.delegates) {
                by_step.insert(step, index);
            }
        }
        for (lane, agent) in self.profile.lanes.iter().enumerate() {
            let call = agent.started_by.and_then(|step| by_step.get(&step));
            if let (Some(&from), Some(&to)) = (call, first.get(&lane)) {
                // The call ends after its sub-agent, so the arrow begins where the call does.
                let start = self.profile.spans[from].start;
                if start <= self.profile.spans[to].start {
                    self.write_flow("started", (from, start), to);
                }
            }
        }
    }

    fn write_context(&mut self) {
        for sample in &self.profile.context {
            let Some(tokens) = sample.tokens else { continue };
            let cached = sample.cached.unwrap_or_default().min(tokens);
            self.events.push(json!({
                "ph": "C", "name": "context tokens", "pid": sample.lane + 1, "tid": 0,
                "ts": self.offset(sample.at),
                "args": { "from cache": cached, "new": tokens - cached },
            }));
        }
    }
}

fn metadata(name: &str, lane: usize, thread: usize, arguments: Value) -> Value {
    json!({ "ph": "M", "name": name, "pid": lane + 1, "tid": thread + 1, "ts": 0, "args": arguments })
}
