//! The board at any moment, restored, taken back, joined, and never lost.

use serde_json::Value;
use stepback_engine::Workspace;
use stepback_engine::board::{BoardEditor, BoardMoment};
use stepback_engine::prune::Rules;
use stepback_engine::recorder::ScanPolicy;
use stepback_model::record::{Session, StepKind, Trigger};
use stepback_reasoning::item::HypothesisStatus;
use stepback_reasoning::{BoardMutation, ItemOrigin, ReasoningBoard};
use stepback_store::port::StepQuery;

use crate::place::{BoardWorkspace, apply, conclude, evidence, propose};

/// The board that a session's thoughts lead to, applied one after the other from the beginning, with the step of each.
fn replayed(workspace: &Workspace, session: &Session) -> Vec<(u64, ReasoningBoard)> {
    let query = StepQuery {
        session: Some(session.id),
        kinds: vec![StepKind::Reasoning],
        oldest_first: true,
        ..StepQuery::default()
    };
    let mut board = ReasoningBoard::default();
    let mut versions = Vec::new();
    for stored in workspace.store().steps(workspace.record.id, &query).unwrap() {
        let step = stored.step;
        let detail = workspace.load_detail(&step).unwrap().unwrap();
        let mutation: BoardMutation = serde_json::from_value(detail["input"].clone()).unwrap();
        let during = detail.pointer("/metadata/during").cloned().unwrap_or(Value::Null);
        let during = serde_json::from_value(during).unwrap();
        board.apply(&mutation, &ItemOrigin { at: step.at, step: step.id, during }).unwrap();
        versions.push((step.number, board.clone()));
    }
    versions
}

#[test]
fn the_board_at_any_past_point_is_what_a_replay_from_the_beginning_leads_to() {
    for place in BoardWorkspace::in_every_store() {
        let engine = place.engine();
        let workspace = engine.open_workspace_root(&place.root).unwrap();
        let session = place.session(&workspace);
        let mut editor = BoardEditor::new(&workspace, &session);
        for number in 1..=150u32 {
            place.wait(60);
            match number % 7 {
                1 => drop(apply(&mut editor, propose(&format!("hypothesis {number}")))),
                2 => drop(apply(&mut editor, conclude(number / 7 + 1, HypothesisStatus::Testing))),
                3 => place.report(
                    &workspace,
                    StepKind::ToolStart,
                    Some(&number.to_string()),
                    ScanPolicy::Before,
                ),
                4 => {
                    place.write("file", &number.to_string());
                    drop(apply(&mut editor, conclude(number / 7 + 1, HypothesisStatus::Rejected)));
                }
                5 => place.report(
                    &workspace,
                    StepKind::ToolEnd,
                    Some(&(number - 2).to_string()),
                    ScanPolicy::After,
                ),
                // Somebody else goes on with it, who knows nothing of what was read before.
                6 => drop(apply(
                    &mut BoardEditor::new(&workspace, &session),
                    evidence(1, 0.2, &number.to_string()),
                )),
                _ => drop(apply(&mut editor, evidence(number / 14 + 1, -0.1, &number.to_string()))),
            }
        }
        let versions = replayed(&workspace, &session);
        assert!(versions.len() > 100);
        let newest = workspace.newest_step_number().unwrap();
        for number in 0..=newest {
            let expected = versions.iter().rev().find(|(at, _)| *at <= number);
            let expected = expected.map_or_else(ReasoningBoard::default, |(_, board)| board.clone());
            let seen = workspace.board_at(&session, &BoardMoment::Step(number)).unwrap();
            assert_eq!(seen.board, expected, "#{number}");
        }
        assert_eq!(editor.board().unwrap(), versions.last().unwrap().1);
        // By time: the moment of a step is after it, a microsecond earlier is before it.
        let third = workspace.board_at(&session, &BoardMoment::Step(versions[40].0)).unwrap().step.unwrap();
        let at = third.step.at;
        assert_eq!(workspace.board_at(&session, &BoardMoment::Time(at)).unwrap().board, versions[40].1);
        let before = stepback_model::time::Timestamp::from_micros(at.as_micros() - 1);
        assert_eq!(workspace.board_at(&session, &BoardMoment::Time(before)).unwrap().board, versions[39].1);
    }
}

