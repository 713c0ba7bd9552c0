//! The service that stepback offers to agents: its tools, resources and prompts, over a workspace that the host opens.

use std::time::Duration;

use serde_json::{Map, Value, json};
use stepback_engine::Workspace;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;
use stepback_store::port::CommitMark;

use crate::rpc::{INTERNAL_ERROR, Refusal};
use crate::schema;
use crate::service::{McpService, ServerInfo, ServiceRequest};
use crate::session_lookup::{self, SessionCache, SessionHint};
use crate::tool_error::ToolError;
use crate::tools::{self, Args, Tool};
use crate::{completion, prompts, resources};

/// Instructions that a model gets before it uses the server.
const INSTRUCTIONS: &str = "\
stepback records this session: every step and every file change can be inspected and undone, and your reasoning is kept on \
a board that survives compactions. After a compaction, or when you have lost track, call `recover` first. \
While debugging, record hypotheses (`hypothesis`), evidence for and against them (`evidence`) and open questions (`gap`) on \
the board; `next` ranks what to do. Before something risky call `checkpoint`; `rewind_plan` and `rewind_apply` take \
back what you changed; `experiment` tries something out on a branch. A point is `#42`, `@-3`, a label, `tool:Bash:last`, `error:last` or `10 minutes ago`.";

/// Opens workspaces for the server.
pub trait Host: Send + Sync {
    /// Opens the workspace and runs some work in it. A workspace that is not known yet is registered if `make` is set.
    fn with_workspace(
        &self,
        create: bool,
        work: &mut dyn FnMut(&Workspace) -> Result<(), ToolError>,
    ) -> Result<(), ToolError>;
}

/// What this server may do, and for which session.
#[derive(Clone, Debug, Default)]
pub struct ToolServerOptions {
    /// Which session this server acts for.
    pub session_hint: SessionHint,
    /// Whether it may write to sessions of others, and take back what they did.
    pub allow_others: bool,
    /// Whether it may run commands for checks. A user who starts the server could run them anyway; a client that connects
    /// over a network could not.
    pub allow_commands: bool,
}

/// The tools, resources and prompts of stepback.
pub struct ToolServer<H> {
    host: H,
    options: ToolServerOptions,
    session_cache: SessionCache,
    tools: Vec<Tool>,
}

/// The context of one tool call.
pub struct ToolContext<'g> {
    /// The workspace that the call works on.
    pub workspace: &'g Workspace,
    /// The request.
    pub request: &'g ServiceRequest<'g>,
    /// The time of the call.
    pub now: Timestamp,
    /// Whether other sessions may be written to.
    pub allow_others: bool,
    /// Whether commands may be run.
    pub allow_commands: bool,
    session_hint: &'g SessionHint,
    session_cache: &'g SessionCache,
    session_name: Option<&'g str>,
    is_write: bool,
}

impl ToolContext<'_> {
    /// The session this server acts for.
    pub fn own_session(&self) -> Result<Session, ToolError> {
        self.session_hint.resolve_session(self.workspace, self.session_cache, self.request.client, self.now)
    }

    /// The session that a call is about: the one it names, else our own. Only our own may be written to, unless
    /// `allow_others` is set.
    pub fn target_session(&self) -> Result<Session, ToolError> {
        let Some(name) = self.session_name else { return self.own_session() };
        let session = self.workspace.find_session(name)?;
        if self.is_write && !self.allow_others {
            let own_session = self.own_session()?;
            if own_session.id != session.id {
                return Err(ToolError::new(format!(
                    "session {} is not yours: you can read it, but change only your own ({} {})",
                    session.id.short(),
                    own_session.agent,
                    own_session.id.short()
                ))
                .with_hint(
                    "omit \"session\"; the user can allow more by starting this server with --allow-others",
                ));
            }
        }
        Ok(session)
    }

    /// Sessions of agents that are active here, our own among them.
    pub fn active_sessions(&self) -> Result<Vec<Session>, ToolError> {
        session_lookup::active_sessions(self.workspace, self.now)
    }

    /// A path as the agent writes it, relative to the root of the workspace.
    pub fn relative_path(&self, path: &str) -> String {
        let inside = std::path::Path::new(path).strip_prefix(&self.workspace.root);
        let path = inside.map_or_else(|_| path.to_owned(), |inside| inside.to_string_lossy().into_owned());
        path.trim_start_matches("./").to_owned()
    }

    /// The session that the call names, if any.
    pub fn named_session(&self) -> Result<Option<Session>, ToolError> {
        self.session_name.map(|_| self.target_session()).transpose()
    }
}

impl<H: Host> ToolServer<H> {
    /// A server over the workspace that `host` opens.
    pub fn new(host: H, options: ToolServerOptions) -> Self {
        let tools = tools::list_tools(options.allow_others);
        Self { host, options, session_cache: SessionCache::default(), tools }
    }

