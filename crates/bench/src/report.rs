//! What comes out: samples, the goals judged by them, and tables.

pub mod goals;
pub mod markdown;
pub mod results;
