//! `stepback run` with an agent of a few lines: its model calls go through the proxy, and it is run again without them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox};
use crate::talk::{items, of_kind};
use crate::wire::{Upstream, document, send, until};

/// A program that calls itself claude: it tells its hooks what it does and asks its model what to answer.
const AGENT: &str = r#"#!/bin/bash
while [ $# -gt 0 ]; do
  case $1 in --settings) shift; settings=$1 ;; -p) shift; prompt=$1 ;; esac
  shift
done
session=s-fake
hook=$(grep -o '"command": *"[^"]*"' "$settings" | head -1 | sed 's/^"command": *"//; s/"$//')
tell() { echo "$1" | "$hook" hook claude >/dev/null; }
tell "{\"session_id\": \"$session\", \"cwd\": \"$PWD\", \"hook_event_name\": \"SessionStart\", \"source\": \"startup\"}"
tell "{\"session_id\": \"$session\", \"cwd\": \"$PWD\", \"hook_event_name\": \"UserPromptSubmit\", \"prompt\": \"$prompt\"}"
address=${ANTHROPIC_BASE_URL#http://}
body="{\"model\": \"m\", \"messages\": [{\"role\": \"user\", \"content\": \"$prompt\"}]}"
if exec 3<>"/dev/tcp/${address%:*}/${address#*:}"; then
  printf 'POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nx-claude-code-session-id: %s\r\nx-api-key: %s\r\ncontent-length: %s\r\nconnection: close\r\n\r\n%s' \
    "$session" "$ANTHROPIC_API_KEY" "${#body}" "$body" >&3
  cat <&3
fi
echo "asked $ANTHROPIC_BASE_URL"
"#;

struct Fake {
    world: Sandbox,
    bin: PathBuf,
    upstream: Upstream,
}

impl Fake {
    /// An agent that does what it always does, and then `more`.
    fn doing(more: &str) -> Self {
        let world = Sandbox::new();
        world.write("file", "base\n");
        let bin = world.root().join("bin");
        fs::create_dir(&bin).unwrap();
        let path = bin.join("claude");
        fs::write(&path, format!("{AGENT}{more}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let said = json!({ "type": "message", "model": "m", "content": [{ "type": "text", "text": "It is done." }] });
        Self { world, bin, upstream: Upstream::saying(document(200, &said)) }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = self.world.command(words);
        let path = std::env::var("PATH").unwrap();
        command.env("PATH", format!("{}:{path}", self.bin.display()));
        command.env("ANTHROPIC_BASE_URL", self.upstream.url()).env("ANTHROPIC_API_KEY", "k-1-of-somebody");
        command
    }

    fn run(&self, words: &[&str]) -> Ran {
        self.command(words).output().unwrap().into()
    }
}

const RUN: [&str; 5] = ["run", "--", "claude", "-p", "do it"];

#[test]
fn its_model_calls_are_carried_and_its_exit_code_is_passed_on() {
    let fake = Fake::doing("exit 7");
    let ran = fake.run(&RUN).exits(7);
    assert!(ran.out.contains("It is done.") && !ran.out.contains(&fake.upstream.url()), "{}", ran.out);
    assert_eq!(fake.upstream.asked().len(), 1);
    assert!(fake.upstream.asked()[0].contains("k-1-of-somebody"));
    let sessions = items(&fake.world.json(["sessions"]));
    assert_eq!((sessions.len(), &sessions[0]["agent"]), (1, &json!("claude")), "{sessions:#?}");
    assert_eq!(of_kind(&fake.world, "model-end")[0]["summary"], "It is done.");
    assert!(of_kind(&fake.world, "gap").is_empty());
    for path in crate::talk::files_below(&fake.world.store) {
        let text = String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned();
        assert!(!text.contains("k-1-of-somebody"), "{}", path.display());
    }
}

#[test]
fn an_agent_that_is_killed_says_so_with_its_code() {
    let fake = Fake::doing("kill -TERM $$; sleep 5");
    fake.run(&RUN).exits(143);
}

#[test]
fn without_a_proxy_it_asks_its_model_itself() {
    let fake = Fake::doing("");
    let words = ["run", "--no-proxy", "--", "claude", "-p", "do it"];
    let ran = fake.run(&words).exits(0);
    assert!(ran.out.contains(&format!("asked {}", fake.upstream.url())), "{}", ran.out);
    assert!(of_kind(&fake.world, "model-end").is_empty());
    assert_eq!(of_kind(&fake.world, "user-input").len(), 1, "hooks report all the same");
}

#[test]
fn behind_a_proxy_of_the_network_it_asks_its_model_itself() {
    let fake = Fake::doing("");
    let ran: Ran = fake.command(&RUN).env("HTTPS_PROXY", "http://127.0.0.1:1").output().unwrap().into();
    assert!(ran.out.contains(&format!("asked {}", fake.upstream.url())), "{}", ran.out);
    assert!(ran.err.contains("not recorded: HTTPS_PROXY is set"), "{}", ran.err);
    assert_eq!(of_kind(&fake.world, "user-input").len(), 1, "hooks report all the same");
}

#[test]
fn a_store_that_cannot_be_opened_keeps_nobody_from_working() {
    let fake = Fake::doing("exit 3");
    fs::write(&fake.world.store, "this is no directory").unwrap();
    let ran = fake.run(&RUN).exits(3);
    assert!(ran.err.contains("Warning: model calls are not recorded in this run"), "{}", ran.err);
    assert!(ran.out.contains("It is done."), "{}", ran.out);
    // Prices that cannot be read are no reason either.
    let fake = Fake::doing("exit 3");
    fake.world.ok(["checkpoint", "create", "one"]);
    fs::write(fake.world.store.join("prices.json"), "{").unwrap();
    let ran = fake.run(&RUN).exits(3);
    assert!(ran.err.contains("prices.json"), "{}", ran.err);
    assert!(ran.out.contains("It is done."), "{}", ran.out);
}

#[test]
fn an_address_that_is_none_keeps_nobody_from_working() {
    let fake = Fake::doing("exit 3");
    for base in ["nonsense", "unix:///x", concat!("http://user:", "pw@127.0.0.1:1")] {
        let ran: Ran = fake.command(&RUN).env("ANTHROPIC_BASE_URL", base).output().unwrap().into();
        let ran = ran.exits(3);
        assert!(ran.out.contains(&format!("asked {base}")), "{}", ran.out);
        let warning = ran.err.lines().find(|line| line.starts_with("Warning: model calls are not recorded"));
        assert!(warning.is_some_and(|warning| !warning.contains("pw@")), "{}", ran.err);
    }
}

#[test]
fn an_interruption_is_for_the_agent_alone() {
    let fake = Fake::doing("trap 'echo interrupted; exit 9' INT; touch begun; while :; do sleep 0.1; done");
    let mut command = fake.command(&RUN);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    until("the agent works", || fake.world.path("begun").exists());
    // As if it were meant for us: we go when the agent goes.
    send(&child, Signal::INT);
    let agent: i32 = {
        let id = child.id();
        fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap().trim().parse().unwrap()
    };
    rustix::process::kill_process(rustix::process::Pid::from_raw(agent).unwrap(), Signal::INT).unwrap();
    let ran: Ran = child.wait_with_output().unwrap().into();
    assert!(ran.exits(9).out.contains("interrupted"));
    assert_eq!(of_kind(&fake.world, "model-end").len(), 1);
}

#[test]
fn whoever_ends_the_run_ends_the_agent() {
    for (signal, name) in [(Signal::TERM, "TERM"), (Signal::HUP, "HUP")] {
        let fake = Fake::doing(&format!(
            "trap 'echo told; exit 9' {name}; touch begun; while :; do sleep 0.1; done"
        ));
        let temp = fake.world.root().join("temp");
        fs::create_dir(&temp).unwrap();
        let mut command = fake.command(&RUN);
        command.env("TMPDIR", &temp).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        until("the agent works", || fake.world.path("begun").exists());
        send(&child, signal);
        let ran: Ran = child.wait_with_output().unwrap().into();
        assert!(ran.exits(9).out.contains("told"));
        assert!(fs::read_dir(&temp).unwrap().next().is_none(), "its settings are left");
        assert_eq!(of_kind(&fake.world, "model-end").len(), 1);
    }
}

#[test]
fn it_is_run_again_without_its_model_and_not_without_its_program() {
    let fake = Fake::doing("echo made > made");
    fake.run(&RUN).exits(0);
    fs::remove_file(fake.world.path("made")).unwrap();
    let ran = fake.run(&["rerun", "--json"]).exits(0);
    let done = ran.json();
    assert_eq!(done["model_calls"]["recorded"], 1, "{done:#}");
    assert_eq!(fake.upstream.asked().len(), 1, "the model was not asked again");
    assert!(!fake.world.path("made").exists());
    assert_eq!(crate::reruns::file_of(&fake.world, &done, "made").as_deref(), Some("made\n"));
    let ran = fake.run(&["rerun", "--set", "memory.plan=x"]).exits(2);
    assert!(ran.err.contains("has no memory"), "{}", ran.err);

    fs::remove_file(fake.bin.join("claude")).unwrap();
    let tips = || -> Vec<Value> {
        let branches = items(&fake.world.json(["branch", "list"]));
        branches.iter().map(|branch| branch["tip"].clone()).filter(Value::is_string).collect()
    };
    let before = tips();
    let path = std::env::var("PATH").unwrap();
    let elsewhere = path.split(':').any(|dir| PathBuf::from(dir).join("claude").exists());
    if !elsewhere {
        let ran = fake.run(&["rerun"]).exits(7);
        assert!(ran.err.contains("is not installed") && ran.err.contains("PATH"), "{}", ran.err);
        assert_eq!(tips(), before, "nothing came of it");
    }
}

/// A program that calls itself claude and tells what it does to hooks that are installed already.
const HOOKED: &str = r#"#!/bin/bash
if [ "$1" != record ]; then echo "the recorded one: $*"; exit; fi
session=11111111-1111-4111-8111-111111111111
transcript=$HOME/transcript/$session.jsonl
mkdir -p "${transcript%/*}"
said() { echo "{\"type\":\"$1\",\"uuid\":\"$2\",\"sessionId\":\"$session\",\"cwd\":\"$PWD\",\"message\":{\"role\":\"$1\",\"content\":\"$3\"}}"; }
{ said user u1 'do it'; said assistant a1 'done'; } > "$transcript"
tell() { echo "{\"session_id\":\"$session\",\"transcript_path\":\"$transcript\",\"cwd\":\"$PWD\",$1}" | "$STEPBACK" hook claude >/dev/null; }
call='"tool_name":"Write","tool_use_id":"t1","tool_input":{"file_path":"a","content":"x"}'
tell "\"hook_event_name\":\"PreToolUse\",$call"
echo x > a
tell "\"hook_event_name\":\"PostToolUse\",\"tool_response\":{},$call"
"#;

#[test]
fn a_conversation_goes_on_with_the_executable_that_hooks_were_called_by() {
    let fake = Fake::doing("echo the one on the PATH");
    let world = &fake.world;
    let other = world.root().join("elsewhere");
    fs::create_dir(&other).unwrap();
    let program = other.join("claude");
    fs::write(&program, HOOKED).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    // The same environment as any command of this world has.
    let ours = fake.command(&["status"]);
    let mut agent = Command::new(&program);
    agent.arg("record").current_dir(world.path("")).env("STEPBACK", ours.get_program());
    for (name, value) in ours.get_envs() {
        agent.env(name, value.unwrap_or_default());
    }
    assert!(agent.status().unwrap().success());
    let go_on = ["rewind", "@", "--conversation", "--resume", "go on"];
    let ran = fake.run(&go_on).exits(0);
    assert!(ran.out.contains("the recorded one: -p --resume"), "{}{}", ran.out, ran.err);
    // If it is gone, nothing else takes its place.
    fs::remove_file(&program).unwrap();
    let ran = fake.run(&go_on).exits(4);
    assert!(ran.err.contains("elsewhere/claude, which no longer exists"), "{}", ran.err);
    assert!(ran.err.contains("Hint: reinstall it there"), "{}", ran.err);
}
