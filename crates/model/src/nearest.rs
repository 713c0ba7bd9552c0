//! Suggestions for misspelt words.

use crate::time_expr::edit_distance;

/// The word of `known` that is most similar to `word`; `None` if none is similar. Case and the separators between words are
/// ignored.
pub fn nearest_word<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| {
        let letters = text.chars().filter(|c| !matches!(c, '-' | '_' | ' '));
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    let wanted = plain(word);
    let distance = |known: &str| {
        let known = plain(known);
        // A part of a name is most likely meant as that name.
        let is_part = wanted.len() > 2 && (known.starts_with(&wanted) || wanted.starts_with(&known));
        if is_part { 1 } else { edit_distance(&wanted, &known) }
    };
    let (distance, found) = known.into_iter().map(|known| (distance(known), known)).min()?;
    (distance * 2 <= wanted.chars().count().max(2)).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_found_and_an_unrelated_one_is_not() {
        let known = ["limit", "after", "min_duration", "session"];
        for (word, found) in [
            ("limt", Some("limit")),
            ("minDuration", Some("min_duration")),
            ("sesion_id", Some("session")),
            ("Limit", Some("limit")),
            ("zzzz", None),
        ] {
            assert_eq!(nearest_word(word, known), found, "{word}");
        }
    }
}
