//! A recorded session is gone through again: as text, as documents, and with keys at a terminal.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::pseudo_terminal::Terminal;
use crate::sandbox::Sandbox;
use crate::talk::Talk;
use crate::transcripts::{Transcript, assert_transcript};

/// A session of nine steps: a prompt, a call that works, one that fails, a file.
fn record(world: &Sandbox) {
    world.write("app.txt", "one\n");
    let agent = Talk::new(world, "s1-first");
    agent.begin();
    agent.prompt("make the tests pass\nand do not touch app.txt");
    let input = json!({ "command": "make test\nmake lint", "timeout": 60 });
    agent.pre("b1", "Bash", input.clone());
    world.write("made.txt", "by the agent\n");
    let output =
        json!({ "stdout": (1..=9).map(|n| format!("test {n} ok\n")).collect::<String>(), "stderr": "" });
    let result =
        json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": "b1", "tool_response": output });
    agent.event("PostToolUse", result);
    let input = json!({ "command": "rm \u{1b}[31mapp.txt" });
    agent.pre("b2", "Bash", input.clone());
    agent.event(
        "PostToolUseFailure",
        json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": "b2", "error": "permission denied" }),
    );
    agent.bash("b3", "echo two > app.txt", || world.write("app.txt", "two\n"));
    agent.stop();
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(world: &Sandbox, words: &[&str]) -> Vec<u64> {
    let mut all = vec!["replay", "--json"];
    all.extend(words);
    lines(&world.ok(all).out).iter().map(|step| step["number"].as_u64().unwrap()).collect()
}

#[test]
fn replay_as_text() {
    let mut t = Transcript::new();
    record(&t.world);
    t.run("replay")
        .run("replay s1 --filter tool-end,error")
        .run("replay s1 --from-sequence 5 --until error:last")
        .run("replay s1 --from-iteration 99")
        .run("replay nobody")
        .run("replay --speed fast")
        .run("replay --speed 0")
        .run("replay --filter nonsense");
    assert_transcript!(t.text());
}

#[test]
fn a_session_is_found_by_id_by_its_transcript_and_by_its_directory() {
    let world = Sandbox::new();
    record(&world);
    let agent = Talk::new(&world, "s1-first");
    agent.say(&[json!({ "type": "user" })]);
    let all = numbers(&world, &[]);
    assert_eq!(all.len(), 9);
    assert_eq!(numbers(&world, &["s1-f"]), all);
    let id = world.json(["sessions"])["items"][0]["id"].as_str().unwrap().to_string();
    assert_eq!(numbers(&world, &[&id[..8]]), all);
    assert_eq!(numbers(&world, &[agent.transcript().to_str().unwrap()]), all);
    assert_eq!(numbers(&world, &["."]), all);
    // From elsewhere, where nothing was recorded.
    let elsewhere = world.home.to_str().unwrap();
    assert_eq!(numbers(&world, &["-C", elsewhere, "s1"]), all);
    assert_eq!(numbers(&world, &["-C", elsewhere, world.work.to_str().unwrap()]), all);
    world.run(["-C", elsewhere, "replay"]).exits(4);
    world.write("other.jsonl", "{}\n");
    let unknown = world.run(["replay", "other.jsonl"]).exits(4);
    assert!(unknown.err.contains("stepback import"), "{}", unknown.err);
}

#[test]
fn documents_have_what_is_shown_and_can_be_limited() {
    let world = Sandbox::new();
    record(&world);
    let steps = lines(&world.ok(["replay", "--json"]).out);
    let of = |kind: &str| steps.iter().find(|step| step["kind"] == kind).unwrap();
    assert_eq!(of("user-input")["input"]["prompt"], "make the tests pass\nand do not touch app.txt");
    assert_eq!(of("tool-start")["input"]["timeout"], 60);
    assert_eq!(of("tool-end")["changes"][0]["path"], "made.txt");
    assert!(steps.iter().any(|step| step["error"]["message"] == "permission denied"));
    assert!(steps.iter().all(|step| step["agent"] == "claude" && step["after_us"].is_u64()));
    let all = numbers(&world, &[]);
    assert_eq!(numbers(&world, &["--from-sequence", &all[3].to_string()]), all[3..]);
    assert_eq!(numbers(&world, &["--until", &format!("#{}", all[4])]), all[..5]);
    assert_eq!(numbers(&world, &["--until", "tool:bash:1"]), all[..3]);
    assert_eq!(numbers(&world, &["--filter", "user-input"]).len(), 1);
    assert!(numbers(&world, &["--from-iteration", "2"]).len() < all.len());
}

#[test]
fn a_timed_replay_takes_the_time_it_took() {
    let world = Sandbox::frozen();
    record(&world);
    // A minute lies between any two steps; five seconds of each are kept, at a hundred times the speed.
    let begun = Instant::now();
    let fast = world.ok(["replay", "--speed", "100x"]).out;
    assert!(begun.elapsed() >= Duration::from_millis(8 * 50), "{:?}", begun.elapsed());
    assert_eq!(fast, world.ok(["replay"]).out);
}

#[test]
fn keys_go_through_a_session_and_the_terminal_is_as_it_was() {
    let world = Sandbox::frozen();
    record(&world);
    let mut terminal = Terminal::start(world.command(["replay"]));
    terminal.expect("1/9").expect("1x").expect("q quit");
    terminal.press("n");
    terminal.expect("make the tests pass").expect("2/9");
    terminal.press("\x1b[C");
    terminal.expect("make lint").expect("3/9");
    terminal.press("p");
    terminal.expect("2/9");
    terminal.press("\x1b[D");
    terminal.expect("1/9");
    terminal.press("e");
    terminal.expect("permission denied").expect("6/9");
    terminal.press("e");
    terminal.expect("no error after");
    terminal.press("g3\r");
    terminal.expect("go to step #3").expect("#3 ");
    terminal.press("E");
    terminal.expect("no error before");
    terminal.press("++");
    terminal.expect("4x");
    terminal.press("-");
    terminal.expect("2x");
    terminal.press("?");
    terminal.expect("previous error");
    terminal.press("x");
    terminal.expect("q quit");
    terminal.press("q");
    let (status, seen) = terminal.expect_end();
    assert!(status.success());
    assert!(seen.contains("Stopped at #3"), "{seen:?}");
    assert!(!seen.contains("rm \u{1b}"), "what an agent ran cannot paint the terminal");
}

#[test]
fn it_plays_by_itself_to_the_end() {
    let world = Sandbox::frozen();
    record(&world);
    let mut terminal = Terminal::start(world.command(["replay", "--speed", "200x"]));
    terminal.expect("9/9").expect("200x");
    terminal.press(" ");
    terminal.expect("▶ ").expect("9/9");
    terminal.press("q");
    assert!(terminal.expect_end().0.success());
}

#[test]
fn every_way_out_leaves_the_terminal_as_it_was() {
    let world = Sandbox::frozen();
    record(&world);
    for way in ["\x03", "term", "hang up"] {
        let mut terminal = Terminal::start(world.command(["replay"]));
        terminal.expect("q quit");
        match way {
            "term" => terminal.signal(Signal::TERM),
            "hang up" => terminal.signal(Signal::HUP),
            key => terminal.press(key),
        }
        terminal.expect_end();
    }
    // Without keys, or with --plain, everything is printed.
    let ran = world.ok(["replay", "--plain"]);
    assert!(ran.out.contains("permission denied") && !ran.out.contains('\x1b'), "{}", ran.out);
}
