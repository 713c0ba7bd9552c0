//! The socket protocol of the watcher: one question, one answer, each preceded by its length.
//!
//! Both ends are programs of one user, but perhaps of different versions: anything that does not match the format exactly
//! is rejected.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use stepback_model::path::RelPath;
use stepback_worktree::scan::hints::{ChangedDir, LogPosition, WatchAnswer};

use crate::report::WatcherReport;

/// The start of every message; the last byte is the version.
const MAGIC: [u8; 4] = *b"SBW\x02";
/// The longest question, in bytes.
const MAX_REQUEST_BYTES: usize = 8 << 10;
/// The longest answer, in bytes.
const MAX_RESPONSE_BYTES: usize = 1 << 20;
/// The most directories in an answer.
const MAX_ANSWER_DIRS: u32 = 4096;

/// A question to the watcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchRequest {
    /// Asks what may have changed.
    Changes {
        /// The root of the workspace.
        root: PathBuf,
        /// Device and inode of the root.
        root_id: (u64, u64),
        /// The mount namespace of the client.
        namespace: u64,
        /// The token from which on changes are asked for; `None` if the client has none.
        since: Option<LogPosition>,
        /// The version of the client: another one may have other rules about what a scan visits.
        version: String,
    },
    /// Asks what is watched, and by which process.
    Report,
    /// Asks the watcher to stop, if a hook started it.
    Stop,
}

/// An answer of the watcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchResponse {
    /// The answer to [`WatchRequest::Changes`].
    Changes(WatchAnswer),
    /// The answer to [`WatchRequest::Report`].
    Report(WatcherReport),
    /// The answer to [`WatchRequest::Stop`]: whether it stops.
    Stopping(bool),
}

/// Writes a question.
pub fn ask(to: &mut impl Write, request: &WatchRequest) -> io::Result<()> {
    let mut bytes = start_message();
    match request {
        WatchRequest::Changes { root, root_id, namespace, since, version } => {
            bytes.push(1);
            for word in [root_id.0, root_id.1, *namespace] {
                bytes.extend_from_slice(&word.to_le_bytes());
            }
            put_token(&mut bytes, *since);
            put_bytes(&mut bytes, version.as_bytes());
            bytes.extend_from_slice(root.as_os_str().as_bytes());
        }
        WatchRequest::Report => bytes.push(2),
        WatchRequest::Stop => bytes.push(3),
    }
    finish(to, bytes, MAX_REQUEST_BYTES)
}

/// Reads a question.
pub fn hear(from: &mut impl Read) -> io::Result<WatchRequest> {
    let bytes = read_message(from, MAX_REQUEST_BYTES)?;
    let mut fields = MessageReader(&bytes);
    let request = match fields.take_byte()? {
        1 => {
            let (root_id, namespace) = ((fields.take_u64()?, fields.take_u64()?), fields.take_u64()?);
            let since = fields.take_token()?;
            let version = fields.text()?;
            WatchRequest::Changes { root: fields.take_root()?, root_id, namespace, since, version }
        }
        2 => WatchRequest::Report,
        3 => WatchRequest::Stop,
        _ => return Err(not_understood()),
    };
    if fields.0.is_empty() { Ok(request) } else { Err(not_understood()) }
}

/// Writes an answer.
pub fn tell(to: &mut impl Write, response: &WatchResponse) -> io::Result<()> {
    let mut bytes = start_message();
    match response {
        WatchResponse::Changes(WatchAnswer::Unknown) => bytes.push(0),
        WatchResponse::Changes(WatchAnswer::Everything(token)) => {
            bytes.push(1);
            put_token(&mut bytes, Some(*token));
        }
        WatchResponse::Changes(WatchAnswer::Only(token, changed)) => {
            bytes.push(2);
            put_token(&mut bytes, Some(*token));
            bytes.extend_from_slice(&(changed.len() as u32).to_le_bytes());
            for changed in changed {
                bytes.push(u8::from(changed.whole));
                put_bytes(&mut bytes, changed.path.as_bytes());
            }
            if changed.len() > MAX_ANSWER_DIRS as usize || bytes.len() > MAX_RESPONSE_BYTES {
                bytes = start_message();
                bytes.push(1);
                put_token(&mut bytes, Some(*token));
            }
        }
        WatchResponse::Report(report) => {
            bytes.push(3);
            report.encode(&mut bytes);
        }
        WatchResponse::Stopping(stops) => bytes.extend_from_slice(&[4, u8::from(*stops)]),
    }
    finish(to, bytes, MAX_RESPONSE_BYTES)
}

