//! Quoting for a POSIX shell, in commands that users copy and agents run.

/// Quotes `text` as one word.
pub fn quote_word(text: &str) -> String {
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if !text.is_empty() && text.chars().all(is_safe) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes every word, with spaces between them.
pub fn quote_words(words: &[String]) -> String {
    words.iter().map(|word| quote_word(word)).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_if_it_must_be() {
        let words = ["/usr/bin/a-b", "", "it's", "a b", "$HOME"].map(str::to_owned);
        assert_eq!(quote_words(&words), r"/usr/bin/a-b '' 'it'\''s' 'a b' '$HOME'");
    }
}
