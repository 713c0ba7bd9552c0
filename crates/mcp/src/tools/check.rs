//! Planned checks, and running them.

use serde_json::{Value, json};
use stepback_engine::board::BoardEditor;
use stepback_model::clip;
use stepback_reasoning::BoardMutation;
use stepback_reasoning::ids::VerificationId;
use stepback_reasoning::item::{Check, CheckOutcome, Measured, OnOutcome, Verification};

use super::{ADDITIVE, Args, Tool, ToolHints, ToolReply, change_board, edit_schema};
use crate::schema::{any_value, array, boolean, bounded_number, integer, object, string, string_array};
use crate::tool_error::ToolError;
use crate::toolset::ToolContext;

/// Default time limit of a check, in seconds.
const DEFAULT_TIMEOUT_SECONDS: f64 = 60.0;
/// The most bytes shown of a check's output.
const MAX_OUTPUT_BYTES: usize = 1500;

pub(super) fn add_tool() -> Tool {
    Tool {
        name: "verify_add",
        title: "Add a check",
        description: "Add a check for verify_run: a command (run, exit, contains, lacks), a text in a file (file, text), two equal files (same), a value in JSON (json_file or json_run, pointer, equals), or numbers close to a reference (numbers_file or numbers_run, reference). Its outcome can be evidence for a hypothesis and fill a gap.",
        input: object(
            &[
                ("title", string("What it checks")),
                ("run", string("A shell command, run in the workspace")),
                ("exit", integer("Expected exit code (default 0)")),
                ("contains", string_array("Texts that its output must contain")),
                ("lacks", string_array("Texts that its output must not contain")),
                ("file", string("A file that must contain a text")),
                ("text", string("That text")),
                ("absent", boolean("The file must not contain it")),
                ("same", string_array("Two files that must be identical")),
                ("json_file", string("A file with JSON")),
                ("json_run", string("A command that prints JSON")),
                ("pointer", string("JSON pointer into it")),
                ("equals", any_value("The expected value")),
                ("numbers_file", string("A file with numbers")),
                ("numbers_run", string("A command that prints numbers")),
                ("reference", string("A file with the reference values")),
                ("absolute", bounded_number("Allowed absolute difference", 0.0, f64::MAX)),
                ("relative", bounded_number("Allowed relative difference", 0.0, f64::MAX)),
                ("timeout_s", bounded_number("Timeout in seconds (default 60)", 0.001, 86_400.0)),
                (
                    "inputs",
                    string_array(
                        "Files its outcome depends on, as globs; the outcome is reused while they are unchanged",
                    ),
                ),
                ("hypothesis", string("The hypothesis it supports if it passes, and weakens if it fails")),
                ("strength", bounded_number("How strongly (default 0.8)", 0.0, 1.0)),
                ("fills", string("The gap it fills when it passes")),
                ("halt_on_fail", boolean("If it fails, the checks after it are not run")),
            ],
            &["title"],
        ),
        output: edit_schema(),
        hints: ADDITIVE,
        is_slow: false,
        creates_workspace: true,
        run: |context, args| {
            let (mut on_pass, mut on_fail) = (Vec::new(), Vec::new());
            if let Some(hypothesis) = args.optional_item("hypothesis")? {
                let strength = args.number("strength").unwrap_or(0.8);
                on_pass.push(OnOutcome::Evidence { hypothesis, strength });
                on_fail.push(OnOutcome::Evidence { hypothesis, strength: -strength });
            }
            on_pass.extend(args.optional_item("fills")?.map(OnOutcome::Fill));
            on_fail.extend(args.flag("halt_on_fail").then_some(OnOutcome::Halt));
            let seconds = args.number("timeout_s").unwrap_or(DEFAULT_TIMEOUT_SECONDS);
            change_board(
                context,
                &BoardMutation::AddVerification {
                    title: args.require_text("title")?.to_owned(),
                    check: parse_check(context, args)?,
                    // Does not overflow: the schema keeps it between a millisecond and a day.
                    timeout_ms: (seconds * 1000.0) as u64,
                    inputs: args.texts("inputs").iter().map(|path| context.relative_path(path)).collect(),
                    on_pass,
                    on_fail,
                },
            )
        },
    }
}

