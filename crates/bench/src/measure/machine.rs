//! The machine that the measurements ran on, and whether it was idle enough for them to be valid.
//!
//! Ratios within one run are valid on a slow machine but not on a busy one: other load affects one system and not the
//! next. Three independent signs are watched: varying times of a fixed amount of arithmetic, CPU time of other processes,
//! and time stolen by the hypervisor.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::input::text::Random;
use crate::measure::clock::own_cpu;
use crate::report::results::{ms, percentile};

/// The allowed variation of the spin between blocks, as a share of its fastest run.
const MAX_SPREAD: f64 = 0.25;
/// The share of all cores that other processes may use during a block. The kernel's own threads, which write out our
/// data, count as others.
const MAX_FOREIGN: f64 = 0.15;
/// The share of the whole run that the hypervisor may take; a single block is too short to tell.
const MAX_STEAL: f64 = 0.02;
/// Shorter blocks are not judged by their share of CPU time, which the kernel counts in steps of 10 ms.
const MIN_TICKS: u64 = 50;

/// Watches the machine from the start of a run to its end, block by block.
#[derive(Debug)]
pub struct Monitor {
    spins: Vec<f64>,
    blocks: Vec<Block>,
    current: Block,
    ticks: Ticks,
    cpu: Duration,
    load_before: String,
}

/// The load by other processes during one block of measurements.
#[derive(Clone, Debug, Default)]
struct Block {
    name: String,
    foreign: f64,
    stolen: u64,
    total: u64,
}

/// The result of a [`Monitor`].
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// The times of the spin, in milliseconds.
    spins: Vec<f64>,
    /// The blocks that were measured.
    blocks: Vec<Block>,
    /// The load averages before and after.
    load: (String, String),
}

#[derive(Clone, Copy, Debug, Default)]
struct Ticks {
    busy: u64,
    steal: u64,
    total: u64,
}

impl Monitor {
    /// Starts to watch.
    pub fn start() -> Self {
        // The first spin only brings the core up to full speed.
        time_spin();
        Self {
            spins: vec![time_spin()],
            blocks: Vec::new(),
            current: Block::default(),
            ticks: read_ticks(),
            cpu: own_cpu(),
            load_before: load(),
        }
    }

    /// Ends a block and starts the next; a block without a name is preparation and not judged.
    pub fn begin_block(&mut self, name: &str) {
        let (now, cpu) = (read_ticks(), own_cpu());
        let total = now.total.saturating_sub(self.ticks.total);
        if !self.current.name.is_empty() && total >= MIN_TICKS {
            let busy = now.busy.saturating_sub(self.ticks.busy) as f64;
            // The kernel counts in hundredths of a second.
            let own_ticks = cpu.saturating_sub(self.cpu).as_secs_f64() * 100.0;
            self.current.foreign = ((busy - own_ticks) / total as f64).max(0.0);
            self.current.stolen = now.steal.saturating_sub(self.ticks.steal);
            self.current.total = total;
            self.blocks.push(self.current.clone());
        }
        self.spins.push(time_spin());
        self.current = Block { name: name.to_owned(), ..Block::default() };
        // Taken after the spin, which belongs to no block.
        (self.ticks, self.cpu) = (read_ticks(), own_cpu());
    }

    /// Ends the watch.
    pub fn finish(mut self) -> Verdict {
        self.begin_block("");
        Verdict { spins: self.spins, blocks: self.blocks, load: (self.load_before, load()) }
    }
}

impl Verdict {
    /// Whether the machine was too busy to compare.
    pub fn is_busy(&self) -> bool {
        self.spin_spread() > MAX_SPREAD || self.steal_share() > MAX_STEAL || !self.busy_blocks().is_empty()
    }

    /// How much the fixed work varied. The extreme fifths are left out: systems take turns, so a slow moment
    /// hits all alike and medians forget it. A slow fifth of the run would be more than a moment.
    fn spin_spread(&self) -> f64 {
        let spin_percentile = |percent| percentile(&self.spins, percent).unwrap_or(1.0);
        spin_percentile(80.0) / spin_percentile(20.0) - 1.0
    }

    /// The share of all measured blocks that the hypervisor took.
    fn steal_share(&self) -> f64 {
        let sum = |part: fn(&Block) -> u64| self.blocks.iter().map(part).sum::<u64>() as f64;
        sum(|block| block.stolen) / sum(|block| block.total).max(1.0)
    }

    fn busy_blocks(&self) -> Vec<&Block> {
        self.blocks.iter().filter(|block| block.foreign > MAX_FOREIGN).collect()
    }

