//! The environment of a real program: the clock and the random numbers of the system.

use std::time::Instant;

use stepback_model::env::Env;
use stepback_model::time::Timestamp;
use stepback_model::{Hash, ObjectKind};

/// The clock of the system, and random ids.
#[derive(Clone, Copy, Default, Debug)]
pub struct SystemEnv;

impl Env for SystemEnv {
    fn now(&self) -> Timestamp {
        Timestamp::from_jiff(jiff::Timestamp::now())
    }

    fn fresh_id(&self) -> [u8; 16] {
        let mut id = [0; 16];
        if getrandom::fill(&mut id).is_err() {
            // No random numbers from the system: the clock and the process are unique enough on one machine.
            let text = format!("{:?} {}", Instant::now(), std::process::id());
            let hash = Hash::of(ObjectKind::Blob, text.as_bytes());
            id.copy_from_slice(&hash.as_bytes()[..16]);
        }
        id
    }
}
