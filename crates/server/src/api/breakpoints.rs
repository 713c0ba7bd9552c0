//! Breakpoints: conditions that stop live agents.

use axum::extract::State;
use axum::http::StatusCode;
use stepback_api::control::{
    BreakpointDocument, BreakpointKind, BreakpointSwitch, BudgetScopeKind, NewBreakpoint,
    RemovedBreakpointsDocument,
};
use stepback_api::page::Page;
use stepback_engine::Engine;
use stepback_engine::control::{
    Breakpoint, BudgetScope, Condition, Control, HitCondition, HitConditionError,
};
use stepback_model::anomaly::AnomalyKind;

use crate::extract::{Json, Path};
use crate::problem::Problem;
use crate::state::{self, AppState};

/// Most breakpoints of a workspace: every call of an agent is checked against all of them.
const MOST: usize = 1000;
/// Longest text in a breakpoint, in bytes.
const LONGEST: usize = 10_000;

/// Returns the condition of a new breakpoint. Fails if a field is missing, or one is given that does not belong to it.
fn condition(new: &mut NewBreakpoint) -> Result<Condition, Problem> {
    let missing = |field: &str| Problem::usage(format!("this kind of breakpoint requires \"{field}\""));
    let on = match new.on {
        BreakpointKind::Tool => Condition::Tool { name: new.name.take().ok_or_else(|| missing("name"))? },
        BreakpointKind::Iteration => {
            Condition::Iteration { number: new.number.take().ok_or_else(|| missing("number"))? }
        }
        BreakpointKind::Pattern => {
            Condition::Pattern { pattern: new.pattern.take().ok_or_else(|| missing("pattern"))? }
        }
        BreakpointKind::Tokens => {
            let per = new.per.take().map(budget_scope);
            Condition::Tokens { number: new.number.take().ok_or_else(|| missing("number"))?, per }
        }
        BreakpointKind::Error => Condition::Error,
        BreakpointKind::Path => Condition::Path { glob: new.glob.take().ok_or_else(|| missing("glob"))? },
        BreakpointKind::Anomaly => {
            let parse = |name: String| {
                AnomalyKind::parse(&name)
                    .ok_or_else(|| Problem::usage(format!("\"{name}\" is not a kind of anomaly")))
            };
            Condition::Anomaly { kind: new.name.take().map(parse).transpose()? }
        }
        BreakpointKind::Cost => {
            let per = new.per.take().map(budget_scope);
            Condition::Cost { usd: new.usd.take().ok_or_else(|| missing("usd"))?, per }
        }
    };
    let rest = [
        ("name", new.name.is_some()),
        ("number", new.number.is_some()),
        ("pattern", new.pattern.is_some()),
        ("glob", new.glob.is_some()),
        ("usd", new.usd.is_some()),
        ("per", new.per.is_some()),
    ];
    match rest.into_iter().find(|(_, given)| *given) {
        Some((field, _)) => Err(Problem::usage(format!("this kind of breakpoint has no \"{field}\""))),
        None => Ok(on),
    }
}

fn budget_scope(kind: BudgetScopeKind) -> BudgetScope {
    match kind {
        BudgetScopeKind::Session => BudgetScope::Session,
        BudgetScopeKind::Day => BudgetScope::Day,
        BudgetScopeKind::Workspace => BudgetScope::Workspace,
    }
}

fn parse_hit_condition(new: &NewBreakpoint) -> Result<Option<HitCondition>, Problem> {
    let text = match (new.from_hit, &new.hit_condition) {
        (Some(_), Some(_)) => {
            return Err(Problem::usage("\"from_hit\" and \"hit_condition\" exclude each other"));
        }
        (Some(number), None) => number.to_string(),
        (None, Some(text)) => text.clone(),
        (None, None) => return Ok(None),
    };
    text.parse().map(Some).map_err(|error: HitConditionError| Problem::usage(error.to_string()))
}

fn open_control(engine: &Engine, id: &str) -> Result<Control, Problem> {
    Ok(state::find_workspace(engine, id)?.control()?)
}

fn unknown_breakpoint(id: u64) -> Problem {
    Problem::not_found("breakpoint", &id.to_string())
}

/// Lists the breakpoints of a workspace, newest first.
#[utoipa::path(get, path = "/workspaces/{workspace}/breakpoints", tag = "control",
    params(("workspace" = String, Path, description = "The workspace")),
    responses((status = 200, body = Page<BreakpointDocument>), (status = "default", body = Problem)))]
pub async fn list(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<Page<BreakpointDocument>>, Problem> {
    state
        .run(move |engine| {
            let all = open_control(engine, &id)?.breakpoints()?;
            let items = all.items.iter().rev().map(BreakpointDocument::from_breakpoint).collect();
            Ok(Json(Page::whole(items)))
        })
        .await
}

/// Adds a breakpoint.
#[utoipa::path(post, path = "/workspaces/{workspace}/breakpoints", tag = "control",
    params(("workspace" = String, Path, description = "The workspace")), request_body = NewBreakpoint,
    responses((status = 201, body = BreakpointDocument), (status = "default", body = Problem)))]
