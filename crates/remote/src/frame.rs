//! Messages on a stream: a head of JSON and a body of bytes, both of bounded length.
//!
//! The lengths come first. A length that is too large is refused before anything is allocated for it, and memory grows only
//! with the bytes that arrive.

use std::io::{self, Read, Write};

/// Largest head that a server reads, in bytes.
pub(crate) const MAX_REQUEST_HEAD: u32 = 32 << 20;
/// Largest head that a client reads, in bytes: a list of all steps.
pub(crate) const MAX_REPLY_HEAD: u32 = 1 << 30;
/// Largest body, in bytes.
pub(crate) const MAX_BODY: u32 = MAX_OBJECT_BYTES as u32 + (1 << 20);
/// Largest object, in bytes. Large files are stored in pieces, so ordinary objects stay far below.
pub(crate) const MAX_OBJECT_BYTES: usize = 256 << 20;
/// At most this much is allocated before the first bytes arrive.
const FIRST_ALLOCATION: u64 = 256 << 10;

/// The lengths that begin a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameLengths {
    pub head: u32,
    pub body: u32,
}

impl FrameLengths {
    /// Reads the lengths of the next message; `None` if the stream ended before it.
    pub fn read(stream: &mut impl Read, max_head: u32) -> io::Result<Option<Self>> {
        let mut first = [0; 1];
        loop {
            match stream.read(&mut first) {
                Ok(0) => return Ok(None),
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut bytes = [0; 8];
        bytes[0] = first[0];
        stream.read_exact(&mut bytes[1..])?;
        let length = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let lengths = Self { head: length(0), body: length(4) };
        if lengths.head > max_head || lengths.body > MAX_BODY {
            return Err(invalid(format!(
                "a message of {} and {} bytes is too large",
                lengths.head, lengths.body
            )));
        }
        Ok(Some(lengths))
    }

    /// Reads the rest of the message.
    pub fn read_message(self, stream: &mut impl Read) -> io::Result<(Vec<u8>, Vec<u8>)> {
        Ok((read_part(stream, self.head)?, read_part(stream, self.body)?))
    }
}

fn read_part(stream: &mut impl Read, length: u32) -> io::Result<Vec<u8>> {
    let length = u64::from(length);
    let mut bytes = Vec::with_capacity(length.min(FIRST_ALLOCATION) as usize);
    stream.take(length).read_to_end(&mut bytes)?;
    match bytes.len() as u64 == length {
        true => Ok(bytes),
        false => Err(io::Error::from(io::ErrorKind::UnexpectedEof)),
    }
}

/// Writes a message.
pub(crate) fn write_message(stream: &mut impl Write, head: &[u8], body: &[u8]) -> io::Result<()> {
    let too_large = || invalid("a message is too large to be sent".into());
    let head_len =
        u32::try_from(head.len()).ok().filter(|len| *len <= MAX_REPLY_HEAD).ok_or_else(too_large)?;
    let body_len = u32::try_from(body.len()).ok().filter(|len| *len <= MAX_BODY).ok_or_else(too_large)?;
    // One write for a small message: every write is a system call, and over TLS a record.
    let mut first = Vec::with_capacity(8 + head.len() + if body.len() <= 16 << 10 { body.len() } else { 0 });
    first.extend_from_slice(&head_len.to_be_bytes());
    first.extend_from_slice(&body_len.to_be_bytes());
    first.extend_from_slice(head);
    if body.len() <= 16 << 10 {
        first.extend_from_slice(body);
        stream.write_all(&first)?;
    } else {
        stream.write_all(&first)?;
        stream.write_all(body)?;
    }
    stream.flush()
}

/// The error for bytes that are no message of this protocol.
pub(crate) fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_back() {
        for body in [0, 5, 100_000] {
            let body = vec![7; body];
            let mut bytes = Vec::new();
            write_message(&mut bytes, b"{}", &body).unwrap();
            let mut rest = bytes.as_slice();
            let lengths = FrameLengths::read(&mut rest, 100).unwrap().unwrap();
            assert_eq!(lengths.read_message(&mut rest).unwrap(), (b"{}".to_vec(), body));
            assert_eq!(FrameLengths::read(&mut rest, 100).unwrap(), None);
        }
    }

    #[test]
    fn wrong_lengths_and_cut_messages_are_refused() {
        let mut huge = [0xff; 8].as_slice();
        assert_eq!(FrameLengths::read(&mut huge, 100).unwrap_err().kind(), io::ErrorKind::InvalidData);
        let mut bytes = Vec::new();
        write_message(&mut bytes, b"{\"a\":1}", b"body").unwrap();
        for cut in 1..bytes.len() {
            let mut part = &bytes[..cut];
            let read = FrameLengths::read(&mut part, 100).and_then(|lengths| match lengths {
                Some(lengths) => lengths.read_message(&mut part).map(|_| ()),
                None => Ok(()),
            });
            assert_eq!(read.unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "cut at {cut}");
        }
    }
}
