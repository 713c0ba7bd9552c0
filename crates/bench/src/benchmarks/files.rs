//! `bench files`: the rounds of measurements on each tree.
//!
//! Within an operation the systems take turns, and the order rotates, so that a slow moment of the machine
//! hits all alike. What is changed is prepared before the clock starts, and what a system wrote is flushed
//! before the next one is measured, so that nobody pays for another's writes.

use std::collections::HashMap;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};

use crate::input::changes::{Candidates, ChangeScript, Saved};
use crate::input::trees::{SourceTree, remove};
use crate::measure::clock::Cost;
use crate::measure::manifest::Manifest;
use crate::report::results::{Row, TreeResults};
use crate::report::{goals, markdown};
use crate::run::{Findings, Run, SETTLE, flush};
use crate::systems::{self, System};

/// Systems that take seconds where others take milliseconds; more repetitions would only take longer.
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
        run.tree(tree)?;
    }
    if let Some(middle) = trees.iter().min_by_key(|tree| tree.files.abs_diff(8_000)) {
        run.stores(middle)?;
    }
    run.large_file()?;
    let goals = goals::judge(&run.results);
    let report = markdown::files(&run.results, &goals);
    Ok(Findings::new("results", run.results.json(), goals, report))
}

/// The systems at work on one tree; one that fails is taken out.
struct Field {
    systems: Vec<Box<dyn System>>,
    candidates: Candidates,
    tree: TreeResults,
}

