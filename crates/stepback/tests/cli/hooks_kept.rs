//! What a rewind keeps and how it says so, points within a session, forks that never ran, and sessions that have ended.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

/// Paths of a list with their authors in words.
fn kept(document: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_string();
    let list = document["kept"].as_array().unwrap_or_else(|| panic!("{document}"));
    list.iter().map(|item| (text(&item["path"]), text(&item["by"]))).collect()
}

/// One agent that writes two files, with a file of the user between them.
fn mixed() -> Sandbox {
    let world = Sandbox::new();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("write two files");
    agent.write("w1", "a.txt", "a\n");
    world.write("notes.txt", "mine\n");
    agent.write("w2", "b.txt", "b\n");
    agent.stop();
    world
}

/// A line of the user in the transcript of Claude Code.
fn says(agent: &Talk<'_>, id: &str, text: &str) {
    agent.say(&[json!({
        "type": "user", "uuid": id, "parentUuid": null, "sessionId": agent.session,
        "cwd": agent.cwd, "message": { "role": "user", "content": text },
    })]);
}

/// A session of two model turns.
fn two_turns(agent: &Talk<'_>, text: &str) {
    agent.begin();
    says(agent, &format!("{}-1", agent.session), text);
    agent.prompt(text);
    for turn in 1..=2 {
        agent.write(&format!("{}-w{turn}", agent.session), &format!("{}-{turn}", agent.session), "x\n");
    }
    agent.stop();
}

#[test]
fn rewind_all_keeps_the_users_file_and_names_its_author() {
    let world = mixed();
    let ran = world.ok(["rewind", "--all", "--yes"]);
    assert!(ran.err.contains("kept: notes.txt (you, "), "{}", ran.err);
    assert!(!world.path("a.txt").exists() && !world.path("b.txt").exists());
    assert!(world.path("notes.txt").exists());
    world.ok(["undo", "--yes"]);
    let done = world.json(["rewind", "--last", "2", "--yes"]);
    assert_eq!(kept(&done), [("notes.txt".into(), "you".into())]);
    assert!(!world.path("a.txt").exists() && world.path("notes.txt").exists());
    world.ok(["undo", "--yes"]);
    world.ok(["rewind", "--all", "--everything", "--yes"]);
    assert!(!world.path("notes.txt").exists());
}

#[test]
fn a_rewind_that_changes_nothing_says_why_and_what_everything_would_do() {
    let world = mixed();
    world.ok(["rewind", "--all", "--yes"]);
    let ran = world.ok(["rewind", "--all", "--yes"]);
    assert!(ran.out.contains("Nothing to change: no change by an agent is left to take back"), "{}", ran.out);
    assert!(ran.out.contains("what differs was changed by you"), "{}", ran.out);
    assert!(ran.out.contains("--everything would change 1 path: notes.txt."), "{}", ran.out);
    let plan = world.json(["rewind", "tool:Write:first", "--dry-run"]);
    assert_eq!(plan["everything_changes"], json!(["notes.txt"]));
    assert!(plan["unchanged_because"].as_str().unwrap().ends_with("was changed by you"), "{plan}");
}

#[test]
fn a_point_is_looked_for_in_the_session_that_is_named() {
    let world = Sandbox::new();
    let (one, two) = (Talk::new(&world, "one"), Talk::new(&world, "two"));
    two_turns(&one, "first job");
    two_turns(&two, "second job");
    let id = |external: &str| {
        let all = items(&world.json(["sessions"]));
        let found = all.into_iter().find(|session| session["agent_session"] == external);
        found.unwrap()["id"].clone()
    };
    let fork = world.json(["rewind", "iteration:2", "--session", "one", "--conversation"]);
    assert_eq!(fork["conversation"]["session"], id("one"), "{fork}");
    // A step of another session is a moment of this one, too.
    let head = items(&world.json(["log", "--session", "two"]))[0]["number"].clone();
    let fork = world.json(["rewind", &format!("#{head}"), "--session", "one", "--conversation"]);
    assert_eq!(fork["conversation"]["session"], id("one"), "{fork}");
    let plan = world.json(["rewind", "tool:Write:last", "--session", "one", "--dry-run"]);
    let paths: Vec<_> = plan["items"].as_array().unwrap().iter().map(|item| item["path"].clone()).collect();
    assert_eq!(paths, ["one-2"]);
}

#[test]
fn a_fork_that_never_ran_is_no_agent_at_work() {
    let world = Sandbox::new();
    let agent = Talk::new(&world, "one");
    two_turns(&agent, "a job");
    for _ in 0..2 {
        let fork = world.json(["rewind", "tool:Write:last", "--conversation"]);
        assert!(fork["conversation"]["messages"].as_u64().unwrap() > 0, "{fork}");
    }
    world.ok(["board", "recover"]);
    let all = items(&world.json(["sessions"]));
    let mut statuses: Vec<&str> = all.iter().map(|session| session["status"].as_str().unwrap()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, ["active", "prepared", "prepared"]);
    let forked = all.iter().find(|session| session["status"] == "prepared").unwrap();
    let ran = world.run(["inject", "hello", "--session", forked["id"].as_str().unwrap()]).exits(4);
    assert!(ran.err.contains("was not started yet"), "{}", ran.err);
}

#[test]
fn a_session_that_has_ended_is_told_nothing() {
    let world = Sandbox::new();
    let agent = Talk::new(&world, "one");
    two_turns(&agent, "a job");
    agent.event("SessionEnd", json!({ "reason": "exit" }));
    for words in
        [&["inject", "hello"][..], &["inject", "hello", "--session", "one"], &["pause", "--session", "one"]]
    {
        let ran = world.run(words).exits(4);
        assert!(ran.err.contains("ended") && ran.err.contains("no agent is running here"), "{}", ran.err);
    }
    let ran = world.ok(["inspect"]);
    assert!(ran.out.contains("not running: it ended"), "{}", ran.out);
    assert_eq!(world.json(["inspect"])["status"], "ended");
    let ran = world.ok(["pause"]);
    assert!(ran.out.contains("No agent is running here"), "{}", ran.out);
    world.ok(["resume"]);
    let other = Talk::new(&world, "two");
    other.begin();
    other.prompt("work");
    let ran = world.run(["pause", "--session", "one"]).exits(4);
    assert!(ran.err.contains("is running here"), "{}", ran.err);
    // Without a name, the running one is meant, even if the ended one did something later.
    let told = world.json(["inject", "hello"]);
    let running = world.json(["inspect"]);
    assert_eq!(told["session"], running["session"]["id"]);
    assert_eq!(running["session"]["info"]["external"], "two");
}
