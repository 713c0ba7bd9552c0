//! The agent loop: call the model, run the tools it requests, send the results, until the model requests no more.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use stepback_agents::decisions::RepeatedCall;
use stepback_agents::model_call_inbox::redact_response;
use stepback_agents::record::MESSAGE_PREFIX;
use stepback_engine::recorder::{FinishedCalls, ScanPolicy, SessionMilestone, SessionUpdate};
use stepback_engine::{EngineError, Workspace};
use stepback_llm_wire::{Exchange, ModelRequest, Response};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::record::{Session, StepKind, Trigger};

use crate::NAME;
use crate::conversation::Dialogue;
use crate::journal::{Journal, StepExtras, StopRequest, Tasks, deadline};
use crate::options::{ExitReason, RunEvent, RunOptions, RunOutcome};
use crate::provider::Provider;
use crate::request::{self, ModelAnswer};
use crate::tools;

/// Delay before the first retry when the model is busy.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How often to check whether the user ended the run.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A running conversation: the agent's, or a worker's.
pub(crate) struct ChatHistory {
    /// The messages so far.
    pub dialogue: Dialogue,
    /// The worker as it is recorded: its name and the call that gave it its task; `None` for the agent itself.
    pub worker: Option<String>,
    /// Prefix of the ids of its model calls.
    pub prefix: String,
}

/// A running agent.
pub(crate) struct Agent<'a, 'o> {
    pub journal: Journal<'a>,
    pub provider: &'a mut dyn Provider,
    pub options: RunOptions<'o>,
    pub deadline: Option<Instant>,
    pub memory: Map<String, Value>,
    pub tasks: Tasks,
    /// Recorded calls that were repeated, if this is a rerun.
    pub repeated: Vec<RepeatedCall>,
    turns: u64,
    cost: u64,
}

/// Runs the agent in `workspace` until it is done or must end. An error means that recording failed; errors of the model or
/// of a tool are part of the outcome.
pub fn run(
    workspace: &Workspace,
    provider: &mut dyn Provider,
    mut options: RunOptions<'_>,
) -> Result<RunOutcome, EngineError> {
    let external = options.session.take().unwrap_or_else(|| fresh_name(workspace));
    let session = Session::id_of(workspace.record.id, NAME, &external);
    let mut main = ChatHistory {
        dialogue: Dialogue::new(std::mem::take(&mut options.history)),
        worker: None,
        prefix: String::new(),
    };
    let mut agent = Agent {
        journal: Journal {
            workspace,
            session: external.clone(),
            steps: 0,
            limits: (options.until, options.max_steps),
            schedule: options.schedule,
            reached: None,
        },
        provider,
        deadline: deadline(options.timeout),
        memory: std::mem::take(&mut options.memory),
        tasks: Tasks::default(),
        repeated: Vec::new(),
        options,
        turns: 0,
        cost: 0,
    };
    agent.record_start(&main)?;
    let (text, ended) = match agent.begin_work(&mut main) {
        Ok(text) => (text, ExitReason::Done),
        Err(StopRequest::Over(why)) => (last_words(&main.dialogue), why),
        Err(StopRequest::Engine(error)) => return Err(error),
    };
    agent.record_end(&main, &text, &ended)?;
    let Agent { turns, cost, journal, .. } = agent;
    Ok(RunOutcome { session, external, turns, steps: journal.steps, text, cost, ended })
}

/// Returns a new session id, in the form that agents use.
fn fresh_name(workspace: &Workspace) -> String {
    let mut name = String::new();
    for (at, byte) in workspace.engine.env.fresh_id().iter().enumerate() {
        let gap = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
        // Writing into a String cannot fail.
        let _ = write!(name, "{gap}{byte:02x}");
    }
    name
}

