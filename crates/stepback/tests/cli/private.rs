//! Files that only their owner can read, and a workspace that is not the directory any more that it was.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use stepback_testkit::tree;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, items};

#[test]
fn exported_files_are_private() {
    let world = Sandbox::new();
    world.write("a", "one\n");
    let agent = Talk::new(&world, "first");
    agent.begin();
    agent.prompt("go on");
    let sessions = world.ok(["sessions", "--json"]).json();
    let id = items(&sessions)[0]["id"].as_str().unwrap().to_owned();
    for format in ["bundle", "jsonl", "html", "otlp"] {
        let file = world.root().join(format);
        // One that others can read is replaced, not filled.
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        world.ok(["export", &id, "--format", format, "-o", file.to_str().unwrap(), "--force"]);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{format}");
    }
}

#[test]
fn a_root_that_became_a_link_is_refused() {
    let world = Sandbox::new();
    world.write("a", "one\n");
    world.ok(["checkpoint", "create", "first"]);
    world.write("a", "two\n");
    world.ok(["checkpoint", "create", "second"]);
    let known = fs::read_dir(world.store.join("workspaces")).unwrap().next().unwrap().unwrap();
    let workspace = known.file_name().into_string().unwrap();
    let outside = world.root().join("outside");
    fs::rename(&world.work, world.root().join("moved")).unwrap();
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("a"), "theirs\n").unwrap();
    symlink(&outside, &world.work).unwrap();
    let untouched = tree::copy_of(&outside, |_| false);
    let work = world.work.to_str().unwrap();
    let commands: [&[&str]; 4] =
        [&["checkpoint", "create", "third"], &["status"], &["diff", "first"], &["rewind", "first", "--yes"]];
    for command in commands {
        // By its id, by its path, and from a shell that went there.
        let named = world.run([&["--workspace", &workspace], command].concat());
        let given = world.run([&["-C", work], command].concat());
        let entered = world.command(command).env("PWD", work).output().unwrap().into();
        for ran in [named, given, entered] {
            assert_ne!(ran.code, Some(0), "{command:?}: {ran:?}");
            assert!(ran.err.contains("symbolic link"), "{command:?}: {ran:?}");
        }
        assert_eq!(tree::copy_of(&outside, |_| false), untouched, "{command:?}");
    }
}
