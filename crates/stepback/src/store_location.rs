//! The location of the store: a directory, a database that other machines can use too, or a server that guards the store.

use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stepback_postgres::{Access, PostgresStore};
use stepback_remote::{ClientConfig, RemoteAddress, RemoteStore};
use stepback_rerun::store_access::LOCAL_VARIABLE;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::{Store, StoreError};

use crate::context::{self, CreateStore};
use crate::disk_budget::BudgetObserver;
use crate::failure::{CommandFailure, FailureKind};
use crate::mirroring;

/// The name of the directory, in the user's data directory, for what must stay on this machine although the store is a
/// database.
const POSTGRES_DIR: &str = "postgres";

/// The name of the directory, in the user's data directory, for what must stay on this machine although another process holds
/// the store.
const GUARDED_DIR: &str = "guarded";

/// The file with the token for a guarded store, in its local directory.
pub const TOKEN_FILE: &str = "token";

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// A directory on this machine.
    Directory(PathBuf),
    /// A PostgreSQL database.
    Server {
        /// The address, as the user wrote it.
        url: String,
        /// The directory for caches, locks, settings and an agent's inbox.
        local: PathBuf,
    },
    /// A store that a server holds, as another user or on another machine.
    Guarded {
        /// How to reach the server.
        address: RemoteAddress,
        /// The address, as the user wrote it. It never contains a token.
        url: String,
        /// The directory for caches, locks, settings, an agent's inbox and the token.
        local: PathBuf,
    },
}

impl StoreLocation {
    /// Returns the store that the user named, or the default one.
    pub fn find(named: Option<&Path>) -> Result<Self, CommandFailure> {
        match named {
            Some(named) => Self::parse(named),
            None => Self::parse(&context::default_store()?),
        }
    }

    /// Interprets `named`: the address of a server or a database, else a directory.
    pub fn parse(named: &Path) -> Result<Self, CommandFailure> {
        if let Some(url) = named.to_str().filter(|text| stepback_remote::is_address(text)) {
            let address = RemoteAddress::parse(url).map_err(|error| match error {
                StoreError::Server { what, why, remedy } => {
                    CommandFailure::new(FailureKind::Usage, format!("{what}: {why}")).with_hint(remedy)
                }
                other => other.into(),
            })?;
            let local = match context::path_variable(LOCAL_VARIABLE) {
                Some(local) => local,
                None => context::data_directory()?.join(GUARDED_DIR).join(address.local_name()),
            };
            return Ok(Self::Guarded { address, url: url.to_owned(), local: std::path::absolute(local)? });
        }
        match named.to_str().filter(|text| stepback_postgres::is_address(text)) {
            Some(url) => {
                let local =
                    context::data_directory()?.join(POSTGRES_DIR).join(stepback_postgres::local_name(url));
                Ok(Self::Server { url: url.to_string(), local: std::path::absolute(local)? })
            }
            None => {
                refuse_unknown_scheme(named)?;
                Ok(Self::Directory(std::path::absolute(named)?))
            }
        }
    }

    /// Returns the directory for what must be on this machine.
    pub fn local_dir(&self) -> &Path {
        match self {
            Self::Directory(dir) => dir,
            Self::Server { local, .. } | Self::Guarded { local, .. } => local,
        }
    }

    /// Returns the location for display, never with a password.
    pub fn display_text(&self) -> String {
        match self {
            Self::Directory(dir) => dir.display().to_string(),
            Self::Server { url, .. } => stepback_postgres::display_url(url),
            Self::Guarded { address, .. } => address.to_string(),
        }
    }

    /// Returns what another stepback process must be given as `--store` or `STEPBACK_HOME`.
    pub fn argument(&self) -> String {
        match self {
            Self::Directory(dir) => dir.display().to_string(),
            Self::Server { url, .. } | Self::Guarded { url, .. } => url.clone(),
        }
    }

    /// Opens the store, for the life of the process.
    pub fn open(&self, create: CreateStore) -> Result<Arc<dyn Store>, StoreError> {
        let store: Arc<dyn Store> = match (self, create) {
            (Self::Directory(dir), CreateStore::Yes) => {
                let store = EmbeddedStore::open(dir)?;
                // The directory holds secrets; the user or another process may have relaxed its permissions.
                store.tighten_permissions()?;
                Arc::new(observe_commits(store, dir))
            }
            (Self::Directory(dir), CreateStore::No) => {
                Arc::new(observe_commits(EmbeddedStore::open_existing(dir)?, dir))
            }
            (Self::Server { url, local }, CreateStore::Yes) => {
                Arc::new(PostgresStore::connect(&database_access(url, local))?)
            }
            (Self::Server { url, local }, CreateStore::No) => {
                Arc::new(PostgresStore::connect_existing(&database_access(url, local))?)
            }
            // The server has created it.
            (Self::Guarded { address, local, .. }, _) => {
                Arc::new(RemoteStore::connect(&client_config(address, local))?)
            }
        };
        Ok(keep_open(store))
    }

