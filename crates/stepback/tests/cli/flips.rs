//! One flipped bit anywhere in a store: nothing wrong is restored, and what changes an answer is reported.
//!
//! Every case starts from the same recorded store, flips one random bit of one random file, and asks the program what a user
//! would ask. An ordinary run does a few cases. `STEPBACK_FLIPS=2000` does more, `STEPBACK_FLIPS_SEED=7` starts with another
//! seed; a failure prints the seed of its case, which `STEPBACK_FLIPS=1 STEPBACK_FLIPS_SEED=N` repeats.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stepback_testkit::sample::{noise, prose};
use stepback_testkit::tree::{self, Copy, Draw, Thing};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::Talk;

const FLIPS: u64 = 24;

/// Commands whose answers must not change without a report.
const QUESTIONS: [&[&str]; 6] = [
    &["log", "--json"],
    &["checkpoint", "list", "--json"],
    &["sessions", "--json"],
    &["op", "log", "--json"],
    &["at", "two", "--json"],
    &["search", "prompt", "--json"],
];

/// A recorded store, and what is true about it.
struct FlipWorld {
    world: Sandbox,
    /// Copies of both, from before and after the write-ahead log was copied into the database, with the files of the store
    /// and their lengths. In the first, most pages of the database are superseded.
    prepared: [(PathBuf, Vec<(PathBuf, u64)>); 2],
    points: Vec<(&'static str, Copy)>,
    answers: Vec<Value>,
    present: Copy,
}

/// What was counted.
#[derive(Default, Debug)]
struct FlipTally {
    cases: u64,
    /// Cases in which a command failed or warned, or `fsck` found damage.
    reported: u64,
    /// Cases in which nothing was reported, and every answer and every file was right.
    harmless: u64,
    /// Cases in which an answer changed and nothing was reported, in a database.
    unreported: u64,
    /// Points that were restored in full, and those of which something was missing and listed.
    restored: u64,
    refused: u64,
    by_file: BTreeMap<String, (u64, u64)>,
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

#[test]
fn a_flipped_bit_restores_nothing_wrong_and_is_reported_if_it_matters() {
    let scene = FlipWorld::new();
    let first = variable("STEPBACK_FLIPS_SEED").unwrap_or(1);
    let cases = variable("STEPBACK_FLIPS").unwrap_or(FLIPS);
    eprintln!("{cases} flipped bits from seed {first}");
    scene.expect_nothing_without_a_flip();
    let mut tally = FlipTally::default();
    let mut failures = Vec::new();
    for seed in first..first + cases {
        if let Err(problem) = scene.flip(seed, &mut tally) {
            eprintln!("FAILED {problem}");
            failures.push(problem);
        }
        if tally.cases.is_multiple_of(50) {
            eprintln!("up to seed {seed}: {tally:?}");
        }
    }
    eprintln!("{tally:#?}");
    assert!(failures.is_empty(), "{} of {cases} failed:\n{}", failures.len(), failures.join("\n"));
}

impl FlipWorld {
    fn new() -> Self {
        let world = Sandbox::new();
        world.write("src/main.txt", prose(1, 60));
        world.write("data.bin", noise(2, 90_000));
        world.write("assets/large.bin", noise(3, 300_000));
        world.write("tool.sh", "#!/bin/sh\n");
        world.chmod("tool.sh", 0o755);
        world.link("src/main.txt", "link");
        world.init_git();
        world.git(&["gc", "--quiet"]);
        let mut points = Vec::new();
        world.ok(["checkpoint", "create", "one", "-m", "the first", "--tag", "start"]);
        points.push(("one", world.files()));
        let agent = Talk::new(&world, "s1");
        agent.begin();
        agent.prompt("a prompt that search finds");
        for at in 0..6 {
            agent.bash(&format!("b{at}"), "echo changed", || {
                world.write(format!("src/made{at}.txt"), prose(10 + at, 20 + 10 * at as usize));
            });
        }
        agent.stop();
        world.write("data.bin", noise(4, 95_000));
        fs::remove_file(world.path("tool.sh")).unwrap();
        world.ok(["checkpoint", "create", "two"]);
        points.push(("two", world.files()));
        world.ok(["rewind", "one", "--yes", "--everything"]);
        world.ok(["undo", "--yes"]);
        world.write("src/main.txt", prose(5, 80));
        world.ok(["checkpoint", "create", "three"]);
        points.push(("three", world.files()));
        world.ok(["settings", "checkpoint.minutes", "7"]);
        let answers = QUESTIONS.iter().map(|question| world.ok(*question).json()).collect();
        world.write("unrecorded.txt", "never recorded\n");
        let prepared = ["logged", "folded"].map(|name| {
            if name == "folded" {
                let database = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
                database.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
            }
            let prepared = world.root().join(name);
            fs::create_dir(&prepared).unwrap();
            for dir in [&world.work, &world.store] {
                clone(dir, &prepared);
            }
            (prepared, list_files(&world.store))
        });
        Self { present: world.files(), world, prepared, points, answers }
    }

