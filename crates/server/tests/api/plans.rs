//! Going back and forth: planned, agreed to, refused.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::support::TestServer;

fn paths(document: &Value) -> Vec<String> {
    let items = document["items"].as_array().unwrap();
    items
        .iter()
        .map(|item| format!("{} {}", item["action"].as_str().unwrap(), item["path"].as_str().unwrap()))
        .collect()
}

/// The part of an address behind `/api/v1`.
fn below(address: &Value) -> &str {
    address.as_str().unwrap().strip_prefix("/api/v1").unwrap()
}

#[test]
fn a_rewind_is_shown_agreed_to_and_taken_back() {
    let place = TestServer::new();
    place.write("kept", "1");
    place.write("gone", "1");
    place.checkpoint("good");
    place.write("kept", "2");
    place.write("new", "2");
    fs::remove_file(place.root.join("gone")).unwrap();
    let here = format!("/workspaces/{}", place.workspace());
    let ask = json!({ "point": "good", "everything": true });
    let made = place.post(&format!("{here}/rewind-plans"), &ask);
    let plan = made.with(201);
    assert_eq!(paths(&plan), ["create gone", "restore kept", "delete new"]);
    assert_eq!(plan["items"][1]["now"]["type"], "file");
    assert_eq!(place.read("kept").unwrap(), "2", "planning changes nothing");
    let own = made.header("location").unwrap().strip_prefix("/api/v1").unwrap();
    assert_eq!(place.get(own).with(200), plan);
    assert_eq!(
        place.post(&format!("{here}/rewind-plans"), &ask).with(201),
        plan,
        "the same question, the same plan"
    );
    let done = place.ask("POST", below(&plan["apply"]), None).with(200);
    assert_eq!((place.read("kept").unwrap(), place.read("new")), ("1".into(), None));
    assert!(done["items"].as_array().unwrap().iter().all(|item| item["done"] == true));
    assert_eq!((&done["partial"], &done["operation"]["kind"]), (&json!(false), &json!("rewind")));
    assert!(done["operation"]["number"].as_u64().unwrap() > 0);
    place.ask("POST", below(&plan["apply"]), None).problem(404);

    let undo = place.post(below(&done["undo"]["href"]), &done["undo"]["body"]).with(201);
    assert_eq!(paths(&undo), ["delete gone", "restore kept", "create new"]);
    let undone = place.ask("POST", below(&undo["apply"]), None).with(200);
    assert_eq!((place.read("kept").unwrap(), place.read("gone")), ("2".into(), None));
    let redo = place.post(below(&undone["undo"]["href"]), &undone["undo"]["body"]).with(201);
    let redone = place.ask("POST", below(&redo["apply"]), None).with(200);
    assert_eq!(place.read("kept").unwrap(), "1");
    let undo = place.post(below(&redone["undo"]["href"]), &redone["undo"]["body"]).with(201);
    place.ask("POST", below(&undo["apply"]), None).with(200);
    assert_eq!(place.read("kept").unwrap(), "2");
    let operations = place.get(&format!("{here}/operations?limit=2")).with(200);
    assert_eq!(operations["items"][0]["kind"], "undo");
    assert!(operations["next_cursor"].is_string());
}

#[test]
fn what_happened_between_two_points_is_taken_back() {
    let place = TestServer::new();
    place.write("file", "1\n2\n3\n4\n5\n");
    place.checkpoint("A");
    place.write("file", "one\n2\n3\n4\n5\n");
    place.checkpoint("B");
    place.write("file", "one\n2\n3\n4\nfive\n");
    place.checkpoint("C");
    let plans = format!("/workspaces/{}/rewind-plans", place.workspace());
    let range = |from: &str, to: &str| json!({ "between": [from, to], "everything": true });
    let plan = place.post(&plans, &range("A", "B")).with(201);
    assert_eq!(paths(&plan), ["merge file"]);
    place.ask("POST", below(&plan["apply"]), None).with(200);
    assert_eq!(place.read("file").unwrap(), "1\n2\n3\n4\nfive\n");
    assert!(place.post(&plans, &range("B", "A")).problem(400)["detail"].to_string().contains("earlier"));
    place.post(&plans, &json!({ "between": ["A"] })).problem(400);
    place.post(&plans, &json!({ "between": ["A", "B"], "point": "A" })).problem(400);
    place.post(&plans, &json!({ "between": ["A", "B"], "git": true })).problem(400);
}

