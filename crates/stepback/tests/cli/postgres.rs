//! The whole program on a store in PostgreSQL, and the way there and back.

use std::fs;
use std::path::PathBuf;

use stepback_testkit::postgres::PostgresServer;
use stepback_testkit::tree;

use crate::sandbox::Sandbox;
use crate::talk::Talk;

/// A sandbox whose store is a database.
fn on(server: &PostgresServer) -> Sandbox {
    let mut world = Sandbox::new();
    world.store = PathBuf::from(server.database());
    world
}

#[test]
fn a_rewind_with_git_brings_everything_back() {
    let server = PostgresServer::start();
    let world = on(&server);
    world.git(&["init", "-q", "-b", "main"]);
    fs::write(world.work.join("a.txt"), "one\n").unwrap();
    world.git(&["add", "."]);
    world.git(&["commit", "-qm", "first"]);
    world.git(&["gc", "-q"]);
    fs::write(world.work.join("b.txt"), "not committed\n").unwrap();
    world.ok(["checkpoint", "create", "good"]);
    let before = world.everything();

    fs::write(world.work.join("a.txt"), "two\n").unwrap();
    fs::remove_file(world.work.join("b.txt")).unwrap();
    world.git(&["commit", "-qam", "second"]);
    fs::remove_dir_all(world.work.join(".git")).unwrap();
    world.ok(["rewind", "good", "--files", "--git", "--everything", "--yes"]);
    let after = world.everything();
    assert_eq!(tree::differences(&before, &after), "");
    assert_eq!(world.git(&["log", "--format=%s"]).trim(), "first");
    world.git(&["fsck", "--strict"]);
    assert!(
        !local(&world).join("vault").exists(),
        "git files were kept where other machines cannot see them"
    );

    world.ok(["undo", "--yes"]);
    assert!(!world.work.join("b.txt").exists() && !world.work.join(".git").exists());
    world.ok(["fsck"]);
    let stats = world.ok(["stats"]).out;
    assert!(stats.contains("postgres://test@127.0.0.1"), "{stats}");
}

