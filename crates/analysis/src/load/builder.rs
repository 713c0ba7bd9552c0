//! Builds the facts of a session, step by step.

use std::collections::HashMap;

use stepback_model::record::{StepKind, StepRow};
use stepback_model::time::Timestamp;

use super::conversation::{ConversationAnswer, add_cut_answers, merge_answers};
use super::details::{DetailNumbers, ModelUsage};
use super::request_parts::RequestParts;
use crate::facts::{ContextParts, ModelCallFact, NameIndex, SessionFacts, StepFact, UsageSource};
use crate::marks::StepMark;

/// How many of the last kept steps may still depend on those that follow: the start of a model call, and a stop at a breakpoint.
const UNSETTLED_STEPS: usize = 256;

/// The facts of a session under construction.
pub(super) struct FactsBuilder {
    facts: SessionFacts,
    /// The answers of the conversation that were kept.
    earlier: Vec<ModelCallFact>,
    names: HashMap<String, NameIndex>,
    /// The step from which steps must be added again.
    reread_from: Option<u64>,
    /// What the requests of model calls that have not ended were made of, by call.
    requests: HashMap<NameIndex, RequestParts>,
    /// When the model calls began that have not ended.
    model_starts: HashMap<NameIndex, Timestamp>,
    /// Stops that were not answered yet, as indexes of steps.
    stops: Vec<usize>,
    /// How long each open call has waited so far.
    waits: HashMap<NameIndex, u64>,
    /// The last prompt.
    prompt: Option<u32>,
}

impl FactsBuilder {
    /// Continues facts that were kept.
    pub fn new(mut facts: SessionFacts) -> Self {
        let is_of_step = |call: &ModelCallFact| call.source != UsageSource::Conversation;
        let (of_steps, earlier) = std::mem::take(&mut facts.model_calls).into_iter().partition(is_of_step);
        facts.model_calls = of_steps;
        let mut builder = Self {
            facts,
            earlier,
            names: HashMap::new(),
            reread_from: None,
            requests: HashMap::new(),
            model_starts: HashMap::new(),
            stops: Vec::new(),
            waits: HashMap::new(),
            prompt: None,
        };
        builder.forget_unsettled();
        let names = builder.facts.names.iter().enumerate();
        builder.names = names.map(|(index, name)| (name.clone(), index as NameIndex)).collect();
        builder.restore_waits();
        builder
    }

    /// The number of the first step that was taken out, because it is not settled; `None` if there is none.
    pub fn reread_from(&self) -> Option<u64> {
        self.reread_from
    }

    /// Takes out what may still depend on steps that follow.
    fn forget_unsettled(&mut self) {
        let steps = &self.facts.steps;
        let first = steps.len().saturating_sub(UNSETTLED_STEPS);
        let ended = |at: usize| {
            let call = steps[at].call;
            steps[at + 1..].iter().any(|step| step.kind == StepKind::ModelEnd && step.call == call)
        };
        let is_unsettled = |at: usize| match steps[at].kind {
            StepKind::ModelStart => !ended(at),
            StepKind::BreakpointHit => steps[at].call.is_none(),
            _ => false,
        };
        let Some(at) = (first..steps.len()).find(|at| is_unsettled(*at)) else { return };
        self.reread_from = Some(steps[at].number);
        for removed in at..steps.len() {
            if removed > 0 && steps[removed].at < steps[removed - 1].at {
                self.facts.defects.clock_went_back = self.facts.defects.clock_went_back.saturating_sub(1);
            }
        }
        let kept = u32::try_from(at).unwrap_or(u32::MAX);
        self.facts.steps.truncate(at);
        self.facts.model_calls.retain(|call| call.step < kept);
    }

    fn restore_waits(&mut self) {
        let mut stopped: HashMap<NameIndex, Timestamp> = HashMap::new();
        for (at, step) in self.facts.steps.iter().enumerate() {
            match (step.kind, step.call) {
                (StepKind::UserInput, _) => self.prompt = u32::try_from(at).ok(),
                (StepKind::BreakpointHit, Some(call)) => drop(stopped.insert(call, step.at)),
                (StepKind::Decision, Some(call)) => {
                    if let Some(since) = stopped.remove(&call) {
                        add_wait(&mut self.waits, call, since, step.at);
                    }
                }
                (StepKind::ToolEnd, Some(call)) => drop(self.waits.remove(&call)),
                _ => {}
            }
        }
    }

    fn name(&mut self, name: &str) -> NameIndex {
        intern(&mut self.names, &mut self.facts.names, name)
    }

