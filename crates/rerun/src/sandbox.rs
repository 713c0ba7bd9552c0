//! The sandbox of a rerun: a process tree whose only network is its own loopback and that can write only to listed
//! directories.
//!
//! A rerun repeats unattended what an agent once did. Effects in its own directory are wanted; no other effect may happen
//! twice. So the agent is started by a process that first leaves the network and makes the file system read-only, in
//! namespaces of its own. The model must still be reachable: that process opens the listening sockets inside and passes them
//! out, and the proxy answers from outside.
//!
//! If the system does not allow namespaces, the reason is reported, and the caller decides what else to do.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind_recursive, mount_change};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::UnshareFlags;
use serde::{Deserialize, Serialize};

/// The argument that makes stepback's own program the process inside.
pub const SANDBOX_ARGUMENT: &str = "fenced";
/// The variable that says how a stepback process uses the watcher. In the sandbox it neither connects to one nor starts one:
/// the mounts are different there, and processes started there are killed with the rerun.
pub const WATCHER_VARIABLE: &str = "STEPBACK_WATCHER";
/// Most sockets that can be passed at once.
const MAX_PASSED_SOCKETS: usize = 16;
/// The argument after `WORD` that makes stepback's program kill everything inside once the process outside is gone.
const GUARD_ARGUMENT: &str = "guard";
/// The directory of shared memory.
const SHARED_MEMORY: &str = "/dev/shm";

/// What the sandbox leaves open.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxAllow {
    /// Directories that can be written to.
    pub writable: Vec<PathBuf>,
    /// How many sockets listen on the inner loopback.
    pub sockets: usize,
}

/// The command to run inside.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SandboxedCommand {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The whole environment.
    pub env: Vec<(String, String)>,
    /// Its current directory.
    pub directory: PathBuf,
}

/// What keeps a rerun from having effects elsewhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case", tag = "fence")]
pub enum Isolation {
    /// Namespaces: no network but loopback, and everything but the listed directories is read-only.
    Namespaces,
    /// A network namespace only.
    Network {
        /// Why files are not protected.
        why: String,
    },
    /// Only what the tools themselves refuse.
    Policy {
        /// Why there are no namespaces.
        why: String,
    },
}

impl Isolation {
    /// Describes the protection for the user.
    pub fn describe(&self) -> String {
        match self {
            Self::Namespaces => {
                "only its own loopback network, and only its own directory is writable (namespaces)".into()
            }
            Self::Network { why } => {
                format!("only its own loopback network (namespace); files are not isolated: {why}")
            }
            Self::Policy { why } => format!("tool policy only, no namespaces: {why}"),
        }
    }
}

#[derive(Serialize, Deserialize)]
enum SandboxReport {
    Ready { files: Option<String> },
    Impossible { why: String },
}

/// A process that waits inside the sandbox for a command to run.
#[derive(Debug)]
pub struct SandboxProcess {
    child: Child,
    channel: UnixStream,
    /// The sockets that listen inside.
    pub sockets: Vec<TcpListener>,
    /// The protection that is in force.
    pub isolation: Isolation,
}

impl SandboxProcess {
    /// Starts `program`, stepback's own, as the process inside. The command's output goes to `output`.
    pub fn start(program: &Path, allow: &SandboxAllow, output: &File) -> io::Result<Self> {
        let (mut channel, child_end) = UnixStream::pair()?;
        let child = Command::new(program)
            .arg(SANDBOX_ARGUMENT)
            .stdin(Stdio::from(OwnedFd::from(child_end)))
            .stdout(output.try_clone()?)
            .stderr(output.try_clone()?)
            .process_group(0)
            .spawn()?;
        write_line(&mut channel, allow)?;
        let (report, handed) = receive_report(&mut channel, allow.sockets)?;
        let mut fence = Self { child, channel, sockets: Vec::new(), isolation: Isolation::Namespaces };
        match report {
            SandboxReport::Ready { files } => {
                fence.sockets = handed.into_iter().map(TcpListener::from).collect();
                if let Some(reason) = files {
                    fence.isolation = Isolation::Network { why: reason };
                }
            }
            SandboxReport::Impossible { why: reason } => {
                fence.isolation = Isolation::Policy { why: reason };
                let bind_own = || TcpListener::bind("127.0.0.1:0");
                fence.sockets = (0..allow.sockets).map(|_| bind_own()).collect::<io::Result<_>>()?;
            }
        }
        Ok(fence)
    }

