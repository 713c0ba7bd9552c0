//! Why something is as it is: the chain from a change over the tool call and the model's turn to the prompt, and what the
//! model had seen that has the decisive words of the change.
//!
//! The chain is recorded: ids link its parts. That words come from somewhere is inferred, because they also stand there
//! (`words`); and whose words those are follows from what is recorded of the source (`trust`). Both rules are part of the
//! answer.
//!
//! - `target`: what a text asks about.
//! - `explain`: one call, answer or item.
//! - `turn`: a turn of a model. `change`: the words of a change.
//! - `context`: what the model had seen. `words`, `automaton`: runs of words that two texts share. `evidence`: the sources,
//!   ranked.
//! - `trust`, `tool_kind`: whose words a source has. `board`: items of the reasoning board.
//! - `graph`: the document. [`dot`]: the same for Graphviz. [`omit`]: the same change without one of its sources.

mod automaton;
mod board;
mod change;
mod context;
pub mod dot;
mod evidence;
mod explain;
mod graph;
pub mod omit;
mod target;
mod tool_kind;
mod trust;
mod turn;
mod words;

use std::ops::RangeInclusive;

use stepback_api::why::{WhyDocument, WhyExplanationDocument, WhyNodeDocument, WhyTargetDocument};
use stepback_engine::Workspace;
use stepback_engine::authorship::Author;
use stepback_engine::board::BoardMoment;
use stepback_model::ids::StepId;
use stepback_model::path::RelPath;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_reasoning::ItemId;
use stepback_store::port::StepQuery;

use crate::blame::{Blame, BlameRequest, LineOrigin, OriginKind, blame};
use crate::error::ProvenanceError;
use change::{ChangedText, change_of_path, changes_at};
use explain::{Explained, Explainer, authorship_rule};
use graph::{Basis, node_text, session_node, step_node, title};
use turn::start_of_call;

pub use target::{TargetContext, parse_target};

/// The most calls that one answer explains.
const MAX_EXPLANATIONS: usize = 6;
/// The most prompts of a session that are shown.
const MAX_PROMPTS: u64 = 50;

/// What is asked about.
#[derive(Clone, Debug)]
pub enum WhyTarget {
    /// A step.
    Step(Box<StepRow>),
    /// Lines of a file.
    Lines {
        /// The file.
        path: RelPath,
        /// The point at which it is looked at; the present if none is given.
        at: Option<Box<StepRow>>,
        /// The lines; all if none are given.
        lines: Option<RangeInclusive<usize>>,
    },
    /// An item of a session's board.
    Item {
        /// The session.
        session: Box<Session>,
        /// The item.
        item: ItemId,
    },
    /// A session.
    Session(Box<Session>),
}

/// Explains a target. `text` is how it was asked for.
pub fn explain(
    workspace: &Workspace,
    target: &WhyTarget,
    text: &str,
) -> Result<WhyDocument, ProvenanceError> {
    let mut explainer = Explainer::new(workspace);
    let (document, explanations) = answer_target(&mut explainer, target, text)?;
    Ok(explainer.graph.finish(document, explanations))
}

/// Adds the explanations of a target to a graph.
fn answer_target(
    explainer: &mut Explainer<'_>,
    target: &WhyTarget,
    text: &str,
) -> Result<Answer, ProvenanceError> {
    let document = WhyTargetDocument { text: text.to_owned(), ..WhyTargetDocument::default() };
    match target {
        WhyTarget::Step(step) => explain_step(explainer, step, document),
        WhyTarget::Lines { path, at, lines } => {
            let at = at.as_ref().map(|at| (**at).clone());
            let request = BlameRequest { path: path.clone(), at, lines: lines.clone() };
            explain_lines(explainer, &request, document)
        }
        WhyTarget::Item { session, item } => explain_item(explainer, session, *item, document),
        WhyTarget::Session(session) => explain_session(explainer, session, document),
    }
}

type Answer = (WhyTargetDocument, Vec<WhyExplanationDocument>);

