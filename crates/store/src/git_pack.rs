//! Borrowing from git: blobs that a git pack in the vault already holds are not stored a second time.
//!
//! A first checkpoint of a repository would otherwise copy every committed file. The file's bytes are read and hashed as
//! always; only when their git hash is in a pack that the vault keeps by hard link does the record refer to that pack
//! instead of holding the bytes. So nothing depends on git's index, attributes or filters: a borrowed blob was verified to
//! be in the pack. Borrowed objects are verified on reading like all others. The format is git's own: index version 2, and
//! packs with offset and reference deltas.

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;

use flate2::bufread::ZlibDecoder;
use sha1::{Digest, Sha1};
use stepback_model::hex;

/// A git object id (SHA-1).
pub type Oid = [u8; 20];

const IDX_MAGIC: [u8; 8] = [0xff, b't', b'O', b'c', 0, 0, 0, 2];
const FANOUT_END: u64 = 8 + 256 * 4;
/// Longest chain of deltas that is followed; git makes chains of 50.
const MAX_CHAIN: usize = 4096;
/// Largest entry that is read, and largest sum of the deltas of a chain, in bytes. No object of such a size is ever borrowed, so
/// more is damage.
const MAX_ENTRY: u64 = 1 << 30;
/// Bytes that are allocated because a pack says so, before any of them are there.
const TRUSTED_SIZE: u64 = 1 << 20;

/// The git object id of a file's content.
pub fn blob_oid(bytes: &[u8]) -> Oid {
    let mut hasher = Sha1::new();
    hasher.update(format!("blob {}\0", bytes.len()).as_bytes());
    hasher.update(bytes);
    hasher.finalize().into()
}

/// The file names in the vault of the pack with this id and of its index.
pub fn file_names(pack: &Oid) -> (String, String) {
    let hex = hex::encode(pack);
    (format!("pack-{hex}.pack"), format!("pack-{hex}.idx"))
}

/// The id in the name of a pack file; `None` for any other name.
pub fn pack_id(name: &[u8]) -> Option<Oid> {
    hex::decode_array(name.strip_prefix(b"pack-")?.strip_suffix(b".pack")?)
}

/// An open git pack with its index.
pub struct GitPack {
    /// The id of the pack.
    pub id: Oid,
    idx: File,
    pack: File,
    pack_len: u64,
    fanout: [u32; 256],
    /// The sorted ids for each first byte, read on first use.
    buckets: Vec<OnceLock<Vec<u8>>>,
}

impl GitPack {
    /// Opens pack `id` in the vault at `dir`.
    pub fn open(dir: &Path, id: Oid) -> Result<Self, String> {
        let (pack_name, idx_name) = file_names(&id);
        let open = |name: &str| File::open(dir.join(name)).map_err(|error| format!("{name}: {error}"));
        let (idx, pack) = (open(&idx_name)?, open(&pack_name)?);
        let length =
            |file: &File| file.metadata().map(|metadata| metadata.len()).map_err(|error| error.to_string());
        let mut head = [0; FANOUT_END as usize];
        idx.read_exact_at(&mut head, 0).map_err(|error| format!("{idx_name}: {error}"))?;
        if head[..8] != IDX_MAGIC {
            return Err(format!("{idx_name} is not a pack index of version 2"));
        }
        let mut fanout = [0; 256];
        for (slot, word) in fanout.iter_mut().zip(head[8..].chunks_exact(4)) {
            *slot = u32::from_be_bytes([word[0], word[1], word[2], word[3]]);
        }
        let count = u64::from(fanout[255]);
        let sorted = fanout.windows(2).all(|pair| pair[0] <= pair[1]);
        // Ids of 20 bytes, checksums and offsets, optionally large offsets, and two hashes; any other size is another
        // format.
        let least = FANOUT_END + count * 28 + 40;
        let length_fits = (least..=least + count * 8).contains(&length(&idx)?);
        if !sorted || !length_fits {
            return Err(format!("{idx_name} is not an index of a SHA-1 pack"));
        }
        let buckets = (0..256).map(|_| OnceLock::new()).collect();
        Ok(Self { id, pack_len: length(&pack)?, idx, pack, fanout, buckets })
    }

