//! Decompresses a body as it arrives in chunks, for the recording only: what is passed on stays unchanged.

use std::io::{self, Write};

/// A buffer for decompressed bytes. It refuses too many, so that a small body that unpacks to a huge one stops early.
#[derive(Default)]
struct BoundedBuffer {
    bytes: Vec<u8>,
    max_bytes: usize,
}

impl Write for BoundedBuffer {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + chunk.len() > self.max_bytes {
            let fits = self.max_bytes - self.bytes.len();
            self.bytes.extend_from_slice(&chunk[..fits]);
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.bytes.extend_from_slice(chunk);
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The result of decoding a chunk.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Decoded {
    /// The decoded bytes; may be empty so far.
    Bytes(Vec<u8>),
    /// More came out than fits; holds the bytes that fit.
    TooMuch(Vec<u8>),
    /// The data is not in the declared encoding.
    Broken(Vec<u8>),
}

/// A streaming decoder.
pub(crate) struct Decoder(Kind);

enum Kind {
    Gzip(Box<flate2::write::MultiGzDecoder<BoundedBuffer>>),
    Zlib(Box<flate2::write::ZlibDecoder<BoundedBuffer>>),
    Deflate(Box<flate2::write::DeflateDecoder<BoundedBuffer>>),
    /// `deflate` means the zlib format, but some servers send raw deflate; the first byte tells which.
    DeflateOfSomeForm,
    Brotli(Box<brotli_decompressor::DecompressorWriter<BoundedBuffer>>),
    Zstd(zstd_safe::DCtx<'static>),
}

impl Decoder {
    /// Returns the decoder for a `content-encoding`; `None` if it is unknown or empty.
    pub(crate) fn for_encoding(encoding: &str) -> Option<Self> {
        let kind = match encoding.trim().to_ascii_lowercase().as_str() {
            "gzip" | "x-gzip" => {
                Kind::Gzip(Box::new(flate2::write::MultiGzDecoder::new(BoundedBuffer::default())))
            }
            "deflate" => Kind::DeflateOfSomeForm,
            "br" => Kind::Brotli(Box::new(brotli_decompressor::DecompressorWriter::new(
                BoundedBuffer::default(),
                4096,
            ))),
            "zstd" => {
                let mut context = zstd_safe::DCtx::try_create()?;
                // The largest window that the format allows every decoder to be expected to support (RFC 9659).
                context.set_parameter(zstd_safe::DParameter::WindowLogMax(23)).ok()?;
                Kind::Zstd(context)
            }
            _ => return None,
        };
        Some(Self(kind))
    }

