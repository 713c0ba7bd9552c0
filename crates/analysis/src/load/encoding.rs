//! The bytes of kept facts: a header, numbers of variable length, and a checksum.

use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::hash::{Hash, ObjectKind};
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

use super::kept::{KeptFacts, KeptIndex};
use crate::facts::{
    ContextParts, FactDefects, ModelCallFact, NameIndex, SessionFacts, StepFact, UsageSource,
};
use crate::marks::StepMark;

/// What a file begins with.
const MAGIC: &[u8; 8] = b"stbfacts";
/// The number of the format. It changes with the bytes and with the rules by which facts are made; a file with another one is
/// not read.
const FORMAT: u64 = 1;
const CHECKSUM_BYTES: usize = 32;

/// A file with facts of a session, or with the index of a workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Facts = 1,
    Index = 2,
}

/// Writes the file of a session.
pub(super) fn encode_facts(kept: &KeptFacts) -> Vec<u8> {
    let facts = &kept.facts;
    let mut out = FactsWriter::new(FileKind::Facts, 64 + facts.steps.len() * 80);
    out.option(kept.tip, |out, tip| out.bytes.extend(tip.as_bytes()));
    let FactDefects { impossible_usage, clock_went_back, missing_details } = facts.defects;
    [impossible_usage, clock_went_back, missing_details].into_iter().for_each(|count| out.number(count));
    out.number(facts.names.len() as u64);
    facts.names.iter().for_each(|name| out.text(name));
    out.number(facts.steps.len() as u64);
    let (mut at, mut number) = (0, 0);
    for step in &facts.steps {
        out.step(step, at, number);
        (at, number) = (step.at.as_micros(), step.number);
    }
    out.number(facts.model_calls.len() as u64);
    facts.model_calls.iter().for_each(|call| out.model_call(call));
    out.finish()
}

/// Reads the file of a session; `None` if it is damaged or of another format.
pub(super) fn decode_facts(bytes: &[u8]) -> Option<KeptFacts> {
    let mut from = FactsReader::open(bytes, FileKind::Facts)?;
    let tip = from.option(|from| Hash::from_slice(from.take(32)?))?;
    let defects = FactDefects {
        impossible_usage: from.number()?,
        clock_went_back: from.number()?,
        missing_details: from.number()?,
    };
    let names = from.list(FactsReader::text)?;
    let (mut at, mut number) = (0, 0);
    let steps = from.list(|from| {
        let step = from.step(at, number)?;
        (at, number) = (step.at.as_micros(), step.number);
        Some(step)
    })?;
    let model_calls = from.list(FactsReader::model_call)?;
    let facts = SessionFacts { names, steps, model_calls, defects, ..SessionFacts::default() };
    (from.rest.is_empty() && is_consistent(&facts)).then_some(KeptFacts { tip, facts })
}

/// Whether all indexes are inside their lists.
fn is_consistent(facts: &SessionFacts) -> bool {
    let is_name = |name: Option<NameIndex>| name.is_none_or(|name| (name as usize) < facts.names.len());
    let is_step = |step: u32| (step as usize) < facts.steps.len().max(1);
    let steps = facts.steps.iter().all(|step| {
        [step.worker, step.call, step.tool, step.subject].into_iter().all(is_name)
            && step.prompt.is_none_or(is_step)
    });
    let calls = facts.model_calls.iter().all(|call| {
        let results = call.context.iter().flat_map(|context| &context.results);
        is_step(call.step)
            && is_name(call.worker)
            && is_name(call.model)
            && results.into_iter().all(|(name, _)| is_name(Some(*name)))
    });
    steps && calls
}

/// Writes the index of a workspace.
pub(super) fn encode_index(index: &KeptIndex) -> Vec<u8> {
    let mut out = FactsWriter::new(FileKind::Index, 64 + index.sessions.len() * 24);
    out.number(index.until);
    out.option(index.last, |out, last| out.bytes.extend(last.as_bytes()));
    let mut sessions: Vec<_> = index.sessions.iter().collect();
    sessions.sort_unstable();
    out.number(sessions.len() as u64);
    for (session, last) in sessions {
        out.bytes.extend(session.as_bytes());
        out.number(*last);
    }
    out.finish()
}

