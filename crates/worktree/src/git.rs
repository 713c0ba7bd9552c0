//! Special treatment of git directories: which files are immutable, which are transient, and the state of HEAD.

use std::os::fd::BorrowedFd;

use stepback_model::path::RelPath;
use stepback_model::state::RepositorySummary;

use crate::rules::read_small;

/// Where in a git directory a file is, as far as it decides whether the file is transient.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GitPlace {
    /// Directly in the git directory.
    Top,
    /// Below `objects`.
    Objects,
    /// Anywhere else. A file's name can be the name of a branch.
    Inside,
}

/// Files in a git directory that exist only while git works. They are neither stored nor touched.
pub fn is_transient(place: GitPlace, name: &[u8]) -> bool {
    // No branch can have a name that ends in `.lock`.
    is_transient_dir(place, name) || name.ends_with(b".lock") || (place == GitPlace::Top && name == b"gc.pid")
}

/// The same for directories: that of the file-system monitor, and those of objects that are just being received.
pub fn is_transient_dir(place: GitPlace, name: &[u8]) -> bool {
    match place {
        GitPlace::Top => name.starts_with(b"fsmonitor--daemon"),
        GitPlace::Objects => name.starts_with(b"tmp_") || name.starts_with(b".tmp-"),
        GitPlace::Inside => false,
    }
}

/// The vault's name for an immutable file of an `objects` directory; `None` if the file can change under its name.
///
/// The name is the same in every repository, because it contains the hash of the content.
pub fn vault_name(dir: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let is_hex = |bytes: &[u8]| bytes.iter().all(|byte| byte.is_ascii_hexdigit());
    if dir.len() == 2 && is_hex(dir) && (name.len() == 38 || name.len() == 62) && is_hex(name) {
        return Some([b"object-", dir, name].concat());
    }
    if dir == b"pack" && name.starts_with(b"pack-") {
        let dot = name.iter().position(|byte| *byte == b'.')?;
        let immutable = matches!(&name[dot..], b".pack" | b".idx" | b".rev");
        return (immutable && is_hex(&name[5..dot])).then(|| name.to_vec());
    }
    // Git LFS keeps files under their SHA-256.
    (name.len() == 64 && is_hex(name)).then(|| [b"lfs-", name].concat())
}

/// The name that the file at `path` (from the workspace root) would have in the vault; `None` if git can change the file.
pub fn object_key(path: &RelPath) -> Option<Vec<u8>> {
    let names: Vec<&[u8]> = path.components().collect();
    let (name, dirs) = names.split_last()?;
    let git = dirs.iter().position(|name| *name == b".git")?;
    let objects = git + dirs[git..].iter().position(|name| *name == b"objects")?;
    // Below these, a file can have the name of a branch.
    let is_reference = dirs[git..objects].iter().any(|name| matches!(*name, b"refs" | b"logs"));
    let is_info = dirs[objects..].get(1).is_some_and(|name| *name == b"info");
    if is_reference || is_info { None } else { vault_name(dirs.last()?, name) }
}

/// Whether the file at `path` belongs to git's objects, so that it stays when it is newer than the state to be restored: it
/// does no harm, and something may need it.
pub fn stays_if_newer(path: &RelPath) -> bool {
    let is_beside_pack = || {
        let mut names = path.components().rev();
        let (name, dir, parent) = (names.next(), names.next(), names.next());
        dir == Some(b"pack".as_slice())
            && parent == Some(b"objects".as_slice())
            && name.is_some_and(|name| name.starts_with(b"pack-"))
            && path.components().any(|name| name == b".git")
    };
    object_key(path).is_some() || is_beside_pack()
}

/// Whether this is the name in the vault of a loose object. Loose objects are stored by content; only older states have
/// them in the vault.
pub fn is_loose(key: &[u8]) -> bool {
    key.starts_with(b"object-")
}

/// Reads the state of a git directory: branch, commit, what is in progress, stashes.
pub fn summarize(git_dir: BorrowedFd<'_>) -> RepositorySummary {
    let head = read_text(git_dir, b"HEAD").unwrap_or_default();
    let (branch, commit) = match head.strip_prefix("ref: ") {
        Some(reference) => {
            let branch = reference.strip_prefix("refs/heads/").unwrap_or(reference).to_string();
            (Some(branch), resolve(git_dir, reference))
        }
        None => (None, (!head.is_empty()).then(|| head.clone())),
    };
    let exists = |name: &str| {
        rustix::fs::accessat(git_dir, name, rustix::fs::Access::EXISTS, rustix::fs::AtFlags::empty()).is_ok()
    };
    let marks = [
        ("MERGE_HEAD", "merge"),
        ("rebase-merge", "rebase"),
        ("rebase-apply", "rebase"),
        ("CHERRY_PICK_HEAD", "cherry-pick"),
        ("REVERT_HEAD", "revert"),
        ("BISECT_LOG", "bisect"),
    ];
    let in_progress =
        marks.iter().find(|(file, _)| exists(file)).map(|(_, operation)| (*operation).to_string());
    let stashes = read_small(git_dir, b"logs/refs/stash", 1 << 20)
        .map_or(0, |log| log.iter().filter(|byte| **byte == b'\n').count() as u32);
    RepositorySummary { branch, commit, in_progress, stashes }
}

