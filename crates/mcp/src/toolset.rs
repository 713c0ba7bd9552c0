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
        make: bool,
        work: &mut dyn FnMut(&Workspace) -> Result<(), ToolError>,
    ) -> Result<(), ToolError>;
}

/// What this server may do, and for which session.
#[derive(Clone, Debug, Default)]
pub struct ToolServerOptions {
    /// Which session this server acts for.
    pub whose: SessionHint,
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
    joined: SessionCache,
    tools: Vec<Tool>,
}

/// The context of one tool call.
pub struct ToolContext<'g> {
    /// The workspace that the call works on.
    pub workspace: &'g Workspace,
    /// The request.
    pub asked: &'g ServiceRequest<'g>,
    /// The time of the call.
    pub now: Timestamp,
    /// Whether other sessions may be written to.
    pub allow_others: bool,
    /// Whether commands may be run.
    pub allow_commands: bool,
    whose: &'g SessionHint,
    joined: &'g SessionCache,
    named: Option<&'g str>,
    writes: bool,
}

impl ToolContext<'_> {
    /// The session this server acts for.
    pub fn own(&self) -> Result<Session, ToolError> {
        self.whose.find(self.workspace, self.joined, self.asked.client, self.now)
    }

    /// The session that a call is about: the one it names, else our own. Only our own may be written to, unless
    /// `allow_others` is set.
    pub fn session(&self) -> Result<Session, ToolError> {
        let Some(named) = self.named else { return self.own() };
        let session = self.workspace.find_session(named)?;
        if self.writes && !self.allow_others {
            let own = self.own()?;
            if own.id != session.id {
                return Err(ToolError::new(format!(
                    "session {} is not yours: you can read it, but change only your own ({} {})",
                    session.id.short(),
                    own.agent,
                    own.id.short()
                ))
                .hint(
                    "omit \"session\"; the user can allow more by starting this server with --allow-others",
                ));
            }
        }
        Ok(session)
    }

    /// Sessions of agents that are active here, our own among them.
    pub fn at_work(&self) -> Result<Vec<Session>, ToolError> {
        session_lookup::at_work(self.workspace, self.now)
    }

    /// A path as the agent writes it, relative to the root of the workspace.
    pub fn relative(&self, path: &str) -> String {
        let inside = std::path::Path::new(path).strip_prefix(&self.workspace.root);
        let path = inside.map_or_else(|_| path.to_owned(), |inside| inside.to_string_lossy().into_owned());
        path.trim_start_matches("./").to_owned()
    }

    /// The session that the call names, if any.
    pub fn named_session(&self) -> Result<Option<Session>, ToolError> {
        self.named.map(|_| self.session()).transpose()
    }
}

impl<H: Host> ToolServer<H> {
    /// A server over the workspace that `host` opens.
    pub fn new(host: H, options: ToolServerOptions) -> Self {
        let tools = tools::all(options.allow_others);
        Self { host, options, joined: SessionCache::default(), tools }
    }

    fn tool(&self, name: &str) -> Option<&Tool> {
        self.tools.iter().find(|tool| tool.name == name)
    }

