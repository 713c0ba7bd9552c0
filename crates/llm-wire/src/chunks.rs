//! How an answer arrived, chunk by chunk, in a compact form.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One chunk of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Chunk {
    /// When it arrived, in microseconds after the request.
    pub after: u64,
    /// Its size in bytes.
    pub bytes: u64,
}

/// The chunks of an answer, in order. As text: for each, the microseconds since the one before, `+`, and its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Chunks(pub Vec<Chunk>);

impl Chunks {
    /// Adds a chunk.
    pub fn push(&mut self, after: u64, bytes: u64) {
        self.0.push(Chunk { after, bytes });
    }

    /// Parses the text form; `None` if it is invalid.
    pub fn parse(text: &str) -> Option<Self> {
        let mut after = 0u64;
        let mut chunks = Vec::new();
        for word in text.split_ascii_whitespace() {
            let (later, bytes) = word.split_once('+')?;
            after = after.checked_add(later.parse().ok()?)?;
            chunks.push(Chunk { after, bytes: bytes.parse().ok()? });
        }
        Some(Self(chunks))
    }
}

impl std::fmt::Display for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut previous = 0;
        for (index, chunk) in self.0.iter().enumerate() {
            let gap = if index == 0 { "" } else { " " };
            write!(f, "{gap}{}+{}", chunk.after.saturating_sub(previous), chunk.bytes)?;
            previous = chunk.after;
        }
        Ok(())
    }
}

impl Serialize for Chunks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Chunks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| serde::de::Error::custom("not a list of chunks"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_says_the_same() {
        let mut chunks = Chunks::default();
        chunks.push(1200, 80);
        chunks.push(1200, 5);
        chunks.push(5000, 0);
        assert_eq!(chunks.to_string(), "1200+80 0+5 3800+0");
        assert_eq!(Chunks::parse(&chunks.to_string()), Some(chunks));
        assert_eq!(Chunks::parse(""), Some(Chunks::default()));
        assert_eq!(Chunks::parse("1+x"), None);
    }
}