pub async fn add(
    State(state): State<AppState>,
    Path(id): Path<String>,
    Json(mut new): Json<NewBreakpoint>,
) -> Result<(StatusCode, Json<BreakpointDocument>), Problem> {
    let on = condition(&mut new)?;
    let hit_condition = parse_hit_condition(&new)?;
    if new.message.is_some() && !new.log {
        return Err(Problem::usage("\"message\" requires \"log\""));
    }
    let (condition, log, message) = (new.condition, new.log, new.message);
    let probe = Breakpoint { condition, hit_condition, log, message, ..Breakpoint::new(on) };
    let texts = match &probe.on {
        Condition::Tool { name: text }
        | Condition::Pattern { pattern: text }
        | Condition::Path { glob: text } => text.len(),
        Condition::Iteration { .. }
        | Condition::Error
        | Condition::Cost { .. }
        | Condition::Tokens { .. }
        | Condition::Anomaly { .. } => 0,
    };
    let others = [&probe.condition, &probe.message].into_iter().flatten().map(String::len);
    if others.fold(texts, usize::max) > LONGEST {
        return Err(Problem::usage(format!(
            "a text in a breakpoint must not be longer than {LONGEST} bytes"
        )));
    }
    probe.check().map_err(|what| Problem::usage(format!("the breakpoint cannot be used: {what}")))?;
    state
        .run(move |engine| {
            let added = open_control(engine, &id)?.change_breakpoints(|all| {
                if all.items.len() >= MOST {
                    return None;
                }
                let id = all.add(probe.clone());
                Some(Breakpoint { id, ..probe })
            })?;
            let added =
                added.ok_or_else(|| Problem::usage(format!("the limit of {MOST} breakpoints is reached")))?;
            Ok((StatusCode::CREATED, Json(BreakpointDocument::from_breakpoint(&added))))
        })
        .await
}

/// Removes all breakpoints of a workspace.
#[utoipa::path(delete, path = "/workspaces/{workspace}/breakpoints", tag = "control",
    params(("workspace" = String, Path, description = "The workspace")),
    responses((status = 200, body = RemovedBreakpointsDocument), (status = "default", body = Problem)))]
pub async fn clear(
    State(state): State<AppState>,
    Path(id): Path<String>,
) -> Result<Json<RemovedBreakpointsDocument>, Problem> {
    state
        .run(move |engine| {
            let removed =
                open_control(engine, &id)?.change_breakpoints(|all| std::mem::take(&mut all.items).len())?;
            Ok(Json(RemovedBreakpointsDocument { removed: removed as u64 }))
        })
        .await
}

/// Enables or disables a breakpoint.
#[utoipa::path(patch, path = "/workspaces/{workspace}/breakpoints/{breakpoint}", tag = "control",
    params(("workspace" = String, Path, description = "The workspace"), ("breakpoint" = u64, Path, description = "Its id")),
    request_body = BreakpointSwitch,
    responses((status = 200, body = BreakpointDocument), (status = "default", body = Problem)))]
pub async fn set_enabled(
    State(state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
    Json(to): Json<BreakpointSwitch>,
) -> Result<Json<BreakpointDocument>, Problem> {
    state
        .run(move |engine| {
            let switched = open_control(engine, &id)?.change_breakpoints(|all| {
                let found = all.items.iter_mut().find(|item| item.id == number)?;
                found.enabled = to.enabled;
                Some(found.clone())
            })?;
            Ok(Json(BreakpointDocument::from_breakpoint(
                &switched.ok_or_else(|| unknown_breakpoint(number))?,
            )))
        })
        .await
}

/// Removes a breakpoint.
#[utoipa::path(delete, path = "/workspaces/{workspace}/breakpoints/{breakpoint}", tag = "control",
    params(("workspace" = String, Path, description = "The workspace"), ("breakpoint" = u64, Path, description = "Its id")),
    responses((status = 200, body = RemovedBreakpointsDocument), (status = "default", body = Problem)))]
pub async fn remove(
    State(state): State<AppState>,
    Path((id, number)): Path<(String, u64)>,
) -> Result<Json<RemovedBreakpointsDocument>, Problem> {
    state
        .run(move |engine| {
            let removed = open_control(engine, &id)?.change_breakpoints(|all| {
                let before = all.items.len();
                all.items.retain(|item| item.id != number);
                before - all.items.len()
            })?;
            match removed {
                0 => Err(unknown_breakpoint(number)),
                removed => Ok(Json(RemovedBreakpointsDocument { removed: removed as u64 })),
            }
        })
        .await
}
