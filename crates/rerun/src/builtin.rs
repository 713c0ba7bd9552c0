//! Reruns the built-in agent: stepback's own program, started from a file that says where to begin, with model calls answered
//! from the recording.
//!
//! Unlike the other agents, it can begin anywhere: with the conversation, the memory and the files of any step. It calls its
//! model over the same wire format, so the same recording answers it, in the same sandbox.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stepback_agents::decisions::DecidedCalls;
use stepback_agents::install::Route;
use stepback_agents::policy::ToolHandling;
use stepback_builtin_agent::{
    NAME, Price, Provider, RunEvent, RunOptions, RunOutcome, ToolPolicy, ToolResult,
};
use stepback_engine::{EngineError, Workspace};
use stepback_llm_wire::semantics;
use stepback_model::conversation;
use stepback_model::record::StepRow;
use stepback_model::record::{Session, StepKind};
use stepback_model::state::WorkspaceState;

use crate::RerunError;
use crate::change::RerunChange;
use crate::recorded_session::{RecordedSession, ToolCall};
use crate::replay_responder::Directories;
use crate::run::{self, PreparedAgent, RerunRequest, RunEnv, io_error};
use crate::sandbox::{Isolation, SandboxedCommand};

/// The option of stepback's own program that starts the agent from such a file.
pub const RERUN_OPTION: &str = "--again";

/// How the agent begins.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BuiltinRunSpec {
    /// The session to continue; `None` for a new one.
    session: Option<String>,
    prompt: Option<String>,
    history: Vec<Value>,
    memory: Map<String, Value>,
    system: Option<String>,
    environment: Map<String, Value>,
    /// Name of the model.
    pub model: String,
    /// Base URL of the model server.
    pub base_url: String,
    tools: ToolHandling,
    /// The root of the workspace whose calls were recorded.
    original: PathBuf,
    recorded: Vec<RecordedToolCall>,
    /// The user's decisions about calls.
    decided: DecidedCalls,
    /// The user's messages to the running agent, by the id of the first model call that got them.
    told: Vec<(String, String)>,
    until: Option<StepKind>,
    max_steps: Option<u64>,
    timeout: Option<Duration>,
}

/// A recorded call: the numbers of its steps, its input, and its result.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RecordedToolCall {
    steps: (u64, Option<u64>),
    tool: String,
    input: Value,
    result: ToolResult,
}

/// Prepares the built-in agent to begin at `from`, or to continue with the next prompt in the session of the rerun.
pub(crate) fn prepare_agent<'a>(
    request: &RerunRequest<'_>,
    from: &StepRow,
    original: &Workspace,
    run_env: &'a RunEnv<'a>,
    resume_session: Option<&Session>,
) -> Result<PreparedAgent<'a>, RerunError> {
    let (aside, temp) = (run::run_dir(run_env), run_env.host.dir.join("tmp"));
    for dir in [&aside, &temp] {
        fs::create_dir_all(dir).map_err(io_error("make a directory for the rerun"))?;
    }
    let directories = Directories {
        all: vec![("{workspace}", run_env.original_root.to_path_buf(), run_env.scratch.root.clone())],
    };
    let mut beginning = build_run_spec(request, from, original, resume_session)?;
    beginning.decided = directories.decided_calls(request.recorded);
    let base = run_env.host.environment.iter().find(|(name, _)| name == "ANTHROPIC_BASE_URL");
    let base = base.and_then(|(_, value)| value.to_str()).filter(|base| !base.is_empty());
    let upstream = base.unwrap_or("https://api.anthropic.com").to_owned();
    let routes = vec![Route { name: NAME.to_owned(), upstream }];
    let inside = move |proxy_addresses: &[(Route, String)],
                       strength: &Isolation|
          -> Result<SandboxedCommand, RerunError> {
        if *strength != Isolation::Namespaces && beginning.tools == ToolHandling::Real {
            // It is not known what a command would do outside of the rerun.
            beginning.tools = ToolHandling::Deny;
        }
        beginning.base_url = proxy_addresses.first().map(|(_, url)| url.clone()).unwrap_or_default();
        let file = aside.join("beginning.json");
        let text = serde_json::to_vec(&beginning).unwrap_or_default();
        fs::write(&file, text).map_err(io_error("write into the rerun's directory"))?;
        let words = [run_env.host.program, Path::new("agent"), Path::new(RERUN_OPTION), &file];
        let mut env = run_env.host.environment.to_vec();
        run_env.store.set_variables(&mut env);
        // Commands need a temporary directory, and in the sandbox there is no other one.
        env.retain(|(name, _)| name != "TMPDIR");
        env.push(("TMPDIR".into(), temp.clone().into()));
        let text = |word: OsString| word.to_string_lossy().into_owned();
        Ok(SandboxedCommand {
            argv: words.iter().map(|word| word.display().to_string()).collect(),
            env: env.into_iter().map(|(name, value)| (text(name), text(value))).collect(),
            directory: run_env.scratch.root.clone(),
        })
    };
    Ok(PreparedAgent {
        agent: NAME,
        routes,
        build_command: Box::new(inside),
        directories,
        proxy_records: false,
    })
}

