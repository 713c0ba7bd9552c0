//! Adds many objects as one pack: two files that are synced once, instead of one file for each object.
//!
//! The pack is written under a name that git takes for a leftover until it is complete, then its index, then both are
//! renamed, the pack first. So git never sees an index without its pack, and a crash leaves at most a file that
//! `git prune` removes. The objects are not deltas of one another; `git gc` makes them so.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Seek as _, SeekFrom, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use sha1::{Digest as _, Sha1};
use stepback_faults as faults;
use stepback_model::hex;
use stepback_model::path::RelPath;
use stepback_worktree::anchored_path::AnchoredDir;
use stepback_worktree::anchored_write::{create_file, make_dirs, remove_file, rename_file, sync_dir};

use crate::error::GitError;
use crate::object::{GitObjectKind, GitOid};
use crate::object_reader::ObjectReader;
use crate::repository::GitRepository;

/// The directory of packs.
const PACK_DIR: &str = "objects/pack";

/// Where an object is in the pack.
#[derive(Clone, Copy, Debug)]
struct PackedObject {
    offset: u64,
    crc: u32,
}

/// Writes objects into a new pack of a repository.
pub struct GitPackWriter<'r> {
    repository: &'r GitRepository,
    reader: ObjectReader,
    anchor: AnchoredDir,
    temporary: RelPath,
    file: BufWriter<File>,
    offset: u64,
    objects: HashMap<GitOid, PackedObject>,
    is_finished: bool,
}

impl<'r> GitPackWriter<'r> {
    /// Begins a pack.
    pub fn create(repository: &'r GitRepository) -> Result<Self, GitError> {
        let reader = ObjectReader::open(repository)?;
        let mut anchor = repository.open_for_writing()?;
        let failed = repository.io(PACK_DIR);
        let dir = RelPath::parse(PACK_DIR.as_bytes()).map_err(|_| GitError::BadName(PACK_DIR.to_owned()))?;
        make_dirs(&mut anchor, &dir, 0o777).map_err(&failed)?;
        let temporary = dir.join(format!("tmp_pack_stepback-{}", std::process::id()).as_bytes());
        // A killed process with the same id may have left one behind.
        let _ = remove_file(&mut anchor, &temporary);
        let mut file = BufWriter::new(create_file(&mut anchor, &temporary, 0o444).map_err(&failed)?);
        // The number of objects is written at the end.
        file.write_all(b"PACK\0\0\0\x02\0\0\0\0").map_err(&failed)?;
        Ok(Self {
            repository,
            reader,
            anchor,
            temporary,
            file,
            offset: 12,
            objects: HashMap::new(),
            is_finished: false,
        })
    }

    /// The objects that the repository had before.
    pub fn reader(&self) -> &ObjectReader {
        &self.reader
    }

    /// The number of objects that were added.
    pub fn added(&self) -> u64 {
        self.objects.len() as u64
    }

    /// Adds an object, unless the repository or the pack has it.
    pub fn add(&mut self, kind: GitObjectKind, body: &[u8]) -> Result<GitOid, GitError> {
        let oid = GitOid::of(kind, body);
        if self.objects.contains_key(&oid) || self.reader.contains(oid) {
            return Ok(oid);
        }
        self.write_entry(oid, kind, body).map_err(self.repository.io(PACK_DIR))?;
        Ok(oid)
    }

    fn write_entry(&mut self, oid: GitOid, kind: GitObjectKind, body: &[u8]) -> io::Result<()> {
        let kind = match kind {
            GitObjectKind::Commit => 1,
            GitObjectKind::Tree => 2,
            GitObjectKind::Blob => 3,
            GitObjectKind::Tag => 4,
        };
        let mut size = body.len() as u64;
        // Four bits of the size, then seven in each byte that follows.
        let mut entry = vec![(kind << 4) | (size & 0x0f) as u8];
        size >>= 4;
        while size > 0 {
            if let Some(last) = entry.last_mut() {
                *last |= 0x80;
            }
            entry.push((size & 0x7f) as u8);
            size >>= 7;
        }
        let mut encoder = ZlibEncoder::new(entry, Compression::default());
        encoder.write_all(body)?;
        let entry = encoder.finish()?;
        self.file.write_all(&entry)?;
        self.objects.insert(oid, PackedObject { offset: self.offset, crc: crc32fast::hash(&entry) });
        self.offset += entry.len() as u64;
        Ok(())
    }

