//! A Unix socket on which a store is served.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use stepback_faults as faults;

use crate::access::AccessRole;
use crate::service::StoreService;

/// Who may connect: the owner and the group of the socket.
const SOCKET_MODE: u32 = 0o660;
/// Longest path of a socket, in bytes; a limit of the system.
const MAX_PATH_BYTES: usize = 107;
/// How long to wait after a connection could not be accepted, usually because too many files are open.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);

/// A socket that is being served. Dropping it stops that and removes the socket.
pub struct UnixStoreListener {
    path: PathBuf,
    state: Arc<ListenerState>,
    service: StoreService,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct ListenerState {
    is_stopping: AtomicBool,
    /// The open connections, to close them when the server stops.
    streams: Mutex<HashMap<u64, UnixStream>>,
}

impl ListenerState {
    fn lock_streams(&self) -> MutexGuard<'_, HashMap<u64, UnixStream>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UnixStoreListener {
    /// Serves `service` at `path`. Every client that may connect has the role `append`, unless it has a token. A socket that
    /// another server answers at is an error; one that is left from a server that ended is replaced.
    pub fn start(path: &Path, service: StoreService) -> io::Result<Self> {
        let listener = bind(path)?;
        let state = Arc::new(ListenerState::default());
        let (accepting, serving) = (state.clone(), service.clone());
        let thread = std::thread::Builder::new()
            .name("stepback-guard".into())
            .spawn(move || accept(&listener, &accepting, &serving))?;
        Ok(Self { path: path.to_path_buf(), state, service, thread: Some(thread) })
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for UnixStoreListener {
    fn drop(&mut self) {
        self.state.is_stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| woken) {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.path);
        // Running requests get a moment to finish; their answers are still sent.
        self.service.wait_until_idle();
        for (_, stream) in self.state.lock_streams().drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// Creates the socket under another name first, so that it has its permissions as soon as it can be found.
fn bind(path: &Path) -> io::Result<UnixListener> {
    let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(name);
    if new.as_os_str().len() > MAX_PATH_BYTES {
        return invalid(format!("the path {} is too long for a socket", path.display()));
    }
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return invalid(format!("{} exists and is not a socket", path.display()));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("another server answers at {}", path.display()),
            ));
        }
        _ => {}
    }
    let _ = fs::remove_file(&new);
    faults::point()?;
    let listener = UnixListener::bind(&new)?;
    let placed = fs::set_permissions(&new, fs::Permissions::from_mode(SOCKET_MODE))
        .and_then(|()| faults::point())
        .and_then(|()| fs::rename(&new, path));
    if let Err(error) = placed {
        let _ = fs::remove_file(&new);
        return Err(error);
    }
    Ok(listener)
}

fn accept(listener: &UnixListener, state: &Arc<ListenerState>, service: &StoreService) {
    for number in 0.. {
        let accepted = listener.accept();
        if state.is_stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            std::thread::sleep(ACCEPT_DELAY);
            continue;
        };
        if let Ok(clone) = stream.try_clone() {
            state.lock_streams().insert(number, clone);
        }
        let (ending, service) = (state.clone(), service.clone());
        let spawned = std::thread::Builder::new().name("stepback-store".into()).spawn(move || {
            let _end = ConnectionEnd { state: &ending, number };
            // How a connection ends is up to the client.
            let _ = service.serve_stream(stream, Some(AccessRole::Append));
        });
        if spawned.is_err() {
            state.lock_streams().remove(&number);
            std::thread::sleep(ACCEPT_DELAY);
        }
    }
}

/// Forgets a connection when its thread ends, also by a panic.
struct ConnectionEnd<'a> {
    state: &'a ListenerState,
    number: u64,
}

impl Drop for ConnectionEnd<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.state.lock_streams().remove(&self.number) {
            // The other handle of this connection would keep it open.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}
