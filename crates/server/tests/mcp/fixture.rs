//! The tools, resources and prompts that the official suite expects of a server, over our protocol.
//!
//! stepback asks nothing of a client and sends no log messages, so fixtures for that are not here; the baselines name the scenarios.

use serde_json::{Map, Value, json};
use stepback_mcp::rpc::{MISSING_CAPABILITY, Refusal};
use stepback_mcp::service::{McpService, ServerInfo, ServiceRequest};

/// One red dot.
const IMAGE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8/5+hHgAHggJ/PchI7wAAAABJRU5ErkJggg==";
/// Silence.
const AUDIO: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA=";

/// What the suite expects.
pub struct Fixture;

fn tool(name: &str, description: &str, input: Value) -> Value {
    json!({ "name": name, "description": description, "inputSchema": input })
}

fn nothing() -> Value {
    json!({ "type": "object", "properties": {} })
}

fn text(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({ "type": "resource", "resource": { "uri": uri, "mimeType": kind, "text": text } })
}

fn content(parts: Vec<Value>) -> Result<Value, Refusal> {
    Ok(json!({ "content": parts }))
}

/// Every word of a schema must come through as it is.
fn schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": { "type": "string" }, "city": { "type": "string" } },
            },
        },
        "properties": {
            "name": { "type": "string" },
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": { "type": "string" },
            "email": { "type": "string" },
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}

impl McpService for Fixture {
    fn about(&self) -> ServerInfo {
        ServerInfo {
            name: "fixture",
            title: "Fixture",
            version: "1.0.0",
            instructions: "For the conformance suite",
        }
    }

    fn tools(&self) -> Vec<Value> {
        vec![
            tool("test_simple_text", "Says something", nothing()),
            tool("test_image_content", "Shows something", nothing()),
            tool("test_audio_content", "Plays something", nothing()),
            tool("test_embedded_resource", "Has a resource in it", nothing()),
            tool("test_multiple_content_types", "Has several things in it", nothing()),
            tool("test_error_handling", "Always fails", nothing()),
            tool("test_tool_with_progress", "Tells how far it is", nothing()),
            tool("test_missing_capability", "Needs a model of the client", nothing()),
            tool("test_streaming_elicitation", "Would ask the person", nothing()),
            tool("test_logging_tool", "Would write a log", nothing()),
            tool("json_schema_2020_12_tool", "Takes something complicated", schema()),
        ]
    }

    fn is_slow(&self, _: &str) -> bool {
        false
    }

    fn call(&self, asked: &ServiceRequest<'_>, tool: &str, _: Map<String, Value>) -> Result<Value, Refusal> {
        match tool {
            "test_simple_text" | "json_schema_2020_12_tool" => {
                content(vec![text("This is a simple text response for testing.")])
            }
            "test_image_content" => {
                content(vec![json!({ "type": "image", "data": IMAGE, "mimeType": "image/png" })])
            }
            "test_audio_content" => {
                content(vec![json!({ "type": "audio", "data": AUDIO, "mimeType": "audio/wav" })])
            }
            "test_embedded_resource" => content(vec![resource(
                "test://embedded-resource",
                "text/plain",
                "This is an embedded resource content.",
            )]),
            "test_multiple_content_types" => content(vec![
                text("Multiple content types test:"),
                json!({ "type": "image", "data": IMAGE, "mimeType": "image/png" }),
                resource(
                    "test://mixed-content-resource",
                    "application/json",
                    r#"{"test":"data","value":123}"#,
                ),
            ]),
            "test_error_handling" => Ok(json!({
                "content": [text("This tool intentionally returns an error for testing")],
                "isError": true,
            })),
            "test_tool_with_progress" => {
                for (done, word) in [(0, "Starting"), (50, "Halfway"), (100, "Complete")] {
                    asked.report_progress(done, 100, word);
                }
                content(vec![text("Done.")])
            }
            "test_missing_capability" => {
                let needed = json!({ "requiredCapabilities": { "sampling": {} } });
                Err(Refusal::new(MISSING_CAPABILITY, "This tool needs sampling").with_data(needed))
            }
            "test_streaming_elicitation" | "test_logging_tool" => {
                content(vec![text("Nothing to ask, nothing to log.")])
            }
            _ => Err(Refusal::invalid_params(format!("Unknown tool: {tool}"))),
        }
    }

