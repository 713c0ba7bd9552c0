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
pub fn handle_request(
    service: &dyn McpService,
    method: &str,
    request: &ServiceRequest<'_>,
) -> Result<Value, Refusal> {
    if request.era == ProtocolEra::Modern {
        revision::check_meta(request.params)?;
    }
    let result = match (method, request.era) {
        ("initialize", ProtocolEra::Legacy) => initialize(service, request),
        ("ping", ProtocolEra::Legacy) => Ok(json!({})),
        ("server/discover", ProtocolEra::Modern) => Ok(discover(service, request)),
        ("tools/list", _) => single_page_list(request.params, "tools", service.tools()),
        ("tools/call", _) => call_tool(service, request),
        ("resources/list", _) => service.resources(request, cursor_param(request.params)?),
        ("resources/templates/list", _) => {
            single_page_list(request.params, "resourceTemplates", service.templates())
        }
        ("resources/read", _) => read_resource(service, request),
        ("prompts/list", _) => single_page_list(request.params, "prompts", service.prompts()),
        ("prompts/get", _) => service.prompt(
            request,
            required_text(request.params, "name")?,
            &object_param(request.params, "arguments")?,
        ),
        ("completion/complete", _) => complete_argument(service, request),
        _ => Err(Refusal::unknown_method(method)),
    }?;
    match (request.era, result) {
        (ProtocolEra::Legacy, result) => Ok(result),
        (ProtocolEra::Modern, Value::Object(result)) => Ok(add_result_metadata(service, method, result)),
        (ProtocolEra::Modern, _) => Err(Refusal::new(INTERNAL_ERROR, "the answer is not an object")),
    }
}

/// The result of a self-contained request that has no fields besides those of `result`.
pub fn complete_result(service: &dyn McpService, result: Value) -> Value {
    match result {
        Value::Object(result) => add_result_metadata(service, "", result),
        other => other,
    }
}

/// Adds the fields that every result has in revisions where requests are self-contained.
fn add_result_metadata(service: &dyn McpService, method: &str, mut result: Map<String, Value>) -> Value {
    result.entry("resultType").or_insert_with(|| "complete".into());
    let meta = result.entry("_meta").or_insert_with(|| json!({}));
    if let Value::Object(meta) = meta {
        meta.insert(SERVER.to_owned(), service.about().to_json());
    }
    let cache_ms = match method {
        "server/discover" | "tools/list" | "prompts/list" | "resources/templates/list" => {
            Some(STATIC_LIST_TTL_MILLIS)
        }
        // Clients want the latest steps of an agent, not those of five minutes ago.
        "resources/list" | "resources/read" => Some(0),
        _ => None,
    };
    if let Some(cache_ms) = cache_ms {
        result.entry("ttlMs").or_insert_with(|| cache_ms.into());
        result.entry("cacheScope").or_insert_with(|| "private".into());
    }
    Value::Object(result)
}

fn capabilities(service: &dyn McpService, request: &ServiceRequest<'_>) -> Value {
    let resources = match service.can_subscribe() && request.can_push {
        true => json!({ "subscribe": true }),
        false => json!({}),
    };
    json!({ "tools": {}, "resources": resources, "prompts": {}, "completions": {} })
}

fn initialize(service: &dyn McpService, request: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    let requested_version = required_text(request.params, "protocolVersion")?;
    let info = service.about();
    Ok(json!({
        "protocolVersion": revision::negotiate_version(requested_version),
        "capabilities": capabilities(service, request),
        "serverInfo": info.to_json(),
        "instructions": info.instructions,
    }))
}

fn discover(service: &dyn McpService, request: &ServiceRequest<'_>) -> Value {
    let info = service.about();
    json!({
        "supportedVersions": revision::supported_versions(),
        "capabilities": capabilities(service, request),
        "instructions": info.instructions,
    })
}

fn single_page_list(params: &Params, name: &str, items: Vec<Value>) -> Result<Value, Refusal> {
    match cursor_param(params)? {
        None => Ok(json!({ name: items })),
        Some(_) => Err(Refusal::invalid_params("invalid cursor: this list has a single page")),
    }
}

fn call_tool(service: &dyn McpService, request: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    service.call(request, required_text(request.params, "name")?, object_param(request.params, "arguments")?)
}

fn read_resource(service: &dyn McpService, request: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    let uri = required_text(request.params, "uri")?;
    match service.read(request, uri)? {
        Some(contents) => Ok(json!({ "contents": contents })),
        None => {
            let code = match request.era {
                ProtocolEra::Legacy => RESOURCE_NOT_FOUND,
                ProtocolEra::Modern => INVALID_PARAMS,
            };
            let clipped: String = uri.chars().take(200).collect();
            Err(Refusal::new(code, format!("resource {clipped} not found"))
                .with_data(json!({ "uri": clipped })))
        }
    }
}

fn complete_argument(service: &dyn McpService, request: &ServiceRequest<'_>) -> Result<Value, Refusal> {
    let reference = object_param(request.params, "ref")?;
    let argument = object_param(request.params, "argument")?;
    let mut values = service.complete(
        request,
        &reference,
        required_text(&argument, "name")?,
        required_text(&argument, "value")?,
    )?;
    let total = values.len();
    values.truncate(MAX_COMPLETION_VALUES);
    Ok(
        json!({ "completion": { "values": values, "total": total, "hasMore": total > MAX_COMPLETION_VALUES } }),
    )
}

fn required_text<'p>(params: &'p Params, name: &str) -> Result<&'p str, Refusal> {
    let text = params.get(name).and_then(Value::as_str);
    text.ok_or_else(|| Refusal::invalid_params(format!("\"{name}\" must be given, as a text")))
}

fn object_param(params: &Params, name: &str) -> Result<Map<String, Value>, Refusal> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(object)) => Ok(object.clone()),
        Some(_) => Err(Refusal::invalid_params(format!("\"{name}\" must be an object"))),
    }
}

fn cursor_param(params: &Params) -> Result<Option<&str>, Refusal> {
    match params.get("cursor") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(cursor)) => Ok(Some(cursor)),
        Some(_) => Err(Refusal::invalid_params("\"cursor\" must be a text")),
    }
}
