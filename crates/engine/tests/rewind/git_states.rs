//! Git directories in every state that git leaves them in: after a rewind with git, they are exactly as they were, and git
//! goes on from there.

use std::fs;

use stepback_engine::rewind::{RewindReport, RewindRequest};
use stepback_testkit::tree;

use crate::git::Git;
use crate::support::{TestWorkspace, Words, nothing_left_alone};

/// Something that git does, and how it is ended.
struct GitOperation {
    name: &'static str,
    start: fn(&TestWorkspace, &Git),
    /// Ends it as its user would; must work after a rewind into the middle of it.
    end: &'static [&'static [&'static str]],
}

#[track_caller]
fn fails(git: &Git, arguments: &[&str]) {
    let (worked, said) = git.try_run(arguments);
    assert!(!worked, "git {arguments:?} should have stopped: {said}");
}

/// A repository whose branches `main` and `topic` conflict, with a few branches to get in each other's way.
fn divided(place: &TestWorkspace) -> Git {
    let git = Git::init(&place.root);
    place.write("a", "1\n");
    place.write("dir/b", "1\n");
    git.commit("one");
    git.run(&["checkout", "-q", "-b", "topic"]);
    for text in ["topic 1\n", "topic 2\n"] {
        place.write("a", text);
        git.commit(text);
    }
    git.run(&["checkout", "-q", "main"]);
    for text in ["main 1\n", "main 2\n", "main 3\n"] {
        place.write("a", text);
        git.commit(text);
    }
    git.run(&["branch", "x", "HEAD~1"]);
    git.run(&["branch", "deep/er/branch", "HEAD~1"]);
    git.run(&["branch", "tmp_branch", "HEAD~1"]);
    git
}

/// Everything in the git directory but its objects, and but the index, which git itself rewrites when asked for the status.
fn git_dir(place: &TestWorkspace) -> tree::Copy {
    tree::copy_of(&place.path(".git"), |path| path == b"objects" || path == b"index")
}

fn work_tree(place: &TestWorkspace) -> tree::Copy {
    tree::copy_of(&place.root, |path| path == b".git")
}

/// Everything that can be compared: the files of git, those of the user, and what git says.
struct Expected {
    git: tree::Copy,
    files: tree::Copy,
    picture: String,
}

impl Expected {
    fn of(place: &TestWorkspace, git: &Git) -> Self {
        let picture = git.picture() + &git.run(&["status"]);
        Self { git: git_dir(place), files: work_tree(place), picture }
    }

