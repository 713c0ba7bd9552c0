//! What sessions cost: exact sums, and the shares of tools.

#![expect(clippy::unwrap_used, reason = "this is test code: a failure is a failed test")]

use stepback_analysis::cost::{CostGrouping, CostKey, CostOptions, CostReport, CostSum, report_cost};
use stepback_analysis::facts::{ModelCallFact, NameIndex, SessionFacts, StepFact, UsageSource};
use stepback_analysis::marks::StepMark;
use stepback_llm_wire::prices::Prices;
use stepback_llm_wire::semantics::TokenUsage;
use stepback_model::ids::{SessionId, StepId};
use stepback_model::record::StepKind;
use stepback_model::time::Timestamp;

/// 2026-01-02T03:04:05Z
const ORIGIN: i64 = 1_767_323_045_000_000;
/// 3 dollars per million input tokens, 15 for output, 0.3 for cached input, 3.75 for input that is written to the cache.
const MODEL: &str = "claude-sonnet-4-5";

struct Session(SessionFacts);

impl Session {
    fn new(id: u8) -> Self {
        let session = Some(SessionId::from_bytes([id; 16]));
        Self(SessionFacts { session, agent: "claude".into(), ..SessionFacts::default() })
    }

    fn name(&mut self, name: &str) -> NameIndex {
        let known = self.0.names.iter().position(|known| known == name);
        let index = known.unwrap_or_else(|| {
            self.0.names.push(name.into());
            self.0.names.len() - 1
        });
        index as NameIndex
    }

    fn step(&mut self, kind: StepKind, tool: Option<&str>, bytes: u64) -> &mut StepFact {
        let tool = tool.map(|tool| self.name(tool));
        let number = self.0.steps.len() as u64 + 1;
        self.0.steps.push(StepFact {
            id: StepId::from_bytes([number as u8; 16]),
            number,
            kind,
            at: Timestamp::from_micros(ORIGIN + number as i64 * 1_000_000),
            iteration: 0,
            worker: None,
            call: None,
            tool,
            subject: None,
            failed: false,
            mark: StepMark::None,
            duration: None,
            waited: 0,
            input: 0,
            inverse: 0,
            output: 0,
            input_bytes: if kind == StepKind::ToolEnd { 0 } else { bytes },
            output_bytes: if kind == StepKind::ToolEnd { bytes } else { 0 },
            state: 0,
            prompt: None,
        });
        self.0.steps.last_mut().unwrap()
    }

    fn prompt(&mut self, bytes: u64) {
        self.step(StepKind::UserInput, None, bytes);
    }

    fn call(&mut self, tool: &str, input: u64, output: u64) {
        self.step(StepKind::ToolStart, Some(tool), input);
        self.step(StepKind::ToolEnd, Some(tool), output);
    }

    /// An answer: input, written to the cache, read from it, output.
    fn answer(&mut self, model: &str, tokens: [u64; 4]) -> &mut ModelCallFact {
        let at = self.step(StepKind::ModelEnd, None, 0).at;
        let model = self.name(model);
        let [input, cache_write, cache_read, output] = tokens;
        let tokens = TokenUsage { input, output, cache_read, cache_write, reasoning: 0 };
        let cost = Prices::built_in().cost(&self.0.names[model as usize], &tokens);
        let step = self.0.steps.len() as u32 - 1;
        self.0.model_calls.push(ModelCallFact {
            step,
            source: UsageSource::Step,
            worker: None,
            model: Some(model),
            at,
            duration: None,
            first_byte: None,
            tokens: Some(tokens),
            cost,
            priced: cost.is_some(),
            replayed: false,
            identity: 0,
            context: None,
        });
        self.0.model_calls.last_mut().unwrap()
    }
}

fn report(sessions: &[Session], by: CostGrouping) -> CostReport {
    report_with(sessions, CostOptions { by, ..CostOptions::default() })
}

fn report_with(sessions: &[Session], options: CostOptions) -> CostReport {
    let facts: Vec<SessionFacts> = sessions.iter().map(|session| session.0.clone()).collect();
    let report = report_cost(&facts, &Prices::built_in(), options, &|_, _| Some("main".into()));
    let mut sum = CostSum::default();
    report.rows.values().for_each(|row| sum.add(*row));
    assert_eq!(sum.tokens, report.total.tokens, "the rows add up: {report:#?}");
    assert_eq!((sum.micros, sum.priced_micros), (report.total.micros, report.total.priced_micros));
    report
}

fn row(report: &CostReport, name: &str) -> CostSum {
    report.rows.get(&CostKey::Name(Some(name.into()))).copied().unwrap_or_default()
}

