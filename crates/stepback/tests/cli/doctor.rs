//! `stepback doctor`: what it finds wrong, that it changes nothing by itself, and what `--fix` does.

use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use serde_json::{Value, json};
use stepback_testkit::skip::skip;
use stepback_testkit::tree;

use crate::hostile::{REFUSED, recorded};
use crate::mirrors::{AGENT, give_to_agent};
use crate::sandbox::{PROGRAM, Ran, Sandbox};
use crate::talk::{Talk, items, workspace_dir};

/// The exit code if problems remain.
const PROBLEMS: i32 = 1;

/// The document of `stepback doctor`, whatever it exits with.
#[track_caller]
fn examine(world: &Sandbox, arguments: &[&str]) -> Value {
    let mut command = world.command(["doctor", "--json"]);
    let ran: Ran = command.args(arguments).output().unwrap().into();
    let document = ran.json();
    assert!(document["items"].is_array(), "{document}");
    let problems = items(&document).iter().filter(|item| item["verdict"] == "problem").count();
    assert_eq!(document["problems"], problems, "{document}");
    assert_eq!(document["ok"], problems == 0, "{document}");
    let is_dry = arguments.contains(&"--dry-run");
    assert_eq!(ran.code, Some(if problems == 0 || is_dry { 0 } else { PROBLEMS }), "{document}");
    document
}

/// The item with an id.
#[track_caller]
fn item(document: &Value, id: &str) -> Value {
    find(document, id).unwrap_or_else(|| panic!("no item {id} in {document:#}"))
}

fn find(document: &Value, id: &str) -> Option<Value> {
    items(document).into_iter().find(|item| item["id"] == id)
}

/// Fails the test unless the item has a verdict, and its text has a part.
#[track_caller]
fn expect(document: &Value, id: &str, verdict: &str, part: &str) -> Value {
    let found = item(document, id);
    assert_eq!(found["verdict"], verdict, "{found:#}");
    assert!(found["text"].as_str().unwrap().contains(part), "{found:#}");
    found
}

/// A world in which Claude Code is in use.
fn with_claude() -> Sandbox {
    let world = Sandbox::new();
    fs::create_dir(world.home.join(".claude")).unwrap();
    world.write("a", "one\n");
    world
}

/// The project's own settings of Claude Code, with hooks.
fn install(world: &Sandbox) -> String {
    world.ok(["init", "--agent", "claude"]);
    fs::read_to_string(world.path(".claude/settings.local.json")).unwrap()
}

fn settings(world: &Sandbox) -> Value {
    serde_json::from_str(&fs::read_to_string(world.path(".claude/settings.local.json")).unwrap()).unwrap()
}

/// A session as hooks record it.
fn record_session(world: &Sandbox) {
    let agent = Talk::new(world, "s1");
    agent.begin();
    agent.prompt("go on");
    agent.bash("b1", "touch b", || world.write("b", "two\n"));
    agent.stop();
}

#[test]
fn without_a_store_it_says_so_and_creates_none() {
    let world = with_claude();
    let document = examine(&world, &[]);
    expect(&document, "store", "note", "there is no store at");
    expect(&document, "hooks.claude", "note", "never installed");
    assert_eq!(document["protection"], "local");
    assert!(!world.store.exists(), "a store was created");
    let fixed = examine(&world, &["--fix", "--yes"]);
    assert_eq!(fixed["fixes"], json!([]), "never installed hooks are the user's decision");
    assert!(!world.store.exists() && !world.path(".claude").exists());
}

#[test]
fn a_healthy_workspace_has_no_problems() {
    let world = with_claude();
    world.ok(["checkpoint", "create", "one"]);
    install(&world);
    let document = examine(&world, &[]);
    assert_eq!(document["ok"], true, "{document:#}");
    expect(&document, "hooks.claude.project", "ok", "intact, 16 hooks in .claude/settings.local.json");
    assert_eq!(item(&document, "hooks.claude.project")["state"], "intact");
    expect(&document, "protection", "ok", "local: ");
    expect(&document, "seal", "note", "no seal");
    expect(&document, "store", "ok", "opens, format ");
    expect(&document, "store.structure", "ok", "structure");
    expect(&document, "access", "ok", "only you can access");
    expect(&document, "history", "ok", "as recorded");
    expect(&document, "operations", "ok", "none was interrupted");
    expect(&document, "inbox", "ok", "no report");
    expect(&document, "search", "ok", "nothing was searched yet");
    expect(&document, "cache", "ok", "intact");
    expect(&document, "clock", "ok", "newest step");
    expect(&document, "versions", "ok", &format!("stepback {}", env!("CARGO_PKG_VERSION")));
    expect(&document, "settings", "ok", "all defaults");
    let ids: Vec<String> = items(&document).iter().map(|item| item["id"].to_string()).collect();
    let mut unique = ids.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), ids.len(), "{ids:?}");
    // The text says the same, problems first, with a summary at the end.
    let shown = world.ok(["doctor"]).out;
    assert!(shown.lines().last().unwrap().starts_with("No problems: "), "{shown}");
}

