//! The commands that print what is generated from the definition of the command line.

use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{CommandResult, DONE};
use crate::args::{self, Arguments};
use crate::failure::{CommandFailure, FailureKind};
use crate::{completion, output};

/// Runs `stepback completions`.
pub fn completions(shell: Shell) -> CommandResult {
    let script = completion::write_script(&shell.to_string())?.ok_or_else(|| {
        CommandFailure::new(FailureKind::Usage, format!("there are no completions for {shell}"))
    })?;
    output::write_raw(&script);
    DONE
}

/// Runs `stepback man`: the page of the program, of one command, or all pages as files of a directory.
pub fn man(names: &[String], into: Option<&Path>) -> CommandResult {
    let mut command = args::groups::with_grouped_help(Arguments::command());
    command.build();
    if let Some(directory) = into {
        std::fs::create_dir_all(directory)?;
        clap_mangen::generate_to(command, directory)?;
        output::print_status(format!("Wrote the pages to {}.", directory.display()));
        return DONE;
    }
    let mut named = &command;
    for name in names {
        named = named.find_subcommand(name).ok_or_else(|| {
            let what = format!("\"{}\" is not a command", names.join(" "));
            CommandFailure::new(FailureKind::Usage, what).with_hint("\"stepback help\" lists them")
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(named.clone()).render(&mut page)?;
    output::write_raw(&page);
    DONE
}

/// Runs `stepback points`.
pub fn points() -> CommandResult {
    if let Some(points) = Arguments::command().find_subcommand_mut("points") {
        points.print_help()?;
    }
    DONE
}