    /// Opens the store, creating it if needed, for a caller that waits for other processes at most for `patience`.
    pub fn open_with_timeout(&self, patience: Duration) -> Result<Arc<dyn Store>, StoreError> {
        let store: Arc<dyn Store> = match self {
            Self::Directory(dir) => {
                Arc::new(observe_commits(EmbeddedStore::open_impatiently(dir, patience)?, dir))
            }
            Self::Server { url, local } => {
                let access = Access { patience: Some(patience), ..database_access(url, local) };
                Arc::new(PostgresStore::connect(&access)?)
            }
            Self::Guarded { address, local, .. } => {
                let config = client_config(address, local);
                // A hook appends, for which no token is needed on this machine. One that is meant for another server must not
                // keep it from recording.
                let token = config.token.clone().filter(|_| address.may_be_remote());
                Arc::new(RemoteStore::connect(&ClientConfig { token, patience: Some(patience), ..config })?)
            }
        };
        Ok(keep_open(store))
    }
}

/// Returns the store with what follows each of its commits: its mirrors are synced, and it is kept within its budget.
fn observe_commits(store: EmbeddedStore, dir: &Path) -> EmbeddedStore {
    let (mirrors, budget) = (mirroring::commit_launcher(dir), BudgetObserver::new(dir));
    store.with_commit_observer(Box::new(move || {
        if let Some(mirrors) = &mirrors {
            mirrors.wake();
        }
        if let Some(budget) = &budget {
            budget.committed();
        }
    }))
}

/// Keeps the store open until the process ends. Closing a database properly takes as long as the scan of a small
/// checkpoint; what is committed is already durable, and locks end with the process.
fn keep_open(store: Arc<dyn Store>) -> Arc<dyn Store> {
    std::mem::forget(store.clone());
    store
}

/// Refuses an address with an unsupported scheme: a directory of that name is never meant. Only the scheme is shown,
/// since the rest may contain a password.
fn refuse_unknown_scheme(named: &Path) -> Result<(), CommandFailure> {
    let text = named.to_string_lossy();
    let Some((scheme, _)) = text.split_once(':') else { return Ok(()) };
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    if !is_scheme {
        return Ok(());
    }
    Err(CommandFailure::new(FailureKind::Usage, format!("unknown kind of store \"{scheme}:\"")).with_hint(format!(
        "a store is a directory, a database at postgres://…, or a server at unix:/… or https://…; for a directory with that name use ./{scheme}:…"
    )))
}

/// Returns how to connect to a guarded store: with the token in STEPBACK_TOKEN, else in the file in its local directory.
pub fn client_config(address: &RemoteAddress, local: &Path) -> ClientConfig {
    let text = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let file = || std::fs::read_to_string(local.join(TOKEN_FILE)).ok().and_then(text);
    let token = std::env::var("STEPBACK_TOKEN").ok().and_then(text).or_else(file);
    let machine = std::env::var("STEPBACK_MACHINE").ok().filter(|name| !name.is_empty());
    ClientConfig { token, machine, ..ClientConfig::new(address.clone(), local) }
}

/// Returns how to connect to a database: with the password that PostgreSQL's own programs would use, and the name of this
/// machine.
fn database_access(url: &str, local: &Path) -> Access {
    let file = || {
        let named = context::path_variable("PGPASSFILE");
        let path = named.or_else(|| Some(context::home_dir()?.join(".pgpass")))?;
        stepback_postgres::password_in(&std::fs::read_to_string(path).ok()?, url)
    };
    let password = std::env::var_os("PGPASSWORD").map(OsStringExt::into_vec).or_else(file);
    let machine = std::env::var("STEPBACK_MACHINE").ok().filter(|name| !name.is_empty());
    Access { password, machine, ..Access::new(url, local) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_an_unknown_kind_is_no_directory() {
        for wrong in [
            "s3://bucket/x",
            "memory:",
            "postgre://db/x",
            "POSTGRES://db",
            "sqlite:x.db",
            "C:\\store",
            "file:///x",
        ] {
            let failure = StoreLocation::parse(Path::new(wrong)).unwrap_err();
            let hint = failure.hint_text().unwrap_or_default();
            assert!(failure.message().contains("kind of store") && hint.contains("postgres://"), "{wrong}");
        }
        let secret = StoreLocation::parse(Path::new("mysql://ann:secret@db/x")).unwrap_err();
        assert!(!format!("{secret:?}").contains("secret@"), "{secret:?}");
        for directory in ["./s3:x", "/srv/a:b", "store", "dir/memory:", "a b:c"] {
            assert!(
                matches!(StoreLocation::parse(Path::new(directory)), Ok(StoreLocation::Directory(_))),
                "{directory}"
            );
        }
        for guarded in ["unix:/run/stepback/store.sock", "https://guard.example:7171"] {
            let location = StoreLocation::parse(Path::new(guarded)).unwrap();
            assert!(matches!(location, StoreLocation::Guarded { .. }));
            assert_eq!((location.argument(), location.display_text()), (guarded.into(), guarded.into()));
        }
        for wrong in ["unix:store.sock", "http://guard.example", "https://a/b"] {
            let failure = StoreLocation::parse(Path::new(wrong)).unwrap_err();
            assert!(failure.kind() == FailureKind::Usage && failure.hint_text().is_some(), "{wrong}");
        }
        assert!(matches!(
            StoreLocation::parse(Path::new("postgres://db/x")),
            Ok(StoreLocation::Server { .. })
        ));
    }
}
