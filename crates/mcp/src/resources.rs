//! Resources: sessions, steps, past files and the board, each readable by URI.

use std::borrow::Cow;

use jiff::tz::TimeZone;
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use stepback_api::sessions::SessionDocument;
use stepback_engine::EngineError;
use stepback_engine::board::BoardMoment;
use stepback_engine::session::{last_event_time, session_status};
use stepback_model::clip;
use stepback_model::page_cursor;
use stepback_model::path::RelPath;
use stepback_model::record::Session;
use stepback_model::tree::TreeNode;
use stepback_store::port::{StepQuery, StepRow};

use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// The prefix of every URI.
const SCHEME: &str = "stepback://";
/// Sessions per page.
const SESSIONS_PER_PAGE: usize = 25;
/// The most steps of a session that are included.
const MAX_STEPS: u64 = 50;
/// The most bytes of a text.
const MAX_TEXT_BYTES: usize = 256 << 10;
/// The most bytes of each text of a step.
const DETAIL: usize = 16 << 10;

/// URI templates with a placeholder.
pub fn list_templates() -> Vec<Value> {
    let template = |uri: &str, name: &str, title: &str, description: &str, kind: &str| {
        json!({
            "uriTemplate": format!("{SCHEME}{uri}"),
            "name": name,
            "title": title,
            "description": description,
            "mimeType": kind,
        })
    };
    vec![
        template(
            "session/{session}",
            "session",
            "A session",
            "A recorded session with its last steps, by the beginning of its id",
            "application/json",
        ),
        template("step/{point}", "step", "A step", "A step with its input and output", "application/json"),
        template(
            "file/{point}/{+path}",
            "past-file",
            "A past file",
            "A text file as it was at a point, by its path in the workspace",
            "text/plain",
        ),
        template(
            "mind/{point}",
            "past-mind",
            "The board at a point",
            "Your board at that point",
            "text/markdown",
        ),
    ]
}

/// One page of the resources.
pub fn list_resources(context: &ToolContext<'_>, cursor: Option<&str>) -> Result<Value, ToolError> {
    const CURSOR_SUBJECT: &str = "resources";
    let mut sessions = context.workspace.agent_sessions()?;
    sessions.sort_by_key(|session| (std::cmp::Reverse(session.started_at), session.id));
    let mut resources = Vec::new();
    let start = match cursor {
        None => {
            resources.extend(fixed_resources());
            0
        }
        Some(cursor) => {
            let last: Option<String> = page_cursor::decode(cursor, &CURSOR_SUBJECT);
            let index = last.and_then(|last| sessions.iter().position(|known| known.id.to_string() == last));
            index.ok_or_else(|| ToolError::new("the cursor does not belong to this list"))? + 1
        }
    };
    let page = &sessions[start..sessions.len().min(start + SESSIONS_PER_PAGE)];
    resources.extend(page.iter().map(|session| {
        json!({
            "uri": format!("{SCHEME}session/{}", session.id),
            "name": format!("session-{}", session.id.short()),
            "title": session.info.title.clone().unwrap_or_else(|| format!("A session of {}", session.agent)),
            "mimeType": "application/json",
            "annotations": { "lastModified": last_event_time(session) },
        })
    }));
    let mut listed = json!({ "resources": resources });
    if let (Some(last), true) = (page.last(), start + SESSIONS_PER_PAGE < sessions.len()) {
        listed["nextCursor"] = json!(page_cursor::encode(last.id, &CURSOR_SUBJECT));
    }
    Ok(listed)
}

/// The resources that exist in every workspace.
pub fn list_fixed_resources() -> Value {
    json!({ "resources": fixed_resources() })
}

fn fixed_resources() -> [Value; 3] {
    let resource = |uri: &str, title: &str, description: &str, kind: &str| {
        json!({
            "uri": format!("{SCHEME}{uri}"),
            "name": uri,
            "title": title,
            "description": description,
            "mimeType": kind,
        })
    };
    [
        resource("mind", "The board", "Your current board", "text/markdown"),
        resource("recovery", "Where you left off", "The page to read after a compaction", "text/markdown"),
        resource("sessions", "Sessions", "Every recorded session of this workspace", "application/json"),
    ]
}

