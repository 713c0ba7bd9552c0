//! The words of commands that carry model calls or answer them: proxy and rerun.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

/// Examples of `proxy`.
pub const PROXY: &str = "\
Point your agent's base URL at it. Every byte is forwarded unchanged, and every call becomes a step of its session. Keys are \
forwarded and never stored. \"stepback run\" does all of this for the agents it knows.

Examples:
  stepback proxy                                       ANTHROPIC_BASE_URL=http://127.0.0.1:PORT your-agent
  stepback proxy --listen 127.0.0.1:7070 --upstream http://127.0.0.1:11434
  stepback proxy --replay 4f2a                         answer from a recording, without a model";

// Carrying model calls.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// Another host name to accept (can be repeated)
    #[arg(long = "allow-host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// A web origin to accept requests from (can be repeated)
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub origins: Vec<String>,
    /// URL of the model server, for every kind of call
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// URL for Anthropic Messages calls [default: $ANTHROPIC_BASE_URL, else api.anthropic.com]
    #[arg(long, value_name = "URL")]
    pub anthropic: Option<String>,
    /// URL for OpenAI calls [default: api.openai.com]
    #[arg(long, value_name = "URL")]
    pub openai: Option<String>,
    /// URL for Gemini calls [default: $GOOGLE_GEMINI_BASE_URL, else generativelanguage.googleapis.com]
    #[arg(long, value_name = "URL")]
    pub gemini: Option<String>,
    /// Name of the agent, if its calls do not include it
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub agent: Option<String>,
    /// Session of the calls, if they do not name one [default: a new one for this proxy]
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub session: Option<String>,
    /// Answer from this recorded session
    #[arg(long, value_name = "SESSION")]
    pub replay: Option<String>,
    #[command(flatten)]
    pub recorded: RecordingArgs,
}

/// Examples of `serve`.
pub const SERVE: &str = "\
Every request needs the token in server.token in the store; /api/v1/openapi.json describes the API.

Examples:
  stepback serve
  stepback serve --listen 127.0.0.1:7171
  curl -H \"Authorization: Bearer $(cat ~/.local/share/stepback/server.token)\" http://127.0.0.1:7171/api/v1/sessions
  stepback serve --guard --store /var/lib/stepback   for agents of other users: --store unix:/run/stepback/store.sock";

// Serving a store.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Address to listen on; port 0 picks a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7171")]
    pub listen: String,
    /// Another host name to accept (can be repeated)
    #[arg(long = "allow-host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// A web origin to accept requests from (can be repeated)
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub origins: Vec<String>,
    /// Use TLS, with the certificate in this file (PEM)
    #[arg(long = "tls-cert", value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long = "tls-key", value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Write a line of JSON for every request to this file; "-" means standard error
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Limit requests per second and client address; 0 means no limit [default: 100 off loopback]
    #[arg(long = "rate-limit", value_name = "N")]
    pub rate: Option<u32>,
    /// Do not watch workspaces; hooks then scan every file
    #[arg(long)]
    pub no_watcher: bool,
    /// Let agents run commands as checks over MCP: every holder of the token can then run anything
    #[arg(long)]
    pub allow_commands: bool,
    /// Guard the store: serve its own port on a socket and at /store, to clients that can append and read
    #[arg(long)]
    pub guard: bool,
    /// The socket [default: /run/stepback/store.sock if this user may create it, else guard.sock in the store]
    #[arg(long, value_name = "PATH", requires = "guard")]
    pub socket: Option<PathBuf>,
}

impl ServeArgs {
    /// At an address, and otherwise as usual.
    pub fn listening_on(listen: String) -> Self {
        Self {
            listen,
            hosts: Vec::new(),
            origins: Vec::new(),
            certificate: None,
            key: None,
            log: None,
            rate: None,
            no_watcher: false,
            allow_commands: false,
            guard: false,
            socket: None,
        }
    }
}

/// Examples of `studio`.
pub const STUDIO: &str = "\
Uses the server that runs for this store, or starts one, which Ctrl-C stops. The address works once.

Examples:
  stepback studio
  stepback studio --no-open                         print the address, for another browser
  stepback studio --server http://127.0.0.1:7171";

// The Studio.
#[derive(Debug, Args)]
pub struct StudioArgs {
    /// Use this server instead of the one for this store
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub server: Option<String>,
    /// Address to listen on if a server is started; another port if that one is in use
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7171")]
    pub listen: String,
    /// Print the address without starting a browser
    #[arg(long)]
    pub no_open: bool,
}

// How a recording answers.
#[derive(Debug, Args)]
pub struct RecordingArgs {
    /// What to do with a call that has no recorded match
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = UnrecordedCall::Stop)]
    pub on_difference: UnrecordedCall,
    /// Replay answers with their recorded timing
    #[arg(long)]
    pub timed: bool,
}

/// What to do with a call that has no recorded match.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum UnrecordedCall {
    /// Refuse the call; this ends a rerun
    Stop,
    /// Ask the model from there on
    Live,
    /// Use the most similar recorded answer
    Nearest,
}

/// Examples of `rerun`.
pub const RERUN: &str = "\
The agent runs again in its own directory, with the files of that point; its model calls are answered from the recording. \
Your files are not changed, and the sandbox isolates it. The resulting files become a branch.

PATH is model, system, prompt, prompt[N], 'messages[N].content', memory.KEY, '#STEP.input…' or '#STEP.output…'.

Examples:
  stepback rerun                                    the last session, unchanged
  stepback rerun 4f2a --set 'prompt=use redis' --on-difference live
  stepback rerun 4f2a --set '#14.output=all tests pass' --compare
  stepback rerun 4f2a --from '#20' --until error --timeout 5m";

// Doing a session again.
#[derive(Debug, Args)]
pub struct RerunArgs {
    /// The session: the beginning of its id, stepback's or the agent's [default: the last active one here]
    pub session: Option<String>,
    /// Start with the prompt of this point [default: the first prompt]
    #[arg(long, value_name = "POINT")]
    pub from: Option<String>,
    /// Change a value (can be repeated)
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Stop after the first step of this kind
    #[arg(long, value_name = "KIND")]
    pub until: Option<String>,
    /// Exit after N steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_steps: Option<u64>,
    /// Stop after this long: 90s, 5m
    #[arg(long, value_name = "T", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// How to handle tool calls
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ToolMode::Real)]
    pub tools: ToolMode,
    /// Compare the result with the original, step by step
    #[arg(long)]
    pub compare: bool,
    /// Name of the resulting branch [default: rerun-N]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Keep the directory it ran in
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub recorded: RecordingArgs,
}

/// How to handle tool calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ToolMode {
    /// Do not run them; apply their recorded effects
    Recorded,
    /// Run them
    Real,
    /// Run only those that cannot change anything
    Deny,
}

/// Reads how long: `90`, `90s`, `5m`, `1h`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let (number, unit) = match text.find(|c: char| !c.is_ascii_digit() && c != '.') {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("use a duration such as 90s, 5m or 1h".into()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * factor);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "use a duration such as 90s, 5m or 1h".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "s", "0", "-1s", "5 days", "1e400s"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
