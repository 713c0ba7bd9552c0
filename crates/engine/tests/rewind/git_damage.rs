//! Git objects that are changed, made unwritable or damaged: checkpoints are not reached by it, and one bad object does not keep
//! the others from being restored.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use stepback_engine::Workspace;
use stepback_engine::rewind::{RewindReport, RewindRequest};
use stepback_model::record::{Annotation, StepRow, Trigger};

use crate::git::Git;
use crate::support::{TestWorkspace, Words, left_alone, nothing_left_alone};

/// A repository with a pack and loose objects.
fn packed_and_loose(place: &TestWorkspace) -> Git {
    let git = Git::init(&place.root);
    for number in 0..5 {
        place.write("packed", &format!("packed {number}\n").repeat(200));
        git.commit("packed");
    }
    git.run(&["gc", "-q"]);
    for number in 0..5 {
        place.write("loose", &format!("loose {number}\n").repeat(200));
        git.commit("loose");
    }
    git
}

/// The files below `.git/objects` that git never changes.
fn objects(place: &TestWorkspace) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut dirs = vec![place.path(".git/objects")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true if !path.ends_with("info") => dirs.push(path),
                true => {}
                false => found.push(path),
            }
        }
    }
    found.sort();
    found
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn loose_objects(place: &TestWorkspace) -> Vec<PathBuf> {
    objects(place).into_iter().filter(|path| !path.parent().unwrap().ends_with("pack")).collect()
}

fn relative(place: &TestWorkspace, path: &Path) -> String {
    path.strip_prefix(&place.root).unwrap().to_str().unwrap().to_string()
}

fn rewind_with_warnings(workspace: &Workspace, target: &StepRow) -> (RewindReport, Vec<String>) {
    let request = RewindRequest { target: Some(target.clone()), git: true, ..RewindRequest::default() };
    let prepared = workspace.prepare_rewind(&request).unwrap();
    let warnings = prepared.warnings.clone();
    (workspace.apply_rewind(prepared).unwrap(), warnings)
}

/// Does something to every object, and expects all of them back.
fn attacked_and_back(attack: impl Fn(&Path)) {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = packed_and_loose(&place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let (picture, copy) = (git.picture(), objects_of(&place));
    for round in 0..2 {
        objects(&place).iter().for_each(|path| attack(path));
        // What was damaged is saved too before it is replaced.
        nothing_left_alone(&workspace.rewind_with_git(&start));
        assert_eq!(objects_of(&place), copy, "round {round}");
        assert_eq!(git.picture(), picture);
        objects(&place).iter().for_each(|path| attack(path));
        fs::remove_dir_all(place.path(".git")).unwrap();
        nothing_left_alone(&workspace.rewind_with_git(&start));
        assert_eq!(objects_of(&place), copy, "round {round}, after rm -rf .git");
        assert_eq!(git.picture(), picture);
    }
    assert_eq!(engine.verify_objects().unwrap().problems, [] as [&str; 0]);
}

/// Mode and content of every object.
fn objects_of(place: &TestWorkspace) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let read = |path: PathBuf| {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
        let bytes = fs::read(&path).unwrap();
        (path, mode, bytes)
    };
    objects(place).into_iter().map(read).collect()
}

#[test]
fn a_mode_change_reaches_no_kept_object() {
    for mode in [0o644, 0o600, 0o777, 0o400] {
        attacked_and_back(|path| chmod(path, mode));
    }
}

#[test]
fn a_write_in_place_reaches_no_kept_object() {
    attacked_and_back(|path| {
        chmod(path, 0o644);
        let mut bytes = fs::read(path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        // As long as before, into the same inode.
        fs::write(path, bytes).unwrap();
    });
}

#[test]
fn a_truncation_reaches_no_kept_object() {
    // What a power loss does to loose objects, which git does not sync.
    attacked_and_back(|path| {
        chmod(path, 0o644);
        fs::write(path, b"").unwrap();
    });
}

#[test]
fn a_checkpoint_leaves_the_inodes_of_git_alone() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    packed_and_loose(&place);
    let stats = || -> Vec<_> {
        let stat = |path: &PathBuf| fs::metadata(path).unwrap();
        objects(&place).iter().map(stat).map(|stat| (stat.nlink(), stat.ctime_nsec(), stat.ino())).collect()
    };
    let before = stats();
    engine.open_workspace_root(&place.root).unwrap().checkpoint("start");
    assert_eq!(stats(), before);
}

