//! A directory, a store, and agents that report what they do in it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use stepback_agents::Agent;
use stepback_agents::hook::Hook;
use stepback_engine::{Engine, Workspace};
use stepback_model::env::FrozenEnv;
use stepback_model::path::RelPath;
use stepback_model::time::Timestamp;
use stepback_store::Store;
use stepback_store::embedded::EmbeddedStore;
use stepback_store::memory::MemoryStore;
use stepback_store::port::{Query, StoredCheckpoint};
use stepback_testkit::tree;
use stepback_worktree::rules::Budget;

/// The files that everybody writes to.
pub const PATHS: [&str; 5] = ["a.txt", "b.txt", "c.txt", "notes.md", "src/d.txt"];

/// What the files hold; one that is missing is not there.
pub type Files = BTreeMap<&'static str, String>;

pub struct World {
    _dir: tempfile::TempDir,
    top: PathBuf,
    pub root: PathBuf,
    store: Box<dyn Store>,
    env: FrozenEnv,
    pub log: Vec<String>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir_in(tree::scratch_place()).unwrap();
        let top = dir.path().canonicalize().unwrap();
        let root = top.join("work");
        fs::create_dir_all(root.join("src")).unwrap();
        // With a store on disk, events that change nothing wait in the inbox.
        let store: Box<dyn Store> = match seed.is_multiple_of(5) {
            true => Box::new(EmbeddedStore::open(&top.join("store")).unwrap()),
            false => Box::new(MemoryStore::new(1 << 30)),
        };
        let env = FrozenEnv::new(Timestamp::from_micros(1_800_000_000_000_000), seed);
        Self { _dir: dir, top, root, store, env, log: Vec::new() }
    }

    pub fn engine(&self) -> Engine<'_> {
        let (store, env) = (&*self.store, &self.env);
        Engine { store, env, budget: Budget::default(), threads: 1, progress: None, watcher: None }
    }

    /// Does something with the workspace, after everything that was reported is recorded.
    pub fn with<T>(&self, work: impl FnOnce(&Workspace<'_>) -> T) -> T {
        let engine = self.engine();
        let workspace = engine.workspace(&self.root).unwrap();
        stepback_agents::record::take_in_quietly(&workspace).unwrap();
        work(&workspace)
    }

    /// Delivers one event to the hook, as the agent does.
    pub fn hook(&self, agent: Agent, payload: &Value) {
        let store = self.top.join("store");
        let hook = Hook {
            agent,
            store: &store,
            directory: &self.root,
            env: &self.env,
            with_engine: &|work| work(&self.engine()),
            new_root: &|directory: &Path| Some(directory.to_path_buf()),
            transcript: None,
            patience: Duration::ZERO,
            strict: false,
            at_least_every: None,
            at_least_each: None,
            looks: true,
            notes: false,
            carried: false,
            policy: None,
            started: &|| None,
        };
        let outcome = hook.handle(payload.to_string().as_bytes());
        assert_eq!(outcome.trouble, None, "{payload}");
    }

    pub fn transcript(&self, session: &str) -> PathBuf {
        self.top.join(format!("{session}.jsonl"))
    }

    /// Adds a line to a conversation.
    pub fn say(&self, session: &str, line: &Value) {
        let path = self.transcript(session);
        let mut file = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
        writeln!(file, "{line}").unwrap();
    }

    pub fn files(&self) -> Files {
        let read = |path: &&'static str| Some((*path, fs::read_to_string(self.root.join(path)).ok()?));
        PATHS.iter().filter_map(read).collect()
    }

    pub fn write(&self, path: &str, text: Option<&str>) {
        let path = self.root.join(path);
        match text {
            Some(text) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            None => drop(fs::remove_file(path)),
        }
    }

    /// The files at a step, as the store has them.
    pub fn files_at(&self, workspace: &Workspace<'_>, step: &StoredCheckpoint) -> Result<Files, String> {
        let state = workspace.state_of(step).map_err(|error| error.to_string())?;
        let mut files = Files::new();
        for path in PATHS {
            let relative = RelPath::parse(path.as_bytes()).unwrap();
            let found = workspace.read_path(&state, &relative).map_err(|error| error.to_string())?;
            if let Some((_, bytes)) = found {
                files.insert(path, String::from_utf8(bytes).unwrap());
            }
        }
        Ok(files)
    }

    /// Steps after the one with this number, oldest first.
    pub fn steps_after(&self, workspace: &Workspace<'_>, number: u64) -> Vec<StoredCheckpoint> {
        let query = Query { after: Some(number), oldest_first: true, ..Query::default() };
        workspace.store().steps(workspace.record.id, &query).unwrap()
    }

    /// The payload of an event, with what every event has.
    pub fn payload(&self, session: &str, transcript: bool, name: &str, more: Value) -> Value {
        let mut payload = json!({ "session_id": session, "hook_event_name": name, "cwd": self.root });
        if transcript {
            payload["transcript_path"] = json!(self.transcript(session));
        }
        payload.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        payload
    }
}
