//! Processes killed at random times: nothing that was acknowledged is lost, and the workspace is as before or as after.
//!
//! `faults` kills at every point that writes, each time from the same store. This goes on with what a kill left, and kills half
//! of the processes at a random point that writes, half at a random time. Sometimes the recovery is killed as well. An
//! ordinary run ends after a few rounds. `STEPBACK_KILLS=2000` goes on until that many processes were killed before they were
//! done, `STEPBACK_KILLS_FILES=300` makes the workspace smaller, and `STEPBACK_KILLS_SEED=7` draws other moments.

use std::fs;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use stepback_testkit::tree::{self, Copy, Draw};

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

const ROUNDS: usize = 30;
const FILES: u64 = 2_000;
/// A process is killed before one of this many writes, syncs and renames.
const POINTS: usize = 100;

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap())
}

/// What a killed process was doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum KilledWork {
    Checkpoint,
    Rewind,
    Hook,
}

/// A workspace with two recorded states, at one of which it always is.
struct KillWorld {
    world: Sandbox,
    one: Copy,
    two: Copy,
    takes: [Duration; 3],
}

#[test]
fn a_process_killed_at_any_time_loses_nothing() {
    let seed = variable("STEPBACK_KILLS_SEED").unwrap_or(7);
    let wanted = variable("STEPBACK_KILLS").unwrap_or(0) as usize;
    let files = variable("STEPBACK_KILLS_FILES").unwrap_or(FILES) as usize;
    eprintln!("seed {seed}, {files} files");
    let scene = KillWorld::new(files);
    let mut draw = Draw::new(seed);
    let (mut killed, mut recoveries, mut at_one, mut round) = (0, 0, true, 0);
    // A machine that is too fast for the moments drawn must not make this endless.
    while round < ROUNDS || (killed < wanted && round < 20 * wanted) {
        let work =
            [KilledWork::Checkpoint, KilledWork::Rewind, KilledWork::Rewind, KilledWork::Hook][draw.below(4)];
        let when = format!("seed {seed}, round {round}, {work:?}");
        let done = scene.run_and_kill(work, at_one, round, &mut draw);
        killed += usize::from(!done);
        if !done && draw.once_in(4) {
            let mut child = scene.world.spawn(&["status"]);
            std::thread::sleep(scene.takes[1] * draw.below(1_100) as u32 / 1_000);
            let _ = child.kill();
            let is_killed = child.wait().unwrap().code().is_none();
            killed += usize::from(is_killed);
            recoveries += usize::from(is_killed);
        }
        scene.world.ok(["status"]);
        scene.world.expect_no_leftovers(&when);
        let files = scene.world.files();
        let [before, after] = match (work, at_one) {
            (KilledWork::Rewind, true) => [&scene.one, &scene.two],
            (KilledWork::Rewind, false) => [&scene.two, &scene.one],
            (_, true) => [&scene.one; 2],
            (_, false) => [&scene.two; 2],
        };
        assert!(
            files == *after || (files == *before && !done),
            "{when}, done: {done}: neither before nor after; from before:\n{}from after:\n{}",
            tree::differences(before, &files),
            tree::differences(after, &files)
        );
        at_one = files == scene.one;
        if work == KilledWork::Checkpoint && done {
            let listed = scene.world.json(["checkpoint", "list", "--find", &format!("round-{round}-")]);
            assert_eq!(items(&listed).len(), 1, "{when}: acknowledged and gone");
        }
        if round % 5 == 4 {
            scene.world.expect_sound(&when);
            scene.world.expect_restores("one", &scene.one, &when);
            scene.world.expect_restores("two", &scene.two, &when);
        }
        round += 1;
        if round.is_multiple_of(50) {
            eprintln!("round {round}: {killed} killed, {recoveries} of them while recovering");
        }
    }
    eprintln!("{killed} processes killed in {round} rounds, {recoveries} of them while recovering");
    assert!(killed >= 5 && killed >= wanted, "only {killed} were killed in time");
}

impl KillWorld {
    fn new(files: usize) -> Self {
        let world = Sandbox::new();
        for at in 0..files {
            world.write(format!("d{:02}/f{at}", at % 40), format!("file {at}, as it was\n"));
        }
        world.ok(["settings", "checkpoint.max-manual", "0"]);
        world.ok(["checkpoint", "create", "one"]);
        let one = world.files();
        for at in (0..files).step_by(2) {
            world.write(format!("d{:02}/f{at}", at % 40), format!("file {at}, changed\n"));
        }
        for at in (1..files).step_by(10) {
            fs::remove_file(world.path(format!("d{:02}/f{at}", at % 40))).unwrap();
        }
        let started = Instant::now();
        world.ok(["checkpoint", "create", "two"]);
        let checkpoint = started.elapsed();
        let two = world.files();
        let started = Instant::now();
        world.ok(["rewind", "one", "--yes"]);
        let rewind = started.elapsed();
        Self { world, one, two, takes: [checkpoint, rewind, checkpoint] }
    }

    /// Starts a process and kills it at a random point or time. Returns whether it was done before.
    fn run_and_kill(&self, work: KilledWork, at_one: bool, round: usize, draw: &mut Draw) -> bool {
        let label = format!("round-{round}-");
        let fault = draw.once_in(2).then(|| format!("kill:{}", 1 + draw.below(POINTS)));
        let mut child = match work {
            KilledWork::Checkpoint => self.start(&["checkpoint", "create", &label], fault.as_deref()),
            KilledWork::Rewind => {
                // Whatever the killed hooks say about who changed what.
                let target = if at_one { "two" } else { "one" };
                self.start(&["rewind", target, "--yes", "--everything"], fault.as_deref())
            }
            KilledWork::Hook => {
                let agent = Talk::new(&self.world, "killed");
                let call = json!({
                    "tool_name": "Bash", "tool_input": { "command": "ls" }, "tool_use_id": format!("call-{round}"),
                });
                let name = if draw.once_in(2) { "PreToolUse" } else { "PostToolUse" };
                agent.start(agent.payload(name, call).to_string().as_bytes())
            }
        };
        if fault.is_some() && work != KilledWork::Hook {
            return child.wait().unwrap().code() == Some(0);
        }
        let takes = self.takes[work as usize];
        std::thread::sleep(takes * draw.below(1_100) as u32 / 1_000);
        // The child may have finished already, which is a round too.
        let _ = child.kill();
        child.wait().unwrap().code() == Some(0)
    }

    fn start(&self, arguments: &[&str], fault: Option<&str>) -> Child {
        let mut command = self.world.command(arguments);
        command.envs(fault.map(|fault| ("STEPBACK_FAULT", fault)));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }
}
