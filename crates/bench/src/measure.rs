//! The instruments: time and memory of processes, other load on the machine, and the content of directories.

pub mod clock;
pub mod machine;
pub mod manifest;
