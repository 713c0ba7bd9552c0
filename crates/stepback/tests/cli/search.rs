//! `search` and `query`: what was recorded is found again, by its words and by what is known of it.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::serving::Serving;
use crate::talk::{Talk, items};
use crate::wire::post;

/// A session with a prompt, a call that changes a file, a call that fails, and an answer.
fn session(world: &Sandbox, name: &str) {
    let agent = Talk::new(world, name);
    agent.begin();
    agent.prompt("teach the parser about émigré commas");
    agent.say(&[
        json!({ "type": "user", "uuid": "u", "message": { "role": "user", "content": "teach the parser about émigré commas" } }),
        json!({ "type": "assistant", "uuid": "a", "message": { "role": "assistant", "id": "m", "content": [
            { "type": "text", "text": "I will look at the tokenizer first." } ] } }),
    ]);
    agent.bash(&format!("{name}-w"), "echo comma >> src/parser.rs", || {
        world.write("src/parser.rs", "comma\n")
    });
    let input = json!({ "command": "cargo test --workspace" });
    agent.pre(&format!("{name}-t"), "Bash", input.clone());
    agent.event(
        "PostToolUseFailure",
        json!({ "tool_name": "Bash", "tool_input": input, "tool_use_id": format!("{name}-t"),
                "error": "error[E0502]: cannot borrow `tokens` as mutable\n\u{1b}[31mred\u{1b}[0m" }),
    );
    agent.event(
        "Stop",
        json!({ "stop_hook_active": false, "last_assistant_message": "The borrow checker objects." }),
    );
}

fn world() -> Sandbox {
    let world = Sandbox::new();
    fs::create_dir(world.work.join("src")).unwrap();
    world.write("src/parser.rs", "");
    world.ok(["checkpoint", "create", "golden master", "-m", "all tests pass", "--tag", "release"]);
    session(&world, "first");
    world
}

fn found(world: &Sandbox, words: &[&str]) -> Vec<Value> {
    items(&world.ok(["search", "--json"].iter().chain(words)).json()).to_vec()
}

fn kinds(found: &[Value]) -> Vec<&str> {
    found.iter().map(|item| item["kind"].as_str().unwrap()).collect()
}

#[test]
fn everything_that_was_recorded_is_found() {
    let world = world();
    for (words, kind, field) in [
        ("émigré commas", "user-input", "input"),
        ("\"cannot borrow\"", "tool-end", "error"),
        ("cargo workspace", "tool-start", "input"),
        ("golden master", "checkpoint", "annotation"),
        ("release", "checkpoint", "annotation"),
        ("tokeniz* -borrow", "tool-start", "message"),
    ] {
        let found = found(&world, &[words]);
        let item = found.iter().find(|item| item["kind"] == kind);
        let item = item.unwrap_or_else(|| panic!("{words}: {found:?}"));
        let fields: Vec<&str> =
            item["snippets"].as_array().unwrap().iter().map(|part| part["field"].as_str().unwrap()).collect();
        assert!(fields.contains(&field), "{words}: {fields:?}");
    }
    assert!(!found(&world, &["objects"]).is_empty(), "the answer");
    assert!(found(&world, &["nowhere"]).is_empty());
    let path = found(&world, &["parser.rs", "--kind", "tool-end"]);
    let fields = path[0]["snippets"].as_array().unwrap().iter().map(|part| &part["field"]);
    assert!(fields.into_iter().any(|field| field == "path"), "{path:?}");
}

#[test]
fn a_search_is_limited_to_what_is_asked_for() {
    let world = world();
    session(&world, "second");
    let borrow = |more: &[&str]| found(&world, &[&["borrow"], more].concat());
    assert_eq!(borrow(&["--errors"]).len(), 2);
    assert_eq!(kinds(&borrow(&["--errors", "--session", "second"])), ["tool-end"]);
    assert!(borrow(&["--agent", "codex"]).is_empty());
    assert!(borrow(&["--until", "yesterday"]).is_empty());
    assert_eq!(borrow(&["--since", "1 hour ago", "--errors"]).len(), 2);
    assert_eq!(kinds(&borrow(&["--kind", "tool-end", "--limit", "1"])), ["tool-end"]);
    let page = world.ok(["search", "borrow", "--errors", "--limit", "1", "--json"]).json();
    assert_eq!((&page["total"], &page["next"]), (&json!(2), &json!(1)));
    let rest = world.ok(["search", "borrow", "--errors", "--limit", "1", "--skip", "1", "--json"]).json();
    assert_ne!(page["items"][0]["id"], rest["items"][0]["id"]);
    assert_eq!(found(&world, &["--substring", "E0502]: cannot"]).len(), 2);
    assert_eq!(found(&world, &["--substring", "&&"]).len(), 0);
}

