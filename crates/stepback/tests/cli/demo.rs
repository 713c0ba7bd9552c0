//! `stepback demo`: what it tells is what happened, and what it promises to leave, or not to leave, is so.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::pseudo_terminal::Terminal;
use crate::sandbox::{Ran, Sandbox};
use crate::wire::send;

/// The demo in a world whose temporary files are its own.
fn demo(world: &Sandbox, arguments: &[&str]) -> Command {
    let temporary = world.root().join("tmp");
    fs::create_dir_all(&temporary).unwrap();
    let mut command = world.command(["demo"]);
    command.args(arguments).env("TMPDIR", temporary);
    command
}

/// What is left in the directory for temporary files.
fn left(world: &Sandbox) -> Vec<PathBuf> {
    fs::read_dir(world.root().join("tmp")).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Fails unless the texts stand in the output in this order.
#[track_caller]
fn in_order(out: &str, texts: &[&str]) {
    let mut rest = out;
    for text in texts {
        let (_, after) =
            rest.split_once(text).unwrap_or_else(|| panic!("no {text:?} at its place in:\n{out}"));
        rest = after;
    }
}

const STORY: &[&str] = &[
    "$ stepback breakpoint add tool bash",
    "  │ → bash: sh tests/run.sh",
    "4 tests passed",
    "  │ → edit: src/auth.sh",
    "FAILED: a fresh login is greeted",
    "  │ → bash: rm -rf .env tests && git reset --hard",
    "stopped;",
    "$ stepback inspect",
    "rm -rf .env tests && git reset --hard",
    "$ stepback deny",
    "This call was refused and did not run",
    "The tests still fail.",
    "$ stepback bisect --run 'sh tests/run.sh'",
    "is the first bad step: edit: src/auth.sh",
    "-        [ \"$expires\" -gt \"$2\" ]",
    "+        [ \"$(printf '%s\\n' \"$2\" \"$expires\" | sort",
    "$ stepback branch create plan-a",
    "$ stepback rewind '#",
    "restore src/auth.sh",
    "$ sh tests/run.sh\n4 tests passed",
    "--from '#",
    "All tests pass.",
    "$ stepback compare plan-a main --summary",
    "tool-start (edit: src/auth.sh)",
    "has 1 failed step fewer",
    "They end with 2 files that differ.",
    "$ rm -rf ./* .git .gitignore .env",
    "byte for byte what they were",
    "$ sh tests/run.sh\n4 tests passed",
];

#[test]
fn the_story_is_true_and_nothing_is_left_of_it() {
    let world = Sandbox::new();
    let ran = Ran::from(demo(&world, &["--fast", "--no-keep"]).output().unwrap()).exits(0);
    in_order(&ran.out, STORY);
    assert!(!ran.out.contains('\x1b'), "colours without a terminal:\n{}", ran.out);
    assert_eq!(ran.err, "", "the story is told in one place");
    assert_eq!(left(&world), [] as [PathBuf; 0]);
    assert!(!world.store.exists(), "the store of the user is not touched");
    assert_eq!(fs::read_dir(&world.work).unwrap().count(), 0);
}

#[test]
fn without_git_the_story_is_the_same() {
    let world = Sandbox::new();
    let tools = world.root().join("tools");
    fs::create_dir(&tools).unwrap();
    let path = std::env::var_os("PATH").unwrap();
    for tool in ["sh", "cksum", "cut", "sort", "head", "dirname", "rm", "ls"] {
        let place =
            std::env::split_paths(&path).map(|dir| dir.join(tool)).find(|file| file.exists()).unwrap();
        std::os::unix::fs::symlink(place, tools.join(tool)).unwrap();
    }
    let ran =
        Ran::from(demo(&world, &["--fast", "--no-keep"]).env("PATH", &tools).output().unwrap()).exits(0);
    in_order(&ran.out, STORY);
    assert!(!ran.out.contains("inside .git"), "{}", ran.out);
}

#[test]
fn every_command_it_suggests_does_what_it_says() {
    let world = Sandbox::new();
    let ran = Ran::from(demo(&world, &["--fast"]).output().unwrap()).exits(0);
    let [place] = &left(&world)[..] else { panic!("{:?}", left(&world)) };
    let (_, suggested) = ran.out.split_once("Your turn").unwrap();
    let said = |before: &str| {
        let line = suggested.lines().find_map(|line| line.trim().strip_prefix(before));
        Path::new(line.unwrap_or_else(|| panic!("no {before:?} in:\n{}", ran.out))).to_path_buf()
    };
    assert_eq!(&said("rm -r "), place);
    let (root, store) = (said("cd "), said("export STEPBACK_HOME="));
    let command = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.current_dir(&root).env("STEPBACK_HOME", &store).env("TMPDIR", world.root().join("tmp"));
        command
    };
    let ask = |arguments: &[&str]| Ran::from(command(arguments).output().unwrap()).exits(0);
    let auth = || fs::read_to_string(root.join("src/auth.sh")).unwrap();
    let sessions = ask(&["sessions", "--json"]).json();
    let titles: Vec<&str> =
        sessions["items"].as_array().unwrap().iter().map(|item| item["title"].as_str().unwrap()).collect();
    assert_eq!(titles, ["keep seconds as numbers", "refactor the auth module"]);

    // Two spaces part a command from what it is for.
    let suggestions: Vec<&str> = suggested
        .lines()
        .filter_map(|line| line.trim().strip_prefix("stepback "))
        .map(|line| line.split("  ").next().unwrap())
        .collect();
    assert_eq!(suggestions.len(), 7, "{suggestions:?}");
    for suggestion in suggestions {
        let words: Vec<&str> = suggestion.split(' ').collect();
        match suggestion {
            // A browser and a player need a person; what they show is the same without.
            "studio" => {
                let listening = ["studio", "--no-open", "--json", "--listen", "127.0.0.1:0"];
                let mut server = command(&listening).stdout(Stdio::piped()).spawn().unwrap();
                let mut line = String::new();
                BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
                assert!(line.contains("http://127.0.0.1:"), "{line}");
                send(&server, Signal::TERM);
                assert!(server.wait().unwrap().success());
            }
            "replay" => {
                let replayed = ask(&["replay", "--plain"]).out;
                in_order(&replayed, &["keep seconds as numbers", "edit: src/auth.sh", "All tests pass."]);
            }
            "timeline" => in_order(&ask(&words).out, &["you are here", "plan-a", "session started"]),
            "changes" => {
                let changed = ask(&words).out;
                in_order(&changed, &["src/clock.sh", "refactor the auth module", "keep seconds as numbers"]);
            }
            "compare plan-a main" => {
                let compared = ask(&words).out;
                in_order(&compared, &["keep seconds as numbers", "denied: leave .env", "Last message:"]);
                in_order(&compared, &["A  Then I leave it as it is.", "B  All tests pass."]);
                assert!(!compared.contains("env differs"), "{compared}");
            }
            "rerun" => {
                let again = ask(&words).out;
                let all =
                    ["rerun-1 completed", "2 answered from the recording", "Both take the same 12 steps."];
                in_order(&again, &all);
                in_order(&again, &["They end with the same files.", "They have the same 8 messages."]);
            }
            "branch switch plan-a" => {
                ask(&[&words[..], &["--yes"]].concat());
                assert!(auth().contains("sort"), "{}", auth());
                ask(&["undo", "--yes"]);
                assert!(auth().contains("later"), "{}", auth());
            }
            other => panic!("{other} is suggested and not tried"),
        }
    }

    // The first try again, too: what was refused in it is refused again.
    let first = sessions["items"][1]["id"].as_str().unwrap();
    let again = ask(&["rerun", first, "--json"]).json();
    assert_eq!((&again["status"], &again["reason"]), (&json!("completed"), &Value::Null), "{again:#}");
    let into = world.root().join("rerun");
    ask(&["restore", "branch:rerun-2", "--into", into.to_str().unwrap()]);
    assert!(into.join(".env").exists() && into.join("tests/run.sh").exists(), "what was refused was run");
    assert_eq!(left(&world).len(), 1, "a rerun leaves nothing behind");
    ask(&["fsck"]);
}

#[test]
fn an_interruption_ends_the_agent_and_says_where_things_are() {
    let world = Sandbox::new();
    let mut terminal = Terminal::start(demo(&world, &[]));
    terminal.expect("refactor the auth module").expect("stopped;");
    terminal.signal(Signal::INT);
    terminal.expect("Interrupted; the agent was stopped.").expect("cd ").expect("rm -r ");
    assert_eq!(terminal.wait().code(), Some(130));
    let [place] = &left(&world)[..] else { panic!("{:?}", left(&world)) };
    let mut command = world.command(["sessions", "--json"]);
    command.current_dir(place.join("auth")).env("STEPBACK_HOME", place.join("store"));
    let sessions = Ran::from(command.output().unwrap()).exits(0).json();
    assert_eq!(sessions["items"][0]["status"], "ended", "{sessions}");
    assert!(place.join("auth/.env").exists());
}

#[test]
fn without_a_reader_nothing_is_left() {
    let world = Sandbox::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    assert_eq!(demo(&world, &["--fast"]).stdout(writer).status().unwrap().code(), Some(0));
    assert_eq!(left(&world), [] as [PathBuf; 0]);
}
