//! The command `stepback board verify`.

use std::process::ExitCode;

use serde_json::{Value, json};
use stepback_engine::board::BoardEditor;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::VerificationId;
use stepback_reasoning::item::{Check, CheckOutcome, Measured, OnOutcome};

use super::{change_board, parse_id, parse_ids, print_items, with_board, with_board_at};
use crate::args::board::verify::{VerifyAddArgs, VerifyCommand};
use crate::commands::{CommandResult, DONE};
use crate::context::Context;
use crate::failure::{CommandFailure, FailureKind};
use crate::output::{self, Paint};

/// Runs `stepback board verify …`.
pub fn verify(context: &Context, command: &VerifyCommand) -> CommandResult {
    match command {
        VerifyCommand::Add(plan) => change_board(context, &plan.board, |workspace| {
            let to_relative = |path: &String| context.to_workspace_path(workspace, path);
            Ok(BoardMutation::AddVerification {
                title: plan.title.clone(),
                check: build_check(plan, to_relative)?,
                timeout_ms: to_timeout_millis(plan.timeout)?,
                inputs: plan.inputs.iter().map(to_relative).collect(),
                on_pass: parse_outcome_actions(&plan.pass_evidence, &plan.pass_fills, plan.halt_on_pass)?,
                on_fail: parse_outcome_actions(&plan.fail_evidence, &plan.fail_fills, plan.halt_on_fail)?,
            })
        }),
        VerifyCommand::Run { verifications, fresh, board } => {
            with_board(context, board, |workspace, session| {
                run_checks(
                    context,
                    &mut BoardEditor::new(workspace, session),
                    &parse_ids(verifications)?,
                    *fresh,
                )
            })
        }
        VerifyCommand::List { board } => with_board_at(context, board, None, |reasoning_board| {
            print_items(context, reasoning_board, "verifications", "Verifications", |_| true)
        }),
    }
}

fn build_check(
    plan: &VerifyAddArgs,
    to_relative: impl Fn(&String) -> String,
) -> Result<Check, CommandFailure> {
    if let Some(run) = &plan.run {
        let (contains, lacks) = (plan.contains.clone(), plan.lacks.clone());
        return Ok(Check::Command { run: run.clone(), exit: plan.exit, contains, lacks });
    }
    if let [left, right] = plan.same.as_slice() {
        return Ok(Check::SameFiles { left: to_relative(left), right: to_relative(right) });
    }
    if let (Some(file), Some(text)) = (&plan.file, &plan.text) {
        return Ok(Check::FileText { path: to_relative(file), text: text.clone(), absent: plan.absent });
    }
    let from = |file: &Option<String>, run: &Option<String>| {
        let file = file.as_ref().map(|file| Measured::File(to_relative(file)));
        file.or_else(|| run.clone().map(Measured::Command))
    };
    if let (Some(from), Some(pointer), Some(equals)) =
        (from(&plan.json_file, &plan.json_run), &plan.pointer, &plan.equals)
    {
        let equals = serde_json::from_str(equals).map_err(|error| {
            CommandFailure::new(FailureKind::Usage, format!("\"{equals}\" is not valid JSON: {error}"))
                .with_hint("quote a string as JSON: --equals '\"text\"'")
        })?;
        return Ok(Check::Json { from, pointer: pointer.clone(), equals });
    }
    if let (Some(from), Some(reference)) = (from(&plan.numbers_file, &plan.numbers_run), &plan.reference) {
        let (absolute, relative) = (plan.absolute, plan.relative);
        return Ok(Check::Reference { from, reference: to_relative(reference), absolute, relative });
    }
    Err(CommandFailure::new(FailureKind::Usage, "nothing to check is specified")
        .with_hint("use --run, --same, --file, --json-file, --json-run, --numbers-file or --numbers-run"))
}

fn to_timeout_millis(seconds: f64) -> Result<u64, CommandFailure> {
    match seconds.is_finite() && seconds > 0.0 && seconds <= 86_400.0 {
        true => Ok(((seconds * 1000.0) as u64).max(1)),
        false => Err(CommandFailure::new(
            FailureKind::Usage,
            format!("the timeout must be more than 0 and at most 86400 s, not {seconds}"),
        )),
    }
}

fn parse_outcome_actions(
    evidence: &[String],
    fills: &[String],
    halt: bool,
) -> Result<Vec<OnOutcome>, CommandFailure> {
    let mut acts = Vec::new();
    for text in evidence {
        let wrong = || {
            CommandFailure::new(
                FailureKind::Usage,
                format!("\"{text}\" does not name a hypothesis and a strength"),
            )
            .with_hint("use the form H1=0.8")
        };
        let (hypothesis, strength) = text.split_once('=').ok_or_else(wrong)?;
        let strength = strength.trim().parse().map_err(|_| wrong())?;
        acts.push(OnOutcome::Evidence { hypothesis: parse_id(hypothesis)?, strength });
    }
    for gap in fills {
        acts.push(OnOutcome::Fill(parse_id(gap)?));
    }
    if halt {
        acts.push(OnOutcome::Halt);
    }
    Ok(acts)
}

fn run_checks(
    context: &Context,
    editor: &mut BoardEditor<'_>,
    requested: &[VerificationId],
    fresh: bool,
) -> CommandResult {
    let wanted: Vec<VerificationId> = match requested.is_empty() {
        false => requested.to_vec(),
        true => stepback_board::pending_checks(&editor.board()?),
    };
    if wanted.is_empty() {
        let hint = "add one with \"stepback board verify add\", or name one to run it again";
        return Err(CommandFailure::new(FailureKind::Nothing, "no check is left to run").with_hint(hint));
    }
    let mut items: Vec<Value> = Vec::new();
    let mut passed = true;
    for id in wanted {
        let verified = stepback_board::run_check(editor, id, fresh)?;
        passed &= verified.outcome == CheckOutcome::Passed;
        let halt = verified.edit.as_ref().is_some_and(|edit| edit.effect.halt);
        if context.json {
            items.push(json!(verified));
        } else {
            match &verified.edit {
                Some(edit) => {
                    edit.effect.messages.iter().for_each(output::print_line);
                    let undo = format!("\"stepback board undo {}\" undoes its consequences.", edit.step);
                    output::print_status(Paint::stderr().dim(undo));
                }
                None => {
                    output::print_line(format!("{id} {}: {}", verified.outcome.as_str(), verified.reason));
                    output::print_status(
                        Paint::stderr()
                            .dim("Not run, because its inputs are unchanged; --fresh runs it anyway."),
                    );
                }
            }
        }
        if halt {
            break;
        }
    }
    if context.json {
        output::print_document(&json!({ "items": items, "passed": passed }));
    }
    match passed {
        true => DONE,
        false => Ok(ExitCode::FAILURE),
    }
}
