//! The watcher that hooks start by themselves: one process, which the agent never notices, and without which nothing is missed.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::sandbox::{PROGRAM, Ran, Sandbox};
use crate::serving::Serving;
use crate::talk::Talk;
use crate::watching::{is_hinted, large};

/// A workspace that is worth asking about, in which hooks start a watcher whatever a scan takes.
fn starting() -> Sandbox {
    let mut world = large();
    world.watcher = "always";
    assert!(watchers(&world).is_empty(), "making the world starts none");
    world
}

/// The watchers of the world's store, as the system lists processes.
fn watchers(world: &Sandbox) -> Vec<u32> {
    let is_ours = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"watcher-process")
            && words.next() == Some(world.store.as_os_str().as_encoded_bytes())
    };
    let listed = fs::read_dir("/proc").unwrap().flatten();
    listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
}

#[track_caller]
fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = is() {
            return found;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether a call that changes a file looked only where something changed. A look at everything would write its cache anew.
fn is_helped(agent: &Talk<'_>, call: &str) -> bool {
    let change = || agent.world.write("warm", call);
    is_hinted(agent.world, || agent.bash(call, "edit", change))
}

/// Calls until one of them looked only where something changed; the process that watches.
#[track_caller]
fn until_hinted(agent: &Talk<'_>) -> u32 {
    let mut call = 0;
    until("a hook that was helped", || {
        call += 1;
        is_helped(agent, &format!("warm{call}")).then_some(())
    });
    let found = watchers(agent.world);
    assert_eq!(found.len(), 1, "one process for one store");
    found[0]
}

fn signal(name: &str, pid: u32) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

/// A call that changes a file; what was recorded afterwards is what is there.
#[track_caller]
fn change(agent: &Talk<'_>, call: &str, name: &str) {
    let world = agent.world;
    agent.bash(call, "edit", || world.write(name, format!("written by {call}\n")));
    world.expect_restores("@", &world.files(), call);
}

fn gone(pid: u32) -> bool {
    // A zombie whose parent is somebody else's is gone as well.
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z"))
}

#[test]
fn a_hook_starts_one_watcher_which_later_hooks_use_and_commands_show() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.bash("c1", "true", || {});
    let pid = until_hinted(&agent);
    for round in 0..5 {
        change(&agent, &format!("c2-{round}"), &format!("d{round}/f{round}"));
    }
    let status = world.json(["status"]);
    assert_eq!(status["watcher"]["pid"], json!(pid), "{status}");
    assert_eq!(status["watcher"]["automatic"], json!(true));
    assert_eq!(status["watcher"]["directories"], json!(61));
    assert_eq!(status["watcher"]["roots"][0]["root"], json!(world.work));
    assert_eq!(status["not_watched"], json!(null));
    let memory = status["watcher"]["memory_bytes"].as_u64().unwrap();
    assert!((100_000..100_000_000).contains(&memory), "{memory}");
    let out = world.ok(["status"]).out;
    assert!(out.contains(&format!("Watched: 61 directories, by process {pid}, ")), "{out}");
    let out = world.run(["doctor"]).out;
    assert!(out.contains(&format!("watcher    process {pid}, ")), "{out}");
    let out = world.ok(["watcher"]).out;
    assert!(out.contains(&*world.work.display().to_string()) && out.contains("61 directories"), "{out}");
    // It belongs to nobody's terminal, directory or pipes.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(fields[3], pid.to_string(), "it leads a session of its own");
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), Path::new("/"));
    assert_eq!(
        fs::read(format!("/proc/{pid}/environ")).unwrap(),
        b"",
        "it has none of the agent's variables"
    );
    world.ok(["watcher", "stop"]);
    assert!(watchers(&world).iter().all(|pid| gone(*pid)));
    assert_eq!(world.json(["watcher"])["watcher"], json!(null));
}

