//! The API description as a page for people: plain HTML, generated once, without scripts or external resources.

use axum::http::{HeaderName, header};
use serde_json::Value;

/// The headers of the page, which needs its own style and nothing else.
pub const HEADERS: [(HeaderName, &str); 2] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    ),
];

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; font-size: .9em; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .3rem 0; }
summary b { display: inline-block; min-width: 4.5rem; text-transform: uppercase; font-size: .8em; }
details > div { margin: 0 0 1rem 1rem; padding-left: 1rem; border-left: 2px solid #8888; }
table { border-collapse: collapse; }
td, th { text-align: left; vertical-align: top; padding: .15rem .8rem .15rem 0; }
";

/// Renders the page of a description.
pub fn render_page(description: &Value) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>stepback: HTTP API</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>stepback: HTTP API</h1>\n<p>{}</p>\n\
         <p>Every request carries <code>Authorization: Bearer TOKEN</code>. \
         The same for programs: <a href=\"openapi.json\">openapi.json</a>.</p>\n",
        escape_value(&description["info"]["description"])
    );
    for tag in array_items(&description["tags"]) {
        page.push_str(&format!(
            "<h2>{}</h2>\n<p>{}</p>\n",
            escape_value(&tag["name"]),
            escape_value(&tag["description"])
        ));
        for (path, item) in object_entries(&description["paths"]) {
            for (method, operation) in object_entries(item) {
                if array_items(&operation["tags"]).contains(&tag["name"]) {
                    render_operation(&mut page, path, method, operation);
                }
            }
        }
    }
    page.push_str("<h2 id=\"documents\">Documents</h2>\n");
    for (name, schema) in object_entries(&description["components"]["schemas"]) {
        let name = escape_html(name);
        page.push_str(&format!(
            "<details id=\"{name}\"><summary><code>{name}</code></summary><div><p>{}</p>",
            escape_value(&schema["description"])
        ));
        render_fields(&mut page, schema);
        page.push_str("</div></details>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn render_operation(page: &mut String, path: &str, method: &str, operation: &Value) {
    page.push_str(&format!(
        "<details><summary><b>{}</b> <code>{}</code> – {}</summary><div><p>{}</p>",
        escape_html(method),
        escape_html(path),
        escape_value(&operation["summary"]),
        escape_value(&operation["description"])
    ));
    let parameters = array_items(&operation["parameters"]);
    if !parameters.is_empty() {
        page.push_str("<table>");
        for parameter in parameters {
            page.push_str(&format!(
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                escape_value(&parameter["name"]),
                escape_value(&parameter["in"]),
                escape_value(&parameter["description"])
            ));
        }
        page.push_str("</table>");
    }
    for (_, content) in object_entries(&operation["requestBody"]["content"]) {
        page.push_str(&format!("<p>Body: {}</p>", render_type(&content["schema"])));
    }
    for (status, response) in object_entries(&operation["responses"]) {
        for (content_type, content) in object_entries(&response["content"]) {
            let what = match content.get("schema") {
                Some(schema) => render_type(schema),
                None => escape_html(content_type),
            };
            page.push_str(&format!("<p>{}: {what}</p>", escape_html(status)));
        }
    }
    page.push_str("</div></details>\n");
}

/// Renders the fields of an object, including those of its parts (`allOf`) and alternatives (`oneOf`, `anyOf`).
fn render_fields(page: &mut String, schema: &Value) {
    page.push_str("<table>");
    for (name, field) in object_entries(&schema["properties"]) {
        page.push_str(&format!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            escape_html(name),
            render_type(field),
            escape_value(&field["description"])
        ));
    }
    page.push_str("</table>");
    for part in ["allOf", "oneOf", "anyOf"].iter().flat_map(|word| array_items(&schema[*word])) {
        match part.get("$ref") {
            Some(_) => page.push_str(&format!("<p>{}</p>", render_type(part))),
            None => render_fields(page, part),
        }
    }
}

/// The type of a schema, with a link if it has a name.
fn render_type(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escape_html(reference.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#{name}\"><code>{name}</code></a>");
    }
    if let Some(items) = schema.get("items") {
        return format!("list of {}", render_type(items));
    }
    let choices: Vec<String> = ["oneOf", "allOf", "anyOf"]
        .iter()
        .flat_map(|word| array_items(&schema[*word]))
        .map(render_type)
        .collect();
    if !choices.is_empty() {
        return choices.join(" or ");
    }
    match &schema["type"] {
        Value::Array(types) => types.iter().map(escape_value).collect::<Vec<_>>().join(" or "),
        other => escape_value(other),
    }
}

fn array_items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn object_entries(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn escape_value(value: &Value) -> String {
    escape_html(value.as_str().unwrap_or_default())
}

fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
