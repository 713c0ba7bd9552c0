//! The HTTP API below `/api/v1`: its routes, and the OpenAPI document generated from them.

pub mod anomalies;
pub mod apply;
pub mod blame;
pub mod branches;
pub mod breakpoints;
pub mod changes;
pub mod checkpoints;
pub mod commands;
pub mod cost;
pub mod dashboard;
pub mod diffs;
mod docs;
pub mod events;
pub mod find;
pub mod forks;
pub mod ingest;
pub mod live;
pub mod maintenance;
pub mod marks;
pub mod mind;
pub mod otlp;
pub mod plans;
pub mod points;
pub mod prepared;
pub mod profile;
pub mod reruns;
pub mod session_checkpoints;
pub mod sessions;
pub mod state;
pub mod steps;
pub mod stops;
pub mod timeline;
pub mod transfer;
pub mod usage;
pub mod why;
pub mod workspaces;

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::routing::get;
use axum::{Router, middleware};
use stepback_api::steps::StepEventDocument;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi as Description, RefOr};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::problem::Problem;
use crate::state::AppState;
use crate::strict::{self, KnownNames};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "stepback",
        description = "Time travel for AI agents: what they did, the state at any step, and rewinding.",
        license(name = "MIT OR Apache-2.0")
    ),
    components(schemas(Problem, StepEventDocument)),
    modifiers(&TokenSecurity),
    security(("token" = [])),
    tags(
        (name = "workspaces", description = "Directory trees that agents work in"),
        (name = "sessions", description = "Recorded runs of agents"),
        (name = "steps", description = "What happened, and navigating it"),
        (name = "search", description = "Finding steps in everything that was recorded"),
        (name = "state", description = "The state at a step"),
        (name = "mind", description = "The reasoning of an agent, at any time"),
        (name = "checkpoints", description = "Saved states, and differences between them"),
        (name = "plans", description = "Rewind, undo and redo: planning, confirming, results"),
        (name = "branches", description = "Named lines of steps, and two runs side by side"),
        (name = "control", description = "Stopping running agents, and sending them messages"),
        (name = "live", description = "Live events"),
        (name = "ingest", description = "Events reported by agents on other machines"),
        (name = "upkeep", description = "What the store contains, and pruning it"),
    )
)]
struct ApiDescription;

/// Registers every operation at its path.
fn operations() -> OpenApiRouter<AppState> {
    let api = OpenApiRouter::new()
        .routes(routes!(workspaces::list))
        .routes(routes!(workspaces::get))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::get))
        .routes(routes!(transfer::export))
        .routes(routes!(transfer::import))
        .routes(routes!(steps::list))
        .routes(routes!(steps::get))
        .routes(routes!(steps::next))
        .routes(routes!(steps::previous))
        .routes(routes!(timeline::get))
        .routes(routes!(timeline::get_lines))
        .routes(routes!(marks::get))
        .routes(routes!(profile::get))
        .routes(routes!(find::find_steps))
        .routes(routes!(find::search))
        .routes(routes!(state::get))
        .routes(routes!(state::get_file))
        .routes(routes!(state::get_conversation))
        .routes(routes!(state::get_memory))
        .routes(routes!(state::get_task))
        .routes(routes!(state::get_env))
        .routes(routes!(mind::get))
        .routes(routes!(mind::get_graph))
        .routes(routes!(mind::get_confidence))
        .routes(routes!(mind::list_items))
        .routes(routes!(points::get))
        .routes(routes!(session_checkpoints::list, session_checkpoints::create))
        .routes(routes!(session_checkpoints::get))
        .routes(routes!(checkpoints::list, checkpoints::create))
        .routes(routes!(checkpoints::get, checkpoints::annotate, checkpoints::delete))
        .routes(routes!(checkpoints::replace_annotation))
        .routes(routes!(diffs::diff_with_present))
        .routes(routes!(diffs::diff_checkpoints))
        .routes(routes!(plans::plan_rewind))
        .routes(routes!(plans::plan_undo))
        .routes(routes!(plans::plan_redo))
        .routes(routes!(plans::plan_switch))
        .routes(routes!(plans::plan_merge))
        .routes(routes!(forks::create))
        .routes(routes!(apply::get_rewind_plan))
        .routes(routes!(apply::rewind))
        .routes(routes!(apply::get_undo_plan))
        .routes(routes!(apply::undo))
        .routes(routes!(apply::get_redo_plan))
        .routes(routes!(apply::redo))
        .routes(routes!(apply::get_switch_plan))
        .routes(routes!(apply::switch))
        .routes(routes!(apply::list_operations))
        .routes(routes!(branches::list, branches::create))
        .routes(routes!(branches::get, branches::update, branches::delete))
        .routes(routes!(branches::compare_runs))
        .routes(routes!(prepared::prepare))
        .routes(routes!(prepared::get))
        .routes(routes!(prepared::execute))
        .routes(routes!(reruns::start))
        .routes(routes!(reruns::interrupt))
        .routes(routes!(breakpoints::list, breakpoints::add, breakpoints::clear))
        .routes(routes!(breakpoints::set_enabled, breakpoints::remove))
        .routes(routes!(stops::list))
        .routes(routes!(stops::answer))
        .routes(routes!(stops::pause))
        .routes(routes!(stops::resume))
        .routes(routes!(stops::inject))
        .routes(routes!(changes::list))
        .routes(routes!(commands::list))
        .routes(routes!(anomalies::list))
        .routes(routes!(blame::get))
        .routes(routes!(why::get))
        .routes(routes!(events::follow))
        .routes(routes!(live::connect))
        .routes(routes!(ingest::ingest_batch))
        .routes(routes!(maintenance::get_statistics))
        .routes(routes!(usage::get))
        .routes(routes!(dashboard::get))
        .routes(routes!(cost::get))
        .routes(routes!(maintenance::prune));
    OpenApiRouter::with_openapi(ApiDescription::openapi()).nest("/api/v1", api)
}

