//! Random work on a directory, against a reference that copies the whole directory every time.
//!
//! Every case draws file operations, checkpoints, rewinds (whole and of one path), undos, redos, prunes, budgets. The reference
//! knows nothing of objects, caches or journals: it keeps full copies and says, path by path, what must be there. After every
//! operation of stepback the workspace must be exactly that, with modes and links. There are no pauses, so edits of the same
//! size within one tick of the clock happen all the time.
//!
//! A failure prints the seed and everything that was done. `STEPBACK_MODEL_SEED=7` runs one case,
//! `STEPBACK_MODEL_CASES=1000` more of them, and `STEPBACK_MODEL_FIRST=1001` begins with another seed, so that a long run can
//! be divided.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use stepback_engine::prune::Rules;
use stepback_engine::rewind::{RewindReport, RewindRequest};
use stepback_engine::undo::{Reversal, UndoDirection};
use stepback_engine::{Engine, EngineError, Workspace};
use stepback_model::env::FrozenEnv;
use stepback_model::ids::StepId;
use stepback_model::record::{Annotation, Trigger};
use stepback_model::time::Timestamp;
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_testkit::tree::{self, Copy, Draw, Thing};
use stepback_testkit::work::{FileWorker, shorter};

const CASES: u64 = 40;
const OPERATIONS: usize = 260;

#[test]
fn a_workspace_is_always_what_a_naive_copy_says() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds: Vec<u64> = match number("STEPBACK_MODEL_SEED") {
        Some(seed) => vec![seed],
        None => {
            let first = number("STEPBACK_MODEL_FIRST").unwrap_or(1);
            (first..first + number("STEPBACK_MODEL_CASES").unwrap_or(CASES)).collect()
        }
    };
    println!("seeds {:?} to {:?}", seeds.first(), seeds.last());
    let mut done = Tally::default();
    for seed in seeds.iter().copied() {
        let mut log = Vec::new();
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| case(seed, &mut log, &mut done)));
        let problem = match outcome {
            Ok(Ok(())) => continue,
            Ok(Err(problem)) => problem,
            Err(_) => "it panicked (see above)".into(),
        };
        panic!("seed {seed}: {problem}\nwhat was done:\n  {}", log.join("\n  "));
    }
    println!("{done:?}");
    if seeds.len() as u64 >= CASES {
        assert!(done.all >= 10_000, "too little was tried: {done:?}");
        let rarest = [done.checkpoints, done.rewinds, done.path_rewinds, done.undos, done.redos, done.prunes];
        assert!(rarest.iter().all(|count| *count >= 100), "something was hardly tried: {done:?}");
    }
}

#[derive(Debug, Default)]
struct Tally {
    all: usize,
    checkpoints: usize,
    rewinds: usize,
    path_rewinds: usize,
    undos: usize,
    redos: usize,
    prunes: usize,
}

fn case(seed: u64, log: &mut Vec<String>, done: &mut Tally) -> Result<(), String> {
    // Most cases in memory, because syncing a busy disk thousands of times takes minutes; some on the real disk.
    let place = if seed.is_multiple_of(10) { std::env::temp_dir() } else { tree::scratch_place() };
    let dir = tempfile::tempdir_in(place).unwrap();
    let root = dir.path().canonicalize().unwrap().join("work");
    fs::create_dir(&root).unwrap();
    let store: Arc<dyn Store> = if seed.is_multiple_of(4) {
        Arc::new(MemoryStore::new(1 << 30))
    } else {
        Arc::new(EmbeddedStore::open(&dir.path().join("store")).unwrap())
    };
    let env = FrozenEnv::new(Timestamp::from_micros(1_700_000_000_000_000), seed);
    let threads = 1 + usize::from(seed.is_multiple_of(3));
    let engine = Engine { threads, ..Engine::new(store, Arc::new(env)) };
    let workspace = engine.open_workspace_root(&root).map_err(|error| error.to_string())?;
    let mut world = ModelRun {
        files: FileWorker { root: root.clone(), draw: Draw::new(seed) },
        workspace,
        kept: Vec::new(),
        operations: Vec::new(),
    };
    world.files.write(&root.join(".gitignore"), b"*.log\nignored/\n");
    for _ in 0..OPERATIONS {
        done.all += 1;
        world.operate(log, done)?;
    }
    world.every_visible_checkpoint_is_whole(&dir.path().join("elsewhere"))?;
    let health = engine.verify_objects().map_err(|error| error.to_string())?;
    if health.problems.is_empty() {
        Ok(())
    } else {
        Err(format!("the store is damaged: {:?}", health.problems))
    }
}

