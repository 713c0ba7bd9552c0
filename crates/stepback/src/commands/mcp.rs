//! The command `stepback mcp`: serves the Model Context Protocol for the current workspace.

use std::io::{self, BufReader};

use stepback_agents::Agent;
use stepback_engine::Workspace;
use stepback_mcp::{Host, SessionHint, ToolError, ToolServer, ToolServerOptions, stdio};

use super::{CommandResult, DONE};
use crate::args::mcp::McpArgs;
use crate::context::{self, Context};
use crate::failure::CommandFailure;

/// The workspace of the current directory.
struct CliHost<'c>(&'c Context);

impl Host for CliHost<'_> {
    fn with_workspace(
        &self,
        make: bool,
        work: &mut dyn FnMut(&Workspace) -> Result<(), ToolError>,
    ) -> Result<(), ToolError> {
        let workspace = match make {
            true => self.0.open_or_create_workspace().map_err(to_tool_error)?,
            false => self.0.open_workspace().map_err(to_tool_error)?,
        };
        // Includes pending hook events, such as the call that is being made right now.
        stepback_agents::record::record_inbox(&workspace)?;
        work(&workspace)
    }
}

fn to_tool_error(failure: CommandFailure) -> ToolError {
    ToolError { message: failure.message().to_owned(), hint: failure.hint_text().map(str::to_owned) }
}

/// Runs `stepback mcp`.
pub fn mcp(context: &Context, arguments: &McpArgs) -> CommandResult {
    let variables = Agent::ALL.into_iter().filter_map(Agent::session_variable);
    let agent_session =
        variables.filter_map(context::path_variable).map(|id| id.to_string_lossy().into_owned()).next();
    let agents = Agent::ALL.map(Agent::name).to_vec();
    let whose = SessionHint { session: arguments.session.clone(), agent_session, agents };
    let desk = ToolServer::new(
        CliHost(context),
        ToolServerOptions { session_hint: whose, allow_others: arguments.allow_others, allow_commands: true },
    );
    stdio::serve(&desk, BufReader::new(io::stdin().lock()), io::stdout())?;
    DONE
}