/// The routes of all operations, which refuse unknown names, and the OpenAPI description.
pub(crate) fn routes() -> (Router<AppState>, Description) {
    let (router, description) = operations().split_for_parts();
    let known = Arc::new(KnownNames::from_openapi(&description));
    (router.route_layer(middleware::from_fn_with_state(known, strict::reject_unknown_names)), description)
}

/// All routes, and the OpenAPI description.
pub fn router() -> (Router<AppState>, Description) {
    let (router, mut description) = routes();
    // The router writes catch-all parameters as `{*name}`, which OpenAPI does not know.
    let paths = std::mem::take(&mut description.paths.paths);
    description.paths.paths = paths.into_iter().map(|(path, item)| (path.replace("{*", "{"), item)).collect();
    assign_operation_ids(&mut description);
    set_problem_media_types(&mut description);
    let document = serde_json::to_value(&description).unwrap_or_default();
    let page = docs::render_page(&document);
    let json = [(header::CONTENT_TYPE, "application/json")];
    let text = document.to_string();
    let router = router
        .route("/api/v1/openapi.json", get(move || async move { (json, text.clone()) }))
        .route("/api/v1/docs", get(move || async move { (docs::HEADERS, page.clone()) }))
        .merge(otlp::router())
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(check_readiness))
        .fallback(|| async { Problem::not_found("page", "at this address") })
        .method_not_allowed_fallback(|| async {
            Problem::new(
                StatusCode::METHOD_NOT_ALLOWED,
                "usage",
                "this method is not supported at this address",
            )
        });
    (router, description)
}

/// Gives every operation a unique id, made of its method and path.
fn assign_operation_ids(description: &mut Description) {
    for (path, item) in &mut description.paths.paths {
        let words = path.trim_start_matches("/api/v1/").split(|c: char| !c.is_ascii_alphanumeric());
        let name = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_");
        for (method, operation) in [
            ("get", &mut item.get),
            ("post", &mut item.post),
            ("put", &mut item.put),
            ("patch", &mut item.patch),
            ("delete", &mut item.delete),
        ] {
            if let Some(operation) = operation {
                operation.operation_id = Some(format!("{method}_{name}"));
            }
        }
    }
}

/// Describes errors with the media type of problem documents, which is what [`Problem`] sends.
fn set_problem_media_types(description: &mut Description) {
    for item in description.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete];
        for operation in operations.into_iter().flatten() {
            let responses = operation.responses.responses.iter_mut();
            for (_, response) in responses.filter(|(status, _)| status.starts_with(['4', '5', 'd'])) {
                if let RefOr::T(response) = response
                    && let Some(content) = response.content.shift_remove("application/json")
                {
                    response.content.insert(Problem::CONTENT_TYPE.to_owned(), content);
                }
            }
        }
    }
}

/// Adds the token to the description as the required security scheme.
struct TokenSecurity;

impl Modify for TokenSecurity {
    fn modify(&self, description: &mut Description) {
        let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        description.components.get_or_insert_default().add_security_scheme("token", bearer);
    }
}

/// The readiness probe: whether the store answers, is still in its place, and accepts commits.
async fn check_readiness(
    axum::extract::State(state): axum::extract::State<AppState>,
) -> Result<&'static str, Problem> {
    state
        .run(|engine| {
            engine.store.gc_generation()?;
            engine.store.check_writable()?;
            Ok("ready\n")
        })
        .await
}
