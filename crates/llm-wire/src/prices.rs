//! The cost of an answer, from a dated table of list prices that the user can extend or correct. A model that is not in
//! the table has no price; prices are never guessed.

use std::collections::HashMap;

use serde_json::{Map, Value};

use crate::semantics::TokenUsage;

/// List prices in dollars per million tokens, as the providers publish them: no batches, no discounts. `long` is the
/// price of a request whose input exceeds a number of tokens.
const TABLE: &str = include_str!("prices/table.json");

/// The price of a token, in millionths of a millionth of a dollar: exact for every published price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rate {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Price {
    usual: Rate,
    /// Another rate that applies above a number of input tokens.
    long: Option<(u64, Rate)>,
}

/// Prices by model.
#[derive(Clone, Debug, Default)]
pub struct Prices {
    by_model: HashMap<String, Price>,
}

impl Prices {
    /// Returns the table that comes with the program.
    pub fn built_in() -> Self {
        let table = serde_json::from_str(TABLE).unwrap_or_default();
        // A test reads the table, so an error cannot happen here.
        Self::default().with(&table).unwrap_or_default()
    }

    /// Adds the user's own prices, which take precedence: for each model an object with `input` and `output`, and if they
    /// differ from `input`, `cache_read` and `cache_write`, all in dollars per million tokens.
    pub fn with(mut self, user_prices: &Value) -> Result<Self, String> {
        let models = user_prices.as_object().ok_or("prices: not an object with a model in each field")?;
        for (model, price) in models {
            let price = read(price).map_err(|error| format!("prices: {model}: {error}"))?;
            self.by_model.insert(strip_models_prefix(model).to_owned(), price);
        }
        Ok(self)
    }

    /// Returns the cost in millionths of a dollar; `None` for a model without a price.
    pub fn cost(&self, model: &str, usage: &TokenUsage) -> Option<u64> {
        let price = self.price(model)?;
        let TokenUsage { input, output, cache_read, cache_write, .. } = *usage;
        let read = input.saturating_add(cache_read).saturating_add(cache_write);
        let rate =
            price.long.filter(|(threshold, _)| read > *threshold).map_or(price.usual, |(_, rate)| rate);
        let parts = [
            (input, rate.input),
            (output, rate.output),
            (cache_read, rate.cache_read),
            (cache_write, rate.cache_write),
        ];
        let sum: u128 = parts.iter().map(|(tokens, price)| u128::from(*tokens) * u128::from(*price)).sum();
        Some(u64::try_from((sum + SCALE / 2) / SCALE).unwrap_or(u64::MAX))
    }

    /// Returns the date of the built-in table.
    pub fn table_date() -> &'static str {
        "2026-11-15"
    }

    /// Returns the price of exactly this model, or of the one that it is a dated or numbered version of. Nothing else is
    /// treated as the same: `gpt-5-mini` is not `gpt-5`.
    fn price(&self, model: &str) -> Option<&Price> {
        let model = strip_models_prefix(model);
        self.by_model.get(model).or_else(|| self.by_model.get(strip_version(model)?))
    }
}

const SCALE: u128 = 1_000_000;

fn strip_models_prefix(model: &str) -> &str {
    model.strip_prefix("models/").unwrap_or(model)
}

/// Returns the name without the version that providers append: `-20250929`, `-2025-08-07`, `-001`, `-latest`.
fn strip_version(model: &str) -> Option<&str> {
    if let Some(name) = model.strip_suffix("-latest") {
        return Some(name);
    }
    let digits =
        |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let (name, last) = model.rsplit_once('-')?;
    if digits(last, 8) && last.starts_with("20") || digits(last, 3) && last.starts_with('0') {
        return Some(name);
    }
    let (name, month) = name.rsplit_once('-')?;
    let (name, year) = name.rsplit_once('-')?;
    (digits(last, 2) && digits(month, 2) && digits(year, 4) && year.starts_with("20")).then_some(name)
}

fn read(price: &Value) -> Result<Price, String> {
    let fields = price.as_object().ok_or("not an object with prices in dollars per million tokens")?;
    let known_fields = ["input", "output", "cache_read", "cache_write", "long"];
    if let Some(other) = fields.keys().find(|field| !known_fields.contains(&field.as_str())) {
        return Err(format!("\"{other}\" is not a price; prices are {}", known_fields.join(", ")));
    }
    let long = match fields.get("long") {
        None => None,
        Some(long) => {
            let long = long.as_object().ok_or("\"long\" is not an object with prices")?;
            let threshold = long.get("above").and_then(Value::as_u64);
            let threshold = threshold.ok_or("\"long\" needs \"above\", a number of tokens")?;
            Some((threshold, parse_rate(long)?))
        }
    };
    Ok(Price { usual: parse_rate(fields)?, long })
}

fn parse_rate(fields: &Map<String, Value>) -> Result<Rate, String> {
    let input = parse_amount(fields, "input")?.ok_or("no price for \"input\"")?;
    Ok(Rate {
        input,
        output: parse_amount(fields, "output")?.ok_or("no price for \"output\"")?,
        cache_read: parse_amount(fields, "cache_read")?.unwrap_or(input),
        cache_write: parse_amount(fields, "cache_write")?.unwrap_or(input),
    })
}

