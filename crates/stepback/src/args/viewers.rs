//! The words of commands that go through what was recorded: replay, tui and compare.

use std::path::PathBuf;

use clap::Args;

/// Examples of `replay`.
pub const REPLAY: &str = "\
On a terminal, use keys: space plays and pauses, n and p go to the next and previous step, e and E to the next and \
previous error, g to a step number, + and - change the speed, q quits.

Examples:
  stepback replay                            the last session here
  stepback replay 4f2a --speed 2x
  stepback replay 4f2a --filter tool-start,error --plain
  stepback replay 4f2a --from-iteration 3 --until error:last
  stepback replay ~/.claude/projects/p/4f2a.jsonl";

/// Examples of `tui`.
pub const TUI: &str = "\
Sessions, timeline, step, state, diff and live control, one view each: tab switches views, ? shows all keys.

Examples:
  stepback tui                               all sessions
  stepback tui 4f2a                          one of them
  stepback tui --server http://127.0.0.1:7171";

/// Examples of `compare`.
pub const COMPARE: &str = "\
A and B are each a session, a branch or a point; session:ID and branch:NAME disambiguate.

Examples:
  stepback compare 4f2a 91c0            two sessions, in any workspaces
  stepback compare main branch:try-redis
  stepback compare '#12' @              two points: files, memory, conversation
  stepback compare 4f2a 91c0 --all      including equal steps
  stepback compare main other --summary only the summary";

// Comparing runs.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The first
    pub a: String,
    /// The second
    pub b: String,
    /// Include equal steps
    #[arg(long)]
    pub all: bool,
    /// Show only the summary, without steps
    #[arg(long, conflicts_with = "all")]
    pub summary: bool,
}

// Looking at everything with keys.
#[derive(Debug, Args)]
pub struct TuiArgs {
    /// The session to open: the beginning of its id, stepback's or the agent's, its transcript, or the directory it ran in [default: a list of all]
    pub session: Option<String>,
    /// Show the store of this server
    #[arg(long, value_name = "URL")]
    pub server: Option<String>,
    /// The server's token [default: STEPBACK_TOKEN, else the file server.token of the store on this machine]
    #[arg(long, value_name = "FILE", requires = "server")]
    pub token_file: Option<PathBuf>,
    /// Trust the certificates in this file as well (PEM)
    #[arg(long = "tls-ca", value_name = "FILE", requires = "server")]
    pub certificates: Option<PathBuf>,
}

// Going through a session again.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The session: the beginning of its id, stepback's or the agent's, its transcript, or the directory it ran in [default: the last active one here]
    pub session: Option<String>,
    /// Replay with the recorded timing, at most 5 seconds between steps
    #[arg(long)]
    pub timed: bool,
    /// Speed: 2x, 0.5x
    #[arg(long, value_name = "SPEED", value_parser = parse_speed)]
    pub speed: Option<f64>,
    /// Only steps of these kinds, separated by commas
    #[arg(long, value_name = "KINDS", value_delimiter = ',')]
    pub filter: Vec<String>,
    /// Start at the agent's Nth turn
    #[arg(long, value_name = "N")]
    pub from_iteration: Option<u64>,
    /// Start at step N
    #[arg(long, value_name = "N")]
    pub from_sequence: Option<u64>,
    /// Stop at this point
    #[arg(long, value_name = "POINT")]
    pub until: Option<String>,
    /// Print everything and exit, even on a terminal
    #[arg(long)]
    pub plain: bool,
}

/// Reads how many times faster than it was: `2`, `2x`, `0.5x`.
fn parse_speed(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches(['x', 'X']);
    match number.parse::<f64>() {
        Ok(speed) if speed.is_finite() && speed > 0.0 => Ok(speed),
        Ok(_) => Err("the speed must be more than 0".into()),
        Err(_) => Err("write how many times faster, such as 2x or 0.5x".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_speed;

    #[test]
    fn speeds_are_numbers_above_zero() {
        assert_eq!(parse_speed("2"), Ok(2.0));
        assert_eq!(parse_speed("2x"), Ok(2.0));
        assert_eq!(parse_speed(" 0.5X "), Ok(0.5));
        for wrong in ["0", "-1x", "inf", "NaN", "fast", "", "x", "2y"] {
            assert!(parse_speed(wrong).is_err(), "{wrong}");
        }
    }
}
