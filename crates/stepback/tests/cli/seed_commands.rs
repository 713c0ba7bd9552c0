//! The command lines of the documents that stepback was built from, word for word, with `stepback` in place of their
//! programs. Ids are the only words that are filled in.
//!
//! Everything happens in one workspace with two sessions: one that an agent wrote down by itself, of twelve turns, and one
//! that works while the commands run.

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::pseudo_terminal::Terminal;
use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, items};
use crate::transcripts::{FILTERS, Transcript, words};

/// Time between two steps of the session that is replayed.
const GAP: Duration = Duration::from_millis(4);
/// How many lines of an output the transcript has before its last one.
const SHOWN_LINES: usize = 14;

/// A workspace, and what was typed and said in it.
struct SeedWorld {
    transcript: Transcript,
    typed: usize,
}

/// The first lines of an output and the last one.
fn shorten(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    match lines.as_slice() {
        [first @ .., last] if lines.len() > SHOWN_LINES => {
            let left_out = first.len() - SHOWN_LINES;
            format!("{}\n… {left_out} lines …\n{last}\n", first[..SHOWN_LINES].join("\n"))
        }
        _ => text.to_owned(),
    }
}

impl SeedWorld {
    fn new() -> Self {
        Self { transcript: Transcript::new(), typed: 0 }
    }

    /// Runs a line, which must succeed.
    #[track_caller]
    fn ok(&mut self, line: &str) -> Ran {
        self.exits(line, 0)
    }

    #[track_caller]
    fn exits(&mut self, line: &str, code: i32) -> Ran {
        let ran = self.transcript.world.run(words(line));
        self.note(line, ran).exits(code)
    }

    fn note(&mut self, line: &str, ran: Ran) -> Ran {
        self.typed += 1;
        let shown = Ran { code: ran.code, out: shorten(&ran.out), err: shorten(&ran.err) };
        self.transcript.note(line, &shown);
        ran
    }

    /// Runs a line as if it were that time.
    #[track_caller]
    fn ok_at(&mut self, clock: &str, line: &str) -> Ran {
        let mut command = self.transcript.world.command(words(line));
        let ran: Ran = command.env("STEPBACK_TEST_CLOCK", clock).output().unwrap().into();
        self.note(line, ran).exits(0)
    }

    /// Runs a line at a terminal, and agrees to the plan that it shows.
    #[track_caller]
    fn agrees(&mut self, line: &str) {
        self.typed += 1;
        self.transcript
            .meanwhile(&format!("stepback {line}, at a terminal: the plan is shown, and agreed to"));
        let mut terminal = Terminal::start(self.transcript.world.command(words(line)));
        terminal.expect("Continue?").press("y\n");
        assert!(terminal.wait().success(), "{line}");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.transcript.world.path(name)).unwrap_or_else(|_| "(missing)".into())
    }

    fn breakpoints(&self) -> Vec<Value> {
        let mut all = items(&self.transcript.world.json(["breakpoint", "list"]));
        all.reverse();
        all
    }

    fn hits(&self) -> Vec<u64> {
        self.breakpoints().iter().map(|one| one["hits"].as_u64().unwrap()).collect()
    }

    fn checkpoint_id(&self, label: &str) -> String {
        let found = self.transcript.world.json(["checkpoint", "list", "--find", label]);
        items(&found)[0]["id"].as_str().unwrap().to_owned()
    }
}

