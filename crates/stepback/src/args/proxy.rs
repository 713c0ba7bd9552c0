//! The words of commands that carry model calls or answer them: proxy and rerun.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum};

/// Examples of `proxy`.
pub const PROXY: &str = "\
Point your agent's base URL at it; every byte goes on to the model as it is, and every call becomes a step of the session it \
belongs to. Keys pass through and are never stored. \"stepback run\" does all of it by itself for the agents it knows.

Examples:
  stepback proxy                                       ANTHROPIC_BASE_URL=http://127.0.0.1:PORT your-agent
  stepback proxy --listen 127.0.0.1:7070 --upstream http://127.0.0.1:11434
  stepback proxy --replay 4f2a                         answer from a recording; no model is asked";

// Carrying model calls.
#[derive(Debug, Args)]
pub struct ProxyArgs {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:0")]
    pub listen: String,
    /// Where the model is, for every kind of call
    #[arg(long, value_name = "URL")]
    pub upstream: Option<String>,
    /// Where Anthropic Messages calls go [default: $ANTHROPIC_BASE_URL, else api.anthropic.com]
    #[arg(long, value_name = "URL")]
    pub anthropic: Option<String>,
    /// Where OpenAI calls go [default: api.openai.com]
    #[arg(long, value_name = "URL")]
    pub openai: Option<String>,
    /// Where Gemini calls go [default: $GOOGLE_GEMINI_BASE_URL, else generativelanguage.googleapis.com]
    #[arg(long, value_name = "URL")]
    pub gemini: Option<String>,
    /// The name of the agent, if its calls do not tell
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub agent: Option<String>,
    /// The session that calls belong to, if they do not tell [default: one for this proxy]
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    pub session: Option<String>,
    /// Answer from this recorded session
    #[arg(long, value_name = "SESSION")]
    pub replay: Option<String>,
    #[command(flatten)]
    pub recorded: Recorded,
}

/// Examples of `serve`.
pub const SERVE: &str = "\
Everything needs the token in server.token in the store; /api/v1/openapi.json describes what can be asked.

Examples:
  stepback serve
  stepback serve --listen 127.0.0.1:7171
  curl -H \"Authorization: Bearer $(cat ~/.local/share/stepback/server.token)\" http://127.0.0.1:7171/api/v1/sessions";

// Serving a store.
#[derive(Debug, Args)]
pub struct Serve {
    /// Where to listen; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7171")]
    pub listen: String,
    /// Another name by which the server may be asked for (can be repeated)
    #[arg(long = "allow-host", value_name = "NAME")]
    pub hosts: Vec<String>,
    /// An origin whose pages may ask (can be repeated)
    #[arg(long = "allow-origin", value_name = "ORIGIN")]
    pub origins: Vec<String>,
    /// Encrypt what is sent, with the certificate in this file (PEM)
    #[arg(long = "tls-cert", value_name = "FILE", requires = "key")]
    pub certificate: Option<PathBuf>,
    /// The certificate's private key (PEM)
    #[arg(long = "tls-key", value_name = "FILE", requires = "certificate")]
    pub key: Option<PathBuf>,
    /// Write a line of JSON for every request to this file; "-" is the standard error output
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// Answer one address at most so many requests in a second; 0 is no limit [default: 100 off loopback]
    #[arg(long = "rate-limit", value_name = "N")]
    pub rate: Option<u32>,
    /// Do not watch workspaces: hooks then look at every file
    #[arg(long)]
    pub no_watcher: bool,
    /// Let agents that ask over MCP run commands as checks: whoever has the token could run anything
    #[arg(long)]
    pub allow_commands: bool,
}

impl Serve {
    /// At an address, and otherwise as usual.
    pub fn at(listen: String) -> Self {
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
        }
    }
}

/// Examples of `studio`.
pub const STUDIO: &str = "\
A server that runs for this store is used; if there is none, one is started and ends with Ctrl-C. The address is good once.

Examples:
  stepback studio
  stepback studio --no-open                         print the address, for a browser elsewhere
  stepback studio --server http://127.0.0.1:7171";

// The Studio.
#[derive(Debug, Args)]
pub struct Studio {
    /// The server to use, instead of the one that runs or is started here
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub server: Option<String>,
    /// Where to listen if a server is started; another port if somebody has that one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:7171")]
    pub listen: String,
    /// Only print the address, and start no browser
    #[arg(long)]
    pub no_open: bool,
}

// How a recording answers.
#[derive(Debug, Args)]
pub struct Recorded {
    /// What to do with a call that was never recorded like this
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = UnrecordedCall::Stop)]
    pub on_difference: UnrecordedCall,
    /// Let recorded answers take as long as they did
    #[arg(long)]
    pub timed: bool,
}

/// What to do with a call that was never recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum UnrecordedCall {
    /// Refuse it, which ends a rerun
    Stop,
    /// Ask the model, from there on
    Live,
    /// Give the recorded answer that comes nearest
    Nearest,
}

/// Examples of `rerun`.
pub const RERUN: &str = "\
The agent runs again in a directory of its own, with the files of that point; its model calls are answered from the \
recording. Your files are not touched, and nothing it does reaches anything else. What it comes to is a branch.

PATH is model, system, prompt, prompt[N], memory.KEY, '#STEP.input…' or '#STEP.output…'.

Examples:
  stepback rerun                                    the last session, as it was
  stepback rerun 4f2a --set 'prompt=use redis' --on-difference live
  stepback rerun 4f2a --set '#14.output=all tests pass' --compare
  stepback rerun 4f2a --from '#20' --until error --timeout 5m";

// Doing a session again.
#[derive(Debug, Args)]
pub struct RerunArgs {
    /// The session: the beginning of its id, ours or the agent's [default: the last at work here]
    pub session: Option<String>,
    /// Begin with the prompt that this point belongs to [default: the first]
    #[arg(long, value_name = "POINT")]
    pub from: Option<String>,
    /// Change one thing (can be repeated)
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// End after the first step of this kind
    #[arg(long, value_name = "KIND")]
    pub until: Option<String>,
    /// End after N steps
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_steps: Option<u64>,
    /// End after so long: 90s, 5m
    #[arg(long, value_name = "T", value_parser = duration)]
    pub timeout: Option<Duration>,
    /// What becomes of tool calls
    #[arg(long, value_enum, value_name = "HOW", default_value_t = ToolMode::Real)]
    pub tools: ToolMode,
    /// Compare it with the original step by step
    #[arg(long)]
    pub compare: bool,
    /// The name of its branch [default: rerun-N]
    #[arg(long, value_name = "NAME")]
    pub branch: Option<String>,
    /// Leave the directory it ran in
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub recorded: Recorded,
}

/// What becomes of tool calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ToolMode {
    /// They do not run; what they did then is put in place
    Recorded,
    /// They run
    Real,
    /// Those that can change something do not run
    Deny,
}

/// Reads how long: `90`, `90s`, `5m`, `1h`.
fn duration(text: &str) -> Result<Duration, String> {
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
        _ => return Err("write how long, such as 90s, 5m or 1h".into()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * factor);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| "write how long, such as 90s, 5m or 1h".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for wrong in ["", "s", "0", "-1s", "5 days", "1e400s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
