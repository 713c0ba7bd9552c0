//! The files for speedscope and Perfetto, and the page.

use std::collections::HashMap;

use serde_json::Value;
use stepback_analysis::facts::SessionFacts;
use stepback_analysis::marks::StepMark;
use stepback_analysis::profile::chrome_trace::to_chrome_trace;
use stepback_analysis::profile::speedscope::to_speedscope;
use stepback_analysis::profile::{Profile, render_html};
use stepback_model::record::StepKind;

use crate::recording::Recording;
use crate::schema::mismatch;

/// Checks all files that are made of a profile, whatever is in it.
pub fn check_exports(facts: &SessionFacts, profile: &Profile) {
    check_speedscope(&to_speedscope(facts, profile));
    check_chrome_trace(&to_chrome_trace(facts, profile));
    check_page(&render_html(facts, profile));
}

/// By speedscope's own schema; and what that does not say: frames exist, times grow, and what was opened last is closed first.
fn check_speedscope(file: &Value) {
    let schema: Value = serde_json::from_str(include_str!("speedscope-schema.json")).unwrap();
    assert_eq!(mismatch(&schema, &schema, file, ""), None);
    let frames = file["shared"]["frames"].as_array().unwrap().len() as u64;
    for profile in file["profiles"].as_array().unwrap() {
        let mut open = Vec::new();
        let mut last = profile["startValue"].as_u64().unwrap();
        for event in profile["events"].as_array().unwrap() {
            let (at, frame) = (event["at"].as_u64().unwrap(), event["frame"].as_u64().unwrap());
            assert!(at >= last && frame < frames, "{event}");
            last = at;
            match event["type"].as_str() {
                Some("O") => open.push(frame),
                _ => assert_eq!(open.pop(), Some(frame), "closed in the wrong order"),
            }
        }
        assert!(open.is_empty() && last <= profile["endValue"].as_u64().unwrap());
    }
}

/// Slices of one thread do not overlap, and both ends of an arrow are at a slice of their thread.
fn check_chrome_trace(file: &Value) {
    let mut slices: HashMap<(u64, u64), Vec<(u64, u64)>> = HashMap::new();
    let mut flows: HashMap<u64, Vec<&Value>> = HashMap::new();
    let number =
        |event: &Value, field: &str| event[field].as_u64().unwrap_or_else(|| panic!("{field} of {event}"));
    for event in file["traceEvents"].as_array().unwrap() {
        let thread = (number(event, "pid"), number(event, "tid"));
        number(event, "ts");
        assert!(event["name"].is_string());
        match event["ph"].as_str().unwrap() {
            "X" => slices.entry(thread).or_default().push((number(event, "ts"), number(event, "dur"))),
            "s" | "f" => flows.entry(number(event, "id")).or_default().push(event),
            "C" => assert!(event["args"].as_object().unwrap().values().all(Value::is_u64)),
            phase => assert_eq!(phase, "M"),
        }
    }
    for row in slices.values_mut() {
        row.sort_unstable();
        assert!(
            row.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0),
            "slices of one thread overlap"
        );
    }
    for ends in flows.values() {
        assert_eq!(ends.iter().map(|end| end["ph"].as_str().unwrap()).collect::<Vec<_>>(), ["s", "f"]);
        assert!(number(ends[0], "ts") <= number(ends[1], "ts"), "an arrow into the past");
        for end in ends {
            let at = number(end, "ts");
            let row = &slices[&(number(end, "pid"), number(end, "tid"))];
            assert!(row.iter().any(|(start, length)| *start <= at && at <= start + length), "{end}");
        }
    }
}

/// The page runs nothing and loads nothing.
fn check_page(page: &str) {
    let policy = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">";
    let (before, after) = page.split_once(policy).expect("a policy");
    assert!(!before.contains("<style") && !before.contains("<title"), "the policy comes first");
    for name in
        ["<script", "<img", "<link", "<iframe", "<a ", "<object", "src=", "href=", "url(", "@import", " on"]
    {
        // Words of the page may contain " on".
        let found = if name == " on" {
            after.contains(" onload=") || after.contains(" onerror=")
        } else {
            after.contains(name)
        };
        assert!(!found, "{name}");
    }
}

fn session() -> Recording {
    let mut recording = Recording::new();
    recording.prompt(0).answer(2000, "opus", 2000, 20_000).turn();
    recording.begin(2100, "Read", "a").begin(2100, "Task", "t").end(2400, "Read", "a", None);
    recording.by(Some("explorer")).mark(2200, StepKind::AgentStep, StepMark::WorkerStarted);
    recording.begin(3000, "Bash", "b").end(5000, "Bash", "b", None);
    recording.by(None).end(6000, "Task", "t", None).answer(9000, "opus", 2500, 30_000).done(9000);
    recording
}

#[test]
fn files_for_viewers_are_valid() {
    let recording = session();
    let profile = Profile::of(&recording.facts);
    check_exports(&recording.facts, &profile);

    let file = to_speedscope(&recording.facts, &profile);
    let names: Vec<&str> = file["profiles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|profile| profile["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["claude", "claude, parallel calls 1", "sub-agent explorer"]);

    let file = to_chrome_trace(&recording.facts, &profile);
    let arrows = |name: &str| {
        let events = file["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == "s" && event["name"] == name).count()
    };
    assert_eq!(
        (arrows("asked for"), arrows("started")),
        (3, 1),
        "Read, Task and Bash; the sub-agent of Task"
    );
    let threads = file["traceEvents"].as_array().unwrap().iter().filter(|event| event["ph"] == "X");
    let processes: std::collections::HashSet<u64> =
        threads.map(|event| event["pid"].as_u64().unwrap()).collect();
    assert_eq!(processes.len(), 2, "one for each agent");
}

#[test]
fn hostile_names_stay_text() {
    let hostile = [
        "</title><script>alert(1)</script>",
        "\"><img src=x onerror=alert(1)>",
        "\u{1b}]0;owned\u{7}\u{202e}<svg onload=alert(1)>",
        "&lt;script&gt;",
        "url(http://example.com)",
    ];
    let mut recording = Recording::new();
    recording.facts.agent = hostile[0].into();
    recording.prompt(0);
    for (at, name) in (0..).zip(hostile) {
        recording.by(Some(name)).begin(at * 100, name, name);
        let subject = recording.name(name);
        recording.facts.steps.last_mut().unwrap().subject = Some(subject);
        recording.end(at * 100 + 50, name, name, None);
        recording.facts.steps.last_mut().unwrap().failed = true;
        recording.answer(at * 100 + 90, name, 40, 1000);
    }
    let profile = Profile::of(&recording.facts);
    let page = render_html(&recording.facts, &profile);
    for text in ["<script", "<img", "<svg onload", "\u{1b}", "\u{202e}"] {
        assert!(!page.contains(text), "{text:?}");
    }
    assert!(page.contains("&lt;script&gt;alert(1)"), "it is shown as text");
    assert!(page.contains("&amp;lt;script&amp;gt;"));
    let frames = to_speedscope(&recording.facts, &profile)["shared"]["frames"].to_string();
    assert!(frames.contains("</title>"), "JSON keeps the name as it is");
}

#[test]
fn a_page_of_a_long_session_stays_small() {
    let mut recording = Recording::new();
    recording.prompt(0);
    for at in 0..50_000 {
        recording.begin(at * 100, "Bash", "same").end(at * 100 + 60, "Bash", "same", None);
    }
    let page = render_html(&recording.facts, &Profile::of(&recording.facts));
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    assert!(page.contains("too short to be shown"));
}