/// Writes the conversation of twelve turns with one call each, and imports it. Returns its file.
fn import_turns(world: &Sandbox) -> std::path::PathBuf {
    let mut lines = Vec::new();
    let mut add = |kind: &str, content: Value| {
        let number = lines.len();
        let millis = number as u128 * GAP.as_millis();
        lines.push(
            json!({ "type": kind, "uuid": format!("u{number}"), "sessionId": "old", "cwd": world.work,
            "version": "2.1.0", "timestamp": format!("2026-01-01T00:00:00.{millis:03}Z"),
            "message": { "role": kind, "id": format!("m{number}"), "content": content } }),
        );
    };
    add("user", json!("refactor the authentication"));
    for turn in 0..12 {
        let id = format!("c{turn}");
        let input = json!({ "command": format!("make {turn}") });
        add("assistant", json!([{ "type": "tool_use", "id": id, "name": "bash", "input": input }]));
        add("user", json!([{ "type": "tool_result", "tool_use_id": id, "content": "ok" }]));
    }
    add("assistant", json!([{ "type": "text", "text": "done" }]));
    let dir = world.home.join("sessions");
    fs::create_dir(&dir).unwrap();
    let file = dir.join("debug_20260123_131000_abc1.jsonl");
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    fs::write(&file, text).unwrap();
    world.ok(["import", file.to_str().unwrap(), "--agent", "claude"]);
    file
}

/// Breakpoints: `codi-debug breakpoint …`.
fn breakpoint_lines(seed: &mut SeedWorld) {
    seed.ok("breakpoint add tool write_file");
    seed.ok("breakpoint add tool bash --condition \"rm -rf\"");
    seed.ok("breakpoint add iteration 5");
    seed.ok("breakpoint add pattern \"DELETE.*WHERE\"");
    seed.ok("breakpoint add error");
    let listed = seed.ok("breakpoint list").out;
    for text in ["tool write_file", "rm -rf", "iteration 5", "DELETE.*WHERE", "error"] {
        assert!(listed.contains(text), "{text} is not in:\n{listed}");
    }
    seed.transcript.world.ok(["settings", "breakpoint.seconds", "0"]);
    let world = &seed.transcript.world;
    let agent = Talk::new(world, "stops");
    agent.begin();
    agent.prompt("go");
    let is_stopped = |id: &str, tool: &str, input: Value| agent.pre(id, tool, input).out.contains("deny");
    assert!(is_stopped("1", "write_file", json!({ "path": "x" })));
    assert!(is_stopped("2", "bash", json!({ "command": "rm -rf build" })));
    assert!(!is_stopped("3", "bash", json!({ "command": "ls" })));
    agent.post("3", "bash", json!({ "command": "ls" }));
    assert!(is_stopped("4", "sql", json!({ "query": "delete from users where 1" })));
    assert!(is_stopped("5", "read_file", json!({ "path": "x" })), "the fifth turn");
    assert!(!is_stopped("6", "read_file", json!({ "path": "x" })), "a turn is reached once");
    let failed =
        json!({ "tool_name": "read_file", "tool_use_id": "6", "tool_input": {}, "error": "no such file" });
    agent.event("PostToolUseFailure", failed);
    assert_eq!(seed.hits(), [1, 1, 1, 1, 1]);
    let agent = Talk::new(&seed.transcript.world, "stops");
    agent.event("SessionEnd", json!({ "reason": "exit" }));
    seed.exits("breakpoint remove bp-1234", 4);
    seed.ok("breakpoint remove bp-1");
    assert_eq!(seed.breakpoints().len(), 4);
    seed.ok("breakpoint clear");
    assert_eq!(seed.breakpoints().len(), 0);
}

