//! The commits of lines that are older than the recording, compared with what `git blame` says of the same history.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use stepback_engine::Workspace;
use stepback_model::path::RelPath;
use stepback_model::record::{Annotation, Trigger};
use stepback_provenance::{Blame, BlameRequest, CommitRule, WalkEnd, WalkLimits, add_commits, blame};
use stepback_testkit::TestWorkspace;

/// A workspace that is a git repository.
struct Place {
    place: TestWorkspace,
    workspace: Workspace,
}

impl Place {
    fn new() -> Self {
        let place = TestWorkspace::in_memory();
        let workspace = place.engine().open_workspace_root(&place.root).unwrap();
        Self { place, workspace }
    }

    fn with_repository() -> Self {
        let place = Self::new();
        place.git(&["init", "-q", "-b", "main"]);
        place
    }

    fn git(&self, arguments: &[&str]) -> String {
        git(&self.place.root, arguments)
    }

    fn commit(&self, subject: &str) -> String {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", subject]);
        self.git(&["rev-parse", "HEAD"]).trim().to_owned()
    }

    fn checkpoint(&self) {
        self.workspace.create_checkpoint(Annotation::default(), Trigger::Manual).unwrap();
    }

    fn blame_within(&self, path: &str, limits: WalkLimits) -> Blame {
        let path = RelPath::parse(path.as_bytes()).unwrap();
        let request = BlameRequest { path, at: None, lines: None };
        let mut found = blame::blame(&self.workspace, &request).unwrap();
        add_commits(&self.workspace, &mut found, limits).unwrap();
        found
    }

    fn blame(&self, path: &str) -> Blame {
        self.blame_within(path, WalkLimits { patience: Duration::from_secs(600), ..WalkLimits::default() })
    }

    /// The commit of each line.
    fn commits(&self, path: &str) -> Vec<Option<String>> {
        let blame = self.blame(path);
        let commit =
            |origin: usize| blame.origins[origin].commit.as_ref().map(|commit| commit.oid.to_string());
        blame.lines.iter().map(|line| commit(line.origin)).collect()
    }

