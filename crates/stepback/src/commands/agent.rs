//! `stepback agent`

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value, json};
use signal_hook::consts::{SIGINT, SIGTERM};
use stepback_agents::payload::{one_line, visible};
use stepback_builtin::provider::{ScriptError, Scripted};
use stepback_builtin::{Happening, NAME, Options, Outcome, Provider, Why};
use stepback_engine::{EngineError, Workspace};
use stepback_exchange::prices::Prices;
use stepback_model::conversation;
use stepback_model::state::State;

use super::Answer;
use crate::args::live::Agent;
use crate::context::Context;
use crate::failure::{Failure, Kind};
use crate::output::{self, Paint};
use crate::settings::Settings;

/// What a program that was interrupted exits with.
const INTERRUPTED: u8 = 130;

/// Who answers, and what the person wants.
struct Wish<'a> {
    provider: &'a str,
    script: Option<PathBuf>,
    prompt: &'a str,
}

/// `agent`
pub fn agent(context: &Context, arguments: &Agent) -> Answer {
    let wish = understood(arguments)?;
    let stop = stop_on_signals()?;
    let (mut provider, model) = provider(&wish, arguments, &stop)?;
    let engine = context.engine();
    let workspace = context.workspace_or_new(&engine)?;
    stepback_agents::record::take_in_quietly(&workspace)?;
    let history = match &arguments.from {
        Some(point) => history(context, &workspace, point)?,
        None => Vec::new(),
    };
    let settings = Settings::load_or_default(Path::new(&context.store_path()));
    let prices = Prices::built_in();
    let json = context.json;
    let paint = Paint::stdout();
    let mut watch = |happening: Happening<'_>| {
        if !json {
            narrate(paint, happening);
        }
    };
    let options = Options {
        prompt: Some(wish.prompt.to_string()),
        history,
        max_turns: arguments.max_turns,
        patience: settings.patience(),
        stop,
        price: &|model, usage| prices.cost(model, usage),
        ..Options::new(model, &mut watch)
    };
    let outcome = stepback_builtin::run(&workspace, &mut *provider, options)?;
    Ok(told(json, &outcome))
}

/// Sorts out the words: `--provider scripted FILE` takes a file, and for any other provider the second word is the prompt.
fn understood(arguments: &Agent) -> Result<Wish<'_>, Failure> {
    let usage = |what: &str| {
        Failure::new(Kind::Usage, what.to_string()).hint("\"stepback agent --help\" has examples")
    };
    let mut words = arguments.provider.iter().map(String::as_str);
    let by_script = if arguments.script.is_some() { "scripted" } else { "anthropic" };
    let (provider, second) = (words.next().unwrap_or(by_script), words.next());
    if !["anthropic", "openai-compatible", "scripted"].contains(&provider) {
        return Err(usage(&format!(
            "\"{provider}\" is no provider; there are anthropic, openai-compatible and scripted"
        )));
    }
    if provider != "scripted" && arguments.script.is_some() {
        return Err(usage(&format!("--script is for the provider \"scripted\", not for \"{provider}\"")));
    }
    let (script, prompt) = match (&arguments.script, second, &arguments.prompt) {
        (script, None, prompt) => (script.clone(), prompt.as_deref()),
        (None, Some(file), prompt) if provider == "scripted" => (Some(file.into()), prompt.as_deref()),
        (script, Some(prompt), None) => (script.clone(), Some(prompt)),
        (_, Some(_), Some(_)) => return Err(usage("there is one prompt; put it in quotes")),
    };
    if provider == "scripted" && script.is_none() {
        return Err(usage("the provider \"scripted\" needs a file: --provider scripted FILE"));
    }
    let prompt =
        prompt.filter(|prompt| !prompt.trim().is_empty()).ok_or_else(|| usage("there is no prompt"))?;
    Ok(Wish { provider, script, prompt })
}

/// Lets the first interruption end the agent in order, and the second one the process.
fn stop_on_signals() -> Result<Arc<AtomicBool>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, INTERRUPTED.into(), stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

fn provider(
    wish: &Wish<'_>,
    arguments: &Agent,
    stop: &Arc<AtomicBool>,
) -> Result<(Box<dyn Provider>, String), Failure> {
    match &wish.script {
        Some(path) => {
            let scripted = Scripted::open(path, stop.clone()).map_err(|error| {
                let kind = match error {
                    ScriptError::Read { .. } => Kind::System,
                    _ => Kind::Usage,
                };
                Failure::new(kind, error.to_string()).hint("docs/guide/agent.md describes scripts")
            })?;
            let model = arguments.model.clone().unwrap_or_else(|| scripted.model().to_string());
            Ok((Box::new(scripted), model))
        }
        None => Err(Failure::new(
            Kind::Usage,
            format!("this build cannot ask the provider \"{}\" yet", wish.provider),
        )
        .hint("--provider scripted FILE plays a script")),
    }
}