#[test]
fn labels_that_come_later_are_found_and_those_that_go_are_not() {
    let world = world();
    assert_eq!(found(&world, &["zebra"]).len(), 0);
    world.ok(["checkpoint", "annotate", "#1", "zebra stripes"]);
    assert_eq!(found(&world, &["zebra"]).len(), 1);
    world.ok(["undo"]);
    assert_eq!(found(&world, &["zebra"]).len(), 0);
    assert_eq!(found(&world, &["golden"]).len(), 1);
    world.ok(["checkpoint", "delete", "golden master"]);
    assert_eq!(found(&world, &["golden"]).len(), 0);
    assert_eq!(found(&world, &["golden", "--hidden"]).len(), 1);
}

#[test]
fn an_index_that_is_gone_is_made_again() {
    let world = world();
    assert_eq!(found(&world, &["golden"]).len(), 1);
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(world.store.join(format!("search.sqlite{suffix}")));
    }
    assert_eq!(found(&world, &["golden"]).len(), 1);
    fs::write(world.store.join("search.sqlite"), "rubbish ".repeat(1000)).unwrap();
    assert_eq!(found(&world, &["golden"]).len(), 1);
    let again = world.ok(["search", "--reindex", "golden"]);
    assert!(again.err.contains("Indexed ") && again.out.contains("golden master"), "{again:?}");
    world.ok(["fsck"]);
}

#[test]
fn what_a_person_sees() {
    let world = world();
    let ran = world.ok(["search", "cannot borrow"]);
    assert!(ran.out.contains("error: ") && ran.out.contains("cannot borrow `tokens`"), "{}", ran.out);
    assert!(!ran.out.contains('\u{1b}') && ran.out.contains("\\u{1b}[31m"), "{}", ran.out);
    assert!(ran.err.contains("stepback replay ") && ran.err.contains("stepback rewind "), "{}", ran.err);
    let mut coloured = world.command(["search", "cannot borrow"]);
    let coloured = coloured.env("CLICOLOR_FORCE", "1").output().unwrap();
    let coloured = String::from_utf8(coloured.stdout).unwrap();
    assert!(coloured.contains("\u{1b}[33m\u{1b}[1mcannot\u{1b}[0m"), "{coloured:?}");
    assert!(world.ok(["search", "nowhere"]).err.contains("No matches"));
}

#[test]
fn a_search_that_makes_no_sense_is_explained() {
    let world = world();
    let long = "a".repeat(100_000);
    for (words, said) in [
        ("\"open", "quotation mark"),
        ("&&", "no letters or digits"),
        ("", "the query is empty"),
        (long.as_str(), "longer than 4096 bytes"),
        ("* OR 1=1; DROP TABLE words; --", "no letters"),
    ] {
        let ran = world.run(["search", words]).exits(2);
        assert!(ran.err.contains(said), "{}", ran.err);
        assert!(!ran.err.contains("SQL") && !ran.err.contains("fts5"), "{}", ran.err);
    }
    for odd in
        ["NEAR(a b)", "words MATCH 'x'", "{input}: x", "a:b^c", "\"a\" \"b\"", "x' OR ''='y", "a AND", "x*y"]
    {
        world.ok(["search", odd]);
        world.ok(["search", "--substring", odd]);
    }
    let ran = world.run(["search", "--", "-only"]).exits(2);
    assert!(ran.err.contains("only excludes words"), "{}", ran.err);
}

