//! The container format: compressed blocks, each of one kind, and at the end the hash of all bytes before.
//!
//! A length in a file from another user is only a claim. Bytes are read as they come and no memory is reserved ahead; a block
//! may not decompress to more than it declares, and what it declares is limited by what it has stored ([`Expansion`]).

use std::io::{self, BufWriter, Read, Write};

use stepback_model::hash::ObjectKind;
use stepback_store::codec;

use crate::error::BundleError;

/// Magic bytes at the start of every bundle.
pub const MAGIC: [u8; 16] = *b"stepback-bundle\n";
/// The format version that this program writes, and the newest it reads.
pub const FORMAT: u32 = 1;
/// A block is closed when it has this many bytes.
pub const BLOCK: usize = 4 << 20;
/// Maximum size of a block, in bytes. It holds at least one object, and no object is larger than this.
const MAX_BLOCK_BYTES: u32 = 1 << 30;
/// Length of a block header in bytes: kind, stored length, length before compression (0: not compressed).
const BLOCK_HEADER_BYTES: usize = 9;

/// How much compressed data may expand: to `free` bytes in any case, beyond that to `ratio` times its stored size. So the
/// memory for a bundle is limited by its actual size. The writer stores a block without compression that would exceed it.
struct ExpansionLimit {
    free: u64,
    ratio: u64,
}

/// One block, which is in memory as a whole.
const BLOCK_EXPANSION: ExpansionLimit = ExpansionLimit { free: 16 << 20, ratio: 64 };
/// All blocks of records together, which stay in memory.
const LOG_EXPANSION: ExpansionLimit = ExpansionLimit { free: 4 << 20, ratio: 64 };
/// The file as a whole.
const FILE_EXPANSION: ExpansionLimit = ExpansionLimit { free: 256 << 20, ratio: 256 };

impl ExpansionLimit {
    fn allows(&self, stored: u64, raw: u64) -> bool {
        raw <= self.free.max(stored.saturating_mul(self.ratio))
    }
}

/// Bytes of a bundle so far, as stored and after decompression.
#[derive(Clone, Copy, Default)]
struct Expansion {
    file: (u64, u64),
    log: (u64, u64),
}

impl Expansion {
    /// Adds a block with its stored and decompressed size. Fails if it expands too much by itself, or with those before it.
    fn add(&mut self, kind: BlockKind, stored: u64, raw: u64) -> Result<(), &'static str> {
        self.file = (self.file.0 + stored, self.file.1 + raw);
        if kind == BlockKind::Log {
            self.log = (self.log.0 + stored, self.log.1 + raw);
        }
        match () {
            () if !BLOCK_EXPANSION.allows(stored, raw) => {
                Err("a block decompresses to far more than its size")
            }
            () if !LOG_EXPANSION.allows(self.log.0, self.log.1) => {
                Err("its records decompress to far more than their size")
            }
            () if !FILE_EXPANSION.allows(self.file.0, self.file.1) => {
                Err("it decompresses to far more than its size")
            }
            () => Ok(()),
        }
    }
}

/// What a block holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum BlockKind {
    /// Records, one per line.
    Log = 1,
    /// Objects.
    Objects = 2,
    /// Name and size of a git file; its parts follow.
    GitFile = 3,
    /// A part of a git file.
    GitFilePart = 4,
    /// The hash of all bytes before.
    End = 255,
}

impl BlockKind {
    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Log, Self::Objects, Self::GitFile, Self::GitFilePart, Self::End]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Writes a bundle.
pub struct BundleWriter<W: Write> {
    out: BufWriter<W>,
    hasher: blake3::Hasher,
    open: Option<BlockKind>,
    pending: Vec<u8>,
    expansion: Expansion,
}

impl<W: Write> BundleWriter<W> {
    pub fn new(out: W) -> Result<Self, BundleError> {
        let out = BufWriter::with_capacity(256 << 10, out);
        let (hasher, pending, expansion) = (blake3::Hasher::new(), Vec::new(), Expansion::default());
        let mut writer = Self { out, hasher, open: None, pending, expansion };
        writer.write_hashed(&MAGIC)?;
        writer.write_hashed(&FORMAT.to_le_bytes())?;
        Ok(writer)
    }

    fn write_hashed(&mut self, bytes: &[u8]) -> Result<(), BundleError> {
        self.hasher.update(bytes);
        stepback_faults::point()
            .and_then(|()| self.out.write_all(bytes))
            .map_err(BundleError::io("write the bundle"))
    }

