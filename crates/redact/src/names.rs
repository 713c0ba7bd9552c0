//! Which names announce a secret.
//!
//! A name is taken apart at underscores, hyphens and humps; what it ends with decides (`DB_PASSWORD`,
//! `clientSecret`, `x-api-key`), unless something in it says that the value is something else
//! (`max_tokens`, `password_hint`, `public_key`).

use crate::byte_class::{self, DIGIT, LOWER, UPPER};
use crate::vendors;

/// What a name says about its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// A password: may be short and may be a word.
    Password,
    /// A secret somebody made up or a machine drew.
    Secret,
    /// A token or a key: drawn by a machine.
    Token,
    /// Words.
    Phrase,
    /// `Cookie:`, all of it.
    Cookies,
    /// `Set-Cookie:`, the first value.
    SetCookie,
    /// `Authorization:`, with a scheme or without.
    Authorization,
    /// `auth`: base64 of a name and a password, or a token.
    EncodedPair,
    /// The signature that makes an address valid for whoever has it.
    Signature,
}

/// A name that announces a secret.
#[derive(Clone, Copy, Debug)]
pub struct Named {
    pub family: Family,
    pub kind: &'static str,
    /// The name is in capitals, as in an environment.
    pub shouted: bool,
}

const MOST_PARTS: usize = 8;

/// The parts of a name; of a longer one the last.
struct Parts<'a> {
    parts: [&'a [u8]; MOST_PARTS],
    count: usize,
}

impl<'a> Parts<'a> {
    fn of(name: &'a [u8]) -> Self {
        let mut this = Self { parts: [b""; MOST_PARTS], count: 0 };
        let mut start = 0;
        for at in 0..name.len() {
            let byte = name[at];
            if byte == b'_' || byte == b'-' {
                this.push(&name[start..at]);
                start = at + 1;
            } else if at > start && byte_class::is(byte, UPPER) {
                let after_lower = byte_class::is(name[at - 1], LOWER | DIGIT);
                let before_lower = name.get(at + 1).is_some_and(|b| byte_class::is(*b, LOWER));
                if after_lower || before_lower {
                    this.push(&name[start..at]);
                    start = at;
                }
            }
        }
        this.push(&name[start..]);
        this
    }

    fn push(&mut self, part: &'a [u8]) {
        if part.is_empty() {
            return;
        }
        if self.count == MOST_PARTS {
            self.parts.rotate_left(1);
            self.count -= 1;
        }
        self.parts[self.count] = part;
        self.count += 1;
    }

    fn all(&self) -> &[&'a [u8]] {
        &self.parts[..self.count]
    }
}

