//! Each service answers what the HTTP API answers.

use serde_json::{Value, json};
use stepback_grpc::v1::event::Kind;
use stepback_grpc::v1::*;
use tonic::Code;

use super::connection::Connection;
use crate::support::TestServer;

/// A server with a session of two calls, the second of which failed, between two checkpoints.
fn server_with_session() -> TestServer {
    let server = TestServer::new();
    server.write("kept.txt", "one\n");
    server.checkpoint("first");
    server.call("s1", "c1", "src/a b%.txt", "two\n", false);
    server.call("s1", "c2", "kept.txt", "three\n", true);
    server.checkpoint("second");
    server
}

/// The whole id of a session that was recorded under this name.
fn session_id(server: &TestServer, name: &str) -> String {
    let sessions = server.get("/sessions").with(200);
    let found = sessions["items"].as_array().unwrap().iter().find(|session| session["agent_session"] == name);
    found.unwrap()["id"].as_str().unwrap().to_owned()
}

#[test]
fn sessions_steps_and_timelines_are_those_of_the_http_api() {
    let server = server_with_session();
    let grpc = Connection::new(&server);
    let session = session_id(&server, "s1");
    let request = ListSessionsRequest { counts: Some(true), limit: Some(1), ..Default::default() };
    let page = grpc.wait(grpc.sessions().list_sessions(request)).unwrap().into_inner();
    let found = &page.items[0];
    let http = server.get("/sessions?counts=true&limit=1").with(200);
    let http = &http["items"][0];
    assert_eq!((json!(found.id), json!(found.started_at)), (http["id"].clone(), http["started_at"].clone()));
    assert_eq!((json!(found.steps), json!(found.errors)), (http["steps"].clone(), http["errors"].clone()));
    let one = GetSessionRequest { session: session.clone() };
    assert_eq!(grpc.wait(grpc.sessions().get_session(one)).unwrap().into_inner().agent, "test");

    let list = ListStepsRequest { session: session.clone(), oldest_first: Some(true), ..Default::default() };
    let steps = grpc.wait(grpc.steps().list_steps(list)).unwrap().into_inner().items;
    let http = server.get(&format!("/sessions/{session}/steps?oldest_first=true")).with(200);
    let numbers: Vec<Value> = steps.iter().map(|step| json!(step.number)).collect();
    let expected: Vec<Value> =
        http["items"].as_array().unwrap().iter().map(|step| step["number"].clone()).collect();
    assert_eq!(numbers, expected);
    assert!(numbers.len() >= 4);
    let first = steps[0].number;
    let next =
        NextStepRequest { session: session.clone(), number: first, error: Some(true), ..Default::default() };
    let failed = grpc.wait(grpc.steps().next_step(next)).unwrap().into_inner();
    assert!(failed.failed && failed.number > first);
    let error: Value = serde_json::from_str(&failed.error_json.unwrap()).unwrap();
    assert_eq!(error["message"], "it went wrong");
    let detail = GetStepRequest { session: session.clone(), number: first };
    let detail = grpc.wait(grpc.steps().get_step(detail)).unwrap().into_inner();
    let http = server.get(&format!("/sessions/{session}/steps/{first}")).with(200);
    assert_eq!(serde_json::from_str::<Value>(&detail.input_json.unwrap()).unwrap(), http["input"]);
    let before =
        PreviousStepRequest { session: session.clone(), number: failed.number, ..Default::default() };
    assert!(grpc.wait(grpc.steps().previous_step(before)).unwrap().into_inner().number < failed.number);

    let timeline = GetTimelineRequest { session: session.clone(), ..Default::default() };
    let timeline = grpc.wait(grpc.timelines().get_timeline(timeline)).unwrap().into_inner();
    // It has the checkpoints that the user made meanwhile, too.
    let http = server.get(&format!("/sessions/{session}/timeline")).with(200);
    let expected = http["items"].as_array().unwrap().len();
    assert!(timeline.items.len() == expected && expected >= steps.len());
    let summary = timeline.summary.unwrap();
    assert_eq!((summary.errors, summary.tools.get("Edit").copied()), (1, Some(2)));
    let marks = GetTimelineMarksRequest { session: session.clone() };
    let marks = grpc.wait(grpc.timelines().get_timeline_marks(marks)).unwrap().into_inner();
    assert_eq!(marks.number.len(), expected);
    let lines = GetBranchLinesRequest { session };
    assert!(!grpc.wait(grpc.timelines().get_branch_lines(lines)).unwrap().into_inner().branches.is_empty());
}

