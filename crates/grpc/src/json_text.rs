//! Values of any shape as JSON text: exactly as they were sent, with numbers that are not rounded.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::v1::JsonDocument;

/// Reads any value as its text.
pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(|value| value.get().to_owned())
}

/// The same for values that can be absent.
pub(crate) mod optional {
    use super::{Deserialize, Deserializer, RawValue};

    /// Reads any value as its text; `null` is no value.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<String>, D::Error> {
        let value = Option::<Box<RawValue>>::deserialize(deserializer)?;
        Ok(value.map(|value| value.get().to_owned()))
    }
}

impl From<Box<RawValue>> for JsonDocument {
    fn from(value: Box<RawValue>) -> Self {
        Self { json: value.get().to_owned() }
    }
}
