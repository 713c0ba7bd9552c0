//! Parses words to a [`TimeExpr`].

use std::ops::Range;

use jiff::Span;
use jiff::civil::{Date, DateTime, Time};

use super::words::{Unit, Word, closest_word, is_date, number_word, parse_unit, parse_weekday, split_words};
use super::{Day, Expression, TimeExpr, WhenError, WhenErrorKind};

/// Maximum length of a moment's text, in bytes.
const MAX_BYTES: usize = 200;

/// Examples shown in error messages.
pub(crate) const EXAMPLES: [&str; 3] = ["2 hours ago", "yesterday 14:00", "2026-01-23T12:00"];

impl TimeExpr {
    /// Parses the words of `text`. Whether a text is a moment does not depend on the current time.
    pub fn parse(text: &str) -> Result<Self, WhenError> {
        let parser = Parser { text, words: split_words(text) };
        let (Some(first), Some(last)) = (parser.words.first(), parser.words.last()) else {
            return Err(parser.error(0..text.len(), "the time is empty"));
        };
        let span = first.span.start..last.span.end;
        if text.len() > MAX_BYTES {
            return Err(parser.error(span, "this is too long to be a time"));
        }
        let expression = parser.parse_expression()?;
        Ok(Self { expression, span })
    }
}

/// Amounts with their units; `1h30m` has two.
type Amounts = Vec<(i64, Unit)>;

struct Parser<'a> {
    text: &'a str,
    words: Vec<Word>,
}

