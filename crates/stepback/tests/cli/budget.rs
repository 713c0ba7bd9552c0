//! The disk budget: the setting, pruning in the background after a commit, and pruning by hand.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_engine::{Engine, SystemEnv};
use stepback_model::record::{Annotation, Trigger};
use stepback_store::embedded::EmbeddedStore;
use stepback_testkit::sample::noise;

use crate::sandbox::Sandbox;
use crate::serving::Serving;

/// As long as a process in the background may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn bytes_below(dir: &std::path::Path) -> u64 {
    stepback_store::embedded::bytes_below(dir)
}

/// A store with automatic checkpoints of 40 KB each, some of them labelled, that were made without any budget.
fn filled_world(checkpoints: u64) -> Sandbox {
    let world = Sandbox::new();
    world.write("file", "first\n");
    world.ok(["checkpoint", "create", "first"]);
    world.ok(["settings", "disk.budget", "off"]);
    let store = EmbeddedStore::open_existing(&world.store).unwrap();
    let engine = Engine::new(Arc::new(store), Arc::new(SystemEnv));
    let workspace = engine.open_workspace(&world.work).unwrap();
    for number in 1..=checkpoints {
        world.write("file", noise(number, 40_000));
        let annotation = match number.is_multiple_of(20) {
            true => Annotation::labelled(format!("kept {number}")),
            false => Annotation::default(),
        };
        workspace.create_checkpoint(annotation, Trigger::Automatic).unwrap();
    }
    world
}

