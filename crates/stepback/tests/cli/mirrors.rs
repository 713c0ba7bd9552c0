//! Mirrors from the outside: the process that copies, what the commands say, and an agent with a shell that tries to destroy
//! what was recorded.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_testkit::skip::skip;
use stepback_testkit::tree::{self, Copy};

use crate::sandbox::{PROGRAM, Ran, Sandbox};
use crate::serving::Serving;
use crate::talk::Talk;

/// The user that the agent runs as, where the test is root.
pub const AGENT: u32 = 65534;

#[track_caller]
fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = is() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The processes that sync the mirrors of the world's store.
fn syncers(world: &Sandbox) -> Vec<i32> {
    let is_ours = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"mirror-process")
            && words.next() == Some(world.store.as_os_str().as_encoded_bytes())
    };
    let listed = fs::read_dir("/proc").unwrap().flatten();
    listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
}

fn kill(pid: i32) {
    Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Waits until the mirror has everything that the store has.
#[track_caller]
fn wait_for_mirror(world: &Sandbox, mirror: &Path) {
    until("the mirror is up to date", || {
        let ran = world.run(["mirror", "status", text(mirror), "--json"]);
        let status: Value = serde_json::from_str(&ran.out).ok()?;
        (status["items"][0]["commits_behind"] == json!(0)).then_some(())
    });
}

/// Fails unless every checkpoint is in the store at `store`, byte for byte.
#[track_caller]
pub fn expect_all(world: &Sandbox, store: &Path, checkpoints: &BTreeMap<String, Copy>) {
    for (number, (id, files)) in checkpoints.iter().enumerate() {
        let into = world.root().join(format!("out-{number}"));
        let point = format!("id:{id}");
        let words = ["--store", text(store), "restore", &point, "--into", text(&into)];
        world.command(words).output().map(Ran::from).unwrap().exits(0);
        let differences = tree::differences(files, &tree::copy_of(&into, |_| false));
        assert!(differences.is_empty(), "checkpoint {id} differs:\n{differences}");
        fs::remove_dir_all(&into).unwrap();
    }
}

pub fn created_id(document: &Value) -> String {
    document["id"].as_str().unwrap_or_else(|| panic!("{document}")).to_owned()
}

#[test]
fn a_mirror_follows_by_itself_and_every_checkpoint_comes_back() {
    let world = Sandbox::new();
    let mirror = world.root().join("mirror");
    let mut checkpoints = BTreeMap::new();
    world.write("a", "first\n");
    checkpoints.insert(created_id(&world.json(["checkpoint", "create", "first"])), world.files());
    assert!(syncers(&world).is_empty(), "without a mirror nothing is started");
    let added = world.ok(["mirror", "add", text(&mirror)]);
    assert!(added.out.contains("Mirrored 1 step"), "{}", added.out);
    assert!(added.err.contains("can delete"), "{}", added.err);

    // Hooks of an agent, and commands; the process is killed now and then.
    let agent = Talk::new(&world, "s1");
    agent.begin();
    for round in 0..6 {
        agent.bash(&format!("c{round}"), "edit", || world.write("a", format!("round {round}\n")));
        world.write("b/c", vec![round; 5000]);
        let created = world.json(["checkpoint", "create", &format!("round {round}")]);
        checkpoints.insert(created_id(&created), world.files());
        if round % 2 == 0 {
            let pid = until("a process syncs", || syncers(&world).first().copied());
            kill(pid);
        }
    }
    wait_for_mirror(&world, &mirror);
    let running = syncers(&world);
    assert!(running.len() <= 1, "one process for one store: {running:?}");
    let mode = |path: &str| fs::metadata(world.root().join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("mirror"), mode("mirror/segments"), mode("store/mirrors.json")), (0o700, 0o700, 0o600));
    world.ok(["mirror", "status", "--verify"]);
    let status = world.json(["status"]);
    assert_eq!(status["mirrors"][0]["address"], json!(mirror), "{status}");

    // The process notices that its store is gone, and does not make it again.
    fs::remove_dir_all(&world.store).unwrap();
    until("the process ends", || syncers(&world).is_empty().then_some(()));
    assert!(!world.store.exists());
    let restored = world.root().join("restored");
    let ran = world.ok(["mirror", "restore", text(&mirror), "--into", text(&restored)]);
    assert!(ran.out.contains("and verified them"), "{}", ran.out);
    expect_all(&world, &restored, &checkpoints);

    // The restored store takes the place of the old one, and goes on in the same mirror.
    fs::rename(&restored, &world.store).unwrap();
    world.ok(["mirror", "add", text(&mirror)]);
    world.write("a", "afterwards\n");
    checkpoints.insert(created_id(&world.json(["checkpoint", "create", "after"])), world.files());
    wait_for_mirror(&world, &mirror);
    world.ok(["mirror", "status", "--verify"]);
    let again = world.root().join("again");
    world.ok(["mirror", "restore", text(&mirror), "--into", text(&again)]);
    expect_all(&world, &again, &checkpoints);
    world.ok(["mirror", "remove", text(&mirror)]);
    assert!(mirror.join("segments").exists());
    world.run(["mirror", "status"]).exits(4);
}