fn build_run_spec(
    request: &RerunRequest<'_>,
    from: &StepRow,
    original: &Workspace,
    resume_session: Option<&Session>,
) -> Result<BuiltinRunSpec, RerunError> {
    let recorded_session = request.recorded;
    let damaged = || RerunError::NotApplicable("the recorded conversation is damaged".into());
    let state = WorkspaceState::load(original.store(), from.step.state).map_err(EngineError::from)?;
    // Both workspaces are in one store.
    let (said_so_far, remembered) = match resume_session {
        Some(session) => (session.info.tip, session.info.slots.memory),
        None => (state.conversation, state.memory),
    };
    let lines = conversation::texts(original.store(), said_so_far).map_err(EngineError::from)?;
    let mut history = stepback_builtin_agent::resumable(&lines).ok_or_else(damaged)?;
    let mut prompt = None;
    let number = from.step.number;
    if resume_session.is_some() {
        prompt =
            recorded_session.prompts.get(request.prompt).map(|recorded_prompt| recorded_prompt.text.clone());
    } else if let Some(recorded_prompt) =
        recorded_session.prompts.iter().find(|recorded_prompt| recorded_prompt.number == number)
    {
        // The rerun sends it again.
        stepback_builtin_agent::take_back_prompt(&mut history);
        prompt = Some(recorded_prompt.text.clone());
    }
    let memory = remembered.map(|hash| stepback_model::json::load(original.store(), hash));
    let mut memory = match memory.transpose().map_err(|_| damaged())? {
        Some(Value::Object(memory)) => memory,
        _ => Map::new(),
    };
    let environment = state.env.map(|hash| stepback_model::json::load(original.store(), hash));
    let environment = match environment.transpose().map_err(|_| damaged())? {
        Some(Value::Object(environment)) => environment,
        _ => Map::new(),
    };
    let request_summary = recorded_session
        .exchanges
        .first()
        .and_then(|exchange| Some(semantics::asked(exchange.request.wire?, &exchange.request)));
    let mut model = recorded_session
        .session
        .info
        .model
        .clone()
        .or_else(|| request_summary.and_then(|request_summary| request_summary.model));
    let mut system = None;
    for change in request.changes {
        match change {
            RerunChange::Model(name) => model = Some(name.clone()),
            RerunChange::System(text) => system = Some(text.clone()),
            RerunChange::Memory { path, value } if resume_session.is_none() => {
                set_memory(&mut memory, path, value.clone())
            }
            RerunChange::Prompt { index, new, .. } if *index == request.prompt => {
                prompt = prompt.map(|_| new.clone());
            }
            RerunChange::Memory { .. }
            | RerunChange::Prompt { .. }
            | RerunChange::Message { .. }
            | RerunChange::Input { .. }
            | RerunChange::Output { .. } => {}
        }
    }
    Ok(BuiltinRunSpec {
        session: resume_session.and_then(|session| session.info.external.clone()),
        prompt,
        history,
        memory,
        system,
        environment,
        model: model.unwrap_or_default(),
        base_url: String::new(),
        tools: request.tools,
        original: original.root.clone(),
        recorded: if request.tools == ToolHandling::Recorded {
            recorded_calls(recorded_session)
        } else {
            Vec::new()
        },
        decided: DecidedCalls::default(),
        // Messages from before that point are part of the conversation already.
        told: (recorded_session.injections.iter().filter(|injection| injection.number > number))
            .map(|injection| (injection.call.clone(), injection.text.clone()))
            .collect(),
        until: request.until,
        max_steps: request.max_steps,
        timeout: request.timeout,
    })
}

