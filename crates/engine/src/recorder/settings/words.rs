//! Parses the words of recorder settings: lists of parts and kinds, sizes, and rates.

use std::collections::{BTreeMap, BTreeSet};

use stepback_model::nearest::nearest_word;
use stepback_model::record::StepKind;

use super::sampling::can_be_sampled;
use super::{CapturedPart, MAX_LIMIT_BYTES, MIN_LIMIT_BYTES, RecorderSettingError};

/// The most that a rate can be.
const MAX_RATE: u64 = 1_000_000_000;

/// Kinds of steps under the names that other recorders give them.
const OTHER_NAMES: [(&str, StepKind); 5] = [
    ("tool-call-start", StepKind::ToolStart),
    ("tool-call-end", StepKind::ToolEnd),
    ("llm-call-start", StepKind::ModelStart),
    ("llm-call-end", StepKind::ModelEnd),
    ("decision-point", StepKind::Decision),
];

/// Returns the only word, if there is one.
fn only(words: &[String]) -> Option<&str> {
    match words {
        [word] => Some(word),
        _ => None,
    }
}

/// Parses a list of parts: `all`, `none`, or names; `no-NAME` takes one away from all.
pub(super) fn parse_capture(words: &[String]) -> Result<BTreeSet<CapturedPart>, RecorderSettingError> {
    let find = |word: &str| {
        CapturedPart::parse(&plain(word)).ok_or_else(|| {
            let known = CapturedPart::ALL.map(CapturedPart::as_str);
            RecorderSettingError::UnknownWord {
                word: word.to_owned(),
                what: "a part that can be recorded",
                nearest: nearest_word(word, known),
                known: [&["all", "none"], &known[..]].concat(),
            }
        })
    };
    if words.is_empty() {
        return Err(RecorderSettingError::Empty);
    }
    if only(words) == Some("none") {
        return Ok(BTreeSet::new());
    }
    let is_added = |word: &String| word != "all" && !word.starts_with("no-");
    let mut parts: BTreeSet<CapturedPart> = match words.iter().any(is_added) {
        true => BTreeSet::new(),
        false => CapturedPart::ALL.into(),
    };
    for word in words {
        match word.strip_prefix("no-") {
            Some(name) => drop(parts.remove(&find(name)?)),
            None if word == "all" => parts.extend(CapturedPart::ALL),
            None => drop(parts.insert(find(word)?)),
        }
    }
    Ok(parts)
}

/// Parses a list of kinds; `None` for all.
pub(super) fn parse_kinds(words: &[String]) -> Result<Option<BTreeSet<StepKind>>, RecorderSettingError> {
    match words {
        [] => Err(RecorderSettingError::Empty),
        words if words.iter().any(|word| word == "all") => Ok(None),
        words if only(words) == Some("none") => Ok(Some(BTreeSet::new())),
        words => words.iter().map(|word| find_kind(word)).collect::<Result<_, _>>().map(Some),
    }
}

fn find_kind(word: &str) -> Result<StepKind, RecorderSettingError> {
    let name = plain(word);
    let other = || OTHER_NAMES.iter().find(|(other, _)| *other == name).map(|(_, kind)| *kind);
    StepKind::parse(&name).or_else(other).ok_or_else(|| {
        let known = StepKind::ALL.map(StepKind::as_str);
        RecorderSettingError::UnknownWord {
            word: word.to_owned(),
            what: "a kind of step",
            nearest: nearest_word(word, known),
            known: known.to_vec(),
        }
    })
}

/// The word as stepback writes it: in lower case, with hyphens.
fn plain(word: &str) -> String {
    word.trim().to_lowercase().replace('_', "-")
}

/// Parses rates: `10` for every frequent kind, `tool-start=10` for one kind.
pub(super) fn parse_sample(words: &[String]) -> Result<(u64, BTreeMap<StepKind, u64>), RecorderSettingError> {
    if words.is_empty() {
        return Err(RecorderSettingError::Empty);
    }
    let (mut frequent, mut each) = (1, BTreeMap::new());
    for word in words {
        match word.split_once('=') {
            None => frequent = parse_rate(word)?,
            Some((kind, rate)) => {
                let kind = find_kind(kind)?;
                if !can_be_sampled(kind) {
                    return Err(RecorderSettingError::NotSampled { kind: kind.as_str() });
                }
                each.insert(kind, parse_rate(rate)?);
            }
        }
    }
    Ok((frequent, each))
}

/// Parses a rate: one in so many, or the share as a decimal fraction (`0.1` is one in ten).
fn parse_rate(word: &str) -> Result<u64, RecorderSettingError> {
    let invalid = || RecorderSettingError::NotANumber {
        word: word.to_owned(),
        what: "a rate; write 10 (or 0.1) to record one in ten",
    };
    match word.trim().parse::<f64>() {
        Ok(0.0) => Err(RecorderSettingError::SampleOfZero),
        Ok(share) if share > 0.0 && share < 1.0 => match (1.0 / share).round() {
            rate if rate <= MAX_RATE as f64 => Ok(rate as u64),
            _ => Err(invalid()),
        },
        Ok(rate) if (1.0..=MAX_RATE as f64).contains(&rate) && rate.fract() == 0.0 => Ok(rate as u64),
        _ => Err(invalid()),
    }
}

