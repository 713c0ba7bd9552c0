//! The outside world: the clock, limits of the process, and switches for tests.

use std::sync::{Arc, Once};

use stepback_engine::SystemEnv;
use stepback_model::env::{Env, FrozenEnv};
use stepback_model::time::Timestamp;

/// Returns the environment of this process. `STEPBACK_TEST_CLOCK` (a time and a seed, `2026-01-02T03:04:05Z/7`) freezes
/// it, for transcripts that are exact to the byte.
pub fn environment() -> Arc<dyn Env> {
    let frozen = std::env::var("STEPBACK_TEST_CLOCK").ok().and_then(|text| {
        let (moment, seed) = text.split_once('/')?;
        let start = Timestamp::from_jiff(moment.parse().ok()?);
        Some(FrozenEnv::new(start, seed.parse().ok()?))
    });
    match frozen {
        Some(frozen) => Arc::new(frozen),
        None => Arc::new(SystemEnv),
    }
}

/// Returns the names of the environment variables of this process, sorted; none for transcripts that are exact to the byte.
pub fn variable_names() -> Vec<String> {
    if std::env::var_os("STEPBACK_TEST_CLOCK").is_some() {
        return Vec::new();
    }
    let mut names: Vec<String> =
        std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
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
