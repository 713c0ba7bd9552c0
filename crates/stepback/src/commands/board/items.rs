//! The commands for hypotheses, evidence, beliefs, contradictions, gaps and notes: they turn arguments into mutations of
//! the board.

use serde_json::json;
use stepback_engine::Workspace;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::graph::{Impact, RootBelief};
use stepback_reasoning::item::{
    BeliefKind, ContradictionStatus, Criticality, DependencyKind, EvidenceKind, EvidenceOrigin, GapKind,
    HypothesisStatus, Measure, Severity,
};
use stepback_reasoning::suggestions::SuggestedAction;

use super::{change_board, parse_choice, parse_id, parse_ids, print_items, with_board_at};
use crate::args::board::{
    BeliefCommand, BoardSelector, ContradictionCommand, EvidenceCommand, GapCommand, HypothesisCommand,
    NoteCommand,
};
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback board hypothesis …`.
pub fn hypothesis(context: &Context, command: &HypothesisCommand) -> CommandResult {
    let set = |board: &BoardSelector, which: &str, status: HypothesisStatus, reason: Option<&String>| {
        change_board(context, board, |_| {
            Ok(BoardMutation::SetHypothesis { hypothesis: parse_id(which)?, status, reason: reason.cloned() })
        })
    };
    match command {
        HypothesisCommand::Propose { statement, prior, parents, excludes, tags, board } => {
            change_board(context, board, |_| {
                Ok(BoardMutation::ProposeHypothesis {
                    statement: statement.clone(),
                    prior: *prior,
                    parents: parse_ids(parents)?,
                    excludes: parse_ids(excludes)?,
                    tags: tags.clone(),
                })
            })
        }
        HypothesisCommand::List { at, tag, board } => {
            with_board_at(context, board, at.as_deref(), |reasoning_board| {
                let Some(tag) = tag else {
                    return print_items(context, reasoning_board, "hypotheses", "Hypotheses", |_| true);
                };
                let tagged = |item: &serde_json::Value| {
                    item["tags"].as_array().is_some_and(|tags| tags.iter().any(|known| known == tag))
                };
                if context.json {
                    return print_items(context, reasoning_board, "hypotheses", "Hypotheses", tagged);
                }
                let sections = reasoning_board.board(true);
                let lines = sections.iter().filter(|section| section.title == "Hypotheses");
                let mut shows = false;
                for line in lines.flat_map(|section| &section.lines) {
                    if !line.starts_with(' ') {
                        let number = line.split_whitespace().next().and_then(|id| id[1..].parse().ok());
                        let known = number.and_then(|number| reasoning_board.hypotheses.get(number));
                        shows = known.is_some_and(|known| known.tags.contains(tag));
                    }
                    if shows {
                        output::print_line(line);
                    }
                }
                DONE
            })
        }
        HypothesisCommand::Edit { hypothesis, statement, board } => change_board(context, board, |_| {
            Ok(BoardMutation::EditHypothesis {
                hypothesis: parse_id(hypothesis)?,
                statement: statement.clone(),
            })
        }),
        HypothesisCommand::Test { hypothesis, board } => {
            set(board, hypothesis, HypothesisStatus::Testing, None)
        }
        HypothesisCommand::Conclude { hypothesis, how, because, board } => {
            let status = match how.as_str() {
                "confirmed" => HypothesisStatus::Confirmed,
                _ => HypothesisStatus::Rejected,
            };
            set(board, hypothesis, status, because.as_ref())
        }
        HypothesisCommand::Reopen { hypothesis, board } => {
            set(board, hypothesis, HypothesisStatus::Active, None)
        }
        HypothesisCommand::Archive { hypothesis, board } => {
            set(board, hypothesis, HypothesisStatus::Archived, None)
        }
        HypothesisCommand::Next { board } => with_board_at(context, board, None, |reasoning_board| {
            print_actions(context, &reasoning_board.hypothesis_actions(), "No hypothesis is open.")
        }),
    }
}

/// Runs `stepback board evidence …`.
pub fn evidence(context: &Context, command: &EvidenceCommand) -> CommandResult {
    match command {
        EvidenceCommand::Add { hypothesis, text, strength, kind, step, tool, code, doc, board } => {
            change_board(context, board, |workspace| {
                let source = parse_evidence_origin(context, workspace, step, tool, code, doc)?;
                let kind = kind.as_deref().map(|kind| {
                    parse_choice("kind of evidence", kind, EvidenceKind::ALL, EvidenceKind::as_str)
                });
                Ok(BoardMutation::AddEvidence {
                    hypothesis: parse_id(hypothesis)?,
                    strength: *strength,
                    text: text.clone(),
                    kind: kind.transpose()?.unwrap_or(source.usual_kind()),
                    source,
                })
            })
        }
        EvidenceCommand::Withdraw { evidence, reason, board } => change_board(context, board, |_| {
            Ok(BoardMutation::WithdrawEvidence { evidence: parse_id(evidence)?, reason: reason.clone() })
        }),
        EvidenceCommand::List { hypothesis, board } => {
            with_board_at(context, board, None, |reasoning_board| {
                let wanted = hypothesis
                    .as_deref()
                    .map(parse_id::<stepback_reasoning::ids::HypothesisId>)
                    .transpose()?;
                if let Some(id) = wanted {
                    reasoning_board.hypotheses.require(id.0).map_err(stepback_engine::EngineError::from)?;
                }
                let about =
                    |id: stepback_reasoning::ids::HypothesisId| wanted.is_none_or(|wanted| wanted == id);
                if context.json {
                    let is = |item: &serde_json::Value| {
                        wanted.is_none_or(|wanted| item["hypothesis"] == wanted.to_string())
                    };
                    return print_items(context, reasoning_board, "evidence", "Evidence", is);
                }
                for (number, known) in
                    reasoning_board.evidence.iter().filter(|(_, known)| about(known.hypothesis))
                {
                    let withdrawn = if known.withdrawn.is_some() { "  withdrawn" } else { "" };
                    output::print_line(format!(
                        "E{number}  {}  {:+}  {}{withdrawn}  {}",
                        known.hypothesis,
                        known.strength,
                        known.kind.as_str(),
                        known.text.lines().next().unwrap_or_default()
                    ));
                }
                DONE
            })
        }
    }
}

fn parse_evidence_origin(
    context: &Context,
    workspace: &Workspace,
    step: &Option<String>,
    tool: &Option<String>,
    code: &Option<String>,
    doc: &Option<String>,
) -> Result<EvidenceOrigin, CommandFailure> {
    if let Some(point) = step {
        let step = context.resolve(workspace, point)?.step;
        return Ok(EvidenceOrigin::Tool { step: Some(step.id), tool: step.meta.tool });
    }
    if let Some(place) = code {
        let (file, line) = match place.rsplit_once(':') {
            Some((file, line)) if line.parse::<u32>().is_ok() => (file, line.parse().ok()),
            _ => (place.as_str(), None),
        };
        return Ok(EvidenceOrigin::Code { file: context.to_workspace_path(workspace, file), line });
    }
    Ok(match (tool, doc) {
        (Some(tool), _) => EvidenceOrigin::Tool { step: None, tool: Some(tool.clone()) },
        (None, Some(doc)) => EvidenceOrigin::Documentation(doc.clone()),
        (None, None) => EvidenceOrigin::Reasoning,
    })
}

/// Runs `stepback board belief …`.
pub fn belief(context: &Context, command: &BeliefCommand) -> CommandResult {
    match command {
        BeliefCommand::Add {
            statement,
            kind,
            confidence,
            subject,
            value,
            range,
            hypothesis,
            tags,
            board,
        } => change_board(context, board, |_| {
            Ok(BoardMutation::AddBelief {
                statement: statement.clone(),
                kind: parse_choice("kind of belief", kind, BeliefKind::ALL, BeliefKind::as_str)?,
                confidence: *confidence,
                subject: subject.clone(),
                value: parse_measure(value.as_deref(), range.as_deref())?,
                hypothesis: hypothesis.as_deref().map(parse_id).transpose()?,
                tags: tags.clone(),
            })
        }),
        BeliefCommand::Depend { belief, on, kind, strength, because, board } => {
            change_board(context, board, |_| {
                Ok(BoardMutation::Depend {
                    belief: parse_id(belief)?,
                    on: parse_id(on)?,
                    kind: parse_choice(
                        "kind of dependency",
                        kind,
                        DependencyKind::ALL,
                        DependencyKind::as_str,
                    )?,
                    strength: *strength,
                    reason: because.clone(),
                })
            })
        }
        BeliefCommand::Undepend { belief, on, board } => change_board(context, board, |_| {
            Ok(BoardMutation::Undepend { belief: parse_id(belief)?, on: parse_id(on)? })
        }),
        BeliefCommand::Revise { belief, confidence, because, board } => change_board(context, board, |_| {
            Ok(BoardMutation::ReviseBelief {
                belief: parse_id(belief)?,
                confidence: *confidence,
                reason: because.clone(),
            })
        }),
        BeliefCommand::Retract { belief, because, board } => change_board(context, board, |_| {
            Ok(BoardMutation::RetractBelief { belief: parse_id(belief)?, reason: because.clone() })
        }),
        BeliefCommand::Impact { belief, board } => with_board_at(context, board, None, |reasoning_board| {
            print_impact(
                context,
                &reasoning_board.impact(parse_id(belief)?).map_err(stepback_engine::EngineError::from)?,
            )
        }),
        BeliefCommand::Roots { belief, board } => with_board_at(context, board, None, |reasoning_board| {
            print_roots(
                context,
                &reasoning_board.roots(parse_id(belief)?).map_err(stepback_engine::EngineError::from)?,
                belief,
            )
        }),
        BeliefCommand::List { at, board } => {
            with_board_at(context, board, at.as_deref(), |reasoning_board| {
                print_items(context, reasoning_board, "beliefs", "Beliefs", |_| true)
            })
        }
    }
}

fn parse_measure(value: Option<&str>, range: Option<&str>) -> Result<Option<Measure>, CommandFailure> {
    if let Some(range) = range {
        let wrong = || {
            CommandFailure::new(FailureKind::Usage, format!("\"{range}\" is not a valid range"))
                .with_hint("use two numbers separated by two dots, such as 5..20")
        };
        let (from, to) = range.split_once("..").ok_or_else(wrong)?;
        let number = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
        return Ok(Some(Measure::Range(number(from)?, number(to)?)));
    }
    Ok(value.map(|value| match (value, value.parse::<f64>()) {
        ("true", _) => Measure::Flag(true),
        ("false", _) => Measure::Flag(false),
        (_, Ok(number)) => Measure::Number(number),
        (word, Err(_)) => Measure::Word(word.to_owned()),
    }))
}

/// Returns a chain of beliefs as text, with `arrow` between them.
fn format_belief_path(beliefs: &[stepback_reasoning::ids::BeliefId], arrow: &str) -> String {
    beliefs.iter().map(ToString::to_string).collect::<Vec<_>>().join(arrow)
}

fn print_impact(context: &Context, impact: &Impact) -> CommandResult {
    if context.json {
        output::print_document(&json!(impact));
        return DONE;
    }
    if impact.shaken.is_empty() {
        output::print_line(format!("Nothing depends on {}.", impact.belief));
    }
    for shaken in &impact.shaken {
        output::print_line(format!(
            "{}  {:.2} → {:.2}  {}  ({})",
            shaken.belief,
            shaken.now,
            shaken.then,
            shaken.statement,
            format_belief_path(&shaken.path, " ← ")
        ));
    }
    let hypotheses: Vec<String> = impact.hypotheses.iter().map(ToString::to_string).collect();
    if !hypotheses.is_empty() {
        output::print_line(format!("Hypotheses affected: {}", hypotheses.join(", ")));
    }
    let gaps: Vec<String> = impact.gaps.iter().map(ToString::to_string).collect();
    if !gaps.is_empty() {
        output::print_line(format!("Gaps affected: {}", gaps.join(", ")));
    }
    DONE
}

fn print_roots(context: &Context, roots: &[RootBelief], belief: &str) -> CommandResult {
    if context.json {
        output::print_document(&json!({ "items": roots }));
        return DONE;
    }
    if roots.is_empty() {
        output::print_line(format!("{belief} depends on nothing else."));
    }
    for root in roots {
        output::print_line(format!(
            "{}  {:.2} confident  weight {:.2}  {}  ({})",
            root.belief,
            root.confidence,
            root.weight,
            root.statement,
            format_belief_path(&root.path, " → ")
        ));
    }
    DONE
}

/// Runs `stepback board contradiction …`.
pub fn contradiction(context: &Context, command: &ContradictionCommand) -> CommandResult {
    let settle = |board: &BoardSelector, which: &str, status: ContradictionStatus, how: &str| {
        change_board(context, board, |_| {
            let (contradiction, resolution) = (parse_id(which)?, how.to_owned());
            Ok(BoardMutation::SettleContradiction { contradiction, status, resolution })
        })
    };
    match command {
        ContradictionCommand::Add { left, right, reason, severity, board } => {
            change_board(context, board, |_| {
                Ok(BoardMutation::Contradict {
                    left: parse_id(left)?,
                    right: parse_id(right)?,
                    reason: reason.clone(),
                    severity: parse_choice("severity", severity, Severity::ALL, Severity::as_str)?,
                })
            })
        }
        ContradictionCommand::Resolve { contradiction, how, board } => {
            settle(board, contradiction, ContradictionStatus::Resolved, how)
        }
        ContradictionCommand::Dismiss { contradiction, why, board } => {
            settle(board, contradiction, ContradictionStatus::Dismissed, why)
        }
        ContradictionCommand::List { board } => with_board_at(context, board, None, |reasoning_board| {
            print_items(context, reasoning_board, "contradictions", "Contradictions", |_| true)
        }),
    }
}

/// Runs `stepback board gap …`.
pub fn gap(context: &Context, command: &GapCommand) -> CommandResult {
    match command {
        GapCommand::Add { question, kind, criticality, blocks, after, strategy, minutes, board } => {
            change_board(context, board, |_| {
                Ok(BoardMutation::AddGap {
                    question: question.clone(),
                    kind: parse_choice("kind of gap", kind, GapKind::ALL, GapKind::as_str)?,
                    criticality: parse_choice(
                        "criticality",
                        criticality,
                        Criticality::ALL,
                        Criticality::as_str,
                    )?,
                    blocks: parse_ids(blocks)?,
                    after: parse_ids(after)?,
                    strategy: strategy.clone(),
                    minutes: *minutes,
                })
            })
        }
        GapCommand::Fill { gap, answer, board } => change_board(context, board, |_| {
            Ok(BoardMutation::FillGap { gap: parse_id(gap)?, answer: answer.clone() })
        }),
        GapCommand::Drop { gap, reason, board } => change_board(context, board, |_| {
            Ok(BoardMutation::DropGap { gap: parse_id(gap)?, reason: reason.clone() })
        }),
        GapCommand::Reopen { gap, board } => {
            change_board(context, board, |_| Ok(BoardMutation::ReopenGap { gap: parse_id(gap)? }))
        }
        GapCommand::After { gap, first, board } => change_board(context, board, |_| {
            Ok(BoardMutation::GapAfter { gap: parse_id(gap)?, after: parse_id(first)? })
        }),
        GapCommand::Next { board } => with_board_at(context, board, None, |reasoning_board| {
            print_actions(context, &reasoning_board.next_actions(), "Nothing is open.")
        }),
        GapCommand::List { board } => with_board_at(context, board, None, |reasoning_board| {
            print_items(context, reasoning_board, "gaps", "Gaps", |_| true)
        }),
    }
}

/// Runs `stepback board note …`.
pub fn note(context: &Context, command: &NoteCommand) -> CommandResult {
    match command {
        NoteCommand::Add { text, about, tags, board } => change_board(context, board, |_| {
            Ok(BoardMutation::AddNote { text: text.clone(), about: parse_ids(about)?, tags: tags.clone() })
        }),
        NoteCommand::List { board } => with_board_at(context, board, None, |reasoning_board| {
            print_items(context, reasoning_board, "notes", "Notes", |_| true)
        }),
    }
}

/// Prints recommended actions, best first.
fn print_actions(context: &Context, actions: &[SuggestedAction], nothing: &str) -> CommandResult {
    if context.json {
        output::print_document(&json!({ "items": actions }));
        return DONE;
    }
    if actions.is_empty() {
        output::print_line(nothing);
    }
    let paint = Paint::stdout();
    for (at, action) in actions.iter().enumerate() {
        output::print_line(format!("{}. {}", at + 1, action.what));
        output::print_line(
            paint.dim(format!("   {} (score {:.1}): {}", action.why, action.score, action.command)),
        );
    }
    DONE
}
