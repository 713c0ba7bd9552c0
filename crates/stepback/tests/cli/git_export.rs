//! `export --git` and `notes`: what the built-in agent did, in the user's repository.

use std::fs;

use crate::sandbox::Sandbox;

/// A repository in which the built-in agent changed a committed file.
fn played() -> Sandbox {
    let world = Sandbox::new();
    world.write("readme", "hello\n");
    world.init_git();
    world.write("notes.txt", "an old line\n");
    world.git(&["add", "-A"]);
    world.git(&["commit", "-q", "-m", "before the agent"]);
    let script = r#"{"turns": [
        {"text": "I write.", "calls": [{"tool": "edit", "input": {"path": "notes.txt", "old": "an old line\n", "new": "an old line\nby the agent\n"}}]},
        {"text": "Done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "add a line"]);
    world
}

#[test]
fn a_session_becomes_commits_and_authorship_notes() {
    let world = played();
    let head = world.git(&["rev-parse", "HEAD"]).trim().to_owned();
    // The old line has git's commit.
    let blame = world.json(["blame", "notes.txt:1"]);
    let commit = &blame["origins"][0]["commit"];
    assert_eq!(
        (commit["id"].as_str(), commit["subject"].as_str()),
        (Some(head.as_str()), Some("before the agent"))
    );
    let said = world.ok(["blame", "notes.txt:1"]).out;
    assert!(said.contains(&head[..10]) && said.contains("before the agent"), "{said}");
    let record = world.ok(["blame", "notes.txt:1", "--porcelain"]).out;
    assert!(record.contains(&format!("\ncommit {head}\n")), "{record}");
    assert!(world.json(["blame", "notes.txt:1", "--no-git"])["origins"][0]["commit"].is_null());

    let status = world.git(&["status", "--porcelain"]);
    let said = world.ok(["export", "--git", "agent-work"]);
    assert!(said.out.contains("Wrote 1 commit to refs/heads/agent-work"), "{}", said.out);
    assert!(said.err.contains("git branch -D agent-work"), "{}", said.err);
    assert_eq!(world.git(&["show", "agent-work:notes.txt"]), "an old line\nby the agent\n");
    assert_eq!(world.git(&["rev-parse", "agent-work^", "HEAD"]), format!("{head}\n{head}\n"));
    assert_eq!(world.git(&["status", "--porcelain"]), status);
    let document = world.json(["export", "--git", "agent-work"]);
    assert_eq!(
        (&document["changed"], &document["reference"]),
        (&false.into(), &"refs/heads/agent-work".into())
    );
    for (words, code, part) in [
        (&["export", "--git", "main"][..], 2, "checked out"),
        (&["export", "--git", "a..b"], 2, "not a valid name"),
        (&["export", "--git", "refs/tags/x"], 2, "refs/stepback/"),
        (&["export", "--git", "x", "--format", "jsonl"], 2, "cannot be used with"),
        (&["export", "--per", "turn"], 2, "--git"),
        (&["notes", "read"], 4, "has no note"),
        (&["notes", "read", "no-such-commit"], 3, "no commit"),
    ] {
        let ran = world.run(words).exits(code);
        assert!(ran.err.contains(part), "{words:?}: {}", ran.err);
    }

    world.git(&["commit", "-q", "-a", "-m", "the agent's work"]);
    let dry = world.ok(["notes", "write", "--dry-run"]).out;
    assert!(dry.contains("1 line by sessions") && dry.contains("authorship/3.0.0"), "{dry}");
    let said = world.ok(["notes", "write"]);
    assert!(said.err.contains("git update-ref -d refs/notes/ai"), "{}", said.err);
    assert!(world.git(&["notes", "--ref=ai", "show"]).starts_with("notes.txt\n  s_"));
    let read = world.ok(["notes", "read"]).out;
    assert!(read.starts_with("notes.txt:2  stepback "), "{read}");
}
