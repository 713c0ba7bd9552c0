//! To which category the time belongs, what calls took, and what the end depended on.

use stepback_analysis::facts::{ContextParts, SessionFacts};
use stepback_analysis::marks::StepMark;
use stepback_analysis::profile::rows::arrange_in_rows;
use stepback_analysis::profile::statistics::DurationSummary;
use stepback_analysis::profile::{Profile, SpanWindow, TimeCategory, profile_document};
use stepback_model::record::StepKind;

use crate::recording::Recording;

/// The time per category in milliseconds: model, tool, hook, breakpoint, user, idle. They have to add up.
fn milliseconds(profile: &Profile) -> [u64; 6] {
    let sum: u64 = profile.categories.iter().map(|time| time.micros).sum();
    assert_eq!(sum, profile.wall(), "the categories add up to the length of the session");
    let order: Vec<TimeCategory> = profile.categories.iter().map(|time| time.category).collect();
    assert_eq!(order, TimeCategory::ALL);
    [0, 1, 2, 3, 4, 5].map(|index| profile.categories[index].micros / 1000)
}

fn profile(recording: &Recording) -> Profile {
    Profile::of(&recording.facts)
}

#[test]
fn a_session_that_only_hooks_report_has_its_model_time_inferred() {
    let mut recording = Recording::new();
    recording.mark(0, StepKind::AgentStep, StepMark::SessionStarted);
    recording.prompt(1000).turn().begin(3000, "Bash", "a").end(6000, "Bash", "a", Some(2500)).done(9000);
    recording.prompt(20_000).done(21_000);
    recording.mark(21_500, StepKind::AgentStep, StepMark::SessionEnded);
    let profile = profile(&recording);
    assert_eq!(milliseconds(&profile), [2000 + 3000 + 1000, 2500, 500, 0, 1000 + 11_000 + 500, 0]);
    let model = profile.categories[0];
    assert_eq!(model.inferred, model.micros, "no model call is recorded");
    assert_eq!(profile.categories[1].inferred, 0, "the tool's time is recorded");
    assert_eq!(profile.models, []);
}

#[test]
fn the_duration_of_a_call_is_without_waiting_at_a_breakpoint() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(1000, "Bash", "a");
    recording.about(1100, StepKind::BreakpointHit, StepMark::Stopped, "Bash");
    recording.about(31_100, StepKind::Decision, StepMark::Answered, "Bash");
    recording.end(32_000, "Bash", "a", Some(900)).done(32_000);
    let profile = profile(&recording);
    assert_eq!(milliseconds(&profile), [1000, 900, 100, 30_000, 0, 0]);
    let bash = &profile.tools[0];
    assert_eq!(bash.durations.unwrap().max, 900_000);
    assert_eq!(bash.waited, 30_100_000 - 100_000);
}

#[test]
fn a_wait_is_known_from_the_end_of_the_call_if_the_stop_is_not_recorded() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(0, "Bash", "a").end(10_000, "Bash", "a", Some(4000));
    recording.facts.steps.last_mut().unwrap().waited = 6_000_000;
    assert_eq!(milliseconds(&profile(&recording)), [0, 4000, 0, 6000, 0, 0]);
}

#[test]
fn a_permission_is_waited_for_until_the_call_runs() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(1000, "Bash", "a");
    recording.about(1200, StepKind::Decision, StepMark::PermissionAsked, "Bash");
    recording.end(61_000, "Bash", "a", Some(3000)).done(61_000);
    let measured = profile(&recording);
    assert_eq!(milliseconds(&measured), [1000, 3000, 200, 0, 56_800, 0]);
    assert_eq!(measured.tools[0].durations.unwrap().max, 3_000_000);
    assert_eq!(measured.caveats.permissions_unmeasured, 0);

    // Without the agent's own measure nothing says when the permission was given.
    recording.facts.steps[3].duration = None;
    let unmeasured = profile(&recording);
    assert_eq!(milliseconds(&unmeasured), [1000, 60_000, 0, 0, 0, 0]);
    assert_eq!(unmeasured.caveats.permissions_unmeasured, 1);
}

#[test]
fn a_question_to_the_user_is_waiting_not_work() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(0, "AskUserQuestion", "a");
    recording.end(45_000, "AskUserQuestion", "a", Some(45_000)).done(45_000);
    let profile = profile(&recording);
    assert_eq!(milliseconds(&profile), [0, 0, 0, 0, 45_000, 0]);
    assert_eq!((profile.tools[0].durations, profile.tools[0].waited), (None, 45_000_000));
}

