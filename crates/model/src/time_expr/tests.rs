//! Tests of [`crate::time_expr`].

use jiff::tz::{Offset, TimeZone};
use proptest::prelude::*;

use super::*;

/// Friday 2026-01-23, 12:00 UTC.
const NOW: &str = "2026-01-23T12:00:00Z";

fn at(text: &str) -> Timestamp {
    Timestamp::from_jiff(text.parse().unwrap())
}

fn utc(text: &str) -> String {
    parse(text, at(NOW), &TimeZone::UTC).unwrap_or_else(|error| panic!("{text:?}: {error}")).to_string()
}

fn error(text: &str) -> WhenError {
    parse(text, at(NOW), &TimeZone::UTC).map(|moment| panic!("{text:?} is {moment}")).unwrap_err()
}

/// New York without a time zone database: clocks go forward on 8 March and back on 1 November 2026.
fn new_york() -> TimeZone {
    TimeZone::posix("EST5EDT,M3.2.0,M11.1.0").unwrap()
}

#[test]
fn distances_are_counted_back_from_now() {
    for (text, expected) in [
        ("2 hours ago", "2026-01-23T10:00:00Z"),
        ("2h ago", "2026-01-23T10:00:00Z"),
        ("an hour ago", "2026-01-23T11:00:00Z"),
        ("A Minute Ago", "2026-01-23T11:59:00Z"),
        ("10 min ago", "2026-01-23T11:50:00Z"),
        ("90s ago", "2026-01-23T11:58:30Z"),
        ("1h30m ago", "2026-01-23T10:30:00Z"),
        ("three days ago", "2026-01-20T12:00:00Z"),
        ("3 days ago", "2026-01-20T12:00:00Z"),
        ("1 week 2 days ago", "2026-01-14T12:00:00Z"),
        ("1 week, 2 days and 1 hour ago", "2026-01-14T11:00:00Z"),
        ("2 months ago", "2025-11-23T12:00:00Z"),
        ("0 s ago", "2026-01-23T12:00:00Z"),
        ("last week", "2026-01-16T12:00:00Z"),
        ("last month", "2025-12-23T12:00:00Z"),
        ("last year", "2025-01-23T12:00:00Z"),
        ("now", "2026-01-23T12:00:00Z"),
        ("just now", "2026-01-23T12:00:00Z"),
    ] {
        assert_eq!(utc(text), expected, "{text}");
    }
}

#[test]
fn days_and_clock_times_are_the_last_ones() {
    for (text, expected) in [
        ("today", "2026-01-23T00:00:00Z"),
        ("yesterday", "2026-01-22T00:00:00Z"),
        ("yesterday 14:00", "2026-01-22T14:00:00Z"),
        ("yesterday at noon", "2026-01-22T12:00:00Z"),
        ("14:00 yesterday", "2026-01-22T14:00:00Z"),
        ("today 9:30", "2026-01-23T09:30:00Z"),
        ("14:00", "2026-01-22T14:00:00Z"),
        ("11:59:59", "2026-01-23T11:59:59Z"),
        ("12:00", "2026-01-23T12:00:00Z"),
        ("9am", "2026-01-23T09:00:00Z"),
        ("9:15 PM", "2026-01-22T21:15:00Z"),
        ("12am", "2026-01-23T00:00:00Z"),
        ("12 pm", "2026-01-23T12:00:00Z"),
        ("noon", "2026-01-23T12:00:00Z"),
        ("midnight", "2026-01-23T00:00:00Z"),
        ("monday", "2026-01-19T00:00:00Z"),
        ("friday", "2026-01-23T00:00:00Z"),
        ("friday 14:00", "2026-01-16T14:00:00Z"),
        ("last friday 10:00", "2026-01-16T10:00:00Z"),
        ("last thursday", "2026-01-22T00:00:00Z"),
        ("  Mon   8:00 ", "2026-01-19T08:00:00Z"),
    ] {
        assert_eq!(utc(text), expected, "{text}");
    }
}

#[test]
fn dates_are_read_as_iso_8601_writes_them() {
    for (text, expected) in [
        ("2026-01-23", "2026-01-23T00:00:00Z"),
        ("2026-01-22 noon", "2026-01-22T12:00:00Z"),
        ("2026-01-23T12:00", "2026-01-23T12:00:00Z"),
        ("2026-01-23 11:00:05", "2026-01-23T11:00:05Z"),
        ("2026-01-23t11:00:05.5", "2026-01-23T11:00:05.5Z"),
        ("2026-01-23T12:00:00Z", "2026-01-23T12:00:00Z"),
        ("2026-01-23T12:00+01:00", "2026-01-23T11:00:00Z"),
        ("2026-01-23 12:00:05+05:30", "2026-01-23T06:30:05Z"),
        ("2026-01-23 04:00-05:00", "2026-01-23T09:00:00Z"),
    ] {
        assert_eq!(utc(text), expected, "{text}");
    }
    let paris = TimeZone::fixed(Offset::constant(1));
    assert_eq!(parse("2026-01-23T12:00", at(NOW), &paris).unwrap(), at("2026-01-23T11:00:00Z"));
}

