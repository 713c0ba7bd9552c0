//! Reads and decompresses the body of a request, both within limits.

use std::io::Read;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode};
use bytes::{Bytes, BytesMut};
use flate2::read::MultiGzDecoder;
use http_body_util::BodyExt;

use super::room::ReservedMemory;
use crate::problem::Problem;

/// Bytes decompressed at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// The compression of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// `gzip`
    Gzip,
}

/// Returns the compression that the header names; `None` if there is none.
pub fn parse_compression(encoding: Option<&HeaderValue>) -> Result<Option<Compression>, Problem> {
    let Some(encoding) = encoding else { return Ok(None) };
    match encoding.to_str().map(str::trim).unwrap_or_default() {
        "" | "identity" => Ok(None),
        "gzip" => Ok(Some(Compression::Gzip)),
        _ => {
            let detail = "unsupported Content-Encoding";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", detail)
                .with_hint("use gzip, or no compression"))
        }
    }
}

/// Reads a whole body. Fails if it has more bytes than `max_bytes`.
pub async fn read_body(
    mut body: Body,
    max_bytes: usize,
    memory: &mut ReservedMemory,
) -> Result<Bytes, Problem> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::usage("the body is incomplete"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + piece.len() > max_bytes {
            return Err(body_too_large(max_bytes));
        }
        memory.grow(whole.len() + piece.len())?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Decompresses a body. Fails if the result has more bytes than `max_bytes`.
pub fn decompress(
    bytes: &[u8],
    compression: Compression,
    max_bytes: usize,
    memory: &mut ReservedMemory,
) -> Result<Vec<u8>, Problem> {
    let Compression::Gzip = compression;
    let mut decoder = MultiGzDecoder::new(bytes);
    let (mut whole, mut piece) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(whole),
            Ok(count) if whole.len() + count > max_bytes => return Err(body_too_large(max_bytes)),
            Ok(count) => {
                memory.grow(bytes.len() + whole.len() + count)?;
                whole.extend_from_slice(&piece[..count]);
            }
            Err(error) => return Err(Problem::usage(format!("the body is not valid gzip: {error}"))),
        }
    }
}

/// The error for a body that is too large.
pub fn body_too_large(max_bytes: usize) -> Problem {
    request_too_large(format!("the body has more than {} MiB, compressed or decompressed", max_bytes >> 20))
}

/// The error for a request that should be split.
pub fn request_too_large(detail: String) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "usage", detail)
        .with_hint("configure smaller batches in the exporter, such as OTEL_BSP_MAX_EXPORT_BATCH_SIZE=64")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::write::GzEncoder;

    use super::*;
    use crate::api::otlp::room::MemoryBudget;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn a_small_body_that_unpacks_to_a_huge_one_is_refused_before_it_does() {
        let bomb = gzip(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        let mut room = MemoryBudget::default().reserve().await.unwrap();
        assert_eq!(decompress(&bomb, Compression::Gzip, 1 << 20, &mut room).unwrap_err().status, 413);
        assert_eq!(decompress(&gzip(b"fine"), Compression::Gzip, 4, &mut room).unwrap(), b"fine");
        assert_eq!(decompress(&gzip(b"longer"), Compression::Gzip, 5, &mut room).unwrap_err().status, 413);
    }

    #[tokio::test]
    async fn what_is_not_packed_as_it_says_is_refused() {
        let mut room = MemoryBudget::default().reserve().await.unwrap();
        assert_eq!(decompress(b"plain", Compression::Gzip, 100, &mut room).unwrap_err().status, 400);
        let whole = gzip(b"cut short");
        assert_eq!(
            decompress(&whole[..whole.len() - 4], Compression::Gzip, 100, &mut room).unwrap_err().status,
            400
        );
        assert!(parse_compression(Some(&HeaderValue::from_static("br"))).is_err());
        assert_eq!(parse_compression(Some(&HeaderValue::from_static("identity"))).unwrap(), None);
    }
}
