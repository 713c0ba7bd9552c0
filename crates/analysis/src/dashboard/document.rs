//! The dashboard as a document: the summaries added up by model, tool, agent, branch and day.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use stepback_api::cost::CostSumDocument;
use stepback_api::dashboard::{
    DashboardDiskDocument, DashboardDocument, DashboardGroupDocument, DashboardModelDocument,
    DashboardToolDocument, LatencyDocument, OtherCostDocument, StepLinkDocument,
};
use stepback_engine::Engine;
use stepback_model::ids::{SessionId, WorkspaceId};
use stepback_model::time::Timestamp;

use super::latency::{LATENCY_ERROR, LatencyHistogram};
use super::summary::{HOUR, HourSummary, ModelSummary, SpentNumbers, ToolSummary};
use super::{DashboardRequest, PlacedSummary, load_summaries};
use crate::cost::{CostSum, sum_document, tool_shares};
use crate::error::AnalysisError;

/// The most ids of sessions in a row.
const MAX_SESSION_IDS: usize = 20;
/// A day in hours.
const DAY_HOURS: i64 = 24;

/// Computes the dashboard. `budget` is the disk budget of the store in bytes.
pub fn dashboard_document(
    engine: &Engine,
    request: DashboardRequest,
    budget: Option<u64>,
) -> Result<DashboardDocument, AnalysisError> {
    let summaries = load_summaries(engine, request)?;
    let first_hour = request.since.map(|since| since.as_micros().div_euclid(HOUR));
    let mut totals = Totals::default();
    for placed in &summaries {
        let hours = placed.summary.hours.range(first_hour.unwrap_or(i64::MIN)..);
        for (hour, numbers) in hours {
            totals.add(placed, *hour, numbers);
        }
    }
    let link = StepLinkDocument {
        workspace: request.workspace.map(|workspace| workspace.to_string()),
        since: first_hour.map(start_of_hour),
        ..StepLinkDocument::default()
    };
    let mut document = totals.describe(&link);
    document.since = link.since;
    document.workspace = link.workspace;
    document.reruns = request.reruns;
    document.disk =
        DashboardDiskDocument { used_bytes: engine.store.usage()?.total_bytes, budget_bytes: budget };
    Ok(document)
}

fn start_of_hour(hour: i64) -> Timestamp {
    Timestamp::from_micros(hour.saturating_mul(HOUR))
}

/// The sessions of an agent, branch or day.
#[derive(Default)]
struct GroupTotals {
    sessions: BTreeSet<SessionId>,
    calls: u64,
    failed: u64,
    spent: SpentNumbers,
}

#[derive(Default)]
struct Totals {
    sessions: BTreeSet<SessionId>,
    spent: SpentNumbers,
    replayed: u64,
    models: BTreeMap<String, ModelSummary>,
    tools: BTreeMap<String, ToolSummary>,
    shares: BTreeMap<String, SpentNumbers>,
    others: BTreeMap<String, SpentNumbers>,
    agents: BTreeMap<String, GroupTotals>,
    branches: BTreeMap<(WorkspaceId, String), GroupTotals>,
    days: BTreeMap<i64, GroupTotals>,
}

impl Totals {
    fn add(&mut self, placed: &PlacedSummary, hour: i64, numbers: &HourSummary) {
        let mut spent = SpentNumbers::default();
        for (name, model) in &numbers.models {
            spent.merge(model.spent);
            self.replayed = self.replayed.saturating_add(model.replayed);
            self.models.entry(name.clone()).or_default().merge(model);
        }
        let (mut calls, mut failed) = (0_u64, 0_u64);
        for (name, tool) in &numbers.tools {
            calls = calls.saturating_add(tool.calls);
            failed = failed.saturating_add(tool.failed);
            self.tools.entry(name.clone()).or_default().merge(tool);
        }
        for (rows, own) in [(&numbers.shares, &mut self.shares), (&numbers.others, &mut self.others)] {
            for (name, share) in rows {
                own.entry(name.clone()).or_default().merge(*share);
            }
        }
        self.spent.merge(spent);
        self.sessions.extend(placed.summary.session);
        let branch = (placed.workspace, placed.branch.clone());
        for group in [
            self.agents.entry(placed.summary.agent.clone()).or_default(),
            self.branches.entry(branch).or_default(),
            self.days.entry(hour.div_euclid(DAY_HOURS)).or_default(),
        ] {
            group.sessions.extend(placed.summary.session);
            group.calls = group.calls.saturating_add(calls);
            group.failed = group.failed.saturating_add(failed);
            group.spent.merge(spent);
        }
    }

