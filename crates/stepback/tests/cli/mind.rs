//! What is thought, at the command line.

use std::fs;

use serde_json::Value;

use crate::sandbox::Sandbox;
use crate::talk::{Talk, of_kind};
use crate::transcripts::{Transcript, assert_transcript};

/// A hunt for a bug, from the first suspicion to the page that is left.
#[test]
fn the_board_of_a_hunt() {
    let mut t = Transcript::new();
    t.world.write("cache.txt", "on\n");
    t.run("mind")
        .run("hypothesis propose \"the cache is stale after a deploy\" --tag cache")
        .run("hypothesis propose \"the clock jumps\" --prior 0.2")
        .run("hypothesis propose \"only on arm\" --parent H2")
        .run("evidence add H1 \"a hit right after the deploy\" --strength 0.5 --tool curl")
        .run("evidence add H1 \"a hit right after the deploy\" --strength 0.4 --tool curl")
        .run("evidence add H2 \"the manual says it is monotonic\" --strength -0.9 --doc clock_gettime(2)")
        .run("belief add \"a query takes 5 to 20 ms\" --kind expectation --subject query-ms --range 5..20")
        .run("belief add \"it took 120 ms\" --kind observation --subject query-ms --value 120")
        .run("belief add \"the pool is exhausted\" --kind inference --confidence 0.9 --hypothesis H1")
        .run("belief depend B3 B2 --kind derived-from --strength 0.8 --because \"nothing else waits\"")
        .run("belief depend B2 B3")
        .run("belief impact B2")
        .run("belief roots B3")
        .run("gap add \"which version does production run?\" --kind environment --criticality high --blocks H1")
        .run("gap add \"since when?\" --after G1 --strategy \"ask the log\" --minutes 5")
        .run("verify add \"the cache is on\" --file cache.txt --text on --pass-evidence H1=0.3 --pass-fills G1")
        .run("gap next")
        .run("verify run")
        .run("hypothesis conclude H2 rejected --because \"it cannot jump\"")
        .run("contradiction resolve C1 \"that was a cold start\"")
        .run("note add \"staging is a copy of Monday\" --about H1")
        .run("mind")
        .run("mind diff 3")
        .run("mind undo 7 --dry-run")
        .run("hypothesis reopen H2")
        .run("mind undo")
        .run("mind metrics")
        .run("recover --budget 400")
        .run("log --kind reasoning --limit 3");
    assert_transcript!(t.text());
}

/// What is refused says why, and what to do.
#[test]
fn what_a_board_refuses() {
    let mut t = Transcript::new();
    t.run("evidence add H1 \"nothing\" --strength 0.5")
        .run("hypothesis propose \"it\" --prior NaN")
        .run("hypothesis propose \"it\" --prior 1")
        .run("hypothesis propose \"it\"")
        .run("evidence add H1 \"too much\" --strength 1.5")
        .run("evidence add H1 \"x\" --strength 0.5 --kind rumour")
        .run("evidence add E1 \"x\" --strength 0.5")
        .run("belief add \"it\" --kind guess")
        .run("belief add \"it\" --kind assumption --subject s --range 9..1")
        .run("belief add \"it\" --kind assumption")
        .run("belief depend B1 B1")
        .run("hypothesis conclude H1 maybe")
        .run("verify run")
        .run("verify add \"it\" --json-file x --pointer rows --equals 3")
        .run("verify add \"it\" --same ../../etc/passwd x")
        .run("verify add \"it\" --run true --timeout 0")
        .run("mind 99")
        .run("mind undo x")
        .run("mind --session nobody")
        .run("mind merge main")
        .run("mind");
    assert_transcript!(t.text());
}

fn json(world: &Sandbox, arguments: &[&str]) -> Value {
    let ran = world.run([arguments, &["--json"]].concat());
    assert_eq!(ran.code, Some(0), "{}{}", ran.out, ran.err);
    serde_json::from_str(&ran.out).unwrap()
}