/// The sandbox of a rerun has no network, and its agent records into the database all the same.
#[test]
fn a_session_in_a_database_is_rerun() {
    let server = PostgresServer::start();
    let world = on(&server);
    let script = r#"{"turns": [
        {"text": "I write.", "calls": [{"tool": "write", "input": {"path": "made.txt", "content": "one\n"}}]},
        {"text": "I look.", "calls": [{"tool": "bash", "input": {"command": "cat made.txt > seen.txt"}}]},
        {"text": "All is done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "do the work"]);
    let before = world.files();
    let same = world.ok(["rerun", "--json", "--compare", "--branch", "same"]).json();
    assert_eq!(same["status"], "completed", "{same:#}");
    assert_eq!(same["comparison"]["first_difference"], serde_json::Value::Null, "{same:#}");
    world.expect_files(&before, "nothing of it happens in the workspace");
    world.expect_restores("branch:same", &before, "the branch has the same files");
    let steps = |session: &serde_json::Value| {
        let id = session.as_str().unwrap();
        crate::wire::steps(&world, Some(id)).len()
    };
    let original = &crate::talk::items(&world.json(["sessions"]))[0]["id"];
    assert_eq!(steps(&same["session"]), steps(original), "the agent inside recorded every step");

    let write = crate::reruns::number_of(&world, "write");
    let other = world.ok(["rerun", "--json", "--set", &format!("#{write}.input.content=two\n")]).json();
    let name = format!("branch:{}", other["branch"].as_str().unwrap());
    let into = world.root().join("result");
    world.ok(["restore", &name, "--into", into.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(into.join("made.txt")).unwrap(), "two\n");
    world.ok(["fsck"]);
}

/// The directory of this machine for the only database used here.
fn local(world: &Sandbox) -> PathBuf {
    let servers = world.home.join(".local/share/stepback/postgres");
    fs::read_dir(servers).unwrap().next().unwrap().unwrap().path()
}

#[test]
fn a_store_is_copied_there_and_back() {
    let server = PostgresServer::start();
    let mut world = Sandbox::new();
    world.git(&["init", "-q", "-b", "main"]);
    for version in 0..4 {
        fs::write(world.work.join("a.txt"), format!("version {version}\n").repeat(200)).unwrap();
        world.git(&["add", "."]);
        world.git(&["commit", "-qm", "more"]);
        world.ok(["checkpoint", "create", &format!("v{version}"), "--tag", "kept"]);
    }
    world.ok(["checkpoint", "delete", "v1"]);
    world.ok(["rewind", "v0", "--files", "--git", "--everything", "--yes"]);
    let old = but_git_objects(&world);
    let log = world.ok(["log"]).out;
    let op_log = world.ok(["op", "log"]).out;
    let answers = answers(&world);

    let directory = world.store.display().to_string();
    let database = server.database();
    let copied = world.ok(["store", "copy", &directory, &database]).out;
    assert!(copied.contains("verified the copy") && copied.contains("STEPBACK_HOME"), "{copied}");
    let again = world.run(["store", "copy", &directory, &database]).exits(9);
    assert!(again.err.contains("not empty"), "{}", again.err);

    let back = world.root().join("back").display().to_string();
    world.ok(["store", "copy", &database, &back]);
    for store in [database, back] {
        world.store = PathBuf::from(store);
        assert_eq!(world.ok(["log"]).out, log);
        assert_eq!(world.ok(["op", "log"]).out, op_log);
        assert_eq!(self::answers(&world), answers);
        world.ok(["fsck"]);
        world.ok(["rewind", "v3", "--files", "--git", "--everything", "--yes"]);
        let text = fs::read_to_string(world.work.join("a.txt")).unwrap();
        assert_eq!(text, "version 3\n".repeat(200));
        world.ok(["rewind", "v0", "--files", "--git", "--everything", "--yes"]);
        assert_eq!(tree::differences(&old, &but_git_objects(&world)), "");
        world.git(&["fsck", "--strict"]);
    }
}

/// What searches and queries find: the same in every store.
fn answers(world: &Sandbox) -> Vec<serde_json::Value> {
    let questions: [&[&str]; 6] = [
        &["search", "kept"],
        &["search", "v* a.txt -v2", "--hidden"],
        &["search", "--substring", "a.tx"],
        &["query", "--tag", "kept", "--order", "oldest", "--limit", "2"],
        &["query", "--checkpoints", "--hidden"],
        &["query", "--count"],
    ];
    let answer = |question: &&[&str]| {
        let mut answer = world.json(*question);
        assert_ne!(answer["total"], 0, "{question:?}");
        for item in answer["items"].as_array_mut().into_iter().flatten() {
            // Two programs that add the same numbers may differ in the last digit.
            if let Some(score) = item["score"].as_f64() {
                item["score"] = format!("{score:.6}").into();
            }
        }
        answer
    };
    questions.iter().map(answer).collect()
}

/// Everything in the workspace but objects of git: those that a state does not need stay or go, depending on where they are kept.
fn but_git_objects(world: &Sandbox) -> tree::Copy {
    tree::copy_of(&world.work, |path| path.starts_with(b".git/objects/"))
}

/// However far a copy gets: what it leaves is nothing, refused, or whole.
#[test]
fn a_copy_that_was_cut_off_is_refused() {
    let world = Sandbox::new();
    for version in 0..3 {
        world.write("a.txt", format!("version {version}\n"));
        world.ok(["checkpoint", "create", &format!("v{version}")]);
    }
    let whole = world.json(["stats"]);
    let directory = world.store.display().to_string();
    let mut refused = 0;
    for point in 1.. {
        let target = world.root().join(format!("target{point}")).display().to_string();
        let ran = world.faulty(&["store", "copy", &directory, &target], &format!("kill:{point}"));
        let left = world.run(["--store", &target, "stats", "--json"]);
        match left.code {
            Some(6) => {
                assert!(left.err.contains("was not finished"), "{}", left.err);
                refused += 1;
            }
            // Nothing there yet.
            Some(4) => {}
            _ => {
                let stats = left.exits(0).json();
                let empty = stats["usage"]["objects"] == 0 && stats["items"] == serde_json::json!([]);
                assert!(empty || stats["items"] == whole["items"], "killed at {point}: {stats}");
            }
        }
        if ran.code == Some(0) {
            break;
        }
    }
    assert!(refused > 5, "{refused}");
}

#[test]
fn hooks_record_into_a_database() {
    let server = PostgresServer::start();
    let world = on(&server);
    world.write("a.txt", "one\n");
    let talk = Talk::new(&world, "s1");
    talk.begin();
    talk.prompt("do it");
    let ran = talk.pre("c1", "Bash", serde_json::json!({ "command": "rm a.txt" })).exits(0);
    assert_eq!(ran.err, "");
    fs::remove_file(world.path("a.txt")).unwrap();
    let sessions = world.json(["sessions"]);
    assert_eq!(sessions["items"].as_array().map(Vec::len), Some(1), "{sessions}");
    world.ok(["rewind", "tool:bash:last", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("a.txt")).unwrap(), "one\n");
}
