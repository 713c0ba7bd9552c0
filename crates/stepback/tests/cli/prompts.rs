//! What the program asks at a terminal, and how its output is paged there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::pseudo_terminal::Terminal;
use crate::sandbox::Sandbox;

/// A workspace in which a rewind to `before` changes two files.
fn two_changes() -> Sandbox {
    let world = Sandbox::new();
    world.write("a", "one\n");
    world.write("b", "one\n");
    world.ok(["checkpoint", "create", "before"]);
    world.write("a", "two\n");
    world.write("b", "two\n");
    world
}

#[test]
fn to_decline_is_an_answer_and_no_error() {
    let world = two_changes();
    let mut terminal = Terminal::start(world.command(["rewind", "before"]));
    terminal.expect("restore a").expect("restore b").expect("Continue? [y/N]");
    terminal.press("n\n");
    terminal.expect("Nothing was changed.");
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(!String::from_utf8_lossy(&terminal.written()).contains("Error"));
    assert_eq!(fs::read_to_string(world.path("a")).unwrap(), "two\n");
}

#[test]
fn an_undo_asks_before_it_removes_a_checkpoint_that_files_differ_from() {
    let world = two_changes();
    let refused = world.run(["undo"]).exits(9);
    assert!(refused.err.contains("2 changed paths"), "{}", refused.err);
    assert!(refused.err.contains("stepback rewind @"), "{}", refused.err);
    world.run(["undo", "--json"]).exits(9);
    let mut terminal = Terminal::start(world.command(["undo"]));
    terminal.expect("Remove the checkpoint? [y/N]");
    terminal.press("\n");
    terminal.expect("Nothing was changed.");
    assert_eq!(terminal.wait().code(), Some(0));
    assert!(world.ok(["checkpoint", "list"]).out.contains("before"));
    world.ok(["undo", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("a")).unwrap(), "two\n", "files stay");
    // Without changes there is nothing to ask about.
    world.ok(["checkpoint", "create"]);
    world.ok(["undo"]);
}

/// A pager that shows that it ran, and ends at once if its input is short, as `less -F` does.
fn pager(world: &Sandbox) -> String {
    let program = world.root().join("pager");
    fs::write(&program, "#!/bin/sh\necho \"paged LESS=$LESS\"\ncat\necho end of the pager\n").unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.to_string_lossy().into_owned()
}

#[test]
fn lists_are_paged_at_a_terminal_and_keep_their_colours() {
    let world = two_changes();
    let pager = pager(&world);
    let command = |arguments: &[&str]| {
        let mut command = world.command(arguments);
        command.env("PAGER", &pager);
        command
    };
    let mut terminal = Terminal::start(command(&["diff"]));
    terminal.expect("paged LESS=FRX").expect("\x1b[").expect("two").expect("end of the pager");
    assert_eq!(terminal.wait().code(), Some(0));
    for unpaged in [&["diff", "--no-pager"][..], &["diff", "--json"], &["status"]] {
        let mut terminal = Terminal::start(command(unpaged));
        assert_eq!(terminal.wait().code(), Some(0));
        std::thread::sleep(std::time::Duration::from_millis(50));
        assert!(!String::from_utf8_lossy(&terminal.written()).contains("paged"), "{unpaged:?}");
    }
    // The exit code is the command's, and an error comes after the pager.
    let mut terminal = Terminal::start(command(&["show", "nowhere"]));
    terminal.expect("end of the pager").expect("Error:");
    assert_eq!(terminal.wait().code(), Some(3));
    // One that cannot run is no reason to show nothing.
    let mut command = world.command(["diff"]);
    command.env("STEPBACK_PAGER", "cat").env("PAGER", &pager);
    let mut terminal = Terminal::start(command);
    terminal.expect("two");
    assert_eq!(terminal.wait().code(), Some(0));
}
