//! The commands of the program, one function each, and the dispatch from parsed arguments to them.

use std::process::ExitCode;

use crate::args::store::{self as store_args, GuardCommand, StoreCommand};
use crate::args::{Arguments, CheckpointCommand, Command, OpCommand};
use crate::context::{Context, CreateStore};
use crate::failure::{CommandFailure, FailureKind};

mod agent;
mod agents;
mod anomalies;
mod bisect;
mod blame;
mod board;
mod branch;
mod budget;
mod checkpoint;
mod command_history;
mod compare;
mod confirmation;
mod control;
mod conversation;
mod cost;
mod diff;
mod doctor;
mod documents;
mod files;
mod find;
pub mod fsck;
mod git_export;
mod guard;
mod history;
mod init;
mod inspect;
mod maintenance;
mod mcp;
pub mod mirror;
mod moves;
mod profile;
mod proxy;
mod reference;
mod replay;
mod rerun;
mod rewind;
mod run;
mod seal;
mod serve;
mod session_file;
mod session_parts;
mod sessions;
mod settings;
mod share;
mod status;
mod store;
mod studio;
mod titles;
mod tui;
mod watcher;
mod why;
mod why_without;
mod workspace;

pub use self::serve::GUARD_ID;

/// The result of a command: its exit code, or why it failed.
pub type CommandResult = Result<ExitCode, CommandFailure>;

/// The result of a command that succeeded.
pub const DONE: CommandResult = Ok(ExitCode::SUCCESS);

