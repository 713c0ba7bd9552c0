//! The instruments: the time and memory of a process, what else the machine was doing, and what is in a directory.

pub mod clock;
pub mod machine;
pub mod manifest;
