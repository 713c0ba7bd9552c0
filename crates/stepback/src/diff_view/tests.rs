//! Tests of the rendering as a whole: patches against the real git, terminal output by its text.

use std::path::Path;
use std::process::{Command, Stdio};

use stepback_model::path::display_bytes;

use super::compare::is_binary;
use super::header::{quote_git_path, unescape_display};
use super::*;

fn file(text: impl AsRef<[u8]>) -> PathSide {
    PathSide::File { mode: 0o644, bytes: text.as_ref().to_vec() }
}

fn change(path: &str, old: PathSide, new: PathSide) -> FileDiff {
    FileDiff { path: display_bytes(path.as_bytes()).into_owned(), old_path: None, old, new }
}

fn render(
    how: fn(&[FileDiff], &DiffStyle, &mut dyn std::io::Write) -> std::io::Result<()>,
    diffs: &[FileDiff],
    style: &DiffStyle,
) -> String {
    let mut out = Vec::new();
    how(diffs, style, &mut out).unwrap();
    String::from_utf8_lossy(&out).into_owned()
}

const PLAIN: DiffStyle = DiffStyle { color: false, escape: false, width: 80, highlight: false, context: 3 };
const SAFE: DiffStyle = DiffStyle { escape: true, ..PLAIN };
const COLOR: DiffStyle = DiffStyle { color: true, ..PLAIN };

fn numbered_lines(count: usize) -> String {
    (1..=count).map(|n| format!("line {n}\n")).collect()
}

#[test]
fn an_edit_is_shown_with_three_lines_of_context() {
    let (old, new) = (numbered_lines(9), numbered_lines(9).replace("line 5\n", "five\n"));
    assert_eq!(
        render(write_unified, &[change("a.txt", file(old), file(new))], &PLAIN),
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -2,7 +2,7 @@\n line 2\n line 3\n line 4\n\
         -line 5\n+five\n line 6\n line 7\n line 8\n"
    );
}

#[test]
fn context_may_be_nothing_or_everything() {
    let (old, new) =
        (numbered_lines(9), numbered_lines(9).replace("line 5\n", "").replace("line 9\n", "nine\n"));
    let diffs = [change("a.txt", file(old), file(new))];
    let shown = render(write_unified, &diffs, &DiffStyle { context: 0, ..PLAIN });
    assert!(shown.ends_with("@@ -5 +4,0 @@\n-line 5\n@@ -9 +8 @@\n-line 9\n+nine\n"), "{shown}");
    let shown = render(write_unified, &diffs, &DiffStyle { context: usize::MAX, ..PLAIN });
    assert!(shown.contains("@@ -1,9 +1,8 @@\n line 1\n"), "{shown}");
}

#[test]
fn things_that_git_does_not_know_are_notes_and_equal_sides_are_silent() {
    let diffs = [
        change("d", PathSide::Absent, PathSide::Dir { mode: 0o755 }),
        change("p", PathSide::Other("named\x1b pipe".into()), PathSide::Absent),
        change("same", file("x"), file("x")),
        change("dir", PathSide::Dir { mode: 0o755 }, PathSide::Dir { mode: 0o755 }),
    ];
    assert_eq!(
        render(write_unified, &diffs, &PLAIN),
        "# d: directory (mode 755) created\n# p: named\\u{1b} pipe removed\n"
    );
}

#[test]
fn binary_and_unloaded_contents_are_named_with_their_sizes() {
    let diffs = [
        change("b", file([0; 1200]), file([0; 3400])),
        change("l", PathSide::Absent, PathSide::TooLarge { mode: 0o644, size: 5_000_000_000 }),
    ];
    let shown = render(write_unified, &diffs, &SAFE);
    assert!(shown.contains("Binary files a/b and b/b differ (1.2 KB → 3.4 KB)\n"), "{shown}");
    assert!(shown.contains("Files /dev/null and b/l differ (too large to compare, 5.0 GB)\n"), "{shown}");
    assert!(is_binary(b"a\0b") && is_binary(&[0xfe; 40]) && !is_binary("größe\n".as_bytes()));
    assert!(!is_binary(b"caf\xe9 au lait\n"), "Latin-1 is text");
}

