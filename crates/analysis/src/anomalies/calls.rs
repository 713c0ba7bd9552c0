//! The calls of each agent and sub-agent of a session, in the form that the detectors read.

use std::collections::HashMap;

use stepback_agents::{Agent, tools};
use stepback_model::anomaly::call::is_waiting;
use stepback_model::anomaly::{AnomalyLimits, CallFinding, CallMonitor, ObservedCall};
use stepback_model::record::StepKind;

use super::{Anomaly, Incident, evidence};
use crate::facts::{NameIndex, SessionFacts, StepFact};
use crate::marks::StepMark;

/// What happened to one worker, in order.
pub(super) enum WorkerEvent {
    /// A call ended.
    Call(ObservedCall),
    /// The files went to another state without the agent's doing.
    Restored,
    /// The conversation was compacted.
    Compacted,
}

/// The calls of the main agent or of one sub-agent.
pub(super) struct WorkerCalls {
    pub worker: Option<NameIndex>,
    pub events: Vec<WorkerEvent>,
}

impl WorkerCalls {
    /// Splits the calls of a session by worker: each repeats itself alone.
    pub fn split(facts: &SessionFacts) -> Vec<Self> {
        let mut workers: Vec<Self> = vec![Self { worker: None, events: Vec::new() }];
        let mut index_of = HashMap::from([(None, 0)]);
        let mut starts: HashMap<NameIndex, usize> = HashMap::new();
        let agent = Agent::parse(&facts.agent);
        let traits = ToolTraits::of(facts, agent);
        let mut state = 0;
        for (index, step) in facts.steps.iter().enumerate() {
            let before = std::mem::replace(&mut state, step.state);
            match step.kind {
                StepKind::ToolStart => {
                    if let Some(call) = step.call {
                        starts.insert(call, index);
                    }
                }
                StepKind::ToolEnd | StepKind::Error
                    if step.tool.is_some() && step.mark != StepMark::Refused =>
                {
                    let start = step.call.and_then(|call| starts.remove(&call)).map(|at| &facts.steps[at]);
                    let call = observed_call(index, step, start, before, &traits);
                    let at = *index_of.entry(step.worker).or_insert_with(|| {
                        workers.push(Self { worker: step.worker, events: Vec::new() });
                        workers.len() - 1
                    });
                    workers[at].events.push(WorkerEvent::Call(call));
                }
                StepKind::Rewind | StepKind::BranchSwitched => {
                    workers.iter_mut().for_each(|worker| worker.events.push(WorkerEvent::Restored));
                }
                StepKind::StateChange if step.mark == StepMark::Compacted => {
                    let at = index_of.get(&step.worker).copied().unwrap_or(0);
                    workers[at].events.push(WorkerEvent::Compacted);
                }
                _ => {}
            }
        }
        workers.retain(|worker| !worker.events.is_empty());
        workers
    }

    /// Finds what the sequence of the calls alone tells.
    pub fn find_patterns(&self, limits: &AnomalyLimits) -> Vec<CallFinding> {
        let mut monitor = CallMonitor::new(limits);
        for event in &self.events {
            match event {
                WorkerEvent::Call(call) => monitor.observe(call),
                WorkerEvent::Restored => monitor.note_restored_files(),
                WorkerEvent::Compacted => {}
            }
        }
        monitor.findings()
    }

    /// Describes a finding of these calls.
    pub fn describe(&self, facts: &SessionFacts, finding: &CallFinding) -> Anomaly {
        let steps: Vec<usize> = finding.steps.iter().map(|step| to_index(*step)).collect();
        Incident {
            kind: finding.kind,
            rule: finding.rule.name(),
            worker: self.worker,
            steps: &steps,
            last: to_index(finding.last),
            count: finding.count,
            measured: finding.measured as f64,
            limit: finding.limit as f64,
            evidence: evidence::describe_pattern(facts, finding, &steps),
        }
        .into_anomaly(facts)
    }
}

/// An observed call knows its step by the index.
pub(super) fn to_index(step: u64) -> usize {
    usize::try_from(step).unwrap_or(usize::MAX)
}

/// What the names of tools tell, by their index.
struct ToolTraits {
    edits: Vec<bool>,
    waits: Vec<bool>,
}

impl ToolTraits {
    fn of(facts: &SessionFacts, agent: Option<Agent>) -> Self {
        let edits = |name: &String| {
            agent.is_some_and(|agent| tools::changes_only_named_paths(agent, name))
                || Agent::ALL.into_iter().any(|agent| tools::changes_only_named_paths(agent, name))
        };
        Self {
            edits: facts.names.iter().map(edits).collect(),
            waits: facts.names.iter().map(|name| is_waiting(name, name)).collect(),
        }
    }
}

fn observed_call(
    index: usize,
    step: &StepFact,
    start: Option<&StepFact>,
    before: u64,
    traits: &ToolTraits,
) -> ObservedCall {
    let started = |field: fn(&StepFact) -> u64| match field(step) {
        0 => start.map_or(0, field),
        value => value,
    };
    let subject = step.subject.or(start.and_then(|start| start.subject));
    let has = |list: &[bool], name: Option<NameIndex>| {
        name.is_some_and(|name| list.get(name as usize).copied().unwrap_or(false))
    };
    ObservedCall {
        step: index as u64,
        tool: step.tool.map_or(0, |tool| u64::from(tool) + 1),
        subject: subject.map_or(0, |subject| u64::from(subject) + 1),
        input: started(|step| step.input),
        inverse: started(|step| step.inverse),
        output: step.output,
        failed: step.failed,
        before: start.map_or(before, |start| start.state),
        after: step.state,
        at: step.at.as_micros(),
        duration: step.duration,
        input_bytes: started(|step| step.input_bytes),
        edits: has(&traits.edits, step.tool),
        waits: has(&traits.waits, step.tool) || has(&traits.waits, subject),
    }
}
