//! Checkpoints while a server watches the workspace: faster, and the same.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::sandbox::Sandbox;
use crate::serving::Serving;
use crate::talk::{Talk, workspace_dir};

/// Enough files to be worth asking.
pub fn large() -> Sandbox {
    let world = Sandbox::new();
    for dir in 0..60 {
        fs::create_dir(world.path(format!("d{dir}"))).unwrap();
        for file in 0..20 {
            world.write(format!("d{dir}/f{file}"), format!("{dir} {file}\n"));
        }
    }
    world.ok(["checkpoint", "create", "first"]);
    world
}

fn until_watched(world: &Sandbox) {
    let begun = Instant::now();
    // Whoever asks is what makes it watch.
    while world.json(["status"])["watcher"]["directories"].as_u64().unwrap_or(0) == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", world.json(["status"])["watcher"]);
        world.ok(["checkpoint", "create"]);
    }
}

/// Whether a checkpoint looked only where something changed: the large cache stays as it is then.
pub fn is_hinted(world: &Sandbox, checkpoint: impl FnOnce()) -> bool {
    let cache = || fs::metadata(workspace_dir(world).join("statcache")).unwrap().ino();
    let before = cache();
    checkpoint();
    cache() == before
}

#[test]
fn checkpoints_are_the_same_with_a_watcher_and_after_its_death() {
    let world = large();
    assert_eq!(world.json(["status"])["watcher"], json!(null));
    let server = Serving::start(&world, &[]);
    until_watched(&world);
    assert!(world.ok(["status"]).out.contains("Watched: 61 directories, by server, process "));
    let agent = Talk::new(&world, "s1");
    agent.begin();
    let mut hinted = 0;
    for round in 0..10 {
        let name = format!("d{}/f{}", round * 5, round);
        hinted += usize::from(is_hinted(&world, || {
            agent.bash(&format!("c{round}"), "edit", || world.write(&name, format!("round {round}\n")));
        }));
        // It looks at everything.
        let status = world.json(["status"]);
        assert_eq!(status["items"], json!([]), "round {round}");
    }
    assert!(hinted > 0, "no checkpoint was a hinted one");
    let restored = world.json(["cat", "@", "d5/f1"]);
    assert_eq!(restored["text"], "round 1\n", "{restored}");
    drop(server);
    assert!(world.store.join("watch.sock").exists(), "it was killed and left its socket");
    world.write("d1/f1", "nobody watches\n");
    world.ok(["checkpoint", "create"]);
    assert_eq!(world.json(["status"])["items"], json!([]));
    assert_eq!(world.json(["status"])["watcher"], json!(null));
    let _server = Serving::start(&world, &[]);
    until_watched(&world);
    world.write("d2/f2", "watched again\n");
    world.ok(["checkpoint", "create"]);
    assert_eq!(world.json(["status"])["items"], json!([]));
}

#[test]
fn a_watcher_can_be_turned_off() {
    let world = large();
    {
        let _server = Serving::start(&world, &["--no-watcher"]);
        world.ok(["checkpoint", "create"]);
        assert_eq!(world.json(["status"])["watcher"], json!(null));
    }
    let _server = Serving::start(&world, &[]);
    until_watched(&world);
    let status = world.command(["status", "--json"]).env("STEPBACK_NO_WATCHER", "1").output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["watcher"], json!(null));
    world.write("d1/f1", "changed\n");
    let hinted = is_hinted(&world, || {
        let made = world.command(["checkpoint", "create"]).env("STEPBACK_NO_WATCHER", "1").output().unwrap();
        assert!(made.status.success());
    });
    assert!(!hinted);
}
