//! The anomalies of sessions in a store, and their document.

use stepback_api::anomalies::{AnomaliesDocument, AnomalyDocument, AnomalyKindDocument};
use stepback_engine::Engine;
use stepback_llm_wire::prices::Prices;
use stepback_model::anomaly::{AnomalyKind, AnomalyLimits};
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::time::Timestamp;

use super::{Anomaly, find_anomalies};
use crate::AnalysisError;
use crate::load::{FactsQuery, load_facts};

/// Which anomalies to find.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AnomalyQuery {
    /// Only those of this workspace; calls are compared with those of this workspace.
    pub workspace: Option<WorkspaceId>,
    /// Only those of this session; its calls are still compared with those of other sessions.
    pub session: Option<SessionId>,
    /// Only incidents that went on at this time or later.
    pub since: Option<Timestamp>,
    /// Only these kinds; empty for all.
    pub kinds: Vec<AnomalyKind>,
}

/// Finds the anomalies that match a query, the newest first. Limits are those of the engine; reruns are left out, except for a session
/// that was asked for.
pub fn load_anomalies(
    engine: &Engine,
    prices: &Prices,
    query: &AnomalyQuery,
) -> Result<Vec<Anomaly>, AnalysisError> {
    let facts_query = FactsQuery { workspace: query.workspace, ..FactsQuery::default() };
    let mut facts = load_facts(engine, prices, &facts_query)?;
    if let Some(session) = query.session
        && !facts.iter().any(|facts| facts.session == Some(session))
    {
        let of_session = FactsQuery { session: Some(session), reruns: true, ..facts_query };
        facts.extend(load_facts(engine, prices, &of_session)?);
    }
    // An incident of another kind may have taken the place of one that was asked for, so all kinds are looked for.
    let is_wanted = |facts: &crate::facts::SessionFacts| {
        let is_recent = |since| facts.steps.iter().any(|step| step.at >= since);
        query.session.is_none_or(|session| facts.session == Some(session))
            && query.since.is_none_or(is_recent)
    };
    let mut found = find_anomalies(&facts, &engine.anomaly_limits, &is_wanted);
    found.retain(|anomaly| {
        (query.kinds.is_empty() || query.kinds.contains(&anomaly.kind))
            && query.since.is_none_or(|since| anomaly.until >= since)
    });
    found.reverse();
    Ok(found)
}

/// The document of anomalies: at most `limit` of them.
pub fn anomalies_document(found: &[Anomaly], limits: &AnomalyLimits, limit: usize) -> AnomaliesDocument {
    AnomaliesDocument {
        items: found.iter().take(limit).map(anomaly_document).collect(),
        total: found.len() as u64,
        kinds: AnomalyKind::ALL
            .into_iter()
            .map(|kind| AnomalyKindDocument {
                kind: kind.name().to_owned(),
                limit: limits.get(kind),
                unit: kind.unit().to_owned(),
                live: AnomalyKind::LIVE.contains(&kind),
            })
            .collect(),
    }
}

/// The document of an anomaly.
pub fn anomaly_document(anomaly: &Anomaly) -> AnomalyDocument {
    let first = anomaly.steps.first().copied().unwrap_or(anomaly.last);
    let session = anomaly.session.map_or_else(String::new, |session| session.to_string());
    AnomalyDocument {
        id: anomaly.id.clone(),
        kind: anomaly.kind.name().to_owned(),
        severity: anomaly.severity.name().to_owned(),
        basis: "inferred".to_owned(),
        rule: anomaly.rule.clone(),
        evidence: anomaly.evidence.clone(),
        measured: anomaly.measured,
        limit: anomaly.limit,
        unit: anomaly.kind.unit().to_owned(),
        workspace: anomaly.workspace.map_or_else(String::new, |workspace| workspace.to_string()),
        agent: anomaly.agent.clone(),
        worker: anomaly.worker.clone(),
        tool: anomaly.tool.clone(),
        subject: anomaly.subject.clone(),
        steps: anomaly.steps.clone(),
        last: anomaly.last,
        count: anomaly.count,
        at: anomaly.at,
        until: anomaly.until,
        command: match anomaly.kind {
            AnomalyKind::AlternatingEdits | AnomalyKind::UndoneEdits => {
                format!("stepback diff '#{first}' '#{}'", anomaly.last)
            }
            AnomalyKind::SlowCall | AnomalyKind::CostlyCall => {
                format!("stepback profile {}", session.get(..8).unwrap_or(&session))
            }
            _ => format!("stepback log --session {}", session.get(..8).unwrap_or(&session)),
        },
        session,
    }
}
