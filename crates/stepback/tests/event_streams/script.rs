//! What happens in a case: a random interleaving of what agents and the user do.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value, json};
use stepback_agents::Agent;
use stepback_model::ids::OpId;
use stepback_model::record::StepKind;
use stepback_testkit::line_model::LineModel;
use stepback_testkit::tree::Draw;

use crate::Counts;
use crate::moves::DoneRewind;
use crate::oracle::{Actor, Call, Edit, Oracle, Sign};
use crate::world::{Files, PATHS, StreamWorkspace};

/// Something that an agent does next.
#[derive(Clone, Debug)]
enum Act {
    Start,
    /// A session that ended, or was killed, goes on.
    Resume,
    Prompt,
    /// The model answers and asks for calls.
    Answer(Vec<usize>),
    ModelRequest,
    Begin(usize),
    Work(usize),
    Finish(usize, bool),
    /// Hooks are installed twice: an event is delivered twice at once.
    Twice(Box<Act>),
    /// The result of a call is added to the conversation.
    Result(usize),
    Denied(usize),
    WorkerEnds(String),
    Compact,
    Stop,
    End,
    Wait,
}

pub struct SessionPlay {
    pub agent: Agent,
    pub name: String,
    pub has_transcript: bool,
    /// Lines of the conversation.
    pub lines: u64,
    /// Lines that there were before the last event, without the model turn that asked for the last call.
    pub lines_heard: u64,
    /// For every turn, how many lines came before it.
    turns: Vec<(String, u64)>,
    /// What the main agent and its sub-agents do next.
    queues: Vec<VecDeque<Act>>,
    is_over: bool,
}

pub struct Script {
    pub world: StreamWorkspace,
    pub counts: Counts,
    pub draw: Draw,
    pub oracle: Oracle,
    pub sessions: Vec<SessionPlay>,
    pub tick: u64,
    pub last_number: u64,
    /// What the files were at the last scan.
    pub scanned: Files,
    tokens: usize,
    /// The session of the last event.
    pub heard: Option<usize>,
    /// When the last event was delivered.
    pub last_event: u64,
    pub lines: LineModel,
    /// The present branch.
    pub branch: String,
    pub rewinds: HashMap<OpId, DoneRewind>,
}

const AGENTS: [Agent; 4] = [Agent::Claude, Agent::Codex, Agent::Gemini, Agent::Opencode];

impl Script {
    pub fn new(seed: u64, runs_program: bool) -> Self {
        Self {
            world: StreamWorkspace::new(seed, runs_program),
            counts: Counts::default(),
            draw: Draw::new(seed),
            oracle: Oracle::default(),
            sessions: Vec::new(),
            tick: 0,
            last_number: 0,
            scanned: Files::new(),
            tokens: 0,
            heard: None,
            last_event: 0,
            lines: LineModel::default(),
            branch: "main".into(),
            rewinds: HashMap::new(),
        }
    }

    pub fn run(&mut self, acts: usize) -> Result<(), String> {
        for _ in 0..acts {
            self.tick += 1;
            match self.draw.below(100) {
                0..16 => self.edit(Actor::Person, None),
                16..19 => self.create_checkpoint()?,
                19..22 => self.rewind()?,
                22 => self.undo()?,
                23 if self.draw.once_in(2) => self.create_branch()?,
                23 => self.switch()?,
                _ => self.agent_acts()?,
            }
        }
        self.check_authors()?;
        self.check_marks()?;
        self.check_every_step()
    }

    /// Somebody writes to a file.
    fn edit(&mut self, actor: Actor, path: Option<&'static str>) {
        let path = path.unwrap_or_else(|| *self.draw.pick(&PATHS));
        self.tokens += 1;
        self.counts.edits += 1;
        let name = match actor {
            Actor::Person => "person".to_owned(),
            Actor::Call(at) => self.oracle.calls[at].id.clone(),
        };
        let token = format!("{name} wrote {}", self.tokens);
        let now = self.world.files().remove(path);
        let text = match self.draw.below(10) {
            0 => None,
            1..4 => Some(format!("{token}\n")),
            _ => Some(format!("{}{token}\n", now.unwrap_or_default())),
        };
        self.note(format!("{name} writes {path}: {text:?}"));
        self.world.write(path, text.as_deref());
        let token = text.map(|_| token).unwrap_or_default();
        self.oracle.edits.push(Edit { tick: self.tick, path, actor, token });
    }

