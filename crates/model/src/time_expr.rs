//! Moments as users write them: `2 hours ago`, `yesterday 14:00`, `monday`, `2026-01-23T12:00`.
//!
//! Parsing has two steps. [`TimeExpr::parse`] uses the words only, so it can distinguish a moment from a label without
//! knowing the current time; [`TimeExpr::resolve`] needs the current time and a time zone. Every text has one meaning:
//!
//! - Moments are in the **past**. A clock time alone (`14:00`, `2pm`, `noon`, `midnight`) is the last one up to now, a
//!   weekday (`monday`, `monday 10:00`) the last one up to now; `last monday` is always before today. What can only lie
//!   ahead (`tomorrow`, `today 23:00` in the morning, a later date) is [`WhenErrorKind::Future`].
//! - A **day without a time is its first moment**: `today`, `yesterday`, `monday` and `2026-01-23` mean midnight, the
//!   state the day began with.
//! - A **distance is counted back from now**: `3 days ago`, `1 week 2 days ago`, `last week`, `last month`, `last year`.
//!   Hours, minutes and seconds are exact; days and more move the calendar and keep the clock time, so `1 day ago` can
//!   be 23 or 25 hours. `m` is minutes, `mo` months.
//! - A date and time without `Z` or an offset is in the given time zone. Where clocks are put forward, a time that does
//!   not exist is taken as much later as the gap is long; where they are put back, a time that exists twice is the
//!   earlier one (the rule of RFC 5545, which `jiff` calls compatible).
//!
//! Case is ignored. An error names the offending word by its place in the text.

mod parse;
mod resolve;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use parse::EXAMPLES;

use std::ops::Range;

use jiff::civil;
use jiff::tz::TimeZone;

use crate::time::Timestamp;

/// The kind of a [`WhenError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenErrorKind {
    /// The text is not a moment.
    Syntax,
    /// A number, date or time that does not exist in the calendar or on the clock.
    OutOfRange,
    /// The moment is in the future.
    Future,
}

/// Why a text is not a moment in the past.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct WhenError {
    /// The kind of error.
    pub kind: WhenErrorKind,
    /// The offending bytes of the text.
    pub span: Range<usize>,
    /// What is wrong, as part of a sentence.
    pub what: String,
    /// Complete texts that would be valid.
    pub suggestions: Vec<String>,
}

/// Parses `text` as a moment up to `now`, in the time zone `tz`.
pub fn parse(text: &str, now: Timestamp, tz: &TimeZone) -> Result<Timestamp, WhenError> {
    TimeExpr::parse(text)?.resolve(now, tz)
}

/// Parses a span of time and returns microseconds: `500ms`, `30s`, `2m`, `1h`; a bare number is seconds.
pub fn span_micros(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let factor = match unit.trim() {
        "ms" => 1e3,
        "" | "s" => 1e6,
        "m" | "min" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    let micros = number.parse::<f64>().ok()? * factor;
    micros.is_finite().then_some(micros as u64)
}

/// A parsed text, not yet resolved against a current time.
#[derive(Clone, Debug)]
pub struct TimeExpr {
    expression: Expression,
    /// The bytes of the text that the expression covers.
    span: Range<usize>,
}

#[derive(Clone, Debug)]
enum Expression {
    Now,
    /// This long before now.
    Ago(jiff::Span),
    /// A moment with its own offset.
    Instant(jiff::Timestamp),
    /// The last time the clock showed this.
    Clock(civil::Time),
    /// A day, and the time on that day.
    Day(Day, civil::Time),
}

#[derive(Clone, Copy, Debug)]
enum Day {
    Today,
    Yesterday,
    Tomorrow,
    /// The last such weekday; `before_today` if today does not count.
    Weekday {
        weekday: civil::Weekday,
        before_today: bool,
    },
    Date(civil::Date),
}
