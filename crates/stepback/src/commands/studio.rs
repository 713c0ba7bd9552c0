//! The command `stepback studio`: opens a browser at the Studio, already signed in.
//!
//! It uses the server that runs for this store, and starts one if there is none. A running server is found by a file that
//! it writes beside its token. The token is sent only to that server, or to the address that the user gives.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use stepback_engine::control::is_process_running;
use stepback_store::new_file::{Durability, replace_file};

use super::{CommandResult, DONE, serve};
use crate::args::proxy::{ServeArgs, StudioArgs};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// The name of that file, in the store's directory on this machine.
const SERVER_FILE: &str = "server.json";
/// How long a server may take to answer.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest answer that is read, in bytes.
const MAX_RESPONSE_BYTES: u64 = 64 << 10;

/// The file that says where a server of this store listens. Removed when dropped.
#[derive(Debug)]
pub(super) struct ServerFile(Option<PathBuf>);

impl ServerFile {
    /// Writes the file. If that fails, `studio` cannot find the server, which otherwise works normally.
    pub(super) fn create(dir: &Path, url: &str) -> Self {
        let path = dir.join(SERVER_FILE);
        let text = json!({ "url": url, "pid": std::process::id() }).to_string();
        let written = replace_file(&path, text.as_bytes(), 0o600, Durability::Unsynced);
        Self(written.is_ok().then_some(path))
    }

    /// Returns the address of a running server.
    fn find(dir: &Path) -> Option<String> {
        let said: Value = serde_json::from_slice(&fs::read(dir.join(SERVER_FILE)).ok()?).ok()?;
        let is_running = is_process_running(u32::try_from(said["pid"].as_u64()?).ok()?);
        said["url"].as_str().filter(|_| is_running).map(str::to_owned)
    }
}

impl Drop for ServerFile {
    fn drop(&mut self) {
        let Some(path) = &self.0 else { return };
        let said: Option<Value> = fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
        // Another server of this store may have overwritten the file since.
        if said.is_some_and(|said| said["pid"] == std::process::id()) {
            let _ = fs::remove_file(path);
        }
    }
}

/// Runs `stepback studio`.
pub fn studio(context: &Context, arguments: &StudioArgs) -> CommandResult {
    let dir = context.store_location().local_dir();
    if let Some(url) = &arguments.server {
        return open_running(context, arguments, url, &request_sign_in_url(dir, url)?);
    }
    if let Some(url) = ServerFile::find(dir)
        && let Ok(address) = request_sign_in_url(dir, &url)
    {
        return open_running(context, arguments, &url, &address);
    }
    let ended = serve::register_stop_flag()?;
    let listening = serve::listen(context, &ServeArgs::listening_on(choose_address(&arguments.listen)))?;
    let (url, address) = (listening.server.url(), listening.server.sign_in_url()?);
    show_link(context, arguments, &url, &address, true)?;
    output::print_unless_json(context.json, "Press Ctrl-C to stop.");
    serve::run_until_stopped(listening, &ended);
    DONE
}

/// Opens the browser at a server that was already running; the server is left unchanged.
fn open_running(context: &Context, arguments: &StudioArgs, url: &str, address: &str) -> CommandResult {
    show_link(context, arguments, url, address, false)?;
    DONE
}

fn show_link(
    context: &Context,
    arguments: &StudioArgs,
    url: &str,
    address: &str,
    started: bool,
) -> Result<(), CommandFailure> {
    if context.json {
        output::print_document(&json!({ "url": url, "sign_in_url": address, "started": started }));
        let _ = io::stdout().flush();
    } else {
        output::print_line(format!("Studio at {}", Paint::stdout().strong(url)));
        output::print_line(format!("One-time link: {address}"));
    }
    if !arguments.no_open && !context.json && !open_browser(address) {
        output::print_status("Could not start a browser; open the link yourself.");
    }
    Ok(())
}

/// Returns the requested address, or one with a free port if another process uses that port.
fn choose_address(wanted: &str) -> String {
    match wanted.parse::<SocketAddr>() {
        Ok(address) if TcpListener::bind(address).is_err() => SocketAddr::new(address.ip(), 0).to_string(),
        _ => wanted.to_owned(),
    }
}

/// Returns an address that signs a browser in to the server at `url`, once.
fn request_sign_in_url(dir: &Path, url: &str) -> Result<String, CommandFailure> {
    let refused = |why: String| {
        CommandFailure::new(FailureKind::System, format!("cannot reach the server at {url}: {why}"))
            .with_hint("is it running, and for this store? Without --server, \"stepback studio\" starts one")
    };
    let token = fs::read_to_string(dir.join("server.token"))
        .map_err(|error| refused(format!("its token is missing ({error})")))?;
    let base = url.trim_end_matches('/');
    let host = base.strip_prefix("http://").ok_or_else(|| {
        refused("only http:// addresses are supported; open it in a browser that is signed in".into())
    })?;
    let (status, body) =
        post(host, "/sign-in/codes", token.trim()).map_err(|error| refused(error.to_string()))?;
    let said: Value = serde_json::from_slice(&body).unwrap_or_default();
    match (status, said["path"].as_str()) {
        (200, Some(path)) => Ok(format!("{base}{path}")),
        _ => Err(refused(
            said["detail"]
                .as_str()
                .map_or_else(|| format!("it responded with status {status}"), str::to_owned),
        )),
    }
}

/// Sends a POST request without a body; returns the status and the answer's body.
fn post(host: &str, path: &str, token: &str) -> io::Result<(u16, Vec<u8>)> {
    let address = host.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let mut stream = TcpStream::connect_timeout(&address, RESPONSE_TIMEOUT)?;
    stream.set_read_timeout(Some(RESPONSE_TIMEOUT))?;
    stream.set_write_timeout(Some(RESPONSE_TIMEOUT))?;
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer)?;
    let head = answer.windows(4).position(|window| window == b"\r\n\r\n");
    let (head, body) = match head {
        Some(at) => answer.split_at(at + 4),
        None => return Err(io::ErrorKind::InvalidData.into()),
    };
    let status = std::str::from_utf8(head).ok().and_then(|head| head.split(' ').nth(1)?.parse().ok());
    Ok((status.ok_or(io::ErrorKind::InvalidData)?, body.to_vec()))
}

/// Starts the user's browser; returns whether that worked.
fn open_browser(address: &str) -> bool {
    let own = std::env::var_os("BROWSER").filter(|browser| !browser.is_empty());
    let usual = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
    let mut command = Command::new(own.unwrap_or_else(|| usual.into()));
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_found_while_it_is_there() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(ServerFile::find(dir.path()), None);
        let notice = ServerFile::create(dir.path(), "http://127.0.0.1:1");
        assert_eq!(ServerFile::find(dir.path()).as_deref(), Some("http://127.0.0.1:1"));
        drop(notice);
        assert_eq!(ServerFile::find(dir.path()), None);
        // A server that was killed leaves its file behind.
        fs::write(dir.path().join(SERVER_FILE), r#"{"url": "http://127.0.0.1:1", "pid": 2147483646}"#)
            .unwrap();
        assert_eq!(ServerFile::find(dir.path()), None);
    }

    #[test]
    fn a_port_that_is_taken_is_not_waited_for() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = taken.local_addr().unwrap().to_string();
        assert_eq!(choose_address(&wanted), "127.0.0.1:0");
        drop(taken);
        assert_eq!(choose_address(&wanted), wanted);
        assert_eq!(choose_address("nonsense"), "nonsense");
    }
}