    pub fn note(&mut self, what: String) {
        self.world.log.push(format!("{}: {what}", self.tick));
    }

    // What agents do.

    fn agent_acts(&mut self) -> Result<(), String> {
        let over: Vec<usize> = (0..self.sessions.len()).filter(|at| self.sessions[*at].is_over).collect();
        if !over.is_empty() && self.draw.once_in(80) {
            let session = *self.draw.pick(&over);
            self.counts.resumes += 1;
            let play = &mut self.sessions[session];
            play.is_over = false;
            play.queues = vec![VecDeque::new()];
            return self.perform(session, Act::Resume);
        }
        let alive: Vec<usize> = (0..self.sessions.len()).filter(|at| !self.sessions[*at].is_over).collect();
        if alive.is_empty() || (alive.len() < 3 && self.draw.once_in(60)) {
            self.begin_session();
            return Ok(());
        }
        let session = *self.draw.pick(&alive);
        if self.sessions[session].queues[0].is_empty() {
            self.plan_prompt(session);
        }
        let busy: Vec<usize> = (0..self.sessions[session].queues.len())
            .filter(|at| !self.sessions[session].queues[*at].is_empty())
            .collect();
        let queue = *self.draw.pick(&busy);
        // The queue is not empty.
        let act = self.sessions[session].queues[queue].pop_front().unwrap();
        self.perform(session, act)
    }

    fn begin_session(&mut self) {
        let at = self.sessions.len();
        let agent = *self.draw.pick(&AGENTS);
        self.sessions.push(SessionPlay {
            agent,
            name: format!("session-{at}"),
            has_transcript: agent == Agent::Claude && !self.draw.once_in(3),
            lines: 0,
            lines_heard: 0,
            turns: Vec::new(),
            queues: vec![VecDeque::from([Act::Start])],
            is_over: false,
        });
        self.oracle.turns.push(None);
        self.note(format!("{at} is a session of {}", agent.name()));
    }

    /// A prompt and what it leads to.
    fn plan_prompt(&mut self, session: usize) {
        if self.draw.once_in(25) {
            // Killed: nothing is ever heard of it again.
            self.note(format!("{session} is killed"));
            self.sessions[session].is_over = true;
            self.sessions[session].queues[0].push_back(Act::ModelRequest);
            return;
        }
        let mut acts = VecDeque::from([Act::Prompt]);
        let mut interrupted = false;
        for _ in 0..=self.draw.below(3) {
            if self.draw.once_in(12) {
                acts.push_back(Act::Compact);
            }
            acts.push_back(Act::ModelRequest);
            interrupted = self.plan_turn(session, &mut acts);
            if interrupted {
                break;
            }
        }
        if !interrupted && !self.draw.once_in(8) {
            acts.push_back(Act::Stop);
        }
        if self.draw.once_in(15) {
            acts.push_back(Act::End);
        }
        self.sessions[session].queues[0] = acts;
    }

    /// The calls of one model turn. Returns whether the person interrupted it.
    fn plan_turn(&mut self, session: usize, acts: &mut VecDeque<Act>) -> bool {
        let claude = self.sessions[session].agent == Agent::Claude;
        if claude && self.draw.once_in(8) {
            let worker = format!("worker-{}", self.oracle.calls.len());
            let mut queue = VecDeque::new();
            for _ in 0..=self.draw.below(2) {
                let call = self.new_call(session, Some(&worker), None);
                self.plan_call(call, &mut queue);
            }
            queue.push_back(Act::WorkerEnds(worker));
            self.sessions[session].queues.push(queue);
        }
        let parallel = self.draw.once_in(3);
        let turn = format!("turn-{}", self.tokens * 1000 + self.oracle.calls.len());
        let calls: Vec<usize> = (0..=self.draw.below(3))
            .map(|_| {
                let call = self.new_call(session, None, Some(&turn));
                if claude && parallel {
                    self.oracle.calls[call].bound_to = None;
                    self.oracle.calls[call].tool = "Bash";
                    self.oracle.calls[call].changes = true;
                }
                call
            })
            .collect();
        acts.push_back(Act::Answer(calls.clone()));
        if !parallel {
            for call in calls {
                if self.plan_call(call, acts) && self.draw.once_in(2) {
                    return true;
                }
            }
            return false;
        }
        let mut middle = Vec::new();
        let mut ends = Vec::new();
        for call in calls {
            let mut own = VecDeque::new();
            self.plan_call(call, &mut own);
            for act in own {
                match act {
                    Act::Begin(_) => acts.push_back(act),
                    Act::Twice(ref twice) if matches!(**twice, Act::Begin(_)) => acts.push_back(act),
                    Act::Work(_) => middle.push(act),
                    _ => ends.push(act),
                }
            }
        }
        for mut part in [middle, ends] {
            while !part.is_empty() {
                let at = self.draw.below(part.len());
                acts.push_back(part.remove(at));
            }
        }
        false
    }

