//! Replaces what differs in a text although its meaning is the same: directories, dates, ids, durations. Everything here
//! is recognized by a label or by its complete form; a text that merely looks unusual is left alone, because it may
//! matter.
//!
//! All ids become the same word. Numbering them would be more precise, but then a recorded answer that names an id of the
//! recorded run would never match the present one.

use std::path::PathBuf;

use memchr::memmem;

/// Directories, and the placeholder of each.
#[derive(Debug, Default)]
pub(super) struct Directories {
    all: Vec<(String, &'static str)>,
    /// Directories in which programs create names for temporary files, each with a trailing `/`.
    temporary: Vec<String>,
}

impl Directories {
    /// Sorts the longest first, so that a directory inside another keeps its own placeholder; of equals, the first given
    /// wins.
    pub(super) fn new<'a>(places: impl Iterator<Item = &'a (PathBuf, &'static str)>) -> Self {
        let mut all: Vec<(String, &'static str)> = Vec::new();
        let mut temporary = vec!["/tmp/".to_owned()];
        for (path, name) in places {
            let path = path.to_str().map(|path| path.trim_end_matches('/'));
            let Some(path) = path.filter(|path| path.len() > 1) else { continue };
            all.push((path.to_owned(), name));
            // Claude Code names the folder of a project by its path, with `-` for everything except letters and digits.
            all.push((path.replace('/', "-"), name));
            let dashed = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '-' };
            all.push((path.chars().map(dashed).collect(), name));
            let passing = name.contains("tmp") || name.contains("temp");
            if passing && !temporary.iter().any(|directory| directory.strip_suffix('/') == Some(name)) {
                temporary.push(format!("{name}/"));
            }
        }
        all.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
        all.dedup();
        Self { all, temporary }
    }
}

/// Returns the normal form of any message text.
pub(super) fn normalize_text(text: &str, directories: &Directories) -> String {
    /// The shortest length of anything that is replaced, except for directories.
    const MIN_REPLACED_BYTES: usize = 11;
    let mut text = text.to_owned();
    for (path, name) in &directories.all {
        replace_at_marker(&mut text, path.as_bytes(), |text, at| {
            let end = at + path.len();
            stands_alone(text, at, end).then_some((at, end, *name))
        });
    }
    if text.len() < MIN_REPLACED_BYTES {
        return text;
    }
    for (label, value) in LABELS {
        replace_at_marker(&mut text, label.as_bytes(), |text, at| {
            let begin = at + label.len();
            let length = value(&text[begin..])?;
            (length > 0).then_some((begin, begin + length, "<>"))
        });
    }
    for label in IDS {
        replace_at_marker(&mut text, label.as_bytes(), |text, at| labelled_id(text, at + label.len()));
    }
    replace_at_marker(&mut text, b"-", find_uuid);
    for directory in &directories.temporary {
        replace_at_marker(&mut text, directory.as_bytes(), |text, at| {
            find_temporary_name(text, at + directory.len())
        });
    }
    replace_times(&mut text);
    text
}

/// Returns the normal form of instructions, in which agents describe the machine.
pub(super) fn normalize_instructions(text: &str, directories: &Directories) -> String {
    if text.starts_with("x-anthropic-billing-header") {
        return String::new();
    }
    // The state of the repository is the last part of Claude Code's instructions.
    let git = memmem::find(text.as_bytes(), b"gitStatus:").unwrap_or(text.len());
    let mut text = normalize_text(&text[..git], directories);
    for label in ["OS Version:", "Kernel:", "Kernel version:"] {
        replace_at_marker(&mut text, label.as_bytes(), |text, at| {
            let begin = at + label.len();
            Some((begin, begin + text[begin..].find('\n').unwrap_or(text.len() - begin), "<>"))
        });
    }
    text
}

/// Whether a number is a time in milliseconds since 1970, between 2017 and 2033.
pub(super) fn is_time(number: u64) -> bool {
    (1_500_000_000_000..2_000_000_000_000).contains(&number)
}

/// At each marker, applies the replacement that `find` returns: from, to, and the new text.
fn replace_at_marker(
    text: &mut String,
    marker: &[u8],
    mut find: impl FnMut(&str, usize) -> Option<(usize, usize, &'static str)>,
) {
    let mut replaced = String::new();
    let mut copied = 0;
    for offset in memmem::find_iter(text.as_bytes(), marker) {
        if let Some((start, end, new)) = find(text, offset)
            && start >= copied
        {
            replaced.push_str(&text[copied..start]);
            replaced.push_str(new);
            copied = end;
        }
    }
    if copied > 0 {
        replaced.push_str(&text[copied..]);
        *text = replaced;
    }
}

/// Whether a match is a whole path, or the whole beginning of a longer one, and not the middle of another name.
fn stands_alone(text: &str, start: usize, end: usize) -> bool {
    let part_of_name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.') || byte >= 0x80;
    let (preceding, following) = (&text.as_bytes()[..start], &text.as_bytes()[end..]);
    // In the name of a project's folder, more of the path follows after a dash. A short one could be an ordinary word,
    // and is recognized only by what precedes it.
    let path = &text.as_bytes()[start..end];
    let dashed = path.starts_with(b"-");
    let short = path.iter().filter(|byte| **byte == b'-').count() < 2;
    if dashed && short && !preceding.ends_with(b"/projects/") {
        return false;
    }
    let open = match following {
        [b'-', ..] if dashed => false,
        // A dot may end a sentence.
        [b'.', next, ..] => part_of_name(*next),
        [b'.'] | [] => false,
        [next, ..] => part_of_name(*next),
    };
    !open && (dashed || !preceding.last().is_some_and(|byte| part_of_name(*byte)))
}

/// Returns the length of a value at the beginning of the text after its label.
type Length = fn(&str) -> Option<usize>;

/// Labels of values that change from run to run.
const LABELS: [(&str, Length); 10] = [
    ("Today's date is ", date_length),
    ("Today's date: ", date_length),
    ("<current_date>", until_tag),
    ("<timezone>", until_tag),
    // Gemini CLI names the folder of a project by the name or a hash of its directory.
    ("/.gemini/tmp/", name),
    ("Chunk ID: ", hex_length),
    ("Wall time: ", number_length),
    ("Process Group PGID: ", number_length),
    ("Background PIDs: ", numbers_length),
    ("duration_ms: ", number_length),
];

fn run(text: &str, belongs: impl Fn(char) -> bool) -> usize {
    text.find(|letter: char| !belongs(letter)).unwrap_or(text.len())
}

fn date_length(text: &str) -> Option<usize> {
    /// The longest date that is recognized, in bytes; no language needs more.
    const MAX_DATE_BYTES: usize = 60;
    let length = run(text, |letter| letter.is_alphanumeric() || " ,-/".contains(letter));
    let length = text[..length].trim_end().len();
    (length <= MAX_DATE_BYTES && text[..length].contains(|letter: char| letter.is_ascii_digit()))
        .then_some(length)
}

fn until_tag(text: &str) -> Option<usize> {
    text.find('<').filter(|length| *length < 80)
}

fn name(text: &str) -> Option<usize> {
    Some(run(text, |letter| letter.is_alphanumeric() || "-_".contains(letter)))
}

fn hex_length(text: &str) -> Option<usize> {
    Some(run(text, |letter| letter.is_ascii_hexdigit())).filter(|length| (4..=16).contains(length))
}

fn number_length(text: &str) -> Option<usize> {
    let length = run(text, |letter| letter.is_ascii_digit() || letter == '.');
    Some(text[..length].trim_end_matches('.').len())
}

fn numbers_length(text: &str) -> Option<usize> {
    Some(text[..run(text, |letter| letter.is_ascii_digit() || ", ".contains(letter))].trim_end().len())
}

/// Labels of the id of a session or of a sub-agent.
const IDS: [&str; 7] =
    ["agentId", "agent_id", "sessionId", "session_id", "Session ID", "session id", "SendMessage with to"];

fn labelled_id(text: &str, index: usize) -> Option<(usize, usize, &'static str)> {
    let gap = run(&text[index..], |letter| ":=\\\"' ".contains(letter));
    let begin = index + gap;
    let id = &text[begin..];
    let id = &id[..run(id, |letter| letter.is_ascii_alphanumeric() || "-_".contains(letter))];
    let hex = id.len() >= 12
        && id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        && id.contains(|letter: char| letter.is_ascii_digit());
    // An id of opencode.
    let session = id.strip_prefix("ses_").is_some_and(|random| random.len() >= 16);
    ((1..=6).contains(&gap) && (hex || session)).then_some((begin, begin + id.len(), "<id>"))
}

/// Returns a UUID, found by its first dash.
fn find_uuid(text: &str, dash: usize) -> Option<(usize, usize, &'static str)> {
    let bytes = text.as_bytes();
    let from = dash.checked_sub(8)?;
    let form = bytes.get(from..from + 36)?;
    let fits = form.iter().enumerate().all(|(index, byte)| match index {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    });
    let alone = |byte: Option<&u8>| !byte.is_some_and(u8::is_ascii_alphanumeric);
    let preceding = from.checked_sub(1).and_then(|index| bytes.get(index));
    (fits && alone(preceding) && alone(bytes.get(from + 36))).then_some((from, from + 36, "<id>"))
}

/// Returns a generated name below the temporary directory: `tmp.Xy12…`, `tmpab12…`, `name-Xy12ab`.
fn find_temporary_name(text: &str, begin: usize) -> Option<(usize, usize, &'static str)> {
    let name = &text[begin..];
    let name = &name[..run(name, |letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))];
    let full_match = (begin, begin + name.len(), "<id>");
    let mixed = |text: &str| {
        let has = |kind: fn(&char) -> bool| text.chars().any(|letter| kind(&letter));
        text.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
            && (has(char::is_ascii_digit) || has(char::is_ascii_uppercase))
            && has(char::is_ascii_alphabetic)
    };
    if let Some(random) = name.strip_prefix("tmp.").filter(|random| (6..=12).contains(&random.len())) {
        return mixed(random).then_some(full_match);
    }
    if let Some(random) = name.strip_prefix("tmp").filter(|random| random.len() == 8) {
        return mixed(random).then_some(full_match);
    }
    let random = name.rsplit_once('-')?.1;
    (random.len() == 6 && mixed(random)).then_some((begin + name.len() - 6, begin + name.len(), "<id>"))
}

/// Replaces times in milliseconds since 1970.
fn replace_times(text: &mut String) {
    const TIMESTAMP_DIGITS: usize = 13;
    if text.len() < TIMESTAMP_DIGITS {
        return;
    }
    let (mut replaced, mut copied_to, mut index) = (String::new(), 0, 0);
    let bytes = text.as_bytes();
    while index < bytes.len() {
        if !bytes[index].is_ascii_digit() {
            index += 1;
            continue;
        }
        let length = bytes[index..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        // Inside a name it is still a time (`read_1794766863483_0`); after a decimal point it is a fraction.
        let fraction = index > 0 && (bytes[index - 1] == b'.' || bytes[index - 1].is_ascii_alphabetic());
        if length == TIMESTAMP_DIGITS
            && !fraction
            && text[index..index + TIMESTAMP_DIGITS].parse().is_ok_and(is_time)
        {
            replaced.push_str(&text[copied_to..index]);
            replaced.push_str("<time>");
            copied_to = index + TIMESTAMP_DIGITS;
        }
        index += length;
    }
    if copied_to > 0 {
        replaced.push_str(&text[copied_to..]);
        *text = replaced;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directories() -> Directories {
        let places = [
            ("/home/dev/my.app", "<workspace>"),
            ("/home/dev", "<home>"),
            ("/var/tmp/", "<tmp>"),
            ("/app", "<short>"),
        ];
        let places = places.map(|(path, name)| (PathBuf::from(path), name));
        Directories::new(places.iter())
    }

    #[track_caller]
    fn becomes(text: &str, normal: &str) {
        assert_eq!(normalize_text(text, &directories()), normal);
    }

    #[track_caller]
    fn stays(text: &str) {
        becomes(text, text);
    }

    #[test]
    fn directories_have_stand_ins() {
        becomes("cat /home/dev/my.app/a.txt /home/dev/b", "cat <workspace>/a.txt <home>/b");
        becomes("in /home/dev/my.app.", "in <workspace>.");
        becomes("\"/home/dev\": /home/dev/my.app/", "\"<home>\": <workspace>/");
        becomes("~/.claude/projects/-home-dev-my-app/x", "~/.claude/projects/<workspace>/x");
        becomes("/home/dev/my.app2 /home/dev/my.app-old", "<home>/my.app2 <home>/my.app-old");
        becomes("~/.claude/projects/-app/x", "~/.claude/projects/<short>/x");
        becomes("/app/x and /home/dev/.gemini/tmp/my-app/chats", "<short>/x and <home>/.gemini/tmp/<>/chats");
        stays("/home/developer /x/home/dev /home/dev.old my-app --app /apps");
    }

    #[test]
    fn labels_announce_what_changes() {
        becomes("Today's date is 2026-11-15.", "Today's date is <>.");
        becomes("Today's date: Sun Nov 15 2026\nx", "Today's date: <>\nx");
        becomes("Today's date is Sunday, November 15, 2026 (formatted", "Today's date is <> (formatted");
        becomes("<current_date>2026-11-15</current_date>", "<current_date><></current_date>");
        becomes("<timezone>Etc/UTC</timezone>", "<timezone><></timezone>");
        becomes(
            "Chunk ID: fc9aee\nWall time: 0.0123 seconds\nProcess exited with code 0",
            "Chunk ID: <>\nWall time: <> seconds\nProcess exited with code 0",
        );
        becomes("Process Group PGID: 19217\n", "Process Group PGID: <>\n");
        becomes("agentId: a0d6ea9176d77b8c3 (for resuming)", "agentId: <id> (for resuming)");
        becomes(
            "(use SendMessage with to: 'a6a786b0ffba5ad2a', summary",
            "(use SendMessage with to: '<id>', summary",
        );
        stays("Today's date is unknown");
        stays("Chunk ID: none of them");
        stays("session_id = test_session_2");
        stays("the date 2026-11-15 in a file, version 1.2.3, pid 4711, commit 5cab71f");
    }

    #[test]
    fn ids_and_times_are_known_by_their_form() {
        becomes("id 01a1e070-fb9a-79d2-bd90-679942036a6e!", "id <id>!");
        becomes("read_file_1794766863483_0", "read_file_<time>_0");
        becomes("at 1794766863483 ms", "at <time> ms");
        stays("179476686348 17947668634830 0.1794766863483 9794766863483 x1794766863483");
        stays("01a1e070-fb9a-79d2-bd90-679942036a6 and 5cab71f451bf115829d45f98947a993309c71a87");
    }

    #[test]
    fn made_up_names_of_passing_files() {
        becomes("/tmp/tmp.Ab12cd34Ef/x /tmp/tmpab12cd3_", "/tmp/<id>/x /tmp/<id>");
        becomes("/tmp/gemini-Xy12ab/out", "/tmp/gemini-<id>/out");
        becomes("/var/tmp/run-Xy12ab", "<tmp>/run-<id>");
        stays("/tmp/my-folder /tmp/tmp.txt /tmp/a-backup /tmp/template");
    }

    #[test]
    fn instructions_describe_the_machine() {
        let made = |text: &str| normalize_instructions(text, &directories());
        let prompt = "Working directory: /home/dev/my.app\nOS Version: Linux 6.1\nEnd.\n\ngitStatus: on master\nM a.txt";
        assert_eq!(made(prompt), "Working directory: <workspace>\nOS Version:<>\nEnd.\n\n");
        assert_eq!(made("x-anthropic-billing-header: cc_version=2.1.197.abc"), "");
    }
}
