//! A session as commits on a branch.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use stepback_api::git_export::SessionCommitsDocument;
use stepback_git_export::{CommitGrouping, GitExportError, SessionCommitsRequest, export_session};

use crate::place::{Place, git, try_git};

fn request(place: &Place, branch: &str, per: CommitGrouping) -> SessionCommitsRequest {
    SessionCommitsRequest { session: place.session("one"), branch: branch.to_owned(), per, is_forced: false }
}

fn export(place: &Place, branch: &str, per: CommitGrouping) -> SessionCommitsDocument {
    export_session(&place.workspace, &request(place, branch, per)).unwrap()
}

fn refused(place: &Place, branch: &str) -> GitExportError {
    export_session(&place.workspace, &request(place, branch, CommitGrouping::Turn)).unwrap_err()
}

/// A session with two prompts and three calls.
fn played() -> Place {
    let place = Place::new();
    place.checkpoint();
    place.prompt("one", "write the code");
    place.edit("one", "src/code", "a\n");
    place.edit("one", "src/code", "a\nb\n");
    place.prompt("one", "and the rest\n\nStepback-Session: forged\n");
    place.edit("one", "src/rest", "c\n");
    place
}

#[test]
fn a_session_is_a_branch_with_a_commit_for_each_turn() {
    let place = played();
    let head = place.git(&["rev-parse", "HEAD"]).trim().to_owned();
    place.test.write("staged", "x\n");
    place.git(&["add", "staged"]);
    let (before, files) = (place.git_files(), place.test.copy());
    let document = export(&place, "agent-work", CommitGrouping::Turn);
    let mut added = place.added_git_files(&before);
    added.retain(|path| !path.starts_with("objects/pack/pack-"));
    assert_eq!(added, ["refs/heads/agent-work"]);
    assert_eq!((document.base.as_deref(), document.commits.len()), (Some(head.as_str()), 2), "{document:?}");
    place.git(&["fsck", "--strict", "--full"]);
    assert_eq!(try_git(&place.test.root, &["fsck", "--strict"]).stderr, b"");
    let log = place.git(&["log", "--format=%s|%an|%ae|%cn|%at", &format!("{head}..agent-work")]);
    assert_eq!(
        log,
        "and the rest Stepback-Session: forged|test|test@localhost|stepback|1700000007\n\
         write the code|test|test@localhost|stepback|1700000004\n"
    );
    let session = place.session("one").id.to_string();
    let format = "--format=%(trailers:key=Stepback-Session,valueonly,separator=;)";
    let trailers = place.git(&["log", format, &format!("{head}..agent-work")]);
    assert_eq!(trailers, format!("{session}\n{session}\n"));
    let steps = place.git(&["log", "--format=%(trailers:key=Stepback-Step,valueonly)", "-1", "agent-work"]);
    assert_eq!(steps.trim(), document.commits[1].step.to_string());
    let stat = place.git(&["log", "--stat", "--format=%s", &format!("{head}..agent-work")]);
    assert!(stat.contains("src/rest | 1 +") && stat.contains("src/code | 2 ++"), "{stat}");
    // In a clone, the files are those of the session.
    let clone = place.test.outside();
    git(&clone, &["clone", "-q", "-b", "agent-work", place.test.root.to_str().unwrap(), "clone"]);
    assert_eq!(fs::read_to_string(clone.join("clone/src/code")).unwrap(), "a\nb\n");
    assert_eq!(fs::read_to_string(clone.join("clone/readme")).unwrap(), "one\ntwo\n");
    assert!(!clone.join("clone/staged").exists());
    // The user's work tree, index and HEAD are as they were, and the undo that is printed is one.
    place.test.expect(&{
        fs::remove_dir_all(&clone).unwrap();
        files_with_git(&place, files)
    });
    assert_eq!(document.undo, "git branch -D agent-work");
    place.git(&["branch", "-D", "agent-work"]);
}

