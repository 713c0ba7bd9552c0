//! Secrets on command lines and in files where only a space or a position precedes them: `--password x`, `mysql -px`,
//! `curl -u me:x`, `.netrc`, `.pgpass`, SQL.

use crate::byte_class::{self, ALNUM, DIGIT};
use crate::names::{self, Family, SecretName};
use crate::pairs;
use crate::values;
use crate::window::{ByteWindow, FoundSecret, MARK};

const PASSWORD: SecretName = SecretName { family: Family::Password, kind: "password", is_uppercase: false };

/// Returns the secret after the run, which is followed by a space and preceded by `dashes` hyphens.
pub fn after_blank(view: &ByteWindow<'_>, dashes: usize) -> Option<FoundSecret> {
    let run = view.run();
    let start = view.skip_blanks(view.end);
    if dashes == 2 || dashes == 1 && run.len() > 4 {
        if run == b"user" || run == b"proxy-user" {
            return user_and_password(view, start);
        }
        let name = names::classify_name(run)?;
        if matches!(view.byte(start), b'-' | b'=' | b':') || view.has(start, b"id=") {
            return None;
        }
        return pairs::secret_after_blank(view, &name, start);
    }
    if dashes == 1 && view.byte(start) == b'-' {
        return None;
    }
    match (dashes, run) {
        (1, b"u") if command_before(view, &[b"curl", b"http", b"wget"]) => user_and_password(view, start),
        (1, b"a") if command_before(view, &[b"redis-cli"]) => {
            pairs::secret_after_blank(view, &PASSWORD, start)
        }
        (1, b"p") if command_before(view, &[b"sshpass", b" login", b"az "]) => {
            pairs::secret_after_blank(view, &PASSWORD, start)
        }
        // `set -gx NAME value` of fish.
        (1, b"x" | b"gx" | b"xg" | b"Ux" | b"xU") if command_before(view, &[b"set "]) => {
            named_word(view, start)
        }
        (0, _) if run.eq_ignore_ascii_case(b"password") => password_in_prose(view, start),
        (0, _) if run.eq_ignore_ascii_case(b"by") => {
            let sql = view.start >= 11
                && view.bytes[view.start - 11..view.start].eq_ignore_ascii_case(b"identified ");
            if sql && is_quote(view.byte(start)) { quoted_password(view, start) } else { None }
        }
        _ => None,
    }
}

/// Returns the secret in `ENV NAME value` of a Dockerfile, in `setenv NAME value` and in `setx NAME value`.
pub fn assigned_by_command(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    if !matches!(view.run(), b"ENV" | b"setenv" | b"setx") || !begins_command(view) {
        return None;
    }
    named_word(view, view.skip_blanks(view.end))
}

/// Returns the secret in `NAME value`.
fn named_word(view: &ByteWindow<'_>, name: usize) -> Option<FoundSecret> {
    let name_end = byte_class::run_end(view.bytes, name, byte_class::WORD, 80);
    let secret_name = names::classify_name(view.bytes.get(name..name_end)?)?;
    let start = view.skip_blanks(name_end);
    if start == name_end || matches!(view.byte(start), b'=' | b':' | b'|' | b'&' | b';' | b'#' | b'\\') {
        return None;
    }
    pairs::secret_after_blank(view, &secret_name, start)
}

/// Whether the run is the first word of a line or of a command.
fn begins_command(view: &ByteWindow<'_>) -> bool {
    let preceding = view.bytes[..view.start].trim_ascii_end();
    let gap = &view.bytes[preceding.len()..view.start];
    match preceding.last() {
        None | Some(b'\n' | b';' | b'|' | b'&' | b'"' | b'\'' | b'`' | b'(' | b'{') => true,
        // `\n` inside of a JSON string: the `n` belongs to the escape.
        Some(b'n' | b't' | b'r') => preceding.len() >= 2 && preceding[preceding.len() - 2] == b'\\',
        // Line numbers of a listing, as in `12  ENV` and `12: ENV`, and steps, as in `[2/5] ENV`.
        Some(b':' | b']' | b'>' | b'+') => true,
        _ => gap.contains(&b'\n') || gap.contains(&b'\t'),
    }
}

