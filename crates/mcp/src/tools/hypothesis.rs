//! Hypotheses, the evidence for and against them, and contradictions.

use jiff::tz::TimeZone;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::item::{
    ContradictionStatus, EvidenceKind, EvidenceOrigin, HypothesisStatus, Severity,
};

use super::{ADDS, Args, Tool, change_board, edit_schema, parsed, words};
use crate::schema::{number, object, text, texts, word};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

pub(super) fn hypothesis() -> Tool {
    Tool {
        name: "hypothesis",
        title: "Hypotheses",
        description: "Propose a hypothesis (statement), or change its status: test, confirm, reject, reopen, archive. Its special cases (parent) are rejected along with it.",
        input: object(
            &[
                ("do", word("What to do", &["propose", "test", "confirm", "reject", "reopen", "archive"])),
                ("hypothesis", text("Which one, such as H1; not for propose")),
                ("statement", text("propose: the hypothesis")),
                ("prior", number("propose: probability before any evidence (default 0.5)", 0.0, 1.0)),
                ("parent", text("propose: the hypothesis it is a special case of")),
                ("excludes", texts("propose: hypotheses that cannot also be true")),
                ("tags", texts("propose: tags")),
                ("because", text("Why it is concluded")),
            ],
            &["do"],
        ),
        output: edit_schema(),
        hints: ADDS,
        slow: false,
        makes: true,
        run: |ground, args| {
            let status = match args.need("do")? {
                "propose" => {
                    return change_board(
                        ground,
                        &BoardMutation::ProposeHypothesis {
                            statement: args.need("statement")?.to_owned(),
                            prior: args.number("prior").unwrap_or(0.5),
                            parent: args.name("parent")?,
                            excludes: args.names("excludes")?,
                            tags: args.texts("tags"),
                        },
                    );
                }
                "test" => HypothesisStatus::Testing,
                "confirm" => HypothesisStatus::Confirmed,
                "reject" => HypothesisStatus::Rejected,
                "reopen" => HypothesisStatus::Active,
                _ => HypothesisStatus::Archived,
            };
            let (hypothesis, reason) = (args.item("hypothesis")?, args.owned("because"));
            change_board(ground, &BoardMutation::SetHypothesis { hypothesis, status, reason })
        },
    }
}

pub(super) fn evidence() -> Tool {
    Tool {
        name: "evidence",
        title: "Evidence",
        description: "Add evidence for or against a hypothesis; its confidence is updated. Name the source (step, code or doc): each source counts once. Or withdraw evidence.",
        input: object(
            &[
                ("do", word("What to do (default add)", &["add", "withdraw"])),
                ("hypothesis", text("add: which one, such as H1")),
                ("text", text("add: what was found; withdraw: why it no longer counts")),
                ("strength", number("add: from -1 (strongly against) to 1 (strongly for)", -1.0, 1.0)),
                ("kind", word("add: what it is", &words(EvidenceKind::ALL, EvidenceKind::as_str))),
                ("step", text("add: source: a point, such as #42 or tool:Bash:last")),
                ("code", text("add: source: a location in the code, FILE:LINE")),
                ("doc", text("add: source: a document")),
                ("evidence", text("withdraw: which one, such as E3")),
            ],
            &[],
        ),
        output: edit_schema(),
        hints: ADDS,
        slow: false,
        makes: true,
        run: |ground, args| {
            if args.text("do") == Some("withdraw") {
                let (evidence, reason) = (args.item("evidence")?, args.need("text")?.to_owned());
                return change_board(ground, &BoardMutation::WithdrawEvidence { evidence, reason });
            }
            let source = source(ground, args)?;
            let strength = args.number("strength").ok_or_else(|| {
                ToolError::new("evidence needs \"strength\"")
                    .hint("give a number from -1 (against) to 1 (for)")
            })?;
            change_board(
                ground,
                &BoardMutation::AddEvidence {
                    hypothesis: args.item("hypothesis")?,
                    strength,
                    text: args.need("text")?.to_owned(),
                    kind: args.text("kind").and_then(EvidenceKind::parse).unwrap_or(source.usual_kind()),
                    source,
                },
            )
        },
    }
}

fn source(ground: &ToolContext<'_>, args: &Args) -> Result<EvidenceOrigin, ToolError> {
    if let Some(point) = args.text("step") {
        let step = ground.workspace.resolve(point, ground.now, &TimeZone::system)?.step;
        return Ok(EvidenceOrigin::Tool { step: Some(step.id), tool: step.meta.tool });
    }
    if let Some(place) = args.text("code") {
        let (file, line) = match place.rsplit_once(':') {
            Some((file, line)) if line.parse::<u32>().is_ok() => (file, line.parse().ok()),
            _ => (place, None),
        };
        let file = ground.relative(file);
        return Ok(EvidenceOrigin::Code { file, line });
    }
    Ok(args.owned("doc").map_or(EvidenceOrigin::Reasoning, EvidenceOrigin::Documentation))
}

pub(super) fn contradiction() -> Tool {
    Tool {
        name: "contradiction",
        title: "Contradictions",
        description: "Declare that two items cannot both be true, or close one: resolve (one side was wrong) or dismiss (it is not real).",
        input: object(
            &[
                ("do", word("What to do", &["add", "resolve", "dismiss"])),
                ("left", text("add: one item, such as B1")),
                ("right", text("add: the other")),
                (
                    "severity",
                    word("add: how bad it is (default medium)", &words(Severity::ALL, Severity::as_str)),
                ),
                ("contradiction", text("resolve, dismiss: which one, such as C1")),
                ("text", text("Why they exclude each other, or how it ended")),
            ],
            &["do", "text"],
        ),
        output: edit_schema(),
        hints: ADDS,
        slow: false,
        makes: true,
        run: |ground, args| {
            let said = args.need("text")?.to_owned();
            let status = match args.need("do")? {
                "add" => {
                    let severity = args.text("severity").unwrap_or("medium");
                    return change_board(
                        ground,
                        &BoardMutation::Contradict {
                            left: args.item("left")?,
                            right: args.item("right")?,
                            reason: said,
                            severity: parsed(Severity::parse(severity), "severity")?,
                        },
                    );
                }
                "resolve" => ContradictionStatus::Resolved,
                _ => ContradictionStatus::Dismissed,
            };
            let contradiction = args.item("contradiction")?;
            change_board(
                ground,
                &BoardMutation::SettleContradiction { contradiction, status, resolution: said },
            )
        },
    }
}
