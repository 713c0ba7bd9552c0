//! What is recorded, how much of it, and where it goes.

use std::time::Duration;

use stepback_model::record::StepKind;

use crate::http::Address;

/// Which parts of what happens are recorded. What happened, when and how long it took always is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Capture {
    /// What goes into calls and comes out of them.
    pub inputs_and_outputs: bool,
    /// What was said between the agent and its model.
    pub conversation: bool,
    /// The agent's memory.
    pub memory: bool,
    /// The agent's task list.
    pub tasks: bool,
    /// Names of tools and variables.
    pub environment: bool,
}

impl Default for Capture {
    /// Everything but the conversation, which grows with every turn.
    fn default() -> Self {
        Self { inputs_and_outputs: true, conversation: false, memory: true, tasks: true, environment: true }
    }
}

impl Capture {
    /// Everything.
    pub fn everything() -> Self {
        Self { conversation: true, ..Self::default() }
    }

    /// Only what happened and when.
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

/// Why a recorder cannot be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError(pub(crate) String);

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

/// How a recorder works.
#[derive(Clone)]
pub struct Config {
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

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        f.debug_struct("Config").field("url", &self.url).field("agent", &self.agent).finish_non_exhaustive()
    }
}

impl Config {
    /// For the server at `url` (`http://HOST:PORT`), with its token.
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

    /// Where sessions belong: the name of a workspace, or the id or root of one that the server knows.
    #[must_use]
    pub fn workspace(mut self, name: &str) -> Self {
        name.clone_into(&mut self.workspace);
        self
    }

    /// The agent's name.
    #[must_use]
    pub fn agent(mut self, name: &str) -> Self {
        name.clone_into(&mut self.agent);
        self
    }

    /// Which parts are recorded.
    #[must_use]
    pub fn capture(mut self, capture: Capture) -> Self {
        self.capture = capture;
        self
    }

    /// Only steps of these kinds are recorded. Without this, all are.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = StepKind>) -> Self {
        self.kinds = Some(kinds.into_iter().collect());
        self
    }

    /// Only this part of all calls is recorded, from 0 to 1, each from its start to its end or not at all. What went wrong
    /// always is, and so is what people said.
    #[must_use]
    pub fn sample_rate(mut self, rate: f64) -> Self {
        self.sample_rate = rate;
        self
    }

    /// Longest text that is recorded, in bytes. Of a longer one the middle is left out, and a note says how much.
    #[must_use]
    pub fn longest_text(mut self, bytes: usize) -> Self {
        self.longest_text = bytes;
        self
    }

    /// Whether secrets are taken out before anything is sent. The server does so too; this keeps them from the network.
    #[must_use]
    pub fn redact(mut self, redact: bool) -> Self {
        self.redact = redact;
        self
    }

    /// How many steps and bytes may wait to be sent. What is recorded beyond that is dropped and counted.
    #[must_use]
    pub fn most_waiting(mut self, steps: usize, bytes: usize) -> Self {
        (self.most_waiting, self.most_waiting_bytes) = (steps, bytes);
        self
    }

    /// How many steps are sent at once, and how long the first of them waits for the others.
    #[must_use]
    pub fn batch(mut self, steps: usize, linger: Duration) -> Self {
        (self.batch, self.linger) = (steps, linger);
        self
    }

    /// How long the server has to answer, and how long the end of the program waits until everything is sent.
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
