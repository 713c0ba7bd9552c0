//! Suggestions for misspelt words: how similar two are, and the known one nearest to a misspelt one.

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

/// The number of letters that must be added, removed, replaced or swapped with their neighbour to turn `a` into `b`.
pub fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().take(40).collect(), b.chars().take(40).collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replace = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replace.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
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