/// Runs the command that the arguments name.
pub fn run(arguments: Arguments) -> CommandResult {
    let open_existing = |work| Context::open(&arguments, CreateStore::No, work);
    // For what may be the first thing that is recorded.
    let open_or_create = |work| Context::open(&arguments, CreateStore::Yes, work);
    match &arguments.command {
        Command::Checkpoint(command) => run_checkpoint(&arguments, command),
        Command::Log { paths, limit, session, kinds } => {
            let wanted = history::LogQuery { paths, limit: *limit, session: session.as_deref(), kinds };
            history::log(&open_existing("")?, &wanted)
        }
        Command::Timeline { session } => history::timeline(&open_existing("")?, session.as_deref()),
        Command::Op(OpCommand::Log) => history::op_log(&open_existing("")?),
        Command::Status { excluded } => status::status(&open_existing("files scanned")?, *excluded),
        Command::Changes(wanted) => status::changes(&open_existing("files scanned")?, wanted),
        Command::Diff(arguments) => diff::diff(&open_existing("files scanned")?, arguments),
        Command::Rewind(arguments) => rewind::rewind(&open_existing("files")?, arguments),
        Command::Undo { operation, agree } => {
            moves::undo(&open_existing("files")?, operation.as_deref(), agree)
        }
        Command::Redo { agree } => moves::redo(&open_existing("files")?, agree),
        Command::Show { point } => inspect::show_point(&open_existing("")?, point),
        Command::Ls { point, path, recursive } => {
            files::list(&open_existing("")?, point, path.as_deref(), *recursive)
        }
        Command::Cat { point, path } => files::cat(&open_existing("")?, point, path),
        Command::Restore { point, into, git } => {
            inspect::restore(&open_existing("files written")?, point, into, *git)
        }
        Command::Init(init) => init::init(&arguments, init),
        Command::Run(wanted) => run::run(&arguments, wanted),
        Command::Proxy(wanted) => proxy::proxy(&open_or_create("")?, wanted),
        Command::Serve(wanted) => serve::serve(&open_or_create("")?, wanted),
        Command::Studio(wanted) => studio::studio(&open_or_create("")?, wanted),
        Command::Rerun(wanted) => rerun::rerun(&open_existing("")?.without_starting_watcher(), wanted),
        Command::Agent(agent) => agent::agent(&open_or_create("files scanned")?, agent),
        Command::Hook { agent, .. } => refuse_hook_arguments(agent),
        Command::Sessions(wanted) => sessions::list(&open_existing("")?, wanted),
        Command::Export(wanted) => share::export(&open_existing("objects written")?, wanted),
        Command::Notes(command) => git_export::notes(&open_existing("")?, command),
        Command::Import(wanted) => {
            agents::import(&open_or_create("objects read")?, &wanted.path, wanted.agent.as_deref())
        }
        Command::Breakpoint(command) => control::breakpoint(&open_or_create("")?, command),
        Command::Pause { session } => control::pause(&open_existing("")?, session.as_deref()),
        Command::Resume { of } => control::resume(&open_existing("")?, of.session.as_deref(), false),
        Command::Step { of } => control::resume(&open_existing("")?, of.session.as_deref(), true),
        Command::Inspect { what, of } => {
            control::inspect(&open_existing("")?, of.session.as_deref(), what.as_deref())
        }
        Command::Inject { text, of } => control::inject(&open_existing("")?, of.session.as_deref(), text),
        Command::Deny { reason, of } => {
            control::deny(&open_existing("")?, of.session.as_deref(), reason.as_deref())
        }
        Command::EditInput { input, of } => {
            control::edit_input(&open_existing("")?, of.session.as_deref(), input)
        }
        Command::Watch { filter, of, limit } => {
            sessions::watch(&open_or_create("")?, of.session.as_deref(), filter, *limit)
        }
        Command::Replay(arguments) => replay::replay(&open_existing("")?, arguments),
        Command::Tui(wanted) => tui::tui(&arguments, wanted),
        Command::Search(arguments) => find::search(&open_existing("steps indexed")?, arguments),
        Command::Query(arguments) => find::query(&open_existing("")?, arguments),
        Command::Commands(arguments) => command_history::commands(&open_existing("")?, arguments),
        Command::Cost(arguments) => cost::cost(&open_existing("")?, arguments),
        Command::Blame(arguments) => blame::blame(&open_existing("")?, arguments),
        Command::Why(arguments) => why::why(&open_existing("")?, arguments),
        Command::Profile(arguments) => profile::profile(&open_existing("")?, arguments),
        Command::Anomalies(arguments) => anomalies::anomalies(&open_existing("")?, arguments),
        Command::Compare(arguments) => compare::compare(&open_existing("")?, arguments),
        Command::Bisect(arguments) => bisect::bisect(&open_existing("")?, arguments),
        Command::Branch(command) => branch::run(&open_existing("files")?, command),
        Command::Board(wanted) => board::board(&open_or_create("")?, wanted),
        Command::BoardPart(command) => board::run_part_command(&open_or_create("")?, command),
        Command::Mcp(wanted) => mcp::mcp(&open_or_create("")?, wanted),
        Command::Settings { key, values, edit } => {
            settings::settings(&open_or_create("")?, key.as_deref(), values, *edit)
        }
        Command::Doctor(wanted) => doctor::doctor(&arguments, wanted),
        Command::Watcher { command } => run_watcher(&open_existing("")?, command.as_ref()),
        Command::Prune(arguments) => maintenance::prune(&open_existing("objects")?, arguments),
        Command::Fsck(wanted) => fsck::fsck(&arguments, wanted),
        Command::Seal(wanted) => seal::seal(&open_existing("")?, wanted),
        Command::Mirror(wanted) => mirror::mirror(&arguments, wanted),
        Command::WorkspaceOf(command) => workspace::run(&arguments, command),
        Command::Stats => maintenance::stats(&open_existing("")?),
        Command::Guard(GuardCommand::Setup(wanted)) => guard::setup(wanted, arguments.json),
        Command::Store(StoreCommand::Copy { from, to, accept_breaks }) => {
            store::copy(from, to, *accept_breaks, arguments.json)
        }
        Command::Demo { keep: _, no_keep, fast } => crate::demo::run(!no_keep, *fast),
        Command::Completions { shell } => reference::completions(*shell),
        Command::Man { command, into } => reference::man(command, into.as_deref()),
        Command::Points => reference::points(),
    }
}

/// Only reached if the fast path in `hook` could not read the arguments.
fn refuse_hook_arguments(agent: &str) -> CommandResult {
    let text = format!("cannot run the hook of {agent} with these arguments");
    Err(CommandFailure::new(FailureKind::Usage, text))
}

fn run_watcher(context: &Context, command: Option<&store_args::WatcherCommand>) -> CommandResult {
    match command {
        None => watcher::show(context),
        Some(store_args::WatcherCommand::Stop) => watcher::stop(context),
    }
}

fn run_checkpoint(arguments: &Arguments, command: &CheckpointCommand) -> CommandResult {
    let open_existing = || Context::open(arguments, CreateStore::No, "");
    match command {
        CheckpointCommand::Create { label, note, tags } => {
            let context = Context::open(arguments, CreateStore::Yes, "files scanned")?;
            checkpoint::create(&context, label.clone(), note.clone(), tags.clone())
        }
        CheckpointCommand::List { tag, find, session, all } => {
            let texts = (tag.as_deref(), find.as_deref());
            checkpoint::list(&open_existing()?, texts, session.as_deref(), *all)
        }
        CheckpointCommand::Show { point } => checkpoint::show(&open_existing()?, point),
        CheckpointCommand::Annotate { point, note, label, tags } => {
            checkpoint::annotate(&open_existing()?, point, note, label.as_deref(), tags)
        }
        CheckpointCommand::Delete { point } => checkpoint::delete(&open_existing()?, point),
    }
}