/// The conversation of the built-in agent as it was at a point.
fn history(context: &Context, workspace: &Workspace<'_>, point: &str) -> Result<Vec<Value>, Failure> {
    let target = context.resolve(workspace, point)?;
    let store = workspace.store();
    let session = store.session(target.checkpoint.step.session).map_err(EngineError::from)?;
    if session.is_none_or(|session| session.agent != NAME) {
        return Err(Failure::new(Kind::Usage, format!("{point} is no step of the built-in agent"))
            .hint("\"stepback sessions --agent stepback\" lists its sessions"));
    }
    let state = State::load(store, target.checkpoint.step.state).map_err(EngineError::from)?;
    let lines = conversation::texts(store, state.conversation).map_err(EngineError::from)?;
    stepback_builtin::resumable(&lines).map_err(|what| {
        Failure::new(Kind::Nothing, format!("the conversation cannot go on from {point}: {what}"))
            .hint("the beginning of a call and the end of a session are good points to go on from")
    })
}

/// Says what happens, as it happens. A reader that goes away does not end the agent.
fn narrate(paint: Paint, happening: Happening<'_>) {
    let who = |worker: Option<&str>| match worker {
        Some(worker) => {
            let name = worker.rsplit_once(' ').map_or(worker, |(name, _)| name);
            format!("{} ", paint.name(format!("{}:", visible(name))))
        }
        None => String::new(),
    };
    let mut out = std::io::stdout().lock();
    let _ = match happening {
        Happening::Said { worker, text } => {
            let text = text.trim().lines().map(visible).collect::<Vec<_>>().join("\n");
            writeln!(out, "{}{text}", who(worker))
        }
        Happening::Calls { worker, summary } => {
            writeln!(out, "{}{} {}", who(worker), paint.dim("→"), paint.strong(summary))
        }
        // Its last words were just shown; and that a file was written is what the call said.
        Happening::Called { tool: "delegate" | "write" | "edit", result, .. } if !result.failed => Ok(()),
        Happening::Called { result, .. } => {
            let lines = result.text.lines().count();
            let first = one_line(&result.text);
            let more = if lines > 1 {
                format!(" (+{})", output::count(lines as u64 - 1, "line"))
            } else {
                String::new()
            };
            let text = format!("    {first}{more}");
            writeln!(out, "{}", if result.failed { paint.bad(text) } else { paint.dim(text) })
        }
        Happening::Told { text } => writeln!(out, "{}", paint.note(format!("told: {}", one_line(text)))),
        Happening::Waits => writeln!(
            out,
            "{}",
            paint.note("    stopped; \"stepback inspect\" shows where, \"stepback resume\" lets it go on")
        ),
        Happening::Retries { why } => {
            writeln!(out, "{}", paint.note(format!("{}; asking again", one_line(why))))
        }
    };
    let _ = out.flush();
}

/// Says what came of it.
fn told(json: bool, outcome: &Outcome) -> ExitCode {
    let failed = match &outcome.ended {
        Why::Failed(trouble) => Some(trouble),
        _ => None,
    };
    let hint = "what happened is recorded; \"stepback log\" shows it";
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
        output::document(&document);
    }
    if let Some(trouble) = failed {
        return Failure::new(Kind::System, visible(&trouble.message)).hint(hint).report(false);
    }
    let cost = if outcome.cost > 0 { format!(", ${:.4}", outcome.cost as f64 / 1e6) } else { String::new() };
    let counts =
        format!("{}, {}{cost}", output::count(outcome.turns, "turn"), output::count(outcome.steps, "step"));
    let short = outcome.session.short();
    let ended = match outcome.ended {
        Why::Done => "Done",
        Why::MaxTurns => "Stopped after as many turns as it may have (--max-turns)",
        Why::Interrupted => "Interrupted",
        _ => "Ended",
    };
    output::say_for_people(
        json,
        &format!("{ended}: {counts}. \"stepback log --session {short}\" shows them."),
    );
    match outcome.ended {
        Why::Done => ExitCode::SUCCESS,
        Why::Interrupted => ExitCode::from(INTERRUPTED),
        _ => ExitCode::from(Kind::Partial as u8),
    }
}
