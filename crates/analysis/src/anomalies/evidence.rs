//! The sentence that says what happened, with the numbers.

use stepback_model::anomaly::{AnomalyKind, CallFinding, DetectionRule};
use stepback_model::clip;

use crate::facts::SessionFacts;

/// The longest name of a file or program in a sentence, in characters.
const NAME_CHARS: usize = 60;

/// Describes a finding of the detectors that read calls one by one.
pub(super) fn describe_pattern(facts: &SessionFacts, finding: &CallFinding, steps: &[usize]) -> String {
    let CallFinding { count, measured, .. } = finding;
    let call = call_name(facts, steps.first().copied());
    match finding.rule {
        DetectionRule::RepeatedCycle { period: 1 } => {
            format!("{call} was called {count} times with the same input and the same result")
        }
        DetectionRule::RepeatedCycle { period } => {
            format!("the same {period} calls with the same results, {measured} times, beginning with {call}")
        }
        DetectionRule::RepeatedCall => {
            format!(
                "{call} was called {count} times with the same input and the same result, and no file changed in between"
            )
        }
        DetectionRule::AlternatingStates => {
            format!("{count} edits took the files back and forth between the same versions")
        }
        DetectionRule::AlternatingInputs => format!("{count} edits in turn, of {call}, undid each other"),
        DetectionRule::ReturnedState => {
            format!("after {measured} edits the files were exactly as before them, by the agent's own calls")
        }
        DetectionRule::InverseEdits => {
            format!("{measured} edits cancel each other out: each replaced a text that another one put back")
        }
        DetectionRule::GrowingDuration => {
            format!("{call} failed {count} times, and took longer almost every time")
        }
        DetectionRule::GrowingInput => {
            format!("{call} failed {count} times, with a larger input almost every time")
        }
        DetectionRule::GrowingPause => {
            format!("{call} failed {count} times, after a longer pause almost every time")
        }
        DetectionRule::FailureSum => {
            let calls = finding.span.1 - finding.span.0 + 1;
            format!("{count} of {calls} calls failed")
        }
        DetectionRule::RepeatedFailure => {
            format!("{call} failed {count} times with a result that was seen before, and with no new one")
        }
    }
}

/// Describes calls that are far from their history.
pub(super) fn describe_outlier(
    facts: &SessionFacts,
    (kind, rule): (AnomalyKind, &str),
    step: Option<usize>,
    count: u64,
    (worst, median, p95, history): (f64, f64, f64, usize),
) -> String {
    let call = call_name(facts, step);
    let times = if count == 1 { String::new() } else { format!(", {count} times within a few calls") };
    let (verb, show): (_, fn(f64) -> String) = match (kind, rule) {
        (AnomalyKind::CostlyCall, _) => ("cost for a context of 100,000 tokens", dollars),
        (_, "slower-than-model") => ("took for 100 tokens", seconds),
        _ => ("took", seconds),
    };
    format!(
        "{call} {verb} {}{times}; the median of {history} such calls is {}, and 95 % are below {}",
        show(worst),
        show(median),
        show(p95),
    )
}

/// Describes results that were in the context before.
pub(super) fn describe_repeated_results(count: u64, repeated: u64, bytes: u64) -> String {
    let percent = u128::from(repeated) * 100 / u128::from(bytes.max(1));
    format!(
        "{count} results, {} KiB, were in the context already: {percent} % of what the tools returned meanwhile",
        repeated / 1024
    )
}

/// Describes large results to which nothing came back.
pub(super) fn describe_unused_results(
    facts: &SessionFacts,
    step: Option<usize>,
    count: u64,
    bytes: u64,
    requests: u64,
) -> String {
    let kib = bytes / 1024;
    let call = call_name(facts, step);
    let results = if count == 1 {
        format!("the result of {call}, {kib} KiB, was")
    } else {
        format!("{count} results, {kib} KiB, the first of {call}, were")
    };
    format!(
        "{results} sent with {requests} more model turns; no later call names what was read, and no file changed"
    )
}

/// The tool and what it is about.
fn call_name(facts: &SessionFacts, step: Option<usize>) -> String {
    let Some(step) = step.and_then(|index| facts.steps.get(index)) else { return "a call".to_owned() };
    let tool = match facts.name(step.tool) {
        "" => "a call",
        tool => tool,
    };
    match facts.name(step.subject) {
        "" => clip::first(tool, NAME_CHARS),
        subject => format!("{} {}", clip::first(tool, NAME_CHARS), clip::first(subject, NAME_CHARS)),
    }
}

fn seconds(micros: f64) -> String {
    match micros / 1e6 {
        seconds if seconds >= 100.0 => format!("{:.0} s", seconds),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.0} ms", seconds * 1e3),
    }
}

fn dollars(micros: f64) -> String {
    format!("${:.2}", micros / 1e6)
}
