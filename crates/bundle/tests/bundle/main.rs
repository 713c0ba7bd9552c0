//! Sessions that go into a file and come out of it in another store, and files that must not come out of anything.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

mod fuzz;
mod hostile;
mod place;
mod restore_fuzz;
mod round_trip;
mod shared_pages;