    /// Runs some work in the workspace.
    pub(crate) fn on_ground<T>(
        &self,
        asked: &ServiceRequest<'_>,
        (make, writes): (bool, bool),
        named: Option<&str>,
        work: impl FnOnce(&ToolContext<'_>) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let mut work = Some(work);
        let mut done = None;
        self.host.with_workspace(make, &mut |workspace| {
            let ground = ToolContext {
                workspace,
                asked,
                now: workspace.engine.env.now(),
                allow_others: self.options.allow_others,
                allow_commands: self.options.allow_commands,
                whose: &self.options.whose,
                joined: &self.joined,
                named,
                writes,
            };
            if let Some(work) = work.take() {
                done = Some(work(&ground)?);
            }
            Ok(())
        })?;
        done.ok_or_else(|| ToolError::new("the workspace was not opened"))
    }

    fn call_tool(
        &self,
        asked: &ServiceRequest<'_>,
        tool: &Tool,
        arguments: Map<String, Value>,
    ) -> Result<tools::ToolReply, ToolError> {
        let mut arguments = Value::Object(arguments);
        // A call that writes may name only its own session; what it names is looked up before it is refused.
        let named = arguments.as_object_mut().and_then(|arguments| {
            let declared = tool.input["properties"].get("session").is_some();
            if declared { arguments.get("session").cloned() } else { arguments.remove("session") }
        });
        if let Some(why) = schema::misfit(&tool.input, &arguments) {
            return Err(ToolError::new(format!("{}: {why}", tool.name)));
        }
        let named = match &named {
            None => None,
            Some(Value::String(named)) => Some(named.as_str()),
            Some(_) => return Err(ToolError::new(format!("{}: session must be a text", tool.name))),
        };
        let args = Args::new(tool.name, arguments);
        self.on_ground(asked, (tool.makes, !tool.hints.read_only), named, |ground| {
            if named.is_some() {
                // Checked even for a tool that ignores it: a client that names another session means it.
                ground.session()?;
            }
            (tool.run)(ground, &args)
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
        self.tools.iter().map(Tool::document).collect()
    }

    fn is_slow(&self, tool: &str) -> bool {
        self.tool(tool).is_some_and(|tool| tool.slow)
    }

    fn call(
        &self,
        asked: &ServiceRequest<'_>,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Value, Refusal> {
        let Some(tool) = self.tool(tool) else {
            let shown: String = tool.chars().take(80).collect();
            return Err(Refusal::params(format!("unknown tool \"{shown}\"; tools/list lists all")));
        };
        Ok(match self.call_tool(asked, tool, arguments) {
            Ok(reply) => json!({
                "content": [{ "type": "text", "text": reply.text }],
                "structuredContent": reply.structured,
                "isError": false,
            }),
            Err(trouble) => json!({
                "content": [{ "type": "text", "text": trouble.text() }],
                "isError": true,
            }),
        })
    }

    fn resources(&self, asked: &ServiceRequest<'_>, cursor: Option<&str>) -> Result<Value, Refusal> {
        let listed = self.on_ground(asked, (false, false), None, |ground| resources::list(ground, cursor));
        match (listed, cursor) {
            // Where nothing is recorded yet, list the fixed resources; reading one of them reports what is missing.
            (Err(_), None) => Ok(resources::always()),
            (listed, _) => listed.map_err(refused),
        }
    }

    fn templates(&self) -> Vec<Value> {
        resources::templates()
    }

    fn read(&self, asked: &ServiceRequest<'_>, uri: &str) -> Result<Option<Value>, Refusal> {
        self.on_ground(asked, (true, false), None, |ground| resources::read(ground, uri)).map_err(refused)
    }

    fn tells(&self) -> bool {
        true
    }

    fn mark(&self, asked: &ServiceRequest<'_>, uri: &str) -> Result<Option<String>, Refusal> {
        self.on_ground(asked, (true, false), None, |ground| resources::mark(ground, uri)).map_err(refused)
    }

    fn wait(&self, seen: Option<u64>, patience: Duration) -> Result<u64, Refusal> {
        let mut now = 0;
        let waited = self.host.with_workspace(true, &mut |workspace| {
            let store = workspace.store();
            now = match seen {
                Some(seen) => store.wait_for_commit(CommitMark(seen), patience)?.0,
                None => store.commit_seq()?.0,
            };
            Ok(())
        });
        waited.map(|()| now).map_err(refused)
    }

    fn prompts(&self) -> Vec<Value> {
        prompts::all()
    }

    fn prompt(
        &self,
        asked: &ServiceRequest<'_>,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, Refusal> {
        prompts::check(name, arguments)?;
        let named = arguments.get("session").and_then(Value::as_str);
        self.on_ground(asked, (true, false), named, |ground| prompts::get(ground, name, arguments))
            .map_err(refused)
    }

    fn complete(
        &self,
        asked: &ServiceRequest<'_>,
        reference: &Map<String, Value>,
        argument: &str,
        begins: &str,
    ) -> Result<Vec<String>, Refusal> {
        completion::check(reference)?;
        self.on_ground(asked, (true, false), None, |ground| completion::of(ground, argument, begins))
            .map_err(refused)
    }
}

/// Turns an error outside of tools into a protocol error.
fn refused(trouble: ToolError) -> Refusal {
    Refusal::new(INTERNAL_ERROR, trouble.text())
}
