//! Beliefs: what the agent holds to be true, and what depends on it.

use serde_json::{Value, json};
use stepback_engine::board::BoardEditor;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::BeliefId;
use stepback_reasoning::item::{BeliefKind, DependencyKind, Measure};

use super::{
    ADDS, Args, LOOKS, Tool, ToolReply, change_board, edit_schema, limit, limit_schema, parsed, words,
};
use crate::schema::{anything, list, number, object, open_object, text, texts, word};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn belief() -> Tool {
    Tool {
        name: "belief",
        title: "Beliefs",
        description: "Add a belief with a confidence; record what it depends on (depend), revise or retract it. With a subject and a value or range, observations that contradict expectations are detected.",
        input: object(
            &[
                ("do", word("What to do", &["add", "depend", "undepend", "revise", "retract"])),
                ("belief", text("Which one, such as B2; not for add")),
                ("statement", text("add: the belief")),
                (
                    "kind",
                    word("add: what it is (default assumption)", &words(BeliefKind::ALL, BeliefKind::as_str)),
                ),
                ("confidence", number("add, revise: confidence, 0 to 1 (default 0.8)", 0.0, 1.0)),
                ("subject", text("add: what is measured or expected, such as query-ms")),
                ("value", anything("add: the observed or expected value: a number, true, false or a word")),
                ("range", list("add: or a range of numbers", json!({ "type": "number" }))),
                ("hypothesis", text("add: the hypothesis it belongs to")),
                ("tags", texts("add: tags")),
                ("on", text("depend, undepend: the belief it depends on")),
                (
                    "how",
                    word(
                        "depend: kind of dependency (default derived-from)",
                        &words(DependencyKind::ALL, DependencyKind::as_str),
                    ),
                ),
                ("strength", number("depend: strength, 0 to 1 (default 0.8)", 0.0, 1.0)),
                ("because", text("depend, revise, retract: why")),
            ],
            &["do"],
        ),
        output: edit_schema(),
        hints: ADDS,
        slow: false,
        makes: true,
        run: |ground, args| {
            let reason = args.owned("because");
            let mutation = match args.need("do")? {
                "add" => BoardMutation::AddBelief {
                    statement: args.need("statement")?.to_owned(),
                    kind: parsed(BeliefKind::parse(args.text("kind").unwrap_or("assumption")), "kind")?,
                    confidence: args.number("confidence").unwrap_or(0.8),
                    subject: args.owned("subject"),
                    value: measure(args)?,
                    hypothesis: args.name("hypothesis")?,
                    tags: args.texts("tags"),
                },
                "depend" => BoardMutation::Depend {
                    belief: args.item("belief")?,
                    on: args.item("on")?,
                    kind: parsed(DependencyKind::parse(args.text("how").unwrap_or("derived-from")), "how")?,
                    strength: args.number("strength").unwrap_or(0.8),
                    reason,
                },
                "undepend" => BoardMutation::Undepend { belief: args.item("belief")?, on: args.item("on")? },
                "revise" => BoardMutation::ReviseBelief {
                    belief: args.item("belief")?,
                    confidence: args.number("confidence").ok_or_else(|| {
                        ToolError::new("belief with do: revise needs \"confidence\"")
                            .hint("give a number from 0 to 1")
                    })?,
                    reason,
                },
                _ => BoardMutation::RetractBelief { belief: args.item("belief")?, reason },
            };
            change_board(ground, &mutation)
        },
    }
}

fn measure(args: &Args) -> Result<Option<Measure>, ToolError> {
    if let Some(Value::Array(range)) = args.value("range") {
        let numbers: Vec<f64> = range.iter().filter_map(Value::as_f64).collect();
        return match numbers.as_slice() {
            [from, to] => Ok(Some(Measure::Range(*from, *to))),
            _ => Err(ToolError::new("range is a list of two numbers, such as [5, 20]")),
        };
    }
    match args.value("value") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(Measure::Flag(*flag))),
        Some(Value::String(word)) => Ok(Some(Measure::Word(word.clone()))),
        Some(Value::Number(number)) => Ok(number.as_f64().map(Measure::Number)),
        Some(_) => Err(ToolError::new("value is a number, true, false or a word")),
    }
}

pub(super) fn impact() -> Tool {
    let belief =
        open_object(&[("belief", text("Its name")), ("statement", text("What it says"))], &["belief"]);
    Tool {
        name: "belief_impact",
        title: "What depends on a belief",
        description: "What is affected if a belief is wrong, with confidences before and after, and the beliefs at its root, least confident first.",
        input: object(
            &[("belief", text("Which one, such as B1")), ("limit", limit_schema(20, 500))],
            &["belief"],
        ),
        output: object(
            &[
                ("shaken", list("Beliefs that depend on it", belief.clone())),
                ("hypotheses", texts("")),
                ("gaps", texts("")),
                ("roots", list("The beliefs at its root", belief)),
            ],
            &["shaken", "hypotheses", "gaps", "roots"],
        ),
        hints: LOOKS,
        slow: false,
        makes: true,
        run: show_impact,
    }
}

fn show_impact(ground: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = ground.session()?;
    let mind = BoardEditor::new(ground.workspace, &session).board()?;
    let belief: BeliefId = args.item("belief")?;
    let (mut impact, mut roots) = (mind.impact(belief)?, mind.roots(belief)?);
    let most = limit(args, 20);
    impact.shaken.truncate(most);
    roots.truncate(most);
    let mut lines: Vec<String> = impact
        .shaken
        .iter()
        .map(|shaken| {
            format!("{} {:.2} → {:.2} {}", shaken.belief, shaken.now, shaken.then, shaken.statement)
        })
        .collect();
    if lines.is_empty() {
        lines.push(format!("Nothing depends on {belief}."));
    }
    for root in &roots {
        lines.push(format!(
            "depends on {} (confidence {:.2}): {}",
            root.belief, root.confidence, root.statement
        ));
    }
    let structured = json!({
        "shaken": impact.shaken,
        "hypotheses": impact.hypotheses,
        "gaps": impact.gaps,
        "roots": roots,
    });
    Ok(ToolReply { text: lines.join("\n"), structured })
}
