//! An agent with a shell that tries to take away, change or poison what a server guards.
//!
//! The same agent against a store of its own user is in `tampering`, and against a mirrored one in `mirrors`.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use stepback_testkit::skip::skip;
use stepback_testkit::tree::Copy;

use crate::mirrors::{AGENT, created_id, expect_all, give_to_agent};
use crate::sandbox::{PROGRAM, Ran, Sandbox};
use crate::wire::Carrying;

/// A server of this user, and a world of another user that it serves.
struct OtherOwner {
    owner: Sandbox,
    agent: Sandbox,
    socket: PathBuf,
    server: Option<Carrying>,
    _socket_dir: tempfile::TempDir,
}

impl OtherOwner {
    /// `None` if this process is not root, or the program cannot be run by the other user.
    fn start() -> Option<Self> {
        if fs::metadata("/proc/self").unwrap().uid() != 0 {
            skip("root, to run the server as another user than the agent");
            return None;
        }
        let mut probe = Command::new(PROGRAM);
        probe.arg("--version").uid(AGENT).gid(AGENT).stdout(Stdio::null()).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            skip("a program that the user 65534 can run");
            return None;
        }
        let (owner, mut agent) = (Sandbox::new(), Sandbox::new());
        let socket_dir = tempfile::tempdir().unwrap();
        // As the service does it: the agent's user may pass and connect, and cannot replace the socket.
        fs::set_permissions(socket_dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let socket = socket_dir.path().join("store.sock");
        let words =
            ["serve", "--json", "--listen", "127.0.0.1:0", "--guard", "--socket", socket.to_str().unwrap()];
        let server = Carrying::program(&owner, &words, &[]).ok()?;
        chown(&socket, None, Some(AGENT)).unwrap();
        agent.store = PathBuf::from(format!("unix:{}", socket.display()));
        give_to_agent(&agent.root());
        Some(Self { owner, agent, socket, server: Some(server), _socket_dir: socket_dir })
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.agent.command(words).uid(AGENT).gid(AGENT).output().unwrap().into()
    }

    fn shell(&self, script: &str) -> Ran {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).env("STORE", &self.owner.store).env("SOCKET", &self.socket);
        shell.current_dir(&self.agent.work).uid(AGENT).gid(AGENT).output().unwrap().into()
    }

    #[track_caller]
    fn checkpoint(&self, label: &str, checkpoints: &mut BTreeMap<String, Copy>) {
        self.agent.write(format!("{label}.txt"), format!("{label}\n").repeat(50));
        give_to_agent(&self.agent.work);
        let ran = self.run(&["checkpoint", "create", label, "--json"]).exits(0);
        checkpoints.insert(created_id(&ran.json()), self.agent.files());
    }
}

/// Ends the server with the test.
impl Drop for OtherOwner {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.end_with(Signal::KILL);
        }
    }
}

#[test]
fn an_agent_with_a_shell_takes_nothing_from_a_guarded_store() {
    let Some(world) = OtherOwner::start() else { return };
    let mut checkpoints = BTreeMap::new();
    for label in ["one", "two", "three"] {
        world.checkpoint(label, &mut checkpoints);
    }
    // Through the program.
    let refused: [&[&str]; 5] = [
        &["checkpoint", "delete", "two"],
        &["checkpoint", "annotate", "two", "nothing to see", "--label", "other"],
        &["prune", "--keep-last", "1", "--now"],
        &["prune", "--max-size", "1KB", "--now"],
        &["mirror", "add", "elsewhere"],
    ];
    for words in refused {
        let ran = world.run(words);
        assert_ne!(ran.code, Some(0), "{words:?}: {ran:?}");
        assert!(ran.err.contains("Hint:"), "{words:?}: {}", ran.err);
    }
    // Past the program: the store's files, the socket, the tokens and the server itself are out of reach.
    let server = world.server.as_ref().unwrap().id();
    for attack in [
        "rm -rf $STORE/*".to_owned(),
        "cat $STORE/server.token".to_owned(),
        "cat $STORE/guard.token".to_owned(),
        "echo poison >> $STORE/log.sqlite".to_owned(),
        "rm -f $SOCKET".to_owned(),
        "mv $SOCKET $SOCKET.away".to_owned(),
        format!("kill -9 {server}"),
    ] {
        let ran = world.shell(&attack);
        assert_ne!(ran.code, Some(0), "{attack}: {ran:?}");
    }
    // What is on the agent's side holds nothing that is recorded.
    let ours = world.agent.home.join(".local/share/stepback");
    fs::remove_dir_all(&ours).unwrap();
    world.checkpoint("four", &mut checkpoints);
    // Poison can be added, and hides nothing.
    world.shell("rm -f *.txt").exits(0);
    world.run(&["checkpoint", "create", "lies"]).exits(0);
    let listed = world.run(&["log", "--json"]).exits(0).out;
    for label in ["one", "two", "three", "four", "lies"] {
        assert!(listed.contains(&format!("\"{label}\"")), "{label}: {listed}");
    }

    // As the owner of the store.
    expect_all(&world.agent, &world.owner.store, &checkpoints);
    world.owner.ok(["fsck"]);
}
