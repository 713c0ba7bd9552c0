//! The commands of the program, one function each, and the dispatch from parsed arguments to them.

use std::process::ExitCode;

use crate::args::store::{self as store_args, StoreCommand};
use crate::args::{Arguments, CheckpointCommand, Command, Op};
use crate::context::{Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};

mod agent;
mod agents;
mod bisect;
mod board;
mod branch;
mod checkpoint;
mod compare;
mod control;
mod conversation;
mod diff;
mod doctor;
mod documents;
mod find;
pub mod fsck;
mod history;
mod inspect;
mod maintenance;
mod mcp;
mod moves;
mod proxy;
mod reference;
mod replay;
mod rerun;
mod rewind;
mod run;
mod serve;
mod sessions;
mod share;
mod status;
mod store;
mod studio;
mod titles;
mod tui;
mod watcher;

/// The result of a command: its exit code, or why it failed.
pub type CommandResult = Result<ExitCode, CommandFailure>;

/// The result of a command that succeeded.
pub const DONE: CommandResult = Ok(ExitCode::SUCCESS);

/// Runs the command that the arguments name.
pub fn run(arguments: Arguments) -> CommandResult {
    let known = |work| Context::open(&arguments, CreateStore::No, work);
    // For what may be the first thing that is recorded.
    let any = |work| Context::open(&arguments, CreateStore::Yes, work);
    match &arguments.command {
        Command::Checkpoint(command) => run_checkpoint(&arguments, command),
        Command::Log { limit, session, kinds } => {
            history::log(&known("")?, *limit, session.as_deref(), kinds)
        }
        Command::Timeline => history::timeline(&known("")?),
        Command::Op(Op::Log) => history::op_log(&known("")?),
        Command::Status { excluded } => status::status(&known("files scanned")?, *excluded),
        Command::Changes { point, paths, session, all } => {
            let wanted =
                status::Wanted { point: point.as_deref(), paths, session: session.as_deref(), all: *all };
            status::changes(&known("files scanned")?, &wanted)
        }
        Command::Diff(arguments) => diff::diff(&known("files scanned")?, arguments),
        Command::Rewind(arguments) => rewind::rewind(&known("files")?, arguments),
        Command::Undo { operation, agree } => moves::undo(&known("files")?, operation.as_deref(), agree),
        Command::Redo { agree } => moves::redo(&known("files")?, agree),
        Command::At { point } => inspect::at(&known("")?, point),
        Command::Cat { point, path } => inspect::cat(&known("")?, point, path),
        Command::Restore { point, into, git } => {
            inspect::restore(&known("files written")?, point, into, *git)
        }
        Command::Init(init) => agents::init(&arguments.here()?, arguments.json, init),
        Command::Run(wanted) => run::run(&arguments, wanted),
        Command::Proxy(wanted) => proxy::proxy(&any("")?, wanted),
        Command::Serve(wanted) => serve::serve(&any("")?, wanted),
        Command::Studio(wanted) => studio::studio(&any("")?, wanted),
        Command::Rerun(wanted) => rerun::rerun(&known("")?.starting_no_watcher(), wanted),
        Command::Agent(agent) => agent::agent(&any("files scanned")?, agent),
        Command::Hook { agent, .. } => {
            // Only reached if the fast path in `hook` could not read the arguments.
            Err(CommandFailure::new(
                FailureKind::Usage,
                format!("cannot run the hook of {agent} with these arguments"),
            ))
        }
        Command::Sessions(wanted) => sessions::list(&known("")?, wanted),
        Command::Export(wanted) => share::export(&known("objects written")?, wanted),
        Command::Import(wanted) => {
            agents::import(&any("objects read")?, &wanted.path, wanted.agent.as_deref())
        }
        Command::Breakpoint(command) => control::breakpoint(&any("")?, command),
        Command::Pause { session } => control::pause(&known("")?, session.as_deref()),
        Command::Resume { of } => control::resume(&known("")?, of.session.as_deref(), false),
        Command::Step { of } => control::resume(&known("")?, of.session.as_deref(), true),
        Command::Inspect { what, of } => {
            control::inspect(&known("")?, of.session.as_deref(), what.as_deref())
        }
        Command::Inject { text, of } => control::inject(&known("")?, of.session.as_deref(), text),
        Command::Deny { reason, of } => control::deny(&known("")?, of.session.as_deref(), reason.as_deref()),
        Command::EditInput { input, of } => control::edit_input(&known("")?, of.session.as_deref(), input),
        Command::Watch { filter, of, limit } => {
            sessions::watch(&any("")?, of.session.as_deref(), filter, *limit)
        }
        Command::Replay(arguments) => replay::replay(&known("")?, arguments),
        Command::Tui(wanted) => tui::tui(&arguments, wanted),
        Command::Search(arguments) => find::search(&known("steps indexed")?, arguments),
        Command::Query(arguments) => find::query(&known("")?, arguments),
        Command::Compare(arguments) => compare::compare(&known("")?, arguments),
        Command::Bisect(arguments) => bisect::bisect(&known("")?, arguments),
        Command::Branch(command) => branch::run(&known("files")?, command),
        Command::Board(wanted) => board::board(&any("")?, wanted),
        Command::BoardPart(command) => board::part(&any("")?, command),
        Command::Mcp(wanted) => mcp::mcp(&any("")?, wanted),
        Command::Settings { key, value } => agents::settings(&any("")?, key.as_deref(), value.as_deref()),
        Command::Doctor => doctor::doctor(&known("files scanned")?),
        Command::Watcher { command: None } => watcher::show(&known("")?),
        Command::Watcher { command: Some(store_args::WatcherCommand::Stop) } => watcher::stop(&known("")?),
        Command::Prune(arguments) => maintenance::prune(&known("objects")?, arguments),
        Command::Fsck(wanted) => fsck::fsck(&arguments, wanted),
        Command::Stats => maintenance::stats(&known("")?),
        Command::Store(StoreCommand::Copy { from, to }) => store::copy(from, to, arguments.json),
        Command::Demo { keep: _, no_keep, fast } => crate::demo::run(!no_keep, *fast),
        Command::Completions { shell } => reference::completions(*shell),
        Command::Man => reference::man(),
        Command::Points => reference::points(),
    }
}

fn run_checkpoint(arguments: &Arguments, command: &CheckpointCommand) -> CommandResult {
    let known = || Context::open(arguments, CreateStore::No, "");
    match command {
        CheckpointCommand::Create { label, note, tags } => {
            let context = Context::open(arguments, CreateStore::Yes, "files scanned")?;
            checkpoint::create(&context, label.clone(), note.clone(), tags.clone())
        }
        CheckpointCommand::List { tag, find, all } => {
            checkpoint::list(&known()?, tag.as_deref(), find.as_deref(), *all)
        }
        CheckpointCommand::Show { point } => checkpoint::show(&known()?, point),
        CheckpointCommand::Annotate { point, note, label, tags } => {
            checkpoint::annotate(&known()?, point, note, label.as_deref(), tags)
        }
        CheckpointCommand::Delete { point } => checkpoint::delete(&known()?, point),
    }
}