#[test]
fn content_cannot_act_on_the_terminal() {
    let evil = "\x1b]0;owned\x07 \u{9b}2J \u{202e}cod\u{e0041} \x08\x7f\r over\r\n".as_bytes();
    let bytes = [evil, b"\xff\n"].concat();
    let link = PathSide::Symlink { target: b"\x1b[2J".to_vec() };
    let diffs = [change("x", file(""), file(&bytes)), change("l", PathSide::Absent, link)];
    for style in [SAFE, COLOR, DiffStyle { highlight: true, ..COLOR }] {
        for how in [write_unified, write_side_by_side] {
            let shown = render(how, &diffs, &style);
            // What is left after removing our own colours must hold no control character but line ends.
            let text = strip_colors(&shown);
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
            assert!(!text.contains('\u{202e}') && !text.contains('\u{e0041}'), "{text:?}");
            assert!(text.contains("\\u{1b}]0;owned\\u{7} \\u{9b}2J"), "{text}");
        }
    }
    assert!(render(write_unified, &diffs, &SAFE).contains("+\\xff\n"));
}

/// Removes `ESC [ … m` with digits and semicolons only: all that this module writes.
fn strip_colors(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        out.push_str(&rest[..at]);
        let tail = &rest[at + 2..];
        let end = tail.find(|c: char| !c.is_ascii_digit() && c != ';').unwrap();
        assert_eq!(&tail[end..=end], "m");
        rest = &tail[end + 1..];
    }
    out + rest
}

#[test]
fn colours_do_not_change_the_text() {
    let old = "fn main() {\n    let x = 1; // größe\n}\n";
    let new = "fn main() {\n    let y = 1; // größe\n    /* more\n */\n}\n";
    let diffs = [change("src/main.rs", file(old), file(new))];
    let plain = render(write_unified, &diffs, &PLAIN);
    let colored = render(write_unified, &diffs, &COLOR);
    let highlighted = render(write_unified, &diffs, &DiffStyle { highlight: true, ..COLOR });
    assert_eq!(strip_colors(&colored), plain);
    assert_eq!(strip_colors(&highlighted), plain);
    // Only the changed word is emphasised.
    assert!(colored.contains("\x1b[7m\x1b[31mx\x1b[0m"), "{colored:?}");
    assert!(highlighted.contains("\x1b[48;5;88m"), "{highlighted:?}");
}

#[test]
fn columns_fit_the_width_with_wide_characters_tabs_and_long_lines() {
    let old = format!("same\n\t漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字\n{}\n", "x".repeat(900));
    let new = "same\n\t漢字\nshort\nadded\n";
    let diffs = [change("a", file(old), file(new))];
    let page = DiffStyle { width: 60, ..PLAIN };
    let shown = render(write_side_by_side, &diffs, &page);
    for line in shown.lines() {
        assert!(unicode_width::UnicodeWidthStr::width(line) <= 60, "{line}");
    }
    assert!(shown.contains("1  same"), "{shown}");
    assert!(shown.contains('…'), "{shown}");
    let gaps: Vec<usize> = shown
        .lines()
        .filter_map(|line| line.split_once('│').map(|(left, _)| unicode_width::UnicodeWidthStr::width(left)))
        .collect();
    assert!(gaps.windows(2).all(|pair| pair[0] == pair[1]), "{shown}");
    render(write_side_by_side, &diffs, &DiffStyle { width: 3, ..PLAIN });
}

#[test]
fn stat_scales_bars_and_sums_up() {
    let diffs = [
        change("src/a.rs", file(""), file(numbered_lines(200))),
        change("b", file("x\ny\n"), file("x\n")),
        change("run.sh", file("x"), PathSide::File { mode: 0o755, bytes: b"x".to_vec() }),
        change("pic", file([0; 10]), file([0; 2000])),
        FileDiff { old_path: Some("old".into()), ..change("new", file("x"), file("x")) },
    ];
    let shown = render(write_stat, &diffs, &DiffStyle { width: 40, ..PLAIN });
    let plus = "+".repeat(22);
    assert_eq!(
        shown,
        format!(
            " src/a.rs   | 200 {plus}\n b          |   1 -\n run.sh     | mode 644 → 755\n pic        | Bin 10 B → 2.0 KB\n \
             old => new |   0\n 5 files changed, 200 insertions(+), 1 deletion(-)\n"
        )
    );
    let long = [change(&"deep/".repeat(30), file(""), file("x\n"))];
    let shown = render(write_stat, &long, &DiffStyle { width: 40, ..PLAIN });
    assert!(shown.lines().all(|line| line.len() <= 40) && shown.starts_with(" ..."), "{shown}");
    assert_eq!(render(write_stat, &[], &PLAIN), "");
}

