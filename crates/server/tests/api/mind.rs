//! What an agent thought, over HTTP.

use serde_json::{Value, json};
use stepback_engine::board::BoardEditor;
use stepback_reasoning::ids::{BeliefId, HypothesisId};
use stepback_reasoning::item::{BeliefKind, DependencyKind, EvidenceKind, EvidenceOrigin, HypothesisStatus};
use stepback_reasoning::{BoardMutation, ItemKind};

use crate::support::TestServer;

/// Lets session `s` think.
fn think(place: &TestServer, thoughts: &[BoardMutation]) -> Vec<u64> {
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = workspace.find_session("s").unwrap();
    let mut editor = BoardEditor::new(&workspace, &session);
    thoughts.iter().map(|mutation| editor.apply(mutation).unwrap().step).collect()
}

fn propose(statement: &str) -> BoardMutation {
    BoardMutation::ProposeHypothesis {
        statement: statement.into(),
        prior: 0.5,
        parents: Vec::new(),
        excludes: Vec::new(),
        tags: vec!["cache".into()],
    }
}

fn evidence(hypothesis: u32, strength: f64, source: EvidenceOrigin) -> BoardMutation {
    BoardMutation::AddEvidence {
        hypothesis: HypothesisId(hypothesis),
        strength,
        text: format!("it was seen with {strength}"),
        kind: EvidenceKind::Test,
        source,
    }
}

fn believe(statement: &str) -> BoardMutation {
    BoardMutation::AddBelief {
        statement: statement.into(),
        kind: BeliefKind::Assumption,
        confidence: 0.8,
        subject: None,
        value: None,
        hypothesis: Some(HypothesisId(1)),
        tags: Vec::new(),
    }
}

fn depend(belief: u32, on: u32) -> BoardMutation {
    let (belief, on, kind) = (BeliefId(belief), BeliefId(on), DependencyKind::Requires);
    BoardMutation::Depend { belief, on, kind, strength: 0.5, reason: Some("so it is".into()) }
}

fn part<'d>(board: &'d Value, name: &str) -> &'d Value {
    board["parts"].as_array().unwrap().iter().find(|part| part["name"] == name).unwrap()
}

#[test]
fn the_board_of_a_moment_says_what_changed_and_where_everything_came_from() {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("s", "c1", "one", "1", false);
    let empty = place.get("/sessions/s/mind").with(200);
    assert_eq!(empty["metrics"]["hypotheses"], 0);
    assert!(empty["metrics"]["checkpoints"].is_u64(), "{empty}");
    assert_eq!((&empty["step"], &empty["summary"]), (&Value::Null, &json!("Nothing changed.")));
    assert_eq!(empty["parts"].as_array().unwrap().len(), ItemKind::ALL.len());
    let engine = place.engine();
    let call = engine
        .store
        .step_numbered(engine.open_workspace_root(&place.root).unwrap().record.id, 3)
        .unwrap()
        .unwrap();
    let tool = EvidenceOrigin::Tool { step: Some(call.step.id), tool: Some("Edit".into()) };
    let steps = think(
        &place,
        &[
            propose("the cache is stale"),
            evidence(1, 0.5, tool),
            believe("the clock is right"),
            believe("the key has the time"),
            depend(2, 1),
            BoardMutation::SetHypothesis {
                hypothesis: HypothesisId(1),
                status: HypothesisStatus::Confirmed,
                reason: Some("the test passes".into()),
            },
        ],
    );
    let at = |number: u64| place.get(&format!("/sessions/s/mind?at=%23{number}")).with(200);
    // Evidence was added: it, and the hypothesis it moved, are what this step changed.
    let board = at(steps[1]);
    assert_eq!((&board["step"]["number"], &board["against"]["number"]), (&json!(steps[1]), &json!(steps[0])));
    let sentences: Vec<&str> =
        board["changes"].as_array().unwrap().iter().map(|one| one["sentence"].as_str().unwrap()).collect();
    assert!(sentences.contains(&"H1 rose from 0.5 to 0.82 after E1"), "{sentences:?}");
    let hypothesis = &part(&board, "hypotheses")["items"][0];
    assert_eq!((&hypothesis["change"], &hypothesis["status"]), (&json!("changed"), &json!("active")));
    assert_eq!((&hypothesis["origin"]["step"], &hypothesis["tags"]), (&json!(steps[0]), &json!(["cache"])));
    let evidence = &part(&board, "evidence")["items"][0];
    assert_eq!((&evidence["change"], &evidence["source"]["step"]), (&json!("added"), &json!(3)));
    assert_eq!(evidence["links"], json!([{ "to": "H1", "how": "for" }]));
    assert_eq!(part(&board, "beliefs")["total"], 0);
    // At a step that is no thought, nothing changed; and the board is that of the thought before.
    place.call("s", "c2", "one", "2", false);
    let later = at(steps[5] + 1);
    assert_eq!((&later["changed"], &later["step"]["number"]), (&json!(0), &json!(steps[5])));
    assert_eq!(part(&later, "hypotheses")["items"][0]["more"], "the test passes");
    // Compared with another moment.
    let since = place.get(&format!("/sessions/s/mind?against=%23{}", steps[1])).with(200);
    assert_eq!(since["changed"], 3, "{}", since["changes"]);
    assert_eq!(place.get(&format!("/sessions/s/mind?against=%23{}", steps[5])).with(200)["changed"], 0);
}

