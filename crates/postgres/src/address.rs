//! Database addresses: which database, as which user, and the name of this machine.

use std::borrow::Cow;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::StoreError;
use tokio_postgres::Config;
use tokio_postgres::config::Host;

use crate::tls::{Mode, TlsOptions};

/// How long to try to connect, unless the address says otherwise.
const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait when a network silently drops what we send.
const UNACKNOWLEDGED_TIMEOUT: Duration = Duration::from_secs(30);

/// The file in the local directory that holds the id of the store that the directory belongs to.
const STORE_ID: &str = "store-id";

/// A parsed address.
pub(crate) struct Address {
    pub config: Config,
    pub tls: TlsOptions,
    /// The address for display, without the password.
    pub display: String,
}

/// Whether `text` is the address of a database rather than a directory.
pub fn is_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// An address for display, without its password. Text that cannot be parsed as an address is not shown at all.
pub fn display_url(url: &str) -> String {
    read(url).map_or_else(|_| "postgres://…".into(), |(config, _)| describe(&config))
}

/// The name of the local directory for the database at `url`. All spellings of one address give the same name.
pub fn local_name(url: &str) -> String {
    let Ok((config, _)) = read(url) else { return "unknown".into() };
    let location = format!("{} {:?}", host_and_database(&config), config.get_options());
    let name: String = config
        .get_dbname()
        .unwrap_or("default")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(40)
        .collect();
    let digest = Hash::of(ObjectKind::Blob, location.as_bytes()).to_string();
    format!("{name}-{}", &digest[..12])
}

/// Parses an address.
pub(crate) fn parse(url: &str, password: Option<&[u8]>) -> Result<Address, StoreError> {
    let invalid_address = |reason: String, remedy| StoreError::Server {
        what: "cannot read the address of the store".into(),
        why: reason,
        remedy,
    };
    let (mut config, tls) = read(url).map_err(|reason| {
        invalid_address(reason, "use the form postgres://USER@HOST:5432/DATABASE?sslmode=MODE")
    })?;
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host("localhost");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(DEFAULT_CONNECT_TIMEOUT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNACKNOWLEDGED_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("stepback");
    }
    if config.get_password().is_none()
        && let Some(password) = password
    {
        config.password(password);
    }
    let display = describe(&config);
    Ok(Address { config, tls, display })
}

/// Splits an address into the TLS options, which are handled here, and the rest for the client library.
fn read(url: &str) -> Result<(Config, TlsOptions), String> {
    let mut tls_options = TlsOptions::default();
    let (location, options) = url.split_once('?').unwrap_or((url, ""));
    let mut others = Vec::new();
    for option in options.split('&').filter(|option| !option.is_empty()) {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "sslmode" => {
                let unknown = || {
                    format!(
                        "sslmode={value} is invalid; use disable, prefer, require, verify-ca or verify-full"
                    )
                };
                tls_options.mode = Mode::parse(value).ok_or_else(unknown)?;
            }
            "sslrootcert" => tls_options.roots = Some(percent_decode(value)?.into()),
            "sslcert" | "sslkey" => {
                return Err(format!("{name}: client certificates are not supported"));
            }
            _ => others.push(option),
        }
    }
    let separator = if others.is_empty() { "" } else { "?" };
    let rest = format!("{location}{separator}{}", others.join("&"));
    let mut config: Config = rest.parse().map_err(|error| crate::error::full_message(&error))?;
    config.ssl_mode(tls_options.mode.to_ssl_mode());
    Ok((config, tls_options))
}

/// Decodes percent-encoding such as `%2F`.
fn percent_decode(value: &str) -> Result<String, String> {
    let are_digits =
        |digits: &str| digits.len() >= 2 && digits.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if !value.split('%').skip(1).all(are_digits) {
        return Err(format!("\"{value}\" has a % without two digits after it"));
    }
    let decoded = percent_encoding::percent_decode_str(value).decode_utf8();
    decoded.map(Cow::into_owned).map_err(|_| format!("\"{value}\" is not UTF-8"))
}

