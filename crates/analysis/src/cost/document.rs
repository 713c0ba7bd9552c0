//! Cost reports as documents, with names for people.

use std::cmp::Reverse;
use std::collections::HashMap;

use stepback_api::cost::{CostDocument, CostRowDocument, CostSumDocument, UnpricedModelDocument};
use stepback_engine::Engine;
use stepback_engine::branch::MAIN;
use stepback_llm_wire::prices::Prices;
use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_model::time::Timestamp;
use stepback_store::port::StepQuery;

use super::{CostGrouping, CostKey, CostOptions, CostReport, CostSum, report_cost, tool_shares};
use crate::error::AnalysisError;
use crate::facts::{ModelCallFact, SessionFacts};
use crate::load::{FactsQuery, load_facts};
use crate::prices::load_prices;

/// What a cost report is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CostRequest {
    /// What the rows are about.
    pub by: CostGrouping,
    /// Only calls since this time.
    pub since: Option<Timestamp>,
    /// Only sessions of this workspace, and their reruns.
    pub workspace: Option<WorkspaceId>,
    /// Only this session.
    pub session: Option<SessionId>,
    /// Whether what reruns asked models for counts.
    pub reruns: bool,
    /// The number of rows; the others are added up in one.
    pub limit: usize,
}

impl CostRequest {
    /// The number of rows if the user does not say another.
    pub const LIMIT: usize = 100;
}

impl Default for CostRequest {
    fn default() -> Self {
        Self {
            by: CostGrouping::default(),
            since: None,
            workspace: None,
            session: None,
            reruns: false,
            limit: Self::LIMIT,
        }
    }
}

/// Computes what sessions cost, with the prices of the user.
pub fn cost_document(engine: &Engine, request: &CostRequest) -> Result<CostDocument, AnalysisError> {
    let prices = load_prices(engine.store().local_dir())?;
    let branches_of_reruns = rerun_branches(engine, request)?;
    let mut sessions = load_facts(
        engine,
        &prices,
        &FactsQuery {
            workspace: request.workspace,
            session: request.session,
            since: request.since,
            reruns: true,
        },
    )?;
    if request.workspace.is_some() && request.session.is_none() {
        // Reruns work in directories of their own.
        for session in branches_of_reruns.keys() {
            let query = FactsQuery { session: Some(*session), ..FactsQuery::default() };
            sessions.extend(load_facts(engine, &prices, &query)?);
        }
    }
    for facts in &mut sessions {
        facts.branch = facts.session.and_then(|session| branches_of_reruns.get(&session).cloned());
    }
    let branches = match request.by {
        CostGrouping::Branch => StepBranches::load(engine, &sessions)?,
        _ => StepBranches::default(),
    };
    // A session that was asked for counts, whatever it is.
    let reruns = request.reruns || request.session.is_some();
    let options = CostOptions { by: request.by, since: request.since, reruns };
    let branch_of = |facts: &SessionFacts, call: &ModelCallFact| branches.name(facts, call);
    let report = report_cost(&sessions, &prices, options, &branch_of);
    describe_report(engine, request, report)
}

/// The branches of the reruns of the workspaces that are asked about, by session.
fn rerun_branches(
    engine: &Engine,
    request: &CostRequest,
) -> Result<HashMap<SessionId, String>, AnalysisError> {
    let mut branches = HashMap::new();
    if request.workspace.is_none() && request.by != CostGrouping::Branch {
        return Ok(branches);
    }
    for workspace in engine.all_workspaces()? {
        if request.workspace.is_none_or(|id| workspace.record.id == id) && !workspace.record.is_rerun() {
            let reruns = workspace.reruns()?.into_iter();
            branches.extend(reruns.filter_map(|rerun| Some((rerun.session?, rerun.branch))));
        }
    }
    Ok(branches)
}

/// The branch of each step that has a model call.
#[derive(Default)]
struct StepBranches {
    names: HashMap<StepId, String>,
    /// The only branch of a workspace.
    only: HashMap<WorkspaceId, String>,
}

impl StepBranches {
    fn load(engine: &Engine, sessions: &[SessionFacts]) -> Result<Self, AnalysisError> {
        let mut found = Self::default();
        for workspace in engine.all_workspaces()? {
            let id = workspace.record.id;
            let here: Vec<_> = sessions.iter().filter(|facts| facts.workspace == Some(id)).collect();
            if here.is_empty() {
                continue;
            }
            let lines = workspace.load_lines()?;
            if lines.is_linear() {
                let name = lines.branches.first().map_or(MAIN, |branch| branch.name.as_str());
                found.only.insert(id, name.to_owned());
                continue;
            }
            for facts in here {
                let query = StepQuery { session: facts.session, ..StepQuery::default() };
                for stored in engine.store.steps(id, &query)? {
                    let branch = lines.branches.get(lines.branch_of(&stored));
                    found.names.extend(branch.map(|branch| (stored.step.id, branch.name.clone())));
                }
            }
        }
        Ok(found)
    }

