//! The embedded store: a directory with one SQLite database for the log and pack files for the objects.
//!
//! Many processes share it. Writers append to different packs (each pack is locked by one), make them durable, and then
//! commit in one short `BEGIN IMMEDIATE` transaction that adds the new objects to the database. So a reader never sees an
//! object that could vanish in a crash, and writers wait only for each other's commits, not for each other's bytes.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use stepback_faults as faults;

use self::schema::IfLost;
use crate::error::StoreError;
use crate::pack;
use crate::port::LostCommit;
use crate::tree_cache;

mod apply;
mod batch;
mod chain_reader;
mod commit_record;
mod damage;
mod error;
mod find;
mod follow;
mod index;
mod log;
mod lost_history;
mod objects;
mod open_files;
mod plans;
mod ranked_hits;
mod readers;
mod schema;
mod size;

pub use self::size::bytes_below;
mod step_chain;
mod store;
mod sweep;

pub use self::commit_record::ChainLink;
pub use self::follow::{CommitsAfter, FollowedCommit, LinkFailure};

/// The store format that this program reads and writes. Raise it when bytes on disk gain a new meaning.
pub const FORMAT: u32 = 5;

/// How long to wait for another process that is committing.
const PATIENCE: Duration = Duration::from_secs(15);

/// The size of a connection's statement cache: room for all statements there are.
const STATEMENT_CACHE_SIZE: usize = 64;

/// SQLite before this version can corrupt a WAL that several processes write.
const OLDEST_SQLITE: i32 = 3_051_003;

/// A store in a directory.
pub struct EmbeddedStore {
    dir: PathBuf,
    packs: PathBuf,
    /// How the database is opened.
    access: DatabaseAccess,
    /// The connection that commits.
    connection: Mutex<Connection>,
    /// Idle connections for reading.
    readers: Mutex<Vec<Connection>>,
    open_packs: Mutex<HashMap<u64, Arc<File>>>,
    open_lenders: Mutex<HashMap<crate::git_pack::Oid, Arc<crate::git_pack::GitPack>>>,
    recent: tree_cache::Recent,
    /// The number of commits by this process.
    commits: AtomicU64,
    /// Whether this process has seen that the store contains objects.
    has_objects: AtomicBool,
    /// Whether this process has compared the packs' lengths with the database.
    knows_packs: AtomicBool,
    /// The search index; opened on first use.
    index: Mutex<Option<index::Index>>,
    /// A second connection to it, for a search while the first is in use.
    searching: Mutex<Option<index::Index>>,
    /// The files that are open, to notice when they are deleted or replaced.
    files: open_files::OpenFiles,
    /// The end of the commit record, as this process saw it last.
    record_tail: Mutex<Option<commit_record::RecordTail>>,
    /// How long to wait for other processes; `None` for the default.
    patience: Option<Duration>,
    /// Called after every commit of this process.
    after_commit: Option<CommitObserver>,
}

/// Called after each acknowledged commit of this process.
pub type CommitObserver = Box<dyn Fn() + Send + Sync>;

impl std::fmt::Debug for EmbeddedStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedStore").field("dir", &self.dir).finish_non_exhaustive()
    }
}

