//! The outside world: the clock, random ids, signals, and switches for tests.

use std::sync::Once;

use stepback_model::env::{Env, FrozenEnv};
use stepback_model::time::Timestamp;

/// The real clock and real randomness.
#[derive(Debug)]
struct SystemEnv;

impl Env for SystemEnv {
    fn now(&self) -> Timestamp {
        Timestamp::from_jiff(jiff::Timestamp::now())
    }

    fn fresh_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        if getrandom::fill(&mut id).is_err() {
            // No randomness from the system: the clock and the process are unique enough on one machine.
            let mixed = format!("{:?} {}", std::time::Instant::now(), std::process::id());
            let hash = stepback_model::Hash::of(stepback_model::ObjectKind::Blob, mixed.as_bytes());
            id.copy_from_slice(&hash.as_bytes()[..16]);
        }
        id
    }
}

/// Returns the environment of this process. `STEPBACK_TEST_CLOCK` (a time and a seed, `2026-01-02T03:04:05Z/7`) freezes
/// it, for transcripts that are exact to the byte.
pub fn environment() -> Box<dyn Env> {
    let frozen = std::env::var("STEPBACK_TEST_CLOCK").ok().and_then(|text| {
        let (moment, seed) = text.split_once('/')?;
        let start = Timestamp::from_jiff(moment.parse().ok()?);
        Some(FrozenEnv::new(start, seed.parse().ok()?))
    });
    match frozen {
        Some(frozen) => Box::new(frozen),
        None => Box::new(SystemEnv),
    }
}

/// Arms a fault for tests, raises the limit of open files, and makes a closed pipe end the program quietly.
pub fn prepare_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        if let Ok(fault) = std::env::var("STEPBACK_FAULT") {
            let _ = stepback_faults::arm_from(&fault);
        }
        // Deep trees keep one directory open per level.
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    });
}