#[test]
fn nothing_is_lost_across_a_hundred_compactions_and_a_prune() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut expected = Vec::new();
    for round in 1..=100u32 {
        place.wait(600);
        place.write("file", &round.to_string());
        let mut editor = BoardEditor::new(&workspace, &session);
        apply(&mut editor, propose(&format!("hypothesis {round}")));
        apply(&mut editor, evidence(round, 0.5, "the log"));
        let edit = apply(&mut editor, conclude(round, HypothesisStatus::Confirmed));
        // The agent is about to forget everything.
        place.report(&workspace, StepKind::StateChange, None, ScanPolicy::Checkpoint(Trigger::Automatic));
        expected.push((edit.step, editor.board().unwrap()));
    }
    let rules = Rules { keep_last: Some(1), now: true, ..Rules::default() };
    let plan = workspace.plan_prune(rules).unwrap();
    assert!(plan.hide.len() > 50, "there were checkpoints to give up");
    workspace.prune(plan).unwrap();
    for (step, board) in &expected {
        let seen = workspace.board_at(&session, &BoardMoment::Step(*step)).unwrap();
        assert_eq!(seen.board, *board, "#{step}");
    }
    let page =
        stepback_board::build_recovery_page(&workspace, &session, &BoardMoment::Now, 4000, place.now())
            .unwrap()
            .page;
    assert!(page.contains("H100 confirmed"), "{page}");
    assert_eq!(engine.verify_objects().unwrap().problems, Vec::<String>::new());
}

#[test]
fn what_is_worth_a_checkpoint_makes_one_if_files_have_changed() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    place.write("file", "1");
    assert_eq!(apply(&mut editor, propose("it")).checkpoint, None, "a proposal is not");
    let edit = apply(&mut editor, conclude(1, HypothesisStatus::Testing));
    let number = edit.checkpoint.unwrap();
    let stored = workspace.store().step_numbered(workspace.record.id, number).unwrap().unwrap();
    assert_eq!(stored.annotation.tags, ["hypothesis-status"]);
    assert_eq!(stored.trigger, Some(Trigger::Automatic));
    assert_eq!(
        apply(&mut editor, conclude(1, HypothesisStatus::Confirmed)).checkpoint,
        None,
        "nothing changed"
    );
    place.write("file", "2");
    place.wait(301);
    assert!(apply(&mut editor, propose("after a while")).checkpoint.is_some());
    // The edit itself has no files of its own, so its files are those of the checkpoint.
    let last = workspace.store().step_numbered(workspace.record.id, workspace.newest_step_number().unwrap());
    assert!(last.unwrap().unwrap().trigger.is_none());
}

#[test]
fn a_thought_during_a_call_is_joined_to_it_and_does_not_end_it() {
    let place = BoardWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    place.report(&workspace, StepKind::ToolStart, Some("call"), ScanPolicy::Before);
    let open = workspace.store().session(session.id).unwrap().unwrap().info.open;
    let mut editor = BoardEditor::new(&workspace, &session);
    apply(&mut editor, propose("it"));
    place.write("file", "changed by the call");
    apply(&mut editor, conclude(1, HypothesisStatus::Rejected));
    let after = workspace.store().session(session.id).unwrap().unwrap().info.open;
    assert_eq!(after, open, "the call goes on");
    let board = editor.board().unwrap();
    assert_eq!(board.hypotheses.get(1).unwrap().origin.during, Some(open[0].step));
}

#[test]
fn a_board_is_restored_and_single_changes_are_taken_back() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    apply(&mut editor, propose("it is the cache"));
    let first = editor.board().unwrap();
    let moment = BoardMoment::Step(workspace.newest_step_number().unwrap());
    let added = apply(&mut editor, evidence(1, 0.9, "the log"));
    apply(&mut editor, propose("it is the clock"));
    let dry = editor.take_back(Some(added.step), true).unwrap();
    assert_eq!(dry.step, None);
    let back = editor.take_back(Some(added.step), false).unwrap();
    assert!(back.conflicts.is_empty());
    assert_eq!(back.diff.changes[0].sentence, "H1 fell from 0.94 to 0.5 after E1");
    let board = editor.board().unwrap();
    assert!(board.evidence.is_empty() && board.hypotheses.count() == 2, "what came later stays");
    editor.restore(&moment, false).unwrap();
    assert_eq!(editor.board().unwrap(), first);
    // Taking that back leads to what was before it.
    editor.take_back(None, false).unwrap();
    assert_eq!(editor.board().unwrap().document(), board.document());
    let error = editor.take_back(Some(1), false).unwrap_err().to_string();
    assert!(error.contains("is not a board change"), "{error}");
    assert_eq!(editor.take_back(Some(added.step), false).unwrap().step, None, "it is taken back already");
}

#[test]
fn whose_board_is_meant_is_found_out_or_asked_for() {
    let place = BoardWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let now = || place.now();
    assert_eq!(stepback_board::choose_session(&workspace, None, now()).unwrap().agent, Session::PERSON);
    let session = place.session(&workspace);
    assert_eq!(stepback_board::choose_session(&workspace, None, now()).unwrap().id, session.id);
    let lock = workspace.lock_recording().unwrap();
    let event = stepback_model::event::AgentEvent::new("other", "t", StepKind::AgentStep, "begun");
    let report = stepback_engine::recorder::ReportedEvent::new(event, now());
    workspace.record(&lock, &report).unwrap();
    drop(lock);
    let error = stepback_board::choose_session(&workspace, None, now()).unwrap_err().to_string();
    assert!(error.starts_with("2 agents are running here"), "{error}");
    assert_eq!(stepback_board::choose_session(&workspace, Some("t"), now()).unwrap().agent, "other");
    place.wait(7200);
    assert_eq!(
        stepback_board::choose_session(&workspace, None, now()).unwrap().agent,
        Session::PERSON,
        "they are idle"
    );
}

