//! The command `stepback agent`: runs the built-in agent.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use stepback_agents::payload::summary_line;
use stepback_builtin_agent::provider::{Dialect, Http, Post, ScriptError, Scripted};
use stepback_builtin_agent::{ExitReason, NAME, Provider, RunEvent, RunOptions, RunOutcome};
use stepback_engine::{EngineError, Workspace};
use stepback_llm_wire::Response;
use stepback_model::conversation;
use stepback_model::escape::safe;
use stepback_model::hash::Hash;
use stepback_model::record::Step;
use stepback_model::state::WorkspaceState;
use stepback_proxy::ProxyLimits;
use stepback_proxy::client::UpstreamClient;
use stepback_rerun::builtin::BuiltinRunSpec;

use super::CommandResult;
use crate::args::live::AgentArgs;
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};
use crate::settings::Settings;
use crate::system;

/// The exit code of a program that was interrupted.
const INTERRUPTED: u8 = 130;

/// The default model for Anthropic's API.
const ANTHROPIC_MODEL: &str = "claude-sonnet-4-5";

/// The provider that answers, and the user's prompt.
struct AgentRequest<'a> {
    provider: &'a str,
    script: Option<PathBuf>,
    prompt: &'a str,
}

/// Runs `stepback agent`.
pub fn agent(context: &Context, arguments: &AgentArgs) -> CommandResult {
    if let Some(file) = &arguments.again {
        return rerun_agent(context, file);
    }
    let wish = parse_request(arguments)?;
    let stop = stop_on_signals()?;
    let (mut provider, model) = build_provider(&wish, arguments, &stop)?;
    let workspace = context.open_or_create_workspace()?;
    stepback_agents::record::record_inbox(&workspace)?;
    let ResumeState { history, memory, session } = match (&arguments.from, &arguments.session) {
        (Some(point), _) => load_state_at_point(context, &workspace, point)?,
        (None, Some(session)) => load_state_of_session(&workspace, session)?,
        (None, None) => ResumeState::default(),
    };
    let settings = Settings::load_or_default(context.store_location().local_dir());
    let prices = context.load_prices()?;
    let json = context.json;
    let paint = Paint::stdout();
    let mut watch = |happening: RunEvent<'_>| {
        if !json {
            print_event(paint, happening);
        }
    };
    let options = RunOptions {
        prompt: Some(wish.prompt.to_string()),
        history,
        memory,
        session,
        environment: provider_arguments(&wish, arguments),
        max_turns: arguments.max_turns,
        patience: settings.breakpoint_timeout(),
        looks: settings.get("checkpoint.calls") != 0,
        stop,
        price: &|model, usage| prices.cost(model, usage),
        ..RunOptions::new(model, &mut watch)
    };
    let outcome = stepback_builtin_agent::run(&workspace, &mut *provider, options)?;
    Ok(print_outcome(json, &outcome))
}

/// Runs the agent inside the sandbox of a rerun. Recorded answers come from the address that `file` names.
fn rerun_agent(context: &Context, file: &Path) -> CommandResult {
    let beginning = BuiltinRunSpec::load(file)?;
    let stop = stop_on_signals()?;
    let key = Some("a-recording-needs-no-key".to_owned());
    let key = std::env::var("ANTHROPIC_API_KEY").ok().or(key);
    let base = beginning.base_url.clone();
    let mut provider = Http::new(build_transport()?, Dialect::Anthropic, Some(&base), key, stop.clone());
    let workspace = context.open_workspace()?;
    let prices = context.load_prices()?;
    let paint = Paint::stdout();
    let mut watch = |happening: RunEvent<'_>| print_event(paint, happening);
    let price = |model: &str, usage: &_| prices.cost(model, usage);
    let outcome = beginning.run(&workspace, &mut provider, stop, &price, &mut watch)?;
    Ok(print_outcome(context.json, &outcome))
}

