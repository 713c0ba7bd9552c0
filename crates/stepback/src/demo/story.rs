//! The demo's script: an agent breaks something and is stopped, then the rewind and the second attempt.

use serde_json::Value;

use super::project::{self, CLEAN_UP, DISASTER, PROMPT, SECOND_PROMPT, TEST};
use super::stage::{DemoProject, SCRIPT, broken};
use crate::failure::CommandFailure;

/// Plays the demo from beginning to end.
pub fn play(stage: &DemoProject) -> Result<(), CommandFailure> {
    set_up(stage)?;
    the_agent_is_stopped(stage)?;
    let culprit = the_culprit(stage)?;
    go_back(stage, &culprit)?;
    the_other_way(stage, &culprit)?;
    compare(stage)?;
    disaster(stage)
}

/// The call that broke the tests.
struct Culprit {
    /// The number of the last step before the call at which the tests passed.
    good: u64,
    /// The number of the step at which the call began.
    call: u64,
}

fn set_up(stage: &DemoProject) -> Result<(), CommandFailure> {
    project::make(&stage.root)?;
    std::fs::write(stage.root.join(SCRIPT), project::script(stage.thinking()).to_string())?;
    let git = "git init -q -b main . && git add -A && \
        git -c user.name=You -c user.email=you@example.com commit -q -m 'Tokens and sessions'";
    let mut command = stage.command("sh");
    command.args(["-c", git]).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    // The user's git configuration (signatures, hooks, templates) is for the user's own projects.
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_TEMPLATE_DIR", "");
    // Without git the demo works too, only without a repository.
    if !command.status().is_ok_and(|status| status.success()) {
        let _ = std::fs::remove_dir_all(stage.root.join(".git"));
    }
    Ok(())
}

fn the_agent_is_stopped(stage: &DemoProject) -> Result<(), CommandFailure> {
    stage.title("stepback: time travel for AI agents")?;
    stage.prose(
        "In the next minute an agent breaks something, and we undo it. The agent is the one that comes with \
         stepback; its model plays a script, so no key is needed. Everything else is real and runs in a temporary \
         directory.",
    )?;
    stage.act(
        "1. An agent goes to work",
        "A small auth module in shell; its tests pass. One rule before the agent starts: when it wants to delete \
         something, it has to wait for us.",
    )?;
    stage.stepback(&["breakpoint", "add", "tool", "bash", "--condition", "rm |git reset"])?;
    let mut agent = stage.start_agent(&[PROMPT])?;
    let ended = stage.watch(&mut agent, || {
        let sessions = stage.ask(&["sessions"])?;
        Ok(sessions["items"][0]["status"] == "stopped")
    })?;
    if ended {
        return Err(broken("the agent was not stopped"));
    }

    stage.act(
        "2. It wants to start over",
        "The tests fail, and the agent is about to delete them, and the .env with them. stepback stopped the call: it \
         has not run. We could let it continue, change the command, or refuse it.",
    )?;
    stage.stepback(&["inspect"])?;
    stage.stepback(&["deny", "leave .env, git does not have it"])?;
    stage.to_the_end(agent)?;
    match stage.root.join(".env").exists() {
        true => Ok(()),
        false => Err(broken(format!("\"{CLEAN_UP}\" was run"))),
    }
}

fn the_culprit(stage: &DemoProject) -> Result<Culprit, CommandFailure> {
    stage.act(
        "3. Which call broke the tests?",
        "Every change of the agent is a step you can go back to. Bisect runs the tests on these steps, in a \
         separate directory, until it finds the one that broke them.",
    )?;
    stage.stepback(&["timeline"])?;
    stage.stepback(&["bisect", "--run", TEST])?;
    let found = stage.ask(&["bisect", "--run", TEST])?;
    let steps = stage.ask(&["log"])?;
    let number_of = |id: &Value| {
        let step = steps["items"].as_array().into_iter().flatten().find(|step| step["id"] == *id);
        step.and_then(|step| step["number"].as_u64()).ok_or_else(|| broken("bisect found no call"))
    };
    Ok(Culprit { good: number_of(&found["good"])?, call: number_of(&found["detail"]["start"])? })
}

fn go_back(stage: &DemoProject, culprit: &Culprit) -> Result<(), CommandFailure> {
    stage.act(
        "4. Back to the moment before",
        "Plan A gets a name, in case we want to see it again. Then back to just before that edit; what the agent \
         did until then stays.",
    )?;
    stage.stepback(&["branch", "create", "plan-a"])?;
    stage.stepback(&["rewind", &format!("#{}", culprit.good), "--yes"])?;
    expect_tests_to_pass(stage)
}

fn the_other_way(stage: &DemoProject, culprit: &Culprit) -> Result<(), CommandFailure> {
    stage.act(
        "5. The other way",
        "The conversation continues from just before that edit, too, with a hint from us. The agent does not know that \
         it ever tried plan A.",
    )?;
    stage.run_agent(&["--from", &format!("#{}", culprit.call), SECOND_PROMPT])?;
    expect_tests_to_pass(stage)
}

fn compare(stage: &DemoProject) -> Result<(), CommandFailure> {
    stage.act(
        "6. Side by side",
        "Both tries are recorded: where they diverge, what each did, how they end.",
    )?;
    stage.stepback(&["compare", "plan-a", "main", "--summary"])
}

fn disaster(stage: &DemoProject) -> Result<(), CommandFailure> {
    let lost = match stage.root.join(".git").exists() {
        true => "Now everything is deleted: the repository itself, and the .env that no commit has.",
        false => "Now everything is deleted.",
    };
    stage.act("7. And the worst case", lost)?;
    let before = project::manifest(&stage.root)?;
    stage.shell(&format!("{DISASTER} && ls -A"))?;
    stage.stepback(&["rewind", "@", "--everything", "--git", "--yes"])?;
    if project::manifest(&stage.root)? != before {
        return Err(broken("the project is not what it was"));
    }
    stage.cheer(&format!("All {} files are byte for byte what they were.", before.len()))?;
    expect_tests_to_pass(stage)
}

fn expect_tests_to_pass(stage: &DemoProject) -> Result<(), CommandFailure> {
    match stage.shell(TEST)? {
        true => Ok(()),
        false => Err(broken("the tests do not pass")),
    }
}
