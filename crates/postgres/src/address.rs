//! Which database, as whom, and which machine this is.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use stepback_model::hash::{Hash, ObjectKind};
use stepback_store::StoreError;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// How long to try to reach the server, unless the address says otherwise.
const CONNECT: Duration = Duration::from_secs(10);
/// How long to wait for a network that swallows what we send.
const UNANSWERED: Duration = Duration::from_secs(30);

/// File in the local directory that says which store the rest of the directory is about.
const STORE_ID: &str = "store-id";

/// What an address says.
pub(crate) struct Address {
    pub config: Config,
    /// For people: without the password.
    pub shown: String,
}

/// Whether `text` is the address of a database and not a directory.
pub fn is_address(text: &str) -> bool {
    text.starts_with("postgres://") || text.starts_with("postgresql://")
}

/// An address without its password, for people. What cannot be read as an address is not shown at all.
pub fn shown(url: &str) -> String {
    url.parse().map_or_else(|_| "postgres://…".into(), |config| describe(&config))
}

/// A directory name for what belongs to the database at `url`: the same one for every way to write the address.
pub fn local_name(url: &str) -> String {
    let Ok(config) = url.parse::<Config>() else { return "unknown".into() };
    let place = format!("{} {:?}", place(&config), config.get_options());
    let name: String = config
        .get_dbname()
        .unwrap_or("default")
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
        .take(40)
        .collect();
    let digest = Hash::of(ObjectKind::Blob, place.as_bytes()).to_string();
    format!("{name}-{}", &digest[..12])
}

/// Reads an address.
pub(crate) fn parse(url: &str, password: Option<&[u8]>) -> Result<Address, StoreError> {
    let wrong = |why: String, remedy| StoreError::Server {
        what: "cannot read the address of the store".into(),
        why,
        remedy,
    };
    const TLS: &str = "use sslmode=disable or prefer, over a network you trust or a tunnel";
    if url.contains("sslmode=verify") {
        return Err(wrong("this stepback speaks no TLS with PostgreSQL".into(), TLS));
    }
    let mut config: Config = url.parse().map_err(|error: tokio_postgres::Error| {
        wrong(crate::error::why(&error), "write it like postgres://USER@HOST:5432/DATABASE")
    })?;
    if config.get_ssl_mode() == SslMode::Require {
        return Err(wrong("it asks for TLS, which this stepback does not speak with PostgreSQL".into(), TLS));
    }
    if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
        config.host("localhost");
    }
    if config.get_connect_timeout().is_none() {
        config.connect_timeout(CONNECT);
    }
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(UNANSWERED);
    }
    if config.get_application_name().is_none() {
        config.application_name("stepback");
    }
    if config.get_password().is_none()
        && let Some(password) = password
    {
        config.password(password);
    }
    let shown = describe(&config);
    Ok(Address { config, shown })
}

/// Host, port and database.
fn place(config: &Config) -> String {
    let hosts: Vec<String> = config.get_hosts().iter().map(host_name).collect();
    let ports: Vec<String> = config.get_ports().iter().map(u16::to_string).collect();
    let port = if ports.is_empty() { String::new() } else { format!(":{}", ports.join(",")) };
    format!("{}{port}/{}", hosts.join(","), config.get_dbname().unwrap_or_default())
}

fn describe(config: &Config) -> String {
    let user = config.get_user().map(|user| format!("{user}@")).unwrap_or_default();
    format!("postgres://{user}{}", place(config))
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        Host::Unix(path) => path.display().to_string(),
    }
}

/// The password that a password file, whose content is `text`, has for the database at `url`.
pub fn password_in(text: &str, url: &str) -> Option<Vec<u8>> {
    let config: Config = url.parse().ok()?;
    let host = config.get_hosts().first().map_or_else(|| "localhost".into(), host_name);
    let port = config.get_ports().first().copied().unwrap_or(5432).to_string();
    let user = config.get_user()?;
    let database = config.get_dbname().unwrap_or(user);
    let found = text.lines().find_map(|line| in_password_file(line, [&host, &port, database, user]))?;
    Some(found.into_bytes())
}

/// The password of a line of a password file, if the line is about `wanted`: host, port, database and user.
fn in_password_file(line: &str, wanted: [&str; 4]) -> Option<String> {
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
    let fits = |(field, wanted): (&String, &str)| field == "*" || field == wanted;
    (fields.len() == 4 && fields.iter().zip(wanted).all(fits)).then(|| password.clone())
}

/// What this machine is called in the list of workspaces, if nobody gave it a name: a path means nothing without it.
pub(crate) fn machine() -> String {
    let known = ["/etc/machine-id", "/proc/sys/kernel/hostname"].into_iter().find_map(|path| {
        fs::read_to_string(path).ok().map(|text| text.trim().to_string()).filter(|text| !text.is_empty())
    });
    let digest = Hash::of(ObjectKind::Blob, known.unwrap_or_default().as_bytes()).to_string();
    digest[..16].to_string()
}

/// Makes the local directory. What it says about another store that was in the database before is thrown away: a cache that
/// takes content for stored which is not would lose it.
pub(crate) fn prepare_local(local: &Path, id: &str) -> Result<(), StoreError> {
    let file = local.join(STORE_ID);
    if fs::read_to_string(&file).is_ok_and(|found| found == id) {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(local).map_err(StoreError::io("create", local))?;
    let entries = fs::read_dir(local).map_err(StoreError::io("list", local))?;
    for entry in entries.flatten() {
        let path = entry.path();
        // Files directly in here are the person's: settings and prices.
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
        assert_eq!(shown(url), "postgres://ann@db.example:6000/team");
        assert!(!shown("postgres://ann:secret@[bad").contains("secret"));
        assert!(is_address(url) && !is_address("/srv/store") && !is_address("postgres"));
        assert_eq!(local_name(url), local_name("postgresql://bob@db.example:6000/team"));
        assert_ne!(local_name(url), local_name("postgres://ann@db.example:6001/team"));
    }

    #[test]
    fn tls_that_is_not_there_is_refused() {
        for mode in ["require", "verify-full", "verify-ca"] {
            let error =
                parse(&format!("postgres://localhost/x?sslmode={mode}"), None).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("TLS"), "{error}");
        }
        assert!(parse("postgres://localhost/x?sslmode=prefer", None).is_ok());
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