/// Interprets the positional arguments: `--provider scripted FILE` takes a file; for any other provider the second
/// argument is the prompt.
fn parse_request(arguments: &AgentArgs) -> Result<AgentRequest<'_>, CommandFailure> {
    let usage = |what: &str| {
        CommandFailure::new(FailureKind::Usage, what.to_string())
            .with_hint("\"stepback agent --help\" has examples")
    };
    let mut words = arguments.provider.iter().map(String::as_str);
    let by_script = if arguments.script.is_some() { "scripted" } else { "anthropic" };
    let (provider, second) = (words.next().unwrap_or(by_script), words.next());
    if !["anthropic", "openai-compatible", "scripted"].contains(&provider) {
        return Err(usage(&format!(
            "\"{provider}\" is not a provider; use anthropic, openai-compatible or scripted"
        )));
    }
    if provider != "scripted" && arguments.script.is_some() {
        return Err(usage(&format!("--script is for the provider \"scripted\", not for \"{provider}\"")));
    }
    let (script, prompt) = match (&arguments.script, second, &arguments.prompt) {
        (script, None, prompt) => (script.clone(), prompt.as_deref()),
        (None, Some(file), prompt) if provider == "scripted" => (Some(file.into()), prompt.as_deref()),
        (script, Some(prompt), None) => (script.clone(), Some(prompt)),
        (_, Some(_), Some(_)) => return Err(usage("only one prompt is allowed; put it in quotes")),
    };
    if provider == "scripted" && script.is_none() {
        return Err(usage("the provider \"scripted\" needs a file: --provider scripted FILE"));
    }
    let prompt =
        prompt.filter(|prompt| !prompt.trim().is_empty()).ok_or_else(|| usage("a prompt is required"))?;
    Ok(AgentRequest { provider, script, prompt })
}

/// Sets up signal handling: the first interrupt ends the agent in an orderly way, the second one ends the process.
fn stop_on_signals() -> Result<Arc<AtomicBool>, CommandFailure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

fn build_provider(
    wish: &AgentRequest<'_>,
    arguments: &AgentArgs,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Provider>, String), CommandFailure> {
    match &wish.script {
        Some(path) => {
            let scripted = Scripted::open(path, stop.clone()).map_err(|error| {
                let kind = match error {
                    ScriptError::Read { .. } => FailureKind::System,
                    _ => FailureKind::Usage,
                };
                CommandFailure::new(kind, error.to_string())
                    .with_hint("docs/guide/agent.md describes scripts")
            })?;
            let model = arguments.model.clone().unwrap_or_else(|| scripted.model().to_string());
            Ok((Box::new(scripted), model))
        }
        None => build_http_provider(wish.provider, arguments, stop),
    }
}

