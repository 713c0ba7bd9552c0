//! Builds the command that reruns an agent without a user present.
//!
//! If the recorded command contains the prompt itself, it is run unchanged. A session that was interactive, or that continues
//! from an earlier prompt, has no such command; then one is built that answers one prompt and ends. It allows only the tools
//! that were used in the recording, if the agent supports that.

use crate::Agent;

/// What to rerun.
#[derive(Clone, Copy, Debug)]
pub struct RerunCommand<'a> {
    /// The agent to start.
    pub agent: Agent,
    /// The recorded command; empty if there is none.
    pub argv: &'a [String],
    /// The prompt in the recording.
    pub recorded_prompt: &'a str,
    /// The prompt for the rerun.
    pub prompt: &'a str,
    /// The session to continue, if this is not the first prompt.
    pub resume: Option<&'a str>,
    /// The tools that were used in the recording.
    pub tools: &'a [String],
    /// The model, if it is changed.
    pub model: Option<&'a str>,
}

impl RerunCommand<'_> {
    /// Returns the command to run.
    pub fn build_command(&self) -> Vec<String> {
        let own = self.resume.is_none() && !self.is_continuation();
        match self.argv.iter().position(|word| self.is_recorded_prompt(word)) {
            Some(at) if own => {
                let mut argv = self.argv.to_vec();
                let bare = |text: &'_ str| text.trim_matches('"').to_owned();
                argv[at] = argv[at].replacen(&bare(self.recorded_prompt), &bare(self.prompt), 1);
                argv
            }
            _ => self.build_new_command(),
        }
    }

    /// Whether the recorded command continues a session that does not exist any more.
    fn is_continuation(&self) -> bool {
        let goes_on = |word: &String| match self.agent {
            Agent::Claude => matches!(word.as_str(), "--resume" | "-r" | "--continue" | "-c"),
            Agent::Codex => matches!(word.as_str(), "resume" | "fork"),
            Agent::Gemini => matches!(word.as_str(), "--resume" | "-r" | "--session-file"),
            Agent::Opencode => matches!(word.as_str(), "--session" | "-s" | "--continue" | "-c"),
        };
        self.argv.iter().any(goes_on)
    }

    fn is_recorded_prompt(&self, word: &str) -> bool {
        let said = self.recorded_prompt.trim_matches('"');
        !said.is_empty()
            && (word == self.recorded_prompt || word == said || word.strip_prefix("--prompt=") == Some(said))
    }

    fn build_new_command(&self) -> Vec<String> {
        let program = match self.argv.first() {
            // The launcher may be a wrapper or a script that needs more than its first word.
            Some(program) if program.rsplit('/').next() == Some(self.agent.name()) => program.as_str(),
            _ => self.agent.name(),
        };
        let mut words = vec![program.to_owned()];
        let mut add = |some: &[&str]| words.extend(some.iter().map(|word| (*word).to_owned()));
        let tools = self.tools.join(",");
        match self.agent {
            Agent::Claude => {
                add(&["-p", self.prompt]);
                if !tools.is_empty() {
                    add(&["--allowedTools", &tools]);
                }
                if let Some(model) = self.model {
                    add(&["--model", model]);
                }
                if let Some(session) = self.resume {
                    add(&["--resume", session]);
                }
            }
            Agent::Codex => {
                // The rerun's own sandbox restricts it; a second one cannot be created inside.
                add(&["exec", "-s", "danger-full-access", "--skip-git-repo-check"]);
                if let Some(model) = self.model {
                    add(&["-m", model]);
                }
                if let Some(session) = self.resume {
                    add(&["resume", session]);
                }
                add(&["--", self.prompt]);
            }
            Agent::Gemini => {
                add(&["--approval-mode", "yolo", "--skip-trust"]);
                if let Some(model) = self.model {
                    add(&["-m", model]);
                }
                if let Some(session) = self.resume {
                    match session.contains('/') {
                        true => add(&["--session-file", session]),
                        false => add(&["--resume", session]),
                    }
                }
                add(&[&format!("--prompt={}", self.prompt)]);
            }
            Agent::Opencode => {
                add(&["run", "--auto"]);
                if let Some(session) = self.resume {
                    add(&["--session", session]);
                }
                add(&["--", self.prompt]);
            }
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn again<'a>(agent: Agent, argv: &'a [String], resume: Option<&'a str>) -> RerunCommand<'a> {
        RerunCommand { agent, argv, recorded_prompt: "fix", prompt: "mend", resume, tools: &[], model: None }
    }

    #[test]
    fn a_command_that_carries_its_prompt_is_run_as_it_was() {
        let argv = words("/opt/claude -p fix --output-format json");
        assert_eq!(
            again(Agent::Claude, &argv, None).build_command(),
            words("/opt/claude -p mend --output-format json")
        );
        let argv = words("gemini --prompt=fix -m x");
        assert_eq!(again(Agent::Gemini, &argv, None).build_command(), words("gemini --prompt=mend -m x"));
    }

    #[test]
    fn what_went_on_or_was_typed_gets_a_command_of_its_own() {
        let argv = words("/opt/claude --resume 12 -p fix");
        let tools = words("Bash");
        let typed = RerunCommand { tools: &tools, ..again(Agent::Claude, &argv, Some("new")) };
        assert_eq!(typed.build_command(), words("/opt/claude -p mend --allowedTools Bash --resume new"));
        let argv = words("codex");
        let exec = "codex exec -s danger-full-access --skip-git-repo-check";
        assert_eq!(again(Agent::Codex, &argv, None).build_command(), words(&format!("{exec} -- mend")));
        assert_eq!(
            again(Agent::Codex, &argv, Some("id")).build_command(),
            words(&format!("{exec} resume id -- mend"))
        );
    }
}
