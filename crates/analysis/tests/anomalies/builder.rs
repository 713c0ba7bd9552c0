//! Builds the facts of a session call by call, with a model that is called before each of them.

use std::collections::HashMap;

use stepback_analysis::facts::{ModelCallFact, SessionFacts, StepFact};
use stepback_model::ids::{SessionId, StepId, WorkspaceId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

/// A generator of random numbers (SplitMix64), the same for the same seed on every machine.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number from `from` to `to`, both possible.
    pub fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    pub fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    pub fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[usize::try_from(self.next()).unwrap() % items.len()]
    }

    /// A factor around 1, log-normal: durations and costs are spread like that.
    pub fn spread(&mut self, sigma: f64) -> f64 {
        let normal: f64 = (0..12).map(|_| self.unit()).sum::<f64>() - 6.0;
        (normal * sigma).exp()
    }
}

/// What a call is made of.
#[derive(Clone, Debug)]
pub struct TestCall {
    pub tool: &'static str,
    pub subject: String,
    pub input: u64,
    pub inverse: u64,
    pub output: u64,
    pub failed: bool,
    pub micros: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    /// The state of the files after it; `None`: unchanged.
    pub state: Option<u64>,
    /// A pause before it.
    pub pause: u64,
}

pub struct SessionBuilder {
    pub facts: SessionFacts,
    pub random: Random,
    names: HashMap<String, u32>,
    pub state: u64,
    at: i64,
    iteration: u64,
    context: u64,
    prompt: Option<u32>,
    fresh: u64,
    pub worker: Option<u32>,
}