    /// The commit of each line as git says.
    fn commits_by_git(&self, path: &str) -> Vec<Option<String>> {
        let text = self.git(&["blame", "--porcelain", "HEAD", "--", path]);
        let is_header = |line: &&str| {
            let first = line.split(' ').next().unwrap_or_default();
            first.len() == 40 && first.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        text.lines().filter(is_header).map(|line| Some(line[..40].to_owned())).collect()
    }

    fn rule(&self, path: &str) -> CommitRule {
        let blame = self.blame(path);
        assert!(blame.origins.iter().all(|origin| origin.commit.is_none()), "{:?}", blame.origins);
        blame.origins[0].commit_rule.clone().unwrap()
    }
}

fn git(dir: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(dir)
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .envs([("GIT_AUTHOR_NAME", "Ann"), ("GIT_AUTHOR_EMAIL", "ann@example.org")])
        .envs([("GIT_COMMITTER_NAME", "Bob"), ("GIT_COMMITTER_EMAIL", "bob@example.org")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A text of numbered lines, with some replaced.
fn numbered(count: usize, replaced: &[(usize, &str)]) -> String {
    let line = |number: usize| {
        let text = replaced.iter().find(|(index, _)| *index == number).map(|(_, text)| *text);
        text.map_or_else(|| format!("the line with the number {number}\n"), |text| format!("{text}\n"))
    };
    (0..count).map(line).collect()
}

#[test]
fn lines_older_than_the_recording_have_the_commit_that_git_names() {
    let place = Place::with_repository();
    place.place.write("src/code", &numbered(40, &[]));
    place.place.write("other", "x\n");
    let first = place.commit("first");
    place.place.write("src/code", &numbered(40, &[(3, "three, changed"), (30, "thirty, changed")]));
    place.commit("second");
    // Two branches change different lines, one of them after a rename.
    place.git(&["checkout", "-q", "-b", "side"]);
    place.git(&["mv", "src/code", "moved"]);
    place
        .place
        .write("moved", &numbered(40, &[(3, "three, changed"), (30, "thirty, changed"), (20, "by side")]));
    place.commit("on the side");
    place.git(&["checkout", "-q", "main"]);
    place.place.write("src/code", &numbered(40, &[(3, "three, changed"), (30, "thirty again"), (5, "five")]));
    place.commit("third");
    place.git(&["merge", "-q", "--no-edit", "side"]);
    place.git(&["gc", "-q"]);
    let committed = fs::read_to_string(place.place.root.join("moved")).unwrap();
    place.place.write("moved", &format!("{committed}not committed\n"));
    place.checkpoint();
    let by_git = place.commits_by_git("moved");
    assert_eq!(by_git.len(), 40);
    let ours = place.commits("moved");
    assert_eq!(ours[..40], by_git);
    assert_eq!(ours[40], None);
    assert!(by_git.iter().flatten().collect::<std::collections::HashSet<_>>().len() >= 4);
    // What is said about one.
    let blame = place.blame("moved");
    let origin = &blame.origins[blame.lines[0].origin];
    let commit = origin.commit.as_ref().unwrap();
    assert_eq!(commit.oid.to_string(), first);
    assert_eq!((commit.author.as_str(), commit.email.as_str()), ("Ann", "ann@example.org"));
    assert_eq!((commit.subject.as_str(), commit.path.as_str()), ("first", "src/code"));
    assert_eq!((origin.commit_rule.clone(), commit.or_older), (Some(CommitRule::RecordedHead(1)), None));
    let last = &blame.origins[blame.lines[40].origin];
    assert_eq!(last.commit_rule, Some(CommitRule::NotCommitted));
}

#[test]
fn the_commit_of_the_recorded_state_is_searched_not_the_present_one() {
    let place = Place::with_repository();
    place.place.write("code", "one\ntwo\n");
    let first = place.commit("first");
    place.checkpoint();
    // Another history, in which another commit has the same lines.
    place.git(&["checkout", "-q", "--orphan", "other"]);
    let other = place.commit("the same again");
    assert_ne!(first, other);
    assert_eq!(place.commits("code"), vec![Some(first.clone()); 2]);
    // When it is gone, the present one is better than none.
    fs::remove_dir_all(place.place.root.join(".git")).unwrap();
    place.git(&["init", "-q"]);
    let present = place.commit("a new repository");
    assert_eq!(place.commits("code"), vec![Some(present); 2]);
    assert_eq!(place.blame("code").origins[0].commit_rule, Some(CommitRule::PresentHead));
}

#[test]
fn a_pull_names_the_commits_that_it_brought() {
    let place = Place::with_repository();
    place.place.write("code", "one\n");
    let first = place.commit("first");
    place.checkpoint();
    place.place.write("code", "one\ntwo\n");
    let second = place.commit("by a colleague");
    place.checkpoint();
    place.place.write("code", "one\ntwo\nby me\n");
    place.checkpoint();
    assert_eq!(place.commits("code"), [Some(first), Some(second), None]);
}

#[test]
fn a_repository_that_cannot_be_searched_only_leaves_the_commit_out() {
    let place = Place::new();
    place.place.write("code", "one\n");
    place.checkpoint();
    assert_eq!(place.rule("code"), CommitRule::NoRepository);
    let place = Place::with_repository();
    place.place.write("code", "one\n");
    place.checkpoint();
    assert_eq!(place.rule("code"), CommitRule::NoCommits);
    let place = Place::new();
    place.git(&["init", "-q", "--object-format=sha256"]);
    place.place.write("code", "one\n");
    place.commit("first");
    place.checkpoint();
    assert!(matches!(place.rule("code"), CommitRule::Unreadable(reason) if reason.contains("SHA-256")));
    // A file that was never committed.
    let place = Place::with_repository();
    place.commit("empty");
    place.place.write("code", "one\n");
    place.checkpoint();
    assert_eq!(place.rule("code"), CommitRule::NotCommitted);
    // Damaged objects.
    let place = Place::with_repository();
    place.place.write("code", "one\n");
    place.commit("first");
    place.checkpoint();
    for entry in fs::read_dir(place.place.root.join(".git/objects")).unwrap().flatten() {
        for object in fs::read_dir(entry.path()).unwrap().flatten() {
            fs::remove_file(object.path()).unwrap();
            fs::write(object.path(), "nonsense").unwrap();
        }
    }
    assert!(matches!(place.rule("code"), CommitRule::Unreadable(_)));
}

#[test]
fn a_pipe_in_a_repository_is_not_waited_for() {
    for file in
        ["packed-refs", "HEAD", "objects/info/alternates", "objects/pack/pack-x.idx", "config", "shallow"]
    {
        let place = Place::with_repository();
        place.place.write("code", "one\n");
        place.commit("first");
        place.checkpoint();
        let path = place.place.root.join(".git").join(file);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        // Whatever it says, it says it.
        place.blame("code");
    }
}

#[test]
fn a_shallow_clone_and_a_limit_say_that_a_line_may_be_older() {
    let origin = Place::with_repository();
    for number in 0..5 {
        origin.place.write("code", &numbered(3 + number, &[]));
        origin.commit(&format!("commit {number}"));
    }
    let place = Place::new();
    let url = format!("file://{}", origin.place.root.display());
    place.git(&["init", "-q"]);
    place.git(&["fetch", "-q", "--depth", "2", &url, "main"]);
    place.git(&["checkout", "-q", "-b", "main", "FETCH_HEAD"]);
    place.checkpoint();
    let blame = place.blame("code");
    let ends: Vec<_> =
        blame.lines.iter().map(|line| blame.origins[line.origin].commit.as_ref().unwrap().or_older).collect();
    let shallow = Some(WalkEnd::Shallow);
    assert_eq!(ends, [shallow, shallow, shallow, shallow, shallow, shallow, None]);
    let limits = WalkLimits { commits: 2, patience: Duration::from_secs(600) };
    origin.checkpoint();
    let blame = origin.blame_within("code", limits);
    let commit = blame.origins[blame.lines[0].origin].commit.as_ref().unwrap();
    assert_eq!(commit.or_older, Some(WalkEnd::Commits));
}

#[test]
fn linked_work_trees_and_rebases_are_honoured() {
    let place = Place::with_repository();
    place.place.write("code", "one\n");
    let first = place.commit("first");
    place.place.write("code", "one\ntwo\n");
    let second = place.commit("second");
    // In the middle of a rebase, HEAD is detached at another commit.
    place.git(&["checkout", "-q", "-b", "topic", &first]);
    place.place.write("code", "one\nby topic\n");
    place.commit("topic");
    let rebase = Command::new("git")
        .arg("-C")
        .arg(&place.place.root)
        .args(["-c", "user.name=a", "-c", "user.email=a@b", "rebase", "-q", "main"])
        .output()
        .unwrap();
    assert!(!rebase.status.success());
    place.checkpoint();
    let commits = place.commits("code");
    assert_eq!((&commits[0], &commits[2]), (&Some(first.clone()), &Some(second.clone())));
    assert_eq!(commits[1], None, "a conflict marker is in no commit");
    // A linked work tree has its own HEAD; its objects are elsewhere.
    let main = Place::with_repository();
    main.place.write("code", "one\n");
    let commit = main.commit("first");
    let linked = Place::new();
    fs::remove_dir_all(&linked.place.root).unwrap();
    main.git(&["worktree", "add", "-q", "--detach", linked.place.root.to_str().unwrap()]);
    linked.checkpoint();
    assert_eq!(linked.commits("code"), [Some(commit)]);
}

#[test]
fn a_workspace_inside_a_repository_finds_it() {
    let outer = tempfile::tempdir().unwrap();
    let root = outer.path().canonicalize().unwrap();
    git(&root, &["init", "-q"]);
    let place = Place::new();
    fs::create_dir(root.join("sub")).unwrap();
    fs::write(root.join("sub/code"), "one\n").unwrap();
    git(&root, &["add", "-A"]);
    git(&root, &["commit", "-q", "-m", "first"]);
    let workspace = place.place.engine().open_workspace_root(&root.join("sub")).unwrap();
    let inside = Place { place: place.place, workspace };
    inside.checkpoint();
    assert_eq!(inside.commits("code"), [Some(git(&root, &["rev-parse", "HEAD"]).trim().to_owned())]);
}

#[test]
fn nothing_that_a_repository_configures_is_run() {
    let place = Place::with_repository();
    place.place.write("code", "one\n");
    place.place.write(".gitattributes", "* filter=evil diff=evil\n");
    place.commit("first");
    let trap = place.place.root.join("ran");
    let run = format!("touch {}", trap.display());
    for (name, value) in [
        ("core.fsmonitor", run.as_str()),
        ("core.hooksPath", "hooks"),
        ("filter.evil.clean", &run),
        ("filter.evil.smudge", &run),
        ("diff.evil.textconv", &run),
        ("diff.external", &run),
        ("core.sshCommand", &run),
        ("core.pager", &run),
    ] {
        place.git(&["config", name, value]);
    }
    place.checkpoint();
    assert!(place.commits("code")[0].is_some());
    assert!(!trap.exists());
}