fn explain_step(
    explainer: &mut Explainer<'_>,
    step: &StepRow,
    document: WhyTargetDocument,
) -> Result<Answer, ProvenanceError> {
    let workspace = explainer.workspace;
    let number = step.step.number;
    let mut explanations = Vec::new();
    let session = workspace.store().session(step.step.session)?;
    let mut document = WhyTargetDocument {
        kind: "step".to_owned(),
        node: format!("step-{number}"),
        step: Some(number),
        session: Some(step.step.session.to_string()),
        ..document
    };
    let nothing = || Explained::default();
    match (step.step.kind, start_of_call(workspace, step)?) {
        (_, Some(start)) => {
            document.node = format!("step-{}", start.step.number);
            explanations.extend(explainer.explain_turn(&start, nothing())?);
        }
        (StepKind::ModelEnd, _) => explanations.extend(explainer.explain_turn(step, nothing())?),
        (StepKind::ModelStart, _) => {
            let query = StepQuery {
                session: Some(step.step.session),
                kinds: vec![StepKind::ModelEnd],
                call: step.step.meta.call.clone(),
                after: Some(number),
                oldest_first: true,
                limit: Some(1),
                ..StepQuery::default()
            };
            match workspace.store().steps(workspace.record.id, &query)?.pop() {
                Some(end) => {
                    document.node = format!("step-{}", end.step.number);
                    explanations.extend(explainer.explain_turn(&end, nothing())?);
                }
                None => explainer.graph.note(format!("the model call #{number} has no recorded answer")),
            }
        }
        (StepKind::Reasoning, _) => {
            if let Some(session) = &session {
                let board = workspace.board_at(session, &BoardMoment::Step(number))?.board;
                let is_of_step =
                    |item: &ItemId| board.origin_of(*item).is_some_and(|origin| origin.step == step.step.id);
                let items =
                    stepback_reasoning::ItemKind::ALL.into_iter().flat_map(|kind| board.in_order(kind));
                for item in items.filter(is_of_step).take(MAX_EXPLANATIONS) {
                    let (_, found) = explain_item(explainer, session, item, WhyTargetDocument::default())?;
                    explanations.extend(found);
                }
            }
        }
        _ if step.is_checkpoint() => explanations = explain_checkpoint(explainer, step)?,
        _ => {}
    }
    if explanations.is_empty() {
        explanations.push(explain_plain_step(explainer, step)?);
    }
    explainer.graph.add(step_node("step", step, session.as_ref()));
    Ok((document, explanations))
}

/// Explains a checkpoint by the calls that made its changes.
fn explain_checkpoint(
    explainer: &mut Explainer<'_>,
    step: &StepRow,
) -> Result<Vec<WhyExplanationDocument>, ProvenanceError> {
    let workspace = explainer.workspace;
    let id = explainer.graph.add(step_node("step", step, None));
    let Some(changes) = changes_at(workspace, step)? else {
        explainer
            .graph
            .note(format!("the files before or after #{} were freed by a prune", step.step.number));
        return Ok(Vec::new());
    };
    let mut authors: Vec<(Author, ChangedText)> = Vec::new();
    for change in change::readable(&changes) {
        let attributed = workspace.attribute_change(&step.step, &change.path)?;
        let mut text = ChangedText::default();
        text.add_change(workspace, change)?;
        for author in attributed.who.candidates() {
            match authors.iter_mut().find(|(known, _)| known.step == author.step) {
                Some((_, known)) => {
                    known.new.push_str(&text.new);
                    known.old.push_str(&text.old);
                }
                None => authors.push((author.clone(), text.clone())),
            }
            let (rule, basis) = authorship_rule(&attributed);
            if let Some(call) = workspace.store().step(author.step)? {
                explainer.graph.link(&id, &format!("step-{}", call.step.number), "written-by", basis, rule);
            }
        }
        if attributed.who.candidates().is_empty() {
            let rule = format!(
                "{}: no call of an agent was running; you, or a program that reports nothing, changed it",
                change.path
            );
            explainer.graph.note(rule);
        }
    }
    let mut explanations = Vec::new();
    for (author, text) in authors.into_iter().take(MAX_EXPLANATIONS) {
        let Some(call) = workspace.store().step(author.step)? else { continue };
        let explained = Explained { chain: vec![id.clone()], text: Some(text), file: None };
        explanations.extend(explainer.explain_turn(&call, explained)?);
    }
    Ok(explanations)
}

