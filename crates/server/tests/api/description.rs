//! What the server says about itself.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::TestServer;

/// The committed description is that of the code. `STEPBACK_UPDATE_OPENAPI=1` writes it anew.
#[test]
fn the_committed_description_is_that_of_the_code() {
    let (_, description) = stepback_server::api::router();
    let document = serde_json::to_string_pretty(&description).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if std::env::var_os("STEPBACK_UPDATE_OPENAPI").is_some() {
        fs::write(&path, &document).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == document,
        "docs/openapi.json is out of date: run the tests of stepback-server with STEPBACK_UPDATE_OPENAPI=1"
    );
}

#[test]
fn every_operation_has_a_name_of_its_own_and_is_on_the_page() {
    let place = TestServer::new();
    let served = place.send_bare("GET", "/api/v1/openapi.json", "", b"").with(200);
    let page = place.send_bare("GET", "/api/v1/docs", "", b"");
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let page = String::from_utf8(page.body).unwrap();
    assert!(!page.contains("<script") && !page.contains("://"), "nothing from elsewhere");
    let mut names = HashSet::new();
    let mut count = 0;
    for (path, item) in served["paths"].as_object().unwrap() {
        assert!(path.starts_with("/api/v1/") && !path.contains('*'), "{path}");
        assert!(page.contains(&format!("<code>{path}</code>")), "{path}");
        for operation in item.as_object().unwrap().values() {
            count += 1;
            names.insert(operation["operationId"].as_str().unwrap().to_owned());
            assert_ne!(operation["responses"]["default"], Value::Null, "{path}");
        }
    }
    assert_eq!(names.len(), count);
    assert_eq!(page.matches("<summary><b>").count(), count, "each once");
    // Every reference leads somewhere.
    let text = served.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap();
        assert!(served.pointer(pointer).is_some(), "{pointer}");
    }
}

/// Every operation is asked with everything that does not fit, in each part of its address, its question and its body.
#[test]
fn nothing_that_is_asked_wrongly_is_the_servers_fault() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("one");
    place.call("s", "c1", "file", "2", false);
    let (workspace, long) = (place.workspace(), "x".repeat(3000));
    let odd = [
        "%ff",
        "..",
        "%2e%2e%2fx",
        "%00",
        "%0a",
        "-1",
        "18446744073709551616",
        "1e9",
        "%F0%9F%92%A9",
        "'",
        "%25",
        "{}",
        &long,
    ];
    let bodies = [
        "",
        "null",
        "[]",
        "0",
        "\"x\"",
        "{}",
        "{\"a\":1}",
        "{\"point\":null,\"last\":-1}",
        "{\"name\":null}",
        "\u{0}",
        "{\"answer\":[]}",
    ];
    let (_, description) = stepback_server::api::router();
    let description = serde_json::to_value(&description).unwrap();
    let mut asked = 0;
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            // Whoever follows is answered for as long as it stays.
            if operation["responses"]["200"]["content"]["text/event-stream"] != Value::Null {
                continue;
            }
            let method = method.to_uppercase();
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let named = |place: &str| -> Vec<String> {
                let there = parameters.iter().filter(|parameter| parameter["in"] == place);
                there.map(|parameter| parameter["name"].as_str().unwrap().to_owned()).collect()
            };
            // Everything fits but one part.
            let fitting = |except: Option<&str>, value: &str| {
                let mut target = path.clone();
                for name in named("path") {
                    let fits = match name.as_str() {
                        _ if Some(name.as_str()) == except => value,
                        "workspace" => workspace.as_str(),
                        "session" => "s",
                        "number" => "3",
                        "branch" => "main",
                        "point" => "one",
                        _ => "nothing",
                    };
                    target = target.replace(&format!("{{{name}}}"), fits);
                }
                target
            };
            let mut requests: Vec<(String, &str)> = Vec::new();
            for value in odd {
                requests.extend(named("path").iter().map(|name| (fitting(Some(name), value), "{}")));
                let questions = named("query");
                requests.extend(
                    questions.iter().map(|name| (format!("{}?{name}={value}", fitting(None, "")), "{}")),
                );
            }
            requests.extend(bodies.iter().map(|body| (fitting(None, ""), *body)));
            for (target, body) in requests {
                let reply =
                    place.send(&method, &target, "content-type: application/json\r\n", body.as_bytes());
                asked += 1;
                assert!(
                    reply.status < 500,
                    "{method} {target} {body}: {}",
                    String::from_utf8_lossy(&reply.body)
                );
                if reply.status >= 400 {
                    reply.problem(reply.status);
                }
            }
        }
    }
    assert!(asked > 1000, "{asked}");
    place.get("/workspaces").with(200);
}