/// Ends a child with the test.
struct Ending(Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything below a directory belongs to the agent's user.
pub fn give_to_agent(path: &Path) {
    chown(path, Some(AGENT), Some(AGENT)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give_to_agent(&entry.unwrap().path()));
    }
}

/// A world whose agent runs as another user than the mirror.
struct OtherUser {
    world: Sandbox,
    mirror: PathBuf,
    _mirror_dir: tempfile::TempDir,
}

impl OtherUser {
    /// `None` if this process is not root, or the program cannot be run by the other user.
    fn new() -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            skip("root, to run the mirror as another user than the agent");
            return None;
        }
        let world = Sandbox::new();
        give_to_agent(&world.root());
        let dir = tempfile::tempdir().unwrap();
        let other = Self { mirror: dir.path().join("mirror"), world, _mirror_dir: dir };
        let mut probe = Command::new(PROGRAM);
        probe.arg("--version").uid(AGENT).gid(AGENT).stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            skip("a program that the user 65534 can run");
            return None;
        }
        Some(other)
    }

    /// Runs the program as the agent's user.
    fn agent(&self, words: &[&str]) -> Ran {
        self.world.command(words).uid(AGENT).gid(AGENT).output().unwrap().into()
    }

    /// Runs a shell as the agent's user.
    fn shell(&self, script: &str) -> Ran {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("STORE", &self.world.store).env("MIRROR", &self.mirror);
        shell.current_dir(&self.world.work).uid(AGENT).gid(AGENT).output().unwrap().into()
    }

    /// Records a checkpoint as the agent's user, and waits for nothing.
    #[track_caller]
    fn checkpoint(&self, label: &str, checkpoints: &mut BTreeMap<String, Copy>) {
        let name = format!("{}.txt", label.replace(' ', "-"));
        self.world.write(&name, format!("{label}\n").repeat(50));
        give_to_agent(&self.world.work);
        let ran = self.agent(&["checkpoint", "create", label, "--json"]).exits(0);
        checkpoints.insert(created_id(&ran.json()), self.world.files());
    }
}

