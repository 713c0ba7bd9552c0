//! Moments as people write them: `2 hours ago`, `yesterday 14:00`, `monday`, `2026-01-23T12:00`.
//!
//! Reading is in two steps. [`Moment::parse`] looks at the words only, so it can tell a moment from a label without
//! knowing what time it is; [`Moment::resolve`] needs the present and a time zone. Every text has one meaning:
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
//! Upper and lower case are the same. An error names the offending word by its place in the text.

mod parse;
mod resolve;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use parse::EXAMPLES;
pub(crate) use words::edit_distance;

use std::ops::Range;

use jiff::civil;
use jiff::tz::TimeZone;

use crate::time::Timestamp;

/// What kind of error a [`WhenError`] is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WhenErrorKind {
    /// The text is not a moment.
    Syntax,
    /// A number, a date or a time that no calendar or clock has.
    OutOfRange,
    /// The moment has not come yet.
    Future,
}

/// Why a text is not a moment in the past.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{what}")]
pub struct WhenError {
    /// What kind of error it is.
    pub kind: WhenErrorKind,
    /// The offending bytes of the text.
    pub span: Range<usize>,
    /// What is wrong, as part of a sentence.
    pub what: String,
    /// Whole texts that would be right.
    pub suggestions: Vec<String>,
}

/// Reads `text` as a moment up to `now`, in the time zone `tz`.
pub fn parse(text: &str, now: Timestamp, tz: &TimeZone) -> Result<Timestamp, WhenError> {
    Moment::parse(text)?.resolve(now, tz)
}

/// Reads a span of time, in microseconds: `500ms`, `30s`, `2m`, `1h`; a bare number is seconds.
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

/// A text that was understood, before it is tied to a present.
#[derive(Clone, Debug)]
pub struct Moment {
    expression: Expression,
    /// The part of the text that the expression is.
    span: Range<usize>,
}

#[derive(Clone, Debug)]
enum Expression {
    Now,
    /// So long before now.
    Ago(jiff::Span),
    /// A moment that says its own offset.
    Instant(jiff::Timestamp),
    /// The last time the clock showed this.
    Clock(civil::Time),
    /// A day, and the time on it.
    Day(Day, civil::Time),
}

#[derive(Clone, Copy, Debug)]
enum Day {
    Today,
    Yesterday,
    Tomorrow,
    /// The last one; `before_today` if today does not count.
    Weekday {
        weekday: civil::Weekday,
        before_today: bool,
    },
    Date(civil::Date),
}
