//! Token usage and cost of model calls, by hour and by model.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Deserialize;
use stepback_api::maintenance::{HourlyUsageDocument, ModelUsageDocument, UsageDocument};
use stepback_engine::Engine;
use stepback_llm_wire::recorded_call::CallUsage;
use stepback_model::json;
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;
use stepback_store::port::StepQuery as Steps;
use utoipa::IntoParams;

use super::find::parse_time;
use crate::extract::{Json, QueryString};
use crate::problem::Problem;
use crate::state::AppState;

/// Most model calls that are read, the newest first: the usage of each is in its own record.
const MOST: u64 = 20_000;
/// Default of `since`.
const DEFAULT_SINCE: &str = "14 days ago";
const HOUR: i64 = 3600 * 1_000_000;

/// The period of a usage report.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Only calls since this time: `2 hours ago`, `2026-01-23`. The default is two weeks ago.
    pub since: Option<String>,
}

/// Tokens and cost of model calls, by hour and by model. Answers that a rerun took from its recording are not counted: no
/// model was called.
#[utoipa::path(get, path = "/usage", tag = "upkeep", params(UsageQuery),
    responses((status = 200, body = UsageDocument), (status = "default", body = Problem)))]
pub async fn get(
    State(state): State<AppState>,
    QueryString(query): QueryString<UsageQuery>,
) -> Result<Json<UsageDocument>, Problem> {
    state
        .run(move |engine| {
            Ok(Json(summarize_usage(engine, query.since.as_deref().unwrap_or(DEFAULT_SINCE))?))
        })
        .await
}

fn summarize_usage(engine: &Engine, since: &str) -> Result<UsageDocument, Problem> {
    let query = Steps {
        kinds: vec![StepKind::ModelEnd],
        since: parse_time("since", Some(since), engine.env.now())?,
        limit: Some(MOST + 1),
        ..Steps::default()
    };
    let found = engine.store.find(None, &query)?.steps;
    let mut hours: BTreeMap<i64, ModelUsageDocument> = BTreeMap::new();
    let mut models: BTreeMap<String, ModelUsageDocument> = BTreeMap::new();
    let mut total = ModelUsageDocument::default();
    let complete = found.len() as u64 <= MOST;
    for placed in found.iter().take(usize::try_from(MOST).unwrap_or(usize::MAX)) {
        let step = &placed.stored.step;
        let Some(detail) = step.meta.detail else { continue };
        // Requests and answers can be large, so only the metadata is loaded.
        let metadata = json::get(engine.store(), detail, "/metadata")
            .map_err(|error| Problem::internal(format!("#{} cannot be read: {error}", step.number)))?;
        let spent = CallUsage::of(&serde_json::json!({ "metadata": metadata }));
        let Some(spent) = spent.filter(|spent| !spent.replayed) else { continue };
        hours.entry(step.at.as_micros().div_euclid(HOUR)).or_default().add(&spent);
        let model = spent.model.clone().or_else(|| step.meta.tool.clone());
        models.entry(model.unwrap_or_else(|| "unknown".to_owned())).or_default().add(&spent);
        total.add(&spent);
    }
    let hours = hours
        .into_iter()
        .map(|(hour, spent)| HourlyUsageDocument { at: Timestamp::from_micros(hour * HOUR), spent })
        .collect();
    Ok(UsageDocument { hours, models, total, complete })
}
