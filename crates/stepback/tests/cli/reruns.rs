//! `stepback rerun` with the built-in agent: a session is done again, as it was or with something changed.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::items;
use crate::wire::steps;

/// A script in which everything happens that can be changed later.
fn script() -> Value {
    json!({
        "turns": [
            { "text": "I look.", "calls": [{ "tool": "read", "input": { "path": "file" } }] },
            { "calls": [{ "tool": "remember", "input": { "key": "plan", "value": "short" } }] },
            { "calls": [bash("echo one > one; echo told; rm -f doomed")] },
            { "calls": [{ "tool": "edit", "input": { "path": "file", "old": "base", "new": "better" } }] },
            { "text": "It is done.", "usage": { "input": 100, "output": 20 } },
        ],
    })
}

pub fn bash(command: &str) -> Value {
    json!({ "tool": "bash", "input": { "command": command } })
}

/// A world in which the built-in agent played a script once.
pub fn played(script: &Value) -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "base\n");
    world.write("doomed", "gone soon\n");
    let path = world.root().join("script.json");
    fs::write(&path, script.to_string()).unwrap();
    world.ok(["agent", "--script", path.to_str().unwrap(), "do the work"]);
    world
}

/// Does the last session again.
#[track_caller]
pub fn again(world: &Sandbox, words: &[&str], code: i32) -> Value {
    let all = ["rerun", "--json"].iter().chain(words);
    let done = world.run(all).exits(code).json();
    assert_eq!(done["fence"]["fence"], "namespaces", "{done:#}");
    done
}

/// Fails the test unless the branch holds what the workspace holds now, but for these paths.
#[track_caller]
fn holds_the_same(world: &Sandbox, done: &Value) {
    world.expect_restores(
        &format!("branch:{}", done["branch"].as_str().unwrap()),
        &world.files(),
        "the branch",
    );
}

/// The file of a branch.
#[track_caller]
pub fn file_of(world: &Sandbox, done: &Value, name: &str) -> Option<String> {
    let branch = done["branch"].as_str().unwrap();
    let into = world.root().join(format!("file-of-{branch}"));
    world.ok(["restore", &format!("branch:{branch}"), "--into", into.to_str().unwrap()]);
    let text = fs::read_to_string(into.join(name)).ok();
    fs::remove_dir_all(into).unwrap();
    text
}

/// The number of the step at which the nth call of a tool begins.
#[track_caller]
pub fn number_of(world: &Sandbox, tool: &str) -> u64 {
    let steps = steps(world, None);
    let found = steps.iter().find(|step| step["kind"] == "tool-start" && step["tool"] == tool);
    found.unwrap_or_else(|| panic!("no {tool} in {steps:#?}"))["number"].as_u64().unwrap()
}

/// What of a step is the same in every run.
fn essence(world: &Sandbox, session: &str) -> Vec<(Value, Value, Value)> {
    let of = |step: &Value| (step["kind"].clone(), step["tool"].clone(), step["summary"].clone());
    steps(world, Some(session)).iter().map(of).collect()
}

