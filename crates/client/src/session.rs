//! A session: one run of an agent, and the calls in it.

use std::time::Instant;

use serde_json::Value;
use stepback_model::record::StepKind;

use crate::recorder::Recorder;
use crate::step::StepReport;
use crate::trace::TraceContext;

/// One run of an agent.
#[derive(Clone, Debug)]
pub struct AgentSession {
    recorder: Recorder,
    id: String,
    trace: Option<TraceContext>,
}

impl AgentSession {
    pub(crate) fn new(recorder: Recorder, id: &str) -> Self {
        Self { recorder, id: id.to_owned(), trace: None }
    }

    /// Assigns everything recorded from now on to this trace; calls become spans of it.
    #[must_use]
    pub fn in_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Records a step.
    pub fn record(&self, mut step: StepReport) {
        step.trace = step.trace.or(self.trace);
        self.recorder.record(&self.id, step);
    }

    /// Records user input.
    pub fn prompt(&self, text: &str) {
        self.record(StepReport::new(StepKind::UserInput).input(text));
    }

    /// Records an error.
    pub fn error(&self, error: &dyn std::error::Error) {
        self.record(StepReport::new(StepKind::Error).failed(error));
    }

    /// Records the start of a tool call.
    pub fn tool(&self, name: &str, input: impl Into<Value>) -> StartedCall {
        self.begin(name, input.into(), StepKind::ToolStart, StepKind::ToolEnd)
    }

    /// Records the start of a model call.
    pub fn model(&self, name: &str, input: impl Into<Value>) -> StartedCall {
        self.begin(name, input.into(), StepKind::ModelStart, StepKind::ModelEnd)
    }

    /// Records the end of the session.
    pub fn end(&self) {
        let mut step = StepReport::new(StepKind::AgentStep).summary("session ended");
        step.fields.insert("ended".into(), true.into());
        self.record(step);
    }

    fn begin(&self, name: &str, input: Value, start: StepKind, end: StepKind) -> StartedCall {
        let id = self.recorder.fresh_id();
        let trace = self.trace.map(TraceContext::child);
        let call = StartedCall {
            session: self.clone(),
            id,
            tool: name.to_owned(),
            end,
            began: Instant::now(),
            trace,
            over: false,
        };
        self.record(call.step(start).input(input));
        call
    }
}

/// A call that has started. It ends once: with an output, with an error, or without either when it is dropped.
#[derive(Debug)]
#[must_use = "a call that is dropped at once has ended at once"]
pub struct StartedCall {
    session: AgentSession,
    id: String,
    tool: String,
    end: StepKind,
    began: Instant,
    trace: Option<TraceContext>,
    over: bool,
}

impl StartedCall {
    /// The value of the `traceparent` header to send to the called service.
    pub fn traceparent(&self) -> Option<String> {
        self.trace.map(|trace| trace.to_string())
    }

    /// Records that the call succeeded.
    pub fn finish(self, output: impl Into<Value>) {
        let step = self.ending().output(output);
        self.finish_with(step);
    }

    /// Records that the call failed.
    pub fn fail(self, message: &str) {
        let step = self.ending().error(message);
        self.finish_with(step);
    }

    /// Returns the step that ends the call, to be filled in and passed to [`Self::finish_with`].
    pub fn ending(&self) -> StepReport {
        self.step(self.end).duration(self.began.elapsed())
    }

    /// Records the end of the call with this step.
    pub fn finish_with(mut self, step: StepReport) {
        self.over = true;
        self.session.record(step);
    }

    fn step(&self, kind: StepKind) -> StepReport {
        let step = StepReport::new(kind).id(&self.id).call(&self.id).tool(&self.tool);
        StepReport { trace: self.trace, ..step }
    }
}

impl Drop for StartedCall {
    fn drop(&mut self) {
        if !self.over {
            let step = self.ending();
            self.session.record(step);
        }
    }
}
