//! A mirror and its store: what is restored is what was recorded, whatever happens to either.
#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod bucket;
mod damage;
mod fixture;
mod follow;
mod restored;
