//! `bench hook`: what an agent waits for when it calls stepback before and after its tools.
//!
//! Each run is a new process, from start to exit, with the payload on its input and a growing conversation, as Claude
//! Code runs it. It is compared with a process that does nothing (the minimum cost of starting a process), with Node
//! (what most hooks pay before their first line runs), and with opencode's snapshot of the same tree in the same state.
//! The same hooks with a store that a server guards show what the way over a socket costs. All take turns.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::guard_server::GuardServer;
use crate::input::changes::Candidates;
use crate::input::trees::{SourceTree, remove};
use crate::measure::clock::{Clock, Cost};
use crate::report::goals::{Goal, at_most};
use crate::report::markdown::{MarkdownTable, goal_list};
use crate::report::results::{ms, percentile, samples_json};
use crate::run::{Run, SETTLE, flush};
use crate::systems::{self, System, SystemDirs};

/// Starting Node is slow and varies little, so fewer runs are enough.
const SLOW_RUNS: usize = 40;

/// The number of messages in the conversation before the first measurement.
const MESSAGES: usize = 2_000;

/// How many reports wait in the inbox in the rounds in which a checkpoint records them.
const INBOX_REPORTS: usize = 10;

/// All samples of one kind of process.
struct ProcessSamples {
    name: String,
    costs: Vec<Cost>,
}

/// The results of this benchmark.
#[derive(Default)]
pub struct HookResults {
    all: Vec<ProcessSamples>,
}

impl HookResults {
    fn add(&mut self, name: &str, cost: Cost) {
        match self.all.iter_mut().find(|timed| timed.name == name) {
            Some(timed) => timed.costs.push(cost),
            None => self.all.push(ProcessSamples { name: name.to_owned(), costs: vec![cost] }),
        }
    }

    fn wall_percentile(&self, name: &str, percent: f64) -> Option<f64> {
        let timed = self.all.iter().find(|timed| timed.name == name)?;
        percentile(&timed.costs.iter().map(|cost| ms(cost.wall)).collect::<Vec<_>>(), percent)
    }

    /// All numbers.
    pub fn to_json(&self) -> Value {
        let samples = self.all.iter().map(|timed| (timed.name.clone(), samples_json(&timed.costs)));
        Value::Object(samples.collect())
    }

    /// The goals, judged.
    pub fn judge_goals(&self, trees: &[SourceTree]) -> Vec<Goal> {
        let mut goals = vec![
            at_most(
                "a report that a file was read, p50: under 4 ms".into(),
                self.wall_percentile(READ, 50.0),
                4.0,
                "ms",
            ),
            at_most("the same, p99: under 15 ms".into(), self.wall_percentile(READ, 99.0), 15.0, "ms"),
        ];
        if let Some(tree) = trees.iter().find(|tree| tree.files.abs_diff(8_000) < 2_000) {
            let description =
                format!("a checkpoint before a tool, {} files unchanged, p50: under 25 ms", tree.files);
            goals.push(at_most(
                description,
                self.wall_percentile(&name_of("before", tree), 50.0),
                25.0,
                "ms",
            ));
        }
        for tree in trees {
            for moment in ["before", "after"] {
                let local = self.wall_percentile(&name_of(moment, tree), 50.0);
                let guarded = self.wall_percentile(&guarded_name_of(moment, tree), 50.0);
                let more = guarded.zip(local).map(|(guarded, local)| guarded - local);
                let what = format!(
                    "a guarded store, {moment} a tool, {} files, p50: at most 2 ms more than a local one",
                    tree.files
                );
                goals.push(at_most(what, more, 2.0, "ms"));
            }
        }
        goals
    }