#[test]
fn it_changes_nothing_without_fix() {
    let world = with_claude();
    record_session(&world);
    install(&world);
    world.write("c", "not recorded\n");
    let agent = Talk::new(&world, "s2");
    agent.pre("r1", "Read", json!({ "file_path": world.path("a") }));
    let names = |dir: &Path| tree::copy_of(dir, |path| path.ends_with(b"-shm") || path.ends_with(b"-wal"));
    let inbox = || fs::read(workspace_dir(&world).join("inbox.jsonl")).unwrap();
    let (store, waiting) = (names(&world.store), inbox());
    let log = fs::read(world.store.join("log.sqlite-wal")).unwrap();
    let document = examine(&world, &[]);
    assert!(item(&document, "inbox")["text"].as_str().unwrap().contains("to be recorded"), "{document:#}");
    examine(&world, &["--fix", "--dry-run"]);
    assert_eq!(inbox(), waiting);
    assert!(log == fs::read(world.store.join("log.sqlite-wal")).unwrap(), "something was committed");
    let differences = tree::differences(&store, &names(&world.store));
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn a_hook_that_is_missing_is_found_and_written_again() {
    let world = with_claude();
    let before = install(&world);
    world.ok(["checkpoint", "create", "one"]);
    let mut changed = settings(&world);
    let hooks = changed["hooks"].as_object_mut().unwrap();
    hooks.remove("PreToolUse").unwrap();
    hooks.remove("PostToolUse").unwrap();
    world.write(".claude/settings.local.json", serde_json::to_string_pretty(&changed).unwrap());
    let document = examine(&world, &[]);
    let found =
        expect(&document, "hooks.claude.project", "problem", "lacks 2 of 16 hooks: PreToolUse, PostToolUse");
    assert_eq!(found["state"], "altered");
    assert!(found["fix"].as_str().unwrap().contains("adds 2 hooks"), "{found:#}");

    let document = examine(&world, &["--fix", "--yes"]);
    let fix = &document["fixes"][0];
    assert_eq!((&fix["id"], &fix["applied"]), (&json!("hooks.claude.project"), &json!(true)), "{fix:#}");
    assert_eq!(fix["undo"], "stepback init --agent claude --uninstall");
    assert_eq!(item(&document, "hooks.claude.project")["state"], "intact");
    let after: Value = serde_json::from_str(&before).unwrap();
    assert_eq!(settings(&world), after);
    assert_eq!(examine(&world, &["--fix", "--yes"])["fixes"], json!([]));
}

#[test]
fn a_hook_that_runs_another_program_is_altered() {
    let world = with_claude();
    let text = install(&world);
    let other = world.root().join("stepback");
    let file = ".claude/settings.local.json";
    world.write(file, text.replace(PROGRAM, other.to_str().unwrap()));
    let document = examine(&world, &[]);
    expect(&document, "hooks.claude.project", "problem", "which does not exist");

    fs::write(&other, "#!/bin/sh\ntouch ran\n").unwrap();
    expect(&examine(&world, &[]), "hooks.claude.project", "problem", "which is not a program");
    fs::set_permissions(&other, Permissions::from_mode(0o755)).unwrap();
    expect(&examine(&world, &[]), "hooks.claude.project", "problem", "another build than this program");
    assert!(!world.path("ran").exists(), "a program that settings name was run");
    // A link to this program is this program.
    fs::remove_file(&other).unwrap();
    std::os::unix::fs::symlink(PROGRAM, &other).unwrap();
    expect(&examine(&world, &[]), "hooks.claude.project", "ok", "a copy of this program");
    let relative = text.replace(PROGRAM, "stepback");
    world.write(file, relative);
    expect(&examine(&world, &[]), "hooks.claude.project", "problem", "the search path");
}

#[test]
fn what_the_user_wrote_survives_a_fix() {
    let world = with_claude();
    install(&world);
    let mut changed = settings(&world);
    changed["permissions"] = json!({ "allow": ["Bash(ls:*)"] });
    changed["hooks"]["PreToolUse"].as_array_mut().unwrap().insert(
        0,
        json!({ "matcher": "Bash", "hooks": [{ "type": "command", "command": "/usr/local/bin/dump-hook /tmp/out", "timeout": 600 }] }),
    );
    changed["hooks"]["Stop"][0]["hooks"][0]["timeout"] = json!(1);
    world.write(".claude/settings.local.json", serde_json::to_string_pretty(&changed).unwrap());
    let found = examine(&world, &[]);
    expect(&found, "hooks.claude.project", "problem", "other options than stepback writes: Stop");
    examine(&world, &["--fix", "--yes"]);
    changed["hooks"]["Stop"][0]["hooks"][0]["timeout"] = json!(60);
    assert_eq!(settings(&world), changed);
}

#[test]
fn a_matcher_around_a_hook_is_found_but_left_to_the_user() {
    let world = with_claude();
    install(&world);
    let mut changed = settings(&world);
    changed["hooks"]["PreToolUse"][0]["matcher"] = json!("Bash");
    world.write(".claude/settings.local.json", changed.to_string());
    let found = expect(&examine(&world, &[]), "hooks.claude.project", "problem", "by a matcher: PreToolUse");
    assert_eq!(found["fix"], json!(null));
    assert!(found["hint"].as_str().unwrap().contains("remove the matcher"), "{found:#}");
}

#[test]
fn hooks_that_are_switched_off_are_a_problem() {
    let world = with_claude();
    install(&world);
    fs::write(world.home.join(".claude/settings.json"), "{\"disableAllHooks\": true}").unwrap();
    let found = expect(&examine(&world, &[]), "hooks.claude.disabled", "problem", "~/.claude/settings.json");
    assert!(found["text"].as_str().unwrap().contains("disableAllHooks"), "{found:#}");
    // The project's own settings decide.
    let mut own = settings(&world);
    own["disableAllHooks"] = json!(false);
    world.write(".claude/settings.local.json", own.to_string());
    assert_eq!(find(&examine(&world, &[]), "hooks.claude.disabled"), None);

    let world = Sandbox::new();
    world.ok(["init", "--agent", "gemini"]);
    let mut gemini: Value =
        serde_json::from_str(&fs::read_to_string(world.path(".gemini/settings.json")).unwrap()).unwrap();
    gemini["hooksConfig"] = json!({ "enabled": false });
    world.write(".gemini/settings.json", gemini.to_string());
    expect(&examine(&world, &[]), "hooks.gemini.disabled", "problem", "hooksConfig.enabled: false");

    let world = Sandbox::new();
    world.ok(["init", "--agent", "codex", "--user"]);
    fs::write(world.home.join(".codex/config.toml"), "[features]\nhooks = false\n").unwrap();
    expect(&examine(&world, &[]), "hooks.codex.disabled", "problem", "features.hooks = false");
}

#[test]
fn hooks_that_codex_skips_because_they_were_not_reviewed_are_noted() {
    let world = Sandbox::new();
    world.ok(["init", "--agent", "codex", "--user"]);
    let document = examine(&world, &[]);
    expect(&document, "hooks.codex.user", "ok", "intact, 11 hooks in ~/.codex/hooks.json");
    expect(&document, "hooks.codex.user.review", "note", "not reviewed");
}

#[test]
fn hooks_that_recorded_sessions_and_are_gone_are_a_problem_and_come_back() {
    let world = with_claude();
    record_session(&world);
    let document = examine(&world, &[]);
    let found = expect(&document, "hooks.claude", "problem", "gone. They recorded 1 session here");
    assert_eq!(found["state"], "gone");
    let document = examine(&world, &["--fix", "--yes"]);
    assert_eq!(item(&document, "hooks.claude.project")["state"], "intact", "{document:#}");
    assert_eq!(find(&document, "hooks.claude"), None);
    world.ok(["init", "--agent", "claude", "--uninstall"]);
    assert!(!world.path(".claude").exists(), "the fix can be undone");
}

#[test]
fn hooks_of_old_sessions_may_be_gone_on_purpose() {
    let world = with_claude();
    let at = |time: &str| format!("{time}T00:00:00Z/1");
    let agent = Talk::new(&world, "s1");
    let start = |time: &str, payload: &Value| {
        let mut command = world.command(["hook", "claude"]);
        command.env("STEPBACK_TEST_CLOCK", at(time)).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(payload.to_string().as_bytes()).unwrap();
        assert!(child.wait().unwrap().success());
    };
    start("2026-01-02", &agent.payload("SessionStart", json!({ "source": "startup" })));
    start(
        "2026-01-02",
        &agent.payload(
            "PreToolUse",
            json!({ "tool_name": "Bash", "tool_input": { "command": "ls" }, "tool_use_id": "b" }),
        ),
    );
    for (time, verdict) in [("2026-01-20", "problem"), ("2026-03-20", "note")] {
        let mut command = world.command(["doctor", "--json"]);
        let ran: Ran = command.env("STEPBACK_TEST_CLOCK", at(time)).output().unwrap().into();
        expect(&ran.json(), "hooks.claude", verdict, "gone");
    }
    // The same history with a clock that was set back.
    let mut command = world.command(["doctor", "--json"]);
    let ran: Ran = command.env("STEPBACK_TEST_CLOCK", at("2025-12-31")).output().unwrap().into();
    expect(&ran.json(), "clock", "problem", "the clock says 2025-12-31");
}

#[test]
fn sessions_that_were_started_by_run_say_nothing_about_installed_hooks() {
    let world = with_claude();
    let agent = world.root().join("claude");
    fs::write(&agent, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&agent, Permissions::from_mode(0o755)).unwrap();
    world.run([std::ffi::OsStr::new("run"), std::ffi::OsStr::new("--"), agent.as_os_str()]);
    let document = examine(&world, &[]);
    assert_ne!(item(&document, "hooks.claude")["state"], "gone", "{document:#}");
}

#[test]
fn settings_that_cannot_be_read_are_reported_and_left_alone() {
    let world = with_claude();
    record_session(&world);
    let file = ".claude/settings.local.json";
    fs::create_dir(world.path(".claude")).unwrap();
    let cases: [(&[u8], &str); 4] = [
        (b"{\"hooks\": {", "is invalid"),
        (b"{\"hooks\": [], \"stepback\": 1, \xff}", "is not UTF-8"),
        (b"[1, 2", "is invalid"),
        (b"\0\0\0\0", "is invalid"),
    ];
    for (bytes, what) in cases {
        world.write(file, bytes);
        expect(&examine(&world, &[]), "hooks.claude.project", "problem", what);
        examine(&world, &["--fix", "--yes"]);
        assert_eq!(fs::read(world.path(file)).unwrap(), bytes, "it is not stepback's to correct");
    }
    // Comments, where Claude Code ignores the whole file because of them.
    let installed = {
        fs::remove_file(world.path(file)).unwrap();
        install(&world)
    };
    world.write(file, installed.replacen('{', "{\n  // mine", 1));
    expect(&examine(&world, &[]), "hooks.claude.project", "problem", "a comment");

    fs::remove_file(world.path(file)).unwrap();
    let huge = fs::File::create(world.path(file)).unwrap();
    huge.set_len(20 << 20).unwrap();
    expect(&examine(&world, &[]), "hooks.claude.project", "problem", "too many for settings");
    fs::remove_file(world.path(file)).unwrap();
    fs::create_dir(world.path(file)).unwrap();
    expect(&examine(&world, &[]), "hooks.claude.project", "problem", "is not a file");
    fs::remove_dir(world.path(file)).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(world.path(file)).status().unwrap().success());
    expect(&examine(&world, &[]), "hooks.claude.project", "problem", "is not a file");
}

