//! `stepback`: time travel for AI agents, on the command line.
//!
//! This crate is only the interface: it reads arguments and the environment, asks for confirmation, prints, and leaves
//! everything else to the engine. It is the only place that knows where the user's files, settings and store are.
//!
//! `main` first asks whether this process is a hook, a watcher, syncs mirrors, prunes, or is the inside of a sandbox, because a
//! hook must not pay for the definitions of sixty commands. Everything else starts at `commands::run`: one function per
//! command.
//!
//! # Modules
//!
//! - `hook`: the entry point for agents' hooks.
//! - `args`: the one definition behind parser, help, completions and manual page, in modules by subject; `args::groups`
//!   orders commands in the help, `args::fast_parse` parses a typical command line with only the command it names,
//!   `args::aliases` rewrites the words of other tools first.
//! - `commands`: one module per command or per group of commands that share code; `commands::documents` is what
//!   they print as JSON, `commands::titles` formats steps and changes as lines.
//! - `context`, `store_location`, `protection`, `settings`, `watcher`: what a command starts from: the workspace,
//!   the store and how it is protected, a few numbers, and whether a watcher is asked or started.
//! - `disk_budget`: the process that keeps a store within its budget, and how commits start it.
//! - `mirroring`: the process that syncs mirrors, how commits start it, and the thread of a server that does the same.
//! - `completion`: what a shell offers while the user types.
//! - `output`, `failure`: data on stdout, narration on stderr, questions; kinds of failure, exit codes, hints.
//! - `diff_view`: differences on a terminal.
//! - `demo`: the story that `stepback demo` tells.
//! - `system`, `allocator`: the real clock and ids, switches for tests; which allocator a process uses.
//!
//! A new command is its arguments in `args`, its function in `commands`, a group in `args::groups`, its document in
//! `docs/guide/json.md`, and a transcript in `tests/cli`.

mod allocator;
mod args;
mod commands;
mod completion;
mod context;
mod demo;
mod diff_view;
mod disk_budget;
mod failure;
mod hook;
mod mirroring;
mod output;
mod protection;
mod settings;
mod store_location;
mod system;
mod watcher;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

fn main() -> ExitCode {
    system::prepare_process();
    let words: Vec<std::ffi::OsString> = std::env::args_os().collect();
    if let Some(code) = hook::run_if_requested(&words) {
        return code;
    }
    if let Some(code) = stepback_watcher::process::run_if_asked(&words) {
        return ExitCode::from(code);
    }
    if let Some(code) = mirroring::run_if_asked(&words).or_else(|| disk_budget::run_if_asked(&words)) {
        return ExitCode::from(code);
    }
    if let Some(error) = stepback_rerun::sandbox::run_sandbox_child(&words) {
        eprintln!("stepback: cannot run in the sandbox: {error}");
        return ExitCode::FAILURE;
    }
    completion::run_if_asked();
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
    output::choose_color(arguments.color);
    let result = {
        let _pager = arguments.is_paged().then(output::OutputPager::start).flatten();
        commands::run(arguments)
    };
    match result {
        Ok(code) => code,
        Err(failure) => failure.report(json),
    }
}

fn parse(words: &[std::ffi::OsString]) -> Result<args::Arguments, clap::Error> {
    // The definition of all commands is a tree of many small allocations, and freeing them one by one is not worth the
    // time.
    let command = Box::leak(Box::new(args::Arguments::command()));
    let words = &args::aliases::translate(&args::user_aliases::expand(words, command));
    let quick = args::fast_parse::try_parse(command, words);
    if let Some(arguments) =
        quick.and_then(|mut matches| args::Arguments::from_arg_matches_mut(&mut matches).ok())
    {
        return Ok(arguments);
    }
    let command = Box::leak(Box::new(args::groups::with_grouped_help(args::Arguments::command())));
    let mut matches = command.try_get_matches_from_mut(words)?;
    args::Arguments::from_arg_matches_mut(&mut matches).map_err(|error| error.format(command))
}
