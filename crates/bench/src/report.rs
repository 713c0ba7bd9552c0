//! The output: samples, the goals compared with them, and tables.

pub mod goals;
pub mod markdown;
pub mod results;