/// Host, port and database of an address.
fn host_and_database(config: &Config) -> String {
    let hosts: Vec<String> = config.get_hosts().iter().map(host_name).collect();
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let port = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
    format!("{}{port}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

fn describe(config: &Config) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    format!("postgres://{user}{}", host_and_database(config))
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// The password for the database at `url` in a password file with content `text`.
pub fn password_in(text: &str, url: &str) -> Option<Vec<u8>> {
    let (config, _) = read(url).ok()?;
    let host = config.get_hosts().first().map_or_else(|| "localhost".into(), host_name);
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user()?;
    let database = config.get_dbname().unwrap_or(user);
    let password = text.lines().find_map(|line| in_password_file(line, [&host, &port, database, user]))?;
    Some(password.into_bytes())
}

/// The password in a line of a password file, if the line matches `expected`: host, port, database and user.
fn in_password_file(line: &str, expected: [&str; 4]) -> Option<String> {
    if line.starts_with('#') {
        return None;
    }
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match character {
            ':' if fields.len() < 5 => fields.push(String::new()),
            '\\' => fields.last_mut()?.extend(characters.next()),
            other => fields.last_mut()?.push(other),
        }
    }
    let [fields @ .., password] = fields.as_slice() else { return None };
    let matches = |(field, expected): (&String, &str)| field == "*" || field == expected;
    (fields.len() == 4 && fields.iter().zip(expected).all(matches)).then(|| password.clone())
}

/// The default name of this machine in the list of workspaces, where a path is ambiguous without it.
pub(crate) fn machine_name() -> String {
    let machine_id = ["/etc/machine-id", "/proc/sys/kernel/hostname"].into_iter().find_map(|path| {
        fs::read_to_string(path).ok().map(|text| text.trim().to_string()).filter(|text| !text.is_empty())
    });
    let digest = Hash::of(ObjectKind::Blob, machine_id.unwrap_or_default().as_bytes()).to_string();
    digest[..16].to_string()
}

/// Creates the local directory. What it holds about another store that was in the database before is deleted: a cache that
/// lists content as stored which is not would lose that content.
pub(crate) fn prepare_local(local: &Path, id: &str) -> Result<(), StoreError> {
    let file = local.join(STORE_ID);
    if fs::read_to_string(&file).is_ok_and(|stored_id| stored_id == id) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(local).map_err(StoreError::io("create", local))?;
    let entries = fs::read_dir(local).map_err(StoreError::io("list", local))?;
    for entry in entries.flatten() {
        let path = entry.path();
        // Files directly in this directory belong to the user: settings and prices.
        if path.is_dir() {
            fs::remove_dir_all(&path).map_err(StoreError::io("remove", &path))?;
        }
    }
    let new = local.join(format!("{STORE_ID}.{}", std::process::id()));
    fs::write(&new, id).and_then(|()| fs::rename(&new, &file)).map_err(StoreError::io("write", &file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let url = "postgres://ann:secret@db.example:6000/team?connect_timeout=3";
        assert_eq!(display_url(url), "postgres://ann@db.example:6000/team");
        assert!(!display_url("postgres://ann:secret@[bad").contains("secret"));
        assert!(is_address(url) && !is_address("/srv/store") && !is_address("postgres"));
        assert_eq!(local_name(url), local_name("postgresql://bob@db.example:6000/team"));
        assert_ne!(local_name(url), local_name("postgres://ann@db.example:6001/team"));
    }

    #[test]
    fn what_an_address_says_about_tls_is_understood_or_refused() {
        let asked = |options: &str| read(&format!("postgres://ann@db/x?{options}")).map(|(_, asked)| asked);
        assert_eq!(asked("").unwrap(), TlsOptions::default());
        let full = asked("connect_timeout=3&sslmode=verify-full&sslrootcert=%2Fetc%2Fmy%20ca.pem").unwrap();
        assert_eq!(full, TlsOptions { mode: Mode::VerifyFull, roots: Some("/etc/my ca.pem".into()) });
        let url = "postgres://ann:secret@db/x?sslmode=verify-ca&sslrootcert=/ca.pem";
        assert_eq!(
            (display_url(url), local_name(url)),
            ("postgres://ann@db:5432/x".into(), local_name("postgres://db/x"))
        );
        for (options, why) in [
            ("sslmode=yes", "sslmode=yes is invalid"),
            ("sslrootcert=%2", "%"),
            ("sslrootcert=%ff", "UTF-8"),
            ("sslcert=me.pem", "sslcert"),
            ("no_such_option=1", "no_such_option"),
        ] {
            let error = asked(options).unwrap_err();
            assert!(error.contains(why), "{options}: {error}");
        }
        assert!(parse("postgres://localhost:port/x", None).is_err());
    }

    #[test]
    fn a_password_file_is_read_like_everybody_reads_it() {
        let wanted = ["db", "5432", "team", "ann"];
        let read = |line| in_password_file(line, wanted);
        assert_eq!(read(concat!("db:5432:team:", "ann:secret")).as_deref(), Some("secret"));
        assert_eq!(read(r"*:*:*:ann:with\:colon:x").as_deref(), Some("with:colon:x"));
        assert_eq!(read(concat!("db:5432:team:", "bob:secret")), None);
        assert_eq!(read(concat!("#db:5432:team:", "ann:secret")), None);
        assert_eq!(read("db:5432"), None);
        let file = concat!("# ours\nother:*:*:*:no\ndb:5432:team:", "ann:secret\n");
        assert_eq!(password_in(file, "postgres://ann@db/team").as_deref(), Some(b"secret".as_slice()));
    }
}
