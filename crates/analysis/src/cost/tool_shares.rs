//! The share of each tool in what a session used: its results, as all later requests repeat them, and the answers that asked for
//! its calls.
//!
//! What a request contains is not recorded with its tokens, so shares are inferred from the usage of all requests of a context,
//! which is what one agent or sub-agent sends to its model until the conversation is compacted:
//!
//! 1. What a request has more than the one before it is what was added between them: the answer (its recorded output tokens
//!    without reasoning), the results of tools and the prompts that came after it. The rest of the growth is divided among results
//!    and prompts by their size in bytes, and none of them gets more tokens than it has bytes; what is left then was added by the
//!    agent. If the request grew by less than the answer and a quarter of the bytes of the others, all are reduced alike.
//! 2. What was added stays in all later requests at its place. Of each request, tokens read from the cache are its beginning,
//!    those written to the cache follow, and the others are its end; each part has its price.
//! 3. The output of an answer belongs to the tools whose calls it requests, divided by the size of their inputs, or to the
//!    answers if it requests none.
//! 4. A context begins anew when the conversation was compacted, and when a request of the same model has less than half of the
//!    tokens of the one before. A request to another model that is that much smaller has a context of its own (agents ask small
//!    models for titles). A request that is a little smaller has lost what came last.
//!
//! The cost of a call is divided by the prices of its parts if the model has a price, otherwise as if cached input cost a tenth
//! of other input, input that is written to the cache 1.25 times as much, and output five times as much.

use std::collections::{BTreeMap, HashMap};

use stepback_llm_wire::prices::Prices;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::record::StepKind;

use super::{CostKey, CostSum, has_failed};
use crate::facts::{ModelCallFact, NameIndex, SessionFacts, StepFact};
use crate::marks::StepMark;

/// The rule in one sentence, for reports.
pub const RULE: &str = "a tool's share: its results in every later request of the same context, sized by how much each request \
                        grew, at the price of cached and other input; and the output of the answers that asked for its calls";

/// Tools beyond this number in one session share a row.
const MAX_TOOLS: usize = 64;
/// The name of that row.
const OTHER_TOOLS: &str = "other tools";

/// Prices are compared for at least so many tokens, so that rounding does not show.
const MIN_SAMPLE: u64 = 100_000;

/// What a part of a request belongs to.
type Owner = usize;
const ANSWERS: Owner = 0;
const PROMPTS: Owner = 1;
const CONTEXT: Owner = 2;
const FIRST_TOOL: Owner = 3;

/// A part of a request: its owner, and the number of tokens up to its end.
#[derive(Clone, Copy, Debug)]
struct Part {
    owner: Owner,
    end: u64,
}

/// What one agent's requests to its model contain.
#[derive(Default)]
struct Context {
    parts: Vec<Part>,
    /// Tokens of each owner in the first parts, for the two places up to which they were last added up.
    cursors: [PartCursor; 2],
    /// Tokens of each owner in all parts.
    totals: Vec<u64>,
    model: Option<NameIndex>,
    /// Output of the last answer that the next request repeats.
    answer: u64,
    /// What came since: owner and bytes.
    added: Vec<(Owner, u64)>,
    /// The last answer, as an index of a call, and the calls that it requests: owner and bytes.
    last: Option<(usize, Vec<(Owner, u64)>)>,
    begins_anew: bool,
}

#[derive(Clone, Default)]
struct PartCursor {
    /// Parts before this one are added up.
    next: usize,
    totals: Vec<u64>,
}

/// Computes the shares of one session.
pub struct ToolShares<'a> {
    facts: &'a SessionFacts,
    prices: &'a Prices,
    owners: HashMap<NameIndex, Owner>,
    names: Vec<String>,
    /// The sums of each owner.
    sums: Vec<CostSum>,
    uncounted: CostSum,
}

impl<'a> ToolShares<'a> {
    /// Prepares the shares of a session.
    pub fn new(facts: &'a SessionFacts, prices: &'a Prices) -> Self {
        let names = vec![String::new(); FIRST_TOOL];
        let sums = vec![CostSum::default(); FIRST_TOOL];
        Self { facts, prices, owners: HashMap::new(), names, sums, uncounted: CostSum::default() }
    }

