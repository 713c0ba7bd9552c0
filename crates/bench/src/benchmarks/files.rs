//! `bench files`: the rounds of measurements on each tree.
//!
//! Within an operation the systems take turns, and the order rotates, so that a slow moment of the machine
//! hits all alike. What is changed is prepared before the clock starts, and what a system wrote is flushed
//! before the next one is measured, so that no system pays for another's writes.

use std::collections::HashMap;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};

use crate::input::changes::{Candidates, ChangeScript, SavedFiles};
use crate::input::trees::{SourceTree, remove};
use crate::measure::clock::Cost;
use crate::measure::manifest::Manifest;
use crate::report::results::{Row, TreeResults};
use crate::report::{goals, markdown};
use crate::run::{Findings, Run, SETTLE, flush};
use crate::systems::{self, System};

/// Operations of systems that need seconds where others need milliseconds are repeated less often.
const SLOW: [&str; 2] = ["restic", "borg"];

/// The operations measured on every tree, in order.
pub const OPERATIONS: [&str; 11] = [
    "first",
    "none",
    "change-1",
    "change-10",
    "change-1000",
    "restore-1",
    "restore-10",
    "restore-1000",
    "path",
    "diff-1",
    "diff-1000",
];

/// Measures all operations on every tree, the size of the stores, and a large file.
pub fn measure(run: &mut Run<'_>, trees: &[SourceTree]) -> Result<Findings> {
    for tree in trees {
        run.measure_tree(tree)?;
    }
    if let Some(middle) = trees.iter().min_by_key(|tree| tree.files.abs_diff(8_000)) {
        run.measure_stores(middle)?;
    }
    run.large_file()?;
    let goals = goals::judge(&run.results);
    let report = markdown::render_files(&run.results, &goals);
    Ok(Findings::new("results", run.results.to_json(), goals, report))
}

/// The systems at work on one tree; one that fails is taken out.
struct TreeContest {
    systems: Vec<Box<dyn System>>,
    candidates: Candidates,
    tree: TreeResults,
}

