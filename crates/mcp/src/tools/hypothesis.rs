//! Hypotheses, the evidence for and against them, and contradictions.

use jiff::tz::TimeZone;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::{
    ContradictionStatus, EvidenceKind, EvidenceOrigin, HypothesisStatus, Severity,
};

use super::{ADDITIVE, Args, Tool, change_board, edit_schema, enum_names, require_known};
use crate::schema::{bounded_number, object, string, string_array, string_enum};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn hypothesis_tool() -> Tool {
    Tool {
        name: "hypothesis",
        title: "Hypotheses",
        description: "Propose a hypothesis (statement), word it in another way (edit), or change its status: test, confirm, reject, reopen, archive. Its special cases (parents) are rejected along with it.",
        input: object(
            &[
                (
                    "do",
                    string_enum(
                        "What to do",
                        &["propose", "edit", "test", "confirm", "reject", "reopen", "archive"],
                    ),
                ),
                ("hypothesis", string("Which one, such as H1; not for propose")),
                ("statement", string("propose, edit: the hypothesis")),
                ("prior", bounded_number("propose: probability before any evidence (default 0.5)", 0.0, 1.0)),
                ("parents", string_array("propose: hypotheses it is a special case of")),
                ("excludes", string_array("propose: hypotheses that cannot also be true")),
                ("tags", string_array("propose: tags")),
                ("because", string("Why it is concluded")),
            ],
            &["do"],
        ),
        output: edit_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let status = match args.require_text("do")? {
                "propose" => {
                    return change_board(
                        context,
                        &BoardMutation::ProposeHypothesis {
                            statement: args.require_text("statement")?.to_owned(),
                            prior: args.number("prior").unwrap_or(0.5),
                            parents: args.item_ids("parents")?,
                            excludes: args.item_ids("excludes")?,
                            tags: args.texts("tags"),
                        },
                    );
                }
                "edit" => {
                    let hypothesis = args.required_item("hypothesis")?;
                    let statement = args.require_text("statement")?.to_owned();
                    return change_board(context, &BoardMutation::EditHypothesis { hypothesis, statement });
                }
                "test" => HypothesisStatus::Testing,
                "confirm" => HypothesisStatus::Confirmed,
                "reject" => HypothesisStatus::Rejected,
                "reopen" => HypothesisStatus::Active,
                _ => HypothesisStatus::Archived,
            };
            let (hypothesis, reason) = (args.required_item("hypothesis")?, args.owned_text("because"));
            change_board(context, &BoardMutation::SetHypothesis { hypothesis, status, reason })
        },
    }
}

pub(super) fn evidence_tool() -> Tool {
    Tool {
        name: "evidence",
        title: "Evidence",
        description: "Add evidence for or against a hypothesis; its confidence is updated. Name the source (step, code or doc): each source counts once. Or withdraw evidence.",
        input: object(
            &[
                ("do", string_enum("What to do (default add)", &["add", "withdraw"])),
                ("hypothesis", string("add: which one, such as H1")),
                ("text", string("add: what was found; withdraw: why it no longer counts")),
                (
                    "strength",
                    bounded_number("add: from -1 (strongly against) to 1 (strongly for)", -1.0, 1.0),
                ),
                (
                    "kind",
                    string_enum("add: what it is", &enum_names(EvidenceKind::ALL, EvidenceKind::as_str)),
                ),
                ("step", string("add: source: a point, such as #42 or tool:Bash:last")),
                ("code", string("add: source: a location in the code, FILE:LINE")),
                ("doc", string("add: source: a document")),
                ("evidence", string("withdraw: which one, such as E3")),
            ],
            &[],
        ),
        output: edit_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            if args.text("do") == Some("withdraw") {
                let (evidence, reason) =
                    (args.required_item("evidence")?, args.require_text("text")?.to_owned());
                return change_board(context, &BoardMutation::WithdrawEvidence { evidence, reason });
            }
            let source = parse_source(context, args)?;
            let strength = args.number("strength").ok_or_else(|| {
                ToolError::new("evidence needs \"strength\"")
                    .with_hint("give a number from -1 (against) to 1 (for)")
            })?;
            change_board(
                context,
                &BoardMutation::AddEvidence {
                    hypothesis: args.required_item("hypothesis")?,
                    strength,
                    text: args.require_text("text")?.to_owned(),
                    kind: args.text("kind").and_then(EvidenceKind::parse).unwrap_or(source.usual_kind()),
                    source,
                },
            )
        },
    }
}

fn parse_source(context: &ToolContext<'_>, args: &Args) -> Result<EvidenceOrigin, ToolError> {
    if let Some(point) = args.text("step") {
        let step = context.workspace.resolve(point, context.now, &TimeZone::system)?.step;
        return Ok(EvidenceOrigin::Tool { step: Some(step.id), tool: step.meta.tool });
    }
    if let Some(location) = args.text("code") {
        let (file, line) = match location.rsplit_once(':') {
            Some((file, line)) if line.parse::<u32>().is_ok() => (file, line.parse().ok()),
            _ => (location, None),
        };
        let file = context.relative_path(file);
        return Ok(EvidenceOrigin::Code { file, line });
    }
    Ok(args.owned_text("doc").map_or(EvidenceOrigin::Reasoning, EvidenceOrigin::Documentation))
}

pub(super) fn contradiction_tool() -> Tool {
    Tool {
        name: "contradiction",
        title: "Contradictions",
        description: "Declare that two items cannot both be true, or close one: resolve (one side was wrong) or dismiss (it is not real).",
        input: object(
            &[
                ("do", string_enum("What to do", &["add", "resolve", "dismiss"])),
                ("left", string("add: one item, such as B1")),
                ("right", string("add: the other")),
                (
                    "severity",
                    string_enum(
                        "add: how bad it is (default medium)",
                        &enum_names(Severity::ALL, Severity::as_str),
                    ),
                ),
                ("contradiction", string("resolve, dismiss: which one, such as C1")),
                ("text", string("Why they exclude each other, or how it ended")),
            ],
            &["do", "text"],
        ),
        output: edit_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let evidence_text = args.require_text("text")?.to_owned();
            let status = match args.require_text("do")? {
                "add" => {
                    let severity = args.text("severity").unwrap_or("medium");
                    return change_board(
                        context,
                        &BoardMutation::Contradict {
                            left: args.required_item("left")?,
                            right: args.required_item("right")?,
                            reason: evidence_text,
                            severity: require_known(Severity::parse(severity), "severity")?,
                        },
                    );
                }
                "resolve" => ContradictionStatus::Resolved,
                _ => ContradictionStatus::Dismissed,
            };
            let contradiction = args.required_item("contradiction")?;
            change_board(
                context,
                &BoardMutation::SettleContradiction { contradiction, status, resolution: evidence_text },
            )
        },
    }
}
