//! Hostile trees, small disks and wrong permissions: always a clear error, and not one byte lost.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use stepback_testkit::process;
use stepback_testkit::skip::skip;
use stepback_testkit::tree::{self, Copy, Draw};

use crate::sandbox::{PROGRAM, Ran, Sandbox};

/// Exit codes: see `failure.rs`.
pub const NOTHING: i32 = 4;
pub const PARTIAL: i32 = 5;
pub const STORE: i32 = 6;
pub const SYSTEM: i32 = 7;
pub const REFUSED: i32 = 9;

/// "one" and "two" recorded, and edits on top.
pub fn recorded() -> (Sandbox, Copy, Copy) {
    let world = Sandbox::new();
    let mut draw = Draw::new(1);
    for at in 0..30 {
        world.write(format!("dir{}/file{at}", at % 3), draw.bytes(300 + at * 50));
    }
    world.ok(["checkpoint", "create", "one"]);
    let one = world.files();
    world.write("dir0/file0", "changed\n");
    fs::remove_dir_all(world.path("dir1")).unwrap();
    world.write("added", "new\n");
    world.ok(["checkpoint", "create", "two"]);
    let two = world.files();
    (world, one, two)
}

/// Fails the test if a command ended in a way no command may end in.
#[track_caller]
pub fn expect_clear(ran: &Ran, codes: &[i32], when: &str) {
    assert!(!ran.err.contains("panicked"), "{when}: {}", ran.err);
    let code = ran.code.unwrap_or_else(|| panic!("{when}: ended by a signal: {}", ran.err));
    assert!(codes.contains(&code), "{when}: exits with {code}: {}{}", ran.out, ran.err);
    let reasons = [("Error: ", &ran.err), ("  leave ", &ran.err), ("damaged:", &ran.out)];
    let said = reasons.iter().any(|(reason, text)| text.contains(reason));
    assert!(code == 0 || said, "{when}: exits with {code} and says only: {}{}", ran.out, ran.err);
}

pub fn device_of(path: &Path) -> u64 {
    fs::metadata(path).unwrap().dev()
}

pub fn size_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries
        .map(|path| {
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() { size_of(&path) } else { metadata.len() }
        })
        .sum()
}

