//! One run of an agent.

use std::time::Instant;

use serde_json::Value;
use stepback_model::record::StepKind;

use crate::recorder::Recorder;
use crate::step::Step;
use crate::trace::TraceContext;

/// One run of an agent, as a program records it.
#[derive(Clone, Debug)]
pub struct Session {
    recorder: Recorder,
    id: String,
    trace: Option<TraceContext>,
}

impl Session {
    pub(crate) fn new(recorder: Recorder, id: &str) -> Self {
        Self { recorder, id: id.to_owned(), trace: None }
    }

    /// Everything recorded from now on belongs to this trace; calls are spans of it.
    #[must_use]
    pub fn in_trace(mut self, trace: TraceContext) -> Self {
        self.trace = Some(trace);
        self
    }

    /// Records a step.
    pub fn record(&self, mut step: Step) {
        step.trace = step.trace.or(self.trace);
        self.recorder.record(&self.id, step);
    }

    /// A person said something.
    pub fn prompt(&self, text: &str) {
        self.record(Step::new(StepKind::UserInput).input(text));
    }

    /// Something went wrong.
    pub fn error(&self, error: &dyn std::error::Error) {
        self.record(Step::new(StepKind::Error).failed(error));
    }

    /// A tool is about to run.
    pub fn tool(&self, name: &str, input: impl Into<Value>) -> Call {
        self.begin(name, input.into(), StepKind::ToolStart, StepKind::ToolEnd)
    }

    /// A model is about to be asked.
    pub fn model(&self, name: &str, input: impl Into<Value>) -> Call {
        self.begin(name, input.into(), StepKind::ModelStart, StepKind::ModelEnd)
    }

    /// The session is over.
    pub fn end(&self) {
        let mut step = Step::new(StepKind::AgentStep).summary("session ended");
        step.fields.insert("ended".into(), true.into());
        self.record(step);
    }

    fn begin(&self, name: &str, input: Value, start: StepKind, end: StepKind) -> Call {
        let id = self.recorder.fresh_id();
        let trace = self.trace.map(TraceContext::child);
        let call = Call {
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

/// A call that has begun. It ends once: with what came out, with what went wrong, or unsaid when it is dropped.
#[derive(Debug)]
#[must_use = "a call that is dropped at once has ended at once"]
pub struct Call {
    session: Session,
    id: String,
    tool: String,
    end: StepKind,
    began: Instant,
    trace: Option<TraceContext>,
    over: bool,
}

impl Call {
    /// What the called one is told about the trace: the value of its `traceparent` header.
    pub fn traceparent(&self) -> Option<String> {
        self.trace.map(|trace| trace.to_string())
    }

    /// It came out well.
    pub fn finish(self, output: impl Into<Value>) {
        let step = self.ending().output(output);
        self.finish_with(step);
    }

    /// It went wrong.
    pub fn fail(self, message: &str) {
        let step = self.ending().error(message);
        self.finish_with(step);
    }

    /// The step that ends it, to be filled in and given to [`Self::finish_with`].
    pub fn ending(&self) -> Step {
        self.step(self.end).duration(self.began.elapsed())
    }

    /// It ended with this step.
    pub fn finish_with(mut self, step: Step) {
        self.over = true;
        self.session.record(step);
    }

    fn step(&self, kind: StepKind) -> Step {
        let step = Step::new(kind).id(&self.id).call(&self.id).tool(&self.tool);
        Step { trace: self.trace, ..step }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if !self.over {
            let step = self.ending();
            self.session.record(step);
        }
    }
}