impl EmbeddedStore {
    /// Opens the store in `dir`, creating it if there is none.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::open_or_make(dir, None)
    }

    /// Like [`Self::open`], but waits for other processes at most for `patience`.
    pub fn open_impatiently(dir: &Path, patience: Duration) -> Result<Self, StoreError> {
        Self::open_or_make(dir, Some(patience))
    }

    fn open_or_make(dir: &Path, patience: Option<Duration>) -> Result<Self, StoreError> {
        if !dir.join(schema::DATABASE).exists() {
            make_private_dir(dir)?;
            make_private_dir(&dir.join(schema::PACKS))?;
            pack::sync_dir(dir)?;
            if let Some(parent) = dir.parent() {
                // Best effort: the parent directory may not be readable for us.
                let _ = pack::sync_dir(parent);
            }
        }
        Self::open_at(dir, patience, IfLost::Refuse)
    }

    /// Opens the store in `dir`; fails with [`StoreError::Absent`] if there is none.
    pub fn open_existing(dir: &Path) -> Result<Self, StoreError> {
        if !dir.join(schema::DATABASE).try_exists().map_err(StoreError::io("look into", dir))? {
            schema::refuse_missing_database(dir)?;
            return Err(StoreError::Absent { path: dir.to_path_buf() });
        }
        Self::open_at(dir, None, IfLost::Refuse)
    }

    /// Opens the store in `dir` to repair it: if its database is lost, and its record of commits reaches back to the first
    /// one, an empty database is created for them.
    pub fn open_to_repair(dir: &Path) -> Result<Self, StoreError> {
        match Self::open_existing(dir) {
            Err(StoreError::Corrupt { .. }) if Self::rebuildable_commits(dir).is_some() => {
                Self::open_at(dir, None, IfLost::Rebuild)
            }
            opened => opened,
        }
    }

    /// The commits of a store whose database is lost, if its record of commits has all of them.
    pub fn rebuildable_commits(dir: &Path) -> Option<Vec<LostCommit>> {
        lost_history::all_commits(dir)
    }

    fn open_at(dir: &Path, patience: Option<Duration>, if_lost: IfLost) -> Result<Self, StoreError> {
        if rusqlite::version_number() < OLDEST_SQLITE {
            return Err(StoreError::NotAStore {
                path: dir.to_path_buf(),
                reason: format!(
                    "SQLite {} is linked, which is unsafe for several writers",
                    rusqlite::version()
                ),
            });
        }
        let path = dir.join(schema::DATABASE);
        if if_lost == IfLost::Refuse {
            schema::refuse_missing_database(dir)?;
        }
        // If the log is not empty, the process that wrote it had made its name durable.
        let log_is_named = fs::metadata(dir.join(schema::LOG)).is_ok_and(|metadata| metadata.len() > 0);
        faults::point().map_err(StoreError::io("open", &path))?;
        let access = DatabaseAccess::find(dir);
        let connection = connect(&path, access, patience)?;
        // SQLite creates it readable for all users; -wal and -shm, created later, inherit the permissions set here. By
        // name: opening and closing the file ourselves would drop the locks of other connections in this process.
        make_private(&path, 0o600)?;
        schema::prepare(&connection, dir, if_lost)?;
        if !log_is_named && access == DatabaseAccess::ReadWrite {
            // Reading has created the log. SQLite is built not to sync its name, which it would do in every process.
            pack::sync_dir(dir)?;
        }
        Ok(Self {
            dir: dir.to_path_buf(),
            packs: dir.join(schema::PACKS),
            access,
            connection: Mutex::new(connection),
            readers: Mutex::default(),
            open_packs: Mutex::new(HashMap::new()),
            open_lenders: Mutex::new(HashMap::new()),
            recent: tree_cache::Recent::default(),
            commits: AtomicU64::new(0),
            has_objects: AtomicBool::new(false),
            knows_packs: AtomicBool::new(false),
            index: Mutex::new(None),
            searching: Mutex::new(None),
            files: open_files::OpenFiles::find(dir),
            record_tail: Mutex::new(None),
            patience,
            after_commit: None,
        })
    }

    /// Calls `observer` after each commit of this process that is acknowledged. The caller of the commit waits for it.
    pub fn with_commit_observer(self, observer: CommitObserver) -> Self {
        Self { after_commit: Some(observer), ..self }
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        // A panic while holding the connection leaves at most an open transaction, which the next BEGIN reports.
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restores the permissions of the store's directory: access for the owner only.
    pub fn tighten_permissions(&self) -> Result<(), StoreError> {
        make_private(&self.dir, 0o700)
    }
}

/// How the database of a store is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DatabaseAccess {
    /// For reading and writing.
    ReadWrite,
    /// For reading: the file system is mounted read-only. SQLite keeps its shared memory to itself then, but needs its file.
    ReadOnly,
    /// For reading, without a write-ahead log: there is none, or an empty one.
    Immutable,
}

impl DatabaseAccess {
    fn find(dir: &Path) -> Self {
        let is_read_only = rustix::fs::statvfs(dir)
            .is_ok_and(|found| found.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        let has_log = || fs::metadata(dir.join(schema::LOG)).is_ok_and(|metadata| metadata.len() > 0);
        match is_read_only {
            false => Self::ReadWrite,
            true if has_log() => Self::ReadOnly,
            true => Self::Immutable,
        }
    }
}

fn connect(
    path: &Path,
    access: DatabaseAccess,
    patience: Option<Duration>,
) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_NO_MUTEX
        | match access {
            DatabaseAccess::ReadWrite => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
            DatabaseAccess::ReadOnly => OpenFlags::SQLITE_OPEN_READ_ONLY,
            DatabaseAccess::Immutable => OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI,
        };
    let opened = match access {
        DatabaseAccess::Immutable => Connection::open_with_flags(immutable_uri(path), flags),
        _ => Connection::open_with_flags(path, flags),
    };
    let connection = opened.map_err(|error| open_error(path, error))?;
    connection.busy_timeout(patience.unwrap_or(PATIENCE))?;
    // The last process to close would otherwise copy the whole log into the database: 20 ms on every hook.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // A plan would otherwise be made again whenever a value is bound that it might depend on: at every commit.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    Ok(connection)
}

/// The address of a database file that does not change while it is open.
fn immutable_uri(path: &Path) -> PathBuf {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let mut uri = b"file:".to_vec();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | b'?' | b'#' => uri.extend_from_slice(format!("%{byte:02x}").as_bytes()),
            _ => uri.push(*byte),
        }
    }
    uri.extend_from_slice(b"?immutable=1");
    std::ffi::OsString::from_vec(uri).into()
}

/// Sets `mode` on `path` if users other than the owner have any access to it.
fn make_private(path: &Path, mode: u32) -> Result<(), StoreError> {
    let found = fs::metadata(path).map_err(StoreError::io("read", path))?.permissions().mode();
    if found & 0o077 == 0 {
        return Ok(());
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(StoreError::io("set the permissions of", path))
}

fn make_private_dir(dir: &Path) -> Result<(), StoreError> {
    faults::point()
        .and_then(|()| DirBuilder::new().recursive(true).mode(0o700).create(dir))
        .map_err(StoreError::io("create", dir))
}

fn open_error(path: &Path, error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::CannotOpen | rusqlite::ErrorCode::PermissionDenied) => {
            // SQLite says only "unable to open database file"; the system call gives the reason.
            let reason = File::options().read(true).write(true).open(path).err();
            let error = reason.unwrap_or_else(|| std::io::Error::other(error.to_string()));
            StoreError::Io { what: "open", path: path.to_path_buf(), error }
        }
        _ => error.into(),
    }
}
