//! The part of the text that one decision may look at.
//!
//! Every decision about a run sees the same bytes, whether the text is complete or arrives in chunks: a little before the
//! run, and at most [`AHEAD`] after its beginning. This makes the result of a stream independent of how it is split, and
//! bounds the cost per byte.

/// How many bytes before its run a decision may look at.
pub const BEHIND: usize = 128;
/// How many bytes past the beginning of its run a decision may look at.
pub const AHEAD: usize = 16 * 1024;
/// A run this long is data, not a name or a token; it is skipped.
pub const LONGEST_RUN: usize = 8 * 1024;
/// A value this long is not a password.
pub const LONGEST_VALUE: usize = 4 * 1024;
/// The beginning of every replacement.
pub const MARK: &[u8] = b"[redacted:";

/// A run of word bytes and its surroundings.
#[derive(Clone, Copy)]
pub struct ByteWindow<'a> {
    /// The bytes that may be looked at.
    pub bytes: &'a [u8],
    /// Where the run begins in `bytes`.
    pub start: usize,
    /// Where the run ends in `bytes`.
    pub end: usize,
    /// All classes of bytes in the run.
    pub classes: u8,
}

impl<'a> ByteWindow<'a> {
    /// Returns the run itself.
    pub fn run(&self) -> &'a [u8] {
        &self.bytes[self.start..self.end]
    }

    /// Returns the byte at `at`, or 0 if there is none.
    #[inline]
    pub fn byte(&self, index: usize) -> u8 {
        self.bytes.get(index).copied().unwrap_or(0)
    }

    /// Returns the byte before the run, or 0.
    #[inline]
    pub fn before(&self) -> u8 {
        if self.start == 0 { 0 } else { self.bytes[self.start - 1] }
    }

    /// Whether `text` is at `at`.
    #[inline]
    pub fn has(&self, index: usize, text: &[u8]) -> bool {
        self.bytes.get(index..).is_some_and(|rest| rest.starts_with(text))
    }

    /// Returns the end of the blanks (no line ends) that begin at `index`.
    pub fn skip_blanks(&self, mut index: usize) -> usize {
        let stop = index + 64;
        while index < stop && matches!(self.byte(index), b' ' | b'\t') {
            index += 1;
        }
        index
    }
}

/// What follows a replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AfterSecret {
    /// The scan continues normally.
    Scan,
    /// The secret is longer than the window: drop bytes of this class mask first.
    DropRun(u8),
    /// A private key's body follows: drop it as long as it looks like one.
    DropKey,
}

/// A secret in a view.
#[derive(Clone, Copy, Debug)]
pub struct FoundSecret {
    /// The start of the secret in the view.
    pub start: usize,
    /// The end of the secret in the view.
    pub end: usize,
    /// The kind of secret, as shown in the mark.
    pub kind: &'static str,
    /// How to continue after it.
    pub then: AfterSecret,
}

impl FoundSecret {
    /// Creates a secret that is completely visible.
    pub fn new(start: usize, end: usize, kind: &'static str) -> Self {
        Self { start, end, kind, then: AfterSecret::Scan }
    }
}

/// Returns the end of the mark of an earlier replacement that begins at `index`.
pub fn mark_end(bytes: &[u8], index: usize) -> Option<usize> {
    let rest = bytes.get(index..)?.strip_prefix(MARK)?;
    let kind = rest
        .iter()
        .take(48)
        .take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || **b == b'-')
        .count();
    (kind > 0 && rest.get(kind) == Some(&b']')).then_some(index + MARK.len() + kind + 1)
}