#[test]
fn as_it_was_it_comes_to_the_same() {
    let world = played(&script());
    let (files, log) = (world.everything(), items(&world.json(["sessions"])));
    let done = again(&world, &["--compare"], 0);
    assert_eq!((&done["status"], &done["reason"]), (&json!("completed"), &Value::Null), "{done:#}");
    assert_eq!(done["model_calls"], json!({ "recorded": 5, "live": 0, "refused": 0, "parted": null }));
    assert_eq!(done["ended"], json!({ "exited": 0 }));
    assert!(world.everything() == files, "the workspace was touched");
    holds_the_same(&world, &done);
    let original = log[0]["id"].as_str().unwrap();
    assert_eq!(essence(&world, original), essence(&world, done["session"].as_str().unwrap()));
    let compared = &done["comparison"];
    assert_eq!(compared["first_difference"], Value::Null, "{compared:#}");
    assert_eq!(compared["files"], json!([]), "{compared:#}");
    // It is a session of its own somewhere else: here, nothing happened but that there is a branch.
    assert_eq!(items(&world.json(["sessions"])), log);
    world.expect_sound("after a rerun");
    world.expect_no_leftovers("after a rerun");
    // In words.
    let said = world.ok(["rerun", "--compare", "--branch", "words"]);
    for part in ["words completed", "5 answered from the recording", "0 by a model", "loopback network"] {
        assert!(said.out.contains(part), "{part} in {}", said.out);
    }
    assert!(said.err.contains("stepback branch switch words"), "{}", said.err);
    let branches = items(&world.json(["branch", "list"]));
    let names: Vec<&Value> = branches.iter().map(|branch| &branch["name"]).collect();
    assert_eq!(names.len(), 3, "{branches:#?}");
    world.ok(["branch", "switch", "words", "--yes"]);
    assert!(world.everything() == files);
}

#[test]
fn each_thing_can_be_changed_and_the_first_difference_is_named() {
    let world = played(&script());
    let (read, shell, edit) =
        (number_of(&world, "read"), number_of(&world, "bash"), number_of(&world, "edit"));
    let files = world.everything();
    // What is changed, the model call that was never asked like that, and where it differs.
    let cases = [
        ("model=other-model".to_string(), 1, "model"),
        ("system=Be brief.".to_string(), 1, "system"),
        ("prompt=do something else".to_string(), 1, "messages"),
        ("messages[0].content=do something else".to_string(), 1, "messages"),
        ("messages[1].content=I guess.".to_string(), 2, "messages"),
        ("memory.plan=long".to_string(), 1, "system"),
        (format!("#{read}.output=nothing at all"), 2, "messages"),
        (format!("#{shell}.output.text=nothing at all"), 4, "messages"),
        (format!("#{shell}.input.command=echo two > two"), 4, "messages"),
        (
            format!("#{edit}.input={}", json!({ "path": "file", "old": "base", "new": "worse" })),
            5,
            "messages",
        ),
    ];
    for (change, call, place) in cases {
        let done = again(&world, &["--set", &change], 0);
        assert_eq!(done["status"], "diverged", "{change}: {done:#}");
        let parted = &done["model_calls"]["parted"];
        assert_eq!(parted["call"], call, "{change}: {done:#}");
        assert!(parted.to_string().contains(place), "{change}: {parted}");
        assert_eq!(done["model_calls"]["live"], 0);
        assert_eq!(done["changes"], json!([change]));
        if change.contains(".input.command") {
            assert_eq!(file_of(&world, &done, "two").as_deref(), Some("two\n"));
            assert_eq!(file_of(&world, &done, "one"), None);
        }
        if change.contains("worse") {
            assert_eq!(file_of(&world, &done, "file").as_deref(), Some("worse\n"));
        }
        assert!(world.everything() == files, "{change}: the workspace was touched");
    }
}

