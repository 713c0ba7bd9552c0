//! Authorship notes, read back by `git notes` and by a parser that shares no code with the writer.

use std::collections::BTreeMap;

use stepback_api::git_export::NotesWrittenDocument;
use stepback_git_export::{NotesRequest, read_notes, write_notes};

use crate::place::Place;

fn write(place: &Place, commits: &str) -> NotesWrittenDocument {
    let request = NotesRequest { commits: commits.to_owned(), is_dry_run: false };
    write_notes(&place.workspace, &request).unwrap()
}

/// The lines of each file by key, and the object.
fn parse(text: &str) -> (BTreeMap<(String, u64), String>, serde_json::Value) {
    let (entries, object) = text.split_once("\n---\n").unwrap();
    let (mut lines, mut path) = (BTreeMap::new(), String::new());
    for line in entries.lines() {
        let Some(entry) = line.strip_prefix("  ") else {
            path = line.trim_matches('"').to_owned();
            continue;
        };
        let (key, ranges) = entry.split_once(' ').unwrap();
        for range in ranges.split(',') {
            let mut ends = range.split('-').map(|end| end.parse::<u64>().unwrap());
            let first = ends.next().unwrap();
            for line in first..=ends.next().unwrap_or(first) {
                let twice = lines.insert((path.clone(), line), key.to_owned());
                assert!(twice.is_none(), "line {line} of {path} has two authors");
            }
        }
    }
    (lines, serde_json::from_str(object).unwrap())
}

fn note(place: &Place, commit: &str) -> (BTreeMap<(String, u64), String>, serde_json::Value) {
    parse(&place.git(&["notes", "--ref=ai", "show", commit]))
}

/// A commit with lines of a session, of the user, and of neither.
fn played() -> Place {
    let place = Place::new();
    place.checkpoint();
    place.prompt("one", "write");
    place.edit("one", "with space", "a\nb\n");
    place.edit("one", "readme", "one\nby one\ntwo\n");
    place.test.write("readme", "one\nby one\ntwo\nby hand\n");
    place.checkpoint();
    place.edit("two", "readme", "one\nby one\ntwo\nby hand\nby two\n");
    place.git(&["add", "-A"]);
    // This file was never recorded with the content that is committed.
    place.test.write("unknown", "x\ny\n");
    place.commit("work");
    place.test.write("unknown", "something else\n");
    place.checkpoint();
    place
}

#[test]
fn a_note_says_who_wrote_the_lines_of_a_commit() {
    let place = played();
    let before = place.git_files();
    let document = write(&place, "HEAD");
    let added = place.added_git_files(&before);
    assert!(added.iter().all(|path| path.starts_with("objects/") || path == "refs/notes/ai"), "{added:?}");
    assert_eq!(
        String::from_utf8_lossy(&crate::place::try_git(&place.test.root, &["fsck", "--strict"]).stderr),
        ""
    );
    let commit = &document.commits[0];
    assert_eq!(
        (commit.result.as_str(), commit.session_lines, commit.human_lines, commit.unknown_lines),
        ("written", 4, 1, 2)
    );
    assert_eq!(commit.left_out[0].path, "unknown");
    let (lines, object) = note(&place, "HEAD");
    let author = |path: &str, line: u64| lines.get(&(path.to_owned(), line)).map(String::as_str);
    let one = author("readme", 2).unwrap();
    let two = author("readme", 5).unwrap();
    let (session, trace) = one.split_once("::").unwrap();
    assert_eq!((session.len(), trace.len(), &one[..2]), (16, 16, "s_"));
    assert_ne!(session, two.split_once("::").unwrap().0);
    assert_eq!(author("with space", 1).unwrap().split_once("::").unwrap().0, session);
    assert!(author("readme", 4).unwrap().starts_with("h_"));
    assert_eq!((author("readme", 1), author("readme", 3), author("unknown", 1)), (None, None, None));
    assert_eq!(object["schema_version"], "authorship/3.0.0");
    assert_eq!(object["base_commit_sha"], place.git(&["rev-parse", "HEAD"]).trim());
    assert_eq!(object["sessions"][session]["agent_id"]["tool"], "test");
    assert_eq!(object["sessions"][session]["agent_id"]["id"], "one");
    assert_eq!(object["humans"][author("readme", 4).unwrap()]["author"], "Ann <ann@example.org>");
    assert!(object["prompts"].is_object() && object["sessions"][session].get("messages").is_none());
    // Read back, with the recorded sessions.
    let read = read_notes(&place.workspace, "HEAD").unwrap().unwrap();
    let of_two =
        read.ranges.iter().find(|range| (range.path.as_str(), range.first) == ("readme", 5)).unwrap();
    assert_eq!(of_two.session.as_deref(), Some(place.session("two").id.to_string().as_str()));
    assert_eq!(read_notes(&place.workspace, "HEAD~1").unwrap(), None);
    // A second time, nothing changes.
    let before = place.git_files();
    let again = write(&place, "HEAD");
    assert_eq!((again.commits[0].result.as_str(), again.commit), ("unchanged", None));
    assert_eq!(place.added_git_files(&before), [""; 0]);
}

