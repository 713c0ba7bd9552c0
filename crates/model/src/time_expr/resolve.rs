//! Converts a [`TimeExpr`] to a time.

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

use super::{Day, Expression, TimeExpr, WhenError, WhenErrorKind};
use crate::time::Timestamp;

impl TimeExpr {
    /// The time this means at `now` in the time zone `tz`; fails if that is in the future.
    pub fn resolve(&self, now: Timestamp, tz: &TimeZone) -> Result<Timestamp, WhenError> {
        let zoned = now.to_jiff().to_zoned(tz.clone());
        let moment = self.to_timestamp(&zoned).map_err(|_| WhenError {
            kind: WhenErrorKind::OutOfRange,
            span: self.span.clone(),
            what: "that is outside of the calendar".into(),
            suggestions: Vec::new(),
        })?;
        let moment = Timestamp::from_jiff(moment);
        if moment > now {
            return Err(WhenError {
                kind: WhenErrorKind::Future,
                span: self.span.clone(),
                what: "that is in the future".into(),
                suggestions: vec!["now".into()],
            });
        }
        Ok(moment)
    }

    fn to_timestamp(&self, now: &Zoned) -> Result<jiff::Timestamp, jiff::Error> {
        match self.expression {
            Expression::Now => Ok(now.timestamp()),
            Expression::Instant(instant) => Ok(instant),
            Expression::Ago(span) => Ok(now.checked_sub(span)?.timestamp()),
            Expression::Clock(time) => latest_past(now, now.clone(), 1, time),
            Expression::Day(Day::Today, time) => time_on_day(now, time),
            Expression::Day(Day::Yesterday, time) => time_on_day(&now.checked_sub(1.day())?, time),
            Expression::Day(Day::Tomorrow, time) => time_on_day(&now.checked_add(1.day())?, time),
            Expression::Day(Day::Date(date), time) => {
                Ok(date.to_datetime(time).to_zoned(now.time_zone().clone())?.timestamp())
            }
            Expression::Day(Day::Weekday { weekday, before_today }, time) => {
                let since = now.weekday().since(weekday);
                let days = if since == 0 && before_today { 7 } else { since };
                latest_past(now, now.checked_sub(i64::from(days).days())?, 7, time)
            }
        }
    }
}

/// This time on that day. `jiff` resolves gaps and folds.
fn time_on_day(day: &Zoned, time: Time) -> Result<jiff::Timestamp, jiff::Error> {
    Ok(day.date().to_datetime(time).to_zoned(day.time_zone().clone())?.timestamp())
}

/// This time on that day, or a period of days earlier if it is in the future.
fn latest_past(now: &Zoned, day: Zoned, period: i64, time: Time) -> Result<jiff::Timestamp, jiff::Error> {
    let moment = time_on_day(&day, time)?;
    if moment <= now.timestamp() { Ok(moment) } else { time_on_day(&day.checked_sub(period.days())?, time) }
}