#[test]
fn a_tool_costs_what_its_results_cost_in_all_later_requests() {
    let mut session = Session::new(1);
    session.prompt(400);
    session.answer(MODEL, [1000, 0, 0, 20]);
    session.call("Read", 40, 40_000);
    // 10,020 more: the answer, and 10,000 of the result.
    session.answer(MODEL, [10_020, 0, 1000, 30]);
    session.call("Bash", 40, 400);
    session.answer(MODEL, [130, 0, 11_020, 50]);
    let report = report(&[session], CostGrouping::Tool);
    let read = row(&report, "Read");
    assert_eq!((read.calls, read.tokens.input, read.tokens.cache_read), (1, 10_000, 10_000));
    assert_eq!(read.tokens.output, 20, "the answer that asked for it");
    // 10,000 at $3 and at $0.30, 20 at $15, per million
    assert_eq!(read.micros, 30_000 + 3000 + 300);
    let bash = row(&report, "Bash");
    assert_eq!((bash.tokens.input, bash.tokens.output, bash.micros), (100, 30, 300 + 450));
    let answers = report.rows[&CostKey::Answers].tokens;
    assert_eq!((answers.input, answers.cache_read, answers.output), (20 + 30, 20, 50));
    assert_eq!(report.rows[&CostKey::Prompts].tokens.input, 100);
    assert_eq!(report.rows[&CostKey::Context].tokens.input, 900);
}

#[test]
fn a_result_is_paid_for_until_the_conversation_is_compacted() {
    let mut session = Session::new(1);
    session.answer(MODEL, [1000, 0, 0, 10]);
    session.call("Read", 1, 40_000);
    session.answer(MODEL, [11_010, 0, 0, 10]);
    session.step(StepKind::StateChange, None, 0).mark = StepMark::Compacted;
    session.answer(MODEL, [9000, 0, 0, 10]);
    session.answer(MODEL, [9010, 0, 0, 10]);
    let after_mark = report(&[session], CostGrouping::Tool);
    assert_eq!(row(&after_mark, "Read").tokens.input, 10_000);

    // No agent says so: the next request has less than half of the tokens.
    let mut session = Session::new(1);
    session.answer(MODEL, [1000, 0, 0, 10]);
    session.call("Read", 1, 40_000);
    session.answer(MODEL, [11_010, 0, 0, 10]);
    session.answer(MODEL, [4000, 0, 0, 10]);
    assert_eq!(row(&report(&[session], CostGrouping::Tool), "Read").tokens.input, 10_000);
}

#[test]
fn a_small_request_to_another_model_does_not_end_the_conversation() {
    let mut session = Session::new(1);
    session.answer(MODEL, [1000, 0, 0, 10]);
    session.call("Read", 1, 40_000);
    session.answer(MODEL, [11_010, 0, 0, 10]);
    session.answer("claude-haiku-4-5", [300, 0, 0, 5]);
    session.answer(MODEL, [20, 0, 11_010, 10]);
    let read = row(&report(&[session], CostGrouping::Tool), "Read");
    assert_eq!((read.tokens.input, read.tokens.cache_read), (10_000, 10_000));
}

#[test]
fn answers_of_recordings_and_reruns_are_shown_beside_the_total() {
    let mut session = Session::new(1);
    session.answer(MODEL, [100_000, 0, 0, 0]);
    let mut rerun = Session::new(2);
    rerun.0.is_rerun = true;
    rerun.answer(MODEL, [100_000, 0, 0, 0]).replayed = true;
    rerun.0.model_calls[0].cost = None;
    rerun.answer(MODEL, [200_000, 0, 0, 0]);
    let sessions = [session, rerun];
    let without = report(&sessions, CostGrouping::Model);
    assert_eq!((without.total.calls, without.total.micros), (1, 300_000));
    assert_eq!((without.replayed.calls, without.replayed.micros, without.replayed.unpriced_calls), (1, 0, 1));
    assert_eq!((without.reruns.calls, without.reruns.micros), (1, 600_000));
    assert!(without.unpriced.is_empty(), "nothing was spent that has no price");
    let with = report_with(&sessions, CostOptions { reruns: true, ..CostOptions::default() });
    assert_eq!((with.total.calls, with.total.micros), (2, 900_000));
}

#[test]
fn unknown_prices_and_counts_stay_unknown() {
    let mut session = Session::new(1);
    session.answer(MODEL, [100_000, 0, 0, 0]);
    session.answer("llama-9", [500, 0, 0, 5]);
    let unknown = session.answer("llama-9", [0; 4]);
    (unknown.tokens, unknown.cost) = (None, None);
    let failed = session.answer("llama-9", [0; 4]);
    (failed.tokens, failed.cost) = (None, None);
    session.0.steps.last_mut().unwrap().failed = true;
    for by in CostGrouping::ALL {
        let report = report(std::slice::from_ref(&session), by);
        assert_eq!(report.total.micros, 300_000);
        assert_eq!((report.total.unpriced_calls, report.total.uncounted_calls), (1, 1));
        assert_eq!(report.unpriced[&Some("llama-9".into())], (1, 505));
    }
}