/// Replaying: `codi-debug replay …`.
fn replay_lines(seed: &mut SeedWorld, file: &std::path::Path) {
    let id = items(&seed.transcript.world.json(["sessions"]))[0]["id"].as_str().unwrap().to_owned();
    let plain = seed.ok(&format!("replay {id}")).out;
    assert!(plain.contains("make 0") && plain.contains("make 11"), "{plain}");
    assert_eq!(seed.ok(&format!("replay {}", file.display())).out, plain);
    let steps = items(&seed.transcript.world.json(["log", "--session", &id]));
    let (first, last) = (steps.last().unwrap(), &steps[0]);
    assert!(last["number"].as_u64().unwrap() >= 50 || steps.len() >= 24, "{}", steps.len());
    let spread = GAP * 25;
    let mut timed = |line: &str| {
        let begun = Instant::now();
        assert_eq!(seed.ok(line).out, plain, "{line}");
        begun.elapsed()
    };
    // Pauses can take longer than they should, and never less.
    assert!(timed(&format!("replay --timed {id}")) >= spread);
    assert!(timed(&format!("replay --speed 2x {id}")) >= spread / 2);
    assert!(timed(&format!("replay --speed 0.5x {id}")) >= spread * 2);
    let calls = seed.ok(&format!("replay --filter tool_call_start,tool_call_end {id}")).out;
    assert_eq!(calls, seed.transcript.world.ok(["replay", "--filter", "tool-start,tool-end", &id]).out);
    assert!(calls.contains("make 3") && !calls.contains("refactor the authentication\n\n"), "{calls}");
    let late = seed.ok(&format!("replay --from-iteration 10 {id}")).out;
    assert!(late.contains("make 9") && !late.contains("make 8"), "{late}");
    let from = first["number"].as_u64().unwrap() + 10;
    let rest = seed.ok(&format!("replay --from-sequence {from} {id}")).out;
    assert!(rest.contains(&format!("#{from}")) && !rest.contains(&format!("#{}", from - 1)), "{rest}");
    seed.ok(&format!("replay --from-sequence 50 {id}"));
}