    /// Makes the objects part of the repository, durably.
    pub fn finish(mut self) -> Result<(), GitError> {
        let failed = self.repository.io(PACK_DIR);
        if !self.objects.is_empty() {
            self.install().map_err(failed)?;
        }
        Ok(())
    }

    fn install(&mut self) -> io::Result<()> {
        let digest = self.complete_pack()?;
        let name = hex::encode(&digest);
        let Some((dir, _)) = self.temporary.split_last() else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let index = dir.join(format!("tmp_idx_stepback-{}", std::process::id()).as_bytes());
        let _ = remove_file(&mut self.anchor, &index);
        let mut file = create_file(&mut self.anchor, &index, 0o444)?;
        let renamed = self.index_bytes(digest).and_then(|bytes| file.write_all(&bytes)).and_then(|()| {
            faults::point()?;
            file.sync_all()?;
            rename_file(
                &mut self.anchor,
                &self.temporary,
                &dir.join(format!("pack-{name}.pack").as_bytes()),
            )?;
            self.is_finished = true;
            rename_file(&mut self.anchor, &index, &dir.join(format!("pack-{name}.idx").as_bytes()))
        });
        if renamed.is_err() {
            let _ = remove_file(&mut self.anchor, &index);
        }
        renamed?;
        sync_dir(&mut self.anchor, &dir)
    }

    /// Writes the number of objects and the digest of the pack, and syncs it.
    fn complete_pack(&mut self) -> io::Result<[u8; 20]> {
        self.file.flush()?;
        let count = u32::try_from(self.objects.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let file = self.file.get_mut();
        faults::point()?;
        file.seek(SeekFrom::Start(8))?;
        file.write_all(&count.to_be_bytes())?;
        file.seek(SeekFrom::Start(0))?;
        let mut digest = Sha1::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                read => digest.update(&buffer[..read]),
            }
        }
        let digest: [u8; 20] = digest.finalize().into();
        file.write_all(&digest)?;
        faults::point()?;
        file.sync_all()?;
        Ok(digest)
    }

    /// The index of the pack, version 2.
    fn index_bytes(&self, pack_digest: [u8; 20]) -> io::Result<Vec<u8>> {
        let mut objects: Vec<_> = self.objects.iter().collect();
        objects.sort_by_key(|(oid, _)| **oid);
        let mut bytes = b"\xfftOc\0\0\0\x02".to_vec();
        for first in 0..=u8::MAX {
            let below = objects.partition_point(|(oid, _)| oid.0[0] <= first);
            let below = u32::try_from(below).map_err(|_| io::ErrorKind::FileTooLarge)?;
            bytes.extend_from_slice(&below.to_be_bytes());
        }
        objects.iter().for_each(|(oid, _)| bytes.extend_from_slice(&oid.0));
        objects.iter().for_each(|(_, object)| bytes.extend_from_slice(&object.crc.to_be_bytes()));
        let mut large: Vec<u64> = Vec::new();
        for (_, object) in &objects {
            // An offset that does not fit in 31 bits is the number of one in a table of its own.
            let offset = match u32::try_from(object.offset) {
                Ok(offset) if offset < 1 << 31 => offset,
                _ => {
                    large.push(object.offset);
                    (1 << 31) | (large.len() as u32 - 1)
                }
            };
            bytes.extend_from_slice(&offset.to_be_bytes());
        }
        large.iter().for_each(|offset| bytes.extend_from_slice(&offset.to_be_bytes()));
        bytes.extend_from_slice(&pack_digest);
        let digest: [u8; 20] = Sha1::digest(&bytes).into();
        bytes.extend_from_slice(&digest);
        Ok(bytes)
    }
}

impl Drop for GitPackWriter<'_> {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = remove_file(&mut self.anchor, &self.temporary);
        }
    }
}
