//! A bounded sample of the power-loss tests, for every run of all tests.
//!
//! Its output is shown also if it passes (`.config/nextest.toml`), because it is the only place that says what was skipped:
//! root and loop devices cannot be installed, so this test does not insist on them anywhere.

use std::path::Path;
use std::process::Command;

/// On each file system; together with the recordings this takes less than a minute.
const CUTS: &str = "15";

#[test]
fn nothing_acknowledged_is_lost_at_a_sample_of_cuts() {
    let harness = Path::new(env!("CARGO_BIN_EXE_stepback-powerloss"));
    let stepback = harness.with_file_name("stepback");
    if !stepback.is_file() {
        eprintln!("skipped: there is no {}; `cargo build --package stepback` makes it", stepback.display());
        return;
    }
    let output = Command::new(harness).args(["--cuts", CUTS]).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    eprintln!("{printed}");
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
}
