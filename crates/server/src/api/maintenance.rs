//! Statistics of a store, and pruning.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepback_engine::prune::Rules;
use stepback_model::record::Session;
use stepback_store::port::StepQuery as Steps;
use utoipa::ToSchema;

use crate::documents::{OperationDocument, StepDocument};
use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// The contents of a store in numbers.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct StatisticsDocument {
    /// Number of objects in the store.
    pub objects: u64,
    /// Their size in bytes before compression and deduplication.
    pub raw_bytes: u64,
    /// Their size in bytes as stored.
    pub stored_bytes: u64,
    /// Bytes the store occupies in all.
    pub total_bytes: u64,
    /// Bytes that it should stay within; none if no budget is set.
    pub budget_bytes: Option<u64>,
    /// Number of workspaces.
    pub workspaces: u64,
    /// Checkpoints that are not hidden.
    pub checkpoints: u64,
    /// Operations of stepback itself, such as rewinds.
    pub operations: u64,
    /// Sessions that are reruns of another one. No other number here includes them, except the cost.
    pub reruns: u64,
    /// Sessions, by agent.
    pub sessions: BTreeMap<String, u64>,
    /// Steps, by kind.
    pub steps: BTreeMap<String, u64>,
    /// Numbers by agent; `person` is the user.
    pub agents: BTreeMap<String, AgentStatisticsDocument>,
    /// The cost of all sessions in dollars, as far as it is known.
    pub cost_usd: f64,
}

/// The steps of one agent in numbers.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct AgentStatisticsDocument {
    /// Its steps, by kind.
    pub steps: BTreeMap<String, u64>,
    /// How many of them failed.
    pub failed: u64,
}

/// Returns statistics of the store.
#[utoipa::path(get, path = "/statistics", tag = "upkeep",
    responses((status = 200, body = StatisticsDocument), (status = "default", body = Problem)))]
pub async fn statistics(State(work): State<AppState>) -> Result<Json<StatisticsDocument>, Problem> {
    let budget_bytes = work.stage().and_then(|stage| stage.budget);
    work.run(move |engine| {
        let usage = engine.store.usage()?;
        let mut found = StatisticsDocument {
            objects: usage.objects,
            raw_bytes: usage.raw_bytes,
            stored_bytes: usage.stored_bytes,
            total_bytes: usage.total_bytes,
            budget_bytes,
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
                    cost = cost.saturating_add(session.info.cost);
                }
            }
            for tally in engine.store.tally(workspace.id)? {
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
        Ok(Json(found))
    })
    .await
}

/// The rules of a prune: what to keep.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewPrune {
    /// Keep the newest so many.
    pub keep_last: Option<usize>,
    /// Keep those younger than so many days.
    pub keep_days: Option<u64>,
    /// Keep the newest manual ones, whatever the other rules say.
    pub keep_manual: bool,
    /// Keep as much as fits into so many bytes.
    pub max_size: Option<u64>,
    /// Free the bytes at once, so that the prune cannot be undone.
    pub now: bool,
    /// Only report what would be removed. The default is `true`.
    #[schema(default = true)]
    pub dry_run: bool,
}

impl Default for NewPrune {
    fn default() -> Self {
        Self {
            keep_last: None,
            keep_days: None,
            keep_manual: false,
            max_size: None,
            now: false,
            dry_run: true,
        }
    }
}

/// The result or the preview of a prune.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PrunedDocument {
    /// Whether it was applied.
    pub applied: bool,
    /// Checkpoints that it hides, newest first.
    pub items: Vec<StepDocument>,
    /// Checkpoints that stay.
    pub kept: u64,
    /// Checkpoints hidden earlier whose bytes are freed.
    pub freed_checkpoints: u64,
    /// Reruns whose intermediate files were removed; their branches stay.
    pub reruns: u64,
    /// Objects that were freed.
    pub freed_objects: u64,
    /// Bytes by which the store shrank.
    pub freed_bytes: u64,
    /// The operation, which undo takes; none if nothing was applied.
    pub operation: Option<OperationDocument>,
}

/// Removes checkpoints by rules, or reports which would be removed.
#[utoipa::path(post, path = "/workspaces/{workspace}/prune", tag = "upkeep",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewPrune,
    responses((status = 200, body = PrunedDocument), (status = "default", body = Problem)))]
pub async fn prune(
    State(work): State<AppState>,
    Path(id): Path<String>,
    Json(new): Json<NewPrune>,
) -> Result<Json<PrunedDocument>, Problem> {
    work.run(move |engine| {
        let workspace = state::workspace(engine, &id)?;
        let rules = Rules {
            keep_last: new.keep_last,
            keep_days: new.keep_days,
            keep_manual: new.keep_manual,
            max_size: new.max_size,
            now: new.now,
        };
        let plan = workspace.plan_prune(rules)?;
        let mut document = PrunedDocument {
            applied: false,
            items: plan.hide.iter().map(StepDocument::of).collect(),
            kept: plan.keep as u64,
            freed_checkpoints: plan.purge.len() as u64,
            reruns: 0,
            freed_objects: 0,
            freed_bytes: 0,
            operation: None,
        };
        if !new.dry_run {
            let pruned = workspace.prune(plan)?;
            document.applied = true;
            document.kept = pruned.kept as u64;
            document.reruns = pruned.reruns as u64;
            document.freed_objects = pruned.swept.objects;
            document.freed_bytes = pruned.swept.bytes;
            let operation = pruned.operation.as_ref();
            document.operation =
                operation.map(|operation| OperationDocument::stored(engine, operation)).transpose()?;
        }
        Ok(Json(document))
    })
    .await
}
