//! What the program says, to the byte: clock and ids are frozen, and the transcripts are kept beside this file.
//!
//! After a change that is meant, look at the difference and accept it with `cargo insta review`, or with
//! `INSTA_UPDATE=always cargo test --test cli transcripts::`.

use std::fs;
use std::os::unix::fs::symlink;

use serde_json::Value;

use crate::sandbox::{Ran, Sandbox};

/// A session at the shell, written down.
pub struct Transcript {
    /// Where it happens.
    pub world: Sandbox,
    text: String,
}

impl Transcript {
    /// Nothing was said yet.
    pub fn new() -> Self {
        Self { world: Sandbox::frozen(), text: String::new() }
    }

    /// Runs `stepback LINE` and writes down what it says and, unless it is zero, its exit code.
    pub fn run(&mut self, line: &str) -> &mut Self {
        let ran = self.world.run(words(line));
        self.note(line, &ran);
        self
    }

    /// Writes down what a command that was run said.
    pub fn note(&mut self, line: &str, ran: &Ran) {
        self.text.push_str(&format!("$ stepback {}\n", self.told(line)));
        self.text.push_str(&self.told(&ran.out));
        for line in self.told(&ran.err).lines() {
            self.text.push_str(&format!("| {line}\n"));
        }
        match ran.code {
            Some(0) => {}
            Some(code) => self.text.push_str(&format!("(exit code {code})\n")),
            None => self.text.push_str("(ended by a signal)\n"),
        }
        self.text.push('\n');
    }

    /// Says what happens between the commands.
    pub fn meanwhile(&mut self, what: &str) -> &mut Self {
        self.text.push_str(&format!("# {what}\n\n"));
        self
    }

    /// Paths of this run have the same names in every run.
    fn told(&self, text: &str) -> String {
        text.replace(&*self.world.root().to_string_lossy(), "/tmp")
    }

    /// The transcript; fails if a command broke down or used colours.
    pub fn text(&self) -> &str {
        assert!(!self.text.contains("panicked"), "{}", self.text);
        assert!(!self.text.contains('\x1b'), "colours without a terminal:\n{}", self.text);
        &self.text
    }
}

/// Splits a line at spaces, except between double quotes.
pub fn words(line: &str) -> Vec<String> {
    if line.is_empty() {
        return Vec::new();
    }
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().unwrap().push(c),
        }
    }
    words
}

/// What differs from run to run, and what stands for it.
pub const FILTERS: [(&str, &str); 5] = [
    (r"\(\d+ new or changed files? read\)", "([N] new or changed files read)"),
    (r"freed \d+(\.\d+)? .?B in \d+ objects?", "freed [BYTES] in [N] objects"),
    (r"(The store (?:has|would have)) [\d.]+ .?B, was [\d.]+ .?B", "$1 [BYTES], was [BYTES]"),
    // Which files a git directory holds depends on the version of git.
    (r"restore \d+ paths inside .git", "restore [N] paths inside .git"),
    (r"(Done: |with git: )\d\d? paths", "$1[N] paths"),
];

/// Compares a transcript with the kept one, except for numbers that depend on time and on other programs.
macro_rules! assert_transcript {
    ($transcript:expr) => {
        insta::with_settings!({
            filters => $crate::transcripts::FILTERS.to_vec(),
            omit_expression => true,
            prepend_module_to_snapshot => false,
        }, {
            insta::assert_snapshot!($transcript);
        });
    };
}
pub(crate) use assert_transcript;

fn project(transcript: &Transcript) {
    let world = &transcript.world;
    world.write("README.md", "# Project\n");
    world.write("src/main.rs", "fn main() {\n    println!(\"hello\");\n}\n");
    world.write("src/lib.rs", "pub fn one() -> u32 {\n    1\n}\n");
}

fn agent(transcript: &mut Transcript) {
    transcript.meanwhile("an agent edits src/main.rs, deletes src/lib.rs and creates notes.txt");
    let world = &transcript.world;
    world.write("src/main.rs", "fn main() {\n    println!(\"goodbye\");\n}\n");
    fs::remove_file(world.path("src/lib.rs")).unwrap();
    world.write("notes.txt", "done\n");
}

#[test]
fn first_minute() {
    let mut t = Transcript::new();
    project(&t);
    t.run("checkpoint create \"before the agent\"").run("status");
    agent(&mut t);
    t.run("status")
        .run("diff")
        .run("diff --stat")
        .run("changes")
        .run("rewind \"before the agent\"")
        .run("rewind \"before the agent\" --dry-run")
        .run("rewind \"before the agent\" --yes")
        .run("status")
        .run("undo --dry-run")
        .run("undo --yes")
        .run("status")
        .run("redo --yes")
        .run("log")
        .run("timeline")
        .run("op log");
    assert_transcript!(t.text());
    let world = &t.world;
    assert_eq!(fs::read_to_string(world.path("src/lib.rs")).unwrap(), "pub fn one() -> u32 {\n    1\n}\n");
    assert!(!world.path("notes.txt").exists());
}