/// The contents of a URI; `None` if there is nothing.
pub fn read_resource(context: &ToolContext<'_>, uri: &str) -> Result<Option<Value>, ToolError> {
    let Some(rest) = uri.strip_prefix(SCHEME) else { return Ok(None) };
    let (noun, name) = rest.split_once('/').unwrap_or((rest, ""));
    let content = match (noun, name) {
        ("mind", "") => Some(markdown_content(board_markdown(context, &BoardMoment::Now)?)),
        ("mind", point) => resolve_moment(context, point)?
            .map(|moment| board_markdown(context, &moment))
            .transpose()?
            .map(markdown_content),
        ("recovery", "") => {
            let session = context.target_session()?;
            Some(markdown_content(
                stepback_board::build_recovery_page(
                    context.workspace,
                    &session,
                    &BoardMoment::Now,
                    1500,
                    context.now,
                )?
                .page,
            ))
        }
        ("sessions", "") => {
            let sessions: Vec<Value> = context
                .workspace
                .agent_sessions()?
                .iter()
                .map(|known| session_document(known, context))
                .collect();
            Some(json_content(&json!({ "sessions": sessions })))
        }
        ("session", id) if !id.is_empty() => session_content(context, &decode_percent(id))?,
        ("step", point) if !point.is_empty() => {
            resolve_step(context, &decode_percent(point))?.map(|at| step_content(context, &at)).transpose()?
        }
        ("file", rest) => match rest.split_once('/') {
            Some((point, path)) if !path.is_empty() => {
                file_content(context, &decode_percent(point), &decode_percent(path))?
            }
            _ => None,
        },
        _ => None,
    };
    Ok(content.map(|(kind, text)| json!([{ "uri": uri, "mimeType": kind, "text": text }])))
}

/// The mark of a resource, which differs once the resource has changed. `None` for a resource without notifications: the
/// past does not change.
pub fn resource_version(context: &ToolContext<'_>, uri: &str) -> Result<Option<String>, ToolError> {
    let Some(rest) = uri.strip_prefix(SCHEME) else { return Ok(None) };
    let board = |session: &Session| format!("{} {:?}", session.id, session.info.slots.reasoning);
    Ok(match rest.split_once('/').unwrap_or((rest, "")) {
        ("mind", "") => Some(board(&context.target_session()?)),
        ("recovery", "") => {
            let session = context.target_session()?;
            Some(format!("{} {}", board(&session), newest_step_number(context, &session)?))
        }
        ("sessions", "") => {
            let sessions = context.workspace.agent_sessions()?;
            Some(sessions.iter().map(|entry| session_document(entry, context).to_string()).collect())
        }
        ("session", id) if !id.is_empty() => {
            match none_if_absent(context.workspace.find_session(&decode_percent(id)))? {
                Some(session) => Some(format!(
                    "{} {}",
                    session_document(&session, context),
                    newest_step_number(context, &session)?
                )),
                None => None,
            }
        }
        _ => None,
    })
}

/// The number of the newest step of a session.
fn newest_step_number(context: &ToolContext<'_>, session: &Session) -> Result<u64, ToolError> {
    let query = StepQuery { session: Some(session.id), limit: Some(1), ..StepQuery::default() };
    let steps = context.workspace.store().steps(context.workspace.record.id, &query)?;
    Ok(steps.first().map_or(0, |stored| stored.step.number))
}

