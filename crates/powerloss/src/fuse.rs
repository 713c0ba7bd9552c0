//! The recorded disk as a file, so that a loop device can be made of it.
//!
//! This is a FUSE file system with one file, spoken directly on `/dev/fuse`: a dozen requests are all that a loop device
//! makes, and a library would be a larger dependency than this module. The file is opened for direct I/O and answers are given
//! by one thread, so the order of the log is the order in which the kernel's block layer sent writes and waited for them.
//! A flush of the block device becomes an `fsync` of the file.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use rustix::mount::{MountFlags, UnmountFlags};

use crate::disk::Disk;

/// The name of the file.
pub const FILE_NAME: &str = "disk.img";

const ROOT_NODE: u64 = 1;
const FILE_NODE: u64 = 2;
const MAX_WRITE: u32 = 1 << 20;

/// Sizes of the structures of `linux/fuse.h` that are read.
const IN_HEADER: usize = 40;
const WRITE_IN: usize = 40;

/// A mounted disk. It is unmounted when dropped.
#[derive(Debug)]
pub struct DiskMount {
    directory: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl DiskMount {
    /// Serves a disk as a file in a directory.
    pub fn new(disk: Arc<Mutex<Disk>>, directory: &Path) -> Result<Self> {
        let device =
            File::options().read(true).write(true).open("/dev/fuse").context("cannot open /dev/fuse")?;
        let options = format!("fd={},rootmode=40000,user_id=0,group_id=0\0", device.as_raw_fd());
        let options = std::ffi::CStr::from_bytes_with_nul(options.as_bytes())?;
        rustix::mount::mount(
            "stepback-powerloss",
            directory,
            "fuse",
            MountFlags::NOSUID | MountFlags::NODEV,
            options,
        )
        .context("cannot mount the recorded disk with FUSE")?;
        let server = std::thread::spawn(move || serve(device, &disk));
        Ok(Self { directory: directory.to_owned(), server: Some(server) })
    }

    /// The file to make a loop device of.
    pub fn file(&self) -> PathBuf {
        self.directory.join(FILE_NAME)
    }
}

impl Drop for DiskMount {
    fn drop(&mut self) {
        let unmounted = rustix::mount::unmount(&self.directory, UnmountFlags::empty());
        match (unmounted, self.server.take()) {
            (Ok(()), Some(server)) => drop(server.join()),
            // Still in use: it goes away with the mount namespace.
            _ => drop(rustix::mount::unmount(&self.directory, UnmountFlags::DETACH)),
        }
    }
}

/// Answers requests until the file system is unmounted.
fn serve(mut device: File, disk: &Mutex<Disk>) {
    let mut buffer = vec![0; MAX_WRITE as usize + BUFFER_MARGIN];
    loop {
        let length = match device.read(&mut buffer) {
            Ok(length) => length,
            // An interrupted request (ENOENT) is asked again; ENODEV ends it.
            Err(error) if matches!(error.raw_os_error(), Some(2 | 4 | 11)) => continue,
            Err(_) => return,
        };
        let request = Request(&buffer[..length]);
        let reply = answer(&request, disk);
        let result = match reply {
            Reply::None => Ok(()),
            Reply::Data(data) => send(&device, &request, 0, &data),
            Reply::Error(code) => send(&device, &request, -code, &[]),
        };
        // ENOENT: the request was given up in the meantime.
        if result.is_err_and(|error| error.raw_os_error() != Some(2)) {
            return;
        }
    }
}

const BUFFER_MARGIN: usize = 16 * 1024;

/// One request: a header, and a body that depends on the operation.
struct Request<'a>(&'a [u8]);

impl Request<'_> {
    fn u32_at(&self, offset: usize) -> u32 {
        self.0.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_ne_bytes)
    }

    fn u64_at(&self, offset: usize) -> u64 {
        self.0.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
    }

    fn opcode(&self) -> u32 {
        self.u32_at(4)
    }

    fn id(&self) -> u64 {
        self.u64_at(8)
    }

    fn node(&self) -> u64 {
        self.u64_at(16)
    }

    fn body(&self) -> &[u8] {
        self.0.get(IN_HEADER..).unwrap_or_default()
    }
}

enum Reply {
    None,
    Data(Vec<u8>),
    Error(i32),
}

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOSYS: i32 = 38;

