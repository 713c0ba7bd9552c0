//! The detail of a step as numbers: fingerprints and sizes of what it says, usage, and what its request was made of.

use serde_json::Value;
use stepback_agents::call_subject::call_subject;
use stepback_llm_wire::recorded_call::CallUsage;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::fingerprint::{fingerprint_input, fingerprint_inverse, fingerprint_output};
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::json::{self, JsonError, Piece, ValueRoot};
use stepback_model::record::{StepKind, StepRow};
use stepback_model::state::WorkspaceState;
use stepback_store::Store;

use super::request_parts::{RequestParts, RequestReader};

/// With fewer steps than this, another thread costs more than it saves.
const MIN_STEPS_PER_THREAD: usize = 500;

/// What the detail of a step says.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct DetailNumbers {
    /// Whether the step has a detail that cannot be read.
    pub is_missing: bool,
    pub input: u64,
    pub inverse: u64,
    pub output: u64,
    /// Of the files of a checkpoint.
    pub state: u64,
    pub input_bytes: u64,
    pub output_bytes: u64,
    pub subject: Option<String>,
    /// Whether the step is a stop at a breakpoint, not a log point.
    pub is_stop: bool,
    /// The call whose stop was answered.
    pub answered_call: Option<String>,
    pub usage: Option<ModelUsage>,
    /// What the request of a model call was made of.
    pub request: Option<RequestParts>,
}

/// The usage of a model call, as its step has it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct ModelUsage {
    pub model: Option<String>,
    pub tokens: Option<TokenUsage>,
    pub cost: Option<u64>,
    pub replayed: bool,
    pub impossible: bool,
    pub first_byte: Option<u64>,
}

/// Reads the details of steps, in their order.
pub(super) fn read_details(store: &dyn Store, rows: &[StepRow], threads: usize) -> Vec<DetailNumbers> {
    let threads = threads.min(rows.len() / MIN_STEPS_PER_THREAD).max(1);
    let read = |rows: &[StepRow]| {
        let mut reader = DetailReader { store, page: None, requests: RequestReader::default() };
        rows.iter().map(|stored| reader.read(stored)).collect::<Vec<_>>()
    };
    if threads == 1 {
        return read(rows);
    }
    let size = rows.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let parts: Vec<_> = rows.chunks(size).map(|rows| scope.spawn(move || read(rows))).collect();
        let mut all = Vec::with_capacity(rows.len());
        for (part, rows) in parts.into_iter().zip(rows.chunks(size)) {
            // A panic of a thread would be one of this function; nothing here panics.
            all.extend(part.join().unwrap_or_else(|_| {
                vec![DetailNumbers { is_missing: true, ..DetailNumbers::default() }; rows.len()]
            }));
        }
        all
    })
}

struct DetailReader<'a> {
    store: &'a dyn Store,
    /// The page that was read last, with the values that were not taken yet.
    page: Option<(Hash, Vec<Option<Value>>)>,
    requests: RequestReader,
}

impl DetailReader<'_> {
    fn read(&mut self, stored: &StepRow) -> DetailNumbers {
        let state = self.read_state(stored);
        DetailNumbers { state, ..self.read_detail(stored) }
    }

    /// The first bytes of the hash of a checkpoint's files; 0 if there are none any more.
    fn read_state(&self, stored: &StepRow) -> u64 {
        if !stored.is_checkpoint() || stored.purged {
            return 0;
        }
        let files = WorkspaceState::load(self.store, stored.step.state).ok().and_then(|state| state.files);
        files.map_or(0, |files| first_bytes(files.as_bytes()).max(1))
    }

    fn read_detail(&mut self, stored: &StepRow) -> DetailNumbers {
        let Some(root) = stored.step.meta.detail else { return DetailNumbers::default() };
        let kind = stored.step.kind;
        let numbers = match (kind, root.part) {
            // Bodies of requests and answers are large, and requests have most in common with the one before.
            (StepKind::ModelStart | StepKind::ModelEnd, None) => self.read_model_step(kind, root.node),
            _ => self.load(root).map(|detail| numbers_of(kind, &detail)),
        };
        numbers.unwrap_or(DetailNumbers { is_missing: true, ..DetailNumbers::default() })
    }

    fn load(&mut self, root: ValueRoot) -> Result<Value, JsonError> {
        let Some(part) = root.part else { return json::load(self.store, root) };
        if self.page.as_ref().is_none_or(|(page, _)| *page != root.node) {
            let values = json::load_page(self.store, root.node)?;
            self.page = Some((root.node, values.into_iter().map(Some).collect()));
        }
        let values = self.page.as_mut().map(|(_, values)| values);
        let taken = values.and_then(|values| values.get_mut(part as usize)?.take());
        match taken {
            Some(value) => Ok(value),
            // Taken before, or not there: the error is that of a single read.
            None => json::load(self.store, root),
        }
    }

    fn read_model_step(&mut self, kind: StepKind, node: Hash) -> Result<DetailNumbers, JsonError> {
        let mut numbers = DetailNumbers::default();
        let mut small = serde_json::Map::new();
        for (name, piece) in json::fields(self.store, node)? {
            match (name.as_str(), kind) {
                ("input", StepKind::ModelStart) => {
                    let request = self.requests.read(self.store, &piece)?;
                    numbers.input_bytes = request.bytes;
                    numbers.input = self.fingerprint_piece(&piece)?;
                    numbers.request = request.parts;
                }
                ("output", StepKind::ModelEnd) => {
                    numbers.output_bytes = self.requests.text_bytes(self.store, &piece)?;
                    numbers.output = self.fingerprint_piece(&piece)?;
                }
                ("metadata", _) => {
                    small.insert(name, piece.load(self.store)?);
                }
                _ => {}
            }
        }
        numbers.usage = usage_of(&Value::Object(small));
        Ok(numbers)
    }

    /// A large part is not loaded for it: equal parts have equal hashes.
    fn fingerprint_piece(&self, piece: &Piece) -> Result<u64, JsonError> {
        Ok(match piece.hash() {
            Some(hash) => fingerprint(hash.as_bytes()),
            None => fingerprint_output(&piece.load(self.store)?),
        })
    }
}

