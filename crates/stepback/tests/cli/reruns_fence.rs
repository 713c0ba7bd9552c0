//! `stepback rerun` reaches nothing but its own directory, and nothing of it is left when it ends, however it ends.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::reruns::{again, bash, file_of, number_of, played};
use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, files_below, items};
use crate::wire::{send, steps, until};

fn one_call(command: &str) -> Sandbox {
    played(&json!({ "turns": [{ "calls": [bash(command)] }, { "text": "end" }] }))
}

#[test]
fn nothing_outside_can_be_changed_or_reached() {
    let world = one_call("true");
    let number = number_of(&world, "bash");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let outside = world.root().join("outside");
    fs::write(&outside, "as it was\n").unwrap();
    // Said in this way, it is not taken for the directory of the rerun.
    let work = world.root().join("./work").display().to_string();
    let commands = [
        format!("echo x > {}", outside.display()),
        format!("rm -f {}", outside.display()),
        format!("touch {work}/new"),
        format!("echo x > {work}/file"),
        format!("exec 3<>/dev/tcp/127.0.0.1/{port}"),
        "exec 3<>/dev/tcp/192.0.2.1/80".to_string(),
        format!("touch {}/new", world.home.display()),
        "touch /tmp/stepback-test-must-not-be-there".to_string(),
    ];
    let files = world.everything();
    for command in commands {
        let change = format!("#{number}.input.command={command}");
        let done = again(&world, &["--set", &change], 0);
        let steps = steps(&world, done["session"].as_str());
        let end = steps.iter().find(|step| step["kind"] == "tool-end").unwrap();
        assert_eq!(end["failed"], true, "{command}: {end:#}");
        assert_eq!(fs::read_to_string(&outside).unwrap(), "as it was\n", "{command}");
        assert!(world.everything() == files, "{command}: the workspace was touched");
    }
    assert!(listener.accept().is_err(), "somebody came");
    assert!(fs::read_dir(&world.home).unwrap().next().is_none(), "the home was touched");
    assert!(!Path::new("/tmp/stepback-test-must-not-be-there").exists());
}

/// A rerun in which a command began that never ends; the number of its process.
fn endless(world: &Sandbox) -> (Child, u32) {
    let number = number_of(world, "bash");
    let temp = world.root().join("temp");
    fs::create_dir(&temp).unwrap();
    let change = format!("#{number}.input.command=echo $$ > id; setsid sleep 300 & sleep 301");
    let mut command = world.command(["rerun", "--json", "--set", &change]);
    let child = command.env("TMPDIR", &temp).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut found = None;
    until("the command begins", || {
        let files = files_below(&temp);
        let id = files
            .iter()
            .find(|path| path.file_name().is_some_and(|name| name == "id"))
            .and_then(|path| fs::read_to_string(path).ok());
        found = id.and_then(|id| id.trim().parse().ok());
        found.is_some()
    });
    (child, found.unwrap())
}

fn is_running(id: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Processes in the network namespace of another one.
fn beside(id: u32) -> Vec<u32> {
    let Ok(theirs) = fs::read_link(format!("/proc/{id}/ns/net")) else { return Vec::new() };
    let all = fs::read_dir("/proc").unwrap().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|own| own == theirs)).collect()
}

#[test]
fn an_interruption_ends_it_in_order() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let world = one_call("true");
        let (child, id) = endless(&world);
        let inside = beside(id);
        assert!(inside.len() >= 3, "the agent, the shell and what it started: {inside:?}");
        send(&child, signal);
        let ran: Ran = child.wait_with_output().unwrap().into();
        let done = ran.exits(5).json();
        assert_eq!((&done["status"], &done["reason"]), (&json!("failed"), &json!("interrupted")));
        // To die takes a moment.
        until("nothing of it runs", || !inside.iter().any(|id| is_running(*id)));
        assert!(fs::read_dir(world.root().join("temp")).unwrap().next().is_none(), "its directory is left");
        assert!(file_of(&world, &done, "id").is_some(), "what it came to is kept");
        world.expect_sound("after an interruption");
    }
}

#[test]
fn whoever_is_killed_takes_everything_along() {
    let world = one_call("true");
    let (mut child, id) = endless(&world);
    let running = &items(&world.json(["branch", "list"]));
    assert!(
        running.iter().any(|branch| branch["name"] == "rerun-1" && branch["status"] == "running"),
        "{running:#?}"
    );
    let inside = beside(id);
    child.kill().unwrap();
    child.wait().unwrap();
    until("everything inside has ended", || !inside.iter().any(|id| is_running(*id)));
    let left = || fs::read_dir(world.root().join("temp")).unwrap().count();
    assert_eq!(left(), 1, "who is killed can remove nothing");
    world.ok(["status"]);
    assert_eq!(left(), 0, "the next command removes what is left");
    let listed = items(&world.json(["branch", "list"]));
    let branch = listed.iter().find(|branch| branch["name"] == "rerun-1").unwrap();
    assert_eq!((&branch["status"], &branch["present"]), (&json!("failed"), &json!(false)));
    let text = world.ok(["branch", "list"]).out;
    assert!(text.contains("rerun-1") && text.contains("failed"), "{text}");
    // Its name is not taken a second time, and everything goes on.
    assert_eq!(again(&world, &[], 0)["branch"], "rerun-2");
    world.expect_sound("after a kill");
}