    fn new_call(&mut self, session: usize, worker: Option<&str>, turn: Option<&str>) -> usize {
        let at = self.oracle.calls.len();
        let agent = self.sessions[session].agent;
        let (edit, shell, read) = match agent {
            Agent::Claude => ("Write", "Bash", "Read"),
            Agent::Codex => ("apply_patch", "Bash", "read_file"),
            Agent::Gemini => ("write_file", "run_shell_command", "read_file"),
            Agent::Opencode => ("write", "bash", "read"),
        };
        let (tool, changes, bound_to) = match self.draw.below(8) {
            0 => (read, false, None),
            1..4 => (edit, true, Some(*self.draw.pick(&PATHS))),
            _ => (shell, true, None),
        };
        self.counts.calls += 1;
        self.oracle.calls.push(Call {
            id: format!("call-{at}"),
            session,
            worker: worker.map(|worker| format!("helper {worker}")),
            tool,
            bound_to,
            changes,
            turn: turn.filter(|_| self.sessions[session].has_transcript).map(str::to_owned),
            start: None,
            end: None,
            closed: None,
            denied: None,
            overtaken: false,
            start_step: None,
        });
        at
    }

    /// The events of one call. Returns whether its end is never reported.
    fn plan_call(&mut self, call: usize, acts: &mut VecDeque<Act>) -> bool {
        let works: Vec<Act> = match self.oracle.calls[call].changes {
            true => (0..self.draw.below(3)).map(|_| Act::Work(call)).collect(),
            false => Vec::new(),
        };
        let (begin, finish) = (Act::Begin(call), Act::Finish(call, self.draw.once_in(6)));
        let mut all = match self.draw.below(100) {
            // Refused in the agent's own dialog, after our hook.
            0..9 => vec![begin],
            // Interrupted, killed or timed out while it ran.
            9..16 => [vec![begin], works].concat(),
            // The hook before it was killed.
            16..22 => {
                self.counts.missing_starts += 1;
                [works, vec![finish]].concat()
            }
            22..26 if self.sessions[self.oracle.calls[call].session].agent == Agent::Claude => {
                vec![begin, Act::Denied(call)]
            }
            // Hooks that are installed twice.
            26..32 => {
                self.counts.doubled += 1;
                let finish = Act::Finish(call, false);
                [vec![Act::Twice(Box::new(begin))], works, vec![Act::Twice(Box::new(finish))]].concat()
            }
            // Its end arrives much later.
            35..40 => {
                let session = self.oracle.calls[call].session;
                self.sessions[session].queues.push(VecDeque::from([Act::Wait, Act::Wait, finish]));
                [vec![begin], works].concat()
            }
            // The hooks overtook each other.
            32..35 => [works, vec![finish, begin]].concat(),
            _ => [vec![begin], works, vec![finish]].concat(),
        };
        let never_ends = !all.iter().any(|act| matches!(act, Act::Finish(..) | Act::Twice(_)));
        all.push(Act::Result(call));
        acts.extend(all);
        never_ends
    }