    /// Decodes a chunk into at most `max_bytes` bytes.
    pub(crate) fn push(&mut self, chunk: &[u8], max_bytes: usize) -> Decoded {
        if let (Kind::DeflateOfSomeForm, Some(first)) = (&self.0, chunk.first()) {
            self.0 = if first & 0x0f == 8 {
                Kind::Zlib(Box::new(flate2::write::ZlibDecoder::new(BoundedBuffer::default())))
            } else {
                Kind::Deflate(Box::new(flate2::write::DeflateDecoder::new(BoundedBuffer::default())))
            };
        }
        match &mut self.0 {
            Kind::Gzip(decoder) => decode_through(decoder.as_mut(), |d| d.get_mut(), chunk, max_bytes),
            Kind::Zlib(decoder) => decode_through(decoder.as_mut(), |d| d.get_mut(), chunk, max_bytes),
            Kind::Deflate(decoder) => decode_through(decoder.as_mut(), |d| d.get_mut(), chunk, max_bytes),
            Kind::Brotli(decoder) => decode_through(decoder.as_mut(), |d| d.get_mut(), chunk, max_bytes),
            Kind::Zstd(context) => decode_zstd(context, chunk, max_bytes),
            Kind::DeflateOfSomeForm => Decoded::Bytes(Vec::new()),
        }
    }
}

/// Writes a chunk through a decoder and returns the output.
fn decode_through<D: Write>(
    decoder: &mut D,
    room: impl Fn(&mut D) -> &mut BoundedBuffer,
    chunk: &[u8],
    max_bytes: usize,
) -> Decoded {
    room(decoder).max_bytes = max_bytes;
    // Flushing returns what the decoder already knows: an event must not wait in it for the next chunk.
    let result = decoder.write_all(chunk).and_then(|()| decoder.flush());
    let bytes = std::mem::take(&mut room(decoder).bytes);
    match result {
        Ok(()) => Decoded::Bytes(bytes),
        Err(error) if error.kind() == io::ErrorKind::StorageFull => Decoded::TooMuch(bytes),
        Err(_) => Decoded::Broken(bytes),
    }
}

fn decode_zstd(context: &mut zstd_safe::DCtx<'static>, chunk: &[u8], max_bytes: usize) -> Decoded {
    let mut bytes = Vec::new();
    let mut input = zstd_safe::InBuffer::around(chunk);
    let mut buffer = vec![0u8; zstd_safe::DCtx::out_size().min(max_bytes.max(1))];
    loop {
        let mut output = zstd_safe::OutBuffer::around(&mut buffer[..]);
        let result = context.decompress_stream(&mut output, &mut input);
        let written = output.pos();
        let full = written == buffer.len();
        let fits = written.min(max_bytes - bytes.len());
        bytes.extend_from_slice(&buffer[..fits]);
        if result.is_err() {
            return Decoded::Broken(bytes);
        }
        if fits < written {
            return Decoded::TooMuch(bytes);
        }
        if input.pos() == chunk.len() && !full {
            return Decoded::Bytes(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(encoding: &str, text: &[u8]) -> Vec<u8> {
        use flate2::Compression;
        let level = Compression::fast();
        match encoding {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "zlib" => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            "bare" => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(text).unwrap();
                encoder.finish().unwrap()
            }
            _ => {
                let mut out = Vec::with_capacity(zstd_safe::compress_bound(text.len()));
                zstd_safe::compress(&mut out, text, 3).unwrap();
                out
            }
        }
    }

    fn unpacked(encoding: &str, packed: &[u8], chunk: usize) -> Vec<u8> {
        let mut decoder = Decoder::for_encoding(encoding).unwrap();
        let mut all = Vec::new();
        for chunk in packed.chunks(chunk) {
            match decoder.push(chunk, 1 << 20) {
                Decoded::Bytes(bytes) => all.extend(bytes),
                other => panic!("{other:?}"),
            }
        }
        all
    }

    #[test]
    fn every_form_comes_back_however_it_is_cut() {
        let text: Vec<u8> = (0..5000u32).flat_map(|n| format!("event {} ", n * n).into_bytes()).collect();
        for (encoding, form) in [("gzip", "gzip"), ("deflate", "zlib"), ("deflate", "bare"), ("zstd", "zstd")]
        {
            let packed = packed(form, &text);
            for chunk in [1, 7, packed.len()] {
                assert_eq!(unpacked(encoding, &packed, chunk), text, "{encoding} {form} {chunk}");
            }
        }
    }

    #[test]
    fn brotli_is_known() {
        // As a brotli encoder compressed this text.
        let text = b"hello hello hello, says the model, hello\n";
        let packed = [
            27, 40, 0, 248, 29, 9, 54, 78, 116, 111, 36, 134, 87, 101, 104, 173, 0, 194, 194, 38, 89, 216,
            222, 96, 34, 7, 14, 89, 139, 14, 68, 239, 3, 76, 232, 226, 31, 183, 91, 150, 111, 82, 20,
        ];
        for chunk in [1, packed.len()] {
            assert_eq!(unpacked("br", &packed, chunk), text);
        }
    }

    #[test]
    fn a_body_that_unpacks_to_too_much_stops() {
        let zeros = vec![0u8; 10 << 20];
        for (encoding, form) in [("gzip", "gzip"), ("deflate", "zlib"), ("zstd", "zstd")] {
            let mut decoder = Decoder::for_encoding(encoding).unwrap();
            assert_eq!(decoder.push(&packed(form, &zeros), 1000), Decoded::TooMuch(vec![0; 1000]), "{form}");
        }
    }

    #[test]
    fn what_is_not_what_it_says_is_broken() {
        for encoding in ["gzip", "deflate", "zstd", "br"] {
            let mut decoder = Decoder::for_encoding(encoding).unwrap();
            let text = b"{\"type\":\"error\", and a good deal more of plain text, so that the end is not needed for this}";
            assert!(matches!(decoder.push(text, 1000), Decoded::Broken(_)), "{encoding}");
        }
        assert!(Decoder::for_encoding("identity").is_none());
    }
}