/// Reads an answer.
pub fn listen(from: &mut impl Read) -> io::Result<WatchResponse> {
    let bytes = read_message(from, MAX_RESPONSE_BYTES)?;
    let mut fields = MessageReader(&bytes);
    let response = match fields.take_byte()? {
        0 => WatchResponse::Changes(WatchAnswer::Unknown),
        1 => {
            WatchResponse::Changes(WatchAnswer::Everything(fields.take_token()?.ok_or_else(not_understood)?))
        }
        2 => {
            let token = fields.take_token()?.ok_or_else(not_understood)?;
            let count = fields.take_u32()?;
            if count > MAX_ANSWER_DIRS {
                return Err(not_understood());
            }
            let mut changed = Vec::new();
            for _ in 0..count {
                let is_subtree = fields.take_flag()?;
                let path = RelPath::parse(fields.bytes()?).map_err(|_| not_understood())?;
                changed.push(ChangedDir { path, whole: is_subtree });
            }
            WatchResponse::Changes(WatchAnswer::Only(token, changed))
        }
        3 => WatchResponse::Report(WatcherReport::decode(&mut fields)?),
        4 => WatchResponse::Stopping(fields.take_flag()?),
        _ => return Err(not_understood()),
    };
    if fields.0.is_empty() { Ok(response) } else { Err(not_understood()) }
}

fn not_understood() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the watcher uses another protocol version")
}

fn start_message() -> Vec<u8> {
    // The length comes first but is known last.
    let mut bytes = vec![0; 4];
    bytes.extend_from_slice(&MAGIC);
    bytes
}

fn finish(to: &mut impl Write, mut bytes: Vec<u8>, longest: usize) -> io::Result<()> {
    let length = bytes.len() - 4;
    if length > longest {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too large"));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    to.write_all(&bytes)
}

/// Reads a message without its header.
fn read_message(from: &mut impl Read, longest: usize) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > longest {
        return Err(not_understood());
    }
    let mut bytes = vec![0; length];
    from.read_exact(&mut bytes)?;
    match bytes.strip_prefix(&MAGIC) {
        Some(rest) => Ok(rest.to_vec()),
        None => Err(not_understood()),
    }
}

fn put_token(bytes: &mut Vec<u8>, token: Option<LogPosition>) {
    bytes.push(u8::from(token.is_some()));
    let token = token.unwrap_or_default();
    bytes.extend_from_slice(&token.instance);
    bytes.extend_from_slice(&token.position.to_le_bytes());
}

/// Appends bytes preceded by their length.
pub(crate) fn put_bytes(bytes: &mut Vec<u8>, more: &[u8]) {
    bytes.extend_from_slice(&(more.len() as u32).to_le_bytes());
    bytes.extend_from_slice(more);
}

/// The unread part of a message.
pub(crate) struct MessageReader<'a>(pub &'a [u8]);

