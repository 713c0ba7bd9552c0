//! Runs one tool call: records its start, stops at breakpoints, runs it, and records its end.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Value, json};
use stepback_agents::breakpoints::StopDecision;
use stepback_agents::decisions::RepeatedCall;
use stepback_agents::import::describe_call;
use stepback_agents::record;
use stepback_engine::EngineError;
use stepback_engine::control::BreakSide;
use stepback_engine::recorder::{ChangeScope, RecordedStep, ScanPolicy, SessionUpdate};
use stepback_model::event::{AgentEvent, ReportedError};
use stepback_model::message::AgentMessage;
use stepback_model::record::{StepContext, StepKind};

use crate::NAME;
use crate::conversation::Dialogue;
use crate::journal::{StepExtras, StopRequest};
use crate::options::{ExitReason, RunEvent, RunOptions, ToolPolicy};
use crate::request::RequestedCall;
use crate::run::{Agent, ChatHistory, main_only};
use crate::tools::{self, ToolInput, ToolLimits, ToolResult};

/// Summarizes a call in one line.
fn summarize_call(call: &RequestedCall) -> String {
    let text = |field: &str| call.input.get(field).and_then(Value::as_str);
    match (call.tool.as_str(), text("worker"), text("task"), text("key")) {
        ("delegate", Some(worker), Some(task), _) => format!("delegate to {worker}: {task}"),
        ("remember", _, _, Some(key)) => format!("remember: {key}"),
        _ => describe_call(&call.tool, &call.input),
    }
}

/// Whether a call changes nothing outside of the agent, so that it runs under every tool policy.
fn runs_always(tool: &str) -> bool {
    matches!(tool, "delegate" | "remember")
}

impl Agent<'_, '_> {
    /// Runs a call from start to end.
    pub fn call(&mut self, party: &ChatHistory, call: &RequestedCall) -> Result<ToolResult, StopRequest> {
        let root = self.journal.workspace.root.clone();
        let worker = party.worker.as_deref();
        let summary = summarize_call(call);
        let can_change = tools::can_change(&call.tool);
        let changes = self.options.looks && can_change;
        let scope = if can_change { ChangeScope::Anything } else { ChangeScope::Nothing };
        let paths = tools::named_paths(&root, &call.tool, &call.input);
        let start = AgentEvent {
            key: Some(call.id.clone()),
            call: Some(call.id.clone()),
            tool: Some(call.tool.clone()),
            worker: party.worker.clone(),
            input: Some(call.input.clone()),
            ..self.journal.event(StepKind::ToolStart, &summary)
        };
        let effect = changes.then_some(ScanPolicy::Before);
        let with = StepExtras {
            effect,
            dialogue: main_only(party),
            paths: paths.clone(),
            scope,
            ..StepExtras::default()
        };
        let recorded = self.journal.record(&start, with)?;
        self.check()?;
        (self.options.watch)(RunEvent::Calls { worker, summary: &start.summary });
        let verdict = self.decide(&start, BreakSide::Start, &paths, &recorded)?;
        let mut input = call.input.clone();
        let mut note = None;
        match verdict {
            None | Some(StopDecision::Proceed) => {}
            Some(StopDecision::Refused(reason)) => {
                record::record_refusal(self.journal.workspace, &start, &reason, self.journal.now())?;
                self.check()?;
                let result = ToolResult::bad(format!("This call was refused and did not run: {reason}"));
                (self.options.watch)(RunEvent::Called { worker, tool: &call.tool, result: &result });
                return Ok(result);
            }
            Some(StopDecision::Edited(edited)) => {
                // A recorded result already has this note.
                let is_recorded =
                    matches!(self.options.tools, ToolPolicy::Recorded(_)) && !runs_always(&call.tool);
                note =
                    (!is_recorded).then(|| format!("[The user changed the input of this call to {edited}]"));
                input = edited;
            }
        }
        let (mut result, update) = self.carry_out(party, call, &input)?;
        if let Some(note) = note {
            result.text = format!("{note}\n{}", result.text);
        }
        let end = AgentEvent {
            input: Some(input),
            output: serde_json::to_value(&result).ok(),
            error: result.failed.then(|| ReportedError {
                name: Some("tool".into()),
                message: result.text.clone(),
                ..ReportedError::default()
            }),
            kind: StepKind::ToolEnd,
            ..start
        };
        let effect = changes.then_some(ScanPolicy::After);
        let with = StepExtras { effect, dialogue: main_only(party), paths: paths.clone(), scope, update };
        let recorded = self.journal.record(&end, with)?;
        (self.options.watch)(RunEvent::Called { worker, tool: &call.tool, result: &result });
        let verdict = self.decide(&end, BreakSide::End, &paths, &recorded)?;
        if let Some(StopDecision::Refused(reason)) = verdict {
            result.text = format!("{}\n[The user says about this: {reason}]", result.text);
        }
        Ok(result)
    }

