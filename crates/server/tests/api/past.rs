//! What happened, and what was true then.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::support::TestServer;

fn items(page: &Value) -> &Vec<Value> {
    page["items"].as_array().unwrap()
}

#[test]
fn a_timeline_tells_what_a_session_did_and_what_was_left_behind() {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("s", "c1", "one", "1", false);
    place.call("s", "c2", "two", "2", true);
    let timeline = place.get("/sessions/s/timeline").with(200);
    let summary = &timeline["summary"];
    assert_eq!((&summary["steps"], &summary["errors"]), (&json!(4), &json!(1)));
    assert_eq!(summary["kinds"], json!({ "tool-start": 2, "tool-end": 2 }));
    assert_eq!(summary["tools"], json!({ "Edit": 2 }));
    assert!(summary["duration_us"].as_u64().unwrap() > 0);
    assert_eq!(timeline["lanes"], json!([{ "branch": "main", "worker": null, "steps": 4, "errors": 1 }]));
    assert_eq!(timeline["branches"][0]["name"], "main");
    assert!(items(&timeline).iter().all(|step| step["rolled_back"] == false));
    assert_eq!(items(&timeline).last().unwrap()["branches"], json!(["main"]));
    // Page by page it is the same.
    let first = place.get("/sessions/s/timeline?limit=3").with(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = place.get(&format!("/sessions/s/timeline?limit=3&after={cursor}")).with(200);
    let pages: Vec<Value> = items(&first).iter().chain(items(&rest)).cloned().collect();
    assert_eq!(&pages, items(&timeline));
    assert_eq!(rest["next_cursor"], Value::Null);
    // A rewind to before it leaves it behind.
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let target = place.engine().store.step_numbered(workspace.record.id, 1).unwrap();
    let request = stepback_engine::rewind::RewindRequest { target, everything: true, ..Default::default() };
    workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap()).unwrap();
    let timeline = place.get("/sessions/s/timeline").with(200);
    assert!(items(&timeline).iter().any(|step| step["rolled_back"] == true), "{timeline}");
}

#[test]
fn marks_are_the_timeline_in_columns() {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("s", "c1", "one", "1", false);
    place.call("s", "c2", "two", "2", true);
    let timeline = place.get("/sessions/s/timeline").with(200);
    let marks = place.get("/sessions/s/marks").with(200);
    for same in ["summary", "lanes", "branches", "session"] {
        assert_eq!(marks[same], timeline[same], "{same}");
    }
    let column = |name: &str| -> Vec<u64> {
        marks[name].as_array().unwrap().iter().map(|value| value.as_u64().unwrap()).collect()
    };
    let name = |names: &str, place: u64| marks[names][usize::try_from(place).unwrap()].clone();
    let (mut number, mut at) = (0, 0);
    for (i, step) in items(&timeline).iter().enumerate() {
        number += column("number")[i];
        at += column("at_us")[i];
        assert_eq!((&step["number"], &step["since_start_us"]), (&json!(number), &json!(at)));
        assert_eq!(step["kind"], name("kinds", column("kind")[i]));
        assert_eq!(step["tool"], name("tools", column("tool")[i] - 1));
        assert_eq!(step["lane"], json!(column("lane")[i]));
        assert_eq!(step["checkpoint"], json!(column("flags")[i] & 2 != 0));
        assert_eq!(step["failed"], json!(column("flags")[i] & 1 != 0));
    }
    assert_eq!(column("flags").len(), items(&timeline).len());
    // After a rewind, what is left behind is marked.
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let target = engine.store.step_numbered(workspace.record.id, 1).unwrap();
    let request = stepback_engine::rewind::RewindRequest { target, everything: true, ..Default::default() };
    workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap()).unwrap();
    let marks = place.get("/sessions/s/marks").with(200);
    assert!(
        marks["flags"].as_array().unwrap().iter().any(|flags| flags.as_u64().unwrap() & 4 != 0),
        "{marks}"
    );
    place.get("/sessions/nobody/marks").problem(404);
}

