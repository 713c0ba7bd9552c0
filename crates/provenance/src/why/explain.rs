//! Explains one call, answer or item: the chain back to the prompt, the sources of its words, and the items of the board.

use stepback_api::why::{WhyExplanationDocument, WhyNodeDocument};
use stepback_engine::Workspace;
use stepback_engine::authorship::AttributedChange;
use stepback_model::change::PathChange;
use stepback_model::path::RelPath;
use stepback_model::record::{StepKind, StepRow};

use super::board::link_items;
use super::change::{ChangedText, changes_at, readable};
use super::evidence::{Evidence, FoundEvidence, find_evidence};
use super::graph::{Basis, GraphBuilder, node_text, session_node, step_node, title};
use super::trust::Judge;
use super::turn::Turn;
use super::words::Query;
use crate::error::ProvenanceError;

/// The most files that are nodes of one call.
const MAX_CHANGE_NODES: usize = 20;

/// A node of a change, with the rule by which the call is its author, and whether that is recorded.
type ChangeLink = (String, String, Basis);

/// A file that a call changed, and its node in the graph.
type ChangedFile = (RelPath, String);

/// Builds explanations into one graph.
pub(crate) struct Explainer<'w> {
    pub workspace: &'w Workspace,
    pub graph: GraphBuilder,
    pub judge: Judge<'w>,
    /// What the explanations were made of.
    pub kept: Vec<Kept>,
}

/// What an explanation was made of, for a rerun without one of its sources.
pub(crate) struct Kept {
    /// The turn.
    pub turn: Turn,
    /// The words of the change.
    pub query: Query,
    /// The sources, in the order of the answer.
    pub sources: Vec<Evidence>,
    /// What was added to each file.
    pub files: Vec<(RelPath, String)>,
}

/// What is explained: where the chain begins, and whose words are looked for.
#[derive(Default)]
pub(crate) struct Explained {
    /// The nodes before the call or answer, from the effect on.
    pub chain: Vec<String>,
    /// Its words; those of the call if there are none.
    pub text: Option<ChangedText>,
    /// The file that has the words, if they are lines of one.
    pub file: Option<(RelPath, String)>,
}

impl<'w> Explainer<'w> {
    pub(crate) fn new(workspace: &'w Workspace) -> Self {
        Self { workspace, graph: GraphBuilder::default(), judge: Judge::new(workspace), kept: Vec::new() }
    }

    /// Explains a call, from the step at which it began, or an answer of a model.
    pub(crate) fn explain_turn(
        &mut self,
        step: &StepRow,
        explained: Explained,
    ) -> Result<Option<WhyExplanationDocument>, ProvenanceError> {
        let Some(turn) = Turn::of_step(self.workspace, step)? else {
            self.graph.note(format!("the session of #{} is not recorded", step.step.number));
            return Ok(None);
        };
        let is_call = step.step.kind == StepKind::ToolStart;
        let mut text = explained.text;
        let (changed, files) =
            if is_call { self.add_changes(&turn, &mut text)? } else { (Vec::new(), Vec::new()) };
        let mut chain = explained.chain;
        let mut turn_node = None;
        if is_call {
            let call = self.graph.add(call_node(&turn));
            for (change, rule, basis) in &changed {
                self.graph.link(change, &call, "written-by", *basis, rule);
            }
            if chain.is_empty() {
                chain.extend(changed.first().map(|(change, ..)| change.clone()));
            }
            chain.push(call.clone());
            if let Some(model) = self.add_model_turn(&turn, &call) {
                chain.push(model.clone());
                turn_node = Some(model);
            }
        } else {
            let node = answer_node(&turn, step);
            let id = self.graph.add(node);
            chain.push(id.clone());
            turn_node = Some(id);
        }
        let from = turn_node.or_else(|| chain.last().cloned()).unwrap_or_default();
        self.add_prompt(&turn, &from, &mut chain);
        let text = text.unwrap_or_else(|| words_of_turn(&turn, is_call));
        let query = Query::new(&text.new, &text.old);
        let found = find_evidence(self.workspace, &mut self.judge, &turn, &query)?;
        let sources = self.add_sources(&turn, &found, &from);
        let cited_in = format!("{}\n{}\n{}", turn.said, turn.thought, text.new);
        let board = link_items(self.workspace, &mut self.graph, &turn, &from, &cited_in)?;
        self.add_notes(&turn, &found);
        let explanation =
            WhyExplanationDocument { chain, sources, board, words: found.words, context: found.context };
        let files = explained.file.map_or(files, |file| vec![file]);
        self.kept.push(Kept { turn, query, sources: found.sources, files });
        Ok(Some(explanation))
    }

