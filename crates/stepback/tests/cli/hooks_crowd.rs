//! Many hooks at once, and hooks that are killed: no event is lost, and the store stays sound.

use std::process::Stdio;
use std::thread;

use serde_json::json;

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, items};

#[test]
fn agents_and_a_person_at_once_lose_no_event() {
    const AGENTS: usize = 4;
    const CALLS: usize = 5;
    let world = Sandbox::new();
    for at in 0..50 {
        world.write(format!("file{at}"), "base\n");
    }
    world.ok(["checkpoint", "create", "start"]);
    thread::scope(|scope| {
        for agent in 0..AGENTS {
            let world = &world;
            scope.spawn(move || {
                let talk = Talk::new(world, &format!("agent-{agent}"));
                talk.begin();
                talk.prompt("go");
                for call in 0..CALLS {
                    talk.pre(&format!("r{call}"), "Read", json!({}));
                    talk.post(&format!("r{call}"), "Read", json!({}));
                    talk.write(&format!("w{call}"), &format!("own-{agent}"), &format!("{call}\n"));
                }
                talk.stop();
            });
        }
        scope.spawn(|| {
            for _ in 0..5 {
                for arguments in
                    [&["rewind", "start", "--path", "file7", "--yes"][..], &["log"], &["changes"]]
                {
                    let ran = world.run(arguments);
                    assert!(matches!(ran.code, Some(0 | 4 | 5 | 8)), "{arguments:?}: {ran:?}");
                }
            }
        });
    });
    for agent in 0..AGENTS {
        let talk = Talk::new(&world, &format!("agent-{agent}"));
        let steps = talk.steps();
        for kind in ["tool-start", "tool-end"] {
            let count = steps.iter().filter(|step| step["kind"] == kind).count();
            // One that had to wait too long is there all the same, beside a gap.
            assert_eq!(count, 2 * CALLS, "{kind} of agent {agent}");
        }
    }
    assert_eq!(items(&world.json(["sessions"])).len(), AGENTS);
    world.expect_sound("after the crowd");
    world.expect_no_leftovers("after the crowd");
}

#[test]
fn a_hook_that_is_killed_anywhere_leaves_a_sound_store() {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let killed = |name: &str, call: &str, tool: &str, fault: String| -> bool {
        let rest = json!({ "tool_name": tool, "tool_use_id": call, "tool_input": { "command": call } });
        let mut command = world.command(["hook", "claude"]);
        command.env("STEPBACK_FAULT", fault).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let payload = agent.payload(name, rest).to_string();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), payload.as_bytes()).unwrap();
        let ran: Ran = child.wait_with_output().unwrap().into();
        ran.code != Some(0)
    };
    for (name, tool) in [("PreToolUse", "Bash"), ("PostToolUse", "Bash"), ("PreToolUse", "Read")] {
        for nth in 1..60 {
            world.write("file", format!("{name} {nth}\n"));
            let call = format!("{name}-{tool}-{nth}");
            // Something waits, so that taking it in is interrupted too.
            agent.pre(&format!("{call}-waits"), "Read", json!({}));
            let died = killed(name, &call, tool, format!("kill:{nth}"));
            let steps = agent.steps();
            let waited = steps.iter().filter(|step| step["call"] == format!("{call}-waits")).count();
            assert_eq!(waited, 1, "{name} of {tool}, killed at {nth}: what waited is lost or doubled");
            if !died {
                assert!(nth > 1, "{name} of {tool} passes no fault point");
                break;
            }
        }
        world.expect_sound(&format!("{name} of {tool}"));
    }
    // Failing once is no reason to lose the event either.
    for nth in 1..60 {
        let call = format!("once-{nth}");
        world.write("file", format!("{call}\n"));
        assert!(!killed("PreToolUse", &call, "Bash", format!("eio:{nth}")), "a hook that fails exits with 0");
        let recorded = agent.steps().iter().filter(|step| step["call"] == call).count();
        assert_eq!(recorded, 1, "failed at {nth}");
    }
    world.expect_sound("at the end");
}