fn last_words(dialogue: &Dialogue) -> String {
    let said = dialogue.messages().iter().rev().filter(|message| message["role"] == "assistant");
    let text = |message: &Value| {
        let parts = message["content"].as_array()?;
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    };
    said.into_iter().find_map(text).unwrap_or_default()
}

impl Agent<'_, '_> {
    fn record_start(&mut self, main: &ChatHistory) -> Result<(), EngineError> {
        let event = self.journal.event(StepKind::AgentStep, "session started");
        let mut environment = std::mem::take(&mut self.options.environment);
        environment.insert("tools".into(), json!(tools::ALL));
        let update = SessionUpdate {
            directory: Some(self.journal.workspace.root.display().to_string()),
            model: Some(self.options.model.clone()),
            finished_calls: FinishedCalls::All,
            environment: Some(Value::Object(environment)),
            memory: self.remembered(),
            ..SessionUpdate::default()
        };
        let effect = Some(ScanPolicy::Checkpoint(Trigger::Automatic));
        self.journal.record(
            &event,
            StepExtras { effect, update, dialogue: Some(&main.dialogue), ..StepExtras::default() },
        )?;
        Ok(())
    }

    fn begin_work(&mut self, main: &mut ChatHistory) -> Result<String, StopRequest> {
        if let Some(prompt) = self.options.prompt.take() {
            main.dialogue.say(&prompt);
            let mut event = self.journal.event(StepKind::UserInput, &prompt);
            event.input = Some(json!({ "prompt": prompt }));
            self.journal
                .record(&event, StepExtras { dialogue: Some(&main.dialogue), ..StepExtras::default() })?;
        }
        self.run_conversation(main)
    }

    /// Records how the run ended. The limits of the run do not apply any more.
    fn record_end(&mut self, main: &ChatHistory, text: &str, ended: &ExitReason) -> Result<(), EngineError> {
        let dialogue = Some(&main.dialogue);
        match ended {
            ExitReason::Done => {
                let mut event = self.journal.event(StepKind::AgentStep, &format!("done: {text}"));
                event.output = Some(text.into());
                let update = SessionUpdate {
                    milestone: Some(SessionMilestone::Answered),
                    finished_calls: FinishedCalls::All,
                    ..SessionUpdate::default()
                };
                self.journal.record(&event, StepExtras { dialogue, update, ..StepExtras::default() })?;
            }
            ExitReason::Failed(trouble) => {
                let mut event = self.journal.event(StepKind::Error, &trouble.message);
                event.error = Some(trouble.clone());
                self.journal.record(&event, StepExtras { dialogue, ..StepExtras::default() })?;
            }
            _ => {}
        }
        let summary = match ended {
            ExitReason::Done => "session ended".to_string(),
            other => format!("session ended: {}", other.name().replace('-', " ")),
        };
        let event = self.journal.event(StepKind::AgentStep, &summary);
        // A command that was interrupted may have changed something.
        let effect = (*ended != ExitReason::Done).then_some(ScanPolicy::Checkpoint(Trigger::Automatic));
        let update = SessionUpdate {
            milestone: Some(SessionMilestone::Ended),
            finished_calls: FinishedCalls::All,
            ..SessionUpdate::default()
        };
        self.journal.record(&event, StepExtras { effect, dialogue, update, ..StepExtras::default() })?;
        Ok(())
    }

    /// Returns the agent's memory, for the session's state.
    pub fn remembered(&self) -> Option<Value> {
        (!self.memory.is_empty()).then(|| {
            let mut memory = Value::Object(self.memory.clone());
            stepback_redact::redact_value(&mut memory);
            memory
        })
    }