fn parse_amount(fields: &Map<String, Value>, name: &str) -> Result<Option<u64>, String> {
    /// The highest valid price: a token that costs more than a dollar is a mistake.
    const MAX_PRICE: f64 = 1_000_000.0;
    let Some(value) = fields.get(name) else { return Ok(None) };
    let dollars = value.as_f64().filter(|dollars| (0.0..=MAX_PRICE).contains(dollars));
    let dollars = dollars.ok_or_else(|| format!("\"{name}\" is {value}, not dollars per million tokens"))?;
    // Always fits, because the value is between 0 and the maximum.
    Ok(Some((dollars * 1_000_000.0).round() as u64))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cost(model: &str, usage: TokenUsage) -> Option<u64> {
        Prices::built_in().cost(model, &usage)
    }

    const SOME: TokenUsage =
        TokenUsage { input: 100_000, output: 10_000, cache_read: 0, cache_write: 0, reasoning: 0 };

    #[test]
    fn the_table_is_read_whole() {
        let table: Value = serde_json::from_str(TABLE).unwrap();
        let prices = Prices::default().with(&table).unwrap();
        assert_eq!(prices.by_model.len(), table.as_object().unwrap().len());
        for (model, price) in &prices.by_model {
            assert!(price.usual.output > price.usual.input, "{model}");
            assert!(price.usual.cache_read <= price.usual.input, "{model}");
        }
    }

    #[test]
    fn every_kind_of_token_has_its_price() {
        let usage =
            TokenUsage { input: 1000, output: 100, cache_read: 50_000, cache_write: 2000, reasoning: 80 };
        // 1000 × 3 + 100 × 15 + 50 000 × 0.3 + 2000 × 3.75
        assert_eq!(cost("claude-sonnet-4-6", usage), Some(3000 + 1500 + 15_000 + 7500));
        assert_eq!(cost("claude-sonnet-4-6", TokenUsage::default()), Some(0));
    }

    #[test]
    fn it_is_rounded_to_the_nearest() {
        let tokens = |cache_read| TokenUsage { cache_read, ..TokenUsage::default() };
        assert_eq!(cost("gpt-5-mini", tokens(19)), Some(0));
        assert_eq!(cost("gpt-5-mini", tokens(20)), Some(1));
        assert_eq!(cost("gpt-5-mini", tokens(59)), Some(1));
    }

    #[test]
    fn versions_of_a_model_cost_what_it_costs() {
        let plain = cost("claude-sonnet-4-5", SOME);
        assert_eq!(plain, Some(450_000));
        for name in ["claude-sonnet-4-5-20250929", "claude-sonnet-4-5-latest"] {
            assert_eq!(cost(name, SOME), plain, "{name}");
        }
        assert_eq!(cost("gpt-5-2025-08-07", SOME), cost("gpt-5", SOME));
        assert_eq!(cost("models/gemini-2.5-pro", SOME), cost("gemini-2.5-pro", SOME));
        assert_eq!(cost("gemini-2.0-flash-001", SOME), cost("gemini-2.0-flash", SOME));
        assert_ne!(cost("gpt-4o-2024-05-13", SOME), cost("gpt-4o", SOME));
    }

    #[test]
    fn what_only_looks_alike_has_no_price() {
        for name in
            ["gpt-5-foo", "gpt-5-", "gpt", "", "gpt-5-2025", "gpt-5-12345678", "my-gpt-5", "claude-sonnet"]
        {
            assert_eq!(cost(name, SOME), None, "{name}");
        }
    }

    #[test]
    fn long_input_costs_more_where_the_provider_says_so() {
        let usage = |input| TokenUsage { input, output: 1000, ..TokenUsage::default() };
        assert_eq!(cost("gemini-2.5-pro", usage(200_000)), Some(250_000 + 10_000));
        assert_eq!(cost("gemini-2.5-pro", usage(200_001)), Some(500_003 + 15_000));
    }

    #[test]
    fn own_prices_win() {
        let own = json!({"gpt-5": {"input": 2, "output": 20.5}, "llama": {"input": 0, "output": 0}});
        let prices = Prices::built_in().with(&own).unwrap();
        let usage = TokenUsage { input: 10, output: 10, cache_read: 10, ..TokenUsage::default() };
        assert_eq!(prices.cost("gpt-5-2025-08-07", &usage), Some(20 + 205 + 20));
        assert_eq!(prices.cost("llama", &usage), Some(0));
    }

    #[test]
    fn what_is_wrong_is_said() {
        let wrong = |own: Value| Prices::built_in().with(&own).unwrap_err();
        assert_eq!(wrong(json!([])), "prices: not an object with a model in each field");
        assert_eq!(
            wrong(json!({"m": 3})),
            "prices: m: not an object with prices in dollars per million tokens"
        );
        assert_eq!(wrong(json!({"m": {"input": 3}})), "prices: m: no price for \"output\"");
        assert_eq!(
            wrong(json!({"m": {"input": -3, "output": 1}})),
            "prices: m: \"input\" is -3, not dollars per million tokens"
        );
        assert_eq!(
            wrong(json!({"m": {"input": 3, "output": "15"}})),
            "prices: m: \"output\" is \"15\", not dollars per million tokens"
        );
        assert!(wrong(json!({"m": {"inptu": 3, "output": 1}})).contains("\"inptu\" is not a price"));
    }
}