    fn name(&self, facts: &SessionFacts, call: &ModelCallFact) -> Option<String> {
        let of_step = || self.names.get(&facts.steps.get(call.step as usize)?.id);
        let only = || self.only.get(&facts.workspace?);
        facts.branch.clone().or_else(|| of_step().or_else(only).cloned())
    }
}

fn describe_report(
    engine: &Engine,
    request: &CostRequest,
    report: CostReport,
) -> Result<CostDocument, AnalysisError> {
    let mut rows: Vec<(CostKey, CostSum)> = report.rows.into_iter().collect();
    if request.by != CostGrouping::Day {
        rows.sort_by_key(|(_, sum)| Reverse((sum.micros, sum.tokens.total(), sum.calls)));
    }
    let mut others = CostSum::default();
    let left_out = rows.len().saturating_sub(request.limit);
    let cut = match request.by {
        // The newest days are those that matter.
        CostGrouping::Day => rows.drain(..left_out).collect::<Vec<_>>(),
        _ => rows.split_off(rows.len() - left_out),
    };
    cut.into_iter().for_each(|(_, sum)| others.add(sum));
    let mut documents = Vec::with_capacity(rows.len() + 1);
    for (key, sum) in rows {
        documents.push(describe_row(engine, request.by, key, sum)?);
    }
    if left_out > 0 {
        let row =
            CostRowDocument { label: format!("{left_out} others"), ..row_of("others", request.by, others) };
        documents.push(row);
    }
    let unpriced = report.unpriced.into_iter();
    let unpriced = unpriced.map(|(model, (calls, tokens))| UnpricedModelDocument { model, calls, tokens });
    Ok(CostDocument {
        by: request.by.as_str().to_owned(),
        since: request.since,
        total: sum_document(report.total),
        rows: documents,
        rule: (request.by == CostGrouping::Tool).then(|| tool_shares::RULE.to_owned()),
        replayed: sum_document(report.replayed),
        reruns: sum_document(report.reruns),
        unpriced: unpriced.collect(),
        prices_of: Prices::table_date().to_owned(),
        impossible_usage: report.impossible_usage,
        shared_answers: report.shared_answers,
    })
}

fn row_of(kind: &str, by: CostGrouping, sum: CostSum) -> CostRowDocument {
    let basis = if by == CostGrouping::Tool && kind != "uncounted" { "inferred" } else { "recorded" };
    CostRowDocument {
        kind: kind.to_owned(),
        basis: basis.to_owned(),
        sum: sum_document(sum),
        ..CostRowDocument::default()
    }
}

fn describe_row(
    engine: &Engine,
    by: CostGrouping,
    key: CostKey,
    sum: CostSum,
) -> Result<CostRowDocument, AnalysisError> {
    let store = engine.store();
    let of_kind =
        |kind: &str, label: &str| CostRowDocument { label: label.to_owned(), ..row_of(kind, by, sum) };
    let title = |session: SessionId| {
        let known = store.session(session)?;
        let agent = known.as_ref().map_or("session", |known| known.agent.as_str());
        let title = known.as_ref().and_then(|known| known.info.title.as_deref()).unwrap_or_default();
        Ok::<_, AnalysisError>(format!("{agent} {} {title}", session.short()).trim_end().to_owned())
    };
    let group =
        |key: String, label: String| CostRowDocument { key: Some(key), label, ..row_of("group", by, sum) };
    Ok(match key {
        CostKey::Name(Some(name)) => group(name.clone(), name),
        CostKey::Name(None) => of_kind("group", "not recorded"),
        CostKey::Session(workspace, session) => CostRowDocument {
            workspace: Some(workspace.to_string()),
            session: Some(session.to_string()),
            ..group(session.to_string(), title(session)?)
        },
        CostKey::Prompt(workspace, session, number) => {
            let stored = number.map(|number| store.step_numbered(workspace, number)).transpose()?.flatten();
            let label = match (&stored, number) {
                (Some(stored), _) => stored.step.summary.clone(),
                (None, _) => format!("before the first prompt of {}", title(session)?),
            };
            let place = number.map_or_else(|| "0".to_owned(), |number| number.to_string());
            CostRowDocument {
                workspace: Some(workspace.to_string()),
                session: Some(session.to_string()),
                step: number,
                ..group(format!("{session}/{place}"), label)
            }
        }
        CostKey::Answers => of_kind("answers", "answers"),
        CostKey::Prompts => of_kind("prompts", "prompts"),
        CostKey::Context => of_kind("context", "system, tool descriptions, added texts"),
        CostKey::Uncounted => of_kind("uncounted", "calls without token counts"),
    })
}

/// A sum as a document.
pub(crate) fn sum_document(sum: CostSum) -> CostSumDocument {
    CostSumDocument {
        calls: sum.calls,
        input: sum.tokens.input,
        cache_read: sum.tokens.cache_read,
        cache_write: sum.tokens.cache_write,
        output: sum.tokens.output,
        reasoning: sum.tokens.reasoning,
        cost_usd: sum.micros as f64 / 1e6,
        priced_usd: sum.priced_micros as f64 / 1e6,
        unpriced_calls: sum.unpriced_calls,
        uncounted_calls: sum.uncounted_calls,
    }
}
