//! The configuration of a recorder: what is recorded, how much of it, and where it is sent.

use std::time::Duration;

use stepback_model::record::StepKind;

use crate::http::Address;

/// Which parts of a step are recorded. Its kind, time and duration always are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capture {
    /// Inputs and outputs of calls.
    pub inputs_and_outputs: bool,
    /// Messages between the agent and its model.
    pub conversation: bool,
    /// The agent's memory.
    pub memory: bool,
    /// The agent's task list.
    pub tasks: bool,
    /// Names of the session's tools and variables.
    pub environment: bool,
}

impl Default for Capture {
    /// Everything but the conversation, which grows with every turn.
    fn default() -> Self {
        Self { inputs_and_outputs: true, conversation: false, memory: true, tasks: true, environment: true }
    }
}

impl Capture {
    /// Records everything.
    pub fn everything() -> Self {
        Self { conversation: true, ..Self::default() }
    }

    /// Records only what happened and when.
    pub fn nothing_but_steps() -> Self {
        Self {
            inputs_and_outputs: false,
            conversation: false,
            memory: false,
            tasks: false,
            environment: false,
        }
    }
}

/// The error that a configuration is invalid, so that a recorder cannot be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub(crate) String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// The configuration of a recorder.
#[derive(Clone)]
pub struct RecorderConfig {
    pub(crate) url: String,
    pub(crate) token: String,
    pub(crate) workspace: String,
    pub(crate) agent: String,
    pub(crate) capture: Capture,
    pub(crate) kinds: Option<Vec<StepKind>>,
    pub(crate) sample_rate: f64,
    pub(crate) longest_text: usize,
    pub(crate) redact: bool,
    pub(crate) most_waiting: usize,
    pub(crate) most_waiting_bytes: usize,
    pub(crate) batch: usize,
    pub(crate) linger: Duration,
    pub(crate) timeout: Duration,
    pub(crate) farewell: Duration,
}

impl std::fmt::Debug for RecorderConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token is left out, so that it does not end up in logs.
        f.debug_struct("Config").field("url", &self.url).field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl RecorderConfig {
    /// The default configuration for the server at `url` (`http://HOST:PORT`), with its token.
    pub fn new(url: &str, token: &str) -> Self {
        Self {
            url: url.to_owned(),
            token: token.to_owned(),
            workspace: "default".to_owned(),
            agent: "agent".to_owned(),
            capture: Capture::default(),
            kinds: None,
            sample_rate: 1.0,
            longest_text: 64 << 10,
            redact: true,
            most_waiting: 10_000,
            most_waiting_bytes: 16 << 20,
            batch: 100,
            linger: Duration::from_millis(200),
            timeout: Duration::from_secs(10),
            farewell: Duration::from_secs(5),
        }
    }

    /// Sets the workspace of sessions: the name of a workspace, or the id or root of one that the server knows.
    #[must_use]
    pub fn workspace(mut self, name: &str) -> Self {
        name.clone_into(&mut self.workspace);
        self
    }

    /// Sets the name of the agent.
    #[must_use]
    pub fn agent(mut self, name: &str) -> Self {
        name.clone_into(&mut self.agent);
        self
    }

    /// Sets which parts of steps are recorded.
    #[must_use]
    pub fn capture(mut self, capture: Capture) -> Self {
        self.capture = capture;
        self
    }

    /// Records only steps of these kinds. The default is all.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = StepKind>) -> Self {
        self.kinds = Some(kinds.into_iter().collect());
        self
    }

    /// Records only this fraction of all calls, from 0 to 1; both ends of a call are recorded or neither. Errors and user
    /// input are always recorded.
    #[must_use]
    pub fn sample_rate(mut self, rate: f64) -> Self {
        self.sample_rate = rate;
        self
    }

    /// Sets the longest text that is recorded, in bytes. The middle of a longer one is replaced by a note on how much was
    /// cut.
    #[must_use]
    pub fn longest_text(mut self, bytes: usize) -> Self {
        self.longest_text = bytes;
        self
    }

    /// Sets whether secrets are redacted before anything is sent. The server does so too; this keeps them off the network.
    #[must_use]
    pub fn redact(mut self, redact: bool) -> Self {
        self.redact = redact;
        self
    }

    /// Sets how many steps and bytes may wait to be sent. Steps beyond that are dropped and counted.
    #[must_use]
    pub fn most_waiting(mut self, steps: usize, bytes: usize) -> Self {
        (self.most_waiting, self.most_waiting_bytes) = (steps, bytes);
        self
    }

    /// Sets how many steps are sent in one batch, and how long the first of them waits for the others.
    #[must_use]
    pub fn batch(mut self, steps: usize, linger: Duration) -> Self {
        (self.batch, self.linger) = (steps, linger);
        self
    }

    /// Sets how long to wait for an answer of the server, and how long the end of the program waits until everything is sent.
    #[must_use]
    pub fn timeouts(mut self, answer: Duration, farewell: Duration) -> Self {
        (self.timeout, self.farewell) = (answer, farewell);
        self
    }

    pub(crate) fn check(&self) -> Result<Address, ConfigError> {
        let wrong = |what: &str| Err(ConfigError(what.to_owned()));
        if !(0.0..=1.0).contains(&self.sample_rate) {
            return wrong("the sample rate is a number from 0 to 1");
        }
        if self.batch == 0 || self.most_waiting == 0 {
            return wrong("a batch and the queue hold at least one step");
        }
        if self.agent.is_empty() || self.workspace.is_empty() {
            return wrong("the agent and the workspace need a name");
        }
        if self.token.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return wrong("the token has characters that no token has");
        }
        Address::parse(&self.url).map_err(ConfigError)
    }
}