    fn put_back(&self, prepared: &Path) {
        for (dir, name) in [(&self.world.work, "work"), (&self.world.store, "store")] {
            fs::remove_dir_all(dir).unwrap();
            clone(&prepared.join(name), &self.world.root());
        }
    }

    /// Fails the test if something is reported about the intact store: then reports about a damaged one would mean nothing.
    fn expect_nothing_without_a_flip(&self) {
        for (prepared, _) in &self.prepared {
            self.put_back(prepared);
            let asked = self.ask_everything(&mut FlipTally::default()).unwrap();
            assert_eq!(asked, (Vec::new(), None), "the intact store");
            assert_eq!(self.change_everything().unwrap(), Vec::<String>::new(), "the intact store");
        }
    }

    /// Flips one bit and asks everything.
    fn flip(&self, seed: u64, tally: &mut FlipTally) -> Result<(), String> {
        let mut draw = Draw::new(seed);
        let (prepared, files) = draw.pick(&self.prepared);
        self.put_back(prepared);
        let (file, length) = draw.pick(files).clone();
        let (at, bit) = (draw.below(length as usize), draw.below(8));
        let path = self.world.store.join(&file);
        let mode = fs::metadata(&path).unwrap().permissions();
        let mut bytes = fs::read(&path).unwrap();
        bytes[at] ^= 1 << bit;
        fs::remove_file(&path).unwrap();
        fs::write(&path, &bytes).unwrap();
        fs::set_permissions(&path, mode).unwrap();
        let when = format!("seed {seed}, bit {bit} of byte {at} of {}", file.display());
        let wrap = |problem: String| format!("{when}: {problem}");

        let (asked, changed) = self.ask_everything(tally).map_err(wrap)?;
        if let Some(question) = changed.filter(|_| asked.is_empty()) {
            if file.extension().is_some_and(|kind| kind == "sqlite") {
                // A known limitation: SQLite has no checksums of pages, and not every column is part of a chain.
                eprintln!("{when}: not reported: {question}");
                tally.unreported += 1;
                return Ok(());
            }
            return Err(wrap(format!("the answer of {question} changed, and nothing reports it")));
        }
        let is_reported = !asked.is_empty() || !self.change_everything().map_err(wrap)?.is_empty();
        tally.cases += 1;
        let name = kind_of(&file);
        let counts = tally.by_file.entry(name).or_default();
        counts.0 += 1;
        counts.1 += u64::from(is_reported);
        match is_reported {
            true => tally.reported += 1,
            false => tally.harmless += 1,
        }
        Ok(())
    }

    /// Asks without changing. Returns what was reported, and a question whose answer is another one.
    fn ask_everything(&self, tally: &mut FlipTally) -> Result<(Vec<String>, Option<String>), String> {
        let mut reports = Vec::new();
        let mut changed = None;
        for (question, expected) in QUESTIONS.iter().zip(&self.answers) {
            let ran = self.world.run(*question);
            reports.extend(expect_no_crash(&ran, &question.join(" "))?);
            if ran.code == Some(0) {
                let found: Value = serde_json::from_str(&ran.out)
                    .map_err(|error| format!("{}: {error}: {}", question.join(" "), ran.out))?;
                if without_times(found.clone()) != without_times(expected.clone()) {
                    changed = Some(format!("{}: {found} instead of {expected}", question.join(" ")));
                }
            }
        }
        for (point, files) in &self.points {
            reports.extend(self.restore(point, files, tally)?);
        }
        let checked = self.world.run(["fsck"]);
        reports.extend(expect_no_crash(&checked, "fsck")?);
        Ok((reports, changed))
    }

    /// Restores a point into a new directory. What is there must be right, and what is missing must be reported.
    fn restore(&self, point: &str, expected: &Copy, tally: &mut FlipTally) -> Result<Vec<String>, String> {
        let into = self.world.root().join("out");
        let _ = fs::remove_dir_all(&into);
        let ran = self.world.run(["restore", point, "--into", into.to_str().unwrap()]);
        let reports = expect_no_crash(&ran, "restore")?;
        let found = if into.exists() { tree::copy_of(&into, |_| false) } else { Copy::new() };
        if ran.code == Some(0) {
            tally.restored += 1;
            let differences = tree::differences(expected, &found);
            return match differences.is_empty() {
                true => Ok(reports),
                false => Err(format!("{point} was restored wrongly without an error:\n{differences}")),
            };
        }
        tally.refused += 1;
        match wrong_files(&found, &[expected]) {
            wrong if wrong.is_empty() => Ok(reports),
            wrong => Err(format!("{point} was restored partly, and wrongly: {}", wrong.join(", "))),
        }
    }