/// Returns the model behind an HTTP address.
fn build_http_provider(
    name: &str,
    arguments: &AgentArgs,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Provider>, String), CommandFailure> {
    let usage = |what: String, hint: &str| CommandFailure::new(FailureKind::Usage, what).with_hint(hint);
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (dialect, of_key, of_base) = match name {
        "anthropic" => (Dialect::Anthropic, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        _ => (Dialect::Chat, "OPENAI_API_KEY", "OPENAI_BASE_URL"),
    };
    let (base, key) = (arguments.base_url.clone().or_else(|| set(of_base)), set(of_key));
    if key.is_none() && base.is_none() {
        return Err(usage(
            format!("{of_key} is not set, so {name} cannot be used"),
            "set it, use a server that needs no key with --base-url, or play a script with --provider scripted FILE",
        ));
    }
    let model = match (&arguments.model, dialect) {
        (Some(model), _) => model.clone(),
        (None, Dialect::Anthropic) => ANTHROPIC_MODEL.to_string(),
        (None, Dialect::Chat) => {
            return Err(usage(format!("{name} requires a model"), "choose one with --model"));
        }
    };
    let http = Http::new(build_transport()?, dialect, base.as_deref(), key, stop.clone());
    Ok((Box::new(http), model))
}

/// Sends requests with the client that the proxy uses too: same connections, same trusted certificates.
struct DirectTransport(UpstreamClient);

impl Post for DirectTransport {
    fn post(&self, url: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Response, String> {
        let mut on_chunk = |_: &[u8]| ControlFlow::Continue(());
        self.0.post(url, headers, body, &mut on_chunk).map_err(|error| error.to_string())
    }
}

/// Returns a client that trusts the certificates the user's other agents trust.
fn build_transport() -> Result<Arc<dyn Post>, CommandFailure> {
    let certificates = std::env::var_os("NODE_EXTRA_CA_CERTS").filter(|path| !path.is_empty());
    let client = UpstreamClient::new(ProxyLimits::default(), certificates.as_ref().map(Path::new))?;
    Ok(Arc::new(DirectTransport(client)))
}

/// Returns the arguments that make the same model answer again, and the names of environment variables.
fn provider_arguments(wish: &AgentRequest<'_>, arguments: &AgentArgs) -> Map<String, Value> {
    let mut words = vec!["--provider".to_string(), wish.provider.to_string()];
    if let Some(script) = &wish.script {
        words.push(std::path::absolute(script).unwrap_or(script.clone()).display().to_string());
    }
    for (option, value) in [("--model", &arguments.model), ("--base-url", &arguments.base_url)] {
        words.extend(value.iter().flat_map(|value| [option.to_string(), value.clone()]));
    }
    let mut environment = Map::from_iter([("arguments".to_string(), json!(words))]);
    let variables = system::variable_names();
    if !variables.is_empty() {
        environment.insert("variables".into(), json!(variables));
    }
    environment
}

/// The state from which an agent continues.
#[derive(Default)]
struct ResumeState {
    history: Vec<Value>,
    memory: Map<String, Value>,
    /// The session to continue; `None` starts a new one.
    session: Option<String>,
}

impl ResumeState {
    fn load(
        workspace: &Workspace,
        conversation: Option<Hash>,
        memory: Option<Hash>,
    ) -> Result<Self, CommandFailure> {
        let damaged = || CommandFailure::new(FailureKind::Store, "the recorded conversation is damaged");
        let lines = conversation::texts(workspace.store(), conversation).map_err(EngineError::from)?;
        let memory = memory.map(|hash| stepback_model::json::load(workspace.store(), hash)).transpose();
        let memory = match memory.map_err(|_| damaged())? {
            Some(Value::Object(memory)) => memory,
            _ => Map::new(),
        };
        Ok(Self {
            history: stepback_builtin_agent::resumable(&lines).ok_or_else(damaged)?,
            memory,
            session: None,
        })
    }

    fn load_at_step(workspace: &Workspace, step: &Step) -> Result<Self, CommandFailure> {
        let state = WorkspaceState::load(workspace.store(), step.state).map_err(EngineError::from)?;
        Self::load(workspace, state.conversation, state.memory)
    }
}

/// Returns the state of the built-in agent at a point.
fn load_state_at_point(
    context: &Context,
    workspace: &Workspace,
    point: &str,
) -> Result<ResumeState, CommandFailure> {
    let target = context.resolve(workspace, point)?;
    let session = workspace.store().session(target.step.session).map_err(EngineError::from)?;
    if session.is_none_or(|session| session.agent != NAME) {
        return Err(CommandFailure::new(
            FailureKind::Usage,
            format!("{point} is not a step of the built-in agent"),
        )
        .with_hint("\"stepback sessions --agent stepback\" lists its sessions"));
    }
    ResumeState::load_at_step(workspace, &target.step)
}

/// Returns the state of a session of the built-in agent. A session that was only prepared by a rewind or a branch has the
/// state of the point it comes from.
fn load_state_of_session(workspace: &Workspace, session: &str) -> Result<ResumeState, CommandFailure> {
    let session = workspace.find_session(session)?;
    if session.agent != NAME {
        return Err(CommandFailure::new(
            FailureKind::Usage,
            format!("{} is a session of another agent", session.id.short()),
        )
        .with_hint("\"stepback sessions --agent stepback\" lists those of the built-in agent"));
    }
    let from = session.info.forked_from.filter(|_| session.info.tip.is_none());
    let begin = match from {
        Some((_, step)) => {
            let stored = workspace.store().step(step).map_err(EngineError::from)?;
            let gone = || {
                CommandFailure::new(
                    FailureKind::Nothing,
                    "the step that the session continues from no longer exists",
                )
            };
            ResumeState::load_at_step(workspace, &stored.ok_or_else(gone)?.step)?
        }
        None => ResumeState::load(workspace, session.info.tip, session.info.slots.memory)?,
    };
    Ok(ResumeState { session: session.info.external, ..begin })
}

/// Prints events as they happen. A closed output does not end the agent.
fn print_event(paint: Paint, event: RunEvent<'_>) {
    let who = |worker: Option<&str>| match worker {
        Some(worker) => {
            let name = worker.rsplit_once(' ').map_or(worker, |(name, _)| name);
            format!("{} ", paint.name(format!("{}:", safe(name))))
        }
        None => String::new(),
    };
    let mut out = std::io::stdout().lock();
    let _ = match event {
        RunEvent::Said { worker, text } => {
            let text = text.trim().lines().map(safe).collect::<Vec<_>>().join("\n");
            writeln!(out, "{}{text}", who(worker))
        }
        RunEvent::Calls { worker, summary } => {
            writeln!(out, "{}{} {}", who(worker), paint.dim("→"), paint.strong(summary))
        }
        // The sub-agent's last words were just shown, and the call already says that a file was written.
        RunEvent::Called { tool: "delegate" | "write" | "edit", result, .. } if !result.failed => Ok(()),
        RunEvent::Called { result, .. } => {
            let lines = result.text.lines().count();
            let first = summary_line(&result.text);
            let more = if lines > 1 {
                format!(" (+{})", output::count(lines as u64 - 1, "line"))
            } else {
                String::new()
            };
            let text = format!("    {first}{more}");
            writeln!(out, "{}", if result.failed { paint.bad(text) } else { paint.dim(text) })
        }
        RunEvent::Told { text } => {
            writeln!(out, "{}", paint.note(format!("message: {}", summary_line(text))))
        }
        RunEvent::Waits => writeln!(
            out,
            "{}",
            paint.note("    stopped; \"stepback inspect\" shows where, \"stepback resume\" continues")
        ),
        RunEvent::Retries { why } => {
            writeln!(out, "{}", paint.note(format!("{}; retrying", summary_line(why))))
        }
    };
    let _ = out.flush();
}

/// Prints the outcome and returns the exit code.
fn print_outcome(json: bool, outcome: &RunOutcome) -> ExitCode {
    let failed = match &outcome.ended {
        ExitReason::Failed(trouble) => Some(trouble),
        _ => None,
    };
    let hint = "the steps are recorded; see \"stepback log\"";
    if json {
        let mut document = json!({
            "session": outcome.session,
            "agent_session": outcome.external,
            "turns": outcome.turns,
            "steps": outcome.steps,
            "text": outcome.text,
            "cost_usd": outcome.cost as f64 / 1e6,
            "ended": outcome.ended.name(),
        });
        if let Some(trouble) = failed {
            document["error"] = json!({ "code": "system", "message": trouble.message, "hint": hint });
        }
        output::print_document(&document);
    }
    if let Some(trouble) = failed {
        return CommandFailure::new(FailureKind::System, safe(&trouble.message))
            .with_hint(hint)
            .report(false);
    }
    let cost = if outcome.cost > 0 { format!(", ${:.4}", outcome.cost as f64 / 1e6) } else { String::new() };
    let counts =
        format!("{}, {}{cost}", output::count(outcome.turns, "turn"), output::count(outcome.steps, "step"));
    let short = outcome.session.short();
    let ended = match outcome.ended {
        ExitReason::Done => "Done",
        ExitReason::MaxTurns => "Stopped at the limit of turns (--max-turns)",
        ExitReason::Interrupted => "Interrupted",
        _ => "Ended",
    };
    output::print_unless_json(
        json,
        &format!("{ended}: {counts}. \"stepback log --session {short}\" shows them."),
    );
    match outcome.ended {
        ExitReason::Done => ExitCode::SUCCESS,
        ExitReason::Interrupted => ExitCode::from(INTERRUPTED),
        _ => ExitCode::from(FailureKind::Partial as u8),
    }
}
