//! `stepback rerun` repeats what a person decided and said while the session was recorded, instead of running what was refused.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::reruns::{again, bash, file_of};
use crate::sandbox::{Ran, Sandbox};
use crate::talk::items;
use crate::wire::{Upstream, document, steps, until};

/// A world in which the built-in agent is at work with a script.
fn at_work(turns: &Value, before: &[&[&str]]) -> (Sandbox, Child) {
    let world = Sandbox::new();
    world.write("file", "base\n");
    let path = world.root().join("script.json");
    fs::write(&path, turns.to_string()).unwrap();
    world.ok(["checkpoint", "create", "base"]);
    for words in before {
        world.ok(*words);
    }
    let child = world.spawn(&["agent", "--script", path.to_str().unwrap(), "do the work"]);
    (world, child)
}

/// Waits until an agent is stopped whose input holds `text`.
fn stopped_at(world: &Sandbox, text: &str) {
    until(text, || world.run(["inspect", "input"]).out.contains(text));
}

#[track_caller]
fn ended(child: Child) {
    let ran: Ran = child.wait_with_output().unwrap().into();
    ran.exits(0);
}

/// Fails unless a rerun of the last session goes the same way to its end, and nothing differs.
#[track_caller]
fn same_again(world: &Sandbox, words: &[&str]) -> Value {
    let done = again(world, &[&["--compare"], words].concat(), 0);
    assert_eq!(done["model_calls"]["parted"], Value::Null, "{done:#}");
    let compared = &done["comparison"];
    assert_eq!(compared["first_difference"], Value::Null, "{compared:#}");
    assert_eq!(compared["files"], json!([]), "{compared:#}");
    let talk = &compared["conversation"];
    assert!(talk["shared"].as_u64() > Some(0), "{talk}");
    assert_eq!((&talk["a"], &talk["b"]), (&talk["shared"], &talk["shared"]), "{talk}");
    done
}

#[test]
fn decisions_at_breakpoints_are_made_again() {
    let turns = json!({ "turns": [
        { "calls": [bash("rm -f file; echo gone > gone")] },
        { "calls": [bash("echo 2 > two")] },
        { "calls": [bash("echo 3 > three")] },
        { "calls": [bash("rm -f file; echo gone > gone")] },
        { "text": "end" },
    ] });
    let (world, agent) = at_work(&turns, &[&["breakpoint", "add", "tool", "bash"]]);
    stopped_at(&world, "gone");
    world.ok(["deny", "leave the file"]);
    stopped_at(&world, "echo 2");
    world.ok(["edit-input", &json!({ "command": "echo 22 > two; pwd" }).to_string()]);
    stopped_at(&world, "echo 3");
    world.ok(["resume"]);
    stopped_at(&world, "gone");
    world.ok(["deny", "still no"]);
    ended(agent);
    for tools in ["real", "recorded"] {
        let done = same_again(&world, &["--tools", tools]);
        assert_eq!(
            file_of(&world, &done, "file").as_deref(),
            Some("base\n"),
            "{tools}: what was refused ran"
        );
        assert_eq!(file_of(&world, &done, "gone"), None, "{tools}: what was refused ran");
        assert_eq!(file_of(&world, &done, "two").map(|text| text.starts_with("22")), Some(true));
        let steps = steps(&world, done["session"].as_str());
        let decided: Vec<&str> = steps
            .iter()
            .filter(|step| step["kind"] == "decision")
            .map(|step| step["summary"].as_str().unwrap())
            .collect();
        assert_eq!(decided.len(), 4, "{decided:?}");
        assert_eq!(decided[0], "denied: leave the file");
        assert_eq!(decided[3], "denied: still no");
    }
    // A call whose input is changed is another call, about which nothing was decided.
    let number = crate::reruns::number_of(&world, "bash");
    let done = again(&world, &["--set", &format!("#{number}.input.command=echo new > new")], 0);
    assert_eq!(file_of(&world, &done, "new").as_deref(), Some("new\n"), "{done:#}");
}

