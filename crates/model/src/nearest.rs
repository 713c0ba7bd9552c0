//! Suggestions for misspelt words: how similar two are, and the known one nearest to a misspelt one.

/// The candidate most similar to `word`; `None` if none is similar. Case and the separators between words are ignored.
pub fn nearest_word<'a>(word: &str, candidate: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let normalize = |text: &str| {
        let letters = text.chars().filter(|c| !matches!(c, '-' | '_' | ' '));
        letters.flat_map(char::to_lowercase).collect::<String>()
    };
    let normalized_word = normalize(word);
    let distance = |candidate: &str| {
        let candidate = normalize(candidate);
        // A part of a name is most likely meant as that name.
        let is_part = normalized_word.len() > 2
            && (candidate.starts_with(&normalized_word) || normalized_word.starts_with(&candidate));
        if is_part { 1 } else { edit_distance(&normalized_word, &candidate) }
    };
    let (distance, best) = candidate.into_iter().map(|candidate| (distance(candidate), candidate)).min()?;
    (distance * 2 <= normalized_word.chars().count().max(2)).then_some(best)
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
