//! The part of the text that one decision may look at.
//!
//! Every decision about a run sees the same bytes, whether the text is there as a whole or arrives in
//! pieces: a little before the run, and no more than [`AHEAD`] after its beginning.
//! That is what makes a stream come out the same however it is cut, and what bounds the cost of a byte.

/// How far behind its run a decision may look.
pub const BEHIND: usize = 128;
/// How far past the beginning of its run a decision may look.
pub const AHEAD: usize = 16 * 1024;
/// A run as long as this is data, not a name nor a token; it is passed over.
pub const LONGEST_RUN: usize = 8 * 1024;
/// A value as long as this is no password.
pub const LONGEST_VALUE: usize = 4 * 1024;
/// What every replacement begins with.
pub const MARK: &[u8] = b"[redacted:";

/// A run of word bytes and what is around it.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// What may be looked at.
    pub bytes: &'a [u8],
    /// Where the run begins in `bytes`.
    pub start: usize,
    /// Where the run ends in `bytes`.
    pub end: usize,
    /// All classes of bytes in the run.
    pub classes: u8,
}

impl<'a> View<'a> {
    /// The run itself.
    pub fn run(&self) -> &'a [u8] {
        &self.bytes[self.start..self.end]
    }

    /// The byte at `at`, or 0 where there is none.
    #[inline]
    pub fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    /// The byte before the run, or 0.
    #[inline]
    pub fn before(&self) -> u8 {
        if self.start == 0 { 0 } else { self.bytes[self.start - 1] }
    }

    /// Whether `text` is at `at`.
    #[inline]
    pub fn has(&self, at: usize, text: &[u8]) -> bool {
        self.bytes.get(at..).is_some_and(|rest| rest.starts_with(text))
    }

    /// The end of the blanks (no line ends) that begin at `at`.
    pub fn skip_blanks(&self, mut at: usize) -> usize {
        let stop = at + 64;
        while at < stop && matches!(self.byte(at), b' ' | b'\t') {
            at += 1;
        }
        at
    }
}

/// What follows a replacement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Then {
    /// The text goes on.
    Scan,
    /// The secret is longer than could be seen: drop bytes of this class mask first.
    DropRun(u8),
    /// A private key's body follows: drop it as long as it looks like one.
    DropKey,
}

/// A secret in a view.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Where it begins.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// What it is.
    pub kind: &'static str,
    /// How to go on after it.
    pub then: Then,
}

impl Found {
    /// A secret that is all there.
    pub fn new(start: usize, end: usize, kind: &'static str) -> Self {
        Self { start, end, kind, then: Then::Scan }
    }
}

/// Where the mark of an earlier replacement that begins at `at` ends.
pub fn mark_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = bytes.get(at..)?.strip_prefix(MARK)?;
    let kind = rest
        .iter()
        .take(48)
        .take_while(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || **b == b'-')
        .count();
    (kind > 0 && rest.get(kind) == Some(&b']')).then_some(at + MARK.len() + kind + 1)
}
