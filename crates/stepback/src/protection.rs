//! How well a store is protected against programs that run as the user, such as the agents that it records.

use crate::store_location::StoreLocation;

/// A level of protection of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    dead_code,
    reason = "stores behind a server and mirrored stores come with the commands that make them"
)]
pub enum ProtectionLevel {
    /// The store is a directory of the user, and every program of the user can change it.
    Local,
    /// The store is behind a server, and can only be changed through it.
    Guarded,
    /// What is recorded is also copied to places where it can only be added to.
    Mirrored,
}

impl ProtectionLevel {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Guarded => "guarded",
            Self::Mirrored => "mirrored",
        }
    }
}

/// What protects a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoreProtection {
    /// The level; `None` for a database, whose own users and permissions decide.
    pub level: Option<ProtectionLevel>,
    /// A description for the user.
    pub text: String,
}

/// Returns what protects the store at `location`.
pub fn describe_protection(location: &StoreLocation) -> StoreProtection {
    let shown = location.display_text();
    match location {
        StoreLocation::Directory(_) => StoreProtection {
            level: Some(ProtectionLevel::Local),
            text: "local: a program that runs as you can change the store; fsck notices it".to_owned(),
        },
        StoreLocation::Server { .. } => StoreProtection {
            level: None,
            text: format!("on a server: {shown}; its users and their permissions decide who can change it"),
        },
    }
}