    /// Runs a command inside, as the leader of its own process group. When the returned connection is dropped, everything
    /// inside is killed.
    pub fn run(mut self, inside: &SandboxedCommand) -> io::Result<(Child, UnixStream)> {
        write_line(&mut self.channel, inside)?;
        Ok((self.child, self.channel))
    }

    /// Returns the file that identifies the network namespace, by which all processes inside can be found.
    pub fn namespace(&self) -> Option<PathBuf> {
        match self.isolation {
            Isolation::Policy { .. } => None,
            _ => fs::read_link(format!("/proc/{}/ns/net", self.child.id())).ok(),
        }
    }
}

/// Becomes the process inside, if the arguments ask for it. Then it only returns if it fails, with the error.
pub fn run_sandbox_child(arguments: &[OsString]) -> Option<io::Error> {
    let words: Vec<&OsString> = arguments.iter().skip(1).collect();
    let ended = match words.as_slice() {
        [word] if *word == SANDBOX_ARGUMENT => run_inside(),
        [word, guard] if *word == SANDBOX_ARGUMENT && *guard == GUARD_ARGUMENT => run_guard(),
        _ => return None,
    };
    match ended {
        Err(error) => Some(error),
        Ok(never) => match never {},
    }
}

/// Starts the guard, which inherits this process's end of the channel.
fn start_guard(channel: &UnixStream) -> io::Result<()> {
    let program = std::env::current_exe()?;
    Command::new(program)
        .args([SANDBOX_ARGUMENT, GUARD_ARGUMENT])
        .stdin(OwnedFd::from(channel.try_clone()?))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok(())
}

/// Waits until the process that started the sandbox is gone, even if it was killed, and kills what is left in this network
/// namespace.
fn run_guard() -> io::Result<std::convert::Infallible> {
    let own_namespace = fs::read_link("/proc/self/ns/net")?;
    // No data is sent; this returns when the other end is closed.
    while matches!(io::stdin().read(&mut [0; 64]), Ok(1..)) {}
    kill_namespace(&own_namespace, rustix::process::getpid());
    std::process::exit(0)
}

