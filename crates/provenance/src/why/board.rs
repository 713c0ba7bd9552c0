//! The items of the reasoning board that a turn cites, that were under test at it, or that were changed close to it.

use stepback_api::why::WhyNodeDocument;
use stepback_engine::Workspace;
use stepback_engine::board::BoardMoment;
use stepback_model::ids::StepId;
use stepback_model::record::StepKind;
use stepback_reasoning::item::{EvidenceOrigin, HypothesisStatus, ItemOrigin};
use stepback_reasoning::{ItemId, ItemKind, ReasoningBoard};
use stepback_store::port::StepQuery;

use super::graph::{Basis, GraphBuilder, node_text, step_node, title};
use super::turn::Turn;
use crate::error::ProvenanceError;

/// The rule in words, for the answer.
pub(crate) const RULE: &str = "An item of the board is recorded as part of a call if it was added or changed while the call was open. It is inferred to have to do with a turn if the turn's text names it, if it is a hypothesis under test at the turn, or if the same session added or changed it within 12 of its own steps around the turn.";

/// How many steps of a session around a turn are close to it.
const NEAR_STEPS: u64 = 12;
/// The most items of one explanation.
const MAX_ITEMS: usize = 16;
/// The most steps or items that support one item and are shown.
const MAX_SUPPORT: usize = 24;