fn numbers_of(kind: StepKind, detail: &Value) -> DetailNumbers {
    let input = detail.get("input");
    let output = detail.get("output").or_else(|| detail.get("error"));
    let is_call = matches!(kind, StepKind::ToolStart | StepKind::ToolEnd);
    let field = |name: &str| input.and_then(|input| input.get(name));
    DetailNumbers {
        is_missing: false,
        input: input.map_or(0, fingerprint_input),
        inverse: input.filter(|_| is_call).map_or(0, fingerprint_inverse),
        output: output.map_or(0, fingerprint_output),
        state: 0,
        input_bytes: input.map_or(0, text_bytes),
        output_bytes: output.map_or(0, text_bytes),
        subject: input.filter(|_| is_call).and_then(call_subject),
        is_stop: kind == StepKind::BreakpointHit && field("tool").is_some(),
        answered_call: (kind == StepKind::Decision)
            .then(|| field("answer").and(field("call")).and_then(Value::as_str).map(str::to_owned))
            .flatten(),
        usage: (kind == StepKind::ModelEnd).then(|| usage_of(detail)).flatten(),
        request: None,
    }
}

fn usage_of(detail: &Value) -> Option<ModelUsage> {
    let usage = CallUsage::of(detail);
    let first_byte = detail.pointer("/metadata/first_byte_us").and_then(Value::as_u64);
    if usage.is_none() && first_byte.is_none() {
        return None;
    }
    let usage = usage.unwrap_or_default();
    Some(ModelUsage {
        model: usage.model,
        tokens: usage.tokens,
        // Always fits: larger amounts are impossible.
        cost: usage.cost_usd.map(|dollars| (dollars * 1e6).round() as u64),
        replayed: usage.replayed,
        impossible: usage.impossible,
        first_byte,
    })
}

/// A fingerprint of bytes; never 0.
pub(super) fn fingerprint(bytes: &[u8]) -> u64 {
    first_bytes(Hash::of(ObjectKind::Blob, bytes).as_bytes()).max(1)
}

fn first_bytes(hash: &[u8; 32]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *hash;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The size of a value as text: of a text its length, of anything else the length of its JSON.
pub(super) fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Null => 0,
        value => json_bytes(value),
    }
}

/// The length of a value as JSON, without writing it.
fn json_bytes(value: &Value) -> u64 {
    let separators = |count: usize| count.saturating_sub(1) as u64;
    match value {
        Value::Null => 4,
        Value::Bool(value) => 5 - u64::from(*value),
        Value::Number(number) => number.to_string().len() as u64,
        // Escapes are left out: this is a size, not a promise.
        Value::String(text) => text.len() as u64 + 2,
        Value::Array(items) => 2 + separators(items.len()) + items.iter().map(json_bytes).sum::<u64>(),
        Value::Object(fields) => {
            let inside = fields.iter().map(|(name, value)| name.len() as u64 + 3 + json_bytes(value));
            2 + separators(fields.len()) + inside.sum::<u64>()
        }
    }
}