    /// Adds the shares in the calls that count to the rows of a report.
    pub fn add_to(&mut self, rows: &mut BTreeMap<CostKey, CostSum>, counted: &[bool]) {
        let mut contexts: HashMap<Option<NameIndex>, Context> = HashMap::new();
        let mut next_step = 0;
        for (index, call) in self.facts.model_calls.iter().enumerate() {
            // The step of an answer that only the conversation has is the last one before it, which may be a result.
            let limit = (call.step as usize).saturating_add(1).min(self.facts.steps.len());
            for step in self.facts.steps.get(next_step..limit).unwrap_or_default() {
                self.add_step(&mut contexts, step);
            }
            next_step = next_step.max(limit);
            self.add_call(contexts.entry(call.worker).or_default(), index, call, counted);
        }
        for step in self.facts.steps.get(next_step..).unwrap_or_default() {
            self.add_step(&mut contexts, step);
        }
        for context in contexts.values_mut() {
            self.add_output(context, counted);
        }
        self.add_tool_calls(counted);
        let keys = [CostKey::Answers, CostKey::Prompts, CostKey::Context];
        let tools = self.names.drain(..).skip(FIRST_TOOL).map(|name| CostKey::Name(Some(name)));
        for (key, sum) in keys.into_iter().chain(tools).zip(self.sums.drain(..)) {
            if sum != CostSum::default() {
                rows.entry(key).or_default().add(sum);
            }
        }
        if self.uncounted != CostSum::default() {
            rows.entry(CostKey::Uncounted).or_default().add(self.uncounted);
        }
    }

    fn owner(&mut self, tool: Option<NameIndex>) -> Owner {
        let Some(tool) = tool else { return CONTEXT };
        if let Some(owner) = self.owners.get(&tool) {
            return *owner;
        }
        let is_last = self.names.len() >= FIRST_TOOL + MAX_TOOLS;
        let owner = if is_last { FIRST_TOOL + MAX_TOOLS - 1 } else { self.names.len() };
        if !is_last {
            let is_full = owner == FIRST_TOOL + MAX_TOOLS - 1;
            self.names.push(if is_full { OTHER_TOOLS } else { self.facts.name(Some(tool)) }.to_owned());
            self.sums.push(CostSum::default());
        }
        self.owners.insert(tool, owner);
        owner
    }

    /// Counts the calls of each tool, in the period of the calls that count.
    fn add_tool_calls(&mut self, counted: &[bool]) {
        let calls = self.facts.model_calls.iter().zip(counted);
        let Some(first) = calls.filter(|(_, counts)| **counts).map(|(call, _)| call.at).min() else { return };
        let facts = self.facts;
        for step in facts.steps.iter().filter(|step| step.kind == StepKind::ToolEnd && step.at >= first) {
            let owner = self.owner(step.tool);
            self.sums[owner].calls = self.sums[owner].calls.saturating_add(1);
        }
    }

    fn add_step(&mut self, contexts: &mut HashMap<Option<NameIndex>, Context>, step: &StepFact) {
        let (owner, bytes) = match step.kind {
            StepKind::ToolStart => (self.owner(step.tool), step.input_bytes.max(1)),
            StepKind::ToolEnd => (self.owner(step.tool), step.output_bytes),
            StepKind::UserInput => (PROMPTS, step.input_bytes),
            _ if step.mark == StepMark::Compacted => (CONTEXT, 0),
            _ => return,
        };
        let context = contexts.entry(step.worker).or_default();
        if step.mark == StepMark::Compacted {
            context.begins_anew = true;
        } else if step.kind == StepKind::ToolStart {
            if let Some((_, calls)) = &mut context.last {
                calls.push((owner, bytes));
            }
        } else if bytes > 0 {
            context.added.push((owner, bytes));
        }
    }

    fn add_call(&mut self, context: &mut Context, index: usize, call: &ModelCallFact, counted: &[bool]) {
        let counts = counted.get(index).copied().unwrap_or(false);
        let Some(tokens) = call.tokens else {
            if counts {
                self.uncounted.add(CostSum::of(call, has_failed(self.facts, call)));
            }
            return;
        };
        let total = tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
        let before = context.size();
        let has_shrunk = total < before / 2;
        if has_shrunk && context.model.is_some() && context.model != call.model {
            // A request beside the conversation, which goes on as if it had not been.
            let mut beside = Context::default();
            beside.grow(total);
            self.add_input(&mut beside, call, tokens, counts);
            beside.last = Some((index, Vec::new()));
            self.add_output(&mut beside, counted);
            return;
        }
        self.add_output(context, counted);
        if has_shrunk || std::mem::take(&mut context.begins_anew) {
            context.clear();
        }
        context.grow(total);
        self.add_input(context, call, tokens, counts);
        context.model = call.model;
        context.answer = tokens.output.saturating_sub(tokens.reasoning);
        context.last = Some((index, Vec::new()));
    }

