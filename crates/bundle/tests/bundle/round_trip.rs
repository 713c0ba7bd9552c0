//! Random sessions come out as they went in.

use std::fs;

use serde_json::Value;
use stepback_bundle::Bundle;
use stepback_faults::{Fault, arm, disarm};
use stepback_model::record::Session;
use stepback_store::port::SearchRequest;
use stepback_testkit::process;
use stepback_testkit::tree;

use crate::place::{BundleStore, BusyWorkspace, small};

#[track_caller]
fn same_view(from: &BundleStore, to: &BundleStore, session: &Session) {
    let there = to.session(session);
    let (was, is) = (from.view(session), to.view(&there));
    assert_eq!(was.len(), is.len());
    for (was, is) in was.iter().zip(&is) {
        assert_eq!(was, is);
    }
    assert!(there.info.imported && there.info.transcript.is_none() && there.info.started.is_none());
    let steps = to.steps(&there);
    for (before, after) in from.steps(session).iter().zip(&steps) {
        let (was, is) = (from.files(session, before), to.files(&there, after));
        match (was, is) {
            (Some(was), Some(is)) => assert_eq!(tree::differences(&was, &is), ""),
            (was, is) => assert_eq!(was.is_some(), is.is_some()),
        }
    }
}

#[test]
fn random_sessions_are_the_same_elsewhere() {
    for seed in 1..=12 {
        let mut world = BusyWorkspace::new(seed);
        if seed % 3 == 0 {
            world = world.with_git();
        }
        for at in 0..10 {
            world.call(if at % 3 == 2 { "two" } else { "one" });
            if at % 2 == 0 {
                world.person();
            }
        }
        let sessions = world.sessions();
        assert_eq!(sessions.len(), 2);
        let bytes = world.export(&sessions[..1]);
        assert_eq!(world.export(&sessions[..1]), bytes, "the same bytes every time");

        let there =
            if seed % 4 == 0 && seed % 3 != 0 { BundleStore::in_memory(99) } else { BundleStore::new(99) };
        let imported = there.import(&bytes).unwrap();
        assert_eq!(imported.new_steps, imported.steps, "seed {seed}");
        same_view(&world.home, &there, &sessions[0]);
        assert_eq!(there.engine().verify_objects().unwrap().problems, [""; 0], "seed {seed}");
        // Twice is once.
        let mark = there.store.commit_seq().unwrap();
        let again = there.import(&bytes).unwrap();
        assert_eq!((again.new_steps, again.new_objects, again.new_git_files), (0, 0, 0));
        assert_eq!(there.store.commit_seq().unwrap(), mark, "nothing was committed");
        // Where it was made, everything is there.
        assert_eq!(world.home.import(&bytes).unwrap().new_steps, 0);

        // The other one goes beside it, and both go on from there.
        there.import(&world.export(&sessions)).unwrap();
        same_view(&world.home, &there, &sessions[0]);
        same_view(&world.home, &there, &sessions[1]);
        let here: Vec<Session> = sessions.iter().map(|session| there.session(session)).collect();
        let mut passed_on = Vec::new();
        stepback_bundle::export(&there.engine(), &here, &mut passed_on).unwrap();
        let third = BundleStore::new(77);
        third.import(&passed_on).unwrap();
        same_view(&world.home, &third, &sessions[0]);
        assert_eq!(third.session(&sessions[0]).workspace, here[0].workspace, "one place for what came once");
    }
}

#[test]
fn a_session_that_went_on_is_taken_in_again() {
    let mut world = small(5);
    let there = BundleStore::new(6);
    there.import(&world.export(&world.sessions())).unwrap();
    let before = there.steps(&there.session(&world.sessions()[0])).len();
    world.call("one");
    let imported = there.import(&world.export(&world.sessions())).unwrap();
    assert!(imported.new_steps >= 3 && imported.new_steps < imported.steps, "{imported:?}");
    assert!(there.steps(&there.session(&world.sessions()[0])).len() >= before + 3);
    same_view(&world.home, &there, &world.sessions()[0]);
}

#[test]
fn what_was_taken_in_is_found_by_its_words() {
    let world = small(7);
    let there = BundleStore::new(8);
    there.import(&world.export(&world.sessions())).unwrap();
    let pattern = stepback_model::search::Pattern::words("now one").unwrap();
    let found = there.engine().search(&SearchRequest::new(pattern.clone(), 100)).unwrap();
    assert!(found.total > 0);
    let original = world.home.engine().search(&SearchRequest::new(pattern, 100)).unwrap();
    assert_eq!(found.total, original.total);
}

#[test]
fn a_failing_disk_leaves_nothing_behind_or_everything() {
    // Faults are armed for a whole process, so other tests must not run in it.
    if process::task().is_none() {
        let name = "round_trip::a_failing_disk_leaves_nothing_behind_or_everything";
        return process::expect_success(process::spawn(name, "faults"));
    }
    let world = {
        let mut world = BusyWorkspace::new(3).with_git();
        world.call("one");
        world.person();
        world.call("one");
        world
    };
    let bytes = world.export(&world.sessions());
    for fault in [Fault::Once, Fault::DiskFull] {
        let there = BundleStore::new(9);
        let mut tried = 0;
        loop {
            tried += 1;
            let path = there.top().join("bundle");
            fs::write(&path, &bytes).unwrap();
            arm(fault, tried);
            let engine = there.engine();
            let outcome = Bundle::open(fs::File::open(&path).unwrap(), None)
                .and_then(|bundle| stepback_bundle::import(&engine, &bundle));
            disarm();
            match outcome {
                Ok(imported) => {
                    assert_eq!(imported.new_steps, imported.steps);
                    break;
                }
                Err(_) if there.store.workspaces().unwrap().is_empty() => there.expect_nothing(),
                // It was committed, and the answer was lost.
                Err(_) => {
                    assert_eq!(there.import(&bytes).unwrap().new_steps, 0);
                    break;
                }
            }
            assert!(tried < 500);
        }
        assert!(tried > 5, "only {tried} points were passed");
        same_view(&world.home, &there, &world.sessions()[0]);
        let left = fs::read_dir(there.top().join("store")).unwrap();
        let left =
            left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("import-"));
        assert_eq!(left.count(), 0);
    }
}

#[test]
fn lines_tell_everything_that_happened() {
    let world = small(11);
    let session = &world.sessions()[0];
    let mut text = Vec::new();
    let exported =
        stepback_bundle::export_lines(&world.home.engine(), std::slice::from_ref(session), &mut text)
            .unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(stepback_bundle::is_json_lines_export(text.as_bytes()));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |record: &str| lines.iter().filter(|line| line["record"] == record).collect::<Vec<_>>();
    assert_eq!(of("step").len() as u64, exported.steps);
    assert_eq!(of("end")[0]["lines"], lines.len());
    assert_eq!(lines.last().unwrap()["record"], "end");
    assert_eq!((of("export").len(), of("workspace").len()), (1, 1));
    let steps = world.home.steps(session);
    let known: Vec<Value> = steps.iter().map(|stored| serde_json::json!(stored.step.id)).collect();
    let own: Vec<&Value> =
        of("step").into_iter().filter(|line| line["session"] == session.id.to_string()).collect();
    assert!(own.iter().map(|line| &line["id"]).eq(known.iter()));
    assert!(own.iter().any(|line| line["detail"]["input"]["call"] == "one-1"), "{own:?}");
    assert!(own.iter().any(|line| !line["changes"].as_array().unwrap().is_empty()));
    assert_eq!(of("message").len(), 4);
    assert_eq!(of("message")[0]["message"]["content"], "now one-1");
}
