//! The page of a session: what it shows, what it never runs or loads, and how large it is.

use std::path::PathBuf;

use stepback_export::html;
use stepback_export::recording::SessionRecording;
use stepback_model::time::Timestamp;
use stepback_testkit::test_workspace::START;

use crate::sample::{self, SampleSession};

fn page(session: &SampleSession) -> String {
    let recording = SessionRecording::read(&session.workspace, &session.session(), true).unwrap();
    html::render(&recording, Timestamp::from_micros(START + 9_000_000_000))
}

/// Keeps a page, to be looked at.
fn keep(name: &str, page: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("session-{name}.html"));
    std::fs::write(&path, page).unwrap();
    path
}

#[test]
fn a_page_reads_like_the_session() {
    let page = page(&sample::ordinary());
    keep("ordinary", &page);
    for part in [
        // The prompt, a thought as Markdown, the answer, tables and code.
        "Fix it, and tell me why the tests did not notice.",
        "<strong>add</strong>",
        "<td><code>adds</code></td><td>failed</td>",
        "data-language=\"yaml\"",
        // The calls, with their ends.
        "<b>Bash</b> <span class=\"title\" dir=\"auto\">cargo test --quiet</span> <span class=\"status\">failed, exit code 101 · 4.2 s</span>",
        "left: -1",
        "error: test failed",
        "<del>−    a - b</del>",
        "<ins>+    a + b</ins>",
        // What changed on disk, checkpoints, a stop, an error.
        "<b>modified</b> <span class=\"title\"><bdi>src/lib.rs</bdi></span> <span class=\"status\"><ins>+1</ins> <del>−1</del></span>",
        "<b>created</b> <span class=\"title\"><bdi>.ci/ci.yml</bdi></span>",
        "checkpoint #",
        "stopped before Bash: git push",
        "overloaded_error: The model is overloaded, retry later",
        // Tokens and cost, with what the cost is based on.
        "1,290 (+15,000 cached) → 340 tokens",
        "by list prices",
        "1 period without activity (1 h 0 min) drawn shorter",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // The colours of programs are gone, and nothing is said twice.
    assert!(!page.contains("[31m"), "a control sequence");
    assert_eq!(
        page.matches("Done: every push runs the tests now.").count(),
        1,
        "not in the summary of the end too"
    );
    assert!(!page.contains("Long texts are shortened"));
}

#[test]
fn nothing_recorded_is_active_or_secret() {
    let page = page(&sample::hostile());
    keep("hostile", &page);
    let lower = page.to_ascii_lowercase();
    assert_eq!(lower.matches("<script").count(), 1, "the page's own");
    assert_eq!(lower.matches("</script").count(), 1);
    assert_eq!(lower.matches("<style").count(), 1);
    for tag in
        ["<img", "<iframe", "<link", "<object", "<embed", "<base", "<form", "<meta http-equiv=\"refresh"]
    {
        assert!(!lower.contains(tag), "{tag}");
    }
    assert!(!lower.contains("href=\"javascript") && !lower.contains("href=\"data"));
    for hidden in ['\u{202e}', '\u{2066}', '\u{1b}', '\0', '\u{7}'] {
        assert!(!page.contains(hidden), "{hidden:?}");
    }
    assert!(page.contains("<i class=\"esc\">\\u{202e}</i>"));
    assert!(!page.contains(sample::SECRET), "a secret");
    assert!(page.contains("[redacted:"), "it says where a secret was");
    assert!(page.contains("bytes left out") || page.contains(" left out …"));
    assert!(page.contains("not-\\xff-utf8"), "a name that is not UTF-8");
}

#[test]
fn an_empty_session_and_one_without_files_have_pages() {
    let session = SampleSession::new();
    session.record(
        SampleSession::event(stepback_model::record::StepKind::AgentStep, "session started"),
        stepback_engine::recorder::ScanPolicy::None,
        &[],
    );
    let page = page(&session);
    assert!(page.contains("session started") && page.contains("A session without a prompt"));
    assert!(page.contains("<dd title=\"As it was recorded.\">not known</dd>"), "unknown is not nothing");
}

#[test]
fn a_thousand_steps_stay_below_five_megabytes() {
    let session = sample::long();
    let recording = SessionRecording::read(&session.workspace, &session.session(), true).unwrap();
    assert!(recording.steps >= 1000, "{}", recording.steps);
    let page = page(&session);
    keep("long", &page);
    assert!(page.len() < 5_000_000, "{} bytes", page.len());
    assert!(page.contains("Long texts are shortened") && page.contains(" left out …"));
}