#[test]
fn a_change_that_leads_nowhere_says_what_there_is() {
    let world = played(&script());
    let shell = number_of(&world, "bash");
    let before = items(&world.json(["branch", "list"]));
    for (change, says) in [
        ("nonsense".to_string(), "PATH=VALUE"),
        ("=x".into(), "#STEP.input"),
        ("tool=x".into(), "#STEP.input"),
        ("prompt[3]=x".into(), "the session has 1"),
        ("prompt[x]=x".into(), "prompt[N]"),
        ("memory.=x".into(), "memory.KEY"),
        ("messages[99].content=x".into(), "messages[0] to messages["),
        ("messages[0].contents=x".into(), "content"),
        ("messages.content=x".into(), "messages[N]"),
        ("#1.output=x".into(), "(bash)"),
        ("#99999999999999999999.output=x".into(), "#STEP.output"),
        (format!("#{shell}.inputs=x"), "#STEP.input"),
        (format!("#{shell}.input.cmd=x"), "there is command"),
        (format!("#{shell}.output.stdout=x"), "there is failed, text"),
        (format!("#{shell}.output.failed=x"), "a string"),
    ] {
        let ran = world.run(["rerun", "--set", &change]).exits(2);
        assert!(ran.err.contains(says), "{change}: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{}", ran.err);
    }
    for words in [
        &["--until", "nonsense"][..],
        &["--timeout", "soon"],
        &["--timeout", "0s"],
        &["--max-steps", "-1"],
        &["--max-steps", "0"],
        &["--tools", "some"],
        &["--on-difference", "guess"],
        &["--branch", ""],
        &["--branch", "a  b"],
        &["--branch", "main"],
    ] {
        let ran = world.run(["rerun"].iter().chain(words));
        assert!(matches!(ran.code, Some(2 | 9)), "{words:?}: {:?} {}", ran.code, ran.err);
    }
    world.run(["rerun", "--from", "#9999"]).exits(3);
    world.run(["rerun", "nobody"]).exits(3);
    assert_eq!(items(&world.json(["branch", "list"])), before, "nothing was begun");
}

#[test]
fn it_begins_in_the_middle_and_ends_where_it_is_told_to() {
    let world = played(&script());
    let shell = number_of(&world, "bash");
    let done = again(&world, &["--from", &format!("#{shell}")], 0);
    assert_eq!(done["status"], "completed", "{done:#}");
    assert_eq!(done["model_calls"]["parted"], Value::Null, "{done:#}");
    assert!(done["model_calls"]["recorded"].as_u64().unwrap() < 5, "{done:#}");
    holds_the_same(&world, &done);
    let done = again(&world, &["--until", "tool-end"], 0);
    assert_eq!(
        (&done["status"], &done["model_calls"]["recorded"]),
        (&json!("completed"), &json!(1)),
        "{done:#}"
    );
    assert_eq!(file_of(&world, &done, "one"), None);
    let done = again(&world, &["--max-steps", "4"], 0);
    assert_eq!(done["ended"], "reached", "{done:#}");
    let taken = steps(&world, done["session"].as_str());
    assert!((4..7).contains(&taken.len()) && taken[3]["kind"] == "model-end", "{taken:#?}");
    assert_eq!(file_of(&world, &done, "one"), None);
}

#[test]
fn a_point_says_which_session_is_meant() {
    let world = played(&script());
    let (first, shell) = (items(&world.json(["sessions"]))[0]["id"].clone(), number_of(&world, "bash"));
    let path = world.root().join("script.json");
    fs::write(&path, json!({ "turns": [{ "text": "nothing to do" }] }).to_string()).unwrap();
    world.ok(["agent", "--script", path.to_str().unwrap(), "once more"]);
    let second = items(&world.json(["sessions"]))[0]["id"].clone();
    assert_eq!(again(&world, &[], 0)["of"], second);
    let done = again(&world, &["--from", &format!("#{shell}")], 0);
    assert_eq!((&done["of"], &done["model_calls"]["parted"]), (&first, &Value::Null), "{done:#}");
    let ran = world.run(["rerun", second.as_str().unwrap(), "--from", &format!("#{shell}")]).exits(2);
    assert!(ran.err.contains("another session"), "{}", ran.err);
}

#[test]
fn time_is_limited() {
    let world =
        played(&json!({ "turns": [{ "calls": [bash("sleep 0.1; echo x > x")] }, { "text": "end" }] }));
    for forever in ["99999999999999h", "18000000000000000000s"] {
        assert_eq!(again(&world, &["--timeout", forever], 0)["status"], "completed");
    }
    let number = number_of(&world, "bash");
    let change = format!("#{number}.input.command=touch begun; sleep 300");
    let done = again(&world, &["--set", &change, "--timeout", "1s"], 5);
    assert_eq!((&done["status"], &done["reason"]), (&json!("failed"), &json!("it timed out")), "{done:#}");
    assert_eq!(file_of(&world, &done, "begun").as_deref(), Some(""), "what it came to is kept");
}

