//! Translation of server errors into store errors with a remedy.

use stepback_store::StoreError;
use tokio_postgres::error::SqlState;

/// The kind of record that a uniqueness constraint protects, by table.
const UNIQUE: [(&str, &str); 4] = [
    ("stepback_workspaces", "this workspace"),
    ("stepback_sessions", "this session"),
    ("stepback_steps", "this step"),
    ("stepback_operations", "this operation"),
];

/// Remedies for a failed TLS handshake, by a part of the error message.
const TLS: [(&str, &str); 7] = [
    ("does not support TLS", "set ssl = on in the server's settings, or connect without: sslmode=disable"),
    ("UnknownIssuer", "specify the CA certificate of the server with sslrootcert=FILE in the address"),
    ("BadSignature", "specify the CA certificate of the server with sslrootcert=FILE in the address"),
    ("not valid for name", "use the host name in the certificate, or sslmode=verify-ca"),
    ("expired", "renew the server's certificate"),
    (
        "CaUsedAsEndEntity",
        "give the server a certificate signed by that CA instead of the CA certificate itself",
    ),
    ("TLS", "see docs/guide/teams.md for sslmode and sslrootcert"),
];

/// Converts an error of the server at `address` that occurred while doing `action`.
pub(crate) fn to_store_error(address: &str, action: &str, error: &tokio_postgres::Error) -> StoreError {
    let Some(code) = error.code() else {
        return server_error(address, action, full_message(error), remedy_without_code(error));
    };
    if *code == SqlState::UNIQUE_VIOLATION {
        let table = error.as_db_error().and_then(|error| error.table()).unwrap_or_default();
        if let Some((_, action)) = UNIQUE.into_iter().find(|(name, _)| *name == table) {
            return StoreError::Exists { what: action };
        }
    }
    if matches!(*code, SqlState::LOCK_NOT_AVAILABLE | SqlState::T_R_DEADLOCK_DETECTED) {
        return StoreError::Locked;
    }
    if matches!(*code, SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED) {
        return StoreError::Corrupt { what: format!("{address}: {}", full_message(error)) };
    }
    let message = full_message(error);
    // Not every out-of-space error has its own code.
    let full = message.contains("could not extend file") || message.contains("No space left");
    let remedy = if full { remedy_for_code(&SqlState::DISK_FULL) } else { remedy_for_code(code) };
    server_error(address, action, message, remedy)
}

/// Creates a server error with a remedy.
pub(crate) fn server_error(
    address: &str,
    action: &str,
    message: impl Into<String>,
    remedy: &'static str,
) -> StoreError {
    StoreError::Server { what: format!("cannot {action} {address}"), why: message.into(), remedy }
}

/// The remedy for an error code of the server.
fn remedy_for_code(code: &SqlState) -> &'static str {
    match code {
        code if *code == SqlState::INVALID_PASSWORD
            || *code == SqlState::INVALID_AUTHORIZATION_SPECIFICATION =>
        {
            "check user and password: in the address, in PGPASSWORD, or in ~/.pgpass"
        }
        code if *code == SqlState::INVALID_CATALOG_NAME => {
            "create the database first (\"createdb NAME\"), or correct its name in the address"
        }
        code if *code == SqlState::INSUFFICIENT_PRIVILEGE => {
            "grant the role the permission; docs/guide/teams.md lists what it needs"
        }
        code if *code == SqlState::UNDEFINED_TABLE || *code == SqlState::UNDEFINED_COLUMN => {
            "stepback's tables were changed by another program; restore the database from a backup"
        }
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            "the database is read-only: connect to the primary server, or make it writable again"
        }
        code if *code == SqlState::DISK_FULL || *code == SqlState::OUT_OF_MEMORY => {
            "free space on the server, then try again; nothing was changed"
        }
        code if *code == SqlState::TOO_MANY_CONNECTIONS => {
            "wait for other connections to close, or raise max_connections on the server"
        }
        code if *code == SqlState::QUERY_CANCELED => {
            "the server's statement_timeout is too short for this; raise it for this role"
        }
        code if is_going_away(code) => "the server is starting or stopping; try again in a moment",
        _ => "see the server's log",
    }
}

fn remedy_without_code(error: &tokio_postgres::Error) -> &'static str {
    let message = full_message(error);
    for (words, remedy) in TLS {
        if message.contains(words) {
            return remedy;
        }
    }
    if message.contains("password missing") {
        return "give a password: in PGPASSWORD, in ~/.pgpass, or in the address";
    }
    if message.contains("authentication") {
        return "check user and password, and which methods pg_hba.conf allows";
    }
    "check that the server is running and reachable, then try again"
}

/// The message of the server, or those of the error and of its causes, which often are the only ones that say why.
pub(crate) fn full_message(error: &tokio_postgres::Error) -> String {
    if let Some(error) = error.as_db_error() {
        return match error.detail() {
            Some(detail) => format!("{} ({detail})", error.message()),
            None => error.message().to_string(),
        };
    }
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        source = inner.source();
    }
    text
}

/// Whether the connection can no longer be used.
pub(crate) fn is_lost(error: &tokio_postgres::Error) -> bool {
    match error.code() {
        Some(code) => is_going_away(code),
        None => {
            let source = std::error::Error::source(error);
            error.is_closed() || source.is_some_and(|source| source.is::<std::io::Error>())
        }
    }
}

/// Whether the same commit may succeed on a retry.
pub(crate) fn is_conflict(error: &tokio_postgres::Error) -> bool {
    error.code().is_some_and(|code| {
        *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
    })
}

fn is_going_away(code: &SqlState) -> bool {
    [
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::CONNECTION_FAILURE,
        SqlState::CONNECTION_EXCEPTION,
        SqlState::CONNECTION_DOES_NOT_EXIST,
        SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
    ]
    .contains(code)
}
