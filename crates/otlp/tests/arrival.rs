//! Spans in every order, in several requests, twice, and not as they should be.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use stepback_llm_wire::prices::Prices;
use stepback_model::event::AgentEvent;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_otlp::telemetry::{Group, Span, SpanId, SpanSide, TelemetryBatch, TraceId};
use stepback_otlp::{Assembler, Attributes, Encoding, Unreadable, logs, traces};

const NOW: Timestamp = Timestamp::from_micros(1_794_850_000_000_000);
const CAPTURES: [&str; 9] = [
    "langgraph__openinference",
    "langgraph__traceloop",
    "openai-agents__openinference",
    "openai-agents__traceloop",
    "openai__openinference",
    "openai__otel-v2-default",
    "openai__otel-v2-latest",
    "openai__traceloop",
    "pydantic-ai__native",
];

fn capture(name: &str) -> TelemetryBatch<Span> {
    let path = format!("{}/tests/captures/{name}.traces.1.pb", env!("CARGO_MANIFEST_DIR"));
    traces(Encoding::Protobuf, &std::fs::read(path).unwrap()).unwrap()
}

fn assembler() -> Assembler {
    Assembler::new(Prices::built_in())
}

fn take(assembler: &mut Assembler, batch: TelemetryBatch<Span>) -> Vec<AgentEvent> {
    let taken = assembler.traces(batch, NOW, &|_, _| false);
    taken.services.into_iter().flat_map(|(_, events)| events).collect()
}

/// What would be recorded: each event once, the first that came.
fn recorded(events: Vec<AgentEvent>) -> BTreeMap<(String, StepKind, String), AgentEvent> {
    let mut all = BTreeMap::new();
    for event in events {
        let key = (event.session.clone(), event.kind, event.key.clone().unwrap());
        all.entry(key).or_insert(event);
    }
    all
}

/// The same spans, one for each request, in the order in which they end.
fn one_by_one(batch: TelemetryBatch<Span>) -> Vec<TelemetryBatch<Span>> {
    let mut all = Vec::new();
    for group in batch.groups {
        let Group { resource, scope, items } = group;
        let alone = |span: Span| {
            let group = Group { resource: resource.clone(), scope: scope.clone(), items: vec![span] };
            TelemetryBatch { groups: vec![group], ..TelemetryBatch::default() }
        };
        all.extend(items.into_iter().map(alone));
    }
    all.sort_by_key(|batch| batch.groups[0].items[0].end);
    all
}

#[test]
fn spans_that_arrive_one_by_one_are_the_same_steps_as_all_at_once() {
    for name in CAPTURES {
        let at_once = recorded(take(&mut assembler(), capture(name)));
        let mut slow = assembler();
        let events = one_by_one(capture(name)).into_iter().flat_map(|batch| take(&mut slow, batch)).collect();
        let mut slowly = recorded(events);
        // Which span first told what a person asked depends on which came first.
        for (key, event) in &mut slowly {
            if key.1 == StepKind::UserInput && at_once.contains_key(key) {
                *event = at_once[key].clone();
            }
        }
        assert_eq!(slowly, at_once, "{name}");
    }
}

#[test]
fn a_step_knows_its_trace_its_spans_and_the_task_that_a_span_stands_for() {
    let mut tasks = 0;
    for name in CAPTURES {
        for event in take(&mut assembler(), capture(name)) {
            let context = event.known_context();
            let metadata = event.metadata.unwrap();
            assert_eq!(context.trace.as_deref(), metadata["trace_id"].as_str(), "{name}");
            assert_eq!(context.span.as_deref(), metadata["span_id"].as_str(), "{name}");
            if matches!(event.kind, StepKind::TaskStarted | StepKind::TaskCompleted | StepKind::TaskFailed) {
                tasks += 1;
                assert!(context.task.is_some(), "{name}");
            }
        }
    }
    assert!(tasks > 0);
}

