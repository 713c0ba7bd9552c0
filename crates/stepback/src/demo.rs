//! The command `stepback demo`: an agent breaks a small project, is stopped and rewound, and then solves the task another
//! way, with narration.
//!
//! Nothing is faked: the project is real, its tests run in a real shell, the agent is the built-in one with a script as
//! its model, and every `$ stepback …` line runs this program again. Everything, including the store, is in a temporary
//! directory, so the user's files are not touched.

mod actor;
mod project;
mod stage;
mod story;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use stepback_model::shell::quote_word;

use self::stage::DemoProject;
use crate::commands::CommandResult;
use crate::failure::CommandFailure;

/// The exit code of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// Runs the demo. With `keep`, the project and the store are left to explore.
pub fn run(keep: bool, fast: bool) -> CommandResult {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let dir = stepback_rerun::scratch::private_directory("stepback-demo-")?;
    let place = dir.path().canonicalize()?;
    let stage = DemoProject::new(&place, fast, stop.clone());
    let played = story::play(&stage);
    let interrupted = stop.load(Ordering::Relaxed);
    if stage.is_output_closed() {
        return Ok(ExitCode::SUCCESS);
    }
    if keep {
        let _ = dir.keep();
    }
    match played {
        Ok(()) => {
            print_closing(&stage, keep.then_some(&place))?;
            Ok(ExitCode::SUCCESS)
        }
        Err(_) if interrupted => {
            stage.print_line("\nInterrupted; the agent was stopped.")?;
            if keep {
                stage.print_line("Created so far:\n")?;
                print_setup_commands(&stage)?;
                stage.print_suggestion("stepback timeline", "everything that happened")?;
                print_cleanup_command(&stage, &place)?;
            }
            Ok(ExitCode::from(INTERRUPTED))
        }
        Err(failure) if keep => Err(failure.with_hint(format!("its files are in {}", place.display()))),
        Err(failure) => Err(failure),
    }
}

fn print_closing(stage: &DemoProject, kept: Option<&Path>) -> Result<(), CommandFailure> {
    if let Some(place) = kept {
        stage.print_title("Your turn")?;
        stage.print_line("Everything is still there to explore:\n")?;
        print_setup_commands(stage)?;
        stage.print_suggestion("stepback timeline", "everything that happened, and what was rewound")?;
        stage.print_suggestion("stepback studio", "all of it in a browser")?;
        stage.print_suggestion("stepback replay", "the second try, step by step")?;
        stage.print_suggestion("stepback changes", "who changed what, and why")?;
        stage.print_suggestion("stepback compare plan-a main", "both tries in two columns")?;
        stage.print_suggestion(
            "stepback rerun",
            "the second try again, in its own directory, from its recording",
        )?;
        stage.print_suggestion("stepback branch switch plan-a", "plan A again; \"stepback undo\" returns")?;
        print_cleanup_command(stage, place)?;
    }
    stage.print_line("\nIn a project of your own: \"stepback init\", then start your agent as always.")
}

/// Prints the commands that lead to the demo's project and store.
fn print_setup_commands(stage: &DemoProject) -> Result<(), CommandFailure> {
    stage.print_suggestion(&format!("cd {}", quote_path(&stage.root)), "")?;
    stage.print_suggestion(&format!("export STEPBACK_HOME={}", quote_path(&stage.store)), "")?;
    let program = std::env::current_exe()?;
    if !is_on_path(&program) {
        stage.print_suggestion(&format!("alias stepback={}", quote_path(&program)), "")?;
    }
    stage.print_line("")
}

fn print_cleanup_command(stage: &DemoProject, place: &Path) -> Result<(), CommandFailure> {
    stage.print_line("\nWhen you have seen enough:\n")?;
    stage.print_suggestion(&format!("rm -r {}", quote_path(place)), "")
}

/// Whether typing `stepback` starts this program.
fn is_on_path(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|dir| dir.join("stepback")).find(|file| file.is_file());
    found.and_then(|file| file.canonicalize().ok()).is_some_and(|file| file == program)
}

/// Returns a path quoted for a shell.
fn quote_path(path: &Path) -> String {
    quote_word(&path.to_string_lossy())
}
