//! A branch is merged into another one: files three ways, conflicts left as they are, and what an experiment concluded.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

fn read(world: &Sandbox, name: &str) -> String {
    fs::read_to_string(world.path(name)).unwrap_or_else(|_| "(missing)".into())
}

/// `main` and `other` both changed `both`, in different lines, and `clash`, in the same one; `other` also has a new file, and
/// deleted one.
fn diverged() -> Sandbox {
    let world = Sandbox::new();
    world.write("both", "1\n2\n3\n4\n5\n6\n7\n");
    world.write("clash", "base\n");
    world.write("gone", "x\n");
    world.write("mine", "x\n");
    world.ok(["checkpoint", "create", "before"]);
    world.ok(["branch", "create", "other way"]);
    world.ok(["branch", "switch", "other way", "--yes"]);
    world.write("both", "1\n2\n3\n4\n5\n6\nseven\n");
    world.write("clash", "theirs\n");
    world.write("dir/new", "new\n");
    fs::remove_file(world.path("gone")).unwrap();
    world.ok(["checkpoint", "create", "on the other"]);
    world.ok(["branch", "switch", "main", "--yes"]);
    world.write("both", "one\n2\n3\n4\n5\n6\n7\n");
    world.write("clash", "ours\n");
    world.write("mine", "y\n");
    world.ok(["checkpoint", "create", "on main"]);
    world
}

fn status_of(world: &Sandbox, name: &str) -> Value {
    let branches = items(&world.json(["branch", "list"]));
    branches.iter().find(|branch| branch["name"] == name).unwrap()["status"].clone()
}

#[test]
fn a_merge_takes_what_fits_and_lists_the_rest() {
    let world = diverged();
    let before = world.files();
    let plan = world.json(["branch", "merge", "other way", "--dry-run"]);
    world.expect_files(&before, "after a dry run");
    assert_eq!(plan["applied"], false);
    let left = plan["left_alone"].as_array().unwrap();
    assert_eq!((left.len(), &left[0]["path"]), (1, &json!("clash")), "{plan}");
    assert!(left[0]["reason"].as_str().unwrap().contains("both branches"), "{plan}");
    assert_eq!(
        (&plan["conflicts"][0]["path"], &plan["conflicts"][0]["marked"]),
        (&json!("clash"), &json!(false))
    );
    let shown = world.ok(["branch", "merge", "other way", "--dry-run"]).out;
    let line = |word: &str| shown.lines().position(|line| line.contains(word)).unwrap();
    assert!(line("conflict clash") < line("dir/new"), "conflicts come first: {shown}");
    world.run(["branch", "merge", "other way"]).exits(9);
    world.expect_files(&before, "without an answer");
    let ran = world.run(["branch", "merge", "other way", "--yes"]).exits(5);
    assert!(ran.err.contains("clash"), "{ran:?}");
    assert_eq!(read(&world, "both"), "one\n2\n3\n4\n5\n6\nseven\n");
    assert_eq!(read(&world, "clash"), "ours\n", "no conflict markers");
    assert_eq!((read(&world, "dir/new"), read(&world, "gone")), ("new\n".into(), "(missing)".into()));
    assert_eq!(read(&world, "mine"), "y\n");
    assert_eq!(status_of(&world, "other way"), "merged");
    assert!(world.ok(["branch", "list"]).out.contains("(merged)"));
    world.ok(["undo", "--yes"]);
    world.expect_files(&before, "after the undo of a merge");
    assert_eq!(status_of(&world, "other way"), "active");
    world.run(["redo", "--yes"]);
    assert_eq!(read(&world, "dir/new"), "new\n");
    // A second merge begins where the first one ended.
    let again = world.json(["branch", "merge", "other way", "--dry-run"]);
    assert_eq!(again["items"].as_array().unwrap().len(), 0, "{again}");
    world.ok(["branch", "switch", "other way", "--yes"]);
    world.write("dir/new", "newer\n");
    world.ok(["checkpoint", "create"]);
    world.ok(["branch", "switch", "main", "--yes"]);
    assert_eq!(status_of(&world, "other way"), "active", "there is something new to merge");
    world.ok(["branch", "merge", "other way", "--yes"]);
    assert_eq!((read(&world, "dir/new"), read(&world, "clash")), ("newer\n".into(), "ours\n".into()));
    world.expect_sound("at the end");
    world.expect_no_leftovers("at the end");
}

#[test]
fn markers_are_written_only_on_request() {
    let world = diverged();
    let before = world.files();
    world.run(["branch", "merge", "other way", "--markers", "--yes"]).exits(5);
    assert_eq!(read(&world, "clash"), "<<<<<<< main\nours\n=======\ntheirs\n>>>>>>> branch other way\n");
    world.ok(["undo", "--yes"]);
    world.expect_files(&before, "after the undo of a merge with markers");
}