#[test]
fn json_holds_hunks_and_counts() {
    let diff = change("a", file("one\ntwo\n"), file("one\n2"));
    assert_eq!(count_changed_lines(&diff), (1, 1));
    assert_eq!(
        hunks_json(&diff),
        serde_json::json!({ "binary": false, "lossy": false, "hunks": [{
            "old_start": 1, "old_lines": 2, "new_start": 1, "new_lines": 2, "lines": [
                { "kind": "context", "text": "one" },
                { "kind": "removed", "text": "two" },
                { "kind": "added", "text": "2", "no_newline": true },
            ],
        }] })
    );
    let binary = hunks_json(&change("a", file([0]), file([0, 0])));
    assert_eq!(binary, serde_json::json!({ "binary": true, "lossy": false, "hunks": [] }));
    assert_eq!(hunks_json(&change("a", file("a"), file(b"caf\xe9 au lait")))["lossy"], true);
}

#[test]
fn names_are_recovered_from_their_display_and_quoted_like_git() {
    for name in [
        &b"plain name"[..],
        b"back\\slash",
        b"q\"uote",
        b"tab\tnl\n\x1b",
        b"\xff\\x41",
        "naïve\u{202e}".as_bytes(),
    ] {
        assert_eq!(unescape_display(&display_bytes(name)), name);
    }
    assert_eq!(unescape_display("odd \\q \\x \\u{zz} \\"), b"odd \\q \\x \\u{zz} \\");
    assert_eq!(quote_git_path("a/", "naïve".as_bytes()), "\"a/na\\303\\257ve\"");
    assert_eq!(quote_git_path("a/", b"a b"), "a/a b");
    assert_eq!(quote_git_path("a/", b"a\"\\\t\x01"), "\"a/a\\\"\\\\\\t\\001\"");
}

#[test]
fn a_large_rewrite_is_quick() {
    let side = |name: &str| -> String {
        (0..60_000).map(|n| format!("line {n} of {name}, as long as usual, and more\n")).collect()
    };
    let diff = change("big.txt", file(side("old")), file(side("new")));
    let start = std::time::Instant::now();
    assert_eq!(count_changed_lines(&diff), (60_000, 60_000));
    for style in [PLAIN, DiffStyle { highlight: true, ..COLOR }] {
        write_unified(std::slice::from_ref(&diff), &style, &mut std::io::sink()).unwrap();
    }
    // Generous, because tests are not optimised.
    assert!(start.elapsed().as_secs() < 60, "{:?}", start.elapsed());
}

/// Writes `side` at `path` below `root`.
fn write_side(root: &Path, path: &str, side: &PathSide) {
    use std::os::unix::fs::PermissionsExt;
    let at = root.join(path);
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    match side {
        PathSide::File { mode, bytes } => {
            std::fs::write(&at, bytes).unwrap();
            std::fs::set_permissions(&at, PermissionsExt::from_mode(*mode)).unwrap();
        }
        PathSide::Symlink { target } => {
            std::os::unix::fs::symlink(std::str::from_utf8(target).unwrap(), &at).unwrap();
        }
        _ => {}
    }
}

/// What is on disk, as far as git records it.
fn read_side(root: &Path, path: &str) -> PathSide {
    use std::os::unix::fs::PermissionsExt;
    let at = root.join(path);
    match at.symlink_metadata() {
        Err(_) => PathSide::Absent,
        Ok(meta) if meta.is_symlink() => PathSide::Symlink {
            target: std::fs::read_link(at).unwrap().into_os_string().into_encoded_bytes(),
        },
        Ok(meta) => {
            let mode = if meta.permissions().mode() & 0o100 == 0 { 0o644 } else { 0o755 };
            PathSide::File { mode, bytes: std::fs::read(at).unwrap() }
        }
    }
}

/// Runs `git apply` on the patch; `None` if there is no git.
fn git_apply(root: &Path, patch: &[u8]) -> Option<bool> {
    use std::io::Write;
    let mut git = Command::new("git")
        .args(["apply", "--whitespace=nowarn", "-"])
        .current_dir(root)
        .env("GIT_CEILING_DIRECTORIES", root.parent()?)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    git.stdin.take()?.write_all(patch).unwrap();
    let done = git.wait_with_output().unwrap();
    if !done.status.success() {
        eprintln!("{}\n{}", String::from_utf8_lossy(&done.stderr), String::from_utf8_lossy(patch));
    }
    Some(done.status.success())
}

