//! Finds files of a store that users other than the owner can access, and takes that access away.
//!
//! A store contains every version of every file, and what agents said. stepback creates all of it with access for the owner
//! only, but a copy, a backup or another program may relax that. The vault is left out: its files may be the same files as
//! those of a git repository, whose permissions belong to the user.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use stepback_faults as faults;

use crate::port::VAULT;

/// At most this many entries are visited.
const MAX_ENTRIES: usize = 50_000;
/// At most this many paths are listed; more are only counted.
const MAX_LISTED: usize = 10_000;
/// Permission bits of users other than the owner.
const OTHERS: u32 = 0o077;

/// A file or directory that other users can access.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExposedFile {
    /// Its path.
    pub path: PathBuf,
    /// Its permission bits.
    pub mode: u32,
}

/// Who can access the files of a store.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessSurvey {
    /// What other users can access, the store's directory first.
    pub exposed: Vec<ExposedFile>,
    /// Files and directories that belong to another user, with the number of that user.
    pub foreign: Vec<(PathBuf, u32)>,
    /// Whether the store's directory itself can be accessed by other users.
    pub is_directory_exposed: bool,
    /// Whether everything was visited.
    pub is_complete: bool,
}

/// Visits the files of the store in `dir`; `user` is the number of the user that they should belong to.
pub fn survey(dir: &Path, user: u32) -> io::Result<AccessSurvey> {
    let mut survey = AccessSurvey { is_complete: true, ..AccessSurvey::default() };
    let top = fs::metadata(dir)?;
    survey.is_directory_exposed = top.permissions().mode() & OTHERS != 0;
    survey.add(dir, &top, user);
    let mut rest = vec![dir.to_owned()];
    let mut visited = 0;
    while let Some(below) = rest.pop() {
        for entry in fs::read_dir(&below)? {
            let entry = entry?;
            visited += 1;
            if visited > MAX_ENTRIES {
                survey.is_complete = false;
                return Ok(survey);
            }
            // Other processes remove files meanwhile.
            let Ok(metadata) = entry.metadata() else { continue };
            survey.add(&entry.path(), &metadata, user);
            if metadata.is_dir() && !(below == dir && entry.file_name() == VAULT) {
                rest.push(entry.path());
            }
        }
    }
    Ok(survey)
}

impl AccessSurvey {
    fn add(&mut self, path: &Path, metadata: &fs::Metadata, user: u32) {
        if metadata.uid() != user && self.foreign.len() < MAX_LISTED {
            self.foreign.push((path.to_owned(), metadata.uid()));
        }
        let mode = metadata.permissions().mode() & 0o7777;
        let has_other_names = metadata.is_file() && metadata.nlink() > 1;
        if (metadata.is_dir() || metadata.is_file())
            && !has_other_names
            && mode & OTHERS != 0
            && self.exposed.len() < MAX_LISTED
        {
            self.exposed.push(ExposedFile { path: path.to_owned(), mode });
        }
    }
}

/// Takes the access of other users away from what a survey found. Fails at the first file that cannot be changed; one that
/// is gone, or is a link by now, is skipped.
pub fn tighten(exposed: &[ExposedFile]) -> io::Result<()> {
    for file in exposed {
        let mode = file.mode & !OTHERS;
        match fs::symlink_metadata(&file.path) {
            Ok(found) if found.is_dir() || found.is_file() => {}
            Ok(_) => continue,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        }
        faults::point()?;
        if file.path.extension().is_some_and(|kind| kind.to_string_lossy().starts_with("sqlite")) {
            // By name: opening and closing a database would drop the locks of other connections in this process.
            fs::set_permissions(&file.path, fs::Permissions::from_mode(mode))?;
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = rustix::fs::open(&file.path, flags, Mode::empty())?;
        File::from(opened).set_permissions(fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode_of(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o7777
    }

    #[test]
    fn access_of_others_is_found_and_taken_away_but_not_from_the_vault() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        for made in ["", "packs", "vault"] {
            fs::create_dir(store.join(made)).unwrap();
            fs::set_permissions(store.join(made), fs::Permissions::from_mode(0o700)).unwrap();
        }
        for (name, mode) in
            [("log.sqlite", 0o644), ("packs/1.pack", 0o640), ("fine", 0o600), ("vault/a.pack", 0o444)]
        {
            fs::write(store.join(name), b"x").unwrap();
            fs::set_permissions(store.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::write(dir.path().join("linked"), b"x").unwrap();
        fs::set_permissions(dir.path().join("linked"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::hard_link(dir.path().join("linked"), store.join("linked")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("linked"), store.join("symlink")).unwrap();
        fs::set_permissions(&store, fs::Permissions::from_mode(0o755)).unwrap();

        let user = fs::metadata(&store).unwrap().uid();
        let found = survey(&store, user).unwrap();
        let mut names: Vec<_> = found.exposed.iter().map(|file| file.path.clone()).collect();
        names.sort();
        assert_eq!(names, [store.clone(), store.join("log.sqlite"), store.join("packs/1.pack")]);
        assert!(found.is_directory_exposed && found.is_complete && found.foreign.is_empty());
        assert_eq!(survey(&store, user + 1).unwrap().foreign.len(), 8);

        tighten(&found.exposed).unwrap();
        assert!(survey(&store, user).unwrap().exposed.is_empty());
        assert_eq!((mode_of(&store), mode_of(&store.join("packs/1.pack"))), (0o700, 0o600));
        assert_eq!(mode_of(&store.join("vault/a.pack")), 0o444);
        assert_eq!(mode_of(&dir.path().join("linked")), 0o644);
    }
}