/// Checkpoints, rewinds and branches of a conversation: `codi-debug checkpoint|rewind|branch|switch|diff|timeline …`.
fn time_travel_lines(seed: &mut SeedWorld) {
    let agent = Talk::new(&seed.transcript.world, "work");
    agent.begin();
    agent.prompt("refactor auth module");
    agent.write("w1", "src/auth.ts", "one\n");
    seed.ok("checkpoint create \"before refactor\"");
    let agent = Talk::new(&seed.transcript.world, "work");
    for turn in 2..=4 {
        agent.write(&format!("w{turn}"), "src/auth.ts", &format!("turn {turn}\n"));
    }
    agent.write("w5", "src/types.ts", "types\n");
    let unnamed = seed.ok("checkpoint create").out;
    assert!(unnamed.contains("cp_iteration_5"), "{unnamed}");
    seed.ok("checkpoint create cp_5_1706012345");
    let agent = Talk::new(&seed.transcript.world, "work");
    agent.write("w6", "src/auth.ts", "turn 6\n");
    let listed = seed.ok("checkpoint list").out;
    for label in ["before refactor", "cp_iteration_5", "cp_5_1706012345"] {
        assert!(listed.contains(label), "{listed}");
    }
    seed.ok("rewind cp_5_1706012345");
    assert_eq!((seed.read("src/auth.ts"), seed.read("src/types.ts")), ("turn 4\n".into(), "types\n".into()));
    seed.agrees("rewind \"before refactor\"");
    assert_eq!((seed.read("src/auth.ts"), seed.read("src/types.ts")), ("one\n".into(), "(missing)".into()));
    seed.transcript.world.ok(["undo", "--yes"]);
    seed.ok("rewind \"before refactor\" --force");
    assert_eq!((seed.read("src/auth.ts"), seed.read("src/types.ts")), ("one\n".into(), "(missing)".into()));
    seed.transcript.world.ok(["undo", "--yes"]);
    seed.ok("rewind --iteration 5");
    assert_eq!(
        (seed.read("src/auth.ts"), seed.read("src/types.ts")),
        ("turn 4\n".into(), "(missing)".into())
    );
    seed.transcript.world.ok(["undo"]);

    seed.ok("branch cp_5_1706012345 \"alternative approach\"");
    seed.ok("branch --from \"before refactor\" --name \"try with typescript\"");
    seed.ok("branch create \"try-different-approach\" --from cp_5_1706012345");
    let branches = items(&seed.transcript.world.json(["branch", "list"]));
    let names: Vec<_> = branches.iter().map(|branch| branch["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["alternative approach", "main", "try with typescript", "try-different-approach"]);
    let fork = |name: &str| {
        let branch = branches.iter().find(|branch| branch["name"] == name).unwrap();
        branch["tip"].as_str().unwrap().to_owned()
    };
    assert_eq!(fork("alternative approach"), seed.checkpoint_id("cp_5_1706012345"));
    assert_eq!(fork("try with typescript"), seed.checkpoint_id("before refactor"));

    let current = |seed: &SeedWorld| {
        let branches = items(&seed.transcript.world.json(["branch", "list"]));
        let present = branches.iter().find(|branch| branch["present"] == true).unwrap();
        present["name"].as_str().unwrap().to_owned()
    };
    seed.ok("switch \"alternative approach\"");
    assert_eq!(current(seed), "alternative approach");
    seed.transcript.world.write("src/other.ts", "another approach\n");
    seed.transcript.world.ok(["checkpoint", "create", "another approach"]);
    seed.ok("switch main");
    assert_eq!(current(seed), "main");
    assert_eq!(
        (seed.read("src/other.ts"), seed.read("src/types.ts")),
        ("(missing)".into(), "types\n".into())
    );
    let listed = seed.ok("branch list").out;
    assert!(listed.contains("alternative approach") && listed.contains("try with typescript"), "{listed}");
    let difference = seed.ok("diff main \"alternative approach\"").out;
    assert!(difference.contains("+another approach") && difference.contains("src/other.ts"), "{difference}");
    let timeline = seed.ok("timeline").out;
    for text in ["you are here", "before refactor", "(branch alternative approach)"] {
        assert!(timeline.contains(text), "{text} is not in:\n{timeline}");
    }
}

/// Checkpoints of the reasoning: `forge checkpoint …`.
fn checkpoint_lines(seed: &mut SeedWorld) {
    let world = &seed.transcript.world;
    world.ok(["board", "hypothesis", "propose", "the cache is stale"]);
    seed.ok("checkpoint create \"After verifying Q4_0 dequant\" --tags q4_0,verified");
    let verified = seed.checkpoint_id("After verifying");
    let document = seed.transcript.world.json(["checkpoint", "show", &verified]);
    assert_eq!(document["tags"], json!(["q4_0", "verified"]), "{document}");
    seed.transcript.world.ok(["board", "hypothesis", "propose", "the index is wrong"]);
    Talk::new(&seed.transcript.world, "work").write("w7", "src/new.ts", "new\n");
    seed.transcript.world.ok(["checkpoint", "create", "later"]);
    let later = seed.checkpoint_id("later");
    assert!(seed.ok("checkpoint list").out.contains("later"));
    let tagged = seed.ok("checkpoint list --tag q4_0").out;
    assert!(tagged.contains("After verifying") && !tagged.contains("later"), "{tagged}");
    let difference = seed.ok(&format!("checkpoint diff {verified} {later}")).out;
    assert!(difference.contains("+new"), "{difference}");

    seed.agrees_or_ok(&format!("checkpoint restore {verified}"));
    assert_eq!(seed.read("src/new.ts"), "(missing)");
    let board = seed.transcript.world.ok(["board"]).out;
    assert!(board.contains("the cache is stale") && !board.contains("the index is wrong"), "{board}");
    let lately = seed.ok("checkpoint at \"2 hours ago\"").out;
    assert!(lately.contains("at one o'clock"), "{lately}");
    let long_ago = seed.ok("checkpoint at \"2025-01-20 14:30:00\"").out;
    assert!(long_ago.contains("a year ago"), "{long_ago}");
    let timeline = seed.ok("checkpoint timeline").out;
    assert!(timeline.contains("you are here") && timeline.contains("later"), "{timeline}");
    seed.transcript.world.ok(["settings", "checkpoint.max-manual", "0"]);
    for number in 0..100 {
        seed.transcript.world.ok(["checkpoint", "create", &format!("number {number}")]);
    }
    seed.ok("checkpoint prune --keep-last 100 --keep-days 7");
    let kept = items(&seed.transcript.world.json(["checkpoint", "list", "--all"]));
    let is_kept = |label: &str| kept.iter().any(|one| one["label"] == label);
    assert!(!is_kept("a year ago"), "neither of the last hundred nor of the last seven days");
    assert!(is_kept("at one o'clock") && is_kept("before refactor") && is_kept("number 0"));
}

/// Taking back changes: `/rewind …`.
fn change_lines(seed: &mut SeedWorld) {
    let agent = Talk::new(&seed.transcript.world, "changes");
    agent.begin();
    seed.transcript.world.ok(["changes", "clear"]);
    let agent = Talk::new(&seed.transcript.world, "changes");
    agent.prompt("add a middleware");
    agent.write("m1", "src/auth.ts", "with middleware\n");
    agent.write("m2", "src/middleware.ts", "middleware\n");
    agent.write("m3", "package.json", "{}\n");
    agent.stop();
    let listed = seed.ok("rewind").out;
    for text in ["src/auth.ts", "src/middleware.ts", "package.json"] {
        assert!(listed.contains(text), "{listed}");
    }
    seed.agrees("rewind last 2");
    assert_eq!(
        (seed.read("src/middleware.ts"), seed.read("package.json")),
        ("(missing)".into(), "(missing)".into())
    );
    assert_eq!(seed.read("src/auth.ts"), "with middleware\n");
    seed.transcript.world.ok(["undo", "--yes"]);
    // Numbers do not start again when the list is cleared.
    let changes = items(&seed.transcript.world.json(["changes"]));
    let first = changes.iter().find(|change| change["path"] == "src/auth.ts").unwrap();
    seed.ok(&format!("rewind --change {}", first["number"]));
    assert_ne!(seed.read("src/auth.ts"), "with middleware\n");
    assert_eq!(seed.read("src/middleware.ts"), "middleware\n");
    seed.transcript.world.ok(["undo", "--yes"]);
    seed.exits("rewind all", 9);
    assert_eq!(seed.read("src/middleware.ts"), "middleware\n", "several files change only after a question");
    seed.agrees("rewind all");
    assert_eq!(
        (seed.read("src/middleware.ts"), seed.read("package.json")),
        ("(missing)".into(), "(missing)".into())
    );
}

impl SeedWorld {
    /// Runs a line that may or may not ask, at a terminal.
    #[track_caller]
    fn agrees_or_ok(&mut self, line: &str) {
        self.typed += 1;
        self.transcript.meanwhile(&format!("stepback {line}, at a terminal"));
        let mut terminal = Terminal::start(self.transcript.world.command(words(line)));
        terminal.press("y\n");
        assert!(terminal.wait().success(), "{line}: {}", String::from_utf8_lossy(&terminal.written()));
    }
}

#[test]
fn command_lines_of_the_seeds() {
    let mut seed = SeedWorld::new();
    seed.transcript.world.write("src/auth.ts", "zero\n");
    seed.ok_at("2025-01-20T14:00:00Z/100001", "checkpoint create \"a year ago\"");
    let file = import_turns(&seed.transcript.world);
    replay_lines(&mut seed, &file);
    seed.ok_at("2026-01-02T01:00:00Z/100002", "checkpoint create \"at one o'clock\"");
    breakpoint_lines(&mut seed);
    time_travel_lines(&mut seed);
    checkpoint_lines(&mut seed);
    change_lines(&mut seed);
    seed.transcript.world.expect_sound("at the end");
    assert!(seed.typed > 45, "{}", seed.typed);
    insta::with_settings!({ filters => FILTERS.to_vec(), omit_expression => true, prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("command_lines_of_the_seeds", seed.transcript.text());
    });
}
