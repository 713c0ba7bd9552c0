//! Recorded text as HTML: nothing in it can become markup, act on the page, or deceive the reader.

use std::borrow::Cow;

use stepback_model::escape::{escape, is_hidden};

/// Adds a text. Characters that are not visible, or change the direction of text, are written out.
pub fn push_text(out: &mut String, text: &str) {
    push(out, text, true);
}

/// Adds the value of an attribute, which must stand in double quotes.
pub fn push_attribute(out: &mut String, text: &str) {
    push(out, text, false);
}

fn push(out: &mut String, text: &str, is_element: bool) {
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            '\r' if chars.peek() == Some(&'\n') => {}
            c if is_hidden(c) && is_element => {
                out.push_str("<i class=\"esc\">");
                out.push_str(&escape(c));
                out.push_str("</i>");
            }
            c if is_hidden(c) => out.push_str(&escape(c)),
            c => out.push(c),
        }
    }
}

/// Removes the control sequences by which programs colour their output. Any other control character stays, and is written out.
pub fn strip_terminal_sequences(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\u{1b}') {
        out.push_str(&rest[..at]);
        let sequence = &rest[at..];
        let length = sequence_length(sequence);
        if length == 0 {
            out.push('\u{1b}');
        }
        rest = &sequence[length.max(1)..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// The length of the control sequence that a text begins with; 0 if it is none.
fn sequence_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    match bytes.get(1) {
        Some(b'[') => {
            let parameters = bytes[2..].iter().take_while(|byte| (0x20..0x40).contains(*byte)).count();
            match bytes.get(2 + parameters) {
                Some(0x40..=0x7e) => 3 + parameters,
                _ => 0,
            }
        }
        // A hyperlink or a title: up to BEL or ESC \.
        Some(b']') => {
            let end = bytes[2..].iter().position(|byte| matches!(byte, 0x07 | 0x1b));
            match end.map(|end| (end + 2, bytes[end + 2])) {
                Some((end, 0x07)) => end + 1,
                Some((end, _)) if bytes.get(end + 1) == Some(&b'\\') => end + 2,
                _ => 0,
            }
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        let mut out = String::new();
        push_text(&mut out, text);
        out
    }

    #[test]
    fn nothing_recorded_becomes_markup() {
        assert_eq!(
            text("</script><b a='1' b=\"2\">&"),
            "&lt;/script&gt;&lt;b a=&#39;1&#39; b=&quot;2&quot;&gt;&amp;"
        );
        assert_eq!(text("a\u{202e}b"), "a<i class=\"esc\">\\u{202e}</i>b");
        assert_eq!(text("a\r\nb\rc\td"), "a\nb<i class=\"esc\">\\r</i>c\td");
        assert_eq!(text("größe 👩\u{200d}🚀"), "größe 👩\u{200d}🚀");
    }

    #[test]
    fn colours_of_programs_go_and_other_sequences_stay_visible() {
        assert_eq!(strip_terminal_sequences("\u{1b}[1;31merror\u{1b}[0m: x"), "error: x");
        assert_eq!(strip_terminal_sequences("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{7}"), "link");
        assert_eq!(strip_terminal_sequences("a\u{1b}"), "a\u{1b}");
        assert_eq!(strip_terminal_sequences("\u{1b}[31"), "\u{1b}[31");
        assert_eq!(strip_terminal_sequences("\u{1b}]0;t"), "\u{1b}]0;t");
    }
}
