//! The reasoning board at the command line.

use std::fs;

use serde_json::Value;

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{Talk, of_kind};
use crate::transcripts::{Transcript, assert_transcript};

/// A hunt for a bug, from the first suspicion to the page that is left.
#[test]
fn the_board_of_a_hunt() {
    let mut t = Transcript::new();
    t.world.write("cache.txt", "on\n");
    t.run("board")
        .run("board hypothesis propose \"the cache is stale after a deploy\" --tag cache")
        .run("board hypothesis propose \"the clock jumps\" --prior 0.2")
        .run("board hypothesis propose \"only on arm\" --parent H2")
        .run("board evidence add H1 \"a hit right after the deploy\" --strength 0.5 --tool curl")
        .run("board evidence add H1 \"a hit right after the deploy\" --strength 0.4 --tool curl")
        .run("board evidence add H2 \"the manual says it is monotonic\" --strength -0.9 --doc clock_gettime(2)")
        .run("board belief add \"a query takes 5 to 20 ms\" --kind expectation --subject query-ms --range 5..20")
        .run("board belief add \"it took 120 ms\" --kind observation --subject query-ms --value 120")
        .run("board belief add \"the pool is exhausted\" --kind inference --confidence 0.9 --hypothesis H1")
        .run("board belief depend B3 B2 --kind derived-from --strength 0.8 --because \"nothing else waits\"")
        .run("board belief depend B2 B3")
        .run("board belief impact B2")
        .run("board belief roots B3")
        .run("board gap add \"which version does production run?\" --kind environment --criticality high --blocks H1")
        .run("board gap add \"since when?\" --after G1 --strategy \"ask the log\" --minutes 5")
        .run("board verify add \"the cache is on\" --file cache.txt --text on --pass-evidence H1=0.3 --pass-fills G1")
        .run("board gap next")
        .run("board verify run")
        .run("board hypothesis conclude H2 rejected --because \"it cannot jump\"")
        .run("board contradiction resolve C1 \"that was a cold start\"")
        .run("board note add \"staging is a copy of Monday\" --about H1")
        .run("board show")
        .run("board diff 3")
        .run("board undo 7 --dry-run")
        .run("board hypothesis reopen H2")
        .run("board undo")
        .run("board metrics")
        .run("board recover --budget 400")
        .run("log --kind reasoning --limit 3");
    assert_transcript!(t.text());
}

/// What is refused says why, and what to do.
#[test]
fn what_a_board_refuses() {
    let mut t = Transcript::new();
    t.run("board evidence add H1 \"nothing\" --strength 0.5")
        .run("board hypothesis propose \"it\" --prior NaN")
        .run("board hypothesis propose \"it\" --prior 1")
        .run("board hypothesis propose \"it\"")
        .run("board evidence add H1 \"too much\" --strength 1.5")
        .run("board evidence add H1 \"x\" --strength 0.5 --kind rumour")
        .run("board evidence add E1 \"x\" --strength 0.5")
        .run("board belief add \"it\" --kind guess")
        .run("board belief add \"it\" --kind assumption --subject s --range 9..1")
        .run("board belief add \"it\" --kind assumption")
        .run("board belief depend B1 B1")
        .run("board hypothesis conclude H1 maybe")
        .run("board verify run")
        .run("board verify add \"it\" --json-file x --pointer rows --equals 3")
        .run("board verify add \"it\" --same ../../etc/passwd x")
        .run("board verify add \"it\" --run true --timeout 0")
        .run("board 99")
        .run("board undo x")
        .run("board --session nobody")
        .run("board merge main")
        .run("board");
    assert_transcript!(t.text());
}

