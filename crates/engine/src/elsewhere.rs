//! Workspaces without a directory on this machine: a service that runs elsewhere and reports what its agents do.
//!
//! Such a workspace has sessions and steps like any other, and no files. Its root is an address that is no path: nobody can be
//! inside of it, and a look at its files is refused before anything is opened.

use std::path::{Path, PathBuf};

use crate::error::EngineError;

/// What the root of a workspace elsewhere begins with.
const SCHEME: &str = "service://";

/// The root of the workspace that stands for a service. The same service has the same root; different ones, different roots.
pub fn root_of(namespace: Option<&str>, name: &str) -> PathBuf {
    let namespace = namespace.map(|namespace| format!("{}/", written(namespace))).unwrap_or_default();
    PathBuf::from(format!("{SCHEME}{namespace}{}", written(name)))
}

/// Whether the files of the workspace with this root are elsewhere.
pub fn is_elsewhere(root: &Path) -> bool {
    root.to_str().is_some_and(|root| root.starts_with(SCHEME))
}

/// Fails if the files of the workspace with this root are elsewhere.
pub(crate) fn refuse(root: &Path) -> Result<(), EngineError> {
    match is_elsewhere(root) {
        true => Err(EngineError::Elsewhere { root: root.to_path_buf() }),
        false => Ok(()),
    }
}

/// The name with everything written out that would not be part of a name in an address.
fn written(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for c in name.chars() {
        match c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | ':' | '@' | ' ') {
            true => text.push(c),
            false => c.to_string().bytes().for_each(|byte| text.push_str(&format!("%{byte:02X}"))),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_has_a_root_of_its_own_that_is_no_path() {
        let root = |namespace, name| root_of(namespace, name).to_str().unwrap().to_owned();
        assert_eq!(root(None, "weather-bot"), "service://weather-bot");
        assert_eq!(root(Some("shop"), "Wetter-Büro 2"), "service://shop/Wetter-Büro 2");
        assert_eq!(root(None, "../../etc"), "service://..%2F..%2Fetc");
        assert_ne!(root(Some("a"), "b"), root(None, "a/b"));
        assert!(is_elsewhere(Path::new("service://x")) && !is_elsewhere(Path::new("/service:/x")));
    }
}
