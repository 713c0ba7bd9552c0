//! The vocabulary of moments, and the edit distance to it.

use std::ops::Range;

use jiff::civil::Weekday;

use crate::nearest::edit_distance;

/// Words that a misspelt one is compared with.
const WORDS: &[&str] = &[
    "ago",
    "now",
    "today",
    "yesterday",
    "noon",
    "midnight",
    "last",
    "second",
    "seconds",
    "minute",
    "minutes",
    "hour",
    "hours",
    "day",
    "days",
    "week",
    "weeks",
    "month",
    "months",
    "year",
    "years",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
    "sunday",
];

/// A unit of a distance.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

/// Reads the name of a unit.
pub(super) fn parse_unit(word: &str) -> Option<Unit> {
    Some(match word {
        "s" | "sec" | "secs" | "second" | "seconds" => Unit::Second,
        "m" | "min" | "mins" | "minute" | "minutes" => Unit::Minute,
        "h" | "hr" | "hrs" | "hour" | "hours" => Unit::Hour,
        "d" | "day" | "days" => Unit::Day,
        "w" | "wk" | "wks" | "week" | "weeks" => Unit::Week,
        "mo" | "month" | "months" => Unit::Month,
        "y" | "yr" | "yrs" | "year" | "years" => Unit::Year,
        _ => return None,
    })
}

/// Reads the name of a day of the week.
pub(super) fn parse_weekday(word: &str) -> Option<Weekday> {
    Some(match word {
        "monday" | "mon" => Weekday::Monday,
        "tuesday" | "tue" | "tues" => Weekday::Tuesday,
        "wednesday" | "wed" => Weekday::Wednesday,
        "thursday" | "thu" | "thur" | "thurs" => Weekday::Thursday,
        "friday" | "fri" => Weekday::Friday,
        "saturday" | "sat" => Weekday::Saturday,
        "sunday" | "sun" => Weekday::Sunday,
        _ => return None,
    })
}

/// Reads a number written as a word.
pub(super) fn number_word(word: &str) -> Option<i64> {
    const NUMBERS: [&str; 12] =
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];
    if matches!(word, "a" | "an") {
        return Some(1);
    }
    NUMBERS.iter().position(|number| *number == word).map(|index| index as i64 + 1)
}

/// A word in lower case and where it stands.
#[derive(Clone)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) span: Range<usize>,
}

/// Splits a text at white space and commas.
pub(super) fn split_words(text: &str) -> Vec<Word> {
    let mut words = Vec::new();
    let mut start = None;
    for (offset, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if c.is_whitespace() || c == ',' {
            if let Some(start) = start.take() {
                words.push(Word { text: text[start..offset].to_ascii_lowercase(), span: start..offset });
            }
        } else if start.is_none() {
            start = Some(offset);
        }
    }
    words
}

/// Four digits, two and two: `2026-01-23`.
pub(super) fn is_date(word: &str) -> bool {
    word.len() == 10
        && word
            .bytes()
            .enumerate()
            .all(|(index, byte)| if matches!(index, 4 | 7) { byte == b'-' } else { byte.is_ascii_digit() })
}

/// The known word that `word` is probably a misspelling of.
pub(super) fn closest_word(word: &str) -> Option<&'static str> {
    let letters = word.chars().count();
    let max_distance = if letters >= 6 { 2 } else { 1 };
    let (distance, candidate) =
        WORDS.iter().map(|candidate| (edit_distance(word, candidate), *candidate)).min()?;
    if letters > 2 && (1..=max_distance).contains(&distance) { Some(candidate) } else { None }
}
