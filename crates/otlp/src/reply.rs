//! The answers of the protocol: how much was accepted, or an error status.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde_json::{Value, json};

use crate::read::Encoding;
use crate::telemetry::Rejected;

/// The gRPC status codes that are used here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// The request succeeded.
    Ok = 0,
    /// The request is invalid.
    InvalidArgument = 3,
    /// The client is not allowed to do this.
    PermissionDenied = 7,
    /// The request exceeds a limit.
    ResourceExhausted = 8,
    /// There is no such method.
    Unimplemented = 12,
    /// A bug, or an error of the store.
    Internal = 13,
    /// Temporarily unavailable; the client should retry.
    Unavailable = 14,
    /// The client is not authenticated.
    Unauthenticated = 16,
}

/// Encodes an `ExportTraceServiceResponse` or `ExportLogsServiceResponse`, which differ only in one name. `rejected_name`
/// is that name in JSON.
pub fn taken(encoding: Encoding, rejected: &Rejected, rejected_name: &str) -> Vec<u8> {
    match encoding {
        Encoding::Protobuf => {
            if rejected.count == 0 {
                return Vec::new();
            }
            let mut partial = Vec::new();
            write_number(&mut partial, 1, rejected.count);
            bytes(&mut partial, 2, rejected.sentence().as_bytes());
            let mut response = Vec::new();
            bytes(&mut response, 1, &partial);
            response
        }
        Encoding::Json => {
            let response = match rejected.count {
                0 => json!({}),
                count => {
                    let mut partial = json!({ "errorMessage": rejected.sentence() });
                    partial[rejected_name] = Value::String(count.to_string());
                    json!({ "partialSuccess": partial })
                }
            };
            response.to_string().into_bytes()
        }
    }
}

/// Encodes a `google.rpc.Status`.
pub fn status(encoding: Encoding, code: Code, message: &str) -> Vec<u8> {
    match encoding {
        Encoding::Protobuf => {
            let mut status = Vec::new();
            write_number(&mut status, 1, code as u64);
            bytes(&mut status, 2, message.as_bytes());
            status
        }
        Encoding::Json => json!({ "code": code as u32, "message": message }).to_string().into_bytes(),
    }
}

/// Returns the text of the `grpc-status-details-bin` header that asks a client to retry after `seconds`.
pub fn retry_details(code: Code, message: &str, seconds: u64) -> String {
    let mut duration = Vec::new();
    write_number(&mut duration, 1, seconds);
    let mut info = Vec::new();
    bytes(&mut info, 1, &duration);
    let mut any = Vec::new();
    bytes(&mut any, 1, b"type.googleapis.com/google.rpc.RetryInfo");
    bytes(&mut any, 2, &info);
    let mut status = self::status(Encoding::Protobuf, code, message);
    bytes(&mut status, 3, &any);
    STANDARD_NO_PAD.encode(&status)
}

fn write_varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value as u8 | 0x80);
        value >>= 7;
    }
    buffer.push(value as u8);
}

fn write_number(buffer: &mut Vec<u8>, field: u64, value: u64) {
    write_varint(buffer, field << 3);
    write_varint(buffer, value);
}

fn bytes(buffer: &mut Vec<u8>, field: u64, value: &[u8]) {
    write_varint(buffer, field << 3 | 2);
    write_varint(buffer, value.len() as u64);
    buffer.extend_from_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::{Fields, WireField};

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let status = status(Encoding::Protobuf, Code::Unauthenticated, &"é".repeat(100));
        let mut fields = Fields::of(&status);
        assert_eq!(fields.next(), Ok(Some((1, WireField::Number(16)))));
        assert_eq!(fields.next(), Ok(Some((2, WireField::Bytes("é".repeat(100).as_bytes())))));
        assert_eq!(fields.next(), Ok(None));
    }

    #[test]
    fn a_full_success_says_nothing() {
        let none = Rejected::default();
        assert!(taken(Encoding::Protobuf, &none, "rejectedSpans").is_empty());
        assert_eq!(taken(Encoding::Json, &none, "rejectedSpans"), b"{}");
        let mut one = Rejected::default();
        one.add("why");
        let json = String::from_utf8(taken(Encoding::Json, &one, "rejectedSpans")).unwrap();
        assert_eq!(json, r#"{"partialSuccess":{"errorMessage":"why","rejectedSpans":"1"}}"#);
    }
}
