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
pub enum Packed {
    /// `gzip`
    Gzip,
}

/// Returns the compression that the header names; `None` if there is none.
pub fn packing(encoding: Option<&HeaderValue>) -> Result<Option<Packed>, Problem> {
    let Some(encoding) = encoding else { return Ok(None) };
    match encoding.to_str().map(str::trim).unwrap_or_default() {
        "" | "identity" => Ok(None),
        "gzip" => Ok(Some(Packed::Gzip)),
        _ => {
            let detail = "unsupported Content-Encoding";
            Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "usage", detail)
                .hint("use gzip, or no compression"))
        }
    }
}

/// Reads a whole body. Fails if it has more bytes than `most`.
pub async fn whole(mut body: Body, most: usize, room: &mut ReservedMemory) -> Result<Bytes, Problem> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Problem::usage("the body is incomplete"))?;
        let Ok(piece) = frame.into_data() else { continue };
        if whole.len() + piece.len() > most {
            return Err(too_large(most));
        }
        room.grow(whole.len() + piece.len())?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

/// Decompresses a body. Fails if the result has more bytes than `most`.
pub fn unpacked(
    bytes: &[u8],
    packed: Packed,
    most: usize,
    room: &mut ReservedMemory,
) -> Result<Vec<u8>, Problem> {
    let Packed::Gzip = packed;
    let mut decoder = MultiGzDecoder::new(bytes);
    let (mut whole, mut piece) = (Vec::new(), vec![0; CHUNK_BYTES]);
    loop {
        match decoder.read(&mut piece) {
            Ok(0) => return Ok(whole),
            Ok(count) if whole.len() + count > most => return Err(too_large(most)),
            Ok(count) => {
                room.grow(bytes.len() + whole.len() + count)?;
                whole.extend_from_slice(&piece[..count]);
            }
            Err(error) => return Err(Problem::usage(format!("the body is not valid gzip: {error}"))),
        }
    }
}

/// The error for a body that is too large.
pub fn too_large(most: usize) -> Problem {
    smaller(format!("the body has more than {} MiB, compressed or decompressed", most >> 20))
}

/// The error for a request that should be split.
pub fn smaller(detail: String) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "usage", detail)
        .hint("configure smaller batches in the exporter, such as OTEL_BSP_MAX_EXPORT_BATCH_SIZE=64")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::api::otlp::room::Room;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[tokio::test]
    async fn a_small_body_that_unpacks_to_a_huge_one_is_refused_before_it_does() {
        let bomb = gzip(&vec![0; 10 << 20]);
        assert!(bomb.len() < 20_000);
        let mut room = Room::default().turn().await.unwrap();
        assert_eq!(unpacked(&bomb, Packed::Gzip, 1 << 20, &mut room).unwrap_err().status, 413);
        assert_eq!(unpacked(&gzip(b"fine"), Packed::Gzip, 4, &mut room).unwrap(), b"fine");
        assert_eq!(unpacked(&gzip(b"longer"), Packed::Gzip, 5, &mut room).unwrap_err().status, 413);
    }

    #[tokio::test]
    async fn what_is_not_packed_as_it_says_is_refused() {
        let mut room = Room::default().turn().await.unwrap();
        assert_eq!(unpacked(b"plain", Packed::Gzip, 100, &mut room).unwrap_err().status, 400);
        let whole = gzip(b"cut short");
        assert_eq!(
            unpacked(&whole[..whole.len() - 4], Packed::Gzip, 100, &mut room).unwrap_err().status,
            400
        );
        assert!(packing(Some(&HeaderValue::from_static("br"))).is_err());
        assert_eq!(packing(Some(&HeaderValue::from_static("identity"))).unwrap(), None);
    }
}