#[test]
fn calls_run_are_replayed_or_do_not_happen() {
    // What the command comes to is different every time.
    let turns = [
        json!({ "calls": [bash("date +%s%N > when; cat when")] }),
        json!({ "calls": [bash("echo more >> when")] }),
        json!({ "text": "end" }),
    ];
    let world = played(&json!({ "turns": turns }));
    let then = fs::read_to_string(world.path("when")).unwrap();
    let done = again(&world, &["--tools", "recorded"], 0);
    assert_eq!(done["model_calls"]["parted"], Value::Null, "{done:#}");
    assert_eq!(file_of(&world, &done, "when"), Some(then.clone()), "{done:#}");
    let done = again(&world, &["--tools", "real"], 5);
    assert_eq!(
        (&done["status"], &done["model_calls"]["parted"]["call"]),
        (&json!("failed"), &json!(2)),
        "{done:#}"
    );
    assert_ne!(file_of(&world, &done, "when"), Some(then));
    let done = again(&world, &["--tools", "real", "--on-difference", "nearest"], 0);
    assert!(file_of(&world, &done, "when").unwrap().ends_with("more\n"));
    assert_eq!(done["model_calls"]["recorded"], 3, "{done:#}");
    let done = again(&world, &["--tools", "deny", "--on-difference", "nearest"], 0);
    assert_eq!(file_of(&world, &done, "when"), None, "{done:#}");
}

#[test]
fn commands_have_a_place_for_passing_files() {
    let command = "f=$(mktemp) && echo passing > $f && cat $f > kept && rm $f && cat <<< here >> kept";
    let world = played(&json!({ "turns": [{ "calls": [bash(command)] }, { "text": "end" }] }));
    let done = again(&world, &[], 0);
    assert_eq!(
        (&done["status"], &done["model_calls"]["parted"]),
        (&json!("completed"), &Value::Null),
        "{done:#}"
    );
    assert_eq!(file_of(&world, &done, "kept").as_deref(), Some("passing\nhere\n"));
}

#[test]
fn everything_that_was_said_is_said_again() {
    let turns = [
        json!({ "calls": [bash("echo 1 > one")] }),
        json!({ "text": "first done" }),
        json!({ "calls": [bash("echo 2 > two")] }),
        json!({ "text": "second done" }),
    ];
    let world = played(&json!({ "turns": turns }));
    let session = items(&world.json(["sessions"]))[0]["id"].as_str().unwrap().to_string();
    let path = world.root().join("script.json");
    world.ok(["agent", "--script", path.to_str().unwrap(), "--session", &session, "and the second"]);
    let done = again(&world, &[], 0);
    assert_eq!(done["model_calls"], json!({ "recorded": 4, "live": 0, "refused": 0, "parted": null }));
    assert_eq!(essence(&world, &session), essence(&world, done["session"].as_str().unwrap()));
    holds_the_same(&world, &done);
    let done = again(&world, &["--set", "prompt[1]=or something else"], 0);
    assert_eq!(
        (&done["model_calls"]["recorded"], &done["model_calls"]["parted"]["call"]),
        (&json!(2), &json!(3)),
        "{done:#}"
    );
    assert_eq!(
        (file_of(&world, &done, "one").as_deref(), file_of(&world, &done, "two")),
        (Some("1\n"), None)
    );
}

#[test]
fn several_at_once_have_names_of_their_own() {
    let world = played(&script());
    let runs: Vec<_> = (0..4).map(|_| world.spawn(&["rerun", "--json"])).collect();
    let mut names: Vec<String> = Vec::new();
    for run in runs {
        let ran: Ran = run.wait_with_output().unwrap().into();
        names.push(ran.exits(0).json()["branch"].as_str().unwrap().to_string());
    }
    names.sort();
    assert_eq!(names, ["rerun-1", "rerun-2", "rerun-3", "rerun-4"]);
    world.expect_sound("after all of them");
}