#[test]
fn entries_of_another_program_stay() {
    let place = played();
    let foreign = "readme\n  s_1b36c35afd9ad7::t_7cfed781858af0 2\nother\n  d4a7828bfdafe456 1-3\n---\n{\n  \"schema_version\": \"authorship/3.0.0\",\n  \"git_ai_version\": \"1.6.22\",\n  \"base_commit_sha\": \"x\",\n  \"prompts\": {\"d4a7828bfdafe456\": {\"agent_id\": {\"tool\": \"cursor\"}}},\n  \"future\": [1.50]\n}";
    place.git(&["notes", "--ref=ai", "add", "-m", foreign, "HEAD"]);
    let document = write(&place, "HEAD");
    let commit = &document.commits[0];
    assert_eq!((commit.result.as_str(), commit.session_lines, commit.foreign_lines), ("merged", 3, 1));
    let (lines, object) = note(&place, "HEAD");
    assert_eq!(lines[&("readme".to_owned(), 2)], "s_1b36c35afd9ad7::t_7cfed781858af0");
    assert_eq!(lines[&("other".to_owned(), 3)], "d4a7828bfdafe456");
    assert_eq!(object["prompts"]["d4a7828bfdafe456"]["agent_id"]["tool"], "cursor");
    let text = place.git(&["notes", "--ref=ai", "show", "HEAD"]);
    assert!(text.contains("[1.50]"), "{text}");
    assert_eq!(place.git(&["rev-list", "--count", "refs/notes/ai"]).trim(), "2");
    assert_eq!(
        document.undo.unwrap(),
        format!("git update-ref refs/notes/ai {}", place.git(&["rev-parse", "refs/notes/ai^"]).trim())
    );
    // One that cannot be understood is not touched.
    place.git(&["notes", "--ref=ai", "add", "-f", "-m", "a poem", "HEAD"]);
    let document = write(&place, "HEAD");
    assert_eq!((document.commits[0].result.as_str(), document.commit), ("refused", None));
    assert_eq!(place.git(&["notes", "--ref=ai", "show", "HEAD"]), "a poem\n");
}

#[test]
fn many_notes_are_read_and_written_where_git_keeps_them() {
    let place = Place::new();
    // So many that git makes directories of their names.
    let mut import = String::from("reset refs/heads/many\n");
    for number in 0..600 {
        import.push_str(&format!(
            "commit refs/heads/many\nmark :{0}\ncommitter a <a@b> {0} +0000\ndata 1\nx\n",
            number + 1
        ));
    }
    import.push_str("commit refs/notes/ai\ncommitter a <a@b> 1 +0000\ndata 1\nx\n");
    for number in 0..600 {
        import.push_str(&format!("N inline :{}\ndata 4\nnote\n", number + 1));
    }
    let mut child = std::process::Command::new("git")
        .arg("-C")
        .arg(&place.test.root)
        .args(["fast-import", "--quiet"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), import.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
    assert!(place.git(&["ls-tree", "refs/notes/ai"]).contains(" tree "));
    place.checkpoint();
    place.prompt("one", "write");
    place.edit("one", "code", "a\n");
    place.commit("work");
    assert_eq!(write(&place, "HEAD").commits[0].result, "written");
    assert_eq!(note(&place, "HEAD").0.len(), 1);
    assert_eq!(place.git(&["notes", "--ref=ai", "list"]).lines().count(), 601);
    assert_eq!(place.git(&["notes", "--ref=ai", "show", "many"]).trim(), "note");
    // Git goes on with them.
    place.git(&["notes", "--ref=ai", "append", "-m", "more", "HEAD"]);
    assert_eq!(place.git(&["notes", "--ref=ai", "list"]).lines().count(), 601);
}

#[test]
fn a_range_and_a_dry_run() {
    let place = Place::new();
    place.checkpoint();
    place.prompt("one", "write");
    for number in 0..3 {
        place.edit("one", "code", &"line\n".repeat(number + 1));
        place.commit(&format!("commit {number}"));
    }
    let before = place.git_files();
    let request = NotesRequest { commits: "HEAD~2..HEAD".to_owned(), is_dry_run: true };
    let dry = write_notes(&place.workspace, &request).unwrap();
    assert_eq!(place.added_git_files(&before), [""; 0]);
    assert_eq!((dry.commits.len(), dry.commit.as_ref()), (2, None));
    let (lines, _) = parse(dry.commits[1].note.as_ref().unwrap());
    assert_eq!(lines.keys().map(|(_, line)| *line).collect::<Vec<_>>(), [3]);
    let wet = write(&place, "HEAD~2..");
    assert_eq!(wet.commits.iter().map(|commit| commit.result.as_str()).collect::<Vec<_>>(), ["written"; 2]);
    assert_eq!(place.git(&["notes", "--ref=ai", "list"]).lines().count(), 2);
    for name in ["no-such-branch", "HEAD~99", "HEAD~x", "", "a..b..c", "-"] {
        let request = NotesRequest { commits: name.to_owned(), is_dry_run: false };
        assert!(write_notes(&place.workspace, &request).is_err(), "{name}");
    }
    // By the beginning of its id, and in a repository whose objects are packed.
    let commit = place.git(&["rev-parse", "HEAD"]);
    place.git(&["gc", "-q"]);
    assert!(read_notes(&place.workspace, &commit[..8]).unwrap().is_some());
}
