//! What stepback does not store, it does not delete either; and what git ignores is safe.

use std::fs;
use std::process::Command;

use rustix::fs::{FileType, Mode};
use stepback_model::tree::TreeNode;
use stepback_testkit::process;
use stepback_worktree::rules::Budget;

use crate::support::{TestWorkspace, Words, nothing_left_alone, was_left_alone};

#[test]
fn a_directory_that_must_go_stays_as_long_as_it_holds_a_cache() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("app/main.js", "1");
    place.write("app/node_modules/lib/index.js", "lib");
    let report = workspace.rewind(&start);
    was_left_alone(&report, "app");
    assert!(!place.has("app/main.js"));
    assert_eq!(place.read("app/node_modules/lib/index.js"), "lib");
}

#[test]
fn pipes_and_sockets_survive_a_rewind() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    fs::create_dir(place.path("run")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("run/pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(place.path("run/socket")).unwrap();
    place.write("run/file", "1");
    let report = workspace.rewind(&start);
    was_left_alone(&report, "run");
    assert!(place.has("run/pipe") && place.has("run/socket") && !place.has("run/file"));
}

#[test]
fn what_stepbackignore_names_is_neither_deleted_nor_changed() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write(".stepbackignore", "*.secret\nprivate/\n");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("top.secret", "1");
    place.write("dir/deep.secret", "2");
    place.write("dir/open", "3");
    place.write("private/diary", "4");
    let report = workspace.rewind(&start);
    was_left_alone(&report, "dir");
    assert!(!place.has("dir/open"));
    assert_eq!(
        place.read("top.secret") + &place.read("dir/deep.secret") + &place.read("private/diary"),
        "124"
    );
}

#[test]
fn an_excluded_file_named_by_path_is_not_deleted() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write(".stepbackignore", "*.secret\n");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("top.secret", "1");
    // Whether it says that nothing matches or that nothing is to be done: the file stays.
    let _ = workspace.rewind_paths(&start, &["top.secret"]);
    assert_eq!(place.read("top.secret"), "1");
    workspace.checkpoint("seen");
    let _ = workspace.rewind_paths(&start, &["top.secret"]);
    assert_eq!(place.read("top.secret"), "1");
}

#[test]
fn a_deleted_env_file_that_git_ignores_comes_back_with_its_mode() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write(".gitignore", ".env\n");
    place.write(".env", "TOKEN=1\n");
    place.chmod(".env", 0o600);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    fs::remove_file(place.path(".env")).unwrap();
    nothing_left_alone(&workspace.rewind(&start));
    assert_eq!((place.read(".env").as_str(), place.mode(".env")), ("TOKEN=1\n", 0o600));
}

#[test]
fn ignored_files_over_the_budget_are_noted_and_left_alone() {
    let mut place = TestWorkspace::new();
    place.budget = Budget { file: 1000, ..Budget::default() };
    let engine = place.engine();
    place.write(".gitignore", "*.log\n");
    place.write("small.log", "s");
    place.write("large.log", &"l".repeat(2000));
    place.write("large.txt", &"t".repeat(2000));
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    for name in ["small.log", "large.log", "large.txt"] {
        place.write(name, "changed");
    }
    let report = workspace.rewind(&start);
    was_left_alone(&report, "large.log");
    assert_eq!((place.read("small.log").as_str(), place.read("large.log").as_str()), ("s", "changed"));
    assert_eq!(place.read("large.txt").len(), 2000);
}

#[test]
fn ignored_files_that_come_and_go_do_not_use_up_the_budget() {
    let mut place = TestWorkspace::new();
    place.budget = Budget { small_total: 5000, ..Budget::default() };
    let engine = place.engine();
    place.write(".gitignore", "*.log\n.env\n");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    for round in 0..10 {
        let name = format!("{round}.log");
        place.write(&name, &"x".repeat(1000));
        workspace.checkpoint(&name);
        fs::remove_file(place.path(&name)).unwrap();
    }
    workspace.checkpoint("gone");
    place.write(".env", "TOKEN=1\n");
    let safe = workspace.checkpoint("env");
    fs::remove_file(place.path(".env")).unwrap();
    workspace.rewind(&safe);
    assert!(place.has(".env"), "only 8 bytes of ignored files are there, and they were not stored");
}