#[test]
fn a_branch_is_merged_with_its_conflicts_as_data() {
    let place = TestServer::new();
    place.write("file", "base\n");
    place.write("other", "base\n");
    place.checkpoint("start");
    let here = format!("/workspaces/{}", place.workspace());
    let branches = format!("{here}/branches");
    place.post(&branches, &json!({ "name": "aside" })).with(201);
    let switch = |to: &str| {
        let plan = place.post(&format!("{branches}/{to}/switch-plans"), &json!({})).with(201);
        place.ask("POST", below(&plan["apply"]), None).with(200);
    };
    switch("aside");
    place.write("file", "theirs\n");
    place.write("other", "theirs\n");
    place.checkpoint("there");
    switch("main");
    place.write("file", "ours\n");
    place.checkpoint("here");
    let merges = format!("{branches}/aside/merge-plans");
    let plan = place.post(&merges, &json!({})).with(201);
    assert_eq!(paths(&plan), ["restore other"]);
    assert_eq!(plan["conflicts"][0]["path"], "file");
    assert_eq!(plan["conflicts"][0]["theirs"]["type"], "file");
    assert_eq!(plan["conflicts"][0]["marked"], false);
    assert_eq!(plan["board"], json!({ "conflicts": [], "changes": [] }));
    let marked = place.post(&merges, &json!({ "markers": true, "files_only": true })).with(201);
    assert_eq!(paths(&marked), ["mark conflicts in file", "restore other"]);
    assert_eq!(marked["board"], json!(null));
    let done = place.ask("POST", below(&marked["apply"]), None).with(200);
    assert_eq!(done["partial"], true);
    assert!(place.read("file").unwrap().starts_with("<<<<<<< main\nours\n"));
    let undo = place.post(below(&done["undo"]["href"]), &done["undo"]["body"]).with(201);
    place.ask("POST", below(&undo["apply"]), None).with(200);
    assert_eq!(place.read("file").unwrap(), "ours\n");
    let aside = format!("{branches}/aside");
    let archived = place.ask("PATCH", &aside, Some(&json!({ "status": "archived" }))).with(200);
    assert_eq!(archived["status"], "archived");
    let renamed = json!({ "name": "again", "status": "active" });
    assert_eq!(place.ask("PATCH", &aside, Some(&renamed)).with(200)["name"], "again");
    place.ask("PATCH", &format!("{branches}/again"), Some(&json!({}))).problem(400);
    place.ask("PATCH", &format!("{branches}/again"), Some(&json!({ "status": "gone" }))).problem(400);
    place.post(&format!("{branches}/nowhere/merge-plans"), &json!({})).problem(404);
    place.post(&format!("{branches}/main/merge-plans"), &json!({})).problem(400);
}

#[test]
fn a_plan_that_is_out_of_date_is_refused_with_the_new_one() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("good");
    place.write("file", "2");
    let here = format!("/workspaces/{}", place.workspace());
    let plan = place
        .post(&format!("{here}/rewind-plans"), &json!({ "point": "good", "everything": true }))
        .with(201);
    place.write("file", "3");
    place.write("other", "3");
    let problem = place.ask("POST", below(&plan["apply"]), None).problem(409);
    assert_eq!(place.read("file").unwrap(), "3", "nothing was done");
    assert_eq!(paths(&problem["plan"]), ["restore file", "delete other"]);
    assert_ne!(problem["plan"]["id"], plan["id"]);
    place.ask("POST", below(&problem["plan"]["apply"]), None).with(200);
    assert_eq!(place.read("file").unwrap(), "1");
    // Now there is nothing to go back to.
    let plan = place
        .post(&format!("{here}/rewind-plans"), &json!({ "point": "good", "everything": true }))
        .with(201);
    assert_eq!(paths(&plan).len(), 0);
    assert_eq!(place.ask("POST", below(&plan["apply"]), None).problem(409)["code"], "nothing");
}

