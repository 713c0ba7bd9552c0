//! MCP at `/mcp`, for agents that are configured with a URL instead of a command.
//!
//! A URL does not tell where the agent works, so its query does: `?workspace=` is a directory or the beginning of an id, and
//! may be left out if the store has only one workspace; `?session=` is the session that the server acts for;
//! `?allow_others=true` is the option `--allow-others`.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::Query;
use axum::http::Uri;
use serde::Deserialize;
use stepback_agents::Agent;
use stepback_engine::{Engine, Workspace};
use stepback_mcp::http::{self, ServiceLocator};
use stepback_mcp::rpc::Refusal;
use stepback_mcp::service::McpService;
use stepback_mcp::{Host, SessionHint, ToolError, ToolServer, ToolServerOptions};
use stepback_model::path::display_bytes;

use crate::problem::Problem;
use crate::state::{self, AppState};

/// Most workspaces that are listed when the URL is ambiguous.
const MAX_LISTED_WORKSPACES: usize = 10;

/// The query of the URL.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct McpQuery {
    workspace: Option<String>,
    session: Option<String>,
    #[serde(default)]
    allow_others: bool,
}

/// The route `/mcp`.
pub fn router(state: AppState, allow_commands: bool) -> Router {
    http::router(Arc::new(UrlServiceLocator { state, allow_commands }))
}

struct UrlServiceLocator {
    state: AppState,
    allow_commands: bool,
}

impl ServiceLocator for UrlServiceLocator {
    fn service(&self, address: &Uri) -> Result<Arc<dyn McpService>, Refusal> {
        let said = Query::<McpQuery>::try_from_uri(address).map_err(|why| {
            Refusal::invalid_params(format!(
                "the address takes ?workspace=, ?session= and ?allow_others=true: {}",
                why.body_text()
            ))
        })?;
        let Query(McpQuery { workspace, session, allow_others }) = said;
        let host = UrlHost { state: self.state.clone(), workspace };
        let agents = Agent::ALL.map(Agent::name).to_vec();
        let whose = SessionHint { session, agent_session: None, agents };
        let options =
            ToolServerOptions { session_hint: whose, allow_others, allow_commands: self.allow_commands };
        Ok(Arc::new(ToolServer::new(host, options)))
    }

    fn is_closing(&self) -> bool {
        self.state.live().is_closing()
    }
}

/// The workspace that the URL names, opened for each call.
struct UrlHost {
    state: AppState,
    workspace: Option<String>,
}

impl Host for UrlHost {
    fn with_workspace(
        &self,
        _make: bool,
        task: &mut dyn FnMut(&Workspace) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        let done = self.state.run_on_current_thread(|engine| Ok(task(&self.open_workspace(engine)?)));
        done.map_err(|problem| ToolError {
            message: problem.0.detail,
            hint: problem.0.hints.into_iter().next(),
        })?
    }
}

impl UrlHost {
    fn open_workspace(&self, engine: &Engine) -> Result<Workspace, Problem> {
        let all = engine.store.workspaces()?;
        match &self.workspace {
            Some(directory) if directory.starts_with('/') => {
                let path = Path::new(directory);
                let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
                let known = all.iter().find(|known| known.root == path.as_os_str().as_bytes());
                let known = known.ok_or_else(|| Problem::not_found("workspace", directory))?;
                state::open_workspace(engine, known.id)
            }
            Some(id) => state::find_workspace(engine, id),
            None => match engine.project_workspaces()?.as_slice() {
                [one] => state::open_workspace(engine, one.id),
                several => {
                    let named: Vec<String> = (several.iter().take(MAX_LISTED_WORKSPACES))
                        .map(|known| format!("{} ({})", known.id.short(), display_bytes(&known.root)))
                        .collect();
                    Err(Problem::usage(format!(
                        "the address does not specify one of the {} workspaces",
                        several.len()
                    ))
                    .with_hint(format!("add ?workspace=ID to it: {}", named.join(", "))))
                }
            },
        }
    }
}
