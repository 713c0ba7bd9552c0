//! Deserialises values that documents hold as text without copying the text: a board or a session has thousands of ids, and
//! serde's own way to read one allocates a string for each.

use std::fmt::{self, Display};
use std::marker::PhantomData;

use serde::de::{Deserializer, Error, Visitor};

struct Text<P, T>(P, PhantomData<T>);

impl<T, E: Display, P: FnOnce(&str) -> Result<T, E>> Visitor<'_> for Text<P, T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<F: Error>(self, text: &str) -> Result<T, F> {
        (self.0)(text).map_err(F::custom)
    }
}

/// Parses a value from its text.
pub fn from_text<'de, D: Deserializer<'de>, T, E: Display>(
    deserializer: D,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    deserializer.deserialize_str(Text(parse, PhantomData))
}
