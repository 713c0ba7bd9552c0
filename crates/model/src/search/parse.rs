//! Parses the text of a search into a pattern: `word`, `"a phrase"`, `begin*`, `-not`.

use super::{Pattern, PatternError, Phrase, find, words};

/// Maximum length of a search, in bytes.
pub const LONGEST: usize = 4096;
/// Maximum number of words in a search.
pub const MOST: usize = 64;

impl Pattern {
    /// Parses `word "a phrase" begin* -not`. All named terms must occur, in any order, and none that has a minus before it.
    /// Punctuation between the words of a term (`src/main.rs`) only means that the words are consecutive.
    pub fn words(text: &str) -> Result<Self, PatternError> {
        if text.len() > LONGEST {
            return Err(PatternError::TooLong);
        }
        let (mut with, mut without) = (Vec::new(), Vec::new());
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let negated = rest.starts_with('-');
            let after = if negated { &rest[1..] } else { rest };
            let (term, quoted, next) = match after.strip_prefix('"') {
                Some(inside) => {
                    let end = inside.find('"').ok_or(PatternError::Unclosed)?;
                    (&inside[..end], true, &inside[end + 1..])
                }
                None => {
                    let end = after.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(after.len());
                    (&after[..end], false, &after[end..])
                }
            };
            let star_after = quoted && next.starts_with('*');
            let phrase = Phrase {
                words: words(term).map(|word| word.text.into_owned()).collect(),
                prefix: star_after || (!quoted && term.ends_with('*')),
            };
            if phrase.words.is_empty() {
                let shown = if negated { format!("-{term}") } else { term.to_string() };
                return Err(PatternError::NoWord { term: shown.chars().take(40).collect() });
            }
            if negated {
                without.push(phrase)
            } else {
                with.push(phrase)
            }
            rest = next[usize::from(star_after)..].trim_start();
        }
        let count: usize = with.iter().chain(&without).map(|phrase| phrase.words.len()).sum();
        match (with.is_empty(), without.is_empty()) {
            _ if count > MOST => Err(PatternError::TooMany),
            (true, true) => Err(PatternError::Empty),
            (true, false) => Err(PatternError::OnlyWithout),
            (false, _) => Ok(Self::Words { with, without }),
        }
    }

    /// Searches for exactly these characters; only the case of letters is ignored.
    pub fn substring(text: &str) -> Result<Self, PatternError> {
        match text.len() {
            0 => Err(PatternError::Empty),
            length if length > LONGEST => Err(PatternError::TooLong),
            _ => Ok(Self::Substring(find::fold(text))),
        }
    }
}