/// Explains a step that no model asked for: by the prompt and the session that it belongs to.
fn explain_plain_step(
    explainer: &mut Explainer<'_>,
    step: &StepRow,
) -> Result<WhyExplanationDocument, ProvenanceError> {
    let workspace = explainer.workspace;
    let session = workspace.store().session(step.step.session)?;
    let is_prompt = step.step.kind == StepKind::UserInput;
    let kind = if is_prompt { "prompt" } else { "step" };
    let mut node = step_node(kind, step, session.as_ref());
    let detail = workspace.load_detail(&step.step)?.unwrap_or_default();
    node.text = node_text(&context::join_strings(&detail["input"]));
    let id = explainer.graph.add(node);
    let mut chain = vec![id.clone()];
    let prompt = detail["prompt"].as_str().and_then(StepId::from_hex);
    let prompt = prompt.map(|prompt| workspace.store().step(prompt)).transpose()?.flatten();
    if let Some(prompt) = prompt.filter(|prompt| prompt.step.id != step.step.id) {
        let prompt = explainer.graph.add(step_node("prompt", &prompt, session.as_ref()));
        explainer.graph.link(&id, &prompt, "prompted-by", Basis::Recorded, "the step names its prompt");
        chain.push(prompt);
    }
    if let Some(session) = &session {
        let session = explainer.graph.add(session_node(session));
        explainer.graph.link(&id, &session, "part-of", Basis::Recorded, "the step belongs to the session");
    }
    if is_prompt {
        explainer.graph.note(format!("#{} is a prompt: the chain begins with it", step.step.number));
    } else {
        explainer.graph.note(format!("#{} is not the call or answer of a model", step.step.number));
    }
    let context = stepback_api::why::WhyContextDocument {
        recorded_in: "none".to_owned(),
        ..stepback_api::why::WhyContextDocument::default()
    };
    Ok(WhyExplanationDocument { chain, context, ..WhyExplanationDocument::default() })
}

fn explain_lines(
    explainer: &mut Explainer<'_>,
    request: &BlameRequest,
    document: WhyTargetDocument,
) -> Result<Answer, ProvenanceError> {
    let found = blame(explainer.workspace, request)?;
    let path = found.path.to_string();
    let first = found.lines.first().map_or(0, |line| line.number as u64);
    let last = found.lines.last().map_or(0, |line| line.number as u64);
    let text: Vec<String> =
        found.lines.iter().map(|line| String::from_utf8_lossy(&line.text).into_owned()).collect();
    let place = if first == last { format!("{path}:{first}") } else { format!("{path}:{first},{last}") };
    let node = explainer.graph.add(WhyNodeDocument {
        id: "lines".to_owned(),
        kind: "lines".to_owned(),
        title: title(&place),
        text: node_text(&text.concat()),
        path: Some(path.clone()),
        ..WhyNodeDocument::default()
    });
    // Origins with more of the lines first.
    let mut order: Vec<(usize, Vec<usize>)> = (0..found.origins.len())
        .map(|origin| {
            (origin, (0..found.lines.len()).filter(|at| found.lines[*at].origin == origin).collect())
        })
        .collect();
    order.sort_by_key(|(origin, lines)| (std::cmp::Reverse(lines.len()), *origin));
    let mut explanations = Vec::new();
    for (index, lines) in order {
        let origin = &found.origins[index];
        let numbers = describe_lines(&found, &lines);
        let new: String = lines.iter().map(|at| text[*at].as_str()).collect();
        explain_origin(explainer, &node, origin, &numbers, new, &mut explanations)?;
    }
    let document = WhyTargetDocument {
        kind: "lines".to_owned(),
        node,
        path: Some(path),
        first_line: Some(first).filter(|line| *line > 0),
        last_line: Some(last).filter(|line| *line > 0),
        step: request.at.as_ref().map(|at| at.step.number),
        ..document
    };
    Ok((document, explanations))
}

