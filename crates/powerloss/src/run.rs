//! One run: record the commands on each file system, then cut.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::check::{self, CheckCount, Moment};
use crate::cuts::{self, Cut, Model, Playback};
use crate::disk::{Disk, LogEntry};
use crate::filesystem::FileSystem;
use crate::fuse::DiskMount;
use crate::options::PowerlossOptions;
use crate::program::Program;
use crate::workload::{self, StepRecord};

/// Failures that are printed in full.
const PRINTED_FAILURES: usize = 10;

/// Counts of one file system under one model.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Cuts that were made.
    pub cuts: usize,
    /// Cuts after which something was wrong.
    pub failed: usize,
    /// How much was checked.
    pub checked: CheckCount,
}

/// The result on one file system.
#[derive(Debug)]
pub struct FileSystemReport {
    /// Which one.
    pub file_system: FileSystem,
    /// Writes and flushes that were recorded.
    pub writes: (usize, usize),
    /// Counts by model.
    pub tallies: BTreeMap<Model, Tally>,
    /// Cuts during each command and failures, in the order of the commands.
    pub commands: Vec<CommandCount>,
}

/// Cuts during one command.
#[derive(Clone, Copy, Debug)]
pub struct CommandCount {
    /// The command's name in the report.
    pub name: &'static str,
    /// Cuts between its first write, or the user's edit before it, and the next edit or command.
    pub cuts: usize,
    /// Cuts after which something was wrong.
    pub failed: usize,
}

/// Records and cuts one file system below a private directory.
pub fn run(
    kind: FileSystem,
    executable: &Path,
    root: &Path,
    options: &PowerlossOptions,
) -> Result<FileSystemReport> {
    let paths = ["disk", "mounted", "scratch"].map(|name| root.join(kind.name()).join(name));
    for path in &paths {
        fs::create_dir_all(path)?;
    }
    let [disk_directory, mounted, scratch] = paths;
    let program = Program::new(executable, &mounted);

    let image = root.join("base.img");
    fs::File::create(&image)?.set_len(kind.disk_size())?;
    kind.make(&image)?;
    let disk = Arc::new(Mutex::new(Disk::from_file(&image)?));
    fs::remove_file(&image)?;
    let disk_mount = DiskMount::new(Arc::clone(&disk), &disk_directory)?;
    let harness = Harness { kind, program, disk, file: disk_mount.file(), mounted, scratch };

    let started = Instant::now();
    let (log, steps) = harness.record()?;
    let flushes = log.iter().filter(|entry| **entry == LogEntry::Flush).count();
    let writes = (log.len() - flushes, flushes);
    println!(
        "{}: {} commands, {} writes and {} flushes recorded in {:.1} s",
        kind.name(),
        steps.len(),
        writes.0,
        writes.1,
        started.elapsed().as_secs_f64()
    );
    for step in &steps {
        println!("  {:6} … {:6}  {}", step.started, step.acknowledged, step.name);
    }
    let (tallies, commands) = harness.cut_all(&log, &steps, options)?;
    drop(harness);
    drop(disk_mount);
    Ok(FileSystemReport { file_system: kind, writes, tallies, commands })
}

/// Everything that a recording and its cuts share.
struct Harness {
    kind: FileSystem,
    program: Program,
    disk: Arc<Mutex<Disk>>,
    file: PathBuf,
    mounted: PathBuf,
    scratch: PathBuf,
}

impl Harness {
    fn disk(&self) -> MutexGuard<'_, Disk> {
        self.disk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self) -> Result<(Vec<LogEntry>, Vec<StepRecord>)> {
        self.disk().record();
        let mount = self.kind.mount(&self.file, &self.mounted)?;
        workload::prepare(&self.program)?;
        let steps = workload::run(&self.program, &self.disk)?;
        // What the unmount writes is cut too: nothing is promised by it.
        drop(mount);
        Ok((self.disk().take_log(), steps))
    }

    fn cut_all(
        &self,
        log: &[LogEntry],
        steps: &[StepRecord],
        options: &PowerlossOptions,
    ) -> Result<(BTreeMap<Model, Tally>, Vec<CommandCount>)> {
        // Before the first edit there is nothing to lose.
        let first = steps.first().map_or(0, |step| step.started);
        let mut cuts = cuts::all_cuts(log, options.orders, options.seed);
        cuts.retain(|cut| cut.position > first);
        let chosen = cuts::sample(&cuts, options.cuts, options.seed);
        println!("  {} of {} cuts", chosen.len(), cuts.len());
        let mut tallies: BTreeMap<Model, Tally> = BTreeMap::new();
        let mut commands: Vec<_> =
            steps.iter().map(|step| CommandCount { name: step.name, cuts: 0, failed: 0 }).collect();
        let mut playback = Playback::new(log);
        let mut failures = 0;
        for (index, cut) in chosen.iter().copied().enumerate() {
            let Some(moment) = Moment::find(steps, cut.position) else { continue };
            playback.apply(cut, &mut self.disk())?;
            let tally = tallies.entry(cut.model).or_default();
            tally.cuts += 1;
            let checked = self.check(&moment, cut);
            for command in commands.iter_mut().filter(|command| command.name == moment.step.name) {
                command.cuts += 1;
                command.failed += usize::from(checked.is_err());
            }
            match checked {
                Ok(count) => {
                    tally.checked.promises += count.promises;
                    tally.checked.trees += count.trees;
                }
                Err(error) => {
                    tally.failed += 1;
                    failures += 1;
                    if failures <= PRINTED_FAILURES {
                        println!(
                            "  FAILED at {} ({}, seed {}), during \"{}\": {error:#}",
                            cut.position,
                            cut.model.name(),
                            cut.seed,
                            moment.step.name
                        );
                    }
                    if let Some(keep) = &options.keep {
                        self.keep(&mut playback, cut, Path::new(keep))?;
                    }
                }
            }
            if (index + 1) % 200 == 0 {
                println!("  {} cuts, {failures} failed", index + 1);
            }
        }
        Ok((tallies, commands))
    }

    fn check(&self, moment: &Moment<'_>, cut: Cut) -> Result<CheckCount> {
        let mount =
            self.kind.mount(&self.file, &self.mounted).context("the file system cannot be mounted")?;
        let result = check::check(&self.program, moment, cut, &self.scratch);
        drop(mount);
        result
    }

    fn keep(&self, playback: &mut Playback<'_>, cut: Cut, directory: &Path) -> Result<()> {
        let name = format!("{}-{}-{:?}-{}.img", self.kind.name(), cut.position, cut.model, cut.seed);
        let mut disk = self.disk();
        playback.apply(cut, &mut disk)?;
        fs::create_dir_all(directory)?;
        disk.save(&directory.join(name.to_lowercase())).context("cannot save the image")
    }
}
