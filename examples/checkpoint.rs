//! Saves a directory, changes it, restores it, and takes the restore back.
//!
//! ```console
//! $ cargo run --example checkpoint
//! ```

use std::error::Error;
use std::fs;

use stepback_engine::prelude::*;

/// Runs the example.
pub fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let project = dir.path().join("project");
    fs::create_dir(&project)?;
    let notes = project.join("notes.txt");
    fs::write(&notes, "first draft\n")?;

    // The store is outside the project. `stepback --store DIR log` shows the same records.
    let engine = Engine::open(dir.path().join("store"))?;
    let workspace = engine.open_workspace(&project)?;
    let draft = workspace.create_checkpoint(Annotation::labelled("draft"), Trigger::Manual)?;
    fs::write(&notes, "second draft\n")?;
    fs::write(project.join("scratch.txt"), "to be deleted\n")?;

    // A plan says what would happen; nothing has changed yet.
    let plan = workspace.plan_move(&MoveRequest::restore(&draft.stored))?;
    println!("{}:", plan.summary);
    for change in plan.files.iter().flat_map(|files| &files.plan.changes) {
        println!("  {}", change.path);
    }
    workspace.apply_move(plan)?;
    assert_eq!(fs::read_to_string(&notes)?, "first draft\n");
    assert!(!project.join("scratch.txt").exists());

    // The present was saved before, so nothing is lost.
    let undo = workspace.plan_move(&MoveRequest::undo())?;
    workspace.apply_move(undo)?;
    assert_eq!(fs::read_to_string(&notes)?, "second draft\n");
    Ok(())
}
