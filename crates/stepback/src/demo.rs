//! `stepback demo`: a small project is wrecked by a script and brought back step by step, narrated.

use crate::commands::Answer;

/// Runs the demo.
pub fn run(_keep: bool, _fast: bool) -> Answer {
    crate::commands::DONE
}