/// The names that parts of the board once had on the top level do the same, and no list names them.
#[test]
fn the_former_names_are_hidden_aliases() {
    let world = Sandbox::frozen();
    world.ok(["mind", "hypothesis", "propose", "it is the cache"]);
    let pairs: [(&[&str], &[&str]); 12] = [
        (&["mind"], &["board", "show"]),
        (&["mind", "@", "--all"], &["board", "show", "@", "--all"]),
        (&["mind", "metrics"], &["board", "metrics"]),
        (&["hypothesis", "list"], &["board", "hypothesis", "list"]),
        (&["evidence", "list"], &["board", "evidence", "list"]),
        (&["belief", "impact", "B9"], &["board", "belief", "impact", "B9"]),
        (&["contradiction", "list"], &["board", "contradiction", "list"]),
        (&["gap", "next"], &["board", "gap", "next"]),
        (&["verify", "run"], &["board", "verify", "run"]),
        (&["note", "list"], &["board", "note", "list"]),
        (&["experiment", "list"], &["board", "experiment", "list"]),
        (&["recover"], &["board", "recover"]),
    ];
    let help = world.ok(["--help"]).out;
    for (former, present) in pairs {
        for json in [&[][..], &["--json"]] {
            let [former, present] = [former, present].map(|words| {
                let mut command = world.command([words, json].concat());
                // Both at the same time, so that "1 min ago" is the same.
                let ran: Ran =
                    command.env("STEPBACK_TEST_CLOCK", "2026-01-02T04:00:00Z/1000").output().unwrap().into();
                (ran.code, ran.out, ran.err)
            });
            assert_eq!(former, present);
        }
        assert!(!help.contains(&format!("\n  {} ", former[0])), "{former:?}");
    }
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
    world.ok(["board", "hypothesis", "propose", "it is the cache"]);
    let first = json(&world, &["board"])["step"].as_u64().unwrap();
    world.write("file", "2\n");
    let thought = json(&world, &["board", "hypothesis", "conclude", "H1", "rejected"]);
    assert!(thought["checkpoint"].is_u64(), "files had changed: {thought}");
    let point = first.to_string();
    world.ok(["rewind", &point, "--everything", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "1\n");
    assert_eq!(json(&world, &["board"])["hypotheses"][0]["status"], "rejected", "only files were asked for");
    world.ok(["rewind", &point, "--everything", "--yes", "--files", "--reasoning"]);
    assert_eq!(json(&world, &["board"])["hypotheses"][0]["status"], "active");
    world.ok(["board", "undo"]);
    assert_eq!(json(&world, &["board"])["hypotheses"][0]["status"], "rejected");
    assert_eq!(json(&world, &["board", &point])["hypotheses"][0]["status"], "active", "the past stays");
}

#[test]
fn a_conclusion_has_a_checkpoint_before_it_and_one_after_it() {
    let world = Sandbox::frozen();
    world.write("file", "1\n");
    world.ok(["checkpoint", "create", "begin"]);
    world.ok(["board", "hypothesis", "propose", "it is the cache"]);
    world.write("file", "2\n");
    let edit = json(&world, &["board", "hypothesis", "conclude", "H1", "confirmed"]);
    let status = |point: &str| json(&world, &["board", point])["hypotheses"][0]["status"].clone();
    for (name, begins, expected) in
        [("checkpoint", "before: ", "active"), ("checkpoint_after", "after: ", "confirmed")]
    {
        let point = format!("#{}", edit[name].as_u64().unwrap_or_else(|| panic!("no {name} in {edit:#}")));
        let shown = json(&world, &["checkpoint", "show", &point]);
        let summary = shown["summary"].as_str().unwrap();
        assert!(summary.starts_with(begins) && summary.contains("H1"), "{summary}");
        assert_eq!(shown["tags"], serde_json::json!(["hypothesis-status"]), "{shown:#}");
        assert_eq!(shown["trigger"], "automatic");
        assert_eq!(status(&point), expected, "the board of {point}");
        assert_eq!(world.ok(["cat", &point, "file"]).out, "2\n");
    }
    let text = world.ok(["board", "hypothesis", "reopen", "H1"]).err;
    assert!(text.contains("was created after this change"), "{text}");
}

#[test]
fn the_board_is_a_part_of_each_checkpoint_and_of_their_difference() {
    let world = Sandbox::new();
    world.write("file", "1\n");
    let agent = Talk::new(&world, "s1");
    agent.begin();
    agent.prompt("find the bug");
    world.ok(["board", "hypothesis", "propose", "it is the cache"]);
    world.ok(["checkpoint", "create", "A"]);
    world.ok(["board", "hypothesis", "conclude", "H1", "rejected"]);
    world.ok(["board", "note", "add", "look at the clock"]);
    world.ok(["checkpoint", "create", "B"]);
    for (point, status, concluded) in [("A", "active", 0), ("B", "rejected", 1)] {
        for words in [&["at", point][..], &["checkpoint", "show", point]] {
            let board = &json(&world, words)["board"];
            assert_eq!(board["hypotheses"][0]["status"], status, "{words:?}: {board:#}");
            assert_eq!(board["metrics"]["concluded"], concluded, "{words:?}");
            let text = world.ok(words).out;
            let line = format!("1 hypothesis ({concluded} concluded)");
            assert!(text.contains(&line) && text.contains("it is the cache"), "{words:?}: {text}");
        }
    }
    let text = world.ok(["diff", "A", "B"]).out;
    assert!(text.contains("H1 went from active to rejected"), "{text}");
    let changes = json(&world, &["diff", "A", "B"])["board"]["changes"].clone();
    let items: Vec<_> = changes.as_array().unwrap().iter().map(|change| change["item"].clone()).collect();
    assert_eq!(items, ["H1", "N1"], "{changes:#}");
    let none = json(&world, &["diff", "A", "A"])["board"].clone();
    assert!(none.is_null() || none["changes"].as_array().unwrap().is_empty(), "{none}");
}

#[test]
fn undo_and_redo_take_the_board_along() {
    let world = Sandbox::frozen();
    world.write("file", "1\n");
    world.ok(["checkpoint", "create", "begin"]);
    world.ok(["board", "hypothesis", "propose", "it is the cache"]);
    let point = json(&world, &["board"])["step"].to_string();
    world.write("file", "2\n");
    world.ok(["board", "hypothesis", "conclude", "H1", "rejected"]);
    let is = |files: &str, board: &str, when: &str| {
        assert_eq!(fs::read_to_string(world.path("file")).unwrap(), files, "{when}");
        assert_eq!(json(&world, &["board"])["hypotheses"][0]["status"], board, "{when}");
    };
    world.ok(["rewind", &point, "--everything", "--yes", "--files", "--reasoning"]);
    is("1\n", "active", "after a rewind of both");
    world.ok(["board", "note", "add", "what came later stays"]);
    let undone = json(&world, &["undo", "--yes"]);
    assert!(undone["board"]["step"].is_u64(), "{undone:#}");
    is("2\n", "rejected", "undone");
    assert_eq!(json(&world, &["board"])["notes"][0]["text"], "what came later stays");
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
    world.ok(["board", "hypothesis", "propose", "it is the cache"]);
    world.ok(["board", "experiment", "start", "no-cache", "--hypothesis", "H1", "--success", "it is fast"]);
    world.write("file", "2\n");
    world.ok(["board", "evidence", "add", "H1", "fast without it", "--strength", "0.9", "--tool", "time"]);
    world.ok(["board", "experiment", "end", "X1", "succeeded", "ten times faster"]);
    world.ok(["board", "hypothesis", "conclude", "H1", "confirmed"]);
    world.ok(["branch", "switch", "main", "--reasoning", "--yes"]);
    assert_eq!(fs::read_to_string(world.path("file")).unwrap(), "1\n");
    let mind = json(&world, &["board"]);
    assert_eq!(
        (&mind["hypotheses"][0]["status"], &mind["experiments"][0]["status"]),
        (&"active".into(), &"running".into())
    );
    let planned = json(&world, &["board", "merge", "no-cache", "--dry-run"]);
    assert!(planned["step"].is_null() && planned["conflicts"].as_array().unwrap().is_empty(), "{planned}");
    world.ok(["board", "merge", "no-cache"]);
    let mind = json(&world, &["board"]);
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
    agent.bash("b1", "stepback board hypothesis propose", || {
        world.write("file", "2\n");
        world.ok(["board", "hypothesis", "propose", "it is the cache"]);
        world.ok(["board", "evidence", "add", "H1", "seen", "--strength", "0.5", "--step", "tool:bash:last"]);
        for number in 0..40 {
            let text =
                format!("note number {number}, long enough that a page is an object of its own: {:0200}", 0);
            world.ok(["board", "note", "add", &text]);
        }
    });
    let before = json(&world, &["board"]);
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
        json(&world, &["--store", &taken, "--workspace", workspace, "board", "--session", "s1"]),
        json(&world, &["--store", &copied, "board", "--session", "s1"]),
    ];
    for there in boards {
        assert_eq!((&there["notes"], &there["evidence"]), (&before["notes"], &before["evidence"]));
    }
    world.ok(["--store", &taken, "fsck"]);
    world.ok(["--store", &copied, "fsck"]);
    world.ok(["prune", "--keep-last", "1", "--now"]);
    assert_eq!(json(&world, &["board"])["notes"], before["notes"]);
    world.expect_sound("a prune");
    let page = world.ok(["board", "recover"]).out;
    assert!(page.contains("## Last request\nfind the bug"), "{page}");
    assert!(page.contains("stepback board hypothesis propose"), "the last command: {page}");
}

