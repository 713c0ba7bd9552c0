//! Hit conditions: which hits of a breakpoint take effect. Debuggers write them `3`, `=3`, `>=3` and `%3`, and so does
//! stepback, on the command line, in the API and on disk.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which hits of a breakpoint take effect, counted from 1; the others are only counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HitCondition {
    /// `=N`: only this hit.
    Exactly(u64),
    /// `N` or `>=N`: this hit and all later ones.
    From(u64),
    /// `%N`: every Nth hit.
    Every(u64),
}

/// A text that is not a hit condition.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "\"{0}\" is not a hit condition: use N or >=N (from the Nth hit on), =N (only the Nth) or %N (every Nth)"
)]
pub struct HitConditionError(String);

impl HitCondition {
    /// Whether hit number `hit` takes effect.
    pub fn is_met(self, hit: u64) -> bool {
        match self {
            Self::Exactly(number) => hit == number,
            Self::From(number) => hit >= number,
            Self::Every(number) => hit.is_multiple_of(number),
        }
    }

    /// Describes the condition in words.
    pub fn describe(self) -> String {
        match self {
            Self::Exactly(number) => format!("only hit {number}"),
            Self::From(number) => format!("from hit {number} on"),
            Self::Every(number) => format!("every {number} hits"),
        }
    }
}

impl FromStr for HitCondition {
    type Err = HitConditionError;

    fn from_str(text: &str) -> Result<Self, HitConditionError> {
        let wrong = || HitConditionError(text.to_owned());
        let plain = text.trim();
        let (make, number): (fn(u64) -> Self, &str) = match plain {
            _ if plain.starts_with(">=") => (Self::From, &plain[2..]),
            _ if plain.starts_with("==") => (Self::Exactly, &plain[2..]),
            _ if plain.starts_with('=') => (Self::Exactly, &plain[1..]),
            _ if plain.starts_with('%') => (Self::Every, &plain[1..]),
            _ => (Self::From, plain),
        };
        match number.trim().parse() {
            Ok(0) | Err(_) => Err(wrong()),
            Ok(number) => Ok(make(number)),
        }
    }
}

impl fmt::Display for HitCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(number) => write!(f, "={number}"),
            Self::From(number) => write!(f, ">={number}"),
            Self::Every(number) => write!(f, "%{number}"),
        }
    }
}

impl Serialize for HitCondition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HitCondition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// A number alone is what `from_hit` held before there were hit conditions.
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum StoredHitCondition {
            Number(u64),
            Text(String),
        }
        match StoredHitCondition::deserialize(deserializer)? {
            StoredHitCondition::Number(number) => Ok(Self::From(number)),
            StoredHitCondition::Text(text) => text.parse().map_err(serde::de::Error::custom),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effective_hits(text: &str) -> Vec<u64> {
        let condition: HitCondition = text.parse().unwrap();
        assert_eq!(condition.to_string().parse(), Ok(condition), "{text}");
        (1..=7).filter(|hit| condition.is_met(*hit)).collect()
    }

    #[test]
    fn hit_conditions_select_hits() {
        assert_eq!(effective_hits("=3"), [3]);
        assert_eq!(effective_hits("== 3"), [3]);
        assert_eq!(effective_hits(">=5"), [5, 6, 7]);
        assert_eq!(effective_hits("6"), [6, 7]);
        assert_eq!(effective_hits("%3"), [3, 6]);
        assert_eq!(effective_hits("1"), [1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn anything_else_is_refused() {
        for wrong in
            ["", "0", "=0", "%0", ">=0", "-1", ">3", "<3", "three", "=", "%", "3.5", "=99999999999999999999"]
        {
            let error = wrong.parse::<HitCondition>().unwrap_err().to_string();
            assert!(error.contains("every Nth"), "{error}");
        }
    }
}
