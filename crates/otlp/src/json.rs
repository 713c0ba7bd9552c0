//! The JSON encoding of OTLP, which is almost the JSON encoding of protobuf: ids are hex, enums are numbers.
//!
//! Senders are not always exact. Numbers are accepted as text and text as numbers, enums also by name (as protobuf's own
//! JSON writes them), ids also as base64, which cannot be confused with hex because it is shorter. Each span is extracted
//! first and parsed separately, so that an invalid one is rejected alone.

mod value;

use std::borrow::Cow;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::Value;
use serde_json::value::RawValue;

use self::value::{AnyValue, AttributeBuilder};
use crate::attributes::{Attributes, clipped};
use crate::read::{MOST, Unreadable};
use crate::telemetry::{
    Group, LogRecord, Rejected, Span, SpanEvent, SpanId, SpanLink, SpanSide, TelemetryBatch, TraceId,
};
use stepback_model::hex;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Traces<'a> {
    #[serde(borrow, default)]
    resource_spans: Option<Vec<OfResource<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Logs<'a> {
    #[serde(borrow, default)]
    resource_logs: Option<Vec<OfResource<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfResource<'a> {
    #[serde(default)]
    resource: Option<Resource>,
    #[serde(borrow, default, alias = "scopeLogs")]
    scope_spans: Option<Vec<OfScope<'a>>>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    attributes: Option<AttributeBuilder>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OfScope<'a> {
    #[serde(default)]
    scope: Option<Scope>,
    #[serde(borrow, default, alias = "logRecords")]
    spans: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
struct Scope {
    #[serde(default)]
    name: Option<String>,
}

/// Reads an `ExportTraceServiceRequest`.
pub fn traces(bytes: &[u8]) -> Result<TelemetryBatch<Span>, Unreadable> {
    let request: Traces<'_> = serde_json::from_slice(bytes).map_err(malformed)?;
    read_batch(request.resource_spans, "span", |text| serde_json::from_str::<JsonSpan<'_>>(text)?.into_span())
}

/// Reads an `ExportLogsServiceRequest`.
pub fn logs(bytes: &[u8]) -> Result<TelemetryBatch<LogRecord>, Unreadable> {
    let request: Logs<'_> = serde_json::from_slice(bytes).map_err(malformed)?;
    read_batch(request.resource_logs, "log record", |text| {
        serde_json::from_str::<JsonLog<'_>>(text)?.into_record()
    })
}

fn malformed(error: serde_json::Error) -> Unreadable {
    Unreadable::Malformed(error.to_string())
}

fn read_batch<T>(
    resources: Option<Vec<OfResource<'_>>>,
    what: &str,
    read: fn(&str) -> Result<T, serde_json::Error>,
) -> Result<TelemetryBatch<T>, Unreadable> {
    let (mut groups, mut rejected, mut count) = (Vec::new(), Rejected::default(), 0);
    for of_resource in resources.into_iter().flatten() {
        let attributes = of_resource.resource.and_then(|resource| resource.attributes);
        let resource: Arc<Attributes> = Arc::new(into_attributes(attributes));
        for of_scope in of_resource.scope_spans.into_iter().flatten() {
            let scope = of_scope.scope.and_then(|scope| scope.name).unwrap_or_default().into();
            let mut items = Vec::new();
            for raw in of_scope.spans.into_iter().flatten() {
                count += 1;
                if count > MOST {
                    return Err(Unreadable::TooMany);
                }
                match read(raw.get()) {
                    Ok(item) => items.push(item),
                    Err(error) => rejected.add(format!("a {what}: {}", without_place(&error))),
                }
            }
            groups.push(Group { resource: resource.clone(), scope, items });
        }
    }
    Ok(TelemetryBatch { groups, rejected })
}

/// Returns the error without the line and column, which refer to a fragment that the sender cannot see.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn into_attributes(attributes: Option<AttributeBuilder>) -> Attributes {
    attributes.map(|attributes| attributes.0).unwrap_or_default()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonSpan<'a> {
    #[serde(borrow, default)]
    trace_id: Text<'a>,
    #[serde(borrow, default)]
    span_id: Text<'a>,
    #[serde(borrow, default)]
    parent_span_id: Text<'a>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    kind: Value,
    #[serde(default)]
    start_time_unix_nano: Count,
    #[serde(default)]
    end_time_unix_nano: Count,
    #[serde(default)]
    attributes: Option<AttributeBuilder>,
    #[serde(borrow, default)]
    events: Option<Vec<JsonMoment<'a>>>,
    #[serde(borrow, default)]
    links: Option<Vec<JsonLink<'a>>>,
    #[serde(default)]
    status: Option<Status>,
    #[serde(default)]
    dropped_attributes_count: Count,
    #[serde(default)]
    dropped_events_count: Count,
    #[serde(default)]
    dropped_links_count: Count,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonMoment<'a> {
    #[serde(borrow, default)]
    name: Text<'a>,
    #[serde(default)]
    time_unix_nano: Count,
    #[serde(default)]
    attributes: Option<AttributeBuilder>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonLink<'a> {
    #[serde(borrow, default)]
    trace_id: Text<'a>,
    #[serde(borrow, default)]
    span_id: Text<'a>,
}

#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    code: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct JsonLog<'a> {
    #[serde(default)]
    time_unix_nano: Count,
    #[serde(default)]
    observed_time_unix_nano: Count,
    #[serde(default)]
    severity_number: Value,
    #[serde(default)]
    event_name: Option<String>,
    #[serde(default)]
    body: Option<AnyValue>,
    #[serde(default)]
    attributes: Option<AttributeBuilder>,
    #[serde(borrow, default)]
    trace_id: Text<'a>,
    #[serde(borrow, default)]
    span_id: Text<'a>,
}

