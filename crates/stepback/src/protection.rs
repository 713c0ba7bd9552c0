//! How well a store is protected against programs that run as the user, such as the agents that it records.

use std::path::Path;
use std::time::Duration;

use stepback_mirror::settings::{MirrorSettings, list_mirrors};
use stepback_remote::{AccessRole, ClientConfig, RemoteAddress, RemoteStore};

use crate::store_location::{StoreLocation, client_config};

/// How long to wait for the server of a guarded store.
const GUARD_TIMEOUT: Duration = Duration::from_secs(2);

/// A level of protection of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtectionLevel {
    /// The store is a directory of the user, and every program of the user can change it.
    Local,
    /// The store is behind a server, and can only be changed through it.
    Guarded,
    /// What is recorded is also copied to places where it can only be added to.
    Mirrored,
}

impl ProtectionLevel {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Guarded => "guarded",
            Self::Mirrored => "mirrored",
        }
    }
}

/// What protects a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreProtection {
    /// The level; `None` for a database, whose own users and permissions decide.
    pub level: Option<ProtectionLevel>,
    /// A description for the user.
    pub text: String,
    /// Why the store is not protected as configured, and what to do.
    pub weakness: Option<ProtectionWeakness>,
}

/// Why a store is not protected as it is configured to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProtectionWeakness {
    /// Whether nothing can be recorded.
    pub is_problem: bool,
    /// What to do.
    pub hint: &'static str,
}

/// Returns what protects the store at `location`. Asks the server of a guarded store, and reads small files of a local one.
pub fn describe_protection(location: &StoreLocation) -> StoreProtection {
    let shown = location.display_text();
    match location {
        StoreLocation::Directory(dir) => match list_mirrors(dir, 0) {
            Ok(mirrors) if !mirrors.is_empty() => {
                let places: Vec<&str> = mirrors.iter().map(|mirror| mirror.address.as_str()).collect();
                StoreProtection {
                    level: Some(ProtectionLevel::Mirrored),
                    text: format!("mirrored: what is recorded is also copied to {}", places.join(", ")),
                    weakness: None,
                }
            }
            Err(error) if MirrorSettings::exist(dir) => StoreProtection {
                level: Some(ProtectionLevel::Local),
                text: format!("local: the settings of mirrors cannot be read: {error}"),
                weakness: Some(ProtectionWeakness {
                    is_problem: true,
                    hint: "remove the file, and add the mirrors again: stepback mirror add",
                }),
            },
            _ => StoreProtection {
                level: Some(ProtectionLevel::Local),
                text: "local: a program that runs as you can change the store; fsck notices it".to_owned(),
                weakness: None,
            },
        },
        StoreLocation::Server { .. } => StoreProtection {
            level: None,
            text: format!("on a server: {shown}; its users and their permissions decide who can change it"),
            weakness: None,
        },
        StoreLocation::Guarded { address, local, .. } => describe_guard(address, local),
    }
}

fn describe_guard(address: &RemoteAddress, local: &Path) -> StoreProtection {
    let config = ClientConfig { patience: Some(GUARD_TIMEOUT), ..client_config(address, local) };
    let weak = |is_problem, hint| Some(ProtectionWeakness { is_problem, hint });
    let (text, weakness) = match RemoteStore::connect(&config).map(|store| store.role()) {
        Ok(AccessRole::Append) => (
            format!("guarded by the server at {address}: this user can append to the store and read it"),
            None,
        ),
        Ok(AccessRole::Full) => (
            format!("behind the server at {address}, with a token that may do everything"),
            weak(
                false,
                "an agent that runs as you can use it too: unset STEPBACK_TOKEN and remove the token file",
            ),
        ),
        Err(why) => (
            format!("guarded, but the server cannot be used: {why}"),
            weak(true, "until it can, hooks keep what agents report in their inbox, without checkpoints"),
        ),
    };
    StoreProtection { level: Some(ProtectionLevel::Guarded), text, weakness }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_local_and_a_server_that_does_not_run_is_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        let local = describe_protection(&StoreLocation::Directory(dir.path().to_owned()));
        assert_eq!((local.level, local.weakness), (Some(ProtectionLevel::Local), None));
        let socket = format!("unix:{}", dir.path().join("none.sock").display());
        let guarded = describe_protection(&StoreLocation::parse(Path::new(&socket)).unwrap());
        assert_eq!(guarded.level, Some(ProtectionLevel::Guarded));
        assert!(guarded.weakness.is_some_and(|weakness| weakness.is_problem), "{}", guarded.text);
    }

    #[test]
    fn damaged_settings_of_mirrors_are_a_problem() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("mirrors.json"), "{").unwrap();
        let found = describe_protection(&StoreLocation::Directory(dir.path().to_owned()));
        assert!(found.weakness.is_some_and(|weakness| weakness.is_problem), "{}", found.text);
    }
}