#[test]
fn its_branch_has_a_name_a_status_and_can_be_forgotten() {
    let world = played(&script());
    again(&world, &["--branch", "try"], 0);
    let ran: Ran = world.run(["rerun", "--branch", "try"]);
    assert!(ran.code != Some(0) && ran.err.contains("try"), "{}", ran.err);
    let done = again(&world, &["--set", "model=other"], 0);
    assert_eq!(done["branch"], "rerun-1");
    let listed = items(&world.json(["branch", "list"]));
    let of = |name: &str| listed.iter().find(|branch| branch["name"] == name).unwrap().clone();
    assert_eq!(of("try")["rerun"]["status"], "completed", "{listed:#?}");
    assert_eq!(
        (&of("rerun-1")["status"], &of("rerun-1")["rerun"]["status"]),
        (&json!("diverged"), &json!("diverged"))
    );
    assert!(of("rerun-1")["rerun"]["reason"].as_str().unwrap().contains("model call 1"), "{listed:#?}");
    let said = world.ok(["branch", "list"]).out;
    assert!(said.contains("completed") && said.contains("diverged"), "{said}");
    let files = world.everything();
    world.ok(["undo", "--yes"]);
    assert!(world.everything() == files);
    let names = |world: &Sandbox| -> Vec<String> {
        items(&world.json(["branch", "list"]))
            .iter()
            .map(|branch| branch["name"].as_str().unwrap().into())
            .collect()
    };
    assert!(!names(&world).contains(&"rerun-1".to_string()), "{:?}", names(&world));
    world.ok(["redo", "--yes"]);
    assert!(names(&world).contains(&"rerun-1".to_string()));
}

#[test]
fn its_directory_is_kept_if_that_is_wanted() {
    let world = played(&script());
    let mut command = world.command(["rerun", "--keep"]);
    let temp = world.root().join("temp");
    fs::create_dir(&temp).unwrap();
    let ran: Ran = command.env("TMPDIR", &temp).output().unwrap().into();
    let said = ran.exits(0).err;
    let line = said.lines().find(|line| line.starts_with("Its directory is")).unwrap();
    let dir = line.trim_start_matches("Its directory is ").trim_end_matches('.');
    assert_eq!(fs::read_to_string(format!("{dir}/file")).unwrap(), "better\n");
    world.command(["rerun"]).env("TMPDIR", &temp).output().unwrap();
    assert_eq!(fs::read_dir(&temp).unwrap().count(), 1, "only the one that was wanted is left");
}

#[test]
fn its_scratch_workspace_is_nobodys_project() {
    let world = played(&script());
    let sessions = world.json(["sessions", "--all-workspaces"]);
    let done = again(&world, &[], 0);
    assert_eq!(world.json(["sessions", "--all-workspaces"]), sessions);
    // By its id, it is found all the same.
    let session = done["session"].as_str().unwrap();
    assert!(!steps(&world, Some(session)).is_empty());
    // What it went through is given up by a prune; what it did and its branch stay.
    let pruned = world.json(["prune", "--now"]);
    assert_eq!(pruned["reruns"], 1, "{pruned:#}");
    assert_eq!(world.json(["prune", "--now"])["reruns"], 0, "once is enough");
    assert!(!steps(&world, Some(session)).is_empty());
    holds_the_same(&world, &done);
    let original = items(&world.json(["sessions"]))[0]["id"].as_str().unwrap().to_owned();
    let compared = world.json(["compare", &original, session]);
    assert_eq!(compared["first_difference"], Value::Null, "{compared:#}");
    world.expect_sound("after a prune");
}
