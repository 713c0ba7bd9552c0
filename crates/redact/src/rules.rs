//! The checks that are applied to every run, the cheap ones first.

use crate::byte_class::{self, DIGIT, DOT, HEX, PLUS_SLASH};
use crate::window::{ByteWindow, FoundSecret};
use crate::{entropy, flags, headers, pairs, pem, piped, prefixes, structural, url};

/// Returns the secret that the run is, contains or announces.
#[inline]
pub fn run(mut view: ByteWindow<'_>) -> Option<FoundSecret> {
    let run_start = view.start;
    let preceding_byte = view.before();
    if matches!(preceding_byte, b'\\' | b'%' | b'[' | b';') {
        view.start += residue_length(&view);
    }
    let undashed = view.start;
    while view.start < view.end && view.bytes[view.start] == b'-' {
        view.start += 1;
    }
    let dashes = view.start - undashed;
    if view.start == view.end || is_ordinary(&view, preceding_byte, dashes) {
        return None;
    }
    examine_run(&view, dashes, undashed == run_start)
}

/// Whether a few bytes are enough to know that the run is an ordinary word. Nearly all are, so this determines the speed
/// of the scanner; it must return false wherever one of the checks below could match.
#[inline]
fn is_ordinary(view: &ByteWindow<'_>, preceding_byte: u8, dashes: usize) -> bool {
    let length = view.end - view.start;
    if dashes > 0 || length >= 23 || prefixes::may_begin(view, view.start) {
        return false;
    }
    let last = view.bytes[view.end - 1];
    match view.byte(view.end) {
        b' ' | b'\t' => {
            !matches!(view.byte(view.end + 1), b'=' | b':' | b' ' | b'\t')
                && !matches!((length, last | 0x20), (6, b'r') | (5, b'c') | (4, b's') | (8, b'd') | (2, b'y'))
                && !matches!((length, last), (3, b'V') | (6, b'v') | (4, b'x' | b'o') | (6, b'f'))
                && last != b'N'
        }
        b'.' => length != 14 && length != 17 && !(length >= 8 && view.bytes[view.start] == b'e'),
        b'/' | b'+' => length > 1 && byte_class::is(preceding_byte, PLUS_SLASH | DOT),
        b':' => view.byte(view.end + 1) == b':',
        b'"' | b'\'' | b'`' => !matches!(view.byte(view.end + 1), b' ' | b'\t' | b':' | b'=' | b']'),
        b'>' => preceding_byte != b'<',
        b'=' | b'\\' | b'~' => false,
        _ => true,
    }
}

#[inline(never)]
fn examine_run(view: &ByteWindow<'_>, dashes: usize, at_start: bool) -> Option<FoundSecret> {
    let next = view.byte(view.end);
    if let Some(secret) = prefixes::token_at(view, view.start).or_else(|| structural::token(view)) {
        return Some(secret);
    }
    // Checked before what the run announces: replacing only the value would leave the run to the next pass.
    if let Some(secret) = entropy::token(view) {
        return Some(secret);
    }
    let announced = match next {
        b' ' | b'\t' => before_blank(view, dashes),
        b':' if view.has(view.end, b"://") => url::password(view),
        b':' if view.run() == b"Private-Lines" => pem::putty_key(view),
        b':' => pairs::secret(view).or_else(|| flags::pgpass(view)),
        b'=' | b'"' | b'\'' | b'\\' | b'`' | b'>' => pairs::secret(view),
        _ => None,
    };
    if announced.is_some() {
        return announced;
    }
    if dashes == 1
        && at_start
        && view.bytes[view.start] == b'p'
        && let Some(secret) = flags::attached_password(view)
    {
        return Some(secret);
    }
    None
}

fn before_blank(view: &ByteWindow<'_>, dashes: usize) -> Option<FoundSecret> {
    let run = view.run();
    let last = run[run.len() - 1];
    if last == b'N' && view.bytes[..view.end].ends_with(b"-----BEGIN") {
        return pem::key(view);
    }
    if dashes == 0 {
        // `name = value` and `name : value`.
        if matches!(view.byte(view.skip_blanks(view.end)), b'=' | b':') {
            return pairs::secret(view);
        }
        return match (run.len(), last | 0x20) {
            (6, b'r') | (5, b'c') | (4, b's') => headers::credentials(view),
            (8, b'd') | (2, b'y') => flags::after_blank(view, 0),
            (3 | 6, b'v') | (4, b'x') => flags::assigned_by_command(view),
            (4, b'o') | (6, b'f') => piped::written(view),
            _ => None,
        };
    }
    piped::here_string(view, dashes).or_else(|| flags::after_blank(view, dashes))
}

/// Returns how many bytes at the beginning of the run belong to an escape before it: the `n` of `\n`, the `3D` of `%3D`,
/// the `31m` of a colour.
#[inline]
fn residue_length(view: &ByteWindow<'_>) -> usize {
    match view.before() {
        b'\\' => escape_residue(view.run()),
        b'%' if view.run().iter().take(2).filter(|b| byte_class::is(**b, HEX)).count() == 2 => 2,
        b'[' | b';' => {
            let run = view.run();
            let digits = run.iter().take(4).take_while(|b| byte_class::is(**b, DIGIT)).count();
            if digits > 0 && run.get(digits) == Some(&b'm') { digits + 1 } else { 0 }
        }
        _ => 0,
    }
}

fn escape_residue(run: &[u8]) -> usize {
    let hex = |count: usize| run.len() > count && run[1..=count].iter().all(|b| byte_class::is(*b, HEX));
    match run[0] {
        b'n' | b't' | b'r' | b'b' | b'f' | b'v' => 1,
        b'u' if hex(4) => 5,
        b'x' if hex(2) => 3,
        _ => 0,
    }
}