    /// Adds bytes to the open block of this kind, or begins a new one.
    pub fn add(&mut self, kind: BlockKind, bytes: &[u8]) -> Result<(), BundleError> {
        if self.open != Some(kind) || self.pending.len() + bytes.len() > BLOCK {
            self.end_block()?;
        }
        self.open = Some(kind);
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Adds an object.
    pub fn add_object(&mut self, kind: ObjectKind, bytes: &[u8]) -> Result<(), BundleError> {
        let too_large = || BundleError::inconsistent(format!("a {kind} has {} bytes", bytes.len()));
        let length = u32::try_from(bytes.len()).ok().filter(|length| *length < MAX_BLOCK_BYTES - 16);
        let length = length.ok_or_else(too_large)?;
        let mut head = [kind as u8; 5];
        head[1..].copy_from_slice(&length.to_le_bytes());
        if self.open != Some(BlockKind::Objects) || self.pending.len() + bytes.len() > BLOCK {
            self.end_block()?;
        }
        self.open = Some(BlockKind::Objects);
        self.pending.extend_from_slice(&head);
        self.pending.extend_from_slice(bytes);
        Ok(())
    }

    /// Writes out the open block.
    pub fn end_block(&mut self) -> Result<(), BundleError> {
        let Some(kind) = self.open.take() else { return Ok(()) };
        let raw = std::mem::take(&mut self.pending);
        let mut expansion = self.expansion;
        let packed = codec::compress(&raw)
            .filter(|packed| expansion.add(kind, packed.len() as u64, raw.len() as u64).is_ok());
        if packed.is_none() {
            // What is not compressed only lowers the ratio.
            expansion = self.expansion;
            let _ = expansion.add(kind, raw.len() as u64, raw.len() as u64);
        }
        self.expansion = expansion;
        let stored = packed.as_ref().unwrap_or(&raw);
        // Blocks are far smaller than 4 GiB: objects are checked when they are added, everything else is split at BLOCK.
        let raw_len = if packed.is_some() { raw.len() as u32 } else { 0 };
        self.write_hashed(&encode_block_header(kind, stored.len() as u32, raw_len))?;
        self.write_hashed(stored)?;
        self.pending = raw;
        self.pending.clear();
        Ok(())
    }

    /// Writes the end block with the hash.
    pub fn finish(mut self) -> Result<(), BundleError> {
        self.end_block()?;
        let hash = self.hasher.finalize();
        self.write_hashed(&encode_block_header(BlockKind::End, 32, 0))?;
        self.write_hashed(hash.as_bytes())?;
        self.out.flush().map_err(BundleError::io("write the bundle"))
    }
}

fn encode_block_header(kind: BlockKind, stored: u32, raw: u32) -> [u8; BLOCK_HEADER_BYTES] {
    let mut head = [0; BLOCK_HEADER_BYTES];
    head[0] = kind as u8;
    head[1..5].copy_from_slice(&stored.to_le_bytes());
    head[5..].copy_from_slice(&raw.to_le_bytes());
    head
}

/// Reads a bundle from its beginning to its end.
pub struct BundleReader<R: Read> {
    input: R,
    hasher: blake3::Hasher,
    /// Number of bytes read so far.
    offset: u64,
    expansion: Expansion,
}

impl<R: Read> BundleReader<R> {
    /// Reads and checks the header of the file.
    pub fn new(input: R) -> Result<Self, BundleError> {
        let mut reader =
            Self { input, hasher: blake3::Hasher::new(), offset: 0, expansion: Expansion::default() };
        let mut head = [0; MAGIC.len() + 4];
        let version = reader.read_full(&mut head)?;
        if version < MAGIC.len() || head[..MAGIC.len()] != MAGIC {
            return Err(BundleError::NotABundle);
        }
        if version < head.len() {
            return Err(truncated_error());
        }
        let mut format = [0; 4];
        format.copy_from_slice(&head[MAGIC.len()..]);
        match u32::from_le_bytes(format) {
            FORMAT => {}
            version if version > FORMAT => return Err(BundleError::Newer { found: version, known: FORMAT }),
            version => return Err(BundleError::Damaged(format!("format {version} was never released"))),
        }
        reader.hasher.update(&head);
        Ok(reader)
    }

    fn read_full(&mut self, bytes: &mut [u8]) -> Result<usize, BundleError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(BundleError::io("read the bundle")(error)),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }

