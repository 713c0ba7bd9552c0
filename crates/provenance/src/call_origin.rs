//! What led to a tool call: the model turn that asked for it, and the prompt that the session was working on.

use std::collections::HashMap;

use stepback_engine::Workspace;
use stepback_engine::authorship::Author;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_store::port::StepQuery;

use crate::error::ProvenanceError;

/// A tool call with the steps that led to it. What was not recorded, or was freed, is `None`.
#[derive(Clone, Debug)]
pub struct CallOrigin {
    /// The session.
    pub session: Option<Session>,
    /// The step at which the call began.
    pub call: Option<StepRow>,
    /// The model's answer that asked for the call.
    pub model: Option<StepRow>,
    /// The prompt.
    pub prompt: Option<StepRow>,
}

/// Finds what led to a call.
pub fn trace_call(workspace: &Workspace, author: &Author) -> Result<CallOrigin, ProvenanceError> {
    CallTracer::new(workspace).trace(author)
}

/// Finds what led to many calls: sessions and prompts are read once.
pub(crate) struct CallTracer<'w> {
    workspace: &'w Workspace,
    sessions: HashMap<SessionId, Option<Session>>,
    prompts: HashMap<StepId, Option<StepRow>>,
}

impl<'w> CallTracer<'w> {
    /// Creates one.
    pub(crate) fn new(workspace: &'w Workspace) -> Self {
        Self { workspace, sessions: HashMap::new(), prompts: HashMap::new() }
    }

    /// Finds what led to a call.
    pub(crate) fn trace(&mut self, author: &Author) -> Result<CallOrigin, ProvenanceError> {
        let store = self.workspace.store();
        let call = store.step(author.step)?;
        let prompt = match author.prompt {
            Some(prompt) => match self.prompts.get(&prompt) {
                Some(known) => known.clone(),
                None => self.prompts.entry(prompt).or_insert(store.step(prompt)?).clone(),
            },
            None => None,
        };
        let model = match &call {
            Some(call) if call.step.meta.iteration > 0 => {
                let query = StepQuery {
                    session: Some(author.session),
                    kinds: vec![StepKind::ModelEnd],
                    iteration: Some(call.step.meta.iteration),
                    before: Some(call.step.number),
                    limit: Some(1),
                    ..StepQuery::default()
                };
                store.steps(self.workspace.record.id, &query)?.into_iter().next()
            }
            _ => None,
        };
        let session = match self.sessions.get(&author.session) {
            Some(known) => known.clone(),
            None => self.sessions.entry(author.session).or_insert(store.session(author.session)?).clone(),
        };
        Ok(CallOrigin { session, call, model, prompt })
    }
}