    /// Returns the decision about a call: in a rerun, the recorded one; otherwise the user's answer at a breakpoint.
    fn decide(
        &mut self,
        event: &AgentEvent,
        side: BreakSide,
        paths: &[String],
        recorded: &RecordedStep,
    ) -> Result<Option<StopDecision>, EngineError> {
        if let Some(call) = self.options.decided.find(event, side, &self.repeated) {
            let decision = call.reply_at(side).decision.clone();
            if side == BreakSide::Start {
                self.repeated.push(RepeatedCall { number: call.number, call: event.call.clone() });
            }
            if let Some(decision) = decision {
                let mut event = event.clone();
                record::redact_event(&mut event);
                record::record_repeated_decision(
                    self.journal.workspace,
                    &event,
                    &decision,
                    self.journal.now(),
                )?;
                return Ok(Some(decision.stop_decision()));
            }
        }
        self.stop_if_wanted(event, paths, recorded)
    }

    /// Stops at a call if a breakpoint or pause applies, until the run has to end.
    fn stop_if_wanted(
        &mut self,
        event: &AgentEvent,
        paths: &[String],
        recorded: &RecordedStep,
    ) -> Result<Option<StopDecision>, EngineError> {
        let RunOptions { stop, patience, watch, .. } = &mut self.options;
        let deadline = self.deadline;
        let watch = RefCell::new(Some(watch));
        let waits = || {
            // On the first check, the agent has just begun to wait.
            if let Some(watch) = watch.take() {
                watch(RunEvent::Waits);
            }
            !stop.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline)
        };
        self.journal.stop_if_wanted(event, paths, recorded, *patience, &waits)
    }

    fn carry_out(
        &mut self,
        party: &ChatHistory,
        call: &RequestedCall,
        input: &Value,
    ) -> Result<(ToolResult, SessionUpdate), StopRequest> {
        let result = match call.tool.as_str() {
            // These two change nothing outside the agent, so they run under every tool policy.
            "delegate" if party.worker.is_none() => self.delegate(call, input)?,
            "remember" if party.worker.is_none() => {
                let result = self.remember(input).unwrap_or_else(ToolResult::bad);
                let memory = Some(self.remembered().unwrap_or_else(|| json!({})));
                return Ok((result, SessionUpdate { memory, ..SessionUpdate::default() }));
            }
            tool => match &mut self.options.tools {
                ToolPolicy::Deny if tools::can_change(tool) => {
                    ToolResult::bad("Tools that change something are not run here.")
                }
                ToolPolicy::Real | ToolPolicy::Deny => {
                    let limits = ToolLimits { stop: &self.options.stop, deadline: self.deadline };
                    tools::run(&self.journal.workspace.root, tool, input, &limits)
                }
                // Results are recorded by the input that the model gave, even if the user edited it.
                ToolPolicy::Recorded(recall) => recall(tool, &call.input).unwrap_or_else(|| {
                    ToolResult::bad("This call was not recorded, and nothing is run here.")
                }),
            },
        };
        Ok((result, SessionUpdate::default()))
    }

    fn remember(&mut self, input: &Value) -> Result<ToolResult, String> {
        let given = ToolInput(input);
        let (key, value) = (given.text("key")?, given.any_text("value")?);
        if value.is_empty() {
            self.memory.remove(key);
            return Ok(ToolResult::good(format!("forgot {key}")));
        }
        self.memory.insert(key.to_string(), value.into());
        Ok(ToolResult::good(format!("remembered {key}")))
    }

    /// Gives a task to a worker and waits for its last text.
    fn delegate(&mut self, call: &RequestedCall, input: &Value) -> Result<ToolResult, StopRequest> {
        let given = ToolInput(input);
        let asked = given.text("worker").and_then(|worker| Ok((worker, given.text("task")?)));
        let (name, task) = match asked {
            Ok((name, task)) => (stepback_agents::payload::summary_line(name), task),
            Err(what) => return Ok(ToolResult::bad(what)),
        };
        let worker = format!("{name} {}", call.id);
        for (kind, summary, status) in [
            (StepKind::TaskCreated, task.to_string(), "created"),
            (StepKind::TaskAssigned, format!("{name}: {task}"), "assigned"),
            (StepKind::TaskStarted, format!("{name}: {task}"), "started"),
        ] {
            self.record_task(call, &worker, task, (kind, &summary, status), None)?;
        }
        let request = AgentMessage {
            receiver: Some(worker.clone()),
            performative: "achieve".into(),
            content: json!(task),
            id: Some(call.id.clone()),
            ..AgentMessage::default()
        };
        self.record_agent_message(&call.id, request)?;
        let mut party = ChatHistory {
            dialogue: Dialogue::new(vec![json!({ "role": "user", "content": task })]),
            worker: Some(worker.clone()),
            prefix: format!("{}-", call.id),
        };
        let (result, halt) = match self.run_conversation(&mut party) {
            Ok(text) => (ToolResult::good(text), None),
            Err(StopRequest::Over(ExitReason::MaxTurns)) => {
                (ToolResult::bad(format!("{name} reached its limit of turns")), None)
            }
            Err(StopRequest::Over(ExitReason::Failed(trouble))) => (ToolResult::bad(trouble.message), None),
            Err(StopRequest::Over(why)) => (ToolResult::bad(why.name()), Some(StopRequest::Over(why))),
            Err(error) => return Err(error),
        };
        let (kind, status) = match result.failed {
            true => (StepKind::TaskFailed, "failed"),
            false => (StepKind::TaskCompleted, "completed"),
        };
        let answer = AgentMessage {
            sender: Some(worker.clone()),
            performative: if result.failed { "sorry" } else { "reply" }.into(),
            content: json!(result.text),
            answers: Some(call.id.clone()),
            ..AgentMessage::default()
        };
        self.record_agent_message(&call.id, answer)?;
        let summary = format!("{name}: {}", result.text);
        self.record_task(call, &worker, task, (kind, &summary, status), Some(&result))?;
        halt.map_or(Ok(result), Err)
    }

    /// Records a message between the agent and a worker that is part of a task.
    fn record_agent_message(&mut self, task: &str, message: AgentMessage) -> Result<(), EngineError> {
        let summary = stepback_agents::payload::summary_line(&message.summary());
        let context = StepContext { task: Some(task.to_owned()), ..StepContext::default() };
        let event = AgentEvent::of_message(NAME, &self.journal.session, message);
        self.journal.record(&AgentEvent { summary, context, ..event }, StepExtras::default())?;
        Ok(())
    }

    fn record_task(
        &mut self,
        call: &RequestedCall,
        worker: &str,
        task: &str,
        (kind, summary, status): (StepKind, &str, &str),
        result: Option<&ToolResult>,
    ) -> Result<(), EngineError> {
        let failed = result.filter(|result| result.failed);
        let event = AgentEvent {
            worker: Some(worker.to_string()),
            context: StepContext { task: Some(call.id.clone()), ..StepContext::default() },
            input: Some(json!({ "task": task, "worker": worker, "call": call.id })),
            output: result.and_then(|result| serde_json::to_value(result).ok()),
            error: failed
                .map(|result| ReportedError { message: result.text.clone(), ..ReportedError::default() }),
            ..self.journal.event(kind, summary)
        };
        let mut tasks = self.tasks.set(&call.id, task, worker, status);
        stepback_redact::redact_value(&mut tasks);
        let update = SessionUpdate { tasks: Some(tasks), ..SessionUpdate::default() };
        self.journal.record(&event, StepExtras { update, ..StepExtras::default() })?;
        Ok(())
    }
}
