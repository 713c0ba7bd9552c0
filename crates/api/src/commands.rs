//! The shell commands that agents called.

use serde::{Deserialize, Serialize};
use stepback_model::time::Timestamp;
use utoipa::ToSchema;

/// A shell command that an agent called.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CommandDocument {
    /// The number of the step at which it ended, or at which it began if it has no end.
    pub step: u64,
    /// The number of the step at which it began; none if that was not recorded.
    pub start: Option<u64>,
    /// The id of the session that called it.
    pub session: String,
    /// The sub-agent that called it; none for the main agent.
    pub worker: Option<String>,
    /// The time of `step`.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// The tool, by the agent's name for it.
    pub tool: String,
    /// The command line.
    pub command: String,
    /// The directory that it ran in; none if it is not known.
    pub directory: Option<String>,
    /// What became of it: `ran`, `running`, `not-run` (it was refused), or `unknown` (its end was not reported).
    pub status: String,
    /// The exit code; none if the agent does not report it.
    pub exit: Option<i64>,
    /// Whether the agent reported an error.
    pub failed: bool,
    /// How long it took, in microseconds; none if it is not known.
    pub duration_us: Option<u64>,
    /// The beginning of its output, both streams; of one that was refused, the reason.
    pub output: String,
    /// The beginning of its standard output; none if the agent does not tell the streams apart.
    pub stdout: Option<String>,
    /// The beginning of its standard error output; none if the agent does not tell the streams apart.
    pub stderr: Option<String>,
}
