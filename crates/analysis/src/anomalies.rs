//! What is unusual in sessions: calls that lead nowhere, and calls that are much slower or dearer than others like them.
//!
//! Everything here is inferred, by rules that [the guide](../../../docs/guide/anomalies.md) describes; each anomaly names its rule,
//! what was measured, the limit it passed, and its steps. An incident is one anomaly, however many steps it has, and keeps its id
//! while it goes on.
//!
//! - `calls`: the calls of a session for the detectors of the crate `model`, which read them one by one.
//! - `outliers`: calls that are far from the history of their tool or model. `context`: what fills the context without use.
//! - `evidence`: the sentence of each. `report`: those of the sessions in a store, and their document.

mod calls;
mod context;
mod evidence;
mod outliers;
mod report;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use stepback_model::anomaly::{AnomalyKind, AnomalyLimits, AnomalySeverity};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_model::time::Timestamp;

pub use self::report::{AnomalyQuery, anomalies_document, anomaly_document, load_anomalies};
use crate::facts::SessionFacts;

use self::calls::WorkerCalls;
use self::outliers::CallHistory;

/// The number of hexadecimal digits of an anomaly's id.
const ID_DIGITS: usize = 12;

/// Something unusual in a session.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Anomaly {
    /// Its id: that of its kind, session, worker and first step, so that it stays the same while the incident goes on.
    pub id: String,
    /// What it is.
    pub kind: AnomalyKind,
    /// How far it is over the limit.
    pub severity: AnomalySeverity,
    /// The rule that found it.
    pub rule: String,
    /// The workspace.
    pub workspace: Option<WorkspaceId>,
    /// The session.
    pub session: Option<SessionId>,
    /// The agent.
    pub agent: String,
    /// The sub-agent; `None` for the main agent.
    pub worker: Option<String>,
    /// The tool or model of the first call.
    pub tool: Option<String>,
    /// The path or program of the first call.
    pub subject: Option<String>,
    /// The numbers of its first steps, oldest first.
    pub steps: Vec<u64>,
    /// The first step.
    pub first_step: Option<StepId>,
    /// The number of its last step.
    pub last: u64,
    /// How many calls belong to it.
    pub count: u64,
    /// When its first call ended.
    pub at: Timestamp,
    /// When its last call ended.
    pub until: Timestamp,
    /// What was measured, in the unit of the kind.
    pub measured: f64,
    /// From where on that is an anomaly.
    pub limit: f64,
    /// What happened, in a sentence with the numbers.
    pub evidence: String,
}

/// What an anomaly is made of, before its steps are looked up.
struct Incident<'a> {
    kind: AnomalyKind,
    rule: &'static str,
    worker: Option<u32>,
    /// Its first steps, as indexes.
    steps: &'a [usize],
    last: usize,
    count: u64,
    measured: f64,
    limit: f64,
    evidence: String,
}

/// Finds the anomalies of sessions, oldest first. Calls are compared with those of all the sessions; anomalies are returned only of
/// those that `is_wanted` says.
pub fn find_anomalies(
    sessions: &[SessionFacts],
    limits: &AnomalyLimits,
    is_wanted: &dyn Fn(&SessionFacts) -> bool,
) -> Vec<Anomaly> {
    let needs_history = [AnomalyKind::SlowCall, AnomalyKind::CostlyCall].map(|kind| limits.get(kind));
    let history = needs_history.iter().any(Option::is_some).then(|| CallHistory::of(sessions));
    let mut found = Vec::new();
    for facts in sessions.iter().filter(|facts| is_wanted(facts)) {
        found.extend(find_in_session(facts, limits, history.as_ref()));
    }
    found.sort_by(|one, other| (one.at, &one.id).cmp(&(other.at, &other.id)));
    found
}

fn find_in_session(
    facts: &SessionFacts,
    limits: &AnomalyLimits,
    history: Option<&CallHistory>,
) -> Vec<Anomaly> {
    let mut found = Vec::new();
    for worker in WorkerCalls::split(facts) {
        let findings = worker.find_patterns(limits);
        found.extend(context::find_growth(facts, &worker, limits, &findings));
        found.extend(findings.iter().map(|finding| worker.describe(facts, finding)));
    }
    if let Some(history) = history {
        found.extend(outliers::find_outliers(facts, limits, history));
    }
    let mut seen = HashMap::new();
    found.retain(|anomaly: &Anomaly| seen.insert(anomaly.id.clone(), ()).is_none());
    found
}

impl Incident<'_> {
    fn into_anomaly(self, facts: &SessionFacts) -> Anomaly {
        let first = self.steps.first().and_then(|index| facts.steps.get(*index));
        let last = facts.steps.get(self.last).or(first);
        let name = |index: Option<u32>| index.map(|_| facts.name(index).to_owned());
        let first_step = first.map(|step| step.id);
        let key =
            format!("{:?} {} {} {first_step:?}", facts.session, facts.name(self.worker), self.kind.name());
        let at =
            |step: Option<&crate::facts::StepFact>| step.map_or(Timestamp::from_micros(0), |step| step.at);
        Anomaly {
            id: Hash::of(ObjectKind::Blob, key.as_bytes()).to_string()[..ID_DIGITS].to_owned(),
            kind: self.kind,
            severity: AnomalySeverity::of(self.measured, self.limit),
            rule: self.rule.to_owned(),
            workspace: facts.workspace,
            session: facts.session,
            agent: facts.agent.clone(),
            worker: name(self.worker),
            tool: first.and_then(|step| name(step.tool)),
            subject: first.and_then(|step| name(step.subject)),
            steps: self.steps.iter().filter_map(|index| Some(facts.steps.get(*index)?.number)).collect(),
            first_step,
            last: last.map_or(0, |step| step.number),
            count: self.count,
            at: at(first),
            until: at(last),
            measured: self.measured,
            limit: self.limit,
            evidence: self.evidence,
        }
    }
}
