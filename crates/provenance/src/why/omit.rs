//! A change without one of its sources: what a rerun has to leave out, and how it is seen whether the change still comes.

use serde_json::Value;
use stepback_agents::tools::named_paths;
use stepback_engine::Workspace;
use stepback_llm_wire::recorded_call::CallUsage;
use stepback_model::path::RelPath;
use stepback_model::record::{Session, StepKind, StepRow};
use stepback_store::port::StepQuery;

use super::change::ChangedText;
use super::context::Speaker;
use super::evidence::Evidence;
use super::explain::Kept;
use super::{Explainer, WhyTarget, answer_target};
use crate::error::ProvenanceError;

/// How it is decided whether a change came, in words.
pub const CAME: &str = "The change came if at the end of the rerun the file has every line of the change that has words of the source; for a call that changed no file, if a call of the same tool has the same input but for paths.";

/// What a rerun without a source needs.
#[derive(Clone, Debug)]
pub struct Omission {
    /// The session that is run again.
    pub session: Session,
    /// The point from which it is run again.
    pub from: StepRow,
    /// What is changed, as `rerun --set` takes it.
    pub set: String,
    /// What the source is.
    pub source: String,
    /// The lines that are left out.
    pub removed: Vec<String>,
    /// How many answers of a model were recorded from there on: about as many a run needs.
    pub expected_calls: u64,
    /// What those cost, in millionths of a dollar; `None` if it is not known of each.
    pub expected_cost: Option<u64>,
    /// How it is seen whether the change came.
    pub check: ChangeCheck,
}

/// How it is seen whether a change came.
#[derive(Clone, Debug, Default)]
pub struct ChangeCheck {
    /// The lines that each file must have.
    pub files: Vec<(RelPath, Vec<String>)>,
    /// The tool and the words of the call, if it changed no file.
    pub call: Option<(String, String)>,
}

/// Finds what a rerun must leave out so that the model does not see a source of a change, counted from 1 as the answer lists
/// them.
pub fn omit(workspace: &Workspace, target: &WhyTarget, source: usize) -> Result<Omission, ProvenanceError> {
    let mut explainer = Explainer::new(workspace);
    answer_target(&mut explainer, target, "")?;
    let refuse = |reason: String| ProvenanceError::NoOmission { reason };
    let count = explainer.kept.len();
    let Some(kept) = explainer.kept.pop().filter(|_| count == 1) else {
        let reason = format!("the answer explains {count} calls; name one of them, such as #12");
        return Err(refuse(reason));
    };
    let listed = kept.sources.len();
    let evidence = source.checked_sub(1).and_then(|index| kept.sources.get(index));
    let evidence =
        evidence.ok_or_else(|| refuse(format!("there is no source {source}: {listed} are listed")))?;
    if kept.turn.request.is_none()
        || evidence.seen.message.is_none() && evidence.seen.speaker != Speaker::System
    {
        let reason = "the request of the model call was not recorded, so nothing can be left out of it";
        return Err(refuse(reason.to_owned()));
    }
    if !evidence.seen.in_context {
        return Err(refuse("the source had left the context: the model no longer saw it".to_owned()));
    }
    let (remaining, removed) = remove_lines(evidence);
    let (set, from) = change_of(workspace, &kept, evidence, &remaining)?;
    let (expected_calls, expected_cost) = expected_calls(workspace, &kept.turn.session, &from)?;
    Ok(Omission {
        check: check_of(&kept, evidence),
        session: kept.turn.session.clone(),
        source: evidence.judged.path.clone().unwrap_or_else(|| evidence.judged.kind.to_owned()),
        from,
        set,
        removed,
        expected_calls,
        expected_cost,
    })
}

/// The text of a source without the lines in which its runs stand, and those lines.
fn remove_lines(evidence: &Evidence) -> (String, Vec<String>) {
    let (mut remaining, mut removed, mut at) = (String::new(), Vec::new(), 0);
    for line in evidence.seen.text.split_inclusive('\n') {
        let range = at..at + line.len();
        at = range.end;
        let is_hit = evidence.runs.iter().any(|run| run.start < range.end && range.start < run.end);
        match is_hit {
            true => removed.push(line.trim_end_matches(['\r', '\n']).to_owned()),
            false => remaining.push_str(line),
        }
    }
    if remaining.trim().is_empty() {
        remaining = "(empty)".to_owned();
    }
    (remaining, removed)
}

