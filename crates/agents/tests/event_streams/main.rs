//! Random streams of events from several agents at once, against an oracle that keeps a full copy of every moment.
//!
//! Each case draws sessions of every agent: prompts, model turns, calls that run one by one, in parallel or in sub-agents, and
//! that end, fail, are refused, interrupted, never reported, reported twice or in the wrong order. Meanwhile the person edits the
//! same files, makes checkpoints, rewinds and undoes. The oracle knows who wrote every line of every file. It checks what the
//! files were at every step, who is named as the author of every change, what was said at every step, and that a rewind
//! leaves everything alone that its session did not write.
//!
//! A failure prints the seed and everything that was done. `STEPBACK_STREAM_SEED=7` runs one case,
//! `STEPBACK_STREAM_CASES=10000` more of them.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

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
    verdicts: usize,
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
        self.verdicts += other.verdicts;
    }
}

fn run(first: u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let cases = number("STEPBACK_STREAM_CASES").unwrap_or(CASES);
    let seeds = match number("STEPBACK_STREAM_SEED") {
        Some(seed) => seed..=seed,
        None => (first * 1_000_000 + 1)..=(first * 1_000_000 + cases),
    };
    println!("seeds {seeds:?}");
    let mut counts = Counts::default();
    for seed in seeds {
        let mut script = Script::new(seed);
        let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| script.run(ACTS)));
        let problem = match outcome {
            Ok(Ok(())) => None,
            Ok(Err(problem)) => Some(problem),
            Err(_) => Some("it panicked (see above)".into()),
        };
        if let Some(problem) = problem {
            panic!("seed {seed}: {problem}\nwhat was done:\n  {}", script.world.log.join("\n  "));
        }
        counts.add(script.counts);
    }
    println!("{counts:?}");
    if number("STEPBACK_STREAM_SEED").is_none() && cases >= CASES {
        let rarest =
            [counts.abandoned, counts.late_ends, counts.missing_starts, counts.doubled, counts.rewinds];
        assert!(rarest.iter().all(|count| *count >= 15), "something was hardly tried: {counts:?}");
        assert!(counts.events >= 12_500, "too little was tried: {counts:?}");
    }
}

/// Tests of equal size, so that they run side by side.
macro_rules! streams {
    ($($name:ident: $first:expr),*) => { $(#[test] fn $name() { run($first); })* };
}

streams!(streams_1: 1, streams_2: 2, streams_3: 3, streams_4: 4, streams_5: 5, streams_6: 6, streams_7: 7, streams_8: 8);
