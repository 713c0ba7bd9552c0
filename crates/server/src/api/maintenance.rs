//! Statistics of a store, and pruning.

use std::time::Instant;

use axum::extract::State;
use stepback_api::maintenance::{DiskBudgetDocument, NewPrune, PruneReportDocument, StatisticsDocument};
use stepback_engine::Engine;
use stepback_engine::prune::Rules;
use stepback_model::record::Session;
use stepback_store::port::StepQuery as Steps;

use super::reruns::DiskBudgetReader;
use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Returns statistics of the store.
#[utoipa::path(get, path = "/statistics", tag = "upkeep",
    responses((status = 200, body = StatisticsDocument), (status = "default", body = Problem)))]
pub async fn get_statistics(State(state): State<AppState>) -> Result<Json<StatisticsDocument>, Problem> {
    let (arrival, shared) = (Instant::now(), state.clone());
    let budget = state.rerun_host().map(|stage| stage.budget.clone());
    state
        .run(move |engine| {
            let mark = || Ok(engine.store.commit_seq()?);
            shared.statistics().get(arrival, mark, || collect_statistics(engine, budget.as_ref())).map(Json)
        })
        .await
}

fn collect_statistics(
    engine: &Engine,
    budget: Option<&DiskBudgetReader>,
) -> Result<StatisticsDocument, Problem> {
    let usage = engine.store.usage()?;
    let budget = match budget.and_then(|budget| (budget.0)()) {
        Some((bytes, last)) => {
            let outlook = engine.budget_outlook()?;
            Some(DiskBudgetDocument::new(bytes, usage.total_bytes, &outlook, last))
        }
        None => None,
    };
    let period = engine.recorded_period()?;
    let mut found = StatisticsDocument {
        objects: usage.objects,
        raw_bytes: usage.raw_bytes,
        stored_bytes: usage.stored_bytes,
        total_bytes: usage.total_bytes,
        budget_bytes: budget.as_ref().map(|budget| budget.bytes),
        budget,
        oldest_step_at: period.map(|(oldest, _)| oldest),
        newest_step_at: period.map(|(_, newest)| newest),
        ..StatisticsDocument::default()
    };
    let mut cost = 0_u64;
    for workspace in engine.store.workspaces()? {
        if workspace.is_rerun() {
            // Answers from the recording cost nothing, but model calls beyond it did.
            for session in engine.store.sessions(workspace.id)? {
                found.reruns += u64::from(session.agent != Session::PERSON);
                cost = cost.saturating_add(session.info.cost);
            }
            continue;
        }
        found.workspaces += 1;
        found.operations += engine.store.operations(workspace.id)?.len() as u64;
        for session in engine.store.sessions(workspace.id)? {
            if session.agent != Session::PERSON {
                *found.sessions.entry(session.agent.clone()).or_default() += 1;
                found.total_sessions += 1;
                cost = cost.saturating_add(session.info.cost);
            }
        }
        for tally in engine.store.tally(workspace.id)? {
            found.total_steps += tally.steps;
            *found.steps.entry(tally.kind.as_str().to_owned()).or_default() += tally.steps;
            let agent = found.agents.entry(tally.agent).or_default();
            *agent.steps.entry(tally.kind.as_str().to_owned()).or_default() += tally.steps;
            agent.failed += tally.failed;
        }
        let visible = Steps {
            checkpoint: Some(true),
            hidden: Some(false),
            limit: Some(0),
            count_all: true,
            ..Steps::default()
        };
        found.checkpoints += engine.store.find(Some(workspace.id), &visible)?.total;
    }
    found.cost_usd = cost as f64 / 1e6;
    Ok(found)
}

/// Removes checkpoints by rules, or reports which would be removed.
#[utoipa::path(post, path = "/workspaces/{workspace}/prune", tag = "upkeep",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewPrune,
    responses((status = 200, body = PruneReportDocument), (status = "default", body = Problem)))]
pub async fn prune(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewPrune>,
) -> Result<Json<PruneReportDocument>, Problem> {
    state
        .run(move |engine| {
            let workspace = state::find_workspace(engine, &id)?;
            let rules = Rules {
                keep_last: new.keep_last,
                keep_days: new.keep_days,
                keep_manual: new.keep_manual,
                keep_significant: new.keep_significant,
                max_branches: new.max_branches,
                max_size: new.max_size,
                now: new.now,
            };
            let plan = workspace.plan_prune(rules)?;
            let document = PruneReportDocument::from_plan(&plan);
            if new.dry_run {
                return Ok(Json(document));
            }
            Ok(Json(document.with_result(engine.store(), &workspace.prune(plan)?)?))
        })
        .await
}
