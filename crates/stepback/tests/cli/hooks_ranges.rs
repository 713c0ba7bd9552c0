//! Taking back what happened between two points, what a rewind does not reach, notes after changes, and lists that begin again
//! after a commit.

use std::fs;

use serde_json::json;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

fn read(world: &Sandbox, name: &str) -> String {
    fs::read_to_string(world.path(name)).unwrap_or_else(|_| "(missing)".into())
}

#[test]
fn what_happened_between_two_points_is_taken_back() {
    let world = Sandbox::new();
    world.write("file", "1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    agent.write("w1", "early", "early\n");
    world.ok(["checkpoint", "create", "A"]);
    agent.write("w2", "file", "one\n2\n3\n4\n5\n6\n7\n8\n9\n");
    agent.write("w3", "between", "between\n");
    world.write("own", "by the user\n");
    world.ok(["checkpoint", "create", "B"]);
    agent.write("w4", "file", "one\n2\n3\n4\n5\n6\n7\n8\nnine\n");
    agent.write("w5", "late", "late\n");
    let before = world.files();
    let plan = world.json(["rewind", "--between", "A", "B", "--dry-run"]);
    let paths: Vec<_> = items(&plan).iter().map(|item| item["path"].as_str().unwrap().to_owned()).collect();
    assert_eq!(paths, ["between", "file"]);
    world.ok(["rewind", "--between", "A", "B", "--yes"]);
    assert_eq!(read(&world, "file"), "1\n2\n3\n4\n5\n6\n7\n8\nnine\n", "later edits are merged");
    let others = ["early", "between", "own", "late"].map(|name| read(&world, name));
    assert_eq!(others, ["early\n", "(missing)", "by the user\n", "late\n"]);
    world.ok(["undo", "--yes"]);
    world.expect_files(&before, "after the undo");
    world.ok(["rewind", "--between", "A", "B", "--path", "between"]);
    assert_eq!((read(&world, "between"), read(&world, "late")), ("(missing)".into(), "late\n".into()));
    let wrong = world.run(["rewind", "--between", "B", "A"]).exits(2);
    assert!(wrong.err.contains("earlier point first"), "{}", wrong.err);
    world.run(["rewind", "--between", "A"]).exits(2);
    world.run(["rewind", "A", "--between", "A", "B"]).exits(2);
    let nothing = world.ok(["rewind", "--between", "B", "B"]);
    assert!(nothing.out.contains("Nothing to change"), "{nothing:?}");
}

#[test]
fn files_outside_of_the_workspace_are_named() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    agent.bash("b0", "cat /etc/hostname", || ());
    world.ok(["checkpoint", "create", "A"]);
    let outside = world.home.join("notes");
    let inside = world.path("file");
    agent.write("w1", outside.to_str().unwrap(), "x\n");
    agent.pre("r1", "Read", json!({ "file_path": "/etc/passwd" }));
    let command = format!("echo x > /etc/motd; rm -f ~/tmp {} 2>/dev/null", inside.display());
    agent.bash("b1", &command, || world.write("file", "changed\n"));
    let ran = world.ok(["rewind", "A", "--dry-run"]);
    let line = ran
        .out
        .lines()
        .find(|line| line.contains("outside of the workspace"))
        .unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line.ends_with(&format!("{}, /etc/motd, ~/tmp.", outside.display())), "{line}");
    let plan = world.json(["rewind", "A", "--dry-run"]);
    assert!(plan["warnings"].to_string().contains("/etc/motd"), "{plan}");
    let taken = world.ok(["rewind", "tool:Bash:first", "--dry-run"]).out;
    assert!(taken.contains("/etc/hostname"), "the call itself is taken back: {taken}");
    let later = world.ok(["rewind", "@", "--dry-run"]);
    assert!(!later.out.contains("outside of"), "{later:?}");
}

#[test]
fn notes_come_as_often_as_the_setting_says() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let notes = |setting: &str, call: &str| {
        world.ok(["settings", "notes", setting]);
        agent.prompt("go");
        let input = json!({ "command": "x" });
        agent.pre(call, "Bash", input.clone());
        world.write("file", format!("{call}\n"));
        let after = agent.post(call, "Bash", input.clone()).out;
        agent.pre(&format!("{call}-none"), "Bash", input.clone());
        assert_eq!(agent.post(&format!("{call}-none"), "Bash", input).out, "", "nothing changed");
        [after, agent.stop().out].map(|out| out.contains("checkpoint saved"))
    };
    assert_eq!(notes("0", "b0"), [false, false]);
    assert_eq!(notes("1", "b1"), [false, true]);
    assert_eq!(notes("2", "b2"), [true, true]);
    let input = json!({ "command": "y" });
    agent.pre("b3", "Bash", input.clone());
    world.write("file", "b3\n");
    let note = agent.post("b3", "Bash", input).json()["systemMessage"].as_str().unwrap().to_owned();
    let point = note.split('\'').nth(1).unwrap_or_else(|| panic!("{note}"));
    world.ok(["rewind", point]);
    assert_eq!(read(&world, "file"), "b2\n");
}

#[test]
fn the_list_of_changes_begins_again_after_a_commit() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.init_git();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    let listed = || items(&world.json(["changes"])).len();
    let commit = |call: &str, content: &str| {
        agent.write(&format!("w-{call}"), "file", content);
        agent.bash(call, "git commit", || drop(world.git(&["commit", "--quiet", "-am", content])));
    };
    commit("b1", "one\n");
    assert_eq!(listed(), 1, "off unless it is turned on");
    world.ok(["settings", "changes.clear-on-commit", "1"]);
    commit("b2", "two\n");
    assert_eq!(listed(), 0);
    agent.write("w3", "file", "three\n");
    assert_eq!(listed(), 1);
    agent.bash("b3", "git reset", || drop(world.git(&["reset", "--quiet", "--soft", "HEAD~1"])));
    assert_eq!(listed(), 1, "a reset is no commit");
    assert!(items(&world.json(["changes", "--all"])).len() >= 3, "nothing is forgotten");
}

#[test]
fn the_changes_of_one_file_are_its_history() {
    let world = Sandbox::new();
    world.write("src/a", "zero\n");
    world.write("src/b", "zero\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    agent.write("w1", "src/a", "one\n");
    agent.write("w2", "src/b", "one\n");
    world.write("src/a", "two, by the user\n");
    world.ok(["checkpoint", "create", "mine"]);
    agent.bash("b1", "rm src/a", || fs::remove_file(world.path("src/a")).unwrap());
    let history = items(&world.json(["changes", "--path", "src/a"]));
    let kinds: Vec<_> = history.iter().map(|change| change["kind"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["deleted", "modified", "modified"], "newest first: {history:#?}");
    assert!(history.iter().all(|change| change["path"] == "src/a"));
    let tools: Vec<_> = history.iter().map(|change| change["authors"][0]["tool"].clone()).collect();
    assert_eq!(tools, [json!("Bash"), json!(null), json!("Write")], "who made each of them");
    let whole = items(&world.json(["changes"]));
    assert!(history.iter().all(|change| whole.contains(change)), "with the numbers of the whole list");
    assert_eq!(items(&world.json(["changes", "--path", "src/*"])).len(), whole.len());
    let text = world.ok(["changes", "--path", "src/a"]).out;
    assert!(text.contains("src/a (deleted)") && !text.contains("src/b"), "{text}");
    assert!(items(&world.json(["changes", "--path", "nowhere"])).is_empty());
    // Its newest change is taken back by that number.
    world.ok(["rewind", "--change", &history[0]["number"].to_string()]);
    assert_eq!(read(&world, "src/a"), "two, by the user\n");
}
