//! Token usage and cost of model calls, by hour and by model.

use std::collections::BTreeMap;

use axum::extract::State;
use serde::Deserialize;
use stepback_analysis::cost::{CostOptions, counted_calls};
use stepback_analysis::load::{FactsQuery, load_facts};
use stepback_analysis::prices::load_prices;
use stepback_api::maintenance::{HourlyUsageDocument, ModelUsageDocument, UsageDocument};
use stepback_engine::Engine;
use stepback_model::time::Timestamp;
use utoipa::IntoParams;

use super::find::parse_time;
use crate::extract::{Json, QueryString};
use crate::problem::Problem;
use crate::state::AppState;

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
    let since = parse_time("since", Some(since), engine.env.now())?;
    let prices = load_prices(engine.store().local_dir())?;
    let query = FactsQuery { since, reruns: true, ..FactsQuery::default() };
    let sessions = load_facts(engine, &prices, &query)?;
    let mut hours: BTreeMap<i64, ModelUsageDocument> = BTreeMap::new();
    let mut models: BTreeMap<String, ModelUsageDocument> = BTreeMap::new();
    let mut total = ModelUsageDocument::default();
    let options = CostOptions { since, reruns: true, ..CostOptions::default() };
    for (facts, call) in counted_calls(&sessions, options) {
        let tokens = call.tokens.unwrap_or_default();
        hours.entry(call.at.as_micros().div_euclid(HOUR)).or_default().add(tokens, call.cost);
        let model = call.model.map_or("unknown", |model| facts.name(Some(model)));
        models.entry(model.to_owned()).or_default().add(tokens, call.cost);
        total.add(tokens, call.cost);
    }
    let hours = hours
        .into_iter()
        .map(|(hour, spent)| HourlyUsageDocument {
            at: Timestamp::from_micros(hour.saturating_mul(HOUR)),
            spent,
        })
        .collect();
    Ok(UsageDocument { hours, models, total, complete: true })
}