/// A checkpoint and the reference's copy of what it must hold.
struct Kept {
    step: StepId,
    copy: Rc<Copy>,
    visible: bool,
}

/// What a file-changing operation did, by the reference.
#[derive(Clone)]
struct Moved {
    before: Rc<Copy>,
    after: Rc<Copy>,
    steps: [StepId; 2],
}

enum Did {
    Create(StepId),
    Prune(Vec<StepId>),
    Rewind(Moved),
    Undo(usize, Option<Moved>),
    Redo(usize, Option<Moved>),
}

struct Operation {
    did: Did,
    undone: bool,
}

struct ModelRun {
    files: FileWorker,
    workspace: Workspace,
    kept: Vec<Kept>,
    operations: Vec<Operation>,
}

/// Adds what the rewind itself says to a problem.
fn with_report(problem: String, report: &RewindReport) -> String {
    let outcomes: Vec<String> =
        report.outcomes.iter().map(|(change, outcome)| format!("  {}: {outcome:?}\n", change.path)).collect();
    let left = report.left_alone.iter().map(|left| format!("  {}: {}\n", left.path, left.reason));
    format!("{problem}outcomes:\n{}left alone:\n{}", outcomes.concat(), left.collect::<String>())
}

fn text(error: EngineError) -> String {
    error.to_string()
}

impl ModelRun {
    fn operate(&mut self, log: &mut Vec<String>, done: &mut Tally) -> Result<(), String> {
        let before = self.now();
        match self.files.draw.below(20) {
            0 | 1 => {
                log.push("checkpoint".into());
                done.checkpoints += 1;
                self.checkpoint(&before)?;
            }
            2 => {
                done.rewinds += 1;
                self.rewind(&before, None, log)?;
            }
            3 => {
                let Some(path) = self.some_path(&before) else { return Ok(()) };
                done.path_rewinds += 1;
                self.rewind(&before, Some(path), log)?;
            }
            4 => {
                log.push("undo".into());
                done.undos += 1;
                self.undo(&before)?;
            }
            5 => {
                log.push("redo".into());
                done.redos += 1;
                self.redo(&before)?;
            }
            6 => {
                let rules = Rules {
                    keep_last: Some(self.files.draw.below(12)),
                    now: self.files.draw.once_in(3),
                    ..Rules::default()
                };
                log.push(format!("prune, keep {:?}, now: {}", rules.keep_last, rules.now));
                done.prunes += 1;
                self.prune(&before, rules)?;
            }
            7 if self.files.draw.once_in(2) => {
                log.push("prune for a budget".into());
                self.prune_for_budget(&before)?;
            }
            _ => log.push(self.files.change()),
        }
        Ok(())
    }

    fn now(&self) -> Copy {
        tree::copy_of(&self.files.root, |_| false)
    }

    fn expect(&self, expected: &Copy) -> Result<(), String> {
        let differences = tree::differences(expected, &self.now());
        if differences.is_empty() {
            Ok(())
        } else {
            Err(format!("the workspace is wrong:\n{}", shorter(&differences)))
        }
    }

    fn keep(&mut self, step: StepId, copy: Rc<Copy>) {
        if !self.kept.iter().any(|kept| kept.step == step) {
            self.kept.push(Kept { step, copy, visible: true });
        }
    }

    fn set_visible(&mut self, steps: &[StepId], visible: bool) {
        for kept in self.kept.iter_mut().filter(|kept| steps.contains(&kept.step)) {
            kept.visible = visible;
        }
    }

