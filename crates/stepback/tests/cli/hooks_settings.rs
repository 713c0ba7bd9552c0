//! The settings of the recorder, as a user sets them and hooks obey them.

use std::fs;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items, of_kind, workspace_dir};

/// The document of the newest step of a kind.
fn newest(world: &Sandbox, kind: &str) -> Value {
    let number = of_kind(world, kind).iter().filter_map(|step| step["number"].as_u64()).max().unwrap();
    world.json(["checkpoint", "show", &format!("#{number}")])
}

fn read(agent: &Talk<'_>, call: &str, output: &str) {
    agent.pre(call, "Read", json!({ "file_path": "a.rs" }));
    let end = json!({ "tool_name": "Read", "tool_use_id": call, "tool_input": { "file_path": "a.rs" },
        "tool_response": output });
    agent.event("PostToolUse", end);
}

#[test]
fn hooks_cut_leave_out_and_redact_as_the_settings_say() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    let long = "0123456789".repeat(20_000);
    read(&agent, "r1", &long);
    let inbox = fs::metadata(workspace_dir(&world).join("inbox.jsonl")).unwrap().len();
    assert!(inbox < 150_000, "what waits is cut already: {inbox}");
    let step = newest(&world, "tool-end");
    assert_eq!(step["detail"]["truncated"], json!({ "output": { "bytes": 200_000 } }));
    let shown = world.ok(["checkpoint", "show", &format!("#{}", step["number"])]);
    assert!(shown.out.contains("cut      the output; the whole has 200,000 bytes"), "{}", shown.out);

    world.ok(["settings", "record.output-bytes", "full"]);
    read(&agent, "r2", &long);
    let step = newest(&world, "tool-end");
    assert_eq!((step["detail"]["output"].as_str(), step["detail"].get("truncated")), (Some(&*long), None));

    world.ok(["settings", "record.redact", "ACME-[0-9]+", "Hush"]);
    world.ok(["settings", "record.capture", "no-inputs"]);
    agent.prompt("for ACME-42");
    read(&agent, "r3", "about Hush");
    let inbox = fs::read_to_string(workspace_dir(&world).join("inbox.jsonl")).unwrap();
    assert!(!inbox.contains("ACME") && !inbox.contains("Hush"), "{inbox}");
    let step = newest(&world, "tool-end");
    assert_eq!(step["detail"]["output"], "about [redacted:own-pattern]");
    assert_eq!((step["detail"].get("input"), &step["detail"]["not_recorded"]), (None, &json!(["inputs"])));
    let shown = world.ok(["checkpoint", "show", &format!("#{}", step["number"])]);
    assert!(shown.out.contains("left out inputs"), "{}", shown.out);
    assert!(!world.ok(["log"]).out.contains("ACME"));
}

#[test]
fn what_is_skipped_is_counted_and_changes_are_kept() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["settings", "record.sample", "3"]);
    world.ok(["settings", "record.kinds", "tool-start,tool-end"]);
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    for number in 0..7 {
        read(&agent, &format!("r{number}"), "text");
    }
    let before = world.files();
    agent.write("w1", "file", "changed\n");
    agent.stop();
    let kinds: Vec<String> =
        agent.steps().iter().map(|step| step["kind"].as_str().unwrap().to_owned()).collect();
    assert!(kinds.iter().all(|kind| kind != "user-input"), "{kinds:?}");
    let reads = of_kind(&world, "tool-start").iter().filter(|step| step["tool"] == "Read").count();
    assert_eq!(reads, 3, "one in three");
    let skipped: u64 = (agent.steps().iter())
        .filter_map(|step| {
            world.json(["checkpoint", "show", &format!("#{}", step["number"])])["detail"]["skipped"]
                .as_object()
                .cloned()
        })
        .flat_map(|kinds| {
            kinds.into_iter().filter_map(|(kind, count)| (kind == "tool-start").then(|| count.as_u64()))
        })
        .flatten()
        .sum();
    assert_eq!(skipped, 4, "what is missing is said");
    world.ok(["rewind", "tool:Write:last", "--yes"]);
    world.expect_files(&before, "a call that changes files is there whatever the settings say");
}

