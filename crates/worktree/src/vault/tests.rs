//! Tests of the vault: a kept file is a copy of its own, damage is detected, and a copy gets its name only when it is durable.

use std::fs::Permissions;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use sha1::{Digest, Sha1};
use tempfile::TempDir;

use super::*;

const BUDGET: u64 = 1 << 30;

/// A directory with a vault and a git file beside it.
struct Fixture {
    dir: TempDir,
    vault: Vault,
    /// The name of the git file, here and in the vault.
    name: String,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault::open(&dir.path().join("store/vault")).unwrap();
        let fixture = Self { dir, vault, name: pack_name('0') };
        fixture.write(&pack(b"first"));
        fixture
    }

    fn source(&self) -> PathBuf {
        self.dir.path().join(&self.name)
    }

    fn kept(&self) -> PathBuf {
        self.dir.path().join("store/vault").join(&self.name)
    }

    fn write(&self, bytes: &[u8]) {
        let _ = fs::remove_file(self.source());
        fs::write(self.source(), bytes).unwrap();
        fs::set_permissions(self.source(), Permissions::from_mode(0o444)).unwrap();
    }

    fn keep(&self) -> Kept {
        let dir = File::open(self.dir.path()).unwrap();
        self.vault.keep(dir.as_fd(), self.name.as_bytes(), self.name.as_bytes(), BUDGET).unwrap()
    }

    fn bring_back(&self, into: &str, mode: u32) -> io::Result<PathBuf> {
        let dir = File::open(self.dir.path()).unwrap();
        self.vault.bring_back(self.name.as_bytes(), dir.as_fd(), OsStr::new(into), mode)?;
        Ok(self.dir.path().join(into))
    }

    fn names_in_vault(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path().join("store/vault")).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn pack_name(digit: char) -> String {
    format!("pack-{}.pack", digit.to_string().repeat(40))
}

/// Bytes that end with their own SHA-1, as those of a pack do.
fn pack(content: &[u8]) -> Vec<u8> {
    [content, Sha1::digest(content).as_slice()].concat()
}

#[test]
fn a_kept_file_is_not_reached_through_the_workspace() {
    let fixture = Fixture::new();
    assert_eq!(fixture.keep(), Kept::Yes);
    fixture.vault.sync().unwrap();
    assert_ne!(fs::metadata(fixture.source()).unwrap().ino(), fs::metadata(fixture.kept()).unwrap().ino());
    fs::set_permissions(fixture.source(), Permissions::from_mode(0o666)).unwrap();
    fs::write(fixture.source(), b"").unwrap();
    assert_eq!(fs::metadata(fixture.kept()).unwrap().permissions().mode() & 0o7777, 0o400);
    assert_eq!(fs::read(fixture.kept()).unwrap(), pack(b"first"));
    // Nor is it through what was restored from it.
    let restored = fixture.bring_back("restored", 0o640).unwrap();
    assert_eq!(fs::metadata(&restored).unwrap().permissions().mode() & 0o7777, 0o640);
    fs::write(&restored, b"overwritten").unwrap();
    let again = fixture.bring_back("again", 0o444).unwrap();
    assert_eq!(fs::read(again).unwrap(), pack(b"first"));
}

#[test]
fn a_link_of_an_earlier_version_becomes_a_copy() {
    let fixture = Fixture::new();
    fs::hard_link(fixture.source(), fixture.kept()).unwrap();
    assert_eq!(fixture.keep(), Kept::Yes);
    fixture.vault.sync().unwrap();
    assert_eq!(fs::metadata(fixture.source()).unwrap().nlink(), 1);
    assert_eq!(fs::read(fixture.kept()).unwrap(), pack(b"first"));
}

#[test]
fn a_damaged_file_is_not_kept_even_if_the_vault_has_an_intact_one() {
    let fixture = Fixture::new();
    for bad in [&b""[..], b"short", &pack(b"first")[..10], b"PACK with a wrong checksum at its end"] {
        fixture.write(bad);
        assert!(matches!(fixture.keep(), Kept::Damaged(_)), "{bad:?}");
    }
    fixture.vault.sync().unwrap();
    assert_eq!(fixture.names_in_vault(), [] as [&str; 0]);
    fixture.write(&pack(b"first"));
    assert_eq!(fixture.keep(), Kept::Yes);
    fixture.vault.sync().unwrap();
    let mut bad = pack(b"first");
    bad[0] ^= 1;
    fixture.write(&bad);
    assert!(matches!(fixture.keep(), Kept::Damaged(_)));
    assert_eq!(fs::read(fixture.kept()).unwrap(), pack(b"first"));
}

#[test]
fn a_damaged_kept_file_is_replaced_and_never_restored() {
    let fixture = Fixture::new();
    fs::write(fixture.kept(), b"half of").unwrap();
    let error = fixture.bring_back("restored", 0o444).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    assert!(!fixture.dir.path().join("restored").exists());
    assert!(fixture.vault.verify(fixture.name.as_bytes()).is_err());
    assert_eq!(fixture.keep(), Kept::Yes);
    fixture.vault.sync().unwrap();
    assert_eq!(fixture.vault.verify(fixture.name.as_bytes()), Ok(()));
}

#[test]
fn another_intact_file_of_the_same_name_replaces_nothing() {
    let fixture = Fixture::new();
    assert_eq!(fixture.keep(), Kept::Yes);
    fixture.vault.sync().unwrap();
    fixture.write(&pack(b"made by another version of git"));
    assert_eq!(fixture.keep(), Kept::NameTaken);
    assert_eq!(fs::read(fixture.kept()).unwrap(), pack(b"first"));
}

#[test]
fn a_copy_has_its_name_only_when_it_is_durable() {
    let fixture = Fixture::new();
    assert_eq!(fixture.keep(), Kept::Yes);
    assert!(!fixture.kept().exists());
    let Fixture { dir, vault, name } = fixture;
    drop(vault);
    let left = fs::read_dir(dir.path().join("store/vault")).unwrap().count();
    assert_eq!(left, 0, "a copy that was not synced stays behind");
    let vault = Vault::open(&dir.path().join("store/vault")).unwrap();
    let fixture = Fixture { dir, vault, name };
    // More than are synced one by one.
    for digit in "0123456789abcdef".chars() {
        let name = pack_name(digit);
        fs::write(fixture.dir.path().join(&name), pack(&[digit as u8])).unwrap();
        let dir = File::open(fixture.dir.path()).unwrap();
        let kept = fixture.vault.keep(dir.as_fd(), name.as_bytes(), name.as_bytes(), BUDGET).unwrap();
        assert_eq!(kept, Kept::Yes);
    }
    fixture.vault.sync().unwrap();
    assert_eq!(fixture.names_in_vault().len(), 16);
    assert!(fixture.names_in_vault().iter().all(|name| fixture.vault.verify(name.as_bytes()).is_ok()));
}