#[test]
fn a_plan_of_one_server_is_applied_by_another_and_after_a_restart() {
    let place = TestServer::new();
    place.write("file", "1");
    place.checkpoint("good");
    place.write("file", "2");
    let here = format!("/workspaces/{}", place.workspace());
    let ask = json!({ "point": "good", "everything": true });
    let plan = place.post(&format!("{here}/rewind-plans"), &ask).with(201);
    let other = place.another(3);
    let own = format!("/rewind-plans/{}", plan["id"].as_str().unwrap());
    assert_eq!(other.get(&own).with(200), plan);
    other.get(&own.replace("rewind", "undo")).problem(404);
    let done = other.ask("POST", below(&plan["apply"]), None).with(200);
    assert_eq!(place.read("file").unwrap(), "1");
    place.ask("POST", below(&plan["apply"]), None).problem(404);

    let undo = place.post(below(&done["undo"]["href"]), &done["undo"]["body"]).with(201);
    place.stop();
    let restarted = other.another(5);
    other.stop();
    restarted.write("other", "2");
    restarted.ask("POST", below(&undo["apply"]), None).with(200);
    assert_eq!(restarted.read("file").unwrap(), "2");
    let plan = restarted.post(&format!("{here}/rewind-plans"), &ask).with(201);
    restarted.write("file", "3");
    let last = restarted.another(7);
    let problem = last.ask("POST", below(&plan["apply"]), None).problem(409);
    assert_eq!(paths(&problem["plan"]), ["restore file", "delete other"]);
    restarted.ask("POST", below(&problem["plan"]["apply"]), None).with(200);
    assert_eq!((last.read("file").unwrap(), last.read("other")), ("1".into(), None));
}

#[test]
fn single_changes_and_paths_are_taken_back() {
    let place = TestServer::new();
    place.write("a", "1");
    place.write("b", "1");
    place.checkpoint("good");
    place.call("s", "c1", "a", "2", false);
    place.call("s", "c2", "b", "2", false);
    let plans = format!("/workspaces/{}/rewind-plans", place.workspace());
    let plan = |body: Value| place.post(&plans, &body).with(201);
    assert_eq!(paths(&plan(json!({ "changes": [1] }))), ["restore a"]);
    assert_eq!(paths(&plan(json!({ "last": 1 }))), ["restore b"]);
    assert_eq!(paths(&plan(json!({ "all": true }))), ["restore a", "restore b"]);
    assert_eq!(paths(&plan(json!({ "point": "good", "paths": ["b"] }))), ["restore b"]);
    assert_eq!(paths(&plan(json!({ "point": "good", "session": "s" }))), ["restore a", "restore b"]);
    for (wrong, status) in [
        (json!({}), 400),
        (json!({ "point": "good", "all": true }), 400),
        (json!({ "point": 1 }), 400),
        (json!({ "point": "nowhere" }), 404),
        (json!({ "changes": [99] }), 400),
        (json!({ "changes": [-1] }), 400),
        (json!({ "changes": [0] }), 400),
        (json!({ "last": 1e300 }), 400),
        (json!({ "last": -1 }), 400),
        (json!({ "point": "good", "paths": ["../x"] }), 400),
        (json!({ "point": "good", "paths": ["/etc/passwd"] }), 400),
        (json!({ "point": "good", "paths": ["[" ] }), 400),
        (json!({ "point": "good", "paths": ["nothing-there"] }), 400),
        (json!({ "point": "good", "session": "nobody" }), 404),
        (json!({ "changes": [1], "hunks": [77] }), 400),
        (json!({ "unknown": 1 }), 400),
    ] {
        place.post(&plans, &wrong).problem(status);
    }
    let huge = json!({ "last": u64::MAX });
    assert!(matches!(place.post(&plans, &huge).status, 201 | 400));
    for kind in ["rewind", "undo", "redo", "switch"] {
        let problem = place.get(&format!("/{kind}-plans/nothing")).problem(404);
        assert!(problem["hints"][0].as_str().unwrap().contains("plan again"));
        place.ask("POST", &format!("/{kind}-plans/nothing/apply"), None).problem(404);
    }
    let here = format!("/workspaces/{}", place.workspace());
    place.post(&format!("{here}/undo-plans"), &json!({ "operation": "zzzz" })).problem(404);
    place.post(&format!("{here}/redo-plans"), &json!({})).problem(404);
    place.post("/workspaces/zz/undo-plans", &json!({})).problem(404);
}