    /// One paragraph for the report.
    pub fn text(&self) -> String {
        let foreign = self.blocks.iter().map(|block| block.foreign).fold(0.0, f64::max);
        let details = format!(
            "fixed work varied by {:.0} %; in the busiest block others used {:.0} % of the machine; {:.1} % of the run \
             was stolen; load {} → {}",
            self.spin_spread() * 100.0,
            foreign * 100.0,
            self.steal_share() * 100.0,
            self.load.0,
            self.load.1
        );
        if !self.is_busy() {
            return format!("The machine was quiet enough to compare: {details}.");
        }
        let mut names: Vec<&str> = self.busy_blocks().iter().map(|block| block.name.as_str()).collect();
        names.dedup();
        let during =
            if names.is_empty() { String::new() } else { format!(" Disturbed: {}.", names.join(", ")) };
        format!("THE MACHINE WAS TOO BUSY TO COMPARE: {details}.{during} Repeat the run on a quiet machine.")
    }

    /// For the kept result.
    pub fn to_json(&self) -> Value {
        let blocks = self.blocks.iter().map(|block| {
            json!({ "block": block.name, "foreign_share": block.foreign, "stolen_ticks": block.stolen, "ticks": block.total })
        });
        json!({
            "too_busy": self.is_busy(), "spin_ms": self.spins, "blocks": blocks.collect::<Vec<_>>(),
            "load_before": self.load.0, "load_after": self.load.1,
        })
    }
}

/// The best time of equal pieces of arithmetic, in milliseconds. The best, because a piece that was
/// interrupted says little: it is work by others, which the block's share of CPU time shows better. What is
/// left are slow phases of the machine itself, such as a neighbour on the same physical core.
fn time_spin() -> f64 {
    let spin = || {
        let started = Instant::now();
        let mut random = Random::new(1);
        for _ in 0..2_000_000 {
            black_box(random.next());
        }
        ms(started.elapsed())
    };
    (0..15).map(|_| spin()).fold(f64::INFINITY, f64::min)
}

fn read_ticks() -> Ticks {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let first = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; guest time is part of user.
    let fields: Vec<u64> = first.split_whitespace().skip(1).take(8).filter_map(|f| f.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal] = fields[..] else { return Ticks::default() };
    let busy = user + nice + system + irq + softirq;
    Ticks { busy, steal, total: busy + idle + iowait + steal }
}

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().next().unwrap_or("?").to_owned()
}

/// The machine and the versions of what was measured.
pub fn describe(area: &Path, stepback: Option<&Path>) -> Value {
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
        .map(|(_, name)| name.trim());
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, |count| count.get());
    json!({
        "cpu": model, "cores": cores, "kernel": kernel.trim(), "file_system": file_system(area),
        "git": program_version("git", "--version"), "restic": program_version("restic", "version"), "borg": program_version("borg", "--version"),
        "stepback": stepback.and_then(|binary| program_version(binary, "--version")),
    })
}

fn program_version(program: impl AsRef<std::ffi::OsStr>, flag: &str) -> Option<String> {
    let output = Command::new(program).arg(flag).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

/// The type of the file system a path is on, from the mount with the longest matching prefix.
fn file_system(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/self/mounts").ok()?;
    let matching = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (point, kind) = (fields.next()?, fields.next()?);
        path.starts_with(point).then(|| (point.len(), kind.to_owned()))
    });
    // The last of equal prefixes is mounted on top.
    matching.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

/// Today's date in UTC as `YYYY-MM-DD`.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = civil_date(seconds / 86_400);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The calendar date of a day counted from 1970-01-01.
fn civil_date(mut days: u64) -> (u64, u64, u64) {
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    (year, month, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(civil_date(0), (1970, 1, 1));
        assert_eq!(civil_date(11_016), (2000, 2, 29));
        assert_eq!(civil_date(20_772), (2026, 11, 15));
        assert_eq!(civil_date(20_818), (2026, 12, 31));
        assert_eq!(civil_date(20_819), (2027, 1, 1));
    }

    #[test]
    fn each_sign_alone_makes_a_machine_busy() {
        let block =
            |foreign, stolen| Block { name: "none on small".to_owned(), foreign, stolen, total: 1_000 };
        let quiet = Verdict { spins: vec![5.0; 20], blocks: vec![block(0.05, 5)], ..Verdict::default() };
        assert!(!quiet.is_busy() && quiet.text().starts_with("The machine was quiet"));
        let others = Verdict { blocks: vec![block(0.4, 0)], ..quiet.clone() };
        assert!(others.is_busy() && others.text().contains("Disturbed: none on small"), "{}", others.text());
        let stolen = Verdict { blocks: vec![block(0.0, 100)], ..quiet.clone() };
        assert!(stolen.is_busy() && stolen.text().contains("TOO BUSY"), "{}", stolen.text());
        let mut spins = quiet.spins.clone();
        spins[3] = 9.0;
        assert!(
            !Verdict { spins: spins.clone(), ..quiet.clone() }.is_busy(),
            "one hiccup is no busy machine"
        );
        spins[4..10].fill(9.0);
        assert!(Verdict { spins, ..quiet }.is_busy());
    }
}