    fn is_purged(&self, step: StepId) -> bool {
        self.workspace.store().step(step).unwrap().unwrap().purged
    }

    fn checkpoint(&mut self, before: &Copy) -> Result<(), String> {
        let created =
            self.workspace.create_checkpoint(Annotation::default(), Trigger::Automatic).map_err(text)?;
        if let Some(trouble) = created.skipped_paths.first() {
            return Err(format!("trouble with {}: {}", trouble.path, trouble.reason));
        }
        let step = created.stored.step.id;
        self.keep(step, Rc::new(stored(before)));
        self.operations.push(Operation { did: Did::Create(step), undone: false });
        self.expect(before)
    }

    /// A path in the workspace or in some checkpoint that a person could type.
    fn some_path(&mut self, now: &Copy) -> Option<Vec<u8>> {
        let mut paths: BTreeSet<&Vec<u8>> = now.keys().collect();
        paths.extend(self.kept.iter().filter(|kept| kept.visible).flat_map(|kept| kept.copy.keys()));
        let typable = |path: &&Vec<u8>| std::str::from_utf8(path).is_ok() && !is_excluded(path);
        let paths: Vec<Vec<u8>> = paths.into_iter().filter(typable).cloned().collect();
        (!paths.is_empty()).then(|| self.files.draw.pick(&paths).clone())
    }

    fn rewind(&mut self, now: &Copy, path: Option<Vec<u8>>, log: &mut Vec<String>) -> Result<(), String> {
        let visible: Vec<usize> = (0..self.kept.len()).filter(|at| self.kept[*at].visible).collect();
        if visible.is_empty() {
            return Ok(());
        }
        let at = *self.files.draw.pick(&visible);
        let (step, copy) = (self.kept[at].step, self.kept[at].copy.clone());
        let target = self.workspace.store().step(step).unwrap().unwrap();
        let shown = path.as_deref().map(|path| shorter(&path.escape_ascii().to_string()));
        log.push(format!("rewind of {shown:?} to #{}", target.step.number));
        let paths: Vec<String> = path.iter().map(|path| String::from_utf8(path.clone()).unwrap()).collect();
        let whole = paths.is_empty();
        let request = RewindRequest { target: Some(target), paths, ..RewindRequest::default() };
        let prepared = match self.workspace.prepare_rewind(&request) {
            Err(EngineError::NothingMatches { .. })
                if path.as_ref().is_some_and(|path| !now.contains_key(path) && !copy.contains_key(path)) =>
            {
                return self.expect(now);
            }
            other => other.map_err(text)?,
        };
        self.expect(now)?;
        let report = self.workspace.apply_rewind(prepared).map_err(text)?;
        let expected = direct(now, &copy, path.as_deref());
        self.expect(&expected).map_err(|problem| with_report(problem, &report))?;
        let moved = self.moved(&report, now, &expected);
        if whole {
            self.keep(moved.steps[0], moved.before.clone());
            self.keep(moved.steps[1], moved.after.clone());
        }
        self.operations.push(Operation { did: Did::Rewind(moved), undone: false });
        Ok(())
    }

    fn moved(&self, report: &RewindReport, before: &Copy, after: &Copy) -> Moved {
        let moved = report.operation.action.moved().unwrap();
        Moved {
            before: Rc::new(stored(before)),
            after: Rc::new(stored(after)),
            steps: [moved.before, moved.after],
        }
    }

    fn undo(&mut self, now: &Copy) -> Result<(), String> {
        let undoable = |op: &Operation| !op.undone && !matches!(op.did, Did::Undo(..) | Did::Redo(..));
        let Some(target) = self.operations.iter().rposition(undoable) else {
            return match self.workspace.prepare_undo(None) {
                Err(EngineError::NothingToUndo(_)) => Ok(()),
                _ => Err("there was nothing to undo, and something was undone".into()),
            };
        };
        let moved = match &self.operations[target].did {
            Did::Rewind(moved) => {
                let redone = self.operations.iter().rev().find_map(|op| match &op.did {
                    Did::Redo(of, moved) if *of == target => moved.clone(),
                    _ => None,
                });
                Some(redone.unwrap_or_else(|| moved.clone()))
            }
            _ => None,
        };
        self.reverse(now, target, moved, UndoDirection::Undo)
    }