#[test]
fn files_and_board_go_back_together_or_apart() {
    let world = Sandbox::frozen();
    world.write("file", "1\n");
    world.ok(["checkpoint", "create", "begin"]);
    world.ok(["hypothesis", "propose", "it is the cache"]);
    let first = json(&world, &["mind"])["step"].as_u64().unwrap();
    world.write("file", "2\n");
    let thought = json(&world, &["hypothesis", "conclude", "H1", "rejected"]);
    assert!(thought["checkpoint"].is_u64(), "files had changed: {thought}");
    let point = first.to_string();
    world.ok(["rewind", &point, "--everything", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "1\n");
    assert_eq!(json(&world, &["mind"])["hypotheses"][0]["status"], "rejected", "only files were asked for");
    world.ok(["rewind", &point, "--everything", "--yes", "--reasoning"]);
    assert_eq!(json(&world, &["mind"])["hypotheses"][0]["status"], "active");
    world.ok(["mind", "undo"]);
    assert_eq!(json(&world, &["mind"])["hypotheses"][0]["status"], "rejected");
    assert_eq!(json(&world, &["mind", &point])["hypotheses"][0]["status"], "active", "the past stays");
}

#[test]
fn undo_and_redo_take_the_board_along() {
    let world = Sandbox::frozen();
    world.write("file", "1\n");
    world.ok(["checkpoint", "create", "begin"]);
    world.ok(["hypothesis", "propose", "it is the cache"]);
    let point = json(&world, &["mind"])["step"].to_string();
    world.write("file", "2\n");
    world.ok(["hypothesis", "conclude", "H1", "rejected"]);
    let is = |files: &str, board: &str, when: &str| {
        assert_eq!(fs::read_to_string(world.path("file")).unwrap(), files, "{when}");
        assert_eq!(json(&world, &["mind"])["hypotheses"][0]["status"], board, "{when}");
    };
    world.ok(["rewind", &point, "--everything", "--yes", "--reasoning"]);
    is("1\n", "active", "after a rewind of both");
    world.ok(["note", "add", "what came later stays"]);
    let undone = json(&world, &["undo", "--yes"]);
    assert!(undone["board"]["step"].is_u64(), "{undone:#}");
    is("2\n", "rejected", "undone");
    assert_eq!(json(&world, &["mind"])["notes"][0]["text"], "what came later stays");
    world.ok(["redo", "--yes"]);
    is("1\n", "active", "done again");
    world.ok(["undo", "--yes"]);
    is("2\n", "rejected", "undone again");
    // A rewind of files alone leaves the board alone, both ways.
    world.ok(["rewind", &point, "--everything", "--yes"]);
    is("1\n", "rejected", "after a rewind of files");
    let undone = json(&world, &["undo", "--yes"]);
    assert!(undone["board"].is_null(), "{undone:#}");
    is("2\n", "rejected", "undone");
}

#[test]
fn an_experiment_is_tried_on_a_branch_and_its_conclusions_come_back() {
    let world = Sandbox::frozen();
    world.write("file", "1\n");
    world.ok(["checkpoint", "create"]);
    world.ok(["hypothesis", "propose", "it is the cache"]);
    world.ok(["experiment", "start", "no-cache", "--hypothesis", "H1", "--success", "it is fast"]);
    world.write("file", "2\n");
    world.ok(["evidence", "add", "H1", "fast without it", "--strength", "0.9", "--tool", "time"]);
    world.ok(["experiment", "end", "X1", "succeeded", "ten times faster"]);
    world.ok(["hypothesis", "conclude", "H1", "confirmed"]);
    world.ok(["branch", "switch", "main", "--reasoning", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "1\n");
    let mind = json(&world, &["mind"]);
    assert_eq!(
        (&mind["hypotheses"][0]["status"], &mind["experiments"][0]["status"]),
        (&"active".into(), &"running".into())
    );
    let planned = json(&world, &["mind", "merge", "no-cache", "--dry-run"]);
    assert!(planned["step"].is_null() && planned["conflicts"].as_array().unwrap().is_empty(), "{planned}");
    world.ok(["mind", "merge", "no-cache"]);
    let mind = json(&world, &["mind"]);
    assert_eq!(mind["hypotheses"][0]["status"], "confirmed");
    assert_eq!(mind["experiments"][0]["result"], "ten times faster");
    assert!(json(&world, &["branch", "list"]).to_string().contains("no-cache"));
}

#[test]
fn the_board_of_an_agent_goes_with_a_bundle_a_copy_and_through_a_prune() {
    let world = Sandbox::new();
    world.write("file", "1\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("find the bug");
    agent.bash("b1", "stepback hypothesis propose", || {
        world.write("file", "2\n");
        world.ok(["hypothesis", "propose", "it is the cache"]);
        world.ok(["evidence", "add", "H1", "seen", "--strength", "0.5", "--step", "tool:bash:last"]);
        for number in 0..40 {
            let text =
                format!("note number {number}, long enough that a page is an object of its own: {:0200}", 0);
            world.ok(["note", "add", &text]);
        }
    });
    let before = json(&world, &["mind"]);
    let call = of_kind(&world, "tool-start")[0]["id"].clone();
    assert_eq!(before["hypotheses"][0]["origin"]["during"], call, "it is joined to the call");
    assert_eq!(before["evidence"][0]["source"]["tool"]["step"], call);
    let session = before["session"].as_str().unwrap().to_owned();
    let bundle = world.root().join("session.bundle").to_string_lossy().into_owned();
    world.ok(["export", &session, "--format", "bundle", "-o", &bundle]);
    let (taken, copied) = (world.root().join("taken"), world.root().join("copied"));
    let (taken, copied) = (taken.to_string_lossy().into_owned(), copied.to_string_lossy().into_owned());
    let imported = json(&world, &["--store", &taken, "import", &bundle]);
    let workspace = imported["items"][0]["workspace"].as_str().unwrap();
    world.ok(["store", "copy", &world.store.to_string_lossy(), &copied]);
    let boards = [
        json(&world, &["--store", &taken, "--workspace", workspace, "mind", "--session", "s1"]),
        json(&world, &["--store", &copied, "mind", "--session", "s1"]),
    ];
    for there in boards {
        assert_eq!((&there["notes"], &there["evidence"]), (&before["notes"], &before["evidence"]));
    }
    world.ok(["--store", &taken, "fsck"]);
    world.ok(["--store", &copied, "fsck"]);
    world.ok(["prune", "--keep-last", "1", "--now"]);
    assert_eq!(json(&world, &["mind"])["notes"], before["notes"]);
    world.expect_sound("a prune");
    let page = world.ok(["recover"]).out;
    assert!(page.contains("## Asked for last\nfind the bug"), "{page}");
    assert!(page.contains("stepback hypothesis propose"), "the last command: {page}");
}

#[test]
fn a_thought_is_recorded_whole_or_not_at_all() {
    for kind in ["kill", "eio", "enospc"] {
        let world = Sandbox::frozen();
        world.write("file", "0\n");
        world.ok(["checkpoint", "create"]);
        world.ok(["hypothesis", "propose", "it is the cache"]);
        let mut known = 0;
        for n in 1..500 {
            // A change of status with changed files: a checkpoint and a thought, each with a commit of its own.
            world.write("file", format!("{n}\n"));
            let how = if known % 2 == 0 { "test" } else { "reopen" };
            let ran = match how {
                "test" => world.faulty(&["hypothesis", "test", "H1"], &format!("{kind}:{n}")),
                _ => world.faulty(&["mind", "undo"], &format!("{kind}:{n}")),
            };
            let status = json(&world, &["mind"])["hypotheses"][0]["status"].clone();
            let expected = if how == "test" { "testing" } else { "active" };
            if ran.code == Some(0) {
                assert_eq!(status, expected, "{kind}:{n}");
            }
            if status == expected {
                known += 1;
            }
            world.expect_sound(&format!("{kind}:{n}"));
            if ran.code == Some(0) && n > 3 {
                world.ok(["note", "add", "still here"]);
                break;
            }
            assert!(n < 499, "it never succeeds");
        }
    }
}
