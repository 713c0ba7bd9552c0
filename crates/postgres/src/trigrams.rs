//! Parts of words: from the characters somebody looks for to the words that may have them.
//!
//! A substring falls apart into runs of word characters. A run with something else on both sides is a word; one at an edge is
//! the end or the beginning of one, and one that is all of it may be anywhere inside. Every step that has the substring has
//! such words, so that only their steps have to be looked at.

use stepback_model::search::{LONGEST_WORD, words};
use tokio_postgres::Error;

use crate::pool::Connection;

/// With more words than this, reading all of their places takes longer than reading all texts.
const TOO_MANY: usize = 4000;

/// What is known of a word; folded, and at most as long as words are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// All of it.
    Whole(String),
    /// How it begins.
    Beginning(String),
    /// How it ends.
    End(String),
    /// Something in it.
    Inside(String),
}

/// Words that fit a part.
#[derive(Default)]
pub(crate) struct TermMatch {
    /// Those that are known whole.
    pub short: Vec<i32>,
    /// Those that are so long that they were cut off; whether they fit is not known.
    pub cut: Vec<i32>,
}

/// The parts of what is looked for. A long word at its edge is none: of such words only the beginning is kept.
pub(crate) fn of(wanted: &str) -> Vec<Part> {
    words(wanted)
        .filter_map(|word| {
            let (first, last) = (word.start == 0, word.end == wanted.len());
            if first && wanted[..word.end].chars().count() > LONGEST_WORD {
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
    /// As a pattern for `LIKE`.
    fn pattern(&self) -> String {
        let (before, text, after) = match self {
            Self::Whole(text) => ("", text, ""),
            Self::Beginning(text) => ("", text, "%"),
            Self::End(text) => ("%", text, ""),
            Self::Inside(text) => ("%", text, "%"),
        };
        // Of the signs that mean something there, words have only this one.
        format!("{before}{}{after}", text.replace('_', "\\_"))
    }
}

/// The words that fit a part.
pub(crate) async fn words_fitting(
    connection: &mut Connection,
    part: &Part,
    most: usize,
) -> Result<Vec<(i32, bool)>, Error> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let pattern = part.pattern();
    let rows = match part {
        Part::Beginning(begin) => {
            // In byte order, all words that begin so are together; no word has this character.
            let end = format!("{begin}\u{10ffff}");
            let sql = "SELECT id, char_length(word) >= 64 FROM stepback_words WHERE word >= $1 AND word < $2 LIMIT $3";
            connection.rows(sql, &[begin, &end, &most]).await?
        }
        _ => {
            let sql = "SELECT id, char_length(word) >= 64 FROM stepback_words WHERE word LIKE $1 LIMIT $2";
            connection.rows(sql, &[&pattern, &most]).await?
        }
    };
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

/// The ids of all words that fit a part.
pub(crate) async fn words_of(connection: &mut Connection, part: &Part) -> Result<Vec<i32>, Error> {
    Ok(words_fitting(connection, part, usize::MAX).await?.into_iter().map(|(id, _)| id).collect())
}

/// The words that may have a part, unless there are too many to be of use.
pub(crate) async fn few_words(connection: &mut Connection, part: &Part) -> Result<Option<TermMatch>, Error> {
    let found = words_fitting(connection, part, TOO_MANY + 1).await?;
    let mut fitting = TermMatch::default();
    for (id, long) in found {
        if long { fitting.cut.push(id) } else { fitting.short.push(id) }
    }
    if matches!(part, Part::End(_) | Part::Inside(_)) {
        // What was cut off may have had it.
        let sql = "SELECT id FROM stepback_words WHERE char_length(word) >= 64 LIMIT $1";
        let most = TOO_MANY as i64 + 1;
        for row in connection.rows(sql, &[&most]).await? {
            fitting.cut.push(row.try_get(0)?);
        }
        fitting.cut.sort_unstable();
        fitting.cut.dedup();
    }
    Ok((fitting.short.len() + fitting.cut.len() <= TOO_MANY).then_some(fitting))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_substring_falls_apart_into_what_is_known_of_its_words() {
        let part = |make: fn(String) -> Part, text: &str| make(text.to_string());
        assert_eq!(of("oo_ba"), [part(Part::Inside, "oo_ba")]);
        assert_eq!(of("(&mut y)?"), [part(Part::Whole, "mut"), part(Part::Whole, "y")]);
        assert_eq!(
            of("ain.rs:1"),
            [part(Part::End, "ain"), part(Part::Whole, "rs"), part(Part::Beginning, "1")]
        );
        assert_eq!(of("%"), []);
        let long = "a".repeat(100);
        assert_eq!(of(&long), []);
        assert_eq!(of(&format!(".{long}.")), [Part::Whole("a".repeat(64))]);
        assert_eq!(part(Part::Inside, "oo_ba").pattern(), "%oo\\_ba%");
    }
}
