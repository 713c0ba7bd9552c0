//! What a text asks about: a point, lines of a file, an item of the board, or a session.

use jiff::tz::TimeZone;
use stepback_engine::{EngineError, Workspace};
use stepback_model::path::RelPath;
use stepback_model::record::Session;
use stepback_model::time::Timestamp;
use stepback_reasoning::ItemId;

use super::WhyTarget;
use crate::blame::parse_lines;
use crate::error::ProvenanceError;

/// What a text is read in.
pub struct TargetContext<'a> {
    /// The current time, for points that are relative to it.
    pub now: Timestamp,
    /// The time zone of points that are times.
    pub zone: &'a dyn Fn() -> TimeZone,
    /// The path in the workspace that a path as the user writes it means.
    pub to_path: &'a dyn Fn(&str) -> String,
    /// The session whose board is meant; the last active one if none is given.
    pub session: Option<Session>,
    /// The point at which files are looked at.
    pub at: Option<&'a str>,
}

/// Finds what a text asks about: an existing file, with lines or without; an item of the board; a point; a session.
pub fn parse_target(
    workspace: &Workspace,
    text: &str,
    context: &TargetContext<'_>,
) -> Result<WhyTarget, ProvenanceError> {
    let resolve = |point: &str| workspace.resolve(point, context.now, context.zone);
    let at = context.at.map(resolve).transpose()?.map(Box::new);
    if let Some(session) = text.strip_prefix("session:") {
        return Ok(WhyTarget::Session(Box::new(workspace.find_session(session)?)));
    }
    let (file, lines) =
        match text.rsplit_once(':').and_then(|(file, lines)| Some((file, parse_lines(lines)?))) {
            Some((file, lines)) if !is_file(workspace, &(context.to_path)(text)) => (file, Some(lines)),
            _ => (text, None),
        };
    let path = (context.to_path)(file);
    if at.is_some() || is_file(workspace, &path) {
        return Ok(WhyTarget::Lines { path: parse_path(file, &path)?, at, lines });
    }
    let item_error = match text.parse::<ItemId>() {
        Ok(item) => match find_item(workspace, item, context)? {
            Some(target) => return Ok(target),
            None => Some(item),
        },
        Err(_) => None,
    };
    let point_error = match resolve(text) {
        Ok(step) => return Ok(WhyTarget::Step(Box::new(step))),
        Err(error @ EngineError::Point(_)) => error,
        Err(error) => return Err(error.into()),
    };
    if let Ok(session) = workspace.find_session(text) {
        return Ok(WhyTarget::Session(Box::new(session)));
    }
    match (item_error, lines) {
        (Some(item), _) => {
            let session = board_session(workspace, context)?;
            let session =
                session.map_or_else(|| "no session".to_owned(), |session| session.id.short().to_string());
            Err(ProvenanceError::NoItem { item: item.to_string(), session })
        }
        // A deleted file can be asked about with a point; the error says so.
        (None, Some(lines)) if !file.is_empty() => {
            Ok(WhyTarget::Lines { path: parse_path(file, &path)?, at, lines: Some(lines) })
        }
        _ => Err(ProvenanceError::NoTarget {
            text: text.chars().take(200).collect(),
            reason: point_error.to_string(),
        }),
    }
}

fn parse_path(text: &str, path: &str) -> Result<RelPath, ProvenanceError> {
    RelPath::parse(path).map_err(|error| ProvenanceError::NoTarget {
        text: text.chars().take(200).collect(),
        reason: format!("it is not a path in the workspace: {error}"),
    })
}

/// Whether a path of the workspace is a file now.
fn is_file(workspace: &Workspace, path: &str) -> bool {
    RelPath::parse(path).is_ok()
        && workspace.root.join(path).symlink_metadata().is_ok_and(|metadata| metadata.is_file())
}

fn board_session(
    workspace: &Workspace,
    context: &TargetContext<'_>,
) -> Result<Option<Session>, ProvenanceError> {
    match &context.session {
        Some(session) => Ok(Some(session.clone())),
        None => Ok(workspace.last_active_session(None)?),
    }
}

/// An item of the board that is meant, if the board has it.
fn find_item(
    workspace: &Workspace,
    item: ItemId,
    context: &TargetContext<'_>,
) -> Result<Option<WhyTarget>, ProvenanceError> {
    let Some(session) = board_session(workspace, context)? else { return Ok(None) };
    let board = workspace.board_at(&session, &stepback_engine::board::BoardMoment::Now)?.board;
    let exists = board.origin_of(item).is_some();
    Ok(exists.then(|| WhyTarget::Item { session: Box::new(session), item }))
}