#[test]
fn git_applies_the_patch_exactly() {
    let run = |text: &str| PathSide::File { mode: 0o755, bytes: text.as_bytes().to_vec() };
    let link = |to: &str| PathSide::Symlink { target: to.as_bytes().to_vec() };
    let rename = |from: &str, diff: FileDiff| FileDiff {
        old_path: Some(display_bytes(from.as_bytes()).into_owned()),
        ..diff
    };
    let long = numbered_lines(60);
    let edited =
        long.replace("line 3\n", "").replace("line 30\n", "a\nb\n").replace("line 58\n", "tab\there\n");
    let cases = [
        change("edit.txt", file(&long), file(&edited)),
        change("new.txt", PathSide::Absent, file("a\nb\n")),
        change("empty", PathSide::Absent, file("")),
        change("gone", file("a\nb\n"), PathSide::Absent),
        change("gone-empty", file(""), PathSide::Absent),
        change("emptied", file("a\n"), file("")),
        change("no-newline-added", file("a\nb"), file("a\nb\n")),
        change("no-newline-removed", file("a\nb\n"), file("a\nb")),
        change("no-newline-kept", file("a\nb\nc"), file("A\nb\nc")),
        change("no-newline-new", PathSide::Absent, file("a")),
        change("crlf", file("a\r\nb\r\nc\rd\r\n"), file("a\r\nB\nc\rd\r\n")),
        change("latin1", file(b"caf\xe9 and more text\nb\n"), file(b"caf\xe9 and more text\nb\xff\n")),
        change("escape", file("x\n"), file("\x1b[31mred\x1b[0m\n")),
        change("dashes", file("-- a\n++ b\n@@ -1 +1 @@\n"), file("-- a\n-- c\n@@ -1 +1 @@\n\\ x\n")),
        change("run.sh", file("x\n"), run("x\n")),
        change("run2.sh", run("x\n"), file("y\n")),
        change("new.sh", PathSide::Absent, run("x\n")),
        change("with space", file("x\n"), file("y\n")),
        change("dir with space/new one", PathSide::Absent, file("y\n")),
        change("empty with space", PathSide::Absent, file("")),
        change("q\"uote", file("x\n"), file("y\n")),
        change("back\\slash", PathSide::Absent, file("y\n")),
        change("naïve/漢字", file("x\n"), file("y\n")),
        change("tab\tand\nline\x01", file("x\n"), PathSide::Absent),
        change("link", link("a"), link("b/ü")),
        change("link-new", PathSide::Absent, link("t")),
        change("link-gone", link("t"), PathSide::Absent),
        change("becomes-link", file("x\n"), link("t")),
        change("becomes-file", link("t"), file("x\n")),
        rename("from", change("to", file("x\n"), file("x\n"))),
        rename("from here", change("tö \"there\"", file(&long), file(&edited))),
        rename("from2", change("sub/to2", file("x\n"), run("x\n"))),
    ];
    for context in [3, 1] {
        let style = DiffStyle { context, ..PLAIN };
        // Each alone, so that a failure names its case, and all together, so that none disturbs the next.
        let alone = cases.iter().map(std::slice::from_ref);
        for diffs in alone.chain([&cases[..]]) {
            let dir = tempfile::tempdir().unwrap();
            let name = |shown: &str| String::from_utf8(unescape_display(shown)).unwrap();
            for diff in diffs {
                write_side(dir.path(), &name(diff.old_path.as_ref().unwrap_or(&diff.path)), &diff.old);
            }
            let mut noted = vec![change("dir", PathSide::Absent, PathSide::Dir { mode: 0o755 })];
            noted.extend_from_slice(diffs);
            noted.push(change("dir2", PathSide::Dir { mode: 0o755 }, PathSide::Absent));
            let mut patch = Vec::new();
            write_unified(&noted, &style, &mut patch).unwrap();
            let Some(applied) = git_apply(dir.path(), &patch) else { return };
            assert!(applied, "{:?}", diffs[0].path);
            for diff in diffs {
                assert_eq!(read_side(dir.path(), &name(&diff.path)), diff.new, "{}", diff.path);
                if let Some(from) = &diff.old_path {
                    assert_eq!(read_side(dir.path(), &name(from)), PathSide::Absent);
                }
            }
        }
    }
}

#[test]
fn git_refuses_a_patch_with_contents_left_out() {
    for new in [file([0; 9]), PathSide::TooLarge { mode: 0o644, size: 9 }] {
        for old in [PathSide::Absent, file([0; 8])] {
            let dir = tempfile::tempdir().unwrap();
            write_side(dir.path(), "b", &old);
            let mut patch = Vec::new();
            write_unified(&[change("b", old, new.clone())], &PLAIN, &mut patch).unwrap();
            assert!(git_apply(dir.path(), &patch) != Some(true));
        }
    }
}