fn explain_origin(
    explainer: &mut Explainer<'_>,
    lines: &str,
    origin: &LineOrigin,
    numbers: &str,
    new: String,
    explanations: &mut Vec<WhyExplanationDocument>,
) -> Result<(), ProvenanceError> {
    let authors = origin.who.candidates();
    let step =
        origin.step.as_ref().map_or_else(|| "now".to_owned(), |stored| format!("#{}", stored.step.number));
    let missing = match origin.kind {
        OriginKind::BeforeRecording => {
            Some("older than the recording; who wrote them is not recorded".to_owned())
        }
        OriginKind::Restored => {
            Some(format!("brought back by {step} from a version that is not on this line"))
        }
        _ if authors.is_empty() => Some(format!(
            "written by you or by a program that reports nothing ({step}): no call of an agent was running"
        )),
        _ if explanations.len() >= MAX_EXPLANATIONS => {
            Some(format!("not explained: this answer has {MAX_EXPLANATIONS} calls; ask for fewer lines"))
        }
        _ => None,
    };
    if let Some(missing) = missing {
        explainer.graph.note(format!("{numbers}: {missing}"));
        return Ok(());
    }
    let mut text = ChangedText { new, old: String::new() };
    if let Some(checkpoint) = &origin.step
        && let Some(change) = change_of_path(explainer.workspace, checkpoint, &origin.path)?
    {
        let mut whole = ChangedText::default();
        whole.add_change(explainer.workspace, &change)?;
        text.old = whole.old;
    }
    for author in authors.iter().take(MAX_EXPLANATIONS) {
        let Some(call) = explainer.workspace.store().step(author.step)? else { continue };
        let (basis, rule) = match (authors.len(), origin.is_named) {
            (1, true) => (Basis::Recorded, "the call names the file"),
            (1, false) => (Basis::Inferred, "only calls of this session were running"),
            _ => (Basis::Inferred, "several calls were running"),
        };
        let rule = format!("{numbers} first in {step}: {rule}");
        explainer.graph.link(lines, &format!("step-{}", call.step.number), "written-by", basis, &rule);
        let explained = Explained {
            chain: vec![lines.to_owned()],
            file: Some((origin.path.clone(), text.new.clone())),
            text: Some(text.clone()),
        };
        explanations.extend(explainer.explain_turn(&call, explained)?);
    }
    Ok(())
}

/// `line 4`, or `lines 4 to 7`, or `lines 4, 6, …`.
fn describe_lines(found: &Blame, lines: &[usize]) -> String {
    let numbers: Vec<usize> = lines.iter().map(|at| found.lines[*at].number).collect();
    match numbers.as_slice() {
        [] => "no line".to_owned(),
        [one] => format!("line {one}"),
        [first, .., last] if last - first + 1 == numbers.len() => format!("lines {first} to {last}"),
        several => {
            let shown: Vec<String> = several.iter().take(5).map(usize::to_string).collect();
            let more = if several.len() > 5 { ", …" } else { "" };
            format!("lines {}{more}", shown.join(", "))
        }
    }
}