#[test]
fn what_cannot_be_merged() {
    let world = diverged();
    let refused = |name: &str| world.run(["branch", "merge", name, "--yes"]);
    let ran = refused("main");
    assert!(ran.code != Some(0) && ran.err.contains("current branch"), "{ran:?}");
    let ran = refused("nowhere");
    assert!(ran.code != Some(0) && ran.err.contains("not found"), "{ran:?}");
    world.ok(["branch", "create", "same"]);
    let ran = world.ok(["branch", "merge", "same"]);
    assert!(ran.out.contains("Nothing to change"), "{ran:?}");
}

#[test]
fn branches_are_set_aside_and_taken_up_again() {
    let world = diverged();
    let listed = |all: bool| {
        let words: &[&str] = if all { &["branch", "list", "--all"] } else { &["branch", "list"] };
        world.ok(words).out
    };
    world.ok(["branch", "abandon", "other way"]);
    assert!(listed(false).contains("(abandoned)"), "{}", listed(false));
    world.ok(["branch", "archive", "other way"]);
    assert!(!listed(false).contains("other way") && listed(true).contains("(archived)"), "{}", listed(true));
    assert!(world.ok(["branch", "list"]).err.contains("1 archived branch is not listed"));
    assert_eq!(items(&world.json(["branch", "list"])).len(), 1);
    assert_eq!(items(&world.json(["branch", "list", "--all"]))[1]["status"], "archived");
    let ran = world.run(["branch", "archive", "other way"]).exits(2);
    assert!(ran.err.contains("already archived"), "{ran:?}");
    world.ok(["undo"]);
    assert_eq!(status_of(&world, "other way"), "abandoned");
    world.ok(["branch", "activate", "other way"]);
    assert_eq!(status_of(&world, "other way"), "active");
    world.run(["branch", "archive", "main"]).exits(2);
}

#[test]
fn the_list_says_where_branches_begin() {
    let world = diverged();
    let listed = world.ok(["branch", "list"]).out;
    let line = listed.lines().find(|line| line.contains("other way")).unwrap();
    assert!(line.contains("from main at #1"), "{listed}");
}

#[test]
fn conclusions_of_an_experiment_are_merged_with_its_files() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["checkpoint", "create"]);
    world.ok(["board", "hypothesis", "propose", "the cache is stale"]);
    world.ok(["board", "experiment", "start", "no-cache", "--hypothesis", "H1", "--success", "it passes"]);
    world.write("file", "without cache\n");
    world.ok(["board", "note", "add", "found on the branch"]);
    world.ok(["board", "hypothesis", "conclude", "H1", "confirmed", "--because", "it passes"]);
    world.ok(["checkpoint", "create"]);
    world.ok(["branch", "switch", "main", "--reasoning", "--yes"]);
    assert!(!world.ok(["board"]).out.contains("found on the branch"));
    world.ok(["branch", "merge", "no-cache", "--dry-run"]);
    assert!(!world.ok(["board"]).out.contains("found on the branch"), "a dry run changes nothing");
    world.ok(["branch", "merge", "no-cache"]);
    assert_eq!(read(&world, "file"), "without cache\n");
    let board = world.ok(["board"]).out;
    assert!(board.contains("found on the branch") && board.contains("confirmed"), "{board}");
}

#[test]
fn an_agents_work_on_a_branch_is_merged() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    agent.write("w1", "file", "by the agent\n");
    world.ok(["branch", "create", "aside", "--from", "tool:Write:first"]);
    world.ok(["branch", "switch", "aside", "--yes"]);
    agent.write("w2", "added", "by the agent\n");
    world.ok(["branch", "switch", "main", "--yes"]);
    world.ok(["branch", "merge", "aside"]);
    assert_eq!(
        (read(&world, "file"), read(&world, "added")),
        ("by the agent\n".into(), "by the agent\n".into())
    );
}

#[test]
fn a_merge_says_once_what_it_does_to_the_board_and_a_conflict_there_counts() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["board", "hypothesis", "propose", "the cache is stale"]);
    world.ok(["checkpoint", "create"]);
    world.ok(["branch", "create", "aside"]);
    world.ok(["branch", "switch", "aside", "--reasoning", "--yes"]);
    world.write("new", "there\n");
    world.ok(["checkpoint", "create"]);
    world.ok(["branch", "switch", "main", "--reasoning", "--yes"]);
    let ran = world.ok(["branch", "merge", "aside", "--yes"]);
    assert!(!ran.out.contains("Nothing changed") && !ran.err.contains("nothing to change"), "{ran:?}");
    world.ok(["branch", "switch", "aside", "--reasoning", "--yes"]);
    world.ok(["board", "hypothesis", "conclude", "H1", "confirmed", "--because", "it is"]);
    world.write("newer", "there\n");
    world.ok(["checkpoint", "create"]);
    world.ok(["branch", "switch", "main", "--reasoning", "--yes"]);
    world.ok(["board", "hypothesis", "conclude", "H1", "rejected", "--because", "it is not"]);
    let ran = world.run(["branch", "merge", "aside", "--yes"]).exits(5);
    assert_eq!((ran.out.clone() + &ran.err).matches("on the board").count(), 1, "{ran:?}");
    assert_eq!(read(&world, "newer"), "there\n");
}
