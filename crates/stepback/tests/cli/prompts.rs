//! What the program asks at a terminal, and how its output is paged there.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::pseudo_terminal::Terminal;
use crate::sandbox::{PROGRAM, Sandbox};

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
    terminal.expect("restore").expect("restore").expect("Continue? [y/N]");
    // Progress is not shown while the question is open, however long the user thinks.
    std::thread::sleep(std::time::Duration::from_millis(700));
    let written = String::from_utf8_lossy(&terminal.written()).into_owned();
    assert!(written.ends_with("Continue? [y/N] "), "{written:?}");
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

/// What bash offers for the last of some words.
fn complete_in_bash(world: &Sandbox, words: &str) -> Vec<String> {
    let directory = std::path::Path::new(PROGRAM).parent().unwrap();
    let path = format!("{}:{}", directory.display(), std::env::var("PATH").unwrap());
    let script = format!(
        "source <(stepback completions bash); COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
         COMP_TYPE=9; _clap_complete_stepback stepback \"${{COMP_WORDS[COMP_CWORD]}}\" ''; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    let mut command = std::process::Command::new("bash");
    command.args(["-c", &script]).current_dir(&world.work).env_clear();
    command.env("PATH", path).env("HOME", &world.home).env("STEPBACK_HOME", &world.store);
    let out = command.output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert!(out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    text.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[test]
fn bash_completes_commands_points_and_settings() {
    let world = two_changes();
    world.ok(["branch", "create", "try-redis"]);
    assert!(complete_in_bash(&world, "stepback rew").contains(&"rewind".to_owned()));
    assert_eq!(complete_in_bash(&world, "stepback rewind bef"), ["before"]);
    assert_eq!(complete_in_bash(&world, "stepback diff try"), ["try-redis"]);
    assert_eq!(complete_in_bash(&world, "stepback branch switch try"), ["try-redis"]);
    assert!(complete_in_bash(&world, "stepback settings disk").contains(&"disk.budget".to_owned()));
    // Without a store there is nothing to offer, and no message.
    let empty = Sandbox::new();
    assert!(complete_in_bash(&empty, "stepback rewind bef").is_empty());
}

#[test]
fn settings_are_edited_as_a_whole_or_not_at_all() {
    let world = Sandbox::new();
    let editor = |script: &str| {
        let program = world.root().join("editor");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program.to_string_lossy().into_owned()
    };
    let edit = |script: &str| {
        let editor = editor(script);
        let mut command = world.command(["settings", "--edit"]);
        crate::sandbox::Ran::from(command.env("EDITOR", editor).output().unwrap())
    };
    // Every setting is there with its default, as a comment.
    let kept = world.root().join("shown");
    edit(&format!("cp \"$1\" {}", kept.display())).exits(0);
    let shown = fs::read_to_string(&kept).unwrap();
    assert!(shown.contains("# default: 10\n#checkpoint.minutes = 10\n"), "{shown}");
    edit("sed -i 's/^#checkpoint.minutes = 10/checkpoint.minutes = 3/; s/^#last = .*/last = \"log -n 1\"/' \"$1\"").exits(0);
    let minutes = world.json(["settings", "checkpoint.minutes"]);
    assert_eq!(minutes["items"][0]["value"], 3);
    // One mistake, and nothing of it is used.
    let failed = edit("sed -i '1i notes = 0' \"$1\"; sed -i '1i checkpoint.minuts = 4' \"$1\"").exits(2);
    assert!(failed.err.contains("checkpoint.minuts"), "{}", failed.err);
    assert_eq!(world.json(["settings", "notes"])["items"][0]["value"], 1);
    edit("printf '[alias]\\nlog = \"status\"\\n' > \"$1\"").exits(2);
    // The alias works, with further words.
    world.write("a", "one\n");
    world.ok(["checkpoint", "create", "first"]);
    world.ok(["checkpoint", "create", "second"]);
    let last = world.json(["last"]);
    assert_eq!(last["items"].as_array().unwrap().len(), 1);
}
