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
pub fn page(description: &Value) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>stepback: HTTP API</title>\
         <meta name=\"viewport\" content=\"width=device-width\"><style>{STYLE}</style></head><body>\n\
         <h1>stepback: HTTP API</h1>\n<p>{}</p>\n\
         <p>Every request carries <code>Authorization: Bearer TOKEN</code>. \
         The same for programs: <a href=\"openapi.json\">openapi.json</a>.</p>\n",
        text(&description["info"]["description"])
    );
    for tag in list(&description["tags"]) {
        page.push_str(&format!("<h2>{}</h2>\n<p>{}</p>\n", text(&tag["name"]), text(&tag["description"])));
        for (path, item) in fields(&description["paths"]) {
            for (method, operation) in fields(item) {
                if list(&operation["tags"]).contains(&tag["name"]) {
                    operation_of(&mut page, path, method, operation);
                }
            }
        }
    }
    page.push_str("<h2 id=\"documents\">Documents</h2>\n");
    for (name, schema) in fields(&description["components"]["schemas"]) {
        let name = escaped(name);
        page.push_str(&format!(
            "<details id=\"{name}\"><summary><code>{name}</code></summary><div><p>{}</p>",
            text(&schema["description"])
        ));
        members(&mut page, schema);
        page.push_str("</div></details>\n");
    }
    page.push_str("</body></html>\n");
    page
}

fn operation_of(page: &mut String, path: &str, method: &str, operation: &Value) {
    page.push_str(&format!(
        "<details><summary><b>{}</b> <code>{}</code> – {}</summary><div><p>{}</p>",
        escaped(method),
        escaped(path),
        text(&operation["summary"]),
        text(&operation["description"])
    ));
    let parameters = list(&operation["parameters"]);
    if !parameters.is_empty() {
        page.push_str("<table>");
        for parameter in parameters {
            page.push_str(&format!(
                "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
                text(&parameter["name"]),
                text(&parameter["in"]),
                text(&parameter["description"])
            ));
        }
        page.push_str("</table>");
    }
    for (_, content) in fields(&operation["requestBody"]["content"]) {
        page.push_str(&format!("<p>Body: {}</p>", kind(&content["schema"])));
    }
    for (status, response) in fields(&operation["responses"]) {
        for (content_type, content) in fields(&response["content"]) {
            let what = match content.get("schema") {
                Some(schema) => kind(schema),
                None => escaped(content_type),
            };
            page.push_str(&format!("<p>{}: {what}</p>", escaped(status)));
        }
    }
    page.push_str("</div></details>\n");
}

/// Renders the fields of an object, including those of its parts (`allOf`) and alternatives (`oneOf`, `anyOf`).
fn members(page: &mut String, schema: &Value) {
    page.push_str("<table>");
    for (name, field) in fields(&schema["properties"]) {
        page.push_str(&format!(
            "<tr><td><code>{}</code></td><td>{}</td><td>{}</td></tr>",
            escaped(name),
            kind(field),
            text(&field["description"])
        ));
    }
    page.push_str("</table>");
    for part in ["allOf", "oneOf", "anyOf"].iter().flat_map(|word| list(&schema[*word])) {
        match part.get("$ref") {
            Some(_) => page.push_str(&format!("<p>{}</p>", kind(part))),
            None => members(page, part),
        }
    }
}

/// The type of a schema, with a link if it has a name.
fn kind(schema: &Value) -> String {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = escaped(reference.rsplit('/').next().unwrap_or_default());
        return format!("<a href=\"#{name}\"><code>{name}</code></a>");
    }
    if let Some(items) = schema.get("items") {
        return format!("list of {}", kind(items));
    }
    let choices: Vec<String> =
        ["oneOf", "allOf", "anyOf"].iter().flat_map(|word| list(&schema[*word])).map(kind).collect();
    if !choices.is_empty() {
        return choices.join(" or ");
    }
    match &schema["type"] {
        Value::Array(types) => types.iter().map(text).collect::<Vec<_>>().join(" or "),
        other => text(other),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn fields(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn text(value: &Value) -> String {
    escaped(value.as_str().unwrap_or_default())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