    /// Makes a checkpoint and a rewind. Returns what was reported.
    fn change_everything(&self) -> Result<Vec<String>, String> {
        let world = &self.world;
        let created = world.run(["checkpoint", "create", "four"]);
        let mut reports = expect_no_crash(&created, "checkpoint create")?;
        let differences = tree::differences(&self.present, &world.files());
        if !differences.is_empty() {
            return Err(format!("a checkpoint changed the workspace:\n{differences}"));
        }
        if created.code == Some(0) && !created.err.contains("cannot be restored") {
            reports.extend(self.restore("four", &self.present, &mut FlipTally::default())?);
        }
        let (point, expected) = &self.points[0];
        let rewound = world.run(["rewind", point, "--yes", "--everything"]);
        reports.extend(expect_no_crash(&rewound, "rewind")?);
        let found = world.files();
        if rewound.code == Some(0) {
            let differences = tree::differences(expected, &found);
            if !differences.is_empty() {
                return Err(format!("a rewind went wrong without an error:\n{differences}"));
            }
        }
        let wrong = wrong_files(&found, &[expected, &self.present]);
        let lost: Vec<String> = self
            .present
            .keys()
            .filter(|path| !found.contains_key(*path) && expected.contains_key(*path))
            .map(|path| path.escape_ascii().to_string())
            .collect();
        if !wrong.is_empty() || !lost.is_empty() {
            return Err(format!("after a rewind, wrong: {}; lost: {}", wrong.join(", "), lost.join(", ")));
        }
        Ok(reports)
    }
}

/// Fails if a command crashed. Returns what it reported.
fn expect_no_crash(ran: &Ran, what: &str) -> Result<Vec<String>, String> {
    if ran.err.contains("panicked") || !matches!(ran.code, Some(0 | 2..=9)) {
        return Err(format!("{what} crashed ({:?}): {}{}", ran.code, ran.out, ran.err));
    }
    // What every rewind says about files that git does not have is no report.
    let lines = ran.err.lines().filter(|line| !line.contains("changes that git does not have"));
    let warns = lines
        .into_iter()
        .any(|line| ["Warning:", "damaged", "cannot"].iter().any(|word| line.contains(word)));
    let report = || format!("{what} ({:?}): {}", ran.code, ran.err);
    Ok(if ran.code != Some(0) || warns { vec![report()] } else { Vec::new() })
}

/// Files whose content is in none of the copies. Directories may be there before what they contain.
fn wrong_files(found: &Copy, copies: &[&Copy]) -> Vec<String> {
    let is_right = |path: &Vec<u8>, thing: &Thing| {
        thing.is_dir() || copies.iter().any(|copy| copy.get(path) == Some(thing))
    };
    let wrong = found.iter().filter(|(path, thing)| !is_right(path, thing));
    wrong.map(|(path, _)| path.escape_ascii().to_string()).collect()
}

/// A document without what depends on the present time.
fn without_times(mut document: Value) -> Value {
    if let Some(fields) = document.as_object_mut() {
        for name in ["took_ms", "took", "milliseconds", "duration_ms"] {
            fields.insert(name.into(), json!(null));
        }
    }
    document
}

/// What a file of the store is: its name without numbers.
fn kind_of(file: &Path) -> String {
    let text = file.display().to_string();
    let first = text.split('/').next().unwrap_or_default().to_owned();
    match first.as_str() {
        "workspaces" => format!("workspaces/{}", text.rsplit('/').next().unwrap_or_default()),
        _ => first,
    }
}

/// The files of a directory that have content, in order, relative to it. Shared memory is left out: SQLite makes it anew.
fn list_files(dir: &Path) -> Vec<(PathBuf, u64)> {
    let mut found = Vec::new();
    let mut rest = vec![dir.to_owned()];
    while let Some(below) = rest.pop() {
        for entry in fs::read_dir(&below).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                rest.push(path);
            } else if metadata.is_file() && metadata.len() > 0 && !path.to_string_lossy().ends_with("-shm") {
                found.push((path.strip_prefix(dir).unwrap().to_owned(), metadata.len()));
            }
        }
    }
    found.sort();
    found
}

/// Copies a directory with modes, times and links into another one.
fn clone(from: &Path, into: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(into).status().unwrap();
    assert!(status.success());
}