/// Reads the index of a workspace; `None` if it is damaged or of another format.
pub(super) fn decode_index(bytes: &[u8]) -> Option<KeptIndex> {
    let mut from = FactsReader::open(bytes, FileKind::Index)?;
    let until = from.number()?;
    let last = from.option(|from| StepId::from_slice(from.take(16)?))?;
    let sessions = from.list(|from| Some((SessionId::from_slice(from.take(16)?)?, from.number()?)))?;
    from.rest.is_empty().then(|| KeptIndex { until, last, sessions: sessions.into_iter().collect() })
}

struct FactsWriter {
    bytes: Vec<u8>,
}

impl FactsWriter {
    fn new(kind: FileKind, capacity: usize) -> Self {
        let mut out = Self { bytes: Vec::with_capacity(capacity) };
        out.bytes.extend(MAGIC);
        out.number(FORMAT);
        out.number(kind as u64);
        out
    }

    fn finish(mut self) -> Vec<u8> {
        let sum = Hash::of(ObjectKind::Blob, &self.bytes);
        self.bytes.extend(sum.as_bytes());
        self.bytes
    }

    /// A number in groups of seven bits, lowest first.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// A number that may be negative: its sign is the lowest bit.
    fn signed(&mut self, number: i64) {
        self.number(((number << 1) ^ (number >> 63)) as u64);
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.bytes.extend(text.as_bytes());
    }

    fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.bytes.push(u8::from(value.is_some()));
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// An index, or 0 for none.
    fn index(&mut self, index: Option<u32>) {
        self.number(index.map_or(0, |index| u64::from(index) + 1));
    }

    /// A number, or 0 for none.
    fn maybe(&mut self, number: Option<u64>) {
        match number {
            None => self.number(0),
            Some(number) => self.number(number.saturating_add(1)),
        }
    }

    fn step(&mut self, step: &StepFact, at: i64, number: u64) {
        self.bytes.extend(step.id.as_bytes());
        self.number(step.number.wrapping_sub(number));
        let kind = StepKind::ALL.iter().position(|kind| *kind == step.kind).unwrap_or(0) as u8;
        self.bytes.push(kind << 1 | u8::from(step.failed));
        self.bytes.push(step.mark.as_u8());
        self.signed(step.at.as_micros().wrapping_sub(at));
        self.number(step.iteration);
        [step.worker, step.call, step.tool, step.subject].into_iter().for_each(|name| self.index(name));
        self.maybe(step.duration);
        self.number(step.waited);
        self.bytes.extend(step.input.to_be_bytes());
        self.option(Some(step.inverse).filter(|inverse| *inverse != 0), |out, inverse| {
            out.bytes.extend(inverse.to_be_bytes());
        });
        self.bytes.extend(step.output.to_be_bytes());
        self.number(step.input_bytes);
        self.number(step.output_bytes);
        self.bytes.extend(step.state.to_be_bytes());
        self.index(step.prompt);
    }

    fn model_call(&mut self, call: &ModelCallFact) {
        self.number(u64::from(call.step));
        let source = match call.source {
            UsageSource::Step => 0,
            UsageSource::Telemetry => 1,
            UsageSource::Conversation => 2,
        };
        self.bytes.push(source << 1 | u8::from(call.replayed));
        self.index(call.worker);
        self.index(call.model);
        self.signed(call.at.as_micros());
        self.maybe(call.duration);
        self.maybe(call.first_byte);
        self.option(call.tokens, |out, tokens| {
            let TokenUsage { input, output, cache_read, cache_write, reasoning } = tokens;
            [input, output, cache_read, cache_write, reasoning].into_iter().for_each(|n| out.number(n));
        });
        self.maybe(call.cost);
        self.bytes.extend(call.identity.to_be_bytes());
        self.option(call.context.as_ref(), |out, context| {
            let ContextParts { system, tools, user, assistant, other, .. } = *context;
            [system, tools, user, assistant, other].into_iter().for_each(|n| out.number(n));
            out.number(context.results.len() as u64);
            for (tool, size) in &context.results {
                out.number(u64::from(*tool));
                out.number(*size);
            }
        });
    }
}

