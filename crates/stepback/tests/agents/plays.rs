//! Each agent does what its script says: the ground that every other test of agents stands on.

use stepback_testkit::model::{Agent, Role, Script, Turn};

use crate::support::World;

fn plays_its_script(agent: Agent) {
    let world = World::new(&[("edited.txt", "one\ntwo\nthree\n"), ("doomed.txt", "gone soon\n")]);
    let script = Script::new([
        Turn::read("edited.txt").saying("I look first."),
        Turn::edit("edited.txt", "two\n", "TWO\n"),
        Turn::write("written.txt", "new\n"),
        Turn::shell("rm doomed.txt && echo shell > made.txt"),
        Turn::text("All is done."),
    ]);
    let run = world.agent(agent).script(script).run("do the work").succeeds();

    assert_eq!(world.read("edited.txt").as_deref(), Some("one\nTWO\nthree\n"), "{}", run.stdout);
    assert_eq!(world.read("written.txt").as_deref(), Some("new\n"));
    assert_eq!(world.read("made.txt").as_deref(), Some("shell\n"));
    assert_eq!(world.read("doomed.txt"), None);
    assert!(run.stdout.contains("All is done."), "{}", run.stdout);

    assert_eq!(run.turns().len(), 5);
    assert_eq!(run.history(0), [(Role::User, "do the work".to_owned())]);
    let roles: Vec<Role> = run.history(4).iter().map(|(role, _)| *role).collect();
    let step = [Role::Call, Role::Result];
    assert_eq!(roles, [&[Role::User, Role::Model][..], &step, &step, &step, &step].concat());

    let again = Script::new([]).when("go on", [Turn::text("I went on.")]);
    let next = world.agent(agent).script(again).resume(&run.session()).run("go on").succeeds();
    let mut expected = run.history(4);
    expected.extend([(Role::Model, "All is done.".to_owned()), (Role::User, "go on".to_owned())]);
    assert_eq!(next.history(0), expected);
}

#[test]
fn claude_plays_its_script() {
    plays_its_script(Agent::Claude);
}

#[test]
fn codex_plays_its_script() {
    plays_its_script(Agent::Codex);
}

#[test]
fn gemini_plays_its_script() {
    plays_its_script(Agent::Gemini);
}

#[test]
fn opencode_plays_its_script() {
    plays_its_script(Agent::Opencode);
}
