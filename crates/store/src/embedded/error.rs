//! Translates errors of SQLite into errors of the store.

use std::io;

use crate::error::StoreError;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ErrorCode;
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt { what: format!("its database: {error}") }
            }
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Locked,
            Some(ErrorCode::DiskFull) => Self::Io {
                what: "write to",
                path: "the store's database".into(),
                error: io::ErrorKind::StorageFull.into(),
            },
            _ => Self::Database { what: error.to_string() },
        }
    }
}