#[test]
fn single_changes() {
    let mut t = Transcript::new();
    project(&t);
    t.run("checkpoint create start");
    t.world.write("a.txt", "first\n");
    t.run("checkpoint create first");
    t.world.write("README.md", "# Project\n\nMore.\n");
    t.world.write("b.txt", "second\n");
    t.run("checkpoint create second");
    t.world.write("c.txt", "third\n");
    t.meanwhile("c.txt is not in a checkpoint yet");
    t.run("changes")
        .run("changes first")
        .run("rewind --change 2 --dry-run")
        .run("rewind --change 1 --yes")
        .run("changes")
        .run("rewind --last 2 --yes")
        .run("undo --yes")
        .run("rewind --change 99 --yes")
        .run("rewind --all --yes")
        .run("rewind second --path b.txt")
        .run("rewind second --path nothing-like-this --yes")
        .run("rewind second --path ../outside --yes");
    assert_transcript!(t.text());
}

#[test]
fn checkpoints() {
    let mut t = Transcript::new();
    project(&t);
    t.run("checkpoint create one -m \"the first one\" --tag release --tag good");
    t.world.write("a", "a\n");
    t.run("checkpoint create \"two words\" --tag release").run("checkpoint create");
    t.run("checkpoint list")
        .run("checkpoint list --tag good")
        .run("checkpoint list --find FIRST")
        .run("checkpoint list --tag nothing")
        .run("checkpoint show one")
        .run("checkpoint annotate one \"works on my machine\" --label better --tag kept")
        .run("checkpoint show better")
        .run("checkpoint show tag:release")
        .run("checkpoint show tag:release:first")
        .run("undo")
        .run("checkpoint show one")
        .run("checkpoint delete #2")
        .run("checkpoint list")
        .run("checkpoint show #2")
        .run("rewind #2 --yes")
        .run("undo")
        .run("checkpoint list")
        .run("undo")
        .run("checkpoint list")
        .run("redo")
        .run("op log");
    assert_transcript!(t.text());
}

#[test]
fn the_past() {
    let mut t = Transcript::new();
    project(&t);
    t.run("checkpoint create one");
    t.world.write("README.md", "# Another project\n");
    t.run("checkpoint create two")
        .run("at one")
        .run("at \"1 minute ago\"")
        .run("at 2026-01-02T03:00:30")
        .run("cat one README.md")
        .run("cat @-1 README.md")
        .run("cat @ README.md")
        .run("cat one missing.txt")
        .run("cat one src")
        .run("cat one ../outside")
        .run("cat one /etc/passwd")
        .run("restore one --into ../old")
        .run("restore one --into ../old")
        .run("restore one --into ../old/README.md")
        .run("diff one two")
        .run("diff #1 #2 --stat")
        .run("diff one -- src")
        .run("diff one README.md")
        .run("-C src cat one main.rs")
        .run("-C src diff one -- ../README.md");
    assert_transcript!(t.text());
    let old = fs::read_to_string(t.world.root().join("old/README.md")).unwrap();
    assert_eq!(old, "# Project\n");
}

#[test]
fn diffs() {
    let mut t = Transcript::new();
    project(&t);
    t.world.write("binary", b"\0\x01\x02");
    t.world.write("tool.sh", "#!/bin/sh\n");
    t.world.write("old name", "a file of some length that only moves\n".repeat(5));
    symlink("README.md", t.world.path("link")).unwrap();
    t.run("checkpoint create one");
    t.world.write("binary", b"\0\x01\x03");
    t.world.chmod("tool.sh", 0o755);
    fs::rename(t.world.path("old name"), t.world.path("new name")).unwrap();
    fs::remove_file(t.world.path("link")).unwrap();
    symlink("src/lib.rs", t.world.path("link")).unwrap();
    t.world.write("src/lib.rs", "pub fn one() -> u32 {\n    2\n}");
    fs::create_dir(t.world.path("empty")).unwrap();
    t.world.chmod("empty", 0o755);
    t.run("status").run("diff").run("diff --stat").run("diff --side-by-side -- src");
    assert_transcript!(t.text());
}

#[test]
fn upkeep() {
    let mut t = Transcript::new();
    project(&t);
    t.run("checkpoint create one");
    t.world.write("README.md", "# Another project\n");
    t.run("checkpoint create two");
    for _ in 0..2 {
        t.run("rewind one --yes").run("rewind two --yes");
    }
    t.run("checkpoint delete one")
        .run("prune --keep-last 1 --dry-run")
        .run("prune --keep-last 1")
        .run("log")
        .run("undo")
        .run("prune --keep-last 1 --now")
        .run("undo")
        .run("undo 1")
        .run("undo nonsense")
        .run("log")
        .run("fsck");
    assert_transcript!(t.text());
    // Sizes depend on the libraries' compression; that they are there is enough.
    let stats = t.world.ok(["stats"]).out;
    assert!(stats.contains("uncompressed") && stats.contains("operations"), "{stats}");
}