    /// Divides the input of a call among the owners of its parts.
    fn add_input(&mut self, context: &mut Context, call: &ModelCallFact, tokens: TokenUsage, counts: bool) {
        if !counts {
            return;
        }
        let cached = context.totals_before(0, tokens.cache_read);
        let written = context.totals_before(1, tokens.cache_read.saturating_add(tokens.cache_write));
        let prices = PartPrices::of(self.prices, self.facts.name(call.model), call);
        let mut money = Apportioned::new(prices.weight(tokens), call.cost.unwrap_or(0));
        if tokens.total() == 0 {
            // A cost without tokens.
            self.add_share(CONTEXT, call, tokens, call.cost.unwrap_or(0));
        }
        for owner in 0..context.totals.len() {
            let at = |totals: &[u64]| totals.get(owner).copied().unwrap_or(0);
            let (read, upto) = (at(&cached), at(&written));
            let share = TokenUsage {
                cache_read: read,
                cache_write: upto.saturating_sub(read),
                input: at(&context.totals).saturating_sub(upto),
                ..TokenUsage::default()
            };
            if share.total() > 0 {
                let micros = money.take(prices.weight(share));
                self.add_share(owner, call, share, micros);
            }
        }
    }

    /// Gives the output of the last answer to the tools whose calls it requests.
    fn add_output(&mut self, context: &mut Context, counted: &[bool]) {
        let Some((index, calls)) = context.last.take() else { return };
        let call = &self.facts.model_calls[index];
        let (Some(tokens), true) = (call.tokens, counted.get(index).copied().unwrap_or(false)) else {
            return;
        };
        let prices = PartPrices::of(self.prices, self.facts.name(call.model), call);
        let (all, output) =
            (prices.weight(tokens), TokenUsage { output: tokens.output, ..Default::default() });
        let mut money = Apportioned::new(all, call.cost.unwrap_or(0));
        // Where the input ended, so that both add up to the cost of the call.
        money.take(all.saturating_sub(prices.weight(output)));
        let owners = if calls.is_empty() { vec![(ANSWERS, 1)] } else { calls };
        let bytes = owners.iter().map(|(_, bytes)| u128::from(*bytes)).sum::<u128>();
        let mut written = Apportioned::new(bytes, tokens.output);
        let mut thought = Apportioned::new(bytes, tokens.reasoning);
        for (owner, bytes) in owners {
            let bytes = u128::from(bytes);
            let share = TokenUsage {
                output: written.take(bytes),
                reasoning: thought.take(bytes),
                ..TokenUsage::default()
            };
            let micros = money.take(prices.weight(share));
            self.add_share(owner, call, share, micros);
        }
    }

    fn add_share(&mut self, owner: Owner, call: &ModelCallFact, tokens: TokenUsage, micros: u64) {
        let is_part = tokens.total() > 0 || micros > 0;
        let unpriced_calls = u64::from(is_part && call.cost.is_none());
        let priced_micros = if call.priced { micros } else { 0 };
        self.sums[owner].add(CostSum {
            calls: 0,
            tokens,
            micros,
            priced_micros,
            unpriced_calls,
            uncounted_calls: 0,
        });
    }
}

impl Context {
    /// The number of tokens of the last request.
    fn size(&self) -> u64 {
        self.parts.last().map_or(0, |part| part.end)
    }

    fn clear(&mut self) {
        self.parts.clear();
        self.totals.clear();
        self.cursors = [PartCursor::default(), PartCursor::default()];
        self.answer = 0;
        self.added.clear();
    }

    fn push(&mut self, owner: Owner, tokens: u64) {
        if tokens == 0 {
            return;
        }
        let end = self.size().saturating_add(tokens);
        if self.totals.len() <= owner {
            self.totals.resize(owner + 1, 0);
        }
        self.totals[owner] = self.totals[owner].saturating_add(tokens);
        let count = self.parts.len();
        let is_open = self.cursors.iter().all(|cursor| cursor.next < count);
        match self.parts.last_mut() {
            Some(last) if last.owner == owner && is_open => last.end = end,
            _ => self.parts.push(Part { owner, end }),
        }
    }