#[test]
fn a_call_that_was_refused_because_the_time_was_over_is_refused_again() {
    let turns = json!({ "turns": [{ "calls": [bash("rm -f file")] }, { "text": "end" }] });
    let limit = ["settings", "breakpoint.seconds", "1"];
    let (world, agent) = at_work(&turns, &[&limit, &["breakpoint", "add", "tool", "bash"]]);
    ended(agent);
    assert!(world.path("file").exists());
    let done = same_again(&world, &[]);
    assert_eq!(file_of(&world, &done, "file").as_deref(), Some("base\n"));
}

#[test]
fn what_was_said_to_an_agent_at_work_is_said_again_at_the_same_place() {
    let turns = json!({
        "turns": [{ "calls": [bash("echo 1 > one")] }, { "calls": [bash("echo 2 > two")] }, { "text": "end" }],
        "when": [{ "says": "use redis", "turns": [{ "calls": [bash("echo r > redis")] }, { "text": "done" }] }],
    });
    let (world, agent) = at_work(&turns, &[&["pause"]]);
    stopped_at(&world, "echo 1");
    world.ok(["inject", "use redis"]);
    world.ok(["resume"]);
    ended(agent);
    assert!(world.path("redis").exists());
    let done = same_again(&world, &[]);
    assert_eq!(file_of(&world, &done, "redis").as_deref(), Some("r\n"));
    // From a point after it was said, it is part of the conversation and not said twice.
    let redis = steps(&world, None)
        .iter()
        .rfind(|step| step["kind"] == "tool-start")
        .and_then(|step| step["number"].as_u64())
        .unwrap();
    let done = again(&world, &["--from", &format!("#{redis}")], 0);
    assert_eq!(done["model_calls"]["parted"], Value::Null, "{done:#}");
}

#[test]
fn a_forked_session_is_run_again_with_the_conversation_it_came_with() {
    let turns = json!({
        "turns": [
            { "calls": [{ "tool": "read", "input": { "path": "file" } }] },
            { "calls": [bash("echo 1 > one; cat file")] },
            { "text": "end" },
        ],
        "when": [{ "says": "numbers", "turns": [{ "calls": [bash("echo 2 > two")] }, { "text": "done" }] }],
    });
    let (world, agent) = at_work(&turns, &[]);
    ended(agent);
    let path = world.root().join("script.json");
    let call = crate::reruns::number_of(&world, "bash");
    let from = format!("#{call}");
    world.ok(["agent", "--script", path.to_str().unwrap(), "--from", &from, "numbers, please"]);
    let done = same_again(&world, &[]);
    assert_eq!(done["model_calls"]["recorded"], 2, "{done:#}");
    // And one more prompt in the forked session.
    let session = items(&world.json(["sessions"]))[0]["id"].as_str().unwrap().to_owned();
    world.ok(["agent", "--script", path.to_str().unwrap(), "--session", &session, "numbers again"]);
    same_again(&world, &[]);
}

/// A program that calls itself claude, tells its hooks of a call, obeys them, and tells its model what came of it.
const AGENT: &str = r#"#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in --settings) shift; settings=$1 ;; -p) shift; prompt=$1 ;; esac
  shift
