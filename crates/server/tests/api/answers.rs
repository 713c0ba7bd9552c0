//! Answers about all that is recorded: where the time went, and everything at a glance.

use serde_json::{Value, json};

use crate::support::TestServer;

/// Two sessions with a call each; the second one failed.
fn recorded() -> TestServer {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("one", "c1", "a", "1", false);
    place.call("two", "c2", "b", "2", true);
    place
}

fn us(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

#[test]
fn a_profile_divides_the_time_of_a_session() {
    let place = recorded();
    let profile = place.get("/sessions/one/profile").with(200);
    let categories = profile["categories"].as_array().unwrap();
    let sum: u64 = categories.iter().map(|one| us(&one["us"])).sum();
    assert_eq!(sum, us(&profile["wall_us"]), "{profile:#}");
    assert_eq!((&profile["tools"][0]["name"], &profile["tools"][0]["calls"]), (&json!("Edit"), &json!(1)));
    assert_eq!(us(&profile["spans_total"]), profile["spans"].as_array().unwrap().len() as u64);
    let none = place.get("/sessions/one/profile?limit=0").with(200);
    assert_eq!((&none["spans"], &none["spans_left_out"]), (&json!([]), &profile["spans_total"]));
    for wrong in ["limit=20001", "from_us=2&until_us=1", "limit=x", "form_us=1"] {
        let problem = place.get(&format!("/sessions/one/profile?{wrong}"));
        assert!((400..500).contains(&problem.status), "{wrong}: {problem:?}");
    }
    place.get("/sessions/none/profile").problem(404);
}

#[test]
fn a_dashboard_adds_up_all_sessions_and_follows_them() {
    let place = recorded();
    let dashboard = place.get("/dashboard").with(200);
    assert_eq!(dashboard["sessions"], 2, "{dashboard:#}");
    let edit = &dashboard["tools"][0];
    assert_eq!((&edit["name"], &edit["calls"], &edit["failed"]), (&json!("Edit"), &json!(2), &json!(1)));
    assert_eq!(edit["error_rate"], 0.5);
    assert_eq!(edit["latency"]["count"], 2);
    assert_eq!(dashboard["branches"][0]["key"], "main");
    assert_eq!(dashboard["branches"][0]["sessions"], 2);
    assert_eq!(dashboard["days"][0]["tool_calls"], 2);
    assert!(us(&dashboard["disk"]["used_bytes"]) > 0);

    // The link of a row finds the steps that it counts.
    let link = edit["steps"].as_object().unwrap();
    let query: Vec<String> =
        (link.iter()).filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    let found = place.get(&format!("/steps?{}", query.join("&"))).with(200);
    assert_eq!(found["total"], edit["calls"], "{query:?}");

    // From what was kept, and with what came since.
    assert_eq!(place.get("/dashboard").with(200)["tools"], dashboard["tools"]);
    place.call("two", "c3", "b", "3", false);
    place.call("three", "c4", "b", "4", false);
    let later = place.get("/dashboard").with(200);
    assert_eq!((&later["sessions"], &later["tools"][0]["calls"]), (&json!(3), &json!(4)), "{later:#}");
    let here = place.get(&format!("/dashboard?workspace={}", place.workspace())).with(200);
    assert_eq!(here["tools"][0]["calls"], 4);
    let recent = place.get("/dashboard?since=1%20minute%20ago").with(200);
    assert!(recent["since"].as_str().unwrap().ends_with(":00:00Z"), "the full hour counts: {recent:#}");
    assert_eq!(recent["tools"][0]["calls"], 4);
    for wrong in ["since=whenever", "since=2099-01-01", "workspace=none", "reruns=perhaps", "sinse=now"] {
        let status = place.get(&format!("/dashboard?{wrong}")).status;
        assert!((400..500).contains(&status), "{wrong}: {status}");
    }
}

#[test]
fn a_lost_or_foreign_summary_is_read_again() {
    let place = recorded();
    let dashboard = place.get("/dashboard").with(200);
    let engine = place.engine();
    let local = engine.store().local_dir().unwrap().join("workspaces");
    let workspace = std::fs::read_dir(local).unwrap().next().unwrap().unwrap().path();
    let file = workspace.join("facts/summaries");
    let bytes = std::fs::read(&file).unwrap();
    let mut damaged = bytes.clone();
    damaged[60] ^= 1;
    for content in [&damaged[..], &bytes[..bytes.len() / 2], b"", b"stbsums9"] {
        std::fs::write(&file, content).unwrap();
        let again = place.get("/dashboard").with(200);
        assert_eq!((&again["tools"], &again["total"]), (&dashboard["tools"], &dashboard["total"]));
        assert_eq!(std::fs::read(&file).unwrap().len(), bytes.len(), "it is kept again");
    }
    // Another price table makes other costs.
    std::fs::write(engine.store().local_dir().unwrap().join("prices.json"), "[]").unwrap();
    assert!((400..600).contains(&place.get("/dashboard").status));
}
