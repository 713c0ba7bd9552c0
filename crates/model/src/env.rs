//! The source of time and ids, passed in by the caller so that everything below is reproducible to the byte in tests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::Timestamp;

/// The parts of the outside world that the engine may use.
pub trait Env: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
    /// Sixteen new bytes for an id; never the same twice.
    fn fresh_id(&self) -> [u8; 16];
}

/// A clock that advances one second per call and ids counted from a seed, for tests and transcripts.
#[derive(Debug)]
pub struct FrozenEnv {
    start: Timestamp,
    calls: AtomicU64,
    seed: u64,
    drawn: AtomicU64,
}

impl FrozenEnv {
    /// Starts the clock at `start`; ids derive from `seed`.
    pub fn new(start: Timestamp, seed: u64) -> Self {
        Self { start, calls: AtomicU64::new(0), seed, drawn: AtomicU64::new(0) }
    }
}

impl Env for FrozenEnv {
    fn now(&self) -> Timestamp {
        let seconds = self.calls.fetch_add(1, Ordering::Relaxed) as i64;
        Timestamp::from_micros(self.start.as_micros() + seconds * 1_000_000)
    }

    fn fresh_id(&self) -> [u8; 16] {
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.seed.to_le_bytes()).update(&count.to_le_bytes());
        let mut id = [0u8; 16];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        id
    }
}
