//! Names and depths that break careless programs, and rewinds limited to some paths.

use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;

use stepback_engine::EngineError;
use stepback_testkit::tree::{self, within};

use crate::support::{TestWorkspace, Words, nothing_left_alone};

#[test]
fn a_tree_deeper_than_path_max_is_kept_and_restored() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let name = "d".repeat(100);
    // 300 levels of 101 bytes: several times PATH_MAX, so only one level at a time can be reached.
    let mut dirs = vec![File::open(&place.root).unwrap()];
    for _ in 0..300 {
        let path = within(dirs.last().unwrap(), name.as_bytes());
        fs::create_dir(&path).unwrap();
        dirs.push(File::open(&path).unwrap());
    }
    let bottom = within(dirs.last().unwrap(), b"file");
    fs::write(&bottom, "deep").unwrap();
    fs::write(within(&dirs[150], b"half way"), "half").unwrap();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let copy = place.copy();
    assert!(copy.keys().any(|path| path.len() > 30_000));
    fs::write(&bottom, "edited").unwrap();
    nothing_left_alone(&workspace.rewind(&start));
    place.expect(&copy);
    drop(dirs);
    fs::remove_dir_all(place.path(&name)).unwrap();
    nothing_left_alone(&workspace.rewind(&start));
    place.expect(&copy);
    nothing_left_alone(&workspace.undo());
    assert!(!place.has(&name));
    nothing_left_alone(&workspace.redo());
    place.expect(&copy);
    fs::remove_dir_all(place.path(&name)).unwrap();
}

#[test]
fn a_tree_deeper_than_a_path_can_say_is_written_elsewhere() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let name = "d".repeat(200);
    let mut dirs = vec![File::open(&place.root).unwrap()];
    for _ in 0..40 {
        let path = within(dirs.last().unwrap(), name.as_bytes());
        fs::create_dir(&path).unwrap();
        dirs.push(File::open(&path).unwrap());
    }
    fs::write(within(dirs.last().unwrap(), b"file"), "deep").unwrap();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let into = place.outside().join("copy");
    let written = workspace.materialize(&workspace.load_state(&start).unwrap(), &into, false).unwrap();
    assert_eq!((written.files, written.bytes, written.missing.len()), (1, 4, 0));
}

#[test]
fn names_of_255_bytes_with_newlines_and_without_utf8_survive() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let names: [&[u8]; 7] =
        [&[b'x'; 255], b"new\nline", b"\xff\xfe", b"\x1b[31mred", b" ", b"-rf", "\u{202e}txt".as_bytes()];
    let at = |name: &[u8]| place.root.join(std::ffi::OsStr::from_bytes(name));
    for name in names {
        fs::write(at(name), name).unwrap();
    }
    fs::create_dir(place.path("dir")).unwrap();
    std::os::unix::fs::symlink(std::ffi::OsStr::from_bytes(b"\xff\n"), place.path("dir/link")).unwrap();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let copy = place.copy();
    for name in &names[..4] {
        fs::write(at(name), "edited").unwrap();
    }
    for name in &names[4..] {
        fs::remove_file(at(name)).unwrap();
    }
    fs::remove_dir_all(place.path("dir")).unwrap();
    nothing_left_alone(&workspace.rewind(&start));
    place.expect(&copy);
}

#[test]
fn one_file_comes_back_without_anything_else_changing() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("src/a", "1");
    place.write("src/b", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("src/a", "2");
    place.write("src/b", "2");
    nothing_left_alone(&workspace.rewind_paths(&start, &["src/a"]).unwrap());
    assert_eq!((place.read("src/a").as_str(), place.read("src/b").as_str()), ("1", "2"));
    nothing_left_alone(&workspace.undo());
    assert_eq!((place.read("src/a").as_str(), place.read("src/b").as_str()), ("2", "2"));
}

#[test]
fn one_file_comes_back_together_with_the_directories_it_needs() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("src/deep/main.rs", "1");
    place.write("src/deep/other.rs", "1");
    place.chmod("src", 0o750);
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    fs::remove_dir_all(place.path("src")).unwrap();
    nothing_left_alone(&workspace.rewind_paths(&start, &["src/deep/main.rs"]).unwrap());
    assert_eq!((place.read("src/deep/main.rs").as_str(), place.mode("src")), ("1", 0o750));
    assert!(!place.has("src/deep/other.rs"));
}

#[test]
fn globs_and_directories_limit_a_rewind() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    for path in ["a.rs", "b.txt", "dir/c.rs", "dir/sub/d.rs"] {
        place.write(path, "1");
    }
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    for path in ["a.rs", "b.txt", "dir/c.rs", "dir/sub/d.rs"] {
        place.write(path, "2");
    }
    let state = || ["a.rs", "b.txt", "dir/c.rs", "dir/sub/d.rs"].map(|path| place.read(path)).concat();
    workspace.rewind_paths(&start, &["*.rs"]).unwrap();
    assert_eq!(state(), "1222");
    workspace.rewind_paths(&start, &["./dir/sub/"]).unwrap();
    assert_eq!(state(), "1221");
    workspace.rewind_paths(&start, &["**/c.rs", "b.txt"]).unwrap();
    assert_eq!(state(), "1111");
}

#[test]
fn a_path_that_names_nothing_or_leads_out_is_refused() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("a", "1");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    place.write("a", "2");
    for path in ["nope", "../a", "/etc/passwd", "a/../../b", "[", "no/such/dir"] {
        let refused = workspace.rewind_paths(&start, &[path]);
        assert!(
            matches!(refused, Err(EngineError::Pattern(_) | EngineError::NothingMatches { .. })),
            "{path}: {refused:?}"
        );
    }
    assert_eq!(place.read("a"), "2");
}

#[test]
fn a_file_and_a_directory_trade_places_and_back() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    place.write("x", "file");
    place.write("y/inside", "dir");
    place.write("y.txt", "sorts between y and y/inside");
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let copy = place.copy();
    fs::remove_file(place.path("x")).unwrap();
    fs::remove_dir_all(place.path("y")).unwrap();
    place.write("x/inside/deep", "dir now");
    place.write("y", "file now");
    let swapped = place.copy();
    nothing_left_alone(&workspace.rewind(&start));
    place.expect(&copy);
    nothing_left_alone(&workspace.undo());
    place.expect(&swapped);
    nothing_left_alone(&workspace.redo());
    place.expect(&copy);
}

#[test]
fn a_large_file_is_restored_exactly() {
    let place = TestWorkspace::new();
    let engine = place.engine();
    let bytes = tree::Draw::new(1).bytes(20 << 20);
    fs::write(place.path("large"), &bytes).unwrap();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let start = workspace.checkpoint("start");
    let mut edited = bytes.clone();
    edited[10 << 20] ^= 1;
    edited.splice(100..100, *b"inserted");
    fs::write(place.path("large"), &edited).unwrap();
    nothing_left_alone(&workspace.rewind(&start));
    assert!(fs::read(place.path("large")).unwrap() == bytes);
    nothing_left_alone(&workspace.undo());
    assert!(fs::read(place.path("large")).unwrap() == edited);
}
