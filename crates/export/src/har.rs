//! The recorded model calls of a session as an HTTP archive (HAR 1.2), which browsers and HTTP tools open.
//!
//! Only calls that a proxy recorded have a request and an answer. Credentials are never recorded; headers and parameters that
//! usually carry one are removed again. The host of the model is not recorded: addresses are below `model.invalid`.

use std::collections::HashMap;
use std::io::Write;

use serde_json::{Value, json};
use stepback_llm_wire::{AnswerEnd, Chunks, ModelRequest, Response};
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_model::time::Timestamp;

use crate::error::ExportError;
use crate::redactor::Redactor;
use crate::session_steps::SessionSteps;

/// The host of all addresses: a name that never resolves.
const HOST: &str = "https://model.invalid";
/// What stands in the place of a removed value.
const REMOVED: &str = "redacted";

/// Writes the archive, and returns the number of its entries.
pub fn write(
    steps: &SessionSteps<'_>,
    session: &Session,
    version: &str,
    mut out: impl Write,
) -> Result<u64, ExportError> {
    let page = json!({
        "startedDateTime": session.started_at.to_string(),
        "id": session.id.to_string(),
        "title": session.info.title.as_deref().map_or_else(String::new, |title| steps.redactor().text(title)),
        "pageTimings": {},
    });
    let head =
        json!({ "version": "1.2", "creator": { "name": "stepback", "version": version }, "pages": [page] });
    let mut text = head.to_string();
    text.pop();
    let mut write = |text: &str| out.write_all(text.as_bytes()).map_err(ExportError::Write);
    write(&format!("{{\"log\":{text},\"entries\":["))?;
    let mut count = 0;
    let mut started: HashMap<(Option<&str>, &str), &StepRow> = HashMap::new();
    for row in &steps.rows {
        let Some(call) = row.step.meta.call.as_deref() else { continue };
        let key = (row.step.meta.worker.as_deref(), call);
        match row.step.kind {
            StepKind::ModelStart => {
                started.insert(key, row);
            }
            StepKind::ModelEnd => {
                let Some(start) = started.remove(&key) else { continue };
                if let Some(entry) = read_entry(steps, session, start, row)? {
                    write(if count == 0 { "\n" } else { ",\n" })?;
                    write(&entry.to_string())?;
                    count += 1;
                }
            }
            _ => {}
        }
    }
    write("\n]}}\n")?;
    Ok(count)
}

/// The entry of one call; `None` if its request or answer was not recorded as HTTP.
fn read_entry(
    steps: &SessionSteps<'_>,
    session: &Session,
    start: &StepRow,
    end: &StepRow,
) -> Result<Option<Value>, ExportError> {
    let request = steps.detail_part(start, "/input")?;
    let response = steps.detail_part(end, "/output")?;
    let (Ok(request), Ok(response)) =
        (serde_json::from_value::<ModelRequest>(request), serde_json::from_value::<Response>(response))
    else {
        return Ok(None);
    };
    let redactor = steps.redactor();
    let millis = |micros: u64| micros as f64 / 1000.0;
    let wait = response.first_byte.unwrap_or(response.took).min(response.took);
    let mut entry = json!({
        "pageref": session.id.to_string(),
        "startedDateTime": timestamp(start.step.at),
        "time": millis(response.took),
        "request": write_request(&request, redactor),
        "response": write_response(&response, redactor),
        "cache": {},
        "timings": { "send": 0, "wait": millis(wait), "receive": millis(response.took - wait) },
        "_stepback": { "start": start.step.number, "end": end.step.number },
    });
    let mut comments = Vec::new();
    if response.is_replayed() {
        comments.push("The answer came from a recording: no model was called.".to_owned());
    }
    match &response.ended {
        AnswerEnd::Complete => {}
        AnswerEnd::Cancelled => comments.push("The agent disconnected before the end.".to_owned()),
        AnswerEnd::CutOff(why) => comments.push(format!("The connection broke: {}", redactor.text(why))),
        AnswerEnd::Failed(why) => comments.push(format!("No answer arrived: {}", redactor.text(why))),
    }
    if response.left_out > 0 {
        comments.push(format!("{} bytes at the end were not recorded.", response.left_out));
    }
    if !comments.is_empty() {
        entry["comment"] = json!(comments.join(" "));
    }
    Ok(Some(entry))
}