#[test]
fn a_state_is_listed_and_its_files_are_read_whatever_their_names() {
    let server = server_with_session();
    let large = "0123456789abcdef".repeat(20_000);
    server.call("s1", "c3", "large.bin", &large, false);
    server.said("test", "s1", &[r#"{"role":"user","content":"make it so"}"#]);
    let grpc = Connection::new(&server);
    let session = session_id(&server, "s1");
    let http = server.get(&format!("/sessions/{session}/steps?limit=1")).with(200);
    let number = http["items"][0]["number"].as_u64().unwrap();
    let request = GetStateRequest { session: session.clone(), number, ..Default::default() };
    let state = grpc.wait(grpc.states().get_state(request)).unwrap().into_inner();
    assert_eq!(state.step.unwrap().number, number);
    let read = |address: &str| {
        let request = ReadFileRequest { session: session.clone(), number, path: address.to_owned() };
        grpc.wait(async {
            let mut stream = grpc.states().read_file(request).await?.into_inner();
            let mut bytes = Vec::new();
            while let Some(chunk) = stream.message().await? {
                assert!(chunk.data.len() <= 64 << 10);
                bytes.extend(chunk.data);
            }
            Ok::<_, tonic::Status>(bytes)
        })
    };
    let address = |path: &str| state.items.iter().find(|file| file.path == path).unwrap().address.clone();
    assert_eq!(read(&address("src/a b%.txt")).unwrap(), b"two\n");
    assert_eq!(read("kept.txt").unwrap(), b"three\n");
    assert_eq!(read(&address("large.bin")).unwrap(), large.as_bytes());
    assert_eq!(read("nowhere").unwrap_err().code(), Code::NotFound);
    assert_eq!(read("../../../etc/passwd").unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(read("").unwrap_err().code(), Code::InvalidArgument);

    let request = GetConversationRequest { session: session.clone(), number, ..Default::default() };
    let messages = grpc.wait(grpc.states().get_conversation(request)).unwrap().into_inner().items;
    assert_eq!((messages.len(), messages[0].text.as_str()), (1, "make it so"));
    assert_eq!(
        serde_json::from_str::<Value>(&messages[0].message_json).unwrap(),
        json!({"role": "user", "content": "make it so"})
    );
    let request = GetMemoryRequest { session: session.clone(), number };
    let memory = grpc.wait(grpc.states().get_memory(request)).unwrap().into_inner().json;
    let part = |name: &str| {
        let reply = server.get(&format!("/sessions/{session}/steps/{number}/state/{name}"));
        String::from_utf8(reply.body).unwrap()
    };
    assert_eq!(memory, part("memory"));
    let request = GetTaskRequest { session: session.clone(), number };
    assert_eq!(grpc.wait(grpc.states().get_task(request)).unwrap().into_inner().json, part("task"));
    let request = GetEnvironmentRequest { session: session.clone(), number };
    assert_eq!(grpc.wait(grpc.states().get_environment(request)).unwrap().into_inner().json, part("env"));

    let export = ExportSessionRequest { session: session.clone(), ..Default::default() };
    let bytes = grpc.wait(async {
        let mut stream = grpc.sessions().export_session(export).await.unwrap().into_inner();
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.message().await.unwrap() {
            bytes.extend(chunk.data);
        }
        bytes
    });
    assert_eq!(bytes, server.get(&format!("/sessions/{session}/export")).body);
}

#[test]
fn checkpoints_are_made_described_compared_and_deleted() {
    let server = server_with_session();
    let grpc = Connection::new(&server);
    let workspace = server.workspace();
    server.write("new.txt", "new\n");
    let request = CreateCheckpointRequest {
        workspace: workspace.clone(),
        label: Some("from far".into()),
        tags: vec!["a".into(), "b".into()],
        ..Default::default()
    };
    let made = grpc.wait(grpc.checkpoints().create_checkpoint(request)).unwrap().into_inner();
    assert_eq!((made.label.as_deref(), made.tags.len()), (Some("from far"), 2));
    let get = GetCheckpointRequest { checkpoint: made.id.clone() };
    assert_eq!(grpc.wait(grpc.checkpoints().get_checkpoint(get)).unwrap().into_inner().number, made.number);
    let annotate = |label: Option<&str>, tags: Option<Vec<String>>, remove: &[&str]| {
        let request = AnnotateCheckpointRequest {
            checkpoint: made.id.clone(),
            label: label.map(str::to_owned),
            tags: tags.map(|items| TextList { items }),
            remove: remove.iter().map(|name| (*name).to_owned()).collect(),
            ..Default::default()
        };
        grpc.wait(grpc.checkpoints().annotate_checkpoint(request)).map(|answer| answer.into_inner())
    };
    let changed = annotate(Some("other"), None, &[]).unwrap();
    assert_eq!((changed.label.as_deref(), changed.tags.len()), (Some("other"), 2), "the tags stay");
    let changed = annotate(None, Some(vec![]), &["label"]).unwrap();
    assert_eq!((changed.label, changed.tags.len()), (None, 0));
    let replace = ReplaceAnnotationRequest {
        checkpoint: made.id.clone(),
        note: Some("only this".into()),
        ..Default::default()
    };
    let replaced = grpc.wait(grpc.checkpoints().replace_annotation(replace)).unwrap().into_inner();
    assert_eq!((replaced.note.as_deref(), replaced.label, replaced.tags.len()), (Some("only this"), None, 0));
    assert_eq!(annotate(Some("x"), None, &["label"]).unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(annotate(None, None, &["colour"]).unwrap_err().code(), Code::InvalidArgument);

    let list = ListCheckpointsRequest { workspace: workspace.clone(), ..Default::default() };
    let all = grpc.wait(grpc.checkpoints().list_checkpoints(list)).unwrap().into_inner().items;
    let first = all.iter().find(|step| step.label.as_deref() == Some("first")).unwrap();
    let request = DiffCheckpointsRequest {
        checkpoint: first.id.clone(),
        other: made.id.clone(),
        text: Some(true),
        ..Default::default()
    };
    let diff = grpc.wait(grpc.checkpoints().diff_checkpoints(request)).unwrap().into_inner();
    let new = diff.items.iter().find(|file| file.path == "new.txt").unwrap();
    assert!(new.text.as_ref().unwrap().contains("+new"), "{new:?}");
    assert_eq!(new.after.as_ref().unwrap().r#type, "file");
    server.write("new.txt", "newer\n");
    let request = DiffWithPresentRequest { checkpoint: made.id.clone(), ..Default::default() };
    let diff = grpc.wait(grpc.checkpoints().diff_with_present(request)).unwrap().into_inner();
    assert_eq!(diff.items.iter().map(|file| file.path.as_str()).collect::<Vec<_>>(), ["new.txt"]);

    let delete = DeleteCheckpointRequest { checkpoint: made.id.clone() };
    let deleted = grpc.wait(grpc.checkpoints().delete_checkpoint(delete)).unwrap().into_inner();
    let undo = PlanUndoRequest { workspace, operation: Some(deleted.id), ..Default::default() };
    assert_eq!(grpc.wait(grpc.plans().plan_undo(undo)).unwrap().into_inner().kind, "undo");
}

#[test]
fn a_rewind_is_planned_shown_applied_undone_and_redone() {
    let server = TestServer::new();
    server.write("kept", "1");
    server.checkpoint("good");
    server.write("kept", "2");
    server.write("new", "2");
    let grpc = Connection::new(&server);
    let workspace = server.workspace();
    let request = PlanRewindRequest {
        workspace: workspace.clone(),
        point: Some("good".into()),
        everything: Some(true),
        ..Default::default()
    };
    let plan = grpc.wait(grpc.plans().plan_rewind(request.clone())).unwrap().into_inner();
    let actions: Vec<_> = plan.items.iter().map(|item| format!("{} {}", item.action, item.path)).collect();
    assert_eq!(actions, ["restore kept", "delete new"]);
    assert_eq!(server.read("kept").unwrap(), "2", "planning changes nothing");
    let get = GetRewindPlanRequest { plan: plan.id.clone() };
    assert_eq!(grpc.wait(grpc.plans().get_rewind_plan(get)).unwrap().into_inner(), plan);

    // What the plan does not say is not done.
    server.write("kept", "3");
    let apply = |plan: &str| {
        let request = ApplyRewindPlanRequest { plan: plan.to_owned() };
        grpc.wait(grpc.plans().apply_rewind_plan(request)).map(|answer| answer.into_inner())
    };
    let outdated = apply(&plan.id).unwrap_err();
    assert_eq!(outdated.code(), Code::Aborted);
    assert_eq!(server.read("kept").unwrap(), "3");
    let problem = stepback_grpc::problem_of(&outdated).unwrap();
    let current = problem.plan.unwrap();
    assert_ne!(current, plan.id);
    let get = GetRewindPlanRequest { plan: current.clone() };
    assert_eq!(grpc.wait(grpc.plans().get_rewind_plan(get)).unwrap().into_inner().items.len(), 2);

    let applied = apply(&current).unwrap();
    assert_eq!((server.read("kept").unwrap(), server.read("new")), ("1".into(), None));
    assert!(!applied.partial && applied.items.iter().all(|item| item.done));
    assert_eq!(apply(&current).unwrap_err().code(), Code::NotFound);

    let undo = PlanUndoRequest {
        workspace: workspace.clone(),
        operation: Some(applied.operation.unwrap().id),
        ..Default::default()
    };
    let undo = grpc.wait(grpc.plans().plan_undo(undo)).unwrap().into_inner();
    let shown = GetUndoPlanRequest { plan: undo.id.clone() };
    assert_eq!(grpc.wait(grpc.plans().get_undo_plan(shown)).unwrap().into_inner(), undo);
    grpc.wait(grpc.plans().apply_undo_plan(ApplyUndoPlanRequest { plan: undo.id })).unwrap();
    assert_eq!(server.read("kept").unwrap(), "3");
    let redo = PlanRedoRequest { workspace: workspace.clone(), ..Default::default() };
    let redo = grpc.wait(grpc.plans().plan_redo(redo)).unwrap().into_inner();
    let shown = GetRedoPlanRequest { plan: redo.id.clone() };
    assert_eq!(grpc.wait(grpc.plans().get_redo_plan(shown)).unwrap().into_inner(), redo);
    grpc.wait(grpc.plans().apply_redo_plan(ApplyRedoPlanRequest { plan: redo.id })).unwrap();
    assert_eq!(server.read("kept").unwrap(), "1");

    let list = ListOperationsRequest { workspace, ..Default::default() };
    let kinds = grpc.wait(grpc.workspaces().list_operations(list)).unwrap().into_inner().items;
    let kinds: Vec<_> = kinds.iter().take(3).map(|operation| operation.kind.as_str()).collect();
    assert_eq!(kinds, ["redo", "undo", "rewind"]);
}

#[test]
fn branches_are_created_switched_to_renamed_compared_and_deleted() {
    let server = TestServer::new();
    server.write("file", "1");
    server.checkpoint("start");
    server.write("file", "2");
    server.checkpoint("end");
    let grpc = Connection::new(&server);
    let workspace = server.workspace();
    let request = CreateBranchRequest {
        workspace: workspace.clone(),
        name: "another way".into(),
        from: Some("start".into()),
    };
    let made = grpc.wait(grpc.branches().create_branch(request)).unwrap().into_inner();
    assert!(!made.present && made.name == "another way");
    let rename = UpdateBranchRequest {
        workspace: workspace.clone(),
        branch: "another way".into(),
        name: Some("better".into()),
        ..Default::default()
    };
    assert_eq!(grpc.wait(grpc.branches().update_branch(rename)).unwrap().into_inner().name, "better");
    let switch =
        PlanSwitchRequest { workspace: workspace.clone(), branch: "better".into(), ..Default::default() };
    let plan = grpc.wait(grpc.plans().plan_switch(switch)).unwrap().into_inner();
    let shown = GetSwitchPlanRequest { plan: plan.id.clone() };
    assert_eq!(grpc.wait(grpc.plans().get_switch_plan(shown)).unwrap().into_inner(), plan);
    grpc.wait(grpc.plans().apply_switch_plan(ApplySwitchPlanRequest { plan: plan.id })).unwrap();
    assert_eq!(server.read("file").unwrap(), "1");
    let get = GetBranchRequest { workspace: workspace.clone(), branch: "better".into() };
    assert!(grpc.wait(grpc.branches().get_branch(get)).unwrap().into_inner().present);
    let list = ListBranchesRequest { workspace: workspace.clone() };
    let names = grpc.wait(grpc.branches().list_branches(list)).unwrap().into_inner().items;
    assert_eq!(names.iter().map(|branch| branch.name.as_str()).collect::<Vec<_>>(), ["better", "main"]);
    let compare = CompareRunsRequest {
        a: "branch:main".into(),
        b: "branch:better".into(),
        workspace: Some(workspace.clone()),
    };
    let compared = grpc.wait(grpc.branches().compare_runs(compare)).unwrap().into_inner().json;
    let http = server.get(&format!("/compare?a=branch:main&b=branch:better&workspace={workspace}")).with(200);
    assert_eq!(serde_json::from_str::<Value>(&compared).unwrap(), http);
    let found = FindBranchRequest { branch: "better".into(), workspace: None };
    assert_eq!(grpc.wait(grpc.branches().find_branch(found)).unwrap().into_inner().name, "better");

    // What was done there comes along when the branch is merged.
    server.write("other", "new");
    server.checkpoint("done there");
    let back =
        PlanSwitchRequest { workspace: workspace.clone(), branch: "main".into(), ..Default::default() };
    let plan = grpc.wait(grpc.plans().plan_switch(back)).unwrap().into_inner();
    grpc.wait(grpc.plans().apply_switch_plan(ApplySwitchPlanRequest { plan: plan.id })).unwrap();
    assert_eq!(server.read("other"), None);
    let merge =
        PlanMergeRequest { workspace: workspace.clone(), branch: "better".into(), ..Default::default() };
    let plan = grpc.wait(grpc.plans().plan_merge(merge)).unwrap().into_inner();
    assert!(plan.items.iter().any(|item| item.path == "other"), "{plan:?}");
    let applied =
        grpc.wait(grpc.plans().apply_rewind_plan(ApplyRewindPlanRequest { plan: plan.id })).unwrap();
    assert!(!applied.into_inner().partial);
    assert_eq!((server.read("other").as_deref(), server.read("file").as_deref()), (Some("new"), Some("2")));
    let switch =
        PlanSwitchRequest { workspace: workspace.clone(), branch: "better".into(), ..Default::default() };
    let plan = grpc.wait(grpc.plans().plan_switch(switch)).unwrap().into_inner();
    grpc.wait(grpc.plans().apply_switch_plan(ApplySwitchPlanRequest { plan: plan.id })).unwrap();
    let delete = DeleteBranchRequest { workspace: workspace.clone(), branch: "better".into() };
    let refused = grpc.wait(grpc.branches().delete_branch(delete)).unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "it is the present one");
    let spare = CreateBranchRequest { workspace: workspace.clone(), name: "spare".into(), from: None };
    grpc.wait(grpc.branches().create_branch(spare)).unwrap();
    let delete = DeleteBranchRequest { workspace, branch: "spare".into() };
    let deleted = grpc.wait(grpc.branches().delete_branch(delete)).unwrap().into_inner();
    assert_eq!(deleted.kind, "branch-delete");
}

#[test]
fn steps_are_found_by_fields_and_by_text() {
    let server = server_with_session();
    let grpc = Connection::new(&server);
    let find = FindStepsRequest { failed: Some(true), limit: Some(5), ..Default::default() };
    let found = grpc.wait(grpc.search().find_steps(find)).unwrap().into_inner();
    assert_eq!((found.total, found.items[0].failed), (1, true));
    assert!(found.total_is_exact && found.next_cursor.is_none());
    let search = SearchStepsRequest { q: "\"went wrong\"".into(), ..Default::default() };
    let found = grpc.wait(grpc.search().search_steps(search)).unwrap().into_inner();
    assert_eq!(found.items.len(), 1);
    let marks: Vec<[usize; 2]> = serde_json::from_str(&found.items[0].snippets[0].marks_json).unwrap();
    let snippet = &found.items[0].snippets[0];
    assert_eq!(&snippet.text[marks[0][0]..marks[0][1]], "went wrong");
    // Pages go on where the cursor says.
    let first = FindStepsRequest { limit: Some(1), ..Default::default() };
    let first = grpc.wait(grpc.search().find_steps(first)).unwrap().into_inner();
    let second = FindStepsRequest { limit: Some(1), after: first.next_cursor, ..Default::default() };
    let second = grpc.wait(grpc.search().find_steps(second)).unwrap().into_inner();
    assert_ne!(first.items[0].id, second.items[0].id);
}

#[test]
fn workspaces_changes_commands_and_points_are_read() {
    let server = server_with_session();
    let grpc = Connection::new(&server);
    let all = grpc.wait(grpc.workspaces().list_workspaces(ListWorkspacesRequest {})).unwrap().into_inner();
    let workspace = all.items[0].id.clone();
    assert_eq!(workspace, server.workspace());
    let one = GetWorkspaceRequest { workspace: workspace.clone() };
    assert_eq!(grpc.wait(grpc.workspaces().get_workspace(one)).unwrap().into_inner().root, all.items[0].root);
    let changes = ListChangesRequest { workspace: workspace.clone(), ..Default::default() };
    let changes = grpc.wait(grpc.workspaces().list_changes(changes)).unwrap().into_inner().items;
    let http = server.get(&format!("/workspaces/{workspace}/changes")).with(200);
    assert_eq!(changes.len(), http["items"].as_array().unwrap().len());
    assert!(changes.iter().any(|change| change.path == "kept.txt"));
    let commands = ListCommandsRequest { workspace: workspace.clone(), ..Default::default() };
    assert!(grpc.wait(grpc.workspaces().list_commands(commands)).unwrap().into_inner().items.is_empty());
    let point = ResolvePointRequest { workspace, point: "second".into() };
    let step = grpc.wait(grpc.workspaces().resolve_point(point)).unwrap().into_inner();
    assert_eq!(step.label.as_deref(), Some("second"));
}

#[test]
fn reruns_and_forks_that_cannot_be_are_refused_as_over_http() {
    let server = server_with_session();
    let grpc = Connection::new(&server);
    let session = session_id(&server, "s1");
    let rerun = StartRerunRequest { session: session.clone(), ..Default::default() };
    let refused = grpc.wait(grpc.replays().start_rerun(rerun)).unwrap_err();
    let http = server.post(&format!("/sessions/{session}/reruns"), &json!({}));
    let problem = stepback_grpc::problem_of(&refused).unwrap();
    assert_eq!(
        (json!(problem.http_status), json!(problem.detail)),
        (json!(http.status), http.json()["detail"].clone())
    );
    let fork =
        ForkConversationRequest { session: session.clone(), point: "second".into(), dry_run: Some(true) };
    let refused = grpc.wait(grpc.replays().fork_conversation(fork)).unwrap_err();
    let http =
        server.post(&format!("/sessions/{session}/forks"), &json!({"point": "second", "dry_run": true}));
    let problem = stepback_grpc::problem_of(&refused).unwrap();
    assert_eq!(
        (json!(problem.code), json!(problem.hints)),
        (http.json()["code"].clone(), http.json()["hints"].clone())
    );
    let prepare = PrepareBranchRequest { session: session.clone(), ..Default::default() };
    let refused = grpc.wait(grpc.replays().prepare_branch(prepare)).unwrap_err();
    let http = server.post("/branches", &json!({ "session": session }));
    let problem = stepback_grpc::problem_of(&refused).unwrap();
    assert_eq!(json!(problem.detail), http.json()["detail"]);
    let execute = ExecuteBranchRequest { branch: "none".into(), workspace: Some(server.workspace()) };
    assert_eq!(grpc.wait(grpc.replays().execute_branch(execute)).unwrap_err().code(), Code::NotFound);
    let interrupt = InterruptRerunRequest { workspace: server.workspace(), branch: "none".into() };
    assert_eq!(
        grpc.wait(grpc.replays().interrupt_rerun(interrupt)).unwrap_err().code(),
        Code::FailedPrecondition
    );
}

#[test]
fn events_arrive_as_they_happen_and_go_on_after_a_position() {
    let server = server_with_session();
    let grpc = Connection::new(&server);
    let follow = |after: Option<u64>| {
        let request = FollowEventsRequest { after, ..Default::default() };
        grpc.wait(grpc.events().follow_events(request)).unwrap().into_inner()
    };
    let mut stream = follow(None);
    let first = grpc.wait(stream.message()).unwrap().unwrap();
    assert!(first.kind.is_none() && first.position > 0, "{first:?}");
    server.call("s1", "c9", "kept.txt", "nine\n", false);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        let event = grpc.wait(stream.message()).unwrap().unwrap();
        if let Some(Kind::Step(step)) = event.kind {
            assert_eq!(
                (step.position, step.workspace.as_str()),
                (event.position, server.workspace().as_str())
            );
            seen.push((event.position, step.id));
        }
    }
    drop(stream);
    // A client that was away gets the same again.
    let mut again = follow(Some(first.position));
    let mut missed = Vec::new();
    while missed.len() < 2 {
        if let Event { position, kind: Some(Kind::Step(step)) } = grpc.wait(again.message()).unwrap().unwrap()
        {
            missed.push((position, step.id));
        }
    }
    assert_eq!(missed, seen);
    server.stop_agent("s1", "stop1");
    let stops = loop {
        if let Some(Kind::Stops(stops)) = grpc.wait(again.message()).unwrap().unwrap().kind {
            break stops;
        }
    };
    assert_eq!((stops.items[0].id.as_str(), stops.items[0].tool.as_str()), ("stop1", "Bash"));
    assert_eq!(stops.items[0].input_json, r#"{"command":"rm"}"#);
    // A server that ends says so, and where to go on.
    server.stop();
    let end = loop {
        match grpc.wait(again.message()) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the stream ended as if there were nothing more"),
            Err(status) => break status,
        }
    };
    assert_eq!(end.code(), Code::Unavailable);
}
