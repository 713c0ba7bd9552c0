//! Cuts output that is too long for a model, and marks the cut.

/// Longest text that a tool returns, in bytes.
pub const LONGEST: usize = 30_000;
/// How many bytes of it are the end, where most errors are.
const TAIL_BYTES: usize = 10_000;

/// The beginning and the end of a stream of bytes, in bounded memory.
#[derive(Debug, Default)]
pub struct Clipped {
    head: Vec<u8>,
    tail: Vec<u8>,
    total: usize,
}

impl Clipped {
    /// Adds bytes.
    pub fn push(&mut self, mut bytes: &[u8]) {
        self.total += bytes.len();
        let room = (LONGEST - TAIL_BYTES).saturating_sub(self.head.len());
        let taken = room.min(bytes.len());
        self.head.extend_from_slice(&bytes[..taken]);
        bytes = &bytes[taken..];
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        // Twice the needed size, so that not every small write moves all of it.
        if self.tail.len() > 2 * TAIL_BYTES {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
    }

    /// Returns the kept bytes as text, with a mark where something is missing.
    pub fn text(&self) -> String {
        let tail = &self.tail[self.tail.len().saturating_sub(TAIL_BYTES)..];
        let missing = self.total - self.head.len() - tail.len();
        if missing == 0 {
            return String::from_utf8_lossy(&[self.head.as_slice(), tail].concat()).into_owned();
        }
        let (head, tail) = (String::from_utf8_lossy(&self.head), String::from_utf8_lossy(tail));
        format!("{head}\n[… {missing} bytes left out …]\n{tail}")
    }
}

/// Returns a text, cut if it is too long.
pub fn clipped(text: &str) -> String {
    let mut kept = Clipped::default();
    kept.push(text.as_bytes());
    kept.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_text_stays_and_long_text_shows_where_it_was_cut() {
        assert_eq!(clipped("ä\nb"), "ä\nb");
        let exact = "x".repeat(LONGEST);
        assert_eq!(clipped(&exact), exact);
        let mut kept = Clipped::default();
        for number in 0..100_000 {
            kept.push(format!("{number}\n").as_bytes());
        }
        let text = kept.text();
        assert!(text.starts_with("0\n1\n") && text.ends_with("99999\n"), "both ends are there");
        assert!(text.contains("bytes left out"), "and the cut is seen");
        assert!(text.len() < LONGEST + 100, "{}", text.len());
    }
}
