//! The demo's script: an agent breaks something and is stopped, then the rewind and the second attempt.

use serde_json::Value;

use super::project::{self, CLEAN_UP, DISASTER, PROMPT, SECOND_PROMPT, TEST_COMMAND};
use super::stage::{DemoProject, SCRIPT, demo_failure};
use crate::failure::CommandFailure;

/// Plays the demo from beginning to end.
pub fn play(stage: &DemoProject) -> Result<(), CommandFailure> {
    set_up(stage)?;
    stop_agent_at_breakpoint(stage)?;
    let culprit = find_culprit(stage)?;
    rewind_before_culprit(stage, &culprit)?;
    retry_with_hint(stage, &culprit)?;
    compare_attempts(stage)?;
    recover_from_deletion(stage)
}

/// The call that broke the tests.
struct BreakingCall {
    /// The number of the last step before the call at which the tests passed.
    last_good_step: u64,
    /// The number of the step at which the call began.
    call_step: u64,
}

fn set_up(stage: &DemoProject) -> Result<(), CommandFailure> {
    project::create(&stage.root)?;
    std::fs::write(stage.root.join(SCRIPT), project::agent_script(stage.think_delay_ms()).to_string())?;
    let git = "git init -q -b main . && git add -A && \
        git -c user.name=You -c user.email=you@example.com commit -q -m 'Tokens and sessions'";
    let mut command = stage.build_command("sh");
    command.args(["-c", git]).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    // The user's git configuration (signatures, hooks, templates) is for the user's own projects.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TEMPLATE_DIR", "");
    // Without git the demo works too, only without a repository.
    if !command.status().is_ok_and(|status| status.success()) {
        let _ = std::fs::remove_dir_all(stage.root.join(".git"));
    }
    Ok(())
}

fn stop_agent_at_breakpoint(stage: &DemoProject) -> Result<(), CommandFailure> {
    stage.print_title("stepback: time travel for AI agents")?;
    stage.print_prose(
        "In the next minute an agent breaks something, and we undo it. The agent is the one that comes with \
         stepback; its model plays a script, so no key is needed. Everything else is real and runs in a temporary \
         directory.",
    )?;
    stage.start_act(
        "1. An agent goes to work",
        "A small auth module in shell; its tests pass. One rule before the agent starts: when it wants to delete \
         something, it has to wait for us.",
    )?;
    stage.run_stepback(&["breakpoint", "add", "tool", "bash", "--condition", "rm |git reset"])?;
    let mut agent = stage.start_agent(&[PROMPT])?;
    let ended = stage.show_output_until(&mut agent, || {
        let sessions = stage.query_json(&["sessions"])?;
        Ok(sessions["items"][0]["status"] == "stopped")
    })?;
    if ended {
        return Err(demo_failure("the agent was not stopped"));
    }

    stage.start_act(
        "2. It wants to start over",
        "The tests fail, and the agent is about to delete them, and the .env with them. stepback stopped the call: it \
         has not run. We could let it continue, change the command, or refuse it.",
    )?;
    stage.run_stepback(&["inspect"])?;
    stage.run_stepback(&["deny", "leave .env, git does not have it"])?;
    stage.wait_for_agent(agent)?;
    match stage.root.join(".env").exists() {
        true => Ok(()),
        false => Err(demo_failure(format!("\"{CLEAN_UP}\" was run"))),
    }
}

fn find_culprit(stage: &DemoProject) -> Result<BreakingCall, CommandFailure> {
    stage.start_act(
        "3. Which call broke the tests?",
        "Every change of the agent is a step you can go back to. Bisect runs the tests on these steps, in a \
         separate directory, until it finds the one that broke them.",
    )?;
    stage.run_stepback(&["timeline"])?;
    stage.run_stepback(&["bisect", "--run", TEST_COMMAND])?;
    let found = stage.query_json(&["bisect", "--run", TEST_COMMAND])?;
    let steps = stage.query_json(&["log"])?;
    let number_of = |id: &Value| {
        let step = steps["items"].as_array().into_iter().flatten().find(|step| step["id"] == *id);
        step.and_then(|step| step["number"].as_u64()).ok_or_else(|| demo_failure("bisect found no call"))
    };
    Ok(BreakingCall {
        last_good_step: number_of(&found["good"])?,
        call_step: number_of(&found["detail"]["start"])?,
    })
}

fn rewind_before_culprit(stage: &DemoProject, culprit: &BreakingCall) -> Result<(), CommandFailure> {
    stage.start_act(
        "4. Back to the moment before",
        "Plan A gets a name, in case we want to see it again. Then back to just before that edit; what the agent \
         did until then stays.",
    )?;
    stage.run_stepback(&["branch", "create", "plan-a"])?;
    stage.run_stepback(&["rewind", &format!("#{}", culprit.last_good_step), "--yes"])?;
    expect_tests_to_pass(stage)
}

fn retry_with_hint(stage: &DemoProject, culprit: &BreakingCall) -> Result<(), CommandFailure> {
    stage.start_act(
        "5. The other way",
        "The conversation continues from just before that edit, too, with a hint from us. The agent does not know that \
         it ever tried plan A.",
    )?;
    stage.run_agent(&["--from", &format!("#{}", culprit.call_step), SECOND_PROMPT])?;
    expect_tests_to_pass(stage)
}

fn compare_attempts(stage: &DemoProject) -> Result<(), CommandFailure> {
    stage.start_act(
        "6. Side by side",
        "Both tries are recorded: where they diverge, what each did, how they end.",
    )?;
    stage.run_stepback(&["compare", "plan-a", "main", "--summary"])
}

fn recover_from_deletion(stage: &DemoProject) -> Result<(), CommandFailure> {
    let lost = match stage.root.join(".git").exists() {
        true => "Now everything is deleted: the repository itself, and the .env that no commit has.",
        false => "Now everything is deleted.",
    };
    stage.start_act("7. And the worst case", lost)?;
    let before = project::read_manifest(&stage.root)?;
    stage.run_shell(&format!("{DISASTER} && ls -A"))?;
    stage.run_stepback(&["rewind", "@", "--everything", "--files", "--git", "--yes"])?;
    if project::read_manifest(&stage.root)? != before {
        return Err(demo_failure("the project is not what it was"));
    }
    stage.print_success(&format!("All {} files are byte for byte what they were.", before.len()))?;
    expect_tests_to_pass(stage)
}

fn expect_tests_to_pass(stage: &DemoProject) -> Result<(), CommandFailure> {
    match stage.run_shell(TEST_COMMAND)? {
        true => Ok(()),
        false => Err(demo_failure("the tests do not pass")),
    }
}