    /// Returns the next block with its offset in the file; `None` after the end block, which must be the last.
    pub fn next(&mut self) -> Result<Option<(u64, BlockKind, Vec<u8>)>, BundleError> {
        let offset = self.offset;
        let mut head = [0; BLOCK_HEADER_BYTES];
        if self.read_full(&mut head)? < BLOCK_HEADER_BYTES {
            return Err(truncated_error());
        }
        let (kind, stored_len, raw_len) = parse_block_header(&head, offset)?;
        let mut stored = Vec::new();
        let read = (&mut self.input).take(u64::from(stored_len)).read_to_end(&mut stored);
        self.offset += read.map_err(BundleError::io("read the bundle"))? as u64;
        if stored.len() < stored_len as usize {
            return Err(truncated_error());
        }
        if kind == BlockKind::End {
            if stored != self.hasher.finalize().as_bytes() {
                return Err(BundleError::Damaged("its checksum is wrong".into()));
            }
            if self.read_full(&mut [0])? > 0 {
                return Err(BundleError::Damaged("there is data after its end".into()));
            }
            return Ok(None);
        }
        self.hasher.update(&head);
        self.hasher.update(&stored);
        // Before anything is decompressed.
        let raw_bytes = if raw_len == 0 { stored_len } else { raw_len };
        self.expansion
            .add(kind, u64::from(stored_len), u64::from(raw_bytes))
            .map_err(BundleError::inconsistent)?;
        let raw = decompress_block(stored, raw_len, offset)?;
        Ok(Some((offset, kind, raw)))
    }
}

fn truncated_error() -> BundleError {
    BundleError::Damaged("it is truncated".into())
}

fn parse_block_header(
    head: &[u8; BLOCK_HEADER_BYTES],
    offset: u64,
) -> Result<(BlockKind, u32, u32), BundleError> {
    let number = |start: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&head[start..start + 4]);
        u32::from_le_bytes(bytes)
    };
    let (stored, raw) = (number(1), number(5));
    let damaged = |what: &str| BundleError::Damaged(format!("{what} at byte {offset}"));
    let kind = BlockKind::from_byte(head[0]).ok_or_else(|| damaged("a block is missing"))?;
    if stored > MAX_BLOCK_BYTES
        || raw > MAX_BLOCK_BYTES
        || (kind == BlockKind::End && (stored, raw) != (32, 0))
    {
        return Err(damaged("the block has an impossible size"));
    }
    Ok((kind, stored, raw))
}

fn decompress_block(stored: Vec<u8>, raw_len: u32, offset: u64) -> Result<Vec<u8>, BundleError> {
    if raw_len == 0 {
        return Ok(stored);
    }
    codec::decompress(&stored, raw_len as usize, None)
        .map_err(|reason| BundleError::Damaged(format!("the block at byte {offset}: {reason}")))
}

/// Reads a block that [`Reader::next`] returned once more.
pub fn read_block(input: &mut impl Read, offset: u64) -> Result<Vec<u8>, BundleError> {
    let mut head = [0; BLOCK_HEADER_BYTES];
    input.read_exact(&mut head).map_err(BundleError::io("read the bundle again"))?;
    let (_, stored_len, raw_len) = parse_block_header(&head, offset)?;
    let mut stored = Vec::new();
    input
        .take(u64::from(stored_len))
        .read_to_end(&mut stored)
        .map_err(BundleError::io("read the bundle again"))?;
    decompress_block(stored, raw_len, offset)
}

