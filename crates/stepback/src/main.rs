//! `stepback`: time travel for AI agents, on the command line.
//!
//! This crate is only the interface: it reads arguments and the environment, asks for confirmation, prints, and leaves
//! everything else to the engine.

mod allocator;
mod args;
mod commands;
mod context;
mod demo;
mod diff_view;
mod failure;
mod hook;
mod output;
mod settings;
mod store_location;
mod system;
mod watcher;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

fn main() -> ExitCode {
    system::prepare_process();
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if let Some(code) = hook::run_if_asked(&words) {
        return code;
    }
    if let Some(code) = stepback_watcher::process::run_if_asked(&words) {
        return ExitCode::from(code);
    }
    if let Some(error) = stepback_rerun::sandbox::run_sandbox_child(&words) {
        eprintln!("stepback: cannot run behind the fence: {error}");
        return ExitCode::FAILURE;
    }
    let arguments = parse(&words).unwrap_or_else(|error| {
        if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
            let message = error.render().to_string();
            failure::CommandFailure::new(
                failure::FailureKind::Usage,
                message.trim_start_matches("error: ").trim_end(),
            )
            .print_document();
        }
        error.exit()
    });
    let json = arguments.json;
    match commands::run(arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

fn parse(words: &[std::ffi::OsString]) -> Result<args::Arguments, clap::Error> {
    // The definition of all commands is a tree of many small allocations, and freeing them one by one is not worth the
    // time.
    let command = Box::leak(Box::new(args::Arguments::command()));
    let quick = args::fast_parse::matches(command, words);
    if let Some(arguments) =
        quick.and_then(|mut matches| args::Arguments::from_arg_matches_mut(&mut matches).ok())
    {
        return Ok(arguments);
    }
    let command = Box::leak(Box::new(args::groups::grouped(args::Arguments::command())));
    let mut matches = command.try_get_matches_from_mut(words)?;
    args::Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(command))
}