/// Parses a limit in bytes, with an optional unit; `None` for `full`.
pub(super) fn parse_bytes(words: &[String]) -> Result<Option<u64>, RecorderSettingError> {
    let Some(word) = only(words) else {
        return Err(match words.first() {
            None => RecorderSettingError::Empty,
            Some(_) => not_a_size(&words.join(",")),
        });
    };
    let text = word.trim().to_lowercase();
    if text == "full" {
        return Ok(None);
    }
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text[digits.len()..].trim() {
        "" | "b" => 1,
        "k" | "kb" => 1_000,
        "kib" => 1 << 10,
        "m" | "mb" => 1_000_000,
        "mib" => 1 << 20,
        _ => return Err(not_a_size(word)),
    };
    if digits.trim().is_empty() || !digits.trim().bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(not_a_size(word));
    }
    // Digits only: a number that does not fit is too large.
    let number = digits.trim().parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    match number {
        Some(number) if (MIN_LIMIT_BYTES..=MAX_LIMIT_BYTES).contains(&number) => Ok(Some(number)),
        Some(number) => Err(RecorderSettingError::LimitOutOfRange { number: number.to_string() }),
        None => Err(RecorderSettingError::LimitOutOfRange { number: word.to_owned() }),
    }
}

fn not_a_size(word: &str) -> RecorderSettingError {
    RecorderSettingError::NotANumber {
        word: word.to_owned(),
        what: "a size; write a number of bytes, 64KiB, 1MB, or \"full\" to keep everything",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(',').map(str::to_owned).filter(|word| !word.is_empty()).collect()
    }

    fn error<T: std::fmt::Debug>(result: Result<T, RecorderSettingError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn limits_that_cannot_work_say_what_to_write_instead() {
        for text in ["0", "1", "255", "1000000000", "99999999999999999999999"] {
            let error = error(parse_bytes(&words(text)));
            assert!(error.contains("between 256 and 67108864") && error.contains("\"full\""), "{error}");
        }
        for text in ["-1", "many", "1.5", "64 q", "k", "1,2"] {
            assert!(error(parse_bytes(&words(text))).contains("is not a size"), "{text}");
        }
        assert_eq!(parse_bytes(&words("64KiB")), Ok(Some(65536)));
        assert_eq!(parse_bytes(&words("1 MB")), Ok(Some(1_000_000)));
        assert_eq!(parse_bytes(&words("full")), Ok(None));
        assert_eq!(parse_bytes(&[]), Err(RecorderSettingError::Empty));
    }

    #[test]
    fn rates_are_one_in_so_many() {
        assert_eq!(parse_sample(&words("0")), Err(RecorderSettingError::SampleOfZero));
        assert_eq!(parse_sample(&words("tool-start=0.0")), Err(RecorderSettingError::SampleOfZero));
        assert_eq!(parse_sample(&words("0.25")).unwrap().0, 4);
        let both = parse_sample(&words("10,model_start=3")).unwrap();
        assert_eq!(both, (10, BTreeMap::from([(StepKind::ModelStart, 3)])));
        for text in ["-1", "1.5", "x", "1e300", "0.0000000000001"] {
            assert!(error(parse_sample(&words(text))).contains("is not a rate"), "{text}");
        }
        assert!(error(parse_sample(&words("gap=2"))).contains("always recorded"));
    }

    #[test]
    fn a_misspelt_word_gets_the_nearest_one() {
        assert!(error(parse_kinds(&words("tool-strat"))).contains("did you mean \"tool-start\"?"));
        assert!(
            error(parse_capture(&words("modelbodies,output"))).contains("did you mean \"model-bodies\"?")
        );
        assert_eq!(parse_kinds(&words("tool_call_start")).unwrap().unwrap(), [StepKind::ToolStart].into());
        assert_eq!(parse_kinds(&words("all")), Ok(None));
    }

    #[test]
    fn parts_are_named_or_taken_away() {
        use CapturedPart::{Conversation, Inputs, Outputs};
        assert_eq!(parse_capture(&words("inputs,outputs")).unwrap(), [Inputs, Outputs].into());
        let without = parse_capture(&words("no-conversation")).unwrap();
        assert!(!without.contains(&Conversation) && without.len() == CapturedPart::ALL.len() - 1);
        assert_eq!(without, parse_capture(&words("all,no-conversation")).unwrap());
        assert!(parse_capture(&words("none")).unwrap().is_empty());
        assert_eq!(parse_capture(&[]), Err(RecorderSettingError::Empty));
    }
}