impl JsonSpan<'_> {
    fn into_span(self) -> Result<Span, serde_json::Error> {
        let missing = |what| Error::custom(format_args!("it has no {what}, or one of zeros only"));
        let links = self.links.into_iter().flatten().filter_map(|link| {
            Some(SpanLink {
                trace: link.trace_id.parse_trace_id().ok()??,
                span: link.span_id.parse_span_id("").ok()??,
            })
        });
        let moments = self.events.into_iter().flatten().map(|moment| SpanEvent {
            name: moment.name.0.into_owned(),
            at: moment.time_unix_nano.0,
            attributes: into_attributes(moment.attributes),
        });
        let status = self
            .status
            .filter(|status| enum_number(&status.code, "STATUS_CODE_", &["UNSET", "OK", "ERROR"]) == 2);
        Ok(Span {
            trace: self.trace_id.parse_trace_id()?.ok_or_else(|| missing("trace id"))?,
            id: self.span_id.parse_span_id("the span id")?.ok_or_else(|| missing("span id"))?,
            parent: self.parent_span_id.parse_span_id("the parent's span id")?,
            name: self.name.unwrap_or_default(),
            side: SpanSide::of(enum_number(&self.kind, "SPAN_KIND_", &KINDS)),
            start: self.start_time_unix_nano.0,
            end: self.end_time_unix_nano.0,
            attributes: into_attributes(self.attributes),
            events: moments.collect(),
            links: links.collect(),
            failed: status.map(|status| status.message.unwrap_or_default()),
            left_out: [self.dropped_attributes_count, self.dropped_events_count, self.dropped_links_count]
                .iter()
                .fold(0, |sum, count| sum.saturating_add(count.0)),
        })
    }
}

const KINDS: [&str; 6] = ["UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER"];

/// Returns an enum's value, given as a number or by name.
fn enum_number(value: &Value, prefix: &str, names: &[&str]) -> u64 {
    let text = value.as_str().and_then(|text| {
        let named = names.iter().position(|name| text.strip_prefix(prefix) == Some(name));
        named.map(|index| index as u64).or_else(|| text.parse().ok())
    });
    value.as_u64().or(text).unwrap_or(0)
}

impl JsonLog<'_> {
    fn into_record(self) -> Result<LogRecord, serde_json::Error> {
        Ok(LogRecord {
            at: self.time_unix_nano.0,
            observed: self.observed_time_unix_nano.0,
            severity: parse_severity(&self.severity_number),
            event: self.event_name.unwrap_or_default(),
            body: self.body.map(|body| clipped(body.0)),
            attributes: into_attributes(self.attributes),
            trace: self.trace_id.parse_trace_id()?,
            span: self.span_id.parse_span_id("the span id")?,
        })
    }
}

/// Parses severities by name: `SEVERITY_NUMBER_ERROR`, `SEVERITY_NUMBER_ERROR2`, …
fn parse_severity(value: &Value) -> u64 {
    const NAMES: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"];
    let severity = value.as_str().and_then(|text| text.strip_prefix("SEVERITY_NUMBER_")).and_then(|name| {
        let level = NAMES.iter().position(|level| name.starts_with(level))?;
        let finer = name[NAMES[level].len()..].parse::<u64>().unwrap_or(1);
        Some(level as u64 * 4 + finer.clamp(1, 4))
    });
    severity.unwrap_or_else(|| enum_number(value, "", &[]))
}

/// A text that may be absent or `null`.
#[derive(Default)]
struct Text<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Borrowed<'a>(#[serde(borrow)] Cow<'a, str>);
        let text = Option::<Borrowed<'a>>::deserialize(deserializer)?;
        Ok(Self(text.map_or_else(Cow::default, |text| text.0)))
    }
}

impl Text<'_> {
    fn parse_trace_id(&self) -> Result<Option<TraceId>, serde_json::Error> {
        TraceId::of(&self.bytes("the trace id", 16)?)
            .map_err(|bad| Error::custom(format_args!("the trace id has {} bytes", bad.0)))
    }

    fn parse_span_id(&self, what: &str) -> Result<Option<SpanId>, serde_json::Error> {
        SpanId::of(&self.bytes(what, 8)?)
            .map_err(|bad| Error::custom(format_args!("{what} has {} bytes", bad.0)))
    }

    /// Parses hex, or base64 if the text has the length of `count` bytes in base64.
    fn bytes(&self, what: &str, count: usize) -> Result<Vec<u8>, serde_json::Error> {
        let text = self.0.as_bytes();
        if text.len() == count.div_ceil(3) * 4
            && text.ends_with(b"=")
            && let Ok(bytes) = STANDARD.decode(text)
        {
            return Ok(bytes);
        }
        hex::decode(&self.0).ok_or_else(|| Error::custom(format_args!("{what} is not hex")))
    }
}

/// A number that may be written as text, as JSON's 64-bit numbers are. Anything that is not a number counts as 0.
#[derive(Clone, Copy, Default)]
struct Count(u64);

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse().unwrap_or(0),
            other => other.as_u64().unwrap_or(0),
        }))
    }
}
