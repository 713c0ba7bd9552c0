//! What a check found: measured and expected values, compared.

use serde_json::Value;
use stepback_reasoning::item::CheckOutcome;

/// The outcome of a check that was run.
pub struct CheckFinding {
    /// Whether it passed, failed, timed out or could not be run.
    pub outcome: CheckOutcome,
    /// The reason, as a sentence.
    pub reason: String,
    /// The exit code of its command; `None` if it has no command, or the command did not exit.
    pub exit: Option<i32>,
    /// The output of its command.
    pub output: String,
}

impl CheckFinding {
    /// A finding without a command.
    pub fn new(outcome: CheckOutcome, reason: impl Into<String>) -> Self {
        Self { outcome, reason: reason.into(), exit: None, output: String::new() }
    }

    /// A finding that the check passed or failed.
    pub fn from_passed(passed: bool, reason: impl Into<String>) -> Self {
        Self::new(if passed { CheckOutcome::Passed } else { CheckOutcome::Failed }, reason)
    }
}

/// Compares an exit code with the expected one.
pub fn check_exit_code(code: i32, expected: i32) -> CheckFinding {
    let mut finding = match code == expected {
        true => CheckFinding::from_passed(true, format!("its exit code is {code}")),
        false => CheckFinding::from_passed(false, format!("its exit code is {code}, not {expected}")),
    };
    finding.exit = Some(code);
    finding
}

/// Compares the value at a place in a JSON document with the expected one.
pub fn check_json_property(bytes: &[u8], pointer: &str, equals: &Value) -> CheckFinding {
    let document: Value = match serde_json::from_slice(bytes) {
        Ok(document) => document,
        Err(error) => {
            return CheckFinding::new(CheckOutcome::Error, format!("it is not valid JSON: {error}"));
        }
    };
    match document.pointer(pointer) {
        None => CheckFinding::from_passed(false, format!("there is nothing at {pointer}")),
        Some(value) => {
            let is_equal =
                value == equals || matches!((value.as_f64(), equals.as_f64()), (Some(a), Some(b)) if a == b);
            let not = if is_equal { String::new() } else { format!(", not {}", format_brief(equals)) };
            CheckFinding::from_passed(is_equal, format!("{pointer} is {}{not}", format_brief(value)))
        }
    }
}

fn format_brief(value: &Value) -> String {
    let mut text = value.to_string();
    stepback_model::clip::text(&mut text, 300);
    text
}

/// Returns the numbers in a text: every word between spaces, commas, brackets and the like that parses as one.
fn parse_numbers(bytes: &[u8]) -> Vec<f64> {
    let text = String::from_utf8_lossy(bytes);
    let words = text.split(|c: char| c.is_whitespace() || ",;:[](){}\"'=".contains(c));
    words.filter_map(|word| word.parse::<f64>().ok()).filter(|number| number.is_finite()).collect()
}

/// Compares the numbers in two texts, within a tolerance.
pub fn check_close_to(measured: &[u8], reference: &[u8], absolute: f64, relative: f64) -> CheckFinding {
    let (measured, expected) = (parse_numbers(measured), parse_numbers(reference));
    if expected.is_empty() {
        return CheckFinding::new(CheckOutcome::Error, "the reference has no numbers");
    }
    if measured.len() != expected.len() {
        let (measured_count, expected_count) = (measured.len(), expected.len());
        return CheckFinding::from_passed(
            false,
            format!("there are {measured_count} numbers, but the reference has {expected_count}"),
        );
    }
    let excess = |a: f64, b: f64| (a - b).abs() - absolute.max(relative * b.abs());
    let worst = measured
        .iter()
        .zip(&expected)
        .enumerate()
        .max_by(|(_, (a, b)), (_, (c, d))| excess(**a, **b).total_cmp(&excess(**c, **d)));
    match worst {
        Some((index, (a, b))) if excess(*a, *b) > 0.0 => CheckFinding::from_passed(
            false,
            format!("number {} is {a}, and the reference has {b}: outside the tolerance", index + 1),
        ),
        Some((index, (a, b))) => {
            let count = expected.len();
            let distance = (a - b).abs();
            CheckFinding::from_passed(
                true,
                format!(
                    "{count} numbers are within the tolerance; the largest difference is {distance}, at number {}",
                    index + 1
                ),
            )
        }
        None => CheckFinding::new(CheckOutcome::Error, "the reference has no numbers"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_compared_within_either_tolerance() {
        let outcome = |a: &str, b: &str, absolute, relative| {
            check_close_to(a.as_bytes(), b.as_bytes(), absolute, relative).outcome
        };
        assert_eq!(outcome("1.0 2.0", "[1.0, 2.0]", 0.0, 0.0), CheckOutcome::Passed);
        assert_eq!(outcome("1.01 200", "1 199", 0.02, 0.01), CheckOutcome::Passed);
        assert_eq!(outcome("1.03", "1", 0.02, 0.01), CheckOutcome::Failed);
        assert_eq!(outcome("1 2", "1", 9.0, 9.0), CheckOutcome::Failed, "one too many");
        assert_eq!(outcome("nothing", "here", 0.0, 0.0), CheckOutcome::Error);
        assert_eq!(
            outcome("NaN inf", "1 2", 0.0, 0.0),
            CheckOutcome::Failed,
            "what is no number is not close to one"
        );
    }

    #[test]
    fn a_place_in_a_document_is_compared_as_a_value() {
        let document = br#"{"results": [{"passed": 3, "name": "a"}]}"#;
        let outcome = |pointer: &str, equals: Value| check_json_property(document, pointer, &equals).outcome;
        assert_eq!(outcome("/results/0/passed", 3.into()), CheckOutcome::Passed);
        assert_eq!(outcome("/results/0/passed", 3.0.into()), CheckOutcome::Passed);
        assert_eq!(outcome("/results/0/passed", "3".into()), CheckOutcome::Failed);
        assert_eq!(outcome("/results/1/passed", 3.into()), CheckOutcome::Failed);
        assert_eq!(check_json_property(b"{", "", &Value::Null).outcome, CheckOutcome::Error);
    }
}
