//! The real OpenTelemetry SDK sends to the real server, over both of its protocols.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use stepback_testkit::python::python;

use crate::sandbox::{Ran, Sandbox};
use crate::serving::Serving;

impl Serving {
    /// Runs the agent that reports here.
    fn agent(&self, protocol: &str, session: &str, token: &str, more: &[(&str, &str)]) -> Ran {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/telemetry.py");
        let mut command = Command::new(python());
        command
            .arg(script)
            .args([protocol, session])
            .env_clear()
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url)
            .env("OTEL_EXPORTER_OTLP_INSECURE", "true")
            .env("OTEL_EXPORTER_OTLP_HEADERS", format!("{}=Bearer%20{token}", "authorization"))
            .env("OTEL_SERVICE_NAME", "weather-bot")
            .envs(more.iter().copied())
            .stdin(Stdio::null());
        command.output().unwrap().into()
    }

    /// The steps of a session, oldest first.
    fn steps(&self, session: &str) -> Vec<Value> {
        let steps = self.get(&format!("/sessions/{session}/steps?oldest_first=true&limit=1000"));
        steps["items"].as_array().unwrap().clone()
    }
}

/// What happened, in short.
fn story(steps: &[Value]) -> String {
    let line = |step: &Value| {
        let failed = if step["failed"] == true { " !" } else { "" };
        format!("{}{failed} {}", step["kind"].as_str().unwrap(), step["summary"].as_str().unwrap())
    };
    steps.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_real_sdk_tells_the_same_story_over_both_protocols() {
    let world = Sandbox::new();
    let server = Serving::start(&world, &[]);
    let gzip = [("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")];
    for (protocol, session, more) in [
        ("http", "by-http", &[][..]),
        ("http", "by-gzip", &gzip),
        ("grpc", "by-grpc", &[]),
        ("grpc", "by-grpc-gzip", &gzip),
    ] {
        server.agent(protocol, session, &server.token, more).exits(0);
        let steps = server.steps(session);
        insta::assert_snapshot!("the_story_of_the_sdk", story(&steps));
        let failed = steps.iter().find(|step| step["kind"] == "tool-end" && step["failed"] == true).unwrap();
        let detail = server.get(&format!("/sessions/{session}/steps/{}", failed["number"]));
        let error = &detail["error"];
        assert_eq!(error["name"], "LookupError", "{detail}");
        assert!(error["stack"].as_str().unwrap().contains("Traceback"), "{detail}");
    }
    let sessions = server.get("/sessions?agent=weather-bot");
    assert_eq!(sessions["items"].as_array().unwrap().len(), 4);
    assert_eq!(sessions["items"][0]["title"], "Weather in Parris?");
    drop(server);
    world.expect_sound("after telemetry");
}

#[test]
fn the_real_sdk_is_refused_without_the_token() {
    let world = Sandbox::new();
    let server = Serving::start(&world, &[]);
    for protocol in ["http", "grpc"] {
        let ran = server.agent(protocol, "stranger", "wrong", &[]).exits(1);
        let said = if protocol == "grpc" { "UNAUTHENTICATED" } else { "401" };
        assert!(ran.err.contains(said), "{protocol}: {}", ran.err);
    }
    assert_eq!(server.get("/sessions")["items"], Value::Array(Vec::new()));
}