#[test]
fn settings_of_an_agent_that_stepback_never_recorded_are_no_problem() {
    let world = Sandbox::new();
    fs::create_dir(world.home.join(".gemini")).unwrap();
    fs::write(world.home.join(".gemini/settings.json"), "{ broken").unwrap();
    let document = examine(&world, &[]);
    expect(&document, "hooks.gemini.user", "note", "is invalid");
    assert_eq!(document["ok"], true, "{document:#}");
}

#[test]
fn settings_as_gemini_writes_them_are_kept() {
    let world = Sandbox::new();
    let real = include_str!("samples/gemini-settings.json");
    world.write(".gemini/settings.json", real);
    world.ok(["init", "--agent", "gemini"]);
    expect(&examine(&world, &[]), "hooks.gemini.project", "ok", "intact, 8 hooks in .gemini/settings.json");
    let with_hooks = fs::read_to_string(world.path(".gemini/settings.json")).unwrap();
    world.write(".gemini/settings.json", with_hooks.replace("\"timeout\": 3600000", "\"timeout\": 5"));
    expect(&examine(&world, &[]), "hooks.gemini.project", "problem", "BeforeTool, AfterTool");
    examine(&world, &["--fix", "--yes"]);
    assert_eq!(fs::read_to_string(world.path(".gemini/settings.json")).unwrap(), with_hooks);
    world.ok(["init", "--agent", "gemini", "--uninstall"]);
    assert_eq!(fs::read_to_string(world.path(".gemini/settings.json")).unwrap(), real);
}