/// Whether `part` is one of `words`, which are in lower case.
pub fn is_one_of(part: &[u8], words: &[&str]) -> bool {
    words.iter().any(|word| part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Endings that say which of several secrets it is.
const WHICH: &[&str] = &[
    "prod",
    "production",
    "dev",
    "development",
    "staging",
    "stage",
    "test",
    "live",
    "base",
    "primary",
    "secondary",
    "main",
    "old",
    "new",
    "default",
    "value",
    "plain",
    "raw",
    "current",
    "sandbox",
];

/// What a token is besides a secret: a piece of text, or a place in a list.
const OTHER_TOKENS: &[&str] = &[
    "max",
    "min",
    "num",
    "input",
    "output",
    "next",
    "prev",
    "previous",
    "page",
    "cancel",
    "cancellation",
    "eos",
    "bos",
    "pad",
    "unk",
    "sep",
    "mask",
    "special",
    "stop",
    "first",
    "last",
    "peek",
    "start",
    "end",
    "total",
    "continuation",
    "cache",
    "sync",
    "cursor",
    "idempotency",
    "resume",
    "client_request",
];

/// What a key is besides a secret.
const OTHER_KEYS: &[&str] =
    &["public", "pub", "foreign", "primary", "sort", "partition", "cache", "query", "idempotency", "object"];

const SECRET_KEYS: &[&str] = &[
    "api",
    "access",
    "secret",
    "private",
    "encryption",
    "encrypt",
    "signing",
    "master",
    "account",
    "auth",
    "hmac",
    "storage",
    "subscription",
    "deploy",
    "admin",
    "app",
    "application",
    "license",
    "service",
    "role",
    "server",
    "integration",
    "priv",
    "write",
    "ingest",
    "jwt",
    "session",
    "cookie",
    "rest",
    "webhook",
];

/// What `name` announces, if it announces a secret.
pub fn announces(name: &[u8]) -> Option<Named> {
    if !may_announce(name) {
        return None;
    }
    let parts = Parts::of(name);
    let mut all = parts.all();
    while let [rest @ .., last] = all {
        let number = last.iter().all(|b| byte_class::is(*b, DIGIT));
        if rest.is_empty() || !(number || is_one_of(last, WHICH)) {
            break;
        }
        all = rest;
    }
    let (last, before) = all.split_last()?;
    let (mut family, mut kind) = family(trim_number(last), before)?;
    match family {
        Family::Token if kind == "token" && before.iter().any(|p| is_one_of(p, OTHER_TOKENS)) => return None,
        Family::Token if before.iter().any(|p| is_one_of(p, OTHER_KEYS)) => return None,
        Family::Password | Family::Secret | Family::Token => {
            if let Some(known) = vendors::kind(parts.all(), family) {
                kind = known;
            }
        }
        _ => {}
    }
    if kind == "wallet-mnemonic" {
        family = Family::Phrase;
    }
    let shouted =
        !name.iter().any(|b| byte_class::is(*b, LOWER)) && name.iter().any(|b| byte_class::is(*b, UPPER));
    Some(Named { family, kind, shouted })
}

/// A cheap look at the letters before the name is taken apart: most names are decided here.
pub fn may_announce(name: &[u8]) -> bool {
    if name.len() < 3 || name.len() > 80 {
        return false;
    }
    let mut last = name.len() - 1;
    if byte_class::is(name[last], DIGIT) || name.len() > 8 && name.contains(&b'_') {
        // A number or an ending may hide the word.
        return true;
    }
    while last > 0 && name[last] == b'-' {
        last -= 1;
    }
    matches!(
        name[last] | 0x20,
        b'd' | b's' | b'e' | b't' | b'n' | b'y' | b'h' | b'c' | b'a' | b'g' | b'w' | b'r' | b'v'
    )
}

fn trim_number(part: &[u8]) -> &[u8] {
    let end = part.iter().rposition(|b| !byte_class::is(*b, DIGIT)).map_or(part.len(), |at| at + 1);
    &part[..end]
}

fn ends_with(part: &[u8], word: &str) -> bool {
    part.len() >= word.len() && part[part.len() - word.len()..].eq_ignore_ascii_case(word.as_bytes())
}

fn family(last: &[u8], before: &[&[u8]]) -> Option<(Family, &'static str)> {
    let previous = before.last().copied().unwrap_or(b"");
    let is = |words: &[&str]| is_one_of(last, words);
    Some(match last.first()? | 0x20 {
        _ if ends_with(last, "password") || ends_with(last, "passwd") => (Family::Password, "password"),
        b'p' if is(&["pwd", "passcode", "passwort"]) => (Family::Password, "password"),
        b'p' if is(&["pass", "pw"]) && !is_one_of(previous, &["first", "second", "render", "by"]) => {
            (Family::Password, "password")
        }
        b'p' if is(&["passphrase"]) => (Family::Phrase, "passphrase"),
        b'p' if is(&["phrase"]) && is_one_of(previous, &["seed", "recovery", "secret", "mnemonic"]) => {
            (Family::Phrase, "wallet-mnemonic")
        }
        b'p' if is(&["pat"]) && !before.is_empty() => (Family::Token, "token"),
        b'm' if is(&["mnemonic"]) => (Family::Phrase, "wallet-mnemonic"),
        b's' if is(&["secrets"]) && !before.is_empty() => (Family::Secret, "secret"),
        b's' if is(&["sig"]) && before.is_empty() => (Family::Signature, "azure-sas-signature"),
        b's' if is(&["signature"]) && is_one_of(previous, &["amz", "goog"]) => {
            (Family::Signature, "presigned-url-signature")
        }
        b's' if is(&["string"]) && is_one_of(previous, &["connection"]) => {
            (Family::Secret, "connection-string")
        }
        b'c' if is(&["credentials", "credential", "creds"]) => (Family::Secret, "credentials"),
        b'c' if is(&["cookie"]) && is_one_of(previous, &["set"]) => (Family::SetCookie, "cookie"),
        b'c' if is(&["cookie"]) && before.is_empty() => (Family::Cookies, "cookie"),
        // A plain "session" is how agents call what they are in; only the names of cookies count.
        b's' if is(&["session"]) && is_one_of(previous, &["gitlab", "rails", "laravel"]) => {
            (Family::Token, "session-cookie")
        }
        b's' if is(&["sessid"]) => (Family::Token, "session-cookie"),
        b'p' if is(&["phpsessid"]) => (Family::Token, "session-cookie"),
        b'j' if is(&["jsessionid"]) => (Family::Token, "session-cookie"),
        b'j' if is(&["jwt"]) => (Family::Token, "token"),
        b'd' if is(&["dsn"]) => (Family::Secret, "dsn"),
        b'd' if is(&["data"]) && is_one_of(previous, &["key"]) => (Family::Token, "kubernetes-client-key"),
        b'a' if is(&["authorization"]) => (Family::Authorization, "authorization"),
        b'a' if is(&["auth"]) => (Family::EncodedPair, "docker-auth"),
        b'k' if is(&["key"]) => {
            if !is_one_of(previous, SECRET_KEYS) && !before.iter().any(|part| vendors::is_vendor(part)) {
                return None;
            }
            let private = is_one_of(previous, &["private", "priv"]);
            (Family::Token, if private { "private-key" } else { "api-key" })
        }
        _ if ends_with(last, "secret") => (Family::Secret, "secret"),
        _ if ends_with(last, "token") => (Family::Token, "token"),
        _ if ends_with(last, "apikey") || ends_with(last, "secretkey") || ends_with(last, "accesskey") => {
            (Family::Token, "api-key")
        }
        b'p' if is(&["privatekey"]) => (Family::Token, "private-key"),
        _ => return None,
    })
}