#[test]
fn secrets_are_not_put_on_the_board() {
    let place = BoardWorkspace::in_memory();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let mut editor = BoardEditor::new(&workspace, &session);
    let secret = concat!("ghp_", "0123456789abcdefghijABCDEFGHIJ012345");
    apply(&mut editor, propose(&format!("the token {secret} is wrong")));
    let statement = editor.board().unwrap().hypotheses.get(1).unwrap().statement.clone();
    assert!(!statement.contains(secret), "{statement}");
    let step = workspace.store().steps(workspace.record.id, &StepQuery::default()).unwrap().remove(0);
    let detail = workspace.load_detail(&step.step).unwrap().unwrap().to_string();
    assert!(!detail.contains(secret) && !step.step.summary.contains(secret));
}

#[test]
fn the_history_of_confidence_is_what_each_moment_says() {
    let place = BoardWorkspace::new();
    let engine = place.engine();
    let workspace = engine.open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    assert_eq!(stepback_board::confidence_history(&workspace, &session, 100).unwrap().moments, []);
    let mut editor = BoardEditor::new(&workspace, &session);
    for number in 1..=60u32 {
        place.wait(1);
        match number % 4 {
            1 => drop(apply(&mut editor, propose(&format!("hypothesis {number}")))),
            2 => drop(apply(&mut editor, evidence(1 + number % (number / 4 + 1), 0.3, &number.to_string()))),
            3 if number > 30 => drop(apply(&mut editor, evidence(2, -0.2, &number.to_string()))),
            _ => place.report(&workspace, StepKind::AgentStep, None, ScanPolicy::None),
        }
    }
    let restored = editor.restore(&BoardMoment::Step(20), false).unwrap();
    assert!(restored.step.is_some());
    let whole = stepback_board::confidence_history(&workspace, &session, 1000).unwrap();
    assert_eq!((whole.every, whole.moments.len()), (1, whole.changes));
    for most in [1000, 7, 1] {
        let history = stepback_board::confidence_history(&workspace, &session, most).unwrap();
        assert!(history.moments.len() <= most && history.changes == whole.changes);
        assert_eq!(history.moments.last(), whole.moments.last(), "the last edit is always told");
        for (moment, (number, _)) in history.moments.iter().enumerate() {
            let board = workspace.board_at(&session, &BoardMoment::Step(*number)).unwrap().board;
            let confidences = board.confidences();
            for (id, line) in &history.lines {
                let at = line.at.partition_point(|at| *at <= moment);
                let told = at.checked_sub(1).and_then(|at| line.confidence[at]);
                assert_eq!(told, confidences.get(id).copied(), "H{id} at #{number}");
                let status = at.checked_sub(1).and_then(|at| line.status[at]);
                assert_eq!(status, board.hypotheses.get(*id).map(|known| known.status));
            }
            assert!(confidences.keys().all(|id| history.lines.contains_key(id)));
        }
    }
}

#[test]
fn a_session_is_measured_by_its_checkpoints_and_the_time_at_work() {
    let place = BoardWorkspace::in_memory();
    let workspace = place.engine().open_workspace_root(&place.root).unwrap();
    let session = place.session(&workspace);
    let board = BoardEditor::new(&workspace, &session).board().unwrap();
    let measure = |until| {
        let all = stepback_board::measure_session(&workspace, &session, &board, until).unwrap().activity;
        (all.checkpoints, all.seconds_spent, all.checkpoints_per_hour)
    };
    assert_eq!(measure(None), (0, 0, None), "no time, no rate");
    for number in 1..=3 {
        place.wait(600);
        place.write("file", &number.to_string());
        let keep = ScanPolicy::Checkpoint(Trigger::Automatic);
        place.report(&workspace, StepKind::AgentStep, None, keep);
    }
    let newest = workspace.newest_step_number().unwrap();
    assert_eq!(measure(None), (3, 1800, Some(6.0)));
    assert_eq!(measure(Some(newest - 1)), (2, 1200, Some(6.0)), "as it was then");
    // An hour without work; then ten minutes without a checkpoint.
    place.wait(3600);
    place.report(&workspace, StepKind::AgentStep, None, ScanPolicy::None);
    assert_eq!(measure(None), (3, 1800, Some(6.0)), "a pause is no work");
    place.wait(600);
    place.report(&workspace, StepKind::AgentStep, None, ScanPolicy::None);
    assert_eq!(measure(None), (3, 2400, Some(4.5)));
}