/// Waits until a pruning has ended, and returns what `stats` says of the budget then.
#[track_caller]
fn wait_for_pruning(world: &Sandbox) -> Value {
    let started = Instant::now();
    loop {
        let budget = world.json(["stats"])["budget"].clone();
        if !budget["last"].is_null() {
            return budget;
        }
        assert!(started.elapsed() < PATIENCE, "no pruning was noted: {budget}");
        thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn expect_labelled(world: &Sandbox, checkpoints: u64) {
    for number in (20..=checkpoints).step_by(20) {
        let shown = world.command(["cat", &format!("kept {number}"), "file"]).output().unwrap();
        assert!(shown.status.success() && shown.stdout == noise(number, 40_000), "kept {number}");
    }
    world.expect_sound("after a pruning");
}

#[test]
fn a_store_that_is_too_large_is_pruned_after_the_next_commit() {
    let world = filled_world(150);
    assert!(bytes_below(&world.store) > 6_000_000);
    let set = world.ok(["settings", "disk.budget", "5MB"]);
    assert!(set.err.contains("the next checkpoint starts a pruning"), "{}", set.err);
    let plan = world.json(["prune", "--budget", "--dry-run"]);
    assert!(plan["fits"] == true && !plan["items"].as_array().unwrap().is_empty(), "{plan}");
    world.write("file", "second\n");
    world.ok(["checkpoint", "create", "second"]);
    let budget = wait_for_pruning(&world);
    assert_eq!((&budget["bytes"], &budget["last"]["fits"]), (&json!(5_000_000), &json!(true)), "{budget}");
    assert!(budget["last"]["checkpoints"].as_u64().unwrap() > 10, "{budget}");
    assert!(bytes_below(&world.store) <= 5_000_000, "{}", bytes_below(&world.store));
    expect_labelled(&world, 150);
    // What the user did last is what undo takes back.
    let undone = world.ok(["undo", "--yes"]);
    assert!(undone.out.contains("second"), "{}", undone.out);
    let text = world.ok(["stats"]).out;
    for part in ["Disk budget 5.0 MB", "automatic checkpoints may go then", "The pruning of"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[test]
fn a_budget_that_is_too_small_takes_nothing_that_is_labelled_and_says_what_to_do() {
    let world = filled_world(40);
    world.ok(["settings", "disk.budget", "100KB"]);
    let before = world.json(["checkpoint", "list", "--all"])["items"].as_array().unwrap().len();
    let pruned = world.ok(["prune", "--budget"]);
    assert!(
        pruned.err.contains("is too small") && pruned.err.contains("settings disk.budget"),
        "{}",
        pruned.err
    );
    let left = world.json(["checkpoint", "list", "--all"])["items"].as_array().unwrap().len();
    assert_eq!(left, before, "all of them are of the last day");
    let report = world.json(["prune", "--budget"])["report"].clone();
    assert_eq!((&report["fits"], &report["checkpoints"]), (&json!(false), &json!(0)), "{report}");
    expect_labelled(&world, 40);
    assert!(world.ok(["stats"]).err.contains("is too small"));
}

#[test]
fn the_setting_is_a_size_a_share_or_off_and_nothing_else() {
    let world = Sandbox::new();
    world.write("file", "content\n");
    world.ok(["checkpoint", "create"]);
    let value = |world: &Sandbox| {
        let items = world.json(["settings"])["items"].as_array().unwrap().clone();
        items.into_iter().find(|item| item["id"] == "disk.budget").unwrap()
    };
    assert_eq!(value(&world)["set"], false);
    assert!(world.json(["stats"])["budget"]["bytes"].as_u64().unwrap() <= 10_000_000_000);
    for (text, shown) in
        [("2GB", "2.0GB"), ("5%", "5%"), ("off", "off"), ("0", "off"), ("1000000000", "1.0GB")]
    {
        world.ok(["settings", "disk.budget", text]);
        assert_eq!(value(&world)["value"], shown, "{text}");
    }
    for wrong in ["0%", "200%", "2 XB", "many", ""] {
        let refused = world.run(["settings", "disk.budget", wrong]).exits(2);
        assert!(refused.err.contains("is not a budget") && refused.err.contains("10%"), "{}", refused.err);
    }
    assert_eq!(value(&world)["value"], "1.0GB", "a refused value changes nothing");
    world.ok(["settings", "disk.budget", "off"]);
    assert!(world.ok(["stats"]).out.contains("No disk budget"));
    let refused = world.run(["prune", "--budget"]).exits(9);
    assert!(refused.err.contains("has no disk budget") && refused.err.contains("settings disk.budget"));
    world.run(["prune", "--budget", "--keep-last", "1"]).exits(2);
    world.ok(["settings", "disk.budget", "default"]);
    assert_eq!(value(&world)["set"], false);
    // A value that was damaged by hand prunes nothing.
    fs::write(world.store.join("settings.json"), "{\"disk.budget\": \"much\"}").unwrap();
    assert!(world.json(["stats"])["budget"].is_null());
}

#[test]
fn a_pruning_that_is_killed_anywhere_leaves_a_sound_store() {
    let world = filled_world(60);
    world.ok(["settings", "disk.budget", "2MB"]);
    let prepared = world.root().join("prepared");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let status = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
        assert!(status.success());
    };
    copy(&world.store, &prepared);
    let mut point = 0;
    loop {
        point += 1;
        fs::remove_dir_all(&world.store).unwrap();
        copy(&prepared, &world.store);
        let killed = world.faulty(&["prune", "--budget"], &format!("kill:{point}")).code != Some(0);
        expect_labelled(&world, 60);
        let report = world.json(["prune", "--budget"])["report"].clone();
        assert_eq!(report["fits"], true, "killed at {point}: {report}");
        assert!(bytes_below(&world.store) <= 2_000_000, "killed at {point}");
        if !killed {
            break;
        }
        assert!(point < 500);
    }
    assert!(point > 3, "only {point} points");
}

#[test]
fn the_statistics_of_a_server_have_the_budget() {
    let world = filled_world(30);
    world.ok(["settings", "disk.budget", "50MB"]);
    let server = Serving::start(&world, &[]);
    let found = server.get("/statistics");
    let (budget, used) = (&found["budget"], found["total_bytes"].clone());
    assert_eq!(
        (&found["budget_bytes"], &budget["bytes"]),
        (&json!(50_000_000), &json!(50_000_000)),
        "{found}"
    );
    assert_eq!((&budget["used"], &budget["last"]), (&used, &json!(null)), "{budget}");
    let same = world.json(["stats"])["budget"].clone();
    for number in ["removable", "kept", "starts_at", "next", "next_at"] {
        assert_eq!(budget[number], same[number], "{number}");
    }
    assert!(budget["removable"].is_u64() && budget["kept"].as_u64().unwrap() >= 2, "{budget}");
    drop(server);
    world.ok(["settings", "disk.budget", "off"]);
    let found = Serving::start(&world, &[]).get("/statistics");
    assert_eq!((&found["budget"], &found["budget_bytes"]), (&json!(null), &json!(null)));
}
