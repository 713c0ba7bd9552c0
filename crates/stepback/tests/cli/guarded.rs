//! A store that a server guards: agents of another user record into it, and cannot take anything away.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::json;
use stepback_remote::RemoteAddress;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, of_kind};
use crate::wire::Carrying;

/// The owner of the store, with the server; and a user whose agents record into it.
struct Guarded {
    owner: Sandbox,
    user: Sandbox,
    server: Option<Carrying>,
}

impl Guarded {
    fn start() -> Self {
        let (owner, mut user) = (Sandbox::new(), Sandbox::new());
        user.store = PathBuf::from(format!("unix:{}", owner.root().join("g.sock").display()));
        let mut guarded = Self { owner, user, server: None };
        guarded.serve(&[]);
        guarded
    }

    /// Starts the server, which may be killed at a fault.
    fn try_serve(&mut self, variables: &[(&str, &str)]) -> bool {
        let socket = self.owner.root().join("g.sock").display().to_string();
        let words = ["serve", "--json", "--listen", "127.0.0.1:0", "--guard", "--socket", &socket];
        self.server = Carrying::program(&self.owner, &words, variables).ok();
        self.server.is_some()
    }

    #[track_caller]
    fn serve(&mut self, variables: &[(&str, &str)]) {
        assert!(self.try_serve(variables), "the server does not start");
    }

    fn stop(&mut self, signal: Signal) {
        if let Some(server) = self.server.take() {
            server.end_with(signal);
        }
    }

    /// The user's directory for the store.
    fn local(&self) -> PathBuf {
        let address = RemoteAddress::parse(self.user.store.to_str().unwrap()).unwrap();
        self.user.home.join(".local/share/stepback/guarded").join(address.local_name())
    }

    fn inbox(&self) -> PathBuf {
        let workspaces = fs::read_dir(self.local().join("workspaces")).unwrap();
        workspaces.flatten().next().unwrap().path().join("inbox.jsonl")
    }
}

/// Ends the server with the test.
impl Drop for Guarded {
    fn drop(&mut self) {
        self.stop(Signal::KILL);
    }
}

#[test]
fn agents_record_and_users_rewind_over_the_socket() {
    let guarded = Guarded::start();
    let world = &guarded.user;
    world.write("kept.txt", "mine\n");
    let agent = Talk::new(world, "s1");
    agent.begin();
    agent.prompt("make a file");
    agent.write("c1", "made.txt", "by the agent\n");
    agent.stop();
    assert_eq!(of_kind(world, "gap").len(), 0);
    world.ok(["rewind", "--last", "1", "--yes"]);
    assert!(!world.path("made.txt").exists() && world.path("kept.txt").exists());
    world.ok(["undo", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("made.txt")).unwrap(), "by the agent\n");
    world.ok(["redo", "--yes"]);
    assert!(!world.path("made.txt").exists());
    world.ok(["undo", "--yes"]);

    // Branches: created, undone, renamed, switched to and back.
    world.ok(["branch", "create", "idea"]);
    world.ok(["undo", "--yes"]);
    world.ok(["redo", "--yes"]);
    world.ok(["branch", "rename", "idea", "plan"]);
    world.ok(["branch", "switch", "plan", "--yes"]);
    world.write("made.txt", "on the branch\n");
    world.ok(["branch", "switch", "main", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("made.txt")).unwrap(), "by the agent\n");
    world.ok(["undo", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("made.txt")).unwrap(), "on the branch\n");
    world.ok(["branch", "switch", "main", "--yes"]);

    let found = world.json(["search", "make a file"]);
    assert_ne!(found["total"], 0, "the server indexes: {found:#}");
    world.ok(["checkpoint", "create", "good"]);
    world.ok(["checkpoint", "annotate", "good", "a note", "--tag", "release"]);
    world.ok(["fsck"]);
    world.ok(["stats"]);
    let doctor = world.run(["doctor"]).out;
    assert!(doctor.contains("can append to the store"), "{doctor}");
    assert!(!guarded.local().join("store.db").exists(), "nothing but caches is on the user's side");
}

