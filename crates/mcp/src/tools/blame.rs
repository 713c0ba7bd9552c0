//! Explains why something is as it is: from a file to the calls that changed it and the hypotheses they tested; from an
//! item of the board to its origin.

use serde_json::{Value, json};
use stepback_engine::authorship::{Attribution, Author};
use stepback_engine::board::BoardMoment;
use stepback_engine::changes::NumberedChange;
use stepback_engine::path_filter::PathFilter;
use stepback_model::ids::StepId;
use stepback_reasoning::item::{EvidenceOrigin, HypothesisStatus};
use stepback_reasoning::{ItemId, ItemKind, ReasoningBoard};

use super::{Args, READ_ONLY, Tool, ToolReply, first_line, limit_schema, page_limit};
use crate::schema::{array, integer, object, string, string_array};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn why_tool() -> Tool {
    Tool {
        name: "why",
        title: "Why is it so?",
        description: "Why a file is as it is: each change with the call that made it, the prompt it was for and the hypotheses that were being tested. Or where an item of the board comes from.",
        input: object(
            &[
                ("path", string("A file, directory or glob")),
                ("item", string("Or an item of the board, such as H2")),
                ("limit", limit_schema(10, 200)),
            ],
            &[],
        ),
        output: object(
            &[
                (
                    "changes",
                    array(
                        "The newest first",
                        object(
                            &[
                                ("change", integer("Its number, for rewind_plan")),
                                ("path", string("")),
                                ("what", string("created, modified, deleted, …")),
                                ("step", integer("The checkpoint that first has it")),
                                ("by", string("")),
                                ("call", string("")),
                                ("call_step", integer("The step at which that began")),
                                ("prompt", string("")),
                                ("testing", string_array("Hypotheses that were being tested")),
                                ("taken_back", string("A later rewind took it back")),
                            ],
                            &["change", "path", "what", "by"],
                        ),
                    ),
                ),
                ("origin", string_array("Where the item comes from, the oldest first")),
            ],
            &[],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: false,
        run: |context, args| match (args.text("path"), args.optional_item("item")?) {
            (Some(path), None) => explain_path(context, args, path),
            (None, Some(item)) => explain_item(context, args, item),
            _ => Err(ToolError::new("specify either path or item")),
        },
    }
}

fn explain_path(context: &ToolContext<'_>, args: &Args, path: &str) -> Result<ToolReply, ToolError> {
    let filter = PathFilter::new(&[context.relative_path(path)])?;
    let mut changes = context.workspace.numbered_changes(None)?;
    changes.retain(|numbered| {
        let old_path = numbered.change.from.as_ref();
        filter.matches(&numbered.change.path) || old_path.is_some_and(|old_path| filter.matches(old_path))
    });
    let (mut documents, mut lines) = (Vec::new(), Vec::new());
    for numbered in changes.iter().rev().take(page_limit(args, 10)) {
        let (document, line) = describe_change(context, numbered)?;
        documents.push(document);
        lines.push(line);
    }
    if lines.is_empty() {
        lines.push(format!("No change of {} is recorded.", first_line(path, 200)));
    }
    Ok(ToolReply { text: lines.join("\n"), structured: json!({ "changes": documents }) })
}

fn describe_change(
    context: &ToolContext<'_>,
    numbered: &NumberedChange,
) -> Result<(Value, String), ToolError> {
    let kind = numbered.change.kind().as_str();
    let by = match &numbered.who {
        Attribution::Unreported => "the user, or a program that is not recorded".to_owned(),
        Attribution::Call(author) => describe_author(context, author)?,
        Attribution::OneOf(several) => {
            let names: Vec<String> =
                several.iter().map(|author| describe_author(context, author)).collect::<Result<_, _>>()?;
            format!("one of {}", names.join(", "))
        }
    };
    let mut document = json!({
        "change": numbered.number,
        "path": numbered.change.path.display(),
        "what": kind,
        "by": by,
    });
    let step = numbered.step.map_or("now".to_owned(), |(_, number)| format!("#{number}"));
    let mut line = format!("change {} at {step}: {kind} {} by {by}", numbered.number, numbered.change.path);
    if let Some((_, number)) = numbered.step {
        document["step"] = json!(number);
    }
    if let Attribution::Call(author) = &numbered.who {
        if let Some(call) = context.workspace.store().step(author.step)? {
            let summary = first_line(&call.step.summary, 200);
            line.push_str(&format!("\n  in #{}: {summary}", call.step.number));
            document["call"] = json!(summary);
            document["call_step"] = json!(call.step.number);
            let testing = hypotheses_tested_at(context, author, call.step.number)?;
            if !testing.is_empty() {
                line.push_str(&format!("\n  while testing {}", testing.join("; ")));
                document["testing"] = json!(testing);
            }
        }
        let prompt =
            author.prompt.map(|prompt| context.workspace.store().step(prompt)).transpose()?.flatten();
        if let Some(prompt) = prompt {
            let summary = first_line(&prompt.step.summary, 200);
            line.push_str(&format!("\n  asked for by: {summary}"));
            document["prompt"] = json!(summary);
        }
    }
    if numbered.taken_back {
        line.push_str("\n  taken back by a later rewind");
        document["taken_back"] = json!("by a later rewind");
    }
    Ok((document, line))
}

fn describe_author(context: &ToolContext<'_>, author: &Author) -> Result<String, ToolError> {
    let session = context.workspace.store().session(author.session)?;
    let agent = session.map_or_else(|| "an agent".to_owned(), |session| session.agent);
    let tool = author.tool.as_deref().unwrap_or("a call");
    Ok(format!("{agent} {} ({tool})", author.session.short()))
}

/// The hypotheses that the author of a call was testing at that time.
fn hypotheses_tested_at(
    context: &ToolContext<'_>,
    author: &Author,
    number: u64,
) -> Result<Vec<String>, ToolError> {
    let Some(session) = context.workspace.store().session(author.session)? else { return Ok(Vec::new()) };
    let mind = context.workspace.board_at(&session, &BoardMoment::Step(number))?.board;
    let testing =
        mind.hypotheses.iter().filter(|(_, hypothesis)| hypothesis.status == HypothesisStatus::Testing);
    Ok(testing
        .map(|(number, hypothesis)| format!("H{number} {}", first_line(&hypothesis.statement, 120)))
        .collect())
}

fn explain_item(context: &ToolContext<'_>, args: &Args, item: ItemId) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    let mind = context.workspace.board_at(&session, &BoardMoment::Now)?.board;
    let Some(origin) = mind.origin_of(item) else {
        return Err(ToolError::new(format!("there is no {} {item} on the board", item.kind.noun()))
            .with_hint("call mind to see what there is"));
    };
    let mut lines = vec![format!(
        "{item} was put on the board {}",
        describe_origin(context, origin.step, origin.during)?
    )];
    lines.extend(list_reasons(context, &mind, item)?);
    lines.truncate(page_limit(args, 10) + 1);
    Ok(ToolReply { text: lines.join("\n"), structured: json!({ "origin": lines }) })
}

/// `at #12, during #11: …`
fn describe_origin(
    context: &ToolContext<'_>,
    step: StepId,
    during: Option<StepId>,
) -> Result<String, ToolError> {
    let store = context.workspace.store();
    let step_row = match store.step(step)? {
        Some(stored) => {
            let step = stored.step;
            format!("at #{}, {}", step.number, step.at.ago(context.now))
        }
        None => "at a step that is not known".to_owned(),
    };
    let during = during.map(|during| store.step(during)).transpose()?.flatten();
    Ok(match during {
        Some(call) => {
            let call = call.step;
            format!("{step_row}, during #{}: {}", call.number, first_line(&call.summary, 120))
        }
        None => step_row,
    })
}

/// What an item is based on, and how it ended.
fn list_reasons(
    context: &ToolContext<'_>,
    mind: &ReasoningBoard,
    item: ItemId,
) -> Result<Vec<String>, ToolError> {
    let mut lines = Vec::new();
    match item.kind {
        ItemKind::Hypothesis => {
            for (number, evidence) in
                mind.evidence.iter().filter(|(_, entry)| ItemId::from(entry.hypothesis) == item)
            {
                let source = describe_source(context, &evidence.source)?;
                let withdrawn = if evidence.withdrawn.is_some() { " (withdrawn)" } else { "" };
                lines.push(format!(
                    "E{number} {:+} {}{withdrawn}, from {source}",
                    evidence.strength,
                    first_line(&evidence.text, 160)
                ));
            }
            if let Some(entry) = mind.hypotheses.get(item.number) {
                if let Some(changed) = &entry.changed {
                    let origin = describe_origin(context, changed.step, changed.during)?;
                    lines.push(format!("{} {origin}", entry.status.as_str()));
                }
                lines
                    .extend(entry.reason.iter().map(|reason| format!("because {}", first_line(reason, 200))));
            }
        }
        ItemKind::Evidence => {
            if let Some(entry) = mind.evidence.get(item.number) {
                lines.push(format!(
                    "about {}, from {}",
                    entry.hypothesis,
                    describe_source(context, &entry.source)?
                ));
            }
        }
        ItemKind::Belief => {
            let depends =
                mind.beliefs.get(item.number).map(|entry| entry.depends.as_slice()).unwrap_or_default();
            lines.extend(depends.iter().map(|dependency| {
                let reason = dependency
                    .reason
                    .as_deref()
                    .map_or(String::new(), |reason_text| format!(": {}", first_line(reason_text, 120)));
                format!("{} {}{reason}", dependency.kind.verb(), dependency.on)
            }));
        }
        _ => {}
    }
    Ok(lines)
}

fn describe_source(context: &ToolContext<'_>, source: &EvidenceOrigin) -> Result<String, ToolError> {
    Ok(match source {
        EvidenceOrigin::Tool { step: Some(step), .. } => match context.workspace.store().step(*step)? {
            Some(stored) => {
                let step = stored.step;
                format!("#{}: {}", step.number, first_line(&step.summary, 120))
            }
            None => "a step that is not known".to_owned(),
        },
        EvidenceOrigin::Tool { tool, .. } => tool.clone().unwrap_or_else(|| "a tool".to_owned()),
        EvidenceOrigin::Code { file, line: Some(line) } => format!("{file}:{line}"),
        EvidenceOrigin::Code { file, line: None } => file.clone(),
        EvidenceOrigin::Documentation(name) => name.clone(),
        EvidenceOrigin::Reasoning => "thought".to_owned(),
        EvidenceOrigin::Verification(check) => check.to_string(),
    })
}