    /// The offset of the object in the pack.
    fn offset_of(&self, oid: &Oid) -> Option<u64> {
        let first = usize::from(oid[0]);
        let start = if first == 0 { 0 } else { self.fanout[first - 1] };
        let count = (self.fanout[first] - start) as usize;
        let bucket = match self.buckets[first].get() {
            Some(bucket) => bucket,
            None => {
                let mut bytes = vec![0; count * 20];
                self.idx.read_exact_at(&mut bytes, FANOUT_END + u64::from(start) * 20).ok()?;
                self.buckets[first].get_or_init(|| bytes)
            }
        };
        let (mut low, mut high) = (0, count);
        while low < high {
            let middle = (low + high) / 2;
            match bucket[middle * 20..middle * 20 + 20].cmp(oid.as_slice()) {
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Equal => return self.offset_at(u64::from(start) + middle as u64),
            }
        }
        None
    }

    fn offset_at(&self, index: u64) -> Option<u64> {
        let count = u64::from(self.fanout[255]);
        let mut word = [0; 4];
        self.idx.read_exact_at(&mut word, FANOUT_END + count * 24 + index * 4).ok()?;
        let small = u32::from_be_bytes(word);
        if small & 0x8000_0000 == 0 {
            return Some(u64::from(small));
        }
        let mut word = [0; 8];
        let large = u64::from(small & 0x7fff_ffff);
        self.idx.read_exact_at(&mut word, FANOUT_END + count * 28 + large * 8).ok()?;
        Some(u64::from_be_bytes(word))
    }

    /// Whether the pack contains the object.
    pub fn contains(&self, oid: &Oid) -> bool {
        self.offset_of(oid).is_some()
    }

    /// Reads the object, whose length must be `size` bytes.
    pub fn read(&self, oid: &Oid, size: usize) -> Result<Vec<u8>, String> {
        let bytes = self.read_object(oid)?;
        if bytes.len() != size {
            return Err(format!("the git pack has {} bytes where {size} were expected", bytes.len()));
        }
        Ok(bytes)
    }

    /// Reads the object, whatever its kind and length.
    pub fn read_object(&self, oid: &Oid) -> Result<Vec<u8>, String> {
        let mut offset = self.offset_of(oid).ok_or("the git pack no longer contains it")?;
        let mut deltas = Vec::new();
        let (mut visited, mut held) = (HashSet::new(), 0);
        let mut bytes = loop {
            if !visited.insert(offset) {
                return Err("its chain of deltas comes back to itself".into());
            }
            if deltas.len() > MAX_CHAIN || held > MAX_ENTRY {
                return Err("its chain of deltas does not end".into());
            }
            match self.read_entry(offset)? {
                Entry::Base(bytes) => break bytes,
                Entry::Delta { base, delta } => {
                    held += delta.len() as u64;
                    deltas.push(delta);
                    offset = base;
                }
            }
        };
        for delta in deltas.iter().rev() {
            bytes = apply_delta(&bytes, delta).ok_or("a delta in the git pack is damaged")?;
        }
        Ok(bytes)
    }

    fn read_entry(&self, offset: u64) -> Result<Entry, String> {
        if offset >= self.pack_len {
            return Err("the git pack is shorter than its index says".into());
        }
        let mut reader =
            BufReader::with_capacity(8 << 10, OffsetReader { file: &self.pack, position: offset });
        let mut byte = || -> Result<u8, String> {
            let mut one = [0];
            reader.read_exact(&mut one).map_err(|error| error.to_string())?;
            Ok(one[0])
        };
        let mut current = byte()?;
        let kind = (current >> 4) & 7;
        let mut size = u64::from(current & 15);
        let mut shift = 4;
        while current & 0x80 != 0 {
            current = byte()?;
            size |=
                u64::from(current & 0x7f).checked_shl(shift).ok_or("an entry of the git pack is damaged")?;
            shift += 7;
        }
        let base = match kind {
            1..=4 => None,
            6 => {
                let mut current = byte()?;
                let mut distance = u64::from(current & 0x7f);
                while current & 0x80 != 0 {
                    current = byte()?;
                    let more = distance.checked_add(1).and_then(|distance| distance.checked_mul(128));
                    distance = more.ok_or("an entry of the git pack is damaged")? | u64::from(current & 0x7f);
                }
                Some(offset.checked_sub(distance).ok_or("a delta points before the git pack")?)
            }
            7 => {
                let mut oid = [0; 20];
                reader.read_exact(&mut oid).map_err(|error| error.to_string())?;
                Some(self.offset_of(&oid).ok_or("a delta's base is in another git pack")?)
            }
            _ => return Err("an entry of the git pack has an unknown type".into()),
        };
        if size > MAX_ENTRY {
            return Err("an entry of the git pack is larger than anything borrowed".into());
        }
        let mut bytes = Vec::with_capacity(size.min(TRUSTED_SIZE) as usize);
        ZlibDecoder::new(reader).take(size).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
        if bytes.len() as u64 != size {
            return Err("an entry of the git pack is truncated".into());
        }
        Ok(match base {
            None => Entry::Base(bytes),
            Some(base) => Entry::Delta { base, delta: bytes },
        })
    }
}

