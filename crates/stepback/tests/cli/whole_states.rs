//! What a checkpoint holds besides files: every session at work, the working set, what is staged, names of variables.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

fn session<'v>(state: &'v Value, agent: &str) -> &'v Value {
    let sessions = state["sessions"].as_array().unwrap();
    sessions.iter().find(|session| session["agent"] == agent).unwrap_or_else(|| panic!("{state:#}"))
}

fn paths(session: &Value) -> Vec<(&str, bool, bool)> {
    let files = session["working_set"].as_array().unwrap().iter();
    let is = |value: &Value| value.as_bool().unwrap();
    files.map(|file| (file["path"].as_str().unwrap(), is(&file["read"]), is(&file["written"]))).collect()
}

/// A session that reads, writes and runs a command, with a conversation that was compacted.
fn work(talk: &Talk<'_>) {
    let line = |kind: &str, id: &str, more: Value| {
        let mut line = json!({ "type": kind, "uuid": id, "parentUuid": null, "sessionId": talk.session, "cwd": talk.cwd });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line
    };
    let text = |role: &str, text: &str| json!({ "role": role, "content": text });
    talk.begin();
    talk.say(&[
        line("user", "u1", json!({ "message": text("user", "look at the parser") })),
        line("system", "b1", json!({ "subtype": "compact_boundary", "content": "Conversation compacted" })),
        line("user", "u2", json!({ "isCompactSummary": true, "message": text("user", "The parser is in src/parse.rs.") })),
        line("assistant", "a1", json!({ "message": {
            "id": "m1", "role": "assistant", "model": "a-model", "content": [{ "type": "text", "text": "I see." }],
            "usage": { "input_tokens": 1000, "output_tokens": 200, "cache_read_input_tokens": 34 },
        } })),
    ]);
    talk.prompt("look at the parser");
    let read = json!({ "file_path": talk.cwd.join("src/parse.rs") });
    talk.pre("r1", "Read", read.clone());
    talk.post("r1", "Read", read);
    talk.write("w1", "notes.md", "seen\n");
    talk.bash("b1", "make", || talk.world().write("made.bin", "x"));
}