#[test]
fn steps_are_queried_by_what_is_known_of_them() {
    let world = world();
    let query = |words: &[&str]| world.ok(["query", "--json"].iter().chain(words)).json();
    let all = query(&[]);
    let total = all["total"].as_u64().unwrap();
    assert_eq!(items(&all).len() as u64, total);
    assert_eq!(query(&["--kind", "tool-start", "--tool", "bash"])["total"], 2);
    assert_eq!(query(&["--errors"])["total"], 1);
    assert_eq!(query(&["--tag", "release", "--checkpoints"])["items"][0]["number"], 1);
    assert_eq!(query(&["--label", "golden master", "--agent", "person"])["total"], 1);
    assert_eq!(query(&["--agent", "claude", "--min-duration", "10h"])["total"], 0);
    let state = all["items"][0]["state"].as_str().unwrap();
    assert!(query(&["--state", state])["total"].as_u64().unwrap() >= 1);
    assert_eq!(world.ok(["query", "--count", "--kind", "tool-start"]).out, "2\n");
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut words = vec!["--order", "earliest", "--limit", "2"];
        words.extend(cursor.iter().flat_map(|cursor| ["--cursor", cursor.as_str()]));
        let page = query(&words);
        seen.extend(items(&page).iter().map(|item| item["number"].as_u64().unwrap()));
        match page["next"].as_str() {
            Some(next) => cursor = Some(next.to_string()),
            None => break,
        }
    }
    assert_eq!(seen, (1..=total).collect::<Vec<_>>());
    world.run(["query", "--cursor", "x"]).exits(2);
    world.run(["query", "--state", "x"]).exits(2);
    world.run(["query", "--min-duration", "soon"]).exits(2);
}

#[test]
fn steps_are_queried_by_task_trace_and_span() {
    let world = world();
    let agent = Talk::new(&world, "first");
    agent.event("TaskCreated", json!({ "task_id": "t4", "task_subject": "write the tests" }));
    agent.event("TaskCompleted", json!({ "task_id": "t4", "task_subject": "write the tests" }));
    let query = |words: &[&str]| items(&world.ok(["query", "--json"].iter().chain(words)).json());
    assert_eq!(kinds(&query(&["--task", "t4", "--order", "earliest"])), ["task-created", "task-completed"]);
    assert!(query(&["--task", "t5"]).is_empty());
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let events = json!([
        { "session": "s", "kind": "tool-start", "id": "1", "tool": "sh", "trace_id": trace, "span_id": "a1" },
        { "session": "s", "kind": "tool-end", "id": "2", "tool": "sh", "trace_id": trace, "span_id": "a2", "parent_span_id": "a1" },
        { "session": "s", "kind": "agent-step", "id": "3", "task": "t4" },
    ]);
    let server = Serving::start(&world, &[]);
    let bearer = format!("Bearer {}", server.token);
    let body = json!({ "workspace": "shop", "agent": "mine", "events": events }).to_string();
    let reply = post(&server.url, "/api/v1/ingest", &[("authorization", &bearer)], &body);
    assert!(reply.contains("\"accepted\":3"), "{reply}");
    drop(server);
    let everywhere = |words: &[&str]| query(&[&["--all-workspaces", "--order", "earliest"], words].concat());
    assert_eq!(kinds(&everywhere(&["--trace", trace])), ["tool-start", "tool-end"]);
    assert_eq!(kinds(&everywhere(&["--span", "a2"])), ["tool-end"]);
    assert_eq!(kinds(&everywhere(&["--trace", trace, "--span", "a1"])), ["tool-start"]);
    assert_eq!(everywhere(&["--task", "t4"]).len(), 3, "of every workspace");
    assert_eq!(query(&["--task", "t4"]).len(), 2, "of this one");
    assert!(query(&["--trace", trace]).is_empty());
}

#[test]
fn every_workspace_of_the_store_can_be_searched() {
    let world = world();
    let other = world.root().join("other");
    fs::create_dir(&other).unwrap();
    let other = other.to_str().unwrap();
    world.ok(["-C", other, "checkpoint", "create", "golden too"]);
    assert_eq!(found(&world, &["golden"]).len(), 1);
    let both = found(&world, &["golden", "--all-workspaces"]);
    assert_eq!(both.len(), 2);
    assert!(both.iter().any(|item| item["workspace"] == other), "{both:?}");
    let all = world.ok(["query", "--label", "golden too", "--all-workspaces"]).out;
    assert!(all.contains(other), "{all}");
}