fn recorded_calls(recorded_session: &RecordedSession) -> Vec<RecordedToolCall> {
    let recorded_call = |call: &ToolCall| {
        let result = serde_json::from_value(call.output.clone()?).ok()?;
        Some(RecordedToolCall {
            steps: call.steps,
            tool: call.tool.clone(),
            input: call.input.clone(),
            result,
        })
    };
    recorded_session.calls.iter().filter_map(recorded_call).collect()
}

/// Sets a value in the memory; creates missing objects on the path.
fn set_memory(memory: &mut Map<String, Value>, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            memory.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let inner = memory.entry(first.clone()).or_insert_with(|| json!({}));
            if !inner.is_object() {
                *inner = json!({});
            }
            if let Value::Object(inner) = inner {
                set_memory(inner, rest, value);
            }
        }
    }
}

impl BuiltinRunSpec {
    /// Reads the file.
    pub fn load(file: &Path) -> std::io::Result<Self> {
        Ok(serde_json::from_slice(&fs::read(file)?)?)
    }

    /// Runs the agent in `workspace` with the answers of `provider`.
    pub fn run(
        self,
        workspace: &Workspace,
        provider: &mut dyn Provider,
        stop: Arc<AtomicBool>,
        price: &Price<'_>,
        on_event: &mut dyn FnMut(RunEvent<'_>),
    ) -> Result<RunOutcome, EngineError> {
        let original = workspace.engine.open_known_workspace(&self.original).ok();
        let mut recorded = self.recorded;
        let recall = |tool: &str, input: &Value| {
            let index = recorded.iter().position(|call| call.tool == tool && call.input == *input)?;
            let call = recorded.remove(index);
            apply_recorded_changes(original.as_ref()?, workspace, call.steps)?;
            Some(call.result)
        };
        let tools = match self.tools {
            ToolHandling::Real => ToolPolicy::Real,
            ToolHandling::Deny => ToolPolicy::Deny,
            ToolHandling::Recorded => ToolPolicy::Recorded(Box::new(recall)),
        };
        let options = RunOptions {
            session: self.session,
            prompt: self.prompt,
            history: self.history,
            memory: self.memory,
            system: self.system,
            environment: self.environment,
            decided: self.decided,
            told: self.told,
            tools,
            until: self.until,
            max_steps: self.max_steps,
            timeout: self.timeout,
            stop,
            price,
            ..RunOptions::new(self.model, on_event)
        };
        stepback_builtin_agent::run(workspace, provider, options)
    }
}

/// Applies the changes that a recorded call made in `original` to the files of `workspace`.
fn apply_recorded_changes(
    original: &Workspace,
    workspace: &Workspace,
    steps: (u64, Option<u64>),
) -> Option<()> {
    let state = |number: u64| {
        let stored = original.store().step_numbered(original.record.id, number).ok()??;
        original.load_state(&stored).ok()
    };
    let (state_before, state_after) = (state(steps.0)?, state(steps.1?)?);
    original.update_materialized_dir(&state_before, &state_after, &workspace.root).ok()?.map(|_| ())
}