#[test]
fn a_thought_is_recorded_whole_or_not_at_all() {
    for kind in ["kill", "eio", "enospc"] {
        let world = Sandbox::frozen();
        world.write("file", "0\n");
        world.ok(["checkpoint", "create"]);
        world.ok(["board", "hypothesis", "propose", "it is the cache"]);
        let mut known = 0;
        for n in 1..500 {
            // A change of status with changed files: a checkpoint and a thought, each with a commit of its own.
            world.write("file", format!("{n}\n"));
            let how = if known % 2 == 0 { "test" } else { "reopen" };
            let ran = match how {
                "test" => world.faulty(&["board", "hypothesis", "test", "H1"], &format!("{kind}:{n}")),
                _ => world.faulty(&["board", "undo"], &format!("{kind}:{n}")),
            };
            let status = json(&world, &["board"])["hypotheses"][0]["status"].clone();
            let expected = if how == "test" { "testing" } else { "active" };
            if ran.code == Some(0) {
                assert_eq!(status, expected, "{kind}:{n}");
            }
            if status == expected {
                known += 1;
            }
            world.expect_sound(&format!("{kind}:{n}"));
            if ran.code == Some(0) && n > 3 {
                world.ok(["board", "note", "add", "still here"]);
                break;
            }
            assert!(n < 499, "it never succeeds");
        }
    }
}