impl Run<'_> {
    /// Measures all operations on one tree.
    pub fn tree(&mut self, tree: &SourceTree) -> Result<()> {
        if !OPERATIONS.iter().any(|operation| self.options.wants(operation)) {
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
            let mut system = systems::make(name, &area, &self.binary)?;
            eprintln!("  copying for {name}");
            tree.copy_to(&system.place().tree)?;
            system.reset()?;
            made.push(system);
        }
        let Some(first) = made.first() else { return Ok(()) };
        let candidates = Candidates::find(&first.place().tree, tree.files as u64)?;
        let results = TreeResults { name: tree.name.clone(), files: tree.files, rows: Vec::new() };
        let mut field = Field { systems: made, candidates, tree: results };
        flush(&self.area);

        self.first(&mut field);
        self.changes(&mut field, "none", 0, self.often());
        self.changes(&mut field, "change-1", 1, self.often());
        self.changes(&mut field, "change-10", 10, self.often());
        self.changes(&mut field, "change-1000", 1_000, self.seldom());
        self.restores(&mut field, "restore-1", 1, self.often());
        self.restores(&mut field, "restore-10", 10, self.often());
        self.restores(&mut field, "restore-1000", 1_000, self.seldom());
        self.path(&mut field);
        self.diffs(&mut field, "diff-1", 1);
        self.diffs(&mut field, "diff-1000", 1_000);
        self.monitor.sample("");
        self.results.trees.push(field.tree);
        remove(&area)
    }

    fn often(&self) -> usize {
        if self.options.quick { 5 } else { 9 }
    }

    fn seldom(&self) -> usize {
        if self.options.quick { 3 } else { 5 }
    }

    /// The first checkpoint into an empty store. It also sets up the stores for all that follows, so it
    /// runs once without being reported when it was not asked for.
    fn first(&mut self, field: &mut Field) {
        let wanted = self.options.wants("first");
        let repetitions = match (wanted, field.tree.files > 20_000) {
            (false, _) => 1,
            (true, true) => 3,
            (true, false) => self.seldom(),
        };
        let row = self.rounds(field, "first", repetitions, |system, area| {
            system.reset()?;
            flush(area);
            Ok(Some(system.checkpoint("first")?.1))
        });
        if wanted {
            field.tree.rows.push(row);
        }
    }

    fn changes(&mut self, field: &mut Field, operation: &str, count: usize, repetitions: usize) {
        if !self.options.wants(operation) || !field.candidates.allow(count) {
            return;
        }
        let scripts: Vec<ChangeScript> = (0..repetitions).map(|_| field.candidates.script(count)).collect();
        let mut applied = HashMap::<&'static str, usize>::new();
        let row = self.rounds(field, operation, repetitions, |system, area| {
            let next = applied.entry(system.name()).or_default();
            system.settle()?;
            flush(area);
            scripts[*next].apply(&system.place().tree)?;
            *next += 1;
            thread::sleep(SETTLE);
            Ok(Some(system.checkpoint(operation)?.1))
        });
        field.tree.rows.push(row);
        // Slow systems sat out some rounds; their copies still have to follow.
        for system in &mut field.systems {
            let done = applied.get(system.name()).copied().unwrap_or(0);
            let rest = scripts[done..].iter().try_for_each(|script| script.apply(&system.place().tree));
            if let Err(error) = rest {
                self.results.complain(system.name(), format!("{error:#}"));
            }
        }
    }

    /// Changes are made and not checkpointed, as after an agent's last step; then the tree is brought back.
    fn restores(&mut self, field: &mut Field, operation: &str, count: usize, repetitions: usize) {
        if !self.options.wants(operation) || !field.candidates.allow(count) {
            return;
        }
        let script = field.candidates.passing_script(count);
        let touched = script.touched();
        let mut judge = Judge::default();
        let row = self.rounds(field, operation, repetitions, |system, area| {
            if !restores(system) {
                return Ok(None);
            }
            let tree = system.place().tree.clone();
            let (point, _) = system.checkpoint("before")?;
            system.settle()?;
            let expected = judge.expected(system)?;
            let saved = Saved::read(&tree, &touched)?;
            flush(area);
            script.apply(&tree)?;
            thread::sleep(SETTLE);
            let cost = system.restore(&point, &touched)?;
            judge.verify(system, expected, &saved)?;
            Ok(cost)
        });
        field.tree.rows.push(row);
        self.blame(judge, operation, &field.tree.name);
    }

    /// Two files are changed and one is brought back; the other has to stay as it is.
    fn path(&mut self, field: &mut Field) {
        if !self.options.wants("path") || !field.candidates.allow(2) {
            return;
        }
        let (path, script) = field.candidates.pair();
        let touched = script.touched();
        let others: Vec<String> = touched.iter().filter(|other| **other != path).cloned().collect();
        let mut judge = Judge::default();
        let row = self.rounds(field, "path", self.often(), |system, area| {
            if !restores(system) {
                return Ok(None);
            }
            let tree = system.place().tree.clone();
            let (point, _) = system.checkpoint("before")?;
            system.settle()?;
            let mut expected = judge.expected(system)?;
            let saved = Saved::read(&tree, &touched)?;
            flush(area);
            script.apply(&tree)?;
            expected.refresh(&tree, &others)?;
            thread::sleep(SETTLE);
            let cost = system.restore_path(&point, &path)?;
            if cost.is_some() {
                judge.verify(system, expected, &saved)?;
            }
            saved.put_back(&tree)?;
            judge.forget(system);
            Ok(cost)
        });
        field.tree.rows.push(row);
        self.blame(judge, "path", &field.tree.name);
    }

    fn blame(&mut self, judge: Judge, operation: &str, tree: &str) {
        for (system, what) in judge.wrong {
            self.results.complain(system, format!("{operation} on {tree} was not exact: {what}"));
        }
    }

    fn diffs(&mut self, field: &mut Field, operation: &str, count: usize) {
        if !self.options.wants(operation) || !field.candidates.allow(count) {
            return;
        }
        let script = field.candidates.script(count);
        let mut points = HashMap::<&'static str, (String, String)>::new();
        let row = self.rounds(field, operation, self.often(), |system, area| {
            if !restores(system) {
                return Ok(None);
            }
            if !points.contains_key(system.name()) {
                let (from, _) = system.checkpoint("from")?;
                script.apply(&system.place().tree)?;
                thread::sleep(SETTLE);
                let (to, _) = system.checkpoint("to")?;
                points.insert(system.name(), (from, to));
                flush(area);
            }
            let (from, to) = &points[system.name()];
            system.diff(from, to)
        });
        field.tree.rows.push(row);
        // Systems without this operation have not seen the change yet.
        for system in field.systems.iter().filter(|system| !points.contains_key(system.name())) {
            if let Err(error) = script.apply(&system.place().tree) {
                self.results.complain(system.name(), format!("{error:#}"));
            }
        }
    }

    /// Goes round all systems `repetitions` times. A system whose operation fails takes no further part.
    fn rounds(
        &mut self,
        field: &mut Field,
        operation: &str,
        repetitions: usize,
        mut measure: impl FnMut(&mut dyn System, &Path) -> Result<Option<Cost>>,
    ) -> Row {
        eprintln!("  {operation}");
        self.monitor.sample(&format!("{operation} on {}", field.tree.name));
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
                        self.results.complain(name, format!("failed and takes no further part: {error:#}"));
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
fn restores(system: &dyn System) -> bool {
    !matches!(system.name(), "limit" | "restic" | "borg")
}

/// Compares whole trees. What was found exact is what the next repetition starts from, so each tree is
/// read once per restore and not twice.
#[derive(Default)]
struct Judge {
    exact: HashMap<&'static str, Manifest>,
    wrong: Vec<(&'static str, String)>,
}

impl Judge {
    /// What the system's tree holds now.
    fn expected(&mut self, system: &dyn System) -> Result<Manifest> {
        match self.exact.remove(system.name()) {
            Some(manifest) => Ok(manifest),
            None => Manifest::read(&system.place().tree),
        }
    }

    /// Compares, and puts right what a peer left wrong, so that all copies stay identical.
    fn verify(&mut self, system: &dyn System, expected: Manifest, saved: &Saved) -> Result<()> {
        let tree = &system.place().tree;
        let differences = expected.differences(&Manifest::read(tree)?);
        if let Some(first) = differences.first() {
            saved.put_back(tree)?;
            self.wrong
                .push((system.name(), format!("{} path(s) differ, such as: {first}", differences.len())));
        } else {
            self.exact.insert(system.name(), expected);
        }
        Ok(())
    }

    /// The tree was changed on purpose: it has to be read again.
    fn forget(&mut self, system: &dyn System) {
        self.exact.remove(system.name());
    }
}