#[test]
fn the_critical_path_goes_through_the_slowest_of_parallel_calls() {
    let mut recording = Recording::new();
    recording.prompt(0).answer(2000, "opus", 2000, 100).turn();
    recording.begin(2000, "Read", "a").begin(2000, "Bash", "b").begin(2000, "Grep", "c");
    recording.end(2500, "Read", "a", None).end(3000, "Grep", "c", None).end(9000, "Bash", "b", None);
    recording.answer(10_000, "opus", 1000, 200).done(10_000);
    let profile = profile(&recording);
    assert_eq!(milliseconds(&profile), [3000, 7000, 0, 0, 0, 0]);
    let path: Vec<(&str, u64)> = profile
        .critical_path
        .iter()
        .map(|segment| {
            let name = recording.facts.name(profile.spans[segment.span].name);
            (name, segment.end.abs_diff(segment.start) / 1000)
        })
        .collect();
    assert_eq!(path, [("opus", 2000), ("Bash", 7000), ("opus", 1000)]);
    assert_eq!(profile.saved_by_parallel_calls(), 1_500_000);
    let critical = |tool: &str| {
        profile.tools.iter().find(|one| recording.facts.name(one.name) == tool).unwrap().critical
    };
    assert_eq!((critical("Bash"), critical("Read")), (7_000_000, 0));
    assert_eq!(profile.models[0].durations.unwrap().count, 2);
}

#[test]
fn the_time_of_sub_agents_is_what_they_do_in_it() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(1000, "Task", "t");
    recording.by(Some("explorer")).mark(1500, StepKind::AgentStep, StepMark::WorkerStarted);
    recording.begin(3000, "Bash", "b");
    recording.about(3000, StepKind::BreakpointHit, StepMark::Stopped, "Bash");
    recording.about(13_000, StepKind::Decision, StepMark::Answered, "Bash");
    recording.end(14_000, "Bash", "b", None).mark(15_000, StepKind::AgentStep, StepMark::WorkerDone);
    recording.by(None).end(16_000, "Task", "t", None).done(17_000);
    let profile = profile(&recording);
    // The sub-agent's model: 1.5 and 1 s; Task by itself: 0.5 s before and 1 s after it. The stop is not hidden by Task.
    assert_eq!(milliseconds(&profile), [1000 + 1500 + 1000 + 1000, 1000 + 500 + 1000, 0, 10_000, 0, 0]);
    assert_eq!(profile.lanes[1].started_by, Some(1), "by the call of Task");
    let path: u64 = profile.critical_path.iter().map(|segment| segment.end.abs_diff(segment.start)).sum();
    assert_eq!(path, profile.wall(), "each part of the session depended on the one before it");
}

#[test]
fn a_killed_agent_that_is_resumed_a_week_later_was_idle() {
    const WEEK: i64 = 7 * 24 * 3_600_000;
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(1000, "Bash", "a").step(4000, StepKind::AgentStep);
    recording.mark(WEEK, StepKind::AgentStep, StepMark::SessionStarted);
    recording.prompt(WEEK + 1000).done(WEEK + 2000);
    let profile = profile(&recording);
    assert_eq!(profile.caveats.unfinished_calls, 1);
    let [model, tool, hook, breakpoint, user, idle] = milliseconds(&profile);
    assert_eq!([model, tool, hook, breakpoint, user], [2000, 3000, 0, 0, 1000]);
    assert_eq!(idle, WEEK.unsigned_abs() - 4000);
    assert_eq!((profile.tools[0].unfinished, profile.tools[0].durations), (1, None), "unknown, not 0");
}

#[test]
fn a_user_who_comes_back_after_hours_was_away() {
    let mut recording = Recording::new();
    recording.prompt(0).done(1000).prompt(3_600_000 * 5).done(3_600_000 * 5 + 1000);
    assert_eq!(milliseconds(&profile(&recording)), [2000, 0, 0, 0, 0, 3_600_000 * 5 - 1000]);
}

#[test]
fn a_call_without_an_end_stops_counting_when_the_agent_goes_on() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(1000, "Bash", "denied by the user");
    recording.turn().begin(9000, "Read", "b").end(9500, "Read", "b", None).done(9500);
    let profile = profile(&recording);
    assert_eq!(profile.caveats.unfinished_calls, 1);
    let bash = profile.tools.iter().find(|one| recording.facts.name(one.name) == "Bash").unwrap();
    assert_eq!((bash.calls, bash.unfinished, bash.durations), (1, 1, None));
}

