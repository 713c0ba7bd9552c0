//! The command `stepback guard setup`: another user of this machine holds the store.
//!
//! What it does is a script and a unit file, which it prints before it runs them, so that an administrator can read, change
//! and repeat every line.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::agents::current_exe_path;
use super::{CommandResult, DONE};
use crate::args::store::GuardSetupArgs;
use crate::failure::{CommandFailure, FailureKind};
use crate::output;

/// The directory of the guarded store, and that of its socket.
const STORE_DIR: &str = "/var/lib/stepback";
/// The name of the service.
const SERVICE: &str = "stepback-guard";
/// The address of the HTTP listener of the service; not the default one, which a user's own server may have.
const LISTEN: &str = "127.0.0.1:7172";
/// Exists where systemd manages the system.
const SYSTEMD_DIR: &str = "/run/systemd/system";

/// What is set up, and how.
struct GuardSetup<'a> {
    user: &'a str,
    group: &'a str,
    program: &'a Path,
    has_systemd: bool,
}

impl GuardSetup<'_> {
    /// The commands, for a shell.
    fn script(&self) -> String {
        let Self { user, group, .. } = self;
        let mut lines = vec![
            "set -eu".to_owned(),
            format!("getent group {group} > /dev/null || groupadd --system {group}"),
            format!(
                "id -u {user} > /dev/null 2>&1 || useradd --system --gid {group} --home-dir {STORE_DIR} --no-create-home --shell /usr/sbin/nologin {user}"
            ),
            format!("install -d -m 0700 -o {user} -g {group} {STORE_DIR}"),
        ];
        match self.has_systemd {
            true => lines.extend([
                format!("cat > /etc/systemd/system/{SERVICE}.service <<'UNIT'\n{}UNIT", self.unit()),
                "systemctl daemon-reload".to_owned(),
                format!("systemctl enable {SERVICE}.service"),
                format!("systemctl restart {SERVICE}.service"),
            ]),
            false => lines.push(format!("install -d -m 0750 -o {user} -g {group} /run/stepback")),
        }
        lines.join("\n") + "\n"
    }

    /// The service, for systemd. It can write to its own store and its own socket's directory, and nowhere else.
    fn unit(&self) -> String {
        format!(
            "[Unit]
Description=stepback: guards the store of recorded agents
After=network.target

[Service]
User={user}
Group={group}
ExecStart={program} serve --guard --no-watcher --store {STORE_DIR} --listen {LISTEN}
Environment=HOME={STORE_DIR}
StateDirectory=stepback
StateDirectoryMode=0700
RuntimeDirectory=stepback
RuntimeDirectoryMode=0750
UMask=0077
Restart=on-failure
RestartSec=1
NoNewPrivileges=yes
CapabilityBoundingSet=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
SystemCallArchitectures=native

[Install]
WantedBy=multi-user.target
",
            user = self.user,
            group = self.group,
            program = self.program.display(),
        )
    }

    /// The command that starts the server where no service manager does.
    fn start_command(&self) -> String {
        format!(
            "su -s /bin/sh -c '{} serve --guard --no-watcher --store {STORE_DIR} --listen {LISTEN}' {}",
            self.program.display(),
            self.user
        )
    }

    /// What is left to do.
    fn next_steps(&self) -> Vec<String> {
        let mut steps = Vec::new();
        if !self.has_systemd {
            steps.push(format!(
                "systemd does not manage this system; start the server yourself: {}",
                self.start_command()
            ));
        }
        steps.push(format!("let a user record (then log in again): sudo usermod -aG {} NAME", self.group));
        steps.push(
            "use it where you and your agents work: export STEPBACK_HOME=unix:/run/stepback/store.sock; stepback init".to_owned(),
        );
        steps
    }
}

/// Runs `stepback guard setup`.
pub fn setup(wanted: &GuardSetupArgs, json: bool) -> CommandResult {
    let program = current_exe_path()?;
    let has_systemd = Path::new(SYSTEMD_DIR).is_dir();
    let setup = GuardSetup { user: &wanted.user, group: &wanted.group, program: &program, has_systemd };
    let script = setup.script();
    if json {
        output::print_document(&json!({
            "script": script,
            "unit": has_systemd.then(|| setup.unit()),
            "next": setup.next_steps(),
            "done": !wanted.print,
        }));
    } else {
        output::print_line(script.trim_end());
    }
    if wanted.print {
        if !has_systemd && !json {
            print_next(&setup);
        }
        return DONE;
    }
    refuse_unsuitable(&program)?;
    run_script(&script)?;
    if !json {
        print_next(&setup);
    }
    DONE
}

fn print_next(setup: &GuardSetup<'_>) {
    output::print_status("Next:");
    for step in setup.next_steps() {
        output::print_status(format!("  {step}"));
    }
}

/// Fails before anything is changed if it cannot work, or would protect nothing.
fn refuse_unsuitable(program: &Path) -> Result<(), CommandFailure> {
    if !rustix::process::geteuid().is_root() {
        return Err(CommandFailure::new(
            FailureKind::System,
            "only root can set up a system user and a service",
        )
        .with_hint("run it with sudo; --print shows what it would do"));
    }
    // The service would run whatever its program is replaced with, and cannot see home directories.
    let is_private = ["/home", "/root", "/tmp", "/var/tmp"].iter().any(|dir| program.starts_with(dir));
    if is_private {
        return Err(CommandFailure::new(
            FailureKind::System,
            format!("the service cannot run {}: other users must not be able to change it", program.display()),
        )
        .with_hint(format!(
            "install it first: sudo install -m 0755 {} /usr/local/bin/stepback; then run \"sudo /usr/local/bin/stepback guard setup\"",
            program.display()
        )));
    }
    Ok(())
}

fn run_script(script: &str) -> Result<(), CommandFailure> {
    let mut shell = Command::new("sh").arg("-s").stdin(Stdio::piped()).spawn()?;
    if let Some(mut input) = shell.stdin.take() {
        input.write_all(script.as_bytes())?;
    }
    let status = shell.wait()?;
    match status.success() {
        true => Ok(()),
        false => Err(CommandFailure::new(FailureKind::System, "a command of the setup failed; see above")
            .with_hint("fix the cause and run it again: what is done already stays as it is")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setup_is_a_script_with_a_unit_that_can_write_only_to_its_store() {
        let program = Path::new("/usr/local/bin/stepback");
        let setup = GuardSetup { user: "stepback", group: "devs", program, has_systemd: true };
        let (script, unit) = (setup.script(), setup.unit());
        assert!(script.starts_with("set -eu\n") && script.contains(&unit));
        for line in [
            "User=stepback",
            "Group=devs",
            "ProtectSystem=strict",
            "StateDirectoryMode=0700",
            "RuntimeDirectory=stepback",
            "ExecStart=/usr/local/bin/stepback serve --guard --no-watcher --store /var/lib/stepback --listen 127.0.0.1:7172",
        ] {
            assert!(unit.lines().any(|known| known == line), "{line}");
        }
        let by_hand = GuardSetup { has_systemd: false, ..setup };
        assert!(!by_hand.script().contains("systemctl"));
        assert!(
            by_hand.next_steps()[0].contains("systemd") && by_hand.next_steps()[0].contains("serve --guard")
        );
    }
}
