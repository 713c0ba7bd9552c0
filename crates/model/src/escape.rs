//! Escapes untrusted text for display: characters that would control the terminal or deceive the reader become visible.
//!
//! All of stepback uses this one rule. Hidden are control characters, those that change the direction of text, line
//! separators, those without width, and tags. The joiners U+200C and U+200D are not: scripts and emoji need them.

/// Whether a character would control the terminal or deceive the reader instead of being visible.
pub fn is_hidden(c: char) -> bool {
    (c.is_control() && c != '\t')
        || matches!(
            c,
            '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}'
        )
}

/// The escape for a character that must not be printed.
pub fn escape(c: char) -> String {
    match c {
        '\t' | '\r' | '\n' => c.escape_default().to_string(),
        // Not `\x1b`: that stands for a byte that is not UTF-8, where such bytes are shown.
        c => c.escape_unicode().to_string(),
    }
}

/// Escapes everything in a text that must not be printed, tabs included.
pub fn safe(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match is_hidden(c) || c == '\t' {
            true => out.push_str(&escape(c)),
            false => out.push(c),
        }
    }
    out
}

/// The first `max_chars` characters of a text, escaped: untrusted input as an error message repeats it.
pub fn excerpt(text: &str, max_chars: usize) -> String {
    let end = text.char_indices().nth(max_chars).map_or(text.len(), |(offset, _)| offset);
    safe(&text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_acts_on_a_terminal_is_written_out() {
        assert_eq!(safe("a\x1b[31m\tb\r\n"), "a\\u{1b}[31m\\tb\\r\\n");
        assert_eq!(safe("\u{202e}txt\u{9b}"), "\\u{202e}txt\\u{9b}");
        assert_eq!(safe("größe 日本"), "größe 日本");
        assert_eq!(safe("a\u{200b}b\u{e0041}\u{2063}"), "a\\u{200b}b\\u{e0041}\\u{2063}");
        assert_eq!(safe("👩\u{200d}🚀"), "👩\u{200d}🚀");
    }

    #[test]
    fn an_excerpt_counts_characters_before_they_are_escaped() {
        assert_eq!(excerpt("ä\nb", 2), "ä\\n");
        assert_eq!(excerpt("ab", 9), "ab");
    }
}