/// A time that every reader of dates accepts: with milliseconds.
fn timestamp(at: Timestamp) -> String {
    at.to_string()
}

fn write_request(request: &ModelRequest, redactor: Redactor<'_>) -> Value {
    let (path, query) = request
        .path
        .split_once('?')
        .map_or((request.path.as_str(), None), |(path, query)| (path, Some(query)));
    let parameters: Vec<(String, String)> =
        query.into_iter().flat_map(|query| query.split('&')).map(clean_parameter).collect();
    let joined: Vec<String> = parameters
        .iter()
        .map(|(name, value)| if value.is_empty() { name.clone() } else { format!("{name}={value}") })
        .collect();
    let url = match joined.is_empty() {
        true => format!("{HOST}{path}"),
        false => format!("{HOST}{path}?{}", joined.join("&")),
    };
    let body = match &request.body {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        body => Some(body.to_string()),
    };
    let mut entry = json!({
        "method": request.method,
        "url": encode_url(&redactor.text(&url)),
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": write_headers(&request.headers, redactor),
        "queryString": parameters.iter().map(|(name, value)| json!({ "name": name, "value": redactor.text(value) })).collect::<Vec<_>>(),
        "headersSize": -1,
        "bodySize": request.bytes,
    });
    if let Some(body) = body {
        entry["postData"] = json!({ "mimeType": content_type(&request.headers), "text": body });
    }
    entry
}

/// A text with everything escaped that an address must not have.
fn encode_url(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' => out.push(char::from(byte)),
            byte if b"-._~:/?#@!$&'()*+,;=%".contains(&byte) => out.push(char::from(byte)),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn write_response(response: &Response, redactor: Redactor<'_>) -> Value {
    let Chunks(chunks) = &response.chunks;
    let size = response.body.len() as u64;
    json!({
        "status": response.status,
        "statusText": http::StatusCode::from_u16(response.status).ok().and_then(|status| status.canonical_reason()).unwrap_or(""),
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": write_headers(&response.headers, redactor),
        "content": { "size": size.saturating_add(response.left_out), "mimeType": content_type(&response.headers), "text": response.body },
        "redirectURL": "",
        "headersSize": -1,
        "bodySize": -1,
        "_chunks": chunks.len(),
    })
}

fn write_headers(headers: &[(String, String)], redactor: Redactor<'_>) -> Value {
    let kept = headers.iter().filter(|(name, _)| !is_credential(name));
    kept.map(|(name, value)| json!({ "name": name, "value": redactor.text(value) })).collect()
}

/// Whether a header or parameter of this name usually carries a credential.
fn is_credential(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let words = [
        "authorization",
        "cookie",
        "token",
        "secret",
        "password",
        "credential",
        "signature",
        "api-key",
        "api_key",
        "apikey",
    ];
    words.iter().any(|word| name.contains(word))
        || matches!(name.as_str(), "key" | "sig" | "x-goog-user-project")
}

fn clean_parameter(parameter: &str) -> (String, String) {
    let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
    let value = if is_credential(name) && !value.is_empty() { REMOVED } else { value };
    (name.to_owned(), value.to_owned())
}

fn content_type(headers: &[(String, String)]) -> &str {
    let header = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    header.map_or("application/octet-stream", |(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_credentials_are_known() {
        for name in
            ["Authorization", "x-api-key", "key", "Set-Cookie", "x-amz-security-token", "access_token", "sig"]
        {
            assert!(is_credential(name), "{name}");
        }
        for name in ["content-type", "anthropic-version", "user-agent", "alt"] {
            assert!(!is_credential(name), "{name}");
        }
        assert_eq!(clean_parameter("key=AIza"), ("key".into(), REMOVED.into()));
        assert_eq!(clean_parameter("alt=sse"), ("alt".into(), "sse".into()));
        assert_eq!(encode_url("https://a/b?c=[d] \"ä"), "https://a/b?c=%5Bd%5D%20%22%C3%A4");
    }
}