#[test]
fn settings_of_the_recorder_are_explained_checked_and_taken_back() {
    let world = Sandbox::new();
    let listed = items(&world.json(["settings"]));
    for key in ["record.capture", "record.kinds", "record.sample", "record.input-bytes", "record.redact"] {
        let item = listed.iter().find(|item| item["id"] == key).unwrap();
        assert!(item["meaning"].as_str().unwrap().len() > 40 && item["value"] == item["default"], "{item}");
    }
    for (value, says) in [
        (vec!["record.kinds", "tool-strat"], "did you mean \"tool-start\"?"),
        (vec!["record.capture", "outptus"], "did you mean \"outputs\"?"),
        (vec!["record.sample", "0"], "would record nothing"),
        (vec!["record.input-bytes", "0"], "between 256 and 67108864"),
        (vec!["record.output-bytes", "1000000000"], "between 256 and 67108864"),
        (vec!["record.redact", "fine", "(oops"], "\"(oops\" is not a valid regular expression"),
        (vec!["record.sampel", "2"], "did you mean \"record.sample\"?"),
        (vec!["notes", "1", "2"], "takes one number"),
    ] {
        let ran = world.run([vec!["settings"], value].concat()).exits(2);
        assert!(ran.err.contains(says), "{}", ran.err);
    }
    let ran = world.json(["settings", "record.sample", "10,model-start=5"]);
    assert_eq!(ran["undo"], "stepback settings record.sample default");
    assert_eq!(items(&ran)[0]["value"], "10,model-start=5");
    let ran = world.json(["settings", "record.sample", "2"]);
    assert_eq!(ran["undo"], "stepback settings record.sample 10,model-start=5");
    let ran = world.ok(["settings", "record.redact", "it's"]);
    assert!(ran.err.contains("settings record.redact default\" takes this back"), "{}", ran.err);
    world.ok(["settings", "record.redact", "default"]);
    assert_eq!(items(&world.json(["settings", "record.redact"]))[0]["set"], false);
}

#[test]
fn invalid_settings_stop_no_agent_and_are_reported() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let file = world.store.join("settings.json");
    for (text, says) in [
        ("{ nonsense", "is not valid"),
        (
            r#"{ "record.redact": ["(", "HUSH"], "record.sample": 0, "checkpoint.minutes": "x" }"#,
            "the pattern \"(\"",
        ),
    ] {
        fs::write(&file, text).unwrap();
        let gaps = of_kind(&world, "gap").len();
        agent.prompt("go on, HUSH");
        let before = world.files();
        agent.write("w1", "file", text);
        let found = of_kind(&world, "gap");
        assert_eq!(found.len(), gaps + 1, "one gap for each prompt");
        assert!(found.iter().any(|gap| gap["summary"].as_str().unwrap().contains("defaults are used")));
        world.ok(["rewind", "tool:Write:last", "--yes"]);
        world.expect_files(&before, says);
        let findings = world.run(["doctor", "--json"]).out;
        assert!(findings.contains(&says.replace('"', "\\\"")), "{findings}");
    }
    assert!(!world.ok(["log"]).out.lines().next().unwrap().contains("HUSH"), "the valid pattern is used");
    // A hook does not wait for a writer of a pipe, and does not read a file without end.
    fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RWXU).unwrap();
    agent.write("w2", "file", "while the settings are a pipe");
    fs::remove_file(&file).unwrap();
    fs::File::create(&file).unwrap().set_len(1 << 32).unwrap();
    agent.write("w3", "file", "while the settings are huge");
    let refused = world.run(["settings"]).exits(6);
    assert!(refused.err.contains("too large") && refused.err.contains("remove the file"), "{}", refused.err);
    fs::remove_file(&file).unwrap();
    world.ok(["rewind", "tool:Write:last", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "while the settings are a pipe");
}

/// Reads a file in a turn of its own, as an agent with calls one after the other does.
fn read_in_a_turn(agent: &Talk<'_>, call: &str) {
    agent.pre(call, "Read", json!({ "file_path": "a.rs" }));
    agent.post(call, "Read", json!({ "file_path": "a.rs" }));
}

