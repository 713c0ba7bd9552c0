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
        let (mut included, mut excluded) = (Vec::new(), Vec::new());
        let mut remaining = text.trim_start();
        while !remaining.is_empty() {
            let negated = remaining.starts_with('-');
            let unsigned = if negated { &remaining[1..] } else { remaining };
            let (term, quoted, next) = match unsigned.strip_prefix('"') {
                Some(inside) => {
                    let end = inside.find('"').ok_or(PatternError::Unclosed)?;
                    (&inside[..end], true, &inside[end + 1..])
                }
                None => {
                    let end =
                        unsigned.find(|c: char| c.is_whitespace() || c == '"').unwrap_or(unsigned.len());
                    (&unsigned[..end], false, &unsigned[end..])
                }
            };
            let star_after = quoted && next.starts_with('*');
            let phrase = Phrase {
                words: words(term).map(|word| word.text.into_owned()).collect(),
                prefix: star_after || (!quoted && term.ends_with('*')),
            };
            if phrase.words.is_empty() {
                let display_term = if negated { format!("-{term}") } else { term.to_string() };
                return Err(PatternError::NoWord { term: display_term.chars().take(40).collect() });
            }
            if negated {
                excluded.push(phrase)
            } else {
                included.push(phrase)
            }
            remaining = next[usize::from(star_after)..].trim_start();
        }
        let count: usize = included.iter().chain(&excluded).map(|phrase| phrase.words.len()).sum();
        match (included.is_empty(), excluded.is_empty()) {
            _ if count > MOST => Err(PatternError::TooMany),
            (true, true) => Err(PatternError::Empty),
            (true, false) => Err(PatternError::OnlyWithout),
            (false, _) => Ok(Self::Words { with: included, without: excluded }),
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
