//! Builds the graph of an answer: nodes and edges, each once.

use std::collections::{HashMap, HashSet};

use stepback_api::why::{WhyDocument, WhyEdgeDocument, WhyNodeDocument, WhyRuleDocument, WhyTargetDocument};
use stepback_model::clip;
use stepback_model::record::{Session, StepRow};

use super::{board, evidence, trust};

/// The most characters of a text in a node.
pub(crate) const MAX_TEXT_CHARS: usize = 2000;
/// The most characters of a title.
const MAX_TITLE_CHARS: usize = 160;

/// The graph of an answer, while it is built.
#[derive(Default)]
pub(crate) struct GraphBuilder {
    nodes: Vec<WhyNodeDocument>,
    known: HashMap<String, usize>,
    edges: Vec<WhyEdgeDocument>,
    linked: HashSet<(String, String, String)>,
    notes: Vec<String>,
    sources: usize,
}

/// How a link is known.
#[derive(Clone, Copy)]
pub(crate) enum Basis {
    /// Ids in the record link the two.
    Recorded,
    /// A rule links them.
    Inferred,
}

impl GraphBuilder {
    /// Adds a node, unless there is one with its id; returns the id.
    pub(crate) fn add(&mut self, node: WhyNodeDocument) -> String {
        let id = node.id.clone();
        if !self.known.contains_key(&id) {
            self.known.insert(id.clone(), self.nodes.len());
            self.nodes.push(node);
        }
        id
    }

    /// An id for another source.
    pub(crate) fn next_source_id(&mut self) -> String {
        self.sources += 1;
        format!("source-{}", self.sources)
    }

    /// Adds a link, unless it is there.
    pub(crate) fn link(&mut self, from: &str, to: &str, relation: &str, basis: Basis, rule: &str) {
        if from == to || !self.linked.insert((from.to_owned(), to.to_owned(), relation.to_owned())) {
            return;
        }
        self.edges.push(WhyEdgeDocument {
            from: from.to_owned(),
            to: to.to_owned(),
            relation: relation.to_owned(),
            basis: match basis {
                Basis::Recorded => "recorded",
                Basis::Inferred => "inferred",
            }
            .to_owned(),
            rule: rule.to_owned(),
        });
    }

    /// Says what limits the answer; each thing once.
    pub(crate) fn note(&mut self, note: impl Into<String>) {
        let note = note.into();
        if !self.notes.contains(&note) {
            self.notes.push(note);
        }
    }

    /// The document.
    pub(crate) fn finish(
        self,
        target: WhyTargetDocument,
        explanations: Vec<stepback_api::why::WhyExplanationDocument>,
    ) -> WhyDocument {
        let rule = |name: &str, text: &str| WhyRuleDocument { name: name.to_owned(), text: text.to_owned() };
        WhyDocument {
            target,
            explanations,
            nodes: self.nodes,
            edges: self.edges,
            notes: self.notes,
            rules: vec![
                rule("words", evidence::RULE),
                rule("trust", trust::RULE),
                rule("board", board::RULE),
            ],
        }
    }
}

/// The node of a step.
pub(crate) fn step_node(kind: &str, stored: &StepRow, session: Option<&Session>) -> WhyNodeDocument {
    let step = &stored.step;
    WhyNodeDocument {
        id: format!("step-{}", step.number),
        kind: kind.to_owned(),
        title: title(&step.summary),
        step: Some(step.number),
        session: Some(step.session.to_string()),
        agent: session.map(|session| session.agent.clone()),
        worker: step.meta.worker.clone(),
        tool: step.meta.tool.clone(),
        at: Some(step.at),
        ..WhyNodeDocument::default()
    }
}

/// The node of a session.
pub(crate) fn session_node(session: &Session) -> WhyNodeDocument {
    let about = session.info.title.as_deref().unwrap_or("no prompt is recorded");
    WhyNodeDocument {
        id: format!("session-{}", session.id),
        kind: "session".to_owned(),
        title: title(&format!("{} {}: {about}", session.agent, session.id.short())),
        session: Some(session.id.to_string()),
        agent: Some(session.agent.clone()),
        at: Some(session.started_at),
        ..WhyNodeDocument::default()
    }
}

/// A text as a title: one line.
pub(crate) fn title(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    clip::first(line.trim(), MAX_TITLE_CHARS)
}

/// A text as a node has it; `None` if it is empty.
pub(crate) fn node_text(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| clip::first(text, MAX_TEXT_CHARS))
}
