//! The commands whose writes are cut, and what each promised when it returned.
//!
//! A step is an edit by the user, which is synced, and then one command. What the command acknowledged has to be there after
//! every later cut, until a later step takes the promise back (a deletion, a prune).

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail, ensure};

use crate::cuts::SeededDraws;
use crate::disk::Disk;
use crate::program::Program;
use crate::tree::{DirectoryTree, git};

/// Something that a command acknowledged.
#[derive(Clone, Debug)]
pub enum Promise {
    /// This checkpoint can be restored, with git.
    Checkpoint(u64, DirectoryTree),
    /// A command prints this text.
    Prints(Vec<String>, String),
    /// A file has this content.
    File(PathBuf, Vec<u8>),
    /// A directory has this content.
    Directory(PathBuf, DirectoryTree),
    /// A second store is complete and has this many checkpoints.
    Store(PathBuf),
}

/// One step, as it was recorded. Positions count entries of the log.
#[derive(Debug)]
pub struct StepRecord {
    /// What the report calls it.
    pub name: &'static str,
    /// Where the user's edit started.
    pub edited_from: usize,
    /// Where the command started.
    pub started: usize,
    /// Where it had returned.
    pub acknowledged: usize,
    /// The workspace before the command.
    pub before: DirectoryTree,
    /// The workspace after it.
    pub after: DirectoryTree,
    /// What it acknowledged.
    pub promises: Vec<Promise>,
    /// Checkpoints that it may have removed once it started.
    pub revoked: Vec<u64>,
    /// Texts that were printed before it and, because of what it removed, are not printed after it.
    pub revoked_texts: Vec<String>,
}

/// What a step does besides running its command.
#[derive(Default)]
struct Plan {
    edit: Option<fn(&Path) -> Result<()>>,
    /// A file on the disk that the command reads.
    input: Option<&'static str>,
    /// What it promises besides what its output says.
    promise: Option<fn(&Program) -> Result<Promise>>,
    /// Whether older checkpoints may go.
    removes: bool,
}

/// Runs every step on a mounted disk that is being recorded.
pub fn run(program: &Program, disk: &Mutex<Disk>) -> Result<Vec<StepRecord>> {
    let mut recorder = Recorder { program, disk, steps: Vec::new() };
    recorder.run_all()?;
    Ok(recorder.steps)
}

/// Makes the directories and what no step promises.
pub fn prepare(program: &Program) -> Result<()> {
    for directory in ["workspace", "home", "store", "out"] {
        fs::create_dir(program.on_disk(directory))?;
    }
    // A process that goes on running would keep the disk mounted.
    fs::write(program.store().join("settings.json"), "{\n  \"watcher\": 0\n}")?;
    for event in ["PreToolUse", "PostToolUse"] {
        let payload = serde_json::json!({
            "session_id": "powerloss", "hook_event_name": event, "cwd": program.workspace(), "tool_name": "Bash",
            "tool_use_id": "call-1", "tool_input": { "command": "make" }, "tool_response": {},
        });
        fs::write(program.on_disk(&format!("out/{event}.json")), payload.to_string())?;
    }
    Ok(())
}

struct Recorder<'a> {
    program: &'a Program,
    disk: &'a Mutex<Disk>,
    steps: Vec<StepRecord>,
}

