//! Passwords in URLs: `postgres://me:secret@host/db`. Only the password is replaced; the rest says where it leads.

use crate::byte_class::{self, HEX};
use crate::code;
use crate::prefixes::is_plausible;
use crate::values::is_placeholder;
use crate::window::{ByteWindow, FoundSecret, MARK};

/// The longest authority that is checked, in bytes.
const LONGEST: usize = 1024;

/// Returns the password in the URL whose scheme is the run, which is followed by `://`.
pub fn password(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let start = view.end + 3;
    let rest = view.bytes.get(start..)?;
    let mut at_sign = None;
    let mut length = 0;
    for byte in rest.iter().take(LONGEST) {
        match byte {
            b'/' | b'?' | b'#' | b'"' | b'\'' | b'\\' | b'<' | b'>' | b'`' | b'|' => break,
            b if b.is_ascii_whitespace() => break,
            b'@' => at_sign = Some(length),
            _ => {}
        }
        length += 1;
    }
    let user_info = &rest[..at_sign?];
    let Some(colon) = user_info.iter().position(|b| *b == b':') else {
        return token_as_user(view, start, user_info, &rest[at_sign? + 1..length]);
    };
    let password = &user_info[colon + 1..];
    let hidden = is_placeholder(password) && !password.iter().all(|b| byte_class::is(*b, byte_class::ALNUM));
    if password.is_empty() || byte_class::contains(user_info, MARK) || hidden || is_example_password(password)
    {
        return None;
    }
    Some(FoundSecret::new(start + colon + 1, start + user_info.len(), "url-password"))
}

fn is_example_password(password: &[u8]) -> bool {
    matches!(password[0], b'$' | b'{' | b'<' | b'*' | b'[' | b'%' | b'(') && is_placeholder(password)
        || byte_class::distinct(password, 2) < 2
        || code::is_dull(password)
        || is_placeholder(password)
}

/// Returns the token in `https://token@host`, and the key of a Sentry project.
fn token_as_user(view: &ByteWindow<'_>, start: usize, user: &[u8], host: &[u8]) -> Option<FoundSecret> {
    let end = start + user.len();
    if byte_class::contains(host, b"sentry")
        && user.len() == 32
        && user.iter().all(|b| byte_class::is(*b, HEX))
    {
        return Some(FoundSecret::new(start, end, "sentry-dsn"));
    }
    let own_kind = crate::pairs::own_kind(view, start, end);
    if own_kind.is_some()
        || user.len() >= 24 && user.iter().all(|b| byte_class::is(*b, byte_class::WORD)) && is_plausible(user)
    {
        return Some(FoundSecret::new(start, end, own_kind.unwrap_or("url-token")));
    }
    None
}
