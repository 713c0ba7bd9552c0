//! Reruns: runs a session again with something changed.
//!
//! A rerun takes as long as its tools do. So the request that starts one is answered as soon as it runs. The state of its
//! branch shows the progress, the events of its session show what it does, and a comparison shows the result.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use stepback_agents::policy::ToolHandling;
use stepback_agents::transcript::AgentDirs;
use stepback_api::address::encode_segment;
use stepback_api::branches::{BranchDocument, NewRerun};
use stepback_api::maintenance::LastPruningDocument;
use stepback_engine::Workspace;
use stepback_engine::reruns::Rerun;
use stepback_llm_wire::prices::Prices;
use stepback_model::ids::WorkspaceId;
use stepback_model::record::StepKind;
use stepback_proxy::Timing;
use stepback_rerun::replay_responder::OnDifference;
use stepback_rerun::scratch::ScratchDirectory;
use stepback_rerun::{RerunBranch, RerunHost, RerunOptions};
use tokio::sync::oneshot;

use super::points::resolve_point;
use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Most reruns at once: each starts an agent.
const MAX_RERUNS: usize = 4;

/// What a server knows of the machine it runs on, besides the store: what reruns need, and the user's settings.
#[derive(Clone, Debug)]
pub struct ServerHost {
    /// The path of the stepback executable.
    pub program: PathBuf,
    /// The store, as given on the command line.
    pub store: PathBuf,
    /// The user's home directory.
    pub home: PathBuf,
    /// Where agents keep their conversations; `None` if there is no home directory.
    pub agent_home: Option<AgentDirs>,
    /// The user's environment variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Prices of the models.
    pub prices: Prices,
    /// A file of certificates that are trusted besides those of the system.
    pub certificates: Option<PathBuf>,
    /// Returns the disk budget of the store as it is set now; `None` for no limit.
    pub budget: DiskBudgetReader,
}

/// Returns the bytes that the store should stay within, and the last pruning for that.
#[derive(Clone)]
pub struct DiskBudgetReader(pub Arc<dyn Fn() -> Option<(u64, Option<LastPruningDocument>)> + Send + Sync>);

impl std::fmt::Debug for DiskBudgetReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DiskBudgetReader")
    }
}

/// The running reruns of this server, each with the flag that interrupts it.
#[derive(Debug, Default)]
pub(crate) struct RunningReruns(Mutex<HashMap<(WorkspaceId, String), Arc<AtomicBool>>>);

impl RunningReruns {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<(WorkspaceId, String), Arc<AtomicBool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether no rerun is running.
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Interrupts all of them.
    pub(crate) fn interrupt_all(&self) {
        for interrupted in self.lock().values() {
            interrupted.store(true, Ordering::Relaxed);
        }
    }
}

/// Reads how a model call without a matching recording is handled.
fn parse_on_difference(word: Option<&str>) -> Result<OnDifference, Problem> {
    match word {
        None | Some("stop") => Ok(OnDifference::Stop),
        Some("nearest") => Ok(OnDifference::Nearest),
        // Calling a real model costs money; only the command line can do that.
        Some(other) => Err(Problem::usage(format!("on_difference must not be \"{other}\"")).with_hint(
            "use \"stop\" or \"nearest\"; only \"stepback rerun --on-difference live\" can ask the model",
        )),
    }
}

/// Reads how tool calls are handled.
fn parse_tool_handling(word: Option<&str>) -> Result<ToolHandling, Problem> {
    match word {
        None | Some("real") => Ok(ToolHandling::Real),
        Some("recorded") => Ok(ToolHandling::Recorded),
        Some("deny") => Ok(ToolHandling::Deny),
        Some(other) => Err(Problem::unknown_word("tools", other, &["real", "recorded", "deny"])),
    }
}

/// Starts a rerun of a session, in a directory of its own and inside a sandbox. Answered as soon as it runs.
#[utoipa::path(post, path = "/sessions/{session}/reruns", tag = "branches",
    params(("session" = String, Path, description = "The session")), request_body = NewRerun,
    responses((status = 202, body = BranchDocument, headers(("location" = String, description = "Its branch"))),
        (status = "default", body = Problem)))]
pub async fn start(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(request): Json<NewRerun>,
) -> Result<Response, Problem> {
    let branch = RerunBranch::new(request.branch.clone());
    start_rerun(state, id, request, branch).await
}