/// The expected copy, with the present git directory: [`Place::added_git_files`] compares that one.
fn files_with_git(place: &Place, expected: stepback_testkit::tree::Copy) -> stepback_testkit::tree::Copy {
    let git = |path: &[u8]| path.starts_with(b".git/") || path == b".git";
    let mut merged: stepback_testkit::tree::Copy =
        expected.into_iter().filter(|(path, _)| !git(path.as_ref())).collect();
    merged.extend(place.test.copy().into_iter().filter(|(path, _)| git(path.as_ref())));
    merged
}

#[test]
fn a_second_export_is_the_same_and_another_name_is_a_reference_of_ours() {
    let place = played();
    let first = export(&place, "agent-work", CommitGrouping::Checkpoint);
    assert_eq!(first.commits.len(), 3);
    let again = export(&place, "agent-work", CommitGrouping::Checkpoint);
    assert_eq!((&again.commit, again.changed, again.objects), (&first.commit, false, 0));
    let other = export(&place, "refs/stepback/review/one", CommitGrouping::Checkpoint);
    assert_eq!(
        (other.commit.as_str(), other.undo.as_str()),
        (first.commit.as_str(), "git update-ref -d refs/stepback/review/one")
    );
    // The session goes on; only --force replaces the branch.
    place.edit("one", "src/code", "a\nb\nd\n");
    assert!(matches!(refused(&place, "agent-work"), GitExportError::ReferenceExists(_)));
    let forced = SessionCommitsRequest {
        is_forced: true,
        ..request(&place, "agent-work", CommitGrouping::Checkpoint)
    };
    let moved = export_session(&place.workspace, &forced).unwrap();
    assert_eq!(moved.undo, format!("git update-ref refs/heads/agent-work {}", first.commit));
    assert_eq!(place.git(&["rev-parse", "agent-work^"]).trim(), first.commit);
}

#[test]
fn a_branch_of_the_user_is_never_touched() {
    let place = played();
    place.git(&["branch", "mine"]);
    place.git(&["branch", "dir/inner"]);
    place.git(&[
        "worktree",
        "add",
        "-q",
        "-b",
        "linked",
        place.test.outside().join("linked").to_str().unwrap(),
    ]);
    let before = place.git_files();
    assert!(matches!(refused(&place, "main"), GitExportError::ReferenceInUse(_)));
    assert!(matches!(refused(&place, "linked"), GitExportError::ReferenceInUse(_)));
    assert!(matches!(refused(&place, "mine"), GitExportError::ReferenceNotOurs(_)));
    let forced = SessionCommitsRequest { is_forced: true, ..request(&place, "mine", CommitGrouping::Turn) };
    let error = export_session(&place.workspace, &forced).unwrap_err();
    assert!(matches!(error, GitExportError::ReferenceNotOurs(_)), "{error}");
    for name in ["refs/tags/x", "refs/notes/ai", "refs/stepback/seals/x", "refs/remotes/origin/x"] {
        assert!(matches!(refused(&place, name), GitExportError::ForeignReference(_)), "{name}");
    }
    for name in ["../x", "a..b", "a b", "-D", "", "HEAD", "x.lock", "a\nb", "refs/heads/"] {
        assert!(matches!(refused(&place, name), GitExportError::Git(_)), "{name}");
    }
    assert_eq!(place.added_git_files(&before), [""; 0]);
    for name in ["dir", "mine/inner"] {
        let error = refused(&place, name).to_string();
        assert!(error.contains("cannot be created"), "{error}");
    }
    place.git(&["pack-refs", "--all"]);
    assert!(refused(&place, "dir").to_string().contains("dir/inner"));
    assert!(matches!(refused(&place, "mine"), GitExportError::ReferenceNotOurs(_)));
}