    /// Adds what the next request has more than the last one; `total` is its size.
    fn grow(&mut self, total: u64) {
        let size = self.size();
        let answer = std::mem::take(&mut self.answer);
        let added = std::mem::take(&mut self.added);
        if total <= size {
            self.shrink_to(total);
            return;
        }
        let growth = total - size;
        let bytes: u64 = added.iter().fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes));
        let expected = answer.saturating_add(bytes / 4);
        if size > 0 && growth < expected {
            // All are reduced alike.
            let mut shares = Apportioned::new(u128::from(answer) * 4 + u128::from(bytes), growth);
            self.push(ANSWERS, shares.take(u128::from(answer) * 4));
            for (owner, bytes) in added {
                let share = shares.take(u128::from(bytes));
                self.push(owner, share);
            }
            self.push(CONTEXT, total.saturating_sub(self.size()));
            return;
        }
        // In the first request of a context, nothing but bytes says how large prompts and results are.
        let rest = if size == 0 { (bytes / 4).min(growth) } else { growth.saturating_sub(answer).min(bytes) };
        if size == 0 {
            self.push(CONTEXT, growth - rest);
        } else {
            self.push(ANSWERS, answer.min(growth));
        }
        let mut shares = Apportioned::new(u128::from(bytes), rest);
        for (owner, bytes) in added {
            let share = shares.take(u128::from(bytes));
            self.push(owner, share);
        }
        self.push(CONTEXT, total.saturating_sub(self.size()));
    }

    /// Removes the end, until `total` tokens are left.
    fn shrink_to(&mut self, total: u64) {
        while let Some(last) = self.parts.pop() {
            let start = self.size();
            let kept = total.saturating_sub(start).min(last.end - start);
            self.totals[last.owner] = self.totals[last.owner].saturating_sub(last.end - start);
            for cursor in &mut self.cursors {
                if cursor.next > self.parts.len() {
                    cursor.next = self.parts.len();
                    cursor.totals[last.owner] = cursor.totals[last.owner].saturating_sub(last.end - start);
                }
            }
            if kept > 0 {
                self.push(last.owner, kept);
            }
            if start <= total {
                break;
            }
        }
    }

    /// The tokens of each owner among the first `tokens` tokens.
    fn totals_before(&mut self, cursor: usize, tokens: u64) -> Vec<u64> {
        if tokens == 0 {
            return Vec::new();
        }
        if tokens >= self.size() {
            return self.totals.clone();
        }
        let Self { parts, cursors, .. } = self;
        let cursor = &mut cursors[cursor];
        let start_of = |at: usize| at.checked_sub(1).map_or(0, |before| parts[before].end);
        while cursor.next > 0 && parts[cursor.next - 1].end > tokens {
            cursor.next -= 1;
            let part = parts[cursor.next];
            cursor.totals[part.owner] -= part.end - start_of(cursor.next);
        }
        while cursor.next < parts.len() && parts[cursor.next].end <= tokens {
            let part = parts[cursor.next];
            if cursor.totals.len() <= part.owner {
                cursor.totals.resize(part.owner + 1, 0);
            }
            cursor.totals[part.owner] += part.end - start_of(cursor.next);
            cursor.next += 1;
        }
        let mut totals = cursor.totals.clone();
        if let Some(part) = parts.get(cursor.next) {
            if totals.len() <= part.owner {
                totals.resize(part.owner + 1, 0);
            }
            totals[part.owner] += tokens - start_of(cursor.next);
        }
        totals
    }
}

/// What tokens of each sort weigh in the cost of a call.
struct PartPrices {
    input: u128,
    output: u128,
    cache_read: u128,
    cache_write: u128,
}

impl PartPrices {
    fn of(prices: &Prices, model: &str, call: &ModelCallFact) -> Self {
        // As many tokens as the request has, because some models have another price for long ones.
        let tokens = call.tokens.unwrap_or_default();
        let read = tokens.input.saturating_add(tokens.cache_read).saturating_add(tokens.cache_write);
        let sample = read.max(MIN_SAMPLE);
        let priced = |tokens| prices.cost(model, &tokens).map(u128::from);
        let input = TokenUsage { input: sample, ..TokenUsage::default() };
        let known = || {
            Some(Self {
                input: priced(input)?,
                output: priced(TokenUsage { output: sample, ..input })?.saturating_sub(priced(input)?),
                cache_read: priced(TokenUsage { cache_read: sample, ..TokenUsage::default() })?,
                cache_write: priced(TokenUsage { cache_write: sample, ..TokenUsage::default() })?,
            })
        };
        let known = known().filter(|prices| prices.input > 0 && prices.output > 0);
        known.unwrap_or(Self { input: 100, output: 500, cache_read: 10, cache_write: 125 })
    }

    fn weight(&self, tokens: TokenUsage) -> u128 {
        [
            (tokens.input, self.input),
            (tokens.output, self.output),
            (tokens.cache_read, self.cache_read),
            (tokens.cache_write, self.cache_write),
        ]
        .into_iter()
        .fold(0_u128, |sum, (tokens, price)| sum.saturating_add(u128::from(tokens).saturating_mul(price)))
    }
}

/// An amount that is divided by weights, so that the parts add up to it.
struct Apportioned {
    weight: u128,
    amount: u128,
    taken_weight: u128,
    taken: u128,
}

impl Apportioned {
    fn new(weight: u128, amount: u64) -> Self {
        Self { weight, amount: u128::from(amount), taken_weight: 0, taken: 0 }
    }

    /// The part of the next weight.
    fn take(&mut self, weight: u128) -> u64 {
        self.taken_weight = self.taken_weight.saturating_add(weight).min(self.weight);
        let upto = match self.weight {
            0 => 0,
            all => self.amount.saturating_mul(self.taken_weight) / all,
        };
        let part = upto - self.taken;
        self.taken = upto;
        u64::try_from(part).unwrap_or(u64::MAX)
    }
}
