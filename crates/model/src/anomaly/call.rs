//! One call as the detectors see it.

use serde::{Deserialize, Serialize};

/// How long a successful call takes at least that waits for something, in microseconds.
const WAITING_MICROS: u64 = 1_000_000;

/// A call that has ended, in fingerprints and numbers: none of its content. 0 is always "unknown" or "none".
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ObservedCall {
    /// What the caller knows its last step by: a number, or an index.
    pub step: u64,
    /// The tool.
    pub tool: u64,
    /// The path or program that it is about.
    pub subject: u64,
    /// The input ([`crate::fingerprint::fingerprint_input`]).
    pub input: u64,
    /// The input that would take it back, if it is an edit ([`crate::fingerprint::fingerprint_inverse`]).
    pub inverse: u64,
    /// The output or error ([`crate::fingerprint::fingerprint_output`]).
    pub output: u64,
    /// Whether it failed.
    pub failed: bool,
    /// The state of the files before it.
    pub before: u64,
    /// The state of the files after it.
    pub after: u64,
    /// When it ended, in microseconds since 1970.
    pub at: i64,
    /// How long it took, in microseconds, if that is known.
    pub duration: Option<u64>,
    /// The size of its input in bytes.
    pub input_bytes: u64,
    /// Whether its tool changes nothing but the file that it names.
    pub edits: bool,
    /// Whether it waits for something, as far as its name tells ([`is_waiting`]).
    pub waits: bool,
}

/// Whether a call waits for something that runs elsewhere, so that it is repeated until that is done: a tool that reads what a
/// running program prints, or a shell command that begins with such a program.
pub fn is_waiting(tool: &str, subject: &str) -> bool {
    const TOOLS: [&str; 12] = [
        "BashOutput",
        "TaskOutput",
        "Monitor",
        "AgentOutput",
        "write_stdin",
        "wait",
        "wait_agent",
        "read_background_output",
        "process_output",
        "sleep",
        "read_terminal",
        "get_terminal_output",
    ];
    const PROGRAMS: [&str; 4] = ["sleep", "wait", "watch", "inotifywait"];
    let program = subject.rsplit('/').next().unwrap_or(subject);
    TOOLS.contains(&tool) || PROGRAMS.contains(&program)
}

impl ObservedCall {
    /// Whether files changed while it ran.
    pub fn changed_files(&self) -> bool {
        self.before != 0 && self.after != 0 && self.before != self.after
    }

    /// What is equal for the same call with the same result; `None` if its input is unknown.
    pub(super) fn signature(&self) -> Option<u64> {
        (self.input != 0).then(|| {
            let result = self.output.rotate_left(17) ^ u64::from(self.failed).rotate_left(3);
            mix(mix(self.tool.wrapping_add(1)) ^ mix(self.input) ^ mix(result ^ 0x5bd1_e995))
        })
    }

    /// How many times as often as usual it may be repeated. A call that succeeds and takes a while waits for something, and one
    /// without a recorded output may have had another result each time.
    pub(super) fn patience(&self) -> u64 {
        match () {
            () if self.failed => 1,
            () if self.waits || self.duration.is_some_and(|duration| duration >= WAITING_MICROS) => 8,
            () if self.output == 0 => 2,
            () => 1,
        }
    }
}

/// Spreads the bits of a number (the finalizer of MurmurHash3).
fn mix(mut value: u64) -> u64 {
    value ^= value >> 33;
    value = value.wrapping_mul(0xff51_afd7_ed55_8ccd);
    value ^= value >> 33;
    value = value.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    value ^ (value >> 33)
}