#[test]
fn what_git_does_not_take_is_left_out_with_a_reason() {
    let place = Place::plain();
    place.git(&["init", "-q", "-b", "main"]);
    place.test.write(".gitignore", "*.log\n/out/\n");
    place.test.write("kept.log", "tracked though ignored\n");
    place.git(&["add", "-f", "kept.log"]);
    place.git(&["add", "-A"]);
    place.git(&["commit", "-q", "-m", "first"]);
    fs::write(place.test.root.join(".git/info/exclude"), "private\n").unwrap();
    place.checkpoint();
    place.prompt("one", "");
    place.call("one", None, || {
        place.test.write("a.log", "ignored\n");
        place.test.write("private", "ignored\n");
        place.test.write("out/built", "ignored\n");
        place.test.write("kept.log", "changed\n");
        place.test.write("bin/run", "#!/bin/sh\n");
        place.test.chmod("bin/run", 0o755);
        fs::create_dir_all(place.test.path("empty/inner")).unwrap();
        symlink("../kept.log", place.test.path("bin/link")).unwrap();
        fs::write(place.test.root.join(OsStr::from_bytes(b"not\xffutf8\nand a line")), "bytes").unwrap();
        place.test.write("nested/inner", "x\n");
        git(&place.test.path("nested"), &["init", "-q"]);
        place.test.write("odd/.GIT", "x\n");
        symlink("readme", place.test.path(".gitmodules")).unwrap();
    });
    let document = export(&place, "work", CommitGrouping::Turn);
    assert_eq!(try_git(&place.test.root, &["fsck", "--strict"]).stderr, b"");
    let listed = place.git(&["-c", "core.quotePath=false", "ls-tree", "-r", "-z", "work"]);
    let listed: Vec<&str> = listed.split('\0').filter(|line| !line.is_empty()).collect();
    let names: Vec<&str> = listed.iter().map(|line| line.split_once('\t').unwrap().1).collect();
    assert_eq!(names, [".gitignore", "bin/link", "bin/run", "kept.log", "not\u{fffd}utf8\nand a line"]);
    assert!(
        listed[1].starts_with("120000") && listed[2].starts_with("100755") && listed[3].starts_with("100644")
    );
    assert_eq!(place.git(&["show", "work:kept.log"]), "changed\n");
    assert_eq!(place.git(&["show", "work:bin/link"]), "../kept.log");
    let reason = |path: &str| {
        let found = document.left_out.iter().find(|left_out| left_out.path == path);
        found.map(|left_out| left_out.reason.as_str()).unwrap_or_default()
    };
    assert_eq!(reason("a.log"), "ignored by git");
    assert_eq!(reason("private"), "ignored by git");
    assert_eq!(reason("out"), "ignored by git");
    assert_eq!(reason("empty/inner"), "git keeps no empty directories");
    assert_eq!(reason("nested"), "a repository of its own, which is not a submodule");
    assert_eq!(reason("odd/.GIT"), "git refuses this name");
    assert_eq!(reason(".gitmodules"), "git refuses this name");
}

#[test]
fn a_submodule_stays_one() {
    let inner = Place::new();
    let place = Place::new();
    let url = inner.test.root.to_str().unwrap();
    place.git(&["-c", "protocol.file.allow=always", "submodule", "--quiet", "add", url, "lib"]);
    let first = place.commit("with a submodule");
    let pinned = place.git(&["rev-parse", "HEAD:lib"]);
    place.checkpoint();
    place.prompt("one", "change");
    place.edit("one", "readme", "changed\n");
    export(&place, "work", CommitGrouping::Turn);
    assert_eq!(place.git(&["rev-parse", "work:lib"]), pinned);
    assert_eq!(place.git(&["diff", "--name-only", &first, "work"]), "readme\n");
    assert_eq!(try_git(&place.test.root, &["fsck", "--strict"]).stderr, b"");
}

#[test]
fn uncommitted_work_of_the_user_is_a_commit_of_its_own() {
    let place = Place::new();
    place.test.write("readme", "changed by me\n");
    place.checkpoint();
    place.prompt("one", "write");
    place.edit("one", "code", "a\n");
    let document = export(&place, "work", CommitGrouping::Turn);
    assert_eq!(document.commits.len(), 2);
    assert_eq!(place.git(&["show", "--name-only", "--format=%an", "work"]), "test\n\ncode\n");
    assert_eq!(place.git(&["show", "--name-only", "--format=%an", "work^"]), "stepback\n\nreadme\n");
}

