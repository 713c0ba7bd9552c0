//! `stepback profile`: where the time of a session went.

use std::fs;

use serde_json::Value;

use crate::sandbox::Sandbox;

/// What a command that fails says.
fn refusal(world: &Sandbox, arguments: &[&str]) -> String {
    let ran = world.run(arguments);
    assert!(ran.code.is_some_and(|code| code > 0), "{ran:?}");
    ran.err
}

/// A world in which the built-in agent ran two commands.
fn played() -> Sandbox {
    let world = Sandbox::new();
    let script = r#"{"turns": [
        {"text": "I look.", "calls": [{"tool": "bash", "input": {"command": "sleep 0.2; echo one"}}]},
        {"text": "Again.", "calls": [{"tool": "bash", "input": {"command": "exit 3"}}]},
        {"text": "Done."}]}"#;
    let file = world.home.join("script.json");
    fs::write(&file, script).unwrap();
    world.ok(["agent", "--provider", "scripted", file.to_str().unwrap(), "run two commands"]);
    world
}

#[test]
fn the_time_of_a_session_is_divided_among_categories() {
    let world = played();
    let profile = world.json(["profile"]);
    let us = |value: &Value| value.as_u64().unwrap();
    let categories = profile["categories"].as_array().unwrap();
    assert_eq!(
        categories.iter().map(|one| us(&one["us"])).sum::<u64>(),
        us(&profile["wall_us"]),
        "{profile:#}"
    );
    let bash = &profile["tools"][0];
    assert_eq!((&bash["name"], &bash["calls"], &bash["failed"]), (&"bash".into(), &2.into(), &1.into()));
    assert!(us(&bash["durations"]["max_us"]) >= 200_000, "{bash:#}");
    assert!(us(&bash["critical_us"]) >= 200_000, "{bash:#}");
    assert!(profile["models"][0]["calls"].as_u64() >= Some(3), "{:#}", profile["models"]);
    let spans = profile["spans"].as_array().unwrap();
    assert!(spans.iter().any(|span| span["name"] == "bash" && span["failed"] == true));

    let session = profile["session"].as_str().unwrap();
    let said = world.ok(["profile", &session[..8]]).out;
    for part in ["tools", "bash", "calls", "p95", "Critical path"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
}

#[test]
fn a_profile_is_written_for_other_viewers() {
    let world = played();
    let speedscope: Value =
        serde_json::from_str(&world.ok(["profile", "--format", "speedscope"]).out).unwrap();
    assert_eq!(speedscope["$schema"], "https://www.speedscope.app/file-format-schema.json");
    let said = world.ok(["profile", "--format", "chrome", "-o", "trace.json"]).out;
    assert!(said.contains("trace.json"), "{said}");
    let trace: Value = serde_json::from_slice(&fs::read(world.work.join("trace.json")).unwrap()).unwrap();
    assert!(trace["traceEvents"].as_array().unwrap().iter().any(|event| event["name"] == "bash"));
    world.ok(["profile", "--format", "html", "-o", "page.html"]);
    let page = fs::read_to_string(world.work.join("page.html")).unwrap();
    assert!(page.contains("Content-Security-Policy") && !page.contains("<script"), "{page}");
}

#[test]
fn what_cannot_be_profiled_says_why() {
    let world = Sandbox::new();
    world.ok(["checkpoint", "create"]);
    let said = refusal(&world, &["profile"]);
    assert!(said.contains("stepback init"), "{said}");
    let world = played();
    let said = refusal(&world, &["profile", "nothing-like-it"]);
    assert!(said.contains("nothing-like-it"), "{said}");
    let said = refusal(&world, &["profile", "--json", "--format", "html"]);
    assert!(said.contains("--json"), "{said}");
    let said = refusal(&world, &["profile", "-o", "no/such/directory/file"]);
    assert!(said.contains("no/such/directory/file"), "{said}");
}
