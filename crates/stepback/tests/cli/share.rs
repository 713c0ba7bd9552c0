//! `export` and `import`: a session goes from one machine to another in a file.

use std::fs;

use serde_json::{Value, json};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

/// A world with a session of one call, and another world that knows nothing.
fn worlds() -> (Sandbox, Sandbox, String) {
    let world = Sandbox::new();
    world.write("parser.rs", "one\n");
    world.ok(["checkpoint", "create", "golden", "-m", "all is well", "--tag", "release"]);
    let agent = Talk::new(&world, "first");
    agent.begin();
    agent.prompt("teach the parser about commas");
    agent.say(&[json!({ "type": "user", "uuid": "u", "message": { "role": "user", "content": "commas" } })]);
    agent.bash("call", "echo comma >> parser.rs", || world.write("parser.rs", "one\ncomma\n"));
    let sessions = world.ok(["sessions", "--json"]).json();
    let id = items(&sessions)[0]["id"].as_str().unwrap().to_owned();
    (world, Sandbox::new(), id)
}

#[test]
fn a_session_is_opened_where_its_directory_never_was() {
    let (world, there, id) = worlds();
    let file = there.root().join("session.bundle");
    let wrote = world.ok(["export", &id[..8], "-o", file.to_str().unwrap()]);
    assert!(wrote.out.starts_with("Wrote 1 session with"), "{}", wrote.out);
    fs::remove_dir_all(&world.work).unwrap();

    let imported = there.ok(["import", file.to_str().unwrap(), "--json"]).json();
    let item = &items(&imported)[0];
    assert_eq!(item["id"], id);
    let workspace = &item["workspace"].as_str().unwrap()[..8];
    let listed = there.ok(["sessions", "--all-workspaces", "--json"]).json();
    assert_eq!(items(&listed)[0]["id"], id);
    let log = there.ok(["--workspace", workspace, "log", "--json"]).json();
    let end = items(&log).into_iter().find(|step| step["kind"] == "tool-end").unwrap();
    let point = format!("#{}", end["number"]);
    let into = there.root().join("look");
    there.ok(["--workspace", workspace, "restore", &point, "--into", into.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(into.join("parser.rs")).unwrap(), "one\ncomma\n");
    let diff = there.ok(["--workspace", workspace, "diff", "golden", &point]);
    assert!(diff.out.contains("+comma"), "{}", diff.out);
    assert!(there.ok(["replay", &id[..8]]).out.contains("teach the parser"));
    let found = there.ok(["--workspace", workspace, "search", "commas", "--json"]).json();
    assert!(!items(&found).is_empty());
    there.ok(["compare", &id[..8], &id[..8]]);
    there.ok(["fsck"]);

    let again = there.ok(["import", file.to_str().unwrap()]);
    assert!(again.out.contains("Already imported: 1 session"), "{}", again.out);
    // What was imported cannot be gone back to: there is no directory.
    let refused = there.run(["--workspace", workspace, "rewind", &point, "--yes"]);
    assert_eq!(refused.code, Some(7), "{refused:?}");
}

#[test]
fn what_cannot_be_imported_is_refused_with_a_reason() {
    let (world, there, id) = worlds();
    let bundle = world.root().join("b");
    world.ok(["export", &id, "-o", bundle.to_str().unwrap()]);
    let bytes = fs::read(&bundle).unwrap();
    let path = there.root().join("file");
    let import = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        there.run(["import", path.to_str().unwrap()])
    };
    let cut = import(&bytes[..bytes.len() / 2]).exits(9);
    assert!(cut.err.contains("truncated") && cut.err.contains("Hint:"), "{}", cut.err);
    let mut newer = bytes.clone();
    newer[16] = 7;
    assert!(import(&newer).exits(9).err.contains("format 7"));
    let lines = world.ok(["export", &id, "--format", "jsonl"]).out;
    let all: Vec<&str> = lines.lines().collect();
    let without = |left_out: usize| {
        let kept = all.iter().enumerate().filter(|(at, _)| *at != left_out).map(|(_, line)| *line);
        kept.collect::<Vec<_>>().join("\n")
    };
    let cut = import(without(all.len() - 1).as_bytes()).exits(9);
    assert!(cut.err.contains("the last line is missing"), "{}", cut.err);
    let message = all.iter().position(|line| line.contains("\"record\":\"message\"")).unwrap();
    let gap = import(without(message).as_bytes()).exits(9);
    assert!(gap.err.contains("missing"), "{}", gap.err);
    import(without(2).as_bytes()).exits(9);
    let newer = lines.replacen("\"version\":1", "\"version\":7", 1);
    assert!(import(newer.as_bytes()).exits(9).err.contains("format 7"));
    let garbled = lines.replacen("\"kind\":\"tool-end\"", "\"kind\":\"no-such\"", 1);
    assert!(import(garbled.as_bytes()).exits(9).err.contains("line "));
    import(b"nothing at all").exits(4);
    assert!(there.ok(["sessions", "--all-workspaces"]).out.contains("No sessions."));
}