    fn redo(&mut self, now: &Copy) -> Result<(), String> {
        let undo = self.operations.iter().rev().find_map(|op| match &op.did {
            Did::Undo(target, moved) if self.operations[*target].undone => Some((*target, moved.clone())),
            _ => None,
        });
        let Some((target, moved)) = undo else {
            return match self.workspace.prepare_redo() {
                Err(EngineError::NothingToUndo(_)) => Ok(()),
                _ => Err("there was nothing to redo, and something was redone".into()),
            };
        };
        self.reverse(now, target, moved, UndoDirection::Redo)
    }

    fn reverse(
        &mut self,
        now: &Copy,
        target: usize,
        moved: Option<Moved>,
        direction: UndoDirection,
    ) -> Result<(), String> {
        let undo = direction == UndoDirection::Undo;
        let needed: Vec<StepId> = match (&self.operations[target].did, &moved) {
            (_, Some(moved)) => moved.steps.to_vec(),
            (Did::Prune(steps), _) if undo => steps.clone(),
            (Did::Create(step), _) if !undo => vec![*step],
            _ => Vec::new(),
        };
        let lost = needed.iter().any(|step| self.is_purged(*step));
        let prepared = if undo { self.workspace.prepare_undo(None) } else { self.workspace.prepare_redo() };
        let reversal = match prepared {
            Err(EngineError::Purged { .. } | EngineError::CannotUndo(_)) if lost => return self.expect(now),
            Ok(_) if lost => return Err("it brought back what a prune had freed".into()),
            other => other.map_err(text)?,
        };
        match (&reversal, &moved) {
            (Reversal::Files { .. }, Some(_)) | (Reversal::Log { .. }, None) => {}
            _ => return Err("it reverses another operation than the last".into()),
        }
        self.expect(now)?;
        let report = self.workspace.apply_reversal(reversal, direction).map_err(text)?.into_files();
        let again = match (&moved, &report) {
            (Some(moved), Some(report)) => {
                let expected = three_way(now, &moved.after, &moved.before);
                self.expect(&expected).map_err(|problem| with_report(problem, report))?;
                Some(self.moved(report, now, &expected))
            }
            _ => {
                self.expect(now)?;
                None
            }
        };
        let log_change = match &self.operations[target].did {
            Did::Create(step) => Some((vec![*step], !undo)),
            Did::Prune(steps) => Some((steps.clone(), undo)),
            _ => None,
        };
        if let Some((steps, visible)) = log_change {
            self.set_visible(&steps, visible);
        }
        self.operations[target].undone = undo;
        let did = if undo { Did::Undo(target, again) } else { Did::Redo(target, again) };
        self.operations.push(Operation { did, undone: false });
        self.check_visible()
    }

    fn prune(&mut self, now: &Copy, rules: Rules) -> Result<(), String> {
        let visible = self.workspace.checkpoints().map_err(text)?;
        let plan = self.workspace.plan_prune(rules).map_err(text)?;
        let hidden: Vec<StepId> = plan.hide.iter().map(|stored| stored.step.id).collect();
        let head = self.workspace.head_id().map_err(text)?;
        let newest = visible.iter().take(rules.keep_last.unwrap()).map(|stored| stored.step.id);
        if let Some(step) = newest.chain(head).find(|step| hidden.contains(step)) {
            return Err(format!("the prune takes {step}, which must stay"));
        }
        self.workspace.prune(plan).map_err(text)?;
        self.expect(now)?;
        self.set_visible(&hidden, false);
        if !hidden.is_empty() {
            self.operations.push(Operation { did: Did::Prune(hidden), undone: false });
        }
        self.check_visible()
    }

