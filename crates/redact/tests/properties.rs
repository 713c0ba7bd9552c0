//! What holds for any text: the same however it is cut, the same a second time, never a panic.

mod support;

use proptest::prelude::*;
use stepback_redact::{Stream, redact};
use support::{HEX, MIXED, draw};

/// Pieces that mean something to the scanner, put together without sense.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "password",
            "token",
            "API_KEY",
            "secret",
            "Authorization",
            "Cookie",
            "Set-Cookie",
            "Bearer ",
            "Basic ",
            "mysql ",
            "curl ",
            "-p",
            "-u ",
            "--password ",
            "login ",
            "machine ",
            "postgres://",
            "me:",
            "@host/",
            "=",
            ":",
            ": ",
            " = ",
            "\"",
            "'",
            "\\\"",
            "\\n",
            "\n",
            " ",
            ", ",
            "<",
            ">",
            "</",
            "-----",
            "BEGIN ",
            "RSA PRIVATE KEY",
            "END ",
            "eyJ",
            ".",
            "/",
            "+",
            "==",
            "ghp_",
            "sk-ant-",
            "hvs.",
            "AKIA",
            "xoxb-",
            "hooks.slack.com/services/",
            "[redacted:",
            "]",
            "[redacted:token]",
            "[",
            "é",
            "→",
            "5432:",
            "IDENTIFIED BY ",
            "hunter2",
            "swordfish",
            "\x1b[31m",
            "%3D",
            "\\u001b",
            "[1m",
            "8Q~",
            ".atlasv1.",
            "is ",
            "Private-Lines: 3",
            "name=",
            "; ",
            "-",
            "_",
            "\t",
            "YWRtaW46aHVudGVyMg==",
            ":5432:db:me:",
            "sig=",
            "mnemonic",
        ])
        .prop_map(str::to_owned),
        (any::<u64>(), 1usize..90).prop_map(|(seed, length)| draw(MIXED, length, seed)),
        (any::<u64>(), 1usize..70).prop_map(|(seed, length)| draw(HEX, length, seed)),
        any::<String>(),
    ]
}

fn text() -> impl Strategy<Value = String> {
    prop::collection::vec(piece(), 0..40).prop_map(|pieces| pieces.concat())
}

/// Text long enough that a stream lets go of some of it before the end.
fn long_text() -> impl Strategy<Value = String> {
    prop::collection::vec((piece(), 1usize..600), 0..60).prop_map(|pieces| {
        pieces.into_iter().map(|(piece, times)| piece.repeat(times)).collect::<Vec<_>>().concat()
    })
}

fn streamed(bytes: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut stream = Stream::new();
    let mut out = Vec::new();
    let mut rest = bytes;
    for cut in cuts.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (chunk, after) = rest.split_at(rest.len().min(*cut));
        out.extend(stream.push(chunk));
        rest = after;
    }
    out.extend(stream.finish());
    out
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn twice_is_once(text in text()) {
        let once = redact(&text).into_owned();
        prop_assert_eq!(redact(&once).into_owned(), once);
    }

    #[test]
    fn cuts_do_not_matter(text in text(), cuts in prop::collection::vec(1usize..50, 1..10)) {
        prop_assert_eq!(String::from_utf8(streamed(text.as_bytes(), &cuts)).unwrap(), redact(&text).into_owned());
    }

    #[test]
    fn words_are_borrowed(words in prop::collection::vec("[a-z]{1,12}|[A-Z][a-z]{1,9}|[0-9]{1,6}", 0..60)) {
        let text = words.join(" ");
        prop_assert!(matches!(redact(&text), std::borrow::Cow::Borrowed(_)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn cuts_do_not_matter_in_long_text(text in long_text(), cuts in prop::collection::vec(1usize..40_000, 1..10)) {
        prop_assert!(streamed(text.as_bytes(), &cuts) == redact(&text).as_bytes());
    }

    #[test]
    fn twice_is_once_in_long_text(text in long_text()) {
        let once = redact(&text).into_owned();
        prop_assert!(redact(&once) == once);
    }

    #[test]
    fn bytes_that_are_no_text_pass(bytes in prop::collection::vec(128u8..=255, 0..60_000), cut in 1usize..5000) {
        prop_assert!(streamed(&bytes, &[cut]) == bytes);
    }
}

#[test]
fn a_key_larger_than_what_is_held_back_goes_too() {
    let body: Vec<String> = (0..8000).map(|n| draw(MIXED, 64, n)).collect();
    let frame = format!("-----{} PRIVATE KEY-----", "BEGIN");
    let text = format!("x\n{frame}\n{}\n-----END PRIVATE KEY-----\ny", body.join("\n"));
    let expected = format!("x\n{frame}\n[redacted:private-key]\n-----END PRIVATE KEY-----\ny");
    for cut in [1000, 4096, 65_536] {
        assert_eq!(String::from_utf8(streamed(text.as_bytes(), &[cut])).unwrap(), expected);
    }
}

#[test]
fn little_is_held_back() {
    let mut stream = Stream::new();
    let (mut pushed, mut returned) = (0, 0);
    for n in 0..2000u64 {
        let chunk = draw(MIXED, 997, n) + " ";
        pushed += chunk.len();
        returned += stream.push(chunk.as_bytes()).len();
        assert!(pushed - returned < 64 * 1024);
    }
}

#[test]
fn hostile_text_takes_no_longer() {
    let begin = format!("-----{} ", "BEGIN");
    let key = format!("{begin}PRIVATE KEY-----");
    let hostile = [
        "a",
        "=",
        "-",
        "_",
        "\\",
        "\"",
        "password=",
        "password=\"",
        "password='password=\"",
        "-p ",
        "mysql -p",
        "token: ",
        "://",
        "a://b:",
        "a:@",
        "eyJ",
        "eyJhbGciOiJIUzI1NiJ9.",
        "[redacted:",
        "[",
        "\\\\\"",
        "login password ",
        "A1b/",
        "A1b+",
        &begin,
        &key,
        "Bearer ",
        "Cookie: a=",
        "token=`",
        "<token>",
        "aB3",
        "5432:a:",
        "key_",
        "token\\\"=\\\"token=\\\"",
    ];
    for piece in hostile {
        let text = piece.repeat(400_000 / piece.len());
        let begun = std::time::Instant::now();
        let once = redact(&text);
        // Not a measurement: whatever grew with the square of the length would take hours.
        assert!(begun.elapsed().as_secs() < 20, "{piece:?} took {:?}", begun.elapsed());
        assert_eq!(redact(&once), once);
    }
}
