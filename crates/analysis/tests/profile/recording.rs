//! Facts of sessions, made by hand: times are in milliseconds after a fixed moment.

use stepback_analysis::facts::{ContextParts, ModelCallFact, NameIndex, SessionFacts, StepFact, UsageSource};
use stepback_analysis::marks::StepMark;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

/// 2026-01-02T03:04:05Z.
const ORIGIN: i64 = 1_767_323_045_000_000;

/// A session while it is made.
pub struct Recording {
    pub facts: SessionFacts,
    worker: Option<NameIndex>,
    iteration: u64,
}

impl Recording {
    pub fn new() -> Self {
        let session = Some(SessionId::from_bytes([7; 16]));
        let facts = SessionFacts { session, agent: "claude".into(), ..SessionFacts::default() };
        Self { facts, worker: None, iteration: 0 }
    }

    pub fn name(&mut self, name: &str) -> NameIndex {
        let known = self.facts.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.facts.names.push(name.into());
            self.facts.names.len() - 1
        });
        NameIndex::try_from(index).unwrap()
    }

    /// What follows is done by this sub-agent, or by the main agent.
    pub fn by(&mut self, worker: Option<&str>) -> &mut Self {
        self.worker = worker.map(|worker| self.name(worker));
        self
    }

    pub fn turn(&mut self) -> &mut Self {
        self.iteration += 1;
        self
    }

    pub fn step(&mut self, at: i64, kind: StepKind) -> &mut StepFact {
        let number = self.facts.steps.len() as u64 + 1;
        let mut id = [0; 16];
        id[..8].copy_from_slice(&number.to_be_bytes());
        self.facts.steps.push(StepFact {
            id: StepId::from_bytes(id),
            number,
            kind,
            at: Timestamp::from_micros(ORIGIN.saturating_add(at.saturating_mul(1000))),
            iteration: self.iteration,
            worker: self.worker,
            call: None,
            tool: None,
            subject: None,
            failed: false,
            mark: StepMark::None,
            duration: None,
            waited: 0,
            input: 0,
            inverse: 0,
            output: 0,
            input_bytes: 0,
            output_bytes: 0,
            state: 0,
            prompt: None,
        });
        self.facts.steps.last_mut().unwrap()
    }

    pub fn prompt(&mut self, at: i64) -> &mut Self {
        self.step(at, StepKind::UserInput);
        self
    }

    pub fn mark(&mut self, at: i64, kind: StepKind, mark: StepMark) -> &mut Self {
        self.step(at, kind).mark = mark;
        self
    }

    pub fn done(&mut self, at: i64) -> &mut Self {
        self.mark(at, StepKind::AgentStep, StepMark::TurnDone)
    }

    pub fn begin(&mut self, at: i64, tool: &str, call: &str) -> &mut Self {
        let (tool, call) = (self.name(tool), self.name(call));
        let step = self.step(at, StepKind::ToolStart);
        (step.tool, step.call) = (Some(tool), Some(call));
        self
    }

    /// Ends a call; a duration is in milliseconds.
    pub fn end(&mut self, at: i64, tool: &str, call: &str, duration: Option<u64>) -> &mut Self {
        let (tool, call) = (self.name(tool), self.name(call));
        let step = self.step(at, StepKind::ToolEnd);
        (step.tool, step.call) = (Some(tool), Some(call));
        step.duration = duration.map(|duration| duration.saturating_mul(1000));
        self
    }

    /// A decision about, or a stop of, a call of this tool.
    pub fn about(&mut self, at: i64, kind: StepKind, mark: StepMark, tool: &str) -> &mut Self {
        let tool = self.name(tool);
        let step = self.step(at, kind);
        (step.tool, step.mark) = (Some(tool), mark);
        self
    }

    /// An answer of a model that took so many milliseconds.
    pub fn answer(&mut self, at: i64, model: &str, duration: u64, tokens: u64) -> &mut Self {
        let model = self.name(model);
        let step = self.step(at, StepKind::ModelEnd);
        (step.tool, step.duration) = (Some(model), Some(duration * 1000));
        let (at, worker) = (step.at, step.worker);
        let step = u32::try_from(self.facts.steps.len() - 1).unwrap();
        self.facts.model_calls.push(ModelCallFact {
            step,
            source: UsageSource::Step,
            worker,
            model: Some(model),
            at,
            duration: Some(duration * 1000),
            first_byte: None,
            tokens: Some(TokenUsage { input: tokens, output: 10, ..TokenUsage::default() }),
            cost: None,
            priced: false,
            replayed: false,
            identity: 0,
            context: None,
        });
        self
    }

    /// Says what the request of the last answer was made of.
    pub fn made_of(&mut self, parts: ContextParts) -> &mut Self {
        self.facts.model_calls.last_mut().unwrap().context = Some(parts);
        self
    }
}
