//! Checks immutable git files against the hash that they contain or are named after, piece by piece, so that a file can be
//! checked while it is copied.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use flate2::{Decompress, FlushDecompress, Status};
use sha1::{Digest, Sha1};
use sha2::Sha256;
use stepback_model::hex;

/// Bytes that are read or inflated at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Whether a file of the vault is intact: feed it all bytes of the file, then ask.
pub struct GitFileCheck {
    rule: Rule,
    /// The first problem found.
    problem: Option<String>,
}

enum Rule {
    /// A loose object: zlib data whose inflated content has this hash, in hex.
    Loose { id: Vec<u8>, hasher: ObjectHasher, inflater: Box<Inflater> },
    /// A pack or one of its indexes: the hash of everything before is at the end.
    Trailer { hasher: ObjectHasher, held_back: Vec<u8> },
    /// A Git LFS object: its content has this hash, in hex.
    Content { id: Vec<u8>, hasher: ObjectHasher },
    /// A name that says nothing about the content.
    Nothing,
}

struct Inflater {
    stream: Decompress,
    buffer: Vec<u8>,
    ended: bool,
}

enum ObjectHasher {
    Sha1(Sha1),
    Sha256(Sha256),
}

impl ObjectHasher {
    /// The hash whose hex form has this length.
    fn with_hex_len(len: usize) -> Option<Self> {
        match len {
            40 => Some(Self::Sha1(Sha1::new())),
            64 => Some(Self::Sha256(Sha256::new())),
            _ => None,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Sha1(_) => 20,
            Self::Sha256(_) => 32,
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha1(hasher) => hasher.update(bytes),
            Self::Sha256(hasher) => hasher.update(bytes),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Sha1(hasher) => hasher.finalize().to_vec(),
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
        }
    }
}

impl GitFileCheck {
    /// A check of the file with this name in the vault.
    pub fn new(name: &[u8]) -> Self {
        Self { rule: Rule::of(name).unwrap_or(Rule::Nothing), problem: None }
    }

    /// Adds the next bytes of the file.
    pub fn update(&mut self, bytes: &[u8]) {
        if self.problem.is_some() {
            return;
        }
        match &mut self.rule {
            Rule::Loose { hasher, inflater, .. } => self.problem = inflater.inflate(bytes, hasher).err(),
            Rule::Trailer { hasher, held_back } => {
                held_back.extend_from_slice(bytes);
                let complete = held_back.len().saturating_sub(hasher.len());
                hasher.update(&held_back[..complete]);
                held_back.drain(..complete);
            }
            Rule::Content { hasher, .. } => hasher.update(bytes),
            Rule::Nothing => {}
        }
    }

    /// Whether the bytes were those of an intact file; if not, what is wrong with them.
    pub fn finish(self) -> Result<(), String> {
        if let Some(problem) = self.problem {
            return Err(problem);
        }
        let matches = match self.rule {
            Rule::Loose { inflater, .. } if !inflater.ended => return Err("it is truncated".into()),
            Rule::Trailer { hasher, held_back } if held_back.len() < hasher.len() => {
                return Err("it is truncated".into());
            }
            Rule::Loose { id, hasher, .. } | Rule::Content { id, hasher } => {
                hex::encode(&hasher.finish()).as_bytes() == id.to_ascii_lowercase()
            }
            Rule::Trailer { hasher, held_back } => hasher.finish() == held_back,
            Rule::Nothing => true,
        };
        if matches { Ok(()) } else { Err("its content does not match its hash".into()) }
    }
}

impl Rule {
    fn of(name: &[u8]) -> Option<Self> {
        if let Some(id) = name.strip_prefix(b"object-") {
            let inflater =
                Inflater { stream: Decompress::new(true), buffer: vec![0; 16 << 10], ended: false };
            let (id, hasher) = (id.to_vec(), ObjectHasher::with_hex_len(id.len())?);
            return Some(Self::Loose { id, hasher, inflater: Box::new(inflater) });
        }
        if let Some(id) = name.strip_prefix(b"lfs-") {
            return Some(Self::Content { id: id.to_vec(), hasher: ObjectHasher::with_hex_len(id.len())? });
        }
        let rest = name.strip_prefix(b"pack-")?;
        let dot = rest.iter().position(|byte| *byte == b'.')?;
        let has_trailer = matches!(&rest[dot..], b".pack" | b".idx" | b".rev");
        let hasher = ObjectHasher::with_hex_len(dot).filter(|_| has_trailer)?;
        Some(Self::Trailer { hasher, held_back: Vec::new() })
    }
}