#[test]
fn an_agent_that_waits_for_the_end_of_the_hooks_output_does_not_wait_for_the_watcher() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    // Its output once more as a file of another number, as some agents leave one open for what they start.
    let command = world.command([""; 0]);
    let mut hook = Command::new("sh");
    hook.args(["-c", "exec 7>&1 8>&2; exec \"$0\" hook claude", PROGRAM]).env_clear();
    hook.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    hook.current_dir(&world.work).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = hook.spawn().unwrap();
    let call = json!({ "tool_name": "Bash", "tool_input": { "command": "true" }, "tool_use_id": "c1" });
    let payload = agent.payload("PreToolUse", call).to_string();
    child.stdin.take().unwrap().write_all(payload.as_bytes()).unwrap();
    // Returns when nobody has the other end of either pipe any more.
    let ran: Ran = child.wait_with_output().unwrap().into();
    ran.exits(0);
    let pid = until("a watcher", || watchers(&world).first().copied());
    let files: Vec<_> = until("its files", || {
        let listed = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        let links: Vec<_> = listed.filter_map(|entry| fs::read_link(entry.path()).ok()).collect();
        links.iter().any(|link| link.to_string_lossy().contains("inotify")).then_some(links)
    });
    assert!(!files.iter().any(|link| link.to_string_lossy().starts_with("pipe:")), "{files:?}");
}

#[test]
fn many_hooks_at_once_start_one_watcher() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let hooks: Vec<_> = (0..6)
        .map(|number| {
            let call = json!({ "tool_name": "Bash", "tool_input": { "command": "true" }, "tool_use_id": format!("c{number}") });
            agent.start(agent.payload("PreToolUse", call).to_string().as_bytes())
        })
        .collect();
    for hook in hooks {
        assert!(hook.wait_with_output().unwrap().status.success());
    }
    until_hinted(&agent);
}

#[test]
fn a_watcher_that_is_killed_is_not_missed_and_comes_back() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let pid = until_hinted(&agent);
    change(&agent, "before", "d1/f1");
    // Between the two looks at one call.
    agent.bash("during", "edit", || {
        world.write("d2/f2", "first\n");
        signal("-KILL", pid);
        until("its end", || gone(pid).then_some(()));
        world.write("d3/f3", "second\n");
    });
    world.expect_restores("@", &world.files(), "killed during a call");
    for round in 0..3 {
        change(&agent, &format!("after{round}"), &format!("d{round}/f9"));
    }
    assert_ne!(until_hinted(&agent), pid);
    change(&agent, "again", "d4/f4");
}

#[test]
fn a_watcher_that_is_stopped_is_not_waited_for_and_not_missed() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let pid = until_hinted(&agent);
    signal("-STOP", pid);
    for round in 0..4 {
        change(&agent, &format!("stopped{round}"), &format!("d{round}/f{round}"));
    }
    assert!(world.store.join("watch/unanswered").exists(), "hooks know that it does not answer");
    let doctor = world.run(["doctor", "--json"]).json();
    assert!(doctor["not_watched"].as_str().unwrap().contains("not responding"), "{doctor}");
    assert_eq!(watchers(&world), [pid], "none is started beside it");
    signal("-CONT", pid);
    change(&agent, "continued", "d5/f5");
    assert_eq!(until_hinted(&agent), pid);
    change(&agent, "helped", "d6/f6");
    signal("-STOP", pid);
    let stopped = world.ok(["watcher", "stop"]).out;
    assert!(stopped.contains(&pid.to_string()), "{stopped}");
    until("its end", || gone(pid).then_some(()));
}

#[test]
fn more_events_than_the_system_keeps_are_not_missed() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let pid = until_hinted(&agent);
    let most = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let most: usize = most.trim().parse().unwrap();
    agent.bash("flood", "make", || {
        signal("-STOP", pid);
        fs::create_dir(world.path("flood")).unwrap();
        // Two names by turns, because equal events that follow each other are one.
        for number in 0..=most {
            let name = world.path(format!("d0/passing{}", number % 2));
            fs::write(&name, "").unwrap();
            fs::remove_file(&name).unwrap();
        }
        // Nobody is told of these.
        world.write("d7/f7", "after the flood\n");
        world.write("flood/new/deep", "after the flood\n");
        fs::remove_file(world.path("d8/f8")).unwrap();
        signal("-CONT", pid);
    });
    world.expect_restores("@", &world.files(), "right after the flood");
    change(&agent, "later", "flood/new/more");
    assert_eq!(until_hinted(&agent), pid, "it goes on");
    change(&agent, "helped", "flood/new/deep");
}

#[test]
fn a_workspace_that_is_replaced_is_watched_anew() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    until_hinted(&agent);
    let aside = world.root().join("aside");
    fs::rename(&world.work, &aside).unwrap();
    assert!(Command::new("cp").arg("-a").args([&aside, &world.work]).status().unwrap().success());
    world.write("d1/f1", "of the copy\n");
    fs::write(aside.join("d2/f2"), "of the original\n").unwrap();
    change(&agent, "copy", "d3/f3");
    until_hinted(&agent);
    change(&agent, "helped", "d4/f4");
}