/// Returns the secret in `-pSECRET`, as MySQL's programs accept it.
pub fn attached_password(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let mysql: [&[u8]; 3] = [b"mysql", b"mariadb", b"sshpass"];
    if view.end - view.start < 2 || !command_before(view, &mysql) {
        return None;
    }
    let start = view.start + 1;
    let length = view.bytes[start..]
        .iter()
        .take(128)
        .take_while(|b| b.is_ascii_graphic() && !is_quote(**b) && **b != b'\\')
        .count();
    let value = &view.bytes[start..start + length];
    let password = SecretName { is_uppercase: true, ..PASSWORD };
    // `-port`, `-pass…`, `-protocol` are other options.
    if length < 4 || value.starts_with(b"ort") || value.starts_with(b"ass") || value.starts_with(b"rotocol") {
        return None;
    }
    values::is_secret(&password, value, values::ValueNotation::Tight)
        .then(|| FoundSecret::new(start, start + length, "password"))
}

fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// Returns the secret in `password 'x'` in SQL, `password is "x"` in a prompt, `login me password x` in `.netrc`.
fn password_in_prose(view: &ByteWindow<'_>, start: usize) -> Option<FoundSecret> {
    let quoted = if view.has(start, b"is ") { start + 3 } else { start };
    if is_quote(view.byte(quoted)) {
        return quoted_password(view, quoted);
    }
    let line = line_before(view);
    if !byte_class::contains(line, b"login ") && !byte_class::contains(line, b"machine ") {
        return None;
    }
    let netrc = SecretName { kind: "netrc-password", ..PASSWORD };
    pairs::secret_after_blank(view, &netrc, start)
}

fn quoted_password(view: &ByteWindow<'_>, start: usize) -> Option<FoundSecret> {
    let quote = view.byte(start);
    let length = view.bytes.get(start + 1..)?.iter().take(128).position(|b| *b == quote || *b == b'\n')?;
    let value = &view.bytes[start + 1..start + 1 + length];
    (view.byte(start + 1 + length) == quote
        && values::is_secret(&PASSWORD, value, values::ValueNotation::QuotedCode))
    .then(|| FoundSecret::new(start + 1, start + 1 + length, "password"))
}

/// Returns the password in `name:password`.
fn user_and_password(view: &ByteWindow<'_>, start: usize) -> Option<FoundSecret> {
    let start = start + usize::from(is_quote(view.byte(start)));
    let length = view
        .bytes
        .get(start..)?
        .iter()
        .take(256)
        .take_while(|b| !b.is_ascii_whitespace() && !is_quote(**b) && **b != b'\\')
        .count();
    let pair = &view.bytes[start..start + length];
    let colon = pair.iter().position(|b| *b == b':')?;
    let (user, password) = (&pair[..colon], &pair[colon + 1..]);
    let number = |text: &[u8]| text.iter().all(|b| byte_class::is(*b, DIGIT));
    if user.is_empty()
        || user.contains(&b'/')
        || password.len() < 3
        || number(user) && number(password)
        || byte_class::contains(pair, MARK)
        || values::is_placeholder(password)
        || crate::code::is_dull(password)
    {
        return None;
    }
    Some(FoundSecret::new(start + colon + 1, start + length, "password"))
}

/// Returns the password in `host:5432:database:user:password`, from the port on.
pub fn pgpass(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    if !matches!(view.run(), b"5432" | b"5433" | b"6432") || view.before() != b':' {
        return None;
    }
    let mut index = view.end;
    for _ in 0..2 {
        let field = index + 1;
        index = field;
        while index < field + 64
            && (byte_class::is(view.byte(index), byte_class::WORD) || matches!(view.byte(index), b'*' | b'.'))
        {
            index += 1;
        }
        if index == field || view.byte(index) != b':' {
            return None;
        }
    }
    let start = index + 1;
    let length = view
        .bytes
        .get(start..)?
        .iter()
        .take(256)
        .take_while(|b| b.is_ascii_graphic() && !is_quote(**b) && **b != b'\\')
        .count();
    let password = &view.bytes[start..start + length];
    ((3..256).contains(&length) && !byte_class::contains(password, MARK) && !values::is_placeholder(password))
        .then(|| FoundSecret::new(start, start + length, "pgpass-password"))
}

fn line_before<'a>(view: &ByteWindow<'a>) -> &'a [u8] {
    &view.bytes[..view.start]
}

/// Whether one of the programs is called earlier on the line.
fn command_before(view: &ByteWindow<'_>, programs: &[&[u8]]) -> bool {
    let preceding = line_before(view);
    for index in (0..preceding.len()).rev() {
        let byte = preceding[index];
        if matches!(byte, b'\n' | b';' | b'|') {
            return false;
        }
        let is_called = |program: &&[u8]| program[0] == byte && preceding[index..].starts_with(program);
        let apart = byte == b' ' || index == 0 || !byte_class::is(preceding[index - 1], ALNUM);
        if apart && programs.iter().any(is_called) {
            return true;
        }
    }
    false
}