impl Inflater {
    fn inflate(&mut self, mut bytes: &[u8], hasher: &mut ObjectHasher) -> Result<(), String> {
        loop {
            if self.ended {
                return if bytes.is_empty() { Ok(()) } else { Err("bytes follow its end".into()) };
            }
            let (read, written) = (self.stream.total_in(), self.stream.total_out());
            let status = self
                .stream
                .decompress(bytes, &mut self.buffer, FlushDecompress::None)
                .map_err(|error| format!("it cannot be decompressed: {error}"))?;
            let read = (self.stream.total_in() - read) as usize;
            let written = (self.stream.total_out() - written) as usize;
            hasher.update(&self.buffer[..written]);
            bytes = &bytes[read..];
            self.ended = status == Status::StreamEnd;
            let needs_more = bytes.is_empty() && written < self.buffer.len();
            if !self.ended && (needs_more || (read == 0 && written == 0)) {
                return Ok(());
            }
        }
    }
}

/// Checks the file `name` of the vault by reading it to its end. The outer error is one of reading.
pub fn check_reader(name: &[u8], mut reader: impl Read) -> io::Result<Result<(), String>> {
    let mut check = GitFileCheck::new(name);
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match reader.read(&mut piece) {
            Ok(0) => return Ok(check.finish()),
            Ok(count) => check.update(&piece[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Checks an immutable git file at `path`, which must have its name of the vault.
pub fn verify_file(path: &Path) -> Result<(), String> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let file = File::open(path).map_err(|error| error.to_string())?;
    check_reader(name, file).unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn check(name: &str, bytes: &[u8]) -> Result<(), String> {
        check_reader(name.as_bytes(), bytes).unwrap()
    }

    /// A loose object with this content, and its name in the vault.
    fn loose(content: &[u8]) -> (String, Vec<u8>) {
        let plain = [format!("blob {}\0", content.len()).as_bytes(), content].concat();
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(&plain).unwrap();
        (format!("object-{}", hex::encode(&Sha1::digest(&plain))), encoder.finish().unwrap())
    }

    #[test]
    fn every_damage_to_a_loose_object_is_detected() {
        for content in [&b""[..], b"hello\n", &b"0123456789".repeat(100_000)] {
            let (name, bytes) = loose(content);
            assert_eq!(check(&name, &bytes), Ok(()));
            for cut in [0, 1, bytes.len() / 2, bytes.len() - 4, bytes.len() - 1] {
                assert!(check(&name, &bytes[..cut]).is_err(), "cut to {cut} of {}", bytes.len());
            }
            for at in [0, 2, bytes.len() / 2, bytes.len() - 1] {
                let mut bad = bytes.clone();
                bad[at] ^= 0x40;
                assert!(check(&name, &bad).is_err(), "byte {at} of {}", bytes.len());
            }
            assert!(check(&name, &[&bytes[..], b"more"].concat()).is_err());
            let other = loose(b"another").1;
            assert!(check(&name, &other).is_err());
        }
    }

    #[test]
    fn objects_with_sha256_ids_are_checked_too() {
        let plain = b"blob 6\0hello\n";
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(plain).unwrap();
        let bytes = encoder.finish().unwrap();
        let name = format!("object-{}", hex::encode(&Sha256::digest(plain)));
        assert_eq!(check(&name, &bytes), Ok(()));
        assert!(check(&name, &loose(b"hello!").1).is_err());
        let name = format!("lfs-{}", hex::encode(&Sha256::digest(b"large")));
        assert_eq!(check(&name, b"large"), Ok(()));
        assert!(check(&name, b"larger").is_err());
    }

    #[test]
    fn a_pack_that_rotted_is_noticed() {
        let mut bytes = b"PACK and some content".repeat(20_000);
        let trailer = Sha1::digest(&bytes);
        bytes.extend_from_slice(&trailer);
        for kind in ["pack", "idx", "rev"] {
            let name = format!("pack-{}.{kind}", "0".repeat(40));
            assert_eq!(check(&name, &bytes), Ok(()));
            let mut bad = bytes.clone();
            bad[300_000] ^= 1;
            assert!(check(&name, &bad).is_err());
            assert!(check(&name, &bytes[..bytes.len() - 1]).is_err());
            assert!(check(&name, b"short").is_err());
            assert!(check(&name, b"").is_err());
        }
    }

    #[test]
    fn pieces_of_any_size_give_the_same_result() {
        let (name, bytes) = loose(&b"some text ".repeat(5000));
        for size in [1, 7, 64, 4096] {
            let mut check = GitFileCheck::new(name.as_bytes());
            bytes.chunks(size).for_each(|piece| check.update(piece));
            assert_eq!(check.finish(), Ok(()));
        }
    }
}
