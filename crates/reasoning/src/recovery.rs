//! The recovery summary: tells an agent where it left off, within a budget of tokens.
//!
//! Sections are ordered by what an agent needs first. Each may use what is left of the budget; a list that does not fit
//! ends with the number of omitted items and how to see them. The summary never exceeds the budget.

use crate::apply::{clip_line, format_confidence};
use crate::ids::{HypothesisId, ItemKind};
use crate::item::{GapStatus, HypothesisStatus};
use crate::mind::ReasoningBoard;

/// Bytes of English text per token, on average; a little less, to be on the safe side.
const BYTES_PER_TOKEN: usize = 3;
/// The smallest budget, in tokens.
pub const LEAST_BUDGET: usize = 100;

/// Context from outside of the mind.
#[derive(Clone, Debug, Default)]
pub struct RecoveryContext {
    /// The first lines: session and place.
    pub heading: Vec<String>,
    /// The last prompt of the user.
    pub prompt: Option<String>,
    /// The last commands and how they ended, newest first.
    pub commands: Vec<String>,
    /// Changed files, newest first.
    pub changed: Vec<String>,
    /// The last lines: how to continue.
    pub closing: Vec<String>,
}

struct Page {
    text: String,
    remaining_bytes: usize,
}

impl Page {
    fn add_line(&mut self, line: &str) -> bool {
        let fits = line.len() < self.remaining_bytes;
        if fits {
            self.remaining_bytes -= line.len() + 1;
            self.text.push_str(line);
            self.text.push('\n');
        }
        fits
    }

    fn add_section(&mut self, title: &str, lines: &[String]) {
        /// Bytes reserved for the number of omitted items.
        const OMISSION_NOTE_BYTES: usize = 40;
        let first = lines.first().map_or(0, String::len);
        if lines.is_empty() || self.remaining_bytes < title.len() + first + OMISSION_NOTE_BYTES + 4 {
            return;
        }
        self.add_line(&format!("\n## {title}"));
        for (index, line) in lines.iter().enumerate() {
            let is_last = index + 1 == lines.len();
            let room = if is_last { line.len() } else { line.len() + OMISSION_NOTE_BYTES };
            if room >= self.remaining_bytes || !self.add_line(line) {
                self.add_line(&format!("… and {} more lines", lines.len() - index));
                return;
            }
        }
    }
}

impl ReasoningBoard {
    /// A summary of where the agent left off, in at most `budget` tokens.
    pub fn recovery(&self, around: &RecoveryContext, budget: usize) -> String {
        let bytes = budget.max(LEAST_BUDGET) * BYTES_PER_TOKEN;
        let closing: usize = around.closing.iter().map(|line| line.len() + 1).sum();
        let mut page = Page { text: String::new(), remaining_bytes: bytes.saturating_sub(closing + 1) };
        for line in &around.heading {
            page.add_line(line);
        }
        let prompt_lines: Vec<String> = around.prompt.iter().map(|prompt| clip_line(prompt)).collect();
        page.add_section("Last request", &prompt_lines);
        let next: Vec<String> = self
            .next_actions()
            .iter()
            .take(5)
            .enumerate()
            .map(|(index, action)| {
                format!("{}. {}: {} → {}", index + 1, action.what, action.why, action.command)
            })
            .collect();
        page.add_section("Do next", &next);
        page.add_section("Open hypotheses", &self.open_hypotheses());
        let board = self.board(false);
        let lines = |title: &str| {
            let section_found = board.iter().find(|section| section.title == title);
            section_found.map(|section| section.lines.clone()).unwrap_or_default()
        };
        page.add_section("Contradictions", &lines("Contradictions"));
        page.add_section("Settled", &self.list_settled());
        page.add_section("Open questions", &lines("Gaps"));
        page.add_section("Experiments", &lines("Experiments"));
        page.add_section("Beliefs", &lines("Beliefs"));
        page.add_section("Notes", &lines("Notes"));
        page.add_section("Last commands", &around.commands);
        page.add_section("Files changed", &around.changed);
        page.add_section("Verifications", &lines("Verifications"));
        page.remaining_bytes += closing + 1;
        if !around.closing.is_empty() && page.add_line("") {
            for line in &around.closing {
                page.add_line(line);
            }
        }
        page.text
    }

    fn open_hypotheses(&self) -> Vec<String> {
        let confidences = self.confidences();
        let mut open: Vec<_> = self.hypotheses.iter().filter(|(_, h)| h.status.is_open()).collect();
        let sure = |number: u32| confidences.get(&number).copied().unwrap_or(0.5);
        open.sort_by(|(a, _), (b, _)| sure(*b).total_cmp(&sure(*a)).then(a.cmp(b)));
        open.into_iter()
            .map(|(number, hypothesis)| {
                let id = HypothesisId(number);
                let mut strongest: Vec<_> = self.evidence_for(id).collect();
                strongest.sort_by(|(_, a), (_, b)| b.strength.abs().total_cmp(&a.strength.abs()));
                let evidence: Vec<String> = strongest
                    .iter()
                    .take(3)
                    .map(|(number, e)| format!("E{number} {:+} {}", e.strength, clip_line(&e.text)))
                    .collect();
                let reasons = match evidence.is_empty() {
                    true => String::new(),
                    false => format!(" [{}]", evidence.join("; ")),
                };
                format!(
                    "{id} {} {}: {}{reasons}",
                    format_confidence(sure(number)),
                    hypothesis.status.as_str(),
                    clip_line(&hypothesis.statement)
                )
            })
            .collect()
    }

    /// Findings that need not be established again.
    fn list_settled(&self) -> Vec<String> {
        let concluded = self
            .hypotheses
            .iter()
            .filter(|(_, h)| matches!(h.status, HypothesisStatus::Confirmed | HypothesisStatus::Rejected));
        let mut lines: Vec<String> = concluded
            .map(|(number, h)| {
                let reason = h
                    .reason
                    .as_ref()
                    .map_or(String::new(), |reason| format!(", because {}", clip_line(reason)));
                format!("{} {}: {}{reason}", HypothesisId(number), h.status.as_str(), clip_line(&h.statement))
            })
            .collect();
        let filled = self.gaps.iter().filter(|(_, gap)| gap.status == GapStatus::Filled);
        lines.extend(filled.map(|(number, gap)| {
            format!(
                "{}{number} {} → {}",
                ItemKind::Gap.letter(),
                clip_line(&gap.question),
                clip_line(gap.answer.as_deref().unwrap_or_default())
            )
        }));
        lines
    }
}
