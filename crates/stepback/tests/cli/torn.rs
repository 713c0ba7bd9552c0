//! Files that look as if a power failure had left them incomplete, when a rewind is completed.

use std::fs;

use crate::sandbox::Sandbox;

/// More points than the rewind here may have.
const MOST_POINTS: u32 = 2_000;

/// The rewind is killed at every point, and then files are shortened. Whether a power failure or the user did that cannot be
/// known, so the rewind is completed and what it replaced is a checkpoint.
#[test]
fn shortened_files_are_written_again_and_saved() {
    let mut replaced = 0;
    for n in 1..MOST_POINTS {
        let world = Sandbox::new();
        world.write("edited.txt", "as it was\n");
        world.write("new/deep.txt", "deleted and then restored\n");
        world.ok(["checkpoint", "create", "one"]);
        world.write("edited.txt", "as it is now\n");
        fs::remove_dir_all(world.path("new")).unwrap();
        if world.faulty(&["rewind", "one", "--yes"], &format!("kill:{n}")).code == Some(0) {
            assert!(replaced > 3, "only {replaced} files were replaced");
            return;
        }
        let when = format!("kill:{n}");
        fs::write(world.path("edited.txt"), "as it").unwrap();
        let restored = world.path("new/deep.txt");
        let has_restored = restored.exists();
        if has_restored {
            fs::write(&restored, "").unwrap();
        }
        world.ok(["status"]);
        world.expect_no_leftovers(&when);
        world.expect_sound(&when);
        let found = fs::read_to_string(world.path("edited.txt")).unwrap();
        if found == "as it" {
            // The journal was not open: it is an edit.
            continue;
        }
        assert_eq!(found, "as it was\n", "{when}");
        assert_eq!(fs::read_to_string(&restored).unwrap(), "deleted and then restored\n", "{when}");
        replaced += 1;
        let into = world.root().join("saved");
        let checkpoints = world.json(["checkpoint", "list", "--all"]);
        let is_saved = |step: &&serde_json::Value| step["summary"].to_string().contains("incomplete files");
        let steps = checkpoints["items"].as_array().unwrap();
        let saved = steps.iter().find(is_saved).unwrap_or_else(|| panic!("{when}: {checkpoints}"));
        world.ok(["restore", &format!("#{}", saved["number"]), "--into", into.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(into.join("edited.txt")).unwrap(), "as it", "{when}");
        if has_restored {
            assert_eq!(fs::read_to_string(into.join("new/deep.txt")).unwrap(), "", "{when}");
        }
    }
    panic!("the rewind never succeeds");
}
