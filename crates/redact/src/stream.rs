//! Redacts text that arrives in chunks: the bodies of a proxy, a transcript that grows.
//!
//! The result does not depend on where the text was cut: the scanner decides nothing until it has all the bytes that the
//! decision may depend on, and holds back up to 16 KiB for that.

use crate::scan::{Output, Scanner};

/// Removes secrets from bytes that arrive in chunks.
///
/// The concatenated results equal [`redact`](crate::redact) of the concatenated chunks. Bytes that are not UTF-8 are
/// passed on unchanged.
///
/// ```
/// let mut stream = stepback_redact::Stream::new();
/// let mut out = stream.push(b"postgres://me:hun");
/// out.extend(stream.push(b"ter2@db/x"));
/// out.extend(stream.finish());
/// assert_eq!(out, b"postgres://me:[redacted:url-password]@db/x");
/// ```
pub struct Stream {
    scanner: Scanner,
    /// The bytes that decisions may still depend on.
    held: Vec<u8>,
    /// How many bytes at the start of `held` were already returned.
    returned: usize,
    replaced: usize,
}

impl Default for Stream {
    fn default() -> Self {
        Self::new()
    }
}

impl Stream {
    /// Creates an empty stream.
    pub fn new() -> Self {
        Self { scanner: Scanner::new(), held: Vec::new(), returned: 0, replaced: 0 }
    }

    /// Adds the next chunk and returns the output that is final by now.
    pub fn push(&mut self, chunk: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(chunk);
        let out = self.advance(false);
        let spent = self.scanner.spent().min(self.returned);
        // Moving the held bytes for every small chunk would cost more than the scan.
        if spent > crate::window::AHEAD || spent * 2 > self.held.len() {
            self.held.drain(..spent);
            self.held.shrink_to(4 * crate::window::AHEAD);
            self.scanner.shift(spent);
            self.returned -= spent;
        }
        out
    }

    /// Returns how many secrets were replaced so far.
    pub fn replaced(&self) -> usize {
        self.replaced
    }

    /// Ends the stream and returns the rest.
    pub fn finish(mut self) -> Vec<u8> {
        self.advance(true)
    }

    fn advance(&mut self, last: bool) -> Vec<u8> {
        let mut out = Output { written_to: self.returned, ..Output::default() };
        self.scanner.scan(&self.held, last, &mut out);
        out.copy_to(&self.held, self.scanner.pos);
        self.returned = out.written_to;
        self.replaced += out.replaced;
        out.bytes
    }
}