    /// Adds the next step.
    pub fn add_step(&mut self, stored: &StepRow, detail: DetailNumbers) {
        let step = &stored.step;
        let meta = &step.meta;
        let index = self.facts.steps.len();
        let worker = meta.worker.as_deref().map(|name| self.name(name));
        let tool = meta.tool.as_deref().map(|name| self.name(name));
        let mut call = meta.call.as_deref().or(detail.answered_call.as_deref()).map(|name| self.name(name));
        let subject = detail.subject.as_deref().map(|name| self.name(name));
        if step.kind == StepKind::UserInput {
            self.prompt = u32::try_from(index).ok();
        }
        let defects = &mut self.facts.defects;
        if self.facts.steps.last().is_some_and(|last| step.at < last.at) {
            defects.clock_went_back = defects.clock_went_back.saturating_add(1);
        }
        defects.missing_details = defects.missing_details.saturating_add(u64::from(detail.is_missing));
        let mut waited = 0;
        match step.kind {
            StepKind::BreakpointHit if detail.is_stop => {
                self.stops.push(index);
                // Until the answer names the call.
                call = None;
            }
            StepKind::Decision if detail.answered_call.is_some() => {
                self.end_stop(call, tool, worker, step.at);
            }
            StepKind::ToolEnd => waited = call.and_then(|call| self.waits.remove(&call)).unwrap_or(0),
            StepKind::ModelStart => {
                if let Some(call) = call {
                    self.model_starts.insert(call, step.at);
                    self.requests.extend(detail.request.clone().map(|request| (call, request)));
                }
            }
            _ => {}
        }
        let fact = StepFact {
            id: step.id,
            number: step.number,
            kind: step.kind,
            at: step.at,
            iteration: meta.iteration,
            worker,
            call,
            tool,
            subject,
            failed: meta.failed,
            mark: StepMark::of(step.kind, &step.summary),
            duration: meta.duration,
            waited,
            input: detail.input,
            inverse: detail.inverse,
            output: detail.output,
            input_bytes: detail.input_bytes,
            output_bytes: detail.output_bytes,
            state: detail.state,
            prompt: self.prompt,
        };
        if step.kind == StepKind::ModelEnd {
            let source = match meta.context.span {
                Some(_) => UsageSource::Telemetry,
                None => UsageSource::Step,
            };
            self.add_model_call(&fact, index, source, detail.usage.unwrap_or_default());
        }
        self.facts.steps.push(fact);
    }

    /// The answer to the newest stop of the same worker and tool names the call that waited.
    fn end_stop(
        &mut self,
        call: Option<NameIndex>,
        tool: Option<NameIndex>,
        worker: Option<NameIndex>,
        at: Timestamp,
    ) {
        let steps = &mut self.facts.steps;
        let fits = |stop: &usize| (steps[*stop].tool, steps[*stop].worker) == (tool, worker);
        let Some(position) = self.stops.iter().rposition(fits) else { return };
        let stop = self.stops.remove(position);
        steps[stop].call = call;
        if let Some(call) = call {
            add_wait(&mut self.waits, call, steps[stop].at, at);
        }
    }

    fn add_model_call(&mut self, fact: &StepFact, index: usize, source: UsageSource, usage: ModelUsage) {
        let request = fact.call.and_then(|call| self.requests.remove(&call));
        let started = fact.call.and_then(|call| self.model_starts.remove(&call));
        let asked_model = request.as_ref().and_then(|request| request.model.clone());
        let model = usage.model.or(asked_model).map(|name| self.name(&name)).or(fact.tool);
        let elapsed = started.and_then(|started| micros_between(started, fact.at));
        let defects = &mut self.facts.defects;
        defects.impossible_usage = defects.impossible_usage.saturating_add(u64::from(usage.impossible));
        let context = request.map(|request| self.context_parts(request));
        self.facts.model_calls.push(ModelCallFact {
            step: u32::try_from(index).unwrap_or(u32::MAX),
            source,
            worker: fact.worker,
            model,
            at: fact.at,
            duration: fact.duration.or(elapsed),
            first_byte: usage.first_byte,
            tokens: usage.tokens,
            cost: usage.cost.filter(|_| !usage.replayed),
            priced: false,
            replayed: usage.replayed,
            identity: 0,
            context,
        });
    }

    fn context_parts(&mut self, request: RequestParts) -> ContextParts {
        let mut results: Vec<(NameIndex, u64)> =
            request.results.into_iter().map(|(tool, size)| (self.name(&tool), size)).collect();
        results.sort_unstable();
        ContextParts {
            system: request.system,
            tools: request.tools,
            user: request.user,
            assistant: request.assistant,
            results,
            other: request.other,
        }
    }

    /// Adds the answers that the conversation has, and returns the facts.
    pub fn finish(mut self, answers: Vec<ConversationAnswer>) -> SessionFacts {
        let names = &mut self.names;
        merge_answers(&mut self.facts, answers, |facts, name| intern(names, &mut facts.names, name));
        add_cut_answers(&mut self.facts, self.earlier);
        self.facts
    }
}

fn intern(known: &mut HashMap<String, NameIndex>, names: &mut Vec<String>, name: &str) -> NameIndex {
    if let Some(index) = known.get(name) {
        return *index;
    }
    let index = NameIndex::try_from(names.len()).unwrap_or(NameIndex::MAX);
    names.push(name.to_owned());
    known.insert(name.to_owned(), index);
    index
}

fn add_wait(waits: &mut HashMap<NameIndex, u64>, call: NameIndex, since: Timestamp, until: Timestamp) {
    let sum = waits.entry(call).or_default();
    *sum = sum.saturating_add(micros_between(since, until).unwrap_or(0));
}

/// The time from one moment to a later one; `None` if it is not later, because a clock went back.
pub(super) fn micros_between(from: Timestamp, to: Timestamp) -> Option<u64> {
    to.as_micros().checked_sub(from.as_micros()).and_then(|micros| u64::try_from(micros).ok())
}