#[test]
fn an_agent_with_a_shell_loses_nothing_that_is_mirrored() {
    let Some(other) = OtherUser::new() else { return };
    let (world, mirror) = (&other.world, &other.mirror);
    let mut checkpoints = BTreeMap::new();
    other.checkpoint("first", &mut checkpoints);
    let service = world.command(["mirror", "run", text(mirror)]).stderr(Stdio::null()).spawn().unwrap();
    let service = Ending(service);
    until("the mirror exists", || mirror.join("segments").exists().then_some(()));
    for round in 0..4 {
        other.checkpoint(&format!("round {round}"), &mut checkpoints);
    }
    // Garbage, and a truncated record; recording goes on.
    wait_for_mirror(world, mirror);
    other.shell("head -c 500 /dev/urandom >> $STORE/commits.log").exits(0);
    other.checkpoint("after garbage", &mut checkpoints);
    wait_for_mirror(world, mirror);
    other.shell(": > $STORE/commits.log; rm -f $STORE/commits.old $STORE/mirrors.json").exits(0);
    other.checkpoint("after truncation", &mut checkpoints);
    wait_for_mirror(world, mirror);
    // Poison in the database: texts are replaced, steps hidden, purged and removed.
    let db = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    db.execute("UPDATE steps SET summary = 'poison', state = zeroblob(32) WHERE number = 2", []).unwrap();
    db.execute("DELETE FROM objects WHERE kind = 1", []).unwrap();
    drop(db);
    give_to_agent(&world.store);
    let ran = world.run(["mirror", "status", text(mirror), "--verify"]).exits(6);
    assert!(ran.out.contains("step #2") && ran.out.contains("was changed"), "{}", ran.out);
    // The mirror and the process that writes it are out of reach.
    let attack = "rm -rf $MIRROR 2>/dev/null; echo x > $MIRROR/segments/000000000001.segment; kill -9 ";
    let ran = other.shell(&format!("{attack} {}", service.0.id()));
    assert_ne!(ran.code, Some(0), "{ran:?}");
    assert!(mirror.join("segments/000000000001.segment").metadata().unwrap().len() > 100);
    other.shell("rm -rf $STORE; true").exits(0);
    assert!(!world.store.join("log.sqlite").exists());
    // A new store in the old place, full of lies.
    let mut lies = BTreeMap::new();
    other.checkpoint("lies", &mut lies);
    until("the lies are a generation of their own", || {
        let ran = world.run(["mirror", "status", text(mirror), "--json"]);
        let status: Value = serde_json::from_str(&ran.out).ok()?;
        (status["items"][0]["generation"].as_u64()? > 1 && status["items"][0]["commits_behind"] == json!(0))
            .then_some(())
    });
    drop(service);

    let restored = world.root().join("restored");
    let refused = world.run(["mirror", "restore", text(mirror), "--into", text(&restored)]).exits(9);
    assert!(refused.err.contains("generation 1:") && refused.err.contains("--generation"), "{}", refused.err);
    let words = ["mirror", "restore", text(mirror), "--into", text(&restored), "--generation", "1"];
    world.ok(words);
    expect_all(world, &restored, &checkpoints);
    let words = ["--store", text(&restored), "fsck"];
    world.ok(words);
}

/// The same attack where the mirror belongs to the same user: what is done to the store does not reach it either.
#[test]
fn what_is_done_to_the_store_does_not_reach_a_mirror_of_the_same_user() {
    let world = Sandbox::new();
    let mirror = world.root().join("mirror");
    let mut checkpoints = BTreeMap::new();
    world.write("a", "first\n");
    checkpoints.insert(created_id(&world.json(["checkpoint", "create", "first"])), world.files());
    world.ok(["mirror", "add", text(&mirror)]);
    for round in 0..3 {
        world.write("a", format!("{round}\n"));
        checkpoints
            .insert(created_id(&world.json(["checkpoint", "create", &round.to_string()])), world.files());
    }
    wait_for_mirror(&world, &mirror);
    // An older copy of the database in place of the newest, as an attacker or a careless restore would put it.
    for pid in syncers(&world) {
        kill(pid);
    }
    let db = rusqlite::Connection::open(world.store.join("log.sqlite")).unwrap();
    db.execute("DELETE FROM steps WHERE number > 1", []).unwrap();
    db.execute("UPDATE meta SET commits = 2, chain = NULL", []).unwrap();
    drop(db);
    fs::write(world.store.join("commits.log"), "").unwrap();
    world.write("a", "other\n");
    world.ok(["checkpoint", "create", "other"]);
    until("the contradiction is noticed", || {
        let ran = world.run(["mirror", "status", "--json"]);
        let status: Value = serde_json::from_str(&ran.out).ok()?;
        (status["items"][0]["generation"] == json!(2)).then_some(())
    });
    let status = until("status says it", || {
        let status = world.run(["status"]);
        status.err.contains("differ").then_some(status)
    });
    assert!(status.err.contains("mirror"), "{}", status.err);
    world.run(["mirror", "status"]).exits(6);
    world.ok(["mirror", "sync", "--acknowledge"]);
    world.ok(["mirror", "status"]);
    let restored = world.root().join("restored");
    world.ok(["mirror", "restore", text(&mirror), "--into", text(&restored), "--generation", "1"]);
    expect_all(&world, &restored, &checkpoints);
}

#[test]
fn a_mirror_that_cannot_be_reached_is_reported_and_recording_goes_on() {
    let world = Sandbox::new();
    let (mirror, away) = (world.root().join("mirror"), world.root().join("away"));
    world.write("a", "first\n");
    world.ok(["checkpoint", "create", "first"]);
    world.ok(["mirror", "add", text(&mirror)]);
    fs::rename(&mirror, &away).unwrap();
    world.write("a", "second\n");
    world.ok(["checkpoint", "create", "second"]);
    until("status says it", || world.run(["status"]).err.contains("nothing was copied").then_some(()));
    let status = world.run(["mirror", "status", "--json"]).exits(7).json();
    assert_eq!(status["items"][0]["is_reachable"], json!(false), "{status}");
    assert!(status["items"][0]["commits_behind"].as_u64().unwrap() > 0, "{status}");
    world.run(["mirror", "sync"]).exits(7);
    assert!(!mirror.exists(), "a disk that is not mounted must not become a mirror");
    fs::rename(&away, &mirror).unwrap();
    wait_for_mirror(&world, &mirror);
    world.ok(["mirror", "sync"]);
    world.ok(["mirror", "status", "--verify"]);
}

