//! Bundles: sessions in one file, with everything that is needed to open them elsewhere.
//!
//! A bundle holds the records of some sessions and every object and git file that their states need. It may come from another
//! user, so nothing in it is trusted: before anything is written, the file is read to its end, the address of every object is
//! computed from its bytes, and everything that the records name must be present. Then all of it is committed at once, or
//! nothing. The engine knows nothing of bundles; they are read from and committed to its store. Format: `docs/spec/bundle.md`.
//!
//! # Modules
//!
//! - `frame`, `records`: the container, and the lines of its log.
//! - `gather`, `export`: which records belong to a session, and writing them with what they need.
//! - `open`, `check`, `import`: reading and validating a file, and committing it to the store.
//! - `lines`, `read_lines`: the same records as JSON lines for other programs, and importing those.
//! - `error`: why a bundle is rejected.

mod check;
mod error;
mod export;
mod frame;
mod gather;
mod import;
mod lines;
mod open;
mod read_lines;
mod records;

pub use error::BundleError;
pub use export::{ExportReport, export};
pub use import::{ImportReport, import};
pub use lines::{export_lines, is_json_lines_export};
pub use open::{Bundle, is_bundle};
pub use read_lines::import_lines;
