//! The errors of a store as they are sent, so that a caller acts on them as if the store were its own.

use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::object::ObjectError;
use stepback_store::StoreError;

/// A store error as it is sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireError {
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    NotAStore {
        path: PathBuf,
        reason: String,
    },
    Absent {
        path: PathBuf,
    },
    Io {
        what: String,
        path: PathBuf,
        code: Option<i32>,
        message: String,
    },
    Database {
        what: String,
    },
    Corrupt {
        what: String,
    },
    Lost {
        commits: u64,
    },
    ReadOnly {
        path: PathBuf,
    },
    Replaced {
        path: PathBuf,
    },
    Moved {
        name: String,
    },
    Exists {
        what: String,
    },
    Collected,
    Grew,
    Full {
        limit: u64,
    },
    Locked,
    Server {
        what: String,
        why: String,
        remedy: String,
    },
    Forbidden {
        what: String,
    },
    ObjectMissing {
        kind: u8,
        hash: Hash,
    },
    ObjectCorrupt {
        kind: u8,
        hash: Hash,
        reason: String,
    },
    /// An error that has no form of its own here.
    Other {
        message: String,
    },
}

/// The texts of a store error that are not part of a value. What is sent is looked up here, so that nothing has to be kept
/// for the life of the process.
const EXISTS: [&str; 4] = ["this workspace", "this session", "this step", "this operation"];
const VERBS: [&str; 18] = [
    "open",
    "read",
    "write",
    "write to",
    "create",
    "remove",
    "rename",
    "list",
    "look into",
    "copy",
    "sync",
    "lock",
    "append to",
    "commit to",
    "acknowledge a commit to",
    "truncate",
    "map",
    "set the permissions of",
];
/// What a user can do about an error of a server behind the server.
const BEHIND: &str = "see the log of the server that holds the store";

fn known(texts: &[&'static str], text: &str, otherwise: &'static str) -> &'static str {
    texts.iter().find(|known| **known == text).copied().unwrap_or(otherwise)
}

impl From<StoreError> for WireError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Newer { path, found, known } => Self::Newer { path, found, known },
            StoreError::NotAStore { path, reason } => Self::NotAStore { path, reason },
            StoreError::Absent { path } => Self::Absent { path },
            StoreError::Io { what, path, error } => {
                Self::Io { what: what.into(), path, code: error.raw_os_error(), message: error.to_string() }
            }
            StoreError::Database { what } => Self::Database { what },
            StoreError::Corrupt { what } => Self::Corrupt { what },
            StoreError::Lost { commits } => Self::Lost { commits },
            StoreError::ReadOnly { path } => Self::ReadOnly { path },
            StoreError::Replaced { path } => Self::Replaced { path },
            StoreError::Moved { name } => Self::Moved { name },
            StoreError::Exists { what } => Self::Exists { what: what.into() },
            StoreError::Collected => Self::Collected,
            StoreError::Grew => Self::Grew,
            StoreError::Full { limit } => Self::Full { limit },
            StoreError::Locked => Self::Locked,
            StoreError::Server { what, why, remedy } => Self::Server { what, why, remedy: remedy.into() },
            StoreError::Forbidden { what } => Self::Forbidden { what },
            StoreError::Object(error) => error.into(),
        }
    }
}

impl From<ObjectError> for WireError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::Missing { kind, hash } => Self::ObjectMissing { kind: kind as u8, hash },
            ObjectError::Corrupt { kind, hash, reason } => {
                Self::ObjectCorrupt { kind: kind as u8, hash, reason }
            }
            ObjectError::Backend(inner) => match inner.downcast::<StoreError>() {
                Ok(error) => (*error).into(),
                Err(inner) => Self::Other { message: inner.to_string() },
            },
        }
    }
}

impl From<WireError> for StoreError {
    fn from(error: WireError) -> Self {
        let kind_of = |kind| ObjectKind::from_u8(kind).unwrap_or(ObjectKind::Blob);
        match error {
            WireError::Newer { path, found, known } => Self::Newer { path, found, known },
            WireError::NotAStore { path, reason } => Self::NotAStore { path, reason },
            WireError::Absent { path } => Self::Absent { path },
            WireError::Io { what, path, code, message } => Self::Io {
                what: known(&VERBS, &what, "use"),
                path,
                error: code.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error),
            },
            WireError::Database { what } => Self::Database { what },
            WireError::Corrupt { what } => Self::Corrupt { what },
            WireError::Lost { commits } => Self::Lost { commits },
            WireError::ReadOnly { path } => Self::ReadOnly { path },
            WireError::Replaced { path } => Self::Replaced { path },
            WireError::Moved { name } => Self::Moved { name },
            WireError::Exists { what } => Self::Exists { what: known(&EXISTS, &what, "this record") },
            WireError::Collected => Self::Collected,
            WireError::Grew => Self::Grew,
            WireError::Full { limit } => Self::Full { limit },
            WireError::Locked => Self::Locked,
            WireError::Server { what, why, remedy } => {
                let why = if remedy.is_empty() { why } else { format!("{why} ({remedy})") };
                Self::Server { what, why, remedy: BEHIND }
            }
            WireError::Forbidden { what } => Self::Forbidden { what },
            WireError::ObjectMissing { kind, hash } => {
                Self::Object(ObjectError::Missing { kind: kind_of(kind), hash })
            }
            WireError::ObjectCorrupt { kind, hash, reason } => {
                Self::Object(ObjectError::Corrupt { kind: kind_of(kind), hash, reason })
            }
            WireError::Other { message } => {
                Self::Server { what: "the server of the store failed".into(), why: message, remedy: BEHIND }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_survives_the_wire() {
        let path = || PathBuf::from("/srv/store");
        let hash = Hash::of(ObjectKind::Tree, b"x");
        let errors = [
            StoreError::Newer { path: path(), found: 9, known: 4 },
            StoreError::NotAStore { path: path(), reason: "empty".into() },
            StoreError::Absent { path: path() },
            StoreError::Io { what: "write to", path: path(), error: io::Error::from_raw_os_error(28) },
            StoreError::Database { what: "x".into() },
            StoreError::Corrupt { what: "x".into() },
            StoreError::Lost { commits: 2 },
            StoreError::ReadOnly { path: path() },
            StoreError::Replaced { path: path() },
            StoreError::Moved { name: "head".into() },
            StoreError::Exists { what: "this step" },
            StoreError::Collected,
            StoreError::Grew,
            StoreError::Full { limit: 7 },
            StoreError::Locked,
            StoreError::Forbidden { what: "a sweep".into() },
            StoreError::Object(ObjectError::Missing { kind: ObjectKind::Tree, hash }),
            StoreError::Object(ObjectError::Corrupt { kind: ObjectKind::Tree, hash, reason: "cut".into() }),
        ];
        for error in errors {
            let before = format!("{error:?} {error}");
            let sent = serde_json::to_vec(&WireError::from(error)).unwrap();
            let back = StoreError::from(serde_json::from_slice::<WireError>(&sent).unwrap());
            assert_eq!(format!("{back:?} {back}"), before);
        }
    }

    #[test]
    fn a_store_error_inside_an_object_error_is_unwrapped() {
        let error = ObjectError::from(StoreError::Full { limit: 3 });
        assert!(matches!(WireError::from(error), WireError::Full { limit: 3 }));
    }
}
