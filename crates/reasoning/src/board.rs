//! The whole board as lines of text, for people and for agents that read text better than JSON documents.

use serde::Serialize;
use stepback_model::time::Timestamp;

use crate::apply::{clip_line, format_confidence};
use crate::ids::{
    BeliefId, ContradictionId, ExperimentId, GapId, HypothesisId, ItemKind, NoteId, VerificationId,
};
use crate::item::{BeliefStatus, CheckOutcome, ContradictionStatus, GapStatus, HypothesisStatus};
use crate::mind::ReasoningBoard;

/// A section of a board.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Section {
    /// The heading.
    pub title: &'static str,
    /// One line for each item, the most important first; lines that begin with a space belong to the one above.
    pub lines: Vec<String>,
}

/// Statistics of a mind.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Metrics {
    /// The number of hypotheses proposed.
    pub hypotheses: usize,
    /// The number of hypotheses concluded.
    pub concluded: usize,
    /// The number of pieces of evidence that are not withdrawn.
    pub evidence: usize,
    /// The number of beliefs that are held.
    pub beliefs: usize,
    /// The number of open contradictions.
    pub contradictions: usize,
    /// The number of gaps recorded.
    pub gaps: usize,
    /// The number of gaps filled.
    pub gaps_filled: usize,
    /// The number of runs of checks.
    pub verifications_run: usize,
    /// The number of runs that passed.
    pub verifications_passed: usize,
    /// The number of experiments that ended.
    pub experiments_ended: usize,
    /// The number of notes.
    pub notes: usize,
    /// When the first item was added; `None` if there are none.
    pub since: Option<Timestamp>,
    /// When the last item was added; `None` if there are none.
    pub until: Option<Timestamp>,
}

impl ReasoningBoard {
    /// The sections of the board that are not empty. With `all`, finished items are included.
    pub fn board(&self, all: bool) -> Vec<Section> {
        let sections = [
            Section { title: "Hypotheses", lines: self.hypothesis_lines(all) },
            Section { title: "Contradictions", lines: self.contradiction_lines(all) },
            Section { title: "Beliefs", lines: self.belief_lines(all) },
            Section { title: "Gaps", lines: self.gap_lines(all) },
            Section { title: "Verifications", lines: self.verification_lines() },
            Section { title: "Experiments", lines: self.experiment_lines() },
            Section { title: "Notes", lines: self.note_lines() },
        ];
        sections.into_iter().filter(|section| !section.lines.is_empty()).collect()
    }

    /// Hypotheses: open ones by how likely they are, then confirmed, rejected and archived ones.
    fn hypothesis_lines(&self, all: bool) -> Vec<String> {
        let confidences = self.confidences();
        let sure = |number: u32| confidences.get(&number).copied().unwrap_or(0.5);
        let mut lines = Vec::new();
        for item in self.in_order(ItemKind::Hypothesis) {
            let number = item.number;
            let Some(hypothesis) = self.hypotheses.get(number) else { continue };
            if !all && hypothesis.status == HypothesisStatus::Archived {
                continue;
            }
            let id = HypothesisId(number);
            let names = |ids: &[HypothesisId]| {
                ids.iter().map(HypothesisId::to_string).collect::<Vec<_>>().join(" and ")
            };
            let parent = match hypothesis.parents.as_slice() {
                [] => String::new(),
                parents => format!(", of {}", names(parents)),
            };
            let tags = match hypothesis.tags.is_empty() {
                true => String::new(),
                false => format!("  [{}]", hypothesis.tags.join(", ")),
            };
            lines.push(format!(
                "{id}  {}  {}{parent}  {}{tags}",
                format_confidence(sure(number)),
                hypothesis.status.as_str(),
                clip_line(&hypothesis.statement)
            ));
            let children = self.children(id);
            if !children.is_empty() {
                lines.push(format!("  special cases: {}", names(&children)));
            }
            if let Some(reason) = &hypothesis.reason {
                lines.push(format!("  because {}", clip_line(reason)));
            }
            if let Some(fallen) = &hypothesis.fallen {
                lines.push(format!("  rejected along with {}", fallen.with));
            }
            // The last few show its present standing best.
            const MAX_SHOWN_EVIDENCE: usize = 5;
            let evidence: Vec<_> = self.evidence_for(id).collect();
            if evidence.len() > MAX_SHOWN_EVIDENCE {
                lines.push(format!("  {} older pieces of evidence", evidence.len() - MAX_SHOWN_EVIDENCE));
            }
            for (number, evidence) in evidence.iter().rev().take(MAX_SHOWN_EVIDENCE).rev() {
                lines.push(format!("  E{number}  {:+}  {}", evidence.strength, clip_line(&evidence.text)));
            }
        }
        lines
    }