#[test]
fn the_plugin_of_opencode_is_compared_too() {
    let world = Sandbox::new();
    world.ok(["init", "--agent", "opencode"]);
    expect(&examine(&world, &[]), "hooks.opencode.project", "ok", "intact, the plugin");
    let file = ".opencode/plugin/stepback.js";
    let text = fs::read_to_string(world.path(file)).unwrap();
    world.write(file, format!("{text}// edited\n"));
    expect(&examine(&world, &[]), "hooks.opencode.project", "problem", "edited");
    world.write(file, text.replace(PROGRAM, "/nonexistent/stepback"));
    expect(&examine(&world, &[]), "hooks.opencode.project", "problem", "/nonexistent/stepback");
    examine(&world, &["--fix", "--yes"]);
    assert_eq!(fs::read_to_string(world.path(file)).unwrap(), text);
    world.write(file, "export default () => {}\n");
    let found = expect(&examine(&world, &[]), "hooks.opencode.project", "note", "not written by stepback");
    assert_eq!(found["fix"], json!(null));
}

#[test]
fn hooks_in_both_scopes_that_run_twice_are_noted() {
    let world = Sandbox::new();
    for scope in [&["init", "--agent", "codex"][..], &["init", "--agent", "codex", "--user"]] {
        world.ok(scope);
    }
    expect(&examine(&world, &[]), "hooks.codex.twice", "note", "the agent runs both");
    let world = with_claude();
    for scope in [&["init", "--agent", "claude"][..], &["init", "--agent", "claude", "--user"]] {
        world.ok(scope);
    }
    assert_eq!(find(&examine(&world, &[]), "hooks.claude.twice"), None, "Claude Code runs them once");
}

