//! A turn of a model: the call or answer that is explained, what the model said and thought in it, the prompt it was for, and
//! where what it had seen is recorded.

use serde_json::Value;
use stepback_agents::transcript::{MessagePart, TranscriptMessage, parse_agent_messages};
use stepback_engine::Workspace;
use stepback_llm_wire::ModelRequest;
use stepback_llm_wire::recorded_call::parse_answer;
use stepback_llm_wire::semantics::ContentPart;
use stepback_model::conversation::{self, ConversationMessage};
use stepback_model::hash::Hash;
use stepback_model::ids::StepId;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::state::WorkspaceState;
use stepback_store::port::StepQuery;

use crate::error::ProvenanceError;

/// How many model answers before a call are searched for the one that asked for it.
const MAX_ANSWERS: u64 = 8;
/// How many messages from the end of a conversation are searched for the answer that made a call.
const MAX_TAIL: usize = 64;
/// How many steps are searched for a compaction.
const MAX_STATE_CHANGES: u64 = 256;

/// The model's answer, if it was recorded as a step.
#[derive(Clone, Debug)]
pub(crate) struct RecordedAnswer {
    /// The step at which it ended.
    pub step: StepRow,
    /// Whether it names the call; otherwise it is the last answer before it in the same turn.
    pub names_call: bool,
}

/// A turn of a model.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// The session.
    pub session: Session,
    /// The step that is explained: the start of a call, or an answer.
    pub step: StepRow,
    /// The end of the call.
    pub end: Option<StepRow>,
    /// The input of the call.
    pub input: Value,
    /// The model had seen what was recorded before the step with this number.
    pub before: u64,
    /// The last message of the conversation before the turn.
    pub conversation: Option<Hash>,
    /// The sub-agent.
    pub worker: Option<String>,
    /// The prompt.
    pub prompt: Option<StepRow>,
    /// The model's answer.
    pub answer: Option<RecordedAnswer>,
    /// The request of the model call.
    pub request: Option<ModelRequest>,
    /// What the model said in the turn.
    pub said: String,
    /// What it thought.
    pub thought: String,
    /// Whether the conversation was compacted before.
    pub may_be_compacted: bool,
}

impl Turn {
    /// The turn that made a call, from the step at which it began; or that gave an answer, from the step of that; `None` if
    /// the step's session is not known.
    pub(crate) fn of_step(workspace: &Workspace, step: &StepRow) -> Result<Option<Self>, ProvenanceError> {
        let store = workspace.store();
        let Some(session) = store.session(step.step.session)? else { return Ok(None) };
        let detail = workspace.load_detail(&step.step)?.unwrap_or_default();
        let prompt = detail["prompt"].as_str().and_then(StepId::from_hex);
        let prompt = prompt.map(|prompt| store.step(prompt)).transpose()?.flatten();
        let conversation = WorkspaceState::load(store, step.step.state)?.conversation;
        let mut turn = Self {
            step: step.clone(),
            end: None,
            input: Value::Null,
            before: step.step.number,
            conversation,
            worker: step.step.meta.worker.clone(),
            prompt,
            answer: None,
            request: None,
            said: String::new(),
            thought: String::new(),
            may_be_compacted: false,
            session,
        };
        match step.step.kind {
            StepKind::ModelEnd => turn.take_answer(&detail["output"]),
            StepKind::ToolStart => {
                turn.input = detail["input"].clone();
                turn.find_end(workspace)?;
                turn.find_answer(workspace)?;
            }
            _ => {}
        }
        turn.find_request(workspace)?;
        if turn.said.is_empty() && turn.thought.is_empty() {
            turn.read_conversation(workspace)?;
        }
        turn.may_be_compacted = turn.was_compacted(workspace)?;
        Ok(Some(turn))
    }

    /// The agent's id of the call.
    pub(crate) fn call_id(&self) -> Option<&str> {
        self.step.step.meta.call.as_deref().filter(|id| !id.is_empty())
    }

    /// Whether a message is the answer that makes the call. It is at the end of the conversation only if that was not cut
    /// before the turn.
    pub(crate) fn is_own_answer(&self, message: &ConversationMessage) -> bool {
        self.call_id().is_some_and(|id| message.text.contains(id))
    }

    fn find_end(&mut self, workspace: &Workspace) -> Result<(), ProvenanceError> {
        let Some(call) = self.call_id() else { return Ok(()) };
        let query = StepQuery {
            session: Some(self.session.id),
            kinds: vec![StepKind::ToolEnd],
            call: Some(call.to_owned()),
            after: Some(self.before),
            oldest_first: true,
            limit: Some(1),
            ..StepQuery::default()
        };
        self.end = workspace.store().steps(workspace.record.id, &query)?.pop();
        Ok(())
    }

    /// Finds the recorded answer that asked for the call.
    fn find_answer(&mut self, workspace: &Workspace) -> Result<(), ProvenanceError> {
        let query = StepQuery {
            session: Some(self.session.id),
            kinds: vec![StepKind::ModelEnd],
            before: Some(self.before),
            limit: Some(MAX_ANSWERS),
            ..StepQuery::default()
        };
        let iteration = self.step.step.meta.iteration;
        let mut nearest = None;
        for stored in workspace.store().steps(workspace.record.id, &query)? {
            if stored.step.meta.worker != self.worker {
                continue;
            }
            let output = workspace.load_detail(&stored.step)?.unwrap_or_default()["output"].take();
            let names_call = self.call_id().is_some_and(|call| names_call(&output, call));
            if names_call {
                self.take_answer(&output);
                self.answer = Some(RecordedAnswer { step: stored, names_call });
                return Ok(());
            }
            if nearest.is_none() && iteration > 0 && stored.step.meta.iteration == iteration {
                nearest = Some((stored, output));
            }
        }
        if let Some((step, output)) = nearest {
            self.take_answer(&output);
            self.answer = Some(RecordedAnswer { step, names_call: false });
        }
        Ok(())
    }

