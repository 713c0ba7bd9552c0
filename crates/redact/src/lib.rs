//! Removes secrets from text before it is hashed or stored.
//!
//! The text is what coding agents produce: hook payloads, transcripts, the bodies of calls to a model. A hook has about
//! a millisecond, so the scanner is written by hand: constant tables, one pass, no setup, and time that grows with the
//! length of the text whatever is in it. It knows no agent, no file and no store.
//!
//! Three things give a secret away, and each has its modules:
//!
//! - its own shape: `prefixes`, `table` and `vendors` (tokens that begin in a known way), `structural` (JWTs and other
//!   tokens with a known structure), `pem` (private keys), `url`, `headers`, `flags`, `piped` (URLs, HTTP, command
//!   lines);
//! - the name in front of it, as in `DB_PASSWORD=`, `"apiKey":`, `--password`: `names`, `pairs`, `values`, and `code`
//!   and `json`, which tell a value from other text in its place;
//! - its randomness, when it stands alone and nothing says that it is a digest or an identifier: `entropy`.
//!
//! Start at `scan`, the pass over the text, and `rules`, the checks it makes on every run of word bytes, cheapest
//! first; `byte_class` says what each byte can be part of, `window` how far one decision may look. [`Stream`] is for
//! text that arrives in pieces.
//!
//! A secret becomes `[redacted:KIND]`; what is around it stays, so that the text can still be read. A new kind of
//! secret needs a test with text that looks like it and must stay unchanged (`tests/negatives.rs`).

mod byte_class;
mod code;
mod entropy;
mod flags;
mod headers;
mod json;
mod names;
mod pairs;
mod pem;
mod piped;
mod prefixes;
mod rules;
mod scan;
mod stream;
mod structural;
mod table;
mod url;
mod values;
mod vendors;
mod window;

use std::borrow::Cow;

pub use json::redact_value;
pub use stream::Stream;

/// Replaces every secret in `text` by `[redacted:KIND]`.
///
/// The text is borrowed if there is none. Applying it twice changes nothing more.
///
/// ```
/// use stepback_redact::redact;
/// assert_eq!(redact("DB_PASSWORD=hunter2 make"), "DB_PASSWORD=[redacted:database-password] make");
/// assert_eq!(redact("let token = parser.next();"), "let token = parser.next();");
/// ```
pub fn redact(text: &str) -> Cow<'_, str> {
    redact_counting(text).0
}

/// Like [`redact`], and returns the number of secrets replaced.
pub(crate) fn redact_counting(text: &str) -> (Cow<'_, str>, usize) {
    let mut scanner = scan::Scanner::new();
    let mut out = scan::Output::default();
    scanner.scan(text.as_bytes(), true, &mut out);
    if out.replaced == 0 {
        return (Cow::Borrowed(text), 0);
    }
    out.copy_to(text.as_bytes(), text.len());
    let replaced = out.replaced;
    // Replacements begin and end next to ASCII bytes, so the result is UTF-8; if that were ever wrong, a replacement
    // character is better than a panic in a user's hook.
    let text = String::from_utf8(out.bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    (Cow::Owned(text), replaced)
}