#[test]
fn a_call_in_the_background_may_end_in_a_later_turn() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(1000, "Bash", "a");
    recording.turn().begin(2000, "Read", "b").end(2500, "Read", "b", None);
    recording.end(6000, "Bash", "a", None).done(6000);
    let profile = profile(&recording);
    assert_eq!(profile.caveats.unfinished_calls, 0);
    let bash = profile.tools.iter().find(|one| recording.facts.name(one.name) == "Bash").unwrap();
    assert_eq!(bash.durations.unwrap().max, 5_000_000);
}

#[test]
fn a_refused_call_did_not_run() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(1000, "Bash", "a");
    recording.end(2000, "Bash", "a", Some(1000));
    recording.facts.steps.last_mut().unwrap().mark = StepMark::Refused;
    recording.done(3000);
    let profile = profile(&recording);
    assert_eq!((profile.tools[0].refused, profile.tools[0].durations), (1, None));
    assert_eq!(milliseconds(&profile)[1], 0);
}

#[test]
fn clocks_that_go_back_and_absurd_durations_are_said_and_do_not_count() {
    let mut recording = Recording::new();
    recording.prompt(0).turn().begin(5000, "Bash", "a").end(1000, "Bash", "a", None);
    recording.end(9000, "Read", "no start", Some(u64::MAX)).end(9500, "Read", "none", None).done(10_000);
    let profile = profile(&recording);
    milliseconds(&profile);
    let caveats = profile.caveats;
    assert_eq!((caveats.clock_went_back, caveats.ends_before_start), (1, 1));
    assert_eq!((caveats.absurd_durations, caveats.starts_missing), (1, 2));
    assert!(profile.tools.iter().all(|one| one.durations.is_none() && one.unknown > 0));
    let document = profile_document(&recording.facts, &profile, SpanWindow::default());
    assert_eq!(document.caveats.len(), 4, "{:?}", document.caveats);
}

#[test]
fn a_session_without_steps_or_of_one_moment_has_no_length() {
    let empty = Profile::of(&SessionFacts::default());
    assert_eq!((empty.wall(), milliseconds(&empty)), (0, [0; 6]));
    let mut recording = Recording::new();
    recording.prompt(0).begin(0, "Bash", "a").end(0, "Bash", "a", None).done(0);
    let moment = profile(&recording);
    assert_eq!((moment.wall(), moment.critical_path.len()), (0, 0));
    assert_eq!(moment.tools[0].durations.unwrap().max, 0, "known to be less than a microsecond");
}

#[test]
fn percentiles_are_the_nearest_rank() {
    let mut durations: Vec<u64> = (1..=200).rev().collect();
    let summary = DurationSummary::of(&mut durations).unwrap();
    assert_eq!([summary.p50, summary.p90, summary.p95, summary.p99, summary.max], [100, 180, 190, 198, 200]);
    assert_eq!((summary.mean, summary.total), (100, 20_100));
    let one = DurationSummary::of(&mut [7]).unwrap();
    assert_eq!([one.p50, one.p99, one.max, one.mean], [7; 4]);
    let huge = DurationSummary::of(&mut [u64::MAX, u64::MAX]).unwrap();
    assert_eq!((huge.total, huge.mean), (u64::MAX, u64::MAX));
    assert_eq!(DurationSummary::of(&mut []), None);
}

#[test]
fn the_context_says_what_it_is_made_of_and_when_it_was_compacted() {
    let mut recording = Recording::new();
    let bash = recording.name("Bash");
    recording.prompt(0).begin(100, "Bash", "a").end(200, "Bash", "a", None);
    recording.facts.steps.last_mut().unwrap().output_bytes = 5000;
    recording.answer(1000, "opus", 500, 20_000);
    let parts = ContextParts { system: 10, tools: 20, results: vec![(bash, 30)], ..ContextParts::default() };
    recording.answer(2000, "opus", 500, 40_000).made_of(parts);
    recording.answer(2500, "haiku", 500, 300).answer(3000, "opus", 500, 9000);
    let profile = profile(&recording);
    let document = profile_document(&recording.facts, &profile, SpanWindow::default());
    let context = &document.context;
    assert_eq!((context[0].basis.as_str(), context[0].tokens), ("inferred", Some(20_000)));
    assert_eq!((context[0].parts[0].tool.as_deref(), context[0].parts[0].bytes), (Some("Bash"), 5000));
    let kinds: Vec<&str> = context[1].parts.iter().map(|part| part.kind.as_str()).collect();
    assert_eq!((context[1].basis.as_str(), kinds), ("recorded", vec!["system", "tools", "result"]));
    let compacted: Vec<bool> = context.iter().map(|sample| sample.compacted).collect();
    assert_eq!(compacted, [false, false, false, true], "a small request of another model shows nothing");
}