#[test]
fn what_has_a_performative_is_a_message_between_agents() {
    let attributes = json!({ "kqml.performative": "ASK_ONE", "kqml.sender": "planner", "kqml.receiver": "tester",
        "kqml.content": "does it build?", "kqml.reply-with": "q1" });
    let remote = json!({ "rpc.system": "jsonrpc", "rpc.method": "message/send", "a2a.agent.name": "shop" });
    let other = json!({ "rpc.system": "grpc", "rpc.method": "Check" });
    let spans = vec![
        chat(1, json!({})),
        span(2, Some(1), attributes),
        span(3, Some(1), remote),
        span(4, Some(1), other),
    ];
    let events = take(&mut assembler(), batch(spans));
    let messages: Vec<&AgentEvent> = events.iter().filter(|event| event.kind == StepKind::Message).collect();
    let mut summaries: Vec<&str> = messages.iter().map(|event| event.summary.as_str()).collect();
    summaries.sort_unstable();
    assert_eq!(summaries, ["main → shop: message/send", "planner → tester: ask-one: does it build?"]);
    let asked = messages.iter().find(|event| event.worker.is_some()).unwrap();
    assert_eq!(asked.worker.as_deref(), Some("planner"));
    assert_eq!(asked.message.as_ref().unwrap().id.as_deref(), Some("q1"));
    let record = json!({ "traceId": "07".repeat(16), "body": { "stringValue": "yes" }, "severityNumber": 9,
        "attributes": [
            { "key": "session.id", "value": { "stringValue": "s" } },
            { "key": "agent.message.performative", "value": { "stringValue": "reply" } },
            { "key": "agent.message.sender", "value": { "stringValue": "tester" } },
            { "key": "agent.message.in_reply_to", "value": { "stringValue": "q1" } },
        ] });
    let text = json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": [record] }] }] }).to_string();
    let taken = assembler().logs(logs(Encoding::Json, text.as_bytes()).unwrap(), NOW, &|_, _| false);
    let [(_, events)] = taken.services.as_slice() else { panic!("{:?}", taken.services) };
    let message = events[0].message.as_ref().unwrap();
    assert_eq!(
        (events[0].kind, message.summary().as_str()),
        (StepKind::Message, "tester → main: reply: yes")
    );
    assert_eq!(message.answers.as_deref(), Some("q1"));
}

#[test]
fn every_span_is_kept_in_every_order_and_sent_twice() {
    for name in CAPTURES {
        let at_once = recorded(take(&mut assembler(), capture(name)));
        let mut backwards = assembler();
        let mut requests = one_by_one(capture(name));
        requests.reverse();
        requests.extend(one_by_one(capture(name)));
        requests.push(capture(name));
        let events = requests.into_iter().flat_map(|batch| take(&mut backwards, batch)).collect();
        let all = recorded(events);
        for (key, event) in &at_once {
            assert!(all.contains_key(key), "{name}: {} {:?} is missing", event.kind.as_str(), event.summary);
        }
        // A tool is only ever told twice if its span came after the call that tells of its result.
        let more = all.iter().filter(|(key, _)| !at_once.contains_key(*key));
        for (_, event) in more {
            let metadata = event.metadata.as_ref().unwrap();
            assert_eq!(metadata["from"], "messages", "{name}: {event:?}");
        }
    }
}

#[test]
fn within_a_request_outer_spans_begin_first_and_end_last() {
    for name in CAPTURES {
        let events = take(&mut assembler(), capture(name));
        let at: Vec<_> = events.iter().map(|event| event.at.unwrap()).collect();
        assert!(at.is_sorted(), "{name}");
        let spans: Vec<(String, bool)> = (events.iter())
            .filter_map(|event| {
                let key = event.key.clone()?;
                let id = key.strip_suffix(" began").map(|id| (id.to_owned(), true));
                id.or_else(|| key.strip_suffix(" ended").map(|id| (id.to_owned(), false)))
            })
            .collect();
        let mut open = Vec::new();
        for (id, begins) in spans {
            match begins {
                true => open.push(id),
                false => assert_eq!(open.pop(), Some(id), "{name}"),
            }
        }
        assert!(open.is_empty(), "{name}");
    }
}

fn span(id: u8, parent: Option<u8>, attributes: Value) -> Span {
    let fields = attributes.as_object().unwrap().clone();
    Span {
        trace: TraceId([7; 16]),
        id: SpanId([id; 8]),
        parent: parent.map(|parent| SpanId([parent; 8])),
        name: format!("span {id}"),
        side: SpanSide::Inside,
        start: 1_794_767_375_000_000_000 + u64::from(id) * 1_000_000,
        end: 1_794_767_376_000_000_000 - u64::from(id) * 1_000_000,
        attributes: fields.into_iter().collect(),
        events: Vec::new(),
        links: Vec::new(),
        failed: None,
        left_out: 0,
    }
}

