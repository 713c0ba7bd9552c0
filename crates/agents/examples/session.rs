//! Records a long session through the hook and reads its past; `cargo xtask bench session` runs it.
//!
//! Usage: session DIR TURNS. Prints one JSON document.

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stepback_agents::Agent;
use stepback_agents::hook::Hook;
use stepback_engine::Engine;
use stepback_model::conversation;
use stepback_model::env::FrozenEnv;
use stepback_model::hash::ObjectKind;
use stepback_model::record::Session;
use stepback_model::state::WorkspaceState;
use stepback_model::time::Timestamp;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::port::StepQuery;
use stepback_store::prelude::*;

/// How many points of the past are read.
const LOADS: usize = 200;
const SESSION: &str = "5f0c1d6e-7a0b-4c1c-9f33-2f6f1f5d9c11";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let mut args = std::env::args().skip(1);
    let (Some(dir), Some(turns)) = (args.next(), args.next()) else {
        return Err("usage: session DIR TURNS".into());
    };
    let mut desk = Desk::make(Path::new(&dir))?;
    let turns: usize = turns.parse()?;
    let times = (0..turns).map(|turn| desk.turn(turn)).collect::<Outcome<Vec<f64>>>()?;
    println!("{}", desk.numbers(&times)?);
    Ok(())
}

struct Desk {
    tree: PathBuf,
    transcript: PathBuf,
    store: Arc<EmbeddedStore>,
    store_dir: PathBuf,
    env: Arc<FrozenEnv>,
    /// How many messages there are, and their bytes.
    messages: (usize, usize),
}

impl Desk {
    fn make(dir: &Path) -> Outcome<Self> {
        let tree = dir.join("tree");
        fs::create_dir_all(&tree)?;
        let tree = tree.canonicalize()?;
        for number in 0..100 {
            fs::write(
                tree.join(format!("file{number}.rs")),
                format!("fn number_{number}() {{}}\n").repeat(40),
            )?;
        }
        let store_dir = dir.join("store");
        let store = Arc::new(EmbeddedStore::open(&store_dir)?);
        let env = Arc::new(FrozenEnv::new(Timestamp::from_micros(1_800_000_000_000_000), 7));
        let transcript = dir.join("conversation.jsonl");
        fs::write(&transcript, "")?;
        Ok(Self { tree, transcript, store, store_dir, env, messages: (0, 0) })
    }

    fn say(&mut self, line: &Value) -> Outcome<()> {
        let line = format!("{line}\n");
        self.messages = (self.messages.0 + 1, self.messages.1 + line.len() - 1);
        Ok(OpenOptions::new().append(true).open(&self.transcript)?.write_all(line.as_bytes())?)
    }

    fn hook(&self, event: &str, more: Value) -> Outcome<()> {
        let mut payload = json!({
            "session_id": SESSION, "transcript_path": self.transcript, "cwd": self.tree, "hook_event_name": event,
        });
        if let (Some(fields), Value::Object(more)) = (payload.as_object_mut(), more) {
            fields.extend(more);
        }
        let hook = Hook {
            agent: Agent::Claude,
            store: &self.store_dir,
            directory: &self.tree,
            env: &*self.env,
            with_engine: &|work| work(&Engine::new(self.store.clone(), self.env.clone())),
            new_root: &|directory| Some(directory.to_path_buf()),
            transcript: None,
            answer_timeout: Duration::ZERO,
            strict: false,
            max_minutes_between_scans: None,
            max_turns_between_scans: None,
            scan_around_calls: true,
            undo_hints: stepback_agents::hook::UndoHints::PerPrompt,
            clear_changes_on_commit: false,
            has_proxy: false,
            policy: None,
            find_launch_command: &|| None,
            variable_names: &Vec::new,
        };
        match hook.handle(payload.to_string().as_bytes()).error {
            Some(trouble) => Err(trouble.into()),
            None => Ok(()),
        }
    }