    fn describe(self, link: &StepLinkDocument) -> DashboardDocument {
        let mut models: Vec<_> =
            self.models.into_iter().map(|(name, model)| describe_model(name, &model, link)).collect();
        models.sort_by(|one, other| by_cost(&one.sum, &other.sum));
        let mut shares = self.shares;
        let mut tools: Vec<_> = self
            .tools
            .into_iter()
            .map(|(name, tool)| {
                let share = shares.remove(&name).unwrap_or_default();
                describe_tool(name, &tool, share, link)
            })
            .collect();
        // Tools whose calls are older than the period, or not recorded, while their results are still read.
        tools.extend(
            shares.into_iter().map(|(name, share)| describe_tool(name, &ToolSummary::default(), share, link)),
        );
        tools.sort_by_key(|tool| Reverse((tool.latency.total_us, tool.calls)));
        let mut agents: Vec<_> = self
            .agents
            .into_iter()
            .map(|(agent, group)| {
                let steps = StepLinkDocument { agent: Some(agent.clone()), ..link.clone() };
                describe_group(agent, None, group, steps)
            })
            .collect();
        agents.sort_by(|one, other| by_cost(&one.sum, &other.sum));
        let mut branches: Vec<_> = self
            .branches
            .into_iter()
            .map(|((workspace, branch), group)| {
                let workspace = Some(workspace.to_string());
                let steps = StepLinkDocument { workspace: workspace.clone(), ..link.clone() };
                describe_group(branch, workspace, group, steps)
            })
            .collect();
        branches.sort_by(|one, other| by_cost(&one.sum, &other.sum));
        let days = self.days.into_iter().map(|(day, group)| describe_day(day, group, link)).collect();
        DashboardDocument {
            sessions: self.sessions.len() as u64,
            total: money(self.spent),
            replayed_calls: self.replayed,
            models,
            tools,
            other_costs: (self.others.into_iter())
                .map(|(kind, spent)| OtherCostDocument { kind, sum: money(spent) })
                .collect(),
            agents,
            branches,
            days,
            tool_cost_rule: tool_shares::RULE.to_owned(),
            latency_error: LATENCY_ERROR,
            ..DashboardDocument::default()
        }
    }
}

/// The more expensive first.
fn by_cost(one: &CostSumDocument, other: &CostSumDocument) -> Ordering {
    other
        .cost_usd
        .total_cmp(&one.cost_usd)
        .then_with(|| (other.input, other.calls).cmp(&(one.input, one.calls)))
}

fn money(spent: SpentNumbers) -> CostSumDocument {
    sum_document(CostSum::from(spent))
}

fn named(name: String) -> Option<String> {
    Some(name).filter(|name| !name.is_empty())
}

fn describe_latency(latency: &LatencyHistogram) -> LatencyDocument {
    let count = latency.count();
    LatencyDocument {
        count,
        total_us: latency.sum(),
        p50_us: latency.percentile(50),
        p95_us: latency.percentile(95),
        max_us: (count > 0).then(|| latency.max()),
    }
}

fn describe_model(name: String, model: &ModelSummary, link: &StepLinkDocument) -> DashboardModelDocument {
    let name = named(name);
    DashboardModelDocument {
        failed: model.failed,
        replayed: model.replayed,
        latency: describe_latency(&model.latency),
        steps: StepLinkDocument { tool: name.clone(), kind: Some("model-end".to_owned()), ..link.clone() },
        sum: money(model.spent),
        name,
    }
}

fn describe_tool(
    name: String,
    tool: &ToolSummary,
    share: SpentNumbers,
    link: &StepLinkDocument,
) -> DashboardToolDocument {
    let name = named(name);
    let ended = tool.calls.saturating_sub(tool.refused).saturating_sub(tool.unfinished);
    DashboardToolDocument {
        calls: tool.calls,
        failed: tool.failed,
        refused: tool.refused,
        unfinished: tool.unfinished,
        error_rate: (ended > 0).then(|| tool.failed as f64 / ended as f64),
        latency: describe_latency(&tool.latency),
        cost: money(share),
        steps: StepLinkDocument { tool: name.clone(), kind: Some("tool-end".to_owned()), ..link.clone() },
        name,
    }
}

fn describe_group(
    key: String,
    workspace: Option<String>,
    group: GroupTotals,
    steps: StepLinkDocument,
) -> DashboardGroupDocument {
    DashboardGroupDocument {
        key,
        workspace,
        sessions: group.sessions.len() as u64,
        session_ids: group.sessions.iter().take(MAX_SESSION_IDS).map(SessionId::to_string).collect(),
        tool_calls: group.calls,
        failed_tool_calls: group.failed,
        steps,
        sum: money(group.spent),
    }
}

fn describe_day(day: i64, group: GroupTotals, link: &StepLinkDocument) -> DashboardGroupDocument {
    let since = start_of_hour(day.saturating_mul(DAY_HOURS));
    let until = Timestamp::from_micros(since.as_micros().saturating_add(HOUR * DAY_HOURS - 1));
    // The date is what a timestamp begins with, up to the time.
    let key = since.to_string().split('T').next().unwrap_or_default().to_owned();
    let since = link.since.map_or(since, |asked| asked.max(since));
    let steps = StepLinkDocument { since: Some(since), until: Some(until), ..link.clone() };
    describe_group(key, None, group, steps)
}