impl Recorder<'_> {
    fn run_all(&mut self) -> Result<()> {
        let edit = |edit: fn(&Path) -> Result<()>| Plan { edit: Some(edit), ..Plan::default() };
        let promise =
            |promise: fn(&Program) -> Result<Promise>| Plan { promise: Some(promise), ..Plan::default() };
        let default_plan = Plan::default;

        self.step("checkpoint create (a new store)", &["checkpoint", "create", "first"], edit(lay_out))?;
        self.step("checkpoint create (small)", &["checkpoint", "create", "small"], edit(change_a_line))?;
        self.step("checkpoint create (large)", &["checkpoint", "create", "large"], edit(change_many_files))?;
        self.step("checkpoint create (git commit)", &["checkpoint", "create", "commit"], edit(commit))?;
        self.step("checkpoint create (git gc)", &["checkpoint", "create", "gc"], edit(collect_garbage))?;
        self.step("rewind", &["rewind", "first", "--yes"], default_plan())?;
        self.step("undo", &["undo", "--yes"], default_plan())?;
        self.step(
            "rewind --git",
            &["rewind", "first", "--files", "--git", "--everything", "--yes"],
            default_plan(),
        )?;
        self.step("undo (of --git)", &["undo", "--yes"], default_plan())?;
        self.step("redo", &["redo", "--yes"], default_plan())?;
        self.step("rewind --path", &["rewind", "large", "--path", "large.bin", "--yes"], default_plan())?;
        self.step(
            "checkpoint annotate",
            &["checkpoint", "annotate", "first", "an acknowledged note"],
            promise(|_| Ok(expect_print(&["checkpoint", "list", "--json"], "an acknowledged note"))),
        )?;
        self.step(
            "branch create",
            &["branch", "create", "other", "--from", "small"],
            promise(|_| Ok(expect_print(&["branch", "list", "--json"], "\"other\""))),
        )?;
        self.step("branch switch", &["branch", "switch", "other", "--yes"], default_plan())?;
        self.step("branch switch (back)", &["branch", "switch", "main", "--yes"], default_plan())?;
        self.step(
            "board note",
            &["board", "note", "add", "an acknowledged thought"],
            promise(|program| {
                // The session is named, because a later one of an agent would be the default.
                let first = program.json(&["checkpoint", "show", "first"])?;
                let session = first["session"].as_str().context("a checkpoint without a session")?;
                let list = ["board", "note", "list", "--session", session, "--json"];
                Ok(expect_print(&list, "an acknowledged thought"))
            }),
        )?;
        self.step(
            "settings",
            &["settings", "checkpoint.minutes", "137"],
            promise(|_| Ok(expect_print(&["settings", "checkpoint.minutes"], "137"))),
        )?;
        let before_call = Plan { input: Some("out/PreToolUse.json"), ..default_plan() };
        self.step("hook (before a call)", &["hook", "claude"], before_call)?;
        let after_call = Plan {
            input: Some("out/PostToolUse.json"),
            promise: Some(expect_newest_checkpoint),
            ..edit(change_a_line)
        };
        self.step("hook (after a call)", &["hook", "claude"], after_call)?;
        let bundle = self.program.on_disk("out/session.bundle");
        self.step(
            "export",
            &["export", "--output", text(&bundle)?],
            promise(|program| {
                let file = program.on_disk("out/session.bundle");
                Ok(Promise::File(file.clone(), fs::read(file)?))
            }),
        )?;
        let restored = self.program.on_disk("out/restored");
        self.step(
            "restore --into",
            &["restore", "large", "--into", text(&restored)?],
            promise(|program| {
                let directory = program.on_disk("out/restored");
                Ok(Promise::Directory(directory.clone(), DirectoryTree::read(&directory)?))
            }),
        )?;
        let (store, copy) = (self.program.store(), self.program.on_disk("copy"));
        self.step(
            "store copy",
            &["store", "copy", text(&store)?, text(&copy)?],
            promise(|program| Ok(Promise::Store(program.on_disk("copy")))),
        )?;
        let second = self.program.on_disk("second");
        self.step(
            "import (into a new store)",
            &["--store", text(&second)?, "import", text(&bundle)?],
            promise(|program| Ok(Promise::Store(program.on_disk("second")))),
        )?;
        let removing = || Plan { removes: true, ..Plan::default() };
        self.step("checkpoint delete", &["checkpoint", "delete", "small"], removing())?;
        self.step("prune --now", &["prune", "--keep-last", "4", "--now"], removing())?;
        self.step(
            "checkpoint create (after a prune)",
            &["checkpoint", "create", "last"],
            edit(change_many_files),
        )
    }

    fn position(&self) -> usize {
        self.disk.lock().unwrap_or_else(std::sync::PoisonError::into_inner).position()
    }

    /// Returns the promised texts that are not printed, for example because the checkpoint that they describe was removed.
    fn texts_not_printed(&self) -> Result<Vec<String>> {
        let mut missing = Vec::new();
        for promise in self.steps.iter().flat_map(|step| &step.promises) {
            let Promise::Prints(args, text) = promise else { continue };
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            if !self.program.run(&args)?.contains(text) {
                missing.push(text.clone());
            }
        }
        Ok(missing)
    }

    fn step(&mut self, name: &'static str, args: &[&str], plan: Plan) -> Result<()> {
        let workspace = self.program.workspace();
        let edited_from = self.position();
        if let Some(edit) = plan.edit {
            edit(&workspace)?;
            rustix::fs::sync();
        }
        let tree_before = DirectoryTree::read(&workspace)?;
        let checkpoints_before = if plan.removes { self.program.checkpoints()? } else { Vec::new() };
        // Reading updates access times. Those writes come before `started`, so that no command is charged with them.
        let started = self.position();
        let input = plan.input.map(|name| self.program.on_disk(name));
        let makes_checkpoint = args.starts_with(&["checkpoint", "create"]);
        let args: Vec<&str> = if makes_checkpoint { [args, &["--json"]].concat() } else { args.to_vec() };
        let output = self.program.output(&args, input.as_deref())?;
        let acknowledged = self.position();
        if !output.status.success() {
            bail!(
                "{name}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let tree_after = DirectoryTree::read(&workspace)?;
        let mut promises = Vec::new();
        if makes_checkpoint {
            let step: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            let number = step["number"].as_u64().context("a checkpoint without a number")?;
            promises.push(Promise::Checkpoint(number, tree_after.clone()));
        }
        if let Some(promise) = plan.promise {
            promises.push(promise(self.program)?);
        }
        let (mut revoked, mut revoked_texts) = (checkpoints_before, Vec::new());
        if plan.removes {
            let checkpoints_left = self.program.checkpoints()?;
            revoked.retain(|number| !checkpoints_left.contains(number));
            revoked_texts = self.texts_not_printed()?;
        }
        self.steps.push(StepRecord {
            name,
            edited_from,
            started,
            acknowledged,
            before: tree_before,
            after: tree_after,
            promises,
            revoked,
            revoked_texts,
        });
        Ok(())
    }
}

fn expect_print(args: &[&str], text: &str) -> Promise {
    Promise::Prints(args.iter().map(|arg| (*arg).to_owned()).collect(), text.to_owned())
}

/// The newest checkpoint, which holds the workspace as it is.
fn expect_newest_checkpoint(program: &Program) -> Result<Promise> {
    let log = program.json(&["log"])?;
    let newest = &log["items"][0];
    ensure!(newest["checkpoint"] == true, "the newest step is not a checkpoint: {newest}");
    let number = newest["number"].as_u64().context("a step without a number")?;
    Ok(Promise::Checkpoint(number, DirectoryTree::read(&program.workspace())?))
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}

fn lay_out(root: &Path) -> Result<()> {
    fs::create_dir_all(root.join("nested/deep"))?;
    fs::create_dir(root.join("folds"))?;
    let files = [
        ("keep.txt", "the same all the time\n"),
        ("edited.txt", "as it was\n"),
        ("deleted.txt", "not needed any more\n"),
        ("tool.sh", "#!/bin/sh\n"),
        ("nested/deep/file", "deep\n"),
        ("turns", "a file that becomes a directory\n"),
        ("folds/a", "a directory that becomes a file\n"),
    ];
    for (name, content) in files {
        fs::write(root.join(name), content)?;
    }
    fs::write(root.join("large.bin"), SeededDraws::new(1).bytes(150_000))?;
    symlink("keep.txt", root.join("link"))?;
    for (name, mode) in [("nested/deep", 0o750), ("tool.sh", 0o755), ("keep.txt", 0o600)] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode))?;
    }
    git(root, &["init", "--quiet", "--initial-branch=main"])?;
    git(root, &["add", "keep.txt", "edited.txt"])?;
    git(root, &["commit", "--quiet", "-m", "one"])?;
    Ok(())
}

