//! `stepback tui` at a real terminal: opened, moved through, and files that really change.

use std::fs;

use rustix::process::Signal;
use serde_json::json;

use crate::pseudo_terminal::Terminal;
use crate::sandbox::Sandbox;
use crate::talk::Talk;
use crate::wire::Carrying;

/// A session in which a file is made and changed, and something fails.
fn record(world: &Sandbox) -> Talk<'_> {
    world.write("app.txt", "one\n");
    let agent = Talk::new(world, "s1-first");
    agent.begin();
    agent.prompt("make the tests pass");
    agent.write("c1", "made.txt", "by the agent\n");
    let input = json!({ "command": "rm \u{1b}[31mapp.txt" });
    agent.pre("b2", "Bash", input.clone());
    agent.event(
        "PostToolUseFailure",
        json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": "b2", "error": "permission denied" }),
    );
    agent.bash("b3", "echo two > app.txt", || world.write("app.txt", "two\n"));
    agent.stop();
    agent
}

fn start(world: &Sandbox, words: &[&str], rows: u16, columns: u16) -> Terminal {
    let mut command = world.command([&["tui"], words].concat());
    command.env("LANG", "en_US.UTF-8");
    Terminal::sized(command, rows, columns)
}

#[test]
fn a_session_is_opened_rewound_through_its_plan_and_brought_back() {
    let world = Sandbox::new();
    record(&world);
    let mut terminal = start(&world, &[], 24, 80);
    terminal.shows(&["[1 Sessions]", "make the tests pass", "claude"]);
    terminal.press("\r");
    terminal.shows(&["[2 Timeline]", "last", "echo two"]);
    terminal.press("E");
    terminal.shows(&["> !"]);
    terminal.press("\r");
    terminal.shows(&["[3 Step]", "permission denied", "rm \\u{1b}[31mapp.txt"]);
    terminal.press("w");
    terminal.shows(&["Plan: rewind", "app.txt", "restore"]);
    assert_eq!(fs::read_to_string(world.path("app.txt")).unwrap(), "two\n", "a plan changes nothing");
    terminal.press("y");
    terminal.shows(&["press u to undo"]);
    assert_eq!(fs::read_to_string(world.path("app.txt")).unwrap(), "one\n");
    terminal.press("u");
    terminal.shows(&["Plan: undo", "app.txt"]);
    terminal.press("y");
    terminal.shows(&["undo", "press u to undo"]);
    terminal.until("the file of before", |_| fs::read_to_string(world.path("app.txt")).unwrap() == "two\n");
    terminal.press("q");
    let (status, seen) = terminal.expect_end();
    assert!(status.success());
    assert!(!seen.contains("\u{1b}[31mapp.txt"), "what an agent ran cannot paint the terminal");
    world.expect_sound("after the undo");
}

#[test]
fn the_terminal_is_given_back_when_it_is_told_to_end() {
    let world = Sandbox::new();
    record(&world);
    let mut terminal = start(&world, &[], 24, 80);
    terminal.shows(&["make the tests pass"]);
    terminal.signal(Signal::TERM);
    let (_, seen) = terminal.expect_end();
    assert!(seen.contains("\x1b[?1000l"), "the mouse is given back");
}

/// Takes the terminal and panics, on this thread or first on another. Run by the test below, at a terminal.
#[test]
#[ignore = "it panics at a terminal, and is run by the_terminal_is_given_back_by_a_panic"]
fn a_panic_at_a_terminal() {
    let _held = stepback_tui::terminal::TerminalGuard::acquire().unwrap().with_mouse().unwrap();
    let beside = std::thread::spawn(|| panic!("nobody sees this"));
    assert!(beside.join().is_err());
    print!("still held\r\n");
    panic!("this is why");
}

#[test]
fn the_terminal_is_given_back_by_a_panic() {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["--ignored", "--exact", "tui::a_panic_at_a_terminal", "--nocapture", "--test-threads=1"]);
    let terminal = Terminal::sized(command, 24, 80);
    let (status, seen) = terminal.expect_end();
    assert!(!status.success());
    let place = |text: &str| seen.find(text).unwrap_or_else(|| panic!("{text:?} in {}", seen.escape_debug()));
    assert!(place("\x1b[?1049h") < place("still held") && place("still held") < place("\x1b[?1049l"));
    assert!(place("\x1b[?1049l") < place("this is why"), "what it says is seen on the screen of before");
    assert!(!seen.contains("nobody sees this"), "a panic beside the screen does not write over it");
}