#[test]
fn hooks_that_were_moved_to_another_file_are_not_installed_twice() {
    let world = with_claude();
    record_session(&world);
    install(&world);
    fs::rename(world.path(".claude/settings.local.json"), world.path(".claude/settings.json")).unwrap();
    let found = expect(&examine(&world, &[]), "hooks.claude", "note", ".claude/settings.json");
    assert_eq!((&found["state"], &found["fix"]), (&json!("moved"), &json!(null)));
}

#[test]
fn permissions_are_reported_and_tightened_but_not_those_of_git() {
    let world = Sandbox::new();
    world.write("a", "one\n");
    world.init_git();
    world.ok(["checkpoint", "create", "one"]);
    for (path, mode) in [("", 0o755), ("settings.json", 0o666), ("workspaces", 0o750)] {
        let path = world.store.join(path);
        if path.extension().is_some() {
            fs::write(&path, "{}").unwrap();
        }
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let git = world.everything();
    let document = examine(&world, &[]);
    let found =
        expect(&document, "access.permissions", "problem", "other users can access the store: 3 paths");
    assert!(found["fix"].as_str().unwrap().contains("3 paths"), "{found:#}");
    let document = examine(&world, &["--fix", "--yes"]);
    assert_eq!(document["ok"], true, "{document:#}");
    let mode = |path: &str| fs::metadata(world.store.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(""), mode("settings.json"), mode("workspaces")), (0o700, 0o600, 0o700));
    assert!(world.everything() == git, "files of the workspace were changed");
    // Below a private directory it is only a note.
    fs::set_permissions(world.store.join("packs"), Permissions::from_mode(0o755)).unwrap();
    expect(&examine(&world, &[]), "access.permissions", "note", "if the store's directory were");
}