    /// A prompt, an answer with a call that changes one file, its result, a last answer. In milliseconds.
    fn turn(&mut self, turn: usize) -> Outcome<f64> {
        let call = format!("toolu_{turn}");
        let command = json!({ "command": format!("sed -i s/a/b/ file{}.rs", turn % 100) });
        let called = json!({ "tool_name": "Bash", "tool_input": command, "tool_use_id": call });
        let mut spent = Duration::ZERO;
        let mut timed = |desk: &Self, event: &str, more: Value| -> Outcome<()> {
            let began = Instant::now();
            desk.hook(event, more)?;
            spent += began.elapsed();
            Ok(())
        };
        let prompt = format!("Please go on with part {turn}, and mind what was said before.");
        timed(self, "UserPromptSubmit", json!({ "prompt": prompt, "prompt_id": format!("p{turn}") }))?;
        self.say(&json!({ "type": "user", "uuid": format!("u{turn}"), "message": { "role": "user", "content": prompt } }))?;
        let said = format!("Part {turn} needs a change in one file. ").repeat(12);
        let content = json!([
            { "type": "text", "text": said },
            { "type": "tool_use", "id": call, "name": "Bash", "input": command },
        ]);
        self.say(&answer(turn, "a", content))?;
        timed(self, "PreToolUse", called.clone())?;
        let file = self.tree.join(format!("file{}.rs", turn % 100));
        OpenOptions::new().append(true).open(file)?.write_all(format!("// part {turn}\n").as_bytes())?;
        let mut ended = called;
        ended["tool_response"] = json!({ "stdout": format!("line of part {turn}\n").repeat(30) });
        timed(self, "PostToolUse", ended)?;
        let result = json!({ "type": "tool_result", "tool_use_id": call, "content": format!("line of part {turn}\n").repeat(30) });
        self.say(&json!({ "type": "user", "uuid": format!("r{turn}"), "message": { "role": "user", "content": [result] } }))?;
        self.say(&answer(
            turn,
            "b",
            json!([{ "type": "text", "text": format!("Part {turn} is done. ").repeat(8) }]),
        ))?;
        timed(self, "Stop", json!({ "last_assistant_message": "done" }))?;
        Ok(spent.as_secs_f64() * 1e3)
    }

    fn numbers(&self, times: &[f64]) -> Outcome<Value> {
        let workspace = self.store.workspaces()?.pop().ok_or("nothing was recorded")?;
        let mut stored_messages = 0;
        self.store.for_each_object(&mut |object| {
            if object.kind == ObjectKind::Message {
                stored_messages += object.raw_len;
            }
        })?;
        let steps =
            self.store.steps(workspace.id, &StepQuery { oldest_first: true, ..StepQuery::default() })?;
        let mut loads = Vec::with_capacity(LOADS);
        let mut random = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..LOADS.min(steps.len()) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let step = &steps[(random % steps.len() as u64) as usize].step;
            // A fresh store each time: nothing is remembered from the point before.
            let store = EmbeddedStore::open_existing(&self.store_dir)?;
            let began = Instant::now();
            let tip = WorkspaceState::load(&store, step.state)?.conversation;
            let texts = conversation::texts(&store, tip)?;
            loads.push(began.elapsed().as_secs_f64() * 1e3);
            if texts.len() > self.messages.0 {
                return Err("more messages came out than went in".into());
            }
        }
        let session =
            self.store.session(Session::id_of(workspace.id, "claude", SESSION))?.ok_or("no session")?;
        let store = EmbeddedStore::open_existing(&self.store_dir)?;
        let began = Instant::now();
        let whole = conversation::texts(&store, session.info.tip)?;
        let load_whole = began.elapsed().as_secs_f64() * 1e3;
        let bytes: usize = whole.iter().map(String::len).sum();
        if (whole.len(), bytes) != self.messages {
            return Err(format!("{} messages went in, {} came out", self.messages.0, whole.len()).into());
        }
        let usage = self.store.usage()?;
        let some = 100.min(times.len());
        let mean = |times: &[f64]| percentile(times, 50);
        Ok(json!({
            "turns": times.len(), "steps": steps.len(), "messages": whole.len(), "message_bytes": bytes,
            "stored_message_bytes": stored_messages, "raw_bytes": usage.raw_bytes, "stored_bytes": usage.stored_bytes,
            "disk_bytes": usage.total_bytes,
            "turn_p50_ms": percentile(times, 50), "turn_p99_ms": percentile(times, 99),
            "slowdown": mean(&times[times.len() - some..]) / mean(&times[..some]),
            "load_p50_ms": percentile(&loads, 50), "load_p99_ms": percentile(&loads, 99), "load_whole_ms": load_whole,
        }))
    }
}

fn answer(turn: usize, which: &str, content: Value) -> Value {
    let id = format!("msg_{which}{turn}");
    json!({
        "type": "assistant", "uuid": format!("{which}{turn}"),
        "message": { "id": id, "role": "assistant", "model": "claude", "content": content },
    })
}

fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or_default()
}