type TypedText = (&'static str, String);

fn markdown_content(text: String) -> TypedText {
    ("text/markdown", text)
}

fn json_content(value: &Value) -> TypedText {
    ("application/json", value.to_string())
}

fn board_markdown(context: &ToolContext<'_>, moment: &BoardMoment) -> Result<String, ToolError> {
    let board_at_point = context.workspace.board_at(&context.target_session()?, moment)?;
    let mut page = match &board_at_point.step {
        Some(stored) => format!("# The board as of #{}\n", stored.step.number),
        None => "# The board is empty\n".to_owned(),
    };
    for section in board_at_point.board.board(true) {
        page.push_str(&format!("\n## {}\n\n", section.title));
        for line in section.lines {
            let depth = if line.starts_with(' ') { "  - " } else { "- " };
            page.push_str(&format!("{depth}{}\n", line.trim_start()));
        }
    }
    Ok(page)
}

/// Turns the error of a point that names nothing into `None`: there is no resource at that URI.
fn none_if_absent<T>(result: Result<T, EngineError>) -> Result<Option<T>, ToolError> {
    match result {
        Ok(result) => Ok(Some(result)),
        Err(EngineError::Point(_) | EngineError::NothingRecorded { .. } | EngineError::NoFiles { .. }) => {
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

fn resolve_moment(context: &ToolContext<'_>, point: &str) -> Result<Option<BoardMoment>, ToolError> {
    none_if_absent(stepback_board::resolve_moment(
        context.workspace,
        &decode_percent(point),
        context.now,
        &TimeZone::system,
    ))
}

fn resolve_step(context: &ToolContext<'_>, point: &str) -> Result<Option<StepRow>, ToolError> {
    none_if_absent(context.workspace.resolve(point, context.now, &TimeZone::system))
}

fn session_document(session: &Session, context: &ToolContext<'_>) -> Value {
    let document = SessionDocument::from_session(session, session_status(session, false, context.now));
    json!(SessionDocument { seen_at: Some(document.last_seen()), ..document })
}

fn session_content(context: &ToolContext<'_>, id: &str) -> Result<Option<TypedText>, ToolError> {
    let Some(session) = none_if_absent(context.workspace.find_session(id))? else { return Ok(None) };
    let query = StepQuery {
        session: Some(session.id),
        hidden: Some(false),
        limit: Some(MAX_STEPS),
        ..StepQuery::default()
    };
    let page = context.workspace.store().find(Some(context.workspace.record.id), &query)?;
    let steps: Vec<Value> =
        page.steps.iter().map(|placed| crate::tools::step_summary(&placed.stored)).collect();
    let mut value = session_document(&session, context);
    value["steps"] = json!(page.total);
    value["last_steps"] = json!(steps);
    Ok(Some(json_content(&value)))
}

fn step_content(context: &ToolContext<'_>, stored: &StepRow) -> Result<TypedText, ToolError> {
    let mut value = crate::tools::step_summary(stored);
    value["session"] = json!(stored.step.session);
    let mut detail = context.workspace.load_detail(&stored.step)?.unwrap_or_default();
    clip::value(&mut detail, DETAIL);
    value["detail"] = detail;
    Ok(json_content(&value))
}

fn file_content(context: &ToolContext<'_>, point: &str, path: &str) -> Result<Option<TypedText>, ToolError> {
    let Ok(path) = RelPath::parse(path) else { return Ok(None) };
    let Some(stored) = resolve_step(context, point)? else { return Ok(None) };
    let Some(state) = none_if_absent(context.workspace.load_state(&stored))? else { return Ok(None) };
    let plain_text = |text: String| Ok(Some(("text/plain", text)));
    match context.workspace.read_path(&state, &path)? {
        None => Ok(None),
        Some((TreeNode::File { .. }, bytes)) => match String::from_utf8(bytes) {
            Ok(mut text) if !text.contains('\0') => {
                clip::text(&mut text, MAX_TEXT_BYTES);
                plain_text(text)
            }
            Ok(text) => plain_text(binary_placeholder(text.len())),
            Err(error) => plain_text(binary_placeholder(error.as_bytes().len())),
        },
        Some((TreeNode::Symlink { target }, _)) => {
            plain_text(format!("[a link to {}]", stepback_model::path::display_bytes(&target)))
        }
        Some((TreeNode::Dir { .. }, _)) => plain_text("[a directory]".to_owned()),
        Some((TreeNode::Skipped { reason }, _)) => plain_text(format!("[not stored: {}]", reason.describe())),
    }
}

fn binary_placeholder(length: usize) -> String {
    format!("[binary: {length} bytes; \"stepback restore\" writes it to a directory]")
}

/// Decodes the percent-encoding of a part of a URI.
fn decode_percent(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::decode_percent;

    #[test]
    fn signs_come_back() {
        assert_eq!(decode_percent("a%20b%2Fc"), "a b/c");
        assert_eq!(decode_percent("%2342"), "#42");
        assert_eq!(decode_percent("100%"), "100%");
        assert_eq!(decode_percent("%zz%é%"), "%zz%é%");
    }
}
