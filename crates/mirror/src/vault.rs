//! Git's packs and LFS objects from the store's vault: each in pieces named by their hash, with a manifest that lists them.
//!
//! A file of the vault never changes under its name, so it is copied once. It is checked against the hash that git gave it;
//! a damaged one is not copied, and reported.

use std::collections::HashSet;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use serde::{Deserialize, Serialize};
use stepback_faults as faults;
use stepback_model::hash::Hash;
use stepback_store::check_git_file;
use stepback_store::port::VAULT;

use crate::archive::create_verified;
use crate::error::MirrorError;
use crate::storage::MirrorStorage;

/// The folder of manifests.
pub const MANIFESTS: &str = "vault";
/// The folder of pieces.
const PIECES: &str = "pieces";
/// A larger file is kept in several pieces of this size.
const PIECE_BYTES: u64 = 8 << 20;
const DOMAIN: &str = "stepback mirror 2026-11 file";

/// A file of the vault.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VaultManifest {
    /// Its name in the vault.
    pub name: String,
    /// Its size in bytes.
    pub len: u64,
    /// The hashes of its pieces, in order.
    pub pieces: Vec<Hash>,
}

/// The files that were copied.
#[derive(Debug, Default)]
pub struct VaultCopy {
    /// Names of the manifests that were written.
    pub manifests: Vec<String>,
    /// Bytes of the files.
    pub bytes: u64,
    /// Files that could not be copied, and why.
    pub problems: Vec<String>,
}

fn hash_of(bytes: &[u8]) -> Hash {
    let mut hasher = blake3::Hasher::new_derive_key(DOMAIN);
    hasher.update(bytes);
    Hash::from_bytes(*hasher.finalize().as_bytes())
}

/// The manifest's name: the file's name, and the hash of the manifest.
fn manifest_name(name: &str, bytes: &[u8]) -> String {
    format!("{name}.{}", hash_of(bytes))
}

/// The file that a manifest is about.
pub fn file_of(manifest: &str) -> Option<&str> {
    manifest.rsplit_once('.').map(|(name, _)| name)
}

/// The names of the files of which the mirror has a manifest.
pub fn mirrored_files(storage: &dyn MirrorStorage) -> Result<HashSet<String>, MirrorError> {
    let listed = storage.list(MANIFESTS, "")?;
    Ok(listed.iter().filter_map(|file| Some(file_of(&file.name)?.to_owned())).collect())
}

/// Copies the files of the vault that are not in `known` yet, and adds them to it.
pub fn copy_new(
    store: &Path,
    storage: &dyn MirrorStorage,
    known: &mut HashSet<String>,
) -> Result<VaultCopy, MirrorError> {
    let dir = store.join(VAULT);
    let mut copied = VaultCopy::default();
    let entries = match fs::read_dir(&dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(copied),
        entries => entries.map_err(MirrorError::io("list", dir.display()))?,
    };
    for entry in entries {
        let entry = entry.map_err(MirrorError::io("list", dir.display()))?;
        // An unfinished copy begins with a dot; no file of the vault has another character than these.
        let Some(name) = entry.file_name().to_str().filter(|name| is_file_name(name)).map(str::to_owned)
        else {
            continue;
        };
        if known.contains(&name) {
            continue;
        }
        match copy_file(&entry.path(), &name, storage)? {
            Ok((manifest, bytes)) => {
                copied.manifests.push(manifest);
                copied.bytes += bytes;
            }
            Err(problem) => copied.problems.push(format!("{}: {problem}", entry.path().display())),
        }
        known.insert(name);
    }
    Ok(copied)
}

fn is_file_name(name: &str) -> bool {
    !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.'))
}