#[test]
fn a_damaged_object_is_reported_at_the_checkpoint_and_everything_else_is_restored() {
    for damage in [&b""[..], b"garbage", b"\x78\x01"] {
        let place = TestWorkspace::new();
        let engine = place.engine();
        let git = packed_and_loose(&place);
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let bad = loose_objects(&place)[0].clone();
        let name = relative(&place, &bad);
        chmod(&bad, 0o644);
        fs::write(&bad, damage).unwrap();
        let create = || workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
        let created = create();
        let told: Vec<String> = created.skipped_paths.iter().map(|left| left.path.to_string()).collect();
        assert_eq!(told, [name.as_str()]);
        assert_eq!(create().skipped_paths.len(), 1, "every checkpoint says so");
        let copy = objects_of(&place);
        let head = git.run(&["rev-parse", "HEAD"]);
        fs::remove_dir_all(place.path(".git")).unwrap();
        let (report, warnings) = rewind_with_warnings(&workspace, &created.stored);
        nothing_left_alone(&report);
        assert!(warnings.iter().any(|warning| warning.contains(&name)), "{warnings:?}");
        assert_eq!(objects_of(&place), copy);
        assert_eq!(git.run(&["rev-parse", "HEAD"]), head);
    }
}

#[test]
fn a_damaged_pack_is_reported_and_everything_else_is_restored() {
    for cut in [false, true] {
        let place = TestWorkspace::new();
        let engine = place.engine();
        let git = packed_and_loose(&place);
        let pack =
            objects(&place).into_iter().find(|path| path.extension().is_some_and(|e| e == "pack")).unwrap();
        let mut bytes = fs::read(&pack).unwrap();
        match cut {
            true => bytes.truncate(bytes.len() / 2),
            false => bytes[100] ^= 1,
        }
        chmod(&pack, 0o644);
        fs::write(&pack, &bytes).unwrap();
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let created = workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
        let name = relative(&place, &pack);
        assert!(
            created.skipped_paths.iter().any(|left| left.path.to_string() == name),
            "{:?}",
            created.skipped_paths
        );
        let (copy, files) = (objects_of(&place), place.read("packed"));
        let head = git.run(&["rev-parse", "HEAD"]);
        fs::remove_dir_all(place.path(".git")).unwrap();
        fs::remove_file(place.path("packed")).unwrap();
        let (report, warnings) = rewind_with_warnings(&workspace, &created.stored);
        nothing_left_alone(&report);
        assert!(warnings.iter().any(|warning| warning.contains(&name)), "{warnings:?}");
        assert_eq!(objects_of(&place), copy);
        assert_eq!((git.run(&["rev-parse", "HEAD"]), place.read("packed")), (head, files));
    }
}

#[test]
fn an_object_that_was_damaged_does_not_replace_an_intact_one() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = packed_and_loose(&place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let object = loose_objects(&place)[0].clone();
    let intact = fs::read(&object).unwrap();
    chmod(&object, 0o644);
    fs::write(&object, b"bad").unwrap();
    let damaged = workspace.checkpoint("damaged");
    fs::write(&object, &intact).unwrap();
    place.write("loose", "more\n");
    git.commit("more");
    let (report, warnings) = rewind_with_warnings(&workspace, &damaged);
    nothing_left_alone(&report);
    assert!(
        warnings.iter().any(|warning| warning.contains("was damaged") && warning.contains("not restored")),
        "{warnings:?}"
    );
    assert_eq!(fs::read(&object).unwrap(), intact);
    git.run(&["fsck", "--strict"]);
}

#[test]
fn a_git_file_that_the_store_lost_is_named_and_the_rest_is_restored() {
    for missing in [false, true] {
        let place = TestWorkspace::new();
        let engine = place.engine();
        let git = packed_and_loose(&place);
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let start = workspace.checkpoint("start");
        let head = git.run(&["rev-parse", "HEAD"]);
        let kept = fs::read_dir(place.top().join("store/vault")).unwrap().map(|entry| entry.unwrap().path());
        let kept: Vec<PathBuf> = kept.filter(|path| path.extension().is_some_and(|e| e == "rev")).collect();
        for path in &kept {
            fs::remove_file(path).unwrap();
            if !missing {
                fs::write(path, b"bad").unwrap();
            }
        }
        assert!(!kept.is_empty());
        fs::remove_dir_all(place.path(".git")).unwrap();
        let report = workspace.rewind_with_git(&start);
        let named: Vec<String> = left_alone(&report).into_iter().map(|(path, _)| path).collect();
        let expected = kept.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
        let expected: Vec<String> = expected.map(|name| format!(".git/objects/pack/{name}")).collect();
        assert_eq!(named, expected);
        assert_eq!(git.run(&["rev-parse", "HEAD"]), head);
        git.run(&["fsck", "--strict"]);
    }
}