#[test]
fn a_server_syncs_too() {
    let world = Sandbox::new();
    let mirror = world.root().join("mirror");
    world.write("a", "first\n");
    world.ok(["checkpoint", "create", "first"]);
    let mut server = Serving::start(&world, &[]);
    let quietly = |words: &[&str]| -> Ran {
        world.command(words).env("STEPBACK_NO_MIRROR", "1").output().unwrap().into()
    };
    quietly(&["mirror", "add", text(&mirror)]).exits(0);
    world.write("a", "second\n");
    quietly(&["checkpoint", "create", "second"]).exits(0);
    wait_for_mirror(&world, &mirror);
    assert!(syncers(&world).is_empty(), "the server did it");
    server.child.kill().unwrap();
}

#[test]
fn a_prune_does_not_reach_a_mirror() {
    let world = Sandbox::new();
    let mirror = world.root().join("mirror");
    let mut checkpoints = BTreeMap::new();
    for round in 0..4u8 {
        world.write("a", vec![round; 3000]);
        checkpoints
            .insert(created_id(&world.json(["checkpoint", "create", &round.to_string()])), world.files());
    }
    world.ok(["mirror", "add", text(&mirror)]);
    world.write("a", "last\n");
    world.ok(["checkpoint", "create", "last"]);
    world.ok(["prune", "--keep-last", "1", "--now"]);
    wait_for_mirror(&world, &mirror);
    let restored = world.root().join("restored");
    let ran = world.ok(["mirror", "restore", text(&mirror), "--into", text(&restored)]);
    assert!(ran.out.contains("complete again"), "{}", ran.out);
    // What was hidden is still hidden; taking back the prune shows it, with its files.
    world.ok(["--store", text(&restored), "undo"]);
    expect_all(&world, &restored, &checkpoints);
}

#[test]
fn what_cannot_be_a_mirror_is_refused() {
    let world = Sandbox::new();
    world.write("a", "first\n");
    world.run(["mirror", "add", "/tmp/x"]).exits(4);
    world.ok(["checkpoint", "create", "first"]);
    let mirror = world.root().join("mirror");
    let refused = |words: &[&str], code: i32, says: &str| {
        let ran = world.run(words).exits(code);
        assert!(ran.err.contains(says), "{words:?}: {}", ran.err);
    };
    refused(&["mirror", "add", text(&world.store.join("inside"))], 2, "inside the store");
    refused(&["mirror", "add", text(&world.work)], 7, "other files");
    refused(&["mirror", "add", "ftp://host/x"], 2, "s3://");
    refused(&["mirror", "add", "s3://bucket/x"], 7, "AWS_ACCESS_KEY_ID");
    refused(&["mirror", "status"], 4, "no mirrors");
    refused(&["mirror", "remove", text(&mirror)], 4, "is not a mirror");
    refused(&["mirror", "restore", text(&mirror), "--into", "x"], 7, "cannot open");
    refused(&["mirror", "restore", text(&world.work), "--into", "x"], 7, "no mirror");
    let server = ["--store", "postgres://localhost:1/x", "mirror", "add", text(&mirror)];
    refused(&server, 2, "only a store in a directory");
    world.ok(["mirror", "add", text(&mirror)]);
    refused(&["mirror", "add", text(&mirror)], 2, "already");
    refused(&["mirror", "restore", text(&mirror), "--into", text(&world.work)], 2, "not empty");
    refused(
        &["mirror", "restore", text(&mirror), "--into", text(&world.root().join("x")), "--generation", "7"],
        2,
        "generation 7",
    );
    // Another store may not continue it, unless the user says so.
    let other = world.root().join("other");
    world.ok(["--store", text(&other), "checkpoint", "create", "first of another"]);
    refused(&["--store", text(&other), "mirror", "add", text(&mirror)], 9, "another store");
    world.ok(["--store", text(&other), "mirror", "add", "--adopt", text(&mirror)]);
}