/// Kills every process in a network namespace but one.
pub(crate) fn kill_namespace(namespace: &Path, except: Pid) {
    // A process that is started during one scan is found in the next.
    for _ in 0..100 {
        let mut killed_any = false;
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            let other_namespace = fs::read_link(entry.path().join("ns/net"));
            if let (Some(id), true) =
                (id, other_namespace.is_ok_and(|other_namespace| other_namespace == namespace))
                && id != except
            {
                killed_any |= kill_process(id, Signal::KILL).is_ok();
            }
        }
        if !killed_any {
            break;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn run_inside() -> io::Result<std::convert::Infallible> {
    // If the process that runs the agent is killed, no other process would end the agent.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The channel came as standard input, which the agent must not get.
    let mut channel = UnixStream::from(rustix::io::fcntl_dupfd_cloexec(io::stdin().as_fd(), 3)?);
    let openings: SandboxAllow = read_line(&mut channel)?;
    let report = match enter_namespaces(&openings) {
        Ok(files) => SandboxReport::Ready { files },
        Err(error) => SandboxReport::Impossible { why: error.to_string() },
    };
    let mut sockets = Vec::new();
    if matches!(report, SandboxReport::Ready { .. }) {
        for _ in 0..openings.sockets.min(MAX_PASSED_SOCKETS) {
            sockets.push(TcpListener::bind("127.0.0.1:0")?);
        }
    }
    send_report(&mut channel, &report, &sockets)?;
    drop(sockets);
    let inside: SandboxedCommand = read_line(&mut channel)?;
    if matches!(report, SandboxReport::Ready { .. }) {
        // If this process is killed, no other one would end what the agent started.
        start_guard(&channel)?;
    }
    let Some((program, rest)) = inside.argv.split_first() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command to run"));
    };
    let mut command = Command::new(program);
    command.args(rest).current_dir(&inside.directory).env_clear().envs(inside.env).stdin(Stdio::null());
    command.env(WATCHER_VARIABLE, "off");
    Err(command.exec())
}

/// Leaves the network and, if possible, makes files read-only. Returns why if files could not be protected.
fn enter_namespaces(allow: &SandboxAllow) -> io::Result<Option<String>> {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    let net_and_mounts = UnshareFlags::NEWNET | UnshareFlags::NEWNS;
    if rustix::process::geteuid().is_root() {
        unshare(net_and_mounts)?;
    } else {
        unshare(net_and_mounts | UnshareFlags::NEWUSER)?;
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("{0} {0} 1", user.as_raw()))?;
        fs::write("/proc/self/gid_map", format!("{0} {0} 1", group.as_raw()))?;
    }
    enable_loopback()?;
    Ok(protect_files(&allow.writable).err().map(|error| error.to_string()))
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the process has one thread and shares no memory or file descriptors that these flags would split.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

fn enable_loopback() -> io::Result<()> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    // SAFETY: all zeros is a valid `ifreq`, which is plain data.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, source) in request.ifr_name.iter_mut().zip(b"lo\0") {
        *target = *source as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is an `ifreq` that names an interface and its flags, as this call expects, and outlives it.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes everything read-only but `writable`.
fn protect_files(writable: &[PathBuf]) -> io::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    for dir in writable {
        mount_bind_recursive(dir, dir)?;
    }
    let shared_memory = Path::new(SHARED_MEMORY).canonicalize();
    if let Ok(dir) = &shared_memory {
        mount_bind_recursive(dir, dir)?;
    }
    set_read_only(Path::new("/"), true)?;
    // Devices are not ordinary files, and terminals are needed.
    set_read_only(Path::new("/dev"), false)?;
    if let Ok(dir) = &shared_memory {
        // Shared memory holds ordinary files. Programs that need it get a new one, unless the rerun itself is in the existing
        // one.
        let is_inside = |opening: &PathBuf| opening.canonicalize().is_ok_and(|real| real.starts_with(dir));
        match writable.iter().any(is_inside) {
            true => set_read_only(dir, true)?,
            false => mount("tmpfs", dir, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, None)?,
        }
    }
    for dir in writable {
        set_read_only(dir, false)?;
    }
    Ok(())
}

fn set_read_only(dir: &Path, on: bool) -> io::Result<()> {
    let path = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes())?;
    let read_only = libc::MOUNT_ATTR_RDONLY;
    let attr = libc::mount_attr {
        attr_set: if on { read_only } else { 0 },
        attr_clr: if on { 0 } else { read_only },
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path ends in NUL, the attributes are as large as is said, and both outlive the call.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn write_line(channel: &mut UnixStream, value: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(value)?;
    line.push(b'\n');
    channel.write_all(&line)
}

/// Reads one line, byte by byte: sockets may follow it.
fn read_line<T: for<'de> Deserialize<'de>>(channel: &mut UnixStream) -> io::Result<T> {
    let mut line = Vec::new();
    let mut byte = [0];
    loop {
        if channel.read(&mut byte)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if byte == *b"\n" {
            return Ok(serde_json::from_slice(&line)?);
        }
        line.push(byte[0]);
    }
}

/// Sends a report together with sockets.
fn send_report(channel: &mut UnixStream, report: &SandboxReport, sockets: &[TcpListener]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED_SOCKETS))];
    let mut attached = SendAncillaryBuffer::new(&mut space);
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    if !sockets.is_empty() && !attached.push(SendAncillaryMessage::ScmRights(&sockets)) {
        return Err(io::Error::other("too many sockets"));
    }
    sendmsg(&*channel, &[IoSlice::new(b"\0")], &mut attached, SendFlags::empty())?;
    write_line(channel, report)
}

fn receive_report(channel: &mut UnixStream, max_sockets: usize) -> io::Result<(SandboxReport, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_PASSED_SOCKETS))];
    let mut attached = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let received =
        recvmsg(&*channel, &mut [IoSliceMut::new(&mut byte)], &mut attached, RecvFlags::CMSG_CLOEXEC)?;
    if received.bytes == 0 {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the sandboxed process has exited"));
    }
    let mut sockets = Vec::new();
    for message in attached.drain() {
        if let RecvAncillaryMessage::ScmRights(handed) = message {
            sockets.extend(handed.take(max_sockets));
        }
    }
    Ok((read_line(channel)?, sockets))
}
