//! The question before a change, for every command that asks one.

use crate::failure::CommandFailure;
use crate::output;

/// Returns whether the user agrees. To decline is an answer like any other; without a terminal to ask on, `refusal` says what to
/// do.
pub fn ask_user(json: bool, question: &str, refusal: CommandFailure) -> Result<bool, CommandFailure> {
    let answer = if json { None } else { output::confirm(question) };
    let agrees = answer.ok_or(refusal)?;
    if !agrees {
        output::print_status("Nothing was changed.");
    }
    Ok(agrees)
}