#[test]
fn errors_are_one_json_document_when_asked() {
    let (world, ..) = recorded();
    let commands: [(&[&str], i32, &str); 9] = [
        (&["nonsense"], 2, "usage"),
        (&["rewind", "--yes"], 2, "usage"),
        (&["prune", "--max-size", "lots"], 2, "usage"),
        (&["rewind", "no such thing", "--yes"], 3, "point"),
        (&["cat", "one", "../outside"], 2, "usage"),
        (&["checkpoint", "create", " "], 2, "usage"),
        (&["redo"], 4, "nothing"),
        (&["rewind", "one"], 9, "refused"),
        (&["status", "--store", "/nonexistent/store"], 4, "nothing"),
    ];
    for (arguments, code, name) in commands {
        let mut command = world.command(arguments);
        let ran: Ran = command.arg("--json").output().unwrap().into();
        let document = ran.exits(code).json();
        assert_eq!(document["error"]["code"], name, "{document}");
        assert!(document["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{document}");
    }
}

#[test]
fn a_whole_home_or_file_system_is_refused_with_the_reason() {
    let world = Sandbox::new();
    fs::write(world.home.join("precious"), "do not cover\n").unwrap();
    for broad in [Path::new("/"), &world.home, &world.root()] {
        let arguments = [OsStr::new("-C"), broad.as_os_str(), OsStr::new("checkpoint"), OsStr::new("create")];
        let ran = world.run(arguments).exits(REFUSED);
        assert!(ran.err.contains("everything below it would be covered"), "{}", ran.err);
        assert!(ran.err.contains("--allow-broad"), "{}", ran.err);
    }
    let home = world.home.as_os_str();
    world.ok([OsStr::new("-C"), home, "checkpoint".as_ref(), "create".as_ref(), "--allow-broad".as_ref()]);
}

#[test]
fn strange_names_come_back() {
    let world = Sandbox::new();
    let strange: Vec<Vec<u8>> = vec![
        b"not utf-8 \xff\xfe\x80".to_vec(),
        b"new\nline\nand\ttab".to_vec(),
        b"-dash and 'quotes' \"double\" $HOME `x` \\".to_vec(),
        b" leading and trailing ".to_vec(),
        "ünïcödé – 日本語 🦀".as_bytes().to_vec(),
        vec![b'x'; 255],
        vec![0xe9; 255],
        b"\x1b[31mred\x07".to_vec(),
        b"...".to_vec(),
        b"*".to_vec(),
    ];
    for name in &strange {
        world.write(OsStr::from_bytes(name), [b"in ", name.as_slice()].concat());
        let below: PathBuf =
            [OsStr::from_bytes(&[b"d-", &name[..name.len().min(250)]].concat()), OsStr::from_bytes(name)]
                .iter()
                .collect();
        world.write(below, "below\n");
        symlink(
            OsStr::from_bytes(name),
            world.path(OsString::from_vec([b"l-", &name[..name.len().min(250)]].concat())),
        )
        .unwrap();
    }
    // Deeper than a path may be long, made one level at a time.
    let deep = "deep".repeat(50);
    let mut level = File::open(&world.work).unwrap();
    for _ in 0..25 {
        let next = tree::within(&level, deep.as_bytes());
        fs::create_dir(&next).unwrap();
        level = File::open(next).unwrap();
    }
    fs::write(tree::within(&level, b"bottom"), "bottom\n").unwrap();
    let before = world.files();
    assert!(before.keys().any(|path| path.len() > 4096 && path.ends_with(b"/bottom")));
    world.ok(["checkpoint", "create", "strange"]);
    assert!(
        Command::new("sh")
            .arg("-c")
            .arg("rm -rf ./* ./.[!.]* ./..?*")
            .current_dir(&world.work)
            .status()
            .unwrap()
            .success()
    );
    assert!(world.files().is_empty());
    let ran = world.ok(["rewind", "strange", "--yes"]);
    assert!(!ran.err.contains('\x1b') && !ran.err.contains('\x07'), "control characters reach the terminal");
    world.expect_files(&before, "after the rewind");
    assert!(!world.json(["at", "strange"])["files"].as_array().unwrap().is_empty());
    world.json(["diff", "strange"]);
    world.ok(["undo", "--yes"]);
    assert!(world.files().is_empty());
    world.ok(["redo", "--yes"]);
    world.expect_files(&before, "after the redo");
    world.expect_sound("strange names");
}

#[test]
fn nothing_outside_is_reached_through_a_link() {
    let world = Sandbox::new();
    let outside = world.root().join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    for name in ["a", "b", "sub/c", "only-outside"] {
        fs::write(outside.join(name), format!("outside {name}\n")).unwrap();
    }
    let untouched = tree::copy_of(&outside, |_| false);
    for name in ["a", "b", "sub/c"] {
        world.write(format!("dir/{name}"), format!("inside {name}\n"));
        world.write(format!("gone/{name}"), format!("inside {name}\n"));
    }
    world.ok(["checkpoint", "create", "real"]);
    let real = world.files();
    fs::remove_dir_all(world.path("dir")).unwrap();
    world.link(&outside, "dir");
    let linked = world.files();
    // By whole tree, by path below the link, and back again.
    let commands: [&[&str]; 4] = [
        &["rewind", "real", "--path", "dir/a", "--yes"],
        &["rewind", "real", "--path", "dir/**", "--yes"],
        &["rewind", "real", "--path", "dir", "--yes"],
        &["rewind", "real", "--yes"],
    ];
    for arguments in commands {
        let ran = world.run(arguments);
        expect_clear(&ran, &[0, 2, 5], &format!("{arguments:?}"));
        let differences = tree::differences(&untouched, &tree::copy_of(&outside, |_| false));
        assert!(differences.is_empty(), "{arguments:?} reaches out:\n{differences}");
        let files = world.files();
        if files != linked && ran.code == Some(0) {
            world.ok(["undo", "--yes"]);
            world.expect_files(&linked, &format!("undo of {arguments:?}"));
        }
    }
    world.ok(["rewind", "real", "--yes"]);
    world.expect_files(&real, "after the whole rewind");
    assert!(fs::symlink_metadata(world.path("dir")).unwrap().is_dir());
    let differences = tree::differences(&untouched, &tree::copy_of(&outside, |_| false));
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn a_byte_in_a_huge_file_costs_little() {
    let world = Sandbox::new();
    let path = world.path("huge.bin");
    let mut file = File::create(&path).unwrap();
    let mut draw = Draw::new(3);
    for _ in 0..50 {
        file.write_all(&draw.bytes(1 << 20)).unwrap();
    }
    file.set_len(150 << 20).unwrap();
    world.ok(["checkpoint", "create", "one"]);
    let before = size_of(&world.store);
    file.seek(SeekFrom::Start(25 << 20)).unwrap();
    let old = &mut [0_u8];
    File::open(&path).unwrap().read_exact_at(old, 25 << 20).unwrap();
    file.write_all(&[old[0] ^ 1]).unwrap();
    drop(file);
    world.ok(["checkpoint", "create", "two"]);
    let grown = size_of(&world.store) - before;
    assert!(grown < 1_000_000, "one byte costs {grown} bytes");
    world.ok(["rewind", "one", "--yes"]);
    let found = &mut [0_u8];
    let file = File::open(&path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 150 << 20);
    file.read_exact_at(found, 25 << 20).unwrap();
    assert_eq!(found, old);
}

#[test]
fn pipes_and_sockets_are_listed_and_never_waited_for() {
    let world = Sandbox::new();
    world.write("file", "content\n");
    assert!(Command::new("mkfifo").arg(world.path("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(world.path("socket")).unwrap();
    let mut child = world.spawn(&["checkpoint", "create", "one"]);
    let started = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if started.elapsed() > Duration::from_secs(30) {
            child.kill().unwrap();
            panic!("it waits for the pipe");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(child.wait().unwrap().success());
    let excluded = world.ok(["status", "--excluded"]).out;
    assert!(excluded.contains("pipe") && excluded.contains("socket"), "{excluded}");
    // A file became a pipe: what is there now cannot be saved, so it stays.
    fs::remove_file(world.path("file")).unwrap();
    assert!(Command::new("mkfifo").arg(world.path("file")).status().unwrap().success());
    let ran = world.run(["rewind", "one", "--yes"]);
    expect_clear(&ran, &[0, 5], "a pipe in place of a file");
    assert!(world.path("pipe").exists() && world.path("socket").exists());
}

#[test]
fn a_broken_stat_cache_is_only_a_cache() {
    let (world, one, two) = recorded();
    let caches: Vec<PathBuf> = fs::read_dir(world.store.join("workspaces"))
        .unwrap()
        .map(|entry| entry.unwrap().path().join("statcache"))
        .collect();
    assert!(caches.iter().all(|cache| cache.exists()), "{caches:?}");
    let good = fs::read(&caches[0]).unwrap();
    let mut flipped = good.clone();
    for at in (0..flipped.len()).step_by(97) {
        flipped[at] ^= 0x55;
    }
    let broken = [
        Vec::new(),
        b"nonsense".to_vec(),
        vec![0; good.len()],
        vec![0xff; 1 << 20],
        good[..good.len() / 2].to_vec(),
        [good.as_slice(), &good].concat(),
        flipped,
    ];
    for (at, bytes) in broken.iter().enumerate() {
        fs::write(&caches[0], bytes).unwrap();
        let when = format!("broken cache {at}");
        let status = world.json(["status"]);
        assert_eq!(status["items"].as_array().map(Vec::len), Some(0), "{when}: {status}");
        fs::write(&caches[0], bytes).unwrap();
        world.ok(["rewind", "one", "--yes"]);
        world.expect_files(&one, &when);
        fs::write(&caches[0], bytes).unwrap();
        world.ok(["undo", "--yes"]);
        world.expect_files(&two, &when);
    }
    // A directory or a link in its place is no reason to stop either.
    fs::remove_file(&caches[0]).unwrap();
    fs::create_dir(&caches[0]).unwrap();
    world.ok(["status"]);
    world.ok(["checkpoint", "create", "without a cache"]);
    world.expect_restores("without a cache", &two, "without a cache");
    world.expect_sound("broken caches");
}

#[test]
fn a_store_inside_the_workspace_does_not_swallow_itself() {
    let mut world = Sandbox::new();
    world.store = world.path("nested/.stepback");
    world.write("file", "content\n");
    fs::create_dir(world.path("nested")).unwrap();
    world.ok(["checkpoint", "create", "one"]);
    for _ in 0..3 {
        world.ok(["checkpoint", "create"]);
    }
    let status = world.json(["status"]);
    assert_eq!(status["items"].as_array().map(Vec::len), Some(0), "{status}");
    let listed = world.json(["at", "@"]);
    let covered: Vec<&str> = listed["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|file| file["type"] != "excluded")
        .filter_map(|file| file["path"].as_str())
        .collect();
    assert_eq!(covered, ["file", "nested"], "{listed}");
    fs::remove_file(world.path("file")).unwrap();
    world.ok(["rewind", "one", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "content\n");
    world.expect_sound("a store inside");
    world.ok(["prune", "--now", "--keep-last", "1", "--keep-manual"]);
    world.expect_sound("a pruned store inside");
}

/// Runs the program as a user without rights.
fn as_nobody(world: &Sandbox, arguments: &[&str]) -> Ran {
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM])
        .args(arguments)
        .current_dir(&world.work)
        .env_clear()
        .env("HOME", &world.home)
        .env("STEPBACK_HOME", &world.store)
        .stdin(Stdio::null());
    command.output().unwrap().into()
}

/// Whether there is another user to be.
fn can_be_nobody() -> bool {
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", PROGRAM, "--version"]);
    let possible =
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success());
    if !possible {
        skip("needs root, setpriv, and a program that others may run");
    }
    possible
}

fn give_to_nobody(path: &Path) {
    assert!(Command::new("chown").args(["-R", "65534:65534"]).arg(path).status().unwrap().success());
}

#[test]
fn a_store_of_somebody_else_is_refused_with_the_reason() {
    if !can_be_nobody() {
        return;
    }
    let (world, _, two) = recorded();
    fs::set_permissions(world.root(), Permissions::from_mode(0o755)).unwrap();
    assert_eq!(fs::metadata(&world.store).unwrap().permissions().mode() & 0o777, 0o700);
    for arguments in [&["status"][..], &["checkpoint", "create"], &["rewind", "one", "--yes"], &["fsck"]] {
        let ran = as_nobody(&world, arguments);
        expect_clear(&ran, &[SYSTEM], &format!("{arguments:?}"));
        assert!(ran.err.contains("ermission denied"), "{}", ran.err);
    }
    world.expect_files(&two, "as somebody else");
    // Open to all by mistake: it may not be written all the same.
    fs::set_permissions(&world.store, Permissions::from_mode(0o755)).unwrap();
    for arguments in [&["status"][..], &["checkpoint", "create"]] {
        expect_clear(
            &as_nobody(&world, arguments),
            &[SYSTEM, STORE],
            &format!("{arguments:?} of an open store"),
        );
    }
}

#[test]
fn read_only_files_and_directories_are_restored_and_stay_read_only() {
    if !can_be_nobody() {
        return;
    }
    let world = Sandbox::new();
    world.write("locked/file", "old\n");
    world.write("locked/gone", "will be deleted\n");
    world.write("locked/sub/deep", "old\n");
    world.write("secret", "nobody may read this\n");
    world.chmod("locked/file", 0o444);
    world.chmod("locked/sub", 0o555);
    world.chmod("locked", 0o555);
    let before = world.files();
    for place in [&world.work, &world.home] {
        give_to_nobody(place);
    }
    let mut world = world;
    world.store = world.home.join("store");
    fs::set_permissions(world.root(), Permissions::from_mode(0o755)).unwrap();
    let created = as_nobody(&world, &["checkpoint", "create", "one"]).exits(0);
    assert!(!created.err.contains("Warning"), "{}", created.err);
    // As root, behind its back.
    world.chmod("locked", 0o755);
    fs::remove_file(world.path("locked/gone")).unwrap();
    fs::write(world.path("locked/file"), "new\n").unwrap();
    fs::write(world.path("locked/sub/deep"), "new\n").unwrap();
    fs::write(world.path("locked/added"), "new\n").unwrap();
    give_to_nobody(&world.work);
    world.chmod("locked", 0o555);
    as_nobody(&world, &["rewind", "one", "--yes"]).exits(0);
    world.expect_files(&before, "after a rewind in read-only directories");
    as_nobody(&world, &["undo", "--yes"]).exits(0);
    assert_eq!(fs::read_to_string(world.path("locked/added")).unwrap(), "new\n");
    assert_eq!(fs::metadata(world.path("locked")).unwrap().permissions().mode() & 0o777, 0o555);
    // A file that is not theirs to read is named, and stays.
    assert!(Command::new("chown").arg("0:0").arg(world.path("secret")).status().unwrap().success());
    world.chmod("secret", 0o600);
    let ran = as_nobody(&world, &["checkpoint", "create", "two"]).exits(0);
    assert!(ran.err.contains("Warning: secret is not covered"), "{}", ran.err);
    let ran = as_nobody(&world, &["rewind", "one", "--yes"]);
    expect_clear(&ran, &[0, 5], "with an unreadable file");
    assert_eq!(fs::read_to_string(world.path("secret")).unwrap(), "nobody may read this\n");
    as_nobody(&world, &["fsck"]).exits(0);
}

#[test]
fn a_full_disk_loses_nothing() {
    const TASK: &str = "fill a small disk";
    if process::task().as_deref() == Some(TASK) {
        fill_a_small_disk();
        return;
    }
    let place = tempfile::tempdir().unwrap();
    // In a mount namespace of its own, which vanishes with the process.
    let output = Command::new("unshare")
        .args([
            "--map-root-user",
            "--mount",
            "sh",
            "-c",
            "mount -t tmpfs -o size=12m tmpfs \"$0\" && exec \"$@\"",
        ])
        .arg(place.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "hostile::a_full_disk_loses_nothing", "--nocapture", "--test-threads=1"])
        .env("STEPBACK_TEST_TASK", TASK)
        .env("STEPBACK_TEST_PLACE", place.path())
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if said.contains("unshare") || said.contains("mount:") {
        return skip(&format!("cannot mount a small disk: {said}"));
    }
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn fill_a_small_disk() {
    let world = Sandbox::at(Path::new(&std::env::var_os("STEPBACK_TEST_PLACE").unwrap()));
    let mut draw = Draw::new(5);
    for at in 0..20 {
        world.write(format!("file{at}"), draw.bytes(50_000));
    }
    world.ok(["checkpoint", "create", "one"]);
    let one = world.files();
    for at in 0..20 {
        world.write(format!("file{at}"), draw.bytes(50_000));
    }
    world.ok(["checkpoint", "create", "two"]);
    let two = world.files();
    world.ok(["rewind", "one", "--yes"]);
    world.ok(["rewind", "two", "--yes"]);
    let filler = world.root().join("filler");
    // From completely full to just too little room.
    for spare in [0_usize, 8 << 10, 64 << 10, 256 << 10, 700 << 10] {
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&filler).unwrap();
        while file.write_all(&[7; 4096]).is_ok() {}
        let filled = file.metadata().unwrap().len();
        file.set_len(filled.saturating_sub(spare as u64)).unwrap();
        let when = format!("{spare} bytes left");
        let ran = world.run(["rewind", "one", "--yes"]);
        expect_clear(&ran, &[0, SYSTEM], &format!("{when}: rewind"));
        assert!(
            ran.code == Some(0) || ran.err.contains("No space left") || ran.err.contains("full"),
            "{}",
            ran.err
        );
        let ran = world.run(["prune", "--now", "--keep-last", "2", "--keep-manual"]);
        expect_clear(&ran, &[0, SYSTEM], &format!("{when}: prune"));
        let ran = world.run(["checkpoint", "create"]);
        expect_clear(&ran, &[0, SYSTEM], &format!("{when}: checkpoint"));
        drop(file);
        fs::remove_file(&filler).unwrap();
        world.ok(["status"]);
        world.expect_no_leftovers(&when);
        let files = world.files();
        assert!(files == one || files == two, "{when}: a mixture");
        world.expect_sound(&when);
        world.expect_restores("one", &one, &when);
        world.expect_restores("two", &two, &when);
        world.ok(["rewind", "two", "--yes"]);
        world.expect_files(&two, &when);
        // A new file while there is no room at all.
        let mut file = OpenOptions::new().create(true).write(true).truncate(true).open(&filler).unwrap();
        world.write("fresh", draw.bytes(400_000));
        while file.write_all(&[7; 4096]).is_ok() {}
        let ran = world.run(["checkpoint", "create"]).exits(SYSTEM);
        assert!(ran.err.contains("No space left") || ran.err.contains("full"), "{}", ran.err);
        drop(file);
        fs::remove_file(&filler).unwrap();
        fs::remove_file(world.path("fresh")).unwrap();
        world.ok(["prune", "--now", "--keep-last", "1", "--keep-manual"]);
        world.expect_sound(&when);
    }
}