#[test]
fn a_reader_that_goes_away_leaves_nothing_behind() {
    let world = one_call("true");
    world.write(".env", "SECRET=1\n");
    let temp = world.root().join("temp");
    fs::create_dir(&temp).unwrap();
    for words in [&["rerun"][..], &["rerun", "--json"], &["rerun", "--set", "model=x"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = world.command(words);
        command.env("TMPDIR", &temp).stdout(writer.try_clone().unwrap()).stderr(writer);
        assert!(command.status().unwrap().code().is_some(), "{words:?}: ended by a signal");
        assert_eq!(fs::read_dir(&temp).unwrap().count(), 0, "{words:?}: its directory is left");
    }
}

#[test]
fn a_disk_that_fails_leaves_everything_as_it_was() {
    let world = one_call("echo 1 > one");
    let files = world.everything();
    let temp = world.root().join("temp");
    fs::create_dir(&temp).unwrap();
    let mut failed = 0;
    for fault in (1..70).step_by(6).flat_map(|n| ["enospc", "eio"].map(|kind| format!("{kind}:{n}"))) {
        let mut command = world.command(["rerun"]);
        let ran: Ran = command.env("STEPBACK_FAULT", &fault).env("TMPDIR", &temp).output().unwrap().into();
        assert!(matches!(ran.code, Some(0 | 5 | 7)), "{fault}: {ran:?}");
        assert!(!ran.err.contains("panicked"), "{fault}: {}", ran.err);
        failed += u32::from(ran.code != Some(0));
        assert!(world.everything() == files, "{fault}: the workspace was touched");
        assert!(fs::read_dir(&temp).unwrap().next().is_none(), "{fault}: its directory is left");
    }
    assert!(failed > 3, "only {failed} faults hit");
    world.expect_sound("after all of them");
    again(&world, &[], 0);
}

#[test]
fn secrets_of_the_environment_and_of_changes_are_nowhere() {
    const KEY: &str =
        concat!("sk-ant-", "api03-Qm9yZWRP", "ZlRlc3RLZXlz", "MTIzNDU2Nzg5", "MGFiY2RlZg-AbCdEfAA");
    let world = one_call("env");
    let number = number_of(&world, "bash");
    let changes = [format!("prompt=use {KEY}"), format!("#{number}.output=MY_API_KEY={KEY}")];
    for change in [None, Some(&changes[0]), Some(&changes[1])] {
        let words = ["rerun", "--on-difference", "nearest"].into_iter();
        let words = words.chain(change.iter().flat_map(|change| ["--set", change.as_str()]));
        let mut command = world.command(words);
        let ran: Ran = command.env("ANTHROPIC_API_KEY", KEY).env("MY_SECRET", KEY).output().unwrap().into();
        ran.exits(0);
    }
    for path in files_below(&world.store) {
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()), "in {}", path.display());
    }
    let mut shown = world.json(["branch", "list"]).to_string() + &world.json(["log"]).to_string();
    for branch in items(&world.json(["branch", "list"])) {
        if let Some(session) = branch["rerun"]["session"].as_str() {
            shown += &world.ok(["replay", session, "--json"]).out;
        }
    }
    assert!(!shown.contains(KEY), "{shown}");
}

#[test]
fn what_cannot_be_done_again_says_why() {
    let world = Sandbox::new();
    world.run(["rerun"]).exits(4);
    let talk = Talk::new(&world, "s-hooks-only");
    talk.begin();
    talk.prompt("hello");
    talk.bash("b1", "true", || {});
    let ran = world.run(["rerun", "s-hooks-only"]).exits(4);
    assert!(ran.err.contains("were not recorded") && ran.err.contains("stepback run"), "{}", ran.err);
}

#[test]
fn a_session_that_was_killed_is_done_again_as_far_as_it_goes() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let path = world.root().join("script.json");
    let turns = [
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "calls": [bash("echo 2 > two; touch begun; sleep 300")] }),
    ];
    fs::write(&path, json!({ "turns": turns }).to_string()).unwrap();
    let mut child = world.spawn(&["agent", "--script", path.to_str().unwrap(), "go"]);
    until("the call that never ends", || world.path("begun").exists());
    let id = child.id();
    let shells: Vec<u32> = fs::read_to_string(format!("/proc/{id}/task/{id}/children"))
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|id| id.parse().ok())
        .collect();
    child.kill().unwrap();
    child.wait().unwrap();
    for shell in shells {
        let group = rustix::process::Pid::from_raw(i32::try_from(shell).unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(group, Signal::KILL);
    }
    let number =
        steps(&world, None).iter().rfind(|step| step["kind"] == "tool-start").unwrap()["number"].clone();
    let change = format!("#{number}.input.command=echo 22 > two");
    let done = again(&world, &["--set", &change], 0);
    assert_eq!(done["model_calls"]["recorded"], 2, "{done:#}");
    assert_eq!(file_of(&world, &done, "two").as_deref(), Some("22\n"), "{done:#}");
    let done = again(&world, &["--tools", "recorded"], 5);
    assert_eq!(done["status"], "failed", "{done:#}");
    assert_ne!(done["reason"], Value::Null);
}
