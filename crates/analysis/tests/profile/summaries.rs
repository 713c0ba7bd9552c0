//! Summaries of sessions, which dashboards add up.

use std::collections::HashSet;

use stepback_analysis::cost::CostSum;
use stepback_analysis::dashboard::summary::{HOUR, SessionSummary, SpentNumbers};
use stepback_analysis::facts::UsageSource;
use stepback_llm_wire::prices::Prices;

use crate::recording::Recording;

fn spent_together<'a>(numbers: impl Iterator<Item = &'a SpentNumbers>) -> CostSum {
    let mut sum = SpentNumbers::default();
    numbers.for_each(|numbers| sum.merge(*numbers));
    sum.into()
}

#[test]
fn a_summary_has_the_numbers_of_each_hour() {
    let mut recording = Recording::new();
    let hour = HOUR / 1000;
    recording.prompt(0).answer(1000, "claude-sonnet-4-6", 900, 5000).begin(1000, "Bash", "a");
    recording.end(4000, "Bash", "a", None).answer(6000, "claude-sonnet-4-6", 900, 9000);
    recording.begin(hour, "Bash", "b").end(hour + 500, "Bash", "b", None);
    recording.facts.steps.last_mut().unwrap().failed = true;
    recording.answer(hour + 2000, "mystery", 100, 700);
    let summary = SessionSummary::of(&recording.facts, &Prices::built_in(), &mut HashSet::new());
    let hours: Vec<_> = summary.hours.values().collect();
    assert_eq!(hours.len(), 2);
    let tools: Vec<_> =
        hours.iter().map(|hour| (hour.tools["Bash"].calls, hour.tools["Bash"].failed)).collect();
    assert_eq!(tools, [(1, 0), (1, 1)]);
    assert_eq!(hours[0].tools["Bash"].latency.max(), 3_000_000);
    for hour in &hours {
        let all = spent_together(hour.models.values().map(|model| &model.spent));
        let divided = spent_together(hour.shares.values().chain(hour.others.values()));
        assert_eq!(divided.tokens.total(), all.tokens.total(), "the shares are the total");
    }
    assert_eq!(spent_together(hours[0].models.values().map(|model| &model.spent)).calls, 2);
    let text = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<SessionSummary>(&text).unwrap(), summary);
}

#[test]
fn an_answer_that_two_sessions_have_counts_once() {
    let mut recording = Recording::new();
    recording.prompt(0).answer(1000, "opus", 900, 5000).answer(3000, "opus", 900, 6000);
    for (index, call) in recording.facts.model_calls.iter_mut().enumerate() {
        (call.source, call.identity) = (UsageSource::Conversation, index as u64 + 1);
    }
    let mut known = HashSet::new();
    let calls = |summary: &SessionSummary| -> u64 {
        let models = summary.hours.values().flat_map(|hour| hour.models.values());
        CostSum::from(models.fold(SpentNumbers::default(), |mut sum, model| {
            sum.merge(model.spent);
            sum
        }))
        .calls
    };
    let first = SessionSummary::of(&recording.facts, &Prices::built_in(), &mut known);
    recording.answer(5000, "opus", 900, 7000);
    let continued = SessionSummary::of(&recording.facts, &Prices::built_in(), &mut known);
    assert_eq!((calls(&first), calls(&continued)), (2, 1));
}
