//! What calls may do in a rerun.
//!
//! A rerun runs unattended. Behind a fence, calls can do no harm elsewhere; without one, whatever could is refused here. The
//! person may also want no tool to run at all, or none to run for real.

use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Agent;
use crate::tools;

/// The variable that names the file with the policy.
pub const VARIABLE: &str = "STEPBACK_RERUN";

/// What becomes of tool calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tools {
    /// They run.
    #[default]
    Real,
    /// They do not run; what they did when they were recorded is put in place.
    Recorded,
    /// Those that can change something do not run.
    Deny,
}

/// The rules of one rerun.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Policy {
    /// What becomes of tool calls.
    pub tools: Tools,
    /// The directory of the rerun.
    pub root: PathBuf,
    /// Whether namespaces keep calls from doing anything elsewhere.
    pub fenced: bool,
}

impl Policy {
    /// Reads the policy from a file.
    pub fn load(file: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }

    /// Why a call must not run; `None` if it may.
    pub fn refusal(&self, agent: Agent, tool: &str, paths: &[String]) -> Option<String> {
        let changes = tools::can_change(agent, tool);
        if self.tools == Tools::Deny && changes {
            return Some("this is a rerun in which tools that change something do not run".to_owned());
        }
        if self.fenced || !changes {
            return None;
        }
        if paths.is_empty() {
            return Some(format!(
                "this is a rerun without a fence, and nobody can tell what {tool} would do outside of {}",
                self.root.display()
            ));
        }
        let outside = |path: &&String| {
            let whole = self.root.join(path);
            whole.components().any(|part| part == Component::ParentDir) || !whole.starts_with(&self.root)
        };
        let path = paths.iter().find(outside)?;
        Some(format!("this is a rerun, and {path} is outside of its directory {}", self.root.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(tools: Tools, fenced: bool) -> Policy {
        Policy { tools, root: "/scratch".into(), fenced }
    }

    #[test]
    fn without_a_fence_only_what_is_known_to_stay_inside_runs() {
        let refused = |tool: &str, paths: &[&str]| {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            policy(Tools::Real, false).refusal(Agent::Claude, tool, &paths).is_some()
        };
        assert!(!refused("Write", &["/scratch/a/b.txt"]));
        assert!(!refused("Write", &["a.txt"]));
        assert!(refused("Write", &["/etc/passwd"]));
        assert!(refused("Write", &["../a.txt"]));
        assert!(refused("Bash", &[]));
        assert!(!refused("Read", &["/etc/hostname"]));
    }

    #[test]
    fn behind_a_fence_everything_runs_unless_nothing_shall() {
        assert_eq!(policy(Tools::Real, true).refusal(Agent::Claude, "Bash", &[]), None);
        assert!(policy(Tools::Deny, true).refusal(Agent::Claude, "Bash", &[]).is_some());
        assert_eq!(policy(Tools::Deny, true).refusal(Agent::Claude, "Read", &[]), None);
    }
}