#[test]
fn a_store_of_another_user_or_without_permission_is_reported() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to give files away");
    }
    let (world, ..) = recorded();
    std::os::unix::fs::chown(world.store.join("packs"), Some(12_345), None).unwrap();
    let found = expect(&examine(&world, &[]), "access.owner", "problem", "belongs to user 12345");
    assert!(found["hint"].as_str().unwrap().contains("chown"), "{found:#}");
}

#[test]
fn a_store_of_a_newer_format_is_a_problem_and_everything_else_is_still_checked() {
    let (world, ..) = recorded();
    fs::create_dir(world.home.join(".claude")).unwrap();
    install(&world);
    let connection = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    connection.pragma_update(None, "user_version", 99).unwrap();
    drop(connection);
    let document = examine(&world, &[]);
    expect(&document, "store", "problem", "format 99");
    expect(&document, "hooks.claude.project", "ok", "intact");
    item(&document, "space");
    assert_eq!(examine(&world, &["--fix", "--yes"])["fixes"], json!([]));
}

#[test]
fn damage_of_the_database_is_a_problem_and_left_to_fsck() {
    let (world, ..) = recorded();
    let pack = world.store.join("packs/00000001.pack");
    let length = fs::metadata(&pack).unwrap().len();
    fs::File::options().write(true).open(&pack).unwrap().set_len(length - 10).unwrap();
    let found = expect(&examine(&world, &[]), "store.structure", "problem", "00000001.pack");
    assert!(found["hint"].as_str().unwrap().contains("fsck"), "{found:#}");
    assert_eq!(found["fix"], json!(null));

    let (world, ..) = recorded();
    let connection = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    connection.execute("UPDATE steps SET summary = 'another' WHERE number = 1", []).unwrap();
    drop(connection);
    expect(&examine(&world, &[]), "history", "problem", "step #1 was altered");
}

#[test]
fn a_database_that_is_no_database_is_a_problem() {
    let (world, ..) = recorded();
    for name in ["log.sqlite-wal", "log.sqlite-shm"] {
        let _ = fs::remove_file(world.store.join(name));
    }
    fs::write(world.store.join("log.sqlite"), vec![7; 8192]).unwrap();
    let document = examine(&world, &[]);
    assert_eq!(item(&document, "store")["verdict"], "problem", "{document:#}");
}

#[test]
fn an_interrupted_rewind_is_reported_and_finished_by_fix() {
    let (world, one, two) = recorded();
    let mut interrupted = 0;
    for point in [12, 20, 30] {
        let ran = world.faulty(&["rewind", "one", "--yes"], &format!("kill:{point}"));
        if ran.code == Some(0) {
            break;
        }
        let document = examine(&world, &[]);
        let found = item(&document, "operations");
        if found["verdict"] == "problem" {
            interrupted += 1;
            assert!(found["text"].as_str().unwrap().contains("was interrupted"), "{found:#}");
            let again = item(&examine(&world, &[]), "operations");
            assert_eq!(again["verdict"], "problem", "doctor finished it by itself");
            let fixed = examine(&world, &["--fix", "--yes"]);
            assert_eq!(item(&fixed, "operations")["verdict"], "ok", "{fixed:#}");
            assert!(fixed["fixes"][0]["undo"].as_str().unwrap().starts_with("stepback undo "), "{fixed:#}");
        } else {
            world.ok(["status"]);
        }
        let files = world.files();
        assert!(files == one || files == two, "neither before nor after");
        if files == one {
            world.ok(["rewind", "two", "--yes"]);
        }
    }
    assert!(interrupted > 0, "no rewind was interrupted: change the points");
}

#[test]
fn reports_that_wait_are_counted_and_recorded_by_fix() {
    let world = with_claude();
    install(&world);
    record_session(&world);
    world.ok(["status"]);
    let agent = Talk::new(&world, "s1");
    for call in ["r1", "r2"] {
        agent.pre(call, "Read", json!({ "file_path": world.path("a") }));
        agent.post(call, "Read", json!({ "file_path": world.path("a") }));
    }
    let document = examine(&world, &[]);
    let found = expect(&document, "inbox", "ok", "4 reports of agents wait to be recorded");
    assert_eq!(found["fix"], "record 4 reports of agents");
    let inbox = workspace_dir(&world).join("inbox.jsonl");
    fs::OpenOptions::new().append(true).open(&inbox).unwrap().write_all(b"{ torn\n").unwrap();
    expect(&examine(&world, &[]), "inbox", "note", "1 of them will be a gap");
    let document = examine(&world, &["--fix", "--yes"]);
    assert_eq!(document["fixes"][0]["result"], "recorded 5 reports", "{document:#}");
    expect(&document, "inbox", "ok", "no report");
    // The gap itself is a problem of the last day.
    expect(&document, "hooks.gaps", "problem", "1 event could not be recorded");
}