#[test]
fn a_locked_store_is_waited_for_and_said_to_be() {
    let world = Sandbox::new();
    record(&world);
    let mut terminal = start(&world, &["s1"], 24, 80);
    terminal.shows(&["[2 Timeline]", "last", "echo two"]);
    let holder = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    holder.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // What is known can be looked at; what must be written is refused with a reason, and the screen stays.
    terminal.press("cwhile it is locked\r");
    terminal.press("k");
    terminal.shows(&["[2 Timeline]", "> "]);
    terminal.until("why not", |screen| screen.contains("! ") && screen.contains("store"));
    holder.execute_batch("ROLLBACK").unwrap();
    terminal.press("cafterwards\r");
    terminal.shows(&["checkpoint created"]);
    terminal.press("q");
    assert!(terminal.expect_end().0.success());
    assert!(world.ok(["checkpoint", "list"]).out.contains("afterwards"));
    world.expect_sound("after a lock");
}

#[test]
fn a_session_is_done_again_by_a_key() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let script = world.root().join("script.json");
    let write = json!({ "tool": "write", "input": { "path": "made", "content": "by the agent\n" } });
    let turns = json!([{ "text": "I make it.", "calls": [write] }, { "text": "Done." }]);
    fs::write(&script, json!({ "turns": turns }).to_string()).unwrap();
    world.ok(["agent", "--provider", "scripted", &script.display().to_string(), "make it"]);
    let mut terminal = start(&world, &[], 24, 100);
    terminal.shows(&["make it"]);
    terminal.press("\r");
    terminal.shows(&["[2 Timeline]", "last"]);
    // What cannot be changed is said before anything runs.
    terminal.press("rnonsense\r");
    terminal.shows(&["! "]);
    terminal.press("r\r");
    terminal.shows(&["rerunning", "rerun-1"]);
    let listed = || world.ok(["branch", "list", "--json"]).json();
    terminal.until("the rerun's end", |_| {
        let listed = listed();
        let items = listed["items"].as_array().unwrap();
        items.iter().any(|one| one["name"] == "rerun-1" && one["rerun"]["status"] == "completed")
    });
    terminal.press("q");
    assert!(terminal.expect_end().0.success());
    assert_eq!(fs::read_to_string(world.path("made")).unwrap(), "by the agent\n");
    world.expect_sound("after a rerun");
}

#[test]
fn what_was_thought_is_seen_at_each_step() {
    let world = Sandbox::new();
    record(&world);
    let session = ["--session", "s1"];
    let think = |words: &[&str]| drop(world.ok([words, &session].concat()));
    think(&["board", "hypothesis", "propose", "the file is written twice"]);
    think(&["board", "evidence", "add", "H1", "the log has it twice", "--strength", "0.5", "--tool", "Bash"]);
    think(&["board", "belief", "add", "the first write is lost", "--kind", "inference"]);
    let mut terminal = start(&world, &["s1"], 24, 100);
    terminal.shows(&["[2 Timeline]", "last"]);
    terminal.press("7");
    terminal.shows(&[
        "[7 Mind]",
        "+ B1",
        "Hypotheses 1",
        "0.82 active the file is written twice",
        "the log has it twice",
    ]);
    terminal.press("h");
    terminal.shows(&["* H1 rose from 0.5 to 0.82 after E1"]);
    terminal.press("h");
    terminal.shows(&["H1 was proposed", "0.50 active"]);
    // Evidence came at the step after this one; from there, the way leads to the step of the hypothesis.
    terminal.press("l");
    terminal.shows(&["rose from"]);
    terminal.press("]]j");
    terminal.shows(&["came with #"]);
    terminal.press("\r");
    terminal.shows(&["[3 Step]", "Proposed H1"]);
    terminal.press("q");
    terminal.expect_end();
}