#[test]
fn fifty_thousand_identical_calls_are_one_line() {
    let mut recording = Recording::new();
    recording.prompt(0);
    for at in 0..50_000 {
        recording.begin(at * 10, "Bash", "same").end(at * 10 + 4, "Bash", "same", None);
    }
    let profile = profile(&recording);
    milliseconds(&profile);
    assert_eq!((profile.tools.len(), profile.tools[0].calls), (1, 50_000));
    assert_eq!(profile.tools[0].durations.unwrap().p99, 4000);
    let document = profile_document(&recording.facts, &profile, SpanWindow::default());
    assert_eq!(document.spans.len(), SpanWindow::DEFAULT_LIMIT);
    assert_eq!(document.spans_left_out, document.spans_total - document.spans.len() as u64);
    let zoomed = SpanWindow { from: 500_000, until: 520_000, limit: 100 };
    let zoomed = profile_document(&recording.facts, &profile, zoomed);
    assert_eq!(zoomed.spans_left_out, 0);
    assert!(zoomed.spans.iter().all(|span| span.start_us <= 520_000 && span.start_us + span.us >= 500_000));
}

/// Random sessions, many of them absurd: whatever is recorded, the categories add up, rows and the critical path do not overlap.
#[test]
fn every_session_adds_up() {
    let kinds = [
        (StepKind::UserInput, StepMark::None),
        (StepKind::ToolStart, StepMark::None),
        (StepKind::ToolStart, StepMark::None),
        (StepKind::ToolEnd, StepMark::None),
        (StepKind::ToolEnd, StepMark::None),
        (StepKind::ToolEnd, StepMark::Refused),
        (StepKind::ModelStart, StepMark::None),
        (StepKind::ModelEnd, StepMark::None),
        (StepKind::Decision, StepMark::PermissionAsked),
        (StepKind::Decision, StepMark::Answered),
        (StepKind::BreakpointHit, StepMark::Stopped),
        (StepKind::AgentStep, StepMark::TurnDone),
        (StepKind::AgentStep, StepMark::SessionStarted),
        (StepKind::AgentStep, StepMark::SessionEnded),
        (StepKind::AgentStep, StepMark::WorkerStarted),
        (StepKind::Error, StepMark::None),
        (StepKind::StateChange, StepMark::Compacted),
        (StepKind::Checkpoint, StepMark::None),
    ];
    for seed in 1..=400_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut recording = Recording::new();
        let mut now = 0_i64;
        for _ in 0..next(60) {
            now = match next(40) {
                0 => i64::MIN,
                1 => i64::MAX,
                2 => now.saturating_sub(5000),
                3 => now.saturating_add(100_000_000),
                _ => now.saturating_add_unsigned(next(3000)),
            };
            let (kind, mark) = kinds[usize::try_from(next(18)).unwrap()];
            let tool = ["Bash", "Task", "AskUserQuestion", ""][usize::try_from(next(4)).unwrap()];
            let worker = [None, Some("one"), Some("two")][usize::try_from(next(3)).unwrap()];
            let call = format!("{}", next(4));
            let (tool, call) = (recording.name(tool), recording.name(&call));
            recording.by(worker);
            if next(4) == 0 {
                recording.turn();
            }
            let step = recording.step(now, kind);
            (step.mark, step.tool) = (mark, Some(tool).filter(|_| next(5) > 0));
            step.call = Some(call).filter(|_| next(4) > 0);
            step.duration = [None, Some(next(4_000_000)), Some(u64::MAX)][usize::try_from(next(3)).unwrap()];
            step.waited = [0, 0, next(9_000_000), u64::MAX][usize::try_from(next(4)).unwrap()];
        }
        let profile = profile(&recording);
        milliseconds(&profile);
        for row in arrange_in_rows(&profile.spans) {
            for pair in row.spans.windows(2) {
                let (one, other) = (&profile.spans[pair[0]], &profile.spans[pair[1]]);
                assert!(one.lane == other.lane && one.end <= other.start, "seed {seed}");
            }
        }
        for pair in profile.critical_path.windows(2) {
            assert!(pair[0].end <= pair[1].start, "seed {seed}");
        }
        assert!(profile.spans.iter().all(|span| profile.start <= span.start && span.end <= profile.end));
        crate::exports::check_exports(&recording.facts, &profile);
    }
}
