//! Whether the store is guarded: held by a server that lets this user append and read only.

use std::time::Duration;

use stepback_remote::{AccessRole, ClientConfig, RemoteStore};

use crate::store_location::{StoreLocation, client_config};

/// How long to wait for the server.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What is known about the server of a guarded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuardStatus {
    /// The kind of address: `unix`, `https` or `http`.
    pub kind: &'static str,
    /// The address.
    pub address: String,
    /// What this user may do, if the server answers; an error says why it cannot be used.
    pub role: Result<AccessRole, String>,
}

impl GuardStatus {
    /// Whether this user cannot take anything away from the store.
    pub fn is_protected(&self) -> bool {
        self.role == Ok(AccessRole::Append)
    }
}

/// Asks the server of a guarded store; `None` if the store is not guarded.
pub fn check_guard(location: &StoreLocation) -> Option<GuardStatus> {
    let StoreLocation::Guarded { address, local, .. } = location else { return None };
    let config = ClientConfig { patience: Some(TIMEOUT), ..client_config(address, local) };
    let role = RemoteStore::connect(&config).map(|store| store.role()).map_err(|error| error.to_string());
    Some(GuardStatus { kind: address.kind(), address: address.to_string(), role })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_directory_is_not_guarded_and_a_missing_server_is_not_reachable() {
        assert_eq!(check_guard(&StoreLocation::Directory("/srv/store".into())), None);
        let dir = tempfile::tempdir().unwrap();
        let socket = format!("unix:{}", dir.path().join("none.sock").display());
        let location = StoreLocation::parse(Path::new(&socket)).unwrap();
        let status = check_guard(&location).unwrap();
        assert!(status.kind == "unix" && !status.is_protected());
        assert!(status.role.unwrap_err().contains("not running"));
    }
}