impl Run<'_> {
    /// Measures all operations on one tree.
    pub fn measure_tree(&mut self, tree: &SourceTree) -> Result<()> {
        if !OPERATIONS.iter().any(|operation| self.options.runs_operation(operation)) {
            return Ok(());
        }
        eprintln!("\nTree {} ({} files)", tree.name, tree.files);
        let area = self.area.join(&tree.name);
        // borg takes part only in the large-file measurement: it starts too slowly for anything else.
        let names: Vec<&str> = systems::ALL
            .into_iter()
            .filter(|name| *name != "borg" && self.options.runs_system(name))
            .collect();
        let mut made = Vec::new();
        for name in names {
            let mut system = systems::by_name(name, &area, &self.binary)?;
            eprintln!("  copying for {name}");
            tree.copy_to(&system.work_dirs().tree)?;
            system.reset()?;
            made.push(system);
        }
        let Some(first) = made.first() else { return Ok(()) };
        let candidates = Candidates::find(&first.work_dirs().tree, tree.files as u64)?;
        let results = TreeResults { name: tree.name.clone(), files: tree.files, rows: Vec::new() };
        let mut field = TreeContest { systems: made, candidates, tree: results };
        flush(&self.area);

        self.measure_first_checkpoint(&mut field);
        self.measure_changes(&mut field, "none", 0, self.usual_repetitions());
        self.measure_changes(&mut field, "change-1", 1, self.usual_repetitions());
        self.measure_changes(&mut field, "change-10", 10, self.usual_repetitions());
        self.measure_changes(&mut field, "change-1000", 1_000, self.few_repetitions());
        self.measure_restores(&mut field, "restore-1", 1, self.usual_repetitions());
        self.measure_restores(&mut field, "restore-10", 10, self.usual_repetitions());
        self.measure_restores(&mut field, "restore-1000", 1_000, self.few_repetitions());
        self.measure_path(&mut field);
        self.measure_diffs(&mut field, "diff-1", 1);
        self.measure_diffs(&mut field, "diff-1000", 1_000);
        self.monitor.begin_block("");
        self.results.trees.push(field.tree);
        remove(&area)
    }

    fn usual_repetitions(&self) -> usize {
        if self.options.quick { 5 } else { 9 }
    }

    fn few_repetitions(&self) -> usize {
        if self.options.quick { 3 } else { 5 }
    }

    /// The first checkpoint into an empty store. All later operations need the stores that it sets up, so it also runs,
    /// without being reported, when it was not requested.
    fn measure_first_checkpoint(&mut self, field: &mut TreeContest) {
        let is_requested = self.options.runs_operation("first");
        let repetitions = match (is_requested, field.tree.files > 20_000) {
            (false, _) => 1,
            (true, true) => 3,
            (true, false) => self.few_repetitions(),
        };
        let row = self.run_rounds(field, "first", repetitions, |system, area| {
            system.reset()?;
            flush(area);
            Ok(Some(system.checkpoint("first")?.1))
        });
        if is_requested {
            field.tree.rows.push(row);
        }
    }

    fn measure_changes(
        &mut self,
        field: &mut TreeContest,
        operation: &str,
        count: usize,
        repetitions: usize,
    ) {
        if !self.options.runs_operation(operation) || !field.candidates.has_enough(count) {
            return;
        }
        let scripts: Vec<ChangeScript> =
            (0..repetitions).map(|_| field.candidates.next_script(count)).collect();
        let mut applied = HashMap::<&'static str, usize>::new();
        let row = self.run_rounds(field, operation, repetitions, |system, area| {
            let next = applied.entry(system.name()).or_default();
            system.refresh_caches()?;
            flush(area);
            scripts[*next].apply(&system.work_dirs().tree)?;
            *next += 1;
            thread::sleep(SETTLE);
            Ok(Some(system.checkpoint(operation)?.1))
        });
        field.tree.rows.push(row);
        // Slow systems skip some rounds; their copies have to catch up with the changes.
        for system in &mut field.systems {
            let applied_count = applied.get(system.name()).copied().unwrap_or(0);
            let rest =
                scripts[applied_count..].iter().try_for_each(|script| script.apply(&system.work_dirs().tree));
            if let Err(error) = rest {
                self.results.record_problem(system.name(), format!("{error:#}"));
            }
        }
    }

    /// Makes changes without a checkpoint, as after an agent's last step, and restores the tree.
    fn measure_restores(
        &mut self,
        field: &mut TreeContest,
        operation: &str,
        count: usize,
        repetitions: usize,
    ) {
        if !self.options.runs_operation(operation) || !field.candidates.has_enough(count) {
            return;
        }
        let script = field.candidates.passing_script(count);
        let touched = script.touched_paths();
        let mut judge = RestoreVerifier::default();
        let row = self.run_rounds(field, operation, repetitions, |system, area| {
            if !can_restore(system) {
                return Ok(None);
            }
            let tree = system.work_dirs().tree.clone();
            let (point, _) = system.checkpoint("before")?;
            system.refresh_caches()?;
            let expected = judge.expected_manifest(system)?;
            let saved = SavedFiles::read(&tree, &touched)?;
            flush(area);
            script.apply(&tree)?;
            thread::sleep(SETTLE);
            let cost = system.restore(&point, &touched)?;
            judge.verify(system, expected, &saved)?;
            Ok(cost)
        });
        field.tree.rows.push(row);
        self.record_inexact_restores(judge, operation, &field.tree.name);
    }

    /// Changes two files and restores one of them; the other must stay unchanged.
    fn measure_path(&mut self, field: &mut TreeContest) {
        if !self.options.runs_operation("path") || !field.candidates.has_enough(2) {
            return;
        }
        let (path, script) = field.candidates.edit_pair();
        let touched = script.touched_paths();
        let other_paths: Vec<String> =
            touched.iter().filter(|candidate| **candidate != path).cloned().collect();
        let mut judge = RestoreVerifier::default();
        let row = self.run_rounds(field, "path", self.usual_repetitions(), |system, area| {
            if !can_restore(system) {
                return Ok(None);
            }
            let tree = system.work_dirs().tree.clone();
            let (point, _) = system.checkpoint("before")?;
            system.refresh_caches()?;
            let mut expected = judge.expected_manifest(system)?;
            let saved = SavedFiles::read(&tree, &touched)?;
            flush(area);
            script.apply(&tree)?;
            expected.refresh(&tree, &other_paths)?;
            thread::sleep(SETTLE);
            let cost = system.restore_path(&point, &path)?;
            if cost.is_some() {
                judge.verify(system, expected, &saved)?;
            }
            saved.put_back(&tree)?;
            judge.forget_manifest(system);
            Ok(cost)
        });
        field.tree.rows.push(row);
        self.record_inexact_restores(judge, "path", &field.tree.name);
    }

    fn record_inexact_restores(&mut self, judge: RestoreVerifier, operation: &str, tree: &str) {
        for (system, difference) in judge.inexact {
            self.results.record_problem(system, format!("{operation} on {tree} was not exact: {difference}"));
        }
    }

    fn measure_diffs(&mut self, field: &mut TreeContest, operation: &str, count: usize) {
        if !self.options.runs_operation(operation) || !field.candidates.has_enough(count) {
            return;
        }
        let script = field.candidates.next_script(count);
        let mut points = HashMap::<&'static str, (String, String)>::new();
        let row = self.run_rounds(field, operation, self.usual_repetitions(), |system, area| {
            if !can_restore(system) {
                return Ok(None);
            }
            if !points.contains_key(system.name()) {
                let (start, _) = system.checkpoint("from")?;
                script.apply(&system.work_dirs().tree)?;
                thread::sleep(SETTLE);
                let (end, _) = system.checkpoint("to")?;
                points.insert(system.name(), (start, end));
                flush(area);
            }
            let (start, end) = &points[system.name()];
            system.diff(start, end)
        });
        field.tree.rows.push(row);
        // Systems without this operation have not applied the change yet.
        for system in field.systems.iter().filter(|system| !points.contains_key(system.name())) {
            if let Err(error) = script.apply(&system.work_dirs().tree) {
                self.results.record_problem(system.name(), format!("{error:#}"));
            }
        }
    }

    /// Runs `repetitions` rounds over all systems. A system whose operation fails is left out of later rounds.
    fn run_rounds(
        &mut self,
        field: &mut TreeContest,
        operation: &str,
        repetitions: usize,
        mut measure: impl FnMut(&mut dyn System, &Path) -> Result<Option<Cost>>,
    ) -> Row {
        eprintln!("  {operation}");
        self.monitor.begin_block(&format!("{operation} on {}", field.tree.name));
        let mut row = Row { operation: operation.to_owned(), ..Row::default() };
        for repetition in 0..repetitions {
            let count = field.systems.len();
            let mut failed = Vec::new();
            for turn in 0..count {
                let system = &mut field.systems[(turn + repetition) % count];
                let name = system.name();
                if SLOW.contains(&name) && repetition >= 3 {
                    continue;
                }
                let outcome = measure(system.as_mut(), &self.area);
                match outcome.with_context(|| format!("{operation} on {}", field.tree.name)) {
                    Ok(Some(cost)) => row.samples.entry(name).or_default().push(cost),
                    Ok(None) => {}
                    Err(error) => {
                        self.results
                            .record_problem(name, format!("failed and takes no further part: {error:#}"));
                        failed.push(name);
                    }
                }
            }
            field.systems.retain(|system| !failed.contains(&system.name()));
        }
        row
    }
}

