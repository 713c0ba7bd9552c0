//! Tokens without a prefix of their own, recognized by their structure.

use crate::byte_class::{self, ALNUM, BASE64, DIGIT, DOT, HEX, LOWER, UPPER, WORD};
use crate::prefixes::is_plausible;
use crate::window::{AfterSecret, ByteWindow, FoundSecret};

/// Returns the token of a known structure that begins with the run.
pub fn token(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let length = view.end - view.start;
    let next = view.byte(view.end);
    match length {
        1 if next == b'/' => find_asana_token(view),
        8..=13 if next == b':' => find_telegram_token(view),
        14 if next == b'.' => find_terraform_token(view),
        17 if next == b'.' => find_airtable_token(view),
        _ => None,
    }
    .or_else(|| {
        if length >= 8 && next == b'.' && view.run().starts_with(b"eyJ") { find_jwt(view) } else { None }
    })
    .or_else(|| if (23..=28).contains(&length) && next == b'.' { find_discord_token(view) } else { None })
    .or_else(|| if next == b'~' && length >= 4 { find_azure_client_secret(view) } else { None })
    .or_else(|| if (36..=40).contains(&length) { find_hexadecimal_with_tail(view) } else { None })
    .or_else(|| if length == 11 && next == b':' { find_firebase_key(view) } else { None })
}

fn bounded_run_end(view: &ByteWindow<'_>, start: usize, mask: u8, min: usize, max: usize) -> Option<usize> {
    let end = byte_class::run_end(view.bytes, start, mask, max + 1);
    (end - start >= min && end - start <= max && !byte_class::is(view.byte(end), WORD)).then_some(end)
}

/// A JWT: three parts of base64url, the first of which is an object.
fn find_jwt(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let mask = WORD | DOT;
    let end = byte_class::run_end(view.bytes, view.start, mask, 12 * 1024);
    let mut parts = view.bytes[view.start..end].splitn(3, |b| *b == b'.');
    let (head, payload) = (parts.next()?, parts.next()?);
    let signature = parts.next()?;
    let signed = signature.iter().take_while(|b| byte_class::is(**b, WORD)).count() >= 16;
    if head.len() < 16 || payload.len() < 8 || !signed || !is_plausible(head) {
        return None;
    }
    let mut secret = FoundSecret::new(view.start, end, "jwt");
    if end - view.start == 12 * 1024 {
        secret.then = AfterSecret::DropRun(mask);
    } else {
        while view.bytes[secret.end - 1] == b'.' {
            secret.end -= 1;
        }
    }
    Some(secret)
}

/// `123456789:AA…`, the id of a bot and its token, in URLs with `bot` before it.
fn find_telegram_token(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let body = view.end + 1;
    let number = view.run().strip_prefix(b"bot").unwrap_or(view.run());
    let is_number = (8..=10).contains(&number.len()) && number.iter().all(|b| byte_class::is(*b, DIGIT));
    if !is_number || !view.has(body, b"AA") {
        return None;
    }
    let end = bounded_run_end(view, body, WORD, 35, 35)?;
    is_plausible(&view.bytes[body..end])
        .then(|| FoundSecret::new(view.end - number.len(), end, "telegram-bot-token"))
}

/// The id of a bot in base64, the time, and a signature.
fn find_discord_token(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    if !matches!(view.byte(view.start), b'M' | b'N' | b'O') {
        return None;
    }
    let time = exactly_until_dot(view, view.end + 1, 6)?;
    let end = bounded_run_end(view, time + 1, WORD, 27, 38)?;
    let rest = &view.bytes[view.start..end];
    is_plausible(rest).then(|| FoundSecret::new(view.start, end, "discord-bot-token"))
}

fn exactly_until_dot(view: &ByteWindow<'_>, start: usize, length: usize) -> Option<usize> {
    let end = byte_class::run_end(view.bytes, start, WORD, length + 1);
    (end - start == length && view.byte(end) == b'.').then_some(end)
}

