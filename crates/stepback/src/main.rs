//! `stepback`: time travel for AI agents, on the command line.
//!
//! This crate is a surface: it reads arguments and the environment, asks, prints, and leaves everything else to the engine.

mod args;
mod commands;
mod context;
mod demo;
mod diff_view;
mod failure;
mod hook;
mod output;
mod settings;
mod system;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    system::prepare_process();
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if let Some(code) = hook::run_if_asked(&words) {
        return code;
    }
    let arguments = args::Arguments::try_parse().unwrap_or_else(|error| {
        if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") {
            let message = error.render().to_string();
            failure::Failure::new(failure::Kind::Usage, message.trim_start_matches("error: ").trim_end())
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
