//! Chooses the executable that continues a conversation: the one it was recorded with, not the first one on the PATH today.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use stepback_model::record::LaunchCommand;

use super::{Fork, ForkError, ForkMode};
use crate::agent::Agent;
use crate::install;

/// Returns the words that start an agent as it was started; its name if that is not known.
fn recorded_launcher(agent: Agent, started: Option<&LaunchCommand>) -> Vec<String> {
    let Some(started) = started.filter(|started| !started.argv.is_empty()) else {
        return vec![agent.name().to_owned()];
    };
    let argv: Vec<OsString> = started.argv.iter().map(OsString::from).collect();
    let mut words = started.argv[..install::launcher_words(&argv).len()].to_vec();
    // A path may be relative to the directory of the command.
    if words[0].contains('/') {
        words[0] = Path::new(&started.directory).join(&words[0]).display().to_string();
    }
    words
}

/// Makes a fork use the executable of the session it comes from. If that does not exist any more, a fork that is to be
/// started at once fails; otherwise a note says so.
pub(super) fn use_recorded_program(
    fork: &mut Fork,
    agent: Agent,
    started: Option<&LaunchCommand>,
    mode: ForkMode<'_>,
) -> Result<(), ForkError> {
    let launcher = recorded_launcher(agent, started);
    let program = PathBuf::from(&launcher[0]);
    if launcher[0].contains('/') && !program.is_file() {
        if matches!(mode, ForkMode::Prompt(_)) || fork.prepare.is_some() {
            return Err(ForkError::MissingProgram { agent, program });
        }
        let missing = format!(
            "the session was recorded with {}, which no longer exists: install another {agent} executable there",
            program.display()
        );
        fork.note =
            Some(fork.note.take().map_or_else(|| missing.clone(), |note| format!("{note}; {missing}")));
    }
    let commands = [Some(&mut fork.command), fork.prepare.as_mut().map(|prepare| &mut prepare.command)];
    for command in commands.into_iter().flatten() {
        command.splice(..1, launcher.iter().cloned());
    }
    Ok(())
}

/// Returns the launch command to record for a new session.
pub(super) fn derive_launch_command(agent: &str, from: Option<&LaunchCommand>) -> Option<LaunchCommand> {
    let (agent, from) = (Agent::parse(agent)?, from?);
    Some(LaunchCommand { argv: recorded_launcher(agent, Some(from)), ..from.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fork() -> Fork {
        Fork {
            session: "new".into(),
            kept_lines: 1,
            writes: Vec::new(),
            prepare: None,
            command: ["claude", "--resume", "new"].map(str::to_owned).to_vec(),
            cwd: "/work".into(),
            note: None,
        }
    }

    fn started(argv: &[&str], directory: &Path) -> LaunchCommand {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        LaunchCommand { argv, directory: directory.display().to_string(), ..LaunchCommand::default() }
    }

    fn planned(started: Option<&LaunchCommand>, mode: ForkMode<'_>) -> Result<Fork, ForkError> {
        let mut fork = fork();
        use_recorded_program(&mut fork, Agent::Claude, started, mode).map(|()| fork)
    }

    #[test]
    fn the_recorded_executable_goes_on_wherever_it_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        let program = dir.path().join("bin/claude");
        std::fs::write(&program, "").unwrap();
        let whole = program.to_str().unwrap();
        for argv in [&[whole, "-p", "do it"][..], &["bin/claude", "-p", "do it"]] {
            let started = started(argv, dir.path());
            let fork = planned(Some(&started), ForkMode::Prompt("go on")).unwrap();
            assert_eq!(fork.command, [whole, "--resume", "new"], "{argv:?}");
            assert_eq!(fork.note, None);
            // A fork of the fork uses the same one.
            let again = derive_launch_command("claude", Some(&started)).unwrap();
            assert_eq!(again.argv, [whole]);
        }
    }

    #[test]
    fn what_starts_the_agent_may_be_several_words() {
        let argv = ["npx", "-y", "@anthropic-ai/claude-code", "-p", "do it"];
        let fork = planned(Some(&started(&argv, Path::new("/"))), ForkMode::Interactive).unwrap();
        assert_eq!(fork.command, ["npx", "-y", "@anthropic-ai/claude-code", "--resume", "new"]);
    }

    #[test]
    fn without_a_record_of_it_the_agent_is_called_by_its_name() {
        for started in [None, Some(&LaunchCommand::default())] {
            assert_eq!(planned(started, ForkMode::Prompt("x")).unwrap().command[0], "claude");
        }
    }

    #[test]
    fn an_executable_that_is_gone_is_refused_or_noted_and_never_replaced_by_another_one() {
        let started = started(&["/gone/claude", "-p", "do it"], Path::new("/"));
        let refused = planned(Some(&started), ForkMode::Prompt("go on")).unwrap_err().to_string();
        assert_eq!(refused, "the session was recorded with /gone/claude, which no longer exists");
        let fork = planned(Some(&started), ForkMode::Interactive).unwrap();
        assert_eq!(fork.command[0], "/gone/claude");
        assert!(fork.note.unwrap().contains("/gone/claude, which no longer exists"));
    }
}
