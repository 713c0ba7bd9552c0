//! Passwords that a command gets on its standard input: `echo x | docker login --password-stdin`, `sudo -S <<< x`.

use crate::byte_class::{self, WORD};
use crate::values;
use crate::window::{ByteWindow, FoundSecret, MARK};

/// How far a command line is followed.
const LONGEST_LINE: usize = 1024;
/// A password that is typed is not longer.
const LONGEST: usize = 256;

/// What only a command that reads a password from its input contains.
const READERS: &[&[u8]] = &[
    b"-password-stdin",
    b"-passphrase-stdin",
    b"-token-stdin",
    b"-secret-stdin",
    b"--with-token",
    b"-pass stdin",
    b"-passin stdin",
    b"--passphrase-fd 0",
    b"--passphrase-fd=0",
    b"--password-file -",
    b"--password-file=-",
    b"--password -",
    b"chpasswd",
    b"passwd --stdin",
    b"smbpasswd -s",
    b"kinit ",
    b"cryptsetup ",
    b"secret create ",
    b"secret set ",
    b"secret put ",
    b"sudo --stdin",
];

/// Returns what `echo` or `printf`, which the run is, writes to a command that reads a password.
pub fn written(view: &ByteWindow<'_>) -> Option<FoundSecret> {
    let run = view.run();
    let formats = run == b"printf";
    if !formats && run != b"echo" || byte_class::is(view.before(), WORD) {
        return None;
    }
    let line = line_after(view, view.end);
    let pipe = outside_quotes(line, |rest| rest[0] == b'|' && rest.get(1) != Some(&b'|'))?;
    if !reads_password(&line[pipe + 1..]) {
        return None;
    }
    let mut start = 0;
    loop {
        start += line[start..pipe].iter().take_while(|b| b.is_ascii_whitespace()).count();
        let word = word_length(&line[start..pipe]);
        let is_option = !formats && is_echo_option(&line[start..start + word]);
        // A format with a place for another argument is not the password.
        let is_format = formats && line[start..start + word].contains(&b'%') && start + word < pipe;
        if word == 0 || !(is_option || is_format) {
            break;
        }
        start += word;
    }
    literal(view, view.end + start, view.end + pipe)
}

/// Returns the here-string of the command in which the run is an option that makes it read a password.
pub fn here_string(view: &ByteWindow<'_>, dashes: usize) -> Option<FoundSecret> {
    let run = view.run();
    let reads_password = match dashes {
        2 => {
            matches!(run, b"password-stdin" | b"passphrase-stdin" | b"token-stdin" | b"with-token" | b"stdin")
        }
        1 => run.len() <= 4 && run.contains(&b'S') && follows_sudo(view),
        _ => false,
    };
    if !reads_password {
        return None;
    }
    let line = line_after(view, view.end);
    let begin = outside_quotes(line, |rest| rest.starts_with(b"<<<"))? + 3;
    let begin = begin + line[begin..].iter().take_while(|b| matches!(b, b' ' | b'\t')).count();
    let length = word_length(&line[begin..]);
    literal(view, view.end + begin, view.end + begin + length)
}

/// The rest of the command line after `start`: up to its end, or to the next command that is not part of the pipeline. A line
/// end may be escaped, in a command inside of JSON.
fn line_after<'a>(view: &ByteWindow<'a>, start: usize) -> &'a [u8] {
    let rest = &view.bytes[start..view.bytes.len().min(start + LONGEST_LINE)];
    let is_end = |rest: &[u8]| {
        matches!(rest[0], b'\n' | b'\r' | b';') || rest.starts_with(b"&&") || rest.starts_with(b"||")
    };
    &rest[..outside_quotes(rest, is_end).unwrap_or(rest.len())]
}

/// Returns the first index outside of quotes where `is_match` holds. Quotes may be escaped.
fn outside_quotes(text: &[u8], is_match: impl Fn(&[u8]) -> bool) -> Option<usize> {
    let mut quote = 0;
    for index in 0..text.len() {
        match text[index] {
            byte @ (b'"' | b'\'') if quote == 0 => quote = byte,
            byte if byte == quote => quote = 0,
            b'\n' => quote = 0,
            _ => {}
        }
        if quote == 0 && is_match(&text[index..]) {
            return Some(index);
        }
    }
    None
}

/// The length of the first word of a shell command, with its quotes.
fn word_length(text: &[u8]) -> usize {
    let is_end = |rest: &[u8]| {
        rest[0].is_ascii_whitespace() || matches!(rest[0], b'|' | b'&' | b';' | b'<' | b'>' | b')')
    };
    outside_quotes(text, is_end).unwrap_or(text.len())
}

fn is_echo_option(word: &[u8]) -> bool {
    word.len() >= 2 && word[0] == b'-' && word[1..].iter().all(|b| matches!(b, b'n' | b'e' | b'E'))
}

fn reads_password(command: &[u8]) -> bool {
    READERS.iter().any(|reader| byte_class::contains(command, reader)) || has_sudo_with_input(command)
}

/// Whether `sudo` is called with `-S`, alone or among other letters.
fn has_sudo_with_input(command: &[u8]) -> bool {
    let mut words = command.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty());
    words.any(|word| word == b"sudo" || word.ends_with(b"/sudo"))
        && words
            .take_while(|word| word[0] == b'-')
            .any(|word| word.len() <= 5 && word.get(1) != Some(&b'-') && word.contains(&b'S'))
}

/// Whether only options are between `sudo` and the run.
fn follows_sudo(view: &ByteWindow<'_>) -> bool {
    let line =
        view.bytes[..view.start].rsplit(|b| matches!(b, b'\n' | b';' | b'|' | b'&')).next().unwrap_or(b"");
    // The last word is the hyphen of the run.
    let mut words = line.split(|b| b.is_ascii_whitespace()).filter(|word| !word.is_empty()).rev().skip(1);
    words.find(|word| word[0] != b'-').is_some_and(|word| word.ends_with(b"sudo"))
}

/// Returns the literal between `start` and `end` without its quotes, if it is one that can be a password.
fn literal(view: &ByteWindow<'_>, mut start: usize, mut end: usize) -> Option<FoundSecret> {
    let is_edge = |byte: u8| byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b'\\');
    while start < end && is_edge(view.byte(start)) {
        start += 1;
    }
    loop {
        while start < end && is_edge(view.byte(end - 1)) {
            end -= 1;
        }
        // The line end that `printf` needs.
        if end - start > 2 && view.bytes[start..end].ends_with(b"\\n") {
            end -= 1;
        } else {
            break;
        }
    }
    let value = view.bytes.get(start..end)?;
    let is_computed =
        value.iter().any(|b| matches!(b, b'$' | b'`' | b'\n')) || byte_class::contains(value, MARK);
    ((3..=LONGEST).contains(&value.len()) && !is_computed && !values::is_placeholder(value))
        .then(|| FoundSecret::new(start, end, "piped-password"))
}