    #[track_caller]
    fn check(&self, place: &TestWorkspace, git: &Git, report: &RewindReport, when: &str) {
        nothing_left_alone(report);
        assert_eq!(tree::differences(&self.git, &git_dir(place)), "", "{when}");
        assert_eq!(tree::differences(&self.files, &work_tree(place)), "", "{when}");
        assert_eq!(git.picture() + &git.run(&["status"]), self.picture, "{when}");
        git.run(&["fsck", "--strict", "--full"]);
    }
}

/// Whether git goes on: a commit, a merge, a rebase.
fn expect_usable(place: &TestWorkspace, git: &Git, when: &str) {
    place.write("new file", when);
    git.commit("goes on");
    git.run(&["checkout", "-q", "-b", "side", "HEAD~1"]);
    place.write("side file", when);
    git.commit("beside");
    git.run(&["rebase", "-q", "main"]);
    git.run(&["checkout", "-q", "main"]);
    git.run(&["merge", "-q", "--no-edit", "side"]);
    git.run(&["fsck", "--strict", "--full"]);
}

fn run_through(operation: &GitOperation) {
    let name = operation.name;
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = divided(&place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let before = workspace.checkpoint("before");
    let was = Expected::of(&place, &git);
    (operation.start)(&place, &git);
    let during = workspace.checkpoint("during");
    let meanwhile = Expected::of(&place, &git);

    let report = workspace.rewind_with_git(&before);
    was.check(&place, &git, &report, &format!("{name}: back to before it"));
    let report = workspace.undo();
    meanwhile.check(&place, &git, &report, &format!("{name}: undone"));
    let report = workspace.redo();
    was.check(&place, &git, &report, &format!("{name}: redone"));
    let report = workspace.rewind_with_git(&during);
    meanwhile.check(&place, &git, &report, &format!("{name}: into it"));
    for step in operation.end {
        git.run(step);
    }
    let report = workspace.rewind_with_git(&during);
    meanwhile.check(&place, &git, &report, &format!("{name}: into it after its end"));
    fs::remove_dir_all(place.path(".git")).unwrap();
    let report = workspace.rewind_with_git(&during);
    meanwhile.check(&place, &git, &report, &format!("{name}: into it after rm -rf .git"));
    let report = workspace.rewind_with_git(&before);
    was.check(&place, &git, &report, &format!("{name}: back once more"));
    expect_usable(&place, &git, name);
    assert_eq!(engine.verify_objects().unwrap().problems, [] as [&str; 0]);
}

/// Each test is one operation that a rewind leaves and enters.
mod rewind_around {
    use super::*;

    #[test]
    fn merge() {
        run_through(&GitOperation {
            name: "merge",
            start: |_, git| fails(git, &["merge", "topic"]),
            end: &[&["merge", "--abort"]],
        });
    }

    #[test]
    fn rebase() {
        run_through(&GitOperation {
            name: "rebase",
            start: |_, git| fails(git, &["rebase", "topic"]),
            end: &[&["rebase", "--abort"]],
        });
    }

    #[test]
    fn rebase_that_applies_patches() {
        run_through(&GitOperation {
            name: "rebase that applies patches",
            start: |_, git| fails(git, &["rebase", "--apply", "topic"]),
            end: &[&["rebase", "--abort"]],
        });
    }

    #[test]
    fn interactive_rebase() {
        run_through(&GitOperation {
            name: "interactive rebase",
            start: |_, git| {
                let edit = "sequence.editor=sed -i s/^pick/edit/";
                git.run(&["-c", edit, "rebase", "-i", "HEAD~2"]);
            },
            end: &[&["rebase", "--abort"]],
        });
    }

    #[test]
    fn rebase_with_a_stash_of_its_own() {
        run_through(&GitOperation {
            name: "rebase with a stash of its own",
            start: |place, git| {
                place.write("dir/b", "not committed\n");
                fails(git, &["rebase", "--autostash", "topic"]);
            },
            end: &[&["rebase", "--abort"], &["checkout", "--", "dir/b"]],
        });
    }

    #[test]
    fn am() {
        run_through(&GitOperation {
            name: "am",
            start: |place, git| {
                let patches = place.outside().join("patches");
                git.run(&["format-patch", "-q", "-o", patches.to_str().unwrap(), "main~2..topic"]);
                let mut arguments = vec!["am".to_string()];
                let mut files: Vec<_> =
                    fs::read_dir(&patches).unwrap().map(|entry| entry.unwrap().path()).collect();
                files.sort();
                arguments.extend(files.iter().map(|file| file.to_str().unwrap().to_string()));
                fails(git, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
            },
            end: &[&["am", "--abort"]],
        });
    }

    #[test]
    fn cherry_pick_of_several() {
        run_through(&GitOperation {
            name: "cherry-pick of several",
            start: |_, git| fails(git, &["cherry-pick", "topic~1", "topic"]),
            end: &[&["cherry-pick", "--abort"]],
        });
    }

    #[test]
    fn revert_of_several() {
        run_through(&GitOperation {
            name: "revert of several",
            start: |_, git| fails(git, &["revert", "--no-edit", "HEAD~1", "HEAD~2"]),
            end: &[&["revert", "--abort"]],
        });
    }

    #[test]
    fn bisect() {
        run_through(&GitOperation {
            name: "bisect",
            start: |_, git| drop(git.run(&["bisect", "start", "HEAD", "HEAD~2"])),
            end: &[&["bisect", "reset"]],
        });
    }

    #[test]
    fn stash() {
        run_through(&GitOperation {
            name: "stash",
            start: |place, git| {
                place.write("a", "stashed\n");
                git.run(&["stash", "push", "-q"]);
            },
            end: &[&["stash", "drop", "-q"]],
        });
    }

    #[test]
    fn detached_head() {
        run_through(&GitOperation {
            name: "detached head",
            start: |_, git| drop(git.run(&["checkout", "-q", "--detach", "HEAD~1"])),
            end: &[&["checkout", "-q", "main"]],
        });
    }

    #[test]
    fn branch_without_a_commit() {
        run_through(&GitOperation {
            name: "branch without a commit",
            start: |_, git| drop(git.run(&["checkout", "-q", "--orphan", "fresh"])),
            end: &[&["checkout", "-q", "-f", "main"]],
        });
    }

    #[test]
    fn branches_below_the_name_of_a_branch() {
        run_through(&GitOperation {
            name: "branches below the name of a branch",
            start: |_, git| {
                git.run(&["branch", "-q", "-D", "x"]);
                git.run(&["branch", "x/y/z"]);
                git.run(&["branch", "x/tmp_w"]);
            },
            end: &[&["branch", "-q", "-D", "x/y/z", "x/tmp_w"], &["branch", "x", "HEAD~1"]],
        });
    }

    #[test]
    fn a_branch_in_place_of_branches_below_its_name() {
        run_through(&GitOperation {
            name: "a branch in place of branches below its name",
            start: |_, git| {
                git.run(&["branch", "-q", "-D", "deep/er/branch"]);
                git.run(&["branch", "deep"]);
            },
            end: &[&["branch", "-q", "-D", "deep"], &["branch", "deep/er/branch", "HEAD~1"]],
        });
    }

    #[test]
    fn packed_refs_and_objects() {
        run_through(&GitOperation {
            name: "packed refs and objects",
            start: |_, git| {
                git.run(&["branch", "-q", "-D", "x"]);
                git.run(&["branch", "x/packed"]);
                git.run(&["pack-refs", "--all"]);
                git.run(&["gc", "-q", "--prune=now"]);
            },
            end: &[&["branch", "-q", "-D", "x/packed"], &["branch", "x", "HEAD~1"]],
        });
    }

    #[test]
    fn a_linked_work_tree() {
        run_through(&GitOperation {
            name: "a linked work tree",
            start: |place, git| {
                let path = place.outside().join("linked");
                git.run(&["worktree", "add", "-q", "-b", "linked", path.to_str().unwrap()]);
            },
            end: &[&["worktree", "remove", "linked"], &["branch", "-q", "-D", "linked"]],
        });
    }

    #[test]
    fn notes_tags_and_remote_branches() {
        run_through(&GitOperation {
            name: "notes, tags and remote branches",
            start: |_, git| {
                git.run(&["notes", "add", "-m", "a note"]);
                git.run(&["tag", "-a", "-m", "a tag", "release/1"]);
                git.run(&["update-ref", "refs/remotes/origin/a/b", "HEAD"]);
            },
            end: &[&["tag", "-d", "release/1"]],
        });
    }
}

#[test]
fn later_objects_stay_and_their_directories_with_them() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = divided(&place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let before = workspace.checkpoint("before");
    place.write("a", "later\n");
    git.commit("later");
    let later = git.run(&["rev-parse", "HEAD"]);
    nothing_left_alone(&workspace.rewind_with_git(&before));
    assert_eq!(git.run(&["log", "-1", "--format=%s", later.trim()]), "later\n");
}

#[test]
fn what_was_created_in_a_directory_since_keeps_it_when_a_rewind_is_undone() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let git = divided(&place);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    workspace.checkpoint("before");
    fails(&git, &["rebase", "topic"]);
    let during = workspace.checkpoint("during");
    git.run(&["rebase", "--abort"]);
    nothing_left_alone(&workspace.rewind_with_git(&during));
    fs::write(place.path(".git/rebase-merge/note"), "by the user\n").unwrap();
    workspace.undo();
    assert_eq!(place.read(".git/rebase-merge/note"), "by the user\n");
    assert!(!place.has(".git/rebase-merge/done"));
}

#[test]
fn a_repository_made_later_stays_and_the_plan_says_why() {
    let place = TestWorkspace::new();
    place.write("file", "1");
    let workspace = place.engine().open_workspace_root(&place.root).unwrap();
    let before = workspace.checkpoint("before");
    Git::init(&place.root).commit("first");
    workspace.checkpoint("with git");
    for everything in [false, true] {
        let rewind = RewindRequest {
            target: Some(before.clone()),
            git: true,
            keep_files: true,
            everything,
            ..RewindRequest::default()
        };
        let prepared = workspace.prepare_rewind(&rewind).unwrap();
        let left = &prepared.plan.left_alone;
        assert_eq!(left.len(), 1, "{left:?}");
        assert_eq!(left[0].reason, "the repository did not exist at that point; it is kept");
        let because = prepared.unchanged_because.unwrap();
        assert_eq!(because, "git directories stay for the reasons listed");
    }
}