    /// The tables of the report.
    pub fn render_report(&self, trees: &[SourceTree]) -> String {
        let mut table = MarkdownTable::new(
            ["process", "runs", "min ms", "p50 ms", "p99 ms", "CPU p50 ms", "÷ true", "node ÷ it"]
                .into_iter(),
        );
        let format_ms = |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.2}"));
        let ratio = |a: Option<f64>, b: Option<f64>| {
            a.zip(b).map_or("–".to_owned(), |(a, b)| format!("{:.1} ×", a / b))
        };
        for timed in &self.all {
            let cpu: Vec<f64> = timed.costs.iter().map(|cost| ms(cost.cpu)).collect();
            let wall = |percent| self.wall_percentile(&timed.name, percent);
            table.rows.push(vec![
                timed.name.clone(),
                timed.costs.len().to_string(),
                format_ms(wall(0.0)),
                format_ms(wall(50.0)),
                format_ms(wall(99.0)),
                format_ms(percentile(&cpu, 50.0)),
                ratio(wall(50.0), self.wall_percentile(TRUE, 50.0)),
                ratio(self.wall_percentile(NODE, 50.0), wall(50.0)),
            ]);
        }
        let mut comparison_table =
            MarkdownTable::new(["p50 ms", "stepback", "opencode", "opencode ÷ stepback"].into_iter());
        for tree in trees {
            for moment in ["before", "after"] {
                let stepback_ms = self.wall_percentile(&name_of(moment, tree), 50.0);
                let opencode_ms =
                    self.wall_percentile(&format!("opencode {moment}, {} files", tree.files), 50.0);
                let changed = if moment == "before" { "nothing changed" } else { "one file changed" };
                comparison_table.rows.push(vec![
                    format!("{} files, {changed}", tree.files),
                    format_ms(stepback_ms),
                    format_ms(opencode_ms),
                    ratio(opencode_ms, stepback_ms),
                ]);
            }
        }
        let mut text = format!("{}\n{}", table.to_markdown(), comparison_table.to_markdown());
        goal_list(&mut text, &self.judge_goals(trees));
        text
    }
}

const TRUE: &str = "true";
const NODE: &str = "node -e 0";
const READ: &str = "hook, a file was read";

fn name_of(moment: &str, tree: &SourceTree) -> String {
    format!("hook, {moment} a tool, {} files", tree.files)
}

fn guarded_name_of(moment: &str, tree: &SourceTree) -> String {
    format!("{}, guarded store", name_of(moment, tree))
}

/// An agent at work in its own copy of a tree.
pub struct HookSession<'a> {
    binary: &'a Path,
    dirs: SystemDirs,
    transcript: PathBuf,
    calls: usize,
    /// How its hooks use the watcher.
    watcher: &'static str,
    /// The store: its own directory, or an address.
    store: OsString,
}

impl<'a> HookSession<'a> {
    /// A session that has made no call yet; its hooks run with `STEPBACK_WATCHER` set to `watcher`.
    pub fn new(
        area: &Path,
        name: &str,
        binary: &'a Path,
        tree: &SourceTree,
        watcher: &'static str,
    ) -> Result<Self> {
        let dirs = SystemDirs::new(area, name);
        tree.copy_to(&dirs.tree)?;
        let transcript = area.join(name).join("conversation.jsonl");
        let lines: String =
            (0..MESSAGES / 2).map(|number| exchange_lines(&format!("earlier{number}"))).collect();
        fs::write(&transcript, lines)?;
        let store = dirs.store.clone().into();
        Ok(Self { binary, dirs, transcript, calls: 0, watcher, store })
    }

    /// Its copy of the tree.
    pub fn tree(&self) -> &Path {
        &self.dirs.tree
    }

    /// Its store.
    pub fn store(&self) -> &Path {
        &self.dirs.store
    }

    /// A session whose hooks scan every file.
    fn start(area: &Path, name: &str, binary: &'a Path, tree: &SourceTree) -> Result<Self> {
        Self::new(area, name, binary, tree, "off")?.recorded_once()
    }

    /// The same, in a store that a server guards.
    fn start_guarded(
        area: &Path,
        name: &str,
        binary: &'a Path,
        tree: &SourceTree,
        server: &GuardServer,
    ) -> Result<Self> {
        let session = Self::new(area, name, binary, tree, "off")?;
        Self { store: server.address().into(), ..session }.recorded_once()
    }

    fn recorded_once(self) -> Result<Self> {
        let mut session = self;
        // The first checkpoint and the first reading of the conversation are not part of the measurement.
        session.run_pre_hook()?;
        session.run_post_hook()?;
        Ok(session)
    }