    fn resources(&self, _: &ServiceRequest<'_>, _: Option<&str>) -> Result<Value, Refusal> {
        let resource =
            |uri: &str, name: &str, kind: &str| json!({ "uri": uri, "name": name, "mimeType": kind });
        Ok(json!({ "resources": [
            resource("test://static-text", "static-text", "text/plain"),
            resource("test://static-binary", "static-binary", "image/png"),
        ] }))
    }

    fn templates(&self) -> Vec<Value> {
        vec![
            json!({ "uriTemplate": "test://template/{id}/data", "name": "template", "mimeType": "application/json" }),
        ]
    }

    fn read(&self, _: &ServiceRequest<'_>, uri: &str) -> Result<Option<Value>, Refusal> {
        Ok(match uri {
            "test://static-text" => {
                let text = "This is the content of the static text resource.";
                Some(json!([{ "uri": uri, "mimeType": "text/plain", "text": text }]))
            }
            "test://static-binary" => Some(json!([{ "uri": uri, "mimeType": "image/png", "blob": IMAGE }])),
            _ => uri.strip_prefix("test://template/").and_then(|rest| rest.strip_suffix("/data")).map(|id| {
                let text = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
                json!([{ "uri": uri, "mimeType": "application/json", "text": text.to_string() }])
            }),
        })
    }

    fn can_subscribe(&self) -> bool {
        true
    }

    fn resource_version(&self, _: &ServiceRequest<'_>, uri: &str) -> Result<Option<String>, Refusal> {
        Ok((uri == "test://watched-resource").then(|| "always the same".to_owned()))
    }

    fn prompts(&self) -> Vec<Value> {
        let argument = |name: &str| json!({ "name": name, "description": name, "required": true });
        vec![
            json!({ "name": "test_simple_prompt", "description": "Says something" }),
            json!({
                "name": "test_prompt_with_arguments",
                "description": "Says what it is told",
                "arguments": [argument("arg1"), argument("arg2")],
            }),
            json!({
                "name": "test_prompt_with_embedded_resource",
                "description": "Has a resource in it",
                "arguments": [argument("resourceUri")],
            }),
            json!({ "name": "test_prompt_with_image", "description": "Shows something" }),
        ]
    }

    fn prompt(
        &self,
        _: &ServiceRequest<'_>,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Value, Refusal> {
        let said = |name: &str| arguments.get(name).and_then(Value::as_str).unwrap_or_default();
        let parts = match name {
            "test_simple_prompt" => vec![text("This is a simple prompt for testing.")],
            "test_prompt_with_arguments" => {
                let (one, two) = (said("arg1"), said("arg2"));
                vec![text(&format!("Prompt with arguments: arg1='{one}', arg2='{two}'"))]
            }
            "test_prompt_with_embedded_resource" => vec![
                resource(said("resourceUri"), "text/plain", "Embedded resource content for testing."),
                text("Please process the embedded resource above."),
            ],
            "test_prompt_with_image" => vec![
                json!({ "type": "image", "data": IMAGE, "mimeType": "image/png" }),
                text("Please analyze the image above."),
            ],
            _ => return Err(Refusal::invalid_params(format!("Unknown prompt: {name}"))),
        };
        let messages: Vec<Value> =
            parts.into_iter().map(|content| json!({ "role": "user", "content": content })).collect();
        Ok(json!({ "messages": messages }))
    }

    fn complete(
        &self,
        _: &ServiceRequest<'_>,
        _: &Map<String, Value>,
        _: &str,
        begins: &str,
    ) -> Result<Vec<String>, Refusal> {
        let all = ["paris", "park", "party", "test"].map(str::to_owned);
        Ok(all.into_iter().filter(|value| value.starts_with(begins)).collect())
    }
}