/// Backups and the limit restore nothing.
fn can_restore(system: &dyn System) -> bool {
    !matches!(system.name(), "limit" | "restic" | "borg")
}

/// Compares whole trees. A tree that was found exact is the reference for the next repetition, so each tree is read only
/// once per restore.
#[derive(Default)]
struct RestoreVerifier {
    exact: HashMap<&'static str, Manifest>,
    inexact: Vec<(&'static str, String)>,
}

impl RestoreVerifier {
    /// The content of the system's tree after the last comparison.
    fn expected_manifest(&mut self, system: &dyn System) -> Result<Manifest> {
        match self.exact.remove(system.name()) {
            Some(manifest) => Ok(manifest),
            None => Manifest::read(&system.work_dirs().tree),
        }
    }

    /// Compares, and repairs what another system left different, so that all copies stay identical.
    fn verify(&mut self, system: &dyn System, expected: Manifest, saved: &SavedFiles) -> Result<()> {
        let tree = &system.work_dirs().tree;
        let differences = expected.differences(&Manifest::read(tree)?);
        if let Some(first) = differences.first() {
            saved.put_back(tree)?;
            self.inexact
                .push((system.name(), format!("{} path(s) differ, such as: {first}", differences.len())));
        } else {
            self.exact.insert(system.name(), expected);
        }
        Ok(())
    }

    /// The tree was changed on purpose and has to be read again.
    fn forget_manifest(&mut self, system: &dyn System) {
        self.exact.remove(system.name());
    }
}