impl<'a> MessageReader<'a> {
    fn take_bytes(&mut self, length: usize) -> io::Result<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length).ok_or_else(not_understood)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn take_array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk().ok_or_else(not_understood)?;
        self.0 = rest;
        Ok(*bytes)
    }

    fn take_byte(&mut self) -> io::Result<u8> {
        Ok(self.take_array::<1>()?[0])
    }

    pub(crate) fn take_flag(&mut self) -> io::Result<bool> {
        match self.take_byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(not_understood()),
        }
    }

    pub(crate) fn take_u32(&mut self) -> io::Result<u32> {
        Ok(u32::from_le_bytes(self.take_array()?))
    }

    pub(crate) fn bytes(&mut self) -> io::Result<&'a [u8]> {
        let length = self.take_u32()? as usize;
        self.take_bytes(length)
    }

    pub(crate) fn text(&mut self) -> io::Result<String> {
        Ok(String::from_utf8_lossy(self.bytes()?).into_owned())
    }

    pub(crate) fn take_u64(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.take_array()?))
    }

    fn take_token(&mut self) -> io::Result<Option<LogPosition>> {
        let is_there = self.take_flag()?;
        let token = LogPosition { instance: self.take_array()?, position: self.take_u64()? };
        Ok(is_there.then_some(token))
    }

    fn take_root(&mut self) -> io::Result<PathBuf> {
        let path = Path::new(OsStr::from_bytes(std::mem::take(&mut self.0))).to_path_buf();
        if path.is_absolute() { Ok(path) } else { Err(not_understood()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::WatchedRoot;
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text).unwrap()
    }

    const TOKEN: LogPosition = LogPosition { instance: [7; 16], position: 42 };

    fn answers() -> Vec<WatchResponse> {
        vec![
            WatchResponse::Changes(WatchAnswer::Unknown),
            WatchResponse::Changes(WatchAnswer::Everything(TOKEN)),
            WatchResponse::Changes(WatchAnswer::Only(
                TOKEN,
                vec![
                    ChangedDir { path: RelPath::root(), whole: false },
                    ChangedDir { path: RelPath::parse(b"not utf8 \xff/a".as_slice()).unwrap(), whole: true },
                ],
            )),
            WatchResponse::Report(WatcherReport {
                pid: 7,
                version: "1.2.3".into(),
                automatic: true,
                since: 1_700_000_000,
                memory: 9 << 20,
                questions: 12,
                roots: vec![
                    WatchedRoot { root: "/work/a b".into(), sight: Ok(80_000) },
                    WatchedRoot { root: "/work/c".into(), sight: Err("no".into()) },
                ],
            }),
            WatchResponse::Stopping(true),
        ]
    }

    #[test]
    fn what_is_said_is_understood() {
        let root = PathBuf::from("/work/a b");
        for asked in [
            WatchRequest::Changes {
                root: root.clone(),
                root_id: (1, 2),
                namespace: 3,
                since: Some(TOKEN),
                version: "1.2.3".into(),
            },
            WatchRequest::Changes {
                root,
                root_id: (1, 2),
                namespace: 3,
                since: None,
                version: String::new(),
            },
            WatchRequest::Report,
            WatchRequest::Stop,
        ] {
            let mut bytes = Vec::new();
            ask(&mut bytes, &asked).unwrap();
            assert_eq!(hear(&mut bytes.as_slice()).unwrap(), asked);
        }
        for told in answers() {
            let mut bytes = Vec::new();
            tell(&mut bytes, &told).unwrap();
            assert_eq!(listen(&mut bytes.as_slice()).unwrap(), told);
            for cut in 0..bytes.len() {
                assert!(listen(&mut &bytes[..cut]).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn an_answer_that_leads_out_of_the_workspace_is_none() {
        for wrong in ["../x", "/etc", "a//b", "a/../..", "."] {
            let mut bytes = start_message();
            bytes.push(2);
            put_token(&mut bytes, Some(TOKEN));
            bytes.extend_from_slice(&1u32.to_le_bytes());
            bytes.push(0);
            bytes.extend_from_slice(&(wrong.len() as u32).to_le_bytes());
            bytes.extend_from_slice(wrong.as_bytes());
            let mut sent = Vec::new();
            finish(&mut sent, bytes, MAX_RESPONSE_BYTES).unwrap();
            assert!(listen(&mut sent.as_slice()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn absurd_lengths_are_refused_before_anything_is_read() {
        let mut huge = u32::MAX.to_le_bytes().to_vec();
        huge.extend_from_slice(&MAGIC);
        assert_eq!(listen(&mut huge.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(hear(&mut huge.as_slice()).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let many = vec![ChangedDir { path: path("a"), whole: false }; MAX_ANSWER_DIRS as usize + 1];
        let mut bytes = Vec::new();
        tell(&mut bytes, &WatchResponse::Changes(WatchAnswer::Only(TOKEN, many))).unwrap();
        let told = listen(&mut bytes.as_slice()).unwrap();
        assert_eq!(
            told,
            WatchResponse::Changes(WatchAnswer::Everything(TOKEN)),
            "too many to name are not named"
        );
    }

    proptest! {
        #[test]
        fn nothing_that_arrives_makes_it_fall(bytes in proptest::collection::vec(any::<u8>(), 0..200), which in 0..5usize) {
            let _ = listen(&mut bytes.as_slice());
            let _ = hear(&mut bytes.as_slice());
            // The same as the body of a well-formed message.
            let mut begun = start_message();
            begun.push(which as u8);
            begun.extend_from_slice(&bytes);
            let mut sent = Vec::new();
            finish(&mut sent, begun, MAX_RESPONSE_BYTES).unwrap();
            let _ = listen(&mut sent.as_slice());
            let _ = hear(&mut sent.as_slice());
        }
    }
}