#[test]
fn a_damaged_stat_cache_is_noted_and_rebuilt_by_fix() {
    let (world, ..) = recorded();
    let cache = workspace_dir(&world).join("statcache");
    let mut bytes = fs::read(&cache).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&cache, &bytes).unwrap();
    expect(&examine(&world, &[]), "cache", "note", "cannot be used");
    assert_eq!(fs::read(&cache).unwrap(), bytes, "it was rebuilt without --fix");
    let document = examine(&world, &["--fix", "--yes"]);
    expect(&document, "cache", "ok", "intact");
    assert!(document["fixes"][0]["result"].as_str().unwrap().contains("were read"), "{document:#}");
}

#[test]
fn steps_that_search_does_not_find_yet_are_counted() {
    let (world, ..) = recorded();
    expect(&examine(&world, &[]), "search", "ok", "the first search indexes");
    assert!(!world.store.join("search.sqlite").exists(), "it created the index");
    world.ok(["search", "one"]);
    expect(&examine(&world, &[]), "search", "ok", "every step is indexed");
    world.write("another", "x");
    world.ok(["checkpoint", "create", "three"]);
    expect(&examine(&world, &[]), "search", "ok", "1 step will be indexed");
}

#[test]
fn rules_that_do_nothing_are_listed() {
    let world = Sandbox::new();
    world.write("build/out", "x");
    world.write("sub/.stepbackignore", "gone\n");
    world.write("kept.log", "x");
    world.write(".stepbackignore", "# a comment\nbuild/\n!kept.log\n\nnothing-like-this\nx[z-a]\n");
    world.ok(["checkpoint", "create", "one"]);
    let document = examine(&world, &[]);
    expect(&document, "ignore.unused", "note", ".stepbackignore line 5 matches nothing");
    expect(&document, "ignore.invalid", "problem", ".stepbackignore line 6 is not a valid pattern");
    expect(&document, "ignore.unused.2", "note", "sub/.stepbackignore line 1");
    world.write(".stepbackignore", "build/\n");
    world.write("sub/.stepbackignore", "");
    expect(&examine(&world, &[]), "ignore", "ok", "1 pattern in .stepbackignore, all in use");
    fs::remove_file(world.path(".stepbackignore")).unwrap();
    world.link("/etc/passwd", ".stepbackignore");
    expect(&examine(&world, &[]), "ignore", "problem", "not a regular file");
}

#[test]
fn settings_of_the_store_that_cannot_be_read_are_a_problem() {
    let (world, ..) = recorded();
    fs::write(world.store.join("settings.json"), "{ nonsense").unwrap();
    fs::set_permissions(world.store.join("settings.json"), Permissions::from_mode(0o600)).unwrap();
    expect(&examine(&world, &[]), "settings", "problem", "is not valid");
    fs::write(world.store.join("settings.json"), "{\"disk.budget\": \"1GB\", \"notes\": 0}").unwrap();
    let document = examine(&world, &[]);
    expect(&document, "settings", "ok", "notes 0, disk.budget 1.0GB");
    expect(&document, "space.budget", "ok", "of its 1");
}

#[test]
fn a_seal_in_the_repository_is_found() {
    let world = Sandbox::new();
    world.write("a", "one\n");
    world.init_git();
    world.ok(["checkpoint", "create", "one"]);
    world.ok(["seal", "--to", "git:audit/one"]);
    let found =
        expect(&examine(&world, &[]), "seal", "ok", "refs/stepback/seals/audit/one has the first 1 step");
    assert!(found["hint"].as_str().unwrap().contains("--verify refs/stepback/seals/audit/one"), "{found:#}");
    world.git(&["pack-refs", "--all"]);
    expect(&examine(&world, &[]), "seal", "ok", "refs/stepback/seals/audit/one");
}