    fn append_transcript(&self, line: &str) -> Result<()> {
        let mut file = OpenOptions::new().append(true).open(&self.transcript)?;
        Ok(file.write_all(line.as_bytes())?)
    }

    fn run_hook(&self, event: &str, tool: &str, input: Value, response: Option<Value>) -> Result<Cost> {
        let mut payload = json!({
            "session_id": "5f0c1d6e-7a0b-4c1c-9f33-2f6f1f5d9c11",
            "transcript_path": self.transcript, "cwd": self.dirs.tree, "permission_mode": "default",
            "hook_event_name": event, "tool_name": tool, "tool_input": input,
            "tool_use_id": format!("toolu_{}", self.calls),
        });
        if let (Some(response), Some(fields)) = (response, payload.as_object_mut()) {
            fields.insert("tool_response".into(), response);
        }
        let mut command = Command::new(self.binary);
        command
            .env("STEPBACK_HOME", &self.store)
            // What stays on the user's side of a guarded store.
            .env("XDG_DATA_HOME", self.dirs.store.with_file_name("data"))
            .env("STEPBACK_WATCHER", self.watcher)
            .current_dir(&self.dirs.tree)
            .args(["hook", "claude"]);
        // Wait until the machine is idle, as it is between two steps of an agent.
        thread::sleep(Duration::from_millis(2));
        let mut clock = Clock::start();
        clock.run_with_input(&mut command, payload.to_string().as_bytes(), &[0])?;
        Ok(clock.stop())
    }

    /// The model has requested a command, which is about to run.
    pub fn run_pre_hook(&mut self) -> Result<Cost> {
        self.calls += 1;
        self.append_transcript(&answer_line(&format!("toolu_{}", self.calls)))?;
        self.run_hook("PreToolUse", "Bash", command_input(), None)
    }

    /// The command has run.
    pub fn run_post_hook(&mut self) -> Result<Cost> {
        let response = json!({ "stdout": "ok\n", "stderr": "", "interrupted": false });
        let cost = self.run_hook("PostToolUse", "Bash", command_input(), Some(response))?;
        self.append_transcript(&result_line(&format!("toolu_{}", self.calls)))?;
        Ok(cost)
    }

    /// A file is about to be read.
    fn read(&mut self) -> Result<Cost> {
        self.calls += 1;
        let input = json!({ "file_path": self.dirs.tree.join(".gitignore") });
        self.run_hook("PreToolUse", "Read", input, None)
    }
}

fn command_input() -> Value {
    json!({ "command": "cargo test --workspace", "description": "Run all tests" })
}

/// An answer and a result in Claude Code's transcript format.
fn exchange_lines(call: &str) -> String {
    answer_line(call) + &result_line(call)
}

fn answer_line(call: &str) -> String {
    let text = "Next, the tests have to be run again, because the last change touches the parser. ".repeat(4);
    let line = json!({
        "type": "assistant", "uuid": format!("a-{call}"), "timestamp": "2026-11-15T20:00:00.000Z",
        "message": {
            "id": format!("msg_{call}"), "role": "assistant", "model": "claude", "content": [
                { "type": "text", "text": text },
                { "type": "tool_use", "id": call, "name": "Bash", "input": command_input() },
            ],
        },
    });
    format!("{line}\n")
}

fn result_line(call: &str) -> String {
    let output = format!("test result: ok for {call}\n").repeat(20);
    let line = json!({
        "type": "user", "uuid": format!("r-{call}"), "timestamp": "2026-11-15T20:00:00.000Z",
        "message": { "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": call, "content": output },
        ] },
    });
    format!("{line}\n")
}

/// stepback and opencode on equal copies of one tree.
struct SystemPair<'a> {
    tree: &'a SourceTree,
    ours: Option<HookSession<'a>>,
    guarded: Option<HookSession<'a>>,
    theirs: Option<Box<dyn System>>,
    candidates: Candidates,
}

