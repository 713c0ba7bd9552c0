//! What a step says about who waits for whom: the agent for the user, a call for a permission, an agent at a breakpoint.
//!
//! Such steps have kinds that cover much more, so the mark is read from the summary, in the words in which hooks, imports and
//! the built-in agent write it.

use serde::{Deserialize, Serialize};
use stepback_model::record::StepKind;

/// What a step says about who waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StepMark {
    /// Nothing.
    #[default]
    None,
    /// The agent was started or resumed, and waits for a prompt.
    SessionStarted,
    /// The agent ended.
    SessionEnded,
    /// The agent is done with a prompt, was interrupted or gave up, and waits for the next prompt.
    TurnDone,
    /// A sub-agent began.
    WorkerStarted,
    /// A sub-agent is done.
    WorkerDone,
    /// The agent asked the user for a permission, and waits.
    PermissionAsked,
    /// A permission was denied.
    PermissionDenied,
    /// The agent was stopped at a breakpoint, and waits.
    Stopped,
    /// The user answered a stopped agent, or the agent waited too long.
    Answered,
    /// A call was refused and did not run.
    Refused,
    /// The conversation was compacted, so the next request is smaller.
    Compacted,
}

impl StepMark {
    /// Every mark, in the order of its number in a file.
    const ALL: [Self; 12] = [
        Self::None,
        Self::SessionStarted,
        Self::SessionEnded,
        Self::TurnDone,
        Self::WorkerStarted,
        Self::WorkerDone,
        Self::PermissionAsked,
        Self::PermissionDenied,
        Self::Stopped,
        Self::Answered,
        Self::Refused,
        Self::Compacted,
    ];

    /// Its number in a file.
    pub(crate) fn as_u8(self) -> u8 {
        Self::ALL.iter().position(|mark| *mark == self).map_or(0, |at| at as u8)
    }

    /// The mark with a number.
    pub(crate) fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Reads the mark of a step from its kind and summary.
    pub fn of(kind: StepKind, summary: &str) -> Self {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| summary.starts_with(prefix));
        match kind {
            StepKind::AgentStep => match summary {
                // An agent starts its session anew when it compacts the conversation, in the middle of its work.
                "session started (compact)" => Self::None,
                "interrupted" | "done" => Self::TurnDone,
                _ if begins(&["session started"]) => Self::SessionStarted,
                _ if begins(&["session ended"]) => Self::SessionEnded,
                _ if begins(&["sub-agent started"]) => Self::WorkerStarted,
                _ if begins(&["sub-agent done"]) => Self::WorkerDone,
                _ if begins(&["done: "]) => Self::TurnDone,
                _ => Self::None,
            },
            StepKind::Decision if begins(&["permission asked for "]) => Self::PermissionAsked,
            StepKind::Decision if begins(&["permission denied for "]) => Self::PermissionDenied,
            StepKind::Decision if begins(&["resumed: ", "denied: ", "input edited", "no answer in time"]) => {
                Self::Answered
            }
            StepKind::BreakpointHit if begins(&["stopped: "]) => Self::Stopped,
            StepKind::ToolEnd if begins(&["not run: "]) => Self::Refused,
            StepKind::StateChange if summary == "the conversation was compacted" => Self::Compacted,
            _ => Self::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_in_the_words_in_which_steps_are_written() {
        let marks = [
            (StepKind::AgentStep, "session started (resume)", StepMark::SessionStarted),
            (StepKind::AgentStep, "session started (compact)", StepMark::None),
            (StepKind::AgentStep, "session ended: timed out", StepMark::SessionEnded),
            (StepKind::AgentStep, "done: all tests pass", StepMark::TurnDone),
            (StepKind::AgentStep, "sub-agent done: found it", StepMark::WorkerDone),
            (StepKind::AgentStep, "Claude is waiting for your input", StepMark::None),
            (StepKind::UserInput, "done: all tests pass", StepMark::None),
            (StepKind::Decision, "permission asked for Bash: rm -rf x", StepMark::PermissionAsked),
            (StepKind::Decision, "no answer in time; denied", StepMark::Answered),
            (StepKind::BreakpointHit, "stopped: breakpoint 1", StepMark::Stopped),
            (StepKind::BreakpointHit, "log point 1: Bash", StepMark::None),
            (StepKind::ToolEnd, "not run: Bash: rm -rf x", StepMark::Refused),
        ];
        for (kind, summary, mark) in marks {
            assert_eq!(StepMark::of(kind, summary), mark, "{kind:?} {summary}");
        }
    }
}
