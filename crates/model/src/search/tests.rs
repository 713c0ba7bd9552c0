//! Tests of [`crate::search`]: what matches and what does not, and that no input breaks the parser.

use proptest::prelude::*;

use super::*;

fn texts(text: &str) -> Texts {
    Texts::from([(TextField::Input, text.to_string())])
}

fn found(pattern: &str, text: &str) -> bool {
    Pattern::words(pattern).unwrap().matches(&texts(text))
}

#[test]
fn words_phrases_beginnings_and_what_is_left_out() {
    let text = "Cargo build failed: src/main.rs:12 cannot borrow `x` as mutable";
    for yes in [
        "cargo",
        "FAILED cargo",
        "\"cannot borrow\"",
        "src/main.rs",
        "main.rs:12",
        "mut*",
        "\"as mut\"*",
        "borrow -immutable",
        "borrow -\"borrow cannot\"",
    ] {
        assert!(found(yes, text), "{yes}");
    }
    for no in
        ["carg", "\"borrow cannot\"", "rs/main", "cargo -failed", "cargo -mut*", "cargo and", "x OR nothing"]
    {
        assert!(!found(no, text), "{no}");
    }
    assert!(found("größe", "GRÖSSE oder Größe"));
}

#[test]
fn a_phrase_does_not_go_over_from_one_field_to_another() {
    let texts =
        Texts::from([(TextField::Input, "red green".to_string()), (TextField::Output, "blue".to_string())]);
    assert!(Pattern::words("green blue").unwrap().matches(&texts));
    assert!(!Pattern::words("\"green blue\"").unwrap().matches(&texts));
}

#[test]
fn what_cannot_be_understood_is_said() {
    for (text, error) in [
        ("", PatternError::Empty),
        ("  ", PatternError::Empty),
        ("-no", PatternError::OnlyWithout),
        ("\"open", PatternError::Unclosed),
        ("a -\"", PatternError::Unclosed),
        ("&&", PatternError::NoWord { term: "&&".into() }),
        ("*", PatternError::NoWord { term: "*".into() }),
        ("\0", PatternError::NoWord { term: "\0".into() }),
        ("a -", PatternError::NoWord { term: "-".into() }),
    ] {
        assert_eq!(Pattern::words(text), Err(error), "{text:?}");
    }
    assert_eq!(Pattern::words(&"a".repeat(1 << 20)), Err(PatternError::TooLong));
    assert_eq!(Pattern::words(&"a ".repeat(65)), Err(PatternError::TooMany));
    assert_eq!(Pattern::substring(""), Err(PatternError::Empty));
}

#[test]
fn a_snippet_shows_what_is_around_it() {
    let text = format!("{}needle and needles{}", "ä ".repeat(100), " z".repeat(200));
    let snippets = Pattern::words("needle*").unwrap().snippets(&texts(&text));
    let [snippet] = &snippets[..] else { panic!("{snippets:?}") };
    let marked: Vec<&str> = snippet.marks.iter().map(|(from, to)| &snippet.text[*from..*to]).collect();
    assert_eq!((marked, snippet.cut), (vec!["needle", "needles"], (true, true)));
    assert!(snippet.text.len() < 220);
    let snippets = Pattern::substring("LE AND").unwrap().snippets(&texts(&text));
    let (from, to) = snippets[0].marks[0];
    assert_eq!(&snippets[0].text[from..to], "le and");
}

proptest! {
    #[test]
    fn nothing_that_is_typed_breaks_anything(pattern in "\\PC{0,40}|[\"*a b\\-]{0,12}", text in "\\PC{0,80}|[ab ]{0,30}") {
        for pattern in [Pattern::words(&pattern), Pattern::substring(&pattern)].into_iter().flatten() {
            let texts = texts(&text);
            let matches = pattern.matches(&texts);
            let snippets = pattern.snippets(&texts);
            prop_assert!(!matches || !snippets.is_empty());
            for snippet in snippets {
                for (from, to) in snippet.marks {
                    prop_assert!(!snippet.text[from..to].is_empty());
                }
            }
        }
    }
}