fn explain_item(
    explainer: &mut Explainer<'_>,
    session: &Session,
    item: ItemId,
    document: WhyTargetDocument,
) -> Result<Answer, ProvenanceError> {
    let workspace = explainer.workspace;
    let board = workspace.board_at(session, &BoardMoment::Now)?.board;
    let missing =
        || ProvenanceError::NoItem { item: item.to_string(), session: session.id.short().to_string() };
    let origin = board.origin_of(item).cloned().ok_or_else(missing)?;
    let statement = board.text_of(item);
    let mut node = WhyNodeDocument {
        id: format!("item-{item}"),
        kind: "item".to_owned(),
        title: title(&format!("{} {item}: {statement}", item.kind.noun())),
        text: node_text(&statement),
        session: Some(session.id.to_string()),
        agent: Some(session.agent.clone()),
        item: Some(item.to_string()),
        at: Some(origin.at),
        ..WhyNodeDocument::default()
    };
    let recorded = workspace.store().step(origin.step)?;
    node.step = recorded.as_ref().map(|stored| stored.step.number);
    let id = explainer.graph.add(node);
    board::link_support(workspace, &mut explainer.graph, &board, item)?;
    let during = origin.during.map(|during| workspace.store().step(during)).transpose()?.flatten();
    let mut explanations = Vec::new();
    let text = ChangedText { new: statement, old: String::new() };
    match during {
        Some(call) => {
            let rule = "the item was put on the board during the call";
            let call_id = format!("step-{}", call.step.number);
            explainer.graph.link(&id, &call_id, "recorded-during", Basis::Recorded, rule);
            let explained = Explained { chain: vec![id.clone()], text: Some(text), file: None };
            explanations.extend(explainer.explain_turn(&call, explained)?);
        }
        None => {
            if let Some(stored) = recorded {
                let step = explainer.graph.add(step_node("step", &stored, Some(session)));
                explainer.graph.link(
                    &id,
                    &step,
                    "part-of",
                    Basis::Recorded,
                    "the step put the item on the board",
                );
                let mut explanation = explain_plain_step(explainer, &stored)?;
                explanation.chain.insert(0, id.clone());
                explanations.push(explanation);
            }
            explainer.graph.note(format!("{item} was put on the board outside a call"));
        }
    }
    let document = WhyTargetDocument {
        kind: "item".to_owned(),
        node: id,
        item: Some(item.to_string()),
        session: Some(session.id.to_string()),
        ..document
    };
    Ok((document, explanations))
}

/// Explains a session: its prompts, the session that it was forked from, and its newest changes.
fn explain_session(
    explainer: &mut Explainer<'_>,
    session: &Session,
    document: WhyTargetDocument,
) -> Result<Answer, ProvenanceError> {
    let workspace = explainer.workspace;
    let node = explainer.graph.add(session_node(session));
    let steps = |kind: StepKind, checkpoint: Option<bool>, limit: u64| {
        let query = StepQuery {
            session: Some(session.id),
            kinds: vec![kind],
            checkpoint,
            limit: Some(limit),
            ..StepQuery::default()
        };
        workspace.store().steps(session.workspace, &query)
    };
    for prompt in steps(StepKind::UserInput, None, MAX_PROMPTS)?.into_iter().rev() {
        let prompt = explainer.graph.add(step_node("prompt", &prompt, Some(session)));
        explainer.graph.link(
            &node,
            &prompt,
            "prompted-by",
            Basis::Recorded,
            "the prompt belongs to the session",
        );
    }
    if let Some((parent, at)) = session.info.forked_from
        && let Some(parent) = workspace.store().session(parent)?
    {
        let number = workspace.store().step(at)?.map_or(0, |stored| stored.step.number);
        let parent = explainer.graph.add(session_node(&parent));
        let rule = format!("the session continues the other one from #{number}");
        explainer.graph.link(&node, &parent, "part-of", Basis::Recorded, &rule);
    }
    let limit = MAX_EXPLANATIONS as u64 + 1;
    let mut changing = steps(StepKind::ToolEnd, Some(true), limit)?;
    if changing.len() > MAX_EXPLANATIONS {
        explainer
            .graph
            .note(format!("only the newest {MAX_EXPLANATIONS} calls that changed files are explained"));
        changing.truncate(MAX_EXPLANATIONS);
    }
    let mut explanations = Vec::new();
    for end in changing {
        let Some(call) = start_of_call(workspace, &end)? else { continue };
        let explained = Explained::default();
        explanations.extend(explainer.explain_turn(&call, explained)?);
    }
    if explanations.is_empty() {
        explainer.graph.note("no call of the session is known to have changed files");
    }
    let document = WhyTargetDocument {
        kind: "session".to_owned(),
        node,
        session: Some(session.id.to_string()),
        ..document
    };
    Ok((document, explanations))
}
