//! Tests of every tool on real directories, with invalid inputs that a model sometimes gives.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::*;

struct Dir {
    _top: tempfile::TempDir,
    root: PathBuf,
    stop: AtomicBool,
}

impl Dir {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        let root = top.path().canonicalize().unwrap().join("work");
        fs::create_dir(&root).unwrap();
        fs::write(root.join("a.txt"), "one\ntwo\nthree\n").unwrap();
        Self { _top: top, root, stop: AtomicBool::new(false) }
    }

    fn run(&self, tool: &str, input: Value) -> ToolResult {
        run(&self.root, tool, &input, &ToolLimits { stop: &self.stop, deadline: None })
    }

    #[track_caller]
    fn good(&self, tool: &str, input: Value) -> String {
        let result = self.run(tool, input);
        assert!(!result.failed, "{}", result.text);
        result.text
    }

    #[track_caller]
    fn bad(&self, tool: &str, input: Value, why: &str) {
        let result = self.run(tool, input);
        assert!(result.failed && result.text.contains(why), "{result:?} should say {why}");
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.root.join(name)).unwrap()
    }
}

#[test]
fn files_are_read_and_written() {
    let dir = Dir::new();
    assert_eq!(dir.good("read", json!({ "path": "a.txt" })), "one\ntwo\nthree\n");
    assert_eq!(dir.good("read", json!({ "path": "a.txt", "offset": 2, "limit": 1 })), "two\n");
    assert_eq!(dir.good("read", json!({ "path": "a.txt", "offset": 9 })), "");
    dir.good("write", json!({ "path": "new/deep/b.txt", "content": "" }));
    assert_eq!(dir.file("new/deep/b.txt"), "");
    dir.good("write", json!({ "path": "run.sh", "content": "1" }));
    fs::set_permissions(dir.root.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    dir.good("write", json!({ "path": "run.sh", "content": "2" }));
    let mode = fs::metadata(dir.root.join("run.sh")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "permissions stay");
    dir.good("edit", json!({ "path": "a.txt", "old": "two", "new": "2" }));
    assert_eq!(dir.file("a.txt"), "one\n2\nthree\n");
    let listed = dir.good("list", json!({}));
    assert_eq!(listed, "a.txt (12 bytes)\nnew/\nrun.sh (1 bytes)");
}

#[test]
fn a_text_is_replaced_only_where_it_stands_once() {
    let dir = Dir::new();
    dir.bad("edit", json!({ "path": "a.txt", "old": "four", "new": "4" }), "not found");
    dir.bad("edit", json!({ "path": "a.txt", "old": "e", "new": "E" }), "3 times");
    dir.bad("edit", json!({ "path": "a.txt", "old": "", "new": "E" }), "empty");
    dir.bad("edit", json!({ "path": "none", "old": "a", "new": "b" }), "cannot read none");
    assert_eq!(dir.file("a.txt"), "one\ntwo\nthree\n");
}

#[test]
fn nothing_outside_is_touched() {
    let dir = Dir::new();
    let out = dir.root.parent().unwrap().join("out");
    fs::write(&out, "secret").unwrap();
    symlink(&out, dir.root.join("link")).unwrap();
    symlink(dir.root.parent().unwrap(), dir.root.join("up")).unwrap();
    for path in ["../out", "link", "up/out", "up/new", "/etc/passwd"] {
        for (tool, more) in [
            ("read", json!({})),
            ("write", json!({ "content": "x" })),
            ("edit", json!({ "old": "secret", "new": "x" })),
            ("list", json!({})),
            ("search", json!({ "pattern": "secret" })),
        ] {
            let mut input = more;
            input["path"] = path.into();
            let result = dir.run(tool, input);
            assert!(result.failed && !result.text.contains("secret"), "{tool} {path}: {result:?}");
        }
    }
    assert_eq!(fs::read_to_string(&out).unwrap(), "secret");
    assert!(!dir.good("search", json!({ "pattern": "secret" })).contains("secret"), "links are not followed");
}

#[test]
fn what_is_no_text_and_what_is_no_file_is_said_to_be_so() {
    let dir = Dir::new();
    fs::write(dir.root.join("image"), [0xff, 0xfe, 0, 1]).unwrap();
    dir.bad("read", json!({ "path": "image" }), "not text (4 bytes)");
    dir.bad("edit", json!({ "path": "image", "old": "a", "new": "b" }), "not text");
    dir.bad("read", json!({ "path": "." }), "directory");
    dir.bad("write", json!({ "path": ".", "content": "" }), "directory");
    dir.good("bash", json!({ "command": "mkfifo pipe" }));
    dir.bad("read", json!({ "path": "pipe" }), "not a regular file");
    dir.bad("write", json!({ "path": "pipe", "content": "" }), "not a regular file");
    dir.bad("read", json!({}), "\"path\" is missing");
    dir.bad("read", json!({ "path": 7 }), "must be a text");
    dir.bad("read", json!({ "path": "a.txt", "limit": -1 }), "whole number");
    dir.bad("read", Value::Null, "missing");
    dir.bad("fly", json!({}), "unknown tool");
}

#[test]
fn a_command_says_how_it_ended() {
    let dir = Dir::new();
    assert_eq!(dir.good("bash", json!({ "command": "echo out; echo err >&2" })), "out\nerr\n[exit code 0]");
    dir.bad("bash", json!({ "command": "printf x; exit 3" }), "x\n[exit code 3]");
    dir.bad("bash", json!({ "command": "kill -TERM $$" }), "signal 15");
    assert!(dir.good("bash", json!({ "command": "pwd" })).starts_with(dir.root.to_str().unwrap()));
    let long =
        dir.good("bash", json!({ "command": "head -c 5000000 /dev/zero | tr '\\0' x; echo; echo last" }));
    assert!(long.contains("bytes left out") && long.contains("last\n[exit code 0]"));
    assert!(long.len() < 31_000, "{}", long.len());
}

#[test]
fn a_command_and_what_it_started_come_to_an_end() {
    let dir = Dir::new();
    let begun = Instant::now();
    dir.bad("bash", json!({ "command": "echo begun; sleep 300", "timeout": 1 }), "timed out after 1 s");
    let left = dir.good("bash", json!({ "command": "sleep 300 & echo $! > pid; echo on" }));
    assert_eq!(left, "on\n[exit code 0]");
    let pid = dir.file("pid");
    let state = || fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    while !state().is_empty() && !state().contains(") Z ") && cfg!(target_os = "linux") {
        assert!(begun.elapsed() < Duration::from_secs(120), "it runs on");
        std::thread::sleep(Duration::from_millis(10));
    }
    dir.stop.store(true, Ordering::Relaxed);
    dir.bad("bash", json!({ "command": "sleep 300" }), "interrupted");
    assert!(begun.elapsed() < Duration::from_secs(120));
}

#[test]
fn lines_are_found_where_git_would_look() {
    let dir = Dir::new();
    fs::write(dir.root.join(".gitignore"), "ignored\n").unwrap();
    fs::write(dir.root.join("ignored"), "three\n").unwrap();
    fs::create_dir(dir.root.join(".git")).unwrap();
    fs::write(dir.root.join(".git/x"), "three\n").unwrap();
    fs::create_dir(dir.root.join("src")).unwrap();
    fs::write(dir.root.join("src/b.rs"), "let three = 3;\n").unwrap();
    fs::write(dir.root.join("binary"), [b't', 0xff]).unwrap();
    let found = dir.good("search", json!({ "pattern": "th\\w+" }));
    assert_eq!(
        found,
        "a.txt:3: three\nsrc/b.rs:1: let three = 3;\n[not searched: 1 files that are binary or too large]"
    );
    assert_eq!(
        dir.good("search", json!({ "pattern": "three", "glob": "*.rs" })),
        "src/b.rs:1: let three = 3;"
    );
    assert_eq!(dir.good("search", json!({ "pattern": "three", "path": "a.txt" })), "a.txt:3: three");
    assert_eq!(dir.good("search", json!({ "pattern": "nowhere", "path": "src" })), "[nothing found]");
    dir.bad("search", json!({ "pattern": "(" }), "cannot be used");
    fs::write(dir.root.join("many"), "three\n".repeat(600)).unwrap();
    assert!(dir.good("search", json!({ "pattern": "three" })).contains("more lines left out"));
}

#[test]
fn the_paths_of_a_call_are_relative_to_the_workspace() {
    let dir = Dir::new();
    let named = |tool: &str, path: &str| named_paths(&dir.root, tool, &json!({ "path": path }));
    assert_eq!(named("write", "./src/../a"), ["a"]);
    assert_eq!(named("edit", dir.root.join("b").to_str().unwrap()), ["b"]);
    assert_eq!(named("read", "../out"), ["../out"], "what lies outside stays as it was written");
    assert!(named("bash", "a").is_empty());
}