    /// Adds a node for each file that a call changed, and the words of the change if none are given.
    fn add_changes(
        &mut self,
        turn: &Turn,
        text: &mut Option<ChangedText>,
    ) -> Result<(Vec<ChangeLink>, Vec<ChangedFile>), ProvenanceError> {
        let Some(end) = turn.end.as_ref().filter(|end| end.is_checkpoint()) else {
            return Ok(Default::default());
        };
        let Some(changes) = changes_at(self.workspace, end)? else {
            self.graph.note(format!("the files before or after #{} were freed by a prune", end.step.number));
            return Ok(Default::default());
        };
        let (mut nodes, mut files) = (Vec::new(), Vec::new());
        let mut own = ChangedText::default();
        for change in readable(&changes) {
            let attributed = self.workspace.attribute_change(&end.step, &change.path)?;
            if !attributed.who.candidates().iter().any(|author| author.step == turn.step.step.id) {
                continue;
            }
            let mut added = ChangedText::default();
            added.add_change(self.workspace, change)?;
            own.new.push_str(&added.new);
            own.old.push_str(&added.old);
            files.push((change.path.clone(), added.new));
            if nodes.len() < MAX_CHANGE_NODES {
                let node = self.graph.add(change_node(end, change));
                let (rule, basis) = authorship_rule(&attributed);
                nodes.push((node, rule.to_owned(), basis));
            }
        }
        if text.is_none() && !own.new.trim().is_empty() {
            // A command's own words count too; an edit repeats its change in its input.
            let is_command = ["command", "cmd"].iter().any(|field| !turn.input[*field].is_null());
            if is_command {
                own.add_input(&turn.input);
            }
            *text = Some(own);
        }
        Ok((nodes, files))
    }

    /// Adds the node of the turn that made a call, if anything of it is recorded.
    fn add_model_turn(&mut self, turn: &Turn, call: &str) -> Option<String> {
        let iteration = turn.step.step.meta.iteration;
        let is_recorded = turn.answer.is_some() || !turn.said.is_empty() || !turn.thought.is_empty();
        if !is_recorded && iteration == 0 {
            self.graph.note(format!("the model's answer before #{} is not recorded", turn.step.step.number));
            return None;
        }
        let said = title(&turn.said);
        let mut node = match &turn.answer {
            Some(answer) => step_node("model-turn", &answer.step, Some(&turn.session)),
            None => WhyNodeDocument {
                id: format!("turn-{}", turn.step.step.number),
                kind: "model-turn".to_owned(),
                session: Some(turn.session.id.to_string()),
                agent: Some(turn.session.agent.clone()),
                worker: turn.worker.clone(),
                ..WhyNodeDocument::default()
            },
        };
        node.title = match (said.is_empty(), iteration) {
            (false, _) => said,
            (true, 0) => "the model's answer".to_owned(),
            (true, iteration) => format!("model turn {iteration}"),
        };
        node.text = node_text(&turn.said);
        node.thinking = node_text(&turn.thought);
        let (basis, rule) = match &turn.answer {
            Some(answer) if answer.names_call => (Basis::Recorded, "the answer names the call's id"),
            Some(_) => (Basis::Inferred, "the last recorded answer before the call in the same turn"),
            None if !turn.said.is_empty() || !turn.thought.is_empty() => {
                (Basis::Recorded, "the answer in the conversation names the call's id")
            }
            None => {
                (Basis::Recorded, "the step has the number of the turn; what the model said is not recorded")
            }
        };
        let id = self.graph.add(node);
        self.graph.link(call, &id, "requested-by", basis, rule);
        Some(id)
    }

    /// Adds the prompt of a turn, and the session.
    pub(crate) fn add_prompt(&mut self, turn: &Turn, from: &str, chain: &mut Vec<String>) {
        let session = self.graph.add(session_node(&turn.session));
        let Some(prompt) = &turn.prompt else {
            self.graph.note(format!("no prompt is recorded before #{}", turn.step.step.number));
            self.graph.link(from, &session, "part-of", Basis::Recorded, "the step belongs to the session");
            return;
        };
        let id = self.add_prompt_node(prompt, turn);
        self.graph.link(from, &id, "prompted-by", Basis::Recorded, "the step names its prompt");
        self.graph.link(&id, &session, "part-of", Basis::Recorded, "the step belongs to the session");
        chain.push(id);
    }

    fn add_prompt_node(&mut self, prompt: &StepRow, turn: &Turn) -> String {
        let mut node = step_node("prompt", prompt, Some(&turn.session));
        if let Ok(detail) = self.workspace.load_detail(&prompt.step) {
            let text = super::context::join_strings(&detail.unwrap_or_default()["input"]);
            node.text = node_text(&text);
        }
        self.graph.add(node)
    }