/// Adds the items that have to do with a turn, linked from `from`; returns their ids.
pub(crate) fn link_items(
    workspace: &Workspace,
    graph: &mut GraphBuilder,
    turn: &Turn,
    from: &str,
    cited_in: &str,
) -> Result<Vec<String>, ProvenanceError> {
    let near = steps_near(workspace, turn)?;
    let end = turn.end.as_ref().map_or(turn.step.step.number, |end| end.step.number);
    // Items that the turn leads to are put on the board right after it.
    let until = near.iter().map(|(_, number)| *number).max().unwrap_or(end).max(end);
    let board = workspace.board_at(&turn.session, &BoardMoment::Step(until))?.board;
    let mut ids = Vec::new();
    for kind in ItemKind::ALL {
        for item in board.in_order(kind) {
            if ids.len() >= MAX_ITEMS {
                return Ok(ids);
            }
            let Some((relation, basis, rule)) = relate(&board, item, turn, &near, cited_in) else { continue };
            let id = graph.add(item_node(&board, item, turn));
            graph.link(from, &id, relation, basis, &rule);
            link_support(workspace, graph, &board, item)?;
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The steps of the session that changed its board close to a turn: ids and numbers.
fn steps_near(workspace: &Workspace, turn: &Turn) -> Result<Vec<(StepId, u64)>, ProvenanceError> {
    let store = workspace.store();
    let around = |query: StepQuery| {
        let query = StepQuery { session: Some(turn.session.id), limit: Some(NEAR_STEPS), ..query };
        store.steps(workspace.record.id, &query)
    };
    let end = turn.end.as_ref().map_or(turn.step.step.number, |end| end.step.number);
    let before = around(StepQuery { before: Some(end.saturating_add(1)), ..StepQuery::default() })?;
    let after = around(StepQuery { after: Some(end), oldest_first: true, ..StepQuery::default() })?;
    let changes = before.into_iter().chain(after);
    let changes = changes.filter(|stored| stored.step.kind == StepKind::Reasoning);
    Ok(changes.map(|stored| (stored.step.id, stored.step.number)).collect())
}

/// How an item has to do with a turn, if it does.
fn relate(
    board: &ReasoningBoard,
    item: ItemId,
    turn: &Turn,
    near: &[(StepId, u64)],
    cited_in: &str,
) -> Option<(&'static str, Basis, String)> {
    let origin = board.origin_of(item)?;
    let changed = changed_at(board, item);
    let during = [Some(origin), changed].into_iter().flatten().any(|at| at.during == Some(turn.step.step.id));
    if during {
        return Some((
            "recorded-during",
            Basis::Recorded,
            "it was put on the board or changed during the call".into(),
        ));
    }
    if names_item(cited_in, item) {
        return Some(("cites", Basis::Inferred, format!("the turn's text names {item}")));
    }
    let is_tested = board
        .hypotheses
        .get(item.number)
        .is_some_and(|entry| item.kind == ItemKind::Hypothesis && entry.status == HypothesisStatus::Testing);
    if is_tested {
        return Some(("cites", Basis::Inferred, "it was under test at the turn".into()));
    }
    let is_near = |at: &ItemOrigin| near.iter().any(|(step, _)| *step == at.step);
    let near = [Some(origin), changed].into_iter().flatten().any(is_near);
    near.then(|| {
        (
            "changed-near",
            Basis::Inferred,
            format!("the session added or changed it within {NEAR_STEPS} steps of the turn"),
        )
    })
}

fn changed_at(board: &ReasoningBoard, item: ItemId) -> Option<&ItemOrigin> {
    match item.kind {
        ItemKind::Hypothesis => board.hypotheses.get(item.number)?.changed.as_ref(),
        ItemKind::Belief => board.beliefs.get(item.number)?.changed.as_ref(),
        ItemKind::Gap => board.gaps.get(item.number)?.changed.as_ref(),
        ItemKind::Experiment => board.experiments.get(item.number)?.changed.as_ref(),
        _ => None,
    }
}

/// Whether a text names an item as a word of its own: `H2`, not `H21` or `SHA2`.
fn names_item(text: &str, item: ItemId) -> bool {
    let name = item.to_string();
    let is_edge = |c: Option<char>| !c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(&name).any(|(at, _)| {
        is_edge(text[..at].chars().next_back()) && is_edge(text[at + name.len()..].chars().next())
    })
}

/// The node of an item.
pub(crate) fn item_node(board: &ReasoningBoard, item: ItemId, turn: &Turn) -> WhyNodeDocument {
    let text = board.text_of(item);
    WhyNodeDocument {
        id: format!("item-{item}"),
        kind: "item".to_owned(),
        title: title(&format!("{} {item}: {text}", item.kind.noun())),
        text: node_text(&text),
        session: Some(turn.session.id.to_string()),
        agent: Some(turn.session.agent.clone()),
        item: Some(item.to_string()),
        at: board.origin_of(item).map(|origin| origin.at),
        ..WhyNodeDocument::default()
    }
}

/// Adds what an item is based on: evidence for a hypothesis with its source, dependencies of a belief.
pub(crate) fn link_support(
    workspace: &Workspace,
    graph: &mut GraphBuilder,
    board: &ReasoningBoard,
    item: ItemId,
) -> Result<(), ProvenanceError> {
    let from = format!("item-{item}");
    match item.kind {
        ItemKind::Hypothesis => {
            let evidence = board.evidence.iter().filter(|(_, entry)| ItemId::from(entry.hypothesis) == item);
            for (number, entry) in evidence.take(MAX_SUPPORT) {
                let evidence = ItemId { kind: ItemKind::Evidence, number };
                let id = graph.add(plain_item_node(board, evidence));
                let sign = if entry.strength < 0.0 { "speaks against it" } else { "speaks for it" };
                let withdrawn = if entry.withdrawn.is_some() { "; it was withdrawn" } else { "" };
                let rule = format!("the evidence {sign} ({:+}){withdrawn}", entry.strength);
                graph.link(&from, &id, "supported-by", Basis::Recorded, &rule);
                link_evidence_source(workspace, graph, &id, &entry.source)?;
            }
        }
        ItemKind::Evidence => {
            if let Some(entry) = board.evidence.get(item.number) {
                link_evidence_source(workspace, graph, &from, &entry.source)?;
                let hypothesis = ItemId::from(entry.hypothesis);
                let id = graph.add(plain_item_node(board, hypothesis));
                graph.link(&from, &id, "part-of", Basis::Recorded, "the evidence is about it");
            }
        }
        ItemKind::Belief => {
            let depends = board.beliefs.get(item.number).map(|entry| entry.depends.as_slice());
            for dependency in depends.unwrap_or_default().iter().take(MAX_SUPPORT) {
                let id = graph.add(plain_item_node(board, dependency.on.into()));
                let rule = dependency.reason.as_deref().unwrap_or("the board has the dependency");
                graph.link(&from, &id, "depends-on", Basis::Recorded, rule);
            }
        }
        _ => {}
    }
    Ok(())
}

fn plain_item_node(board: &ReasoningBoard, item: ItemId) -> WhyNodeDocument {
    let text = board.text_of(item);
    WhyNodeDocument {
        id: format!("item-{item}"),
        kind: "item".to_owned(),
        title: title(&format!("{} {item}: {text}", item.kind.noun())),
        text: node_text(&text),
        item: Some(item.to_string()),
        at: board.origin_of(item).map(|origin| origin.at),
        ..WhyNodeDocument::default()
    }
}

fn link_evidence_source(
    workspace: &Workspace,
    graph: &mut GraphBuilder,
    from: &str,
    source: &EvidenceOrigin,
) -> Result<(), ProvenanceError> {
    let (node, rule) = match source {
        EvidenceOrigin::Tool { step: Some(step), .. } => match workspace.store().step(*step)? {
            Some(stored) => (step_node("step", &stored, None), "the board names the step".to_owned()),
            None => return Ok(()),
        },
        EvidenceOrigin::Code { file, line } => {
            let place = line.map_or_else(|| file.clone(), |line| format!("{file}:{line}"));
            let node = WhyNodeDocument {
                id: format!("place-{place}"),
                kind: "lines".to_owned(),
                title: title(&place),
                path: Some(file.clone()),
                ..WhyNodeDocument::default()
            };
            (node, "the board names the place".to_owned())
        }
        _ => return Ok(()),
    };
    let id = graph.add(node);
    graph.link(from, &id, "supported-by", Basis::Recorded, &rule);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_named_only_as_a_word_of_its_own() {
        let item: ItemId = "H2".parse().unwrap_or(ItemId { kind: ItemKind::Hypothesis, number: 2 });
        assert!(names_item("because of H2.", item));
        assert!(names_item("H2", item));
        assert!(!names_item("H21, SHA2, xH2, H2_x", item));
    }
}
