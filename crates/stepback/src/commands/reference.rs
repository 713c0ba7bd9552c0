//! The commands that print what is generated from the definition of the command line.

use clap::CommandFactory;
use clap_complete::Shell;

use super::{CommandResult, DONE};
use crate::args::Arguments;
use crate::output;

/// Runs `stepback completions`.
pub fn completions(shell: Shell) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "stepback", &mut script);
    output::write_raw(&script);
    DONE
}

/// Runs `stepback man`.
pub fn man() -> CommandResult {
    let mut page = Vec::new();
    clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
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