/// Starts a rerun in a thread of its own, and answers as soon as it runs or cannot run.
pub(super) async fn start_rerun(
    state: AppState,
    session: String,
    request: NewRerun,
    branch: RerunBranch,
) -> Result<Response, Problem> {
    let host = state.rerun_host().cloned().ok_or_else(|| {
        Problem::new(StatusCode::CONFLICT, "refused", "this server cannot run agents")
            .with_hint("\"stepback rerun\" on the machine of the workspace can")
    })?;
    let (reply, started) = oneshot::channel();
    let running = state.clone();
    std::thread::Builder::new()
        .name("stepback-rerun".into())
        .spawn(move || run_rerun(&running, &host, &session, &request, branch, reply))?;
    // The sender is dropped unanswered only if the thread ended unexpectedly.
    let started = started.await.unwrap_or_else(|_| Err(Problem::internal("the rerun failed unexpectedly")));
    let (workspace, rerun) = started?;
    let location = branch_location(workspace, &rerun);
    let document = BranchDocument::from_rerun(&rerun);
    Ok((StatusCode::ACCEPTED, [(header::LOCATION, location)], Json(document)).into_response())
}

/// The address of the branch of a rerun.
pub(super) fn branch_location(workspace: WorkspaceId, rerun: &Rerun) -> String {
    format!("/api/v1/workspaces/{workspace}/branches/{}", encode_segment(&rerun.branch))
}

/// Reads the options of a rerun from a request.
pub(super) fn read_options(
    workspace: &Workspace,
    request: &NewRerun,
    branch: RerunBranch,
) -> Result<RerunOptions, Problem> {
    if request.timeout_s == Some(0) {
        return Err(Problem::usage("timeout_s must be at least 1"));
    }
    if request.max_steps == Some(0) {
        return Err(Problem::usage("max_steps must be at least 1"));
    }
    let until = match request.until.as_deref() {
        None => None,
        Some(name) => Some(StepKind::parse(name).ok_or_else(|| Problem::not_found("kind of step", name))?),
    };
    Ok(RerunOptions {
        from: request.from.as_deref().map(|point| resolve_point(workspace, point)).transpose()?,
        set: request.set.clone(),
        until,
        max_steps: request.max_steps,
        timeout: request.timeout_s.map(|seconds| Duration::from_secs(seconds.into())),
        tools: parse_tool_handling(request.tools.as_deref())?,
        on_difference: parse_on_difference(request.on_difference.as_deref())?,
        timing: Timing::Instant,
        branch,
    })
}

type StartResult = Result<(WorkspaceId, Rerun), Problem>;

fn run_rerun(
    state: &AppState,
    host: &ServerHost,
    session: &str,
    request: &NewRerun,
    branch: RerunBranch,
    reply: oneshot::Sender<StartResult>,
) {
    let mut reply = Some(reply);
    let mut answer = |started: StartResult| {
        if let Some(reply) = reply.take() {
            // The client may have disconnected; the rerun goes on.
            let _ = reply.send(started);
        }
    };
    let interrupted = Arc::new(AtomicBool::new(false));
    let mut key = None;
    let done = state.run_on_current_thread(|engine| {
        let (workspace, session) = state::find_session(engine, session)?;
        let options = read_options(&workspace, request, branch)?;
        if state.running_reruns().lock().len() >= MAX_RERUNS {
            let detail = format!("the limit of {MAX_RERUNS} concurrent reruns is reached");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, "busy", detail)
                .with_hint("retry when one has finished"));
        }
        let scratch = ScratchDirectory::create(engine.store.local_dir())?;
        let rerun_host = RerunHost {
            dir: scratch.path(),
            program: &host.program,
            store: &host.store,
            home: &host.home,
            environment: &host.environment,
            prices: &host.prices,
            certificates: host.certificates.as_deref(),
            interrupted: &interrupted,
        };
        let id = workspace.record.id;
        let mut on_started = |rerun: &Rerun| {
            let started = (id, rerun.branch.clone());
            state.running_reruns().lock().insert(started.clone(), interrupted.clone());
            key = Some(started);
            answer(Ok((id, rerun.clone())));
        };
        stepback_rerun::rerun(&workspace, session, &options, &rerun_host, &mut on_started)?;
        Ok(())
    });
    if let Some(key) = key {
        state.running_reruns().lock().remove(&key);
    }
    // Errors after the start are recorded with the branch.
    if let Err(problem) = done {
        answer(Err(problem));
    }
}

/// Interrupts a rerun that this server started and that is still running. What it did so far stays as its branch.
#[utoipa::path(post, path = "/workspaces/{workspace}/branches/{branch}/interrupt", tag = "branches",
    params(("workspace" = String, Path, description = "The workspace"), ("branch" = String, Path, description = "The branch")),
    responses((status = 204, description = "It was asked to stop"), (status = "default", body = Problem)))]
pub async fn interrupt(
    State(state): State<AppState>,
    Path((id, branch)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    let place = state.run(move |engine| Ok(state::find_workspace(engine, &id)?.record.id)).await?;
    match state.running_reruns().lock().get(&(place, branch.clone())) {
        Some(interrupted) => {
            interrupted.store(true, Ordering::Relaxed);
            Ok(StatusCode::NO_CONTENT)
        }
        None => Err(Problem::new(
            StatusCode::CONFLICT,
            "nothing",
            "no rerun of this server is running as this branch",
        )),
    }
}