#[test]
fn a_file_from_the_future_is_noted() {
    let world = Sandbox::new();
    world.write("a", "one\n");
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_secs(86_400);
    fs::File::options().write(true).open(world.path("a")).unwrap().set_modified(ahead).unwrap();
    world.ok(["checkpoint", "create", "one"]);
    expect(&examine(&world, &[]), "clock.files", "note", "a was modified in the future");
}

#[test]
fn a_fix_asks_first_and_a_plan_can_be_seen_without_it() {
    let world = with_claude();
    record_session(&world);
    let refused = world.run(["doctor", "--fix"]).exits(REFUSED);
    assert!(refused.out.contains("  1. Claude Code: adds 16 hooks"), "{}", refused.out);
    assert!(refused.err.contains("nothing was fixed") && refused.err.contains("--yes"), "{}", refused.err);
    let planned = world.ok(["doctor", "--fix", "--dry-run"]);
    assert!(planned.out.contains("Plan:"), "{}", planned.out);
    let document = examine(&world, &["--fix", "--dry-run"]);
    assert_eq!(document["fixes"][0]["applied"], false, "{document:#}");
    assert!(!world.path(".claude").exists(), "something was changed");
    let mut command = world.command(["doctor", "--fix", "--json"]);
    let refused: Ran = command.output().unwrap().into();
    assert_eq!(refused.exits(REFUSED).json()["error"]["code"], "refused");
    world.run(["doctor", "--dry-run"]).exits(2);
    let done = world.ok(["doctor", "--fix", "--yes"]);
    assert!(done.out.contains("done    1. Claude Code: adds 16 hooks"), "{}", done.out);
    assert!(done.out.contains("Undo: stepback init --agent claude --uninstall"), "{}", done.out);
}

#[test]
fn a_fix_that_fails_is_reported_and_the_others_are_made() {
    let world = with_claude();
    record_session(&world);
    install(&world);
    let text = fs::read_to_string(world.path(".claude/settings.local.json")).unwrap();
    world.write(".claude/settings.local.json", text.replace("3600", "1"));
    fs::set_permissions(world.path(".claude/settings.local.json"), Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&world.store, Permissions::from_mode(0o755)).unwrap();
    let document = examine(&world, &["--fix", "--yes"]);
    let fixes = document["fixes"].as_array().unwrap();
    let fix = |id: &str| fixes.iter().find(|fix| fix["id"] == id).unwrap();
    assert_eq!(fix("access.permissions")["applied"], true, "{document:#}");
    let failed = fix("hooks.claude.project");
    assert_eq!(failed["applied"], false);
    assert!(failed["error"].as_str().unwrap().contains("is read-only"), "{failed:#}");
    assert_eq!(document["ok"], false);
}

#[test]
fn a_store_on_a_read_only_disk_is_reported() {
    if !rustix::process::geteuid().is_root() {
        return skip("needs root to mount");
    }
    let (world, ..) = recorded();
    let script = format!(
        "mount --bind '{0}' '{0}' && mount -o remount,bind,ro '{0}' && exec '{1}' doctor --json",
        world.store.display(),
        PROGRAM
    );
    let arguments = ["--mount", "sh", "-c", &script];
    let command = world.command([""; 0]);
    let mut inside = std::process::Command::new("unshare");
    inside.args(arguments).current_dir(&world.work).env_clear();
    for (name, value) in command.get_envs() {
        inside.envs(value.map(|value| (name, value)));
    }
    let Ok(output) = inside.output() else { return skip("needs unshare") };
    let ran: Ran = output.into();
    if ran.err.contains("unshare") || ran.err.contains("mount:") {
        return skip("needs mount namespaces");
    }
    let document = ran.exits(PROBLEMS).json();
    expect(&document, "store.write", "problem", "is read-only");
    expect(&document, "workspace", "ok", "a scan of every file");
}

#[test]
fn a_workspace_that_cannot_be_listed_is_a_finding() {
    let (world, ..) = recorded();
    world.chmod("dir0", 0o000);
    let mut command = world.command(["doctor", "--json"]);
    if rustix::process::geteuid().is_root() {
        // Root may read everything.
        give_to_agent(&world.root());
        command.uid(AGENT).gid(AGENT);
    }
    let ran: Ran = command.output().unwrap().into();
    world.chmod("dir0", 0o755);
    expect(&ran.json(), "workspace.skipped", "note", "dir0");
}
