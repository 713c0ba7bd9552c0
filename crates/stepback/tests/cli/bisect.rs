//! Finding the step that broke something, without touching the workspace.

use crate::sandbox::Sandbox;

/// Twelve checkpoints; the seventh breaks `status`.
fn broken_at_seven() -> Sandbox {
    let world = Sandbox::new();
    for at in 1..=12 {
        world.write("status", if at < 7 { "fine\n" } else { "broken\n" });
        world.write(format!("file{at}"), format!("{at}\n"));
        world.ok(["checkpoint", "create", &format!("step {at}")]);
    }
    world
}

#[test]
fn the_first_bad_step_is_found_and_the_workspace_is_left_alone() {
    let world = broken_at_seven();
    let before = world.files();
    for jobs in ["1", "3"] {
        let found = world.json(["bisect", "--run", "grep -q fine status", "--jobs", jobs]);
        assert_eq!(found["number"], 7);
        let paths: Vec<&str> = found["changes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|change| change["path"].as_str().unwrap())
            .collect();
        assert_eq!(paths, ["file7", "status"]);
    }
    assert_eq!(world.files(), before);
    world.expect_sound("after a bisect");
}

#[test]
fn a_command_that_spoils_its_directory_does_not_spoil_the_search() {
    let world = broken_at_seven();
    let run = "grep -q fine status; code=$?; echo spoilt > status; echo x > file9; rm -f file1; exit $code";
    assert_eq!(world.json(["bisect", "--run", run])["number"], 7);
}

#[test]
fn what_a_command_builds_stays_for_the_next_probe_even_if_each_changes_it() {
    let world = broken_at_seven();
    let log = world.root().join("log");
    let run = format!("echo x >> built; wc -l < built >> '{}'; grep -q fine status", log.display());
    let found = world.json(["bisect", "--run", &run]);
    assert_eq!(found["number"], 7);
    let lines = std::fs::read_to_string(log).unwrap();
    let counts: Vec<usize> = lines.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert_eq!(counts, (1..=found["items"].as_array().unwrap().len()).collect::<Vec<_>>());
}

#[test]
fn what_cannot_be_told_is_said_and_ends_are_checked() {
    let world = broken_at_seven();
    let run = "test -f file6 && ! test -f file8 && exit 125; grep -q fine status";
    let found = world.json(["bisect", "--run", run]);
    let among: Vec<u64> =
        found["among"].as_array().unwrap().iter().map(|step| step["number"].as_u64().unwrap()).collect();
    assert_eq!(among, [6, 7, 8]);
    assert_eq!(world.run(["bisect", "--run", "true"]).code, Some(2));
    assert_eq!(world.run(["bisect", "--run", "false"]).code, Some(2));
    assert_eq!(world.run(["bisect", "--run", "no-such-command"]).code, Some(7));
    assert_eq!(world.run(["bisect", "--run", "true", "--good", "#12"]).code, Some(4));
    let narrowed = world.json(["bisect", "--run", "grep -q fine status", "--good", "#5", "--bad", "#9"]);
    assert_eq!(narrowed["number"], 7);
}