impl<'a> SystemPair<'a> {
    fn prepare(
        run: &Run<'_>,
        area: &Path,
        binary: &'a Path,
        tree: &'a SourceTree,
        server: Option<&GuardServer>,
    ) -> Result<Self> {
        let ours = match run.options.runs_system("stepback") {
            true => Some(HookSession::start(area, &format!("stepback-{}", tree.name), binary, tree)?),
            false => None,
        };
        let guarded_name = format!("guarded-{}", tree.name);
        let guarded = server
            .map(|server| HookSession::start_guarded(area, &guarded_name, binary, tree, server))
            .transpose()?;
        let theirs = match run.options.runs_system("opencode") {
            true => {
                let mut system = systems::by_name("opencode", &area.join(&tree.name), binary)?;
                tree.copy_to(&system.work_dirs().tree)?;
                system.reset()?;
                system.checkpoint("first")?;
                Some(system)
            }
            false => None,
        };
        let candidates = Candidates::find(&tree.origin, 6)?;
        Ok(Self { tree, ours, guarded, theirs, candidates })
    }

    /// A checkpoint of an unchanged tree, a change, and a checkpoint of that.
    fn run_round(&mut self, measured: &mut HookResults) -> Result<()> {
        let script = self.candidates.next_script(1);
        for moment in ["before", "after"] {
            if let Some(session) = &mut self.ours {
                let cost =
                    if moment == "before" { session.run_pre_hook()? } else { session.run_post_hook()? };
                measured.add(&name_of(moment, self.tree), cost);
            }
            if let Some(session) = &mut self.guarded {
                let cost =
                    if moment == "before" { session.run_pre_hook()? } else { session.run_post_hook()? };
                measured.add(&guarded_name_of(moment, self.tree), cost);
            }
            if let Some(system) = &mut self.theirs {
                let (_, cost) = system.checkpoint("")?;
                measured.add(&format!("opencode {moment}, {} files", self.tree.files), cost);
                system.refresh_caches()?;
            }
            if moment == "before" {
                let ours = self.ours.iter().chain(&self.guarded).map(|session| &session.dirs);
                for dirs in ours.chain(self.theirs.iter().map(|system| system.work_dirs())) {
                    script.apply(&dirs.tree)?;
                }
                thread::sleep(SETTLE);
            }
        }
        Ok(())
    }
}

/// Runs this benchmark.
pub fn measure(run: &mut Run<'_>, trees: &[SourceTree]) -> Result<HookResults> {
    let area = run.area.join("hook");
    let binary = run.binary.clone();
    let server = match run.options.runs_system("stepback") {
        true => Some(GuardServer::start(&area.join("guard"), &binary)?),
        false => None,
    };
    let mut pairs = Vec::new();
    for tree in trees {
        eprintln!("  preparing {} files", tree.files);
        pairs.push(SystemPair::prepare(run, &area, &binary, tree, server.as_ref())?);
    }
    let smallest = trees.iter().min_by_key(|tree| tree.files).context("there is no tree to measure on")?;
    let mut reader = match run.options.runs_system("stepback") {
        true => Some(HookSession::start(&area, "reader", &binary, smallest)?),
        false => None,
    };
    let node = Command::new("node").arg("--version").stdout(Stdio::null()).status().is_ok();
    let mut measured = HookResults::default();
    for number in 0..run.options.runs {
        if number % 10 == 0 {
            flush(&run.area);
            run.monitor.begin_block("hook");
        }
        measured.add(TRUE, time_command(&mut Command::new("/bin/true"))?);
        if node && number < SLOW_RUNS {
            measured.add(NODE, time_command(Command::new("node").args(["-e", "0"]))?);
        }
        if let Some(session) = &mut reader {
            measured.add(READ, session.read()?);
            if number % INBOX_REPORTS == INBOX_REPORTS - 1 {
                let cost = session.run_pre_hook()?;
                measured
                    .add(&format!("{}, {INBOX_REPORTS} reports waiting", name_of("before", smallest)), cost);
                session.run_post_hook()?;
            }
        }
        for pair in &mut pairs {
            pair.run_round(&mut measured)?;
        }
    }
    drop((pairs, server));
    remove(&area)?;
    Ok(measured)
}

fn time_command(command: &mut Command) -> Result<Cost> {
    thread::sleep(Duration::from_millis(2));
    let mut clock = Clock::start();
    clock.run(command)?;
    Ok(clock.stop())
}
