//! Shell commands as documents.

use stepback_board::CommandRun;

use crate::commands::CommandDocument;

impl CommandDocument {
    /// The document of a command.
    pub fn from_run(run: &CommandRun) -> Self {
        Self {
            step: run.step,
            start: run.start,
            session: run.session.to_string(),
            worker: run.worker.clone(),
            at: run.at,
            tool: run.tool.clone(),
            command: run.command.clone(),
            directory: run.directory.clone(),
            status: run.status.as_str().to_owned(),
            exit: run.exit,
            failed: run.failed,
            duration_us: run.duration_us,
            output: run.output.clone(),
            stdout: run.stdout.clone(),
            stderr: run.stderr.clone(),
        }
    }
}
