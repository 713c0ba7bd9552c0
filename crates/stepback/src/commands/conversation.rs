//! Continues conversations from an earlier point in the real agent: `rewind --conversation`, `branch create --resume`.

use std::path::Path;
use std::process::{Command, ExitCode};

use stepback_agents::fork::{self, ForkError, ForkMode, ForkRequest, PlannedFork, ReadyFork};
use stepback_api::sessions::ConversationForkDocument;
use stepback_engine::workspace::describe_checkpoint;
use stepback_engine::{EngineError, Workspace};
use stepback_model::record::Session;
use stepback_model::shell::{quote_word, quote_words};
use stepback_store::port::{StepQuery, StepRow};

use super::{CommandResult, DONE};
use crate::context::{self, Context};
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// A conversation that is ready to continue.
pub struct ContinuedConversation {
    /// The session that the conversation came from.
    pub session: Session,
    /// The number of the step that it continues from.
    pub from: u64,
    /// The prepared continuation: the new session and where it runs.
    pub ready: ReadyFork,
    /// How many messages the conversation starts with.
    pub kept: usize,
    /// A remark for the user.
    pub note: Option<String>,
}

/// Prepares the conversation as it was at `target` to continue under a new id, in the directory `cwd` if one is given.
pub fn fork_at(
    context: &Context,
    workspace: &Workspace,
    target: &StepRow,
    cwd: Option<&Path>,
    prompt: Option<&str>,
) -> Result<ContinuedConversation, CommandFailure> {
    apply_fork(context, workspace, plan_fork_at(context, workspace, target, cwd, prompt)?)
}

/// Carries out a planned continuation.
pub fn apply_fork(
    context: &Context,
    workspace: &Workspace,
    planned: PlannedFork,
) -> Result<ContinuedConversation, CommandFailure> {
    let ready = planned.execute(context.engine(), workspace, context.now());
    let ready = ready.map_err(|error| fork_failure(error, &planned.target))?;
    let (from, kept) = (planned.target.step.number, planned.fork.kept_lines);
    Ok(ContinuedConversation { session: planned.session, from, ready, kept, note: planned.fork.note })
}

/// Checks whether and how the conversation can continue from `target`, without writing anything.
pub fn plan_fork_at(
    context: &Context,
    workspace: &Workspace,
    target: &StepRow,
    cwd: Option<&Path>,
    prompt: Option<&str>,
) -> Result<PlannedFork, CommandFailure> {
    let session = find_conversation_session(workspace, target)?;
    if session.agent == stepback_builtin_agent::NAME {
        let unusual =
            crate::store_location::StoreLocation::find(None).ok().as_ref() != Some(context.store_location());
        let store = unusual.then(|| context.store_location().argument());
        let id = context.fresh_id();
        return Ok(stepback_builtin_agent::resume(workspace, session, target, store, cwd, prompt, id)?);
    }
    let home = context::agents_home().ok_or_else(|| {
        CommandFailure::new(
            FailureKind::System,
            "HOME is not set, so the agent's conversations cannot be located",
        )
    })?;
    let onward = ForkRequest {
        cwd,
        id: context.fresh_id(),
        now: context.now(),
        mode: prompt.filter(|prompt| !prompt.is_empty()).map_or(ForkMode::Interactive, ForkMode::Prompt),
    };
    fork::plan_recorded_fork(workspace, session, target, &home, &onward)
        .map_err(|error| fork_failure(error, target))
}