#[test]
fn an_answer_that_two_sessions_have_is_counted_once() {
    let mut session = Session::new(1);
    session.answer(MODEL, [100_000, 0, 0, 0]).identity = 7;
    let mut copy = Session::new(2);
    copy.0.started_at = Timestamp::from_micros(9);
    let call = copy.answer(MODEL, [100_000, 0, 0, 0]);
    (call.identity, call.source) = (7, UsageSource::Conversation);
    copy.answer(MODEL, [100_000, 0, 0, 0]).identity = 8;
    // Whichever is read first.
    let report = report(&[copy, session], CostGrouping::Session);
    assert_eq!((report.total.calls, report.shared_answers), (2, 1));
}

#[test]
fn only_what_is_recent_counts_and_what_was_read_before_is_known() {
    let mut session = Session::new(1);
    session.answer(MODEL, [1000, 0, 0, 10]);
    session.call("Read", 1, 40_000);
    session.answer(MODEL, [11_010, 0, 0, 10]);
    let since = session.answer(MODEL, [20, 0, 11_010, 10]).at;
    let options = CostOptions { by: CostGrouping::Tool, since: Some(since), ..CostOptions::default() };
    let report = report_with(&[session], options);
    assert_eq!(report.total.calls, 1);
    assert_eq!(row(&report, "Read").tokens.cache_read, 10_000);
}

#[test]
fn whole_calls_are_grouped() {
    let mut session = Session::new(1);
    session.prompt(4);
    session.answer(MODEL, [1_000_000, 0, 0, 0]);
    session.prompt(4);
    session.answer("claude-haiku-4-5", [1, 0, 0, 0]);
    session.0.steps[1].prompt = Some(0);
    session.0.steps[3].prompt = Some(2);
    let sessions = [session];
    let rows = |by| report(&sessions, by).rows.len();
    assert_eq!((rows(CostGrouping::Model), rows(CostGrouping::Prompt), rows(CostGrouping::Agent)), (2, 2, 1));
    assert!(row(&report(&sessions, CostGrouping::Day), "2026-01-02").calls == 2);
    assert_eq!(row(&report(&sessions, CostGrouping::Branch), "main").calls, 2);
}

/// A small generator of numbers, for sessions that no agent would make.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below.max(1)
    }
}

#[test]
fn the_rows_of_any_session_add_up() {
    for seed in 0..300 {
        let mut numbers = Numbers(seed);
        let mut session = Session::new(1);
        let largest = [10, 1000, 1_000_000, 1_000_000_000][numbers.next(4) as usize];
        for _ in 0..numbers.next(60) {
            match numbers.next(8) {
                0 => session.prompt(numbers.next(largest)),
                1 => session.step(StepKind::StateChange, None, 0).mark = StepMark::Compacted,
                2..=4 => {
                    let tool = ["Read", "Bash", "Edit", "Task"][numbers.next(4) as usize];
                    let (input, output) = (numbers.next(largest), numbers.next(largest));
                    session.call(tool, input, output);
                }
                _ => {
                    let model = [MODEL, "claude-haiku-4-5", "unknown"][numbers.next(3) as usize];
                    let tokens = std::array::from_fn(|_| numbers.next(largest) * numbers.next(2));
                    let call = session.answer(model, tokens);
                    match numbers.next(10) {
                        0 => call.tokens = None,
                        1 => call.cost = Some(numbers.next(u64::MAX)),
                        2 => call.cost = None,
                        3 => call.replayed = true,
                        _ => {}
                    }
                }
            }
        }
        // Checks that the rows add up.
        report(&[session], CostGrouping::Tool);
    }
}

#[test]
fn many_calls_of_many_tools_take_linear_time() {
    let mut session = Session::new(1);
    let mut size = 1000;
    for number in 0..20_000_u64 {
        let tool = format!("tool{}", number % 1000);
        session.0.names.push(tool);
        let index = (session.0.names.len() - 1) as NameIndex;
        session.step(StepKind::ToolEnd, None, 4).tool = Some(index);
        let at = session.0.steps.len() as u32 - 1;
        // Every tenth request finds nothing in the cache.
        let cached = if number % 10 == 0 { 0 } else { size };
        let tokens =
            TokenUsage { cache_read: cached, input: size + 4 - cached, output: 1, ..TokenUsage::default() };
        size += 4;
        session.0.model_calls.push(ModelCallFact {
            step: at,
            source: UsageSource::Step,
            worker: None,
            model: None,
            at: Timestamp::from_micros(ORIGIN),
            duration: None,
            first_byte: None,
            tokens: Some(tokens),
            cost: Some(1000),
            priced: false,
            replayed: false,
            identity: 0,
            context: None,
        });
    }
    let report = report(&[session], CostGrouping::Tool);
    assert_eq!(report.total.calls, 20_000);
    assert!(report.rows.len() <= 68, "tools beyond a number share a row");
}
