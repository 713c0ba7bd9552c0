//! The methods of MCP in both protocol eras, over any service.

use serde_json::{Map, Value, json};

use crate::revision::{self, ProtocolEra, SERVER};
use crate::rpc::{INTERNAL_ERROR, INVALID_PARAMS, Params, RESOURCE_NOT_FOUND, Refusal};
use crate::service::{McpService, ServiceRequest};

/// How long clients may cache lists that never change while the server runs, in milliseconds.
const STATIC_LIST_TTL_MILLIS: u64 = 300_000;
/// The most values of a completion, set by the protocol.
const MAX_COMPLETION_VALUES: usize = 100;

/// Answers a request.
pub fn answer(service: &dyn McpService, method: &str, asked: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    if asked.era == ProtocolEra::Modern {
        revision::check(asked.params)?;
    }
    let result = match (method, asked.era) {
        ("initialize", ProtocolEra::Legacy) => introduce(service, asked),
        ("ping", ProtocolEra::Legacy) => Ok(json!({})),
        ("server/discover", ProtocolEra::Modern) => Ok(discover(service, asked)),
        ("tools/list", _) => single_page(asked.params, "tools", service.tools()),
        ("tools/call", _) => call(service, asked),
        ("resources/list", _) => service.resources(asked, cursor(asked.params)?),
        ("resources/templates/list", _) => {
            single_page(asked.params, "resourceTemplates", service.templates())
        }
        ("resources/read", _) => read(service, asked),
        ("prompts/list", _) => single_page(asked.params, "prompts", service.prompts()),
        ("prompts/get", _) => {
            service.prompt(asked, text(asked.params, "name")?, &object(asked.params, "arguments")?)
        }
        ("completion/complete", _) => complete(service, asked),
        _ => Err(Refusal::method(method)),
    }?;
    match (asked.era, result) {
        (ProtocolEra::Legacy, result) => Ok(result),
        (ProtocolEra::Modern, Value::Object(result)) => Ok(standing_for_itself(service, method, result)),
        (ProtocolEra::Modern, _) => Err(Refusal::new(INTERNAL_ERROR, "the answer is not an object")),
    }
}

/// The result of a self-contained request that has no fields besides those of `result`.
pub fn complete_result(service: &dyn McpService, result: Value) -> Value {
    match result {
        Value::Object(result) => standing_for_itself(service, "", result),
        other => other,
    }
}

/// Adds the fields that every result has in revisions where requests are self-contained.
fn standing_for_itself(service: &dyn McpService, method: &str, mut result: Map<String, Value>) -> Value {
    result.entry("resultType").or_insert_with(|| "complete".into());
    let meta = result.entry("_meta").or_insert_with(|| json!({}));
    if let Value::Object(meta) = meta {
        meta.insert(SERVER.to_owned(), service.about().document());
    }
    let keep = match method {
        "server/discover" | "tools/list" | "prompts/list" | "resources/templates/list" => {
            Some(STATIC_LIST_TTL_MILLIS)
        }
        // Clients want the latest steps of an agent, not those of five minutes ago.
        "resources/list" | "resources/read" => Some(0),
        _ => None,
    };
    if let Some(keep) = keep {
        result.entry("ttlMs").or_insert_with(|| keep.into());
        result.entry("cacheScope").or_insert_with(|| "private".into());
    }
    Value::Object(result)
}

fn capabilities(service: &dyn McpService, asked: &ServiceRequest<'_>) -> Value {
    let resources = match service.tells() && asked.pushes {
        true => json!({ "subscribe": true }),
        false => json!({}),
    };
    json!({ "tools": {}, "resources": resources, "prompts": {}, "completions": {} })
}

fn introduce(service: &dyn McpService, asked: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    let wanted = text(asked.params, "protocolVersion")?;
    let about = service.about();
    Ok(json!({
        "protocolVersion": revision::agreed(wanted),
        "capabilities": capabilities(service, asked),
        "serverInfo": about.document(),
        "instructions": about.instructions,
    }))
}

fn discover(service: &dyn McpService, asked: &ServiceRequest<'_>) -> Value {
    let about = service.about();
    json!({
        "supportedVersions": revision::all(),
        "capabilities": capabilities(service, asked),
        "instructions": about.instructions,
    })
}

fn single_page(params: &Params, name: &str, items: Vec<Value>) -> Result<Value, Refusal> {
    match cursor(params)? {
        None => Ok(json!({ name: items })),
        Some(_) => Err(Refusal::params("invalid cursor: this list has a single page")),
    }
}

fn call(service: &dyn McpService, asked: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    service.call(asked, text(asked.params, "name")?, object(asked.params, "arguments")?)
}

fn read(service: &dyn McpService, asked: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    let uri = text(asked.params, "uri")?;
    match service.read(asked, uri)? {
        Some(contents) => Ok(json!({ "contents": contents })),
        None => {
            let code = match asked.era {
                ProtocolEra::Legacy => RESOURCE_NOT_FOUND,
                ProtocolEra::Modern => INVALID_PARAMS,
            };
            let shown: String = uri.chars().take(200).collect();
            Err(Refusal::new(code, format!("resource {shown} not found")).with(json!({ "uri": shown })))
        }
    }
}

fn complete(service: &dyn McpService, asked: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    let reference = object(asked.params, "ref")?;
    let argument = object(asked.params, "argument")?;
    let mut values =
        service.complete(asked, &reference, text(&argument, "name")?, text(&argument, "value")?)?;
    let total = values.len();
    values.truncate(MAX_COMPLETION_VALUES);
    Ok(
        json!({ "completion": { "values": values, "total": total, "hasMore": total > MAX_COMPLETION_VALUES } }),
    )
}

fn text<'p>(params: &'p Params, name: &str) -> Result<&'p str, Refusal> {
    let text = params.get(name).and_then(Value::as_str);
    text.ok_or_else(|| Refusal::params(format!("\"{name}\" must be given, as a text")))
}

fn object(params: &Params, name: &str) -> Result<Map<String, Value>, Refusal> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => Err(Refusal::params(format!("\"{name}\" must be an object"))),
    }
}

fn cursor(params: &Params) -> Result<Option<&str>, Refusal> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(cursor)) => Ok(Some(cursor)),
        Some(_) => Err(Refusal::params("\"cursor\" must be a text")),
    }
}
