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

use super::{Args, LOOKS, Tool, ToolReply, limit, limit_schema, short};
use crate::schema::{list, object, text, texts, whole};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn why() -> Tool {
    Tool {
        name: "why",
        title: "Why is it so?",
        description: "Why a file is as it is: each change with the call that made it, the prompt it was for and the hypotheses that were being tested. Or where an item of the board comes from.",
        input: object(
            &[
                ("path", text("A file, directory or glob")),
                ("item", text("Or an item of the board, such as H2")),
                ("limit", limit_schema(10, 200)),
            ],
            &[],
        ),
        output: object(
            &[
                (
                    "changes",
                    list(
                        "The newest first",
                        object(
                            &[
                                ("change", whole("Its number, for rewind_plan")),
                                ("path", text("")),
                                ("what", text("created, modified, deleted, …")),
                                ("step", whole("The checkpoint that first has it")),
                                ("by", text("")),
                                ("call", text("")),
                                ("call_step", whole("The step at which that began")),
                                ("prompt", text("")),
                                ("testing", texts("Hypotheses that were being tested")),
                                ("taken_back", text("A later rewind took it back")),
                            ],
                            &["change", "path", "what", "by"],
                        ),
                    ),
                ),
                ("origin", texts("Where the item comes from, the oldest first")),
            ],
            &[],
        ),
        hints: LOOKS,
        slow: false,
        makes: false,
        run: |ground, args| match (args.text("path"), args.name("item")?) {
            (Some(path), None) => of_path(ground, args, path),
            (None, Some(item)) => of_item(ground, args, item),
            _ => Err(ToolError::new("specify either path or item")),
        },
    }
}

fn of_path(ground: &ToolContext<'_>, args: &Args, path: &str) -> Result<ToolReply, ToolError> {
    let filter = PathFilter::new(&[ground.relative(path)])?;
    let mut changes = ground.workspace.numbered_changes(None)?;
    changes.retain(|numbered| {
        let from = numbered.change.from.as_ref();
        filter.matches(&numbered.change.path) || from.is_some_and(|from| filter.matches(from))
    });
    let (mut documents, mut lines) = (Vec::new(), Vec::new());
    for numbered in changes.iter().rev().take(limit(args, 10)) {
        let (document, line) = told(ground, numbered)?;
        documents.push(document);
        lines.push(line);
    }
    if lines.is_empty() {
        lines.push(format!("No change of {} is recorded.", short(path, 200)));
    }
    Ok(ToolReply { text: lines.join("\n"), structured: json!({ "changes": documents }) })
}