impl Parser<'_> {
    fn parse_expression(&self) -> Result<Expression, WhenError> {
        let first = &self.words[0];
        let second = self.words.get(1).map(|word| word.text.as_str());
        match first.text.as_str() {
            "now" => return self.expect_end(1, Expression::Now),
            "just" if second == Some("now") => return self.expect_end(2, Expression::Now),
            _ => {}
        }
        if self.words.last().is_some_and(|word| word.text == "ago") {
            return self.parse_ago();
        }
        if first.text == "last" {
            let span = match second {
                Some("week") => Some(Span::new().weeks(1)),
                Some("month") => Some(Span::new().months(1)),
                Some("year") => Some(Span::new().years(1)),
                _ => None,
            };
            if let Some(span) = span {
                return self.expect_end(2, Expression::Ago(span));
            }
        }
        if let Some((day, next)) = self.parse_day()? {
            return self.end_of_day(day, next);
        }
        if let Some((time, next)) = self.parse_clock(0)? {
            // `14:00 yesterday` is accepted like `yesterday 14:00`.
            let day_parser = Parser { text: self.text, words: self.words[next..].to_vec() };
            return match day_parser.words.first() {
                None => Ok(Expression::Clock(time)),
                Some(_) => match day_parser.parse_day()? {
                    Some((day, next)) => day_parser.expect_end(next, Expression::Day(day, time)),
                    None => Err(self.unexpected_word(next)),
                },
            };
        }
        if first.text.as_bytes().first().is_some_and(u8::is_ascii_digit) && first.text.contains(['-', ':']) {
            return self.parse_date_time();
        }
        if self.parse_amount(0)?.is_some() {
            // Prefer an error inside the distance, if there is one; otherwise only `ago` is missing.
            let distance = Parser { text: self.text, words: self.words.clone() };
            distance.parse_distance(self.words.len())?;
            let mut error = self.error(self.text.len()..self.text.len(), "\"ago\" is missing");
            error.suggestions = vec![format!("{} ago", self.text.trim())];
            return Err(error);
        }
        Err(self.unknown_word(0))
    }

    /// `expression` if nothing follows the first `next` words.
    fn expect_end(&self, next: usize, expression: Expression) -> Result<Expression, WhenError> {
        if next < self.words.len() { Err(self.unexpected_word(next)) } else { Ok(expression) }
    }

    fn parse_ago(&self) -> Result<Expression, WhenError> {
        Ok(Expression::Ago(self.parse_distance(self.words.len() - 1)?))
    }

    /// Parses amounts and units in the words before `end`.
    fn parse_distance(&self, end: usize) -> Result<Span, WhenError> {
        let mut span = Span::new();
        let mut index = 0;
        let mut units = Vec::new();
        while index < end {
            if self.words[index].text == "and" && index > 0 && index + 1 < end {
                index += 1;
                continue;
            }
            let Some((amounts, next)) = self.parse_amount(index)? else {
                return Err(self.unknown_word(index));
            };
            if next > end {
                let mut error = self.error(self.words[index].span.clone(), "a unit is missing after this");
                error.suggestions = vec![format!("{} hours ago", self.words[index].text)];
                return Err(error);
            }
            let amount_span = self.words[index].span.start..self.words[next - 1].span.end;
            for (amount, unit) in amounts {
                if units.contains(&unit) {
                    return Err(self.error(amount_span, "this unit is here twice"));
                }
                units.push(unit);
                let added = match unit {
                    Unit::Second => span.try_seconds(amount),
                    Unit::Minute => span.try_minutes(amount),
                    Unit::Hour => span.try_hours(amount),
                    Unit::Day => span.try_days(amount),
                    Unit::Week => span.try_weeks(amount),
                    Unit::Month => span.try_months(amount),
                    Unit::Year => span.try_years(amount),
                };
                span = added
                    .map_err(|_| self.range_error(amount_span.clone(), "that is outside of the calendar"))?;
            }
            index = next;
        }
        if units.is_empty() {
            let mut error = self.error(self.words[0].span.clone(), "how long ago is missing");
            error.suggestions = vec!["2 hours ago".into()];
            return Err(error);
        }
        Ok(span)
    }

    /// Parses an amount with its unit at word `index`: `2 hours`, `an hour`, `2h`, `1h30m`. Returns the index of the word
    /// after it; a unit that is missing counts as one word more. `None` if the word does not begin with an amount.
    fn parse_amount(&self, index: usize) -> Result<Option<(Amounts, usize)>, WhenError> {
        let Some(word) = self.words.get(index) else { return Ok(None) };
        let count = match number_word(&word.text) {
            Some(count) => count,
            None if word.text.bytes().all(|byte| byte.is_ascii_digit()) => {
                let too_large = || self.range_error(word.span.clone(), "this number is too large");
                word.text.parse().map_err(|_| too_large())?
            }
            None => {
                return self
                    .parse_compact_amount(word)
                    .map(|amounts| amounts.map(|amounts| (amounts, index + 1)));
            }
        };
        match self.words.get(index + 1) {
            Some(next) if next.text != "ago" => match parse_unit(&next.text) {
                Some(unit) => Ok(Some((vec![(count, unit)], index + 2))),
                None => Err(self.unknown_word(index + 1)),
            },
            _ => Ok(Some((Vec::new(), index + 2 + self.words.len()))),
        }
    }

    /// Amounts and units without spaces: `90s`, `1h30m`. `None` if the word is something else.
    fn parse_compact_amount(&self, word: &Word) -> Result<Option<Amounts>, WhenError> {
        let mut amounts = Vec::new();
        let mut remaining = word.text.as_str();
        while !remaining.is_empty() {
            let digits = remaining.bytes().take_while(u8::is_ascii_digit).count();
            let letters = remaining[digits..].bytes().take_while(u8::is_ascii_alphabetic).count();
            let Some(unit) = parse_unit(&remaining[digits..digits + letters]) else { return Ok(None) };
            if digits == 0 {
                return Ok(None);
            }
            let too_large = || self.range_error(word.span.clone(), "this number is too large");
            amounts.push((remaining[..digits].parse().map_err(|_| too_large())?, unit));
            remaining = &remaining[digits + letters..];
        }
        Ok(Some(amounts))
    }

    /// Parses a day named by a word, or a date alone in its word. Returns the number of words it takes, too.
    fn parse_day(&self) -> Result<Option<(Day, usize)>, WhenError> {
        let first = &self.words[0];
        let day = match first.text.as_str() {
            "today" => Day::Today,
            "yesterday" => Day::Yesterday,
            "tomorrow" => Day::Tomorrow,
            "last" => {
                return match self.words.get(1).map(|word| parse_weekday(&word.text)) {
                    Some(Some(weekday)) => Ok(Some((Day::Weekday { weekday, before_today: true }, 2))),
                    Some(None) => Err(self.unknown_word(1)),
                    None => {
                        let mut error = self.error(first.span.clone(), "a day is missing after \"last\"");
                        error.suggestions = vec!["last week".into(), "last friday".into()];
                        Err(error)
                    }
                };
            }
            word => match parse_weekday(word) {
                Some(weekday) => Day::Weekday { weekday, before_today: false },
                None if is_date(word) => {
                    let no_such = |_| self.range_error(first.span.clone(), "the calendar has no such day");
                    Day::Date(word.parse::<Date>().map_err(no_such)?)
                }
                None => return Ok(None),
            },
        };
        Ok(Some((day, 1)))
    }

    /// Parses the time that may follow a day, and nothing else.
    fn end_of_day(&self, day: Day, mut next: usize) -> Result<Expression, WhenError> {
        let is_date = matches!(day, Day::Date(_));
        if self.words.get(next).is_some_and(|word| word.text == "at") && next + 1 < self.words.len() {
            next += 1;
        }
        if next == self.words.len() {
            return Ok(Expression::Day(day, Time::midnight()));
        }
        match self.parse_clock(next)? {
            Some((time, next)) => self.expect_end(next, Expression::Day(day, time)),
            // `2026-01-23 12:00:05+01:00`
            None if is_date && next + 1 == self.words.len() => self.parse_date_time(),
            None => Err(self.unexpected_word(next)),
        }
    }

    /// Parses a clock time at word `index`: `14:00`, `9:30:05`, `2pm`, `2:30 pm`, `noon`. Returns the index of the word
    /// after it, too.
    fn parse_clock(&self, index: usize) -> Result<Option<(Time, usize)>, WhenError> {
        let Some(word) = self.words.get(index) else { return Ok(None) };
        match word.text.as_str() {
            "noon" => return Ok(Some((Time::constant(12, 0, 0, 0), index + 1))),
            "midnight" => return Ok(Some((Time::midnight(), index + 1))),
            _ => {}
        }
        let (mut digits, mut half, mut next) = (word.text.as_str(), None, index + 1);
        for name in ["am", "pm"] {
            if let Some(prefix) = digits.strip_suffix(name) {
                (digits, half) = (prefix, Some(name));
                break;
            }
            if self.words.get(index + 1).is_some_and(|word| word.text == name) {
                (half, next) = (Some(name), index + 2);
                break;
            }
        }
        let fields: Vec<&str> = digits.split(':').collect();
        let shaped =
            |field: &&str| matches!(field.len(), 1 | 2) && field.bytes().all(|byte| byte.is_ascii_digit());
        if !fields.iter().all(shaped) || fields.len() > 3 || (fields.len() == 1 && half.is_none()) {
            return Ok(None);
        }
        let span = word.span.start..self.words[next - 1].span.end;
        let no_such = || self.range_error(span.clone(), "no clock shows this time");
        // At most two digits each: they fit.
        let field = |n: usize| fields.get(n).map_or(Ok(0), |text| text.parse::<i8>());
        let (Ok(mut hour), Ok(minute), Ok(second)) = (field(0), field(1), field(2)) else {
            return Err(no_such());
        };
        if let Some(half) = half {
            if !(1..=12).contains(&hour) {
                return Err(no_such());
            }
            hour = hour % 12 + if half == "pm" { 12 } else { 0 };
        }
        let time = Time::new(hour, minute, second, 0).map_err(|_| no_such())?;
        Ok(Some((time, next)))
    }

    /// Parses a date and time in one or two words, as ISO 8601 and RFC 3339 write them.
    fn parse_date_time(&self) -> Result<Expression, WhenError> {
        if self.words.len() > 2 {
            return Err(self.unexpected_word(2));
        }
        let span = self.words[0].span.start..self.words[self.words.len() - 1].span.end;
        let text: Vec<String> = self.words.iter().map(|word| word.text.to_ascii_uppercase()).collect();
        let text = text.join("T");
        let date_part = text.split('T').next().unwrap_or_default();
        if !is_date(date_part) {
            return Err(self.unknown_word(0));
        }
        // A named zone or other decoration (`[Europe/Paris]`) is not part of this grammar.
        let is_iso_text = text.bytes().all(|byte| byte.is_ascii_digit() || b"-:.+TZ".contains(&byte));
        let time_part = text.get(date_part.len()..).unwrap_or_default();
        if is_iso_text && time_part.contains(['Z', '+', '-']) {
            if let Ok(instant) = text.parse::<jiff::Timestamp>() {
                return Ok(Expression::Instant(instant));
            }
        } else if is_iso_text && let Ok(moment) = text.parse::<DateTime>() {
            return Ok(Expression::Day(Day::Date(moment.date()), moment.time()));
        }
        Err(self.range_error(span, "this is not a date and time as in 2026-01-23T12:00:05+01:00"))
    }

    fn error(&self, span: Range<usize>, what: impl Into<String>) -> WhenError {
        let suggestions = EXAMPLES.iter().map(|example| (*example).to_owned()).collect();
        WhenError { kind: WhenErrorKind::Syntax, span, what: what.into(), suggestions }
    }

    fn range_error(&self, span: Range<usize>, what: &str) -> WhenError {
        WhenError { kind: WhenErrorKind::OutOfRange, ..self.error(span, what) }
    }

    /// An error about a word that is not known here, with the text as it was probably meant.
    fn unknown_word(&self, index: usize) -> WhenError {
        let word = &self.words[index];
        let mut error = self.error(word.span.clone(), format!("{:?} is not a word for a time", word.text));
        if let Some(suggestion) = closest_word(&word.text) {
            let corrected = [&self.text[..word.span.start], suggestion, &self.text[word.span.end..]].concat();
            error.suggestions.insert(0, corrected.trim().to_owned());
        }
        error
    }

    /// An error about a word after which, or before which, nothing more can stand.
    fn unexpected_word(&self, index: usize) -> WhenError {
        let span = self.words[index].span.start..self.words[self.words.len() - 1].span.end;
        let mut error = self.error(span, format!("{:?} does not belong here", self.words[index].text));
        let prefix = self.text[..self.words[index].span.start].trim();
        if !prefix.is_empty() && TimeExpr::parse(prefix).is_ok() {
            error.suggestions.insert(0, prefix.to_owned());
        }
        error
    }
}
