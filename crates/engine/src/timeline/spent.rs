//! What a model call used: tokens and money, as whoever recorded it wrote them down.

use serde::Serialize;
use serde_json::Value;

/// Tokens of one call, or of many.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Tokens {
    /// Read, at the full price.
    pub input: u64,
    /// Written, thoughts included.
    pub output: u64,
    /// Read from a cache.
    pub cache_read: u64,
    /// Written to a cache.
    pub cache_write: u64,
    /// Of the output, thoughts.
    pub reasoning: u64,
}

impl Tokens {
    /// Adds those of another call.
    pub fn add(&mut self, other: Self) {
        self.input += other.input;
        self.output += other.output;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.reasoning += other.reasoning;
    }

    /// All that was read and written.
    pub fn total(self) -> u64 {
        self.input + self.output + self.cache_read + self.cache_write
    }
}

/// What is known of a model call from the detail of its step.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Spent {
    /// The model.
    pub model: Option<String>,
    /// Tokens, if somebody counted them.
    pub tokens: Option<Tokens>,
    /// What it cost, if that is known.
    pub cost_usd: Option<f64>,
}

impl Spent {
    /// Reads the detail of a step; `None` if it says nothing of a model.
    ///
    /// A proxy writes `usage`, in our words; a hook or an import writes `tokens`.
    pub fn of(detail: &Value) -> Option<Self> {
        let metadata = detail.get("metadata")?;
        let tokens =
            metadata.get("usage").or_else(|| metadata.get("tokens")).filter(|value| value.is_object());
        let spent = Self {
            model: metadata.get("model").and_then(Value::as_str).map(str::to_string),
            tokens: tokens.map(counted),
            cost_usd: metadata.get("cost_usd").and_then(Value::as_f64),
        };
        (spent != Self::default()).then_some(spent)
    }
}

/// Tokens in our words, or as opencode tells them, with its cache in an object of its own.
fn counted(tokens: &Value) -> Tokens {
    let first = |names: &[&str]| {
        names.iter().find_map(|name| tokens.pointer(name).and_then(Value::as_u64)).unwrap_or(0)
    };
    Tokens {
        input: first(&["/input"]),
        output: first(&["/output"]),
        cache_read: first(&["/cache_read", "/cache/read"]),
        cache_write: first(&["/cache_write", "/cache/write"]),
        reasoning: first(&["/reasoning"]),
    }
}
