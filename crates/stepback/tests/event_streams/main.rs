//! Random streams of events from several agents at once, against an oracle that keeps a full copy of every moment.
//!
//! Each case draws sessions of every agent: prompts, model turns, calls that run one by one, in parallel or in sub-agents, and
//! that end, fail, are refused, interrupted, never reported, reported twice or in the wrong order; sessions that are killed,
//! end, and are resumed. Meanwhile the user edits the same files, creates checkpoints and branches, switches, rewinds and
//! undoes. The oracle knows who wrote every line of every file. It checks what the files were at every step, who is named as
//! the author of every change, what was said at every step, which steps are marked as rolled back, and that a rewind or an undo
//! leaves everything alone that it is not about.
//!
//! Most cases run the hook code in this process; `program` runs the real program for every hook and every command.
//!
//! A failure prints the seed and everything that was done. `STEPBACK_STREAM_SEED=7` runs one case,
//! `STEPBACK_STREAM_CASES=10000` more of them.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod checks;
mod moves;
mod oracle;
mod script;
mod world;

use std::panic::AssertUnwindSafe;

use script::Script;

/// How many cases each test runs, and how many things happen in each.
const CASES: u64 = 120;
const ACTS: usize = 300;

/// What was tried, so that a test that tries nothing fails.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    events: usize,
    calls: usize,
    abandoned: usize,
    late_ends: usize,
    missing_starts: usize,
    doubled: usize,
    edits: usize,
    checkpoints: usize,
    rewinds: usize,
    undos: usize,
    branches: usize,
    switches: usize,
    resumes: usize,
    /// Authors, marks and conversations that were compared.
    authors: usize,
    marks: usize,
    conversations: usize,
}

impl Counts {
    fn add(&mut self, other: Self) {
        self.events += other.events;
        self.calls += other.calls;
        self.abandoned += other.abandoned;
        self.late_ends += other.late_ends;
        self.missing_starts += other.missing_starts;
        self.doubled += other.doubled;
        self.edits += other.edits;
        self.checkpoints += other.checkpoints;
        self.rewinds += other.rewinds;
        self.undos += other.undos;
        self.branches += other.branches;
        self.switches += other.switches;
        self.resumes += other.resumes;
        self.authors += other.authors;
        self.marks += other.marks;
        self.conversations += other.conversations;
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs one case, or fails with everything that was done in it.
fn run_case(seed: u64, acts: usize, runs_program: bool) -> Counts {
    let mut script = Script::new(seed, runs_program);
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| script.run(acts)));
    let problem = match outcome {
        Ok(Ok(())) => return script.counts,
        Ok(Err(problem)) => problem,
        Err(_) => "it panicked (see above)".into(),
    };
    panic!("seed {seed}: {problem}\nwhat was done:\n  {}", script.world.log.join("\n  "));
}

fn run(first: u64) {
    let cases = number("STEPBACK_STREAM_CASES").unwrap_or(CASES);
    let seeds = match number("STEPBACK_STREAM_SEED") {
        Some(seed) => seed..=seed,
        None => (first * 1_000_000 + 1)..=(first * 1_000_000 + cases),
    };
    println!("seeds {seeds:?}");
    let mut counts = Counts::default();
    for seed in seeds {
        counts.add(run_case(seed, ACTS, false));
    }
    println!("{counts:?}");
    if number("STEPBACK_STREAM_SEED").is_none() && cases >= CASES {
        let Counts { abandoned, late_ends, missing_starts, doubled, .. } = counts;
        let Counts { rewinds, undos, branches, switches, resumes, conversations, .. } = counts;
        let rarest = [abandoned, late_ends, missing_starts, doubled, rewinds, undos, branches, switches];
        let is_tried = rarest.iter().chain([&resumes, &conversations]).all(|count| *count >= 15);
        assert!(is_tried, "something was hardly tried: {counts:?}");
        assert!(counts.events >= 12_500, "too little was tried: {counts:?}");
    }
}

/// A sample through the real program: every hook and every command is a process.
#[test]
fn program() {
    let seeds = match number("STEPBACK_STREAM_SEED") {
        Some(seed) => seed..=seed,
        None => 9_000_001..=9_000_012,
    };
    println!("seeds {seeds:?}");
    let mut counts = Counts::default();
    for seed in seeds {
        counts.add(run_case(seed, 200, true));
    }
    println!("{counts:?}");
    if number("STEPBACK_STREAM_SEED").is_none() {
        let Counts { abandoned, rewinds, undos, branches, switches, resumes, .. } = counts;
        let is_tried =
            [abandoned, rewinds, undos, branches, switches, resumes].iter().all(|count| *count > 0);
        assert!(is_tried, "something was not tried: {counts:?}");
    }
}

/// Tests of equal size, so that they run side by side.
macro_rules! streams {
    ($($name:ident: $first:expr),*) => { $(#[test] fn $name() { run($first); })* };
}

streams!(streams_1: 1, streams_2: 2, streams_3: 3, streams_4: 4, streams_5: 5, streams_6: 6, streams_7: 7, streams_8: 8);