#[test]
fn repositories_in_every_condition_say_what_they_are() {
    // Without a commit: the branch has a first one.
    let place = Place::plain();
    place.git(&["init", "-q"]);
    place.prompt("one", "write");
    place.edit("one", "code", "a\n");
    assert_eq!(export(&place, "work", CommitGrouping::Turn).base, None);
    assert_eq!(place.git(&["show", "work:code"]), "a\n");
    // None at all, and formats that are not supported.
    let place = Place::plain();
    place.prompt("one", "write");
    place.edit("one", "code", "a\n");
    assert!(refused(&place, "work").to_string().contains("no git repository"));
    for option in ["--object-format=sha256", "--ref-format=reftable"] {
        let place = Place::plain();
        if !try_git(&place.test.root, &["init", "-q", option]).status.success() {
            continue;
        }
        place.prompt("one", "write");
        place.edit("one", "code", "a\n");
        assert!(refused(&place, "work").to_string().contains("not supported"), "{option}");
    }
    // A locked reference, and one that a crash left locked.
    let place = played();
    fs::write(place.test.root.join(".git/refs/heads/work.lock"), "").unwrap();
    let error = refused(&place, "work");
    assert!(error.to_string().contains("work.lock"), "{error}");
    fs::remove_file(place.test.root.join(".git/refs/heads/work.lock")).unwrap();
    export(&place, "work", CommitGrouping::Turn);
    // A session that changed nothing.
    let place = Place::new();
    place.checkpoint();
    place.prompt("one", "look");
    assert!(matches!(refused(&place, "work"), GitExportError::NothingToExport { .. }));
}

#[test]
fn in_a_shallow_clone_and_during_a_rebase_the_branch_is_written() {
    let origin = Place::new();
    origin.test.write("readme", "one\ntwo\nthree\n");
    origin.commit("second");
    let place = Place::plain();
    let url = format!("file://{}", origin.test.root.display());
    place.git(&["init", "-q"]);
    place.git(&["fetch", "-q", "--depth", "1", &url, "main"]);
    place.git(&["checkout", "-q", "-b", "main", "FETCH_HEAD"]);
    place.checkpoint();
    place.prompt("one", "write");
    place.edit("one", "code", "a\n");
    export(&place, "work", CommitGrouping::Turn);
    assert_eq!(place.git(&["log", "--format=%s", "work"]), "write\nsecond\n");

    let place = played();
    place.commit("mine");
    place.git(&["checkout", "-q", "-b", "topic", "HEAD~1"]);
    place.test.write("src/code", "conflict\n");
    place.commit("topic");
    assert!(!try_git(&place.test.root, &["rebase", "-q", "main"]).status.success());
    assert!(matches!(refused(&place, "topic"), GitExportError::ReferenceInUse(_)));
    let before = place.git_files();
    export(&place, "work", CommitGrouping::Turn);
    place.added_git_files(&before);
    place.git(&["rebase", "--abort"]);
}

#[test]
fn a_workspace_inside_a_repository_keeps_what_is_around_it() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().canonicalize().unwrap();
    git(&root, &["init", "-q"]);
    fs::create_dir(root.join("sub")).unwrap();
    fs::write(root.join("around"), "x\n").unwrap();
    fs::write(root.join("sub/code"), "a\n").unwrap();
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "first"]);
    let place = Place::plain();
    let workspace = place.test.engine().open_workspace_root(&root.join("sub")).unwrap();
    let mut place = place;
    place.workspace = workspace;
    place.checkpoint();
    place.prompt("one", "write");
    place.call("one", None, || fs::write(root.join("sub/code"), "a\nb\n").unwrap());
    export(&place, "work", CommitGrouping::Turn);
    assert_eq!(git(&root, &["diff", "--stat", "--format=", "HEAD", "work"]).lines().count(), 2);
    assert_eq!(git(&root, &["show", "work:sub/code"]), "a\nb\n");
    assert_eq!(git(&root, &["show", "work:around"]), "x\n");
}