#[test]
fn what_would_take_something_away_is_refused_with_what_to_do() {
    let guarded = Guarded::start();
    let world = &guarded.user;
    for version in 0..3 {
        world.write("a.txt", format!("version {version}\n"));
        world.ok(["checkpoint", "create", &format!("v{version}")]);
    }
    world.ok(["branch", "create", "idea"]);
    let log = world.ok(["log"]).out;
    let refused: [&[&str]; 5] = [
        &["checkpoint", "delete", "v1"],
        &["checkpoint", "annotate", "v1", "a note", "--label", "other"],
        &["branch", "delete", "idea"],
        &["prune", "--keep-last", "1"],
        &["prune", "--keep-last", "1", "--now"],
    ];
    for words in refused {
        let ran = world.run(words).exits(7);
        assert!(ran.err.contains("append") && ran.err.contains("Hint:"), "{words:?}: {}", ran.err);
    }
    assert_eq!(world.ok(["log"]).out, log);
    // What the owner may do where the store is.
    let token = fs::read_to_string(guarded.owner.store.join("server.token")).unwrap();
    let mut command = world.command(["checkpoint", "delete", "v1"]);
    assert!(command.env("STEPBACK_TOKEN", &token).status().unwrap().success());
    guarded.owner.ok(["fsck"]);
    for secret in ["server.token", "guard.token"] {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(guarded.owner.store.join(secret)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{secret}");
    }
}

#[test]
fn events_wait_in_the_inbox_while_the_server_is_away() {
    let mut guarded = Guarded::start();
    let agent = Talk::new(&guarded.user, "s1");
    agent.begin();
    agent.prompt("first");
    agent.write("c1", "a.txt", "one\n");
    agent.stop();
    drop(agent);
    guarded.stop(Signal::KILL);

    let agent = Talk::new(&guarded.user, "s1");
    let (ran, _) = agent.give(
        agent
            .payload(
                "PreToolUse",
                json!({ "tool_name": "Bash", "tool_use_id": "c2", "tool_input": { "command": "ls" } }),
            )
            .to_string()
            .as_bytes(),
    );
    assert!(ran.err.contains("cannot reach the store") && ran.out.is_empty(), "{ran:?}");
    agent.post("c2", "Bash", json!({ "command": "ls" }));
    agent.stop();
    let inbox = fs::read_to_string(guarded.inbox()).unwrap();
    assert!(inbox.lines().count() >= 3 && inbox.contains("c2"), "{inbox}");
    let status = guarded.user.run(["status"]).exits(7);
    assert!(status.err.contains("serve --guard"), "{}", status.err);
    drop(agent);

    // The socket of the server that was killed is still there, and is replaced.
    guarded.serve(&[]);
    let agent = Talk::new(&guarded.user, "s1");
    agent.prompt("second");
    agent.write("c3", "b.txt", "two\n");
    agent.stop();
    assert!(!guarded.inbox().exists() || fs::read_to_string(guarded.inbox()).unwrap().is_empty());
    let steps = agent.steps();
    let has_call = |call: &str| steps.iter().any(|step| step["call"] == call);
    assert!(has_call("c2") && has_call("c3"), "{steps:#?}");
    assert!(!of_kind(&guarded.user, "gap").is_empty(), "the time without a server is visible");
    guarded.user.ok(["fsck"]);
}

/// An agent that starts in a directory which was never recorded, while nothing can be recorded.
#[test]
fn a_new_workspace_has_an_inbox_before_the_server_knows_it() {
    let mut guarded = Guarded::start();
    guarded.stop(Signal::TERM);
    let agent = Talk::new(&guarded.user, "s1");
    agent.begin();
    agent.prompt("make a file");
    agent.write("c1", "made.txt", "by the agent\n");
    agent.stop();
    assert!(fs::read_to_string(guarded.inbox()).unwrap().contains("make a file"));
    drop(agent);
    guarded.serve(&[]);
    let agent = Talk::new(&guarded.user, "s1");
    agent.write("c2", "more.txt", "more\n");
    let steps = agent.steps();
    assert!(steps.iter().any(|step| step["call"] == "c1"), "{steps:#?}");
    assert_eq!(of_kind(&guarded.user, "user-input").len(), 1);
    let workspaces = fs::read_dir(guarded.local().join("workspaces")).unwrap().count();
    assert_eq!(workspaces, 1, "the id that was chosen is the workspace's");
}

#[test]
fn a_server_that_never_answers_does_not_hold_up_an_agent() {
    let mut guarded = Guarded::start();
    let agent = Talk::new(&guarded.user, "s1");
    agent.begin();
    agent.write("c1", "a.txt", "one\n");
    drop(agent);
    guarded.stop(Signal::KILL);
    let socket = guarded.owner.root().join("g.sock");
    fs::remove_file(&socket).unwrap();
    // Connections are accepted by the system, and never served.
    let _silent = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let agent = Talk::new(&guarded.user, "s1");
    let payload = agent.payload(
        "PreToolUse",
        json!({ "tool_name": "Bash", "tool_use_id": "c2", "tool_input": { "command": "ls" } }),
    );
    let (ran, _) = agent.give(payload.to_string().as_bytes());
    assert!(ran.err.contains("did not answer in time"), "{}", ran.err);
    assert!(fs::read_to_string(guarded.inbox()).unwrap().contains("c2"));
}

/// Wherever the server dies: what it acknowledged is there, and the next command works.
#[test]
fn a_server_killed_anywhere_in_a_commit_loses_nothing_that_it_acknowledged() {
    let mut guarded = Guarded::start();
    guarded.user.write("a.txt", "first\n");
    guarded.user.ok(["checkpoint", "create", "first"]);
    let mut kept = vec!["first".to_owned()];
    let mut was_killed = false;
    for point in 1..60 {
        guarded.stop(Signal::KILL);
        if !guarded.try_serve(&[("STEPBACK_FAULT", &format!("kill:{point}"))]) {
            continue;
        }
        guarded.user.write("a.txt", format!("version {point}\n"));
        let label = format!("v{point}");
        let ran = guarded.user.run(["checkpoint", "create", &label]);
        match ran.code {
            Some(0) => kept.push(label),
            Some(7) => was_killed = true,
            _ => panic!("{ran:?}"),
        }
        let survived = ran.code == Some(0) && guarded.user.run(["log", "--limit", "1"]).code == Some(0);
        guarded.stop(Signal::KILL);
        guarded.serve(&[]);
        let listed = guarded.user.ok(["checkpoint", "list"]).out;
        for label in &kept {
            assert!(listed.contains(label.as_str()), "killed at {point}: {label} is not in {listed}");
        }
        guarded.user.ok(["fsck"]);
        if survived {
            assert!(was_killed, "no commit was interrupted");
            return;
        }
    }
    panic!("the server never lived through a commit");
}

#[test]
fn a_store_is_used_over_http_with_a_token() {
    let guarded = Guarded::start();
    let mut world = Sandbox::new();
    let url = guarded.server.as_ref().unwrap().url.clone();
    world.store = PathBuf::from(&url);
    let without = world.run(["checkpoint", "create", "x"]).exits(7);
    assert!(
        without.err.contains("refused the token") && without.err.contains("guard.token"),
        "{}",
        without.err
    );
    let local = world
        .home
        .join(".local/share/stepback/guarded")
        .join(RemoteAddress::parse(&url).unwrap().local_name());
    fs::create_dir_all(&local).unwrap();
    fs::copy(guarded.owner.store.join("guard.token"), local.join("token")).unwrap();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("make a file");
    agent.write("c1", "made.txt", "by the agent\n");
    agent.stop();
    assert_eq!(of_kind(&world, "gap").len(), 0);
    world.ok(["rewind", "--last", "1", "--yes"]);
    assert!(!world.path("made.txt").exists());
    world.run(["prune", "--keep-last", "1"]).exits(7);
    // On the server, the workspaces of another machine are distinguished from its own.
    let listed = guarded.owner.json(["sessions", "--all-workspaces"]).to_string();
    assert!(listed.contains("remote:"), "{listed}");
    assert!(!Path::new(&url).exists());
}

#[test]
fn a_store_is_copied_to_a_guarded_one_by_its_owner() {
    let guarded = Guarded::start();
    let local = Sandbox::new();
    local.write("a.txt", "one\n");
    local.ok(["checkpoint", "create", "one"]);
    let from = local.store.display().to_string();
    let to = guarded.user.store.display().to_string();
    let refused = local.run(["store", "copy", &from, &to]).exits(7);
    assert!(refused.err.contains("append"), "{}", refused.err);
    let token = fs::read_to_string(guarded.owner.store.join("server.token")).unwrap();
    let mut command = local.command(["store", "copy", &from, &to]);
    let copied = command.env("STEPBACK_TOKEN", token).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let back = local.root().join("back").display().to_string();
    local.ok(["store", "copy", &to, &back]);
    let log = local.ok(["log"]).out;
    for store in [to, back] {
        assert_eq!(local.ok(["--store", &store, "log"]).out, log);
    }
}

/// A service writes what it prints into a log, which the users of agents may be able to read.
#[test]
fn a_server_that_guards_prints_no_link_that_opens_everything() {
    let world = Sandbox::new();
    let socket = world.root().join("g.sock");
    let mut child = world
        .command(["serve", "--listen", "127.0.0.1:0", "--guard", "--socket"])
        .arg(&socket)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    crate::wire::until("the socket", || socket.exists());
    crate::wire::send(&child, Signal::TERM);
    let mut printed = String::new();
    std::io::Read::read_to_string(&mut child.stdout.take().unwrap(), &mut printed).unwrap();
    child.wait().unwrap();
    assert!(printed.contains("--store unix:") && !printed.contains("sign-in"), "{printed}");
    assert!(!socket.exists(), "the socket goes with the server");
}

#[test]
fn the_setup_is_printed_and_changes_nothing() {
    let world = Sandbox::new();
    let printed = world.ok(["guard", "setup", "--print", "--group", "devs"]).out;
    for part in ["set -eu", "useradd --system --gid devs", "/var/lib/stepback", "install -d -m 0700"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(!Path::new("/etc/systemd/system/stepback-guard.service").exists());
    world.run(["guard", "setup", "--print", "--user", "a b; rm"]).exits(2);
}
