//! A store that is used by address.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::record::WorkspaceRecord;
use stepback_store::StoreError;
use stepback_store::tree_cache::Recent;

use crate::access::AccessRole;
use crate::address::RemoteAddress;
use crate::local_dir;
use crate::pool::{ConnectTarget, ConnectionPool, Repeat};
use crate::protocol::StoreRequest;

/// Which store to use, and how.
#[derive(Clone)]
pub struct ClientConfig {
    /// Where the store is.
    pub address: RemoteAddress,
    /// A directory on this machine, used for this store alone.
    pub local: PathBuf,
    /// The token, if the server wants one.
    pub token: Option<String>,
    /// The name of this machine, for a store that other machines use too; `None` uses the id that the system has given it.
    pub machine: Option<String>,
    /// How long to wait for the server, if less than usual.
    pub patience: Option<Duration>,
}

impl std::fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientConfig").field("address", &self.address).finish_non_exhaustive()
    }
}

impl ClientConfig {
    /// Creates one with only an address and a local directory.
    pub fn new(address: RemoteAddress, local: &Path) -> Self {
        Self { address, local: local.to_path_buf(), token: None, machine: None, patience: None }
    }
}

/// A store that another process holds.
pub struct RemoteStore {
    pub(crate) pool: Arc<ConnectionPool>,
    pub(crate) local: PathBuf,
    pub(crate) recent: Recent,
    pub(crate) patience: Option<Duration>,
    /// What the roots of this machine's workspaces begin with in a store that other machines use too.
    root_prefix: Option<Vec<u8>>,
    role: AccessRole,
}

impl std::fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteStore").field("at", &self.pool.shown()).finish_non_exhaustive()
    }
}

impl RemoteStore {
    /// Connects to the store.
    pub fn connect(config: &ClientConfig) -> Result<Self, StoreError> {
        let target = ConnectTarget { address: config.address.clone(), token: config.token.clone() };
        let (pool, welcome) = ConnectionPool::connect(target, config.patience)?;
        local_dir::prepare(&config.local, &welcome.store_id)?;
        let root_prefix = config.address.may_be_remote().then(|| {
            let machine = config.machine.clone().unwrap_or_else(machine_name);
            [WorkspaceRecord::REMOTE, machine.as_bytes(), b":"].concat()
        });
        Ok(Self {
            pool: Arc::new(pool),
            local: config.local.clone(),
            recent: Recent::default(),
            patience: config.patience,
            root_prefix,
            role: welcome.role,
        })
    }

    /// What this connection may do.
    pub fn role(&self) -> AccessRole {
        self.role
    }

    /// Sends a request that may be sent again if the connection is lost.
    pub(crate) fn ask<T: DeserializeOwned>(&self, request: &StoreRequest<'_>) -> Result<T, StoreError> {
        Ok(self.pool.call(request, &[], Repeat::Allowed)?.0)
    }

    /// Sends a request with a body.
    pub(crate) fn ask_with<T: DeserializeOwned>(
        &self,
        request: &StoreRequest<'_>,
        body: &[u8],
    ) -> Result<T, StoreError> {
        Ok(self.pool.call(request, body, Repeat::Allowed)?.0)
    }

    /// Sends a request that takes effect each time it is received.
    pub(crate) fn ask_once<T: DeserializeOwned>(
        &self,
        request: &StoreRequest<'_>,
        body: &[u8],
    ) -> Result<T, StoreError> {
        Ok(self.pool.call(request, body, Repeat::Refused)?.0)
    }

    /// A root as the store has it.
    pub(crate) fn root_in_store(&self, root: &[u8]) -> Vec<u8> {
        match &self.root_prefix {
            Some(prefix) if !root.starts_with(WorkspaceRecord::REMOTE) => [prefix, root].concat(),
            _ => root.to_vec(),
        }
    }

    /// A workspace as this machine has it.
    pub(crate) fn workspace_here(&self, mut record: WorkspaceRecord) -> WorkspaceRecord {
        if let Some(own) = self.root_prefix.as_ref().and_then(|prefix| record.root.strip_prefix(&prefix[..]))
        {
            record.root = own.to_vec();
        }
        record
    }
}

/// The default name of this machine.
fn machine_name() -> String {
    let known = ["/etc/machine-id", "/proc/sys/kernel/hostname"].into_iter().find_map(|path| {
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    });
    let digest = Hash::of(ObjectKind::Blob, known.unwrap_or_default().as_bytes()).to_string();
    digest[..16].to_owned()
}
