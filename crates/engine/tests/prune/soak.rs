//! A store that is used for long: thousands of checkpoints under a disk budget.
//!
//! At every sampling the store must be within its budget, and whatever it still lists must come back byte for byte, compared
//! by hash with what was recorded. An ordinary run is short, with larger files; `STEPBACK_SOAK=20000` makes so many checkpoints
//! under a budget of 10 KB for each (200 MB), and prints the numbers.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::time::{Duration, Instant};

use stepback_engine::Workspace;
use stepback_engine::budget::starts_at;
use stepback_engine::rewind::RewindRequest;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::StepId;
use stepback_model::record::{Annotation, StepRow, Trigger};
use stepback_testkit::sample::noise;

use super::Fixture;

const CHECKPOINTS: usize = 600;
const BUDGET_PER_CHECKPOINT: u64 = 10_000;
/// A smaller one would be used up by what the database writes ahead.
const SMALLEST_BUDGET: u64 = 20_000_000;
const FILES: u64 = 12;
/// After so many checkpoints the store is measured, and some of what it lists is compared.
const SAMPLE: usize = 50;
/// One checkpoint in so many gets a label.
const LABELLED: usize = 100;

type Files = BTreeMap<String, Hash>;

fn content_hash(content: &[u8]) -> Hash {
    Hash::of(ObjectKind::Blob, content)
}

/// The files below a directory, by their hashes.
fn read_files(dir: &std::path::Path) -> Files {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let name = |entry: &fs::DirEntry| entry.file_name().into_string().unwrap();
    entries.map(|entry| (name(&entry), content_hash(&fs::read(entry.path()).unwrap()))).collect()
}

struct Soak {
    fixture: Fixture,
    budget: u64,
    /// The length of the longest file.
    longest: u64,
    next_at: u64,
    present: Files,
    recorded: HashMap<StepId, Files>,
    labelled: Vec<StepId>,
    drawn: u64,
    prunings: u64,
    pruning_time: Duration,
    largest: u64,
    compared: usize,
}

impl Soak {
    /// A pseudo-random number.
    fn draw(&mut self, below: u64) -> u64 {
        self.drawn =
            self.drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.drawn >> 33) % below
    }

    fn workspace(&self) -> &Workspace {
        &self.fixture.workspace
    }

    /// Changes about three files: most get other bytes, some lines are added, some files go.
    fn work(&mut self) {
        for _ in 0..=self.draw(4) {
            let name = format!("file{}", self.draw(FILES));
            let path = self.fixture.files.path(&name);
            let content = match (self.draw(8), fs::read(&path)) {
                (0, Ok(_)) => {
                    fs::remove_file(&path).unwrap();
                    self.present.remove(&name);
                    continue;
                }
                (1..=3, Ok(mut content)) => {
                    content.extend_from_slice(format!("line {}\n", self.drawn).as_bytes());
                    content
                }
                _ => {
                    let length = 2_000 + self.draw(self.longest);
                    noise(self.drawn, length as usize)
                }
            };
            fs::write(&path, &content).unwrap();
            self.present.insert(name, content_hash(&content));
        }
    }

    fn checkpoint(&mut self, number: usize) {
        let is_labelled = number.is_multiple_of(LABELLED);
        let annotation = match is_labelled {
            true => Annotation::labelled(format!("kept {number}")),
            false => Annotation::default(),
        };
        let stored = self.workspace().create_checkpoint(annotation, Trigger::Automatic).unwrap().stored;
        self.recorded.insert(stored.step.id, self.present.clone());
        if is_labelled {
            self.labelled.push(stored.step.id);
        }
    }

    /// Goes back to a checkpoint, and notices what stepback recorded of the present before.
    fn rewind(&mut self) {
        let listed = self.workspace().checkpoints().unwrap();
        let target = listed[self.draw(listed.len().min(40) as u64) as usize].clone();
        let Some(files) = self.recorded.get(&target.step.id).cloned() else { return };
        let request = RewindRequest { target: Some(target), everything: true, ..RewindRequest::default() };
        let report =
            self.workspace().apply_rewind(self.workspace().prepare_rewind(&request).unwrap()).unwrap();
        let moved = report.operation.action.moved().unwrap().clone();
        self.recorded.insert(moved.before, self.present.clone());
        self.recorded.insert(moved.after, files.clone());
        self.present = files;
        assert_eq!(read_files(&self.fixture.files.root), self.present);
    }

    fn prune_if_due(&mut self) {
        if self.fixture.size() < self.next_at {
            return;
        }
        let started = Instant::now();
        let report = self.fixture.files.engine().enforce_budget(self.budget).unwrap();
        self.pruning_time += started.elapsed();
        self.prunings += 1;
        assert!(report.fits, "{report:?}");
        self.next_at = report.next_at;
    }

    fn compare(&mut self, stored: &StepRow) {
        let Some(expected) = self.recorded.get(&stored.step.id) else { return };
        let state = self.workspace().load_state(stored).unwrap();
        let into = self.fixture.files.top().join("restored");
        self.workspace().materialize(&state, &into, false).unwrap();
        assert_eq!(&read_files(&into), expected, "#{}", stored.step.number);
        fs::remove_dir_all(&into).unwrap();
        self.compared += 1;
    }

    fn sample(&mut self) {
        let size = self.fixture.size();
        self.largest = self.largest.max(size);
        assert!(size <= self.budget, "{size} of {}", self.budget);
        let listed = self.workspace().checkpoints().unwrap();
        for index in [0, listed.len() / 2, listed.len() - 1] {
            self.compare(&listed[index]);
        }
    }
}

#[test]
fn thousands_of_checkpoints_stay_within_the_budget_and_every_kept_one_comes_back() {
    let asked = std::env::var("STEPBACK_SOAK").ok().and_then(|text| text.parse().ok());
    let checkpoints: usize = asked.unwrap_or(CHECKPOINTS);
    let budget = (checkpoints as u64 * BUDGET_PER_CHECKPOINT).max(SMALLEST_BUDGET);
    let mut soak = Soak {
        fixture: Fixture::new(),
        budget,
        longest: 2 * budget / checkpoints as u64,
        next_at: starts_at(budget),
        present: Files::new(),
        recorded: HashMap::new(),
        labelled: Vec::new(),
        drawn: 7,
        prunings: 0,
        pruning_time: Duration::ZERO,
        largest: 0,
        compared: 0,
    };
    let started = Instant::now();
    for number in 1..=checkpoints {
        soak.work();
        soak.checkpoint(number);
        if number.is_multiple_of(97) {
            soak.rewind();
        }
        soak.prune_if_due();
        if number.is_multiple_of(SAMPLE) {
            soak.sample();
            soak.fixture.pass_hours(1);
        }
    }
    let took = started.elapsed();
    let listed = soak.workspace().checkpoints().unwrap();
    for id in &soak.labelled {
        assert!(listed.iter().any(|stored| stored.step.id == *id), "a labelled checkpoint is gone");
    }
    for stored in &listed {
        soak.compare(stored);
    }
    soak.fixture.expect_sound();
    assert!(soak.prunings > 0 && listed.len() < checkpoints, "the budget was never reached");
    println!(
        "{checkpoints} checkpoints under {budget} bytes in {took:?}: {} prunings took {:?}, largest size {}, now {}; {} checkpoints are left, {} labelled, {} comparisons",
        soak.prunings,
        soak.pruning_time,
        soak.largest,
        soak.fixture.size(),
        listed.len(),
        soak.labelled.len(),
        soak.compared,
    );
}