#[test]
fn git_and_what_is_not_covered() {
    let mut t = Transcript::new();
    project(&t);
    t.world.write(".gitignore", "node_modules\n.env\n");
    t.world.write(".env", "SECRET=1\n");
    t.world.write("node_modules/left-pad/index.js", "module.exports = 1\n");
    t.world.init_git();
    t.run("checkpoint create one").run("status --excluded");
    t.meanwhile("an agent commits on a branch and deletes .env");
    fs::remove_file(t.world.path(".env")).unwrap();
    t.world.git(&["checkout", "--quiet", "-b", "topic"]);
    t.world.write("README.md", "# Changed\n");
    t.world.git(&["commit", "--quiet", "--all", "-m", "second"]);
    t.run("status")
        .run("rewind one --yes")
        .run("status")
        .run("undo --yes")
        .run("rewind one --files --git --yes")
        .run("status")
        .run("undo --yes")
        .run("status");
    assert_transcript!(t.text());
    assert_eq!(t.world.git(&["branch", "--show-current"]), "topic\n");
}

#[test]
fn errors() {
    let mut t = Transcript::new();
    t.run("status").run("undo");
    project(&t);
    t.run("checkpoint create \"\"")
        .run("checkpoint create \"   \"")
        .run("status")
        .run("checkpoint create same")
        .run("checkpoint create same")
        .run("checkpoint create other")
        .run("rewind same --yes")
        .run("rewind smae --yes")
        .run("rewind othr")
        .run("rewind #77")
        .run("rewind #")
        .run("rewind @-99")
        .run("rewind @-x")
        .run("rewind tag:nothing")
        .run("rewind tag:")
        .run("rewind 4f2a91ffff")
        .run("rewind \"3 hours ago\"")
        .run("rewind \"33 o'clock\"")
        .run("rewind branch:topic")
        .run("rewind error:last")
        .run("rewind tool:bash:last")
        .run("rewind \"\"")
        .run("rewind")
        .run("rewind --change 1 --last 2")
        .run("checkpoint create \"tab\there\"")
        .run("checkpoint annotate same")
        .run("undo 99")
        .run("redo")
        .run("prune --max-size lots")
        .run("-C /does/not/exist status")
        .run("-C README.md status")
        .run("--store /does/not/exist status")
        .run("nonsense")
        .run("undo")
        .run("undo")
        .run("undo")
        .run("undo");
    assert_transcript!(t.text());
}