enum Entry {
    Base(Vec<u8>),
    Delta { base: u64, delta: Vec<u8> },
}

/// Reads a file from an offset on.
struct OffsetReader<'a> {
    file: &'a File,
    position: u64,
}

impl Read for OffsetReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

/// Applies a git delta; `None` if it does not fit its base or its own header.
fn apply_delta(base: &[u8], delta: &[u8]) -> Option<Vec<u8>> {
    let mut rest = delta;
    let number = |rest: &mut &[u8]| -> Option<usize> {
        let (mut value, mut shift) = (0usize, 0);
        loop {
            let (byte, after) = rest.split_first()?;
            *rest = after;
            value |= usize::from(byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
    };
    if number(&mut rest)? != base.len() {
        return None;
    }
    let size = number(&mut rest)?;
    let mut out = Vec::with_capacity(size.min(TRUSTED_SIZE as usize));
    while let Some((op, after)) = rest.split_first() {
        rest = after;
        if op & 0x80 == 0 {
            let (literal, after) = rest.split_at_checked(usize::from(*op))?;
            if literal.is_empty() {
                return None;
            }
            out.extend_from_slice(literal);
            rest = after;
            continue;
        }
        let mut part = |bit: u8, shift: u32| -> Option<usize> {
            if op & (1 << bit) == 0 {
                return Some(0);
            }
            let (byte, after) = rest.split_first()?;
            rest = after;
            Some(usize::from(*byte) << shift)
        };
        let from = part(0, 0)? | part(1, 8)? | part(2, 16)? | part(3, 24)?;
        let length = part(4, 0)? | part(5, 8)? | part(6, 16)?;
        let length = if length == 0 { 0x10000 } else { length };
        out.extend_from_slice(base.get(from..from.checked_add(length)?)?);
        if out.len() > size {
            return None;
        }
    }
    (out.len() == size).then_some(out)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use stepback_testkit::fuzz::{FuzzTarget, MeteredAllocator};

    use super::*;

    #[global_allocator]
    static ALLOCATOR: MeteredAllocator = MeteredAllocator;

    #[test]
    fn a_blob_has_the_id_git_gives_it() {
        let hex = hex::encode(&blob_oid(b"hello\n"));
        assert_eq!(hex, "ce013625030ba8dba906f756967f9e9ca394464a");
    }

    #[test]
    fn hostile_deltas_are_refused() {
        let base = b"0123456789";
        assert_eq!(apply_delta(base, &[10, 3, 0x91, 2, 3]).as_deref(), Some(&b"234"[..]));
        for bad in [
            &[][..],
            &[9, 3, 0x91, 2, 3],
            &[10, 3, 0x91, 9, 3],
            &[10, 3, 0x91],
            &[10, 3, 5, b'x'],
            &[10, 3, 0],
        ] {
            assert_eq!(apply_delta(base, bad), None, "{bad:?}");
        }
    }

    /// A repository with one pack, and the blobs in it.
    fn packed() -> (tempfile::TempDir, Oid, Vec<Vec<u8>>) {
        let dir = tempfile::tempdir().unwrap();
        let git = |arguments: &[&str]| {
            let output = Command::new("git").arg("-C").arg(dir.path()).args(arguments).output();
            output.is_ok_and(|output| output.status.success())
        };
        assert!(git(&["init", "-q", "."]), "git is not installed");
        let mut contents = Vec::new();
        for version in 0..20 {
            // Versions of one file become deltas of each other.
            let text: String = (0..400)
                .map(|line| format!("line {line} {}\n", if line == version * 7 { version } else { 0 }))
                .collect();
            std::fs::write(dir.path().join("file"), &text).unwrap();
            std::fs::write(dir.path().join(format!("other{version}")), [version as u8; 3000]).unwrap();
            contents.extend([text.into_bytes(), vec![version as u8; 3000]]);
            assert!(git(&["add", "-A"]));
            assert!(git(&["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "x"]));
        }
        assert!(git(&["gc", "-q"]));
        let packs = dir.path().join(".git/objects/pack");
        let name = std::fs::read_dir(&packs).unwrap().flatten().map(|entry| entry.file_name());
        let id = name.filter_map(|name| pack_id(name.as_encoded_bytes())).next().unwrap();
        (dir, id, contents)
    }

    #[test]
    fn every_blob_of_a_real_pack_reads_back() {
        let (dir, id, contents) = packed();
        let lender = GitPack::open(&dir.path().join(".git/objects/pack"), id).unwrap();
        for content in contents {
            assert_eq!(lender.read(&blob_oid(&content), content.len()).unwrap(), content);
        }
        assert!(!lender.contains(&blob_oid(b"never stored")));
    }

    #[test]
    fn fuzz_git_packs_and_indexes() {
        let (dir, id, contents) = packed();
        let (pack, idx) = file_names(&id);
        let packs = dir.path().join(".git/objects/pack");
        let damaged = tempfile::tempdir_in(stepback_testkit::tree::scratch_place()).unwrap();
        for (name, other) in [(&pack, &idx), (&idx, &pack)] {
            std::fs::copy(packs.join(other), damaged.path().join(other)).unwrap();
            let path = damaged.path().join(name);
            FuzzTarget::new("git pack or index", [std::fs::read(packs.join(name)).unwrap()]).run(
                1_000,
                |input| {
                    let _ = std::fs::remove_file(&path);
                    std::fs::write(&path, input).unwrap();
                    let _ = crate::git_check::verify_file(&path);
                    let Ok(lender) = GitPack::open(damaged.path(), id) else { return };
                    for content in &contents {
                        if let Ok(read) = lender.read(&blob_oid(content), content.len()) {
                            assert_eq!(read.len(), content.len());
                        }
                    }
                },
            );
            std::fs::copy(packs.join(name), path).unwrap();
        }
    }

    #[test]
    fn fuzz_deltas() {
        let base = b"0123456789".repeat(100);
        let corpus: [&[u8]; 3] = [
            &[0xe8, 7, 3, 0x91, 2, 3],
            &[0xe8, 7, 5, 2, b'a', b'b', 0x91, 9, 3],
            &[0xe8, 7, 0x80, 0x80, 4, 0x80],
        ];
        FuzzTarget::new("git deltas", corpus).run(20_000, |delta| drop(apply_delta(&base, delta)));
    }

    /// A pack with these entries at offset 12 and behind it, and its index.
    fn handmade(dir: &Path, entries: &[(Oid, Vec<u8>)]) -> Oid {
        let (mut pack, mut idx) = (b"PACK\0\0\0\x02\0\0\0\x01".to_vec(), IDX_MAGIC.to_vec());
        for first in 0..=255 {
            let count = entries.iter().filter(|(oid, _)| oid[0] <= first).count() as u32;
            idx.extend_from_slice(&count.to_be_bytes());
        }
        idx.extend(entries.iter().flat_map(|(oid, _)| oid));
        idx.extend(std::iter::repeat_n(0, entries.len() * 4));
        for (_, entry) in entries {
            idx.extend_from_slice(&(pack.len() as u32).to_be_bytes());
            pack.extend_from_slice(entry);
        }
        idx.extend_from_slice(&[0; 40]);
        let names = file_names(&[7; 20]);
        std::fs::write(dir.join(names.0), pack).unwrap();
        std::fs::write(dir.join(names.1), idx).unwrap();
        [7; 20]
    }

    fn deflated(head: &[u8], bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(head.to_vec(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_chain_of_deltas_that_comes_back_to_itself_is_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = ([1; 20], [2; 20]);
        // One megabyte of delta each, in a few hundred bytes of pack.
        let head = |kind: u8, base: &[u8]| [&[0x80 | kind << 4, 0x80, 0x80, 2][..], base].concat();
        let delta = vec![1; 1 << 20];
        let alone = handmade(dir.path(), &[(first, deflated(&head(6, &[0]), &delta))]);
        let error = GitPack::open(dir.path(), alone).unwrap().read(&first, 10).unwrap_err();
        assert!(error.contains("comes back to itself"), "{error}");
        let circle =
            [(first, deflated(&head(7, &second), &delta)), (second, deflated(&head(7, &first), &delta))];
        let circle = handmade(dir.path(), &circle);
        let error = GitPack::open(dir.path(), circle).unwrap().read(&first, 10).unwrap_err();
        assert!(error.contains("comes back to itself"), "{error}");
    }

    #[test]
    fn a_distance_beyond_all_numbers_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        // The largest number of 57 bits but one, so that its next digit makes it the largest of 64.
        let mut distance: Vec<u8> = vec![0xfe; 7];
        distance.extend_from_slice(&[0xff; 5]);
        for length in 1..distance.len() {
            for last in [0xfe, 0xff] {
                let mut head = vec![0x60];
                head.extend_from_slice(&distance[..length]);
                head.extend_from_slice(&[last, last, 0x7f]);
                let id = handmade(dir.path(), &[([1; 20], head)]);
                assert!(GitPack::open(dir.path(), id).unwrap().read(&[1; 20], 10).is_err());
            }
        }
    }
}