#[test]
fn each_branch_has_a_lane_and_says_where_it_left_another() {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("s", "c1", "one", "1", false);
    let (engine, ask) =
        (place.engine(), |method: &str, path: &str, body: &Value| place.ask(method, path, Some(body)).json());
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let newest = || workspace.head().unwrap().step.number;
    let parting = newest();
    let base = format!("/workspaces/{}", place.workspace());
    ask("POST", &format!("{base}/branches"), &json!({ "name": "other" }));
    place.call("s", "c2", "two", "2", false);
    let left = newest();
    let switch = |name: &str| {
        let prepared = workspace.prepare_switch(name).unwrap();
        workspace.switch(name, prepared).unwrap();
    };
    switch("other");
    place.call("s", "c3", "three", "3", true);
    let on_other = newest();
    // Back on main, and rewound there: what c2 did is left behind.
    switch("main");
    let target = engine.store.step_numbered(workspace.record.id, parting).unwrap();
    let request = stepback_engine::rewind::RewindRequest { target, everything: true, ..Default::default() };
    workspace.apply_rewind(workspace.prepare_rewind(&request).unwrap()).unwrap();
    place.call("s", "c4", "four", "4", false);

    let branches = place.get(&format!("{base}/branches")).with(200);
    let branch = |name: &str| items(&branches).iter().find(|one| one["name"] == name).unwrap();
    assert_eq!((&branch("main")["from"], &branch("main")["present"]), (&Value::Null, &json!(true)));
    assert_eq!(branch("other")["from"], json!({ "branch": "main", "number": parting }));
    assert!(branch("other")["own"].as_u64().unwrap() >= 2, "{branches}");

    let marks = place.get("/sessions/s/marks").with(200);
    let lanes: Vec<(&Value, &Value)> =
        marks["lanes"].as_array().unwrap().iter().map(|lane| (&lane["branch"], &lane["steps"])).collect();
    assert_eq!(lanes, [(&json!("main"), &json!(6)), (&json!("other"), &json!(2))]);
    // The switch is a step of whoever asked for it; where the agent's line parts is found behind it.
    let forks: Vec<(u64, u64)> = marks["forks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fork| (fork["from"].as_u64().unwrap(), fork["to"].as_u64().unwrap()))
        .collect();
    assert!(forks.iter().any(|(from, to)| *from == parting && *to <= on_other && *to > left), "{forks:?}");

    let lines = place.get("/sessions/s/lines").with(200);
    let stretches: Vec<(&str, bool)> = (lines["stretches"].as_array().unwrap().iter())
        .map(|one| (one["branch"].as_str().unwrap(), one["rolled_back"].as_bool().unwrap()))
        .collect();
    assert_eq!(stretches, [("main", false), ("main", true), ("other", false), ("main", false)], "{lines}");
    // The three tell the same.
    let timeline = place.get("/sessions/s/timeline").with(200);
    for step in items(&timeline) {
        let number = step["number"].as_u64().unwrap();
        let of = |one: &&Value| {
            one["first"].as_u64().unwrap() <= number && number <= one["last"].as_u64().unwrap()
        };
        let stretch = lines["stretches"].as_array().unwrap().iter().find(of).unwrap();
        assert_eq!(stretch["rolled_back"], step["rolled_back"], "#{number}");
        let lane = usize::try_from(step["lane"].as_u64().unwrap()).unwrap();
        assert_eq!(stretch["branch"], timeline["lanes"][lane]["branch"], "#{number}");
    }
    place.get("/sessions/nobody/lines").problem(404);
}

#[test]
fn sessions_are_listed_with_counts() {
    let place = TestServer::new();
    place.call("s", "c1", "one", "1", false);
    place.call("s", "c2", "two", "2", true);
    let plain = place.get("/sessions").with(200);
    assert!(items(&plain)[0].get("steps").is_none());
    let counted = place.get("/sessions?counts=true").with(200);
    let session = items(&counted).iter().find(|one| one["agent_session"] == "s").unwrap();
    assert_eq!((&session["steps"], &session["errors"]), (&json!(4), &json!(1)));
    let alone = place.get("/sessions/s").with(200);
    assert_eq!((&alone["steps"], &alone["errors"]), (&json!(4), &json!(1)));
}

#[test]
fn what_people_did_is_no_session_of_an_agent() {
    let place = TestServer::new();
    place.checkpoint("by hand");
    place.call("s", "c1", "one", "1", false);
    let agents = |query: &str| -> Vec<String> {
        let page = place.get(&format!("/sessions{query}")).with(200);
        assert_eq!(page["total"], json!(items(&page).len()));
        items(&page).iter().map(|session| session["agent"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(agents(""), ["test"]);
    assert_eq!(agents("?has_error=false"), ["test"]);
    assert_eq!(agents("?agent=person"), ["person"]);
    assert_eq!(place.get("/statistics").with(200)["total_sessions"], 1);
}

#[test]
fn sessions_are_filtered_by_errors_and_counted_on_each_page() {
    let place = TestServer::new();
    place.call("fine", "c1", "one", "1", false);
    place.call("broken", "c2", "two", "2", true);
    place.call("fine too", "c3", "three", "3", false);
    let names = |query: &str| -> (Vec<String>, u64) {
        let page = place.get(&format!("/sessions?agent=test&{query}")).with(200);
        let name = |session: &Value| session["agent_session"].as_str().unwrap().to_owned();
        (items(&page).iter().map(name).collect(), page["total"].as_u64().unwrap())
    };
    assert_eq!(names("has_error=true"), (vec!["broken".to_owned()], 1));
    assert_eq!(names("has_error=false"), (vec!["fine too".to_owned(), "fine".to_owned()], 2));
    assert_eq!(names("limit=1").1, 3, "the total is that of all pages");
    let first = place.get("/sessions?agent=test&has_error=false&limit=1").with(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    let (second, total) = names(&format!("has_error=false&limit=1&after={cursor}"));
    assert_eq!((second, total), (vec!["fine".to_owned()], 2));
    place.get("/sessions?has_error=perhaps").problem(400);
}

#[test]
fn a_step_says_where_it_is_in_its_session() {
    let place = TestServer::new();
    place.call("other", "c0", "file", "0", false);
    for call in 1..3 {
        place.call("s1", &format!("c{call}"), "file", &call.to_string(), false);
        place.call("other", &format!("o{call}"), "file", &call.to_string(), false);
    }
    let page = place.get("/sessions/s1/steps?oldest_first=true").with(200);
    let numbers: Vec<u64> = items(&page).iter().map(|step| step["number"].as_u64().unwrap()).collect();
    let total = numbers.len() as u64;
    let mut number = numbers[0];
    for position in 1..=total {
        let step = place.get(&format!("/sessions/s1/steps/{number}")).with(200);
        let expected = json!([position, total, position < total, position > 1]);
        let found = json!([step["position"], step["total"], step["can_forward"], step["can_backward"]]);
        assert_eq!(found, expected, "{step:#}");
        let next = place.get(&format!("/sessions/s1/steps/{number}/next"));
        if step["can_forward"] == true {
            let next = next.with(200);
            assert_eq!(next["position"], position + 1);
            number = next["number"].as_u64().unwrap();
        } else {
            next.problem(404);
        }
    }
    let back = place.get(&format!("/sessions/s1/steps/{number}/previous")).with(200);
    assert_eq!((&back["position"], &back["can_forward"]), (&json!(total - 1), &json!(true)));
}

#[test]
fn the_files_of_a_step_are_listed_and_read_as_they_were_then() {
    let place = TestServer::new();
    place.write("src/deep/old.rs", "fn old() {}\n");
    place.write("binary", "a\0b");
    fs::write(place.root.join(OsStr::from_bytes(b"odd \xff%name")), "odd").unwrap();
    std::os::unix::fs::symlink("src", place.root.join("link")).unwrap();
    place.call("s", "c1", "README", "then\n", false);
    let steps = place.get("/sessions/s/steps?kind=tool-end").with(200);
    let number = steps["items"][0]["number"].as_u64().unwrap();
    place.write("README", "now\n");
    let at = format!("/sessions/s/steps/{number}/state");
    let state = place.get(&at).with(200);
    let paths: Vec<&str> = items(&state).iter().map(|file| file["path"].as_str().unwrap()).collect();
    assert_eq!(paths, ["README", "binary", "link", "odd \\xff%name", "src", "src/deep", "src/deep/old.rs"]);
    assert!(state["slots"]["files"].is_string());
    assert_eq!(state["slots"]["memory"], Value::Null);
    // The same in pages of one.
    let mut paged = Vec::new();
    let mut next = String::new();
    loop {
        let page = place.get(&format!("{at}?limit=1{next}")).with(200);
        paged.extend(items(&page).iter().map(|file| file["path"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(cursor) => next = format!("&after={cursor}"),
            None => break,
        }
    }
    assert_eq!(paged, paths);
    let below = place.get(&format!("{at}?path=src/deep")).with(200);
    assert_eq!(items(&below).len(), 2);
    place.get(&format!("{at}?path=nothing")).problem(404);
    for wrong in ["..", "src/../..", "/etc", "a//b", "a%00b", "."] {
        place.get(&format!("{at}?path={wrong}")).problem(400);
    }
    // Every listed file can be read by its address.
    for file in items(&state).iter().filter(|file| file["type"] == "file") {
        let reply = place.get(&format!("{at}/files/{}", file["address"].as_str().unwrap()));
        assert_eq!(reply.status, 200, "{file}");
        assert_eq!(reply.header("etag"), Some(format!("\"{}\"", file["hash"].as_str().unwrap()).as_str()));
    }
    let readme = place.get(&format!("{at}/files/README"));
    assert_eq!(readme.body, b"then\n");
    assert_eq!(readme.header("content-type"), Some("text/plain; charset=utf-8"));
    assert_eq!(
        place.get(&format!("{at}/files/binary")).header("content-type"),
        Some("application/octet-stream")
    );
    assert_eq!(place.get(&format!("{at}/files/link")).body, b"src");
    let tag = readme.header("etag").unwrap();
    let target = format!("/api/v1{at}/files/README");
    let again = place.send("GET", &target, &format!("if-none-match: \"x\", {tag}\r\n"), b"");
    assert_eq!((again.status, again.body.len()), (304, 0));
    assert_eq!(place.send("GET", &target, "if-none-match: \"x\"\r\n", b"").status, 200);
    for (wrong, status) in [
        ("nothing", 404),
        ("src", 404),
        ("..", 400),
        ("src/../../x", 400),
        ("%zz", 400),
        ("%00", 400),
        ("a//b", 400),
    ] {
        place.get(&format!("{at}/files/{wrong}")).problem(status);
    }
    place.get("/sessions/s/steps/x/state/files/README").problem(400);
    place.get("/sessions/%ff/steps/1/state/files/README").problem(400);
    place.get("/sessions/s/steps/999/state/files/README").problem(404);
    for part in ["memory", "task", "env"] {
        assert_eq!(place.get(&format!("{at}/{part}")).with(200), Value::Null);
    }
    assert_eq!(items(&place.get(&format!("{at}/conversation")).with(200)).len(), 0);
}

#[test]
fn a_point_names_a_step_or_says_why_not() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("first one");
    place.call("s", "c1", "file", "2", true);
    let points = format!("/workspaces/{}/points", place.workspace());
    let number = |point: &str| place.get(&format!("{points}/{point}")).with(200)["number"].clone();
    assert_eq!(number("%231"), 1);
    assert_eq!(number("first%20one"), 1);
    assert_eq!(number("error:last"), 3);
    assert_eq!(number("%40"), 3);
    for (wrong, status) in [("%2399", 404), ("nonsense", 404), ("%ff", 400), ("%23%23", 404)] {
        place.get(&format!("{points}/{wrong}")).problem(status);
    }
    place.get(&format!("{points}/{}", "x".repeat(5000))).problem(400);
}

#[test]
fn checkpoints_are_made_described_compared_and_hidden() {
    let place = TestServer::new();
    place.write("file", "1\n2\n3\n");
    place.checkpoint("begun");
    let list = format!("/workspaces/{}/checkpoints", place.workspace());
    let made = place.post(&list, &json!({ "label": "first", "note": "a note", "tags": ["t"] }));
    let first = made.with(201);
    let own = format!("/checkpoints/{}", first["id"].as_str().unwrap());
    assert_eq!(made.header("location"), Some(format!("/api/v1{own}").as_str()));
    place.write("file", "1\ntwo\n3\n");
    place.write("new", "x");
    let second = place.post(&list, &json!({})).with(201);
    assert_eq!(second["files_read"], 2);
    assert_eq!(items(&place.get(&format!("{list}?tag=t")).with(200)).len(), 1);
    assert_eq!(items(&place.get(&format!("{list}?find=NOTE")).with(200)).len(), 1);
    assert_eq!(items(&place.get(&format!("{list}?trigger=manual")).with(200)).len(), 3);
    place.get(&format!("{list}?trigger=x")).problem(400);

    let between = place.get(&format!("{own}/diff/{}?text=true", second["id"].as_str().unwrap())).with(200);
    assert_eq!(items(&between).len(), 2);
    assert_eq!(between["items"][0]["kind"], "modified");
    assert_eq!(between["items"][0]["text"], "--- a/file\n+++ b/file\n@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n");
    assert_eq!(between["items"][1]["kind"], "created");
    fs::remove_file(place.root.join("new")).unwrap();
    let now = place.get(&format!("{own}/diff")).with(200);
    assert_eq!(items(&now).len(), 1);
    assert_eq!((&now["to"], &now["items"][0].get("text")), (&Value::Null, &None));
    assert_eq!(items(&place.get(&format!("{own}/diff?path=new")).with(200)).len(), 0);
    place.get(&format!("{own}/diff?path=../x")).problem(400);
    place.get(&format!("{own}/diff?text=maybe")).problem(400);
    place.get(&format!("{own}/diff/nothing")).problem(404);

    let changed = place.ask("PATCH", &own, Some(&json!({ "label": "renamed", "note": null }))).with(200);
    assert_eq!(
        (&changed["label"], &changed["note"], &changed["tags"]),
        (&json!("renamed"), &Value::Null, &json!(["t"]))
    );
    assert_eq!(changed["operation"]["kind"], "checkpoint-annotate");
    // PUT replaces all of it, PATCH only what it names.
    let replaced = place.ask("PUT", &own, Some(&json!({ "note": "only this" }))).with(200);
    assert_eq!(
        (&replaced["label"], &replaced["note"], &replaced["tags"]),
        (&Value::Null, &json!("only this"), &json!([]))
    );
    assert_eq!(replaced["operation"]["kind"], "checkpoint-annotate");
    place.ask("PUT", "/checkpoints/zz", Some(&json!({ "label": "x" }))).problem(404);
    for wrong in [
        json!({ "label": "" }),
        json!({ "label": 1 }),
        json!({ "tags": "t" }),
        json!({ "other": 1 }),
        json!([]),
    ] {
        place.ask("PATCH", &own, Some(&wrong)).problem(400);
        place.ask("PUT", &own, Some(&wrong)).problem(400);
        place.post(&list, &wrong).problem(400);
    }
    place.post(&list, &json!({ "label": "x".repeat(1000) })).problem(400);
    place.post(&list, &json!({ "tags": vec!["t"; 1000] })).problem(400);
    assert_eq!(place.ask("DELETE", &own, None).with(200)["kind"], "checkpoint-delete");
    place.get(&own).problem(404);
    place.get("/checkpoints/zz").problem(404);
}

#[test]
fn bodies_that_do_not_fit_are_refused() {
    let place = TestServer::new();
    place.checkpoint("one");
    let target = format!("/api/v1/workspaces/{}/checkpoints", place.workspace());
    let json = "content-type: application/json\r\n";
    place.send("POST", &target, "", b"{}").problem(415);
    place.send("POST", &target, json, b"").problem(400);
    place.send("POST", &target, json, b"{").problem(400);
    place.send("POST", &target, json, b"\xff").problem(400);
    let deep = format!("{{\"tags\":{}1{}}}", "[".repeat(50_000), "]".repeat(50_000));
    place.send("POST", &target, json, deep.as_bytes()).problem(400);
    let large = format!("{{\"note\":\"{}\"}}", "x".repeat(9 << 20));
    place.send("POST", &target, json, large.as_bytes()).problem(413);
}

#[test]
fn what_had_been_said_by_a_step_is_read_in_the_words_of_all_agents() {
    let place = TestServer::new();
    let hello = r#"{"role":"user","content":"hello"}"#;
    let answer = r#"{"role":"assistant","content":[{"type":"text","text":"good day"}]}"#;
    place.said("stepback", "ours", &[hello]);
    place.said("stepback", "ours", &[hello, answer]);
    let steps = place.get("/sessions/ours/steps?oldest_first=true").with(200);
    let at =
        |step: usize| format!("/sessions/ours/steps/{}/state/conversation", steps["items"][step]["number"]);
    assert_eq!(items(&place.get(&at(0)).with(200)).len(), 1, "what came later was not said yet");
    let said = place.get(&at(1)).with(200);
    let told = |message: &Value| (message["role"].clone(), message["text"].clone());
    let messages: Vec<_> = items(&said).iter().map(told).collect();
    assert_eq!(messages, [(json!("user"), json!("hello")), (json!("assistant"), json!("good day"))]);
    let page = place.get(&format!("{}?limit=1", at(1))).with(200);
    let cursor = page["next_cursor"].as_str().unwrap();
    let rest = place.get(&format!("{}?limit=1&after={cursor}", at(1))).with(200);
    assert_eq!((&rest["items"][0]["number"], &rest["next_cursor"]), (&json!(2), &Value::Null));
    place.get(&format!("{}?after={cursor}", at(0))).problem(400);
    // An agent whose words nobody knows is shown as it wrote.
    place.said("stranger", "theirs", &["not even JSON"]);
    let steps = place.get("/sessions/theirs/steps").with(200);
    let said =
        place.get(&format!("/sessions/theirs/steps/{}/state/conversation", steps["items"][0]["number"]));
    assert_eq!(said.with(200)["items"][0]["text"], "not even JSON");
}

#[test]
fn steps_are_listed_on_either_side_of_a_number() {
    let place = TestServer::new();
    for call in 0..4 {
        place.call("s1", &format!("c{call}"), "file", &call.to_string(), false);
    }
    let numbers = |query: &str| -> Vec<u64> {
        let page = place.get(&format!("/sessions/s1/steps?{query}")).with(200);
        items(&page).iter().map(|step| step["number"].as_u64().unwrap()).collect()
    };
    let all = numbers("oldest_first=true");
    let middle = all[3];
    assert_eq!(numbers(&format!("above={middle}&oldest_first=true")), all[4..]);
    let before: Vec<u64> = all[..3].iter().rev().copied().collect();
    assert_eq!(numbers(&format!("below={middle}")), before);
    assert_eq!(numbers(&format!("above={}&below={middle}&oldest_first=true", all[0])), all[1..3]);
    // Pages go on within them.
    let first = place.get(&format!("/sessions/s1/steps?below={middle}&limit=2")).with(200);
    let cursor = first["next_cursor"].as_str().unwrap();
    assert_eq!(numbers(&format!("below={middle}&limit=2&after={cursor}")), before[2..]);
    assert_eq!(numbers(&format!("above={}", u64::MAX >> 1)), Vec::<u64>::new());
}

#[test]
fn a_checkpoint_made_by_hand_is_in_the_timeline_of_a_session_with_the_state_of_that_session() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("too early");
    place.call("s", "c1", "file", "2", false);
    place.remember("s", json!({ "who": "s" }), json!([]));
    place.call("t", "c1", "other", "2", false);
    place.remember("t", json!({ "who": "t" }), json!([]));
    let number = place.checkpoint("by hand");
    place.call("s", "c2", "file", "3", false);
    for session in ["s", "t"] {
        let timeline = place.get(&format!("/sessions/{session}/timeline")).with(200);
        let labels: Vec<&Value> =
            items(&timeline).iter().map(|step| &step["label"]).filter(|label| !label.is_null()).collect();
        assert_eq!(labels, ["by hand"], "{session}");
        let marks = place.get(&format!("/sessions/{session}/marks")).with(200);
        assert_eq!(marks["summary"], timeline["summary"]);
        let list = |query: &str| {
            let page = place.get(&format!("/sessions/{session}/steps?limit=2{query}")).with(200);
            let numbers = items(&page).iter().map(|step| step["number"].as_u64().unwrap());
            (numbers.collect::<Vec<_>>(), page["next_cursor"].as_str().map(str::to_owned))
        };
        let (mut numbers, mut cursor) = list("&manual=true");
        while let Some(next) = cursor {
            let (more, after) = list(&format!("&manual=true&after={next}"));
            numbers.extend(more);
            cursor = after;
        }
        let expected: Vec<u64> =
            items(&timeline).iter().rev().map(|step| step["number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, expected, "page by page");
        assert!(!list("&kind=checkpoint").0.contains(&number));
        assert_eq!(list("&kind=checkpoint&manual=true").0, [number]);
        let here = format!("/sessions/{session}/steps/{number}");
        assert_eq!(place.get(&here).with(200)["label"], "by hand");
        assert_eq!(place.get(&format!("{here}/state/memory")).with(200), json!({ "who": session }));
        let state = place.get(&format!("{here}/state")).with(200);
        assert_eq!(items(&json!({ "items": state["sessions"] })).len(), 2, "{state:#}");
        assert!(state["size_bytes"].as_u64().unwrap() > 0);
    }
}

#[test]
fn the_checkpoints_of_a_session_have_files_git_size_and_a_place_in_the_conversation() {
    let place = TestServer::new();
    place.write("kept", "12345");
    place.checkpoint("before it began");
    place.call("s", "c1", "one", "1", false);
    place.said("test", "s", &["{\"role\":\"user\",\"content\":\"hello\"}"]);
    let number = place.checkpoint("by hand");
    place.call("s", "c2", "one", "22", false);
    place.call("other", "c3", "two", "333", false);
    let page = place.get("/sessions/s/checkpoints").with(200);
    let listed = items(&page);
    assert_eq!(page["total"], json!(listed.len()));
    let label = |checkpoint: &Value| checkpoint["label"].as_str().unwrap_or_default().to_owned();
    let labels: Vec<String> = listed.iter().map(label).collect();
    assert!(labels.contains(&"by hand".to_owned()), "{page:#}");
    assert!(!labels.contains(&"before it began".to_owned()), "{page:#}");
    let by_hand = listed.iter().find(|checkpoint| label(checkpoint) == "by hand").unwrap();
    assert_eq!((&by_hand["files"], &by_hand["size_bytes"]), (&json!(2), &json!(6)), "{by_hand:#}");
    assert_eq!((&by_hand["call"], &by_hand["git"]), (&json!("c1"), &json!([])));
    let newest = &listed[0];
    assert_eq!((&newest["call"], &newest["size_bytes"]), (&json!("c2"), &json!(7)), "{newest:#}");
    assert_eq!(by_hand["number"], json!(number));
    let own = format!("/sessions/s/checkpoints/{}", by_hand["id"].as_str().unwrap());
    assert_eq!(place.get(&own).with(200)["label"], "by hand");
    let made = place.post("/sessions/s/checkpoints", &json!({ "label": "over HTTP" }));
    assert_eq!(made.with(201)["label"], "over HTTP");
    assert!(made.header("location").unwrap().starts_with("/api/v1/checkpoints/"));
    place.get("/sessions/other/checkpoints/zz").problem(404);
    place.get("/sessions/nobody/checkpoints").problem(404);
    place.get("/sessions/s/checkpoints?trigger=x").problem(400);
    place.post("/sessions/s/checkpoints", &json!({ "label": 1 })).problem(400);
    // Page by page it is the same.
    let all = place.get("/sessions/s/checkpoints").with(200);
    let first = place.get("/sessions/s/checkpoints?limit=1").with(200);
    assert_eq!((&first["items"][0], &first["total"]), (&all["items"][0], &all["total"]));
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = place.get(&format!("/sessions/s/checkpoints?after={cursor}")).with(200);
    assert_eq!(items(&rest), &items(&all)[1..]);
    assert_eq!(items(&place.get("/sessions/s/checkpoints?find=BY%20HAND").with(200)).len(), 1);
}

#[test]
fn one_manual_checkpoint_too_many_is_a_conflict_until_one_goes() {
    let place = TestServer::new();
    place.write("file", "base");
    place.checkpoint("the first");
    let list = format!("/workspaces/{}/checkpoints", place.workspace());
    for number in 1..50 {
        place.checkpoint(&format!("number {number}"));
    }
    let problem = place.post(&list, &json!({ "label": "one too many" })).problem(409);
    let said = problem.to_string();
    for part in ["50", "checkpoint delete", "settings checkpoint.max-manual"] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let manual = |wanted: &str| {
        items(&place.get(&format!("{list}?trigger=manual&limit=100&find={wanted}")).with(200)).len()
    };
    assert_eq!((manual(""), manual("many")), (50, 0), "nothing was made");
    let found = place.get(&format!("{list}?find=first")).with(200);
    let own = format!("/checkpoints/{}", items(&found)[0]["id"].as_str().unwrap());
    place.ask("DELETE", &own, None).with(200);
    place.post(&list, &json!({ "label": "one too many" })).with(201);
    place.post(&list, &json!({})).problem(409);
}
