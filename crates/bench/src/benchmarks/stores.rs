//! Two measurements of stored bytes: one changed byte in a large file, and many small checkpoints.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use anyhow::Result;

use crate::input::changes::Candidates;
use crate::input::git;
use crate::input::text::Random;
use crate::input::trees::{SourceTree, remove};
use crate::measure::clock::run_untimed;
use crate::measure::manifest::disk_use;
use crate::report::results::{LargeFile, StoreSize};
use crate::run::{Run, SETTLE, flush};
use crate::systems;

/// The size of the large file.
const LARGE_FILE_BYTES: u64 = 200 * 1000 * 1000;

/// The number of checkpoints of ten changes each that follow the first.
const CHECKPOINTS: usize = 100;

impl Run<'_> {
    /// Changes one byte in the middle of a large incompressible file.
    pub fn large_file(&mut self) -> Result<()> {
        if !self.options.runs_operation("big") {
            return Ok(());
        }
        eprintln!("\nOne byte changed in a file of 200 MB");
        let area = self.area.join("large-file");
        let mut systems = Vec::new();
        // opencode excludes large untracked files from its snapshots, so there is nothing to measure.
        for name in ["stepback", "cline", "gemini", "restic", "borg"] {
            if !self.options.runs_system(name) {
                continue;
            }
            eprintln!("  preparing {name}");
            let mut system = systems::by_name(name, &area, &self.binary)?;
            remove(&system.work_dirs().tree)?;
            fs::create_dir_all(&system.work_dirs().tree)?;
            // A repository of its own, so that no program uses one of a parent directory.
            run_untimed(
                git::command().args(["init", "-q", "-b", "main"]).current_dir(&system.work_dirs().tree),
            )?;
            write_large(&system.work_dirs().tree.join("data.bin"))?;
            thread::sleep(SETTLE);
            match system.reset().and_then(|()| system.checkpoint("first")) {
                Ok(_) => {
                    systems.push((system, LargeFile { system: name, samples: Vec::new(), added: Vec::new() }))
                }
                Err(error) => self.results.record_problem(name, format!("failed on a large file: {error:#}")),
            }
        }
        eprintln!("  measuring");
        for repetition in 0..if self.options.quick { 3 } else { 5 } {
            self.monitor.begin_block("big");
            for (system, result) in &mut systems {
                let dirs = system.work_dirs().clone();
                flush(&self.area);
                let allocated_before = disk_use(&dirs.store)?.allocated;
                flip_byte(&dirs.tree.join("data.bin"), LARGE_FILE_BYTES / 2 + repetition)?;
                flush(&self.area);
                thread::sleep(SETTLE);
                match system.checkpoint(&format!("byte-{repetition}")) {
                    Ok((_, cost)) => {
                        flush(&self.area);
                        result.samples.push(cost);
                        result.added.push(disk_use(&dirs.store)?.allocated.saturating_sub(allocated_before));
                    }
                    Err(error) => self
                        .results
                        .record_problem(result.system, format!("failed on a large file: {error:#}")),
                }
            }
        }
        self.monitor.begin_block("");
        self.results.large_file = systems.into_iter().map(|(_, result)| result).collect();
        remove(&area)
    }

    /// Takes many small checkpoints and measures the store. Not interleaved: nothing is timed.
    pub fn measure_stores(&mut self, tree: &SourceTree) -> Result<()> {
        if !self.options.runs_operation("disk") {
            return Ok(());
        }
        eprintln!("\nStores after {CHECKPOINTS} checkpoints of 10 changed files on {}", tree.name);
        let area = self.area.join("stores");
        for name in systems::ALL {
            // The backup program needs about a second for each.
            let skip = matches!(name, "limit" | "borg") || (self.options.quick && name == "restic");
            if skip || !self.options.runs_system(name) {
                continue;
            }
            eprintln!("  {name}");
            match self.measure_store(&area, name, tree) {
                Ok(result) => self.results.stores.push(result),
                Err(error) => {
                    self.results.record_problem(name, format!("failed after many checkpoints: {error:#}"))
                }
            }
            remove(&area)?;
        }
        Ok(())
    }

    fn measure_store(&self, area: &Path, name: &'static str, tree: &SourceTree) -> Result<StoreSize> {
        let mut system = systems::by_name(name, area, &self.binary)?;
        let dirs = system.work_dirs().clone();
        tree.copy_to(&dirs.tree)?;
        system.reset()?;
        system.checkpoint("first")?;
        let mut candidates = Candidates::find(&dirs.tree, 100)?;
        for number in 0..CHECKPOINTS {
            candidates.next_script(10).apply(&dirs.tree)?;
            thread::sleep(SETTLE);
            system.checkpoint(&format!("number-{number}"))?;
        }
        flush(&self.area);
        let size = disk_use(&dirs.store)?;
        let compacted = if system.compact()? {
            flush(&self.area);
            Some(disk_use(&dirs.store)?)
        } else {
            None
        };
        Ok(StoreSize { system: name, checkpoints: CHECKPOINTS, size, compacted })
    }
}

fn write_large(path: &Path) -> Result<()> {
    let mut file = fs::File::create(path)?;
    let mut random = Random::new(200);
    let mut block = vec![0; 1_000_000];
    for _ in 0..LARGE_FILE_BYTES / block.len() as u64 {
        random.fill(&mut block);
        file.write_all(&block)?;
    }
    Ok(())
}

fn flip_byte(path: &Path, offset: u64) -> Result<()> {
    let file = fs::File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset)?;
    file.write_all_at(&[!byte[0]], offset)?;
    Ok(())
}