    /// What it takes is gone for good, and undo passes over it; the head, and what a rewind or its undo went between, stay.
    fn prune_for_budget(&mut self, now: &Copy) -> Result<(), String> {
        let size = self.workspace.store().usage().unwrap().total_bytes;
        let percent = 20 + self.files.draw.below(100) as u64;
        self.workspace.engine.enforce_budget(size * percent / 100).map_err(text)?;
        self.expect(now)?;
        let left = self.workspace.checkpoints().map_err(text)?;
        let is_gone = |step: &StepId| !left.iter().any(|stored| stored.step.id == *step);
        let shown = self.kept.iter().filter(|kept| kept.visible);
        let gone: Vec<StepId> = shown.map(|kept| kept.step).filter(is_gone).collect();
        if self.workspace.head_id().map_err(text)?.is_some_and(|head| gone.contains(&head)) {
            return Err("the pruning takes the head".into());
        }
        self.set_visible(&gone, false);
        self.check_visible()
    }

    fn check_visible(&self) -> Result<(), String> {
        let found = self.workspace.checkpoints().map_err(text)?;
        for kept in &self.kept {
            let is = found.iter().any(|stored| stored.step.id == kept.step);
            if is != kept.visible {
                return Err(format!(
                    "checkpoint {} should be visible: {}; it is: {is}",
                    kept.step, kept.visible
                ));
            }
        }
        Ok(())
    }

    fn every_visible_checkpoint_is_whole(&self, into: &Path) -> Result<(), String> {
        for (number, kept) in self.kept.iter().filter(|kept| kept.visible).enumerate() {
            let stored = self.workspace.store().step(kept.step).unwrap().unwrap();
            let state = self.workspace.load_state(&stored).map_err(text)?;
            let into = into.join(number.to_string());
            self.workspace.materialize(&state, &into, false).map_err(text)?;
            let differences = tree::differences(&kept.copy, &tree::copy_of(&into, |_| false));
            if !differences.is_empty() {
                return Err(format!("#{} put elsewhere is wrong:\n{differences}", stored.step.number));
            }
        }
        Ok(())
    }
}

// ---- The reference: what must be there, path by path. ----

/// What stepback does not cover in these cases.
fn is_excluded(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|name| name == b"node_modules")
}

fn stored(copy: &Copy) -> Copy {
    copy.iter()
        .filter(|(path, _)| !is_excluded(path))
        .map(|(path, thing)| (path.clone(), thing.clone()))
        .collect()
}

fn parent(path: &[u8]) -> Option<&[u8]> {
    path.iter().rposition(|byte| *byte == b'/').map(|at| &path[..at])
}

fn is_below(path: &[u8], dir: &[u8]) -> bool {
    path.len() > dir.len() && path.starts_with(dir) && path[dir.len()] == b'/'
}

/// One planned change: where, from what, to what.
type Planned = (Vec<u8>, Option<Thing>, Option<Thing>);

/// Going straight to `target`, or with `only` as far as that path is concerned.
fn direct(now: &Copy, target: &Copy, only: Option<&[u8]>) -> Copy {
    let mut plan: Vec<Planned> = Vec::new();
    let paths: BTreeSet<&Vec<u8>> = now.keys().chain(target.keys()).collect();
    for path in paths {
        let (is, wanted) = (now.get(path), target.get(path));
        let asked = only.is_none_or(|only| path == only || is_below(path, only));
        if is_excluded(path) || is == wanted || !asked {
            continue;
        }
        // A directory that holds something not covered stays.
        let goes = is.is_some_and(Thing::is_dir) && !wanted.is_some_and(Thing::is_dir);
        if goes && now.keys().any(|other| is_below(other, path) && is_excluded(other)) {
            continue;
        }
        plan.push((path.clone(), is.cloned(), wanted.cloned()));
    }
    // A file that comes back needs the directories it was in.
    if only.is_some() {
        let mut missing = BTreeSet::new();
        for (path, _, wanted) in &plan {
            let mut above = wanted.as_ref().and_then(|_| parent(path));
            while let Some(dir) = above.filter(|dir| !now.contains_key(*dir)) {
                missing.insert(dir.to_vec());
                above = parent(dir);
            }
        }
        missing.retain(|dir| plan.iter().all(|(path, ..)| path != dir));
        plan.extend(missing.into_iter().map(|dir| (dir.clone(), None, target.get(&dir).cloned())));
    }
    applied(now, plan)
}