#[test]
fn none_is_started_where_that_is_turned_off() {
    let world = large();
    let calls = |mode: &'static str, setting: Option<&str>| {
        if let Some(value) = setting {
            world.ok(["settings", "watcher", value]);
        }
        let call = |name: &str| {
            let call =
                json!({ "tool_name": "Bash", "tool_input": { "command": "true" }, "tool_use_id": mode });
            let agent = Talk::new(&world, "s1");
            let mut command = world.command(["hook", "claude"]);
            let mut child = command.env("STEPBACK_WATCHER", mode).stdin(Stdio::piped()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(agent.payload(name, call).to_string().as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
        };
        call("PreToolUse");
        call("PostToolUse");
    };
    calls("off", None);
    calls("ask", None);
    // Fast enough without one.
    calls("auto", Some("0"));
    assert!(!world.store.join("watch").exists(), "nothing was even tried");
    let doctor = world.command(["doctor", "--json"]).env("STEPBACK_WATCHER", "auto").output().unwrap();
    let doctor: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    assert!(doctor["not_watched"].as_str().unwrap().contains("\"watcher\" is 0"), "{doctor}");
}

#[test]
fn turning_it_off_ends_the_one_that_runs() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let pid = until_hinted(&agent);
    world.ok(["settings", "watcher", "0"]);
    until("its end", || gone(pid).then_some(()));
}

#[test]
fn none_is_started_beside_a_server_that_watches() {
    let world = starting();
    let server = Serving::start(&world, &[]);
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let mut call = 0;
    until("a hook that was helped", || {
        call += 1;
        is_helped(&agent, &format!("c{call}")).then_some(())
    });
    assert!(watchers(&world).is_empty());
    assert_eq!(world.json(["status"])["watcher"]["pid"], json!(server.child.id()));
    let refused = world.run(["watcher", "stop"]).exits(9);
    assert!(refused.err.contains("server"), "{}", refused.err);
}

#[test]
fn it_ends_when_its_store_or_its_program_goes() {
    let world = starting();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let pid = until_hinted(&agent);
    fs::rename(&world.store, world.root().join("moved")).unwrap();
    until("its end without a store", || gone(pid).then_some(()));

    // Run from a copy of the program, which is then replaced as an installer does it.
    let copy = world.root().join("stepback");
    let install = || {
        let new = world.root().join("stepback.new");
        fs::copy(PROGRAM, &new).unwrap();
        fs::rename(&new, &copy).unwrap();
    };
    install();
    let store = world.root().join("other");
    fs::create_dir(&store).unwrap();
    let process = |dir: &Path, idle: &str| {
        let mut command = Command::new(&copy);
        command.arg("watcher-process").args([dir, &world.work]).arg(idle);
        command.stdin(Stdio::null()).spawn().unwrap()
    };
    let mut child = process(&store, "3600");
    until("its socket", || store.join("watch.sock").exists().then_some(()));
    install();
    until("its end after an upgrade", || child.try_wait().unwrap());
    assert!(!store.join("watch.sock").exists(), "it leaves no socket");

    let mut child = process(&store, "1");
    until("its end when nothing is asked", || child.try_wait().unwrap());
}

#[test]
fn one_that_cannot_start_is_not_tried_all_the_time_and_doctor_says_why() {
    let world = starting();
    // A directory where its socket should be.
    fs::create_dir_all(world.store.join("watch.sock/in the way")).unwrap();
    let agent = Talk::new(&world, "s1");
    agent.begin();
    for round in 0..4 {
        change(&agent, &format!("c{round}"), "d1/f1");
    }
    let doctor = until("the reason", || {
        let doctor = world.run(["doctor", "--json"]).json();
        doctor["not_watched"].as_str()?.contains("cannot listen").then_some(doctor)
    });
    assert_eq!(doctor["ok"], json!(false), "{doctor}");
    assert!(doctor["not_watched"].as_str().unwrap().contains("retry"), "{doctor}");
    let tries = fs::read_to_string(world.store.join("watch/starts")).unwrap();
    let tries: u32 = tries.lines().next().unwrap().parse().unwrap();
    assert!((1..=2).contains(&tries), "{tries} processes for 8 scans");
}
