//! The single pass over the text.
//!
//! It goes from run to run of word bytes, checks for each whether it is a secret or names one, and keeps the little state
//! that must outlive a decision: a run too long to check, and the body of a private key. Both [`redact`](crate::redact)
//! and [`Stream`](crate::Stream) use this scanner over a buffer.
//!
//! After a replacement no decision looks back past it. A mark that is already in the text has the same effect, so that a
//! second pass over the result makes the same decisions as the first.

use crate::byte_class::{self, CLASS, WORD};
use crate::window::{AHEAD, AfterSecret, BEHIND, ByteWindow, LONGEST_RUN, MARK, mark_end};
use crate::{pem, rules};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Text,
    /// Inside a run that is too long to be a token.
    LongRun,
    /// Inside a secret that is longer than the window.
    DropRun(u8),
    /// Inside the body of a private key.
    DropKey,
}

/// The result so far. Nothing is copied before the first replacement.
#[derive(Default)]
pub(crate) struct Output {
    pub bytes: Vec<u8>,
    /// How far the buffer is copied or dropped.
    pub written_to: usize,
    pub replaced: usize,
}

impl Output {
    pub fn copy_to(&mut self, buffer: &[u8], end: usize) {
        if end > self.written_to {
            self.bytes.extend_from_slice(&buffer[self.written_to..end]);
            self.written_to = end;
        }
    }

    fn drop_to(&mut self, buffer: &[u8], start: usize, end: usize) {
        self.copy_to(buffer, start);
        self.written_to = self.written_to.max(end);
    }

    fn replace(&mut self, buffer: &[u8], start: usize, end: usize, kind: &str) {
        self.drop_to(buffer, start, end);
        self.bytes.extend_from_slice(crate::window::MARK);
        self.bytes.extend_from_slice(kind.as_bytes());
        self.bytes.push(b']');
        self.replaced += 1;
    }
}

/// The state of the pass.
pub(crate) struct Scanner {
    state: State,
    /// The next byte to check.
    pub pos: usize,
    /// No decision looks back past this.
    floor: usize,
}

impl Scanner {
    pub fn new() -> Self {
        Self { state: State::Text, pos: 0, floor: 0 }
    }

    /// Returns how many bytes at the front of the buffer are not needed any more.
    pub fn spent(&self) -> usize {
        self.pos.saturating_sub(BEHIND)
    }

    /// Adjusts the positions after the caller removed `count` bytes from the front of the buffer.
    pub fn shift(&mut self, count: usize) {
        self.pos -= count;
        self.floor = self.floor.saturating_sub(count);
    }

    /// Scans as far as the buffer allows: to its end if it is the `last` of the text, else only as far as every decision
    /// has all the bytes it may look at.
    pub fn scan(&mut self, buffer: &[u8], last: bool, out: &mut Output) {
        let limit = if last { buffer.len() } else { buffer.len().saturating_sub(AHEAD) };
        while self.pos < limit {
            match self.state {
                State::Text => self.text(buffer, limit, out),
                State::LongRun => {
                    self.pos = byte_class::run_end(buffer, self.pos, WORD, usize::MAX);
                    if self.pos < buffer.len() {
                        self.state = State::Text;
                    }
                }
                State::DropRun(mask) => {
                    let end = byte_class::run_end(buffer, self.pos, mask, usize::MAX);
                    out.drop_to(buffer, self.pos, end);
                    (self.pos, self.floor) = (end, end);
                    if self.pos < buffer.len() {
                        self.state = State::Text;
                    }
                }
                State::DropKey => {
                    let visible = &buffer[..buffer.len().min(self.pos + AHEAD)];
                    match pem::body_continues(visible, self.pos) {
                        Some(end) => {
                            out.drop_to(buffer, self.pos, end);
                            (self.pos, self.floor) = (end, end);
                        }
                        None => self.state = State::Text,
                    }
                }
            }
        }
    }

    fn text(&mut self, buffer: &[u8], limit: usize, out: &mut Output) {
        let mut pos = self.pos;
        while pos < limit {
            if CLASS[buffer[pos] as usize] & WORD == 0 {
                pos += 1;
                continue;
            }
            let start = pos;
            let stop = buffer.len().min(start + LONGEST_RUN);
            let mut classes = 0;
            while pos < stop {
                let class = CLASS[buffer[pos] as usize];
                if class & WORD == 0 {
                    break;
                }
                classes |= class;
                pos += 1;
            }
            if pos - start == LONGEST_RUN {
                self.state = State::LongRun;
                break;
            }
            if buffer[start] == b'r'
                && start > self.floor
                && buffer[start - 1] == b'['
                && let Some(end) = mark_end(&buffer[..buffer.len().min(start + AHEAD)], start - 1)
            {
                (pos, self.floor) = (end, end);
                continue;
            }
            let window_start = start.saturating_sub(BEHIND).max(self.floor);
            let view = ByteWindow {
                bytes: &buffer[window_start..buffer.len().min(start + AHEAD)],
                start: start - window_start,
                end: pos - window_start,
                classes,
            };
            // Text next to a mark was checked together with what the mark replaced, and was kept.
            if let Some(secret) = rules::run(view).filter(|secret| !view.has(secret.end, MARK)) {
                out.replace(buffer, window_start + secret.start, window_start + secret.end, secret.kind);
                pos = window_start + secret.end;
                self.floor = pos;
                match secret.then {
                    AfterSecret::Scan => continue,
                    AfterSecret::DropRun(mask) => self.state = State::DropRun(mask),
                    AfterSecret::DropKey => self.state = State::DropKey,
                }
                break;
            }
        }
        self.pos = pos;
    }
}