fn parse_check(context: &ToolContext<'_>, args: &Args) -> Result<Check, ToolError> {
    let inside = |path: &str| context.relative_path(path);
    let measured = |file: &str, run: &str| {
        let file = args.text(file).map(|file| Measured::File(inside(file)));
        file.or_else(|| args.owned_text(run).map(Measured::Command))
    };
    if let Some(run) = args.owned_text("run") {
        let exit = args.value("exit").and_then(Value::as_i64).unwrap_or(0);
        let exit = i32::try_from(exit).map_err(|_| ToolError::new("exit is not a valid exit code"))?;
        return Ok(Check::Command {
            run,
            exit,
            contains: args.texts("contains"),
            lacks: args.texts("lacks"),
        });
    }
    if let [left, right] = args.texts("same").as_slice() {
        return Ok(Check::SameFiles { left: inside(left), right: inside(right) });
    }
    if let Some(file) = args.text("file") {
        let text = args.require_text("text")?.to_owned();
        return Ok(Check::FileText { path: inside(file), text, absent: args.flag("absent") });
    }
    if let Some(measured) = measured("json_file", "json_run") {
        let equals = args.value("equals").cloned();
        let equals = equals.ok_or_else(|| ToolError::new("verify_add needs \"equals\" with JSON"))?;
        return Ok(Check::Json { from: measured, pointer: args.require_text("pointer")?.to_owned(), equals });
    }
    if let Some(measured) = measured("numbers_file", "numbers_run") {
        return Ok(Check::Reference {
            from: measured,
            reference: inside(args.require_text("reference")?),
            absolute: args.number("absolute").unwrap_or(0.0),
            relative: args.number("relative").unwrap_or(0.0),
        });
    }
    Err(ToolError::new("verify_add requires something to check").with_hint(
        "give run, file and text, same (two files), json_file or json_run, or numbers_file or numbers_run",
    ))
}

pub(super) fn run_tool() -> Tool {
    Tool {
        name: "verify_run",
        title: "Run checks",
        description: "Runs checks in the workspace, records their outcomes and applies their consequences (evidence, filled gaps). Without names, all that have not run yet.",
        input: object(
            &[
                ("checks", string_array("Which ones, such as V1")),
                ("fresh", boolean("Run even if their inputs are unchanged")),
            ],
            &[],
        ),
        output: object(
            &[
                ("passed", boolean("All of them passed")),
                (
                    "checks",
                    array(
                        "In order",
                        object(
                            &[
                                ("check", string("")),
                                ("outcome", string("passed, failed, timed-out or error")),
                                ("reason", string("")),
                                ("said", string_array("")),
                                ("output", string("What was printed, shortened; not for one that passed")),
                                ("step", integer("")),
                            ],
                            &["check", "outcome", "reason"],
                        ),
                    ),
                ),
            ],
            &["passed", "checks"],
        ),
        // The agent's own commands can do anything.
        hints: ToolHints { read_only: false, destructive: true, idempotent: false, open_world: true },
        is_slow: true,
        creates_workspace: true,
        run: run_checks,
    }
}

/// Whether a check runs a command, not only reads files.
fn is_command(plan: &Verification) -> bool {
    matches!(
        &plan.check,
        Check::Command { .. }
            | Check::Json { from: Measured::Command(_), .. }
            | Check::Reference { from: Measured::Command(_), .. }
    )
}

fn run_checks(context: &ToolContext<'_>, args: &Args) -> Result<ToolReply, ToolError> {
    let session = context.target_session()?;
    let mut editor = BoardEditor::new(context.workspace, &session);
    let board = editor.board()?;
    let mut ids: Vec<VerificationId> = args.item_ids("checks")?;
    if ids.is_empty() {
        ids = stepback_board::pending_checks(&board);
    }
    if ids.is_empty() {
        return Err(ToolError::new("no check is left to run")
            .with_hint("add one with verify_add, or name one to run it again"));
    }
    if !context.allow_commands
        && let Some(id) = ids.iter().find(|id| board.verifications.get(id.0).is_some_and(is_command))
    {
        return Err(ToolError::new(format!("{id} is a command, and this server does not run commands")).with_hint(
            "run \"stepback board verify run\" in the workspace, or ask the user to start the server with \"stepback serve --allow-commands\"",
        ));
    }
    let (mut documents, mut lines, mut passed) = (Vec::new(), Vec::new(), true);
    let total = ids.len() as u64;
    for (done, id) in (0..).zip(&ids) {
        context.request.report_progress(done, total, &format!("running {id}"));
        let verified = stepback_board::run_check(&mut editor, *id, args.flag("fresh"))?;
        let is_passed = verified.outcome == CheckOutcome::Passed;
        passed &= is_passed;
        lines.push(format!("{id} {}: {}", verified.outcome.as_str(), verified.reason));
        let mut document =
            json!({ "check": id, "outcome": verified.outcome.as_str(), "reason": verified.reason });
        if let Some(edit) = &verified.edit {
            document["said"] = json!(edit.effect.messages);
            document["step"] = json!(edit.step);
            lines.extend(edit.effect.messages.iter().skip(1).cloned());
            if !is_passed {
                let board = editor.board()?;
                let last = board.runs.iter().rev().find(|(_, run)| run.verification == *id);
                let mut output = last.map(|(_, run)| run.output.clone()).unwrap_or_default();
                clip::text(&mut output, MAX_OUTPUT_BYTES);
                if !output.trim().is_empty() {
                    lines.push(output.trim_end().to_owned());
                    document["output"] = json!(output);
                }
            }
        }
        documents.push(document);
        if verified.edit.is_some_and(|edit| edit.effect.halt) {
            lines.push("The checks after it were not run.".to_owned());
            break;
        }
    }
    context.request.report_progress(total, total, "done");
    Ok(ToolReply { text: lines.join("\n"), structured: json!({ "passed": passed, "checks": documents }) })
}