#[test]
fn a_checkpoint_of_the_user_holds_every_session_at_work() {
    let world = Sandbox::new();
    world.write("src/parse.rs", "fn parse() {}\n");
    let one = Talk::new(&world, "one");
    work(&one);
    let mut two = Talk::new(&world, "two");
    two.agent = "codex";
    two.begin();
    two.prompt("write the tests");
    let plan = json!({ "plan": [{ "step": "tests" }] });
    two.pre("p1", "update_plan", plan.clone());
    two.post("p1", "update_plan", plan);
    world.ok(["checkpoint", "create", "before refactor"]);
    one.write("w2", "later.md", "not yet\n");

    let state = world.json(["at", "before refactor"]);
    assert!(state["size_bytes"].as_u64().unwrap() > 0, "{state:#}");
    assert_eq!(state["sessions"].as_array().unwrap().len(), 2, "{state:#}");
    let (claude, codex) = (session(&state, "claude"), session(&state, "codex"));
    assert_eq!(claude["summary"], "The parser is in src/parse.rs.");
    assert_eq!((&claude["tokens"], &claude["messages"]), (&json!(1234), &json!(4)), "{claude:#}");
    assert_eq!(
        (&claude["call"], &claude["tool"], &claude["commands"]),
        (&json!("b1"), &json!("Bash"), &json!(1))
    );
    assert_eq!(
        paths(claude),
        [("made.bin", false, true), ("notes.md", false, true), ("src/parse.rs", true, false)]
    );
    let names: Vec<&str> = claude["variables"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(names.contains(&"PATH") && names.iter().all(|name| !name.contains('=')), "{names:?}");
    assert_eq!(codex["task"]["plan"][0]["step"], "tests");
    assert_eq!(
        (&codex["summary"], &codex["memory"], &codex["tokens"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let shown = world.ok(["checkpoint", "show", "before refactor"]).out;
    for line in [
        "The parser is in src/parse.rs.",
        "1,234 tokens of context",
        "src/parse.rs (read)",
        "last call Bash (b1)",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    // Of a step of a session, that session is the first; and the state of now has what came later.
    let number = &items(&world.json(["log", "--session", "two"]))[0]["number"];
    assert_eq!(world.json(["at", &format!("#{number}")])["sessions"][0]["agent"], "codex");
    let full = world.json(["inspect", "state", "--session", "one"])["full"].clone();
    assert!(paths(&full).contains(&("later.md", false, true)), "{full:#}");
}

#[test]
fn a_checkpoint_made_by_hand_is_in_the_timeline_of_every_session_at_work() {
    let world = Sandbox::new();
    world.write("file", "0");
    world.ok(["checkpoint", "create", "before any"]);
    let (one, mut two, late) =
        (Talk::new(&world, "one"), Talk::new(&world, "two"), Talk::new(&world, "late"));
    two.agent = "codex";
    for talk in [&one, &two] {
        talk.begin();
        talk.bash(&format!("b-{}", talk.session), "make", || world.write("file", &talk.session));
    }
    two.event("SessionEnd", json!({ "reason": "exit" }));
    world.write("file", "mine");
    world.ok(["checkpoint", "create", "by hand"]);
    late.begin();
    late.bash("b-late", "make", || world.write("file", "late"));
    let labels = |session: &str| -> Vec<String> {
        let items = items(&world.json(["timeline", "--session", session]));
        items.iter().filter_map(|item| item["label"].as_str()).map(str::to_owned).collect()
    };
    assert_eq!(labels("one"), ["by hand"]);
    assert_eq!((labels("two"), labels("late")), (vec![], vec![]), "one had ended, one began later");
    let drawn = world.ok(["timeline", "--session", "one"]).out;
    assert!(drawn.contains("by hand") && !drawn.contains("before any"), "{drawn}");
    world.run(["timeline", "--session", "nobody"]).exits(3);
}

#[test]
fn sessions_that_ended_or_began_later_are_not_at_work() {
    let world = Sandbox::new();
    world.write("file", "1");
    let one = Talk::new(&world, "one");
    one.begin();
    one.write("w1", "a", "1");
    one.event("SessionEnd", json!({ "reason": "exit" }));
    world.ok(["checkpoint", "create", "between"]);
    let mut two = Talk::new(&world, "two");
    two.agent = "codex";
    two.begin();
    two.write("w2", "b", "1");
    assert_eq!(world.json(["at", "between"])["sessions"], json!([]));
    assert_eq!(world.json(["at", "tool:Write:first"])["sessions"].as_array().unwrap().len(), 1);
}

#[test]
fn what_is_staged_and_what_is_not_committed_is_part_of_a_checkpoint() {
    let world = Sandbox::new();
    for name in ["kept", "staged", "changed", "gone", "sub/deep"] {
        world.write(name, format!("{name}\n"));
    }
    world.init_git();
    world.ok(["checkpoint", "create", "clean"]);
    let git = |point: &str| world.json(["at", point])["git"][0].clone();
    let clean = git("clean");
    assert_eq!(
        (&clean["uncommitted"], &clean["staged"], &clean["changed"]),
        (&json!(false), &json!([]), &json!([])),
        "{clean:#}"
    );
    assert!(world.ok(["at", "clean"]).out.contains("no uncommitted changes"));

    world.write("staged", "other\n");
    world.write("new", "n\n");
    world.git(&["add", "staged", "new"]);
    world.git(&["rm", "--quiet", "--cached", "sub/deep"]);
    // The same length, so that only the content tells.
    world.write("changed", "CHANGED\n");
    std::fs::remove_file(world.path("gone")).unwrap();
    world.write("untracked", "u\n");
    world.ok(["checkpoint", "create", "dirty"]);
    let dirty = git("dirty");
    assert_eq!(dirty["staged"], json!(["new", "staged", "sub/deep"]), "{dirty:#}");
    assert_eq!(dirty["changed"], json!(["changed", "gone"]), "{dirty:#}");
    assert_eq!(dirty["uncommitted"], true);

    // The same after git has packed its objects.
    world.git(&["commit", "--quiet", "--all", "-m", "second"]);
    world.git(&["gc", "--quiet", "--prune=now"]);
    world.write("kept", "more\n");
    world.git(&["add", "kept"]);
    world.ok(["checkpoint", "create", "packed"]);
    let packed = git("packed");
    assert_eq!((&packed["staged"], &packed["changed"]), (&json!(["kept"]), &json!([])), "{packed:#}");
    assert_eq!(git("clean"), clean, "the past stays what it was");
}

#[test]
fn a_compaction_has_a_checkpoint_before_it_and_one_after_it() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let talk = Talk::new(&world, "s1");
    let said = |kind: &str, id: &str, message: Value| json!({ "type": kind, "uuid": id, "parentUuid": null, "sessionId": "s1", "cwd": world.work, "message": message });
    talk.begin();
    talk.say(&[said("user", "u1", json!({ "role": "user", "content": "look at the parser" }))]);
    talk.prompt("look at the parser");
    talk.write("w1", "file", "parsed\n");
    talk.event("PreCompact", json!({ "trigger": "auto", "custom_instructions": null }));
    let mut summary = said("user", "u2", json!({ "role": "user", "content": "The parser is in file." }));
    summary["isCompactSummary"] = json!(true);
    talk.say(&[
        json!({ "type": "system", "uuid": "b1", "sessionId": "s1", "subtype": "compact_boundary" }),
        summary,
    ]);
    talk.event("PostCompact", json!({ "trigger": "auto", "compact_summary": "The parser is in file." }));
    let listed = items(&world.json(["checkpoint", "list"]));
    let point = |summary: &str| {
        let found = listed.iter().find(|one| one["summary"] == summary);
        let found = found.unwrap_or_else(|| panic!("no {summary} in {listed:#?}"));
        assert_eq!(found["trigger"], "automatic", "{found}");
        format!("#{}", found["number"])
    };
    let (before, after) =
        (point("the conversation is about to be compacted"), point("the conversation was compacted"));
    let summary = |point: &str| session(&world.json(["at", point]), "claude")["summary"].clone();
    assert_eq!((summary(&before), summary(&after)), (Value::Null, json!("The parser is in file.")));
    // Both are points like any other.
    world.write("file", "lost\n");
    world.ok(["checkpoint", "create", "later"]);
    world.ok(["rewind", &before, "--everything", "--yes"]);
    assert_eq!(std::fs::read_to_string(world.path("file")).unwrap(), "parsed\n");
}
