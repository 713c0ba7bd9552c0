//! Fuzzing on stable Rust: parsers of bytes from other sources must accept any input without a panic, an endless loop, or
//! unbounded memory.
//!
//! A target starts from real inputs and mutates them with a seeded generator, so a run is the same everywhere. An
//! ordinary test run does a fixed number of cases with fixed seeds. `STEPBACK_FUZZ_SECONDS=3600` continues for that long
//! with new seeds, and `STEPBACK_FUZZ_SEED=N` repeats the one case that failed. The test runner's timeout ends an endless
//! loop; until then, the seed is printed every ten seconds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::tree::Draw;

/// The most memory that a case may hold in addition to what was held before it, in bytes. Needs a [`MeteredAllocator`].
pub const MAX_MEMORY: usize = 256 << 20;
/// The most bytes of a mutated input, unless the real inputs are longer.
const MAX_INPUT: usize = 64 << 10;
/// The most mutations of one input.
const MAX_CHANGES: usize = 6;
/// Boundary values of numbers.
const EDGES: [u64; 16] = [
    0,
    1,
    0x7e,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// One reader under test.
pub struct FuzzTarget {
    name: &'static str,
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
}

impl FuzzTarget {
    /// A target with real inputs to start from.
    pub fn new(name: &'static str, corpus: impl IntoIterator<Item = impl Into<Vec<u8>>>) -> Self {
        let corpus: Vec<Vec<u8>> = corpus.into_iter().map(Into::into).collect();
        assert!(!corpus.is_empty(), "{name} has nothing to start from");
        Self { name, corpus, words: Vec::new() }
    }

    /// Words of the format, which are inserted at random.
    pub fn words(mut self, words: &[&str]) -> Self {
        self.words.extend(words.iter().map(|word| word.as_bytes().to_vec()));
        self
    }

    /// Calls `check` with every real input, and then with `cases` mutated ones; with more if the environment says so.
    ///
    /// # Panics
    ///
    /// If `check` does, or needs too much memory.
    pub fn run(self, cases: u64, mut check: impl FnMut(&[u8])) {
        let variable = |name: &str| std::env::var(name).ok().map(|value| value.parse::<u64>().unwrap());
        if let Some(seed) = variable("STEPBACK_FUZZ_SEED") {
            return self.run_case(seed, &self.input(seed), &mut check);
        }
        let watch = SlowCaseReport::start(self.name);
        for input in &self.corpus {
            self.run_case(0, input, &mut check);
        }
        let first = match variable("STEPBACK_FUZZ_SECONDS") {
            None => 1,
            Some(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 >> 1,
        };
        let end =
            variable("STEPBACK_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
        let mut seed = first;
        while end.map_or(seed < first + cases, |end| Instant::now() < end) {
            watch.seed.store(seed, Ordering::Relaxed);
            self.run_case(seed, &self.input(seed), &mut check);
            seed += 1;
        }
        eprintln!(
            "{}: {} inputs and {} changed ones, seeds {first} to {}",
            self.name,
            self.corpus.len(),
            seed - first,
            seed - 1
        );
    }

    fn run_case(&self, seed: u64, input: &[u8], check: &mut impl FnMut(&[u8])) {
        let bytes_before = ALLOCATED_BYTES.load(Ordering::Relaxed);
        PEAK_BYTES.store(bytes_before, Ordering::Relaxed);
        let outcome = catch_unwind(AssertUnwindSafe(|| check(input)));
        let used = PEAK_BYTES.load(Ordering::Relaxed).saturating_sub(bytes_before);
        let excerpt = input[..input.len().min(1000)].escape_ascii();
        let description = format!("{}: seed {seed}, {} bytes: {excerpt}", self.name, input.len());
        if let Err(panic) = outcome {
            eprintln!("{description}\nSTEPBACK_FUZZ_SEED={seed} repeats it");
            resume_unwind(panic);
        }
        assert!(used <= MAX_MEMORY, "{used} bytes of memory at once; {description}");
    }

    /// The input of a seed.
    fn input(&self, seed: u64) -> Vec<u8> {
        let mut draw = Draw::new(seed);
        let mut input = draw.pick(&self.corpus).clone();
        let max_length = MAX_INPUT.max(input.len() + 1000);
        for _ in 0..1 + draw.below(MAX_CHANGES) {
            self.change(&mut draw, &mut input);
            input.truncate(max_length);
        }
        input
    }

    fn change(&self, draw: &mut Draw, input: &mut Vec<u8>) {
        let offset = draw.below(input.len() + 1);
        let end = offset + draw.below((input.len() - offset).min(300) + 1);
        match draw.below(10) {
            0 if offset < input.len() => input[offset] ^= 1 << draw.below(8),
            1 if offset < input.len() => input[offset] = draw.number() as u8,
            2 => drop(input.drain(offset..end)),
            3 => input.truncate(offset),
            4 => {
                let count = draw.below(20);
                insert(input, offset, &draw.bytes(count));
            }
            5 | 6 => {
                let edge = draw.pick(&EDGES).wrapping_add(draw.below(3) as u64).wrapping_sub(1);
                let size = *draw.pick(&[1, 2, 4, 8]);
                let bytes = match draw.once_in(2) {
                    true => edge.to_le_bytes()[..size].to_vec(),
                    false => edge.to_be_bytes()[8 - size..].to_vec(),
                };
                let end = (offset + size).min(input.len());
                input.splice(offset..end, bytes).for_each(drop);
            }
            7 if !self.words.is_empty() => insert(input, offset, &draw.pick(&self.words).clone()),
            8 => {
                // Once, or often enough for deep nesting.
                let repeated = input[offset..end].to_vec();
                let times = if draw.once_in(10) {
                    2 + MAX_INPUT / 4 / repeated.len().max(1)
                } else {
                    1 + draw.below(3)
                };
                insert(input, offset, &repeated.repeat(times));
            }
            _ => {
                let other_input = draw.pick(&self.corpus);
                let start = draw.below(other_input.len() + 1);
                let length = draw.below((other_input.len() - start).min(2000) + 1);
                insert(input, offset, &other_input[start..start + length]);
            }
        }
    }
}

fn insert(input: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    input.splice(offset..offset, bytes.iter().copied()).for_each(drop);
}

/// Prints the seed of a case that does not end. It has no effect on the result.
struct SlowCaseReport {
    seed: std::sync::Arc<AtomicU64>,
}

impl SlowCaseReport {
    const FINISHED: u64 = u64::MAX;

    fn start(name: &'static str) -> Self {
        let seed = std::sync::Arc::new(AtomicU64::new(0));
        let last_seed = seed.clone();
        std::thread::spawn(move || {
            let mut last = Self::FINISHED;
            while last_seed.load(Ordering::Relaxed) != Self::FINISHED {
                let now = last_seed.load(Ordering::Relaxed);
                if now == last {
                    eprintln!("{name}: still at seed {now}");
                }
                last = now;
                std::thread::sleep(Duration::from_secs(10));
            }
        });
        Self { seed }
    }
}

impl Drop for SlowCaseReport {
    fn drop(&mut self) {
        self.seed.store(Self::FINISHED, Ordering::Relaxed);
    }
}

static ALLOCATED_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator with a count of the bytes held. A test binary with targets makes it its global allocator.
pub struct MeteredAllocator;

// SAFETY: everything is passed on to the system's allocator; counting allocates nothing.
unsafe impl GlobalAlloc for MeteredAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATED_BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

fn count(size: usize) {
    let held_bytes = ALLOCATED_BYTES.fetch_add(size, Ordering::Relaxed) + size;
    PEAK_BYTES.fetch_max(held_bytes, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: MeteredAllocator = MeteredAllocator;

    fn target() -> FuzzTarget {
        FuzzTarget::new("numbers", ["[1, 2, 3]", "{\"a\": 17}"]).words(&["[", "null"])
    }

    #[test]
    fn a_seed_gives_the_same_input_again_and_most_inputs_differ() {
        let inputs = |from: u64| (from..from + 200).map(|seed| target().input(seed)).collect::<Vec<_>>();
        assert_eq!(inputs(1), inputs(1));
        let distinct: std::collections::HashSet<_> = inputs(1).into_iter().collect();
        assert!(distinct.len() > 150, "{}", distinct.len());
    }

    #[test]
    fn a_panic_and_too_much_memory_are_found() {
        let fails = |check: &mut dyn FnMut(&[u8])| {
            catch_unwind(AssertUnwindSafe(|| target().run(2000, |input| check(input)))).is_err()
        };
        assert!(!fails(&mut |_| {}));
        assert!(fails(&mut |input| assert!(!input.windows(4).any(|part| part == b"null"))));
        assert!(fails(&mut |input| drop(Vec::<u8>::with_capacity(input.len() << 24))));
    }
}
