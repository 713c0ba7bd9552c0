//! What a store holds, and making it smaller.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::{Deserialize, Serialize};
use stepback_engine::prune::Rules;
use stepback_model::record::Session;
use stepback_store::port::Query as Steps;
use utoipa::ToSchema;

use crate::documents::{OperationDocument, StepDocument};
use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// What a store holds, in numbers.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct StatisticsDocument {
    /// Objects in the store.
    pub objects: u64,
    /// Their size before compression and sharing.
    pub raw_bytes: u64,
    /// Their size as stored.
    pub stored_bytes: u64,
    /// Bytes the store occupies in all.
    pub total_bytes: u64,
    /// Bytes that it should stay within, if somebody set that.
    pub budget_bytes: Option<u64>,
    /// Workspaces.
    pub workspaces: u64,
    /// Checkpoints that are not hidden.
    pub checkpoints: u64,
    /// What stepback itself did.
    pub operations: u64,
    /// Sessions that did another one again. Nothing else here counts them, but for what they cost.
    pub reruns: u64,
    /// Sessions, by agent.
    pub sessions: BTreeMap<String, u64>,
    /// Steps, by kind.
    pub steps: BTreeMap<String, u64>,
    /// What each agent did; `person` is whoever gave commands.
    pub agents: BTreeMap<String, AgentStatisticsDocument>,
    /// What the sessions cost, in dollars, as far as it is known.
    pub cost_usd: f64,
}

/// What an agent did, in numbers.
#[derive(Clone, Debug, Default, Serialize, ToSchema)]
pub struct AgentStatisticsDocument {
    /// Its steps, by kind.
    pub steps: BTreeMap<String, u64>,
    /// How many of them went wrong.
    pub failed: u64,
}

/// What the store holds.
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
                // No model was asked for what came from the recording; what was asked beyond that did cost.
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

/// What to keep.
#[derive(Clone, Copy, Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewPrune {
    /// The newest so many.
    pub keep_last: Option<usize>,
    /// What is younger than so many days.
    pub keep_days: Option<u64>,
    /// The newest manual ones, whatever else is said.
    pub keep_manual: bool,
    /// As much as fits into so many bytes.
    pub max_size: Option<u64>,
    /// Free the bytes at once, so that this cannot be undone.
    pub now: bool,
    /// Only say what would go. So it is unless somebody says `false`.
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

/// What a prune does or did.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct PrunedDocument {
    /// Whether it was done.
    pub applied: bool,
    /// Checkpoints that are hidden by it, newest first.
    pub items: Vec<StepDocument>,
    /// Checkpoints that stay.
    pub kept: u64,
    /// Checkpoints hidden earlier whose bytes go.
    pub freed_checkpoints: u64,
    /// Reruns whose intermediate files were given up; their branches stay.
    pub reruns: u64,
    /// Objects that are gone.
    pub freed_objects: u64,
    /// Bytes by which the store shrank.
    pub freed_bytes: u64,
    /// What was done, for taking it back.
    pub operation: Option<OperationDocument>,
}

/// Gives up checkpoints by rules, or says which.
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