fn told(ground: &ToolContext<'_>, numbered: &NumberedChange) -> Result<(Value, String), ToolError> {
    let what = numbered.change.kind().as_str();
    let by = match &numbered.who {
        Attribution::Unreported => "the user, or a program that is not recorded".to_owned(),
        Attribution::Call(author) => by(ground, author)?,
        Attribution::OneOf(several) => {
            let names: Vec<String> =
                several.iter().map(|author| by(ground, author)).collect::<Result<_, _>>()?;
            format!("one of {}", names.join(", "))
        }
    };
    let mut document = json!({
        "change": numbered.number,
        "path": numbered.change.path.display(),
        "what": what,
        "by": by,
    });
    let step = numbered.step.map_or("now".to_owned(), |(_, number)| format!("#{number}"));
    let mut line = format!("change {} at {step}: {what} {} by {by}", numbered.number, numbered.change.path);
    if let Some((_, number)) = numbered.step {
        document["step"] = json!(number);
    }
    if let Attribution::Call(author) = &numbered.who {
        if let Some(call) = ground.workspace.store().step(author.step)? {
            let summary = short(&call.step.summary, 200);
            line.push_str(&format!("\n  in #{}: {summary}", call.step.number));
            document["call"] = json!(summary);
            document["call_step"] = json!(call.step.number);
            let testing = tested_at(ground, author, call.step.number)?;
            if !testing.is_empty() {
                line.push_str(&format!("\n  while testing {}", testing.join("; ")));
                document["testing"] = json!(testing);
            }
        }
        let prompt = author.prompt.map(|prompt| ground.workspace.store().step(prompt)).transpose()?.flatten();
        if let Some(prompt) = prompt {
            let summary = short(&prompt.step.summary, 200);
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

fn by(ground: &ToolContext<'_>, author: &Author) -> Result<String, ToolError> {
    let session = ground.workspace.store().session(author.session)?;
    let agent = session.map_or_else(|| "an agent".to_owned(), |session| session.agent);
    let tool = author.tool.as_deref().unwrap_or("a call");
    Ok(format!("{agent} {} ({tool})", author.session.short()))
}

/// The hypotheses that the author of a call was testing at that time.
fn tested_at(ground: &ToolContext<'_>, author: &Author, number: u64) -> Result<Vec<String>, ToolError> {
    let Some(session) = ground.workspace.store().session(author.session)? else { return Ok(Vec::new()) };
    let mind = ground.workspace.board_at(&session, &BoardMoment::Step(number))?.board;
    let tested = mind.hypotheses.iter().filter(|(_, known)| known.status == HypothesisStatus::Testing);
    Ok(tested.map(|(number, known)| format!("H{number} {}", short(&known.statement, 120))).collect())
}

fn of_item(ground: &ToolContext<'_>, args: &Args, item: ItemId) -> Result<ToolReply, ToolError> {
    let session = ground.session()?;
    let mind = ground.workspace.board_at(&session, &BoardMoment::Now)?.board;
    let Some(origin) = mind.origin_of(item) else {
        return Err(ToolError::new(format!("there is no {} {item} on the board", item.kind.noun()))
            .hint("call mind to see what there is"));
    };
    let mut lines =
        vec![format!("{item} was put on the board {}", place(ground, origin.step, origin.during)?)];
    lines.extend(reasons(ground, &mind, item)?);
    lines.truncate(limit(args, 10) + 1);
    Ok(ToolReply { text: lines.join("\n"), structured: json!({ "origin": lines }) })
}

/// `at #12, during #11: …`
fn place(ground: &ToolContext<'_>, step: StepId, during: Option<StepId>) -> Result<String, ToolError> {
    let store = ground.workspace.store();
    let at = match store.step(step)? {
        Some(stored) => {
            let step = stored.step;
            format!("at #{}, {}", step.number, step.at.ago(ground.now))
        }
        None => "at a step that is not known".to_owned(),
    };
    let during = during.map(|during| store.step(during)).transpose()?.flatten();
    Ok(match during {
        Some(call) => {
            let call = call.step;
            format!("{at}, during #{}: {}", call.number, short(&call.summary, 120))
        }
        None => at,
    })
}

/// What an item is based on, and how it ended.
fn reasons(ground: &ToolContext<'_>, mind: &ReasoningBoard, item: ItemId) -> Result<Vec<String>, ToolError> {
    let mut lines = Vec::new();
    match item.kind {
        ItemKind::Hypothesis => {
            for (number, evidence) in
                mind.evidence.iter().filter(|(_, known)| ItemId::from(known.hypothesis) == item)
            {
                let from = source(ground, &evidence.source)?;
                let withdrawn = if evidence.withdrawn.is_some() { " (withdrawn)" } else { "" };
                lines.push(format!(
                    "E{number} {:+} {}{withdrawn}, from {from}",
                    evidence.strength,
                    short(&evidence.text, 160)
                ));
            }
            if let Some(known) = mind.hypotheses.get(item.number) {
                if let Some(changed) = &known.changed {
                    let place = place(ground, changed.step, changed.during)?;
                    lines.push(format!("{} {place}", known.status.as_str()));
                }
                lines.extend(known.reason.iter().map(|reason| format!("because {}", short(reason, 200))));
            }
        }
        ItemKind::Evidence => {
            if let Some(known) = mind.evidence.get(item.number) {
                lines.push(format!("about {}, from {}", known.hypothesis, source(ground, &known.source)?));
            }
        }
        ItemKind::Belief => {
            let depends =
                mind.beliefs.get(item.number).map(|known| known.depends.as_slice()).unwrap_or_default();
            lines.extend(depends.iter().map(|dependency| {
                let reason = dependency
                    .reason
                    .as_deref()
                    .map_or(String::new(), |why| format!(": {}", short(why, 120)));
                format!("{} {}{reason}", dependency.kind.verb(), dependency.on)
            }));
        }
        _ => {}
    }
    Ok(lines)
}

fn source(ground: &ToolContext<'_>, source: &EvidenceOrigin) -> Result<String, ToolError> {
    Ok(match source {
        EvidenceOrigin::Tool { step: Some(step), .. } => match ground.workspace.store().step(*step)? {
            Some(stored) => {
                let step = stored.step;
                format!("#{}: {}", step.number, short(&step.summary, 120))
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
