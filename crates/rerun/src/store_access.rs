//! How a rerun reaches the store from inside the sandbox.
//!
//! A store in a directory is writable inside. The sandbox has no network, so any other store (a database, or one that a
//! server guards) is served on a Unix socket by the process outside. The agent's hooks connect to it without a token, so they
//! can add to the store and read it, and nothing else. Both sides use the same local directory, because the events that
//! hooks leave in the inbox of the scratch workspace are recorded by the process outside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stepback_engine::{Engine, EngineError, SystemEnv};
use stepback_model::env::Env;
use stepback_model::hex;
use stepback_remote::{
    AccessRole, ClientConfig, RemoteAddress, RemoteStore, ServiceConfig, StoreService, UnixStoreListener,
};
use tempfile::TempDir;

use crate::run::io_error;
use crate::{RerunError, RerunHost};

/// The variable that names the store of a stepback process.
pub const STORE_VARIABLE: &str = "STEPBACK_HOME";
/// The variable that names the local directory of a store that is not a directory itself.
pub const LOCAL_VARIABLE: &str = "STEPBACK_LOCAL";
/// The variable with the token for a guarded store, which nothing inside may have.
pub const TOKEN_VARIABLE: &str = "STEPBACK_TOKEN";

/// The store of a rerun, inside the sandbox and outside.
pub(crate) struct StoreAccess {
    /// Variables for the processes inside.
    variables: Vec<(&'static str, OsString)>,
    /// The directory of the store that is writable inside, besides the directory of the rerun.
    pub writable: Option<PathBuf>,
    /// The engine for the scratch workspace outside.
    pub engine: Engine,
    /// The socket, and the directory that holds it.
    _served: Option<(UnixStoreListener, TempDir)>,
}

impl StoreAccess {
    /// Makes the store of the host reachable for one rerun.
    pub fn open(host: &RerunHost<'_>, engine: &Engine) -> Result<Self, RerunError> {
        // The address of a store that is not a directory has a scheme.
        if host.store.is_absolute() {
            return Ok(Self {
                variables: vec![(STORE_VARIABLE, host.store.into())],
                writable: Some(host.store.to_path_buf()),
                engine: engine.clone(),
                _served: None,
            });
        }
        let failed = || io_error("serve the store to the sandboxed agent");
        // Below the directory of the rerun, the path could be too long for a socket.
        let dir = tempfile::Builder::new().prefix("stepback-rerun-").tempdir().map_err(failed())?;
        let local = host.dir.join("local");
        let token = new_token();
        let service = StoreService::new(ServiceConfig {
            store: engine.store.clone(),
            store_id: "rerun".to_owned(),
            tokens: vec![(token.clone(), AccessRole::Full)],
            update_index: None,
        })
        .map_err(failed())?;
        let listener = UnixStoreListener::start(&dir.path().join("store.sock"), service).map_err(failed())?;
        let address = format!("unix:{}", listener.path().display());
        let store = connect(&address, &local, token)?;
        Ok(Self {
            variables: vec![(STORE_VARIABLE, address.into()), (LOCAL_VARIABLE, local.into())],
            writable: None,
            engine: Engine { store: Arc::new(store), watcher: None, ..engine.clone() },
            _served: Some((listener, dir)),
        })
    }

    /// Sets the variables that lead a process inside to the store, and removes those that could lead it elsewhere.
    pub fn set_variables(&self, variables: &mut Vec<(OsString, OsString)>) {
        let own = [STORE_VARIABLE, LOCAL_VARIABLE, TOKEN_VARIABLE];
        variables.retain(|(name, _)| !own.iter().any(|own| name == own));
        variables.extend(self.variables.iter().map(|(name, value)| ((*name).into(), value.clone())));
    }
}

/// Connects the process outside to the socket that it serves, with all that it may do itself.
fn connect(address: &str, local: &Path, token: String) -> Result<RemoteStore, RerunError> {
    let address = RemoteAddress::parse(address).map_err(EngineError::from)?;
    let config = ClientConfig { token: Some(token), ..ClientConfig::new(address, local) };
    Ok(RemoteStore::connect(&config).map_err(EngineError::from)?)
}

/// A token that cannot be guessed.
fn new_token() -> String {
    let env = SystemEnv;
    hex::encode(&[env.fresh_id(), env.fresh_id()].concat())
}
