//! What has to be true after a cut.
//!
//! The disk is mounted as after a restart. Then, in the order in which a user would notice a loss: the store is intact
//! (`stepback fsck`), the next command repairs what an interrupted command left, the workspace is in the state before or
//! after that command, and everything that was acknowledged still exists.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use crate::cuts::{Cut, SeededDraws};
use crate::program::Program;
use crate::tree::DirectoryTree;
use crate::workload::{Promise, StepRecord};

/// How many of the older promises are checked at a cut; the newest ones always are.
const OLDER_PROMISES: usize = 2;

/// What had happened when the power was cut.
#[derive(Debug)]
pub struct Moment<'a> {
    /// The step that was going on, or the last one.
    pub step: &'a StepRecord,
    /// What the workspace may be; empty while the user was editing it.
    expected: Vec<&'a DirectoryTree>,
    promises: Vec<&'a Promise>,
}

impl<'a> Moment<'a> {
    /// Before the first command there is none.
    pub fn find(steps: &'a [StepRecord], position: usize) -> Option<Self> {
        let mut acknowledged: Vec<&StepRecord> =
            steps.iter().take_while(|step| step.acknowledged <= position).collect();
        let current = steps.get(acknowledged.len()).filter(|step| step.edited_from < position);
        let is_running = |step: &&StepRecord| step.started <= position;
        let (step, expected) = match (current, acknowledged.last()) {
            (Some(step), _) if step.started <= position => (step, vec![&step.before, &step.after]),
            (Some(step), _) => (step, Vec::new()),
            (None, Some(last)) => (*last, vec![&last.after]),
            (None, None) => return None,
        };
        let revoked: Vec<u64> =
            steps.iter().filter(is_running).flat_map(|step| step.revoked.iter().copied()).collect();
        let revoked_texts: Vec<&String> =
            steps.iter().filter(is_running).flat_map(|step| &step.revoked_texts).collect();
        let is_kept = |promise: &&Promise| match promise {
            Promise::Checkpoint(number, _) => !revoked.contains(number),
            Promise::Prints(_, text) => !revoked_texts.contains(&text),
            Promise::File(..) | Promise::Directory(..) | Promise::Store(_) => true,
        };
        let promises = acknowledged.drain(..).flat_map(|step| &step.promises).filter(is_kept).collect();
        Some(Self { step, expected, promises })
    }
}

/// What a check verified, for the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckCount {
    /// The number of acknowledged things that were verified to exist.
    pub promises: usize,
    /// Workspaces that were compared.
    pub trees: usize,
}

/// Checks a mounted disk; `scratch` is an empty directory elsewhere.
pub fn check(program: &Program, moment: &Moment<'_>, cut: Cut, scratch: &Path) -> Result<CheckCount> {
    let mut count = CheckCount::default();
    // Without a first acknowledged command, there may be no workspace yet.
    let has_promises = !moment.promises.is_empty();
    if !has_promises && !program.workspace().join("edited.txt").exists() {
        return Ok(count);
    }
    check_store(program, &[], has_promises).context("store")?;
    if has_promises {
        // Any command finishes a rewind that was cut.
        program.run(&["status"]).context("recovery")?;
    }
    if !moment.expected.is_empty() {
        let present_tree = DirectoryTree::read(&program.workspace())?;
        if !moment.expected.contains(&&present_tree) {
            let differences: Vec<String> = moment
                .expected
                .iter()
                .zip(["before", "after"])
                .map(|(tree, name)| format!("[{name}] {}", present_tree.differences(tree).join("; ")))
                .collect();
            bail!("the workspace is neither before nor after: {}", differences.join(" "));
        }
        count.trees += 1;
    }
    let mut random = SeededDraws::new(cut.seed ^ cut.position as u64);
    let (older, newest) = moment.promises.split_at(moment.promises.len().saturating_sub(2));
    let drawn = (0..OLDER_PROMISES.min(older.len())).map(|_| older[random.below(older.len())]);
    for promise in newest.iter().copied().chain(drawn.collect::<Vec<_>>()) {
        check_promise(program, promise, scratch).context("acknowledged and lost")?;
        count.promises += 1;
    }
    if has_promises && !moment.expected.is_empty() {
        // The store remains usable with what the cut left in it.
        program.run(&["checkpoint", "create", "after the cut"])?;
        check_store(program, &[], true).context("store after another checkpoint")?;
    }
    Ok(count)
}

/// `fsck` reports no problem. A store whose creation was not acknowledged may be missing.
fn check_store(program: &Program, options: &[&str], must_exist: bool) -> Result<()> {
    if !must_exist && !program.store().join("log.sqlite").exists() {
        return Ok(());
    }
    program.run(&[options, &["fsck"]].concat()).map(drop)
}

fn check_promise(program: &Program, promise: &Promise, scratch: &Path) -> Result<()> {
    match promise {
        Promise::Checkpoint(number, tree) => {
            let target = scratch.join("restored");
            let point = format!("#{number}");
            let target_path = target.to_str().context("a path that is not UTF-8")?;
            let restored = program.run(&["restore", &point, "--into", target_path, "--git"]);
            let restored_tree = restored.and_then(|_| DirectoryTree::read(&target));
            fs::remove_dir_all(&target).ok();
            let restored_tree = restored_tree.with_context(|| format!("checkpoint {point}"))?;
            let differences = restored_tree.differences(tree);
            ensure!(differences.is_empty(), "checkpoint {point}: {}", differences.join("; "));
        }
        Promise::Prints(args, text) => {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let printed = program.run(&args)?;
            ensure!(printed.contains(text), "stepback {} does not print {text:?}: {printed}", args.join(" "));
        }
        Promise::File(path, bytes) => {
            let restored_tree = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(
                restored_tree == *bytes,
                "{}: {} bytes instead of {}",
                path.display(),
                restored_tree.len(),
                bytes.len()
            );
        }
        Promise::Directory(path, tree) => {
            let differences = DirectoryTree::read(path)?.differences(tree);
            ensure!(differences.is_empty(), "{}: {}", path.display(), differences.join("; "));
        }
        Promise::Store(path) => {
            ensure!(path.join("log.sqlite").exists(), "{} has no database", path.display());
            let path = path.to_str().context("a path that is not UTF-8")?;
            check_store(program, &["--store", path], true)?;
        }
    }
    Ok(())
}
