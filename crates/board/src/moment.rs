//! From a point, as users write it, to a moment of a board.

use jiff::tz::TimeZone;
use stepback_engine::board::BoardMoment;
use stepback_engine::resolve::step_not_found_message;
use stepback_engine::{EngineError, Workspace};
use stepback_model::point::{Anchor, PointExpr};
use stepback_model::time::Timestamp;
use stepback_model::time_expr;
use stepback_store::port::StepQuery;

/// Returns the moment that a point names. Unlike for files, a time is exact: changes between two checkpoints count.
pub fn resolve_moment(
    workspace: &Workspace,
    text: &str,
    now: Timestamp,
    zone: &dyn Fn() -> TimeZone,
) -> Result<BoardMoment, EngineError> {
    let point = PointExpr::parse(text).map_err(|error| EngineError::Point(error.to_string()))?;
    let time = |text: &str| time_expr::parse(text, now, &zone()).ok().map(BoardMoment::Time);
    if point.back == 0 && point.session.is_none() {
        match &point.anchor {
            Anchor::Now => return Ok(BoardMoment::Now),
            Anchor::Time(text) => {
                if let Some(moment) = time(text) {
                    return Ok(moment);
                }
            }
            Anchor::Branch(name) if workspace.branch_tip(name)?.is_some() => {
                return branch_moment(workspace, name);
            }
            Anchor::Text { name, .. } if workspace.branch_tip(name)?.is_some() => {
                return branch_moment(workspace, name);
            }
            Anchor::Text { name, is_time: true } => {
                let labelled =
                    StepQuery { label: Some(name.clone()), limit: Some(1), ..StepQuery::default() };
                let is_label = !workspace.store().steps(workspace.record.id, &labelled)?.is_empty();
                if let Some(moment) = time(name).filter(|_| !is_label) {
                    return Ok(moment);
                }
            }
            Anchor::Step(number) => return step_moment(workspace, *number),
            _ => {}
        }
    }
    Ok(BoardMoment::Step(workspace.resolve(text, now, zone)?.step.number))
}

fn branch_moment(workspace: &Workspace, branch: &str) -> Result<BoardMoment, EngineError> {
    Ok(match workspace.present_branch()? == branch {
        true => BoardMoment::Now,
        false => BoardMoment::Branch(branch.to_owned()),
    })
}

/// Returns the moment of a step by its number. Does not use [`Workspace::resolve`], which needs a checkpoint: a workspace
/// without one can have steps.
fn step_moment(workspace: &Workspace, number: u64) -> Result<BoardMoment, EngineError> {
    match workspace.store().step_numbered(workspace.record.id, number)? {
        Some(_) => Ok(BoardMoment::Step(number)),
        None => Err(EngineError::Point(step_not_found_message(number, workspace.newest_step_number()?))),
    }
}