    /// Takes what a recorded answer says.
    fn take_answer(&mut self, output: &Value) {
        match parse_answer(output, None) {
            Some(answer) => {
                for part in &answer.content {
                    match part {
                        ContentPart::Model(text) => push_text(&mut self.said, text),
                        ContentPart::Thought(text) => push_text(&mut self.thought, text),
                        _ => {}
                    }
                }
            }
            None => push_text(&mut self.said, &super::context::join_strings(output)),
        }
    }

    /// Finds the recorded request of the model call.
    fn find_request(&mut self, workspace: &Workspace) -> Result<(), ProvenanceError> {
        let answer = match (&self.answer, self.step.step.kind) {
            (Some(answer), _) => &answer.step,
            (None, StepKind::ModelEnd) => &self.step,
            _ => return Ok(()),
        };
        let Some(call) = answer.step.meta.call.clone() else { return Ok(()) };
        let query = StepQuery {
            session: Some(self.session.id),
            kinds: vec![StepKind::ModelStart],
            call: Some(call),
            before: Some(answer.step.number),
            limit: Some(1),
            ..StepQuery::default()
        };
        let Some(start) = workspace.store().steps(workspace.record.id, &query)?.pop() else { return Ok(()) };
        let input = workspace.load_detail(&start.step)?.unwrap_or_default()["input"].take();
        self.request = serde_json::from_value::<ModelRequest>(input).ok();
        Ok(())
    }

    /// Reads what the model said and thought from the conversation after the call.
    fn read_conversation(&mut self, workspace: &Workspace) -> Result<(), ProvenanceError> {
        let Some(call) = self.call_id().map(str::to_owned) else { return Ok(()) };
        let at_end = match &self.end {
            Some(end) => WorkspaceState::load(workspace.store(), end.step.state)?.conversation,
            None => None,
        };
        let tips = [at_end, self.session.info.tip];
        for tip in tips.into_iter().flatten() {
            let tail = conversation::tail(workspace.store(), Some(tip), MAX_TAIL)?;
            if !tail.iter().any(|(_, message)| message.text.contains(&call)) {
                continue;
            }
            let lines: Vec<String> = tail.into_iter().map(|(_, message)| message.text).collect();
            let messages = parse_agent_messages(&self.session.agent, &lines);
            if let Some(answer) = messages.iter().find(|message| message.call_ids().any(|id| id == call)) {
                self.take_message(answer);
                return Ok(());
            }
        }
        Ok(())
    }

    fn take_message(&mut self, message: &TranscriptMessage) {
        for part in &message.parts {
            match part {
                MessagePart::Text { text } => push_text(&mut self.said, text),
                MessagePart::Thinking { text } => push_text(&mut self.thought, text),
                _ => {}
            }
        }
    }

    fn was_compacted(&self, workspace: &Workspace) -> Result<bool, ProvenanceError> {
        let query = StepQuery {
            session: Some(self.session.id),
            kinds: vec![StepKind::StateChange],
            before: Some(self.before),
            limit: Some(MAX_STATE_CHANGES),
            ..StepQuery::default()
        };
        let steps = workspace.store().steps(workspace.record.id, &query)?;
        Ok(steps.iter().any(|stored| stored.step.summary.contains("compact")))
    }
}

fn push_text(texts: &mut String, text: &str) {
    if !texts.is_empty() && !text.is_empty() {
        texts.push('\n');
    }
    texts.push_str(text);
}

/// Whether a recorded answer asks for the call with this id.
fn names_call(output: &Value, call: &str) -> bool {
    let answer = parse_answer(output, None);
    let mut calls = answer.iter().flat_map(|answer| &answer.content);
    calls.any(|part| matches!(part, ContentPart::Call(asked) if asked.id.as_deref() == Some(call)))
}

/// The start of the call that a step begins or ends; `None` if it is no step of a call.
pub(crate) fn start_of_call(
    workspace: &Workspace,
    step: &StepRow,
) -> Result<Option<StepRow>, ProvenanceError> {
    match step.step.kind {
        StepKind::ToolStart => return Ok(Some(step.clone())),
        StepKind::ToolEnd => {}
        _ => return Ok(None),
    }
    let detail = workspace.load_detail(&step.step)?.unwrap_or_default();
    if let Some(start) = detail["start"].as_str().and_then(StepId::from_hex)
        && let Some(start) = workspace.store().step(start)?
    {
        return Ok(Some(start));
    }
    let Some(call) = step.step.meta.call.clone() else { return Ok(None) };
    let query = StepQuery {
        session: Some(step.step.session),
        kinds: vec![StepKind::ToolStart],
        call: Some(call),
        before: Some(step.step.number),
        limit: Some(1),
        ..StepQuery::default()
    };
    Ok(workspace.store().steps(workspace.record.id, &query)?.pop())
}