/// `….atlasv1.…`
fn find_terraform_token(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    if !view.has(view.end, b".atlasv1.") {
        return None;
    }
    let end = bounded_run_end(view, view.end + 9, WORD, 60, 72)?;
    Some(FoundSecret::new(view.start, end, "terraform-token"))
}

/// `pat` and fourteen characters, a dot, and a digest.
fn find_airtable_token(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    if !view.run().starts_with(b"pat") {
        return None;
    }
    let end = bounded_run_end(view, view.end + 1, HEX, 64, 64)?;
    Some(FoundSecret::new(view.start, end, "airtable-token"))
}

/// `1/`, the id of a user, and a digest.
fn find_asana_token(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let number = view.end + 1;
    let colon = byte_class::run_end(view.bytes, number, DIGIT, 20);
    if !(12..20).contains(&(colon - number)) || view.byte(colon) != b':' {
        return None;
    }
    let end = bounded_run_end(view, colon + 1, ALNUM, 32, 32)?;
    Some(FoundSecret::new(view.start, end, "asana-token"))
}

/// The secret of an Azure application has `8Q~` after its first three characters.
fn find_azure_client_secret(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let run = view.run();
    if run.len() > 6 || !matches!(run, [.., b'7' | b'8', b'Q']) {
        return None;
    }
    let mut end = view.end + 1;
    while end < view.end + 40 && (byte_class::is(view.byte(end), WORD | DOT) || view.byte(end) == b'~') {
        end += 1;
    }
    let body = &view.bytes[view.end + 1..end];
    ((31..=37).contains(&body.len()) && is_plausible(body))
        .then(|| FoundSecret::new(view.start, end, "azure-client-secret"))
}

/// Mailchimp's `…-us12` and New Relic's `…NRAL`.
fn find_hexadecimal_with_tail(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let run = view.run();
    let all_hex = |bytes: &[u8]| bytes.iter().all(|b| byte_class::is(*b, HEX));
    if let Some((key, tail)) = run.split_at_checked(32) {
        let data_center = tail.strip_prefix(b"-us").unwrap_or(b"");
        if !data_center.is_empty() && data_center.iter().all(|b| byte_class::is(*b, DIGIT)) && all_hex(key) {
            return Some(FoundSecret::new(view.start, view.end, "mailchimp-key"));
        }
    }
    let key = run.strip_suffix(b"NRAL")?;
    (key.len() == 36 && key.iter().all(|b| byte_class::is(*b, HEX | LOWER)) && is_plausible(key))
        .then(|| FoundSecret::new(view.start, view.end, "newrelic-key"))
}

/// `AAAA…:APA91b…`, the key of a Firebase server.
fn find_firebase_key(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    if !view.run().starts_with(b"AAAA") {
        return None;
    }
    let end = bounded_run_end(view, view.end + 1, WORD, 130, 180)?;
    Some(FoundSecret::new(view.start, end, "firebase-key"))
}

/// Whether `text` is base64 of `name:password`, as in `Basic` headers and Docker's `auth`.
pub fn is_encoded_pair(text: &[u8]) -> bool {
    let trimmed = text.iter().rposition(|b| *b != b'=').map_or(&text[..0], |last| &text[..=last]);
    if trimmed.len() < 6 || trimmed.len() > 2048 || trimmed.len() % 4 == 1 {
        return false;
    }
    let (mut bits, mut pending_bits, mut has_colon) = (0u32, 0, false);
    for b in trimmed {
        let value = match b {
            b'A'..=b'Z' => b - b'A',
            b'a'..=b'z' => b - b'a' + 26,
            b'0'..=b'9' => b - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return false,
        };
        bits = bits << 6 | u32::from(value);
        pending_bits += 6;
        if pending_bits >= 8 {
            pending_bits -= 8;
            let byte = (bits >> pending_bits) as u8;
            has_colon |= byte == b':';
            // A password may have letters of any language, a name has none of them.
            if byte.is_ascii_control() || !byte.is_ascii() && !has_colon {
                return false;
            }
        }
    }
    has_colon
        && byte_class::classes(trimmed) & (UPPER | DIGIT) != 0
        && trimmed.iter().all(|b| byte_class::is(*b, BASE64 | WORD))
}