fn change_a_line(root: &Path) -> Result<()> {
    let file = root.join("edited.txt");
    let mut content = fs::read(&file)?;
    content.extend(b"one line more\n");
    fs::write(file, content)?;
    Ok(())
}

fn change_many_files(root: &Path) -> Result<()> {
    let seed = fs::read(root.join("edited.txt"))?.len() as u64;
    fs::write(root.join("large.bin"), SeededDraws::new(seed).bytes(300_000))?;
    for name in ["deleted.txt", "turns", "link"] {
        if root.join(name).is_file() {
            fs::remove_file(root.join(name))?;
        }
    }
    if root.join("nested").is_dir() {
        fs::remove_dir_all(root.join("nested"))?;
    }
    if root.join("folds").is_dir() {
        fs::remove_dir_all(root.join("folds"))?;
    }
    fs::create_dir_all(root.join("turns"))?;
    fs::write(root.join("turns/inside"), "now a directory\n")?;
    fs::write(root.join("folds"), "now a file\n")?;
    for number in 0..12 {
        fs::write(root.join(format!("created-{number}")), format!("new {number}\n"))?;
    }
    Ok(())
}

fn commit(root: &Path) -> Result<()> {
    git(root, &["add", "--all"])?;
    git(root, &["commit", "--quiet", "-m", "two"])?;
    git(root, &["branch", "topic"])?;
    Ok(())
}

fn collect_garbage(root: &Path) -> Result<()> {
    git(root, &["gc", "--quiet"])?;
    change_a_line(root)
}
