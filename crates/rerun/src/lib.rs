//! Turning a recording into something that runs again: from any point, with one thing changed, in a directory of its own,
//! behind a fence.

pub mod change;
pub mod fence;
pub mod tape;