fn batch(spans: Vec<Span>) -> TelemetryBatch<Span> {
    let resource: Attributes = [("service.name".to_owned(), json!("bot"))].into_iter().collect();
    let group = Group { resource: Arc::new(resource), scope: "test".into(), items: spans };
    TelemetryBatch { groups: vec![group], ..TelemetryBatch::default() }
}

fn chat(id: u8, more: Value) -> Span {
    let mut attributes = json!({ "gen_ai.operation.name": "chat", "gen_ai.request.model": "small" });
    attributes.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    span(id, Some(1), attributes)
}

#[test]
fn a_span_goes_to_the_session_that_another_one_of_its_trace_named() {
    let mut assembler = assembler();
    let named = chat(2, json!({ "gen_ai.conversation.id": "c" }));
    let events = take(&mut assembler, batch(vec![chat(3, json!({})), named]));
    assert!(events.iter().all(|event| event.session == "c"), "{events:?}");
    // Also in a later request.
    let events = take(&mut assembler, batch(vec![chat(4, json!({}))]));
    assert!(events.iter().all(|event| event.session == "c"), "{events:?}");
    // A trace that began as a session of its own stays one.
    let taken =
        assembler.traces(batch(vec![chat(5, json!({}))]), NOW, &|_, session| session == "07".repeat(16));
    assert!(taken.services[0].1.iter().all(|event| event.session == "07".repeat(16)), "{taken:?}");
}

#[test]
fn times_that_make_no_sense_are_mended_visibly() {
    let cases = [
        (0, 0, NOW, NOW),
        (u64::MAX, u64::MAX, NOW, NOW),
        (0, 1_794_767_375_000_000_000, at(1_794_767_375_000_000), at(1_794_767_375_000_000)),
        (
            1_794_767_376_000_000_000,
            1_794_767_375_000_000_000,
            at(1_794_767_376_000_000),
            at(1_794_767_376_000_000),
        ),
        (1_794_767_376_000_000_000, u64::MAX, at(1_794_767_376_000_000), at(1_794_767_376_000_000)),
    ];
    for (start, end, began, ended) in cases {
        let odd = Span { start, end, ..chat(2, json!({})) };
        let events = take(&mut assembler(), batch(vec![odd]));
        let [first, last] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((first.at, last.at), (Some(began), Some(ended)), "{start} {end}");
        assert_eq!(last.duration, None);
        assert_eq!(last.metadata.as_ref().unwrap()["times_as_sent"], json!({ "start": start, "end": end }));
    }
}

fn at(micros: i64) -> Timestamp {
    Timestamp::from_micros(micros)
}

#[test]
fn spans_that_are_each_others_parents_do_no_harm() {
    let spans = vec![
        span(1, Some(2), json!({ "gen_ai.operation.name": "invoke_agent" })),
        span(2, Some(1), json!({ "gen_ai.operation.name": "invoke_agent" })),
        span(3, Some(3), json!({ "gen_ai.operation.name": "chat" })),
    ];
    assert_eq!(take(&mut assembler(), batch(spans)).len(), 6);
}