    fn find_tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Runs some work in the workspace.
    pub(crate) fn with_context<T>(
        &self,
        request: &ServiceRequest<'_>,
        (create, writes): (bool, bool),
        session_name: Option<&str>,
        work: impl FnOnce(&ToolContext<'_>) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let mut work = Some(work);
        let mut outcome = None;
        self.host.with_workspace(create, &mut |workspace| {
            let context = ToolContext {
                workspace,
                request,
                now: workspace.engine.env.now(),
                allow_others: self.options.allow_others,
                allow_commands: self.options.allow_commands,
                session_hint: &self.options.session_hint,
                session_cache: &self.session_cache,
                session_name,
                is_write: writes,
            };
            if let Some(work) = work.take() {
                outcome = Some(work(&context)?);
            }
            Ok(())
        })?;
        outcome.ok_or_else(|| ToolError::new("the workspace was not opened"))
    }

    fn call_tool(
        &self,
        request: &ServiceRequest<'_>,
        tool: &Tool,
        arguments: Map<String, Value>,
    ) -> Result<tools::ToolReply, ToolError> {
        let mut arguments = Value::Object(arguments);
        // A call that writes may name only its own session; what it names is looked up before it is refused.
        let requested = arguments.as_object_mut().and_then(|arguments| {
            let declared = tool.input["properties"].get("session").is_some();
            if declared { arguments.get("session").cloned() } else { arguments.remove("session") }
        });
        if let Some(mismatch) = schema::find_mismatch(&tool.input, &arguments) {
            return Err(ToolError::new(format!("{}: {mismatch}", tool.name)));
        }
        let requested = match &requested {
            None => None,
            Some(Value::String(requested)) => Some(requested.as_str()),
            Some(_) => return Err(ToolError::new(format!("{}: session must be a text", tool.name))),
        };
        let args = Args::new(tool.name, arguments);
        self.with_context(request, (tool.creates_workspace, !tool.hints.read_only), requested, |context| {
            if requested.is_some() {
                // Checked even for a tool that ignores it: a client that names another session means it.
                context.target_session()?;
            }
            (tool.run)(context, &args)
        })
    }
}

impl<H: Host> McpService for ToolServer<H> {
    fn about(&self) -> ServerInfo {
        ServerInfo {
            name: "stepback",
            title: "stepback: time travel for agents",
            version: env!("CARGO_PKG_VERSION"),
            instructions: INSTRUCTIONS,
        }
    }

    fn tools(&self) -> Vec<Value> {
        self.tools.iter().map(Tool::to_json).collect()
    }

    fn is_slow(&self, tool: &str) -> bool {
        self.find_tool(tool).is_some_and(|tool| tool.is_slow)
    }

    fn call(
        &self,
        request: &ServiceRequest<'_>,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, Refusal> {
        let Some(tool) = self.find_tool(tool) else {
            let clipped: String = tool.chars().take(80).collect();
            return Err(Refusal::invalid_params(format!("unknown tool \"{clipped}\"; tools/list lists all")));
        };
        Ok(match self.call_tool(request, tool, arguments) {
            Ok(reply) => json!({
                "content": [{ "type": "text", "text": reply.text }],
                "structuredContent": reply.structured,
                "isError": false,
            }),
            Err(trouble) => json!({
                "content": [{ "type": "text", "text": trouble.to_text() }],
                "isError": true,
            }),
        })
    }

    fn resources(&self, request: &ServiceRequest<'_>, cursor: Option<&str>) -> Result<Value, Refusal> {
        let listed = self.with_context(request, (false, false), None, |context| {
            resources::list_resources(context, cursor)
        });
        match (listed, cursor) {
            // Where nothing is recorded yet, list the fixed resources; reading one of them reports what is missing.
            (Err(_), None) => Ok(resources::list_fixed_resources()),
            (listed, _) => listed.map_err(to_refusal),
        }
    }

    fn templates(&self) -> Vec<Value> {
        resources::list_templates()
    }

    fn read(&self, request: &ServiceRequest<'_>, uri: &str) -> Result<Option<Value>, Refusal> {
        self.with_context(request, (true, false), None, |context| resources::read_resource(context, uri))
            .map_err(to_refusal)
    }

    fn can_subscribe(&self) -> bool {
        true
    }

    fn resource_version(&self, request: &ServiceRequest<'_>, uri: &str) -> Result<Option<String>, Refusal> {
        self.with_context(request, (true, false), None, |context| resources::resource_version(context, uri))
            .map_err(to_refusal)
    }

    fn wait_for_change(&self, last_seen: Option<u64>, timeout: Duration) -> Result<u64, Refusal> {
        let mut now = 0;
        let waited = self.host.with_workspace(true, &mut |workspace| {
            let store = workspace.store();
            now = match last_seen {
                Some(last_seen) => store.wait_for_commit(CommitMark(last_seen), timeout)?.0,
                None => store.commit_seq()?.0,
            };
            Ok(())
        });
        waited.map(|()| now).map_err(to_refusal)
    }

    fn prompts(&self) -> Vec<Value> {
        prompts::list_prompts()
    }

    fn prompt(
        &self,
        request: &ServiceRequest<'_>,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, Refusal> {
        prompts::check_arguments(name, arguments)?;
        let session_name = arguments.get("session").and_then(Value::as_str);
        self.with_context(request, (true, false), session_name, |context| {
            prompts::get_prompt(context, name, arguments)
        })
        .map_err(to_refusal)
    }

    fn complete(
        &self,
        request: &ServiceRequest<'_>,
        reference: &Map<String, Value>,
        argument: &str,
        prefix: &str,
    ) -> Result<Vec<String>, Refusal> {
        completion::check_reference(reference)?;
        self.with_context(request, (true, false), None, |context| {
            completion::complete_argument(context, argument, prefix)
        })
        .map_err(to_refusal)
    }
}

/// Turns an error outside of tools into a protocol error.
fn to_refusal(error: ToolError) -> Refusal {
    Refusal::new(INTERNAL_ERROR, error.to_text())
}
