//! Moments: microseconds since the Unix epoch, UTC, written as RFC 3339.

use std::fmt;

use crate::from_text::from_text;

/// A moment, exact to the microsecond.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Wraps microseconds since the epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The same moment for calendar arithmetic, clamped to the range the calendar knows.
    pub fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_microsecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        })
    }

    /// Converts a calendar moment, dropping what is below a microsecond.
    pub fn from_jiff(moment: jiff::Timestamp) -> Self {
        Self(moment.as_microsecond())
    }

    /// How long before `now` this is, as text: `just now`, `5 min ago`, `2 hours ago`, `3 days ago`.
    pub fn ago(self, now: Timestamp) -> String {
        let seconds = (now.0 - self.0) / 1_000_000;
        let count = |n: i64, unit: &str| format!("{n} {unit}{} ago", if n == 1 { "" } else { "s" });
        match seconds {
            i64::MIN..=-1 => "in the future".into(),
            0..=4 => "just now".into(),
            5..=59 => format!("{seconds} s ago"),
            60..=3599 => format!("{} min ago", seconds / 60),
            3600..=86_399 => count(seconds / 3600, "hour"),
            _ => count(seconds / 86_400, "day"),
        }
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.to_jiff())
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl serde::Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer, |text| text.parse::<jiff::Timestamp>().map(Self::from_jiff))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_like_speech() {
        let now = Timestamp::from_micros(1_000_000_000_000_000);
        let before = |seconds: i64| Timestamp::from_micros(now.as_micros() - seconds * 1_000_000).ago(now);
        assert_eq!(before(0), "just now");
        assert_eq!(before(42), "42 s ago");
        assert_eq!(before(300), "5 min ago");
        assert_eq!(before(3600), "1 hour ago");
        assert_eq!(before(7200), "2 hours ago");
        assert_eq!(before(3 * 86_400), "3 days ago");
        assert_eq!(before(-5), "in the future");
    }

    #[test]
    fn extreme_moments_do_not_panic() {
        for micros in [i64::MIN, i64::MAX, 0] {
            let _ = Timestamp::from_micros(micros).to_string();
        }
    }
}
