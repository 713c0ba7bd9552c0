//! Copies of bodies for the recording: limited individually and in total, decompressed, and converted to text at the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use stepback_llm_wire::Chunks;

use crate::decode::{Decoded, Decoder};

/// The most input bytes kept for the case that a decoder without any output so far turns out not to work.
const MAX_FALLBACK_BYTES: usize = 1 << 16;

/// A number of bytes that all copies share.
pub(crate) struct Budget {
    held: AtomicU64,
    max_bytes: u64,
}

impl Budget {
    pub(crate) fn new(max_bytes: u64) -> Arc<Self> {
        Arc::new(Self { held: AtomicU64::new(0), max_bytes })
    }

    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn try_reserve(&self, bytes: u64) -> bool {
        self.held
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
                held.checked_add(bytes).filter(|sum| *sum <= self.max_bytes)
            })
            .is_ok()
    }
}

/// A share of the budget, returned when dropped.
pub(crate) struct BudgetShare {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A copy of a body in transit.
pub(crate) struct BodyCapture {
    share: BudgetShare,
    max_bytes: u64,
    bytes: Vec<u8>,
    /// How many bytes passed, as transferred.
    pub(crate) passed: u64,
    left_out: u64,
    decoder: Option<Decoder>,
    /// The decoder's input before its first output, in case the body is not encoded as declared.
    unproven: Vec<u8>,
    /// Whether the kept bytes are decompressed.
    decoded: bool,
    full: bool,
    chunks: Chunks,
    /// When the last chunk arrived.
    last: u64,
    /// Where the incomplete event begins, and how far its end was searched.
    event: usize,
    searched: usize,
}

/// A complete copy.
pub(crate) struct CapturedText {
    pub(crate) body: String,
    pub(crate) chunks: Chunks,
    pub(crate) left_out: u64,
    /// Whether the body is decompressed.
    pub(crate) decoded: bool,
    pub(crate) share: BudgetShare,
}

impl BodyCapture {
    /// Creates an empty copy; `encoding` is the body's `content-encoding`.
    pub(crate) fn new(budget: &Arc<Budget>, max_bytes: u64, encoding: Option<&str>) -> Self {
        let encoding = encoding.filter(|encoding| !encoding.trim().eq_ignore_ascii_case("identity"));
        let decoder = encoding.and_then(Decoder::for_encoding);
        Self {
            share: BudgetShare { budget: Arc::clone(budget), bytes: 0 },
            max_bytes,
            bytes: Vec::new(),
            passed: 0,
            left_out: 0,
            decoded: encoding.is_none() || decoder.is_some(),
            decoder,
            unproven: Vec::new(),
            full: false,
            chunks: Chunks::default(),
            last: 0,
            event: 0,
            searched: 0,
        }
    }

    /// Adds a chunk and returns what was kept of it. A chunk that cannot be decompressed is kept unchanged.
    pub(crate) fn push(&mut self, elapsed_micros: u64, chunk: &[u8]) -> &[u8] {
        self.passed += chunk.len() as u64;
        self.last = elapsed_micros;
        if self.full {
            self.left_out += chunk.len() as u64;
            return &[];
        }
        let length_before = self.bytes.len();
        let room = usize::try_from(self.max_bytes).unwrap_or(usize::MAX).saturating_sub(length_before);
        match self.decoder.as_mut().map(|decoder| decoder.push(chunk, room)) {
            None => self.append_bounded(chunk, room),
            Some(Decoded::Bytes(bytes)) => {
                if !bytes.is_empty() {
                    self.unproven = Vec::new();
                } else if length_before == 0 && self.unproven.len() < MAX_FALLBACK_BYTES {
                    self.unproven.extend_from_slice(chunk);
                }
                self.append_bounded(&bytes, room);
            }
            Some(Decoded::TooMuch(bytes)) => {
                self.append_bounded(&bytes, room);
                self.full = true;
                // How much more there was is unknown; only that there was more.
                self.left_out += 1;
            }
            Some(Decoded::Broken(bytes)) if length_before > 0 || !bytes.is_empty() => {
                self.not_decoded();
                self.append_bounded(&bytes, room);
            }
            Some(Decoded::Broken(_)) => {
                let mut raw = self.not_decoded();
                raw.extend_from_slice(chunk);
                self.append_bounded(&raw, room);
            }
        }
        let kept_bytes = self.bytes.len() - length_before;
        if kept_bytes > 0 {
            self.chunks.push(elapsed_micros, kept_bytes as u64);
        }
        &self.bytes[length_before..]
    }