/// Copies one file. The inner error is about the file, the outer one about the mirror.
fn copy_file(
    path: &Path,
    name: &str,
    storage: &dyn MirrorStorage,
) -> Result<Result<(String, u64), String>, MirrorError> {
    // A process that can write to the store could have put a link or a named pipe there.
    let opened = OpenOptions::new().read(true).custom_flags(0o400_000 | 0o4000).open(path);
    let opened = opened.and_then(|file| Ok((file.metadata()?, file)));
    let mut file = match opened {
        Ok((metadata, file)) if metadata.is_file() => file,
        Ok(_) => return Ok(Err("it is not a file".into())),
        Err(error) => return Ok(Err(error.to_string())),
    };
    // The file that is open is checked, not whatever has the name by then.
    match check_git_file(name.as_bytes(), &mut file).and_then(|checked| file.rewind().map(|()| checked)) {
        Ok(Ok(())) => {}
        Ok(Err(problem)) => return Ok(Err(problem)),
        Err(error) => return Ok(Err(error.to_string())),
    }
    let mut manifest = VaultManifest { name: name.to_owned(), len: 0, pieces: Vec::new() };
    loop {
        let mut piece = Vec::new();
        if let Err(error) = (&mut file).take(PIECE_BYTES).read_to_end(&mut piece) {
            return Ok(Err(error.to_string()));
        }
        if piece.is_empty() {
            break;
        }
        manifest.len += piece.len() as u64;
        let hash = hash_of(&piece);
        manifest.pieces.push(hash);
        create_or_compare(storage, &format!("{PIECES}/{hash}"), &piece)?;
    }
    // A manifest is plain data with string keys, which always serialises.
    let bytes = serde_json::to_vec(&manifest).unwrap_or_default();
    let manifest_name = manifest_name(name, &bytes);
    create_or_compare(storage, &format!("{MANIFESTS}/{manifest_name}"), &bytes)?;
    Ok(Ok((manifest_name, manifest.len)))
}

/// Creates a file that is named by its content.
fn create_or_compare(storage: &dyn MirrorStorage, name: &str, bytes: &[u8]) -> Result<(), MirrorError> {
    match create_verified(storage, name, bytes) {
        Err(MirrorError::Conflict { .. }) if storage.read(name)?.as_deref() == Some(bytes) => Ok(()),
        Err(MirrorError::Conflict { .. }) => {
            Err(MirrorError::Damaged { what: format!("{name} does not have the content that its name says") })
        }
        done => done,
    }
}

/// Reads and verifies a manifest.
pub fn read_manifest(storage: &dyn MirrorStorage, manifest: &str) -> Result<VaultManifest, MirrorError> {
    let damaged = |what: &str| MirrorError::Damaged { what: format!("{MANIFESTS}/{manifest}: {what}") };
    let bytes = storage.read(&format!("{MANIFESTS}/{manifest}"))?.ok_or_else(|| damaged("it is missing"))?;
    let parsed: VaultManifest =
        serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
    if manifest_name(&parsed.name, &bytes) != manifest || !is_file_name(&parsed.name) {
        return Err(damaged("its name does not match its content"));
    }
    Ok(parsed)
}

/// Reads and verifies all pieces of a file, in order.
pub fn read_pieces(
    storage: &dyn MirrorStorage,
    manifest: &VaultManifest,
    visit: &mut dyn FnMut(&[u8]) -> Result<(), MirrorError>,
) -> Result<(), MirrorError> {
    let mut len = 0;
    for hash in &manifest.pieces {
        let name = format!("{PIECES}/{hash}");
        let damaged = |what: &str| MirrorError::Damaged { what: format!("{name}: {what}") };
        let bytes = storage.read(&name)?.ok_or_else(|| damaged("it is missing"))?;
        if hash_of(&bytes) != *hash {
            return Err(damaged("its hash does not match its name"));
        }
        len += bytes.len() as u64;
        visit(&bytes)?;
    }
    match len == manifest.len {
        true => Ok(()),
        false => Err(MirrorError::Damaged { what: format!("{}: its length does not match", manifest.name) }),
    }
}

/// Writes a file to the vault of the store in `store`, unless it is there.
pub fn restore_file(
    storage: &dyn MirrorStorage,
    manifest: &VaultManifest,
    store: &Path,
) -> Result<(), MirrorError> {
    let dir = store.join(VAULT);
    let target = dir.join(&manifest.name);
    if target.exists() {
        return Ok(());
    }
    if !dir.is_dir() {
        faults::point()
            .and_then(|()| DirBuilder::new().mode(0o700).create(&dir))
            .map_err(MirrorError::io("create", dir.display()))?;
    }
    let temporary = dir.join(format!(".copy-mirror-{}", manifest.name));
    let failed = |error| MirrorError::io("write", target.display())(error);
    let mut file = faults::point()
        .and_then(|()| {
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)
        })
        .map_err(failed)?;
    read_pieces(storage, manifest, &mut |piece| {
        faults::point().and_then(|()| file.write_all(piece)).map_err(failed)
    })?;
    faults::point()
        .and_then(|()| file.sync_all())
        .and_then(|()| faults::point())
        .and_then(|()| fs::rename(&temporary, &target))
        .and_then(|()| File::open(&dir)?.sync_all())
        .map_err(failed)
}