fn answer(request: &Request<'_>, disk: &Mutex<Disk>) -> Reply {
    let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
    let size = disk.size();
    match request.opcode() {
        // LOOKUP
        1 if request.body().strip_suffix(b"\0") == Some(FILE_NAME.as_bytes()) => {
            let mut reply = words(&[FILE_NODE, 0, u64::MAX >> 1, u64::MAX >> 1, 0]);
            reply.extend(attributes(FILE_NODE, size));
            Reply::Data(reply)
        }
        1 => Reply::Error(ENOENT),
        // FORGET, INTERRUPT, BATCH_FORGET
        2 | 36 | 42 => Reply::None,
        // GETATTR, SETATTR
        3 | 4 => {
            let mut reply = words(&[u64::MAX >> 1, 0]);
            reply.extend(attributes(request.node(), size));
            Reply::Data(reply)
        }
        // OPEN, with FOPEN_DIRECT_IO
        14 => Reply::Data(words(&[0, 1])),
        // OPENDIR
        27 => Reply::Data(words(&[0, 0])),
        // READ
        15 => Reply::Data(disk.read(request.u64_at(IN_HEADER + 8), request.u32_at(IN_HEADER + 16) as usize)),
        // WRITE
        16 => {
            let offset = request.u64_at(IN_HEADER + 8);
            let bytes = request.body().get(WRITE_IN..).unwrap_or_default();
            match disk.write(offset, bytes) {
                Ok(()) => Reply::Data(words(&[bytes.len() as u64])),
                Err(_) => Reply::Error(EIO),
            }
        }
        // STATFS: all zeros will do.
        17 => Reply::Data(vec![0; 80]),
        // FSYNC
        20 => {
            disk.flush();
            Reply::Data(Vec::new())
        }
        // RELEASE, FLUSH (of a file descriptor, not of the disk), READDIR, RELEASEDIR, ACCESS, DESTROY
        18 | 25 | 28 | 29 | 34 | 38 => Reply::Data(Vec::new()),
        // INIT
        26 => {
            const BIG_WRITES: u32 = 1 << 5;
            const MAX_PAGES: u32 = 1 << 22;
            let mut reply = Vec::with_capacity(64);
            for word in [7, 31, 0, BIG_WRITES | MAX_PAGES] {
                reply.extend(u32::to_ne_bytes(word));
            }
            // No limit of our own on requests that wait.
            reply.extend([u16::to_ne_bytes(64), u16::to_ne_bytes(48)].concat());
            reply.extend(MAX_WRITE.to_ne_bytes());
            reply.extend(u32::to_ne_bytes(1));
            reply.extend(u16::to_ne_bytes((MAX_WRITE / 4096) as u16));
            reply.resize(64, 0);
            Reply::Data(reply)
        }
        _ => Reply::Error(ENOSYS),
    }
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// `struct fuse_attr` of a node.
fn attributes(node: u64, size: u64) -> Vec<u8> {
    let (mode, size) = if node == ROOT_NODE { (0o040_755, 0) } else { (0o100_600, size) };
    // Number, size, blocks, three times.
    let mut bytes = words(&[node, size, size / 512, 0, 0, 0]);
    // Three fractions of times, mode, links, user, group, device, block size, flags.
    for word in [0u32, 0, 0, mode, 1, 0, 0, 0, 4096, 0] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

fn send(mut device: &File, request: &Request<'_>, error: i32, data: &[u8]) -> io::Result<()> {
    let mut header = Vec::with_capacity(16);
    // A reply is at most a read, far below 4 GiB.
    header.extend(((16 + data.len()) as u32).to_ne_bytes());
    header.extend(error.to_ne_bytes());
    header.extend(request.id().to_ne_bytes());
    // The kernel takes a reply in one call or not at all.
    device.write_vectored(&[IoSlice::new(&header), IoSlice::new(data)]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(opcode: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; IN_HEADER];
        bytes[4..8].copy_from_slice(&opcode.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    #[test]
    fn writes_and_syncs_of_the_file_are_recorded_in_order() {
        let disk = Mutex::new(Disk::new(8192));
        disk.lock().unwrap().record();
        let mut body = words(&[0, 512, 3, 0, 0]);
        body.extend(b"abc");
        let reply = |bytes: &[u8]| match answer(&Request(bytes), &disk) {
            Reply::Data(data) => data,
            Reply::None | Reply::Error(_) => panic!("refused"),
        };
        assert_eq!(reply(&request(16, &body)), words(&[3]));
        assert!(reply(&request(20, &words(&[0, 0]))).is_empty());
        assert_eq!(reply(&request(15, &words(&[0, 512, 3, 0, 0]))), b"abc");
        assert_eq!(reply(&request(1, b"disk.img\0")).len(), 128);
        assert_eq!(reply(&request(26, &[])).len(), 64);
        let log = disk.lock().unwrap().take_log();
        assert_eq!(log.len(), 2);
        assert!(log[0].as_write().is_some() && log[1].as_write().is_none());
        assert!(matches!(answer(&Request(&request(1, b"other\0")), &disk), Reply::Error(ENOENT)));
        assert!(matches!(answer(&Request(&request(43, &[])), &disk), Reply::Error(ENOSYS)));
    }
}