    /// Stops decoding: from here on bytes are kept unchanged. Returns the bytes that waited for the decoder.
    fn not_decoded(&mut self) -> Vec<u8> {
        self.decoder = None;
        self.decoded = false;
        std::mem::take(&mut self.unproven)
    }

    fn append_bounded(&mut self, chunk: &[u8], room: usize) {
        let fits = chunk.len().min(room);
        if self.share.budget.try_reserve(fits as u64) {
            self.share.bytes += fits as u64;
            self.bytes.extend_from_slice(&chunk[..fits]);
            self.left_out += (chunk.len() - fits) as u64;
            self.full = fits < chunk.len();
        } else {
            self.left_out += chunk.len() as u64;
            self.full = true;
        }
    }

    /// Returns the kept bytes of the events that this chunk completes; `None` while the event is incomplete.
    pub(crate) fn completed_events(&mut self) -> Option<&[u8]> {
        // A blank line may span two chunks, so the search begins a little before the new bytes.
        let search_start = self.searched.saturating_sub(3).max(self.event);
        self.searched = self.bytes.len();
        let end = end_of_last_event(&self.bytes[search_start..])? + search_start;
        let start = std::mem::replace(&mut self.event, end);
        Some(&self.bytes[start..end])
    }

    /// Returns what was kept, as text.
    pub(crate) fn text(mut self) -> CapturedText {
        if !self.unproven.is_empty() {
            // The body ended before the decoder produced output.
            let raw = self.not_decoded();
            let room = usize::try_from(self.max_bytes).unwrap_or(usize::MAX);
            self.append_bounded(&raw, room);
            self.chunks.push(self.last, self.bytes.len() as u64);
        }
        let mut chunks = self.chunks;
        let body = match String::from_utf8(self.bytes) {
            Ok(body) => body,
            Err(error) => decode_lossy(error.as_bytes(), &mut chunks),
        };
        CapturedText { body, chunks, left_out: self.left_out, decoded: self.decoded, share: self.share }
    }
}

/// Returns where the last blank line of a stream ends.
fn end_of_last_event(bytes: &[u8]) -> Option<usize> {
    let separators = [&b"\n\n"[..], b"\r\n\r\n", b"\r\r"];
    separators
        .into_iter()
        .filter_map(|end| memchr::memmem::rfind(bytes, end).map(|index| index + end.len()))
        .max()
}

/// Converts bytes to text as far as possible, and adjusts the sizes of the chunks to the result.
fn decode_lossy(bytes: &[u8], chunks: &mut Chunks) -> String {
    let mut body = String::with_capacity(bytes.len());
    let mut read = 0usize;
    let mut chunk_end = 0u64;
    let mut chunk_index = 0usize;
    let mut chunk_ends = Vec::with_capacity(chunks.0.len());
    // Tracks where the end of every chunk is in the text. An end within an invalid sequence moves behind it.
    let mut add_sequence = |read: usize, piece: usize, written: usize, shown_bytes: usize| {
        while chunk_index < chunks.0.len() {
            let end = usize::try_from(chunk_end + chunks.0[chunk_index].bytes).unwrap_or(usize::MAX);
            if end > read + piece {
                break;
            }
            chunk_ends.push(
                if piece == shown_bytes { written + (end - read) } else { written + shown_bytes } as u64,
            );
            chunk_end = end as u64;
            chunk_index += 1;
        }
    };
    for part in bytes.utf8_chunks() {
        let (valid, invalid) = (part.valid(), part.invalid());
        add_sequence(read, valid.len(), body.len(), valid.len());
        body.push_str(valid);
        read += valid.len();
        if !invalid.is_empty() {
            let sign = char::REPLACEMENT_CHARACTER;
            // One byte becomes three, or three become three: equal lengths prove nothing, so the two are never treated as
            // equal.
            add_sequence(read, invalid.len(), body.len() + sign.len_utf8(), 0);
            body.push(sign);
            read += invalid.len();
        }
    }
    let mut previous_end = 0;
    for (chunk, end) in chunks.0.iter_mut().zip(chunk_ends) {
        chunk.bytes = end - previous_end;
        previous_end = end;
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(budget: u64, max_bytes: u64) -> BodyCapture {
        BodyCapture::new(&Budget::new(budget), max_bytes, None)
    }

    #[test]
    fn chunks_fit_the_text_whatever_the_bytes_are() {
        let mut copy = copy(1000, 1000);
        for (after, piece) in
            [&b"a\xff"[..], &b"\xe2\x82"[..], &b"\xac!"[..], &b"\xf0\x9f"[..]].into_iter().enumerate()
        {
            copy.push(after as u64, piece);
        }
        let text = copy.text();
        assert_eq!(text.body, "a\u{fffd}\u{20ac}!\u{fffd}");
        let sizes: Vec<u64> = text.chunks.0.iter().map(|chunk| chunk.bytes).collect();
        assert_eq!(sizes.iter().sum::<u64>(), text.body.len() as u64);
        assert_eq!(sizes, [4, 2, 2, 3]);
    }

    #[test]
    fn what_is_too_much_is_counted() {
        let mut copy = copy(1000, 5);
        copy.push(1, b"abc");
        copy.push(2, b"defg");
        copy.push(3, b"hi");
        let text = copy.text();
        assert_eq!((text.body.as_str(), text.left_out), ("abcde", 4));
        assert_eq!(text.chunks.to_string(), "1+3 1+2");
    }

    #[test]
    fn all_copies_share_one_budget_and_give_it_back() {
        let budget = Budget::new(10);
        let mut first = BodyCapture::new(&budget, 100, None);
        let mut second = BodyCapture::new(&budget, 100, None);
        first.push(0, b"12345678");
        second.push(0, b"123");
        let text = second.text();
        assert_eq!((text.body.as_str(), text.left_out), ("", 3));
        drop(first);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn events_are_seen_when_they_are_whole() {
        let mut copy = copy(1000, 1000);
        copy.push(0, b"data: a\n");
        assert_eq!(copy.completed_events(), None);
        copy.push(1, b"\ndata: b\r\n\r");
        assert_eq!(copy.completed_events(), Some(&b"data: a\n\n"[..]));
        copy.push(2, b"\ndata: c");
        assert_eq!(copy.completed_events(), Some(&b"data: b\r\n\r\n"[..]));
        assert_eq!(copy.completed_events(), None);
    }

    #[test]
    fn plain_text_that_claims_to_be_packed_is_kept() {
        let mut copy = BodyCapture::new(&Budget::new(1000), 1000, Some("gzip"));
        copy.push(0, b"{\"error\":");
        copy.push(1, b"\"no\"}");
        let text = copy.text();
        assert_eq!((text.body.as_str(), text.decoded), ("{\"error\":\"no\"}", false));
        assert_eq!(text.chunks.to_string(), "1+14");

        let mut copy = BodyCapture::new(&Budget::new(1000), 1000, Some("gzip"));
        copy.push(7, b"short");
        let text = copy.text();
        assert_eq!(
            (text.body.as_str(), text.decoded, text.chunks.to_string().as_str()),
            ("short", false, "7+5")
        );
    }
}