/// Returns the objects of a block: kind, offset and length of each.
pub fn list_objects(block: &[u8]) -> Result<Vec<(ObjectKind, usize, usize)>, BundleError> {
    let invalid = || BundleError::inconsistent("a block of objects is invalid");
    let mut objects = Vec::new();
    let mut position = 0;
    while position < block.len() {
        let head = block.get(position..position + 5).ok_or_else(invalid)?;
        let kind = ObjectKind::from_u8(head[0]).ok_or_else(invalid)?;
        let mut length = [0; 4];
        length.copy_from_slice(&head[1..]);
        let length = u32::from_le_bytes(length) as usize;
        position += 5;
        if block.len() - position < length {
            return Err(invalid());
        }
        objects.push((kind, position, length));
        position += length;
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut writer = BundleWriter::new(&mut bytes).unwrap();
        writer.add(BlockKind::Log, b"{}\n").unwrap();
        writer.add_object(ObjectKind::Blob, &[7; 5000]).unwrap();
        writer.add_object(ObjectKind::Blob, b"").unwrap();
        writer.finish().unwrap();
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Vec<(BlockKind, usize)>, BundleError> {
        let mut reader = BundleReader::new(bytes)?;
        let mut found = Vec::new();
        while let Some((_, kind, block)) = reader.next()? {
            found.push((kind, block.len()));
        }
        Ok(found)
    }

    #[test]
    fn what_is_written_is_read() {
        let bytes = sample();
        assert_eq!(read(&bytes).unwrap(), [(BlockKind::Log, 3), (BlockKind::Objects, 5010)]);
        assert!(bytes.len() < 300, "compressed");
    }

    #[test]
    fn a_cut_or_changed_byte_anywhere_is_noticed() {
        let bytes = sample();
        for at in 0..bytes.len() {
            assert!(read(&bytes[..at]).is_err(), "cut at {at}");
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err(), "changed at {at}");
        }
        assert!(read(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn sizes_are_only_claims() {
        let start = [&MAGIC[..], &FORMAT.to_le_bytes()].concat();
        let packed = codec::compress(&vec![0; 1 << 20]).unwrap();
        for (stored, raw) in [(u32::MAX, 0), (10, u32::MAX), (MAX_BLOCK_BYTES, MAX_BLOCK_BYTES)] {
            let mut bytes = start.clone();
            bytes.extend_from_slice(&encode_block_header(BlockKind::Objects, stored, raw));
            bytes.extend_from_slice(&packed);
            assert!(read(&bytes).is_err());
        }
        // The decompressed size may not exceed the declared one.
        let mut bytes = start;
        bytes.extend_from_slice(&encode_block_header(BlockKind::Objects, packed.len() as u32, 100));
        bytes.extend_from_slice(&packed);
        assert!(matches!(read(&bytes), Err(BundleError::Damaged(_))));
    }

    /// A file with one compressed block of zeros.
    fn zeros(kind: BlockKind, raw: usize) -> Vec<u8> {
        let packed = codec::compress(&vec![0; raw]).unwrap();
        let start = [&MAGIC[..], &FORMAT.to_le_bytes()].concat();
        let mut bytes =
            [&start[..], &encode_block_header(kind, packed.len() as u32, raw as u32), &packed].concat();
        let hash = blake3::hash(&bytes);
        bytes.extend_from_slice(&encode_block_header(BlockKind::End, 32, 0));
        bytes.extend_from_slice(hash.as_bytes());
        bytes
    }

    #[test]
    fn what_expands_too_much_is_refused_before_it_is_decompressed() {
        assert!(read(&zeros(BlockKind::Objects, 16 << 20)).is_ok());
        let too_much = read(&zeros(BlockKind::Objects, (16 << 20) + 1));
        assert!(matches!(too_much, Err(BundleError::Inconsistent(_))), "{too_much:?}");
        assert!(read(&zeros(BlockKind::Log, 4 << 20)).is_ok());
        assert!(matches!(read(&zeros(BlockKind::Log, (4 << 20) + 1)), Err(BundleError::Inconsistent(_))));
        // Many small blocks together.
        let one = &zeros(BlockKind::Objects, 16 << 20)[MAGIC.len() + 4..];
        let block = &one[..one.len() - BLOCK_HEADER_BYTES - 32];
        let many = [&MAGIC[..], &FORMAT.to_le_bytes(), &block.repeat(17)].concat();
        assert!(matches!(read(&many), Err(BundleError::Inconsistent(_))));
    }

    #[test]
    fn whatever_is_written_can_be_read() {
        let mut bytes = Vec::new();
        let mut writer = BundleWriter::new(&mut bytes).unwrap();
        for size in [1, 4 << 20, 20 << 20, 40 << 20] {
            writer.add_object(ObjectKind::Blob, &vec![7; size]).unwrap();
        }
        for _ in 0..3 {
            writer.add(BlockKind::Log, &[b' '; 3 << 20]).unwrap();
        }
        writer.finish().unwrap();
        assert_eq!(read(&bytes).unwrap().len(), 7);
        assert!(bytes.len() > 60 << 20, "what would expand too much is stored as it is");
    }

    #[test]
    fn what_a_later_version_wrote_is_refused_as_such() {
        let mut bytes = sample();
        bytes[16] = 2;
        assert!(matches!(read(&bytes), Err(BundleError::Newer { found: 2, known: 1 })));
        assert!(matches!(read(b"{\"type\":\"user\"}"), Err(BundleError::NotABundle)));
    }
}