done
session=s-fake
hook=$(grep -o '"command": *"[^"]*"' "$settings" | head -1 | sed 's/^"command": *"//; s/"$//')
about="\"session_id\": \"$session\", \"cwd\": \"$PWD\""
tell() { echo "{$about, $1}" | "$hook" hook claude; }
ask() {
  address=${ANTHROPIC_BASE_URL#http://}
  body="{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"$1\"}]}"
  exec 3<>"/dev/tcp/${address%:*}/${address#*:}" || exit 3
  printf 'POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-claude-code-session-id: %s\r\ncontent-length: %s\r\nconnection: close\r\n\r\n%s' \
    "$session" "${#body}" "$body" >&3
  cat <&3 | head -1 | grep -q ' 200 ' || exit 4
}
call() {
  input="\"tool_name\": \"Bash\", \"tool_use_id\": \"$1\", \"tool_input\": {\"command\": \"$2\"}"
  answer=$(tell "\"hook_event_name\": \"PreToolUse\", $input")
  case $answer in
    *deny*) said="refused because $(echo "$answer" | grep -o 'Reason":"[^"]*' | cut -d '"' -f 3)" ;;
    *updatedInput*)
      command=$(echo "$answer" | grep -o 'updatedInput":{"command":"[^"]*' | cut -d '"' -f 5)
      said="changed: $(bash -c "$command")" ;;
    *) said=$(bash -c "$2") ;;
  esac
  case $answer in *deny*) ;; *)
    said="$said $(tell "\"hook_event_name\": \"PostToolUse\", $input, \"tool_response\": {}" | grep -o 'additionalContext":"[^"]*')" ;;
  esac
  ask "$said"
}
tell "\"hook_event_name\": \"SessionStart\", \"source\": \"startup\"" >/dev/null
heard=$(tell "\"hook_event_name\": \"UserPromptSubmit\", \"prompt\": \"$prompt\"" | grep -o 'additionalContext":"[^"]*')
ask "$prompt $heard"
call t1 "rm -f file"
call t2 "echo 2 > two; cat two"
call t3 "echo 3 > three; cat three"
"#;

struct Fake {
    world: Sandbox,
    upstream: Upstream,
}

impl Fake {
    fn new() -> Self {
        let world = Sandbox::new();
        world.write("file", "base\n");
        let bin = world.root().join("bin");
        fs::create_dir(&bin).unwrap();
        fs::write(bin.join("claude"), AGENT).unwrap();
        fs::set_permissions(bin.join("claude"), Permissions::from_mode(0o755)).unwrap();
        let said =
            json!({ "type": "message", "model": "m", "content": [{ "type": "text", "text": "Yes." }] });
        Self { world, upstream: Upstream::saying(document(200, &said)) }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.world.root().join("bin").display()));
        command.env("ANTHROPIC_BASE_URL", self.upstream.url()).env("ANTHROPIC_API_KEY", "k");
        command
    }
}

#[test]
fn an_agent_with_hooks_hears_the_same_decisions_and_words_again() {
    let fake = Fake::new();
    let world = &fake.world;
    world.ok(["checkpoint", "create", "base"]);
    world.ok(["breakpoint", "add", "tool", "Bash"]);
    let mut run = fake.command(&["run", "--", "claude", "-p", "do it"]);
    let agent = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    stopped_at(world, "rm -f");
    world.ok(["deny", "leave the file"]);
    stopped_at(world, "echo 2");
    world.ok(["edit-input", &json!({ "command": "echo 22 > two; cat two" }).to_string()]);
    stopped_at(world, "echo 3");
    world.ok(["inject", "and be quick"]);
    world.ok(["resume"]);
    ended(agent);
    assert!(world.path("file").exists());
    let asked = fake.upstream.asked().len();
    assert_eq!(asked, 4);
    let ran: Ran = fake.command(&["rerun", "--json", "--compare"]).output().unwrap().into();
    let done = ran.exits(0).json();
    assert_eq!(
        (&done["status"], &done["model_calls"]["parted"]),
        (&json!("completed"), &Value::Null),
        "{done:#}"
    );
    assert_eq!(done["model_calls"]["recorded"], 4, "{done:#}");
    assert_eq!(fake.upstream.asked().len(), asked, "no model was asked");
    assert_eq!(file_of(world, &done, "file").as_deref(), Some("base\n"), "what was refused ran");
    assert_eq!(file_of(world, &done, "two").as_deref(), Some("22\n"), "what was changed ran as it was");
    assert_eq!(done["comparison"]["first_difference"], Value::Null, "{done:#}");
    let told = steps(world, done["session"].as_str());
    assert!(told.iter().any(|step| step["summary"] == "message: and be quick"), "{told:#?}");
}