#[test]
fn a_graph_and_a_history_are_drawn_from_it() {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("s", "c1", "one", "1", false);
    let steps = think(
        &place,
        &[
            propose("a"),
            propose("b"),
            evidence(2, -0.5, EvidenceOrigin::Documentation("book".into())),
            believe("one"),
            believe("two"),
            depend(2, 1),
        ],
    );
    let graph = place.get("/sessions/s/mind/graph").with(200);
    let names = |graph: &Value| -> Vec<String> {
        graph["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|node| node["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&graph), ["H1", "B1", "B2"], "H2 has nothing to do with them");
    let edge = json!({ "from": "B2", "to": "B1", "how": "requires", "strength": 0.5, "reason": "so it is" });
    assert!(graph["edges"].as_array().unwrap().contains(&edge), "{graph}");
    assert_eq!(graph["nodes"][2]["change"], "changed", "the last step changed B2");
    let near = place.get("/sessions/s/mind/graph?around=B1&limit=1").with(200);
    assert_eq!((names(&near), &near["left_out"]), (vec!["B1".to_owned()], &json!(2)));
    let history = place.get("/sessions/s/mind/confidence").with(200);
    assert_eq!(
        (&history["thoughts"], &history["every"], &history["number"]),
        (&json!(6), &json!(1), &json!(steps))
    );
    let lines = &history["lines"];
    assert_eq!(lines[0]["hypothesis"], "H1");
    assert_eq!((&lines[1]["at"], &lines[1]["confidence"]), (&json!([1, 2]), &json!([0.5, 0.1827])));
    assert_eq!((&lines[1]["text"], &lines[1]["status"]), (&json!("b"), &json!(["active", "active"])));
    for wrong in ["graph?around=B99", "graph?around=B99&at=%231"] {
        place.get(&format!("/sessions/s/mind/{wrong}")).problem(404);
    }
    for wrong in ["graph?around=x", "graph?limit=0", "graph?limit=401", "beliefs?about=zz", "beliefs?limit=0"]
    {
        place.get(&format!("/sessions/s/mind/{wrong}")).problem(400);
    }
    let unknown = place.get("/sessions/s/mind/dreams").problem(404);
    assert!(unknown["hints"][0].as_str().unwrap().contains("hypotheses, evidence"), "{unknown}");
    place.get("/sessions/nobody/mind").problem(404);
    place.get(&format!("/sessions/s/mind?at={}", "x".repeat(1001))).problem(400);
}

#[test]
fn a_large_board_comes_in_pages() {
    let place = TestServer::new();
    place.checkpoint("before");
    place.call("s", "c1", "one", "1", false);
    let thoughts: Vec<BoardMutation> = (0..130).map(|number| propose(&format!("cause {number}"))).collect();
    think(&place, &thoughts);
    think(&place, &[evidence(7, 0.9, EvidenceOrigin::Reasoning)]);
    let board = place.get("/sessions/s/mind?limit=100").with(200);
    let all = part(&board, "hypotheses");
    assert_eq!((&all["total"], all["items"].as_array().unwrap().len()), (&json!(130), 100));
    assert_eq!(all["items"][0]["id"], "H7", "the most likely comes first");
    let cursor = all["next_cursor"].as_str().unwrap();
    let rest = place.get(&format!("/sessions/s/mind/hypotheses?after={cursor}")).with(200);
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (30, &Value::Null));
    let ids = |page: &Value| -> Vec<String> {
        page["items"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect()
    };
    let known = ids(all);
    assert!(ids(&rest).iter().all(|id| !known.contains(id)));
    // A cursor belongs to one moment and one question.
    think(&place, &[propose("one more")]);
    place.get(&format!("/sessions/s/mind/hypotheses?after={cursor}")).problem(400);
    let found = place.get("/sessions/s/mind/hypotheses?find=CAUSE%2012").with(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 11, "12 and 120 to 129");
    assert_eq!(ids(&place.get("/sessions/s/mind/hypotheses?find=h9").with(200)), ["H9"]);
    assert_eq!(ids(&place.get("/sessions/s/mind/evidence?about=H7").with(200)), ["E1"]);
    assert_eq!(ids(&place.get("/sessions/s/mind/evidence?about=H8").with(200)), Vec::<String>::new());
}
