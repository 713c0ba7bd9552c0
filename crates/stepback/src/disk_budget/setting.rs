//! The setting `disk.budget`: a size, a share of the file system, or off.

use std::fmt;
use std::path::Path;

use serde_json::Value;
use stepback_model::quantity;

use crate::commands::GUARD_ID;

/// The name of the setting.
pub const KEY: &str = "disk.budget";
/// What it means, for the list of settings.
pub const DESCRIPTION: &str = "how large the store may become (2GB, 10% of the file system, off); the oldest automatic checkpoints are pruned in the background; by default 10 %, at most 10 GB";

/// The largest budget by default.
const DEFAULT_BYTES: u64 = 10_000_000_000;
/// The largest share of the file system by default, in percent.
const DEFAULT_PERCENT: u64 = 10;

/// How large the store may become.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BudgetSetting {
    /// A share of the file system, at most some bytes.
    #[default]
    Default,
    /// A number of bytes.
    Bytes(u64),
    /// A share of the file system.
    Percent(u64),
    /// As large as it gets.
    Off,
}

impl BudgetSetting {
    /// Reads what a user writes: `2GB`, `10%`, `off`, `0` or `default`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim().to_ascii_lowercase();
        if let Some(percent) = text.strip_suffix('%') {
            let percent = percent.trim().parse::<u64>().ok().filter(|percent| (1..=100).contains(percent));
            return percent.map(Self::Percent).ok_or_else(|| "a share is from 1% to 100%".to_owned());
        }
        match text.as_str() {
            "default" => Ok(Self::Default),
            "off" | "none" => Ok(Self::Off),
            text => quantity::parse_bytes(text)
                .map(|bytes| if bytes == 0 { Self::Off } else { Self::Bytes(bytes) }),
        }
    }

    /// Reads the value in a settings file. With one that makes no sense nothing is pruned.
    pub fn from_value(value: Option<&Value>) -> Self {
        Self::check(value).unwrap_or(Self::Off)
    }

    /// Reads the value in a settings file, or says what is wrong with it.
    pub fn check(value: Option<&Value>) -> Result<Self, String> {
        match value {
            None => Ok(Self::Default),
            Some(Value::String(text)) => Self::parse(text),
            Some(Value::Number(bytes)) if bytes.is_u64() => match bytes.as_u64() {
                Some(bytes @ 1..) => Ok(Self::Bytes(bytes)),
                _ => Ok(Self::Off),
            },
            Some(other) => Err(format!("{other} is not a size")),
        }
    }

    /// The budget in bytes for the store in a directory; `None` if there is none, or if the size of the file system is not
    /// known.
    pub fn bytes(self, store: &Path) -> Option<u64> {
        let share = |percent: u64| {
            let existing = store.ancestors().find(|dir| dir.exists())?;
            let found = rustix::fs::statvfs(existing).ok()?;
            let total = u128::from(found.f_blocks) * u128::from(found.f_frsize);
            u64::try_from(total * u128::from(percent) / 100).ok().filter(|bytes| *bytes > 0)
        };
        match self {
            // A client that may append to a guarded store must not be able to push out what is in it.
            Self::Default if store.join(GUARD_ID).exists() => None,
            Self::Default => share(DEFAULT_PERCENT).map(|bytes| bytes.min(DEFAULT_BYTES)),
            Self::Bytes(bytes) => Some(bytes),
            Self::Percent(percent) => share(percent),
            Self::Off => None,
        }
    }
}

impl fmt::Display for BudgetSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Bytes(bytes) => f.write_str(&quantity::bytes(*bytes).replace(' ', "")),
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Off => f.write_str("off"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn sizes_shares_and_off_are_read_and_everything_else_is_refused() {
        for (text, expected) in [
            ("2GB", BudgetSetting::Bytes(2_000_000_000)),
            ("1000000000", BudgetSetting::Bytes(1_000_000_000)),
            (" 10 % ", BudgetSetting::Percent(10)),
            ("100%", BudgetSetting::Percent(100)),
            ("off", BudgetSetting::Off),
            ("0", BudgetSetting::Off),
            ("default", BudgetSetting::Default),
        ] {
            assert_eq!(BudgetSetting::parse(text), Ok(expected), "{text}");
        }
        for wrong in ["", "0%", "101%", "-1", "2 XB", "much", "%", "99999999999999999999GB"] {
            assert!(BudgetSetting::parse(wrong).is_err(), "{wrong}");
        }
        for wrong in [json!("much"), json!(-5), json!(1.5), json!(null), json!([])] {
            assert_eq!(BudgetSetting::from_value(Some(&wrong)), BudgetSetting::Off, "{wrong}");
        }
        assert_eq!(BudgetSetting::from_value(Some(&json!(5_000_000))), BudgetSetting::Bytes(5_000_000));
    }

    #[test]
    fn a_share_is_one_of_the_file_system_and_the_default_is_not_larger_than_10_gb() {
        let here = Path::new("/tmp/does/not/exist/yet");
        let whole = BudgetSetting::Percent(100).bytes(here).unwrap();
        assert_eq!(BudgetSetting::Percent(50).bytes(here).unwrap(), whole / 2);
        assert_eq!(BudgetSetting::Default.bytes(here).unwrap(), (whole / 10).min(10_000_000_000));
        assert_eq!(BudgetSetting::Off.bytes(here), None);
    }
}