#[test]
fn what_an_agent_tells_another_is_no_persons() {
    let messages = json!([{ "role": "user", "parts": [{ "type": "text", "content": "look" }] }]).to_string();
    let agent = |id, parent, name: &str| {
        let mut span =
            span(id, parent, json!({ "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name }));
        span.name = name.to_owned();
        span
    };
    let mut inner = chat(4, json!({ "gen_ai.input.messages": messages }));
    inner.parent = Some(SpanId([3; 8]));
    let mut outer = chat(5, json!({ "gen_ai.input.messages": messages }));
    outer.parent = Some(SpanId([1; 8]));
    let alone = take(
        &mut assembler(),
        batch(vec![agent(1, None, "boss"), agent(3, Some(1), "helper"), inner.clone()]),
    );
    assert!(alone.iter().all(|event| event.kind != StepKind::UserInput), "{alone:?}");
    let model = alone.iter().find(|event| event.kind == StepKind::ModelStart).unwrap();
    assert_eq!(model.worker.as_deref(), Some("helper"));
    let both = take(
        &mut assembler(),
        batch(vec![agent(1, None, "boss"), agent(3, Some(1), "helper"), inner, outer]),
    );
    let prompts: Vec<_> = both.iter().filter(|event| event.kind == StepKind::UserInput).collect();
    assert_eq!(prompts.len(), 1);
    assert_eq!(prompts[0].worker, None);
}

#[test]
fn traces_without_agents_are_left_out() {
    let plain = span(1, None, json!({ "http.request.method": "GET" }));
    assert!(take(&mut assembler(), batch(vec![plain.clone()])).is_empty());
    let edge = Span { side: SpanSide::Edge, ..span(2, None, json!({})) };
    let events = take(&mut assembler(), batch(vec![plain, edge, chat(3, json!({}))]));
    assert_eq!(events.iter().filter(|event| event.kind == StepKind::AgentStep).count(), 2, "{events:?}");
}

#[test]
fn older_forms_of_messages_are_read() {
    let flattened = chat(
        2,
        json!({
            "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "Weather?",
            "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": "",
            "gen_ai.completion.0.finish_reason": "tool_calls",
            "gen_ai.completion.0.tool_calls.0.id": "c1", "gen_ai.completion.0.tool_calls.0.name": "weather",
            "gen_ai.completion.0.tool_calls.0.arguments": "{\"city\": \"Paris\"}",
            "gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 2,
        }),
    );
    let mut as_events =
        chat(2, json!({ "gen_ai.usage.prompt_tokens": 10, "gen_ai.usage.completion_tokens": 2 }));
    let moment = |name: &str, attribute: &str, value: Value| {
        let attributes = [(attribute.to_owned(), json!(value.to_string()))].into_iter().collect();
        stepback_otlp::telemetry::SpanEvent { name: name.into(), at: 0, attributes }
    };
    let call = json!({ "id": "c1", "function": { "name": "weather", "arguments": "{\"city\": \"Paris\"}" } });
    as_events.events = vec![
        moment("gen_ai.content.prompt", "gen_ai.prompt", json!([{ "role": "user", "content": "Weather?" }])),
        moment(
            "gen_ai.content.completion",
            "gen_ai.completion",
            json!([{ "role": "assistant", "tool_calls": [call] }]),
        ),
    ];
    for span in [flattened, as_events] {
        let events = take(&mut assembler(), batch(vec![span]));
        let [prompt, asked, said] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!((prompt.kind, prompt.summary.as_str()), (StepKind::UserInput, "Weather?"));
        let input = asked.input.as_ref().unwrap();
        assert_eq!(input["messages"], json!([{ "role": "user", "content": "Weather?" }]));
        assert_eq!(input["parameters"], json!({ "model": "small" }));
        let call = json!({ "id": "c1", "name": "weather", "arguments": { "city": "Paris" } });
        assert_eq!(said.output, Some(json!({ "messages": [{ "role": "assistant", "tool_calls": [call] }] })));
        assert_eq!(said.metadata.as_ref().unwrap()["usage"]["input"], 10);
    }
}

#[test]
fn attributes_of_the_wrong_type_are_kept_and_do_no_harm() {
    let odd = chat(
        2,
        json!({
            "gen_ai.usage.input_tokens": "many", "gen_ai.usage.output_tokens": -5, "gen_ai.conversation.id": ["a"],
            "gen_ai.input.messages": 7, "gen_ai.output.messages": "{not json", "gen_ai.response.finish_reasons": { "a": 1 },
            "gen_ai.response.model": null, "error.type": [], "operation.cost": "free",
        }),
    );
    let events = take(&mut assembler(), batch(vec![odd]));
    let said = events.last().unwrap();
    assert_eq!(said.kind, StepKind::ModelEnd);
    assert_eq!(said.session, "07".repeat(16));
    assert_eq!(said.summary, "{not json");
    let raw = &said.raw.as_ref().unwrap()["attributes"];
    assert_eq!(raw["gen_ai.usage.input_tokens"], "many");
    assert_eq!(raw["operation.cost"], "free");
}

/// The bytes of a message's field.
fn field(number: u8, inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = inner.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend_from_slice(inner);
    bytes
}

fn request(spans: &[Vec<u8>]) -> Vec<u8> {
    let spans: Vec<Vec<u8>> = spans.iter().map(|span| field(2, span)).collect();
    field(1, &field(2, &spans.concat()))
}

fn ids(id: u8) -> Vec<u8> {
    [field(1, &[7; 16]), field(2, &[id; 8])].concat()
}

#[test]
fn a_million_attributes_are_counted_and_few_are_kept() {
    let mut bytes = ids(1);
    // `KeyValue { key: "0000000", value: AnyValue { int_value: 1 } }`, with the number of each for a name.
    let mut attribute = field(9, &[field(1, b"0000000"), field(2, &[0x18, 1])].concat());
    for number in 0..1_000_000 {
        attribute[4..11].copy_from_slice(format!("{number:07}").as_bytes());
        bytes.extend_from_slice(&attribute);
    }
    let batch = traces(Encoding::Protobuf, &request(&[bytes])).unwrap();
    assert_eq!(batch.groups[0].items[0].attributes.over(), 1_000_000 - 16_384);
}

#[test]
fn one_bad_span_does_not_take_its_neighbours_with_it() {
    let bad_text = [ids(2), field(5, &[0xff, 0xfe])].concat();
    let cut_off = [ids(3), vec![0x4a, 0x20, 1]].concat();
    let mut deep = vec![0x18, 1];
    for _ in 0..40 {
        deep = field(5, &field(1, &deep));
    }
    let deep = [ids(4), field(9, &[field(1, b"deep"), field(2, &deep)].concat())].concat();
    let wrong_type = [ids(5), vec![5 << 3, 1]].concat();
    let no_id = field(1, &[7; 16]);
    let short_id = [field(1, &[7; 15]), field(2, &[1; 8])].concat();
    let spans = [ids(1), bad_text, cut_off, deep, wrong_type, no_id, short_id, ids(9)];
    let batch = traces(Encoding::Protobuf, &request(&spans)).unwrap();
    assert_eq!(batch.groups[0].items.len(), 2);
    assert_eq!(batch.rejected.count, 6);
    let why = batch.rejected.sentence();
    for part in
        ["not UTF-8", "truncated", "levels deep", "field 5 has the wrong type", "no span id", "has 15 bytes"]
    {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[test]
fn more_spans_than_are_taken_are_refused_as_a_whole() {
    let many: Vec<_> = (0..16_385u32).map(|_| ids(1)).collect();
    assert_eq!(traces(Encoding::Protobuf, &request(&many)), Err(Unreadable::TooMany));
    let many: Vec<Value> = (0..16_385).map(|_| json!({})).collect();
    let json = json!({ "resourceLogs": [{ "scopeLogs": [{ "logRecords": many }] }] }).to_string();
    assert_eq!(logs(Encoding::Json, json.as_bytes()), Err(Unreadable::TooMany));
}

#[test]
fn nested_json_is_refused_and_not_followed() {
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let span = format!(
        r#"{{"traceId": "{}", "spanId": "0101010101010101", "attributes": {deep}}}"#,
        "07".repeat(16)
    );
    let text = format!(r#"{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{span}]}}]}}]}}"#);
    let batch = traces(Encoding::Json, text.as_bytes()).unwrap();
    assert_eq!(batch.rejected.count, 1);
    assert!(traces(Encoding::Json, deep.as_bytes()).is_err());
}

fn damaged() -> impl Strategy<Value = (usize, Vec<(usize, u8)>, usize)> {
    (0..CAPTURES.len(), proptest::collection::vec((any::<usize>(), any::<u8>()), 0..8), any::<usize>())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damaged_requests_are_read_as_far_as_they_go((which, changes, end) in damaged(), as_json in any::<bool>()) {
        let (encoding, ending) = if as_json { (Encoding::Json, "json") } else { (Encoding::Protobuf, "pb") };
        let path = format!("{}/tests/captures/{}.traces.1.{ending}", env!("CARGO_MANIFEST_DIR"), CAPTURES[which]);
        let mut bytes = std::fs::read(path).unwrap();
        for (place, byte) in changes {
            let place = place % bytes.len();
            bytes[place] = byte;
        }
        if end % 3 == 0 {
            bytes.truncate(end % bytes.len());
        }
        let _ = logs(encoding, &bytes);
        if let Ok(batch) = traces(encoding, &bytes) {
            let mut assembler = assembler();
            for (_, events) in assembler.traces(batch, NOW, &|_, _| false).services {
                for event in events {
                    prop_assert!(event.key.is_some() && event.at.is_some());
                    prop_assert!(event.summary.chars().count() < 300, "{}", event.summary);
                }
            }
        }
    }

    #[test]
    fn any_bytes_at_all_do_no_harm(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        for encoding in [Encoding::Protobuf, Encoding::Json] {
            let _ = traces(encoding, &bytes);
            let _ = logs(encoding, &bytes);
        }
    }
}