    /// Fails if the run has to end.
    pub fn check(&self) -> Result<(), StopRequest> {
        if self.options.stop.load(Ordering::Relaxed) {
            return Err(StopRequest::Over(ExitReason::Interrupted));
        }
        if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(StopRequest::Over(ExitReason::TimedOut));
        }
        self.journal.reached.clone().map_or(Ok(()), |why| Err(StopRequest::Over(why)))
    }

    /// Calls the model and runs its tools until it is done. Returns its last text.
    pub fn run_conversation(&mut self, party: &mut ChatHistory) -> Result<String, StopRequest> {
        let before = party.dialogue.answers() as u64;
        loop {
            self.take_user_messages(party)?;
            self.check()?;
            if party.dialogue.answers() as u64 - before >= self.options.max_turns {
                return Err(StopRequest::Over(ExitReason::MaxTurns));
            }
            let answer = self.call_model(party)?;
            party.dialogue.push(json!({ "role": "assistant", "content": answer.content }));
            if !answer.text.trim().is_empty() {
                (self.options.watch)(RunEvent::Said { worker: party.worker.as_deref(), text: &answer.text });
            }
            if answer.calls.is_empty() {
                // The user may have left a message while the model gave its last answer.
                if self.take_user_messages(party)? {
                    continue;
                }
                return Ok(answer.text);
            }
            let mut results = Vec::new();
            for call in &answer.calls {
                self.check()?;
                let result = self.call(party, call)?;
                results.push(request::result(&call.id, &result));
            }
            party.dialogue.push(json!({ "role": "user", "content": results }));
        }
    }

    /// Adds messages that the user left to the conversation. Returns whether there were any.
    fn take_user_messages(&mut self, party: &mut ChatHistory) -> Result<bool, StopRequest> {
        let asks = format!("{}turn_{}", party.prefix, party.dialogue.answers() + 1);
        let recorded = self.options.told.extract_if(.., |(call, _)| *call == asks);
        let mut said: Vec<String> = recorded.map(|(_, text)| text).collect();
        said.extend(self.journal.take_said()?);
        for text in &said {
            party.dialogue.say(text);
            (self.options.watch)(RunEvent::Told { text });
            let mut event = self.journal.event(StepKind::AgentStep, &format!("{MESSAGE_PREFIX}{text}"));
            event.input = Some(json!({ "text": text }));
            event.worker.clone_from(&party.worker);
            self.journal
                .record(&event, StepExtras { dialogue: main_only(party), ..StepExtras::default() })?;
        }
        Ok(!said.is_empty())
    }

    /// Calls the model, with retries if it is busy.
    fn call_model(&mut self, party: &ChatHistory) -> Result<ModelAnswer, StopRequest> {
        let mut retry = 0;
        loop {
            let (answered, again) = self.ask_once(party, retry)?;
            let trouble = match answered {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            self.check()?;
            if !again || retry >= self.options.retries {
                return Err(StopRequest::Over(ExitReason::Failed(trouble)));
            }
            (self.options.watch)(RunEvent::Retries { why: &trouble.message });
            self.wait_before_retry(FIRST_RETRY_DELAY * 2u32.pow(retry))?;
            retry += 1;
        }
    }

    fn wait_before_retry(&self, time: Duration) -> Result<(), StopRequest> {
        let begun = Instant::now();
        while begun.elapsed() < time {
            self.check()?;
            std::thread::sleep(STOP_POLL_INTERVAL);
        }
        Ok(())
    }

    /// Calls the model once. The second value says whether to retry if the call failed.
    fn ask_once(
        &mut self,
        party: &ChatHistory,
        retry: u32,
    ) -> Result<(Result<ModelAnswer, ReportedError>, bool), StopRequest> {
        let model = self.options.model.clone();
        let system = match &party.worker {
            None => request::system(self.options.system.as_deref(), &self.memory),
            Some(worker) => {
                request::system_for_worker(worker.rsplit_once(' ').map_or(worker, |(name, _)| name))
            }
        };
        let request = request::request(&model, &system, party.dialogue.messages(), party.worker.as_deref());
        let number = party.dialogue.answers() + 1;
        let again = if retry == 0 { String::new() } else { format!("-again_{retry}") };
        let id = format!("{}turn_{number}{again}", party.prefix);
        let count = party.dialogue.messages().len();
        let unit = if count == 1 { "message" } else { "messages" };
        let start = AgentEvent {
            key: Some(format!("model {id}")),
            call: Some(id),
            tool: Some(model.clone()),
            worker: party.worker.clone(),
            input: serde_json::to_value(&request).ok(),
            ..self.journal.event(StepKind::ModelStart, &format!("{model}: {count} {unit}"))
        };
        let dialogue = main_only(party);
        self.journal.record(&start, StepExtras { dialogue, ..StepExtras::default() })?;
        self.check()?;
        let begun = self.journal.now();
        let response = self.provider.ask(&request);
        let took = u64::try_from(self.journal.now().as_micros() - begun.as_micros()).ok();
        let busy = response.as_ref().is_ok_and(|response| response.status == 429 || response.status >= 500);
        let answered = response.as_ref().map_err(Clone::clone).and_then(request::read);
        let recordable = response.ok().map(|response| self.redact_own_patterns(&start, &request, response));
        let (end, cost) = self.model_end(start, recordable.as_ref(), &answered, took);
        if answered.is_ok() {
            self.turns += 1;
        }
        self.cost += cost;
        let update = SessionUpdate { cost, ..SessionUpdate::default() };
        self.journal.record(&end, StepExtras { dialogue, update, ..StepExtras::default() })?;
        Ok((answered, busy))
    }

    /// Returns an answer without what the user's own patterns match.
    fn redact_own_patterns(
        &self,
        start: &AgentEvent,
        request: &ModelRequest,
        response: Response,
    ) -> Response {
        let patterns = &self.journal.workspace.engine.recorder.redact;
        if patterns.is_empty() {
            return response;
        }
        let id = start.call.clone().unwrap_or_default();
        redact_response(&Exchange { id, request: request.clone(), response }, patterns)
    }

    /// Returns the event that ends a model call, and the cost of the answer.
    fn model_end(
        &self,
        start: AgentEvent,
        response: Option<&Response>,
        answered: &Result<ModelAnswer, ReportedError>,
        took: Option<u64>,
    ) -> (AgentEvent, u64) {
        let model = &self.options.model;
        let answer = answered.as_ref().ok();
        let usage = answer.and_then(|answer| answer.usage);
        let answering = answer.and_then(|answer| answer.model.as_deref()).unwrap_or(model);
        let is_replayed = response.is_some_and(Response::is_replayed);
        let cost = answer.and_then(|answer| answer.cost);
        let cost = cost.or_else(|| (self.options.price)(answering, &usage?)).filter(|_| !is_replayed);
        let summary = match answered {
            Ok(answer) if answer.calls.is_empty() => answer.text.clone(),
            Ok(answer) => {
                let names: Vec<&str> = answer.calls.iter().map(|call| call.tool.as_str()).collect();
                format!("calls {}", names.join(", "))
            }
            Err(trouble) => trouble.message.clone(),
        };
        let mut metadata = json!({
            "model": answering,
            "usage": usage,
            "cost_usd": cost.map(|cost| cost as f64 / 1e6),
            "stop": answer.and_then(|answer| answer.stop.as_deref()),
        });
        if is_replayed {
            metadata["replayed"] = json!(true);
        }
        let end = AgentEvent {
            input: None,
            output: response.and_then(|response| serde_json::to_value(response).ok()),
            error: answered.as_ref().err().cloned(),
            duration: took,
            metadata: Some(metadata),
            ..start
        };
        let named = self.journal.event(StepKind::ModelEnd, &summary);
        (AgentEvent { kind: named.kind, summary: named.summary, ..end }, cost.unwrap_or_default())
    }
}

/// The conversation to record with the session: the agent's, not a worker's.
pub(crate) fn main_only(party: &ChatHistory) -> Option<&Dialogue> {
    party.worker.is_none().then_some(&party.dialogue)
}