    /// Adds a node for each source; returns their ids.
    fn add_sources(&mut self, turn: &Turn, found: &FoundEvidence, from: &str) -> Vec<String> {
        let ids: Vec<String> = found.sources.iter().map(|_| self.graph.next_source_id()).collect();
        for (source, id) in found.sources.iter().zip(&ids) {
            let run = source.document.runs.first().map(|run| run.text.clone()).unwrap_or_default();
            let judged = &source.judged;
            let step = judged.step.as_ref().map(|stored| &stored.step);
            self.graph.add(WhyNodeDocument {
                id: id.clone(),
                kind: "source".to_owned(),
                title: source_title(source.document.kind.as_str(), judged, &run),
                text: node_text(&source.document.place.excerpt),
                step: step.map(|step| step.number),
                session: step.map(|step| step.session.to_string()),
                tool: judged.tool.clone(),
                path: judged.path.clone(),
                at: step.map(|step| step.at),
                source: Some(source.document.clone()),
                ..WhyNodeDocument::default()
            });
            let rule = format!("they share the words \"{}\"", title(&run));
            self.graph.link(from, id, "words-from", Basis::Inferred, &rule);
            if let Some(prompt) = turn.prompt.as_ref()
                && step.is_some_and(|step| step.id == prompt.step.id)
            {
                let prompt = format!("step-{}", prompt.step.number);
                self.graph.link(id, &prompt, "part-of", Basis::Recorded, "it is the prompt");
            }
            if let Some(origin) = found.origin_of_own(source) {
                let rule = "the source was seen before and has at least half of the same words";
                self.graph.link(id, &ids[origin], "words-from", Basis::Inferred, rule);
            }
        }
        ids
    }

    fn add_notes(&mut self, turn: &Turn, found: &FoundEvidence) {
        let number = turn.step.step.number;
        if found.words.decisive == 0 {
            self.graph.note(format!("#{number} has no decisive words, so no source was looked for"));
        } else if found.context.recorded_in == "none" {
            self.graph.note(format!("what the model had seen before #{number} is not recorded"));
        } else if turn.request.is_none() {
            self.graph.note(
                "the request of the model call is not recorded, so instructions that are not in the conversation were not searched",
            );
        }
        if found.context.truncated {
            self.graph.note("older texts were not searched, because there are too many");
        }
        if found.words.truncated {
            self.graph.note("only the first 20,000 words of the change were looked for");
        }
    }
}

/// The words of a call's input, or of an answer.
fn words_of_turn(turn: &Turn, is_call: bool) -> ChangedText {
    let mut text = ChangedText::default();
    match is_call {
        true => text.add_input(&turn.input),
        false => text.new.clone_from(&turn.said),
    }
    text
}

fn call_node(turn: &Turn) -> WhyNodeDocument {
    let mut node = step_node("call", &turn.step, Some(&turn.session));
    let input = super::context::join_strings(&turn.input);
    node.text = node_text(&input);
    node.path = stepback_agents::tools::named_paths(&turn.input).into_iter().next();
    node
}

fn answer_node(turn: &Turn, step: &StepRow) -> WhyNodeDocument {
    let mut node = step_node("model-turn", step, Some(&turn.session));
    node.text = node_text(&turn.said);
    node.thinking = node_text(&turn.thought);
    node
}

fn change_node(end: &StepRow, change: &PathChange) -> WhyNodeDocument {
    let path = change.path.to_string();
    WhyNodeDocument {
        id: format!("change-{}-{path}", end.step.number),
        kind: "change".to_owned(),
        title: format!("{} {path}", change.kind().as_str()),
        step: Some(end.step.number),
        session: Some(end.step.session.to_string()),
        path: Some(path),
        at: Some(end.step.at),
        ..WhyNodeDocument::default()
    }
}

/// By which rule a call is the author of a change.
pub(crate) fn authorship_rule(attributed: &AttributedChange) -> (&'static str, Basis) {
    match (attributed.who.candidates().len(), attributed.is_named) {
        (1, true) => ("the call names the file", Basis::Recorded),
        (1, false) => ("only calls of this session were running", Basis::Inferred),
        _ => ("several calls were running", Basis::Inferred),
    }
}

fn source_title(kind: &str, judged: &super::trust::Judgement, run: &str) -> String {
    let about = judged.path.as_deref().or(judged.url.as_deref()).or(judged.tool.as_deref());
    match about {
        Some(about) => title(&format!("{kind} {about}: {}", title(run))),
        None => title(&format!("{kind}: {}", title(run))),
    }
}
