//! What the server says about itself.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::Place;

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
    let place = Place::new();
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