#[test]
fn branches_are_made_named_entered_compared_and_forgotten() {
    let place = TestServer::new();
    place.write("file", "main");
    place.checkpoint("base");
    let here = format!("/workspaces/{}", place.workspace());
    let branches = format!("{here}/branches");
    let made = place.post(&branches, &json!({ "name": "try/one", "from": "base" }));
    assert_eq!(made.with(201)["status"], "active");
    assert_eq!(made.header("location"), Some(format!("/api/v1{branches}/try%2Fone").as_str()));
    place.post(&branches, &json!({ "name": "try/one" })).problem(409);
    for wrong in [
        json!({}),
        json!({ "name": "" }),
        json!({ "name": "-x" }),
        json!({ "name": "a  b" }),
        json!({ "name": 1 }),
    ] {
        place.post(&branches, &wrong).problem(400);
    }
    place.post(&branches, &json!({ "name": "x", "from": "nowhere" })).problem(404);
    let own = format!("{branches}/try%2Fone");
    assert_eq!(place.ask("PATCH", &own, Some(&json!({ "name": "two" }))).with(200)["name"], "two");
    place.get(&own).problem(404);
    place.ask("PATCH", &format!("{branches}/two"), Some(&json!({ "name": "main" }))).problem(409);
    place.ask("DELETE", &format!("{branches}/main"), None).problem(400);
    place.write("file", "on main");
    let plan = place.post(&format!("{branches}/two/switch-plans"), &json!({})).with(201);
    assert_eq!(paths(&plan), ["restore file"]);
    place.ask("POST", below(&plan["apply"]), None).with(200);
    assert_eq!(place.read("file").unwrap(), "main");
    let list = place.get(&branches).with(200);
    let present: Vec<&Value> =
        list["items"].as_array().unwrap().iter().filter(|one| one["present"] == true).collect();
    assert_eq!(present.len(), 1);
    assert_eq!(present[0]["name"], "two");
    let workspace = place.workspace();
    let found = place.get(&format!("/compare?a=main&b=two&workspace={workspace}")).with(200);
    assert_eq!(found["files"][0]["path"], "file");
    place.get("/compare?a=main").problem(400);
    place.get("/compare?a=main&b=two").problem(404);
    place.get(&format!("/compare?a=main&b=nowhere&workspace={workspace}")).problem(404);
    place.post(&format!("{branches}/nowhere/switch-plans"), &json!({})).problem(404);
    place.post(&format!("{branches}/two/switch-plans"), &json!({})).problem(400);
    assert_eq!(place.ask("DELETE", &format!("{branches}/main"), None).with(200)["kind"], "branch-delete");
}

#[test]
fn a_conversation_goes_on_only_where_its_agent_ran() {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("s", "c1", "one", "1", false);
    // This server knows nothing of the machine it runs on.
    let refused = place.post("/sessions/s/forks", &json!({ "point": "#2" })).problem(409);
    assert!(refused["hints"][0].as_str().unwrap().contains("--conversation"), "{refused}");
    place.post("/sessions/s/forks", &json!({ "dry_run": true })).problem(400);
    place.post("/sessions/nobody/forks", &json!({ "point": "#2" })).problem(404);
}

#[test]
fn a_plan_lists_what_it_keeps_and_says_why_it_changes_nothing() {
    let place = TestServer::new();
    place.call("s", "c1", "theirs", "1", false);
    place.write("mine", "1");
    place.call("s", "c2", "theirs", "2", false);
    let plans = format!("/workspaces/{}/rewind-plans", place.workspace());
    let plan = place.post(&plans, &json!({ "all": true })).with(201);
    assert_eq!(paths(&plan), ["delete theirs"]);
    let kept = &plan["kept"][0];
    assert_eq!(
        (&kept["path"], &kept["author"], &kept["by"]),
        (&json!("mine"), &json!("user"), &json!("you")),
        "{plan}"
    );
    assert_eq!(plan["everything_changes"], json!(["mine"]));
    let done = place.ask("POST", below(&plan["apply"]), None).with(200);
    assert_eq!(done["kept"][0]["path"], "mine");
    assert_eq!(place.read("mine").unwrap(), "1");
    let plan = place.post(&plans, &json!({ "all": true })).with(201);
    let because = plan["unchanged_because"].as_str().unwrap();
    assert!(because.ends_with("what differs was changed by you"), "{because}");
    let problem = place.ask("POST", below(&plan["apply"]), None).problem(409);
    assert!(problem["detail"].as_str().unwrap().contains(because), "{problem}");
    let plan = place.post(&plans, &json!({ "all": true, "everything": true })).with(201);
    assert_eq!(paths(&plan), ["delete mine"]);
}