/// Taking back what led from `wanted` to `left`, under whatever happened since.
fn three_way(now: &Copy, left: &Copy, wanted: &Copy) -> Copy {
    let mut plan: std::collections::BTreeMap<Vec<u8>, Option<Thing>> = Default::default();
    let paths: BTreeSet<&Vec<u8>> = left.keys().chain(wanted.keys()).collect();
    for path in paths {
        let (is, left, wanted) = (now.get(path), left.get(path), wanted.get(path));
        if left == wanted || is == wanted {
            continue;
        }
        if is == left {
            plan.insert(path.clone(), wanted.cloned());
            continue;
        }
        let merged = match (left, is, wanted) {
            (Some(Thing::Dir(left)), Some(Thing::Dir(ours)), Some(Thing::Dir(theirs))) => {
                Some(Thing::Dir(if ours == left { *theirs } else { *ours }))
            }
            (
                Some(Thing::File(left_mode, left)),
                Some(Thing::File(our_mode, ours)),
                Some(Thing::File(their_mode, theirs)),
            ) => {
                let mode = if our_mode == left_mode { *their_mode } else { *our_mode };
                // Files here have one line, so two different edits always touch.
                if left == theirs || ours == theirs {
                    Some(Thing::File(mode, ours.clone()))
                } else if left == ours {
                    Some(Thing::File(mode, theirs.clone()))
                } else {
                    None
                }
            }
            _ => None,
        };
        if let Some(merged) = merged {
            plan.insert(path.clone(), Some(merged));
        }
    }
    let coming: Vec<Vec<u8>> =
        plan.iter().filter(|(_, thing)| thing.is_some()).map(|(path, _)| path.clone()).collect();
    for path in coming {
        let mut above = parent(&path);
        while let Some(dir) = above {
            let there = plan.get(dir).map_or(now.get(dir), |thing| thing.as_ref());
            if there.is_some() {
                break;
            }
            plan.insert(dir.to_vec(), Some(wanted.get(dir).cloned().unwrap_or(Thing::Dir(0o755))));
            above = parent(dir);
        }
    }
    let plan = plan.into_iter().map(|(path, then)| (path.clone(), now.get(&path).cloned(), then));
    applied(now, plan.filter(|(_, is, then)| is != then).collect())
}

/// What carrying out a plan leads to: whatever is in the way and not part of the plan stays.
fn applied(now: &Copy, mut plan: Vec<Planned>) -> Copy {
    let mut result = now.clone();
    let key =
        |path: &[u8]| -> Vec<u8> { path.iter().map(|byte| if *byte == b'/' { 0 } else { *byte }).collect() };
    plan.sort_by_key(|(path, ..)| key(path));
    let stands = |result: &Copy, path: &[u8]| {
        parent(path).is_none_or(|dir| result.get(dir).is_some_and(Thing::is_dir))
    };
    for (path, is, then) in plan.iter().rev() {
        let Some(is) = is else { continue };
        let goes = then.as_ref().is_none_or(|then| then.is_dir() != is.is_dir());
        let holds = is.is_dir() && result.keys().any(|other| is_below(other, path));
        if goes && !holds {
            result.remove(path);
        }
    }
    for (path, _, then) in &plan {
        if let Some(Thing::Dir(mode)) = then
            && stands(&result, path)
            && result.get(path).is_none_or(Thing::is_dir)
        {
            result.insert(path.clone(), Thing::Dir(*mode));
        }
    }
    for (path, is, then) in &plan {
        let Some(then) = then.as_ref().filter(|then| !then.is_dir()) else { continue };
        let free = match is {
            Some(is) if !is.is_dir() => true,
            _ => !result.contains_key(path),
        };
        if free && stands(&result, path) {
            result.insert(path.clone(), then.clone());
        }
    }
    result
}
