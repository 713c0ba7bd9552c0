//! Branches, lists of changes and parts of rewinds, in a workspace that an agent and a person share.

use std::fs;

use serde_json::json;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, authors_of, items};

fn read(world: &Sandbox, name: &str) -> String {
    fs::read_to_string(world.path(name)).unwrap_or_default()
}

/// A workspace in which an agent wrote `a` and `dir/b`, and a person changed `mine` in between.
fn shared() -> Sandbox {
    let world = Sandbox::new();
    world.write("mine", "mine\n");
    world.write("dir/b", "b\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("work");
    agent.write("w1", "a", "a\n");
    world.write("mine", "mine, changed\n");
    agent.write("w2", "dir/b", "changed\n");
    agent.stop();
    world
}

#[test]
fn branches_from_beginning_to_end() {
    let world = shared();
    let main = world.files();
    world.json(["branch", "create", "other", "--from", "tool:Write:first"]);
    let names = |world: &Sandbox| -> Vec<String> {
        let listed = items(&world.json(["branch", "list"]));
        assert!(listed.iter().all(|branch| branch["id"].is_string()));
        listed.iter().map(|branch| branch["name"].as_str().unwrap().to_string()).collect()
    };
    assert_eq!(names(&world), ["main", "other"]);
    world.json(["branch", "switch", "other", "--yes"]);
    assert!(!world.path("a").exists());
    assert_eq!(read(&world, "mine"), "mine\n", "a branch has the whole workspace");
    world.write("on-other", "x\n");
    world.json(["checkpoint", "create", "on other"]);
    let compared = world.json(["branch", "compare", "main", "other"]);
    let mut paths: Vec<String> =
        items(&compared).iter().map(|item| item["path"].as_str().unwrap().to_string()).collect();
    paths.sort();
    assert_eq!(paths, ["a", "dir/b", "mine", "on-other"]);
    let other = world.files();
    world.json(["branch", "switch", "main", "--yes"]);
    world.expect_files(&main, "back on main");
    world.json(["undo", "--yes"]);
    world.expect_files(&other, "after the undo of a switch");
    let present = items(&world.json(["branch", "list"]));
    let present: Vec<_> =
        present.iter().filter(|branch| branch["present"] == true).map(|b| &b["name"]).collect();
    assert_eq!(present, ["other"]);
    world.json(["redo", "--yes"]);
    world.expect_files(&main, "after the redo of a switch");
    world.json(["branch", "rename", "other", "another"]);
    assert_eq!(names(&world), ["another", "main"]);
    world.json(["undo", "--yes"]);
    assert_eq!(names(&world), ["main", "other"]);
    world.json(["branch", "delete", "other"]);
    assert_eq!(names(&world), ["main"]);
    world.json(["undo", "--yes"]);
    assert_eq!(names(&world), ["main", "other"]);
    world.json(["branch", "switch", "other", "--yes"]);
    world.expect_files(&other, "a branch that was deleted and brought back");
    world.expect_sound("at the end");
    world.expect_no_leftovers("at the end");
}

#[test]
fn a_timeline_is_that_of_one_session_if_one_is_named() {
    let world = shared();
    world.ok(["checkpoint", "create", "by me"]);
    let other = Talk::new(&world, "s2");
    other.begin();
    other.prompt("more");
    other.write("w1", "c", "c\n");
    other.stop();
    world.ok(["checkpoint", "create", "by me, later"]);
    let numbers = |words: &[&str]| -> Vec<u64> {
        items(&world.json(words)).iter().map(|item| item["number"].as_u64().unwrap()).collect()
    };
    let all = numbers(&["timeline"]);
    let (first, second) = (numbers(&["timeline", "-s", "s1"]), numbers(&["timeline", "--session", "s2"]));
    assert!(first.iter().chain(&second).all(|number| all.contains(number)));
    // Both were at work when the last checkpoint was made by hand; everything else belongs to one of them.
    let shared: Vec<&u64> = first.iter().filter(|number| second.contains(number)).collect();
    assert!(shared.len() == 1 && first.len() > 1 && second.len() > 1, "{first:?} {second:?}");
    let labels = |session: &str| {
        let listed = items(&world.json(["checkpoint", "list", "-s", session]));
        listed.iter().map(|item| item["label"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(labels("s1"), ["by me, later", "by me"], "s1 had not ended");
    assert_eq!(labels("s2"), ["by me, later"]);
    assert!(world.ok(["timeline", "-s", "s2"]).out.contains("you are here"));
    world.run(["timeline", "-s", "nobody"]).exits(3);
}

#[test]
fn branches_that_cannot_be() {
    let world = shared();
    world.ok(["branch", "create", "there"]);
    let elsewhere = world.root().join("elsewhere");
    let dir = elsewhere.to_str().unwrap();
    let wrong: [&[&str]; 8] = [
        &["create", "there"],
        &["create", "there", "--worktree", dir],
        &["create", "two  spaces", "--worktree", dir],
        &["create", "-x"],
        &["delete", "main"],
        &["delete", "nowhere"],
        &["switch", "nowhere", "--yes"],
        &["rename", "there", "main"],
    ];
    for words in wrong {
        let ran = world.run(["branch"].iter().chain(words));
        assert!(matches!(ran.code, Some(2..=9)), "{words:?}: {ran:?}");
        assert!(!ran.err.is_empty());
        assert!(!elsewhere.exists(), "{words:?} leaves a directory behind");
    }
}

#[test]
fn a_branch_with_a_directory_of_its_own() {
    let world = shared();
    let dir = world.root().join("elsewhere");
    let before = world.files();
    let made = world.json([
        "branch",
        "create",
        "aside",
        "--from",
        "tool:Write:last",
        "--worktree",
        dir.to_str().unwrap(),
    ]);
    assert_eq!(made["id"], "aside");
    assert_eq!(fs::read_to_string(dir.join("dir/b")).unwrap(), "b\n");
    assert_eq!(fs::read_to_string(dir.join("mine")).unwrap(), "mine, changed\n");
    world.expect_files(&before, "the workspace itself");
    let mut agent = Talk::new(&world, "aside");
    agent.cwd = dir.clone();
    agent.write("w1", "mine", "by the agent\n");
    assert_eq!(read(&world, "mine"), "mine, changed\n");
    let ran: crate::sandbox::Ran =
        world.command(["rewind", "tool:Write:last", "--yes"]).current_dir(&dir).output().unwrap().into();
    ran.exits(0);
    assert_eq!(fs::read_to_string(dir.join("mine")).unwrap(), "mine, changed\n");
}

#[test]
fn a_branch_moves_with_the_work_in_its_directory() {
    let world = shared();
    let dir = world.root().join("elsewhere");
    let here = world.files();
    world.ok(["branch", "create", "aside", "--worktree", dir.to_str().unwrap()]);
    let tip = |world: &Sandbox| {
        let listed = items(&world.json(["branch", "list"]));
        listed.into_iter().find(|branch| branch["name"] == "aside").unwrap()
    };
    let begun = tip(&world);
    assert_eq!(begun["directory"], json!(dir.canonicalize().unwrap()));
    let mut agent = Talk::new(&world, "aside");
    agent.cwd = dir.clone();
    agent.begin();
    agent.prompt("go on there");
    agent.write("w1", "mine", "by the agent\n");
    agent.write("w2", "made", "there\n");
    let moved = tip(&world);
    assert!(moved["number"].as_u64() > begun["number"].as_u64(), "{moved}");
    assert_eq!(world.ok(["cat", "branch:aside", "mine"]).out, "by the agent\n");
    world.expect_files(&here, "the workspace itself");
    let compared = world.json(["branch", "compare", "main", "aside"]);
    assert_eq!(items(&compared).len(), 2, "{compared}");
    let ran = world.run(["branch", "switch", "aside", "--yes"]).exits(2);
    assert!(ran.err.contains("elsewhere"), "{ran:?}");
    let words = ["board", "hypothesis", "propose", "it is the cache"];
    let ran: crate::sandbox::Ran = world.command(words).current_dir(&dir).output().unwrap().into();
    ran.exits(0);
    // What nothing has recorded there yet is merged, too.
    fs::write(dir.join("late"), "not recorded yet\n").unwrap();
    world.ok(["branch", "rename", "aside", "over there"]);
    world.ok(["branch", "merge", "over there", "--yes"]);
    assert_eq!((read(&world, "mine").as_str(), read(&world, "made").as_str()), ("by the agent\n", "there\n"));
    assert_eq!(read(&world, "late"), "not recorded yet\n");
    assert!(world.ok(["board"]).out.contains("it is the cache"), "and what was concluded there");
    world.ok(["undo", "--yes"]);
    world.expect_files(&here, "after the undo of the merge");
    assert!(!world.ok(["board"]).out.contains("it is the cache"));
    fs::remove_dir_all(&dir).unwrap();
    world.ok(["branch", "switch", "over there", "--yes"]);
    assert_eq!(read(&world, "late"), "not recorded yet\n", "without its directory it is like any other");
    world.expect_sound("at the end");
}

#[test]
fn a_list_of_changes_is_cleared_and_brought_back() {
    let world = shared();
    let count = |all: bool| {
        let words: &[&str] = if all { &["changes", "--all"] } else { &["changes"] };
        items(&world.json(words)).len()
    };
    assert_eq!(count(false), 3);
    assert!(world.json(["changes", "clear"])["id"].is_string());
    assert_eq!((count(false), count(true)), (0, 3));
    Talk::new(&world, "s1").write("w3", "later", "x\n");
    assert_eq!(count(false), 1);
    world.json(["undo", "--yes"]);
    assert_eq!(count(false), 4);
}

#[test]
fn parts_of_a_rewind() {
    let world = shared();
    let agent = Talk::new(&world, "s1");
    // A path of a session's rewind: only what matches, and only what the session changed.
    world.json(["rewind", "tool:Write:first", "--path", "dir", "--yes"]);
    assert_eq!((read(&world, "dir/b").as_str(), read(&world, "a").as_str()), ("b\n", "a\n"));
    world.json(["undo", "--yes"]);
    let ran = world.run(["rewind", "tool:Write:first", "--path", "mine", "--yes", "--json"]).exits(0);
    assert_eq!(items(&ran.json()).len(), 0);
    assert_eq!(read(&world, "mine"), "mine, changed\n", "not the session's to take back");
    world.json(["rewind", "tool:Write:first", "--path", "mine", "--everything", "--yes"]);
    assert_eq!(read(&world, "mine"), "mine\n");
    world.json(["undo", "--yes"]);
    world.json(["rewind", "tool:Write:first", "--everything", "--yes"]);
    assert_eq!(read(&world, "mine"), "mine\n");
    assert!(!world.path("a").exists());
    world.json(["undo", "--yes"]);
    // One hunk of a change.
    let lines: Vec<String> = (0..40).map(|line| format!("line {line}\n")).collect();
    agent.write("w3", "long", &lines.concat());
    let mut changed = lines.clone();
    changed[2] = "first\n".into();
    changed[35] = "second\n".into();
    agent.write("w4", "long", &changed.concat());
    let change = items(&world.json(["changes"]))[0]["number"].to_string();
    world.json(["rewind", "--change", &change, "--hunk", "2", "--yes"]);
    let now = read(&world, "long");
    assert!(now.contains("first\n") && !now.contains("second\n"), "{now}");
    world.json(["undo", "--yes"]);
    assert_eq!(read(&world, "long"), changed.concat());
    world.run(["rewind", "--change", &change, "--hunk", "9", "--yes"]).exits(2);
    world.json(["rewind", "--last", "1", "--yes"]);
    assert_eq!(read(&world, "long"), lines.concat());
}

#[test]
fn the_person_edits_a_file_of_the_agent() {
    let world = Sandbox::new();
    let lines: Vec<String> = (0..30).map(|line| format!("line {line}\n")).collect();
    world.write("file", lines.concat());
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let mut by_agent = lines.clone();
    by_agent[3] = "agent\n".into();
    agent.write("w1", "file", &by_agent.concat());
    let mut by_both = by_agent.clone();
    by_both[25] = "person\n".into();
    world.write("file", by_both.concat());
    world.json(["rewind", "tool:Write:last", "--yes"]);
    let mut expected = lines.clone();
    expected[25] = "person\n".into();
    assert_eq!(read(&world, "file"), expected.concat(), "what the person wrote is merged");
    world.json(["undo", "--yes"]);
    assert_eq!(read(&world, "file"), by_both.concat());
    assert!(authors_of(&world, "file").is_empty(), "the last change is the person's");
}

#[test]
fn settings_are_checked_and_kept() {
    let world = shared();
    let listed = items(&world.json(["settings"]));
    assert!(listed.iter().all(|item| item["id"].is_string() && item["set"] == false));
    world.json(["settings", "notes", "0"]);
    let agent = Talk::new(&world, "s1");
    agent.prompt("more");
    agent.write("w9", "a", "again\n");
    assert!(agent.stop().out.is_empty(), "notes are off");
    assert_eq!(items(&world.json(["settings", "notes"]))[0]["value"], json!(0));
    world.json(["settings", "notes", "default"]);
    assert_eq!(items(&world.json(["settings", "notes"]))[0]["set"], false);
    for wrong in [["settings", "nothing", "1"], ["settings", "notes", "yes"], ["settings", "notes", "-1"]] {
        world.run(wrong).exits(2);
    }
    // A file that somebody broke must not break hooks.
    fs::write(world.store.join("settings.json"), "{").unwrap();
    agent.write("w10", "a", "and again\n");
    let ran = world.run(["settings"]).exits(6);
    assert!(ran.err.contains("Hint"), "{}", ran.err);
}

#[test]
fn a_prune_keeps_the_branches_that_were_worked_on_last() {
    let world = Sandbox::new();
    world.write("file", "0\n");
    world.ok(["checkpoint", "create", "base"]);
    for name in ["a", "b", "c"] {
        world.ok(["branch", "create", name]);
        world.ok(["branch", "switch", name, "--yes"]);
        world.write("file", format!("{name}\n"));
        world.ok(["checkpoint", "create", &format!("on {name}")]);
    }
    world.ok(["branch", "switch", "main", "--yes"]);
    let names = || {
        let listed = items(&world.json(["branch", "list"]));
        let mut names: Vec<_> = listed.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    let planned = world.ok(["prune", "--max-branches", "2", "--dry-run"]).out;
    assert!(
        planned.contains("would delete branch a") && planned.contains("would delete branch b"),
        "{planned}"
    );
    assert!(!planned.contains("branch c") && !planned.contains("branch main"), "{planned}");
    assert_eq!(names(), ["a", "b", "c", "main"], "a plan changes nothing");
    let pruned = world.ok(["prune", "--max-branches", "2"]);
    assert!(pruned.out.contains("Deleted branches a, b"), "{}", pruned.out);
    assert!(pruned.err.contains("undo") || pruned.out.contains("undo"), "{pruned:?}");
    assert_eq!(names(), ["c", "main"]);
    world.ok(["undo", "--yes"]);
    world.ok(["undo", "--yes"]);
    assert_eq!(names(), ["a", "b", "c", "main"]);
    world.ok(["branch", "switch", "a", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "a\n", "with what was done there");
}
