//! Git repositories of a state, and what sessions had at a step, as documents.

use serde_json::Value;
use stepback_engine::{EngineError, RepositoryStatus, Workspace};
use stepback_model::hash::Hash;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::state::{GitState, WorkspaceState};
use stepback_model::{conversation, json};
use stepback_store::port::StepQuery;

use crate::state::{RepositoryDocument, SessionStateDocument, StateSlotsDocument};

/// Fields of an environment that hold the names of variables.
const VARIABLE_FIELDS: [&str; 3] = ["variables", "env", "environment"];

impl RepositoryDocument {
    /// The documents of the repositories of a state, with what was staged and changed in each.
    pub fn from_state(workspace: &Workspace, state: &WorkspaceState) -> Result<Vec<Self>, EngineError> {
        let git = match state.git {
            Some(hash) => GitState::load(workspace.store(), hash)?,
            None => GitState::default(),
        };
        let mut documents = Vec::new();
        for repository in &git.repositories {
            let RepositoryStatus { staged, changed, uncommitted } =
                workspace.repository_status(state, repository)?;
            documents.push(Self { staged, changed, uncommitted, ..Self::from_repository(repository) });
        }
        Ok(documents)
    }
}

impl SessionStateDocument {
    /// The document of what a session had at a step, as far as it is recorded as such; its agent's own format is not read.
    /// Only its name is set if it had no step by then.
    pub fn from_record(workspace: &Workspace, session: &Session, at: &StepRow) -> Result<Self, EngineError> {
        let mut document = Self {
            session: session.id.to_string(),
            agent: session.agent.clone(),
            model: session.info.model.clone(),
            ..Self::default()
        };
        let Some((step, state)) = workspace.session_state_at(session.id, at.step.number)? else {
            return Ok(document);
        };
        let store = workspace.store();
        let load = |hash: Option<Hash>| hash.map(|hash| json::load(store, hash)).transpose();
        document.step = step.step.number;
        document.iteration = step.step.meta.iteration;
        document.lines = conversation::len(store, state.conversation)?;
        document.messages = document.lines;
        let environment = load(state.env)?.unwrap_or_default();
        document.variables =
            VARIABLE_FIELDS.iter().find_map(|field| names(&environment[field])).unwrap_or_default();
        document.tools = names(&environment["tools"]).unwrap_or_default();
        (document.memory, document.task) = (load(state.memory)?, load(state.task)?);
        document.slots = StateSlotsDocument::from_state(&state);
        let query = StepQuery {
            session: Some(session.id),
            kinds: vec![StepKind::ToolStart],
            before: Some(at.step.number.saturating_add(1)),
            limit: Some(1),
            ..StepQuery::default()
        };
        if let Some(call) = store.steps(workspace.record.id, &query)?.pop() {
            (document.call, document.tool) = (call.step.meta.call, call.step.meta.tool);
        }
        Ok(document)
    }
}

/// The names in an array of texts or of objects with a `name`; `None` if it is no array.
fn names(value: &Value) -> Option<Vec<String>> {
    let name = |item: &Value| item.as_str().or_else(|| item["name"].as_str()).map(str::to_owned);
    Some(value.as_array()?.iter().filter_map(name).collect())
}