impl SessionBuilder {
    pub fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let session = SessionId::from_bytes(u128::from(random.next()).to_le_bytes());
        let facts = SessionFacts {
            workspace: Some(WorkspaceId::from_bytes([1; 16])),
            session: Some(session),
            agent: "claude".into(),
            ..SessionFacts::default()
        };
        let mut builder = Self {
            facts,
            state: random.next(),
            random,
            names: HashMap::new(),
            at: 1_767_225_600_000_000,
            iteration: 0,
            context: 18_000,
            prompt: None,
            fresh: seed.wrapping_mul(31),
            worker: None,
        };
        builder.prompt();
        builder
    }

    /// A fingerprint that was never used before.
    pub fn fresh(&mut self) -> u64 {
        self.fresh = self.fresh.wrapping_add(1);
        self.fresh.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1
    }

    pub fn name(&mut self, text: &str) -> Option<u32> {
        let next = u32::try_from(self.facts.names.len()).unwrap();
        let index = *self.names.entry(text.to_owned()).or_insert(next);
        if index == next {
            self.facts.names.push(text.to_owned());
        }
        Some(index)
    }

    /// The index of the next step.
    pub fn position(&self) -> usize {
        self.facts.steps.len()
    }

    /// The user says something.
    pub fn prompt(&mut self) {
        self.prompt = Some(u32::try_from(self.position()).unwrap());
        self.step(StepKind::UserInput);
    }

    pub fn wait(&mut self, micros: u64) {
        self.at += i64::try_from(micros).unwrap();
    }

    fn step(&mut self, kind: StepKind) -> &mut StepFact {
        let number = self.facts.steps.len() as u64 + 1;
        self.facts.steps.push(StepFact {
            id: StepId::from_bytes((u128::from(number) << 64 | u128::from(self.state)).to_le_bytes()),
            number,
            kind,
            at: Timestamp::from_micros(self.at),
            iteration: self.iteration,
            worker: self.worker,
            call: None,
            tool: None,
            subject: None,
            failed: false,
            mark: Default::default(),
            duration: None,
            waited: 0,
            input: 0,
            inverse: 0,
            output: 0,
            input_bytes: 0,
            output_bytes: 0,
            state: self.state,
            prompt: self.prompt,
        });
        self.facts.steps.last_mut().unwrap()
    }

    /// The model answers; returns the call, which can be changed.
    pub fn model_turn(&mut self) -> &mut ModelCallFact {
        self.iteration += 1;
        let output = self.random.range(60, 900);
        let factor = self.random.spread(0.25);
        let micros = ((1.2e6 + output as f64 * 16_000.0) * factor) as u64;
        self.at += i64::try_from(micros).unwrap();
        let fresh = self.random.range(300, 2500);
        let model = self.name("model-one");
        let step = u32::try_from(self.position()).unwrap();
        self.step(StepKind::ModelEnd).tool = model;
        let cached = self.context;
        self.context += fresh + output;
        let cost = cached * 3 / 10 + fresh * 15 / 4 + output * 15;
        let call = serde_json::json!({
            "step": step, "source": "step", "worker": self.worker, "model": model,
            "at": self.facts.steps.last().unwrap().at, "duration": micros, "first_byte": null,
            "tokens": {"input": 4, "output": output, "cache_read": cached, "cache_write": fresh, "reasoning": 0},
            "cost": cost, "replayed": false, "context": null, "priced": false, "identity": 0,
        });
        self.facts.model_calls.push(serde_json::from_value(call).unwrap());
        self.facts.model_calls.last_mut().unwrap()
    }

    /// A call, after a model turn that asks for it.
    pub fn call(&mut self, call: &TestCall) {
        self.wait(call.pause);
        self.model_turn();
        let (tool, subject) = (self.name(call.tool), self.name(&call.subject));
        let id = self.fresh();
        let id = self.name(&format!("call-{id}"));
        let start = self.step(StepKind::ToolStart);
        (start.tool, start.subject, start.call) = (tool, subject, id);
        (start.input, start.inverse, start.input_bytes) = (call.input, call.inverse, call.input_bytes);
        self.at += i64::try_from(call.micros).unwrap();
        self.state = call.state.unwrap_or(self.state);
        self.context += call.output_bytes / 4;
        let end = self.step(StepKind::ToolEnd);
        (end.tool, end.subject, end.call) = (tool, subject, id);
        (end.output, end.output_bytes, end.failed) = (call.output, call.output_bytes, call.failed);
        end.duration = Some(call.micros);
    }

    /// Reads a file, with the content that `version` stands for.
    pub fn read(&mut self, path: &str, version: u64, bytes: u64) {
        let micros = self.micros(4_000.0, 0.6);
        let input = hash(path);
        self.call(&TestCall {
            tool: "Read",
            subject: path.into(),
            input,
            output: input ^ version | 1,
            output_bytes: bytes,
            ..quick(micros)
        });
    }

    /// Changes a file by an edit that nothing takes back.
    pub fn edit(&mut self, path: &str) {
        let (input, inverse, state) = (self.fresh(), self.fresh(), self.fresh());
        self.edit_with(path, input, inverse, state);
    }

    pub fn edit_with(&mut self, path: &str, input: u64, inverse: u64, state: u64) {
        let micros = self.micros(9_000.0, 0.5);
        let output = self.fresh();
        self.call(&TestCall {
            tool: "Edit",
            subject: path.into(),
            input,
            inverse,
            output,
            output_bytes: 400,
            state: Some(state),
            ..quick(micros)
        });
    }

    /// Runs a command.
    pub fn run(&mut self, program: &str, input: u64, output: u64, failed: bool, micros: u64) {
        let output_bytes = self.random.range(80, 6000);
        self.call(&TestCall {
            tool: "Bash",
            subject: program.into(),
            input,
            output,
            failed,
            output_bytes,
            ..quick(micros)
        });
    }

    /// Something else that agents do in between: looks that change nothing.
    pub fn look(&mut self) {
        let (input, output) = (self.fresh(), self.fresh());
        let micros = self.micros(15_000.0, 0.8);
        match self.random.range(0, 3) {
            0 => {
                let path = format!("src/part{}.rs", self.random.range(0, 400));
                self.read(&path, output, 3000);
            }
            1 => self.run("rg", input, output, false, micros),
            2 => self.run("ls", input, output, false, micros),
            _ => self.run("git status", input, output, false, micros),
        }
    }

    pub fn micros(&mut self, typical: f64, sigma: f64) -> u64 {
        (typical * self.random.spread(sigma)) as u64
    }
}

fn quick(micros: u64) -> TestCall {
    TestCall {
        tool: "",
        subject: String::new(),
        input: 0,
        inverse: 0,
        output: 0,
        failed: false,
        micros,
        input_bytes: 120,
        output_bytes: 0,
        state: None,
        pause: 0,
    }
}

/// A call of nothing in particular.
pub fn blank_call() -> TestCall {
    quick(20_000)
}

pub fn hash(text: &str) -> u64 {
    stepback_model::fingerprint::fingerprint_text(text)
}