    fn perform(&mut self, session: usize, act: Act) -> Result<(), String> {
        self.note(format!("{session}: {act:?}"));
        let agent = self.sessions[session].agent;
        match act {
            Act::Start => {
                let name = if agent == Agent::Opencode { "session.created" } else { "SessionStart" };
                self.closing(session, Sign::Session, agent != Agent::Opencode);
                self.deliver(session, name, json!({ "source": "startup" }), true)
            }
            Act::Resume => {
                let name = if agent == Agent::Opencode { "session.updated" } else { "SessionStart" };
                let scans = agent != Agent::Opencode;
                self.closing(session, Sign::Session, scans);
                self.deliver(session, name, json!({ "source": "resume" }), scans)
            }
            Act::Prompt => self.prompt(session),
            Act::ModelRequest => {
                let name = match agent {
                    Agent::Codex => "PreModelRequest",
                    Agent::Gemini => "BeforeModel",
                    _ => return Ok(()),
                };
                self.closing(session, Sign::Worker(None), true);
                self.deliver(session, name, json!({ "model": "m" }), false)
            }
            Act::Wait => Ok(()),
            Act::Answer(calls) => {
                self.answer(session, &calls);
                Ok(())
            }
            Act::Work(call) => {
                let only = self.oracle.calls[call].bound_to;
                self.edit(Actor::Call(call), only);
                Ok(())
            }
            Act::Twice(act) => {
                self.perform(session, (*act).clone())?;
                self.perform(session, *act)
            }
            Act::Begin(call) => self.begin_call(session, call),
            Act::Finish(call, failed) => self.finish_call(session, call, failed),
            Act::Result(call) => {
                let id = self.oracle.calls[call].id.clone();
                if self.oracle.calls[call].worker.is_none() {
                    let result = json!({ "type": "tool_result", "tool_use_id": id, "content": "ok" });
                    self.say(
                        session,
                        &json!({ "type": "user", "message": { "role": "user", "content": [result] } }),
                    );
                }
                Ok(())
            }
            Act::Denied(call) => {
                let more = self.about(call);
                self.oracle.calls[call].denied = Some(self.tick);
                self.deliver(session, "PermissionDenied", more, false)
            }
            Act::WorkerEnds(worker) => {
                let named = format!("helper {worker}");
                self.closing(session, Sign::Worker(Some(&named)), true);
                let more = json!({ "agent_id": worker, "agent_type": "helper" });
                self.deliver(session, "SubagentStop", more, false)
            }
            Act::Compact => {
                let name = match agent {
                    Agent::Gemini => return Ok(()),
                    Agent::Opencode => "session.compacting",
                    _ => "PreCompact",
                };
                self.deliver(session, name, json!({ "trigger": "auto" }), true)
            }
            Act::Stop => {
                let name = match agent {
                    Agent::Gemini => "AfterAgent",
                    Agent::Opencode => "session.idle",
                    _ => "Stop",
                };
                let scans = self.oracle.has_unscanned(session);
                self.closing(session, Sign::Session, true);
                self.oracle.turns[session] = None;
                self.deliver(session, name, json!({ "last_assistant_message": "done" }), scans)
            }
            Act::End => {
                if agent == Agent::Opencode {
                    return Ok(());
                }
                let scans = self.oracle.has_unscanned(session);
                self.closing(session, Sign::Session, true);
                self.sessions[session].is_over = true;
                self.deliver(session, "SessionEnd", json!({}), scans)
            }
        }
    }

    fn prompt(&mut self, session: usize) -> Result<(), String> {
        self.say(session, &json!({ "type": "user", "message": { "role": "user", "content": "go on" } }));
        let name = match self.sessions[session].agent {
            Agent::Gemini => "BeforeAgent",
            Agent::Opencode => "chat.message",
            _ => "UserPromptSubmit",
        };
        self.closing(session, Sign::Session, true);
        self.oracle.turns[session] = None;
        self.deliver(session, name, json!({ "prompt": "go on" }), false)
    }

    fn closing(&mut self, session: usize, sign: Sign<'_>, counts: bool) {
        if counts {
            let agent = self.sessions[session].agent;
            self.counts.abandoned += self.oracle.close(session, agent, sign, self.tick);
        }
    }

    /// Adds a line to the conversation of a session that has one.
    fn say(&mut self, session: usize, line: &Value) {
        let play = &mut self.sessions[session];
        if play.has_transcript {
            play.lines += 1;
            self.world.say(&play.name, line);
        }
    }

    fn answer(&mut self, session: usize, calls: &[usize]) {
        let Some(turn) = calls.first().and_then(|call| self.oracle.calls[*call].turn.clone()) else { return };
        let asked: Vec<Value> = (calls.iter())
            .map(|call| &self.oracle.calls[*call])
            .map(|call| json!({ "type": "tool_use", "id": call.id, "name": call.tool, "input": {} }))
            .collect();
        let before = self.sessions[session].lines;
        self.sessions[session].turns.push((turn.clone(), before));
        let message = json!({ "id": turn, "role": "assistant", "content": asked });
        self.say(session, &json!({ "type": "assistant", "uuid": turn, "message": message }));
    }