#[test]
fn files_that_cannot_be_read_are_named_and_not_touched() {
    if process::ran_as_ordinary_user("excluded::files_that_cannot_be_read_are_named_and_not_touched") {
        return;
    }
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("open", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("closed", "2");
    place.write("dir/inside", "3");
    place.chmod("closed", 0o000);
    place.chmod("dir", 0o000);
    let created =
        workspace.create_checkpoint(Default::default(), stepback_model::record::Trigger::Manual).unwrap();
    let troubles: Vec<String> =
        created.skipped_paths.iter().map(|trouble| trouble.path.to_string()).collect();
    workspace.rewind(&start);
    let modes = (place.mode("closed"), place.mode("dir"));
    place.chmod("closed", 0o600);
    place.chmod("dir", 0o700);
    assert_eq!(troubles, ["closed", "dir"]);
    assert_eq!(modes, (0, 0));
    assert_eq!(place.read("closed") + &place.read("dir/inside"), "23");
}

#[test]
fn a_checkpoint_says_what_it_does_not_hold() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("node_modules/x", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let stored = workspace.checkpoint("start");
    let files = workspace.load_state(&stored).unwrap().files.unwrap();
    let path = stepback_model::path::RelPath::parse("node_modules").unwrap();
    struct Source<'a>(&'a dyn stepback_store::Store);
    impl stepback_model::object::ObjectSource for Source<'_> {
        fn read(
            &self,
            kind: stepback_model::ObjectKind,
            hash: stepback_model::hash::Hash,
        ) -> Result<Vec<u8>, stepback_model::object::ObjectError> {
            self.0.read(kind, hash)
        }
    }
    let found = stepback_engine::diff::find_node(&Source(workspace.store()), files, &path).unwrap();
    assert!(matches!(found, Some(TreeNode::Skipped { .. })), "{found:?}");
}

/// Puts a named pipe, a socket or a device where nothing is; `false` if this process may not.
fn make_special(place: &TestWorkspace, path: &str, kind: &str) -> bool {
    let at = place.path(path);
    match kind {
        "pipe" => {
            rustix::fs::mknodat(rustix::fs::CWD, &at, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap()
        }
        "socket" => drop(std::os::unix::net::UnixListener::bind(&at).unwrap()),
        _ => {
            let null = rustix::fs::makedev(1, 3);
            return rustix::fs::mknodat(rustix::fs::CWD, &at, FileType::CharacterDevice, Mode::RUSR, null)
                .is_ok();
        }
    }
    true
}

#[test]
fn a_file_that_became_a_pipe_a_socket_or_a_device_is_listed_as_not_restored() {
    for kind in ["pipe", "socket", "device"] {
        let place = TestWorkspace::in_memory();
        place.write("a.txt", "first\n");
        place.write("dir/b.txt", "first\n");
        place.write("c.txt", "first\n");
        let engine = place.engine();
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let first = workspace.checkpoint("first");
        fs::remove_file(place.path("a.txt")).unwrap();
        fs::remove_dir_all(place.path("dir")).unwrap();
        place.write("c.txt", "second\n");
        if !make_special(&place, "a.txt", kind) || !make_special(&place, "dir", kind) {
            continue;
        }
        for paths in [&["a.txt"] as &[&str], &["a.txt", "dir"], &[]] {
            let report = workspace.rewind_paths(&first, paths).unwrap();
            was_left_alone(&report, "a.txt");
            assert!(report.left_alone.iter().all(|left| left.is_conflict()), "{:?}", report.left_alone);
        }
        assert_eq!(place.read("c.txt"), "first\n");
        let report = workspace.take_back(&[workspace.change_of("a.txt")]);
        was_left_alone(&report, "a.txt");
        assert!(report.left_alone.iter().any(|left| left.is_conflict()), "{:?}", report.left_alone);
    }
}

#[test]
fn a_pipe_that_became_a_file_is_listed_as_not_restored() {
    let place = TestWorkspace::in_memory();
    make_special(&place, "pipe", "pipe");
    make_special(&place, "gone", "socket");
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let first = workspace.checkpoint("first");
    fs::remove_file(place.path("pipe")).unwrap();
    fs::remove_file(place.path("gone")).unwrap();
    place.write("pipe", "a file\n");
    let report = workspace.rewind(&first);
    was_left_alone(&report, "pipe");
    let conflicts: Vec<String> = report
        .left_alone
        .iter()
        .filter(|left| left.is_conflict())
        .map(|left| left.path.to_string())
        .collect();
    assert_eq!(conflicts, ["pipe"], "sockets go with their processes");
    assert_eq!(place.read("pipe"), "a file\n");
}

#[test]
fn what_a_rule_excludes_is_expected_to_stay() {
    let place = TestWorkspace::in_memory();
    place.write("a.txt", "first\n");
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let first = workspace.checkpoint("first");
    place.write(".stepbackignore", "a.txt\n");
    place.write("a.txt", "second\n");
    let report = workspace.rewind(&first);
    was_left_alone(&report, "a.txt");
    assert!(!report.left_alone.iter().any(|left| left.is_conflict()), "{:?}", report.left_alone);
}
