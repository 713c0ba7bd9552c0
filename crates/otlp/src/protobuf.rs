//! The protobuf encoding of OTLP: the wire format, and the few messages that are needed.
//!
//! Field numbers are those of opentelemetry-proto 1.x. Unknown fields are skipped. A message with an invalid part fails
//! as a whole; the caller decides whether that rejects one span or the request.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Number, Value};

use crate::attributes::Attributes;
use crate::telemetry::{BadId, LogRecord, Span, SpanEvent, SpanId, SpanLink, SpanSide, TraceId};

/// The maximum nesting of values; lists and maps both count.
pub const DEEPEST: usize = 32;

/// The most values in one attribute, including lists, maps and their elements.
const MAX_VALUES: usize = 1 << 17;

/// Why a message cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end in the middle of a field, or a length exceeds the message.
    #[error("it is truncated in the middle of a field")]
    Short,
    /// A number has more than ten bytes.
    #[error("a number does not end")]
    Endless,
    /// A field has a type that does not exist, or the number 0.
    #[error("it is not protobuf")]
    NotProtobuf,
    /// A known field has the wrong type.
    #[error("field {0} has the wrong type")]
    Type(u32),
    /// A text is not UTF-8.
    #[error("a text is not UTF-8")]
    NotText,
    /// Values nest too deep.
    #[error("values nest more than {DEEPEST} levels deep")]
    TooDeep,
    /// There are more values in one attribute, or more items in a request, than the limit.
    #[error("there is too much in it")]
    TooMany,
    /// An id has the wrong length.
    #[error("{what} has {length} bytes")]
    Id {
        /// The name of the id field.
        what: &'static str,
        /// Its length in bytes.
        length: usize,
    },
    /// The id is missing.
    #[error("it has no {0}, or one of zeros only")]
    NoId(&'static str),
}

/// One field of a message.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum WireField<'a> {
    /// A number of variable length.
    Number(u64),
    /// Eight bytes.
    Eight(u64),
    /// Four bytes.
    Four(u32),
    /// Bytes: a text, a message.
    Bytes(&'a [u8]),
}

/// Iterates over the fields of a message.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Creates an iterator over the fields in these bytes.
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next field with its number.
    pub fn next(&mut self) -> Result<Option<(u32, WireField<'a>)>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = self.read_varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| DecodeError::NotProtobuf)?;
        if number == 0 {
            return Err(DecodeError::NotProtobuf);
        }
        let field = match key & 7 {
            0 => WireField::Number(self.read_varint()?),
            1 => WireField::Eight(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| DecodeError::Short)?;
                WireField::Bytes(self.bytes(length)?)
            }
            5 => WireField::Four(u32::from_le_bytes(self.array()?)),
            // Groups are older than OTLP, which has never used them.
            _ => return Err(DecodeError::NotProtobuf),
        };
        Ok(Some((number, field)))
    }

    fn read_varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(DecodeError::Short)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Endless)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let bytes = self.bytes(N)?;
        bytes.try_into().map_err(|_| DecodeError::Short)
    }
}

/// Calls `each` with every field of a message.
pub fn each<'a>(
    bytes: &'a [u8],
    mut each: impl FnMut(u32, WireField<'a>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut fields = Fields::of(bytes);
    while let Some((number, field)) = fields.next()? {
        each(number, field)?;
    }
    Ok(())
}

impl<'a> WireField<'a> {
    /// Returns its bytes; fails with `number` if it has another type.
    pub fn bytes(self, number: u32) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(DecodeError::Type(number)),
        }
    }

    fn text(self, number: u32) -> Result<String, DecodeError> {
        let text = std::str::from_utf8(self.bytes(number)?).map_err(|_| DecodeError::NotText)?;
        Ok(text.to_owned())
    }

    fn as_fixed64(self, number: u32) -> Result<u64, DecodeError> {
        match self {
            Self::Eight(value) => Ok(value),
            _ => Err(DecodeError::Type(number)),
        }
    }

    fn as_varint(self, number: u32) -> Result<u64, DecodeError> {
        match self {
            Self::Number(value) => Ok(value),
            _ => Err(DecodeError::Type(number)),
        }
    }
}

/// Reads a `KeyValue` and adds it to the attributes.
fn read_attribute(bytes: &[u8], attributes: &mut Attributes) -> Result<(), DecodeError> {
    if !attributes.pass() {
        let (name, value) = read_pair(bytes, 0, &mut { MAX_VALUES })?;
        attributes.put(name, value);
    }
    Ok(())
}

