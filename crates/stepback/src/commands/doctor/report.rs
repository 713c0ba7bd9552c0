//! What `stepback doctor` found, as text for a terminal and as JSON.

use serde_json::{Value, json};

use super::fix::Fix;
use crate::failure::CommandFailure;
use crate::output::{self, Paint};

/// The result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FindingVerdict {
    /// Something does not work as it should.
    Problem,
    /// It works, but could be better, or is configured that way.
    Note,
    /// It is as it should be.
    Good,
}

impl FindingVerdict {
    /// The stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Problem => "problem",
            Self::Note => "note",
            Self::Good => "ok",
        }
    }
}

/// What one check found.
pub struct Finding {
    /// A stable name, such as `hooks.claude.project`.
    pub id: String,
    /// What was checked, in one word.
    pub subject: &'static str,
    pub verdict: FindingVerdict,
    pub text: String,
    /// What the user can do.
    pub hint: Option<String>,
    /// Of hooks: `intact`, `altered`, `gone` and so on.
    pub state: Option<&'static str>,
    /// What `--fix` does about it.
    pub fix: Option<Fix>,
}

/// Width of the first two columns: the verdict and the subject.
const INDENT: usize = 19;

impl Finding {
    /// Creates a finding. The subject is the part of the id before the first dot.
    pub fn new(
        id: impl Into<String>,
        subject: &'static str,
        verdict: FindingVerdict,
        text: impl Into<String>,
    ) -> Self {
        let (id, text) = (id.into(), text.into());
        Self { id, subject, verdict, text, hint: None, state: None, fix: None }
    }

    pub fn good(subject: &'static str, text: impl Into<String>) -> Self {
        Self::new(subject, subject, FindingVerdict::Good, text)
    }

    pub fn note(subject: &'static str, text: impl Into<String>) -> Self {
        Self::new(subject, subject, FindingVerdict::Note, text)
    }

    pub fn problem(subject: &'static str, text: impl Into<String>) -> Self {
        Self::new(subject, subject, FindingVerdict::Problem, text)
    }

    /// Creates a finding about a check that could not be made.
    pub fn from_failure(subject: &'static str, failure: &CommandFailure) -> Self {
        let found = Self::problem(subject, failure.message());
        Self { hint: failure.hint_text().map(str::to_owned), ..found }
    }

    pub fn with_id(self, id: impl Into<String>) -> Self {
        Self { id: id.into(), ..self }
    }

    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    pub fn with_state(self, state: &'static str) -> Self {
        Self { state: Some(state), ..self }
    }

    pub fn with_fix(self, fix: Option<Fix>) -> Self {
        Self { fix, ..self }
    }

    pub fn document(&self) -> Value {
        json!({
            "id": self.id,
            "subject": self.subject,
            "verdict": self.verdict.as_str(),
            "text": self.text,
            "hint": self.hint,
            "state": self.state,
            "fix": self.fix.as_ref().map(|fix| &fix.description),
        })
    }

    fn print(&self, paint: Paint) {
        let verdict = format!("{:<7}", self.verdict.as_str());
        let verdict = match self.verdict {
            FindingVerdict::Good => paint.good(verdict),
            FindingVerdict::Note => paint.note(verdict),
            FindingVerdict::Problem => paint.bad(verdict),
        };
        let mut head = format!("{verdict} {:<10} ", self.subject);
        for line in wrap(&self.text) {
            output::print_line(format!("{head}{line}"));
            head = " ".repeat(INDENT);
        }
        for line in self.hint.iter().flat_map(|hint| wrap(hint)) {
            output::print_line(paint.dim(format!("{}{line}", " ".repeat(INDENT))));
        }
    }
}

/// Wraps a text for the third column, if there is a terminal.
fn wrap(text: &str) -> Vec<String> {
    use std::io::IsTerminal as _;
    match std::io::stdout().is_terminal() {
        true => output::wrap_text(text, output::terminal_width().saturating_sub(INDENT).max(30)),
        false => vec![text.to_owned()],
    }
}

/// How many findings there are of each kind.
#[derive(Clone, Copy, Default)]
pub struct FindingCounts {
    pub problems: u64,
    pub notes: u64,
    pub good: u64,
    /// How many `--fix` would do something about.
    pub fixable: u64,
}

/// Counts findings.
pub fn count_findings(findings: &[Finding]) -> FindingCounts {
    let mut counts = FindingCounts::default();
    for finding in findings {
        match finding.verdict {
            FindingVerdict::Problem => counts.problems += 1,
            FindingVerdict::Note => counts.notes += 1,
            FindingVerdict::Good => counts.good += 1,
        }
        counts.fixable += u64::from(finding.fix.is_some());
    }
    counts
}

/// Prints all findings, problems first, and a summary.
pub fn print_findings(findings: &[Finding]) {
    let paint = Paint::stdout();
    let mut sorted: Vec<&Finding> = findings.iter().collect();
    sorted.sort_by_key(|finding| finding.verdict);
    for finding in sorted {
        finding.print(paint);
    }
    let counts = count_findings(findings);
    let mut parts = Vec::new();
    if counts.problems > 0 {
        parts.push(paint.bad(output::count(counts.problems, "problem")));
    }
    if counts.notes > 0 {
        parts.push(paint.note(output::count(counts.notes, "note")));
    }
    parts.push(format!("{} fine", counts.good));
    let start = if counts.problems == 0 { paint.good("No problems") + ": " } else { String::new() };
    output::print_line("");
    output::print_line(format!("{start}{}", parts.join(", ")));
    if counts.fixable > 0 {
        let can = match counts.fixable {
            1 => "Hint: \"stepback doctor --fix\" can do something about one of them; it shows a plan first."
                .to_owned(),
            more => format!(
                "Hint: \"stepback doctor --fix\" can do something about {more} of them; it shows a plan first."
            ),
        };
        output::print_status(Paint::stderr().dim(can));
    }
}