/// The change of a rerun that replaces a source, and the step from which it is run again.
fn change_of(
    workspace: &Workspace,
    kept: &Kept,
    evidence: &Evidence,
    remaining: &str,
) -> Result<(String, StepRow), ProvenanceError> {
    let text = Value::from(remaining).to_string();
    let step = evidence.judged.step.clone();
    Ok(match (evidence.judged.kind, evidence.seen.speaker, step) {
        (_, Speaker::Result, Some(step)) => (format!("#{}.output={text}", step.step.number), step),
        ("prompt", _, Some(step)) => {
            let query = StepQuery {
                session: Some(step.step.session),
                kinds: vec![StepKind::UserInput],
                before: Some(step.step.number),
                ..StepQuery::default()
            };
            let index = workspace.store().steps(workspace.record.id, &query)?.len();
            (format!("prompt[{index}]={text}"), step)
        }
        (_, Speaker::System, _) => {
            let from = kept.turn.prompt.clone().unwrap_or_else(|| kept.turn.step.clone());
            (format!("system={text}"), from)
        }
        (kind, ..) => {
            return Err(ProvenanceError::NoOmission {
                reason: format!(
                    "a source of the kind {kind} cannot be left out by itself; \"stepback rerun --set 'messages[N].content=…'\" changes any message"
                ),
            });
        }
    })
}

/// How many answers of a model were recorded from a step on, and what they cost.
fn expected_calls(
    workspace: &Workspace,
    session: &Session,
    from: &StepRow,
) -> Result<(u64, Option<u64>), ProvenanceError> {
    let query = StepQuery {
        session: Some(session.id),
        kinds: vec![StepKind::ModelEnd],
        after: Some(from.step.number),
        ..StepQuery::default()
    };
    let (mut calls, mut cost) = (0_u64, Some(0_u64));
    for stored in workspace.store().steps(workspace.record.id, &query)? {
        calls += 1;
        let detail = workspace.load_detail(&stored.step)?.unwrap_or_default();
        let dollars = CallUsage::of(&detail).and_then(|usage| usage.cost_usd).filter(|cost| *cost >= 0.0);
        cost = cost.zip(dollars).map(|(sum, dollars)| sum.saturating_add((dollars * 1e6) as u64));
    }
    Ok((calls, cost.filter(|_| calls > 0)))
}

fn check_of(kept: &Kept, evidence: &Evidence) -> ChangeCheck {
    let has_word =
        |line: &str| !kept.query.decisive_in(line).iter().all(|word| !evidence.words.contains(word));
    let mut files = Vec::new();
    for (path, text) in &kept.files {
        let lines: Vec<String> =
            text.lines().map(|line| line.trim().to_owned()).filter(|line| has_word(line)).collect();
        if !lines.is_empty() {
            files.push((path.clone(), lines));
        }
    }
    let call = files.is_empty().then(|| {
        let tool = kept.turn.step.step.meta.tool.clone().unwrap_or_default();
        (tool, words_of_input(&kept.turn.input))
    });
    ChangeCheck { files, call }
}

/// What a call passes to its tool, without paths.
fn words_of_input(input: &Value) -> String {
    let mut text = ChangedText::default();
    text.add_input(input);
    for path in named_paths(input) {
        text.new = text.new.replace(&path, "");
    }
    text.new
}

/// Whether a change came in a rerun, whose files are those of `tip`; `scratch` is the workspace that it ran in.
pub fn came(
    workspace: &Workspace,
    tip: &StepRow,
    rerun: Option<(&Workspace, &Session)>,
    check: &ChangeCheck,
) -> Result<bool, ProvenanceError> {
    if let Some((tool, words)) = &check.call {
        let Some((scratch, session)) = rerun else { return Ok(false) };
        let query = StepQuery {
            session: Some(session.id),
            kinds: vec![StepKind::ToolStart],
            tool: Some(tool.clone()),
            ..StepQuery::default()
        };
        for stored in scratch.store().steps(scratch.record.id, &query)? {
            let detail = scratch.load_detail(&stored.step)?.unwrap_or_default();
            if words_of_input(&detail["input"]) == *words {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    let state = workspace.load_state(tip)?;
    for (path, lines) in &check.files {
        let Some((_, bytes)) = workspace.read_path(&state, path)? else { return Ok(false) };
        let text = String::from_utf8_lossy(&bytes);
        let present: std::collections::HashSet<&str> = text.lines().map(str::trim).collect();
        if !lines.iter().all(|line| present.contains(line.as_str())) {
            return Ok(false);
        }
    }
    Ok(true)
}