    fn contradiction_lines(&self, all: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, entry) in self.contradictions.iter() {
            if !all && entry.status != ContradictionStatus::Open {
                continue;
            }
            let id = ContradictionId(number);
            lines.push(format!(
                "{id}  {}  {}  {} and {}: {}",
                entry.severity.as_str(),
                entry.status.as_str(),
                entry.left,
                entry.right,
                clip_line(&entry.reason)
            ));
            match &entry.resolution {
                Some(resolution) => lines.push(format!("  {}", clip_line(resolution))),
                None => lines.push(format!("  {}", entry.suggestion)),
            }
        }
        lines
    }

    fn belief_lines(&self, all: bool) -> Vec<String> {
        let effective = self.effective();
        let mut lines = Vec::new();
        for (number, belief) in self.beliefs.iter() {
            if !all && belief.status == BeliefStatus::Retracted {
                continue;
            }
            let id = BeliefId(number);
            let sure = effective.get(&number).copied().unwrap_or(0.0);
            let own_confidence = match format_confidence(sure) == format_confidence(belief.confidence) {
                true => String::new(),
                false => format!(" (on its own {})", format_confidence(belief.confidence)),
            };
            let value = match (&belief.subject, &belief.value) {
                (Some(subject), Some(value)) => {
                    format!("  {subject} = {}", crate::contradiction::said(value))
                }
                _ => String::new(),
            };
            let retracted = if belief.status == BeliefStatus::Retracted { " retracted" } else { "" };
            lines.push(format!(
                "{id}  {}{own_confidence}  {}{retracted}  {}{value}",
                format_confidence(sure),
                belief.kind.as_str(),
                clip_line(&belief.statement)
            ));
            for dependency in &belief.depends {
                let reason = dependency
                    .reason
                    .as_ref()
                    .map_or(String::new(), |reason| format!(": {}", clip_line(reason)));
                lines.push(format!(
                    "  {} {} ({}){reason}",
                    dependency.kind.verb(),
                    dependency.on,
                    format_confidence(dependency.strength)
                ));
            }
        }
        lines
    }

    /// Gaps: the next to fill first.
    fn gap_lines(&self, all: bool) -> Vec<String> {
        let mut lines = Vec::new();
        for number in self.in_order(ItemKind::Gap).into_iter().map(|item| item.number) {
            let Some(gap) = self.gaps.get(number) else { continue };
            if !all && gap.status != GapStatus::Open {
                continue;
            }
            let mut line = format!(
                "{}  {}  {}  {}  {}",
                GapId(number),
                gap.criticality.as_str(),
                gap.status.as_str(),
                gap.kind.as_str(),
                clip_line(&gap.question)
            );
            if !gap.blocks.is_empty() {
                line.push_str(&format!("  blocks {}", crate::diff::list_names(&gap.blocks)));
            }
            if !gap.after.is_empty() {
                let after: Vec<_> = gap.after.iter().map(|id| (*id).into()).collect();
                line.push_str(&format!("  after {}", crate::diff::list_names(&after)));
            }
            lines.push(line);
            match (&gap.answer, &gap.strategy) {
                (Some(answer), _) => lines.push(format!("  {}", clip_line(answer))),
                (None, Some(strategy)) => lines.push(format!("  by {}", clip_line(strategy))),
                (None, None) => {}
            }
        }
        lines
    }

    fn verification_lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (number, plan) in self.verifications.iter() {
            let id = VerificationId(number);
            let last = self.runs.iter().rev().find(|(_, run)| run.verification == id);
            let state = last.map_or("not run yet".to_owned(), |(_, run)| {
                format!("{}: {}", run.outcome.as_str(), clip_line(&run.reason))
            });
            lines.push(format!("{id}  {}  {state}", clip_line(&plan.title)));
        }
        lines
    }

    fn experiment_lines(&self) -> Vec<String> {
        self.experiments
            .iter()
            .flat_map(|(number, entry)| {
                let subject = entry.hypothesis.map_or(String::new(), |id| format!(" of {id}"));
                let head = format!(
                    "{}{subject}  branch {}  {}  succeeds if {}",
                    ExperimentId(number),
                    entry.branch,
                    entry.status.as_str(),
                    clip_line(&entry.success)
                );
                let result = entry.result.as_ref().map(|result| format!("  {}", clip_line(result)));
                std::iter::once(head).chain(result)
            })
            .collect()
    }

    fn note_lines(&self) -> Vec<String> {
        self.notes
            .iter()
            .rev()
            .map(|(number, note)| format!("{}  {}", NoteId(number), clip_line(&note.text)))
            .collect()
    }

    /// Statistics of this mind.
    pub fn metrics(&self) -> Metrics {
        let origins =
            self.items().into_iter().filter_map(|item| self.origin_of(item)).map(|origin| origin.at);
        let moments: Vec<Timestamp> = origins.collect();
        let concluded = |status| matches!(status, HypothesisStatus::Confirmed | HypothesisStatus::Rejected);
        Metrics {
            hypotheses: self.hypotheses.count(),
            concluded: self.hypotheses.iter().filter(|(_, h)| concluded(h.status)).count(),
            evidence: self.evidence.iter().filter(|(_, e)| e.withdrawn.is_none()).count(),
            beliefs: self.beliefs.iter().filter(|(_, b)| b.status == BeliefStatus::Held).count(),
            contradictions: (self.contradictions.iter())
                .filter(|(_, c)| c.status == ContradictionStatus::Open)
                .count(),
            gaps: self.gaps.count(),
            gaps_filled: self.gaps.iter().filter(|(_, gap)| gap.status == GapStatus::Filled).count(),
            verifications_run: self.runs.count(),
            verifications_passed: self
                .runs
                .iter()
                .filter(|(_, run)| run.outcome == CheckOutcome::Passed)
                .count(),
            experiments_ended: self.experiments.iter().filter(|(_, entry)| entry.result.is_some()).count(),
            notes: self.notes.count(),
            since: moments.iter().min().copied(),
            until: moments.iter().max().copied(),
        }
    }
}