/// Every command that has a `--json` form, on a world where it has something to say.
#[test]
fn json_documents() {
    let mut t = Transcript::new();
    project(&t);
    t.world.write(".gitignore", "node_modules\n");
    t.world.write("node_modules/x", "x\n");
    t.world.init_git();
    t.run("checkpoint create one -m note --tag t --json");
    agent(&mut t);
    t.run("checkpoint create two --json");
    t.world.write("later.txt", "later\n");
    let lines = [
        "status --excluded --json",
        "changes --json",
        "diff one --json",
        "diff one --stat --json",
        "log --json",
        "log --limit 1 --json",
        "timeline --json",
        "checkpoint list --json",
        "checkpoint list --tag t --json",
        "checkpoint show one --json",
        "checkpoint annotate one better --json",
        "checkpoint delete two --json",
        "at one --json",
        "cat one README.md --json",
        "restore one --into ../old --json",
        "rewind one --dry-run --json",
        "rewind one --yes --json",
        "undo --dry-run --json",
        "undo --yes --json",
        "redo --yes --json",
        "op log --json",
        "prune --keep-last 1 --dry-run --json",
        "prune --keep-last 1 --json",
        "rewind nowhere --json",
        "checkpoint list --tag nothing --json",
    ];
    for line in lines {
        let ran = t.world.run(words(line));
        expect_document(line, &ran);
        t.note(line, &ran);
    }
    for line in ["stats --json", "fsck --json"] {
        expect_document(line, &t.world.run(words(line)));
    }
    // Contents of `.git` depend on the version of git: their hashes are not for keeping.
    insta::with_settings!({
        filters => vec![
            (r#""files_read":\d+"#, r#""files_read":"[N]""#),
            (r#""(state|git)":"[0-9a-f]{64}""#, r#""$1":"[HASH]""#),
            (r#""(freed|size)_(bytes|objects|before|after)":\d+"#, r#""${1}_${2}":"[N]""#),
            (r#""cloned":\d+"#, r#""cloned":"[N]""#),
            (r#""commit":"[0-9a-f]{40}""#, r#""commit":"[COMMIT]""#),
        ],
        omit_expression => true,
        prepend_module_to_snapshot => false,
    }, {
        insta::assert_snapshot!(t.text());
    });
}

/// One document on one line; lists are `items`, newest first, and every item has an `id`.
fn expect_document(line: &str, ran: &Ran) {
    let document: Value = ran.json();
    assert_eq!(ran.out.lines().count(), 1, "{line} prints more than one line:\n{}", ran.out);
    assert!(document.is_object(), "{line}: {document}");
    for list in ["items", "files", "git", "excluded", "left_alone", "not_covered", "missing"] {
        // "files" is a list of files in one document and how many there are in another.
        let Some(items) = document.get(list).filter(|items| !items.is_number()) else { continue };
        let items = items.as_array().unwrap_or_else(|| panic!("{line}: {list} is no list: {document}"));
        for item in items {
            assert!(
                item.get("id").is_some_and(|id| !id.is_null()),
                "{line}: an item of {list} has no id: {item}"
            );
        }
        let numbers: Vec<u64> = items.iter().filter_map(|item| item["number"].as_u64()).collect();
        assert!(numbers.is_sorted_by(|newer, older| newer > older), "{line}: {list} is not newest first");
    }
}

#[test]
fn help() {
    let mut t = Transcript::new();
    let mut pending = vec![String::new()];
    while let Some(command) = pending.pop() {
        let line = format!("{command} --help").trim_start().to_string();
        let ran = t.world.run(words(&line));
        // At the top they are in groups, up to the options.
        let listed = match command.is_empty() {
            true => ran.out.split("\nGlobal options:\n").next(),
            false => ran.out.split("Commands:\n").nth(1).and_then(|rest| rest.split("\n\n").next()),
        };
        let below: Vec<&str> = listed
            .unwrap_or_default()
            .lines()
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
            .filter_map(|line| line.split_whitespace().next())
            .filter(|name| *name != "help")
            .collect();
        pending.extend(below.iter().rev().map(|name| format!("{command} {name}").trim_start().to_string()));
        let leaf = below.is_empty();
        assert!(!leaf || ran.out.contains("Examples:") || command == "points", "{command} has no examples");
        let (_, global) =
            ran.out.split_once("Global options:\n").unwrap_or_else(|| panic!("{line}: no global options"));
        assert!(
            ["--json", "--store", "--workspace", "-C"].iter().all(|option| global.contains(option)),
            "{line}"
        );
        t.note(&line, &ran);
    }
    t.run("points").run("");
    assert_transcript!(t.text());
}

#[test]
fn manual_and_completions() {
    let world = Sandbox::new();
    let manual = world.ok(["man"]).out;
    assert!(manual.contains(".TH stepback"), "{manual}");
    let branch = world.ok(["man", "branch", "create"]).out;
    assert!(branch.contains(".TH") && branch.contains("worktree"), "{branch}");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = world.ok(["completions", shell]).out;
        assert!(script.contains("STEPBACK_COMPLETE") && script.contains("stepback"), "{shell}");
    }
    assert!(world.ok(["--version"]).out.starts_with("stepback "));
}

#[test]
fn colours() {
    let world = Sandbox::frozen();
    world.write("file", "old\n");
    world.ok(["checkpoint", "create", "one"]);
    world.write("file", "new\n");
    let painted = |variables: &[(&str, &str)], arguments: &[&str]| {
        let ran: Ran = world.command(arguments).envs(variables.iter().copied()).output().unwrap().into();
        ran.out.contains('\x1b')
    };
    for arguments in [&["status"][..], &["log"], &["timeline"], &["diff"], &["changes"], &["op", "log"]] {
        assert!(!painted(&[], arguments), "{arguments:?}: no terminal, no colours");
        assert!(painted(&[("CLICOLOR_FORCE", "1")], arguments), "{arguments:?}: forced");
        assert!(
            !painted(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")], arguments),
            "{arguments:?}: NO_COLOR"
        );
        assert!(
            painted(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "")], arguments),
            "{arguments:?}: empty NO_COLOR"
        );
        let mut json = arguments.to_vec();
        json.push("--json");
        assert!(!painted(&[("CLICOLOR_FORCE", "1")], &json), "{json:?}: JSON has no colours");
    }
    // Without colours, the text is the same.
    let forced: Ran = world.command(["diff"]).env("CLICOLOR_FORCE", "1").output().unwrap().into();
    let mut plain = String::new();
    let mut rest = forced.out.as_str();
    while let Some(at) = rest.find('\x1b') {
        plain.push_str(&rest[..at]);
        rest = rest[at..].split_once('m').map_or("", |(_, rest)| rest);
    }
    plain.push_str(rest);
    assert_eq!(plain, world.ok(["diff"]).out);
}
