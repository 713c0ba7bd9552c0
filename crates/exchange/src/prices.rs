//! What an answer costs: a dated table of list prices that a person can add to or correct. A model that is not in it has no
//! price; none is ever guessed.

use serde_json::Value;

use crate::meaning::Usage;

/// Prices by model.
#[derive(Clone, Debug, Default)]
pub struct Prices {}

impl Prices {
    /// The table that comes with the program.
    pub fn built_in() -> Self {
        unimplemented!()
    }

    /// The same with a person's own prices, which win.
    pub fn with(self, own: &Value) -> Result<Self, String> {
        let _ = own;
        unimplemented!()
    }

    /// The cost in millionths of a dollar; `None` for a model without a price.
    pub fn cost(&self, model: &str, usage: &Usage) -> Option<u64> {
        let _ = (model, usage);
        unimplemented!()
    }

    /// The day the built-in table was made.
    pub fn date() -> &'static str {
        unimplemented!()
    }
}