#[test]
fn a_state_a_file_and_a_diff_are_looked_at() {
    let world = Sandbox::new();
    record(&world);
    let mut terminal = start(&world, &["s1"], 30, 120);
    // The step is beside the timeline.
    terminal.shows(&["[2 Timeline]", "echo two", "│"]);
    terminal.press("h");
    terminal.shows(&["Changed", "modified     app.txt"]);
    terminal.press("4");
    terminal.shows(&["[files]", "app.txt", "* modified", "made.txt"]);
    terminal.press("\r");
    terminal.shows(&["two"]);
    // Back in time, the same file.
    terminal.press("hh");
    terminal.until("the file of before", |screen| screen.contains("one") && !screen.contains("two"));
    terminal.press("\x1b");
    terminal.shows(&["2 paths"]);
    terminal.press("5G");
    terminal.press("l");
    terminal.shows(&["[5 Diff]"]);
    terminal.press("l");
    terminal.shows(&["-one", "+two"]);
    terminal.press("q");
    terminal.expect_end();
}

#[test]
fn a_running_agent_stops_at_a_breakpoint_and_is_told_what_to_do() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let bash = |command: &str| json!({ "calls": [{ "tool": "bash", "input": { "command": command } }] });
    let script = |name: &str, turns: serde_json::Value| {
        let path = world.root().join(name);
        fs::write(&path, json!({ "turns": turns }).to_string()).unwrap();
        path.display().to_string()
    };
    let first = script("first.json", json!([{ "text": "nothing to do" }]));
    world.ok(["agent", "--provider", "scripted", &first, "look around"]);
    let mut terminal = start(&world, &[], 24, 100);
    terminal.shows(&["look around"]);
    terminal.press("\r");
    terminal.shows(&["[2 Timeline]", "last"]);
    terminal.press("6");
    terminal.shows(&["Breakpoints of this workspace", "none; a adds one"]);
    terminal.press("abash\r");
    terminal.shows(&["1 on  tool bash", "0 hits"]);
    let turns =
        json!([bash("echo 1 > one"), bash("echo 2 > two"), bash("echo 3 > three"), { "text": "end" }]);
    let second = script("second.json", turns);
    let agent = world.spawn(&["agent", "--provider", "scripted", &second, "make files"]);
    terminal.shows(&["! 1 agent waits", "command: echo 1 > one"]);
    assert!(!world.path("one").exists());
    terminal.press("dnot the first\r");
    terminal.shows(&["command: echo 2 > two"]);
    terminal.press("i\x15{\"command\": \"echo 22 > two\"}\r");
    terminal.shows(&["command: echo 3 > three"]);
    terminal.press("o");
    terminal.until("nobody waits", |screen| !screen.contains("agent waits"));
    let ran: crate::sandbox::Ran = agent.wait_with_output().unwrap().into();
    ran.exits(0);
    assert!(!world.path("one").exists());
    assert_eq!(fs::read_to_string(world.path("two")).unwrap(), "22\n");
    assert!(world.path("three").exists());
    // The session that came meanwhile is in the list, and can be gone to.
    terminal.press("1");
    terminal.shows(&["make files", "ended"]);
    terminal.press("q");
    terminal.expect_end();
}

#[test]
fn checkpoints_branches_search_and_points_work_by_keys() {
    let world = Sandbox::new();
    record(&world);
    let mut terminal = start(&world, &["s1"], 24, 90);
    terminal.shows(&["last"]);
    terminal.press("ckept here\r");
    terminal.shows(&["checkpoint created"]);
    assert!(world.ok(["checkpoint", "list"]).out.contains("kept here"));
    terminal.press("btry\r");
    terminal.shows(&["branch try starts at", "<try>"]);
    assert!(world.ok(["branch", "list"]).out.contains("try"));
    terminal.press("/permission\r");
    terminal.shows(&["found for \"permission\""]);
    terminal.press("\r");
    terminal.shows(&["> !", "failed:"]);
    terminal.press("glast\r");
    terminal.shows(&["last"]);
    terminal.press("gnowhere at all\r");
    terminal.shows(&["! "]);
    terminal.press("gtool:bash:1\r");
    terminal.shows(&["tool-start     Bash: rm \\u{1b}[31mapp.txt", "#5 of #10"]);
    terminal.press("?");
    terminal.shows(&["Everywhere", "one row down"]);
    terminal.press("zq");
    terminal.expect_end();
}

