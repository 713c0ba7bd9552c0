//! Translates errors of SQLite into errors of the store.

use std::io;

use crate::error::StoreError;

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::Error as Failure;
        use rusqlite::ErrorCode;
        // A value that does not fit its column, and a table that is not there, in a database that was a store.
        let is_damage = match &error {
            Failure::FromSqlConversionFailure(..)
            | Failure::IntegralValueOutOfRange(..)
            | Failure::InvalidColumnType(..)
            | Failure::Utf8Error(..) => true,
            Failure::SqliteFailure(code, text) => {
                code.extended_code == rusqlite::ffi::SQLITE_IOERR_SHORT_READ
                    || text.as_ref().is_some_and(|text| text.starts_with("no such table"))
            }
            _ => false,
        };
        if is_damage {
            return Self::Corrupt { what: format!("its database: {error}") };
        }
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
                Self::Corrupt { what: format!("its database: {error}") }
            }
            Some(ErrorCode::ReadOnly) => Self::ReadOnly { path: "its directory".into() },
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
