//! Writes a bundle: the records of sessions, then every object and git file that they need.

use std::io::{Read, Write};
use std::sync::atomic::Ordering;

use stepback_engine::Engine;
use stepback_engine::reachability::{Marker, Visitor};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectError;
use stepback_model::record::Session;
use stepback_model::tree::Content;
use stepback_store::StoreError;

use crate::error::BundleError;
use crate::frame::{BLOCK, BlockKind, BundleWriter};
use crate::gather;
use crate::records::GitFile;

/// What an export wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ExportReport {
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
struct ReachedObjects(Vec<(ObjectKind, Hash)>);

impl Visitor for ReachedObjects {
    fn visit_object(&mut self, kind: ObjectKind, hash: Hash) {
        self.0.push((kind, hash));
    }

    fn visit_file(&mut self, _: u64, _: &Content) -> Result<(), ObjectError> {
        Ok(())
    }
}

/// Writes a bundle of `sessions`. The same sessions give the same bytes.
pub fn export(engine: &Engine, sessions: &[Session], out: impl Write) -> Result<ExportReport, BundleError> {
    let _lock = engine.block_garbage_collection()?;
    let logs = gather::collect_logs(engine, sessions)?;
    let mut exported = ExportReport { sessions: sessions.len() as u64, ..ExportReport::default() };
    let mut writer = BundleWriter::new(out)?;
    let mut order = ReachedObjects::default();
    let mut marker = Marker::new(engine.store()).with_visitor(&mut order);
    for log in &logs {
        exported.steps += log.steps.len() as u64;
        exported.operations += log.operations.len() as u64;
        for record in log.records() {
            writer.add(BlockKind::Log, &record.encode_line())?;
        }
        log.push_roots(&mut marker);
    }
    marker.run();
    let Marker { alive, problems, .. } = marker;
    if let Some(problem) = problems.into_iter().next() {
        return Err(StoreError::Corrupt { what: problem }.into());
    }
    for (kind, hash) in order.0 {
        let bytes = engine.store.read(kind, hash)?;
        exported.objects += 1;
        exported.bytes += bytes.len() as u64;
        writer.add_object(kind, &bytes)?;
        if let Some(progress) = &engine.progress {
            progress.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut names: Vec<Vec<u8>> = alive.vaulted.into_iter().collect();
    names.sort();
    exported.git_files = names.len() as u64;
    for name in names {
        export_git_file(engine, &name, &mut writer)?;
    }
    writer.finish()?;
    Ok(exported)
}

fn export_git_file(
    engine: &Engine,
    name: &[u8],
    writer: &mut BundleWriter<impl Write>,
) -> Result<(), BundleError> {
    // Names in the vault are always ASCII.
    let display_name = String::from_utf8_lossy(name).into_owned();
    let missing = |reason: String| StoreError::Corrupt { what: format!("git file {display_name}: {reason}") };
    let vault = engine.vault()?.ok_or_else(|| missing("this store has no vault".into()))?;
    let mut file = vault.open_sound(name).map_err(|error| missing(error.to_string()))?;
    let size = file.metadata().map_err(|error| missing(error.to_string()))?.len();
    writer.add(BlockKind::GitFile, &GitFile { name: display_name.clone(), size }.encode_line())?;
    writer.end_block()?;
    let mut remaining = size;
    let mut part = vec![0; BLOCK];
    while remaining > 0 {
        let want = part.len().min(usize::try_from(remaining).unwrap_or(usize::MAX));
        file.read_exact(&mut part[..want]).map_err(|error| missing(error.to_string()))?;
        writer.add(BlockKind::GitFilePart, &part[..want])?;
        writer.end_block()?;
        remaining -= want as u64;
    }
    Ok(())
}