fn read_text(dir: BorrowedFd<'_>, name: &[u8]) -> Option<String> {
    let bytes = read_small(dir, name, 4096)?;
    Some(String::from_utf8_lossy(&bytes).trim_end().to_string())
}

fn resolve(git_dir: BorrowedFd<'_>, reference: &str) -> Option<String> {
    // A reference name comes from a file; it must not lead out of the git directory.
    if reference.split('/').any(|part| part == "..") || reference.starts_with('/') {
        return None;
    }
    if let Some(commit) = read_text(git_dir, reference.as_bytes()) {
        return (!commit.starts_with("ref: ")).then_some(commit);
    }
    let packed = read_small(git_dir, b"packed-refs", 64 << 20)?;
    String::from_utf8_lossy(&packed).lines().find_map(|line| {
        let (commit, name) = line.split_once(' ')?;
        (name == reference).then(|| commit.to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_content_named_files_are_immutable() {
        let loose = "b".repeat(38);
        assert_eq!(vault_name(b"ab", loose.as_bytes()), Some(format!("object-ab{loose}").into_bytes()));
        assert_eq!(vault_name(b"pack", b"pack-0a1b.idx"), Some(b"pack-0a1b.idx".to_vec()));
        assert_eq!(vault_name(b"pack", b"multi-pack-index"), None);
        assert_eq!(vault_name(b"pack", b"pack-0a1b.keep"), None);
        assert_eq!(vault_name(b"info", b"alternates"), None);
    }

    #[test]
    fn a_branch_may_be_called_like_a_temporary_file() {
        for (place, name) in [
            (GitPlace::Top, "gc.pid"),
            (GitPlace::Top, "index.lock"),
            (GitPlace::Objects, "tmp_obj_abc"),
            (GitPlace::Inside, "main.lock"),
        ] {
            assert!(is_transient(place, name.as_bytes()), "{name}");
        }
        for (place, name) in [
            (GitPlace::Inside, "tmp_experiment"),
            (GitPlace::Inside, "gc.pid"),
            (GitPlace::Inside, "fsmonitor--daemon"),
            (GitPlace::Top, "tmp_notes"),
        ] {
            assert!(!is_transient(place, name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn objects_are_known_by_their_path() {
        let rest = "b".repeat(38);
        let key = |path: &str| object_key(&RelPath::parse(path).unwrap());
        assert_eq!(key(&format!(".git/objects/ab/{rest}")), Some(format!("object-ab{rest}").into_bytes()));
        assert_eq!(key(".git/modules/x/objects/pack/pack-0a.idx"), Some(b"pack-0a.idx".to_vec()));
        assert!(key(&format!("sub/.git/objects/ab/{rest}")).is_some());
        for other in [
            format!("objects/ab/{rest}"),
            format!(".git/refs/heads/objects/ab/{rest}"),
            format!(".git/logs/refs/heads/objects/ab/{rest}"),
            format!(".git/objects/info/{rest}"),
            ".git/objects/pack/multi-pack-index".to_string(),
            ".git/HEAD".to_string(),
        ] {
            assert_eq!(key(&other), None, "{other}");
        }
        assert!(stays_if_newer(&RelPath::parse(".git/objects/pack/pack-0a.promisor").unwrap()));
        assert!(!stays_if_newer(&RelPath::parse(".git/objects/pack/multi-pack-index").unwrap()));
        assert!(!stays_if_newer(&RelPath::parse("objects/pack/pack-0a.promisor").unwrap()));
    }

    #[test]
    fn a_repository_is_summarised() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("HEAD", "ref: refs/heads/topic/x\n");
        write("packed-refs", "# pack-refs\nabc123 refs/heads/topic/x\n");
        write("MERGE_HEAD", "def\n");
        let fd = std::fs::File::open(dir.path()).unwrap();
        let summary = summarize(std::os::fd::AsFd::as_fd(&fd));
        assert_eq!(summary.branch.as_deref(), Some("topic/x"));
        assert_eq!(summary.commit.as_deref(), Some("abc123"));
        assert_eq!(summary.in_progress.as_deref(), Some("merge"));
        write("HEAD", "ref: ../../../etc/passwd\n");
        assert_eq!(summarize(std::os::fd::AsFd::as_fd(&fd)).commit, None);
    }
}
