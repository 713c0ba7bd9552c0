//! A private mount and process namespace, in which everything runs.
//!
//! A harness that mounts file systems must not leave any behind, also when it is killed. So this program starts itself again
//! below `unshare`: the kernel ends all processes of the namespace together with its first one, then takes the mounts away, and
//! a loop device made by `mount -o loop` goes with its mount. `setpriv` ends `unshare` when the outer process dies.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::mount::MountFlags;

use crate::filesystem::find_program;

/// Set for the inner process.
const INSIDE: &str = "STEPBACK_POWERLOSS_INSIDE";

/// Where the inner process mounts a `tmpfs`, and everything else below it. Outside, nothing changes there.
const ROOT: &str = "/mnt";

/// Whether this is the inner process.
pub fn is_inside() -> bool {
    std::env::var_os(INSIDE).is_some()
}

/// Why the harness cannot run here; `None` if it can.
pub fn missing() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("not root: file systems cannot be mounted".to_owned());
    }
    for device in ["/dev/fuse", "/dev/loop-control"] {
        if let Err(error) = std::fs::File::options().read(true).write(true).open(device) {
            return Some(format!("cannot open {device}: {error}"));
        }
    }
    if !Path::new(ROOT).is_dir() {
        return Some(format!("there is no directory {ROOT} to mount on"));
    }
    let programs = ["unshare", "setpriv", "mount", "umount", "timeout", "git"];
    let program = programs.into_iter().find(|name| find_program(name).is_none());
    program.map(|name| format!("{name} is not installed"))
}

/// Starts this program again inside the namespace, with the same arguments, and returns its exit code.
pub fn run_inside(args: &[String]) -> Result<u8> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let status = Command::new("setpriv")
        .args([
            "--pdeathsig",
            "KILL",
            "unshare",
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(program)
        .args(args)
        .env(INSIDE, "1")
        .status()
        .context("cannot start setpriv")?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1))
}

/// Mounts the private directory of the inner process. A program that is below it could not be started any more.
pub fn make_private_root(program: &Path) -> Result<PathBuf> {
    if program.starts_with(ROOT) {
        bail!("{} is below {ROOT}, which is covered during the test", program.display());
    }
    rustix::mount::mount("stepback-powerloss", ROOT, "tmpfs", MountFlags::empty(), c"mode=0755")
        .with_context(|| format!("cannot mount a tmpfs on {ROOT}"))?;
    Ok(PathBuf::from(ROOT))
}
