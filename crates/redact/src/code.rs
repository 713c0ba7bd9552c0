//! Distinguishes values from other text in their place in source code and documentation.
//!
//! `password` is followed by types, calls, variables and labels far more often than by a password.

use crate::byte_class::{self, ALNUM, DIGIT, LOWER, UPPER};
use crate::names::is_one_of;

/// Common words that are values but never secrets.
const NON_SECRET_WORDS: &[&str] = &[
    "null",
    "none",
    "nil",
    "true",
    "false",
    "undefined",
    "string",
    "str",
    "text",
    "bool",
    "boolean",
    "number",
    "integer",
    "object",
    "bytes",
    "password",
    "passwd",
    "passphrase",
    "pass",
    "pwd",
    "secret",
    "secrets",
    "token",
    "tokens",
    "key",
    "apikey",
    "auth",
    "required",
    "optional",
    "hidden",
    "invalid",
    "missing",
    "default",
    "empty",
    "unknown",
    "bearer",
    "basic",
    "digest",
    "oauth",
    "oauth2",
    "saml",
    "ldap",
    "kerberos",
    "credentials",
    "user",
    "username",
    "admin",
    "root",
    "value",
    "field",
    "input",
    "prompt",
    "enabled",
    "disabled",
    "always",
    "never",
    "private",
    "public",
    "plain",
    "forbidden",
    "denied",
    "expired",
    "include",
    "omit",
    "same-origin",
    "kubernetes",
    "static",
    "dynamic",
    "sensitive",
    "masked",
    "removed",
    "hashed",
    "encrypted",
    "generate",
    "generated",
    "inherit",
    "write",
    "read",
    "login",
    "test",
    "testing",
    "foobar",
    "mysecret",
    "mypassword",
    "mytoken",
    "somepassword",
    "supersecret",
    "secretkey",
    "comment",
    "keyword",
    "identifier",
    "property",
    "function",
    "variable",
    "operator",
    "literal",
    "wrong",
    "incorrect",
    "correct",
    "minutes",
    "environment",
    "keychain",
    "keyring",
    "vault",
    "prompted",
    "provided",
    "needed",
    "config",
];

/// Names of types and algorithms that are followed by a number.
const NUMBERED: &[&str] = &[
    "uint", "int", "float", "utf", "utf-", "sha", "sha-", "base", "argon", "argon2id", "ed", "secp", "x",
    "aes", "aes-", "bytes", "string", "vec", "matrix", "oauth", "md", "rs", "hs", "es", "ps", "blake",
    "hmac-sha", "hmacsha", "varchar", "char", "http", "p", "v", "uuidv", "uuid", "arg", "param", "var",
    "val", "value", "tmp", "test", "user", "foo", "bar", "baz", "item", "node", "line", "step", "part",
    "level", "field", "word",
];

/// Whether the value is a word that stands for any value, or for none.
pub fn is_dull(value: &[u8]) -> bool {
    is_one_of(value, NON_SECRET_WORDS)
}

/// Whether something that is not in quotes is a name or an expression rather than a value: `self.token`,
/// `Sha256`, `next_token2`, `Uint8Array`, `pw`, `1.5`.
pub fn is_expression(value: &[u8]) -> bool {
    let classes = byte_class::classes(value);
    if value.iter().all(|b| byte_class::is(*b, DIGIT) || matches!(b, b'.' | b'-' | b'_' | b'e')) {
        return true;
    }
    // A call or an index, but not any bracket: passwords have them too.
    let called = value.iter().position(|b| matches!(b, b'(' | b'[' | b'{' | b'<'));
    if called.is_some_and(|index| {
        index > 0 && value[..index].iter().all(|b| byte_class::is(*b, ALNUM) || matches!(b, b'_' | b'.'))
    }) {
        return true;
    }
    if byte_class::contains(value, b"::")
        || byte_class::contains(value, b"->")
        || byte_class::contains(value, b"?.")
    {
        return true;
    }
    let identifier = value
        .iter()
        .all(|b| byte_class::is(*b, ALNUM) || matches!(b, b'_' | b'.' | b'&' | b'*' | b'!' | b'?'));
    if !identifier {
        return false;
    }
    if classes & DIGIT == 0 {
        return value.len() < 32 || value.contains(&b'_') || value.contains(&b'.');
    }
    is_numbered_name(value) || is_dotted_name(value)
}

/// Whether the value is an identifier with a number in it: parts that are words, numbers only at the ends of parts, and a
/// part that names a type or an algorithm.
fn is_numbered_name(value: &[u8]) -> bool {
    let stem_end = value.iter().rposition(|b| !byte_class::is(*b, DIGIT)).map_or(0, |index| index + 1);
    let stem = &value[..stem_end];
    if is_one_of(stem, NUMBERED) || is_one_of(value, NUMBERED) {
        return true;
    }
    const CREDENTIAL_WORDS: &[&str] =
        &["token", "secret", "password", "passwd", "key", "auth", "cred", "sha256", "base64"];
    if value.len() < 24
        && CREDENTIAL_WORDS.iter().any(|word| byte_class::contains_ignoring_case(value, word.as_bytes()))
    {
        return true;
    }
    // A type: a capital letter, then camel case.
    let digits = value.iter().filter(|b| byte_class::is(**b, DIGIT)).count();
    let humps = value.iter().filter(|b| byte_class::is(**b, UPPER)).count();
    let lower = value.iter().filter(|b| byte_class::is(**b, LOWER)).count();
    byte_class::is(value[0], UPPER) && digits <= 3 && lower >= 2 * humps && value.len() < 24
}

/// Whether the value is a path through objects: `args.p2.value`.
fn is_dotted_name(value: &[u8]) -> bool {
    value.contains(&b'.')
        && value.len() < 64
        && value.split(|b| *b == b'.').all(|part| {
            let digits = part.iter().filter(|b| byte_class::is(**b, DIGIT)).count();
            part.first().is_some_and(|b| !byte_class::is(*b, DIGIT)) && digits * 3 <= part.len()
        })
}

/// Whether something in quotes is a name (`user_password`, `X-Api-Key`, `auth.token`), a label or a message
/// rather than a value.
pub fn is_label(value: &[u8]) -> bool {
    !value.iter().any(|b| byte_class::is(*b, DIGIT))
        && value.iter().all(|b| {
            byte_class::is(*b, LOWER | UPPER)
                || !b.is_ascii()
                || matches!(b, b'_' | b'-' | b'.' | b'/' | b':' | b' ' | b'\'')
        })
}

/// Whether the value is where a secret is kept rather than the secret.
pub fn is_location(value: &[u8]) -> bool {
    value.starts_with(b"/")
        && value[1..].iter().all(|b| byte_class::is(*b, ALNUM) || matches!(b, b'/' | b'.' | b'_' | b'-'))
        && value.len() < 200
        && (value[1..].contains(&b'/') && value.split(|b| *b == b'/').filter(|p| p.len() >= 2).count() >= 2)
        || value.starts_with(b"./")
        || value.starts_with(b"../")
        || value.starts_with(b"~/")
        || byte_class::contains(&value[..value.len().min(24)], b"://")
        || value.starts_with(b"arn:")
        || value.starts_with(b"projects/")
        || value.starts_with(b"file:")
        || value.starts_with(b"op:")
        || value.starts_with(b"env:")
        || value.starts_with(b"vault:")
}