#[test]
fn every_fifth_iteration_inside_a_turn_has_a_checkpoint_and_the_other_hooks_stay_fast() {
    for agent_name in ["claude", "codex", "gemini", "opencode"] {
        let world = Sandbox::new();
        world.write("file", "base\n");
        let read = match agent_name {
            "claude" => "Read",
            "opencode" => "read",
            _ => "read_file",
        };
        let (before, after, prompt, start) = match agent_name {
            "gemini" => ("BeforeTool", "AfterTool", "BeforeAgent", "SessionStart"),
            "opencode" => ("tool.execute.before", "tool.execute.after", "chat.message", "session.created"),
            _ => ("PreToolUse", "PostToolUse", "UserPromptSubmit", "SessionStart"),
        };
        let agent = Talk { agent: agent_name, ..Talk::new(&world, "s1") };
        agent.event(start, json!({ "source": "startup" }));
        agent.event(prompt, json!({ "prompt": "go", "prompt_id": "p1" }));
        let inbox = workspace_dir(&world).join("inbox.jsonl");
        let mut opened = Vec::new();
        for number in 1..=12 {
            let call = json!({ "tool_name": read, "tool_use_id": format!("r{number}"),
                "tool_input": { "file_path": format!("{number}.rs") } });
            let waiting = inbox.exists();
            agent.event(before, call.clone());
            if waiting && !inbox.exists() {
                opened.push(number);
            }
            let mut ended = call;
            ended["tool_response"] = json!("text");
            agent.event(after, ended);
        }
        assert_eq!(opened, [6, 11], "{agent_name}: every other hook only left a note");
        let listed = items(&world.json(["checkpoint", "list"]));
        let scheduled: Vec<_> = listed.iter().filter(|step| step["trigger"] == "scheduled").collect();
        assert_eq!(scheduled.len(), 2, "{agent_name}: {listed:#?}");
        assert_eq!(scheduled[0]["summary"], "5 iterations since the last checkpoint");
        let shown = world.json(["checkpoint", "show", &format!("#{}", scheduled[0]["number"])]);
        assert_eq!(shown["detail"]["metadata"]["cause"], "iterations");
    }
}

#[test]
fn checkpoints_in_between_are_settings() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.ok(["settings", "checkpoint.iterations", "2"]);
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    (1..=3).for_each(|number| read_in_a_turn(&agent, &format!("r{number}")));
    let scheduled = || {
        let listed = items(&world.json(["checkpoint", "list"]));
        listed.iter().filter(|step| step["trigger"] == "scheduled").count()
    };
    assert_eq!(scheduled(), 1);
    world.ok(["settings", "checkpoint.iterations", "0"]);
    (4..=20).for_each(|number| read_in_a_turn(&agent, &format!("r{number}")));
    assert_eq!(scheduled(), 1, "turned off");
}

/// Sets back when the last checkpoint was made, as far as hooks tell from files.
fn age_files(world: &Sandbox, minutes: u64) {
    let then = SystemTime::now() - Duration::from_secs(minutes * 60);
    for name in ["statcache", "looked"] {
        if let Ok(file) = fs::File::options().write(true).open(workspace_dir(world).join(name)) {
            file.set_modified(then).unwrap();
        }
    }
}

/// Every command of this world happens a minute after the one before.
#[test]
fn minutes_without_a_checkpoint_end_in_one_inside_a_turn() {
    let world = Sandbox::frozen();
    world.write("file", "base\n");
    world.ok(["settings", "checkpoint.iterations", "0"]);
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("go");
    let scheduled = || {
        let listed = items(&world.json(["checkpoint", "list"]));
        listed.into_iter().filter(|step| step["trigger"] == "scheduled").collect::<Vec<_>>()
    };
    age_files(&world, 4);
    (1..=5).for_each(|number| read_in_a_turn(&agent, &format!("r{number}")));
    assert!(scheduled().is_empty(), "{:#?}", scheduled());
    age_files(&world, 13);
    read_in_a_turn(&agent, "r6");
    let made = scheduled();
    assert_eq!(made.len(), 1, "{made:#?}");
    let summary = made[0]["summary"].as_str().unwrap();
    assert!(summary.ends_with(" minutes since the last checkpoint"), "{summary}");
    let shown = world.json(["checkpoint", "show", &format!("#{}", made[0]["number"])]);
    assert_eq!(shown["detail"]["metadata"]["cause"], "time-passed", "{shown:#}");
    assert!(shown["detail"]["metadata"]["minutes"].as_u64().unwrap() >= 10, "{shown:#}");
    world.ok(["settings", "checkpoint.minutes", "0"]);
    world.ok(["settings", "checkpoint.turn-minutes", "0"]);
    (7..=16).for_each(|number| read_in_a_turn(&agent, &format!("r{number}")));
    age_files(&world, 30);
    read_in_a_turn(&agent, "r17");
    assert_eq!(scheduled().len(), 1, "turned off");
}