#[test]
fn a_terminal_of_any_kind_is_served() {
    let world = Sandbox::new();
    record(&world);
    let mut terminal = start(&world, &["s1"], 24, 80);
    terminal.shows(&["last"]);
    terminal.resize(12, 40);
    terminal.shows(&["[2Ti]", "> "]);
    terminal.resize(5, 20);
    terminal.shows(&["Too small"]);
    terminal.resize(40, 130);
    terminal.shows(&["[2 Timeline]", "│"]);
    terminal.press("q");
    terminal.expect_end();

    let mut command = world.command(["tui", "s1"]);
    command.env("NO_COLOR", "1").env("LANG", "C");
    let mut terminal = Terminal::sized(command, 24, 120);
    terminal.shows(&["last", "! #"]);
    terminal.press("w");
    terminal.shows(&["Plan: rewind"]);
    let written = terminal.written();
    assert!(written.is_ascii(), "nothing but ASCII for a terminal that knows no more");
    let text = String::from_utf8(written).unwrap();
    // Colours are 30 to 49 and 90 to 107; 39 and 49 only take them away.
    for code in text.split("\x1b[").skip(1).filter_map(|rest| rest.split_once('m')).map(|(code, _)| code) {
        let is_color = |part: &str| part.parse().is_ok_and(|n: u8| matches!(n, 30..=38 | 40..=48 | 90..=107));
        assert!(!code.split(';').any(is_color), "{code}");
    }
    terminal.press("\x1b");
    terminal.shows(&["nothing was changed"]);
    terminal.press("q");
    terminal.expect_end();
}

#[test]
fn where_it_cannot_be_shown_it_is_said() {
    let world = Sandbox::new();
    let ran = world.run(["tui"]).exits(2);
    assert!(ran.err.contains("requires a terminal") && ran.err.contains("replay --plain"), "{}", ran.err);
    record(&world);
    let mut terminal = start(&world, &["nobody"], 24, 80);
    terminal.expect("nobody");
    assert_eq!(terminal.wait().code(), Some(3));
    let mut terminal = start(&world, &["--server", "http://127.0.0.1:1"], 24, 80);
    terminal.expect("server.token");
    assert_eq!(terminal.wait().code(), Some(7));
    fs::write(world.store.join("server.token"), "0123").unwrap();
    let mut terminal = start(&world, &["--server", "http://127.0.0.1:1"], 24, 80);
    terminal.expect("cannot reach").expect("stepback serve");
    assert_eq!(terminal.wait().code(), Some(7));
    let mut terminal = start(&world, &["--server", "somewhere"], 24, 80);
    terminal.expect("not the address of a server");
    assert_eq!(terminal.wait().code(), Some(2));
}

#[test]
fn a_server_goes_away_and_comes_back_and_no_step_is_missed() {
    let world = Sandbox::new();
    let agent = record(&world);
    let serve =
        |listen: &str| Carrying::program(&world, &["serve", "--json", "--listen", listen], &[]).unwrap();
    let server = serve("127.0.0.1:0");
    let (url, address) = (server.url.clone(), server.url.strip_prefix("http://").unwrap().to_owned());
    let mut terminal = start(&world, &["--server", &url, "s1"], 24, 80);
    terminal.shows(&["[2 Timeline]", "last", "echo two"]);
    agent.prompt("while it listens");
    terminal.shows(&["while it listens"]);
    server.end();
    terminal.shows(&["retrying"]);
    agent.prompt("while it is away");
    terminal.press("k");
    terminal.shows(&["retrying", "while it listens"]);
    terminal.press("G");
    let server = serve(&address);
    terminal.shows(&["while it is away"]);
    terminal.until("it answers", |screen| !screen.contains("retrying"));
    terminal.press("w");
    terminal.shows(&["Plan: rewind"]);
    terminal.press("\x1bq");
    terminal.expect_end();
    server.end();
    // With a token that is not the server's.
    let server = serve(&address);
    let mut command = world.command(["tui", "--server", &url]);
    command.env("STEPBACK_TOKEN", "0123456789");
    let mut terminal = Terminal::start(command);
    terminal.expect("token is missing or wrong").expect("--token-file");
    assert_eq!(terminal.wait().code(), Some(9));
    server.end();
}

/// Where the recording is.
const FRAMES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/tui-frames.txt");