/// Returns the step at which the conversation of `session` was at `target`: the newest of its own steps up to there.
/// Without a session, returns `target` itself.
pub fn last_session_step(
    workspace: &Workspace,
    target: &StepRow,
    session: Option<&Session>,
) -> Result<StepRow, CommandFailure> {
    let number = target.step.number;
    let Some(session) = session.filter(|session| session.id != target.step.session) else {
        return Ok(target.clone());
    };
    let query = StepQuery {
        session: Some(session.id),
        before: Some(number),
        limit: Some(1),
        hidden: Some(false),
        ..StepQuery::default()
    };
    let steps = workspace.store().steps(workspace.record.id, &query).map_err(EngineError::from)?;
    steps.into_iter().next().ok_or_else(|| {
        let name = super::sessions::display_name(session);
        CommandFailure::new(
            FailureKind::Nothing,
            format!("session {name} had not started at {}", describe_checkpoint(target)),
        )
    })
}

fn fork_failure(error: ForkError, target: &StepRow) -> CommandFailure {
    match error {
        ForkError::Engine(error) => return error.into(),
        ForkError::Unsupported(_) => return CommandFailure::new(FailureKind::Usage, error.to_string()),
        ForkError::MissingProgram { agent, .. } => {
            return CommandFailure::new(FailureKind::Nothing, error.to_string()).with_hint(format!(
                "reinstall it there, or omit --resume: this only prepares the conversation and prints the command, which you can run with another {agent} executable"
            ));
        }
        ForkError::NotFound(_) => return CommandFailure::new(FailureKind::Nothing, error.to_string()),
        _ => {}
    }
    CommandFailure::new(
        FailureKind::Nothing,
        format!("the conversation cannot continue from {}: {error}", describe_checkpoint(target)),
    )
    .with_hint("\"stepback log --kind user-input\" lists the prompts, which are good points to continue from")
}

/// Returns the session whose conversation is meant: that of the step, or the one that was active at that time.
fn find_conversation_session(workspace: &Workspace, target: &StepRow) -> Result<Session, CommandFailure> {
    workspace.conversation_session(target)?.ok_or_else(|| {
        CommandFailure::new(
            FailureKind::Nothing,
            format!("no agent had been recorded before {}", describe_checkpoint(target)),
        )
        .with_hint(
            "\"stepback log --kind user-input\" lists the prompts, which are good points to continue from",
        )
    })
}

/// The document of how the conversation continues.
pub fn fork_document(continued: &ContinuedConversation) -> ConversationForkDocument {
    let ContinuedConversation { session, from, ready, kept, note } = continued;
    ConversationForkDocument {
        session: session.id.to_string(),
        agent: session.agent.clone(),
        from: *from,
        new_agent_session: ready.session.clone(),
        messages: *kept as u64,
        command: ready.command.clone(),
        directory: ready.cwd.display().to_string(),
        note: note.clone(),
        ready: true,
    }
}

/// Prints the command that continues the conversation, or runs it.
pub fn resume_conversation(context: &Context, continued: &ContinuedConversation, run: bool) -> CommandResult {
    let command = quote_words(&continued.ready.command);
    if !context.json {
        let paint = Paint::stdout();
        output::print_line(format!(
            "The conversation of {} continues from there as {}.",
            super::sessions::display_name(&continued.session),
            paint.name(&continued.ready.session)
        ));
        if let Some(note) = &continued.note {
            output::print_status(note);
        }
        if !run {
            output::print_line(format!(
                "  cd {} && {}",
                quote_word(&continued.ready.cwd.display().to_string()),
                paint.strong(&command)
            ));
        }
    }
    if !run {
        return DONE;
    }
    let Some((program, arguments)) = continued.ready.command.split_first() else { return DONE };
    // The built-in agent is this program, wherever it is installed.
    let own = (program == stepback_builtin_agent::NAME).then(std::env::current_exe).and_then(Result::ok);
    let program = own.unwrap_or_else(|| program.into());
    let status = Command::new(program).args(arguments).current_dir(&continued.ready.cwd).status().map_err(
        |error| {
            CommandFailure::new(FailureKind::System, format!("cannot run {command}: {error}"))
                .with_hint("the conversation is ready; run the command yourself")
        },
    )?;
    Ok(ExitCode::from(u8::try_from(status.code().unwrap_or(1)).unwrap_or(1)))
}