struct FactsReader<'a> {
    rest: &'a [u8],
}

impl<'a> FactsReader<'a> {
    /// Checks the header and the checksum.
    fn open(bytes: &'a [u8], kind: FileKind) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(CHECKSUM_BYTES)?)?;
        let rest = body.strip_prefix(MAGIC)?;
        let mut from = Self { rest };
        let is_known = from.number()? == FORMAT && from.number()? == kind as u64;
        (is_known && Hash::of(ObjectKind::Blob, body).as_bytes() == sum).then_some(from)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn signed(&mut self) -> Option<i64> {
        let number = self.number()?;
        Some((number >> 1) as i64 ^ -((number & 1) as i64))
    }

    fn fixed(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = usize::try_from(self.number()?).ok()?;
        Some(std::str::from_utf8(self.take(length)?).ok()?.to_owned())
    }

    fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        match self.byte()? {
            0 => Some(None),
            1 => read(self).map(Some),
            _ => None,
        }
    }

    fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = usize::try_from(self.number()?).ok()?;
        // Every element has at least one byte, so a wrong count cannot reserve more than the file's size.
        let mut all = Vec::with_capacity(count.min(self.rest.len()));
        for _ in 0..count {
            all.push(read(self)?);
        }
        Some(all)
    }

    fn index(&mut self) -> Option<Option<u32>> {
        match self.number()? {
            0 => Some(None),
            index => u32::try_from(index - 1).ok().map(Some),
        }
    }

    fn maybe(&mut self) -> Option<Option<u64>> {
        Some(self.number()?.checked_sub(1))
    }

    fn step(&mut self, at: i64, number: u64) -> Option<StepFact> {
        let id = StepId::from_slice(self.take(16)?)?;
        let number = number.wrapping_add(self.number()?);
        let kind = self.byte()?;
        Some(StepFact {
            id,
            number,
            kind: *StepKind::ALL.get(usize::from(kind >> 1))?,
            failed: kind & 1 == 1,
            mark: StepMark::from_u8(self.byte()?)?,
            at: Timestamp::from_micros(at.wrapping_add(self.signed()?)),
            iteration: self.number()?,
            worker: self.index()?,
            call: self.index()?,
            tool: self.index()?,
            subject: self.index()?,
            duration: self.maybe()?,
            waited: self.number()?,
            input: self.fixed()?,
            inverse: self.option(Self::fixed)?.unwrap_or(0),
            output: self.fixed()?,
            input_bytes: self.number()?,
            output_bytes: self.number()?,
            state: self.fixed()?,
            prompt: self.index()?,
        })
    }

    fn model_call(&mut self) -> Option<ModelCallFact> {
        let step = u32::try_from(self.number()?).ok()?;
        let flags = self.byte()?;
        let source = match flags >> 1 {
            0 => UsageSource::Step,
            1 => UsageSource::Telemetry,
            2 => UsageSource::Conversation,
            _ => return None,
        };
        Some(ModelCallFact {
            step,
            source,
            replayed: flags & 1 == 1,
            worker: self.index()?,
            model: self.index()?,
            at: Timestamp::from_micros(self.signed()?),
            duration: self.maybe()?,
            first_byte: self.maybe()?,
            tokens: self.option(|from| {
                Some(TokenUsage {
                    input: from.number()?,
                    output: from.number()?,
                    cache_read: from.number()?,
                    cache_write: from.number()?,
                    reasoning: from.number()?,
                })
            })?,
            cost: self.maybe()?,
            priced: false,
            identity: self.fixed()?,
            context: self.option(|from| {
                let (system, tools) = (from.number()?, from.number()?);
                let (user, assistant, other) = (from.number()?, from.number()?, from.number()?);
                let results =
                    from.list(|from| Some((u32::try_from(from.number()?).ok()?, from.number()?)))?;
                Some(ContextParts { system, tools, user, assistant, results, other })
            })?,
        })
    }
}
