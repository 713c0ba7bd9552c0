//! Substring search: maps a substring to the indexed words that may contain its parts.
//!
//! A substring is split into runs of word characters. A run with other characters on both sides is a whole word. A run at
//! an edge is the end or the beginning of a word, and a run that is the whole substring may be anywhere inside of one.
//! Every step that contains the substring has such words, so only the steps of these words have to be read.

use stepback_model::search::{LONGEST_WORD, words};
use tokio_postgres::Error;

use crate::pool::Connection;

/// With more words than this, reading all of their places takes longer than reading all texts.
const MAX_CANDIDATE_WORDS: usize = 4000;

/// What a substring says about one word. The text is case-folded, and at most as long as the index keeps words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// The whole word.
    Whole(String),
    /// The beginning of the word.
    Beginning(String),
    /// The end of the word.
    End(String),
    /// Any part of the word.
    Inside(String),
}

/// The words that match a part.
#[derive(Default)]
pub(crate) struct TermMatch {
    /// Words that are stored uncut.
    pub short: Vec<i32>,
    /// Words so long that they were cut off; whether they match is unknown.
    pub cut: Vec<i32>,
}

/// The parts of the substring `substring`. A long word at an edge gives no part, since the index keeps only the beginning of
/// such words.
pub(crate) fn substring_parts(substring: &str) -> Vec<Part> {
    words(substring)
        .filter_map(|word| {
            let (first, last) = (word.start == 0, word.end == substring.len());
            if first && substring[..word.end].chars().count() > LONGEST_WORD {
                return None;
            }
            Some(match (first, last) {
                (true, true) => Part::Inside(word.text.into_owned()),
                (true, false) => Part::End(word.text.into_owned()),
                (false, true) => Part::Beginning(word.text.into_owned()),
                (false, false) => Part::Whole(word.text.into_owned()),
            })
        })
        .collect()
}

impl Part {
    /// The part as a pattern for `LIKE`.
    fn like_pattern(&self) -> String {
        let (prefix, text, suffix) = match self {
            Self::Whole(text) => ("", text, ""),
            Self::Beginning(text) => ("", text, "%"),
            Self::End(text) => ("%", text, ""),
            Self::Inside(text) => ("%", text, "%"),
        };
        // Of the special characters of `LIKE`, words contain only this one.
        format!("{prefix}{}{suffix}", text.replace('_', "\\_"))
    }
}

/// The words that match a part.
pub(crate) async fn words_fitting(
    connection: &mut Connection,
    part: &Part,
    limit: usize,
) -> Result<Vec<(i32, bool)>, Error> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let pattern = part.like_pattern();
    let rows = match part {
        Part::Beginning(begin) => {
            // In byte order, all words with this prefix are adjacent; no word contains this character.
            let end = format!("{begin}\u{10ffff}");
            let sql = "SELECT id, char_length(word) >= 64 FROM stepback_words WHERE word >= $1 AND word < $2 LIMIT $3";
            connection.rows(sql, &[begin, &end, &limit]).await?
        }
        _ => {
            let sql = "SELECT id, char_length(word) >= 64 FROM stepback_words WHERE word LIKE $1 LIMIT $2";
            connection.rows(sql, &[&pattern, &limit]).await?
        }
    };
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// The ids of all words that match a part.
pub(crate) async fn words_of(connection: &mut Connection, part: &Part) -> Result<Vec<i32>, Error> {
    Ok(words_fitting(connection, part, usize::MAX).await?.into_iter().map(|(id, _)| id).collect())
}

/// The words that may contain a part; `None` if there are too many to be useful.
pub(crate) async fn few_words(connection: &mut Connection, part: &Part) -> Result<Option<TermMatch>, Error> {
    let words = words_fitting(connection, part, MAX_CANDIDATE_WORDS + 1).await?;
    let mut fitting = TermMatch::default();
    for (id, long) in words {
        if long { fitting.cut.push(id) } else { fitting.short.push(id) }
    }
    if matches!(part, Part::End(_) | Part::Inside(_)) {
        // The part may have been in what was cut off.
        let sql = "SELECT id FROM stepback_words WHERE char_length(word) >= 64 LIMIT $1";
        let max_words = MAX_CANDIDATE_WORDS as i64 + 1;
        for row in connection.rows(sql, &[&max_words]).await? {
            fitting.cut.push(row.try_get(0)?);
        }
        fitting.cut.sort_unstable();
        fitting.cut.dedup();
    }
    Ok((fitting.short.len() + fitting.cut.len() <= MAX_CANDIDATE_WORDS).then_some(fitting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_substring_falls_apart_into_what_is_known_of_its_words() {
        let part = |make: fn(String) -> Part, text: &str| make(text.to_string());
        assert_eq!(substring_parts("oo_ba"), [part(Part::Inside, "oo_ba")]);
        assert_eq!(substring_parts("(&mut y)?"), [part(Part::Whole, "mut"), part(Part::Whole, "y")]);
        assert_eq!(
            substring_parts("ain.rs:1"),
            [part(Part::End, "ain"), part(Part::Whole, "rs"), part(Part::Beginning, "1")]
        );
        assert_eq!(substring_parts("%"), []);
        let long = "a".repeat(100);
        assert_eq!(substring_parts(&long), []);
        assert_eq!(substring_parts(&format!(".{long}.")), [Part::Whole("a".repeat(64))]);
        assert_eq!(part(Part::Inside, "oo_ba").like_pattern(), "%oo\\_ba%");
    }
}
