//! Beliefs: what the agent holds to be true, and what depends on it.

use serde_json::{Value, json};
use stepback_engine::board::BoardEditor;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::BeliefId;
use stepback_reasoning::item::{BeliefKind, DependencyKind, Measure};

use super::{
    ADDITIVE, Args, READ_ONLY, Tool, ToolReply, change_board, edit_schema, enum_names, limit_schema,
    page_limit, require_known,
};
use crate::schema::{
    any_value, array, bounded_number, object, open_object, string, string_array, string_enum,
};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn belief_tool() -> Tool {
    Tool {
        name: "belief",
        title: "Beliefs",
        description: "Add a belief with a confidence; record what it depends on (depend), revise or retract it. With a subject and a value or range, observations that contradict expectations are detected.",
        input: object(
            &[
                ("do", string_enum("What to do", &["add", "depend", "undepend", "revise", "retract"])),
                ("belief", string("Which one, such as B2; not for add")),
                ("statement", string("add: the belief")),
                (
                    "kind",
                    string_enum(
                        "add: what it is (default assumption)",
                        &enum_names(BeliefKind::ALL, BeliefKind::as_str),
                    ),
                ),
                ("confidence", bounded_number("add, revise: confidence, 0 to 1 (default 0.8)", 0.0, 1.0)),
                ("subject", string("add: what is measured or expected, such as query-ms")),
                ("value", any_value("add: the observed or expected value: a number, true, false or a word")),
                ("range", array("add: or a range of numbers", json!({ "type": "number" }))),
                ("hypothesis", string("add: the hypothesis it belongs to")),
                ("tags", string_array("add: tags")),
                ("on", string("depend, undepend: the belief it depends on")),
                (
                    "how",
                    string_enum(
                        "depend: kind of dependency (default derived-from)",
                        &enum_names(DependencyKind::ALL, DependencyKind::as_str),
                    ),
                ),
                ("strength", bounded_number("depend: strength, 0 to 1 (default 0.8)", 0.0, 1.0)),
                ("because", string("depend, revise, retract: why")),
            ],
            &["do"],
        ),
        output: edit_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let reason = args.owned_text("because");
            let mutation = match args.require_text("do")? {
                "add" => BoardMutation::AddBelief {
                    statement: args.require_text("statement")?.to_owned(),
                    kind: require_known(
                        BeliefKind::parse(args.text("kind").unwrap_or("assumption")),
                        "kind",
                    )?,
                    confidence: args.number("confidence").unwrap_or(0.8),
                    subject: args.owned_text("subject"),
                    value: parse_measure(args)?,
                    hypothesis: args.optional_item("hypothesis")?,
                    tags: args.texts("tags"),
                },
                "depend" => BoardMutation::Depend {
                    belief: args.required_item("belief")?,
                    on: args.required_item("on")?,
                    kind: require_known(
                        DependencyKind::parse(args.text("how").unwrap_or("derived-from")),
                        "how",
                    )?,
                    strength: args.number("strength").unwrap_or(0.8),
                    reason,
                },
                "undepend" => BoardMutation::Undepend {
                    belief: args.required_item("belief")?,
                    on: args.required_item("on")?,
                },
                "revise" => BoardMutation::ReviseBelief {
                    belief: args.required_item("belief")?,
                    confidence: args.number("confidence").ok_or_else(|| {
                        ToolError::new("belief with do: revise needs \"confidence\"")
                            .with_hint("give a number from 0 to 1")
                    })?,
                    reason,
                },
                _ => BoardMutation::RetractBelief { belief: args.required_item("belief")?, reason },
            };
            change_board(context, &mutation)
        },
    }
}

fn parse_measure(args: &Args) -> Result<Option<Measure>, ToolError> {
    if let Some(Value::Array(range)) = args.value("range") {
        let numbers: Vec<f64> = range.iter().filter_map(Value::as_f64).collect();
        return match numbers.as_slice() {
            [low, high] => Ok(Some(Measure::Range(*low, *high))),
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

pub(super) fn impact_tool() -> Tool {
    let belief =
        open_object(&[("belief", string("Its name")), ("statement", string("What it says"))], &["belief"]);
    Tool {
        name: "belief_impact",
        title: "What depends on a belief",
        description: "What is affected if a belief is wrong, with confidences before and after, and the beliefs at its root, least confident first.",
        input: object(
            &[("belief", string("Which one, such as B1")), ("limit", limit_schema(20, 500))],
            &["belief"],
        ),
        output: object(
            &[
                ("shaken", array("Beliefs that depend on it", belief.clone())),
                ("hypotheses", string_array("")),
                ("gaps", string_array("")),
                ("roots", array("The beliefs at its root", belief)),
            ],
            &["shaken", "hypotheses", "gaps", "roots"],
        ),
        hints: READ_ONLY,
        is_slow: false,
        creates_workspace: true,
        run: show_impact,
    }
}

fn show_impact(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    let mind = BoardEditor::new(context.workspace, &session).board()?;
    let belief: BeliefId = args.required_item("belief")?;
    let (mut impact, mut roots) = (mind.impact(belief)?, mind.roots(belief)?);
    let limit = page_limit(args, 20);
    impact.shaken.truncate(limit);
    roots.truncate(limit);
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