#[test]
fn single_parts_of_the_state_are_shown_and_taken_back() {
    let place = TestServer::new();
    place.write("file", "1");
    place.call("s", "c1", "file", "2", false);
    place.remember("s", json!({ "plan": "old" }), json!(["a"]));
    let point = place.checkpoint("before refactor");
    place.remember("s", json!({ "plan": "new" }), json!(["a", "b"]));
    place.call("s", "c2", "file", "3", false);
    let here = format!("/workspaces/{}", place.workspace());
    let plans = format!("{here}/rewind-plans");
    let last = || place.get("/sessions/s/steps?limit=1").with(200)["items"][0]["number"].clone();
    let now = |part: &str| place.get(&format!("/sessions/s/steps/{}/state/{part}", last())).with(200);

    let ask = json!({ "point": "before refactor", "parts": ["memory", "conversation"] });
    let plan = place.post(&plans, &ask).with(201);
    assert_eq!(plan["items"], json!([]));
    assert_eq!(plan["parts"][1]["changes"], json!(["plan becomes \"old\" instead of \"new\""]), "{plan:#}");
    let follow_up = plan["parts"][0]["follow_up"].as_str().unwrap();
    assert!(follow_up.contains("/forks with") && follow_up.contains(&format!("#{point}")), "{plan:#}");
    assert_eq!(now("memory"), json!({ "plan": "new" }));
    let done = place.post(below(&plan["apply"]), &Value::Null).with(200);
    assert_eq!(done["parts"][0]["part"], "memory", "{done:#}");
    assert_eq!((now("memory"), now("task")), (json!({ "plan": "old" }), json!(["a", "b"])));
    assert_eq!(place.read("file").unwrap(), "3");
    let undo = place.post(below(&done["undo"]["href"]), &done["undo"]["body"]).with(201);
    place.post(below(&undo["apply"]), &Value::Null).with(200);
    assert_eq!(now("memory"), json!({ "plan": "new" }));

    let refused = |body: Value, status| place.post(&plans, &body).problem(status)["detail"].to_string();
    let unknown = refused(json!({ "point": "before refactor", "parts": ["mind"] }), 400);
    assert!(unknown.contains("the parts are files, git"), "{unknown}");
    refused(json!({ "all": true, "parts": ["task"] }), 400);
    refused(json!({ "point": "before refactor", "parts": ["task"], "paths": ["file"] }), 400);
    assert!(
        refused(json!({ "point": "before refactor", "parts": ["reasoning"] }), 404)
            .contains("no reasoning board")
    );
}

#[test]
fn a_plan_says_how_many_files_have_changes_that_git_does_not_have() {
    let place = TestServer::new();
    let git = |words: &[&str]| {
        let mut command = Command::new("git");
        command.args(["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]);
        command.args(words).current_dir(&place.root).env("GIT_CONFIG_NOSYSTEM", "1");
        assert!(command.env("GIT_CONFIG_GLOBAL", "/dev/null").status().unwrap().success());
    };
    for name in ["one", "two", "three"] {
        place.write(name, "base\n");
    }
    git(&["init", "-q", "-b", "main"]);
    git(&["add", "-A"]);
    git(&["commit", "-q", "-m", "first"]);
    place.checkpoint("good");
    let warnings = || {
        let plans = format!("/workspaces/{}/rewind-plans", place.workspace());
        let plan = place.post(&plans, &json!({ "point": "good", "everything": true })).with(201);
        plan["warnings"].as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    place.write("one", "more\n");
    place.write("two", "more\n");
    place.write("untracked", "not git's\n");
    let said: Vec<String> = warnings();
    assert_eq!(said, ["2 of these files have changes that git does not have; they are saved first"]);
    git(&["add", "one"]);
    let said: Vec<String> = warnings();
    assert_eq!(said, ["1 of these files has changes that git does not have; they are saved first"]);
}
