//! Summarises a comparison in a few sentences. The sides are called A and B, as in all output.

use stepback_model::quantity;
use stepback_model::record::StepKind;

use super::{ComparedStep, Comparison, ComparisonRow, FirstDifference, StepDifference, Totals};

/// Returns the summary, the most important sentence first.
pub fn summarize(comparison: &Comparison) -> Vec<String> {
    let mut sentences = Vec::new();
    if !comparison.rows.is_empty() {
        sentences.push(describe_divergence(comparison));
        sentences.extend(describe_totals(&comparison.a, &comparison.b));
    }
    sentences.push(describe_files(comparison));
    for slot in &comparison.ends.slots {
        let places = quantity::count(slot.differences.len() as u64, "place");
        sentences.push(format!("Their {} differs in {places}.", slot.slot));
        if slot.slot == "reasoning" {
            sentences.extend(describe_boards(&comparison.ends.board));
        }
    }
    sentences.extend(describe_conversation(comparison));
    sentences
}

fn describe_divergence(comparison: &Comparison) -> String {
    let Some(first) = &comparison.first_difference else {
        return format!("Both take the same {}.", quantity::count(comparison.counts.same, "step"));
    };
    let row = pick_explaining_row(&comparison.rows[first.row..]);
    let describe = |entry: &ComparedStep| format!("{} ({})", entry.kind.as_str(), entry.summary);
    let after = match first.row {
        0 => String::new(),
        common => format!(" after {} in common", quantity::count(common as u64, "step")),
    };
    match (&row.a, &row.b) {
        (Some(a), None) => format!("They diverge{after}: only A has #{}, {}.", a.number, describe(a)),
        (None, Some(b)) => format!("They diverge{after}: only B has #{}, {}.", b.number, describe(b)),
        (Some(a), Some(b)) => {
            let position = match a.number == b.number {
                true => format!("#{}", a.number),
                false => format!("#{} and #{}", a.number, b.number),
            };
            format!("They diverge at {position}{after}: {}.", describe_difference(first, a, b))
        }
        (None, None) => String::new(),
    }
}

/// Returns the row that best explains why the sides diverge: of steps that only one of them has, the first call, because the
/// prompt and the answer that led to it say less.
fn pick_explaining_row(rows: &[ComparisonRow]) -> &ComparisonRow {
    let first = &rows[0];
    let is_call = |row: &&ComparisonRow| {
        let step = row.a.as_ref().or(row.b.as_ref());
        step.is_some_and(|entry| entry.kind == StepKind::ToolStart)
    };
    let same_side =
        |row: &&ComparisonRow| row.a.is_some() == first.a.is_some() && row.b.is_some() == first.b.is_some();
    match (&first.a, &first.b) {
        (Some(_), Some(_)) => first,
        _ => rows.iter().take_while(same_side).find(is_call).unwrap_or(first),
    }
}

/// Explains how two paired steps differ.
fn describe_difference(first: &FirstDifference, a: &ComparedStep, b: &ComparedStep) -> String {
    let name = |entry: &ComparedStep| entry.tool.clone().unwrap_or_else(|| entry.kind.as_str().to_string());
    let position = first.parts.first().map_or_else(String::new, |part| format!(" at {}", part.pointer));
    match first.differs.first() {
        Some(StepDifference::Tool) => format!("{} instead of {}", name(b), name(a)),
        Some(StepDifference::Input) => format!("{} got a different input{position}", name(a)),
        Some(StepDifference::Output) => format!("{} gave a different output{position}", name(a)),
        Some(StepDifference::Outcome) => format!("{} failed in only one of them", name(a)),
        _ => format!("{} instead of {}", b.summary, a.summary),
    }
}

/// Says what the second side does more or less often than the first.
fn describe_totals(a: &Totals, b: &Totals) -> Option<String> {
    let mut parts = Vec::new();
    let mut count = |verb: &str, a: u64, b: u64, unit: &str| {
        let difference = quantity::count(a.abs_diff(b), unit);
        match a.cmp(&b) {
            std::cmp::Ordering::Less => parts.push(format!("{verb} {difference} more")),
            std::cmp::Ordering::Greater => parts.push(format!("{verb} {difference} fewer")),
            std::cmp::Ordering::Equal => {}
        }
    };
    count("runs", a.tool_calls, b.tool_calls, "tool call");
    count("asks models", a.model_calls, b.model_calls, "time");
    count("has", a.failed, b.failed, "failed step");
    count("uses", a.tokens.total(), b.tokens.total(), "token");
    if let (Some(a), Some(b)) = (a.cost_usd, b.cost_usd) {
        let difference = (a - b).abs();
        if difference >= 0.00005 {
            let digits = if difference < 0.01 { 4 } else { 2 };
            parts.push(format!("costs ${difference:.digits$} {}", if b > a { "more" } else { "less" }));
        }
    }
    let difference = a.duration_us.abs_diff(b.duration_us) / 1_000_000;
    if difference > 0 {
        let difference =
            if difference < 120 { format!("{difference} s") } else { format!("{} min", difference / 60) };
        parts.push(format!(
            "takes {difference} {}",
            if b.duration_us > a.duration_us { "longer" } else { "less" }
        ));
    }
    let last = parts.pop()?;
    Some(match parts.is_empty() {
        true => format!("B {last}."),
        false => format!("B {} and {last}.", parts.join(", ")),
    })
}

fn describe_files(comparison: &Comparison) -> String {
    let began = match comparison.ends.files_at_start {
        Some(count) if count > 0 => {
            format!("They began with {} that {}. ", quantity::count(count, "file"), differ_verb(count))
        }
        _ => String::new(),
    };
    let is_run = !comparison.rows.is_empty();
    let ended = match comparison.ends.files.as_ref().map(|changes| changes.len() as u64) {
        None => "The files of at least one of them are not known.".to_string(),
        Some(0) if is_run => "They end with the same files.".to_string(),
        Some(0) => "They have the same files.".to_string(),
        Some(count) if is_run => {
            format!("They end with {} that {}.", quantity::count(count, "file"), differ_verb(count))
        }
        Some(count) => format!("They differ in {}.", quantity::count(count, "file")),
    };
    began + &ended
}

fn differ_verb(count: u64) -> &'static str {
    if count == 1 { "differs" } else { "differ" }
}

/// Says how the board of B differs from that of A.
fn describe_boards(differences: &[String]) -> Vec<String> {
    /// The most items that are named.
    const MAX_ITEMS: usize = 5;
    let mut sentences: Vec<String> =
        differences.iter().take(MAX_ITEMS).map(|sentence| format!("From A to B, {sentence}.")).collect();
    if differences.len() > MAX_ITEMS {
        let more = quantity::count((differences.len() - MAX_ITEMS) as u64, "more item");
        sentences.push(format!("The boards differ in {more}."));
    }
    sentences
}

fn describe_conversation(comparison: &Comparison) -> Option<String> {
    let talk = comparison.ends.conversation;
    if talk.a == 0 && talk.b == 0 {
        return None;
    }
    let (a, b) = (talk.a - talk.shared, talk.b - talk.shared);
    Some(match (talk.shared, a, b) {
        (shared, 0, 0) => format!("They have the same {}.", quantity::count(shared, "message")),
        (0, a, b) => format!("They have no message in common: A has {a}, B has {b}."),
        (shared, a, b) => {
            format!(
                "They have {} in common; then A has {a} more and B {b}.",
                quantity::count(shared, "message")
            )
        }
    })
}