/// A text without what differs between two runs: the time of day and how long something took.
fn masked(text: &str) -> String {
    let digits =
        |word: &str| word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect::<String>();
    let is_time = |word: &str| word.len() == 8 && digits(word) == "00:00:00";
    let lines = text.lines().map(|line| {
        let mut words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        for at in 0..words.len() {
            let is_length =
                words.get(at + 1).is_some_and(|unit| matches!(unit.as_str(), "ms" | "s" | "ms," | "s,"));
            if is_time(&words[at]) || is_length || words[at].starts_with("2026-") {
                words[at] = "…".into();
            }
        }
        words.join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The recording in the guide is made here: `STEPBACK_UPDATE_GUIDE=1` writes it anew.
#[test]
fn the_recording_in_the_guide_is_what_is_shown() {
    let world = Sandbox::frozen();
    record(&world);
    let mut frames = String::new();
    let mut terminal = start(&world, &[], 24, 80);
    let mut take = |keys: &str, terminal: &mut Terminal, texts: &[&str]| {
        if !keys.is_empty() {
            terminal.press(keys);
        }
        // What is still being read is not what is shown in the end.
        let is_read = |screen: &str| !screen.contains("reading …");
        let shown = |screen: &str| texts.iter().all(|text| screen.contains(text)) && is_read(screen);
        let screen = terminal.until(&format!("{texts:?}"), shown);
        let keys = keys.replace('\r', "⏎").replace('\t', "tab");
        let title = if keys.is_empty() { "stepback tui".to_owned() } else { format!("key {keys}") };
        frames.push_str(&format!("=== {title}\n{}\n\n", screen.trim_end()));
    };
    take("", &mut terminal, &["[1 Sessions]", "make the tests pass", "? keys"]);
    take("\r", &mut terminal, &["[2 Timeline]", "last", "<main*>"]);
    take("E", &mut terminal, &["> !", "#6 of #9"]);
    take("\r", &mut terminal, &["[3 Step]", "permission denied"]);
    take("\t", &mut terminal, &["[4 State]", "2 paths"]);
    terminal.press("ll");
    take("5", &mut terminal, &["[5 Diff]", "-one", "+two"]);
    take("h", &mut terminal, &["[5 Diff]", "#7 is not a checkpoint"]);
    take("w", &mut terminal, &["Plan: rewind", "app.txt"]);
    take("y", &mut terminal, &["no file differs", "press u to undo"]);
    take("6", &mut terminal, &["none; a adds one"]);
    take("?", &mut terminal, &["Everywhere"]);
    terminal.press("z");
    terminal.press("q");
    terminal.expect_end();
    if std::env::var_os("STEPBACK_UPDATE_GUIDE").is_some() {
        fs::write(FRAMES, &frames).unwrap();
    }
    let kept = fs::read_to_string(FRAMES).unwrap();
    assert_eq!(masked(&frames), masked(&kept), "STEPBACK_UPDATE_GUIDE=1 writes it anew");
}

#[test]
fn what_is_huge_is_shown_in_part_and_keys_go_on_working() {
    let world = Sandbox::new();
    world.write("lines.txt", "a\n".repeat(100_000));
    world.write("small.txt", "one\n");
    let agent = Talk::new(&world, "s1-first");
    agent.begin();
    agent.prompt("change everything");
    agent.bash("b1", "change", || {
        world.write("lines.txt", "b\n".repeat(100_000));
        world.write("small.txt", "two\n");
        world.write("huge.bin", vec![0; 50 << 20]);
        world.write("huge.txt", "0123456789abcde\n".repeat(3 << 20));
    });
    agent.stop();
    let mut terminal = start(&world, &["s1"], 24, 80);
    terminal.shows(&["last"]);
    terminal.press("h5");
    terminal.shows(&["modified     lines.txt"]);
    terminal.press("G");
    terminal.shows(&["+two"]);
    terminal.press("4");
    terminal.shows(&["huge.txt", "50.3 MB"]);
    terminal.press("j\r");
    terminal.shows(&["0123456789abcde"]);
    terminal.press("G");
    terminal.shows(&["too many to be shown here"]);
    terminal.press("\x1b");
    terminal.shows(&["4 paths"]);
    terminal.press("k\r");
    terminal.shows(&["binary file"]);
    terminal.press("q");
    terminal.expect_end();
}
