//! Bundles: sessions in one file, with everything that is needed to open them elsewhere.
//!
//! A bundle holds the records of some sessions and every object and git file that their states need. It may come from another
//! user, so nothing in it is trusted: before anything is written, the file is read to its end, the address of every object is
//! computed from its bytes, and everything that the records name must be present. Then all of it is committed at once, or
//! nothing.
//!
//! `frame` is the container, `records` the lines of its log, `gather` selects the records that belong to a session, `open`
//! reads and validates a file, `import` commits it to the store, `lines` writes the same records as JSON lines for other
//! programs, and `read_lines` imports those. Format: `docs/spec/bundle.md`.

mod check;
mod error;
mod frame;
mod gather;
mod import;
mod lines;
mod open;
mod read_lines;
mod records;

use std::fs::File;
use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectError;
use stepback_model::record::Session;
use stepback_model::tree::Content;
use stepback_store::StoreError;

use self::frame::{BLOCK, Block, Writer};
use self::records::GitFile;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::reachability::{Marker, Visitor};
use crate::workspace::StoreSource;

pub use self::error::BundleError;
pub use self::import::ImportReport;
pub use self::lines::{FORMAT as LINES, is_lines};
pub use self::open::{Bundle, is_bundle};

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Exported {
    /// Number of requested sessions.
    pub sessions: u64,
    /// Number of steps, including those of other sessions that they descend from.
    pub steps: u64,
    /// Number of operations.
    pub operations: u64,
    /// Number of objects.
    pub objects: u64,
    /// Size of the objects before compression, in bytes.
    pub bytes: u64,
    /// Number of git files, which are stored unchanged.
    pub git_files: u64,
}

/// Objects in the order in which they are reached.
#[derive(Default)]
struct InOrder(Vec<(ObjectKind, Hash)>);

impl Visitor for InOrder {
    fn object(&mut self, kind: ObjectKind, hash: Hash) {
        self.0.push((kind, hash));
    }

    fn file(&mut self, _: u64, _: &Content) -> Result<(), ObjectError> {
        Ok(())
    }
}

impl Engine {
    /// Writes a bundle of `sessions`. The same sessions give the same bytes.
    pub fn export_bundle(&self, sessions: &[Session], out: impl Write) -> Result<Exported, EngineError> {
        let _lock = self.keep_collector_out()?;
        let logs = gather::logs(self, sessions)?;
        let mut exported = Exported { sessions: sessions.len() as u64, ..Exported::default() };
        let mut writer = Writer::new(out)?;
        let source = StoreSource(self.store());
        let mut order = InOrder::default();
        let mut marker = Marker::new(&source).told(&mut order);
        for log in &logs {
            exported.steps += log.steps.len() as u64;
            exported.operations += log.operations.len() as u64;
            for record in log.records() {
                writer.add(Block::Log, &record.line())?;
            }
            log.push_to(&mut marker);
        }
        marker.run();
        let Marker { alive, problems, .. } = marker;
        if let Some(problem) = problems.into_iter().next() {
            return Err(StoreError::Corrupt { what: problem }.into());
        }
        for (kind, hash) in order.0 {
            let bytes = self.store.read(kind, hash)?;
            exported.objects += 1;
            exported.bytes += bytes.len() as u64;
            writer.object(kind, &bytes)?;
            if let Some(progress) = &self.progress {
                progress.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut names: Vec<Vec<u8>> = alive.vaulted.into_iter().collect();
        names.sort();
        exported.git_files = names.len() as u64;
        for name in names {
            self.export_git_file(&name, &mut writer)?;
        }
        writer.finish()?;
        Ok(exported)
    }

    fn export_git_file(&self, name: &[u8], writer: &mut Writer<impl Write>) -> Result<(), EngineError> {
        // Names in the vault are always ASCII.
        let shown = String::from_utf8_lossy(name).into_owned();
        let missing = |why: String| StoreError::Corrupt { what: format!("git file {shown}: {why}") };
        let vault = self.vault()?.ok_or_else(|| missing("this store has no vault".into()))?;
        let mut file = vault.open_sound(name).map_err(|error| missing(error.to_string()))?;
        let size = file.metadata().map_err(|error| missing(error.to_string()))?.len();
        writer.add(Block::GitFile, &GitFile { name: shown.clone(), size }.line())?;
        writer.end_block()?;
        let mut left = size;
        let mut part = vec![0; BLOCK];
        while left > 0 {
            let want = part.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            file.read_exact(&mut part[..want]).map_err(|error| missing(error.to_string()))?;
            writer.add(Block::Part, &part[..want])?;
            writer.end_block()?;
            left -= want as u64;
        }
        Ok(())
    }

    /// Reads a bundle to its end and validates all of it. Writes nothing.
    pub fn open_bundle(&self, file: File) -> Result<Bundle, EngineError> {
        Ok(Bundle::open(file, self.progress.as_deref())?)
    }
}