fn read_pair(bytes: &[u8], depth: usize, values_left: &mut usize) -> Result<(String, Value), DecodeError> {
    let (mut name, mut value) = (String::new(), Value::Null);
    each(bytes, |number, field| {
        match number {
            1 => name = field.text(1)?,
            2 => value = read_any_value(field.bytes(2)?, depth, values_left)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((name, value))
}

/// Reads an `AnyValue`; `values_left` is the number of values still allowed.
fn read_any_value(bytes: &[u8], depth: usize, values_left: &mut usize) -> Result<Value, DecodeError> {
    if depth >= DEEPEST {
        return Err(DecodeError::TooDeep);
    }
    *values_left = values_left.checked_sub(1).ok_or(DecodeError::TooMany)?;
    let mut value = Value::Null;
    each(bytes, |number, field| {
        value = match number {
            1 => Value::String(field.text(1)?),
            2 => Value::Bool(field.as_varint(2)? != 0),
            // Two's complement, as protobuf's int64 is.
            3 => Value::from(field.as_varint(3)? as i64),
            4 => float(f64::from_bits(field.as_fixed64(4)?)),
            5 => {
                let mut items = Vec::new();
                each(field.bytes(5)?, |number, field| {
                    if number == 1 {
                        items.push(read_any_value(field.bytes(1)?, depth + 1, values_left)?);
                    }
                    Ok(())
                })?;
                Value::Array(items)
            }
            6 => {
                let mut fields = Map::new();
                each(field.bytes(6)?, |number, field| {
                    if number == 1 {
                        let (name, value) = read_pair(field.bytes(1)?, depth + 1, values_left)?;
                        fields.insert(name, value);
                    }
                    Ok(())
                })?;
                Value::Object(fields)
            }
            7 => Value::String(STANDARD.encode(field.bytes(7)?)),
            _ => return Ok(()),
        };
        Ok(())
    })?;
    Ok(value)
}

/// Returns a float as a value; numbers that JSON does not have are written as text.
pub fn float(number: f64) -> Value {
    Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
}

/// Reads a `Resource`.
pub fn read_resource(bytes: &[u8]) -> Result<Attributes, DecodeError> {
    let mut attributes = Attributes::default();
    each(bytes, |number, field| match number {
        1 => read_attribute(field.bytes(1)?, &mut attributes),
        _ => Ok(()),
    })?;
    Ok(attributes)
}

/// Reads the name of an `InstrumentationScope`.
pub fn scope(bytes: &[u8]) -> Result<String, DecodeError> {
    let mut name = String::new();
    each(bytes, |number, field| {
        if number == 1 {
            name = field.text(1)?;
        }
        Ok(())
    })?;
    Ok(name)
}

fn read_trace_id(bytes: &[u8]) -> Result<Option<TraceId>, DecodeError> {
    TraceId::of(bytes).map_err(|BadId(length)| DecodeError::Id { what: "the trace id", length })
}

fn span_id(bytes: &[u8], what: &'static str) -> Result<Option<SpanId>, DecodeError> {
    SpanId::of(bytes).map_err(|BadId(length)| DecodeError::Id { what, length })
}

/// Reads a `Span`.
pub fn span(bytes: &[u8]) -> Result<Span, DecodeError> {
    let (mut trace_id, mut id) = (None, None);
    let mut span = Span::empty();
    each(bytes, |number, field| {
        match number {
            1 => trace_id = read_trace_id(field.bytes(1)?)?,
            2 => id = span_id(field.bytes(2)?, "the span id")?,
            4 => span.parent = span_id(field.bytes(4)?, "the parent's span id")?,
            5 => span.name = field.text(5)?,
            6 => span.side = SpanSide::of(field.as_varint(6)?),
            7 => span.start = field.as_fixed64(7)?,
            8 => span.end = field.as_fixed64(8)?,
            9 => read_attribute(field.bytes(9)?, &mut span.attributes)?,
            11 => span.events.push(read_event(field.bytes(11)?)?),
            13 => span.links.extend(read_link(field.bytes(13)?)?),
            10 | 12 | 14 => span.left_out = span.left_out.saturating_add(field.as_varint(number)?),
            15 => span.failed = read_status(field.bytes(15)?)?,
            _ => {}
        }
        Ok(())
    })?;
    span.trace = trace_id.ok_or(DecodeError::NoId("trace id"))?;
    span.id = id.ok_or(DecodeError::NoId("span id"))?;
    Ok(span)
}

impl Span {
    /// Creates an empty span for readers to fill in.
    pub(crate) fn empty() -> Self {
        Self {
            trace: TraceId([0; 16]),
            id: SpanId([0; 8]),
            parent: None,
            name: String::new(),
            side: SpanSide::default(),
            start: 0,
            end: 0,
            attributes: Attributes::default(),
            events: Vec::new(),
            links: Vec::new(),
            failed: None,
            left_out: 0,
        }
    }
}

fn read_event(bytes: &[u8]) -> Result<SpanEvent, DecodeError> {
    let mut moment = SpanEvent::default();
    each(bytes, |number, field| {
        match number {
            1 => moment.at = field.as_fixed64(1)?,
            2 => moment.name = field.text(2)?,
            3 => read_attribute(field.bytes(3)?, &mut moment.attributes)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(moment)
}

fn read_link(bytes: &[u8]) -> Result<Option<SpanLink>, DecodeError> {
    let (mut trace_id, mut id) = (None, None);
    each(bytes, |number, field| {
        match number {
            1 => trace_id = read_trace_id(field.bytes(1)?)?,
            2 => id = span_id(field.bytes(2)?, "the span id of a link")?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(trace_id.zip(id).map(|(trace, span)| SpanLink { trace, span }))
}

fn read_status(bytes: &[u8]) -> Result<Option<String>, DecodeError> {
    let (mut message, mut code) = (String::new(), 0);
    each(bytes, |number, field| {
        match number {
            2 => message = field.text(2)?,
            3 => code = field.as_varint(3)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok((code == 2).then_some(message))
}

/// Reads a `LogRecord`.
pub fn log_record(bytes: &[u8]) -> Result<LogRecord, DecodeError> {
    let mut record = LogRecord::default();
    each(bytes, |number, field| {
        match number {
            1 => record.at = field.as_fixed64(1)?,
            2 => record.severity = field.as_varint(2)?,
            5 => {
                record.body =
                    Some(crate::attributes::clipped(read_any_value(field.bytes(5)?, 0, &mut { MAX_VALUES })?))
            }
            6 => read_attribute(field.bytes(6)?, &mut record.attributes)?,
            9 => record.trace = read_trace_id(field.bytes(9)?)?,
            10 => record.span = span_id(field.bytes(10)?, "the span id")?,
            11 => record.observed = field.as_fixed64(11)?,
            12 => record.event = field.text(12)?,
            _ => {}
        }
        Ok(())
    })?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(bytes: &[u8]) -> Result<Value, DecodeError> {
        read_any_value(bytes, 0, &mut { MAX_VALUES })
    }

    #[test]
    fn values_without_end_are_refused_before_they_take_memory() {
        // A list of empty values, two bytes each.
        let list = wrapped(0x2a, &[0x0a, 0].repeat(MAX_VALUES));
        assert_eq!(value(&list), Err(DecodeError::TooMany));
        let list = wrapped(0x2a, &[0x0a, 0].repeat(MAX_VALUES - 1));
        assert!(value(&list).is_ok());
    }

    #[test]
    fn numbers_of_every_length_are_read_and_endless_ones_refused() {
        let number = |bytes: &[u8]| Fields { rest: bytes }.read_varint();
        assert_eq!(number(&[0x96, 0x01]), Ok(150));
        let most = [&[0xff; 9][..], &[0x01]].concat();
        assert_eq!(number(&most), Ok(u64::MAX));
        assert_eq!(number(&[0xff; 11]), Err(DecodeError::Endless));
        assert_eq!(number(&[0xff; 3]), Err(DecodeError::Short));
    }

    #[test]
    fn values_that_nest_too_deep_are_refused() {
        // Lists of lists: AnyValue { array_value: { values: [AnyValue …] } }, from the inside out.
        let mut bytes = vec![0x18, 1];
        for _ in 0..DEEPEST {
            bytes = wrapped(0x0a, &bytes);
            bytes = wrapped(0x2a, &bytes);
        }
        assert_eq!(value(&bytes), Err(DecodeError::TooDeep));
        assert_eq!(value(&[0x18, 1]), Ok(Value::from(1)));
    }

    fn wrapped(key: u8, inner: &[u8]) -> Vec<u8> {
        let mut bytes = vec![key];
        let mut length = inner.len();
        while length >= 0x80 {
            bytes.push(length as u8 | 0x80);
            length >>= 7;
        }
        bytes.push(length as u8);
        bytes.extend(inner);
        bytes
    }

    #[test]
    fn negative_numbers_and_those_json_lacks_survive() {
        let minus_one = [&[0x18][..], &[0xff; 9], &[0x01]].concat();
        assert_eq!(value(&minus_one), Ok(Value::from(-1)));
        let nan = [&[0x21][..], &f64::NAN.to_bits().to_le_bytes()].concat();
        assert_eq!(value(&nan), Ok(Value::from("NaN")));
    }
}