#[test]
fn lines_are_taken_in_without_files() {
    let (world, there, id) = worlds();
    let lines = world.ok(["export", &id, "--format", "jsonl"]).out;
    let path = there.root().join("lines.jsonl");
    fs::write(&path, &lines).unwrap();
    let said = there.ok(["import", path.to_str().unwrap()]);
    assert!(
        said.out.contains("Imported 1 session") && said.err.contains("JSON lines contain no files"),
        "{said:?}"
    );
    assert!(there.ok(["import", path.to_str().unwrap()]).out.contains("Already imported: 1 session"));
    there.ok(["fsck"]);
    there.ok(["fsck"]);

    // Everything that can be read is as it was.
    let sessions = there.ok(["sessions", "--all-workspaces", "--json"]).json();
    let workspace = items(&sessions)[0]["workspace"].as_str().unwrap().to_owned();
    let workspace = workspace.as_str();
    assert!(there.ok(["replay", &id[..8]]).out.contains("teach the parser"));
    let found = there.ok(["--workspace", workspace, "search", "commas", "--json"]).json();
    assert!(!items(&found).is_empty());
    let again = there.ok(["export", &id, "--format", "jsonl"]).out;
    let told = |lines: &str, record: &str, field: &str| -> Vec<Value> {
        let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["record"] == record).map(|mut line| line[field].take()).collect()
    };
    for (record, field) in [("step", "detail"), ("step", "id"), ("step", "summary"), ("message", "message")] {
        assert_eq!(told(&again, record, field), told(&lines, record, field), "{record} {field}");
    }
    // There is nothing to go back to, and where it was recorded it is known already.
    let log = there.ok(["--workspace", workspace, "log", "--json"]).json();
    let end = items(&log).into_iter().find(|step| step["kind"] == "tool-end").unwrap();
    let point = format!("#{}", end["number"]);
    let into = there.root().join("look");
    let refused = there.run(["--workspace", workspace, "restore", &point, "--into", into.to_str().unwrap()]);
    assert!(refused.code != Some(0) && refused.err.contains("Error"), "{refused:?}");
    fs::write(world.root().join("lines"), &lines).unwrap();
    let home = world.ok(["import", world.root().join("lines").to_str().unwrap()]);
    assert!(home.out.contains("Already imported: 1 session"), "{}", home.out);
}

#[test]
fn lines_go_to_standard_output_and_files_appear_whole() {
    let (world, _, id) = worlds();
    let lines = world.ok(["export", "--format", "jsonl"]).out;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["format"], "stepback-jsonl");
    assert_eq!(lines[0]["sessions"][0], id);
    assert!(lines.iter().any(|line| line["detail"]["input"]["command"] == "echo comma >> parser.rs"));
    assert!(lines.iter().any(|line| line["changes"][0]["path"] == "parser.rs"));
    assert_eq!(lines.last().unwrap()["lines"], lines.len());
    world.run(["export", "nobody"]).exits(3);
    world.run(["export", &id, "-o", "/nowhere/x"]).exits(7);
    world.run(["export", &id, "--json"]).exits(2);
    let written = world.ok(["export", &id, "-o", "x.bundle", "--json"]).json();
    assert_eq!(written["bytes"], fs::metadata(world.work.join("x.bundle")).unwrap().len());
    assert_eq!(written["exported"]["sessions"], 1);
    let left = fs::read_dir(&world.work).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().contains(".stepback-")));
}
