//! A live agent that goes in circles: a breakpoint on anomalies stops it, and the model is told. Gemini CLI ended such a turn by itself
//! after four calls, before it is an anomaly.

use stepback_testkit::model::{Script, ScriptedAgent, ScriptedTurn};

use crate::support::{AgentProject, PROGRAM, items};

fn is_stopped_when_it_loops(agent: ScriptedAgent) {
    let world = AgentProject::new(&[("a.txt", "a\n")]);
    let real = world.agent(agent).through([PROGRAM, "run", "--"]);
    real.prepare();
    let mut script = vec![ScriptedTurn::shell("cat a.txt"); 5];
    script.push(ScriptedTurn::shell("touch done.txt"));
    script.push(ScriptedTurn::text("All is done."));
    world.stepback(&["breakpoint", "add", "anomaly"]);
    let mut running = real.script(Script::new(script)).spawn("do the work");

    let stop = world.stopped(&mut running, "cat a.txt");
    let reason = stop["reason"].as_str().unwrap();
    assert!(reason.starts_with("breakpoint 1: anomaly: repeated-cycle, 5 times"), "{reason}");
    world.stepback(&["deny", "You go in circles."]);
    running.wait().succeeds();

    assert!(world.read("done.txt").is_some(), "a new call is no loop");
    let document = world.json(&["anomalies"]);
    let found = items(&document);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["kind"], &found[0]["count"]), (&"loop".into(), &5.into()));
}

#[test]
fn claude_is_stopped_when_it_loops() {
    is_stopped_when_it_loops(ScriptedAgent::Claude);
}
