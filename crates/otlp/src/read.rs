//! Parses a request into its spans or log records; invalid ones are left out and counted.
//!
//! Only the outermost structure must be valid for the rest to be read. An error inside one span or record rejects only
//! that one.

use std::sync::Arc;

use crate::attributes::Attributes;
use crate::json;
use crate::protobuf::{self, DecodeError};
use crate::telemetry::{Group, LogRecord, Rejected, Span, TelemetryBatch};

/// The encoding of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encoding {
    /// `application/x-protobuf`
    Protobuf,
    /// `application/json`
    Json,
}

/// The most spans or records in one request. SDKs send 512 at a time, a collector 8192.
pub const MOST: usize = 16_384;

/// A request that cannot be read at all.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unreadable {
    /// It is not in the declared encoding.
    #[error("the request cannot be read: {0}")]
    Malformed(String),
    /// It has too many items, however small.
    #[error("the request has more than {MOST} spans or records")]
    TooMany,
}

/// Reads an `ExportTraceServiceRequest`.
pub fn traces(encoding: Encoding, bytes: &[u8]) -> Result<TelemetryBatch<Span>, Unreadable> {
    match encoding {
        Encoding::Protobuf => read_request(bytes, "span", protobuf::span),
        Encoding::Json => json::traces(bytes),
    }
}

/// Reads an `ExportLogsServiceRequest`.
pub fn logs(encoding: Encoding, bytes: &[u8]) -> Result<TelemetryBatch<LogRecord>, Unreadable> {
    match encoding {
        Encoding::Protobuf => read_request(bytes, "log record", protobuf::log_record),
        Encoding::Json => json::logs(bytes),
    }
}

/// Reads either request: both have the same three levels, with the same field numbers.
fn read_request<T>(
    bytes: &[u8],
    what: &str,
    item: fn(&[u8]) -> Result<T, DecodeError>,
) -> Result<TelemetryBatch<T>, Unreadable> {
    let mut batch = TelemetryBatch::default();
    let read = protobuf::each(bytes, |number, field| match number {
        1 => of_resource(field.bytes(1)?, what, item, &mut batch),
        _ => Ok(()),
    });
    match read {
        Ok(()) => Ok(batch),
        Err(DecodeError::TooMany) => Err(Unreadable::TooMany),
        Err(fault) => Err(Unreadable::Malformed(fault.to_string())),
    }
}

fn of_resource<T>(
    bytes: &[u8],
    what: &str,
    item: fn(&[u8]) -> Result<T, DecodeError>,
    batch: &mut TelemetryBatch<T>,
) -> Result<(), DecodeError> {
    // The resource may follow the scopes.
    let (mut resource, mut scopes) = (&[][..], Vec::new());
    protobuf::each(bytes, |number, field| {
        match number {
            1 => resource = field.bytes(1)?,
            2 => scopes.push(field.bytes(2)?),
            _ => {}
        }
        Ok(())
    })?;
    let resource = Arc::new(protobuf::read_resource(resource)?);
    for scope in scopes {
        let group = of_scope(scope, &resource, what, item, &mut batch.rejected)?;
        batch.groups.push(group);
        let taken: usize = batch.groups.iter().map(|group| group.items.len()).sum();
        if taken > MOST || batch.groups.len() > MOST {
            return Err(DecodeError::TooMany);
        }
    }
    Ok(())
}

fn of_scope<T>(
    bytes: &[u8],
    resource: &Arc<Attributes>,
    what: &str,
    item: fn(&[u8]) -> Result<T, DecodeError>,
    rejected: &mut Rejected,
) -> Result<Group<T>, DecodeError> {
    let (mut scope, mut items) = (String::new(), Vec::new());
    protobuf::each(bytes, |number, field| {
        match number {
            1 => scope = protobuf::scope(field.bytes(1)?)?,
            2 if items.len() == MOST => return Err(DecodeError::TooMany),
            2 => match item(field.bytes(2)?) {
                Ok(item) => items.push(item),
                Err(fault) => rejected.add(format!("a {what}: {fault}")),
            },
            _ => {}
        }
        Ok(())
    })?;
    Ok(Group { resource: resource.clone(), scope: scope.into(), items })
}