#[test]
fn clocks_that_change_are_handled() {
    let tz = new_york();
    let local = |text: &str, now: &str| parse(text, at(now), &tz).unwrap();
    // 2:30 did not exist on 8 March: an hour later.
    assert_eq!(local("2026-03-08T02:30", "2026-06-01T00:00:00Z"), at("2026-03-08T07:30:00Z"));
    // 1:30 came twice on 1 November: the first.
    assert_eq!(local("2026-11-01 01:30", "2026-12-01T00:00:00Z"), at("2026-11-01T05:30:00Z"));
    // One day before noon of 8 March is noon of 7 March, 23 hours earlier; 24 hours are 24 hours.
    assert_eq!(local("1 day ago", "2026-03-08T16:00:00Z"), at("2026-03-07T17:00:00Z"));
    assert_eq!(local("24 hours ago", "2026-03-08T16:00:00Z"), at("2026-03-07T16:00:00Z"));
    // The day is the day of the time zone, not of UTC.
    assert_eq!(local("today", "2026-01-23T03:00:00Z"), at("2026-01-22T05:00:00Z"));
    assert_eq!(local("14:00", "2026-01-23T03:00:00Z"), at("2026-01-22T19:00:00Z"));
}

#[test]
fn what_is_still_to_come_is_an_error_of_its_own() {
    for text in
        ["tomorrow", "tomorrow 9:00", "today 23:00", "2026-01-24", "2026-01-23T12:00:01Z", "9998-12-31"]
    {
        let error = error(text);
        assert_eq!(
            (error.kind, error.to_string().as_str()),
            (WhenErrorKind::Future, "that is in the future")
        );
        assert_eq!(error.span, 0..text.len());
    }
}

#[test]
fn errors_point_at_the_word_and_suggest_better() {
    for (text, offending, suggestion) in [
        ("2 huors ago", "huors", "2 hours ago"),
        ("yesteday 14:00", "yesteday", "yesterday 14:00"),
        ("2 hours", "", "2 hours ago"),
        ("2h", "", "2h ago"),
        ("2 ago", "2", "2 hours ago"),
        ("ago", "ago", "2 hours ago"),
        ("last", "last", "last week"),
        ("last fridya", "fridya", "last friday"),
        ("monday 14:00 sharp", "sharp", "monday 14:00"),
        ("today 25:00", "25:00", "2 hours ago"),
        ("13pm", "13pm", "2 hours ago"),
        ("2026-13-01", "2026-13-01", "2 hours ago"),
        ("2026-02-30T12:00", "2026-02-30T12:00", "2 hours ago"),
        ("2026-01-23T12:00[Europe/Paris]", "2026-01-23T12:00[Europe/Paris]", "2 hours ago"),
        ("99999999999999999999 s ago", "99999999999999999999", "2 hours ago"),
        ("99999999 years ago", "99999999 years", "2 hours ago"),
        ("2h 3h ago", "3h", "2 hours ago"),
        ("2 hours ago or so", "ago", "2 hours ago"),
        ("", "", "2 hours ago"),
        ("ünder", "ünder", "2 hours ago"),
    ] {
        let error = error(text);
        assert_eq!(&text[error.span.clone()], offending, "{text:?}: {error}");
        assert!(error.suggestions.iter().any(|s| s == suggestion), "{text:?}: {:?}", error.suggestions);
    }
    assert_eq!(error("19000 years ago").kind, WhenErrorKind::OutOfRange);
    assert_eq!(error(&"9 ".repeat(1000)).what, "this is too long to be a time");
}

#[test]
fn words_that_are_no_times_stay_labels() {
    for text in ["4f2a", "before-refactor", "main", "v1.2", "2", "2h", "fix the bug", "last", "20260123"] {
        assert!(TimeExpr::parse(text).is_err(), "{text}");
    }
}

#[test]
fn suggestions_are_moments() {
    for text in ["", "x", "2 huors ago", "last", "2 hours", "monday 14:00 sharp", "2 ago"] {
        for suggestion in error(text).suggestions {
            assert!(TimeExpr::parse(&suggestion).is_ok(), "{text:?} suggests {suggestion:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_spans_are_inside(text in ".{0,40}", micros in any::<i64>()) {
        if let Err(error) = parse(&text, Timestamp::from_micros(micros), &new_york()) {
            prop_assert!(text.get(error.span).is_some());
        }
    }

    #[test]
    fn texts_of_known_words_never_panic(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "2", "an", "hours", "h", "ago", "last", "monday", "week", "14:00", "2pm", "pm", "at", "and", "noon", "2h",
                "2026-01-23", "2026-01-23T12:00Z", "12:00+01:00", "yesterday", "now", "just", "99999", "years", ",",
            ]),
            0..6,
        ),
        micros in any::<i64>(),
    ) {
        let text = words.join(" ");
        let now = Timestamp::from_micros(micros);
        match parse(&text, now, &new_york()) {
            Ok(moment) => prop_assert!(moment <= now),
            Err(error) => prop_assert!(text.get(error.span).is_some()),
        }
    }
}