    /// What the events of a call say about it.
    fn about(&self, call: usize) -> Value {
        let call = &self.oracle.calls[call];
        let agent = self.sessions[call.session].agent;
        let input = match call.bound_to {
            Some(path) if agent == Agent::Codex => {
                json!({ "command": format!("*** Begin Patch\n*** Update File: {path}\n*** End Patch") })
            }
            Some(path) => json!({ "file_path": path, "call": call.id }),
            None => json!({ "command": format!("run {}", call.id) }),
        };
        let mut about = json!({ "tool_name": call.tool, "tool_input": input });
        // Gemini CLI gives calls no ids; it says when they happen.
        match agent {
            Agent::Gemini => about["timestamp"] = json!(call.id),
            _ => about["tool_use_id"] = json!(call.id),
        }
        if let Some(worker) = &call.worker {
            about["agent_id"] = json!(worker.trim_start_matches("helper "));
            about["agent_type"] = json!("helper");
        }
        about
    }

    fn begin_call(&mut self, session: usize, call: usize) -> Result<(), String> {
        let name = match self.sessions[session].agent {
            Agent::Gemini => "BeforeTool",
            Agent::Opencode => "tool.execute.before",
            _ => "PreToolUse",
        };
        let more = self.about(call);
        let known = self.oracle.calls[call].start.is_some();
        let is_over = self.oracle.calls[call].end.is_some();
        if !known {
            self.closing(session, Sign::NextCall(call), true);
            if let Some(turn) = self.oracle.calls[call].turn.clone() {
                self.oracle.turns[session] = Some(turn);
            }
            if !is_over {
                self.oracle.calls[call].start = Some(self.tick);
            }
        }
        let (changes, before) = (self.oracle.calls[call].changes, self.last_number);
        self.deliver(session, name, more, changes && !known)?;
        if !known {
            let found = self.world.with(|workspace| {
                let steps = self.world.steps_after(workspace, before);
                let start = steps.into_iter().find(|stored| stored.step.kind == StepKind::ToolStart);
                start.map(|stored| (stored.step.id, self.conversation_len(workspace, &stored)))
            });
            let Some((step, said)) = found else {
                return Err(format!("the start of call-{call} is not recorded"));
            };
            self.oracle.calls[call].start_step = Some(step);
            let turns = &self.sessions[session].turns;
            let turn = self.oracle.calls[call].turn.as_ref();
            let expected = turns.iter().find(|(name, _)| Some(name) == turn).map(|(_, lines)| *lines);
            if let Some(expected) = expected.filter(|_| self.oracle.calls[call].worker.is_none())
                && said != expected
            {
                return Err(format!("call-{call} starts with {said} messages instead of {expected}"));
            }
            self.sessions[session].lines_heard = said;
        }
        Ok(())
    }

    fn finish_call(&mut self, session: usize, call: usize, failed: bool) -> Result<(), String> {
        let name = match (self.sessions[session].agent, failed) {
            (Agent::Gemini, _) => "AfterTool",
            (Agent::Opencode, _) => "tool.execute.after",
            (Agent::Claude, true) => "PostToolUseFailure",
            _ => "PostToolUse",
        };
        let mut more = self.about(call);
        more["tool_response"] = json!({ "stdout": "ok" });
        if name == "PostToolUseFailure" {
            more["error"] = json!("it failed");
        }
        let known = self.oracle.calls[call].end.is_some();
        if !known {
            if self.oracle.calls[call].closed.is_some() {
                self.counts.late_ends += 1;
            }
            self.oracle.calls[call].end = Some(self.tick);
            let worker = self.oracle.calls[call].worker.clone();
            let same = |other: &&mut Call| other.session == session && other.worker == worker;
            let open = self.oracle.calls.iter_mut().filter(same).filter(|other| other.is_open());
            open.for_each(|other| other.overtaken = true);
        }
        let changes = self.oracle.calls[call].changes && !known;
        self.deliver(session, name, more, changes)
    }

    // Delivering events and checking what became of them.

    fn deliver(&mut self, session: usize, name: &str, more: Value, scans: bool) -> Result<(), String> {
        self.counts.events += 1;
        self.last_event = self.tick;
        let play = &self.sessions[session];
        let payload = self.world.payload(&play.name, play.has_transcript, name, more);
        let agent = play.agent;
        self.world.hook(agent, &payload);
        self.sessions[session].lines_heard = self.sessions[session].lines;
        self.settle(Some(session), scans)
    }
}
