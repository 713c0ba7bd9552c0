//! Commands of a POSIX shell: quoting for those that users copy, and reading those that agents run.

use serde_json::Value;

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

/// Splits a command line into its words, as a shell does that expands nothing. `None` if a quote is not closed.
pub fn split_words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                // Quotes with nothing between them are a word.
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => word.get_or_insert_default().push(chars.next()?),
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

/// Returns the command in the input of a call. A patch does not count, although some agents send it as a command.
pub fn command_line(input: &Value) -> Option<String> {
    let value =
        ["/command", "/cmd", "/script", "/action/command"].iter().find_map(|place| input.pointer(place))?;
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(words) => {
            let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            match words.as_slice() {
                [_, "-c" | "-lc", script] => (*script).to_owned(),
                words => words.join(" "),
            }
        }
        _ => return None,
    };
    (!text.trim().is_empty() && !text.trim_start().starts_with("*** Begin Patch")).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_quoted_only_if_it_must_be() {
        let words = ["/usr/bin/a-b", "", "it's", "a b", "$HOME"].map(str::to_owned);
        assert_eq!(quote_words(&words), r"/usr/bin/a-b '' 'it'\''s' 'a b' '$HOME'");
        assert_eq!(split_words(&quote_words(&words)).as_deref(), Some(words.as_slice()));
    }

    #[test]
    fn words_are_split_as_a_shell_does() {
        let split = |line: &str| split_words(line).map(|words| words.join("|"));
        assert_eq!(split("  log  -n 5 ").as_deref(), Some("log|-n|5"));
        assert_eq!(split("save \"a b\" ''").as_deref(), Some("save|a b|"));
        assert_eq!(split("f\\ g \"h\\\"i\"").as_deref(), Some("f g|h\"i"));
        assert_eq!(split("it's"), None);
        assert_eq!(split("").as_deref(), Some(""));
    }
}
