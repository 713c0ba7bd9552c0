//! Compression of single objects: raw, zstd, or zstd against a similar object.
//!
//! The last form stores an edited file or tree as little more than the edit. Reading it requires its base, so chains of
//! bases are kept short ([`MAX_DEPTH`]) and the collector keeps a base as long as something is stored against it.

use std::cell::RefCell;

/// Longest chain of objects stored against each other.
pub const MAX_DEPTH: u8 = 8;

/// Objects below this size are not worth compressing on their own.
const MIN_COMPRESS: usize = 48;

/// How an object's bytes are stored. The discriminant is part of the pack format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Codec {
    /// Uncompressed.
    Raw = 0,
    /// zstd.
    Zstd = 1,
    /// zstd with the bytes of a base object as prefix.
    ZstdOnBase = 2,
    /// Not stored here: a git pack in the vault has the bytes. The payload names the object and the pack.
    Borrowed = 3,
}

impl Codec {
    /// Reads the stored discriminant.
    pub fn from_u8(value: u8) -> Option<Self> {
        [Self::Raw, Self::Zstd, Self::ZstdOnBase, Self::Borrowed]
            .into_iter()
            .find(|codec| *codec as u8 == value)
    }
}

/// Level 1: on source code, level 3 saves 4 % of the bytes and costs 57 % more time.
const LEVEL: i32 = 1;

thread_local! {
    static COMPRESSOR: RefCell<Option<zstd_safe::CCtx<'static>>> = const { RefCell::new(None) };
    static DECOMPRESSOR: RefCell<Option<zstd_safe::DCtx<'static>>> = const { RefCell::new(None) };
}

/// Compresses on its own; `None` if that does not help (random data, tiny objects).
pub fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() < MIN_COMPRESS || looks_random(bytes) {
        return None;
    }
    COMPRESSOR.with_borrow_mut(|slot| {
        let context = slot.get_or_insert_with(zstd_safe::CCtx::create);
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        context.compress(&mut out, bytes, LEVEL).ok()?;
        (out.len() + out.len() / 16 < bytes.len()).then_some(out)
    })
}

/// Compresses against `base`; `None` if that does not clearly help.
pub fn compress_on(base: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|slot| {
        let context = slot.get_or_insert_with(zstd_safe::CCtx::create);
        let mut out = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        // The window must reach over the new bytes back into the base.
        let window = (base.len() + bytes.len()).max(1024).next_power_of_two().ilog2();
        // SAFETY: zstd keeps a pointer to the prefix until the next frame ends or the context is reset. Both happen before
        // this function returns, and the context cannot be used elsewhere meanwhile: it belongs to this thread and is
        // borrowed.
        let prefix: &'static [u8] = unsafe { std::slice::from_raw_parts(base.as_ptr(), base.len()) };
        let compressed = context
            .set_parameter(zstd_safe::CParameter::CompressionLevel(LEVEL))
            .and_then(|_| context.set_parameter(zstd_safe::CParameter::WindowLog(window.clamp(10, 27))))
            .and_then(|_| context.ref_prefix(prefix))
            .and_then(|_| context.compress2(&mut out, bytes));
        let reset = context.reset(zstd_safe::ResetDirective::SessionAndParameters);
        if reset.is_err() {
            *slot = None;
        }
        (compressed.is_ok() && out.len() < bytes.len()).then_some(out)
    })
}

/// Reverses [`compress`] (no base) or [`compress_on`].
pub fn decompress(stored: &[u8], raw_len: usize, base: Option<&[u8]>) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(raw_len);
    let name = |code| zstd_safe::get_error_name(code).to_string();
    DECOMPRESSOR.with_borrow_mut(|slot| {
        let context = slot.get_or_insert_with(zstd_safe::DCtx::create);
        let Some(base) = base else { return context.decompress(&mut out, stored).map_err(name) };
        // SAFETY: as in `compress_on`: the context is reset before this function returns.
        let prefix: &'static [u8] = unsafe { std::slice::from_raw_parts(base.as_ptr(), base.len()) };
        let decompressed = context.ref_prefix(prefix).and_then(|_| context.decompress(&mut out, stored));
        let reset = context.reset(zstd_safe::ResetDirective::SessionAndParameters);
        if reset.is_err() {
            *slot = None;
        }
        decompressed.map_err(name)
    })?;
    if out.len() != raw_len {
        return Err(format!("got {} bytes, expected {raw_len}", out.len()));
    }
    Ok(out)
}

/// A cheap test on a sample: evenly distributed bytes do not compress, so the caller does not try.
fn looks_random(bytes: &[u8]) -> bool {
    const SAMPLE: usize = 4096;
    if bytes.len() < SAMPLE {
        return false;
    }
    let middle = (bytes.len() - SAMPLE) / 2;
    let mut counts = [0u16; 256];
    for byte in &bytes[middle..middle + SAMPLE] {
        counts[*byte as usize] += 1;
    }
    // Expected count is 16 each; for random bytes the sum of squared deviations is close to 4096.
    let spread: i64 = counts.iter().map(|count| (i64::from(*count) - 16).pow(2)).sum();
    spread < 6000
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(len: usize) -> Vec<u8> {
        let mut x = 0x9e37_79b9_7f4a_7c15u64;
        (0..len)
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x as u8
            })
            .collect()
    }

    #[test]
    fn an_edit_costs_little_against_its_base() {
        let base: Vec<u8> =
            (0..2000).flat_map(|i| format!("line number {i} {}\n", i * 7919).into_bytes()).collect();
        let mut edited = base.clone();
        edited.splice(20_000..20_004, *b"EDIT");
        let stored = compress_on(&base, &edited).unwrap();
        assert!(stored.len() < 200, "{} bytes", stored.len());
        assert_eq!(decompress(&stored, edited.len(), Some(&base)).unwrap(), edited);
    }

    #[test]
    fn noise_is_left_alone_and_text_is_compressed() {
        assert!(compress(&noise(100_000)).is_none());
        let text = b"fn main() { println!(); }\n".repeat(100);
        let stored = compress(&text).unwrap();
        assert_eq!(decompress(&stored, text.len(), None).unwrap(), text);
    }

    #[test]
    fn damaged_bytes_are_an_error() {
        let text = b"some text that repeats, some text that repeats".repeat(10);
        let stored = compress(&text).unwrap();
        assert!(decompress(&stored[..stored.len() - 3], text.len(), None).is_err());
        assert!(decompress(&stored, text.len() + 1, None).is_err());
        assert!(decompress(b"garbage", 10, None).is_err());
    }
}
